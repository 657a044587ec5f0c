//! The memory of soft endpoints: nothing is allocated once they run, and an idle queue pair costs little.
#![allow(unsafe_code)] // reason: counting the allocator.

#[path = "../benches/soft/slab.rs"]
#[allow(dead_code)] // reason: the benchmark uses more of it.
mod slab;
mod soft_pair;

use rdma_engine::qp::{AddressVector, BringUp, Change, InitAttr, QpCaps, QpSpec, RtrAttr, RtsAttr};
use rdma_engine::soft::{Agreement, SoftConfig, SoftDevice};
use rdma_engine::transport::{CqSpec, Device, Transport, WorkerSpec};
use rdma_engine::types::{Pmtu, Psn, QpType, Qpn};
use rdma_engine::wire::Mac;
use rdma_engine::wr::{Op, OpKind, RemoteSlice, RemoteWord};
use slab::SlabPool;
use soft_pair::{Pair, ip, rights};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Allocations of this thread, and bytes it holds.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator, counted; the counters need no destructor and no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        LIVE.set(LIVE.get() + layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn agreement(selective_repeat: bool) -> Agreement {
    Agreement { selective_repeat, jumbo_payload: 0 }
}

#[test]
fn nothing_is_allocated_once_everything_is_set_up() {
    for selective in [false, true] {
        let mut pair = Pair::new(SlabPool::new(4096), agreement(selective));
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
        // The first loss is no set-up either.
        let before = ALLOCATIONS.get();
        (0..5).for_each(|_| round(&mut pair, 0));
        (0..5).for_each(|_| round(&mut pair, 37));
        pair.learn_many();
        // Nor by the flight recorder, when its rings are handed out, are missing, and come back.
        for _ in 0..3 {
            let taken = [(); 5].map(|()| pair.take_recording());
            assert_eq!(taken.iter().flatten().count(), 4);
        }
        assert_eq!(ALLOCATIONS.get() - before, 0, "selective repeat: {selective}");
        assert!(pair.retransmitted() > 100, "frames were lost and sent again");
        assert_eq!(pair.held() > 100, selective);
    }
}

/// Bytes of a device and a worker for `max_qps`, with `count` queue pairs of this depth that agreed on this, connected
/// and idle.
fn bytes_of(max_qps: u16, count: usize, depth: u32, agreed: Agreement) -> i64 {
    let mut config = SoftConfig::new(Mac([2, 0, 0, 0, 0, 0]), vec![ip(0)]);
    config.max_qps = max_qps;
    let before = LIVE.get();
    let device = SoftDevice::new(config, vec![SlabPool::new(0)]).expect("a device");
    let cqs = vec![CqSpec { depth: 16, events: false }];
    let worker = WorkerSpec { cqs, srqs: vec![], max_qps };
    let mut transport = device.create_worker(0, &worker).expect("a worker");
    let caps = QpCaps { send_depth: depth, recv_depth: depth, ..QpCaps::default() };
    for _ in 0..count {
        let spec = QpSpec { kind: QpType::Rc, caps, srq: None, cq: 0 };
        let mut qp = device.create_qp(0, &spec).expect("a queue pair");
        device.modify(&mut qp, &Change::Init(InitAttr { access: rights(), qkey: 0 })).expect("INIT");
        device.agree(&mut qp, agreed).expect("before RTR");
        let rtr = RtrAttr {
            path: AddressVector::to(ip(1).into(), 0),
            dest_qpn: Qpn::new(0x11),
            rq_psn: Psn::new(0),
            pmtu: Pmtu::B1024,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
        };
        let rts = RtsAttr { sq_psn: Psn::new(0), timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 };
        let qp = BringUp::resume(&device, qp).rtr(rtr).expect("RTR").rts(rts).expect("RTS");
        assert!(transport.attach(qp).is_ok());
    }
    let bytes = LIVE.get() - before;
    drop((transport, device));
    bytes
}

#[test]
fn an_idle_queue_pair_takes_less_than_a_kibibyte_beyond_its_rings() {
    for selective_repeat in [false, true] {
        let bytes = |max_qps, count, depth| bytes_of(max_qps, count, depth, agreement(selective_repeat));
        let each = (bytes(4096, 4000, 1) - bytes(4096, 1000, 1)) / 3000;
        let entries = (bytes(4096, 1000, 64) - bytes(4096, 1000, 1)) / 1000 / 63;
        // The tables of a worker have a place for every queue pair it may get.
        let places = (bytes(4096, 0, 1) - bytes(16, 0, 1)) / 4080;
        println!(
            "selective repeat {selective_repeat}: {each} bytes a queue pair, of which {entries} are one request and one receive; {places} in tables"
        );
        assert!(each - entries + places <= 1024, "{selective_repeat}: {each} - {entries} + {places}");
        assert!(entries <= 256);
    }
}
