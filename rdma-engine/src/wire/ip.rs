use std::net::{Ipv4Addr, Ipv6Addr};

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::InternetChecksum;

/// IP protocol numbers this crate knows.
pub mod ip_protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// Base transport header directly after the GRH (RoCEv1).
    pub const IBA: u8 = 0x1B;
    /// IPv6 routing header.
    pub const IPV6_ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const IPV6_FRAGMENT: u8 = 44;
    /// ICMPv6, neighbour discovery included.
    pub const ICMPV6: u8 = 58;
    /// IPv6 options for the destination.
    pub const DESTINATION_OPTIONS: u8 = 60;
}

/// IPv4 header without options.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv4Header {
    /// Version (4) and header length in words (5 without options).
    pub version_ihl: u8,
    /// DSCP (6 bits) and ECN (2 bits): the traffic class of the address vector.
    pub tos: u8,
    /// Header and payload, ICRC included.
    pub total_len: U16,
    /// Identification; free to choose as nothing is fragmented.
    pub id: U16,
    /// Reserved, DF, MF, fragment offset (13 bits).
    pub flags_fragment: U16,
    /// Hop limit.
    pub ttl: u8,
    /// See [`ip_protocol`].
    pub protocol: u8,
    /// Header checksum.
    pub checksum: U16,
    /// Sender.
    pub source: [u8; 4],
    /// Receiver.
    pub destination: [u8; 4],
}

const _: () = assert!(size_of::<Ipv4Header>() == 20);

impl Ipv4Header {
    /// `version_ihl` of a header without options.
    pub const VERSION_IHL: u8 = 0x45;
    /// `flags_fragment` with only DF set.
    pub const DONT_FRAGMENT: u16 = 0x4000;

    /// `flags_fragment` of every piece but the last.
    pub const MORE_FRAGMENTS: u16 = 0x2000;

    /// True for any piece of a fragmented datagram.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.flags_fragment.get() & 0x3FFF != 0
    }

    /// Explicit congestion notification bits (3 = congestion experienced).
    #[inline]
    pub const fn ecn(&self) -> u8 {
        self.tos & 3
    }

    /// Sender as a standard address.
    #[inline]
    pub const fn source_addr(&self) -> Ipv4Addr {
        let [a, b, c, d] = self.source;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Receiver as a standard address.
    #[inline]
    pub const fn destination_addr(&self) -> Ipv4Addr {
        let [a, b, c, d] = self.destination;
        Ipv4Addr::new(a, b, c, d)
    }

    /// True if the header checksum is right.
    #[inline]
    pub fn checksum_ok(&self) -> bool {
        self.sum().finish() == 0
    }

    /// Computes and stores the header checksum.
    pub fn set_checksum(&mut self) {
        self.checksum = U16::ZERO;
        self.checksum = self.sum().finish().into();
    }

    /// The sum of its bytes.
    #[inline]
    fn sum(&self) -> InternetChecksum {
        InternetChecksum::new().with_header::<{ size_of::<Self>() }>(zerocopy::transmute_ref!(self))
    }

    /// The pseudo header of UDP and TCP checksums for `len` bytes of `protocol`.
    pub fn pseudo_header(&self, len: u16) -> InternetChecksum {
        InternetChecksum::new()
            .with(&self.source)
            .with(&self.destination)
            .with_word(u16::from(self.protocol))
            .with_word(len)
    }
}

/// IPv6 header; also the layout of the global route header of RoCEv1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv6Header {
    /// Version (4 bits, 6), traffic class (8), flow label (20).
    pub version_class_flow: U32,
    /// Bytes after this header, ICRC included.
    pub payload_len: U16,
    /// See [`ip_protocol`].
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Sender.
    pub source: [u8; 16],
    /// Receiver.
    pub destination: [u8; 16],
}

const _: () = assert!(size_of::<Ipv6Header>() == 40);

impl Ipv6Header {
    /// The version nibble, 6 if this is IPv6.
    #[inline]
    pub fn version(&self) -> u8 {
        (self.version_class_flow.get() >> 28) as u8
    }

    /// DSCP (6 bits) and ECN (2 bits).
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (self.version_class_flow.get() >> 20) as u8
    }

    /// Explicit congestion notification bits (3 = congestion experienced).
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.traffic_class() & 3
    }

    /// Flow label, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        self.version_class_flow.get() & 0x000F_FFFF
    }

    /// The first word from its parts.
    #[inline]
    pub fn first_word(traffic_class: u8, flow_label: u32) -> U32 {
        U32::new(6 << 28 | u32::from(traffic_class) << 20 | flow_label & 0x000F_FFFF)
    }

    /// Sender as a standard address.
    #[inline]
    pub fn source_addr(&self) -> Ipv6Addr {
        self.source.into()
    }

    /// Receiver as a standard address.
    #[inline]
    pub fn destination_addr(&self) -> Ipv6Addr {
        self.destination.into()
    }

    /// The pseudo header of UDP, TCP and ICMPv6 checksums for `len` bytes of `next_header`.
    pub fn pseudo_header(&self, next_header: u8, len: u16) -> InternetChecksum {
        InternetChecksum::new()
            .with(&self.source)
            .with(&self.destination)
            .with_word(len)
            .with_word(u16::from(next_header))
    }
}

/// IPv6 fragment header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv6FragmentHeader {
    /// What follows in the whole packet.
    pub next_header: u8,
    /// Zero.
    pub reserved: u8,
    /// Offset in units of 8 bytes (13 bits), 2 reserved ones, M.
    pub offset_more: U16,
    /// The same in all pieces.
    pub id: U32,
}

const _: () = assert!(size_of::<Ipv6FragmentHeader>() == 8);

impl Ipv6FragmentHeader {
    /// Bytes of the packet in front of this piece.
    #[inline]
    pub fn offset(&self) -> usize {
        usize::from(self.offset_more.get() & 0xFFF8)
    }

    /// True for every piece but the last.
    #[inline]
    pub fn more(&self) -> bool {
        self.offset_more.get() & 1 != 0
    }
}
