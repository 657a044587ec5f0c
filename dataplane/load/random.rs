//! Random numbers of a load: everything that is drawn follows from a seed.

/// Stirs a word so that every bit of the result depends on every bit of it; different words stay different.
#[inline]
pub(crate) const fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    word = (word ^ word >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    word ^ word >> 32
}

/// A seeded generator: a counter, stirred.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// With this seed.
    pub const fn new(seed: u64) -> Self {
        Random(mix(seed ^ 0xA076_1D64_78BD_642F))
    }

    /// The next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `n`; 0 for 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// A number above 0 and up to 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}
