//! Packets that overtook a lost one: held until it arrives. Only between two ends of our own that have agreed on it.
//!
//! Requests are reported to the sender by a selective acknowledgement; missing responses are asked for again by who
//! misses them. What is held is executed in the order of its PSNs once the gap is filled, through the same checks as everything
//! else, so nothing a peer can see changes but the number of retransmissions. What is not held, for want of room, is
//! sent again.

use super::arrived::Arrived;
use super::counters::DropReason;
use super::frame;
use super::qp::Qp;
use super::requester::{Turn, push};
use super::shared::Shared;
use crate::buf::{Buf, Egress, Pool};
use crate::types::{Psn, Time};
use crate::wire::{Aeth, Opcode, Syndrome};

/// PSNs from the expected one on that are held, and bits of a report.
pub(crate) const SPAN: usize = 256;

/// Bytes of a report: bit n, from the lowest of the first byte on, says that PSN expected + 1 + n is held.
pub(crate) const REPORT_LEN: usize = SPAN / 8;

/// Packets of one kind held by one queue pair.
#[derive(Debug)]
pub(crate) struct Hold<B> {
    /// By the low bits of the PSN.
    slots: Box<[Option<Held<B>>]>,
    /// How many are held.
    count: u32,
    /// The sender is to be told.
    due: bool,
}

#[derive(Debug)]
struct Held<B> {
    packet: Arrived,
    frame: B,
}

impl<B> Hold<B> {
    pub(crate) fn new() -> Self {
        Hold { slots: (0..SPAN).map(|_| None).collect(), count: 0, due: false }
    }

    /// True if the sender is to be told.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.due
    }

    fn slot(&mut self, psn: Psn) -> &mut Option<Held<B>> {
        &mut self.slots[psn.value() as usize % SPAN]
    }

    /// Takes in a packet ahead of `base`; says why not.
    fn keep(&mut self, base: Psn, packet: Arrived, frame: B) -> Result<(), DropReason> {
        if packet.psn.since(base) as usize >= SPAN {
            return Err(DropReason::OutOfOrder);
        }
        let slot = self.slot(packet.psn);
        // A slot may still hold what a peer put between the PSNs of a READ.
        match slot {
            Some(held) if held.packet.psn == packet.psn => Err(DropReason::Duplicate),
            Some(held) if !held.packet.psn.is_before(base) => Err(DropReason::OutOfOrder),
            Some(held) => {
                *held = Held { packet, frame };
                Ok(())
            }
            None => {
                *slot = Some(Held { packet, frame });
                self.count += 1;
                Ok(())
            }
        }
    }

    /// The first PSN from `base` on that is held.
    fn first(&self, base: Psn) -> Option<Psn> {
        if self.count == 0 {
            return None;
        }
        let held = self.slots.iter().flatten().map(|h| h.packet.psn).filter(|p| !p.is_before(base));
        held.min_by_key(|p| p.since(base))
    }

    /// Takes out what is held for `psn`.
    fn take(&mut self, psn: Psn) -> Option<Held<B>> {
        let held = self.slot(psn).take_if(|h| h.packet.psn == psn)?;
        self.count -= 1;
        Some(held)
    }

    /// What is held, as bits relative to `expected`.
    fn report(&self, expected: Psn) -> [u8; REPORT_LEN] {
        let mut bits = [0; REPORT_LEN];
        for held in self.slots.iter().flatten() {
            let ahead = held.packet.psn.since(expected) - 1;
            if let Ok(n) = usize::try_from(ahead)
                && n < SPAN
            {
                bits[n / 8] |= 1 << (n % 8);
            }
        }
        bits
    }
}

impl<B: Buf> Qp<B> {
    /// A request from the future.
    #[cold]
    pub(crate) fn hold_back<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, packet: Arrived, frame: B) {
        let expected = self.responder.expected;
        let Some(hold) = &mut self.hold else { return };
        hold.due = true;
        if shared.held >= shared.config.max_held {
            return shared.drop(DropReason::OutOfOrder);
        }
        let before = hold.count;
        match hold.keep(expected, packet, frame) {
            Ok(()) => shared.soft.held += 1,
            Err(reason) => shared.drop(reason),
        }
        shared.held += hold.count - before;
    }

    /// A response after a gap: kept if that was agreed. What is missing is asked for again.
    #[cold]
    pub(crate) fn hold_response<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        packet: Arrived,
        frame: B,
    ) {
        let una = self.requester.unacknowledged();
        match &mut self.responses {
            Some(hold) if shared.held < shared.config.max_held => {
                let before = hold.count;
                match hold.keep(una, packet, frame) {
                    Ok(()) => shared.soft.held += 1,
                    Err(reason) => shared.drop(reason),
                }
                shared.held += hold.count - before;
            }
            _ => shared.drop(DropReason::ResponseGap),
        }
        self.on_response_gap(shared);
    }

    /// A response was taken: those held behind it follow.
    #[inline]
    pub(crate) fn release_responses<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, now: Time) {
        if self.responses.as_ref().is_some_and(|h| h.count > 0) {
            self.take_held_responses(shared, now);
        }
    }

    #[cold]
    fn take_held_responses<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, now: Time) {
        // Every turn takes one packet out, and one that is put back ends it.
        loop {
            let una = self.requester.unacknowledged();
            let Some(hold) = self.responses.as_mut() else { return };
            let Some(held) = hold.first(una).and_then(|psn| hold.take(psn)) else { return };
            shared.held -= 1;
            self.take_response(shared, now, held.packet, held.frame);
            if self.requester.unacknowledged() == una {
                return;
            }
        }
    }

    /// PSNs from the oldest outstanding one on that no response came for, if a later one is held.
    pub(crate) fn missing_responses(&self) -> Option<u32> {
        let una = self.requester.unacknowledged();
        let first = self.responses.as_ref()?.first(una)?;
        u32::try_from(first.since(una)).ok().filter(|n| *n > 0)
    }

    /// The expected request was executed: those held behind it follow.
    #[inline]
    pub(crate) fn release_held<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>) {
        if self.hold.as_ref().is_some_and(|h| h.count > 0) {
            self.serve_held(shared);
        }
    }

    #[cold]
    fn serve_held<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>) {
        // At most what is held.
        while self.state.answers() {
            let expected = self.responder.expected;
            let Some(held) = self.hold.as_mut().and_then(|h| h.take(expected)) else { break };
            shared.held -= 1;
            if !self.serve_expected(shared, held.packet, held.frame) {
                return;
            }
        }
        // The sender learns at once what is still missing.
        if let Some(hold) = &mut self.hold {
            hold.due |= hold.count > 0;
        }
    }

    /// A request that came before, while others are held: the sender may have missed the report.
    pub(crate) fn report_again(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.due |= hold.count > 0;
        }
    }

    /// Nothing is held any more.
    pub(crate) fn drop_held<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>) {
        for hold in [&mut self.hold, &mut self.responses].into_iter().flatten() {
            shared.held -= std::mem::take(&mut hold.count);
            hold.due = false;
            hold.slots.iter_mut().for_each(|s| *s = None);
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
        let report = hold.report(expected);
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
