//! What lies below the BTH, read as leniently as other tools read it.
//!
//! An endpoint drops frames with IP options or with lengths that contradict each other. Who looks for the reason why
//! frames are dropped wants to see them, with what is odd about them.

use std::fmt;

use rdma_engine::wire::{
    Datagram, EthernetHeader, Ipv4Header, Ipv6Header, Network, ROCE_PORT, UdpHeader, VlanTag, WireError,
    ethertype, ip_protocol,
};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::capture::Record;
use super::dissect::Other;

/// Most VLAN tags, and most extension headers of IPv6, that are read past.
const MAX_DEPTH: usize = 8;

/// What an endpoint would drop the frame for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Oddity {
    /// More than two VLAN tags.
    Tags(usize),
    /// IPv4 options.
    Options,
    /// Extension headers of IPv6.
    Extensions,
    /// UDP and IP lengths (of the same bytes) that differ.
    UdpLength { udp: usize, ip: usize },
    /// The IP length reaches beyond the frame.
    BeyondFrame,
}

impl fmt::Display for Oddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Oddity::Tags(n) => write!(f, "{n} VLAN tags"),
            Oddity::Options => f.write_str("IP options, for which no ICRC is defined"),
            Oddity::Extensions => f.write_str("IPv6 extension headers, for which no ICRC is defined"),
            Oddity::UdpLength { udp, ip } => write!(f, "UDP length {udp}, but {ip} B by the IP length"),
            Oddity::BeyondFrame => f.write_str("the IP length reaches beyond the frame"),
        }
    }
}

/// VLAN ids, outermost first.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct VlanIds {
    ids: [u16; MAX_DEPTH],
    len: usize,
}

impl VlanIds {
    pub(super) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.ids.iter().take(self.len).copied()
    }
}

/// The lower headers of a frame.
pub(super) struct Lower<'a> {
    pub(super) vlans: VlanIds,
    pub(super) datagram: Datagram<'a>,
    pub(super) oddity: Option<Oddity>,
}

/// Where the network header begins, and what it is.
struct Network3 {
    vlans: VlanIds,
    ethertype: u16,
    l3: usize,
}

/// Link types (LINKTYPE_ values of the pcap formats).
mod link_type {
    pub(super) const NULL: u16 = 0;
    pub(super) const ETHERNET: u16 = 1;
    pub(super) const RAW: u16 = 101;
    pub(super) const LOOP: u16 = 108;
    pub(super) const LINUX_SLL: u16 = 113;
    pub(super) const IPV4: u16 = 228;
    pub(super) const IPV6: u16 = 229;
    pub(super) const LINUX_SLL2: u16 = 276;
}

/// The lower headers of a captured frame, or what else it is.
pub(super) fn lower<'a>(record: &Record<'a>) -> Result<Lower<'a>, Other> {
    let (data, frame_len) = (record.data, record.original_len);
    let Network3 { vlans, ethertype, l3 } = network_start(record.link_type, data)?;
    let parsed = match ethertype {
        ethertype::ROCE_V1 => Datagram::parse_roce_v1(data, l3, frame_len),
        _ => Datagram::parse(ethertype, data, l3, frame_len),
    };
    let tags = if vlans.len > 2 { Some(Oddity::Tags(vlans.len)) } else { None };
    match parsed {
        Ok(datagram) => Ok(Lower { vlans, datagram, oddity: tags }),
        Err(error) => match odd(ethertype, data, l3, frame_len) {
            Some((datagram, oddity)) => Ok(Lower { vlans, datagram, oddity: Some(oddity) }),
            None => Err(other_kind(error, ethertype, data, l3)),
        },
    }
}

fn network_start(link: u16, data: &[u8]) -> Result<Network3, Other> {
    let plain = |ethertype, l3| Ok(Network3 { vlans: VlanIds::default(), ethertype, l3 });
    match link {
        link_type::ETHERNET => {
            let ethernet: &EthernetHeader = header_at(data, 0).ok_or(Other::CutOff)?;
            tagged(ethernet.ethertype.get(), size_of::<EthernetHeader>(), data)
        }
        link_type::RAW | link_type::IPV4 | link_type::IPV6 => plain(by_version(data, 0)?, 0),
        link_type::NULL | link_type::LOOP => plain(by_version(data, 4)?, 4),
        link_type::LINUX_SLL => tagged(cooked_protocol(data, 14)?, 16, data),
        link_type::LINUX_SLL2 => tagged(cooked_protocol(data, 0)?, 20, data),
        _ => Err(Other::LinkType),
    }
}

/// Reads past the VLAN tags at offset `l3`, if `ethertype` says that there are some.
fn tagged(mut ethertype: u16, mut l3: usize, data: &[u8]) -> Result<Network3, Other> {
    let mut vlans = VlanIds::default();
    while matches!(ethertype, ethertype::VLAN | ethertype::QINQ) {
        let tag: &VlanTag = header_at(data, l3).ok_or(Other::CutOff)?;
        *vlans.ids.get_mut(vlans.len).ok_or(Other::Unknown)? = tag.tci.get() & 0x0FFF;
        vlans.len += 1;
        ethertype = tag.ethertype.get();
        l3 += size_of::<VlanTag>();
    }
    Ok(Network3 { vlans, ethertype, l3 })
}

/// The protocol field of a Linux cooked header, at offset `at`.
fn cooked_protocol(data: &[u8], at: usize) -> Result<u16, Other> {
    let field = data.get(at..).and_then(|rest| rest.first_chunk()).ok_or(Other::CutOff)?;
    Ok(u16::from_be_bytes(*field))
}

fn by_version(data: &[u8], at: usize) -> Result<u16, Other> {
    match data.get(at).ok_or(Other::CutOff)? >> 4 {
        4 => Ok(ethertype::IPV4),
        6 => Ok(ethertype::IPV6),
        _ => Err(Other::Unknown),
    }
}

fn header_at<T: FromBytes + KnownLayout + Immutable + Unaligned>(data: &[u8], at: usize) -> Option<&T> {
    T::ref_from_prefix(data.get(at..)?).ok().map(|(header, _)| header)
}

/// A datagram for the port of RoCEv2 that an endpoint refuses to parse, and why.
fn odd(ethertype: u16, data: &[u8], l3: usize, frame_len: usize) -> Option<(Datagram<'_>, Oddity)> {
    let (network, l4, by_ip, inserted) = match ethertype {
        ethertype::IPV4 => ipv4(data, l3)?,
        ethertype::IPV6 => ipv6(data, l3)?,
        _ => return None,
    };
    let udp: &UdpHeader = header_at(data, l4)?;
    if udp.destination_port.get() != ROCE_PORT {
        return None;
    }
    let udp_len = usize::from(udp.len.get());
    // Receivers go by the shorter one; 0 for IP is a frame that was captured before the card cut it up.
    let end = if by_ip == l3 { l4 + udp_len } else { by_ip.min(l4 + udp_len) };
    let oddity = match inserted {
        Some(oddity) => oddity,
        None if by_ip > frame_len => Oddity::BeyondFrame,
        None => Oddity::UdpLength { udp: udp_len, ip: by_ip.saturating_sub(l4) },
    };
    Some((Datagram { network, udp: Some(udp), l3, bth: l4 + size_of::<UdpHeader>(), end }, oddity))
}

/// Network header, where UDP begins, where the packet ends by the IP length, and what lies between IP and UDP.
type Ip<'a> = (Network<'a>, usize, usize, Option<Oddity>);

fn ipv4(data: &[u8], l3: usize) -> Option<Ip<'_>> {
    let ip: &Ipv4Header = header_at(data, l3)?;
    let header_len = usize::from(ip.version_ihl & 0xF) * 4;
    if ip.version_ihl >> 4 != 4 || header_len < size_of::<Ipv4Header>() {
        return None;
    }
    if ip.is_fragment() || ip.protocol != ip_protocol::UDP {
        return None;
    }
    let options = if header_len > size_of::<Ipv4Header>() { Some(Oddity::Options) } else { None };
    Some((Network::V4(ip), l3 + header_len, l3 + usize::from(ip.total_len.get()), options))
}

fn ipv6(data: &[u8], l3: usize) -> Option<Ip<'_>> {
    use ip_protocol::{DESTINATION_OPTIONS, HOP_BY_HOP, IPV6_ROUTING, UDP};
    let ip: &Ipv6Header = header_at(data, l3)?;
    let first = l3 + size_of::<Ipv6Header>();
    let (mut next, mut l4) = (ip.next_header, first);
    for _ in 0..MAX_DEPTH {
        if !matches!(next, HOP_BY_HOP | IPV6_ROUTING | DESTINATION_OPTIONS) {
            break;
        }
        let &[kind, len] = data.get(l4..)?.first_chunk()?;
        (next, l4) = (kind, l4 + 8 + usize::from(len) * 8);
    }
    if ip.version() != 6 || next != UDP {
        return None;
    }
    let extensions = if l4 > first { Some(Oddity::Extensions) } else { None };
    let payload = usize::from(ip.payload_len.get());
    // As in IPv4, 0 means that nobody has filled it in.
    Some((Network::V6(ip), l4, if payload == 0 { l3 } else { first + payload }, extensions))
}

#[cold]
fn other_kind(error: WireError, ethertype: u16, data: &[u8], l3: usize) -> Other {
    match error {
        WireError::TooShort => Other::CutOff,
        WireError::IpFragment => Other::Fragment,
        WireError::IpOptions | WireError::IpVersion | WireError::Length => Other::BadIp,
        WireError::NotRocePort => Other::Udp,
        WireError::NotUdp => ip_kind(ethertype, data, l3),
        WireError::NotIp if ethertype == ethertype::ARP => Other::Arp,
        _ => Other::Unknown,
    }
}

fn ip_kind(ethertype: u16, data: &[u8], l3: usize) -> Other {
    let protocol = match ethertype {
        ethertype::IPV4 => header_at(data, l3).map(|ip: &Ipv4Header| ip.protocol),
        _ => header_at(data, l3).map(|ip: &Ipv6Header| ip.next_header),
    };
    match protocol {
        Some(ip_protocol::TCP) => Other::Tcp,
        // A hop-by-hop header is how multicast listener reports travel.
        Some(ip_protocol::ICMPV6 | 0) if ethertype == ethertype::IPV6 => Other::IcmpV6,
        _ => Other::Ip,
    }
}
