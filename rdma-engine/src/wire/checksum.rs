/// The Internet checksum (RFC 1071) over bytes that arrive in pieces of any length.
///
/// Words are added as the machine reads them and the byte order is put right once, at the end: the sum is the same in
/// either order but for a swap of its bytes. A piece that begins at an odd position counts swapped for the same reason.
#[derive(Clone, Copy, Default, Debug)]
pub struct InternetChecksum {
    /// Sum of words in the machine's order, carries on top.
    sum: u64,
    /// True behind an odd number of bytes.
    odd: bool,
}

/// The ones' complement sum of the 16-bit words in `sum`.
const fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xFFFF_FFFF) + (sum >> 32);
    let sum = (sum & 0xFFFF) + (sum >> 16);
    let sum = (sum & 0xFFFF) + (sum >> 16);
    let sum = (sum & 0xFFFF) + (sum >> 16);
    sum as u16
}

/// Sum of the words of `bytes` in the machine's order. Blocks of a fixed size, halves apart: compilers make vectors of it,
/// four times as fast as one word after the other.
#[inline]
fn sum_words(bytes: &[u8]) -> u64 {
    const LOW: u64 = 0xFFFF_FFFF;
    let (words, rest) = bytes.as_chunks::<8>();
    let (blocks, words) = words.as_chunks::<8>();
    let (mut low, mut high) = ([0_u64; 8], [0_u64; 8]);
    for block in blocks {
        for ((low, high), word) in low.iter_mut().zip(&mut high).zip(block) {
            let word = u64::from_ne_bytes(*word);
            *low += word & LOW;
            *high += word >> 32;
        }
    }
    let words = words.iter().map(|word| u64::from_ne_bytes(*word));
    let sum =
        low.iter().chain(&high).sum::<u64>() + words.map(|word| (word & LOW) + (word >> 32)).sum::<u64>();
    let (pairs, last) = rest.as_chunks::<2>();
    let sum = sum + pairs.iter().map(|pair| u64::from(u16::from_ne_bytes(*pair))).sum::<u64>();
    sum + last.iter().map(|byte| u64::from(u16::from_ne_bytes([*byte, 0]))).sum::<u64>()
}

impl InternetChecksum {
    /// Nothing summed yet.
    #[inline]
    pub const fn new() -> Self {
        InternetChecksum { sum: 0, odd: false }
    }

    /// With `bytes` added.
    #[inline]
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        let sum = self.plus(sum_words(bytes));
        InternetChecksum { odd: self.odd ^ (bytes.len() % 2 == 1), ..sum }
    }

    /// With a header added: what [`with`](Self::with) does, without a loop.
    #[inline(always)]
    #[must_use]
    pub fn with_header<const N: usize>(self, header: &[u8; N]) -> Self {
        const { assert!(N.is_multiple_of(4)) };
        let words = header.as_chunks::<4>().0;
        self.plus(words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum())
    }

    /// With a sum of words in the machine's order added, whose first byte comes behind what was summed.
    #[inline(always)]
    fn plus(self, added: u64) -> Self {
        let added = if self.odd { u64::from(fold(added).swap_bytes()) } else { added };
        InternetChecksum { sum: self.sum + added, ..self }
    }

    /// With one 16-bit word added.
    #[inline]
    #[must_use]
    pub const fn with_word(self, word: u16) -> Self {
        let word = if self.odd { word.to_be().swap_bytes() } else { word.to_be() };
        InternetChecksum { sum: self.sum + word as u64, odd: self.odd }
    }

    /// With what `other` summed added, as if its bytes began at an even position.
    #[inline]
    #[must_use]
    pub const fn with_sum(self, other: InternetChecksum) -> Self {
        InternetChecksum { sum: self.sum + fold(other.sum) as u64, odd: self.odd ^ other.odd }
    }

    /// The ones' complement of the ones' complement sum; 0 when a valid checksum was summed in.
    #[inline]
    pub const fn finish(self) -> u16 {
        !self.sum()
    }

    /// The ones' complement sum itself: what a NIC that adds the rest wants to find in the place of the checksum.
    #[inline]
    pub const fn sum(self) -> u16 {
        u16::from_be(fold(self.sum))
    }
}

/// The Internet checksum of `bytes`, as it is stored in ICMP.
#[inline]
pub fn internet_checksum(bytes: &[u8]) -> u16 {
    InternetChecksum::new().with(bytes).finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As RFC 1071 says it.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b));
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn the_example_of_the_rfc() {
        let sum = InternetChecksum::new().with(&[0, 1, 0xF2, 3, 0xF4, 0xF5, 0xF6, 0xF7]);
        assert_eq!(sum.sum(), 0xDDF2);
        assert_eq!(sum.finish(), !0xDDF2);
        assert_eq!(InternetChecksum::new().with_word(0x1234).sum(), 0x1234);
        assert_eq!(
            InternetChecksum::new().with(&[0x12]).with_word(0x3456).with(&[0x78]).sum(),
            0x1234 + 0x5678
        );
    }

    #[test]
    fn carries_are_not_lost() {
        for len in [1, 2, 31, 64, 65_535, 1 << 20] {
            let bytes = vec![0xFF; len];
            assert_eq!(internet_checksum(&bytes), naive(&bytes), "{len}");
        }
    }

    proptest! {
        #[test]
        fn pieces_sum_up(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8)) {
            let whole = naive(&pieces.concat());
            let sum = pieces.iter().fold(InternetChecksum::new(), |sum, piece| sum.with(piece));
            prop_assert_eq!(sum.finish(), whole);
            let header = [1, 2, 250, 251, 252, 253, 254, 255];
            prop_assert_eq!(sum.with_header(&header).finish(), sum.with(&header).finish());
            let twice = InternetChecksum::new().with(&[1, 2]).with_sum(sum).with_sum(InternetChecksum::default());
            prop_assert_eq!(twice.finish(), naive(&[vec![1, 2], pieces.concat()].concat()));
        }
    }
}
