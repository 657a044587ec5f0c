//! The invariant CRC: over everything from the IP header to the pad that no router changes.
//!
//! It is the CRC-32 of Ethernet over eight bytes of ones (in place of a local route header), then the
//! packet with the fields routers may change set to ones: IPv4 TOS, TTL and header checksum; IPv6 traffic
//! class, flow label and hop limit; the UDP checksum; the FECN/BECN byte of the BTH. The result is stored
//! least significant byte first (IBTA 7.8.1, A17.3.3).

use crc32fast::Hasher;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::bth::Bth;
use super::ip::{Ipv4Header, Ipv6Header};
use super::lower::Network;
use super::opcode::HeaderSet;
use super::udp::UdpHeader;

/// Bytes of an ICRC.
pub const LEN: usize = 4;

/// CRC-32 of the eight bytes of ones that stand for the local route header.
const AFTER_ONES: u32 = !0xDEBB_20E3;

/// Computes an ICRC piece by piece.
#[derive(Clone)]
pub struct IcrcBuilder(Hasher);

/// Headers of a RoCEv2 packet over IPv4, with room for any extended headers.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Masked4 {
    ip: Ipv4Header,
    udp: UdpHeader,
    bth: Bth,
    extended: [u8; HeaderSet::MAX_LEN],
}

/// The same over IPv6.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Masked6 {
    ip: Ipv6Header,
    udp: UdpHeader,
    bth: Bth,
    extended: [u8; HeaderSet::MAX_LEN],
}

/// The same for RoCEv1.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct MaskedGrh {
    grh: Ipv6Header,
    bth: Bth,
    extended: [u8; HeaderSet::MAX_LEN],
}

/// A copy of `headers` in the layout `T`; longer input is cut, shorter input is filled up with zeros.
#[inline(always)]
fn copy_of<T: FromBytes + IntoBytes + KnownLayout + Immutable>(headers: &[u8]) -> (T, usize) {
    let mut copy = T::new_zeroed();
    let len = headers.len().min(size_of::<T>());
    copy.as_mut_bytes()[..len].copy_from_slice(&headers[..len]);
    (copy, len)
}

fn mask_v6(ip: &mut Ipv6Header) {
    ip.version_class_flow |= U32::new(0x0FFF_FFFF);
    ip.hop_limit = 0xFF;
}

impl IcrcBuilder {
    /// Takes in the headers of a packet over IPv4, from the first IP byte to the last extended header.
    #[inline]
    pub fn ipv4(headers: &[u8]) -> Self {
        let (mut copy, len) = copy_of::<Masked4>(headers);
        copy.ip.tos = 0xFF;
        copy.ip.ttl = 0xFF;
        copy.ip.checksum = U16::MAX_VALUE;
        copy.udp.checksum = U16::MAX_VALUE;
        copy.bth.congestion = 0xFF;
        Self::start(copy.as_bytes(), len)
    }

    /// Takes in the headers of a packet over IPv6, from the first IP byte to the last extended header.
    #[inline]
    pub fn ipv6(headers: &[u8]) -> Self {
        let (mut copy, len) = copy_of::<Masked6>(headers);
        mask_v6(&mut copy.ip);
        copy.udp.checksum = U16::MAX_VALUE;
        copy.bth.congestion = 0xFF;
        Self::start(copy.as_bytes(), len)
    }

    /// Takes in the headers of a RoCEv1 packet, from the first GRH byte to the last extended header.
    pub fn roce_v1(headers: &[u8]) -> Self {
        let (mut copy, len) = copy_of::<MaskedGrh>(headers);
        mask_v6(&mut copy.grh);
        copy.bth.congestion = 0xFF;
        Self::start(copy.as_bytes(), len)
    }

    /// The one of the three that fits `network`.
    #[inline]
    pub fn of_network(network: &Network<'_>, headers: &[u8]) -> Self {
        match network {
            Network::V4(_) => Self::ipv4(headers),
            Network::V6(_) => Self::ipv6(headers),
            Network::Grh(_) => Self::roce_v1(headers),
        }
    }

    #[inline(always)]
    fn start(masked: &[u8], len: usize) -> Self {
        let mut hasher = Hasher::new_with_initial(AFTER_ONES);
        hasher.update(&masked[..len]);
        IcrcBuilder(hasher)
    }

    /// Takes in the next bytes: payload, then pad.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The ICRC as it goes on the wire.
    #[inline]
    pub fn finish(self) -> [u8; 4] {
        self.0.finalize().to_le_bytes()
    }
}

/// True if `pieces`, which hold the payload, the pad and the ICRC (together `len` bytes, then perhaps
/// Ethernet padding), end in the right ICRC.
pub(super) fn check_pieces<'p>(
    mut builder: IcrcBuilder,
    len: usize,
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> bool {
    let mut covered = len.saturating_sub(LEN);
    let mut stored = [0; LEN];
    let mut have = 0;
    for mut piece in pieces {
        if let Some((head, rest)) = piece.split_at_checked(covered.min(piece.len())) {
            builder.update(head);
            covered -= head.len();
            piece = rest;
        }
        for (to, from) in stored[have..].iter_mut().zip(piece) {
            *to = *from;
            have += 1;
        }
    }
    covered == 0 && have == LEN && stored == builder.finish()
}
