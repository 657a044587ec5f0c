//! Buffers cut out of one arena, so that a device can be told of their memory. The semantics are those of the heap twin.
#![allow(unsafe_code)] // reason: slices of an arena's memory.
#![allow(dead_code)] // each test binary uses its part.

use rdma_engine::buf::{Buf, Pool};
use rdma_engine::mem::{Arena, Backing};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Headroom of a fresh buffer.
pub const HEADROOM: usize = 128;

#[derive(Debug)]
struct Store {
    arena: Arena,
    base: NonNull<u8>,
    stride: usize,
    free: Mutex<Vec<u32>>,
    /// Owners of each place's bytes.
    owners: Vec<AtomicU32>,
}

// SAFETY: bytes are reached by the buffers alone, which hold their places exclusively or read-only.
unsafe impl Send for Store {}
// SAFETY: as above.
unsafe impl Sync for Store {}

/// A bounded pool on one arena; clones are handles to the same pool.
#[derive(Clone, Debug)]
pub struct ArenaPool {
    store: Arc<Store>,
    room: usize,
}

/// Place `at` of a pool: one owner of its bytes.
#[derive(Debug)]
struct Hold {
    store: Arc<Store>,
    at: u32,
}

impl Hold {
    fn again(&self) -> Hold {
        self.store.owners[self.at as usize].fetch_add(1, Ordering::AcqRel);
        Hold { store: Arc::clone(&self.store), at: self.at }
    }

    fn alone(&self) -> bool {
        self.store.owners[self.at as usize].load(Ordering::Acquire) == 1
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.store.owners[self.at as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
            self.store.free.lock().unwrap().push(self.at);
        }
    }
}

impl ArenaPool {
    /// A pool of `capacity` buffers with `room` bytes each behind the headroom.
    pub fn new(capacity: usize, room: usize) -> Self {
        let stride = (HEADROOM + room).next_multiple_of(64);
        let arena = Arena::new(stride * capacity, Backing::Pages).unwrap();
        let base = std::ptr::with_exposed_provenance_mut(arena.window().addr() as usize);
        let store = Store {
            base: NonNull::new(base).unwrap(),
            arena,
            stride,
            free: Mutex::new((0..capacity as u32).rev().collect()),
            owners: (0..capacity).map(|_| AtomicU32::new(0)).collect(),
        };
        ArenaPool { store: Arc::new(store), room }
    }

    /// The memory to register.
    pub fn arena(&self) -> &Arena {
        &self.store.arena
    }

    /// Buffers on loan.
    pub fn in_use(&self) -> usize {
        self.capacity() - self.available()
    }

    /// True if every buffer is home.
    pub fn is_full(&self) -> bool {
        self.in_use() == 0
    }

    fn hold(&self) -> Option<Hold> {
        let at = self.store.free.lock().unwrap().pop()?;
        self.store.owners[at as usize].store(1, Ordering::Release);
        Some(Hold { store: Arc::clone(&self.store), at })
    }

    /// A buffer with these bytes.
    pub fn with(&self, bytes: &[u8]) -> ArenaBuf {
        let mut buf = self.alloc().expect("a buffer");
        buf.append(bytes.len()).expect("room").copy_from_slice(bytes);
        buf
    }

    /// A chain of buffers, one a part.
    pub fn chain(&self, parts: &[&[u8]]) -> ArenaBuf {
        let mut buf = self.with(parts[0]);
        for part in &parts[1..] {
            buf.chain(self.with(part)).unwrap();
        }
        buf
    }
}

impl Pool for ArenaPool {
    type Buf = ArenaBuf;

    fn alloc(&self) -> Option<ArenaBuf> {
        let hold = self.hold()?;
        Some(ArenaBuf { segments: vec![Segment { hold, start: HEADROOM, end: HEADROOM, header: None }] })
    }

    fn alloc_bulk(&self, n: usize, mut put: impl FnMut(ArenaBuf)) -> bool {
        let got: Vec<_> = (0..n).map_while(|_| self.alloc()).collect();
        let all = got.len() == n;
        if all {
            got.into_iter().for_each(&mut put);
        }
        all
    }

    fn slice(&self, of: &ArenaBuf, mut offset: usize, mut len: usize) -> Option<ArenaBuf> {
        assert!(offset + len <= of.len());
        let mut segments = Vec::new();
        for s in &of.segments {
            let have = s.end - s.start;
            if offset >= have && !(len == 0 && segments.is_empty() && offset == have) {
                offset -= have;
                continue;
            }
            let n = (have - offset).min(len);
            let start = s.start + offset;
            segments.push(Segment {
                hold: s.hold.again(),
                start,
                end: start + n,
                header: Some(self.hold()?),
            });
            len -= n;
            offset = 0;
            if len == 0 {
                break;
            }
        }
        Some(ArenaBuf { segments })
    }

    fn buf_room(&self) -> usize {
        self.room
    }

    fn available(&self) -> usize {
        self.store.free.lock().unwrap().len()
    }

    fn capacity(&self) -> usize {
        self.store.owners.len()
    }
}

/// One segment of a chain.
#[derive(Debug)]
pub struct Segment {
    hold: Hold,
    start: usize,
    end: usize,
    /// Present for a slice: the header it took.
    header: Option<Hold>,
}

impl Segment {
    fn size(&self) -> usize {
        self.hold.store.stride
    }

    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.size());
        // SAFETY: inside the arena, which the hold keeps alive.
        unsafe { self.hold.store.base.as_ptr().add(self.hold.at as usize * self.size() + offset) }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: initialised (zeroed) memory of this place; writers need to be its only owner.
        unsafe { std::slice::from_raw_parts(self.at(self.start), self.end - self.start) }
    }

    fn is_unique(&self) -> bool {
        self.header.is_none() && self.hold.alone()
    }

    fn range_mut(&mut self, from: usize, to: usize) -> Option<&mut [u8]> {
        // SAFETY: the only owner of this place.
        self.is_unique().then(|| unsafe { std::slice::from_raw_parts_mut(self.at(from), to - from) })
    }
}

/// A chain of segments of an arena.
#[derive(Debug)]
pub struct ArenaBuf {
    segments: Vec<Segment>,
}

impl ArenaBuf {
    /// The contents as one vector.
    pub fn to_vec(&self) -> Vec<u8> {
        self.segments().flatten().copied().collect()
    }

    fn last(&self) -> &Segment {
        self.segments.last().unwrap()
    }
}

/// The contents, segment by segment.
#[derive(Debug)]
pub struct Segments<'a>(std::slice::Iter<'a, Segment>);

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];
    fn next(&mut self) -> Option<&'a [u8]> {
        self.0.next().map(Segment::bytes)
    }
}

/// The writable areas, segment by segment.
#[derive(Debug)]
pub struct Spare<'a>(std::slice::IterMut<'a, Segment>);

impl<'a> Iterator for Spare<'a> {
    type Item = &'a mut [u8];
    fn next(&mut self) -> Option<&'a mut [u8]> {
        self.0.find_map(|s| s.range_mut(s.end, s.size()))
    }
}

impl Buf for ArenaBuf {
    type Segments<'a> = Segments<'a>;
    type Spare<'a> = Spare<'a>;

    fn len(&self) -> usize {
        self.segments.iter().map(|s| s.end - s.start).sum()
    }

    fn segment_count(&self) -> usize {
        self.segments.len()
    }

    fn segments(&self) -> Self::Segments<'_> {
        Segments(self.segments.iter())
    }

    fn first(&self) -> &[u8] {
        self.segments[0].bytes()
    }

    fn headroom(&self) -> usize {
        self.segments[0].start
    }

    fn tailroom(&self) -> usize {
        self.last().size() - self.last().end
    }

    fn is_unique(&self) -> bool {
        self.segments.iter().all(Segment::is_unique)
    }

    fn try_unique(&mut self) -> Option<&mut [u8]> {
        let (start, end) = (self.segments[0].start, self.segments[0].end);
        self.segments[0].range_mut(start, end)
    }

    fn prepend(&mut self, n: usize) -> Option<&mut [u8]> {
        let s = &mut self.segments[0];
        let start = s.start.checked_sub(n)?;
        s.range_mut(start, start)?;
        s.start = start;
        s.range_mut(start, start + n)
    }

    fn append(&mut self, n: usize) -> Option<&mut [u8]> {
        let room = self.tailroom();
        let s = self.segments.last_mut()?;
        if n > room || !s.is_unique() {
            return None;
        }
        let end = s.end;
        s.end += n;
        s.range_mut(end, end + n)
    }

    fn adj(&mut self, mut n: usize) {
        assert!(n <= self.len());
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
        for s in &mut self.segments {
            s.end = s.start + (s.end - s.start).min(len);
            len -= s.end - s.start;
        }
        while self.segments.len() > 1 && self.last().bytes().is_empty() {
            self.segments.pop();
        }
    }

    fn chain(&mut self, tail: Self) -> Result<(), Self> {
        if self.segments.len() + tail.segments.len() > 256 {
            return Err(tail);
        }
        self.segments.extend(tail.segments);
        Ok(())
    }

    fn reserve(&mut self, n: usize) -> bool {
        let s = &mut self.segments[0];
        if s.start != s.end || n > s.size() || !s.is_unique() {
            return false;
        }
        s.start = s.start.max(n);
        s.end = s.start;
        true
    }

    fn spare(&mut self) -> Self::Spare<'_> {
        Spare(self.segments.iter_mut())
    }

    fn room(&self) -> usize {
        self.segments.iter().filter(|s| s.is_unique()).map(|s| s.size() - s.end).sum()
    }

    fn filled(&mut self, mut n: usize) {
        assert!(self.is_empty() && n <= self.room());
        for s in self.segments.iter_mut().filter(|s| s.is_unique()) {
            let part = n.min(s.size() - s.end);
            s.end += part;
            n -= part;
        }
    }
}
