//! A running soft endpoint allocates nothing: not for requests, frames, completions, retransmissions or timers.
#![allow(unsafe_code)] // reason: counting the allocator.

#[path = "../benches/soft/slab.rs"]
#[allow(dead_code)] // reason: the benchmark uses more of it.
mod slab;
mod soft_pair;

use rdma_engine::wr::{Op, OpKind, RemoteSlice, RemoteWord};
use slab::SlabPool;
use soft_pair::Pair;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system's allocator, counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn nothing_is_allocated_once_everything_is_set_up() {
    let mut pair = Pair::new(SlabPool::new(4096));
    let kinds = [OpKind::Send, OpKind::Write, OpKind::Read, OpKind::FetchAdd];
    let round = |pair: &mut Pair, lose: u64| {
        for kind in kinds {
            let slice = pair.slice(3000);
            let word = RemoteWord { addr: slice.addr, rkey: slice.rkey };
            let op = match kind {
                OpKind::Send => Op::Send,
                OpKind::Write => Op::Write(slice),
                OpKind::Read => Op::Read(RemoteSlice { ..slice }),
                _ => Op::FetchAdd { word, add: 1 },
            };
            pair.carry(op, 3000, 200, lose);
        }
    };
    round(&mut pair, 0);
    round(&mut pair, 50);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..5).for_each(|_| round(&mut pair, 0));
    (0..5).for_each(|_| round(&mut pair, 37));
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0);
    assert!(pair.retransmitted() > 100, "frames were lost and sent again");
}
