//! Answers, applied to the flow whose requests they answer.

use rdma_engine::types::Psn;
use rdma_engine::wire::{NakCode, Operation, Position, RnrTimer, Syndrome};

use super::event::{Mark, Refusal, What};
use super::flow::{Flow, RnrWait};
use super::follow::Follow;
use super::message::{Kind, Message, Outcome};
use crate::decode::packet_view::{Moment, View};

impl Flow {
    /// Applies an answer that travels in the other direction.
    pub(super) fn answered_by(&mut self, packet: &View, follow: &mut Follow) -> Option<Mark> {
        match (packet.info.operation, packet.syndrome) {
            (Operation::Acknowledge, Some(Syndrome::Ack { .. })) => self.acknowledged(packet, follow),
            (Operation::Acknowledge, Some(Syndrome::RnrNak { timer })) => {
                self.not_ready(packet, timer, follow);
                None
            }
            (Operation::Acknowledge, Some(Syndrome::Nak { code: NakCode::PsnSequence })) => {
                self.acknowledge(packet.psn.back(1), packet.moment, follow);
                self.counts.sequence_naks += 1;
                self.expects(packet);
                self.events.push(packet.moment, What::SequenceNak { expected: packet.psn });
                None
            }
            (Operation::Acknowledge, Some(Syndrome::Nak { code })) => {
                self.refused(packet, code, follow);
                None
            }
            (Operation::ReadResponse, _) => self.read_response(packet, follow),
            (Operation::AtomicAcknowledge, _) => self.atomic_response(packet, follow),
            _ => None,
        }
    }

    fn acknowledged(&mut self, packet: &View, follow: &mut Follow) -> Option<Mark> {
        if !self.awaits(packet.psn) && self.acked.is_none() {
            self.counts.unasked += 1;
            self.expects(packet);
            return Some(Mark::Unasked);
        }
        if self.acked.is_some_and(|acked| !packet.psn.is_after(acked)) {
            self.counts.duplicate_acks += 1;
            return Some(Mark::DuplicateAck);
        }
        self.report_passed_over(packet);
        self.acknowledge(packet.psn, packet.moment, follow);
        None
    }

    /// An ACK beyond a READ or atomic does not complete it: its response was lost.
    fn report_passed_over(&mut self, packet: &View) {
        let passed = self
            .pending
            .iter()
            .find(|message| message.kind.has_own_response() && message.last_psn().is_before(packet.psn));
        if let Some(&Message { first_psn: psn, kind, .. }) = passed {
            self.events.push(packet.moment, What::ResponseLost { psn, kind });
        }
    }

    /// Books as answered what ends at `through` or before, but for READs and atomics.
    fn acknowledge(&mut self, through: Psn, moment: Moment, follow: &mut Follow) {
        self.take_through(through);
        let mut at = 0;
        while let Some(message) = self.pending.get(at) {
            if message.last_psn().is_after(through) {
                break;
            }
            if message.kind.has_own_response() {
                at += 1;
            } else if let Some(message) = self.pending.remove(at) {
                self.settle_answered(message, Outcome::Answered, moment, follow);
            }
        }
        if self.acked.is_none_or(|acked| through.is_after(acked)) {
            self.acked = Some(through);
        }
    }

    fn settle_answered(
        &mut self,
        mut message: Message,
        outcome: Outcome,
        moment: Moment,
        follow: &mut Follow,
    ) {
        message.outcome = outcome;
        message.answer = Some(moment);
        // They do agree.
        self.disagreement = None;
        self.settle(message, follow);
    }

    fn not_ready(&mut self, packet: &View, timer: RnrTimer, follow: &mut Follow) {
        self.acknowledge(packet.psn.back(1), packet.moment, follow);
        let wait_ns = timer.wait_ns();
        self.counts.rnr_naks += 1;
        self.rnr = Some(RnrWait { psn: packet.psn, since: packet.moment, wait_ns });
        if let Some(message) = self.message_mut(packet.psn) {
            message.rnr_naks = message.rnr_naks.saturating_add(1);
        }
        self.events.push(packet.moment, What::RnrNak { psn: packet.psn, wait_ns });
    }

    fn refused(&mut self, packet: &View, code: NakCode, follow: &mut Follow) {
        self.acknowledge(packet.psn.back(1), packet.moment, follow);
        self.counts.refusals += 1;
        let waits = |m: &&Message| m.kind.has_own_response() && !m.first_psn.is_after(packet.psn);
        let outstanding = self.pending.iter().filter(waits).count() as u32;
        let message = self.take_message(packet.psn);
        let refusal = Refusal {
            psn: packet.psn,
            code,
            kind: message.map(|message| message.kind),
            remote: message.and_then(|message| message.remote),
            len: message.map_or(0, |message| message.len()),
            whole: message.is_some_and(|message| message.whole),
            outstanding,
        };
        self.events.push(packet.moment, What::Refused(refusal));
        if let Some(message) = message {
            self.settle_answered(message, Outcome::Refused(code), packet.moment, follow);
        }
    }

    /// Takes the unanswered message with `psn` out of the waiting ones.
    fn take_message(&mut self, psn: Psn) -> Option<Message> {
        match self.pending.iter().position(|message| message.contains(psn)) {
            Some(at) => self.pending.remove(at),
            None => self.open.take_if(|open| open.contains(psn)),
        }
    }

    fn read_response(&mut self, packet: &View, follow: &mut Follow) -> Option<Mark> {
        if matches!(packet.info.position, Position::First | Position::Middle) {
            self.learn_pmtu(packet.payload_len);
        }
        let is_answered_kind = |m: &Message| matches!(m.kind, Kind::Read | Kind::Flush | Kind::AtomicWrite);
        let found = self.pending.iter().position(|m| is_answered_kind(m) && m.contains(packet.psn));
        let Some(at) = found else { return Some(self.unasked_response(packet.psn)) };
        let first = self.pending[at].first_psn;
        self.acknowledge(first.back(1), packet.moment, follow);
        self.take_in_response(packet, follow)
    }

    /// A response to nothing that waits: to a request sent again and answered already, or to one that is not in the
    /// capture although it must have been sent since the first one that is.
    fn unasked_response(&mut self, psn: Psn) -> Mark {
        if self.acked.is_some_and(|acked| !psn.is_after(acked)) && self.counts.resent > 0 {
            return Mark::Duplicate;
        }
        self.counts.unasked += 1;
        self.counts.uncaptured += u64::from(self.first_psn.is_some_and(|first| psn.is_after(first)));
        Mark::Unasked
    }

    fn take_in_response(&mut self, packet: &View, follow: &mut Follow) -> Option<Mark> {
        let at = self.pending.iter().position(|m| m.kind.has_own_response() && m.contains(packet.psn))?;
        let message = &mut self.pending[at];
        let ahead = packet.psn.since(message.next_response);
        if ahead < 0 {
            return Some(Mark::Duplicate);
        }
        let psn = message.next_response;
        message.received += u64::from(packet.payload_len);
        message.next_response = packet.psn.advance(1);
        message.latest = packet.moment;
        let whole = packet.info.position.ends() && message.received >= message.len();
        if whole && let Some(message) = self.pending.remove(at) {
            let outcome = Outcome::Answered;
            self.acked =
                Some(self.acked.map_or(message.last_psn(), |acked| later(acked, message.last_psn())));
            self.settle_answered(message, outcome, packet.moment, follow);
        }
        if ahead == 0 {
            return None;
        }
        let missing = ahead.unsigned_abs();
        self.counts.read_gaps += u64::from(missing);
        self.events.push(packet.moment, What::ReadGap { psn, missing });
        Some(Mark::ResponseGapBefore { missing })
    }

    fn atomic_response(&mut self, packet: &View, follow: &mut Follow) -> Option<Mark> {
        let found = self
            .pending
            .iter()
            .position(|m| matches!(m.kind, Kind::FetchAdd | Kind::CompareSwap) && m.first_psn == packet.psn);
        if found.is_none() {
            return Some(self.unasked_response(packet.psn));
        }
        self.acknowledge(packet.psn.back(1), packet.moment, follow);
        let at = self.pending.iter().position(|m| m.first_psn == packet.psn)?;
        let mut message = self.pending.remove(at)?;
        message.received = 8;
        self.acked = Some(self.acked.map_or(packet.psn, |acked| later(acked, packet.psn)));
        self.settle_answered(message, Outcome::Answered, packet.moment, follow);
        None
    }

    /// The payload of a FIRST or MIDDLE packet is the path MTU: lengths of READs become exact.
    pub(super) fn learn_pmtu(&mut self, payload_len: u32) {
        if payload_len == 0 || self.pmtu.is_some() {
            return;
        }
        self.pmtu = Some(payload_len);
        let Some(read) = self.pending.back_mut().filter(|m| m.kind == Kind::Read && self.slack > 0) else {
            return;
        };
        let packets = read.len().div_ceil(u64::from(payload_len)).clamp(1, 1 << 23) as u32;
        read.packets = packets;
        self.next = Some(read.first_psn.advance(packets));
        self.slack = 0;
    }
}

fn later(a: Psn, b: Psn) -> Psn {
    if b.is_after(a) { b } else { a }
}
