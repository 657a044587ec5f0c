//! What flow a frame belongs to.
//!
//! A flow is the 5-tuple of an IP frame; for other frames the MAC addresses, the EtherType and the VLAN. The result is
//! a 64-bit signature under a secret seed: two flows share one with probability 2^-64, and then share a queue pair.
//! Fragments are all classified by addresses and protocol, so that the fragments of one datagram stay together.

/// Bytes of an Ethernet header without tags.
pub const ETHERNET: usize = 14;

/// What a frame is, as far as the flow is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// IPv4, with ports if it carries TCP, UDP or SCTP and is no fragment.
    Ipv4,
    /// IPv6, likewise.
    Ipv6,
    /// Any other EtherType, or an IP header that does not hold together.
    Other,
    /// Shorter than an Ethernet header: not a frame.
    Runt,
}

/// The flow of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// What the frame is.
    pub kind: FrameKind,
    /// The flow's signature, never 0.
    pub signature: u64,
}

const VLAN: u16 = 0x8100;
const QINQ: u16 = 0x88A8;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// Classifies frames under a secret seed.
#[derive(Clone, Copy, Debug)]
pub struct Classifier {
    seed: u64,
}

impl Classifier {
    /// A classifier whose signatures nobody can steer who does not know `seed`.
    pub const fn new(seed: u64) -> Self {
        Classifier { seed }
    }

    /// The flow of the frame whose first segment is `head`.
    ///
    /// Headers are expected in the first segment, where every driver puts them; what lies behind is not looked at.
    #[inline]
    pub fn classify(&self, head: &[u8]) -> Flow {
        let Some(ethernet) = head.first_chunk::<ETHERNET>() else {
            return Flow { kind: FrameKind::Runt, signature: 1 };
        };
        let mut ether_type = u16::from_be_bytes([ethernet[12], ethernet[13]]);
        let mut l3 = &head[ETHERNET..];
        let mut vlan = 0u64;
        // At most two tags; a third makes the frame "other".
        for _ in 0..2 {
            if ether_type != VLAN && ether_type != QINQ {
                break;
            }
            let Some((tag, rest)) = l3.split_first_chunk::<4>() else { break };
            vlan = vlan << 12 | u64::from(u16::from_be_bytes([tag[0], tag[1]]) & 0xFFF);
            ether_type = u16::from_be_bytes([tag[2], tag[3]]);
            l3 = rest;
        }
        let ip = match ether_type {
            IPV4 => self.ipv4(l3, vlan),
            IPV6 => self.ipv6(l3, vlan),
            _ => None,
        };
        ip.unwrap_or_else(|| self.other(ethernet, ether_type, vlan))
    }

    #[inline]
    fn ipv4(&self, l3: &[u8], vlan: u64) -> Option<Flow> {
        let h = l3.first_chunk::<20>()?;
        let header = usize::from(h[0] & 0xF) * 4;
        if h[0] >> 4 != 4 || header < 20 {
            return None;
        }
        let fragment = u16::from_be_bytes([h[6], h[7]]) & 0x3FFF != 0;
        let ports = if fragment { 0 } else { ports(h[9], l3, header) };
        let addresses = u64::from_ne_bytes([h[12], h[13], h[14], h[15], h[16], h[17], h[18], h[19]]);
        let rest = u64::from(ports) << 32 | u64::from(h[9]) << 24 | vlan;
        Some(Flow { kind: FrameKind::Ipv4, signature: self.sign(addresses, rest) })
    }

    #[inline]
    fn ipv6(&self, l3: &[u8], vlan: u64) -> Option<Flow> {
        let h = l3.first_chunk::<40>()?;
        if h[0] >> 4 != 6 {
            return None;
        }
        let word = |at: usize| u64::from_ne_bytes(h[at..at + 8].try_into().expect("8 bytes"));
        let rest = u64::from(ports(h[6], l3, 40)) << 32 | u64::from(h[6]) << 24 | vlan;
        let source = mix(word(8) ^ self.seed, word(16) ^ K[2]);
        let destination = mix(word(24) ^ K[3], word(32) ^ self.seed);
        Some(Flow { kind: FrameKind::Ipv6, signature: self.sign(source ^ destination.rotate_left(32), rest) })
    }

    fn other(&self, ethernet: &[u8; ETHERNET], ether_type: u16, vlan: u64) -> Flow {
        let low = u64::from_ne_bytes(ethernet[..8].try_into().expect("8 bytes"));
        let high = u32::from_ne_bytes(ethernet[8..12].try_into().expect("4 bytes"));
        let rest = u64::from(high) << 32 | u64::from(ether_type);
        Flow { kind: FrameKind::Other, signature: self.sign(mix(low ^ self.seed, rest ^ K[2]), vlan ^ K[3]) }
    }

    #[inline]
    fn sign(&self, a: u64, b: u64) -> u64 {
        mix(mix(a ^ self.seed, b ^ K[0]), self.seed ^ K[1]).max(1)
    }
}

/// Odd constants with as many ones as zeros.
const K: [u64; 4] =
    [0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93, 0xA076_1D64_78BD_642F, 0xE703_7ED1_A0B4_28DB];

/// Both halves of the 128-bit product, folded.
#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Source and destination port of a transport header at `at`, or 0.
#[inline]
fn ports(protocol: u8, l3: &[u8], at: usize) -> u32 {
    if !matches!(protocol, TCP | UDP | SCTP) {
        return 0;
    }
    l3.get(at..).and_then(|l4| l4.first_chunk::<4>()).map_or(0, |p| u32::from_ne_bytes(*p))
}

#[cfg(test)]
mod tests;
