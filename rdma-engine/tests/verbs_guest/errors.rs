//! What goes wrong: dead peers, wrong keys, and queue pairs in ERR.

use crate::pair::{Pair, all_access, rts, skipped, spec};
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::mem::Access;
use rdma_engine::qp::{QpState, RtsAttr};
use rdma_engine::transport::Transport;
use rdma_engine::types::{QpType, Rkey};
use rdma_engine::wr::{Cookie, Op, RecvWr, Refusal, RemoteSlice, RemoteWord, SendWr, Status};

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

#[test]
fn a_peer_without_receives_exhausts_rnr_retries() {
    let Some(mut p) = Pair::open("a_peer_without_receives") else { return };
    let impatient = RtsAttr { rnr_retry: 1, ..rts() };
    let (qa, _) = p.connect_with(&spec(QpType::Rc), &spec(QpType::Rc), impatient);
    p.a.send(qa, Op::Send, b"nobody waits for this", 0);
    p.a.send(qa, Op::Send, b"nor for this", 1);
    p.a.flush();
    let got = p.a.take(2);
    assert_eq!([got[0].status, got[1].status], [Status::RnrRetryExcErr, Status::WrFlushErr]);
    drop(got);
    p.close();
}

#[test]
fn reads_are_bounded_by_what_was_agreed() {
    let Some(mut p) = Pair::open("reads_are_bounded") else { return };
    let region = p.b.region(4096, all_access());
    let op = Op::Read(region.slice(0, 256).unwrap());
    let none = RtsAttr { max_rd_atomic: 0, ..rts() };
    let (deaf, _) = p.connect_with(&spec(QpType::Rc), &spec(QpType::Rc), none);
    let wr = SendWr::new(op, p.a.pool.alloc().unwrap(), Cookie(0));
    assert_eq!(p.a.transport.post_send(deaf, wr).unwrap_err().why, Refusal::Unsupported);
    // Far more than the 4 that may be under way at once: the device holds them back.
    let (qa, _) = p.rc();
    (0..64).for_each(|n| p.a.fetch(qa, op, n));
    p.a.flush();
    assert!(p.a.take(64).iter().all(|c| c.status == Status::Success && c.buf.len() == 256));
    p.close();
}

#[test]
fn destinations_of_reads_are_checked() {
    let Some(mut p) = Pair::open("destinations_of_reads_are_checked") else { return };
    let (qa, qb) = p.rc();
    let region = p.b.region(16384, all_access());
    let read = |len| Op::Read(region.slice(0, len).unwrap());
    let try_read = |p: &mut Pair, len, buf| {
        p.a.transport.post_send(qa, SendWr::new(read(len), buf, Cookie(0))).map_err(|r| r.why)
    };
    let (small, full) = (p.a.pool.alloc().unwrap(), p.a.pool.with(b"not empty"));
    assert_eq!(try_read(&mut p, 9000, small), Err(Refusal::NoRoom));
    let shared = p.a.pool.slice(&full, 0, 0).unwrap();
    assert_eq!(try_read(&mut p, 8, shared), Err(Refusal::NoRoom));
    assert_eq!(try_read(&mut p, 8, full), Err(Refusal::NoRoom));
    let wr = RecvWr { buf: p.b.pool.with(b"not empty"), cookie: Cookie(0) };
    assert_eq!(p.b.transport.post_recv(qb, wr).unwrap_err().why, Refusal::NoRoom);
    let inv = SendWr::new(Op::SendInv(region.rkey()), p.a.pool.with(b"x"), Cookie(0));
    assert_eq!(p.a.transport.post_send(qa, inv).unwrap_err().why, Refusal::Unsupported);
    p.close();
}

#[test]
fn a_request_the_device_refuses_fails_the_queue_pair_and_comes_back() {
    let Some(mut p) = Pair::open("a_request_the_device_refuses") else { return };
    if !p.a.device.name().starts_with("rxe") {
        return skipped("a_request_the_device_refuses", "only rxe is known to refuse a misaligned atomic");
    }
    for signal_every in [1, 8] {
        let mut s = spec(QpType::Rc);
        s.caps.signal_every = signal_every;
        let (qa, qb) = p.connect(&s, &spec(QpType::Rc));
        let region = p.b.region(64, all_access());
        p.b.recvs(qb, 0..2);
        p.b.flush();
        p.a.recv(qa, 9);
        p.a.send(qa, Op::Send, b"taken", 0);
        let aligned = region.word(0).unwrap();
        let word = RemoteWord { addr: aligned.addr + 4, ..aligned };
        p.a.fetch(qa, Op::FetchAdd { word, add: 1 }, 1);
        p.a.send(qa, Op::Send, b"behind", 2);
        p.a.flush();
        let mut got = p.a.take(4);
        got.sort_by_key(|c| c.cookie.0);
        let statuses: Vec<_> = got.iter().map(|c| c.status).collect();
        // Whether the first one got through is open; that it is answered for is not.
        assert!(matches!(statuses[0], Status::Success | Status::WrFlushErr), "{statuses:?}");
        assert_eq!(statuses[1..], [Status::LocQpOpErr, Status::WrFlushErr, Status::WrFlushErr]);
        drop(got);
        p.a.destroy(qa);
        p.b.fail_and_destroy(qb);
    }
    p.close();
}

#[test]
fn an_evicted_queue_pair_gives_everything_back() {
    let Some(mut p) = Pair::open("an_evicted_queue_pair") else { return };
    let (qa, qb) = p.rc();
    p.b.recvs(qb, 0..10);
    p.b.flush();
    p.b.recv(qb, 10);
    p.b.send(qb, Op::Send, b"never sent", 11);
    assert!(p.b.transport.evict(qb));
    let got = p.b.take(12);
    assert!(got.iter().all(|c| c.status == Status::WrFlushErr));
    drop(got);
    p.b.destroy(qb);
    assert!(!p.b.transport.evict(qb), "gone");
    let counters = p.b.transport.counters();
    assert_eq!((counters.flushed, counters.leaked), (12, 0));
    p.a.destroy(qa);
    p.close();
}

#[test]
fn a_transport_dropped_in_full_flight_sends_every_buffer_home() {
    let Some(mut p) = Pair::open("a_transport_dropped_in_full_flight") else { return };
    for _ in 0..5 {
        let (qa, qb) = p.rc();
        p.b.recvs(qb, 0..8);
        p.b.flush();
        p.b.recv(qb, 8);
        (0..8).for_each(|n| p.a.send(qa, Op::Send, &[0; 8000], n));
        p.a.flush();
        p.a.send(qa, Op::Send, b"not flushed", 9);
    }
    p.close();
}
