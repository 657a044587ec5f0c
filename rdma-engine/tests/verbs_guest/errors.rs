//! What goes wrong: dead peers, wrong keys, and queue pairs in ERR.

use crate::pair::{Pair, spec};
use rdma_engine::mem::Access;
use rdma_engine::qp::QpState;
use rdma_engine::transport::Transport;
use rdma_engine::types::{QpType, Rkey};
use rdma_engine::wr::{Cookie, Op, Refusal, RemoteSlice, SendWr, Status};

#[test]
fn a_dead_peer_costs_retries_then_everything_flushes_in_order() {
    let Some(mut p) = Pair::open("a_dead_peer") else { return };
    let mut sparing = spec(QpType::Rc);
    sparing.caps.signal_every = 4;
    let (qa, qb) = p.connect(&sparing, &spec(QpType::Rc));
    p.a.recvs(qa, 0..5);
    p.a.flush();
    assert!(p.b.fail_and_destroy(qb).is_empty());
    (0..6).for_each(|n| p.a.send(qa, Op::Send, b"is anybody there", n));
    p.a.flush();
    let got = p.a.take(11);
    let (sent, received): (Vec<_>, Vec<_>) =
        got.iter().partition(|c| matches!(c.done, rdma_engine::wr::Done::Sent(_)));
    let statuses: Vec<_> = sent.iter().map(|c| c.status).collect();
    assert_eq!(statuses[0], Status::RetryExcErr);
    assert!(statuses[1..].iter().all(|s| *s == Status::WrFlushErr), "{statuses:?}");
    assert!(received.iter().all(|c| c.status == Status::WrFlushErr));
    assert!(sent.iter().enumerate().all(|(n, c)| c.cookie.0 == n as u64), "in order");
    assert!(received.iter().enumerate().all(|(n, c)| c.cookie.0 == n as u64), "in order");
    assert_eq!(p.a.transport.state(qa), Some(QpState::Err));
    drop((sent, received));
    drop(got);
    // In ERR requests are still taken, and flushed.
    p.a.recv(qa, 7);
    p.a.send(qa, Op::Send, b"late", 8);
    p.a.flush();
    let late = p.a.take(2);
    assert!(late.iter().all(|c| c.status == Status::WrFlushErr));
    drop(late);
    p.a.destroy(qa);
    assert_eq!(p.a.transport.state(qa), None);
    let wr = SendWr::new(Op::Send, p.a.pool.with(b"gone"), Cookie(0));
    assert_eq!(p.a.transport.post_send(qa, wr).unwrap_err().why, Refusal::Stale);
    p.close();
}

#[test]
fn a_wrong_key_is_a_remote_access_error_and_harms_no_other_queue_pair() {
    let Some(mut p) = Pair::open("a_wrong_key") else { return };
    let (qa, qb) = p.rc();
    let (other_a, other_b) = p.rc();
    let region = p.b.region(4096, Access::REMOTE_READ);
    let good = region.slice(0, 64).unwrap();
    let bad = RemoteSlice { rkey: Rkey(good.rkey.0 ^ 1), ..good };
    p.b.recvs(qb, 0..2);
    p.b.recv(other_b, 9);
    p.b.flush();
    p.a.fetch(qa, Op::Read(good), 0);
    p.a.fetch(qa, Op::Read(bad), 1);
    p.a.fetch(qa, Op::Read(good), 2);
    p.a.send(other_a, Op::Send, b"still here", 3);
    p.a.flush();
    let got = p.a.take(4);
    let status = |cookie| got.iter().find(|c| c.cookie == Cookie(cookie)).unwrap().status;
    assert_eq!(status(0), Status::Success);
    assert_eq!(status(1), Status::RemAccessErr);
    assert_eq!(status(2), Status::WrFlushErr);
    assert_eq!(status(3), Status::Success);
    // The peer's queue pair failed too; its receives come back.
    let there = p.b.take(3);
    assert_eq!(there.iter().filter(|c| c.status == Status::WrFlushErr && c.qp == qb).count(), 2);
    assert!(there.iter().any(|c| c.qp == other_b && c.buf.to_vec() == b"still here"));
    drop((got, there));
    p.close();
}
