//! CRC-32 of short runs of header bytes by table, from values that are still in registers.
//!
//! A SIMD kernel has to read back what was just written in small pieces, and pays for its reduction once
//! per call; for 4 to 60 bytes of header tables are faster. Everything is linear over GF(2): the
//! contribution of one byte depends only on its value and on how many bytes follow.

/// Longest run folded in one step.
const STEP: usize = 16;

/// `FOLLOWED_BY[n][b]`: contribution of byte `b` when `n` more bytes follow it.
static FOLLOWED_BY: [[u32; 256]; STEP] = tables();

const fn tables() -> [[u32; 256]; STEP] {
    let mut tables = [[0; 256]; STEP];
    let mut n = 0;
    while n < STEP {
        tables[n] = table(n);
        n += 1;
    }
    tables
}

/// The contributions of all byte values `following` bytes before the end.
pub(super) const fn table(following: usize) -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = contribution(byte as u32, following);
        byte += 1;
    }
    table
}

const fn contribution(byte: u32, following: usize) -> u32 {
    let mut state = byte;
    let mut bit = 0;
    while bit < 8 * (following + 1) {
        state = state >> 1 ^ 0xEDB8_8320 & (state & 1).wrapping_neg();
        bit += 1;
    }
    state
}

/// The state after the `N` bytes of `block` (4, 8, 12 or 16), from the state before them. Neither is
/// complemented.
#[inline(always)]
pub(super) fn fold<const N: usize>(mut state: u32, block: &[u8; N]) -> u32 {
    const { assert!(N.is_multiple_of(4) && N <= STEP) };
    let mut folded = 0;
    for (at, &word) in block.as_chunks::<4>().0.iter().enumerate() {
        let word = u32::from_le_bytes(word) ^ state;
        state = 0;
        let after = N - 4 * (at + 1);
        folded ^= FOLLOWED_BY[after + 3][usize::from(word as u8)]
            ^ FOLLOWED_BY[after + 2][usize::from((word >> 8) as u8)]
            ^ FOLLOWED_BY[after + 1][usize::from((word >> 16) as u8)]
            ^ FOLLOWED_BY[after][usize::from((word >> 24) as u8)];
    }
    folded
}

/// The state after `bytes`, however many.
#[inline]
pub(super) fn fold_all(mut state: u32, bytes: &[u8]) -> u32 {
    let (blocks, rest) = bytes.as_chunks::<STEP>();
    for block in blocks {
        state = fold(state, block);
    }
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        state = fold(state, word);
    }
    for &byte in rest {
        state = state >> 8 ^ FOLLOWED_BY[0][usize::from(state as u8 ^ byte)];
    }
    state
}
