//! The buffer contract: who owns bytes, and who may write them.
//!
//! A buffer is a chain of segments with **one owner**. Posting it to a queue pair moves it; its completion, or the
//! destruction of the queue pair, gives it back. The bytes of a segment may be shared between buffers (an indirect
//! mbuf, a slice of a received message): then they are read-only for everybody, and [`Buf::try_unique`] says no.
//!
//! `dataplane` implements the traits over DPDK mbufs, [`crate::heap`] over plain memory for miri, the simulator and
//! the loopback transport.

/// A chain of segments with one owner. Lengths and offsets are bytes.
///
/// A buffer that will *receive* (a posted receive, the destination of a READ or an atomic) is empty: `len() == 0`;
/// the bytes land in its [`spare`](Buf::spare) areas in chain order and [`filled`](Buf::filled) makes them its
/// contents.
pub trait Buf: Send + Sized + 'static {
    /// Iterator over the contents, one slice a segment.
    type Segments<'a>: Iterator<Item = &'a [u8]>
    where
        Self: 'a;
    /// Iterator over the writable areas behind the contents, one a segment.
    type Spare<'a>: Iterator<Item = &'a mut [u8]>
    where
        Self: 'a;

    /// Bytes in all segments.
    fn len(&self) -> usize;

    /// True if no segment holds a byte.
    #[inline]
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Segments in the chain, at least 1.
    fn segment_count(&self) -> usize;

    /// The contents, segment by segment; empty segments may appear.
    fn segments(&self) -> Self::Segments<'_>;

    /// The contents of the first segment.
    fn first(&self) -> &[u8];

    /// Free bytes in front of the first segment's contents.
    fn headroom(&self) -> usize;

    /// Free bytes behind the last segment's contents.
    fn tailroom(&self) -> usize;

    /// True if no other buffer shares any segment's bytes.
    fn is_unique(&self) -> bool;

    /// The first segment's contents for writing; `None` while that segment is shared.
    fn try_unique(&mut self) -> Option<&mut [u8]>;

    /// Grows the contents by `n` bytes at the front and returns them; `None`, and nothing changes, without the
    /// headroom or while the first segment is shared. The bytes keep whatever they held.
    fn prepend(&mut self, n: usize) -> Option<&mut [u8]>;

    /// Grows the contents by `n` bytes at the end of the last segment and returns them; `None`, and nothing changes,
    /// without the tailroom or while the last segment is shared. The bytes keep whatever they held.
    fn append(&mut self, n: usize) -> Option<&mut [u8]>;

    /// Cuts `n` bytes off the front. Segments left empty there are freed, the last one excepted.
    ///
    /// # Panics
    /// If `n` exceeds `len()`.
    fn adj(&mut self, n: usize);

    /// Cuts the contents to their first `len` bytes; no effect if they are shorter. Segments left empty at the end
    /// are freed, the first one excepted.
    fn truncate(&mut self, len: usize);

    /// Hangs `tail` behind this chain; gives it back if the chain cannot take it (segment or length limits).
    fn chain(&mut self, tail: Self) -> Result<(), Self>;

    /// Moves the start of an **empty** buffer so that `headroom()` becomes at least `n`; false, and nothing
    /// changes, if the first segment is too small, shared or not empty.
    fn reserve(&mut self, n: usize) -> bool;

    /// The writable areas behind the contents, segment by segment; nothing for shared segments. A transport hands
    /// their addresses to the hardware.
    fn spare(&mut self) -> Self::Spare<'_>;

    /// Bytes that [`spare`](Buf::spare) would give.
    fn room(&self) -> usize;

    /// Declares that `n` bytes have been written into an **empty** buffer's spare areas, in chain order; they become
    /// the contents. Segments behind the last byte stay in the chain, empty.
    ///
    /// # Panics
    /// If `n` exceeds `room()`.
    fn filled(&mut self, n: usize);

    /// Frees buffers of any pools, together where that is cheaper than one by one.
    #[inline]
    fn free_all(bufs: impl Iterator<Item = Self>) {
        bufs.for_each(drop);
    }
}

/// Where buffers come from. A pool is bounded; running dry is normal and answered by `None`.
pub trait Pool {
    /// The buffers of this pool.
    type Buf: Buf;

    /// An empty buffer of one segment with the pool's default headroom.
    fn alloc(&self) -> Option<Self::Buf>;

    /// `n` buffers handed to `put`, or none at all and false.
    fn alloc_bulk(&self, n: usize, put: impl FnMut(Self::Buf)) -> bool;

    /// A buffer that shares the `len` bytes of `of` from `offset`. Costs a header from this pool and pins the
    /// shared segments. `None` if the pool is dry.
    ///
    /// # Panics
    /// If the range is not inside `of`.
    fn slice(&self, of: &Self::Buf, offset: usize, len: usize) -> Option<Self::Buf>;

    /// Bytes that a fresh buffer can receive (its tailroom).
    fn buf_room(&self) -> usize;

    /// Buffers that could be allocated now (a momentary figure).
    fn available(&self) -> usize;

    /// Buffers the pool was made with.
    fn capacity(&self) -> usize;
}

/// Takes the frames a transport wants to send. Bounded: a full one gives the frame back.
pub trait Egress<B> {
    /// Takes `frame`, or gives it back when full.
    fn push(&mut self, frame: B) -> Result<(), B>;
    /// Frames it would still take.
    fn room(&self) -> usize;
}

/// An egress for transports that make no frames of their own (verbs, loopback).
#[derive(Debug, Default, Clone, Copy)]
pub struct NoEgress;

impl<B> Egress<B> for NoEgress {
    fn push(&mut self, frame: B) -> Result<(), B> {
        Err(frame)
    }
    fn room(&self) -> usize {
        0
    }
}

/// Bytes that are copied with one call. From 4 KiB on the C library's `memcpy` leaves a copy to one string instruction (as of
/// glibc 2.36, where vectors have 32 bytes). That takes half as long again, and on some CPUs ten times as long where
/// the target lies a few bytes behind the source within a page.
pub(crate) const COPY_STRIDE: usize = 2048;

/// Copies `from` to `to`, which is as long: `copy_from_slice` that is fast for thousands of bytes, too.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy(to: &mut [u8], from: &[u8]) {
    if from.len() <= COPY_STRIDE {
        return to.copy_from_slice(from);
    }
    assert_eq!(to.len(), from.len(), "bytes copied and room for them");
    for (to, from) in to.chunks_mut(COPY_STRIDE).zip(from.chunks(COPY_STRIDE)) {
        to.copy_from_slice(from);
    }
}

/// Copies the contents of `buf` from `offset` into `out`; returns the bytes copied, fewer than `out.len()` if the
/// contents end before.
pub fn copy_out<B: Buf>(buf: &B, mut offset: usize, out: &mut [u8]) -> usize {
    let mut done = 0;
    for segment in buf.segments() {
        if offset >= segment.len() {
            offset -= segment.len();
            continue;
        }
        let n = (segment.len() - offset).min(out.len() - done);
        copy(&mut out[done..done + n], &segment[offset..offset + n]);
        done += n;
        offset = 0;
        if done == out.len() {
            break;
        }
    }
    done
}

/// Appends the bytes of `parts` to an **empty** buffer by way of its spare areas; false, with nothing filled, if
/// they do not fit.
pub fn fill<'p, B: Buf>(buf: &mut B, len: usize, parts: impl Iterator<Item = &'p [u8]>) -> bool {
    if len > buf.room() {
        return false;
    }
    let mut left = len;
    {
        let mut areas = buf.spare();
        let mut area: &mut [u8] = &mut [];
        for mut part in parts {
            part = &part[..part.len().min(left)];
            while !part.is_empty() {
                if area.is_empty() {
                    area = areas.next().expect("room() counts what spare() gives");
                    continue;
                }
                let n = part.len().min(area.len());
                let (now, later) = area.split_at_mut(n);
                copy(now, &part[..n]);
                area = later;
                part = &part[n..];
                left -= n;
            }
        }
    }
    buf.filled(len - left);
    left == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_any_length_are_whole() {
        let from: Vec<u8> = (0..3 * COPY_STRIDE + 9).map(|i| (i % 251) as u8).collect();
        for len in [0, 1, COPY_STRIDE - 1, COPY_STRIDE, COPY_STRIDE + 1, 2 * COPY_STRIDE, from.len() - 1] {
            let mut to = vec![0xEE; len + 1];
            copy(&mut to[..len], &from[..len]);
            assert_eq!(&to[..len], &from[..len]);
            assert_eq!(to[len], 0xEE);
        }
    }

    #[test]
    #[should_panic(expected = "bytes copied")]
    fn a_copy_is_as_long_as_what_is_copied() {
        copy(&mut [0; COPY_STRIDE + 8], &[0; COPY_STRIDE + 7]);
    }
}
