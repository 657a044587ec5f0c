//! The invariant CRC: over everything from the IP header to the pad that no router changes.
//!
//! It is the CRC-32 of Ethernet over eight bytes of ones (in place of a local route header), then the
//! packet with the fields routers may change set to ones: IPv4 TOS, TTL and header checksum; IPv6 traffic
//! class, flow label and hop limit; the UDP checksum; the FECN/BECN byte of the BTH. The result is stored
//! least significant byte first (IBTA 7.8.1, A17.3.3).

mod slicing;
mod template;

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::bth::Bth;
use super::ip::{Ipv4Header, Ipv6Header};
use super::lower::Network;
use super::udp::UdpHeader;
use slicing::{fold, fold_all};

pub use template::PeerIcrc;
pub(super) use template::{Lower4Icrc, Lower6Icrc};

/// Bytes of an ICRC.
pub const LEN: usize = 4;

/// CRC state (not complemented) after the eight bytes of ones that stand for the local route header.
const AFTER_ONES: u32 = 0xDEBB_20E3;

/// Runs of at least this many bytes go to the SIMD kernel.
const SIMD_FROM: usize = 32;

/// Computes an ICRC piece by piece. The state is not complemented.
#[derive(Clone, Copy, Debug)]
pub struct IcrcBuilder(u32);

/// IPv4, UDP and BTH: what holds all the fields that are masked.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Masked4 {
    ip: Ipv4Header,
    udp: UdpHeader,
    bth: Bth,
}

/// The same over IPv6.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Masked6 {
    ip: Ipv6Header,
    udp: UdpHeader,
    bth: Bth,
}

/// The same for RoCEv1.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct MaskedGrh {
    grh: Ipv6Header,
    bth: Bth,
}

const fn mask_v4(ip: &mut Ipv4Header) {
    ip.tos = 0xFF;
    ip.ttl = 0xFF;
    ip.checksum = U16::MAX_VALUE;
}

fn mask_v6(ip: &mut Ipv6Header) {
    ip.version_class_flow |= U32::new(0x0FFF_FFFF);
    ip.hop_limit = 0xFF;
}

/// The header `T` at the start of `headers`, filled up with zeros if they are shorter, and what follows.
#[inline(always)]
fn split<T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned>(headers: &[u8]) -> (T, &[u8]) {
    T::read_from_prefix(headers).unwrap_or_else(|_| {
        let mut short = T::new_zeroed();
        short.as_mut_bytes()[..headers.len()].copy_from_slice(headers);
        (short, &[])
    })
}

impl IcrcBuilder {
    /// Takes in a packet over IPv4 from its first IP byte on: at least to the end of the BTH, perhaps
    /// further.
    #[inline]
    pub fn ipv4(packet: &[u8]) -> Self {
        let (mut masked, rest) = split::<Masked4>(packet);
        mask_v4(&mut masked.ip);
        masked.udp.checksum = U16::MAX_VALUE;
        masked.bth.congestion = 0xFF;
        Self::start(masked.as_bytes(), rest)
    }

    /// Takes in a packet over IPv6 from its first IP byte on: at least to the end of the BTH, perhaps
    /// further.
    #[inline]
    pub fn ipv6(packet: &[u8]) -> Self {
        let (mut masked, rest) = split::<Masked6>(packet);
        mask_v6(&mut masked.ip);
        masked.udp.checksum = U16::MAX_VALUE;
        masked.bth.congestion = 0xFF;
        Self::start(masked.as_bytes(), rest)
    }

    /// Takes in a RoCEv1 packet from its first GRH byte on: at least to the end of the BTH, perhaps
    /// further.
    pub fn roce_v1(packet: &[u8]) -> Self {
        let (mut masked, rest) = split::<MaskedGrh>(packet);
        mask_v6(&mut masked.grh);
        masked.bth.congestion = 0xFF;
        Self::start(masked.as_bytes(), rest)
    }

    /// The one of the three that fits `network`.
    #[inline]
    pub fn of_network(network: &Network<'_>, packet: &[u8]) -> Self {
        match network {
            Network::V4(_) => Self::ipv4(packet),
            Network::V6(_) => Self::ipv6(packet),
            Network::Grh(_) => Self::roce_v1(packet),
        }
    }

    #[inline(always)]
    fn start(masked: &[u8], rest: &[u8]) -> Self {
        let mut builder = IcrcBuilder(fold_all(AFTER_ONES, masked));
        builder.update(rest);
        builder
    }

    /// Takes in the BTH, its congestion byte masked.
    #[inline(always)]
    pub(super) fn update_bth(&mut self, bth: Bth) {
        let masked = Bth { congestion: 0xFF, ..bth };
        self.0 = fold::<{ size_of::<Bth>() }>(self.0, &zerocopy::transmute!(masked));
    }

    /// Takes in the bytes of a header.
    #[inline(always)]
    pub(super) fn update_header(&mut self, bytes: &[u8]) {
        self.0 = fold_all(self.0, bytes);
    }

    /// Takes in the next bytes: payload, then pad.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        if bytes.len() < SIMD_FROM {
            self.0 = fold_all(self.0, bytes);
        } else {
            let mut hasher = crc32fast::Hasher::new_with_initial(!self.0);
            hasher.update(bytes);
            self.0 = !hasher.finalize();
        }
    }

    /// The ICRC as it goes on the wire.
    #[inline]
    pub const fn finish(self) -> [u8; 4] {
        (!self.0).to_le_bytes()
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

#[cfg(test)]
mod tests;
