//! The network header in front of a received datagram: who sent it.

use super::sge::GRH_BYTES;
use crate::types::Gid;
use std::net::Ipv4Addr;

/// The sender's address in the 40 bytes that a device delivers before a datagram.
///
/// Over IPv6 they are the IPv6 header. Over IPv4 the last 20 bytes are the IPv4 header and the first 20 are anything, so
/// a version of 6 in the first byte proves nothing and the IPv4 header's checksum decides.
pub(super) fn source(grh: &[u8; GRH_BYTES]) -> Option<Gid> {
    let (head, v4) = (grh, &grh[20..40]);
    let source_v4 = || Some(Gid::from(Ipv4Addr::new(v4[12], v4[13], v4[14], v4[15])));
    if head[0] >> 4 != 6 {
        return if v4[0] >> 4 == 4 { source_v4() } else { None };
    }
    if v4[0] == 0x45 && checksum_holds(v4) {
        return source_v4();
    }
    head[8..24].try_into().ok().map(Gid)
}

/// True if the ones' complement sum over an IPv4 header, its checksum included, is all ones.
fn checksum_holds(header: &[u8]) -> bool {
    let words = header.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    (folded & 0xFFFF) + (folded >> 16) == 0xFFFF
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10.9.0.1 to 10.9.0.2, UDP, 48 bytes, with its right checksum.
    const V4: [u8; 20] =
        [0x45, 0, 0, 0x30, 0xD5, 0x90, 0x40, 0, 0x40, 0x11, 0x51, 0x18, 10, 9, 0, 1, 10, 9, 0, 2];

    #[test]
    fn ipv4_behind_zeros_or_rubbish() {
        let want = Some(Gid::from(Ipv4Addr::new(10, 9, 0, 1)));
        for filler in [0, 0x6F, 0xFF] {
            let mut grh = [filler; 40];
            grh[20..].copy_from_slice(&V4);
            assert_eq!(source(&grh), want, "filler {filler:#x}");
        }
    }

    #[test]
    fn ipv6_even_where_it_looks_like_ipv4() {
        let mut grh = [0; 40];
        grh[0] = 0x60;
        grh[8..24].copy_from_slice(&[0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x45, 0, 0, 1]);
        assert_eq!(source(&grh).unwrap().to_string(), "fd00::4500:1");
        assert_eq!(source(&[0; 40]), None);
    }
}
