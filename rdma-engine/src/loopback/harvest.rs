//! The owner's visit to its own ring: completions, failures, and what it must wait for.

use super::qp::{LoopQp, Requester, Wait};
use super::ring::{Hold, Ring};
use super::transport::Desk;
use super::{datagram, serve};
use crate::buf::Buf;
use crate::qp::QpState;
use crate::types::{QpType, Time};
use crate::wr::{Done, Received, Status};

/// Everything a bell can mean.
pub(super) fn visit<B: Buf>(qp: &mut LoopQp<B>, desk: &mut Desk<B>, now: Time) {
    match qp.spec.kind {
        QpType::Ud => datagram::serve(qp, desk),
        _ => serve::serve(qp, desk),
    }
    if qp.state() != QpState::Err {
        harvest(qp, desk, now);
    }
    if qp.state() == QpState::Err {
        flush_all(qp, desk);
    }
}

/// Moves a queue pair to ERR.
pub(super) fn fail<B: Buf>(qp: &mut LoopQp<B>, desk: &mut Desk<B>) {
    if qp.state() != QpState::Err {
        qp.shared.set_state(QpState::Err);
        qp.shared.ring().hold = Hold::Failed;
        qp.alert_peer();
        desk.ring_again(qp.id);
    }
}

/// Takes served requests out of the ring.
fn harvest<B: Buf>(qp: &mut LoopQp<B>, desk: &mut Desk<B>, now: Time) {
    let peer_answers = qp.peer_answers();
    let LoopQp { shared, asks, spec, cq, id, staged, dirty, .. } = qp;
    let Some(mut ring) = shared.try_ring() else { return desk.ring_again(*id) };
    if spec.kind != QpType::Rc && !peer_answers {
        desk.drops += ring.lose_all() as u64;
    }
    let mut failed = false;
    while !failed && desk.has_room(*cq) {
        let Some(e) = ring.pop_served() else { break };
        asks.reads -= u32::from(e.op.fills_buffer());
        failed = e.status != Status::Success;
        let done = Done::Sent(e.op.kind());
        desk.complete(*cq, super::qp::completion(*id, e.cookie, done, e.status, e.buf));
    }
    if failed {
        ring.hold = Hold::Failed;
        drop(ring);
        shared.set_state(QpState::Err);
        return qp.alert_peer();
    }
    if ring.entries.oldest_index() != ring.next {
        desk.ring_again(*id);
    }
    if !staged.is_empty() && !*dirty {
        // A fence or the limit of READs held something back.
        *dirty = true;
        desk.dirty.push(id.slot);
    }
    let resume = watch(asks, &mut ring, peer_answers, now);
    desk.next_timer = desk.next_timer.min(asks.deadline);
    if ring.hold == Hold::Failed {
        desk.ring_again(*id);
    }
    drop(ring);
    if resume {
        qp.alert_peer();
    }
}

/// Sets or clears the timer for what is not served; true if the peer should look again.
fn watch<B>(asks: &mut Requester, ring: &mut Ring<B>, peer_answers: bool, now: Time) -> bool {
    if ring.unserved() == 0 || ring.hold == Hold::Failed {
        (asks.wait, asks.deadline) = (Wait::No, Time::NEVER);
        return false;
    }
    match (ring.hold, asks.wait) {
        (Hold::Rnr(ns), Wait::No | Wait::Answer) => not_ready(asks, ring, ns, now),
        (Hold::Rnr(_), Wait::Rnr) => {}
        (Hold::None, Wait::No | Wait::Rnr) if peer_answers => {}
        (Hold::None, Wait::Answer) if peer_answers => {
            (asks.wait, asks.deadline) = (Wait::No, Time::NEVER);
            return true;
        }
        (_, Wait::Answer) => {}
        _ => no_answer(asks, ring.next, now),
    }
    false
}

/// The peer has no receive: wait as long as it says, or give up.
fn not_ready<B>(asks: &mut Requester, ring: &mut Ring<B>, ns: u64, now: Time) {
    if asks.rnr_retries.0 != Some(ring.next) {
        asks.rnr_retries = (Some(ring.next), asks.rnr_retry);
    }
    if asks.rnr_retry != 7 {
        let Some(left) = asks.rnr_retries.1.checked_sub(1) else {
            ring.served(Status::RnrRetryExcErr);
            ring.hold = Hold::Failed;
            return;
        };
        asks.rnr_retries.1 = left;
    }
    (asks.wait, asks.deadline) = (Wait::Rnr, now.after_ns(ns));
}

/// The peer does not answer: wait for the timeout.
fn no_answer(asks: &mut Requester, next: u32, now: Time) {
    if asks.retries.0 != Some(next) {
        asks.retries = (Some(next), asks.retry_cnt);
    }
    let deadline = if asks.timeout_ns == 0 { Time::NEVER } else { now.after_ns(asks.timeout_ns) };
    (asks.wait, asks.deadline) = (Wait::Answer, deadline);
}

/// In ERR: everything completes, each queue in its order.
fn flush_all<B: Buf>(qp: &mut LoopQp<B>, desk: &mut Desk<B>) {
    (qp.asks.wait, qp.asks.deadline) = (Wait::No, Time::NEVER);
    let Some(mut ring) = qp.shared.try_ring() else { return desk.ring_again(qp.id) };
    ring.hold = Hold::Failed;
    while desk.has_room(qp.cq) {
        let Some(e) = ring.pop_any() else { break };
        let done = Done::Sent(e.op.kind());
        desk.complete(qp.cq, super::qp::completion(qp.id, e.cookie, done, e.status, e.buf));
    }
    qp.asks.reads = 0;
    let ring_is_empty = ring.entries.is_empty();
    drop(ring);
    while ring_is_empty && desk.has_room(qp.cq) {
        let Some(wr) = qp.staged.pop_front() else { break };
        let done = Done::Sent(wr.op.kind());
        desk.complete(qp.cq, qp.completion(wr.cookie, done, Status::WrFlushErr, wr.buf));
    }
    while desk.has_room(qp.cq) {
        let Some(wr) = qp.receives.pop_front() else { break };
        let done = Done::Received(Received::default());
        desk.complete(qp.cq, qp.completion(wr.cookie, done, Status::WrFlushErr, wr.buf));
    }
    if !ring_is_empty || !qp.staged.is_empty() || !qp.receives.is_empty() {
        desk.ring_again(qp.id);
    }
}
