//! After set-up the loopback data path allocates nothing.
#![allow(unsafe_code)] // reason: a global allocator that counts.

mod rig;

use rdma_engine::buf::Buf;
use rdma_engine::mem::Access;
use rdma_engine::suite::{A, B, Link, Rig, Session};
use rdma_engine::transport::{Completions, Transport};
use rdma_engine::types::QpType;
use rdma_engine::wr::{Cookie, Done, Op, RecvWr, SendWr, Status};
use rig::LoopRig;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Messages, READs and WRITEs go round with the same buffers.
#[test]
fn the_data_path_allocates_nothing() {
    let mut rig = LoopRig::default();
    let mut s = Session::open(&mut rig);
    let link = Link::new(QpType::Rc, &s.features);
    let pair = s.connect(&link);
    let region = s.region(B, 4096, Access::LOCAL_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_WRITE));
    let slice = region.slice(0, 100).expect("inside");
    let mut sends: Vec<_> = (0..48).map(|_| s.room_for(A, 100)).collect();
    let mut receives: Vec<_> = (0..16).map(|_| s.room_for(B, 100)).collect();
    let (mut before, rounds) = (0, if cfg!(miri) { 10 } else { 500 });
    for round in 0..rounds {
        if round == rounds / 5 {
            before = COUNT.get();
        }
        while let Some(buf) = receives.pop() {
            assert!(s.ends[B].transport.post_recv(pair.qp[B], RecvWr { buf, cookie: Cookie(0) }).is_ok());
        }
        for i in 0..48 {
            let mut buf = sends.pop().expect("all came back");
            buf.truncate(0);
            let op = [Op::Send, Op::Write(slice), Op::Read(slice)][i % 3];
            if !op.fills_buffer() {
                buf.append(100).expect("room").fill(i as u8);
            }
            assert!(s.ends[A].transport.post_send(pair.qp[A], SendWr::new(op, buf, Cookie(0))).is_ok());
        }
        while sends.len() < 48 || receives.len() < 16 {
            for end in [A, B] {
                s.rig.flush(end, &mut s.ends[end].transport);
                let mut batch = Completions::new();
                s.ends[end].transport.poll(s.rig.now(), &mut batch);
                for mut c in batch {
                    assert_eq!(c.status, Status::Success);
                    if let Done::Received(_) = c.done {
                        c.buf.truncate(0);
                        receives.push(c.buf);
                    } else {
                        sends.push(c.buf);
                    }
                }
            }
        }
    }
    assert_eq!(COUNT.get() - before, 0, "allocations and frees in {} rounds", rounds - rounds / 5);
    drop((sends, receives));
    s.tear_down(&pair);
    s.finish();
}
