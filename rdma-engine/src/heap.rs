//! The heap twin of the mbuf: the same contract on plain memory, without a line of `unsafe`.
//!
//! It mirrors the costs that matter to correctness: a pool is bounded, a slice takes a header from a pool and pins the
//! bytes it shares, and every buffer goes home when dropped. New buffers are filled with [`POISON`], used ones hold what was left
//! in them.

use crate::buf::{Buf, Pool};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What buffers contain that were never used.
pub const POISON: u8 = 0xA5;
/// Headroom of a fresh buffer, as DPDK's default.
pub const HEADROOM: usize = 128;
/// Most segments of one chain.
pub const MAX_SEGMENTS: usize = 256;

/// A bounded pool of heap buffers; clones are handles to the same pool.
#[derive(Clone, Debug)]
pub struct HeapPool {
    shared: Arc<Account>,
    room: usize,
}

#[derive(Debug)]
struct Account {
    capacity: usize,
    in_use: AtomicUsize,
    /// Memory of buffers that came home.
    spare: Mutex<Vec<Box<[u8]>>>,
}

/// One buffer header on loan; dropping it returns it.
#[derive(Debug)]
struct Loan(Arc<Account>);

impl Drop for Loan {
    fn drop(&mut self) {
        self.0.in_use.fetch_sub(1, Ordering::AcqRel);
    }
}

impl HeapPool {
    /// A pool of `capacity` buffers with `room` bytes each behind the headroom.
    pub fn new(capacity: usize, room: usize) -> Self {
        let shared = Arc::new(Account { capacity, in_use: AtomicUsize::new(0), spare: Mutex::default() });
        HeapPool { shared, room }
    }

    /// Buffers on loan.
    pub fn in_use(&self) -> usize {
        self.shared.in_use.load(Ordering::Acquire)
    }

    /// True if every buffer is home.
    pub fn is_full(&self) -> bool {
        self.in_use() == 0
    }

    fn borrow(&self, n: usize) -> bool {
        let fits = |used: usize| (used + n <= self.shared.capacity).then_some(used + n);
        self.shared.in_use.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }

    fn fresh(&self) -> HeapBuf {
        let spare = self.shared.spare.lock().expect("nobody panics with it").pop();
        let bytes = spare.unwrap_or_else(|| vec![POISON; HEADROOM + self.room].into());
        let store = Arc::new(Store { bytes, loan: self.loan() });
        HeapBuf { segments: vec![Segment { store, start: HEADROOM, end: HEADROOM, _header: None }] }
    }

    fn loan(&self) -> Loan {
        Loan(Arc::clone(&self.shared))
    }
}

impl Pool for HeapPool {
    type Buf = HeapBuf;

    fn alloc(&self) -> Option<HeapBuf> {
        self.borrow(1).then(|| self.fresh())
    }

    fn alloc_bulk(&self, n: usize, mut put: impl FnMut(HeapBuf)) -> bool {
        let granted = self.borrow(n);
        if granted {
            (0..n).for_each(|_| put(self.fresh()));
        }
        granted
    }

    fn slice(&self, of: &HeapBuf, mut offset: usize, mut len: usize) -> Option<HeapBuf> {
        assert!(offset + len <= of.len(), "slice {offset}+{len} of a buffer of {} bytes", of.len());
        let mut segments = Vec::new();
        for s in &of.segments {
            let have = s.end - s.start;
            if offset >= have && !(len == 0 && segments.is_empty() && offset == have) {
                offset -= have;
                continue;
            }
            let n = (have - offset).min(len);
            if !self.borrow(1) {
                return None;
            }
            let start = s.start + offset;
            segments.push(Segment {
                store: Arc::clone(&s.store),
                start,
                end: start + n,
                _header: Some(self.loan()),
            });
            len -= n;
            offset = 0;
            if len == 0 {
                break;
            }
        }
        Some(HeapBuf { segments })
    }

    fn buf_room(&self) -> usize {
        self.room
    }

    fn available(&self) -> usize {
        self.shared.capacity - self.in_use()
    }

    fn capacity(&self) -> usize {
        self.shared.capacity
    }
}

#[derive(Debug)]
struct Store {
    bytes: Box<[u8]>,
    loan: Loan,
}

impl Drop for Store {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.loan.0.spare.lock().expect("nobody panics with it").push(bytes);
    }
}

#[derive(Debug)]
struct Segment {
    store: Arc<Store>,
    start: usize,
    end: usize,
    /// Present for a slice: the header it took from a pool.
    _header: Option<Loan>,
}

impl Segment {
    fn bytes(&self) -> &[u8] {
        &self.store.bytes[self.start..self.end]
    }

    fn tailroom(&self) -> usize {
        self.store.bytes.len() - self.end
    }

    /// A slice never writes, not even as the last owner: its segment is indirect.
    fn is_unique(&self) -> bool {
        self._header.is_none() && Arc::strong_count(&self.store) == 1
    }

    fn store_mut(&mut self) -> Option<&mut [u8]> {
        if self._header.is_some() {
            return None;
        }
        Arc::get_mut(&mut self.store).map(|s| &mut s.bytes[..])
    }
}

/// A chain of heap segments.
#[derive(Debug)]
pub struct HeapBuf {
    segments: Vec<Segment>,
}

impl HeapBuf {
    fn last(&self) -> &Segment {
        self.segments.last().expect("a chain has a segment")
    }

    /// The contents as one vector, for tests.
    pub fn to_vec(&self) -> Vec<u8> {
        self.segments().flatten().copied().collect()
    }
}

/// Iterator over [`HeapBuf`] contents.
#[derive(Debug)]
pub struct Segments<'a>(std::slice::Iter<'a, Segment>);

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];
    fn next(&mut self) -> Option<&'a [u8]> {
        self.0.next().map(Segment::bytes)
    }
}

/// Iterator over [`HeapBuf`] spare areas.
#[derive(Debug)]
pub struct Spare<'a>(std::slice::IterMut<'a, Segment>);

impl<'a> Iterator for Spare<'a> {
    type Item = &'a mut [u8];
    fn next(&mut self) -> Option<&'a mut [u8]> {
        loop {
            let segment = self.0.next()?;
            let end = segment.end;
            if let Some(bytes) = segment.store_mut() {
                return Some(&mut bytes[end..]);
            }
        }
    }
}

impl Buf for HeapBuf {
    type Segments<'a> = Segments<'a>;
    type Spare<'a> = Spare<'a>;

    fn len(&self) -> usize {
        self.segments.iter().map(|s| s.end - s.start).sum()
    }

    fn segment_count(&self) -> usize {
        self.segments.len()
    }

    fn segments(&self) -> Segments<'_> {
        Segments(self.segments.iter())
    }

    fn first(&self) -> &[u8] {
        self.segments[0].bytes()
    }

    fn headroom(&self) -> usize {
        self.segments[0].start
    }

    fn tailroom(&self) -> usize {
        self.last().tailroom()
    }

    fn is_unique(&self) -> bool {
        self.segments.iter().all(Segment::is_unique)
    }

    fn try_unique(&mut self) -> Option<&mut [u8]> {
        let s = &mut self.segments[0];
        let (start, end) = (s.start, s.end);
        s.store_mut().map(|b| &mut b[start..end])
    }

    fn prepend(&mut self, n: usize) -> Option<&mut [u8]> {
        let s = &mut self.segments[0];
        let start = s.start.checked_sub(n)?;
        s.store_mut()?;
        s.start = start;
        s.store_mut().map(|b| &mut b[start..start + n])
    }

    fn append(&mut self, n: usize) -> Option<&mut [u8]> {
        let s = self.segments.last_mut()?;
        if n > s.tailroom() {
            return None;
        }
        s.store_mut()?;
        let end = s.end;
        s.end += n;
        s.store_mut().map(|b| &mut b[end..end + n])
    }

    fn adj(&mut self, mut n: usize) {
        assert!(n <= self.len(), "cannot cut {n} bytes off a buffer of {}", self.len());
        for s in &mut self.segments {
            let cut = n.min(s.end - s.start);
            s.start += cut;
            n -= cut;
        }
        while self.segments.len() > 1 && self.segments[0].bytes().is_empty() {
            self.segments.remove(0);
        }
    }

    fn truncate(&mut self, mut len: usize) {
        if len >= self.len() {
            return;
        }
        for s in &mut self.segments {
            s.end = s.start + (s.end - s.start).min(len);
            len -= s.end - s.start;
        }
        while self.segments.len() > 1 && self.last().bytes().is_empty() {
            self.segments.pop();
        }
    }

    fn chain(&mut self, tail: Self) -> Result<(), Self> {
        if self.segments.len() + tail.segments.len() > MAX_SEGMENTS {
            return Err(tail);
        }
        self.segments.extend(tail.segments);
        Ok(())
    }

    fn reserve(&mut self, n: usize) -> bool {
        if !self.is_empty() {
            return false;
        }
        let s = &mut self.segments[0];
        if n > s.store.bytes.len() || s.store_mut().is_none() {
            return false;
        }
        s.start = s.start.max(n);
        s.end = s.start;
        true
    }

    fn spare(&mut self) -> Spare<'_> {
        Spare(self.segments.iter_mut())
    }

    fn room(&self) -> usize {
        self.segments.iter().filter(|s| s.is_unique()).map(Segment::tailroom).sum()
    }

    fn filled(&mut self, mut n: usize) {
        assert!(self.is_empty() && n <= self.room(), "{n} bytes cannot have been received here");
        for s in &mut self.segments {
            if s.is_unique() {
                let part = n.min(s.tailroom());
                s.end += part;
                n -= part;
            }
        }
    }
}

#[cfg(test)]
mod tests;
