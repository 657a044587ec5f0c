use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::types::{Psn, Qpn};

/// A big-endian 24-bit field: QPN, PSN, MSN.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(transparent)]
pub struct U24([u8; 3]);

const _: () = assert!(size_of::<U24>() == 3);

impl U24 {
    /// The low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        let [_, a, b, c] = value.to_be_bytes();
        U24([a, b, c])
    }

    /// The value, below 2^24.
    #[inline]
    pub const fn value(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_be_bytes([0, a, b, c])
    }

    /// The field as a queue pair number.
    #[inline]
    pub const fn qpn(self) -> Qpn {
        Qpn::new(self.value())
    }

    /// The field as a packet sequence number.
    #[inline]
    pub const fn psn(self) -> Psn {
        Psn::new(self.value())
    }
}

impl From<Qpn> for U24 {
    #[inline]
    fn from(qpn: Qpn) -> Self {
        U24::new(qpn.value())
    }
}

impl From<Psn> for U24 {
    #[inline]
    fn from(psn: Psn) -> Self {
        U24::new(psn.value())
    }
}

impl fmt::Debug for U24 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.value())
    }
}
