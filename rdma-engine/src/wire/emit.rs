use std::net::IpAddr;
use std::ops::Range;

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::bth::Bth;
use super::ethernet::{EthernetHeader, Mac, VlanTag, Vlans, ethertype};
use super::extended::ExtendedHeaders;
use super::icrc::{self, IcrcBuilder, Lower4Icrc, Lower6Icrc};
use super::ip::{Ipv4Header, Ipv6Header, ip_protocol};
use super::udp::{ROCE_PORT, UdpHeader};

/// Where frames of a queue pair go, and how: the address vector with resolved MAC addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Our port.
    pub source_mac: Mac,
    /// Next hop.
    pub destination_mac: Mac,
    /// Tags to add.
    pub vlans: Vlans,
    /// Our address; of the same family as the destination.
    pub source: IpAddr,
    /// The peer's address.
    pub destination: IpAddr,
    /// DSCP (6 bits) and ECN (2 bits).
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// IPv6 only, 20 bits.
    pub flow_label: u32,
    /// Entropy for ECMP and RSS.
    pub source_port: u16,
}

/// IPv4 and UDP as they lie on the wire.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Lower4 {
    ip: Ipv4Header,
    udp: UdpHeader,
}

/// IPv6 and UDP as they lie on the wire.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Lower6 {
    ip: Ipv6Header,
    udp: UdpHeader,
}

#[derive(Clone, Copy, Debug)]
enum Lower {
    /// `checksum` is the ones' complement sum of the header with length and id 0.
    V4 {
        headers: Lower4,
        checksum: u32,
        icrc: Lower4Icrc,
    },
    V6 {
        headers: Lower6,
        icrc: Lower6Icrc,
    },
}

/// Longest link header: Ethernet and two tags.
const LINK_MAX: usize = size_of::<EthernetHeader>() + Vlans::MAX * size_of::<VlanTag>();

/// Everything below the BTH, made once per route; per packet only lengths, id and checksum are filled in.
#[derive(Clone, Copy, Debug)]
pub struct HeaderTemplate {
    link: [u8; LINK_MAX],
    link_len: u8,
    lower: Lower,
}

/// Headers that were written. Their ICRC is computed when the frame is sealed: some links do without.
#[derive(Clone, Copy, Debug)]
pub struct Written<'h, H> {
    /// Where in the headroom the frame begins.
    pub start: usize,
    lower: &'h Lower,
    ip_id: u16,
    udp_len: u16,
    bth: Bth,
    extended: &'h H,
}

impl<H: ExtendedHeaders> Written<'_, H> {
    /// The pad and ICRC of the frame, whose payload lies in `payload`.
    #[inline]
    pub fn seal<'p>(&self, payload: impl IntoIterator<Item = &'p [u8]>) -> Tail {
        let mut icrc = match self.lower {
            Lower::V4 { icrc, .. } => icrc.with(Lower4::total_len(self.udp_len), self.ip_id, self.udp_len),
            Lower::V6 { icrc, .. } => icrc.with(self.udp_len),
        };
        icrc.update_bth(self.bth);
        icrc.update_header(self.extended.as_bytes());
        tail_of(icrc, payload)
    }
}

/// The pad and ICRC behind `payload`, from the state of the ICRC in front of it.
#[inline]
fn tail_of<'p>(mut icrc: IcrcBuilder, payload: impl IntoIterator<Item = &'p [u8]>) -> Tail {
    let mut payload_len = 0;
    for piece in payload {
        icrc.update(piece);
        payload_len += piece.len();
    }
    let pad = Bth::pad_for(payload_len);
    if pad != 0 {
        icrc.update(&[0; 3][..usize::from(pad)]);
    }
    Tail::new(pad, icrc.finish())
}

/// Pad and ICRC: the 4 to 7 bytes after a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tail {
    bytes: [u8; 3 + icrc::LEN],
    pad: u8,
}

impl Tail {
    /// `pad` zero bytes (0 to 3), then `icrc`.
    #[inline]
    pub const fn new(pad: u8, icrc: [u8; 4]) -> Self {
        let [a, b, c, d] = icrc;
        Tail { bytes: [0, 0, 0, a, b, c, d], pad: pad & 3 }
    }

    /// The bytes that follow the payload.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(3 - usize::from(self.pad)..).unwrap_or_default()
    }

    /// Writes the bytes that follow the payload to `room`, which is exactly theirs.
    ///
    /// # Panics
    /// If it is not.
    #[inline]
    pub fn write(&self, room: &mut [u8]) {
        assert!(room.len() == usize::from(self.pad) + icrc::LEN, "a tail of another length");
        let Some((pad, icrc)) = room.split_last_chunk_mut::<{ icrc::LEN }>() else { return };
        icrc.copy_from_slice(&self.bytes[3..]);
        if !pad.is_empty() {
            pad.fill(0);
        }
    }
}

impl HeaderTemplate {
    /// Most bytes that headers take in front of a payload.
    pub const MAX_HEADROOM: usize =
        LINK_MAX + size_of::<Lower6>() + size_of::<Bth>() + super::opcode::HeaderSet::MAX_LEN;
    /// Most bytes that pad and ICRC take after a payload.
    pub const MAX_TAILROOM: usize = 3 + icrc::LEN;

    /// The template of `route`; `None` if its addresses are of different families.
    pub fn new(route: &Route) -> Option<Self> {
        let lower = match (route.source, route.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Lower::v4(route, source.octets(), destination.octets())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Lower::v6(route, source.octets(), destination.octets())
            }
            _ => return None,
        };
        let mut template = HeaderTemplate { link: [0; LINK_MAX], link_len: 0, lower };
        template.set_link(route);
        Some(template)
    }

    fn set_link(&mut self, route: &Route) {
        self.push_link(route.destination_mac.as_bytes());
        self.push_link(route.source_mac.as_bytes());
        for &(tag_protocol, tci) in route.vlans.tags() {
            self.push_link(&tag_protocol.to_be_bytes());
            self.push_link(&tci.to_be_bytes());
        }
        let ethertype = match self.lower {
            Lower::V4 { .. } => ethertype::IPV4,
            Lower::V6 { .. } => ethertype::IPV6,
        };
        self.push_link(&ethertype.to_be_bytes());
    }

    fn push_link(&mut self, bytes: &[u8]) {
        let at = usize::from(self.link_len);
        self.link[at..at + bytes.len()].copy_from_slice(bytes);
        self.link_len += bytes.len() as u8;
    }

    /// Bytes in front of a payload whose extended headers are `H`.
    #[inline(always)]
    pub const fn headroom<H: ExtendedHeaders>(&self) -> usize {
        self.lower_len() + size_of::<Bth>() + size_of::<H>()
    }

    /// Bytes in front of the BTH.
    #[inline(always)]
    const fn lower_len(&self) -> usize {
        self.link_len as usize
            + match self.lower {
                Lower::V4 { .. } => size_of::<Lower4>(),
                Lower::V6 { .. } => size_of::<Lower6>(),
            }
    }

    /// Writes all headers so that they end where `headroom` ends, for a payload of `payload_len` bytes. The
    /// pad count of `bth` is set here; `ip_id` is the IPv4 identification.
    ///
    /// # Panics
    /// If `headroom` is shorter than [`HeaderTemplate::headroom`], or the packet longer than IP allows.
    #[inline(always)]
    pub fn write_headers<'h, H: ExtendedHeaders>(
        &'h self,
        headroom: &mut [u8],
        payload_len: usize,
        ip_id: u16,
        bth: Bth,
        extended: &'h H,
    ) -> Written<'h, H> {
        debug_assert!(bth.opcode.info().headers == H::SET, "{:?} has other headers", bth.opcode);
        let bth = bth.with_pad_for(payload_len);
        let udp_len = size_of::<UdpHeader>()
            + size_of::<Bth>()
            + size_of::<H>()
            + payload_len
            + usize::from(bth.pad())
            + icrc::LEN;
        assert!(udp_len <= usize::from(u16::MAX) - size_of::<Ipv4Header>(), "longer than an IP packet");
        let udp_len = udp_len as u16;

        let start = headroom.len() - self.headroom::<H>();
        let out = write_link(&mut headroom[start..], &self.link, self.link_len);
        let out = match &self.lower {
            Lower::V4 { headers, checksum, .. } => headers.write(out, *checksum, ip_id, udp_len),
            Lower::V6 { headers, .. } => headers.write(out, udp_len),
        };
        let out = put(out, bth.to_wire());
        out[..size_of::<H>()].copy_from_slice(extended.as_bytes());
        Written { start, lower: &self.lower, ip_id, udp_len, bth, extended }
    }

    /// The pad and ICRC of a frame whose headers lie in `headers`, from the Ethernet header on. Where they
    /// have just been written, [`Written::seal`] is faster.
    #[inline]
    pub fn seal<'p>(&self, headers: &[u8], payload: impl IntoIterator<Item = &'p [u8]>) -> Tail {
        let packet = headers.get(usize::from(self.link_len)..).unwrap_or_default();
        let icrc = match self.lower {
            Lower::V4 { .. } => IcrcBuilder::ipv4(packet),
            Lower::V6 { .. } => IcrcBuilder::ipv6(packet),
        };
        tail_of(icrc, payload)
    }

    /// Makes a frame around a payload that lies at `payload` of `buffer`: headers before it, pad and ICRC
    /// after it. Returns where the frame lies. Bytes outside the frame are left alone.
    ///
    /// # Panics
    /// If `buffer` has less headroom than [`HeaderTemplate::headroom`] or less tailroom than pad and ICRC.
    #[inline]
    pub fn wrap<H: ExtendedHeaders>(
        &self,
        buffer: &mut [u8],
        payload: Range<usize>,
        ip_id: u16,
        bth: Bth,
        extended: &H,
    ) -> Range<usize> {
        let (headroom, rest) = buffer.split_at_mut(payload.start);
        let payload_len = payload.len();
        let written = self.write_headers(headroom, payload_len, ip_id, bth, extended);
        let (payload, tailroom) = rest.split_at_mut(payload_len);
        let tail = written.seal([&*payload]);
        let tail_len = tail.as_bytes().len();
        tail.write(&mut tailroom[..tail_len]);
        written.start..headroom.len() + payload_len + tail_len
    }

    /// Writes a whole frame at the start of `out`, copying `payload`. Returns its length.
    ///
    /// # Panics
    /// If `out` is too short.
    #[inline]
    pub fn write_frame<H: ExtendedHeaders>(
        &self,
        out: &mut [u8],
        payload: &[u8],
        ip_id: u16,
        bth: Bth,
        extended: &H,
    ) -> usize {
        let at = self.headroom::<H>();
        let range = at..at + payload.len();
        out[range.clone()].copy_from_slice(payload);
        self.wrap(out, range, ip_id, bth, extended).end
    }
}

/// Writes `value` at the start of `out` and returns what follows.
#[inline(always)]
fn put<T: IntoBytes + Immutable>(out: &mut [u8], value: T) -> &mut [u8] {
    let (here, rest) = out.split_at_mut(size_of::<T>());
    here.copy_from_slice(value.as_bytes());
    rest
}

/// The place of a `T` at the start of `out`, and what follows it.
#[inline(always)]
fn place<T: FromBytes + IntoBytes + KnownLayout + Unaligned>(out: &mut [u8]) -> (&mut T, &mut [u8]) {
    T::mut_from_prefix(out).unwrap_or_else(|_| panic!("the headroom is too short"))
}

/// Writes the first `len` bytes of `link` and returns what follows. Untagged frames copy a constant size.
#[inline(always)]
fn write_link<'o>(out: &'o mut [u8], link: &[u8; LINK_MAX], len: u8) -> &'o mut [u8] {
    const UNTAGGED: usize = size_of::<EthernetHeader>();
    if usize::from(len) == UNTAGGED {
        let (here, rest) = out.split_at_mut(UNTAGGED);
        here.copy_from_slice(&link[..UNTAGGED]);
        rest
    } else {
        let (here, rest) = out.split_at_mut(usize::from(len));
        here.copy_from_slice(&link[..usize::from(len)]);
        rest
    }
}

impl Lower {
    fn v4(route: &Route, source: [u8; 4], destination: [u8; 4]) -> Self {
        let mut ip = Ipv4Header {
            version_ihl: Ipv4Header::VERSION_IHL,
            tos: route.traffic_class,
            total_len: U16::ZERO,
            id: U16::ZERO,
            flags_fragment: U16::new(Ipv4Header::DONT_FRAGMENT),
            ttl: route.hop_limit,
            protocol: ip_protocol::UDP,
            checksum: U16::ZERO,
            source,
            destination,
        };
        ip.set_checksum();
        let checksum = u32::from(!ip.checksum.get());
        ip.checksum = U16::ZERO;
        let udp = udp(route);
        Lower::V4 { headers: Lower4 { ip, udp }, checksum, icrc: Lower4Icrc::new(ip, udp) }
    }

    fn v6(route: &Route, source: [u8; 16], destination: [u8; 16]) -> Self {
        let ip = Ipv6Header {
            version_class_flow: Ipv6Header::first_word(route.traffic_class, route.flow_label),
            payload_len: U16::ZERO,
            next_header: ip_protocol::UDP,
            hop_limit: route.hop_limit,
            source,
            destination,
        };
        let udp = udp(route);
        Lower::V6 { headers: Lower6 { ip, udp }, icrc: Lower6Icrc::new(ip, udp) }
    }
}

fn udp(route: &Route) -> UdpHeader {
    UdpHeader {
        source_port: U16::new(route.source_port),
        destination_port: U16::new(ROCE_PORT),
        len: U16::ZERO,
        checksum: U16::ZERO,
    }
}

impl Lower4 {
    #[inline(always)]
    const fn total_len(udp_len: u16) -> u16 {
        udp_len + size_of::<Ipv4Header>() as u16
    }

    /// Writes the headers at the start of `out` and returns what follows.
    #[inline(always)]
    fn write<'o>(&self, out: &'o mut [u8], checksum: u32, id: u16, udp_len: u16) -> &'o mut [u8] {
        let total_len = Self::total_len(udp_len);
        let sum = checksum + u32::from(total_len) + u32::from(id);
        let sum = (sum & 0xFFFF) + (sum >> 16);
        let sum = (sum & 0xFFFF) + (sum >> 16);
        let (headers, rest) = place::<Self>(out);
        *headers = *self;
        headers.ip.total_len = total_len.into();
        headers.ip.id = id.into();
        headers.ip.checksum = (!(sum as u16)).into();
        headers.udp.len = udp_len.into();
        rest
    }
}

impl Lower6 {
    /// Writes the headers at the start of `out` and returns what follows.
    #[inline(always)]
    fn write<'o>(&self, out: &'o mut [u8], udp_len: u16) -> &'o mut [u8] {
        let (headers, rest) = place::<Self>(out);
        *headers = *self;
        headers.ip.payload_len = udp_len.into();
        headers.udp.len = udp_len.into();
        rest
    }
}
