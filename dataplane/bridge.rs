//! DPDK's mbuf as a buffer of the RDMA engine.
//!
//! [`Packet`] is an owning mbuf and nothing else; [`PacketPool`] is a mempool. Both crates stay ignorant of each other.
#![allow(unsafe_code)] // reason: taking a chain apart in place, and naming a pool's chunks as an arena.

use dpdk_bind::{Burst, Mbuf, Mempool};
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::mem::Arena;

/// An mbuf chain with one owner.
#[derive(Debug)]
#[repr(transparent)]
pub struct Packet(pub Mbuf);

/// Iterator over the writable areas of a packet.
#[derive(Debug)]
pub struct Spare<'a>(dpdk_bind::mbuf::SpareSegments<'a>);

impl<'a> Iterator for Spare<'a> {
    type Item = &'a mut [u8];
    #[inline]
    fn next(&mut self) -> Option<&'a mut [u8]> {
        self.0.next()
    }
}

impl Packet {
    /// Replaces the chain by what `change` makes of it.
    fn rebuild(&mut self, change: impl FnOnce(Mbuf) -> Mbuf) {
        // SAFETY: the chain is moved out and another one moved in; `change` does not unwind (it calls no code of
        // others), and the process aborts on a panic anyway.
        unsafe {
            let chain = std::ptr::read(&raw const self.0);
            std::ptr::write(&raw mut self.0, change(chain));
        }
    }
}

impl Buf for Packet {
    type Segments<'a> = dpdk_bind::mbuf::Segments<'a>;
    type Spare<'a> = Spare<'a>;

    #[inline]
    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn segment_count(&self) -> usize {
        self.0.segment_count()
    }

    #[inline]
    fn segments(&self) -> Self::Segments<'_> {
        self.0.segments()
    }

    #[inline]
    fn first(&self) -> &[u8] {
        self.0.data()
    }

    #[inline]
    fn headroom(&self) -> usize {
        self.0.headroom()
    }

    #[inline]
    fn tailroom(&self) -> usize {
        self.0.tailroom()
    }

    #[inline]
    fn is_unique(&self) -> bool {
        self.0.is_unique()
    }

    #[inline]
    fn try_unique(&mut self) -> Option<&mut [u8]> {
        self.0.try_unique()
    }

    #[inline]
    fn prepend(&mut self, n: usize) -> Option<&mut [u8]> {
        self.0.prepend(n)
    }

    #[inline]
    fn append(&mut self, n: usize) -> Option<&mut [u8]> {
        self.0.append(n)
    }

    #[inline]
    fn adj(&mut self, n: usize) {
        assert!(n <= self.len(), "cannot cut {n} bytes off a packet of {}", self.len());
        if !self.0.adj(n) {
            self.rebuild(|chain| cut_front(chain, n));
        }
        // Segments without bytes are nothing that every NIC can send.
        if self.0.data().is_empty() && self.segment_count() > 1 && !self.is_empty() {
            self.rebuild(without_empty_front);
        }
    }

    fn truncate(&mut self, len: usize) {
        let Some(excess) = self.len().checked_sub(len).filter(|e| *e > 0) else { return };
        if self.segment_count() > 1 || !self.0.trim(excess) {
            self.rebuild(|chain| cut_back(chain, len));
        }
    }

    #[inline]
    fn chain(&mut self, tail: Self) -> Result<(), Self> {
        self.0.chain(tail.0).map_err(Packet)
    }

    #[inline]
    fn reserve(&mut self, n: usize) -> bool {
        let unique = self.0.is_empty() && self.0.try_unique().is_some();
        unique && (self.0.headroom() >= n || self.0.reset(n))
    }

    #[inline]
    fn spare(&mut self) -> Spare<'_> {
        Spare(self.0.spare_segments())
    }

    #[inline]
    fn room(&self) -> usize {
        self.0.room()
    }

    #[inline]
    fn filled(&mut self, n: usize) {
        assert!(self.is_empty() && self.0.set_len(n), "{n} bytes cannot have been received here");
    }

    #[inline]
    fn free_all(bufs: impl Iterator<Item = Self>) {
        let mut burst = Burst::<64>::new();
        for packet in bufs {
            if let Err(mbuf) = burst.push(packet.0) {
                burst.clear();
                burst.push(mbuf).unwrap_or_else(|_| unreachable!("it is empty"));
            }
        }
    }
}

/// The chain without its first `n` bytes; segments emptied at the front are freed but for the last.
fn cut_front(mut chain: Mbuf, mut n: usize) -> Mbuf {
    while !chain.adj(n) {
        n -= chain.data().len();
        let (_, rest) = chain.split_first();
        chain = rest.expect("the caller saw enough bytes");
    }
    chain
}

/// A chain that has bytes, without the empty segments before them.
fn without_empty_front(mut chain: Mbuf) -> Mbuf {
    while chain.data().is_empty() {
        let (_, rest) = chain.split_first();
        chain = rest.expect("it has bytes");
    }
    chain
}

/// The chain's first `len` bytes; segments that hold none of them are freed but for the first.
fn cut_back(chain: Mbuf, len: usize) -> Mbuf {
    let (mut kept, mut rest) = chain.split_first();
    let mut left = len.saturating_sub(kept.data().len());
    if kept.data().len() > len {
        kept.trim(kept.data().len() - len);
    }
    while let Some(chain) = rest.take().filter(|_| left > 0) {
        let (mut segment, behind) = chain.split_first();
        let have = segment.data().len();
        if have > left {
            segment.trim(have - left);
        }
        left -= have.min(left);
        kept.chain(segment).unwrap_or_else(|_| unreachable!("shorter than the chain it came from"));
        rest = behind;
    }
    kept
}

/// A mempool as a pool of packets.
#[derive(Clone, Debug)]
pub struct PacketPool(pub Mempool);

impl Pool for PacketPool {
    type Buf = Packet;

    #[inline]
    fn alloc(&self) -> Option<Packet> {
        self.0.alloc().map(Packet)
    }

    #[inline]
    fn alloc_bulk(&self, n: usize, mut put: impl FnMut(Packet)) -> bool {
        let mut burst = Burst::<64>::new();
        let granted = n <= burst.capacity() && self.0.alloc_bulk(&mut burst, n);
        burst.drain().for_each(|mbuf| put(Packet(mbuf)));
        granted
    }

    #[inline]
    fn slice(&self, of: &Packet, offset: usize, len: usize) -> Option<Packet> {
        assert!(offset + len <= of.len(), "slice {offset}+{len} of a packet of {} bytes", of.len());
        of.0.slice(&self.0, offset, len).map(Packet)
    }

    fn buf_room(&self) -> usize {
        self.0.data_room().saturating_sub(dpdk_bind::mbuf::HEADROOM)
    }

    fn available(&self) -> usize {
        self.0.available()
    }

    fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

/// The memory of a pool, for registration: one arena a range of adjacent chunks. Each keeps the pool alive.
pub fn arenas(pool: &Mempool) -> Vec<Arena> {
    pool.chunks()
        .into_iter()
        .map(|chunk| {
            // SAFETY: the pool's memory is mapped as long as a handle to the pool exists, and the arena owns one.
            unsafe { Arena::foreign(chunk.addr, chunk.len, pool.clone()) }
        })
        .collect()
}
