//! From a captured frame to the RoCE packet in it, as far as the bytes reach.

use rdma_engine::types::Gid;
use rdma_engine::types::Qpn;
use rdma_engine::wire::cm::CmMessage;
use rdma_engine::wire::icrc::{self, IcrcBuilder};
use rdma_engine::wire::{Bth, Datagram, IbPacket, MadHeader, Network, OpcodeInfo, WireError};
use zerocopy::FromBytes;

use super::capture::Record;
use super::lower::{Lower, Oddity, VlanIds, lower};

/// What is known about an ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IcrcVerdict {
    Good,
    Bad,
    /// The capture does not hold the whole packet, or no ICRC is defined for it.
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
    /// IP that contradicts itself.
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
            Other::BadIp => "IP with wrong lengths or versions",
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
    pub(super) vlans: VlanIds,
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
    /// What is odd about the lower headers: most endpoints drop such a packet.
    pub(super) oddity: Option<Oddity>,
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

    /// Why the headers make no sense, or what is odd about the lower ones.
    pub(super) fn problem(&self) -> Option<String> {
        let error = self.ib.as_ref().err().map(ToString::to_string);
        error.or_else(|| self.oddity.map(|oddity| oddity.to_string()))
    }

    /// The connection management message in it, if it is one and all of it was captured.
    pub(super) fn cm(&self) -> Option<(&'a MadHeader, CmMessage<'a>)> {
        let to_gsi = self.bth.dest_qpn.qpn() == Qpn::GSI;
        let is_datagram = self.ib.as_ref().is_ok_and(|ib| ib.deth().is_some());
        if to_gsi && is_datagram { CmMessage::parse(self.payload) } else { None }
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
    let Lower { vlans, datagram, oddity } = lower(record)?;
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
        icrc: match oddity {
            Some(Oddity::Options | Oddity::Extensions) => IcrcVerdict::Unknown,
            _ => icrc_verdict(&datagram, data),
        },
        oddity,
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
