//! Order: of completions, of work behind a fence, of READs at their limit.

use super::bytes::{contents, pattern};
use super::case::Case;
use super::session::{A, B, Link, Session, all_rights};
use super::{Rig, filled_chain};
use crate::buf::{Buf, Pool};
use crate::transport::Transport;
use crate::types::QpType;
use crate::wr::{Op, OpKind, SendWr, Status};

pub(super) fn cases<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::always("rc_completes_in_order", mixed),
        Case::always("rc_selective_signalling", |r| signalling(r, QpType::Rc)),
        Case::unless("uc_selective_signalling", super::connected::needs_uc, |r| signalling(r, QpType::Uc)),
        Case::always("rc_last_of_a_flush_completes", last_of_a_flush),
        Case::always("rc_fence", fence),
        Case::always("rc_read_limit", read_limit),
        Case::always("rc_nothing_moves_before_flush", before_flush),
    ]
}

/// Operations of all kinds, posted at once, complete in the order they were posted.
fn mixed<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let pair = s.connect(&link);
    let region = s.region(B, 1024, all_rights());
    let at = |i: usize| region.slice(i * 8, 8).expect("inside");
    let word = region.word(512).expect("aligned");
    let mut sent = vec![];
    let mut received = vec![];
    for i in 0..60 {
        let bytes = pattern(i as u64, 8);
        let (c, kind) = match i % 6 {
            0 | 3 => {
                received.push((s.recv(B, pair.qp[B], 8), Status::Success));
                (s.send(A, pair.qp[A], Op::Send, &bytes), OpKind::Send)
            }
            1 => (s.send(A, pair.qp[A], Op::Write(at(i)), &bytes), OpKind::Write),
            2 => (s.fetch(A, pair.qp[A], Op::Read(at(i - 1))), OpKind::Read),
            4 => (s.fetch(A, pair.qp[A], Op::FetchAdd { word, add: 1 }), OpKind::FetchAdd),
            _ => {
                received.push((s.recv(B, pair.qp[B], 8), Status::Success));
                (s.send(A, pair.qp[A], Op::WriteImm(at(i), 5), &bytes), OpKind::Write)
            }
        };
        sent.push((i, c, kind));
    }
    for ((i, cookie, kind), c) in sent.into_iter().zip(s.wait(A, 60)) {
        assert_eq!((c.cookie, c.done, c.status), (cookie, crate::wr::Done::Sent(kind), Status::Success));
        match i % 6 {
            2 => assert_eq!(contents(&c.buf), pattern(i as u64 - 1, 8), "a READ sees the WRITE before it"),
            4 => assert_eq!(contents(&c.buf), (i as u64 / 6).to_ne_bytes()),
            _ => {}
        }
    }
    s.wait_all(B, &received);
    s.tear_down(&pair);
    s.finish();
}

/// 100 requests of which every 16th is signalled on the device: all of them complete, in order.
fn signalling<R: Rig>(rig: &mut R, kind: QpType) {
    let mut s = Session::open(rig);
    let mut link = Link::new(kind, &s.features);
    (link.caps.signal_every, link.caps.send_depth, link.caps.recv_depth) = (16, 128, 128);
    let pair = s.connect(&link);
    let receives: Vec<_> = (0..100).map(|_| (s.recv(B, pair.qp[B], 8), Status::Success)).collect();
    let mut sends = vec![];
    for i in 0..100u8 {
        sends.push((s.send(A, pair.qp[A], Op::Send, &[i; 5]), Status::Success));
        if i == 40 {
            s.step();
        }
    }
    s.wait_all(B, &receives);
    s.wait_all(A, &sends);
    assert_eq!(s.ends[A].transport.in_flight(pair.qp[A]), 0);
    s.tear_down(&pair);
    s.finish();
}

/// The last request of a flush never waits for a later one to be signalled.
fn last_of_a_flush<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let mut link = Link::new(QpType::Rc, &s.features);
    link.caps.signal_every = 64;
    let pair = s.connect(&link);
    for n in [1, 2, 3, 5] {
        let receives: Vec<_> = (0..n).map(|_| (s.recv(B, pair.qp[B], 8), Status::Success)).collect();
        let sends: Vec<_> =
            (0..n).map(|_| (s.send(A, pair.qp[A], Op::Send, b"x"), Status::Success)).collect();
        s.wait_all(B, &receives);
        s.wait_all(A, &sends);
    }
    s.tear_down(&pair);
    s.finish();
}

/// A fenced request comes after the READ before it: the READ never sees what the request writes.
fn fence<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let pair = s.connect(&link);
    let len = s.features.max_message.min(5000);
    let region = s.region(B, len, all_rights());
    let slice = region.slice(0, len as u32).expect("inside");
    for round in 0..8u8 {
        let r = s.fetch(A, pair.qp[A], Op::Read(slice));
        let buf = filled_chain(&s.ends[A].pool, &vec![round + 1; len], 1);
        let w = s.cookie();
        s.post(A, pair.qp[A], SendWr { fence: true, ..SendWr::new(Op::Write(slice), buf, w) });
        let got = s.wait_ok(A, r);
        assert!(contents(&got.buf).iter().all(|b| *b == round), "round {round}");
        s.wait_ok(A, w);
    }
    s.tear_down(&pair);
    s.finish();
}

/// More READs and atomics than may be outstanding: the rest wait their turn.
fn read_limit<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let mut link = Link::new(QpType::Rc, &s.features);
    (link.max_rd_atomic, link.max_dest_rd_atomic) = ([1; 2], [1; 2]);
    let pair = s.connect(&link);
    let len = s.features.max_message.min(3 * s.features.pmtu.bytes() as usize);
    let region = s.region(B, 2 * len + 8, all_rights());
    let memory = pattern(4, len);
    region.window().copy_in(8, &memory);
    let word = region.word(0).expect("aligned");
    for _ in 0..2 {
        let reads: Vec<_> = (0..10)
            .map(|i| (i, s.fetch(A, pair.qp[A], Op::Read(region.slice(8 + i, (len - i) as u32).unwrap()))))
            .collect();
        let adds: Vec<_> = (0..5).map(|_| s.fetch(A, pair.qp[A], Op::FetchAdd { word, add: 1 })).collect();
        for (i, c) in reads {
            assert_eq!(contents(&s.wait_ok(A, c).buf), memory[i..]);
        }
        adds.into_iter().for_each(|c| drop(s.wait_ok(A, c)));
    }
    let mut count = [0; 8];
    region.window().copy_out(0, &mut count);
    assert_eq!(u64::from_ne_bytes(count), 10);
    s.tear_down(&pair);
    s.finish();
}

/// Posting alone sets nothing off.
fn before_flush<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let pair = s.connect(&link);
    s.recv(B, pair.qp[B], 8);
    s.step();
    let buf = filled_chain(&s.ends[A].pool, b"posted", 1);
    assert_eq!((buf.len(), s.ends[A].pool.available() < s.ends[A].pool.capacity()), (6, true));
    let c = s.cookie();
    s.post(A, pair.qp[A], SendWr::new(Op::Send, buf, c));
    s.linger(Session::drift);
    s.nothing_came();
    assert_eq!(s.ends[A].transport.in_flight(pair.qp[A]), 1);
    s.wait(B, 1);
    s.wait_ok(A, c);
    s.tear_down(&pair);
    s.finish();
}
