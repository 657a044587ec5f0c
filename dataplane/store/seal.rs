//! The keyed hash behind key placement and item seals.
//!
//! A seal keeps bytes that are no item from passing as one: torn ones, old ones, and a client's value that was made to look
//! like an item. So it is keyed with random bits that a client never learns, and has 64 bits. It is no cryptographic MAC: who
//! could try seals at will and watch the outcome would in time find the key, but a client sees neither seals nor verdicts.

/// A key of the hash: 128 random bits, spread out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret {
    start: [u64; 4],
    keys: [u64; 4],
}

impl Secret {
    /// Spreads 128 random bits.
    pub fn new(bits: [u64; 2]) -> Self {
        let mut state = bits[0];
        let mut next = || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            fold(state ^ 0xD1B5_4A32_D192_ED03, bits[1] ^ state.rotate_left(29))
        };
        Secret { start: std::array::from_fn(|_| next()), keys: std::array::from_fn(|_| next()) }
    }

    /// The hash of `bytes`, which are few: two lanes take 16 bytes in turn. Not the same as [`Seal`]'s.
    #[inline]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        let [mut one, mut other, ..] = self.start;
        let (pairs, rest) = bytes.as_chunks::<16>();
        for pair in pairs {
            let (low, high) = halves(pair);
            (one, other) = (other, fold(one ^ low, self.keys[0] ^ high));
        }
        let (low, high) = padded(rest);
        let last = fold(one ^ low, self.keys[1] ^ high);
        fold(last ^ other.rotate_left(23), self.keys[2] ^ bytes.len() as u64)
    }
}

/// The two words of 16 bytes.
#[inline(always)]
fn halves(bytes: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*bytes);
    (both as u64, (both >> 64) as u64)
}

/// The two words of up to 15 bytes, and zeros; without a call for so few.
#[inline(always)]
fn padded(rest: &[u8]) -> (u64, u64) {
    let word = |bytes: &[u8]| -> u64 {
        let (first, n) = (bytes.first_chunk::<4>(), bytes.len());
        match (first, bytes.last_chunk::<4>()) {
            (Some(first), Some(last)) => {
                // They overlap, and agree where they do.
                u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << (8 * (n - 4))
            }
            _ => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        }
    };
    match rest.split_at_checked(8) {
        Some((low, high)) => (word(low), word(high)),
        None => (word(rest), 0),
    }
}

/// It is a secret.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What a node draws at each start, and tells gateways in its hello: one key for the places of keys, one for seals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Secrets {
    /// Where a key's buckets are. Random, so that nobody can choose keys that meet in one bucket.
    pub place: Secret,
    /// What items are sealed with.
    pub seal: Secret,
}

impl Secrets {
    /// From 256 random bits.
    pub fn new(bits: [u64; 4]) -> Self {
        Secrets { place: Secret::new([bits[0], bits[1]]), seal: Secret::new([bits[2], bits[3]]) }
    }
}

/// Bytes taken at once.
pub const BLOCK: usize = 64;

/// A hash under way. Where its input is cut does not change the result.
#[derive(Clone, Debug)]
pub struct Seal<'a> {
    secret: &'a Secret,
    lanes: [u64; 4],
    /// Bytes of a block that is not complete, and zeros.
    rest: [u8; BLOCK],
    held: usize,
    len: u64,
}

impl<'a> Seal<'a> {
    /// Nothing but a first block.
    #[inline]
    pub fn new(secret: &'a Secret, first: &[u8; BLOCK]) -> Self {
        let mut lanes = secret.start;
        absorb(&mut lanes, &secret.keys, first);
        Seal { secret, lanes, rest: [0; BLOCK], held: 0, len: 0 }
    }

    /// The hash of a first block and everything else at once: what [`finish`](Self::finish) gives after an
    /// [`update`](Self::update).
    #[inline]
    pub fn of(secret: &'a Secret, first: &[u8; BLOCK], bytes: &[u8]) -> u64 {
        let (mut lanes, keys) = (secret.start, &secret.keys);
        absorb(&mut lanes, keys, first);
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for block in blocks {
            absorb(&mut lanes, keys, block);
        }
        if !rest.is_empty() {
            let mut last = [0; BLOCK];
            last[..rest.len()].copy_from_slice(rest);
            absorb(&mut lanes, keys, &last);
        }
        close(lanes, keys, bytes.len() as u64)
    }

    /// More input.
    #[inline]
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len() as u64;
        if self.held > 0 {
            let more = bytes.len().min(BLOCK - self.held);
            self.rest[self.held..self.held + more].copy_from_slice(&bytes[..more]);
            self.held += more;
            bytes = &bytes[more..];
            if self.held < BLOCK {
                return;
            }
            absorb(&mut self.lanes, &self.secret.keys, &self.rest);
            (self.rest, self.held) = ([0; BLOCK], 0);
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        // A copy of the lanes stays in registers.
        let mut lanes = self.lanes;
        for block in blocks {
            absorb(&mut lanes, &self.secret.keys, block);
        }
        self.lanes = lanes;
        if !rest.is_empty() {
            self.rest[..rest.len()].copy_from_slice(rest);
            self.held = rest.len();
        }
    }

    /// The hash of everything that was put in, and of how much that is.
    #[inline]
    pub fn finish(mut self) -> u64 {
        let keys = &self.secret.keys;
        if self.held > 0 {
            absorb(&mut self.lanes, keys, &self.rest);
        }
        close(self.lanes, keys, self.len)
    }
}

/// What lanes come to, after so many bytes.
#[inline(always)]
fn close([a, b, c, d]: [u64; 4], keys: &[u64; 4], len: u64) -> u64 {
    let left = fold(a ^ keys[0], b.rotate_left(17) ^ keys[1]);
    let right = fold(c ^ keys[2], d.rotate_left(31) ^ keys[3]);
    fold(left ^ right.rotate_left(23) ^ keys[1], len ^ keys[2] ^ right)
}

/// Four lanes take 16 bytes each; they do not wait for one another. That a lane loses its past, because what it takes makes a
/// factor 0, happens once in 2^63 times: nobody outside knows what would do it.
#[inline(always)]
fn absorb(lanes: &mut [u64; 4], keys: &[u64; 4], block: &[u8; BLOCK]) {
    let (words, _) = block.as_chunks::<16>();
    for i in 0..4 {
        let (low, high) = halves(&words[i]);
        lanes[i] = fold(lanes[i] ^ low, keys[i] ^ high);
    }
}

/// The 128-bit product, folded to 64.
#[inline(always)]
pub(super) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdma_engine::sim::rng::Rng;

    const FIRST: [u8; BLOCK] = [5; BLOCK];

    fn sealed(secret: &Secret, bytes: &[u8]) -> u64 {
        let mut seal = Seal::new(secret, &FIRST);
        seal.update(bytes);
        seal.finish()
    }

    #[test]
    fn cuts_do_not_matter() {
        let secret = Secret::new([1, 2]);
        let mut rng = Rng::new(3);
        let bytes: Vec<u8> = (0..1000).map(|_| rng.bits() as u8).collect();
        for len in [0, 1, 15, 63, 64, 65, 128, 777, 1000] {
            for _ in 0..20 {
                let mut seal = Seal::new(&secret, &FIRST);
                let mut at = 0;
                while at < len {
                    let n = rng.within(1, 100).min((len - at) as u64) as usize;
                    seal.update(&bytes[at..at + n]);
                    at += n;
                }
                assert_eq!(seal.finish(), sealed(&secret, &bytes[..len]));
                assert_eq!(Seal::of(&secret, &FIRST, &bytes[..len]), sealed(&secret, &bytes[..len]));
            }
        }
    }

    #[test]
    fn every_bit_changes_about_half_of_either_hash() {
        let secret = Secret::new([7, 9]);
        for hash in [Secret::hash, sealed] {
            for len in [1usize, 7, 11, 16, 100, 200] {
                let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
                let plain = hash(&secret, &bytes);
                let mut flips = 0;
                for bit in 0..len * 8 {
                    let mut other = bytes.clone();
                    other[bit / 8] ^= 1 << (bit % 8);
                    let differ = (hash(&secret, &other) ^ plain).count_ones();
                    assert!(differ > 8, "bit {bit} of {len} bytes changes {differ} bits");
                    flips += differ as usize;
                }
                let mean = flips as f64 / (len * 8) as f64;
                assert!((26.0..38.0).contains(&mean), "{mean} bits of 64 on average with {len} bytes");
            }
        }
    }

    #[test]
    fn zeros_swaps_and_other_keys_are_told_apart() {
        let secret = Secret::new([0, 0]);
        let zeros = [0u8; 256];
        for hash in [Secret::hash, sealed] {
            let mut seen: Vec<u64> = (0..256).map(|n| hash(&secret, &zeros[..n])).collect();
            let (mut swapped, mut plain) = ([0u8; 128], [0u8; 128]);
            (plain[0], swapped[64]) = (1, 1);
            seen.extend([hash(&secret, &plain), hash(&secret, &swapped)]);
            seen.extend([Secret::new([1, 0]), Secret::new([0, 1])].map(|other| hash(&other, &plain)));
            let count = seen.len();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), count);
        }
    }

    #[test]
    fn a_seal_is_over_its_first_block_too() {
        let secret = Secret::new([3, 4]);
        let seal = |first: &[u8; BLOCK]| Seal::new(&secret, first).finish();
        for at in 0..BLOCK {
            let mut other = FIRST;
            other[at] ^= 1;
            assert!((seal(&FIRST) ^ seal(&other)).count_ones() > 8, "byte {at}");
        }
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::new([5, 6])), "Secret(..)");
    }
}
