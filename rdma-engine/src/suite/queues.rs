//! Queues: full ones, shared ones, several on one completion queue, priorities.

use super::bytes::{contents, filled_chain, pattern};
use super::case::Case;
use super::session::{A, B, Link, Session, all_rights};
use super::{Features, Rig};
use crate::buf::Pool;
use crate::transport::{CqSpec, SrqSpec, Transport, WorkerSpec};
use crate::types::QpType;
use crate::wr::{Op, RecvWr, Refusal, SendWr, SrqId, Status};

pub(super) fn cases<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::unless("rc_full_queues_give_the_request_back", needs_exact_depth, full),
        Case::always("rc_room_comes_back_with_completions", room),
        Case::unless("rc_shared_receives", needs_srq, shared_receives),
        Case::unless("rc_shared_receives_outlive_a_queue_pair", needs_srq, shared_outlive),
        Case::always("rc_two_queue_pairs_on_one_cq", two_on_one),
        Case::always("rc_cq_priority", priority),
    ]
}

fn needs_exact_depth(f: &Features) -> Option<&'static str> {
    (!f.exact_depth).then_some("queues are deeper than asked for")
}

pub(super) fn needs_srq(f: &Features) -> Option<&'static str> {
    (!f.srq).then_some("no shared receive queues")
}

/// A queue takes as many requests as it was made for; the next one comes back intact, and nothing is lost.
fn full<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let mut link = Link::new(QpType::Rc, &s.features);
    (link.caps.send_depth, link.caps.recv_depth) = (8, 8);
    let pair = s.connect(&link);
    for round in 0..3u8 {
        let receives: Vec<_> = (0..8).map(|_| (s.recv(B, pair.qp[B], 16), Status::Success)).collect();
        let wr = RecvWr { buf: s.room_for(B, 16), cookie: s.cookie() };
        let (cookie, refused) = (wr.cookie, s.ends[B].transport.post_recv(pair.qp[B], wr).unwrap_err());
        assert_eq!((refused.why, refused.wr.cookie), (Refusal::Full, cookie));
        drop(refused);
        let sends: Vec<_> =
            (0..8).map(|i| (s.send(A, pair.qp[A], Op::Send, &[round, i]), Status::Success)).collect();
        assert_eq!(
            (s.ends[A].transport.send_room(pair.qp[A]), s.ends[A].transport.in_flight(pair.qp[A])),
            (0, 8)
        );
        let buf = filled_chain(&s.ends[A].pool, b"one too many", 1);
        let wr = SendWr::new(Op::SendImm(9), buf, s.cookie());
        let (cookie, refused) = (wr.cookie, s.ends[A].transport.post_send(pair.qp[A], wr).unwrap_err());
        let back = (refused.why, refused.wr.op, refused.wr.cookie);
        assert_eq!(back, (Refusal::Full, Op::SendImm(9), cookie));
        assert_eq!(contents(&refused.wr.buf), b"one too many");
        s.wait_all(B, &receives);
        s.wait_all(A, &sends);
    }
    s.tear_down(&pair);
    s.finish();
}

/// The room of both queues goes down with posts and up with completions.
fn room<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let pair = s.connect(&link);
    let rooms = |s: &Session<'_, R>| {
        let (a, b) = (&s.ends[A].transport, &s.ends[B].transport);
        (a.send_room(pair.qp[A]), b.recv_room(pair.qp[B]), a.in_flight(pair.qp[A]), b.in_flight(pair.qp[B]))
    };
    let (sends, recvs, ..) = rooms(&s);
    assert!(sends >= 64 && recvs >= 64, "room for {sends} sends and {recvs} receives of 64");
    let r = s.recv(B, pair.qp[B], 16);
    let c = s.send(A, pair.qp[A], Op::Send, b"x");
    assert_eq!(rooms(&s), (sends - 1, recvs - 1, 1, 1));
    s.wait_ok(B, r);
    s.wait_ok(A, c);
    assert_eq!(rooms(&s), (sends, recvs, 0, 0));
    s.tear_down(&pair);
    s.finish();
}

pub(super) fn shared_worker() -> WorkerSpec {
    WorkerSpec {
        cqs: vec![CqSpec { depth: 1024, events: false }],
        srqs: vec![SrqSpec { depth: 32, sge: 16 }],
        max_qps: 8,
    }
}

/// Two queue pairs take their receives from one queue; each completion names its queue pair.
fn shared_receives<R: Rig>(rig: &mut R) {
    let mut s = Session::open_with(rig, &shared_worker());
    let mut link = Link::new(QpType::Rc, &s.features);
    link.srq[B] = Some(SrqId(0));
    let pairs = [s.connect(&link), s.connect(&link)];
    for round in 0..4u64 {
        let mut posted: Vec<_> = (0..20).map(|_| s.recv_shared(B, SrqId(0), 64)).collect();
        let mut wanted = [vec![], vec![]];
        let mut sends = vec![];
        for i in 0..20u64 {
            let k = (i * i + round) as usize % 2;
            let bytes = pattern(100 * round + i, 30 + i as usize);
            sends.push((s.send(A, pairs[k].qp[A], Op::SendImm(i as u32), &bytes), k));
            wanted[k].push(bytes);
        }
        let mut seen = [0, 0];
        for c in s.wait(B, 20) {
            assert_eq!(c.status, Status::Success);
            let k = pairs.iter().position(|p| p.qp[B] == c.qp).expect("one of the two");
            assert_eq!(contents(&c.buf), wanted[k][seen[k]], "message {} of pair {k}", seen[k]);
            seen[k] += 1;
            let at = posted.iter().position(|p| *p == c.cookie).expect("posted, and completed once");
            posted.swap_remove(at);
        }
        assert_eq!((seen[0] + seen[1], posted.len()), (20, 0));
        let done = s.wait(A, 20);
        for (k, pair) in pairs.iter().enumerate() {
            let want: Vec<_> = sends.iter().filter(|(_, of)| *of == k).map(|(c, _)| *c).collect();
            let got: Vec<_> = done.iter().filter(|c| c.qp == pair.qp[A]).map(|c| c.cookie).collect();
            assert_eq!(got, want);
        }
    }
    pairs.iter().for_each(|p| s.tear_down(p));
    s.finish();
}

/// A queue pair that fails leaves the shared receives to the others.
fn shared_outlive<R: Rig>(rig: &mut R) {
    let mut s = Session::open_with(rig, &shared_worker());
    let mut link = Link::new(QpType::Rc, &s.features);
    link.srq[B] = Some(SrqId(0));
    let pairs = [s.connect(&link), s.connect(&link)];
    let posted: Vec<_> = (0..4).map(|_| s.recv_shared(B, SrqId(0), 64)).collect();
    s.tear_down(&pairs[0]);
    s.quiet();
    for i in 0..4u8 {
        let c = s.send(A, pairs[1].qp[A], Op::Send, &[i; 9]);
        let got = s.wait(B, 1).pop().expect("one");
        assert_eq!((got.qp, got.status), (pairs[1].qp[B], Status::Success));
        assert!(posted.contains(&got.cookie));
        assert_eq!(contents(&got.buf), [i; 9]);
        s.wait_ok(A, c);
    }
    s.tear_down(&pairs[1]);
    // Receives left in the queue go home with the worker.
    s.recv_shared(B, SrqId(0), 64);
    s.finish();
}

/// Two queue pairs on one completion queue: each has its own order, and both are served.
fn two_on_one<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let pairs = [s.connect(&link), s.connect(&link)];
    let region = s.region(B, 4096, all_rights());
    let mut sends = [vec![], vec![]];
    for i in 0..40usize {
        let k = i % 2;
        let slice = region.slice(i * 8, 8).expect("inside");
        sends[k].push(s.send(A, pairs[k].qp[A], Op::Write(slice), &pattern(i as u64, 8)));
    }
    let done = s.wait(A, 40);
    for (k, pair) in pairs.iter().enumerate() {
        let got: Vec<_> = done.iter().filter(|c| c.qp == pair.qp[A]).map(|c| c.cookie).collect();
        assert_eq!(got, sends[k]);
    }
    drop(done);
    for i in 0..40usize {
        let mut word = [0; 8];
        region.window().copy_out(i * 8, &mut word);
        assert_eq!(word[..], pattern(i as u64, 8));
    }
    pairs.iter().for_each(|p| s.tear_down(p));
    s.finish();
}

/// Completion queue 0 is emptied before queue 1 is looked at, whatever came first.
fn priority<R: Rig>(rig: &mut R) {
    let cq = CqSpec { depth: 256, events: false };
    let mut s = Session::open_with(rig, &WorkerSpec { cqs: vec![cq, cq], srqs: vec![], max_qps: 4 });
    let (mut bulk, mut urgent) = (Link::new(QpType::Rc, &s.features), Link::new(QpType::Rc, &s.features));
    (bulk.cq, urgent.cq) = ([1, 1], [0, 0]);
    let (bulk, urgent) = (s.connect(&bulk), s.connect(&urgent));
    let region = s.region(B, 64, all_rights());
    let slice = region.slice(0, 8).expect("inside");
    let slow: Vec<_> = (0..40).map(|_| s.send(A, bulk.qp[A], Op::Write(slice), b"bulkbulk")).collect();
    s.step_polling([false, true]);
    let fast: Vec<_> = (0..40).map(|_| s.send(A, urgent.qp[A], Op::Write(slice), b"urgent!!")).collect();
    s.linger(|s| s.step_polling([false, true]));
    assert!(s.poll(A) > 0, "completions are there");
    let first: Vec<_> = s.ends[A].done.iter().map(|c| c.qp == urgent.qp[A]).collect();
    assert!(first.is_sorted_by(|a, b| a >= b), "urgent ones first: {first:?}");
    assert!(first.iter().filter(|u| **u).count() == 40, "all urgent ones in the first poll: {first:?}");
    let done = s.wait(A, 80);
    let of = |pair: &super::Pair| -> Vec<_> {
        done.iter().filter(|c| c.qp == pair.qp[A]).map(|c| c.cookie).collect()
    };
    assert_eq!((of(&urgent), of(&bulk)), (fast, slow));
    drop(done);
    assert!(s.ends[A].pool.available() == s.ends[A].pool.capacity());
    s.tear_down(&bulk);
    s.tear_down(&urgent);
    s.finish();
}
