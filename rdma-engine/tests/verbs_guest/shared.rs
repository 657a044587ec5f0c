//! Shared receive queues.

use crate::pair::{End, Pair, plain, spec};
use rdma_engine::buf::Pool;
use rdma_engine::qp::{QpSpec, QpState};
use rdma_engine::transport::{Device, SrqSpec, Transport, WorkerSpec};
use rdma_engine::types::QpType;
use rdma_engine::verbs::AsyncEvent;
use rdma_engine::wr::{Cookie, Op, RecvWr, Refusal, SrqId, Status};

const SRQ: SrqId = SrqId(0);

fn open(test: &str) -> Option<Pair> {
    let shared = WorkerSpec { srqs: vec![SrqSpec { depth: 8, sge: 4 }], ..plain() };
    Pair::open_with(test, &plain(), &shared)
}

fn on_srq() -> QpSpec {
    QpSpec { srq: Some(SRQ), ..spec(QpType::Rc) }
}

fn post(p: &mut Pair, cookie: u64) -> Result<(), Refusal> {
    let wr = RecvWr { buf: p.b.pool.alloc().unwrap(), cookie: Cookie(cookie) };
    p.b.transport.post_srq_recv(SRQ, wr).map_err(|r| r.why)
}

#[test]
fn two_queue_pairs_share_receives() {
    let Some(mut p) = open("two_queue_pairs_share_receives") else { return };
    let (one_a, one_b) = p.connect(&spec(QpType::Rc), &on_srq());
    let (two_a, two_b) = p.connect(&spec(QpType::Rc), &on_srq());
    (0..8).for_each(|n| post(&mut p, n).unwrap());
    assert_eq!(post(&mut p, 8), Err(Refusal::Full));
    assert_eq!(p.b.transport.recv_room(one_b), 0);
    p.b.flush();
    for n in 0..4 {
        p.a.send(one_a, Op::Send, b"to one", n);
        p.a.send(two_a, Op::Send, b"to two", n);
    }
    p.a.flush();
    p.a.take(8);
    let mut got = p.b.take(8);
    for (qp, bytes) in [(one_b, b"to one"), (two_b, b"to two")] {
        let mine: Vec<_> = got.iter().filter(|c| c.qp == qp).collect();
        assert_eq!(mine.len(), 4);
        assert!(mine.iter().all(|c| c.status == Status::Success && c.buf.to_vec() == bytes));
    }
    got.sort_by_key(|c| c.cookie.0);
    assert!(got.iter().enumerate().all(|(n, c)| c.cookie.0 == n as u64), "each receive once");
    drop(got);
    (0..8).for_each(|n| post(&mut p, n).unwrap());
    p.b.flush();
    // One queue pair fails; the other goes on with the receives that are left.
    p.b.fail_and_destroy(one_b);
    p.a.send(two_a, Op::Send, b"still", 9);
    p.a.flush();
    assert_eq!(p.a.one().status, Status::Success);
    assert_eq!(p.b.one().buf.to_vec(), b"still");
    assert_eq!(p.b.transport.state(two_b), Some(QpState::Rts));
    p.close();
}

#[test]
fn a_low_shared_queue_tells_the_control_thread_once() {
    let Some(mut p) = open("a_low_shared_queue") else { return };
    let (qa, _) = p.connect(&spec(QpType::Rc), &on_srq());
    (0..8).for_each(|n| post(&mut p, n).unwrap());
    p.b.flush();
    p.b.device.arm_srq_limit(0, SRQ, 6).unwrap();
    assert_eq!(p.b.device.poll_async(), None);
    for n in 0..4 {
        p.a.send(qa, Op::Send, b"one less", n);
    }
    p.a.flush();
    p.a.take(4);
    p.b.take(4);
    let event = p.b.event();
    assert!(matches!(event, AsyncEvent::SrqLimit { srq } if srq.index == 0 && srq.worker == 0), "{event:?}");
    assert_eq!(event.to_string(), "shared receive queue 0 of worker 0 runs low");
    assert_eq!(p.b.device.poll_async(), None, "once");
    p.close();
}

#[test]
fn shared_receives_go_home_with_their_worker() {
    let Some(mut p) = open("shared_receives_go_home_with_their_worker") else { return };
    p.connect(&spec(QpType::Rc), &on_srq());
    let detached = p.b.init(&on_srq());
    (0..8).for_each(|n| post(&mut p, n).unwrap());
    p.b.flush();
    let Pair { a, b } = p;
    let End { transport, device, pool, .. } = b;
    drop(transport);
    assert_eq!(pool.in_use(), 8, "a queue pair still refers to the shared queue");
    drop(detached);
    assert!(pool.is_full(), "the device lives, the worker and its queue pairs are gone");
    // The worker's place is free for another one.
    drop(device.create_worker(0, &plain()).unwrap());
    drop((device, a));
}
