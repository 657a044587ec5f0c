//! Frames of the source: addresses from a flow's number, and the tag a sink reads.

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What the sink needs, at the start of the UDP or TCP payload (of the EtherType's payload for non-IP frames).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, PartialEq, Eq)]
#[repr(C)]
pub struct Tag {
    magic: U32,
    flow: U32,
    sequence: U32,
    /// CRC-32 of flow, sequence and all bytes behind the tag.
    checksum: U32,
}

/// Bytes of a tag.
pub const TAG_LEN: usize = size_of::<Tag>();
const MAGIC: u32 = 0x1574_A5E5;
/// EtherType of the source's non-IP frames, from the range for local experiments.
const ETHER_TYPE_OTHER: u16 = 0x88B5;
/// Shortest frame that holds Ethernet, VLAN, IPv6, TCP and a tag.
pub const MIN_FRAME: usize = 60;

const _: () = assert!(TAG_LEN == 16);

impl Tag {
    /// The tag of frame number `sequence` of `flow`, whose payload behind the tag is `rest`.
    #[inline]
    pub fn new(flow: u32, sequence: u32, rest: &[u8]) -> Self {
        let mut tag = Tag {
            magic: U32::new(MAGIC),
            flow: U32::new(flow),
            sequence: U32::new(sequence),
            checksum: U32::new(0),
        };
        tag.checksum = U32::new(tag.digest(rest));
        tag
    }

    /// The tag at the start of `payload`, unless it is no tag; with it whether the checksum holds.
    #[inline]
    pub fn read(payload: &[u8]) -> Option<(Tag, bool)> {
        let (tag, rest) = Tag::read_from_prefix(payload).ok()?;
        (tag.magic.get() == MAGIC).then(|| (tag, tag.digest(rest) == tag.checksum.get()))
    }

    /// Number of the flow.
    #[inline]
    pub fn flow(&self) -> u32 {
        self.flow.get()
    }

    /// Number of the frame in its flow, from 0, modulo 2^32.
    #[inline]
    pub fn sequence(&self) -> u32 {
        self.sequence.get()
    }

    #[inline]
    fn digest(&self, rest: &[u8]) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&self.as_bytes()[4..12]);
        crc.update(rest);
        crc.finalize()
    }
}

/// What a flow's frames look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proto {
    /// UDP over IPv4.
    UdpV4,
    /// TCP over IPv4 (headers only: no connection stands behind them).
    TcpV4,
    /// UDP over IPv6.
    UdpV6,
    /// TCP over IPv6.
    TcpV6,
    /// No IP at all.
    Other,
}

impl Proto {
    /// Bytes of headers behind Ethernet and VLAN.
    pub const fn header_len(self) -> usize {
        match self {
            Proto::UdpV4 => 20 + 8,
            Proto::TcpV4 => 20 + 20,
            Proto::UdpV6 => 40 + 8,
            Proto::TcpV6 => 40 + 20,
            Proto::Other => 0,
        }
    }

    const fn ether_type(self) -> u16 {
        match self {
            Proto::UdpV4 | Proto::TcpV4 => 0x0800,
            Proto::UdpV6 | Proto::TcpV6 => 0x86DD,
            Proto::Other => ETHER_TYPE_OTHER,
        }
    }

    const fn is_tcp(self) -> bool {
        matches!(self, Proto::TcpV4 | Proto::TcpV6)
    }
}

/// What the headers of a flow look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Protocol.
    pub proto: Proto,
    /// VLAN tag, if any.
    pub vlan: Option<u16>,
}

impl Shape {
    /// Bytes in front of the IP header.
    const fn link_len(self) -> usize {
        if self.vlan.is_some() { 18 } else { 14 }
    }

    /// Shortest frame of this shape that carries a tag.
    pub const fn shortest(self) -> usize {
        let need = self.link_len() + self.proto.header_len() + TAG_LEN;
        if need > MIN_FRAME { need } else { MIN_FRAME }
    }
}

/// Addresses that all flows of a source share.
#[derive(Clone, Copy, Debug)]
pub struct Addressing {
    /// Source MAC address.
    pub source_mac: [u8; 6],
    /// Destination MAC address.
    pub destination_mac: [u8; 6],
}

impl Addressing {
    /// Writes all headers of a frame of `out.len()` bytes; gives the offset of the tag. The source address is made of
    /// the flow's number in 10.0.0.0/8 or fd00::/8, so that a million flows are a million 5-tuples.
    ///
    /// # Panics
    /// If `out` is shorter than [`Shape::shortest`].
    #[inline]
    pub fn write(&self, shape: Shape, flow: u32, out: &mut [u8]) -> usize {
        let (length, proto) = (out.len(), shape.proto);
        assert!(length >= shape.shortest());
        out[..6].copy_from_slice(&self.destination_mac);
        out[6..12].copy_from_slice(&self.source_mac);
        let mut at = 12;
        if let Some(vlan) = shape.vlan {
            out[12..14].copy_from_slice(&0x8100u16.to_be_bytes());
            out[14..16].copy_from_slice(&vlan.to_be_bytes());
            at = 16;
        }
        out[at..at + 2].copy_from_slice(&proto.ether_type().to_be_bytes());
        at += 2;
        match proto {
            Proto::UdpV4 | Proto::TcpV4 => at += ipv4(proto, flow, &mut out[at..]),
            Proto::UdpV6 | Proto::TcpV6 => at += ipv6(proto, flow, &mut out[at..]),
            // The flow's number is in the MAC address, or all these frames would be one flow.
            Proto::Other => {
                out[8..12].copy_from_slice(&flow.to_be_bytes());
                return at;
            }
        }
        let payload = length - at;
        at + ports(proto, flow, payload, &mut out[at..])
    }

    /// Offset of the tag in a frame of the source, whatever its protocol; `None` for frames of others.
    #[inline]
    pub fn tag_offset(frame: &[u8]) -> Option<usize> {
        let mut ether_type = u16::from_be_bytes([*frame.get(12)?, *frame.get(13)?]);
        let mut at = 14;
        if ether_type == 0x8100 {
            ether_type = u16::from_be_bytes([*frame.get(16)?, *frame.get(17)?]);
            at = 18;
        }
        let (header, protocol) = match ether_type {
            0x0800 => (20, *frame.get(at + 9)?),
            0x86DD => (40, *frame.get(at + 6)?),
            ETHER_TYPE_OTHER => return Some(at),
            _ => return None,
        };
        match protocol {
            17 => Some(at + header + 8),
            6 => Some(at + header + 20),
            _ => None,
        }
    }
}

fn ipv4(proto: Proto, flow: u32, out: &mut [u8]) -> usize {
    let length = out.len() as u16;
    let [a, b, c, d] = (0x0A00_0000 | (flow & 0x00FF_FFFF)).to_be_bytes();
    let [l0, l1] = length.to_be_bytes();
    let protocol = if proto.is_tcp() { 6 } else { 17 };
    let mut h = [0x45, 0, l0, l1, 0, 0, 0x40, 0, 64, protocol, 0, 0, a, b, c, d, 198, 18, 0, 1];
    let sum: u32 = h.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    let checksum = !((folded & 0xFFFF) + (folded >> 16)) as u16;
    h[10..12].copy_from_slice(&checksum.to_be_bytes());
    out[..20].copy_from_slice(&h);
    20
}

fn ipv6(proto: Proto, flow: u32, out: &mut [u8]) -> usize {
    let length = (out.len() - 40) as u16;
    let mut h = [0u8; 40];
    h[0] = 0x60;
    h[4..6].copy_from_slice(&length.to_be_bytes());
    h[6] = if proto.is_tcp() { 6 } else { 17 };
    h[7] = 64;
    h[8] = 0xFD;
    h[20..24].copy_from_slice(&flow.to_be_bytes());
    h[24] = 0xFD;
    h[39] = 1;
    out[..40].copy_from_slice(&h);
    40
}

/// Writes the UDP or TCP header. Ports take the bits of the flow's number that the address has no room for. The UDP
/// checksum is 0 over IPv4 and IPv6 alike: the tag has one of its own.
fn ports(proto: Proto, flow: u32, payload: usize, out: &mut [u8]) -> usize {
    let source = 1024 + (flow >> 24) as u16;
    out[..2].copy_from_slice(&source.to_be_bytes());
    out[2..4].copy_from_slice(&9u16.to_be_bytes());
    if proto.is_tcp() {
        out[4..20].fill(0);
        out[12] = 0x50;
        out[13] = 0x10;
        20
    } else {
        out[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
        out[6..8].fill(0);
        8
    }
}
