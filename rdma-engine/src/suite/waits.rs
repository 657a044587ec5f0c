//! A peer that is not ready, and a peer that is gone.

use super::bytes::{contents, pattern};
use super::case::Case;
use super::session::{A, B, Link, Pair, Session, all_rights};
use super::{Features, Rig};
use crate::qp::QpState;
use crate::transport::{CqSpec, Device, Transport, WorkerSpec};
use crate::types::QpType;
use crate::wr::{Cookie, Op, Status};

pub(super) fn cases<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::unless("rc_not_ready_then_ready", needs_rnr, late_receive),
        Case::unless("rc_not_ready_for_good", needs_rnr, never_a_receive),
        Case::unless("rc_not_ready_holds_back_what_follows", needs_rnr, held_back),
        Case::unless("uc_without_receive_is_lost", super::connected::needs_uc, uc_without_receive),
        Case::unless("rc_peer_destroyed", needs_retry, |r| vanishes(r, Vanish::Destroyed)),
        Case::unless("rc_peer_in_err", needs_retry, |r| vanishes(r, Vanish::Failed)),
        Case::unless("rc_peer_worker_dropped", needs_retry, |r| vanishes(r, Vanish::WorkerDropped)),
        Case::unless("uc_peer_gone_is_not_noticed", super::connected::needs_uc, uc_gone),
    ]
}

fn needs_rnr(f: &Features) -> Option<&'static str> {
    (!f.rnr).then_some("the RNR timer is not honoured")
}

fn needs_retry(f: &Features) -> Option<&'static str> {
    (!f.retry).then_some("timeout and retry count are not honoured")
}

fn open<R: Rig>(rig: &mut R, change: impl FnOnce(&mut Link)) -> (Session<'_, R>, Pair, Pair) {
    let mut s = Session::open(rig);
    let mut link = Link::new(QpType::Rc, &s.features);
    let sound = s.connect(&link);
    change(&mut link);
    let pair = s.connect(&link);
    (s, pair, sound)
}

/// A message waits for its receive for as long as it takes when the retry count is 7.
fn late_receive<R: Rig>(rig: &mut R) {
    let (mut s, pair, sound) = open(rig, |link| (link.rnr_retry, link.min_rnr_timer) = (7, 1));
    let region = s.region(B, 64, all_rights());
    let slice = region.slice(0, 5).expect("inside");
    for op in [Op::Send, Op::WriteImm(slice, 3)] {
        let c = s.send(A, pair.qp[A], op, b"early");
        s.quiet();
        assert_eq!(s.ends[A].transport.state(pair.qp[A]), Some(QpState::Rts));
        let r = s.recv(B, pair.qp[B], 64);
        let got = s.wait_ok(B, r);
        assert_eq!(contents(&got.buf), if op == Op::Send { &b"early"[..] } else { b"" });
        s.wait_ok(A, c);
    }
    s.exchange(&pair);
    s.tear_down(&pair);
    s.tear_down(&sound);
    s.finish();
}

/// Without a receive a message fails after its retries; the rest is flushed, and the peer lives.
fn never_a_receive<R: Rig>(rig: &mut R) {
    for rnr_retry in [0, 2] {
        let (mut s, pair, sound) = open(rig, |link| (link.rnr_retry, link.min_rnr_timer) = (rnr_retry, 12));
        let region = s.region(B, 64, all_rights());
        let before = s.send(A, pair.qp[A], Op::Write(region.slice(0, 5).expect("inside")), b"write");
        let c = s.send(A, pair.qp[A], Op::Send, b"never");
        let behind = s.send(A, pair.qp[A], Op::Send, b"behind");
        let own = s.recv(A, pair.qp[A], 64);
        s.wait_all(A, &[(before, Status::Success), (c, Status::RnrRetryExcErr)]);
        let mut rest: Vec<_> = s.wait(A, 2).iter().map(|c| (c.cookie, c.status)).collect();
        rest.sort_by_key(|(c, _)| c.0);
        assert_eq!(rest, [(behind, Status::WrFlushErr), (own, Status::WrFlushErr)]);
        assert_eq!(s.ends[A].transport.state(pair.qp[A]), Some(QpState::Err));
        assert_eq!(s.ends[B].transport.state(pair.qp[B]), Some(QpState::Rts), "the responder is unharmed");
        s.exchange(&sound);
        s.tear_down(&pair);
        s.tear_down(&sound);
        s.finish();
    }
}

/// What follows a message without a receive waits too, in order, also a WRITE that needs none.
fn held_back<R: Rig>(rig: &mut R) {
    let (mut s, pair, sound) = open(rig, |link| (link.rnr_retry, link.min_rnr_timer) = (7, 1));
    let region = s.region(B, 64, all_rights());
    let window = region.window();
    let message = pattern(5, 3 * s.features.pmtu.bytes() as usize);
    let first = s.send(A, pair.qp[A], Op::Send, &message);
    let write = s.send(A, pair.qp[A], Op::Write(region.slice(0, 5).expect("inside")), b"write");
    let second = s.send(A, pair.qp[A], Op::Send, b"second");
    s.quiet();
    let mut memory = [0; 5];
    window.copy_out(0, &mut memory);
    assert_eq!(memory, [0; 5], "the WRITE did not overtake");
    let r1 = s.recv(B, pair.qp[B], message.len());
    let r2 = s.recv(B, pair.qp[B], 64);
    assert_eq!(contents(&s.wait_ok(B, r1).buf), message);
    assert_eq!(contents(&s.wait_ok(B, r2).buf), b"second");
    s.wait_all(A, &[first, write, second].map(|c| (c, Status::Success)));
    window.copy_out(0, &mut memory);
    assert_eq!(&memory, b"write");
    s.tear_down(&pair);
    s.tear_down(&sound);
    s.finish();
}

/// An unreliable message without a receive is lost, and nobody fails.
fn uc_without_receive<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Uc, &s.features);
    let pair = s.connect(&link);
    let long = pattern(1, 2 * s.features.pmtu.bytes() as usize + 1);
    for bytes in [&b"lost"[..], &long] {
        let c = s.send(A, pair.qp[A], Op::Send, bytes);
        s.wait_ok(A, c);
    }
    s.quiet();
    s.exchange(&pair);
    s.tear_down(&pair);
    s.finish();
}

enum Vanish {
    Destroyed,
    Failed,
    WorkerDropped,
}

/// The peer is gone with requests of all kinds outstanding: the oldest fails, the rest is flushed in order.
fn vanishes<R: Rig>(rig: &mut R, how: Vanish) {
    // About 4 ms twice, and the receives at B are never enough.
    let (mut s, pair, sound) = open(rig, |link| {
        (link.timeout, link.retry_cnt, link.rnr_retry, link.min_rnr_timer) = (10, 1, 7, 1);
    });
    let region = s.region(B, 64, all_rights());
    let slice = region.slice(0, 8).expect("inside");
    s.send(A, pair.qp[A], Op::Send, b"never received");
    s.linger(Session::step);
    let qp = pair.qp[A];
    let mut posted: Vec<Cookie> = vec![s.send(A, qp, Op::Write(slice), b"12345678")];
    posted.push(s.fetch(A, qp, Op::Read(slice)));
    posted.push(s.send(A, qp, Op::Send, &pattern(3, 2000)));
    match how {
        Vanish::Failed => s.ends[B].transport.fail(pair.qp[B]),
        Vanish::Destroyed => {
            s.ends[B].transport.fail(pair.qp[B]);
            s.until("B to drain", |s| s.ends[B].transport.in_flight(pair.qp[B]) == 0);
            let qp = s.ends[B].transport.detach(pair.qp[B]).expect("nothing is in flight");
            s.ends[B].device.destroy_qp(qp).expect("destroyed");
        }
        Vanish::WorkerDropped => {
            s.recv(B, sound.qp[B], 64);
            let cqs = vec![CqSpec { depth: 64, events: false }];
            let spec = WorkerSpec { cqs, srqs: vec![], max_qps: 1 };
            match s.ends[B].device.create_worker(1, &spec) {
                Ok(another) => s.ends[B].transport = another,
                Err(why) => {
                    eprintln!("suite: rc_peer_worker_dropped SKIPPED: no second worker: {why}");
                    return s.finish();
                }
            }
        }
    }
    let got = s.wait(A, 4);
    assert_eq!(got[0].status, Status::RetryExcErr);
    let flushed: Vec<_> = got[1..].iter().map(|c| (c.cookie, c.status)).collect();
    assert_eq!(flushed, posted.into_iter().map(|c| (c, Status::WrFlushErr)).collect::<Vec<_>>());
    drop(got);
    assert_eq!(s.ends[A].transport.state(qp), Some(QpState::Err));
    if !matches!(how, Vanish::WorkerDropped) {
        s.exchange(&sound);
    }
    s.finish();
}

/// Unreliable requests to a peer that is gone succeed.
fn uc_gone<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Uc, &s.features);
    let pair = s.connect(&link);
    s.exchange(&pair);
    s.ends[B].transport.fail(pair.qp[B]);
    s.until("B to drain", |s| s.ends[B].transport.in_flight(pair.qp[B]) == 0);
    for i in 0..3u8 {
        let c = s.send(A, pair.qp[A], Op::Send, &[i; 3000]);
        s.wait_ok(A, c);
    }
    assert_eq!(s.ends[A].transport.state(pair.qp[A]), Some(QpState::Rts));
    s.tear_down(&pair);
    s.finish();
}
