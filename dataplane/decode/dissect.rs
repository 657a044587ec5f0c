//! From a captured frame to the RoCE packet in it, as far as the bytes reach.

use rdma_engine::types::Gid;
use rdma_engine::types::Qpn;
use rdma_engine::wire::cm::CmMessage;
use rdma_engine::wire::icrc::{self, IcrcBuilder};
use rdma_engine::wire::{
    Bth, Datagram, IbPacket, Link, MadHeader, Network, OpcodeInfo, Vlans, WireError, ethertype,
};
use zerocopy::FromBytes;

use super::capture::Record;

/// What is known about an ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IcrcVerdict {
    Good,
    Bad,
    /// The capture does not hold the whole packet.
    Unknown,
}

/// Frames that are not RoCE, by what they are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Other {
    Arp,
    /// ICMPv6, neighbour discovery above all.
    IcmpV6,
    Tcp,
    Udp,
    /// IPv4 or IPv6 of another kind.
    Ip,
    /// IP fragments; a RoCE packet in them cannot be told.
    Fragment,
    /// IP that contradicts itself or carries options.
    BadIp,
    /// Cut off before a BTH could be seen.
    CutOff,
    /// A link type that this program does not know.
    LinkType,
    /// Anything else.
    Unknown,
}

impl Other {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Other::Arp => "ARP",
            Other::IcmpV6 => "ICMPv6",
            Other::Tcp => "TCP",
            Other::Udp => "UDP to other ports",
            Other::Ip => "other IP",
            Other::Fragment => "IP fragments",
            Other::BadIp => "IP with wrong lengths, versions or options",
            Other::CutOff => "cut off before the BTH",
            Other::LinkType => "unknown link type",
            Other::Unknown => "other",
        }
    }
}

/// A RoCE packet in a capture. Its BTH was captured; what follows may be cut off or make no sense.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    pub(super) number: u64,
    pub(super) time_ns: Option<u64>,
    pub(super) vlans: Vlans,
    pub(super) network: Network<'a>,
    /// 0 for RoCEv1.
    pub(super) source_port: u16,
    pub(super) bth: &'a Bth,
    pub(super) info: &'static OpcodeInfo,
    /// Headers and geometry, or why they cannot be told.
    pub(super) ib: Result<IbPacket<'a>, WireError>,
    /// What was captured of the payload.
    pub(super) payload: &'a [u8],
    pub(super) icrc: IcrcVerdict,
}

/// What a frame turned out to be.
#[derive(Debug)]
pub(super) enum Dissected<'a> {
    Roce(Packet<'a>),
    Other(Other),
}

impl<'a> Packet<'a> {
    pub(super) fn source(&self) -> Gid {
        self.network.source()
    }

    pub(super) fn destination(&self) -> Gid {
        self.network.destination()
    }

    pub(super) const fn is_roce_v1(&self) -> bool {
        matches!(self.network, Network::Grh(_))
    }

    /// Payload bytes on the wire, 0 if they cannot be told.
    pub(super) fn payload_len(&self) -> usize {
        self.ib.as_ref().map_or(0, IbPacket::payload_len)
    }

    /// The connection management message in it, if it is one and all of it was captured.
    pub(super) fn cm(&self) -> Option<(&'a MadHeader, CmMessage<'a>)> {
        let to_gsi = self.bth.dest_qpn.qpn() == Qpn::GSI;
        let is_datagram = self.ib.as_ref().is_ok_and(|ib| ib.deth().is_some());
        if to_gsi && is_datagram { CmMessage::parse(self.payload) } else { None }
    }
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

/// Where the network header begins, and what it is.
struct Network3 {
    vlans: Vlans,
    ethertype: u16,
    l3: usize,
}

fn network_start(link: u16, data: &[u8]) -> Result<Network3, Other> {
    let plain = |ethertype, l3| Ok(Network3 { vlans: Vlans::NONE, ethertype, l3 });
    match link {
        link_type::ETHERNET => {
            let link = Link::parse(data).map_err(|error| match error {
                WireError::TooShort => Other::CutOff,
                _ => Other::Unknown,
            })?;
            Ok(Network3 { vlans: link.vlans, ethertype: link.ethertype, l3: link.l3 })
        }
        link_type::RAW | link_type::IPV4 | link_type::IPV6 => plain(by_version(data, 0)?, 0),
        link_type::NULL | link_type::LOOP => plain(by_version(data, 4)?, 4),
        link_type::LINUX_SLL => plain(cooked_protocol(data, 14)?, 16),
        link_type::LINUX_SLL2 => plain(cooked_protocol(data, 0)?, 20),
        _ => Err(Other::LinkType),
    }
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

/// What the frame is.
pub(super) fn dissect<'a>(record: &Record<'a>) -> Dissected<'a> {
    match packet(record) {
        Ok(packet) => Dissected::Roce(packet),
        Err(other) => Dissected::Other(other),
    }
}

fn packet<'a>(record: &Record<'a>) -> Result<Packet<'a>, Other> {
    let data = record.data;
    let Network3 { vlans, ethertype, l3 } = network_start(record.link_type, data)?;
    let datagram = match ethertype {
        ethertype::ROCE_V1 => Datagram::parse_roce_v1(data, l3, record.original_len),
        _ => Datagram::parse(ethertype, data, l3, record.original_len),
    };
    let datagram = datagram.map_err(|error| other_kind(error, ethertype, data, l3))?;
    let (bth, _) =
        data.get(datagram.bth..).and_then(|rest| Bth::ref_from_prefix(rest).ok()).ok_or(Other::CutOff)?;
    let ib = IbPacket::parse(data, datagram.bth, datagram.end);
    let payload = ib.as_ref().map_or(&[][..], |ib| {
        let range = ib.payload_range();
        data.get(range.start..range.end.min(data.len())).unwrap_or_default()
    });
    Ok(Packet {
        number: record.number,
        time_ns: record.time_ns,
        vlans,
        network: datagram.network,
        source_port: datagram.udp.map_or(0, |udp| udp.source_port.get()),
        bth,
        info: bth.opcode.info(),
        ib,
        payload,
        icrc: icrc_verdict(&datagram, data),
    })
}

/// The ICRC covers whatever lies between IP and itself, so unknown opcodes can be checked as well.
fn icrc_verdict(datagram: &Datagram<'_>, data: &[u8]) -> IcrcVerdict {
    let Some(covered) = datagram.end.checked_sub(icrc::LEN) else { return IcrcVerdict::Unknown };
    if covered < datagram.bth + size_of::<Bth>() {
        return IcrcVerdict::Unknown;
    }
    let (Some(packet), Some(stored)) = (data.get(datagram.l3..covered), data.get(covered..datagram.end))
    else {
        return IcrcVerdict::Unknown;
    };
    match IcrcBuilder::of_network(&datagram.network, packet).finish() == *stored {
        true => IcrcVerdict::Good,
        false => IcrcVerdict::Bad,
    }
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
    use rdma_engine::wire::{Ipv4Header, Ipv6Header, ip_protocol};
    let rest = data.get(l3..).unwrap_or_default();
    let protocol = match ethertype {
        ethertype::IPV4 => Ipv4Header::ref_from_prefix(rest).map(|(ip, _)| ip.protocol).ok(),
        _ => Ipv6Header::ref_from_prefix(rest).map(|(ip, _)| ip.next_header).ok(),
    };
    match protocol {
        Some(ip_protocol::TCP) => Other::Tcp,
        // A hop-by-hop header is how multicast listener reports travel.
        Some(ip_protocol::ICMPV6 | 0) if ethertype == ethertype::IPV6 => Other::IcmpV6,
        _ => Other::Ip,
    }
}
