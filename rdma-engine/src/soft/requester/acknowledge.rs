//! An ACK or a NAK arrives.

use super::super::arrived::Arrived;
use super::super::counters::DropReason;
use super::super::qp::Qp;
use super::super::shared::Shared;
use super::{Requester, forward};
use crate::buf::{Buf, Pool};
use crate::qp::QpState;
use crate::types::{Psn, Time};
use crate::wire::{NakCode, Operation, Syndrome};
use crate::wr::Status;

/// What an acknowledgement did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Acked {
    /// Nothing new.
    Nothing,
    /// Requests or packets of one are acknowledged.
    Progress,
    /// It lies beyond a READ or atomic whose response is missing: that one has to be asked for again.
    ResponseLost,
}

impl<B: Buf> Qp<B> {
    /// A response of the peer.
    #[inline(always)]
    pub(crate) fn on_response<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        packet: &Arrived,
        frame: B,
    ) {
        if !matches!(self.state, QpState::Rts | QpState::Sqd) {
            return shared.drop(DropReason::State);
        }
        if packet.info.operation == Operation::SelectiveAcknowledge {
            self.on_report(shared, now, packet, &frame);
            return shared.timers.fire_by(self.id.slot, self.requester.next_deadline());
        }
        if !self.requester.is_outstanding(packet.psn) {
            // A response that came twice, or to what was never sent: dropped silently.
            return shared.drop(DropReason::Ghost);
        }
        self.take_response(shared, now, packet, frame);
        self.release_responses(shared, now);
        if self.requester.has_unsent() {
            self.wake(shared);
        }
        shared.timers.fire_by(self.id.slot, self.requester.next_deadline());
    }

    /// A response to something that is outstanding, or was when it came.
    #[inline(always)]
    pub(crate) fn take_response<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        packet: &Arrived,
        frame: B,
    ) {
        match packet.info.operation {
            Operation::Acknowledge => self.on_acknowledge(shared, now, packet, &frame),
            Operation::ReadResponse => self.on_read_response(shared, now, packet, frame),
            Operation::AtomicAcknowledge => self.on_atomic_acknowledge(shared, now, packet, frame),
            _ => shared.drop(DropReason::Unserved),
        }
    }

    fn on_acknowledge<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        packet: &Arrived,
        frame: &B,
    ) {
        let Some(aeth) = packet.aeth(frame.first()) else { return };
        match aeth.meaning() {
            // Credits are not heeded: Linux never negotiates them, and some peers send code 0 always.
            Syndrome::Ack { .. } => self.on_ack(shared, now, packet.psn),
            Syndrome::RnrNak { timer } => self.on_rnr_nak(shared, now, packet.psn, timer),
            Syndrome::Nak { code: NakCode::PsnSequence } => self.on_sequence_nak(shared, now, packet.psn),
            Syndrome::Nak { code } => self.on_fatal_nak(shared, now, packet.psn, code),
            Syndrome::Reserved(_) => shared.drop(DropReason::Unserved),
        }
    }

    /// ACK: everything up to `psn` arrived.
    fn on_ack<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, now: Time, psn: Psn) {
        let packets = forward(self.requester.una, psn) + 1;
        if self.acknowledge(shared, now, packets, 0) == Acked::ResponseLost {
            self.on_response_gap(shared);
        }
    }

    /// A NAK implies that everything before `psn` arrived. True if `psn` is now the oldest outstanding.
    pub(super) fn acknowledge_before<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        psn: Psn,
    ) -> bool {
        let packets = forward(self.requester.una, psn);
        if self.acknowledge(shared, now, packets, 1) == Acked::ResponseLost {
            self.on_response_gap(shared);
        }
        self.requester.una == psn
    }

    /// Acknowledges `packets` packets from the oldest outstanding on; the packet that says so is about `beyond` more.
    #[inline]
    pub(super) fn acknowledge<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        mut packets: u32,
        beyond: u32,
    ) -> Acked {
        let mut acked = Acked::Nothing;
        while packets > 0 {
            let Some((left, fills)) = self.requester.oldest_left() else { break };
            if fills {
                // Only its own response completes a READ or an atomic.
                if packets + beyond > left {
                    acked = Acked::ResponseLost;
                }
                break;
            }
            acked = Acked::Progress;
            if packets < left {
                self.requester.acknowledge_part(packets);
                break;
            }
            packets -= left;
            self.complete_send(shared, Status::Success);
        }
        if acked == Acked::Progress {
            self.progress(shared, now);
        }
        acked
    }

    /// The peer refused a request.
    #[cold]
    fn on_fatal_nak<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, now: Time, psn: Psn, code: NakCode) {
        if !self.acknowledge_before(shared, now, psn) && !self.requester.oldest_contains(psn) {
            return;
        }
        let status = match code {
            NakCode::InvalidRequest => Status::RemInvReqErr,
            NakCode::RemoteAccess => Status::RemAccessErr,
            _ => Status::RemOpErr,
        };
        self.fail_send(shared, status);
    }
}

impl<B: Buf> Requester<B> {
    /// Packets of the oldest request that are not acknowledged, and whether it waits for a response of its own.
    #[inline]
    pub(super) fn oldest_left(&self) -> Option<(u32, bool)> {
        let wqe = self.ring.entry(self.ring.oldest_index())?;
        Some((wqe.packets - self.oldest_done(wqe.first), wqe.fills_buffer()))
    }

    /// True if `psn` belongs to the oldest request.
    fn oldest_contains(&self, psn: Psn) -> bool {
        self.oldest_left().is_some_and(|(left, _)| forward(self.una, psn) < left)
    }

    /// Acknowledges the first `packets` outstanding packets of the oldest request.
    #[inline]
    pub(super) fn acknowledge_part(&mut self, packets: u32) {
        self.una = self.una.advance(packets);
        if self.send == self.ring.oldest_index() && self.next.is_before(self.una) {
            self.packet += forward(self.next, self.una);
            self.next = self.una;
        }
    }
}
