use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::InternetChecksum;
use super::ethernet::Mac;
use super::ip::{Ipv6Header, ip_protocol};

/// ICMP and ICMPv6 types this crate knows.
pub mod icmp_type {
    /// ICMP echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// ICMP echo request.
    pub const ECHO_REQUEST: u8 = 8;
    /// ICMPv6 echo request.
    pub const ECHO_REQUEST_V6: u8 = 128;
    /// ICMPv6 echo reply.
    pub const ECHO_REPLY_V6: u8 = 129;
    /// ICMPv6 neighbour solicitation.
    pub const NEIGHBOR_SOLICITATION: u8 = 135;
    /// ICMPv6 neighbour advertisement.
    pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;
}

/// Echo request or reply of ICMP and ICMPv6, without its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IcmpEcho {
    /// See [`icmp_type`].
    pub kind: u8,
    /// 0.
    pub code: u8,
    /// Over this header and its data; ICMPv6 adds the pseudo header.
    pub checksum: U16,
    /// Chosen by the requester.
    pub id: U16,
    /// Chosen by the requester.
    pub sequence: U16,
}

const _: () = assert!(size_of::<IcmpEcho>() == 8);

/// Link-layer address option of neighbour discovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Icmpv6LinkOption {
    /// 1 source, 2 target.
    pub kind: u8,
    /// Length in units of 8 bytes: 1.
    pub len: u8,
    /// The address.
    pub mac: Mac,
}

const _: () = assert!(size_of::<Icmpv6LinkOption>() == 8);

impl Icmpv6LinkOption {
    /// "The sender of this message has this address."
    pub const fn source(mac: Mac) -> Self {
        Icmpv6LinkOption { kind: 1, len: 1, mac }
    }

    /// "The target of this message has this address."
    pub const fn target(mac: Mac) -> Self {
        Icmpv6LinkOption { kind: 2, len: 1, mac }
    }
}

/// ICMPv6 neighbour solicitation without options.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NeighborSolicitation {
    /// 135.
    pub kind: u8,
    /// 0.
    pub code: u8,
    /// With the pseudo header.
    pub checksum: U16,
    /// 0.
    pub reserved: U32,
    /// Whose link-layer address is wanted.
    pub target: [u8; 16],
}

const _: () = assert!(size_of::<NeighborSolicitation>() == 24);

impl NeighborSolicitation {
    /// "Who has `target`?" with a checksum of 0, to be set once the IPv6 header is known.
    pub const fn new(target: [u8; 16]) -> Self {
        NeighborSolicitation {
            kind: icmp_type::NEIGHBOR_SOLICITATION,
            code: 0,
            checksum: U16::ZERO,
            reserved: U32::ZERO,
            target,
        }
    }

    /// True if type, code and hop limit are those of a neighbour solicitation from this link.
    pub fn is_valid(&self, ip: &Ipv6Header) -> bool {
        self.kind == icmp_type::NEIGHBOR_SOLICITATION && self.code == 0 && ip.hop_limit == 255
    }
}

/// ICMPv6 neighbour advertisement without options.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NeighborAdvertisement {
    /// 136.
    pub kind: u8,
    /// 0.
    pub code: u8,
    /// With the pseudo header.
    pub checksum: U16,
    /// Router, solicited and override bits, then 0; see the constants.
    pub flags: U32,
    /// Whose link-layer address is told.
    pub target: [u8; 16],
}

const _: () = assert!(size_of::<NeighborAdvertisement>() == 24);

impl NeighborAdvertisement {
    /// The answer to a solicitation sent to us.
    pub const SOLICITED: u32 = 1 << 30;
    /// Replaces an address the receiver may have cached.
    pub const OVERRIDE: u32 = 1 << 29;

    /// "`target` is here" with a checksum of 0, to be set once the IPv6 header is known.
    pub const fn new(target: [u8; 16], flags: u32) -> Self {
        NeighborAdvertisement {
            kind: icmp_type::NEIGHBOR_ADVERTISEMENT,
            code: 0,
            checksum: U16::ZERO,
            flags: U32::new(flags),
            target,
        }
    }

    /// True if type, code and hop limit are those of a neighbour advertisement from this link.
    pub fn is_valid(&self, ip: &Ipv6Header) -> bool {
        self.kind == icmp_type::NEIGHBOR_ADVERTISEMENT && self.code == 0 && ip.hop_limit == 255
    }
}

impl Ipv6Header {
    /// The checksum of the ICMPv6 message `message` under this header, its checksum field taken as it
    /// stands: 0 if it is right, the value to store if the field is 0.
    pub fn icmpv6_checksum(&self, message: &[u8]) -> u16 {
        let len = u16::try_from(message.len()).unwrap_or(u16::MAX);
        let sum: InternetChecksum = self.pseudo_header(ip_protocol::ICMPV6, len);
        sum.with(message).finish()
    }
}
