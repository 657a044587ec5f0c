//! What the common suite cannot ask of every transport: exact times, set-up errors, loss, small queues.

use super::*;
use crate::buf::{Buf, NoEgress, Pool};
use crate::heap::{HeapBuf, HeapPool};
use crate::mem::{Access, Arena, Backing};
use crate::qp::{AddressVector, BringUp, Change, InitAttr, QpCaps, QpSpec, QpState, RtrAttr, RtsAttr};
use crate::transport::{Completions, CqSpec, Device, SrqSpec, Transport, WorkerSpec};
use crate::types::{Gid, Pmtu, Psn, QpType, Qpn, Rkey, Time};
use crate::wr::{Completion, Cookie, Op, QpId, RecvWr, Refusal, SendWr, SrqId, Status};

type Device1 = Loopback<HeapBuf>;

/// One end with one queue pair; fields are dropped in this order.
struct End {
    transport: LoopTransport<HeapBuf>,
    device: Device1,
    pool: HeapPool,
    qp: QpId,
    qpn: Qpn,
}

#[derive(Clone, Copy)]
struct Setup {
    kind: QpType,
    cq_depth: u32,
    /// PSN that B expects; A starts with 7.
    expected: u32,
    timeout: u8,
    retry_cnt: u8,
    rnr_retry: u8,
    min_rnr_timer: u8,
    /// B's state.
    answers: QpState,
    attach_b: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            kind: QpType::Rc,
            cq_depth: 64,
            expected: 7,
            timeout: 8,
            retry_cnt: 2,
            rnr_retry: 7,
            min_rnr_timer: 12,
            answers: QpState::Rts,
            attach_b: true,
        }
    }
}

const RIGHTS: Access = Access::LOCAL_WRITE.and(Access::REMOTE_WRITE).and(Access::REMOTE_READ);

impl Setup {
    fn worker(&self, device: &Device1) -> LoopTransport<HeapBuf> {
        let cqs = vec![CqSpec { depth: self.cq_depth, events: false }];
        device.create_worker(0, &WorkerSpec { cqs, srqs: vec![], max_qps: 2 }).unwrap()
    }

    fn attrs(&self, at_a: bool, gid: Gid, dest_qpn: Qpn) -> (RtrAttr, RtsAttr) {
        let rtr = RtrAttr {
            path: AddressVector::to(gid, 0),
            dest_qpn,
            rq_psn: Psn::new(if at_a { 9 } else { self.expected }),
            pmtu: Pmtu::B1024,
            max_dest_rd_atomic: 4,
            min_rnr_timer: self.min_rnr_timer,
        };
        let rts = RtsAttr {
            sq_psn: Psn::new(if at_a { 7 } else { 9 }),
            timeout: self.timeout,
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            max_rd_atomic: 4,
        };
        (rtr, rts)
    }

    /// Two ends; what B's transport did not take comes beside them.
    fn build(&self) -> (End, End, Option<LoopQp<HeapBuf>>) {
        let hub = Hub::new();
        let (da, db) = (hub.device(), hub.device());
        let (mut ta, mut tb) = (self.worker(&da), self.worker(&db));
        let caps = QpCaps { send_depth: 16, recv_depth: 16, send_sge: 4, recv_sge: 4, ..QpCaps::default() };
        let spec = QpSpec { kind: self.kind, caps, srq: None, cq: 0 };
        let init = InitAttr { access: RIGHTS, qkey: 5 };
        let [ua, ub] = [&da, &db].map(|d| BringUp::create(d, 0, &spec).unwrap().init(init).unwrap());
        let (qa, qb) = (ua.qpn(), ub.qpn());
        let (rtr, rts) = self.attrs(true, db.gid(), qb);
        let a = ua.rtr(rtr).unwrap().rts(rts).unwrap();
        let (rtr, rts) = self.attrs(false, da.gid(), qa);
        let mut b = ub.pause();
        if self.answers != QpState::Init {
            db.modify(&mut b, &Change::Rtr(rtr)).unwrap();
            db.modify(&mut b, &Change::Rts(rts)).unwrap();
        }
        let qp = ta.attach(a).unwrap();
        let (ib, left) = if self.attach_b { (tb.attach(b).unwrap(), None) } else { (qp, Some(b)) };
        let pool = || HeapPool::new(64, 256);
        let a = End { transport: ta, device: da, pool: pool(), qp, qpn: qa };
        (a, End { transport: tb, device: db, pool: pool(), qp: ib, qpn: qb }, left)
    }
}

impl End {
    fn buf(&self, bytes: &[u8]) -> HeapBuf {
        let mut buf = self.pool.alloc().unwrap();
        buf.append(bytes.len()).unwrap().copy_from_slice(bytes);
        buf
    }

    fn send(&mut self, op: Op, cookie: u64) {
        let buf = if op.fills_buffer() { self.buf(b"") } else { self.buf(b"message") };
        assert!(self.transport.post_send(self.qp, SendWr::new(op, buf, Cookie(cookie))).is_ok());
    }

    fn recv(&mut self, cookie: u64) {
        let wr = RecvWr { buf: self.pool.alloc().unwrap(), cookie: Cookie(cookie) };
        assert!(self.transport.post_recv(self.qp, wr).is_ok());
    }

    fn turn(&mut self, now: Time) -> Vec<(u64, Status)> {
        self.take(now).into_iter().map(|c| (c.cookie.0, c.status)).collect()
    }

    fn take(&mut self, now: Time) -> Vec<Completion<HeapBuf>> {
        self.transport.flush(now, &mut NoEgress);
        let mut out = Completions::new();
        self.transport.poll(now, &mut out);
        out.into_iter().collect()
    }
}

/// Turns at one moment until nothing moves any more.
fn settle(a: &mut End, b: &mut End, now: Time) -> [Vec<(u64, Status)>; 2] {
    let mut done = [vec![], vec![]];
    for _ in 0..8 {
        done[0].extend(a.turn(now));
        done[1].extend(b.turn(now));
    }
    done
}

/// Jumps from timer to timer until a completion comes at A; its time and all that came.
fn until_completion(a: &mut End, b: &mut End) -> (u64, Vec<(u64, Status)>) {
    let mut now = Time(0);
    for _ in 0..100 {
        let [done, _] = settle(a, b, now);
        if !done.is_empty() {
            return (now.0, done);
        }
        now = a.transport.next_timer();
        assert_ne!(now, Time::NEVER, "nothing would ever happen");
    }
    panic!("100 timers and no end");
}

#[test]
fn rnr_retries_take_exactly_their_time() {
    for rnr_retry in [0, 1, 6] {
        let (mut a, mut b, _) = Setup { rnr_retry, ..Setup::default() }.build();
        a.send(Op::Send, 1);
        let (ns, done) = until_completion(&mut a, &mut b);
        assert_eq!((ns, done), (u64::from(rnr_retry) * 640_000, vec![(1, Status::RnrRetryExcErr)]));
        assert_eq!(b.transport.state(b.qp), Some(QpState::Rts));
        assert_eq!(b.device.qpn_count(), 2);
    }
}

#[test]
fn rnr_retry_seven_waits_for_ever_and_does_not_come_early() {
    let (mut a, mut b, _) = Setup { min_rnr_timer: 0, ..Setup::default() }.build();
    a.send(Op::Send, 1);
    settle(&mut a, &mut b, Time(0));
    for i in 1..50 {
        let now = a.transport.next_timer();
        assert_eq!(now, Time(i * 655_360_000), "code 0 is 655.36 ms");
        assert_eq!(settle(&mut a, &mut b, now), [vec![], vec![]]);
    }
    b.recv(2);
    let now = a.transport.next_timer();
    assert_eq!(settle(&mut a, &mut b, Time(now.0 - 1)), [vec![], vec![]], "not before its time");
    assert_eq!(settle(&mut a, &mut b, now), [vec![(1, Status::Success)], vec![(2, Status::Success)]]);
    assert_eq!(a.transport.next_timer(), Time::NEVER);
}

#[test]
fn a_new_message_has_all_its_rnr_retries() {
    let (mut a, mut b, _) = Setup { rnr_retry: 1, ..Setup::default() }.build();
    for round in 0..5 {
        a.send(Op::Send, round);
        settle(&mut a, &mut b, Time(0));
        b.recv(round);
        let now = a.transport.next_timer();
        assert_eq!(settle(&mut a, &mut b, now)[0], [(round, Status::Success)]);
    }
}

#[test]
fn retries_of_a_silent_peer_take_their_time() {
    // Code 8 is 1.048576 ms; two retries are three times that.
    let waits = Setup::default();
    for setup in [Setup { answers: QpState::Init, ..waits }, Setup { expected: 8, ..waits }] {
        let (mut a, mut b, _) = setup.build();
        a.send(Op::Send, 1);
        a.send(Op::Send, 2);
        let (ns, done) = until_completion(&mut a, &mut b);
        assert_eq!(ns, 3 * 1_048_576);
        assert_eq!(done, [(1, Status::RetryExcErr), (2, Status::WrFlushErr)]);
    }
}

#[test]
fn without_a_timeout_a_silent_peer_is_waited_for() {
    let (mut a, mut b, _) = Setup { timeout: 0, answers: QpState::Init, ..Setup::default() }.build();
    a.send(Op::Send, 1);
    settle(&mut a, &mut b, Time(0));
    assert_eq!(a.transport.next_timer(), Time::NEVER);
    assert_eq!(settle(&mut a, &mut b, Time(u64::MAX - 1)), [vec![], vec![]]);
    drop(b.transport);
    assert_eq!(a.turn(Time(u64::MAX - 1)), []);
    drop(a.transport);
    assert!(a.pool.is_full());
}

#[test]
fn a_peer_that_comes_up_late_is_found() {
    let (mut a, b, left) = Setup { attach_b: false, answers: QpState::Init, ..Setup::default() }.build();
    let (mut b, mut qp) = (b, left.unwrap());
    a.send(Op::Send, 1);
    settle(&mut a, &mut b, Time(0));
    assert_ne!(a.transport.next_timer(), Time::NEVER);
    let (rtr, rts) = Setup::default().attrs(false, a.device.gid(), a.qpn);
    b.device.modify(&mut qp, &Change::Rtr(rtr)).unwrap();
    b.device.modify(&mut qp, &Change::Rts(rts)).unwrap();
    settle(&mut a, &mut b, Time(0));
    let timer = a.transport.next_timer();
    assert_eq!(settle(&mut a, &mut b, timer), [vec![], vec![]], "in RTS it answers, once it is attached");
    assert_eq!(a.transport.next_timer(), Time::NEVER);
    b.qp = b.transport.attach(qp).unwrap();
    b.recv(2);
    assert_eq!(settle(&mut a, &mut b, Time(9)), [vec![(1, Status::Success)], vec![(2, Status::Success)]]);
}

#[test]
fn a_small_completion_queue_loses_nothing() {
    let (mut a, mut b, _) = Setup { cq_depth: 2, ..Setup::default() }.build();
    (0..16).for_each(|i| b.recv(i));
    (0..16).for_each(|i| a.send(Op::Send, i));
    let all: Vec<_> = (0..16).map(|i| (i, Status::Success)).collect();
    let (mut sent, mut received) = (vec![], vec![]);
    for _ in 0..20 {
        let [s, r] = settle(&mut a, &mut b, Time(0));
        sent.extend(s);
        received.extend(r);
    }
    assert_eq!((&sent, &received), (&all, &all));
    (0..16).for_each(|i| b.recv(i));
    b.transport.fail(b.qp);
    let flushed: Vec<_> = (0..16).flat_map(|_| b.turn(Time(0))).collect();
    assert_eq!(flushed, (0..16).map(|i| (i, Status::WrFlushErr)).collect::<Vec<_>>());
}

#[test]
fn a_key_that_cannot_be_invalidated_breaks_the_responder() {
    let (mut a, mut b, _) = Setup::default().build();
    b.recv(5);
    b.recv(6);
    a.send(Op::SendInv(Rkey(0x1234)), 1);
    let (_, done) = until_completion(&mut a, &mut b);
    assert_eq!(done, [(1, Status::RetryExcErr)]);
    assert_eq!(b.transport.state(b.qp), Some(QpState::Err));
    assert_eq!(b.transport.counters().errors, 1, "the receive in use");
    assert_eq!(b.transport.counters().flushed, 1, "the other one");
}

#[test]
fn what_unreliable_queue_pairs_lose_is_counted() {
    let (mut a, mut b, _) = Setup { kind: QpType::Uc, ..Setup::default() }.build();
    a.send(Op::Send, 1);
    assert_eq!(settle(&mut a, &mut b, Time(0)), [vec![(1, Status::Success)], vec![]]);
    assert_eq!((a.transport.drops(), b.transport.drops()), (0, 1));
    drop(b.transport);
    a.send(Op::Send, 2);
    assert_eq!([a.turn(Time(0)), a.turn(Time(0))].concat(), [(2, Status::Success)]);
    assert_eq!(a.transport.drops(), 1);
}

#[test]
fn once_buffers_are_registered_others_are_refused() {
    let hub = Hub::<HeapBuf>::new();
    let device = hub.device();
    let arena = Arena::new(4096, Backing::Pages).unwrap();
    device.register_buffers(&arena).unwrap();
    assert_eq!(device.register_buffers(&arena), Err(LoopbackError::Overlap));
    let mut transport = Setup::default().worker(&device);
    let spec = QpSpec { kind: QpType::Rc, caps: QpCaps::default(), srq: None, cq: 0 };
    let init = InitAttr { access: RIGHTS, qkey: 0 };
    let up = BringUp::create(&device, 0, &spec).unwrap().init(init).unwrap();
    let (rtr, rts) = Setup::default().attrs(true, device.gid(), up.qpn());
    let qp = transport.attach(up.rtr(rtr).unwrap().rts(rts).unwrap()).unwrap();
    let pool = HeapPool::new(2, 64);
    let why = transport.post_recv(qp, RecvWr { buf: pool.alloc().unwrap(), cookie: Cookie(0) });
    assert_eq!(why.unwrap_err().why, Refusal::NotRegistered);
    let mut buf = pool.alloc().unwrap();
    buf.append(1).unwrap();
    let why = transport.post_send(qp, SendWr::new(Op::Send, buf, Cookie(0)));
    assert_eq!(why.unwrap_err().why, Refusal::NotRegistered);
}

#[test]
fn a_queue_pair_may_be_its_own_peer() {
    let hub = Hub::<HeapBuf>::new();
    let device = hub.device();
    let mut transport = Setup::default().worker(&device);
    let spec = QpSpec { kind: QpType::Rc, caps: QpCaps::default(), srq: None, cq: 0 };
    let up = BringUp::create(&device, 0, &spec).unwrap().init(InitAttr { access: RIGHTS, qkey: 0 }).unwrap();
    let (mut rtr, rts) = Setup::default().attrs(true, device.gid(), up.qpn());
    rtr.rq_psn = rts.sq_psn;
    let (qpn, qp) = (up.qpn(), transport.attach(up.rtr(rtr).unwrap().rts(rts).unwrap()).unwrap());
    let mut end = End { transport, device, pool: HeapPool::new(4, 64), qp, qpn };
    end.recv(1);
    end.send(Op::Send, 2);
    let mut done = [end.turn(Time(0)), end.turn(Time(0))].concat();
    done.sort_by_key(|(cookie, _)| *cookie);
    assert_eq!(done, [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn set_up_says_what_is_missing() {
    let hub = Hub::<HeapBuf>::new();
    let device = hub.device();
    let spec = QpSpec { kind: QpType::Rc, caps: QpCaps::default(), srq: None, cq: 0 };
    let refused = |spec: &QpSpec| device.create_qp(0, spec).unwrap_err().to_string();
    assert!(refused(&spec).contains("create_worker"));
    let srqs = vec![SrqSpec { depth: 4, sge: 1 }];
    let worker = WorkerSpec { cqs: vec![CqSpec { depth: 4, events: false }], srqs, max_qps: 1 };
    let transport = device.create_worker(0, &worker).unwrap();
    assert_eq!(device.create_worker(0, &worker).unwrap_err(), LoopbackError::WorkerExists(0));
    assert!(refused(&QpSpec { cq: 1, ..spec }).contains("completion queue 1 of worker 0: it has 1"));
    assert!(refused(&QpSpec { srq: Some(SrqId(1)), ..spec }).contains("shared receive queue 1"));
    let caps = QpCaps { send_depth: 0, ..QpCaps::default() };
    assert!(refused(&QpSpec { caps, ..spec }).contains("a send queue of 0"));
    let mut qp = device.create_qp(0, &spec).unwrap();
    let error = device.modify(&mut qp, &Change::Sqd).unwrap_err().to_string();
    assert!(error.contains("cannot go from RESET to SQD"), "{error}");
    let arena = Arena::new(64, Backing::Pages).unwrap();
    assert!(device.register(&arena, Access::REMOTE_WRITE).unwrap_err().to_string().contains("LOCAL_WRITE"));
    drop(transport);
    assert!(refused(&spec).contains("create_worker"));
    let mut again = device.create_worker(0, &worker).unwrap();
    device.modify(&mut qp, &Change::Init(InitAttr { access: RIGHTS, qkey: 0 })).unwrap();
    let qp = again.attach(qp).unwrap_err();
    drop(qp);
    assert_eq!(device.qpn_count(), 0);
}

#[test]
fn numbers_are_not_used_twice_at_once() {
    let hub = Hub::<HeapBuf>::new();
    let (a, b) = (hub.device(), hub.device());
    assert_ne!(a.gid(), b.gid());
    let (_wa, _wb) = (Setup::default().worker(&a), Setup::default().worker(&b));
    let spec = QpSpec { kind: QpType::Rc, caps: QpCaps::default(), srq: None, cq: 0 };
    let qps: Vec<_> = (0..20).map(|i| [&a, &b][i % 2].create_qp(0, &spec).unwrap()).collect();
    let mut numbers: Vec<_> = qps.iter().map(|q| a.qpn(q).value()).collect();
    numbers.dedup();
    assert_eq!((numbers.len(), numbers[0]), (20, 0x11));
}

#[test]
fn a_full_table_gives_the_queue_pair_back() {
    let (mut a, _b, _) = Setup::default().build();
    let spec = QpSpec { kind: QpType::Rc, caps: QpCaps::default(), srq: None, cq: 0 };
    let fresh = || {
        let up = BringUp::create(&a.device, 0, &spec).unwrap();
        up.init(InitAttr { access: RIGHTS, qkey: 0 }).unwrap().pause()
    };
    let second = a.transport.attach(fresh()).unwrap();
    let third = a.transport.attach(fresh()).unwrap_err();
    let numbers = (a.transport.detach(second).unwrap(), third);
    assert_ne!(a.device.qpn(&numbers.0), a.device.qpn(&numbers.1));
    let again = a.transport.attach(numbers.1).unwrap();
    assert_eq!((again.slot, again.generation), (second.slot, second.generation + 1));
}
