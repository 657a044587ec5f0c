//! Buffers as cheap as mbufs: boxes of a fixed size from a free list of the thread, as a mempool's per-core cache.

use rdma_engine::buf::{Buf, Pool};
use std::cell::RefCell;
use std::iter;

/// Bytes of a buffer, headroom included.
const SIZE: usize = 4608;
const HEADROOM: usize = 128;

/// Bytes of a large one.
pub(crate) const LARGE: usize = HEADROOM + (1 << 20);

thread_local! {
    static FREE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    static LARGE_FREE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// The thread's free list.
#[derive(Clone, Debug)]
pub(crate) struct SlabPool;

impl SlabPool {
    /// Fills the thread's free list.
    pub(crate) fn new(buffers: usize) -> Self {
        FREE.with_borrow_mut(|free| free.extend((0..buffers).map(|_| vec![0x5A; SIZE].into_boxed_slice())));
        SlabPool
    }

    /// A buffer for the longest message.
    pub(crate) fn large(&self) -> SlabBuf {
        let slab = LARGE_FREE.with_borrow_mut(Vec::pop);
        let slab = slab.unwrap_or_else(|| vec![0x5A; LARGE].into_boxed_slice());
        SlabBuf { slab: Some(slab), start: HEADROOM, end: HEADROOM }
    }
}

impl Pool for SlabPool {
    type Buf = SlabBuf;

    #[inline]
    fn alloc(&self) -> Option<SlabBuf> {
        let slab = FREE.with_borrow_mut(Vec::pop)?;
        Some(SlabBuf { slab: Some(slab), start: HEADROOM, end: HEADROOM })
    }

    fn alloc_bulk(&self, n: usize, mut put: impl FnMut(SlabBuf)) -> bool {
        let enough = self.available() >= n;
        if enough {
            (0..n).filter_map(|_| self.alloc()).for_each(&mut put);
        }
        enough
    }

    fn slice(&self, _of: &SlabBuf, _offset: usize, _len: usize) -> Option<SlabBuf> {
        None
    }

    fn buf_room(&self) -> usize {
        SIZE - HEADROOM
    }

    fn available(&self) -> usize {
        FREE.with_borrow(Vec::len)
    }

    fn capacity(&self) -> usize {
        self.available()
    }
}

/// One slab, never shared, never chained.
#[derive(Debug)]
pub(crate) struct SlabBuf {
    slab: Option<Box<[u8]>>,
    start: usize,
    end: usize,
}

impl SlabBuf {
    #[inline]
    fn size(&self) -> usize {
        self.slab.as_ref().map_or(0, |s| s.len())
    }

    #[inline]
    fn bytes(&mut self, from: usize, to: usize) -> &mut [u8] {
        let slab = self.slab.as_mut().expect("present until dropped");
        &mut slab[from..to]
    }
}

impl Drop for SlabBuf {
    #[inline]
    fn drop(&mut self) {
        if let Some(slab) = self.slab.take() {
            let list = if slab.len() == SIZE { &FREE } else { &LARGE_FREE };
            list.with_borrow_mut(|free| free.push(slab));
        }
    }
}

impl Buf for SlabBuf {
    type Segments<'a> = iter::Once<&'a [u8]>;
    type Spare<'a> = iter::Once<&'a mut [u8]>;

    #[inline]
    fn len(&self) -> usize {
        self.end - self.start
    }

    #[inline]
    fn segment_count(&self) -> usize {
        1
    }

    #[inline]
    fn segments(&self) -> Self::Segments<'_> {
        iter::once(self.first())
    }

    #[inline]
    fn first(&self) -> &[u8] {
        let slab = self.slab.as_ref().expect("present until dropped");
        &slab[self.start..self.end]
    }

    #[inline]
    fn headroom(&self) -> usize {
        self.start
    }

    #[inline]
    fn tailroom(&self) -> usize {
        self.size() - self.end
    }

    #[inline]
    fn is_unique(&self) -> bool {
        true
    }

    fn try_unique(&mut self) -> Option<&mut [u8]> {
        let (start, end) = (self.start, self.end);
        Some(self.bytes(start, end))
    }

    fn prepend(&mut self, n: usize) -> Option<&mut [u8]> {
        self.start = self.start.checked_sub(n)?;
        let start = self.start;
        Some(self.bytes(start, start + n))
    }

    #[inline]
    fn append(&mut self, n: usize) -> Option<&mut [u8]> {
        if n > self.tailroom() {
            return None;
        }
        let end = self.end;
        self.end += n;
        Some(self.bytes(end, end + n))
    }

    #[inline]
    fn adj(&mut self, n: usize) {
        assert!(n <= self.len());
        self.start += n;
    }

    #[inline]
    fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start + len);
    }

    fn chain(&mut self, tail: Self) -> Result<(), Self> {
        Err(tail)
    }

    fn reserve(&mut self, n: usize) -> bool {
        let fits = self.is_empty() && n <= self.size();
        if fits {
            self.start = self.start.max(n);
            self.end = self.start;
        }
        fits
    }

    #[inline]
    fn spare(&mut self) -> Self::Spare<'_> {
        let (end, size) = (self.end, self.size());
        iter::once(self.bytes(end, size))
    }

    #[inline]
    fn room(&self) -> usize {
        self.tailroom()
    }

    #[inline]
    fn filled(&mut self, n: usize) {
        assert!(self.is_empty() && n <= self.room());
        self.end += n;
    }
}
