//! What nearly all frames of a connection's peer have in common, so that a few comparisons tell them from all others.
//!
//! A frame *bears the imprint* of a reliable queue pair if it is untagged, over IPv4 without options, in one piece, not
//! marked by a switch, from the peer's addresses to ours, in the default partition, with a known opcode and for this queue
//! pair, and if its lengths agree. Then it would pass all the checks of [`super::ingress`], and is spared them. A frame
//! that does not may be as good (IPv6, a tag, another router): those checks will tell, and name what is wrong.

use super::arrived::Arrived;
use crate::types::Qpn;
use crate::wire::icrc::{self, PeerIcrc};
use crate::wire::{
    Bth, EthernetHeader, Ipv4Header, Mac, Opcode, ROCE_PORT, Route, U24, UdpHeader, ethertype, ip_protocol,
};
use std::mem::offset_of;
use std::net::IpAddr;
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The headers that every packet over IPv4 has.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Head {
    ethernet: EthernetHeader,
    ip: Ipv4Header,
    udp: UdpHeader,
    bth: Bth,
}

/// Where IP begins, UDP, and the BTH.
const L3: usize = size_of::<EthernetHeader>();
const L4: usize = L3 + size_of::<Ipv4Header>();
const L5: usize = L4 + size_of::<UdpHeader>();

/// Fragment, time to live, protocol.
const FRAGMENT: usize = L3 + offset_of!(Ipv4Header, flags_fragment);
/// Both addresses.
const ADDRESSES: usize = L3 + offset_of!(Ipv4Header, source);
/// The destination port.
const PORT: usize = L4 + offset_of!(UdpHeader, destination_port);

/// What is the same in the frames of all peers.
const USUAL: Head = Head {
    ethernet: EthernetHeader {
        destination: Mac([0; 6]),
        source: Mac([0; 6]),
        ethertype: U16::new(ethertype::IPV4),
    },
    ip: Ipv4Header {
        version_ihl: Ipv4Header::VERSION_IHL,
        tos: 0,
        total_len: U16::ZERO,
        id: U16::ZERO,
        flags_fragment: U16::ZERO,
        ttl: 0,
        protocol: ip_protocol::UDP,
        checksum: U16::ZERO,
        source: [0; 4],
        destination: [0; 4],
    },
    udp: UdpHeader {
        source_port: U16::ZERO,
        destination_port: U16::new(ROCE_PORT),
        len: U16::ZERO,
        checksum: U16::ZERO,
    },
    bth: Bth {
        opcode: Opcode(0),
        flags: 0,
        pkey: U16::new(Bth::DEFAULT_PKEY & 0x7FFF),
        congestion: 0,
        dest_qpn: U24::new(0),
        ack: 0,
        psn: U24::new(0),
    },
};

/// The bits of it that count; where a peer has its own, those of the peer.
const SAME: Head = Head {
    ethernet: EthernetHeader {
        destination: Mac([0xFF; 6]),
        source: Mac([0xFF; 6]),
        ethertype: U16::MAX_VALUE,
    },
    ip: Ipv4Header {
        version_ihl: 0xFF,
        // "More fragments" and the offset.
        flags_fragment: U16::new(0x3FFF),
        protocol: 0xFF,
        ..USUAL.ip
    },
    udp: UdpHeader { destination_port: U16::MAX_VALUE, ..USUAL.udp },
    bth: Bth {
        // The transport, and the version.
        opcode: Opcode(0xE0),
        flags: 0x0F,
        // We are full members, who talk to limited ones too.
        pkey: U16::new(0x7FFF),
        ..USUAL.bth
    },
};

impl Head {
    /// The head of a frame that is long enough to have one.
    #[inline(always)]
    pub(crate) fn of(frame: &[u8]) -> Option<&Head> {
        Head::ref_from_prefix(frame).ok().map(|(head, _)| head)
    }

    /// The queue pair that the frame is for, if it is what it seems.
    #[inline(always)]
    pub(crate) fn qpn(&self) -> Qpn {
        self.bth.dest_qpn.qpn()
    }

    /// Eight of its bytes as they lie there.
    #[inline(always)]
    fn eight(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.as_bytes()[at..at + 8]);
        u64::from_ne_bytes(bytes)
    }

    /// Four of them.
    #[inline(always)]
    fn four(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.as_bytes()[at..at + 4]);
        u32::from_ne_bytes(bytes)
    }

    /// Not 0 where the part that all peers share is another.
    #[inline(always)]
    fn unusual(&self) -> u32 {
        let part = |at| self.four(at) & SAME.four(at) ^ USUAL.four(at);
        part(FRAGMENT) | part(PORT) | part(L5)
    }

    /// True if the ICRC of `frame`, whose head this is, is right.
    #[inline]
    pub(crate) fn is_sealed(&self, frame: &[u8], packet: &Arrived, peer: &mut PeerIcrc) -> bool {
        let end = packet.payload().end + usize::from(self.bth.pad()) + icrc::LEN;
        let rest = frame.get(size_of::<Head>()..end);
        rest.is_some_and(|rest| peer.is_sealed(&self.ip, &self.udp, self.bth, rest))
    }
}

/// What the frames of one peer have for themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Imprint {
    /// MAC addresses, EtherType, IP version.
    link: [u64; 2],
    /// IP addresses.
    addresses: u64,
}

impl Imprint {
    /// Borne by no frame: its IP version is 15.
    pub(crate) const NONE: Imprint = Imprint { link: [u64::MAX; 2], addresses: 0 };

    /// Of the frames that come from the end of `route`.
    pub(crate) fn new(route: &Route) -> Self {
        let (IpAddr::V4(own), IpAddr::V4(peer)) = (route.source, route.destination) else {
            return Self::NONE;
        };
        // Who uses a tag takes no frame without, and whoever has our address sends us our own frames.
        if !route.vlans.tags().is_empty() || route.source_mac == route.destination_mac {
            return Self::NONE;
        }
        let mut head = USUAL;
        (head.ethernet.destination, head.ethernet.source) = (route.source_mac, route.destination_mac);
        (head.ip.source, head.ip.destination) = (peer.octets(), own.octets());
        Imprint { link: [head.eight(0), head.eight(8)], addresses: head.eight(ADDRESSES) }
    }

    /// The packet in a frame of `len` bytes that begins with `head` and bears this imprint.
    #[inline(always)]
    pub(crate) fn read(&self, head: &Head, len: usize) -> Option<Arrived> {
        let link = head.eight(0) ^ self.link[0] | head.eight(8) & SAME.eight(8) ^ self.link[1];
        let other = link | head.eight(ADDRESSES) ^ self.addresses | u64::from(head.unusual());
        let info = head.bth.opcode.info();
        let end = L3 + usize::from(head.ip.total_len.get());
        let fits = end <= len && L4 + usize::from(head.udp.len.get()) == end;
        if other != 0 || !fits || head.ip.ecn() == 3 || !info.is_known() {
            return None;
        }
        let start = size_of::<Head>() + usize::from(info.headers_len);
        let tail = usize::from(head.bth.pad()) + icrc::LEN;
        let payload_len = end.checked_sub(start + tail)?;
        Some(Arrived::at(&head.bth, size_of::<Head>(), start, payload_len))
    }
}
