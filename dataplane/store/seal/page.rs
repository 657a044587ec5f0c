//! A page of a value is compressed to two blocks before it is sealed: an eighth of the multiplications.
//!
//! It is NH, the hash that UMAC is built on (Black, Halevi, Krawczyk, Krovetz, Rogaway, "UMAC: Fast and Secure Message
//! Authentication", 1999), with a key word for every word of a page: sums of products of two words of 32 bits each, in eight
//! lanes. Two different pages agree in a lane where they differ with a probability of 2^-32 at most, whatever they
//! are, as long as the key is random; a second pass with the key one stripe further on (Toeplitz) makes that 2^-64.
#![allow(unsafe_code)] // reason: instructions that not every CPU has are called by way of a check.

/// Bytes that are compressed at once.
pub(super) const PAGE: usize = 1024;
/// Words of 32 bits that are taken at once, two for each lane.
const STRIPE: usize = 16;
/// Stripes of a page.
const STRIPES: usize = PAGE / (4 * STRIPE);
/// Sums of one pass.
const LANES: usize = STRIPE / 2;

/// Both passes of a page.
pub(super) type Digest = [[u64; LANES]; 2];

/// Random words for every stripe of a page, and one more for the second pass.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(align(64))]
pub(super) struct PageKey([[u32; STRIPE]; STRIPES + 1]);

impl PageKey {
    /// From random words.
    pub(super) fn new(mut next: impl FnMut() -> u32) -> Self {
        PageKey(std::array::from_fn(|_| std::array::from_fn(|_| next())))
    }

    /// Compresses a page.
    #[inline]
    pub(super) fn compress(&self, page: &[u8; PAGE]) -> Digest {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has these instructions.
            return unsafe { self.with_avx2(page) };
        }
        self.by_words(page)
    }

    /// For any CPU.
    fn by_words(&self, page: &[u8; PAGE]) -> Digest {
        let mut digest = [[0u64; LANES]; 2];
        let (words, _) = page.as_chunks::<4>();
        for (pass, sums) in digest.iter_mut().enumerate() {
            for (stripe, key) in words.chunks_exact(STRIPE).zip(&self.0[pass..]) {
                let with_key = |at: usize| u64::from(u32::from_le_bytes(stripe[at]).wrapping_add(key[at]));
                for (lane, sum) in sums.iter_mut().enumerate() {
                    *sum = sum.wrapping_add(with_key(2 * lane) * with_key(2 * lane + 1));
                }
            }
        }
        digest
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[target_feature(enable = "avx2")]
    fn with_avx2(&self, page: &[u8; PAGE]) -> Digest {
        use std::arch::x86_64::{
            __m256i, _mm256_add_epi32, _mm256_add_epi64, _mm256_loadu_si256, _mm256_mul_epu32,
            _mm256_setzero_si256, _mm256_srli_epi64, _mm256_storeu_si256,
        };
        // SAFETY: 32 bytes are readable there, aligned or not.
        let load = |from: &[u8; 32]| unsafe { _mm256_loadu_si256(from.as_ptr().cast::<__m256i>()) };
        // SAFETY: the same of eight words.
        let load_key = |from: &[u32; 8]| unsafe { _mm256_loadu_si256(from.as_ptr().cast::<__m256i>()) };
        let (halves, _) = page.as_chunks::<32>();
        let (keys, _) = self.0.as_flattened().as_chunks::<8>();
        // Of each pass the first four lanes and the last four.
        let mut sums = [[_mm256_setzero_si256(); 2]; 2];
        for stripe in 0..STRIPES {
            for half in 0..2 {
                let words = load(&halves[2 * stripe + half]);
                for (pass, sums) in sums.iter_mut().enumerate() {
                    let mixed = _mm256_add_epi32(words, load_key(&keys[2 * (stripe + pass) + half]));
                    let products = _mm256_mul_epu32(mixed, _mm256_srli_epi64::<32>(mixed));
                    sums[half] = _mm256_add_epi64(sums[half], products);
                }
            }
        }
        let mut digest = [[0u64; LANES]; 2];
        let (out, _) = digest.as_flattened_mut().as_chunks_mut::<4>();
        for (out, sums) in out.iter_mut().zip(sums.as_flattened()) {
            // SAFETY: 32 bytes are writable there, aligned or not.
            unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast::<__m256i>(), *sums) };
        }
        digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdma_engine::sim::rng::Rng;

    fn key(rng: &mut Rng) -> PageKey {
        PageKey::new(|| rng.bits() as u32)
    }

    #[test]
    fn all_cpus_agree() {
        let mut rng = Rng::new(1);
        for round in 0..200 {
            let key = key(&mut rng);
            let page: [u8; PAGE] = match round {
                0 => [0; PAGE],
                1 => [0xFF; PAGE],
                _ => std::array::from_fn(|_| rng.bits() as u8),
            };
            assert_eq!(key.compress(&page), key.by_words(&page), "round {round}");
        }
    }

    #[test]
    fn a_page_is_the_sums_that_the_paper_says() {
        // One word each: the key is 1, 2, 3, ... throughout.
        let mut n = 0;
        let key = PageKey::new(|| {
            n += 1;
            n
        });
        let product = |at: u64, first: u64, second: u64| (first + at + 1) * (second + at + 2);
        let of_zeros =
            |pass: u64, lane: u64| (0..16).map(|s| product(16 * (s + pass) + 2 * lane, 0, 0)).sum();
        let mut expected: Digest = [0, 1].map(|pass| std::array::from_fn(|lane| of_zeros(pass, lane as u64)));
        assert_eq!(key.compress(&[0; PAGE]), expected);
        // Words 34 and 35 are the third stripe's in lane 1.
        let mut page = [0; PAGE];
        (page[4 * 34], page[4 * 35]) = (7, 9);
        for (pass, sums) in expected.iter_mut().enumerate() {
            let at = 34 + 16 * pass as u64;
            sums[1] = sums[1] - product(at, 0, 0) + product(at, 7, 9);
        }
        assert_eq!(key.compress(&page), expected);
    }

    #[test]
    fn every_bit_and_every_order_of_stripes_counts_in_both_passes() {
        let mut rng = Rng::new(5);
        let key = key(&mut rng);
        let page: [u8; PAGE] = std::array::from_fn(|_| rng.bits() as u8);
        let plain = key.compress(&page);
        let differs = |other: &[u8; PAGE]| {
            let now = key.compress(other);
            (0..2).all(|pass| now[pass] != plain[pass])
        };
        for bit in 0..8 * PAGE {
            let mut other = page;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(differs(&other), "bit {bit}");
        }
        for one in 0..STRIPES {
            for two in 0..one {
                let mut other = page;
                let (low, high) = other.split_at_mut(64 * one);
                low[64 * two..][..64].swap_with_slice(&mut high[..64]);
                assert!(differs(&other), "stripes {one} and {two}");
            }
        }
    }
}
