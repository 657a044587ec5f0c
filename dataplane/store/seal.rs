//! The keyed hash behind key placement and item seals.
//!
//! A seal keeps bytes that are no item from passing as one: torn ones, old ones, and a client's value that was made to look
//! like an item. So it is keyed with random bits that a client never learns, and has 64 bits. It is no cryptographic MAC: who
//! could try seals at will and watch the outcome would in time find the key, but a client sees neither seals nor verdicts.

mod page;

use page::{PAGE, PageKey};

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

/// A key of seals: 128 random bits, spread out for blocks and for pages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SealSecret {
    blocks: Secret,
    pages: PageKey,
}

impl SealSecret {
    /// Spreads 128 random bits.
    pub fn new(bits: [u64; 2]) -> Self {
        let blocks = Secret::new(bits);
        let mut count = 0u64;
        let pages = PageKey::new(|| {
            count += 1;
            blocks.hash(&count.to_le_bytes()) as u32
        });
        SealSecret { blocks, pages }
    }
}

/// It is a secret.
impl std::fmt::Debug for SealSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealSecret(..)")
    }
}

/// What a node draws at each start, and tells gateways in its hello: one key for the places of keys, one for seals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Secrets {
    /// Where a key's buckets are. Random, so that nobody can choose keys that meet in one bucket.
    pub place: Secret,
    /// What items are sealed with.
    pub seal: SealSecret,
}

impl Secrets {
    /// From 256 random bits.
    pub fn new(bits: [u64; 4]) -> Self {
        Secrets { place: Secret::new([bits[0], bits[1]]), seal: SealSecret::new([bits[2], bits[3]]) }
    }
}

/// Bytes taken at once.
pub const BLOCK: usize = 64;

/// The seal of an item whose value comes in pieces; where they are cut does not change it. A first block and the key are taken
/// in blocks, and the value in pages that are compressed to two blocks each, and what is left of it in blocks again; a last
/// block ends in zeros. All lengths have to be in the first block.
#[derive(Clone, Debug)]
pub struct Seal<'a> {
    secret: &'a SealSecret,
    lanes: [u64; 4],
    /// Bytes of a page that is not complete.
    rest: [u8; PAGE],
    held: usize,
    len: u64,
}

impl<'a> Seal<'a> {
    /// Of a value without bytes.
    #[inline]
    pub fn new(secret: &'a SealSecret, first: &[u8; BLOCK], key: &[u8]) -> Self {
        Seal { secret, lanes: begin(secret, first, key), rest: [0; PAGE], held: 0, len: 0 }
    }

    /// The seal of an item whose value is in one piece: what [`finish`](Self::finish) gives after an [`update`](Self::update).
    #[inline]
    pub fn of(secret: &SealSecret, first: &[u8; BLOCK], key: &[u8], value: &[u8]) -> u64 {
        let mut lanes = begin(secret, first, key);
        let (pages, rest) = value.as_chunks::<PAGE>();
        for page in pages {
            absorb_page(&mut lanes, secret, page);
        }
        absorb_all(&mut lanes, &secret.blocks.keys, rest);
        close(lanes, &secret.blocks.keys, value.len() as u64)
    }

    /// More of the value.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len() as u64;
        if self.held > 0 {
            let more = bytes.len().min(PAGE - self.held);
            self.rest[self.held..self.held + more].copy_from_slice(&bytes[..more]);
            self.held += more;
            bytes = &bytes[more..];
            if self.held < PAGE {
                return;
            }
            absorb_page(&mut self.lanes, self.secret, &self.rest);
            self.held = 0;
        }
        let (pages, rest) = bytes.as_chunks::<PAGE>();
        for page in pages {
            absorb_page(&mut self.lanes, self.secret, page);
        }
        self.rest[..rest.len()].copy_from_slice(rest);
        self.held = rest.len();
    }

    /// The seal of everything that was put in, and of how much that is.
    pub fn finish(mut self) -> u64 {
        let keys = &self.secret.blocks.keys;
        absorb_all(&mut self.lanes, keys, &self.rest[..self.held]);
        close(self.lanes, keys, self.len)
    }
}

/// The lanes behind first block and key.
#[inline(always)]
fn begin(secret: &SealSecret, first: &[u8; BLOCK], key: &[u8]) -> [u64; 4] {
    let (mut lanes, keys) = (secret.blocks.start, &secret.blocks.keys);
    absorb(&mut lanes, keys, first);
    absorb_all(&mut lanes, keys, key);
    lanes
}

/// Takes bytes in blocks, the last one with zeros behind them.
#[inline(always)]
fn absorb_all(lanes: &mut [u64; 4], keys: &[u64; 4], bytes: &[u8]) {
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    for block in blocks {
        absorb(lanes, keys, block);
    }
    if !rest.is_empty() {
        let mut last = [0; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        absorb(lanes, keys, &last);
    }
}

#[inline(always)]
fn absorb_page(lanes: &mut [u64; 4], secret: &SealSecret, page: &[u8; PAGE]) {
    for half in secret.pages.compress(page) {
        mix(lanes, &secret.blocks.keys, |i| (half[2 * i], half[2 * i + 1]));
    }
}

/// What lanes come to, after so many bytes.
#[inline(always)]
fn close([a, b, c, d]: [u64; 4], keys: &[u64; 4], len: u64) -> u64 {
    let left = fold(a ^ keys[0], b.rotate_left(17) ^ keys[1]);
    let right = fold(c ^ keys[2], d.rotate_left(31) ^ keys[3]);
    fold(left ^ right.rotate_left(23) ^ keys[1], len ^ keys[2] ^ right)
}

/// Takes a block.
#[inline(always)]
fn absorb(lanes: &mut [u64; 4], keys: &[u64; 4], block: &[u8; BLOCK]) {
    let (pairs, _) = block.as_chunks::<16>();
    mix(lanes, keys, |i| halves(&pairs[i]));
}

/// Four lanes take two words each; they do not wait for one another. That a lane loses its past, because what it takes makes a
/// factor 0, happens once in 2^63 times: nobody outside knows what would do it.
#[inline(always)]
fn mix(lanes: &mut [u64; 4], keys: &[u64; 4], pair: impl Fn(usize) -> (u64, u64)) {
    for i in 0..4 {
        let (low, high) = pair(i);
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
    const KEY: &[u8] = b"a key";

    fn sealed(secret: &SealSecret, bytes: &[u8]) -> u64 {
        let mut seal = Seal::new(secret, &FIRST, KEY);
        seal.update(bytes);
        seal.finish()
    }

    type Hash = Box<dyn Fn(&[u8]) -> u64>;

    /// Both hashes with keys of these bits.
    fn hashes(bits: [u64; 2]) -> [Hash; 2] {
        let (secret, seal) = (Secret::new(bits), SealSecret::new(bits));
        [Box::new(move |bytes| secret.hash(bytes)), Box::new(move |bytes| sealed(&seal, bytes))]
    }

    #[test]
    fn cuts_do_not_matter() {
        let secret = SealSecret::new([1, 2]);
        let mut rng = Rng::new(3);
        let bytes: Vec<u8> = (0..4 * PAGE).map(|_| rng.bits() as u8).collect();
        for len in [0, 1, 15, 63, 64, 65, 128, 777, 1000, 1023, 1024, 1025, 2048, 2999, 4096] {
            for round in 0..20 {
                let mut seal = Seal::new(&secret, &FIRST, KEY);
                let mut at = 0;
                while at < len {
                    let n = rng.within(0, if round % 2 == 0 { 100 } else { 2500 }).min((len - at) as u64)
                        as usize;
                    seal.update(&bytes[at..at + n]);
                    at += n;
                }
                assert_eq!(seal.finish(), sealed(&secret, &bytes[..len]));
                assert_eq!(Seal::of(&secret, &FIRST, KEY, &bytes[..len]), sealed(&secret, &bytes[..len]));
            }
        }
    }

    #[test]
    fn every_bit_changes_about_half_of_either_hash() {
        for hash in hashes([7, 9]) {
            for len in [1usize, 7, 11, 16, 100, 200, 1030] {
                let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
                let plain = hash(&bytes);
                let mut flips = 0;
                for bit in 0..len * 8 {
                    let mut other = bytes.clone();
                    other[bit / 8] ^= 1 << (bit % 8);
                    let differ = (hash(&other) ^ plain).count_ones();
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
        let zeros = [0u8; 3000];
        let others = [hashes([1, 0]), hashes([0, 1])];
        for (i, hash) in hashes([0, 0]).iter().enumerate() {
            let mut seen: Vec<u64> = (0..3000).map(|n| hash(&zeros[..n])).collect();
            for at in [0, 64, 1024, 2048] {
                let mut swapped = zeros;
                swapped[at] = 1;
                seen.push(hash(&swapped));
                seen.extend(others.iter().map(|other| other[i](&swapped)));
            }
            let count = seen.len();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), count);
        }
    }

    #[test]
    fn a_seal_is_over_its_first_block_and_its_key_too() {
        let secret = SealSecret::new([3, 4]);
        let seal = |first: &[u8; BLOCK], key: &[u8]| Seal::of(&secret, first, key, b"value");
        for at in 0..BLOCK {
            let mut other = FIRST;
            other[at] ^= 1;
            assert!((seal(&FIRST, KEY) ^ seal(&other, KEY)).count_ones() > 8, "byte {at}");
        }
        let key: Vec<u8> = (0..100).collect();
        for at in 0..key.len() {
            let mut other = key.clone();
            other[at] ^= 1;
            assert!((seal(&FIRST, &key) ^ seal(&FIRST, &other)).count_ones() > 8, "byte {at} of the key");
        }
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(
            format!("{:?}", Secrets::new([5, 6, 7, 8])),
            "Secrets { place: Secret(..), seal: SealSecret(..) }"
        );
    }
}
