//! Random numbers for keys and QP numbers, drawn by the control thread only.

use super::config::{Entropy, SoftError};

/// A source of random words.
#[derive(Debug)]
pub(crate) struct Random(Entropy);

impl Random {
    pub(crate) fn new(entropy: Entropy) -> Self {
        Random(entropy)
    }

    /// The next word.
    pub(crate) fn word(&mut self) -> Result<u32, SoftError> {
        match &mut self.0 {
            Entropy::System => getrandom::u32().map_err(SoftError::Random),
            Entropy::Seed(state) => Ok((split_mix(state) >> 32) as u32),
        }
    }
}

/// The SplitMix64 generator: one step of `state`, one word.
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
