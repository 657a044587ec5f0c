//! Chaining, sharing and copying.

#![allow(unsafe_code)] // Links and attaches raw segments.

use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use dpdk_sys::{self as sys, MbufHeader};

use super::{MAX_SEGMENTS, Mbuf, segment_bytes, tailroom_of};
use crate::mempool::Mempool;

/// Owners one buffer may have through this crate. DPDK's counter has 16 bits and does not check; the distance
/// to its end is more than the cores that could add an owner at the same moment.
const MAX_OWNERS: u16 = u16::MAX - 1024;

impl Mbuf {
    /// Links `tail` behind this chain, without copying. Returns `tail` if the chain would exceed
    /// [`MAX_SEGMENTS`] segments or 4 GiB.
    ///
    /// Walks this chain to its end; to build long chains use [`Chain`].
    #[inline]
    pub fn chain(&mut self, tail: Mbuf) -> Result<(), Mbuf> {
        let last = self.last();
        self.chain_at(last, tail)
    }

    /// As [`Mbuf::chain`] where `last` is known.
    #[inline]
    fn chain_at(&mut self, last: NonNull<MbufHeader>, tail: Mbuf) -> Result<(), Mbuf> {
        let segments = self.segment_count() + tail.segment_count();
        let Some(len) = self.header().pkt_len.checked_add(tail.header().pkt_len) else { return Err(tail) };
        if segments > MAX_SEGMENTS {
            return Err(tail);
        }
        let tail = tail.into_raw().cast::<MbufHeader>().as_ptr();
        let h = self.header_ptr();
        // SAFETY: both chains are owned; `last` is the end of this one and `tail` is now part of it.
        unsafe {
            (*last.as_ptr()).next = tail;
            (*h).nb_segs = segments as u16;
            (*h).pkt_len = len;
            (*tail).pkt_len = (*tail).data_len.into();
            (*tail).nb_segs = 1;
        }
        Ok(())
    }

    /// Takes the first segment off the chain: it and, if there were more, the rest.
    pub fn split_first(mut self) -> (Mbuf, Option<Mbuf>) {
        let h = self.header_ptr();
        // SAFETY: `h` is owned; its successors form a chain of their own once it is unlinked.
        let rest = unsafe {
            let rest = NonNull::new((*h).next);
            if let Some(rest) = rest {
                (*rest.as_ptr()).nb_segs = (*h).nb_segs - 1;
                (*rest.as_ptr()).pkt_len = (*h).pkt_len - u32::from((*h).data_len);
                (*h).next = core::ptr::null_mut();
                (*h).nb_segs = 1;
                (*h).pkt_len = (*h).data_len.into();
            }
            rest.map(|r| Mbuf::from_raw(r.cast()))
        };
        (self, rest)
    }

    /// A second mbuf over `len` bytes of this one from `offset`: indirect segments from `pool` that share the
    /// bytes, one for each segment the range touches. The buffers live until the last of them is dropped.
    ///
    /// `None` if the range is empty or exceeds the data, if `pool` is empty, or if a buffer has 64 k owners.
    /// `pool` may have buffers of no room at all; it gives only headers.
    pub fn slice(&self, pool: &Mempool, offset: usize, len: usize) -> Option<Mbuf> {
        if len == 0 || offset.checked_add(len)? > self.len() {
            return None;
        }
        let (mut skip, mut left) = (offset, len);
        let mut slices: Option<Chain> = None;
        for seg in self.headers() {
            let seg_len = usize::from(seg.data_len);
            if skip >= seg_len {
                skip -= seg_len;
                continue;
            }
            let take = left.min(seg_len - skip);
            let one = share_segment(pool, seg, skip as u16, take as u16)?;
            match &mut slices {
                None => slices = Some(Chain::new(one)),
                Some(chain) => chain.push(one).ok()?,
            }
            (skip, left) = (0, left - take);
            if left == 0 {
                break;
            }
        }
        slices.map(Chain::finish)
    }

    /// A second mbuf over all bytes of this one; see [`Mbuf::slice`].
    pub fn share(&self, pool: &Mempool) -> Option<Mbuf> {
        self.slice(pool, 0, self.len())
    }

    /// A copy of the data in buffers of its own from `pool`, as many segments as its room needs, with
    /// `HEADROOM` in front. `None` if the pool runs out or its buffers are no bigger than the headroom.
    pub fn clone_deep(&self, pool: &Mempool) -> Option<Mbuf> {
        let mut copy = pool.copy_parts(self.segments())?;
        copy.take_report(self.header());
        Some(copy)
    }

    /// Copies data from `offset` into `out`, across segments; returns the number of bytes copied, less than
    /// `out.len()` only at the end of the data.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) -> usize {
        let (mut skip, mut done) = (offset, 0);
        for seg in self.segments() {
            if skip >= seg.len() {
                skip -= seg.len();
                continue;
            }
            let take = (seg.len() - skip).min(out.len() - done);
            out[done..done + take].copy_from_slice(&seg[skip..skip + take]);
            (skip, done) = (0, done + take);
            if done == out.len() {
                break;
            }
        }
        done
    }
}

/// An indirect mbuf over part of one segment.
#[inline]
fn share_segment(pool: &Mempool, seg: &MbufHeader, offset: u16, len: u16) -> Option<Mbuf> {
    if owner_count(seg) >= MAX_OWNERS {
        return None;
    }
    debug_assert!(usize::from(offset) + usize::from(len) <= segment_bytes(seg).len());
    let seg = core::ptr::from_ref(seg).cast_mut().cast();
    // SAFETY: the range lies inside the segment; attaching changes only its (atomic) owner count.
    let raw = unsafe { sys::dpdk_sys_mbuf_share(pool.raw(), seg, offset, len) };
    // SAFETY: a fresh mbuf that nobody else knows.
    NonNull::new(raw).map(|raw| unsafe { Mbuf::from_raw(raw) })
}

/// Owners of the buffer this segment's bytes are in.
fn owner_count(seg: &MbufHeader) -> u16 {
    if seg.ol_flags & sys::DPDK_SYS_F_EXTERNAL != 0 {
        // Counted elsewhere, by whoever made the external buffer.
        return 1;
    }
    if seg.ol_flags & sys::DPDK_SYS_F_INDIRECT == 0 {
        return seg.refcnt.load(Ordering::Relaxed);
    }
    // SAFETY: an indirect segment's buffer follows the header and private area of the direct mbuf it points at
    // (`rte_mbuf_from_indirect`), which it keeps alive.
    unsafe {
        let direct = seg.buf_addr.sub(size_of::<MbufHeader>() + usize::from(seg.priv_size));
        (*direct.cast::<MbufHeader>()).refcnt.load(Ordering::Relaxed)
    }
}

/// Builds a long chain without walking it for every segment.
pub struct Chain {
    head: Mbuf,
    last: NonNull<MbufHeader>,
}

// SAFETY: `last` points into the chain `head` owns.
unsafe impl Send for Chain {}

impl Chain {
    /// Starts with `head`.
    pub fn new(head: Mbuf) -> Self {
        let last = head.last();
        Chain { head, last }
    }

    /// Links `next` behind; returns it where [`Mbuf::chain`] would.
    pub fn push(&mut self, next: Mbuf) -> Result<(), Mbuf> {
        let end = next.last();
        self.head.chain_at(self.last, next)?;
        self.last = end;
        Ok(())
    }

    /// Room behind the data of the last segment.
    pub fn tailroom(&self) -> usize {
        // SAFETY: `last` is a segment of the chain.
        tailroom_of(unsafe { self.last.as_ref() })
    }

    /// As [`Mbuf::append`], without the walk.
    pub fn append(&mut self, n: usize) -> Option<&mut [u8]> {
        self.head.append_at(self.last, n)
    }

    /// Data bytes so far.
    pub fn len(&self) -> usize {
        self.head.len()
    }

    /// Whether there is no data byte yet.
    pub fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// Segments so far.
    pub fn segment_count(&self) -> usize {
        self.head.segment_count()
    }

    /// The chain.
    pub fn finish(self) -> Mbuf {
        self.head
    }
}
