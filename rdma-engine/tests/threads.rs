//! Loopback between threads: each worker on its own, dropped in the middle, or one receiver of many senders.

use rdma_engine::buf::{Buf, NoEgress, Pool};
use rdma_engine::heap::{HeapBuf, HeapPool};
use rdma_engine::loopback::{Hub, LoopTransport, Loopback};
use rdma_engine::mem::{Access, Arena, Backing, Region};
use rdma_engine::qp::{AddressVector, BringUp, InitAttr, QpCaps, QpSpec, RtrAttr, RtsAttr};
use rdma_engine::suite::{Rng, contents, pattern};
use rdma_engine::transport::{Completions, CqSpec, Device, Transport, WorkerSpec};
use rdma_engine::types::{Pmtu, Psn, QpType, Qpn, Time};
use rdma_engine::wr::{Completion, Cookie, Done, Op, QpId, RecvWr, SendWr, Status, UdDest};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

const DEPTH: u32 = 32;
const ROOM: usize = 512;
const QKEY: u32 = 7;

/// Messages each way.
const MESSAGES: u64 = if cfg!(miri) { 40 } else { 20_000 };

/// A worker with one queue pair and its own clock and pool. Fields are dropped in this order.
struct Worker {
    transport: LoopTransport<HeapBuf>,
    qp: QpId,
    pool: HeapPool,
    start: Instant,
}

fn caps() -> QpCaps {
    QpCaps { send_depth: DEPTH, recv_depth: DEPTH, send_sge: 4, recv_sge: 4, ..QpCaps::default() }
}

fn rights() -> Access {
    [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC]
        .into_iter()
        .fold(Access::LOCAL_WRITE, Access::and)
}

fn transport(device: &Loopback<HeapBuf>) -> LoopTransport<HeapBuf> {
    let cqs = vec![CqSpec { depth: 4 * DEPTH, events: false }];
    device.create_worker(0, &WorkerSpec { cqs, srqs: vec![], max_qps: 2 }).unwrap()
}

/// Brings a queue pair up to RTS towards each of the other ends in turn.
fn connected(devices: [&Loopback<HeapBuf>; 2], kind: QpType, timeout: u8) -> ([Worker; 2], [Qpn; 2]) {
    let mut transports = devices.map(transport);
    let spec = QpSpec { kind, caps: caps(), srq: None, cq: 0 };
    let ups = devices.map(|d| {
        BringUp::create(d, 0, &spec).unwrap().init(InitAttr { access: rights(), qkey: QKEY }).unwrap()
    });
    let qpns = ups.each_ref().map(BringUp::qpn);
    let mut ids = vec![];
    for (i, up) in ups.into_iter().enumerate() {
        let rtr = RtrAttr {
            path: AddressVector::to(devices[1 - i].gid(), 0),
            dest_qpn: qpns[1 - i],
            rq_psn: Psn::new(0xFF_FFF0),
            pmtu: Pmtu::B256,
            max_dest_rd_atomic: 2,
            min_rnr_timer: 1,
        };
        let sq_psn = Psn::new(0xFF_FFF0);
        let rts = RtsAttr { sq_psn, timeout, retry_cnt: 1, rnr_retry: 7, max_rd_atomic: 2 };
        let qp = up.rtr(rtr).unwrap().rts(rts).unwrap();
        ids.push(transports[i].attach(qp).unwrap());
    }
    let mut ids = ids.into_iter();
    let workers = transports.map(|transport| Worker {
        transport,
        qp: ids.next().unwrap(),
        pool: HeapPool::new(4 * DEPTH as usize, ROOM),
        start: Instant::now(),
    });
    (workers, qpns)
}

impl Worker {
    fn buf(&self, bytes: &[u8]) -> HeapBuf {
        let mut buf = self.pool.alloc().unwrap();
        buf.append(bytes.len()).unwrap().copy_from_slice(bytes);
        buf
    }

    fn send(&mut self, op: Op, bytes: &[u8], cookie: u64) {
        let wr = SendWr::new(op, self.buf(bytes), Cookie(cookie));
        self.transport.post_send(self.qp, wr).unwrap();
    }

    fn feed(&mut self) {
        while self.transport.recv_room(self.qp) > 0 {
            let wr = RecvWr { buf: self.pool.alloc().unwrap(), cookie: Cookie(0) };
            self.transport.post_recv(self.qp, wr).unwrap();
        }
    }

    fn turn(&mut self) -> Completions<HeapBuf> {
        let now = Time(self.start.elapsed().as_nanos() as u64);
        self.transport.flush(now, &mut NoEgress);
        let mut out = Completions::new();
        if self.transport.poll(now, &mut out) == 0 {
            thread::yield_now();
        }
        out
    }
}

fn pools_are_full(pools: &[HeapPool]) {
    pools.iter().for_each(|p| assert!(p.is_full(), "{} buffers are missing", p.in_use()));
}

/// One end of a conversation: sends numbered messages of random size with READs, WRITEs and atomics in between, and
/// expects the same of the other end.
fn converse(mut w: Worker, seed: u64, theirs: &Region, stop: &AtomicU64) -> HeapPool {
    let (mut sent, mut received, mut in_order) = (0u64, 0u64, 0u64);
    let mut rng = Rng::new(seed);
    let word = theirs.word(0).unwrap();
    let slice = theirs.slice(64, 128).unwrap();
    let mut last_write = vec![0; 128];
    let mut adds = 0u64;
    let mut reads = std::collections::VecDeque::new();
    let mut told = false;
    loop {
        w.feed();
        while sent < MESSAGES && w.transport.send_room(w.qp) > 0 {
            match rng.below(8) {
                0 => {
                    w.send(Op::FetchAdd { word, add: 1 }, b"", sent);
                    reads.push_back(adds.to_ne_bytes().to_vec());
                    adds += 1;
                }
                1 => {
                    w.send(Op::Read(slice), b"", sent);
                    reads.push_back(last_write.clone());
                }
                2 => {
                    last_write = pattern(rng.bits(), 128);
                    w.send(Op::Write(slice), &last_write, sent);
                }
                _ => {
                    let mut bytes = pattern(sent, 8 + rng.below(ROOM - 8));
                    bytes[..8].copy_from_slice(&sent.to_le_bytes());
                    w.send(Op::Send, &bytes, sent);
                }
            }
            sent += 1;
        }
        for c in w.turn() {
            assert_eq!(c.status, Status::Success);
            match c.done {
                Done::Sent(kind) => {
                    assert_eq!(c.cookie.0, in_order, "completions in order");
                    in_order += 1;
                    if matches!(kind, rdma_engine::wr::OpKind::Read | rdma_engine::wr::OpKind::FetchAdd) {
                        assert_eq!(contents(&c.buf), reads.pop_front().unwrap());
                    }
                }
                Done::Received(_) => {
                    let bytes = contents(&c.buf);
                    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                    assert!(received == 0 || number >= received, "message {number} after {received}");
                    assert_eq!(bytes[8..], pattern(number, bytes.len())[8..]);
                    received = number + 1;
                }
            }
        }
        if in_order == MESSAGES && !told {
            told = true;
            stop.fetch_add(1, Ordering::AcqRel);
        }
        if stop.load(Ordering::Acquire) == 2 {
            return w.pool.clone();
        }
    }
}

#[test]
fn two_threads_talk_both_ways() {
    let hub = Hub::new();
    let (da, db) = (hub.device(), hub.device());
    let ([a, b], _) = connected([&da, &db], QpType::Rc, 0);
    let region =
        |d: &Loopback<HeapBuf>| d.register(&Arena::new(4096, Backing::Pages).unwrap(), rights()).unwrap();
    let (ra, rb) = (region(&da), region(&db));
    let stop = AtomicU64::new(0);
    let pools = thread::scope(|scope| {
        let a = scope.spawn(|| converse(a, 1, &rb, &stop));
        let b = scope.spawn(|| converse(b, 2, &ra, &stop));
        [a.join().unwrap(), b.join().unwrap()]
    });
    pools_are_full(&pools);
}

#[test]
fn a_worker_dropped_mid_way_keeps_nothing() {
    for round in 0..if cfg!(miri) { 2 } else { 50 } {
        let hub = Hub::new();
        let (da, db) = (hub.device(), hub.device());
        // Code 1 is 8 us, twice.
        let ([mut a, mut b], _) = connected([&da, &db], QpType::Rc, 1);
        let pools = [a.pool.clone(), b.pool.clone()];
        let (posted, done) = thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..round {
                    b.feed();
                    b.send(Op::Send, b"never answered", 0);
                    b.turn().into_iter().for_each(drop);
                    if b.transport.send_room(b.qp) == 0 {
                        break;
                    }
                }
                drop(b);
            });
            scope.spawn(move || until_it_fails(&mut a)).join().unwrap()
        });
        assert_eq!(posted, done.len());
        let fatal = done.iter().position(|s| *s != Status::Success).expect("the peer is gone");
        assert_eq!(done[fatal], Status::RetryExcErr);
        assert!(done[fatal + 1..].iter().all(|s| *s == Status::WrFlushErr));
        pools_are_full(&pools);
    }
}

/// Sends until the queue pair fails and everything has come back: requests posted, and how each ended.
fn until_it_fails(w: &mut Worker) -> (usize, Vec<Status>) {
    let (mut posted, mut done) = (0, vec![]);
    let mut failed = false;
    while !failed || done.len() < posted {
        while !failed && w.transport.send_room(w.qp) > 0 {
            w.send(Op::Send, &[1; 300], posted as u64);
            posted += 1;
        }
        for Completion { status, done: what, .. } in w.turn() {
            failed |= status != Status::Success;
            if let Done::Sent(_) = what {
                done.push(status);
            }
        }
    }
    (posted, done)
}

#[test]
fn many_threads_send_datagrams_to_one() {
    let hub = Hub::new();
    let devices = [hub.device(), hub.device(), hub.device()];
    let ([mut a, receiver], qpns) = connected([&devices[0], &devices[1]], QpType::Ud, 0);
    let ([mut b, _unused], _) = connected([&devices[2], &hub.device()], QpType::Ud, 0);
    let mut receiver = receiver;
    let path = AddressVector::to(devices[1].gid(), 0);
    let dest = |i: usize| UdDest { ah: devices[i].create_ah(0, &path).unwrap(), qpn: qpns[1], qkey: QKEY };
    let (da, db) = (dest(0), dest(2));
    let finished = AtomicBool::new(false);
    let pools = [a.pool.clone(), b.pool.clone(), receiver.pool.clone()];
    let each = MESSAGES / 2;
    let (lost, received) = thread::scope(|scope| {
        let taken = scope.spawn(|| {
            let mut next = std::collections::HashMap::new();
            let mut received = 0;
            loop {
                let last = finished.load(Ordering::Acquire);
                receiver.feed();
                let got = receiver.turn();
                let idle = got.is_empty();
                for c in got {
                    let Done::Received(r) = c.done else { panic!("{:?}", c.done) };
                    let number = u64::from_le_bytes(contents(&c.buf).try_into().unwrap());
                    let before = next.insert(r.source.unwrap().qpn, number + 1).unwrap_or(0);
                    assert!(number >= before, "in order from each sender");
                    received += 1;
                }
                if last && idle {
                    return (receiver.transport.drops(), received);
                }
            }
        });
        let senders = [(&mut a, da), (&mut b, db)].map(|(w, dest)| {
            scope.spawn(move || {
                let (mut sent, mut done) = (0, 0);
                while done < each {
                    while sent < each && w.transport.send_room(w.qp) > 0 {
                        let buf = w.buf(&sent.to_le_bytes());
                        let wr = SendWr { ud: Some(dest), ..SendWr::new(Op::Send, buf, Cookie(sent)) };
                        w.transport.post_send(w.qp, wr).unwrap();
                        sent += 1;
                    }
                    done += w.turn().into_iter().filter(|c| c.status == Status::Success).count() as u64;
                }
                w.transport.drops()
            })
        });
        let lost: u64 = senders.into_iter().map(|s| s.join().unwrap()).sum();
        finished.store(true, Ordering::Release);
        let (dropped, received) = taken.join().unwrap();
        (lost + dropped, received)
    });
    assert_eq!(lost + received, 2 * each, "{lost} lost, {received} received");
    assert!(received > 0);
    drop((a, b, receiver));
    pools_are_full(&pools);
}
