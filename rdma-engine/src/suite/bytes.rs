//! Known bytes, and buffers with them.

use crate::buf::{Buf, Pool, copy_out};

/// `len` bytes that depend on `seed` and on their place, so that a byte out of place is seen.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&next());
    }
    bytes.truncate(len);
    bytes
}

/// All contents of a buffer.
pub fn contents<B: Buf>(buf: &B) -> Vec<u8> {
    let mut bytes = vec![0; buf.len()];
    let n = copy_out(buf, 0, &mut bytes);
    assert_eq!(n, bytes.len(), "len() disagrees with segments()");
    bytes
}

fn alloc<P: Pool>(pool: &P) -> P::Buf {
    pool.alloc().expect("the pool of a case is large enough")
}

/// An empty chain of `segments` buffers.
pub fn empty_chain<P: Pool>(pool: &P, segments: usize) -> P::Buf {
    let mut buf = alloc(pool);
    for _ in 1..segments {
        assert!(buf.chain(alloc(pool)).is_ok(), "a chain of {segments} segments");
    }
    buf
}

/// A chain with these bytes, cut into at least `segments` pieces as even as can be, and more if a buffer holds less.
pub fn filled_chain<P: Pool>(pool: &P, bytes: &[u8], segments: usize) -> P::Buf {
    let pieces = segments.max(bytes.len().div_ceil(pool.buf_room())).max(1);
    let size = bytes.len().div_ceil(pieces);
    let piece = |i: usize| {
        let mut part = alloc(pool);
        let bytes = &bytes[(i * size).min(bytes.len())..((i + 1) * size).min(bytes.len())];
        part.append(bytes.len()).expect("a fresh buffer has room").copy_from_slice(bytes);
        part
    };
    let mut buf = piece(0);
    for i in 1..pieces {
        assert!(buf.chain(piece(i)).is_ok(), "a chain of {pieces} segments");
    }
    buf
}
