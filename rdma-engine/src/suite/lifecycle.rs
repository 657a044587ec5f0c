//! Failing, detaching, destroying and reviving queue pairs, with things in flight.

use super::bytes::contents;
use super::case::Case;
use super::refusals::{refused, refused_recv};
use super::session::{A, B, Link, Pair, Session, all_rights};
use super::{Rig, filled_chain};
use crate::buf::{Buf, Pool};
use crate::qp::{Change, InitAttr, QpState};
use crate::transport::{Counters, CqSpec, Device, Transport, WorkerSpec};
use crate::types::QpType;
use crate::wr::{Op, QpId, Refusal, SendWr, Status};

pub(super) fn cases<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::always("rc_flush_in_err", |r| flushes(r, QpType::Rc)),
        Case::unless("uc_flush_in_err", super::connected::needs_uc, |r| flushes(r, QpType::Uc)),
        Case::always("rc_destroy_with_things_in_flight", destroy),
        Case::always("rc_drop_with_things_in_flight", drop_everything),
        Case::always("rc_detach_and_attach_again", reattach),
        Case::always("rc_slot_is_fenced_by_generation", generations),
        Case::always("rc_reset_and_connect_again", revive),
        Case::always("attach_gives_back_what_does_not_fit", table_full),
        Case::always("counters_add_up", counters),
    ]
}

/// An empty buffer of `end` with room for exactly `len` bytes.
pub(super) fn small_room<R: Rig>(s: &Session<'_, R>, end: usize, len: usize) -> R::Buf {
    let mut buf = s.room_for(end, 0);
    let start = buf.headroom() + buf.tailroom() - len;
    assert!(buf.reserve(start) && buf.room() == len, "a buffer cut to {len} bytes");
    buf
}

/// In ERR everything completes in order: what is flushed, what is only posted, what is posted later; both queues.
fn flushes<R: Rig>(rig: &mut R, kind: QpType) {
    let mut s = Session::open(rig);
    let link = Link::new(kind, &s.features);
    let (pair, sound) = (s.connect(&link), s.connect(&link));
    let receives: Vec<_> = (0..10).map(|_| (s.recv(A, pair.qp[A], 64), Status::WrFlushErr)).collect();
    s.step();
    let sends: Vec<_> = (0..10u8).map(|i| s.send(A, pair.qp[A], Op::Send, &[i; 30])).collect();
    s.ends[A].transport.fail(pair.qp[A]);
    assert_eq!(s.ends[A].transport.state(pair.qp[A]), Some(QpState::Err));
    let got = s.wait(A, 20);
    let of = |sent: bool| {
        let queue = got.iter().filter(move |c| matches!(c.done, crate::wr::Done::Sent(_)) == sent);
        queue.map(|c| (c.cookie, c.status)).collect::<Vec<_>>()
    };
    assert_eq!(of(false), receives, "{kind}: receives");
    let wanted: Vec<_> = sends.into_iter().map(|c| (c, Status::WrFlushErr)).collect();
    assert_eq!(of(true), wanted, "{kind}: sends that were posted and not flushed");
    drop(got);
    let late = s.send(A, pair.qp[A], Op::Send, b"late");
    s.wait_all(A, &[(late, Status::WrFlushErr)]);
    let late = s.recv(A, pair.qp[A], 64);
    s.wait_all(A, &[(late, Status::WrFlushErr)]);
    s.ends[A].transport.fail(pair.qp[A]);
    s.exchange(&sound);
    s.tear_down(&pair);
    s.tear_down(&sound);
    s.finish();
}

/// Puts everything in flight that can be: requests waiting for a receive, READs, unflushed requests, receives.
fn load<R: Rig>(s: &mut Session<'_, R>, pair: &Pair) -> usize {
    let region = s.region(B, 4096, all_rights());
    let qp = pair.qp[A];
    for i in 0..5u8 {
        s.recv(A, qp, 64);
        s.send(A, qp, Op::Send, &[i; 2000]);
        s.fetch(A, qp, Op::Read(region.slice(0, 4096).expect("inside")));
    }
    s.step();
    s.step();
    let word = region.word(0).expect("aligned");
    for _ in 0..5 {
        s.fetch(A, qp, Op::FetchAdd { word, add: 1 });
        s.send(A, qp, Op::Write(region.slice(8, 100).expect("inside")), &[3; 100]);
    }
    25
}

/// A queue pair is failed, drained and destroyed in the middle of everything.
fn destroy<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let (pair, sound) = (s.connect(&link), s.connect(&link));
    let loaded = load(&mut s, &pair);
    assert_eq!(s.ends[A].transport.in_flight(pair.qp[A]), loaded);
    assert!(s.ends[A].transport.detach(pair.qp[A]).is_none(), "things are in flight");
    s.ends[A].transport.fail(pair.qp[A]);
    assert_eq!(s.wait(A, loaded).len(), loaded);
    assert_eq!(s.ends[A].transport.in_flight(pair.qp[A]), 0);
    s.exchange(&sound);
    let qp = s.ends[A].transport.detach(pair.qp[A]).expect("nothing is in flight");
    s.ends[A].device.destroy_qp(qp).expect("destroyed");
    assert_eq!(s.ends[A].pool.available(), s.ends[A].pool.capacity(), "all is home while the worker lives");
    s.exchange(&sound);
    s.finish();
}

/// Workers are dropped in the middle of everything, completions unpolled.
fn drop_everything<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let pairs = [s.connect(&link), s.connect(&link)];
    for pair in &pairs {
        load(&mut s, pair);
        s.recv(B, pair.qp[B], 4096);
    }
    s.step_polling([false, false]);
    s.finish();
}

/// Every call with a stale identity says so.
fn is_stale<R: Rig>(s: &mut Session<'_, R>, qp: QpId) {
    let buf = filled_chain(&s.ends[A].pool, b"stale", 1);
    let wr = SendWr::new(Op::Send, buf, s.cookie());
    refused(s, A, qp, wr, Refusal::Stale);
    let buf = s.room_for(A, 8);
    refused_recv(s, A, qp, buf, Refusal::Stale);
    let t = &mut s.ends[A].transport;
    assert_eq!((t.state(qp), t.send_room(qp), t.recv_room(qp), t.in_flight(qp)), (None, 0, 0, 0));
    assert!(t.detach(qp).is_none());
    t.fail(qp);
}

/// A healthy queue pair is taken off and put back; its old identity is stale.
fn reattach<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let mut pair = s.connect(&link);
    s.exchange(&pair);
    for _ in 0..3 {
        let old = pair.qp[A];
        let qp = s.ends[A].transport.detach(old).expect("nothing is in flight");
        is_stale(&mut s, old);
        pair.qp[A] = s.attach(A, qp);
        assert_ne!(pair.qp[A], old);
        is_stale(&mut s, old);
        s.exchange(&pair);
    }
    s.tear_down(&pair);
    s.finish();
}

/// A slot that is used again does not answer to its earlier names.
fn generations<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let mut old: Vec<QpId> = vec![];
    for _ in 0..20 {
        let pair = s.connect(&link);
        assert!(!old.contains(&pair.qp[A]), "{:?} names two queue pairs", pair.qp[A]);
        s.exchange(&pair);
        if let Some(id) = old.last() {
            is_stale(&mut s, *id);
        }
        s.exchange(&pair);
        s.tear_down(&pair);
        old.push(pair.qp[A]);
    }
    let unknown = QpId { slot: u16::MAX, generation: 0 };
    is_stale(&mut s, unknown);
    s.finish();
}

/// Failed queue pairs are reset and connected to each other again.
fn revive<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let mut pair = s.connect(&link);
    for _ in 0..3 {
        s.exchange(&pair);
        for end in [A, B] {
            s.recv(end, pair.qp[end], 64);
            s.ends[end].transport.fail(pair.qp[end]);
            assert_eq!(s.wait(end, 1)[0].status, Status::WrFlushErr);
        }
        let mut qps = [A, B].map(|end| s.ends[end].transport.detach(pair.qp[end]).expect("drained"));
        for (end, qp) in qps.iter_mut().enumerate() {
            s.modify(end, qp, &Change::Reset);
            s.modify(end, qp, &Change::Init(InitAttr { access: link.access[end], qkey: 0 }));
        }
        for (end, qp) in qps.iter_mut().enumerate() {
            assert_eq!(s.ends[end].device.qpn(qp), pair.qpn[end], "a reset keeps the number");
            s.modify(end, qp, &Change::Rtr(s.rtr(&link, end, pair.qpn[1 - end])));
        }
        for (end, qp) in qps.iter_mut().enumerate() {
            s.modify(end, qp, &Change::Rts(Session::<R>::rts(&link, end)));
        }
        let [a, b] = qps;
        pair.qp = [s.attach(A, a), s.attach(B, b)];
    }
    s.exchange(&pair);
    s.tear_down(&pair);
    s.finish();
}

/// A table of one place takes one queue pair; another one is given back whole (or taken, if the table is larger).
fn table_full<R: Rig>(rig: &mut R) {
    let cqs = vec![CqSpec { depth: 512, events: false }];
    let mut s = Session::open_with(rig, &WorkerSpec { cqs, srqs: vec![], max_qps: 1 });
    let link = Link::new(QpType::Rc, &s.features);
    let pair = s.connect(&link);
    let (qps, _) = s.bring_up(&link, [QpState::Rts; 2]);
    for (end, qp) in qps.into_iter().enumerate() {
        let t = &mut s.ends[end].transport;
        let back = t.attach(qp).map_or_else(Some, |id| t.detach(id)).expect("one way or the other");
        s.ends[end].device.destroy_qp(back).expect("destroyed");
    }
    s.exchange(&pair);
    s.tear_down(&pair);
    s.finish();
}

/// Counters agree with what was posted and polled.
fn counters<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let pair = s.connect(&link);
    assert_eq!(s.ends[A].transport.counters(), Counters::default());
    for _ in 0..5 {
        s.exchange(&pair);
    }
    for end in [A, B] {
        let c = s.ends[end].transport.counters();
        let got = (c.sends_posted, c.receives_posted, c.sends_completed, c.receives_completed);
        assert_eq!((got, c.errors, c.flushed, c.stale, c.leaked), ((5, 5, 5, 5), 0, 0, 0, 0));
        assert!((1..=10).contains(&c.doorbells), "{} doorbells for 5 flushes", c.doorbells);
    }
    for _ in 0..3 {
        s.recv(A, pair.qp[A], 64);
    }
    s.ends[A].transport.fail(pair.qp[A]);
    assert!(s.wait(A, 3).iter().all(|c| contents(&c.buf).len() <= c.buf.len()));
    let c = s.ends[A].transport.counters();
    assert_eq!((c.receives_posted, c.receives_completed, c.flushed, c.errors), (8, 8, 3, 0));
    s.tear_down(&pair);
    s.finish();
}
