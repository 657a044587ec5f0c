//! Packets that overtook a lost one: held until it arrives. Only between two ends of our own that have agreed on it.
//!
//! Requests are reported to the sender by a selective acknowledgement; missing responses are asked for again by who
//! misses them. What is held is executed in the order of its PSNs once the gap is filled, through the same checks as everything
//! else, so nothing a peer can see changes but the number of retransmissions. What is not held, for want of room, is
//! sent again: the report counts how often that happened, and the sender goes back to all that is not held.

use super::arrived::Arrived;
use super::counters::DropReason;
use super::frame;
use super::held::{Held, HeldPool, Queue};
use super::qp::Qp;
use super::requester::{Turn, push};
use super::shared::Shared;
use crate::buf::{Buf, Egress, Pool};
use crate::types::{Psn, Time};
use crate::wire::{Aeth, Opcode, Syndrome};

/// PSNs from the expected one on that are held, and bits of a report.
pub(crate) const SPAN: usize = 256;

/// Bytes of the bits of a report: bit n, from the lowest of the first byte on, says that PSN expected + 1 + n is held.
pub(crate) const BITS_LEN: usize = SPAN / 8;

/// Bytes of a report: the bits, and how often requests were refused for want of room, the lowest byte of a big-endian
/// number of 32 bits.
pub(crate) const REPORT_LEN: usize = BITS_LEN + 4;

/// Requests held by one queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    queue: Queue,
    /// How often requests were refused for want of room: once for each request that was waited for.
    refusals: u8,
    /// The request that was waited for the last time.
    refused_at: Psn,
    /// The sender is to be told.
    due: bool,
}

impl Hold {
    pub(crate) fn new() -> Self {
        Hold { queue: Queue::new(), refusals: 0, refused_at: Psn::default(), due: false }
    }

    /// True if the sender is to be told.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.due
    }

    /// There was no room while `expected` was waited for.
    fn refuse(&mut self, expected: Psn) {
        if self.refusals == 0 || self.refused_at != expected {
            (self.refusals, self.refused_at) = (self.refusals.wrapping_add(1).max(1), expected);
        }
    }

    /// What has arrived, relative to `expected`.
    fn report<B>(&self, pool: &HeldPool<B>, expected: Psn) -> [u8; REPORT_LEN] {
        let mut report = [0; REPORT_LEN];
        for psn in pool.psns(&self.queue) {
            let ahead = psn.since(expected) - 1;
            if let Ok(n) = usize::try_from(ahead)
                && n < SPAN
            {
                report[n / 8] |= 1 << (n % 8);
            }
        }
        report[REPORT_LEN - 1] = self.refusals;
        report
    }
}

impl<B: Buf> Qp<B> {
    /// Packets held by this queue pair.
    fn held(&self) -> u32 {
        self.hold.as_ref().map_or(0, |h| h.queue.len()) + self.responses.len()
    }

    /// A request from the future.
    #[cold]
    pub(crate) fn hold_back<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, packet: &Arrived, frame: B) {
        let (own, expected) = (self.held(), self.responder.expected);
        let Some(hold) = &mut self.hold else { return };
        hold.due = true;
        if packet.psn.since(expected) as usize >= SPAN {
            return shared.drop(DropReason::OutOfOrder);
        }
        match shared.held.keep(&mut hold.queue, own, Held { packet: *packet, frame }) {
            Ok(()) => shared.soft.held += 1,
            Err(reason) => {
                if reason == DropReason::OutOfOrder {
                    hold.refuse(expected);
                }
                shared.drop(reason);
            }
        }
    }

    /// A response after a gap: kept if that was agreed. What is missing is asked for again.
    #[cold]
    pub(crate) fn hold_response<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        packet: &Arrived,
        frame: B,
    ) {
        let near = (packet.psn.since(self.requester.unacknowledged()) as usize) < SPAN;
        if self.hold.is_some() && near {
            let own = self.held();
            match shared.held.keep(&mut self.responses, own, Held { packet: *packet, frame }) {
                Ok(()) => shared.soft.held += 1,
                Err(reason) => {
                    shared.drop(reason);
                    if reason == DropReason::OutOfOrder {
                        return self.on_response_refused(shared);
                    }
                }
            }
        } else {
            shared.drop(DropReason::ResponseGap);
        }
        self.on_response_gap(shared);
    }

    /// A response was taken: those held behind it follow.
    #[inline]
    pub(crate) fn release_responses<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, now: Time) {
        if self.responses.len() > 0 {
            self.take_held_responses(shared, now);
        }
    }

    #[cold]
    fn take_held_responses<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, now: Time) {
        // Every turn takes one packet out, and one that is put back ends it.
        loop {
            let una = self.requester.unacknowledged();
            let stale = shared.held.drop_before(&mut self.responses, una);
            shared.soft.drop_many(DropReason::Ghost, stale);
            let Some(held) = shared.held.pop(&mut self.responses) else { return };
            self.take_response(shared, now, &held.packet, held.frame);
            if self.requester.unacknowledged() == una {
                return;
            }
        }
    }

    /// PSNs from the oldest outstanding one on that no response came for, if a later one is held.
    pub(crate) fn missing_responses<P: Pool<Buf = B>>(&self, shared: &Shared<P>) -> Option<u32> {
        let una = self.requester.unacknowledged();
        let first = shared.held.psns(&self.responses).find(|psn| !psn.is_before(una))?;
        u32::try_from(first.since(una)).ok().filter(|n| *n > 0)
    }

    /// The expected request was executed: those held behind it follow.
    #[inline]
    pub(crate) fn release_held<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>) {
        if self.hold.as_ref().is_some_and(|h| h.queue.len() > 0) {
            self.serve_held(shared);
        }
    }

    #[cold]
    fn serve_held<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>) {
        // At most what is held.
        while self.state.answers() {
            let expected = self.responder.expected;
            let Some(hold) = self.hold.as_mut() else { return };
            // A peer may have put packets between the PSNs of a READ: they are never served, and must not stay.
            let (held, stale) = shared.held.pop_at(&mut hold.queue, expected);
            shared.soft.drop_many(DropReason::OutOfOrder, stale);
            let Some(held) = held else { break };
            if !self.serve_expected(shared, &held.packet, held.frame) {
                return;
            }
        }
        // The sender learns at once what is still missing.
        self.report_again();
    }

    /// A request that came before, while others are held: the sender may have missed the report.
    pub(crate) fn report_again(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.due |= hold.queue.len() > 0;
        }
    }

    /// Nothing is held any more.
    pub(crate) fn drop_held<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>) {
        shared.held.clear(&mut self.responses);
        if let Some(hold) = &mut self.hold {
            shared.held.clear(&mut hold.queue);
            hold.due = false;
        }
    }

    /// Reports what is held.
    pub(crate) fn send_report<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        egress: &mut impl Egress<B>,
    ) -> Turn {
        let (Some(hold), Some(path)) = (&mut self.hold, &self.path) else { return Turn::Idle };
        let expected = self.responder.expected;
        let report = hold.report(&shared.held, expected);
        let aeth = Aeth::new(Syndrome::ACK, self.responder.msn());
        let bth = crate::wire::Bth::new(Opcode::SACK, self.dest_qpn, expected);
        let put = |out: &mut [u8]| out.copy_from_slice(&report);
        let (pool, icrc) = (&shared.pool, shared.config.icrc);
        let built = frame::build(pool, icrc, &path.template, bth, &aeth, REPORT_LEN, put);
        let Some(frame) = built else { return Turn::Dry };
        hold.due = false;
        shared.soft.sacks_sent += 1;
        push(shared, self.id.slot, egress, frame);
        // It acknowledges everything before the expected request.
        self.responder.acknowledged();
        Turn::Sent
    }
}
