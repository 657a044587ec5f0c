//! Packet buffers.

#![allow(unsafe_code)] // The owner of raw mbufs: reads and writes headers and data through DPDK's pointers.

mod cut;
mod offload;
mod segments;
mod share;

use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::Ordering;

use dpdk_sys::{self as sys, MbufHeader};

pub use offload::{Checksum, TxL3, TxL4, TxOffload};
pub use segments::{Segments, SegmentsMut, SpareSegments};
pub use share::Chain;

/// Bytes in front of the data of a freshly allocated mbuf (`RTE_PKTMBUF_HEADROOM`).
pub const HEADROOM: usize = sys::DPDK_SYS_HEADROOM as usize;

/// `data_room` that holds a standard Ethernet frame: headroom + 2048 bytes.
pub const DEFAULT_DATA_ROOM: u16 = 2048 + HEADROOM as u16;

/// Most segments in one chain (`RTE_MBUF_MAX_NB_SEGS`).
pub const MAX_SEGMENTS: usize = u16::MAX as usize;

/// An owned chain of one or more buffer segments; dropping it returns every segment to its pool.
///
/// `Send`, because an mbuf may travel between cores, but not `Sync`: sharing bumps a counter that DPDK only
/// updates atomically when there is more than one owner.
///
/// A segment's bytes may be seen by other mbufs ("shared": an indirect mbuf points at them). Reading is
/// always allowed; everything that writes asks for uniqueness first and returns `None` without it.
#[repr(transparent)]
pub struct Mbuf {
    head: NonNull<MbufHeader>,
    _not_sync: PhantomData<Cell<()>>,
}

// SAFETY: the handle owns its chain's headers, and the one field others may touch (refcnt) is atomic. Freeing
// on another thread than the allocating one is what mempools are made for.
unsafe impl Send for Mbuf {}

const _: () = assert!(size_of::<Option<Mbuf>>() == size_of::<*mut sys::rte_mbuf>());

impl Mbuf {
    /// Takes over a raw mbuf.
    ///
    /// # Safety
    /// `raw` is a valid chain that nobody else will free or use through this pointer.
    #[inline]
    pub unsafe fn from_raw(raw: NonNull<sys::rte_mbuf>) -> Self {
        Mbuf { head: raw.cast(), _not_sync: PhantomData }
    }

    /// Gives the raw mbuf away; the caller now has to free it (or bring it back by [`Mbuf::from_raw`]).
    #[inline]
    pub fn into_raw(self) -> NonNull<sys::rte_mbuf> {
        ManuallyDrop::new(self).head.cast()
    }

    /// The raw mbuf, still owned by `self`.
    #[inline]
    pub fn as_raw(&self) -> NonNull<sys::rte_mbuf> {
        self.head.cast()
    }

    #[inline]
    pub(crate) fn header(&self) -> &MbufHeader {
        // SAFETY: `head` is a valid header owned by `self`; the only field written by others is atomic.
        unsafe { self.head.as_ref() }
    }

    /// Pointer for writes by field; a `&mut MbufHeader` would claim the reference count, too.
    #[inline]
    pub(crate) fn header_ptr(&mut self) -> *mut MbufHeader {
        self.head.as_ptr()
    }

    /// The last segment's header.
    #[inline]
    pub(crate) fn last(&self) -> NonNull<MbufHeader> {
        let mut seg = self.head;
        // SAFETY: the segments of an owned chain are valid and end in a null `next`.
        while let Some(next) = NonNull::new(unsafe { (*seg.as_ptr()).next }) {
            seg = next;
        }
        seg
    }

    /// Bytes of the first segment.
    #[inline]
    pub fn data(&self) -> &[u8] {
        segment_bytes(self.header())
    }

    /// Bytes of every segment, in order.
    #[inline]
    pub fn segments(&self) -> Segments<'_> {
        Segments::new(self)
    }

    /// Number of segments, at least 1.
    #[inline]
    pub fn segment_count(&self) -> usize {
        usize::from(self.header().nb_segs)
    }

    /// Data bytes of the whole chain.
    #[inline]
    pub fn len(&self) -> usize {
        self.header().pkt_len as usize
    }

    /// Whether the chain has no data byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in front of the first segment's data. [`Mbuf::prepend`] can claim them if the segment is unique.
    #[inline]
    pub fn headroom(&self) -> usize {
        usize::from(self.header().data_off)
    }

    /// Bytes behind the last segment's data. [`Mbuf::append`] can claim them if the segment is unique.
    #[inline]
    pub fn tailroom(&self) -> usize {
        // SAFETY: `last` returns a valid segment of this chain.
        tailroom_of(unsafe { self.last().as_ref() })
    }

    /// Size of the first segment's buffer, headroom included.
    #[inline]
    pub fn data_room(&self) -> usize {
        usize::from(self.header().buf_len)
    }

    /// Whether the first segment's bytes belong to another mbuf (or to external memory).
    #[inline]
    pub fn is_indirect(&self) -> bool {
        !is_direct(self.header())
    }

    /// Whether every segment is direct and has no other owner.
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.headers().all(segment_unique)
    }

    #[inline]
    pub(crate) fn headers(&self) -> impl Iterator<Item = &MbufHeader> {
        let mut at: *const MbufHeader = self.head.as_ptr();
        core::iter::from_fn(move || {
            // SAFETY: `at` is null or a segment of the chain, which `self` keeps alive.
            let seg = unsafe { at.as_ref() }?;
            at = seg.next;
            Some(seg)
        })
    }

    /// The first segment's bytes for writing, if nobody else can see them.
    #[inline]
    pub fn try_unique(&mut self) -> Option<&mut [u8]> {
        if !segment_unique(self.header()) {
            return None;
        }
        // SAFETY: the segment is direct and has one owner, so `self` is the only way to these bytes.
        Some(unsafe { segment_bytes_mut(self.header()) })
    }

    /// Every segment's bytes for writing, if nobody else can see any of them.
    #[inline]
    pub fn segments_mut(&mut self) -> Option<SegmentsMut<'_>> {
        self.is_unique().then(|| SegmentsMut::new(self))
    }

    /// Grows the data by `n` bytes at the front and returns them, contents unspecified. `None` if the first
    /// segment is shared or its headroom too small.
    #[inline]
    pub fn prepend(&mut self, n: usize) -> Option<&mut [u8]> {
        if n > self.headroom() || !segment_unique(self.header()) {
            return None;
        }
        let n16 = n as u16;
        let h = self.header_ptr();
        // SAFETY: `h` is owned; `n` bytes of headroom exist in front of the data of this unique segment.
        unsafe {
            let data_len = (*h).data_len.checked_add(n16)?;
            let pkt_len = (*h).pkt_len.checked_add(u32::from(n16))?;
            (*h).data_off -= n16;
            (*h).data_len = data_len;
            (*h).pkt_len = pkt_len;
            Some(slice::from_raw_parts_mut((*h).buf_addr.add((*h).data_off.into()), n))
        }
    }

    /// Grows the data by `n` bytes at the end of the last segment and returns them, contents unspecified.
    /// `None` if that segment is shared or its tailroom too small.
    #[inline]
    pub fn append(&mut self, n: usize) -> Option<&mut [u8]> {
        self.append_at(self.last(), n)
    }

    /// As [`Mbuf::append`] where `last` is known to be this chain's last segment.
    #[inline]
    fn append_at(&mut self, last: NonNull<MbufHeader>, n: usize) -> Option<&mut [u8]> {
        let last = last.as_ptr();
        // SAFETY: `last` is a valid segment of this chain.
        if unsafe { n > tailroom_of(&*last) || !segment_unique(&*last) } {
            return None;
        }
        let h = self.header_ptr();
        // SAFETY: `n` bytes of tailroom exist behind the data of this unique segment, so they fit in u16.
        unsafe {
            let pkt_len = (*h).pkt_len.checked_add(n as u32)?;
            let start = (*last).buf_addr.add(usize::from((*last).data_off) + usize::from((*last).data_len));
            (*last).data_len += n as u16;
            (*h).pkt_len = pkt_len;
            Some(slice::from_raw_parts_mut(start, n))
        }
    }

    /// Removes `n` bytes from the front of the first segment; false (and nothing done) if it has fewer.
    #[inline]
    pub fn adj(&mut self, n: usize) -> bool {
        if n > usize::from(self.header().data_len) {
            return false;
        }
        let h = self.header_ptr();
        // SAFETY: `h` is owned and has at least `n` data bytes.
        unsafe {
            (*h).data_len -= n as u16;
            (*h).data_off += n as u16;
            (*h).pkt_len -= n as u32;
        }
        true
    }

    /// Removes `n` bytes from the end of the last segment; false (and nothing done) if it has fewer.
    #[inline]
    pub fn trim(&mut self, n: usize) -> bool {
        let last = self.last().as_ptr();
        let h = self.header_ptr();
        // SAFETY: both headers belong to this chain.
        unsafe {
            if n > usize::from((*last).data_len) {
                return false;
            }
            (*last).data_len -= n as u16;
            (*h).pkt_len -= n as u32;
        }
        true
    }

    /// Declares `len` bytes of the chain to be data, filling its segments in order: what hardware has written
    /// into the buffers. False (and nothing done) if the chain is shared or too small.
    ///
    /// Bytes not written since the buffer was allocated hold whatever its last user left there.
    pub fn set_len(&mut self, len: usize) -> bool {
        let room = |s: &MbufHeader| usize::from(s.buf_len.saturating_sub(s.data_off));
        if len > self.headers().map(room).sum() || u32::try_from(len).is_err() || !self.is_unique() {
            return false;
        }
        let mut left = len;
        let mut seg = self.header_ptr();
        // SAFETY: walks the owned chain; each segment gets at most the room behind its `data_off`.
        unsafe {
            (*seg).pkt_len = len as u32;
            while !seg.is_null() {
                let take = left.min(room(&*seg));
                (*seg).data_len = take as u16;
                left -= take;
                seg = (*seg).next;
            }
        }
        true
    }

    /// Empties a single unique segment and puts its data start `headroom` bytes into the buffer. False (and
    /// nothing done) on chains, shared segments and a headroom beyond the buffer.
    #[inline]
    pub fn reset(&mut self, headroom: usize) -> bool {
        if self.segment_count() != 1 || headroom > self.data_room() || !segment_unique(self.header()) {
            return false;
        }
        let h = self.header_ptr();
        // SAFETY: `h` is owned and `headroom` lies inside its buffer.
        unsafe {
            (*h).data_off = headroom as u16;
            (*h).data_len = 0;
            (*h).pkt_len = 0;
        }
        true
    }

    /// Address and length of the room behind the last segment's data, for hardware to write into. Whoever
    /// writes there must know the segment to be unique.
    #[inline]
    pub fn spare(&self) -> (NonNull<u8>, usize) {
        // SAFETY: the last segment is valid; its data ends inside its buffer, which is not null.
        unsafe {
            let last = self.last().as_ref();
            let end = last.buf_addr.add(usize::from(last.data_off) + usize::from(last.data_len));
            (NonNull::new_unchecked(end), tailroom_of(last))
        }
    }

    /// The room behind the last segment's data; `None` if that segment is shared.
    #[inline]
    pub fn spare_mut(&mut self) -> Option<&mut [MaybeUninit<u8>]> {
        // SAFETY: the last segment is valid.
        if !segment_unique(unsafe { self.last().as_ref() }) {
            return None;
        }
        let (start, len) = self.spare();
        // SAFETY: the room lies in the buffer of a unique segment borrowed mutably through `self`.
        Some(unsafe { slice::from_raw_parts_mut(start.as_ptr().cast(), len) })
    }

    /// Private bytes of the first segment (`priv_size` of its pool); empty on an indirect mbuf.
    pub fn private(&self) -> &[u8] {
        let len = if self.is_indirect() { 0 } else { usize::from(self.header().priv_size) };
        // SAFETY: a direct mbuf has `priv_size` bytes right behind its header.
        unsafe { slice::from_raw_parts(self.head.as_ptr().add(1).cast(), len) }
    }

    /// Private bytes of the first segment for writing; empty on an indirect mbuf. They belong to the header,
    /// so sharing the data does not matter.
    pub fn private_mut(&mut self) -> &mut [u8] {
        let len = if self.is_indirect() { 0 } else { usize::from(self.header().priv_size) };
        // SAFETY: as in `private`; nobody but the owner looks at the private area.
        unsafe { slice::from_raw_parts_mut(self.head.as_ptr().add(1).cast(), len) }
    }
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the chain is owned and not used afterwards.
        unsafe { sys::dpdk_sys_mbuf_free(self.head.as_ptr().cast()) }
    }
}

impl core::fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Mbuf")
            .field("len", &self.len())
            .field("segments", &self.segment_count())
            .field("headroom", &self.headroom())
            .field("indirect", &self.is_indirect())
            .finish()
    }
}

/// Whether the segment's bytes are in its own buffer.
#[inline]
pub(crate) fn is_direct(seg: &MbufHeader) -> bool {
    seg.ol_flags & (sys::DPDK_SYS_F_INDIRECT | sys::DPDK_SYS_F_EXTERNAL) == 0
}

/// Whether the segment is direct and has one owner. Acquire pairs with the release by which the last other
/// owner let go, so its reads are over before we write.
#[inline]
pub(crate) fn segment_unique(seg: &MbufHeader) -> bool {
    is_direct(seg) && seg.refcnt.load(Ordering::Acquire) == 1
}

#[inline]
pub(crate) fn tailroom_of(seg: &MbufHeader) -> usize {
    // Saturating: an indirect segment of a foreign driver may claim more than its buffer.
    usize::from(seg.buf_len).saturating_sub(usize::from(seg.data_off) + usize::from(seg.data_len))
}

#[inline]
pub(crate) fn segment_bytes(seg: &MbufHeader) -> &[u8] {
    // SAFETY: `data_len` bytes from `data_off` lie in the segment's buffer, which lives as long as the segment.
    unsafe { slice::from_raw_parts(seg.buf_addr.add(seg.data_off.into()), seg.data_len.into()) }
}

/// # Safety
/// The segment is unique and borrowed mutably for `'a`.
#[inline]
#[allow(clippy::mut_from_ref)] // The bytes are not part of the header that `seg` borrows.
pub(crate) unsafe fn segment_bytes_mut<'a>(seg: &MbufHeader) -> &'a mut [u8] {
    // SAFETY: as in `segment_bytes`, and exclusive by the caller's word.
    unsafe { slice::from_raw_parts_mut(seg.buf_addr.add(seg.data_off.into()), seg.data_len.into()) }
}
