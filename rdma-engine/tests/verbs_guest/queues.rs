//! Completion queues: priority, events, and overflow.
#![allow(unsafe_code)] // reason: borrows a descriptor by its number.

use crate::pair::{Pair, plain, spec};
use rdma_engine::buf::Pool;
use rdma_engine::qp::{QpSpec, QpState};
use rdma_engine::transport::{CqSpec, SrqSpec, Transport, WorkerSpec};
use rdma_engine::types::QpType;
use rdma_engine::verbs::AsyncEvent;
use rdma_engine::wr::{Cookie, Op, RecvWr, SrqId, Status};

fn cqs(events: &[bool]) -> WorkerSpec {
    WorkerSpec {
        cqs: events.iter().map(|events| CqSpec { depth: 512, events: *events }).collect(),
        ..plain()
    }
}

#[test]
fn the_first_queue_is_emptied_first() {
    let Some(mut p) = Pair::open_with("the_first_queue_is_emptied_first", &plain(), &cqs(&[false; 2])) else {
        return;
    };
    let low = QpSpec { cq: 1, ..spec(QpType::Rc) };
    let (low_a, low_b) = p.connect(&spec(QpType::Rc), &low);
    let (high_a, high_b) = p.connect(&spec(QpType::Rc), &spec(QpType::Rc));
    p.b.recvs(low_b, 0..50);
    p.b.recvs(high_b, 0..50);
    p.b.flush();
    for qp in [low_a, high_a] {
        (0..50).for_each(|n| p.a.send(qp, Op::Send, b"x", n));
        p.a.flush();
        // An acknowledged message has made its completion at the other end.
        p.a.take(50);
    }
    let first = p.b.poll();
    assert_eq!(first.len(), 64, "a full poll");
    assert!(first[..50].iter().all(|c| c.qp == high_b) && first[50..].iter().all(|c| c.qp == low_b));
    assert_eq!(p.b.take(36).len(), 36);
    drop(first);
    p.close();
}

/// Waits for `fd` to turn readable.
fn wait_readable(fd: i32, timeout_ms: i32) -> bool {
    // SAFETY: the transport that owns it lives.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
    let timeout = rustix::event::Timespec {
        tv_sec: (timeout_ms / 1000).into(),
        tv_nsec: i64::from(timeout_ms % 1000) * 1_000_000,
    };
    rustix::event::poll(&mut fds, Some(&timeout)).unwrap() > 0
}

#[test]
fn a_worker_sleeps_and_is_woken() {
    let Some(mut p) = Pair::open_with("a_worker_sleeps_and_is_woken", &plain(), &cqs(&[true; 2])) else {
        return;
    };
    let low = QpSpec { cq: 1, ..spec(QpType::Rc) };
    let (low_a, low_b) = p.connect(&spec(QpType::Rc), &low);
    let (high_a, high_b) = p.connect(&spec(QpType::Rc), &spec(QpType::Rc));
    let fd = p.b.transport.event_fd().expect("a channel");
    p.b.recvs(low_b, 0..10);
    p.b.recvs(high_b, 0..10);
    p.b.flush();
    assert!(p.b.transport.arm(), "nothing there: safe to sleep");
    assert!(!wait_readable(fd, 20), "nothing wakes");
    for (n, qp) in [high_a, low_a, low_a, high_a].into_iter().enumerate() {
        p.a.send(qp, Op::Send, &[n as u8], 0);
        p.a.flush();
        assert!(wait_readable(fd, 30_000), "message {n} wakes");
        p.b.transport.acknowledge();
        assert!(!wait_readable(fd, 0), "acknowledged");
        assert_eq!(p.b.one().buf.to_vec(), [n as u8]);
        p.a.one();
        assert!(p.b.transport.arm());
    }
    // A completion that is there already forbids sleep, and is not lost.
    p.a.send(high_a, Op::Send, b"early", 0);
    p.a.flush();
    p.a.one();
    assert!(!p.b.transport.arm());
    assert_eq!(p.b.one().buf.to_vec(), b"early");
    p.b.transport.acknowledge();
    p.close();
}

#[test]
fn a_worker_with_a_deaf_queue_does_not_sleep() {
    let Some(mut p) = Pair::open_with("a_worker_with_a_deaf_queue", &cqs(&[true, false]), &plain()) else {
        return;
    };
    assert!(!p.a.transport.arm(), "completions of the second queue would wake nobody");
    assert!(!p.b.transport.arm() && p.b.transport.event_fd().is_none());
    p.close();
}

/// A receiving end whose completion queue 1 is much too small.
fn too_small(srqs: Vec<SrqSpec>) -> WorkerSpec {
    let cq = |depth| CqSpec { depth, events: false };
    WorkerSpec { cqs: vec![cq(512), cq(4)], srqs, max_qps: 16 }
}

#[test]
fn an_overflowed_queue_is_rebuilt_and_nothing_is_lost() {
    let Some(mut p) = Pair::open_with("an_overflowed_queue_is_rebuilt", &plain(), &too_small(vec![])) else {
        return;
    };
    let small = QpSpec { cq: 1, ..spec(QpType::Rc) };
    let (healthy_a, healthy_b) = p.rc();
    let (first_a, first_b) = p.connect(&spec(QpType::Rc), &small);
    let (_, second_b) = p.connect(&spec(QpType::Rc), &small);
    p.b.recvs(first_b, 0..40);
    p.b.recvs(second_b, 0..3);
    p.b.flush();
    (0..40).for_each(|n| p.a.send(first_a, Op::Send, b"too many", n));
    p.a.flush();
    let event = p.b.event();
    let AsyncEvent::CqOverflow { cq } = event else { panic!("{event}") };
    assert_eq!((cq.worker, cq.index, cq.domain), (0, 1, p.b.device.domain()));
    assert!(event.to_string().starts_with("completion queue 1 of worker 0 overflowed"), "{event}");
    let mut lost = p.b.transport.rebuild_cq(cq.index as u8).unwrap();
    lost.qps.sort_by_key(|id| id.slot);
    assert_eq!((lost.qps, lost.srqs), (vec![first_b, second_b], vec![]));
    let flushed = p.b.take(43);
    assert!(flushed.iter().all(|c| c.status == Status::WrFlushErr));
    assert_eq!(p.b.transport.state(first_b), Some(QpState::Err));
    drop(flushed);
    p.b.destroy(first_b);
    p.b.destroy(second_b);
    // What was on the other queue never noticed, and the new one works.
    let (again_a, again_b) = p.connect(&spec(QpType::Rc), &small);
    for (a, b) in [(healthy_a, healthy_b), (again_a, again_b)] {
        p.b.recv(b, 7);
        p.b.flush();
        p.a.send(a, Op::Send, b"well", 8);
        p.a.flush();
        let got = p.b.one();
        assert_eq!((got.qp, got.buf.to_vec()), (b, b"well".to_vec()));
    }
    p.close();
}

#[test]
fn an_overflow_takes_the_shared_queue_with_it() {
    let srq = SrqSpec { depth: 64, sge: 1 };
    let Some(mut p) = Pair::open_with("an_overflow_takes_the_shared_queue", &plain(), &too_small(vec![srq]))
    else {
        return;
    };
    let shared = |cq| QpSpec { cq, srq: Some(SrqId(0)), ..spec(QpType::Rc) };
    let (small_a, small_b) = p.connect(&spec(QpType::Rc), &shared(1));
    let (_, other_b) = p.connect(&spec(QpType::Rc), &shared(0));
    let post = |p: &mut Pair| {
        let wr = RecvWr { buf: p.b.pool.alloc().unwrap(), cookie: Cookie(1) };
        p.b.transport.post_srq_recv(SrqId(0), wr).unwrap();
    };
    (0..50).for_each(|_| post(&mut p));
    p.b.flush();
    (0..40).for_each(|n| p.a.send(small_a, Op::Send, b"too many", n));
    p.a.flush();
    assert!(matches!(p.b.event(), AsyncEvent::CqOverflow { .. }));
    let lost = p.b.transport.rebuild_cq(1).unwrap();
    assert!(lost.qps.contains(&small_b) && lost.qps.contains(&other_b), "{lost:?}");
    assert_eq!(lost.srqs, [SrqId(0)]);
    p.b.destroy(small_b);
    p.b.destroy(other_b);
    assert_eq!(p.b.pool.in_use(), 0, "the buffers of the old shared queue are home");
    let (again_a, again_b) = p.connect(&spec(QpType::Rc), &shared(1));
    post(&mut p);
    p.b.flush();
    p.a.send(again_a, Op::Send, b"again", 0);
    p.a.flush();
    let got = p.b.one();
    assert_eq!((got.qp, got.buf.to_vec()), (again_b, b"again".to_vec()));
    drop(got);
    p.close();
}

#[test]
fn a_queue_pair_made_before_the_rebuild_is_not_attached() {
    let Some(mut p) = Pair::open_with("a_queue_pair_made_before", &plain(), &too_small(vec![])) else {
        return;
    };
    let early = p.b.init(&QpSpec { cq: 1, ..spec(QpType::Rc) });
    p.b.transport.rebuild_cq(1).unwrap();
    let early = p.b.transport.attach(early).unwrap_err();
    assert_eq!(early.state(), QpState::Init);
    assert!(p.b.transport.rebuild_cq(9).is_err());
    drop(early);
    p.close();
}
