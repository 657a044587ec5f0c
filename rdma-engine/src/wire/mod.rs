//! RoCEv2 on the wire: bytes as structs, meaning as small enums, the opcodes as a table.
//!
//! Three layers, each usable alone:
//! - header structs ([`EthernetHeader`], [`Ipv4Header`], [`Bth`], [`Reth`], ...): `repr(C)`, unaligned,
//!   big-endian fields, sizes asserted at compile time; a reference to one is a view of frame bytes;
//! - [`Opcode`] and its [`OpcodeInfo`] row: which headers follow, where in a message the packet stands,
//!   what payload it may carry, who has to answer;
//! - whole frames: [`RoceFrame::parse`] reads, [`HeaderTemplate`] writes, [`icrc`] checks and seals.
//!
//! Nothing here allocates, and nothing panics on what a peer sends: once a view exists every accessor is
//! total, and a frame that makes no sense is a [`WireError`] that the caller counts.
//!
//! Sources: IBTA volume 1 (9.2 to 9.7, 12.6), its annex A17 (RoCEv2); the Linux `rdma_rxe` driver, whose
//! frames are the test vectors.

mod arp;
mod bth;
mod checksum;
pub mod cm;
mod emit;
mod ethernet;
mod extended;
mod frame;
mod icmp;
pub mod icrc;
mod ip;
mod lower;
mod mad;
mod opcode;
mod opcode_table;
mod source_port;
mod syndrome;
mod u24;
mod udp;

pub use arp::{ArpOperation, ArpPacket};
pub use bth::{Bth, pkeys_match};
pub use checksum::{InternetChecksum, internet_checksum};
pub use emit::{HeaderTemplate, Route, Tail, Written};
pub use ethernet::{EthernetHeader, Mac, VlanTag, Vlans, ethertype};
pub use extended::{
    Aeth, AethAtomicAck, AtomicAckEth, AtomicEth, Deth, DethImm, ExtendedHeaders, Feth, FethReth, Ieth,
    ImmDt, NoHeaders, Reth, RethImm,
};
pub use frame::{IbPacket, RoceFrame};
pub use icmp::{IcmpEcho, Icmpv6LinkOption, NeighborAdvertisement, NeighborSolicitation, icmp_type};
pub use ip::{Ipv4Header, Ipv6FragmentHeader, Ipv6Header, ip_protocol};
pub use lower::{Datagram, Link, Network};
pub use mad::{MAD_LEN, MadHeader};
pub use opcode::{
    AckRule, Header, HeaderSet, Opcode, OpcodeInfo, Operation, PayloadRule, Position, Tailing, Transport,
};
pub use opcode_table::OPCODES;
pub use source_port::{mlx_source_port, rxe_source_port};
pub use syndrome::{CreditCode, NakCode, RnrTimer, Syndrome};
pub use u24::U24;
pub use udp::{ROCE_PORT, UdpHeader};

/// Why a frame is not a RoCEv2 packet that can be acted upon. One counter each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[repr(u8)]
pub enum WireError {
    /// The bytes end inside a header.
    #[error("the frame ends inside a header; capture or receive whole frames")]
    TooShort,
    /// More than two VLAN tags.
    #[error("more than two VLAN tags; remove the outer ones on the switch")]
    VlanDepth,
    /// The EtherType is neither IPv4 nor IPv6.
    #[error("neither IPv4 nor IPv6")]
    NotIp,
    /// RoCEv1 (EtherType 0x8915), which does not leave its subnet.
    #[error("RoCEv1 frame; set the peer's GID index to a RoCEv2 one")]
    RoceV1,
    /// The version nibble contradicts the EtherType.
    #[error("the IP version contradicts the EtherType")]
    IpVersion,
    /// IPv4 options are present; RoCEv2 senders never add any.
    #[error("IPv4 options are refused")]
    IpOptions,
    /// A fragment; RoCEv2 packets are never fragmented.
    #[error("IP fragments are refused; make the path MTU fit the RDMA MTU plus 80 bytes")]
    IpFragment,
    /// The IP or UDP length exceeds the frame, or they contradict each other.
    #[error("the IP or UDP length contradicts the frame")]
    Length,
    /// The IP payload is not UDP.
    #[error("not UDP")]
    NotUdp,
    /// The UDP destination port is not 4791.
    #[error("not the RoCEv2 port 4791")]
    NotRocePort,
    /// BTH transport header version is not 0.
    #[error("BTH version is not 0")]
    TransportVersion,
    /// The opcode has no row in the table.
    #[error("unknown opcode")]
    UnknownOpcode,
    /// The packet is shorter than its headers, pad and ICRC.
    #[error("the packet is shorter than its headers, pad and ICRC")]
    PacketLength,
}

impl WireError {
    /// Number of variants, for arrays of counters indexed by `error as usize`.
    pub const COUNT: usize = WireError::PacketLength as usize + 1;
}

#[cfg(test)]
mod tests;
