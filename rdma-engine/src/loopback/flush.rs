//! Flush: staged requests go into the ring, and timers run out.

use super::datagram;
use super::qp::{LoopQp, Wait};
use super::ring::{Entry, Hold};
use super::transport::Desk;
use crate::buf::Buf;
use crate::qp::QpState;
use crate::types::{Pmtu, Psn, QpType, Time};
use crate::wr::{SendWr, Status};

/// PSNs that a request with this many bytes takes (at least one).
#[inline]
fn packets(bytes: usize, pmtu: Pmtu) -> u32 {
    (bytes.div_ceil(pmtu.bytes() as usize) as u32).max(1)
}

/// Puts what was posted on its way; what cannot go now stays on the list.
pub(super) fn transmit<B: Buf>(qp: &mut LoopQp<B>, desk: &mut Desk<B>) {
    qp.dirty = false;
    let again = match (qp.state(), qp.spec.kind) {
        (QpState::Err, _) => {
            desk.ring_again(qp.id);
            false
        }
        (QpState::Rts, QpType::Ud) => datagram::transmit(qp, desk),
        (QpState::Rts, _) => move_to_ring(qp, desk),
        _ => false,
    };
    if again {
        qp.dirty = true;
        desk.dirty.push(qp.id.slot);
    }
}

/// Moves requests up to a fence or the limit of READs; true if the ring was busy.
fn move_to_ring<B: Buf>(qp: &mut LoopQp<B>, desk: &mut Desk<B>) -> bool {
    let LoopQp { shared, asks, staged, pmtu, .. } = qp;
    let Some(mut ring) = shared.try_ring() else { return true };
    let mut moved = false;
    while let Some(wr) = staged.front() {
        let reads = wr.op.fills_buffer();
        if (wr.fence && asks.reads > 0) || (reads && asks.reads >= asks.max_reads) {
            break;
        }
        let SendWr { op, buf, cookie, .. } = staged.pop_front().expect("it was there");
        asks.reads += u32::from(reads);
        let psn: Psn = asks.psn;
        asks.psn = psn.advance(packets(buf.len().max(op.response_len() as usize), *pmtu));
        let entry = Entry { op, buf, cookie, psn, status: Status::Success };
        assert!(ring.entries.push(entry).is_ok(), "the ring is as deep as the send queue");
        moved = true;
    }
    drop(ring);
    if moved {
        desk.counters.doorbells += 1;
        qp.alert_peer();
        if !qp.peer_answers() {
            desk.ring_again(qp.id);
        }
    }
    false
}

/// Handles a deadline that has passed; notes one that has not.
pub(super) fn expire<B: Buf>(qp: &mut LoopQp<B>, desk: &mut Desk<B>, now: Time) {
    if qp.asks.wait != Wait::No && qp.asks.deadline <= now {
        run_out(qp, desk, now);
    }
    desk.next_timer = desk.next_timer.min(qp.asks.deadline);
}

fn run_out<B: Buf>(qp: &mut LoopQp<B>, desk: &mut Desk<B>, now: Time) {
    let answers = qp.peer_answers();
    let LoopQp { shared, asks, .. } = qp;
    let Some(mut ring) = shared.try_ring() else {
        // Next turn.
        asks.deadline = now;
        return;
    };
    let exhausted = asks.wait == Wait::Answer && asks.retries.1 == 0 && (!answers || ring.hold == Hold::Deaf);
    if exhausted {
        ring.served(Status::RetryExcErr);
        ring.hold = Hold::Failed;
    } else if matches!(ring.hold, Hold::Rnr(_) | Hold::Deaf) {
        ring.hold = Hold::None;
    }
    drop(ring);
    if asks.wait == Wait::Answer && !exhausted {
        asks.retries.1 = asks.retries.1.saturating_sub(1);
    }
    (asks.wait, asks.deadline) = (Wait::No, Time::NEVER);
    qp.alert_peer();
    desk.ring_again(qp.id);
}
