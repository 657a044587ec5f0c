use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::InternetChecksum;

/// UDP destination port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;

/// UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct UdpHeader {
    /// Entropy for ECMP and RSS; receivers ignore it.
    pub source_port: U16,
    /// 4791 for RoCEv2.
    pub destination_port: U16,
    /// This header and everything after it, ICRC included.
    pub len: U16,
    /// 0 (none) on RoCEv2, over IPv6 too.
    pub checksum: U16,
}

const _: () = assert!(size_of::<UdpHeader>() == 8);

impl UdpHeader {
    /// True if there is no checksum, or it fits `pseudo_header` and `payload`.
    pub fn checksum_ok(&self, pseudo_header: InternetChecksum, payload: &[u8]) -> bool {
        self.checksum.get() == 0 || pseudo_header.with(self.as_bytes()).with(payload).finish() == 0
    }

    /// The checksum this header and `payload` should carry; never 0.
    pub fn compute_checksum(&self, pseudo_header: InternetChecksum, payload: &[u8]) -> u16 {
        let blank = UdpHeader { checksum: U16::ZERO, ..*self };
        match pseudo_header.with(blank.as_bytes()).with(payload).finish() {
            0 => 0xFFFF,
            sum => sum,
        }
    }
}
