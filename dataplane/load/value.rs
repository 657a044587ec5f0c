//! Values that verify themselves: every byte follows from key, version, length and seed.
//!
//! ```text
//! byte 0   version (8 bytes)   run in the upper half, number in the lower one
//! byte 8   key (4 bytes), length (4 bytes)
//! byte 16  pattern words of 8 bytes, the last one cut where the value ends
//! ```
//! All little endian. Two values of different key, version, length or seed differ in **every** pattern word, so a value
//! that was put together from two is seen wherever the seam is.

use super::random::mix;

/// Bytes in front of the pattern.
const HEADER_BYTES: usize = 16;
/// Shortest value: a header and a word.
pub const VALUE_BYTES_MIN: u32 = 24;
/// Longest value that is accepted in a reply, so that a wrong length cannot make us wait for ever.
pub const VALUE_BYTES_MAX: u32 = 64 << 20;

/// Distance of the words' inputs. Odd, so that no two of a value are the same.
const STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;
/// Odd, so that different inputs stay different.
const FACTOR: u64 = 0xD6E8_FEB8_6659_FD93;

/// Which write of a key a value is from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    /// Run of the load: later ones have larger numbers, such as the second they began in.
    pub run: u32,
    /// Number of the write of that key in its run, from 1.
    pub number: u32,
}

/// What a value is about, and thereby all its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value {
    /// Number of its key.
    pub key: u32,
    /// Which write.
    pub version: Version,
    /// Bytes.
    pub length: u32,
}

impl Value {
    #[inline]
    fn header(&self) -> [u64; 2] {
        let version = u64::from(self.version.run) << 32 | u64::from(self.version.number);
        [version, u64::from(self.key) | u64::from(self.length) << 32]
    }

    /// Where the pattern begins.
    #[inline]
    fn start(&self, seed: u64) -> u64 {
        let [version, identity] = self.header();
        mix(mix(seed ^ version).wrapping_add(identity))
    }

    fn of_header(header: &[u8; HEADER_BYTES]) -> Self {
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        Value { version: Version { number: word(0), run: word(4) }, key: word(8), length: word(12) }
    }

    /// Writes the value's bytes from `at` on into `out`, as far as that goes.
    ///
    /// # Panics
    /// If `out` reaches beyond the value.
    #[inline]
    pub fn write(&self, seed: u64, mut at: usize, mut out: &mut [u8]) {
        assert!(at + out.len() <= self.length as usize, "a part of the value");
        let words = Words { header: self.header(), start: self.start(seed) };
        while !out.is_empty() && (at < HEADER_BYTES || !at.is_multiple_of(8)) {
            let word = words.at(at / 8).to_le_bytes();
            let part = &word[at % 8..];
            let n = part.len().min(out.len());
            out[..n].copy_from_slice(&part[..n]);
            out = &mut out[n..];
            at += n;
        }
        let (whole, rest) = out.as_chunks_mut::<8>();
        let mut input = words.input(at / 8);
        for word in &mut *whole {
            *word = pattern(input).to_le_bytes();
            input = input.wrapping_add(STRIDE);
        }
        let n = rest.len();
        rest.copy_from_slice(&pattern(input).to_le_bytes()[..n]);
    }
}

/// The words of one value.
#[derive(Clone, Copy, Debug)]
struct Words {
    header: [u64; 2],
    start: u64,
}

impl Words {
    /// What the pattern word of this index is made of.
    #[inline]
    fn input(&self, index: usize) -> u64 {
        self.start.wrapping_add((index as u64).wrapping_mul(STRIDE))
    }

    #[inline]
    fn at(&self, index: usize) -> u64 {
        if index < 2 { self.header[index] } else { pattern(self.input(index)) }
    }
}

#[inline]
fn pattern(input: u64) -> u64 {
    (input ^ input >> 32).wrapping_mul(FACTOR)
}

/// Verifies a value that arrives in pieces.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    header: [u8; HEADER_BYTES],
    words: Words,
    at: usize,
    /// First byte that is not as its header says.
    damage: Option<usize>,
}

impl Default for Check {
    fn default() -> Self {
        let words = Words { header: [0; 2], start: 0 };
        Check { header: [0; HEADER_BYTES], words, at: 0, damage: None }
    }
}

/// What a value turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checked {
    /// Whole, and this.
    Whole(Value),
    /// Too short to be one of ours.
    Short,
    /// Its header says this, and the byte at `at` (0 for the length) contradicts it.
    Damaged {
        /// What the header says.
        says: Value,
        /// First wrong byte, rounded down to its word.
        at: usize,
    },
}

impl Check {
    /// Takes the next piece.
    #[inline]
    pub fn feed(&mut self, seed: u64, mut piece: &[u8]) {
        if self.at < HEADER_BYTES {
            let n = piece.len().min(HEADER_BYTES - self.at);
            self.header[self.at..self.at + n].copy_from_slice(&piece[..n]);
            self.at += n;
            piece = &piece[n..];
            if self.at == HEADER_BYTES {
                let value = Value::of_header(&self.header);
                self.words = Words { header: value.header(), start: value.start(seed) };
            }
        }
        let head = (self.at.wrapping_neg() % 8).min(piece.len());
        if !self.at.is_multiple_of(8) {
            self.compare(&piece[..head]);
            piece = &piece[head..];
        }
        let (whole, rest) = piece.as_chunks::<8>();
        self.compare_words(whole);
        self.compare(rest);
    }

    /// Bytes within one word.
    #[inline]
    fn compare(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let word = self.words.at(self.at / 8).to_le_bytes();
        if word[self.at % 8..][..bytes.len()] != *bytes {
            self.damage.get_or_insert(self.at & !7);
        }
        self.at += bytes.len();
    }

    #[inline]
    fn compare_words(&mut self, words: &[[u8; 8]]) {
        let first = self.words.input(self.at / 8);
        let (mut input, mut difference) = (first, 0);
        for &word in words {
            difference |= u64::from_le_bytes(word) ^ pattern(input);
            input = input.wrapping_add(STRIDE);
        }
        if difference != 0 && self.damage.is_none() {
            let is_wrong = |i: usize| {
                u64::from_le_bytes(words[i]) != pattern(first.wrapping_add((i as u64).wrapping_mul(STRIDE)))
            };
            self.damage = (0..words.len()).find(|&i| is_wrong(i)).map(|i| self.at + 8 * i);
        }
        self.at += 8 * words.len();
    }

    /// The verdict on what was fed.
    pub fn finish(&self) -> Checked {
        if self.at < VALUE_BYTES_MIN as usize {
            return Checked::Short;
        }
        let says = Value::of_header(&self.header);
        match self.damage {
            Some(at) => Checked::Damaged { says, at },
            None if says.length as usize != self.at => Checked::Damaged { says, at: 0 },
            None => Checked::Whole(says),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEED: u64 = 99;

    fn value(key: u32, number: u32, length: u32) -> Value {
        Value { key, version: Version { run: 1_700_000_000, number }, length }
    }

    fn bytes(value: Value) -> Vec<u8> {
        let mut out = vec![0; value.length as usize];
        value.write(SEED, 0, &mut out);
        out
    }

    fn check(bytes: &[u8]) -> Checked {
        let mut check = Check::default();
        check.feed(SEED, bytes);
        check.finish()
    }

    #[test]
    fn every_bit_counts() {
        for length in [24, 31, 64, 100] {
            let good = bytes(value(5, 9, length));
            assert_eq!(check(&good), Checked::Whole(value(5, 9, length)));
            for bit in 0..8 * length as usize {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(matches!(check(&bad), Checked::Damaged { .. }), "{length}: bit {bit}");
            }
        }
    }

    #[test]
    fn a_seam_is_seen_at_every_64_bytes() {
        let strangers = [value(5, 10, 4096), value(6, 9, 4096), value(5, 9, 4160)];
        let good = bytes(value(5, 9, 4096));
        for other in strangers.map(bytes) {
            for at in (64..4096).step_by(64) {
                let torn = [&good[..at], &other[at..4096]].concat();
                assert_eq!(check(&torn), Checked::Damaged { says: value(5, 9, 4096), at });
            }
        }
        let mut other_seed = good.clone();
        value(5, 9, 4096).write(SEED + 1, 0, &mut other_seed);
        assert_eq!(check(&other_seed), Checked::Damaged { says: value(5, 9, 4096), at: 16 });
    }

    #[test]
    fn what_is_cut_or_grown_is_seen() {
        let good = bytes(value(1, 1, 100));
        for n in 0..24 {
            assert_eq!(check(&good[..n]), Checked::Short);
        }
        for n in 24..100 {
            assert_eq!(check(&good[..n]), Checked::Damaged { says: value(1, 1, 100), at: 0 });
        }
        assert!(matches!(check(&[&good[..], &[0]].concat()), Checked::Damaged { .. }));
    }

    proptest! {
        #[test]
        fn pieces_make_the_whole(
            length in VALUE_BYTES_MIN..600,
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
            damage in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let whole = bytes(value(3, 8, length));
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(length as usize)).collect();
            cuts.extend([0, length as usize]);
            cuts.sort_unstable();
            let mut written = vec![0xEE; length as usize];
            let mut check = Check::default();
            let mut seen = whole.clone();
            if let Some(at) = &damage {
                seen[at.index(length as usize)] ^= 0x40;
            }
            for pair in cuts.windows(2) {
                value(3, 8, length).write(SEED, pair[0], &mut written[pair[0]..pair[1]]);
                check.feed(SEED, &seen[pair[0]..pair[1]]);
            }
            prop_assert_eq!(written, whole);
            prop_assert_eq!(check.finish() == Checked::Whole(value(3, 8, length)), damage.is_none());
        }
    }
}
