//! Two ends that count PSNs differently: the responder asks for one that the requester never sends.
//!
//! The usual cause is a connection set up by hand whose two sides were told different starting PSNs. Seen on the
//! wire: requests sent again and again, and answers to each that fit none of them. Sequence NAKs ask for another
//! PSN if the requester is ahead; if it is behind, its requests look like repeats and are acknowledged as such.

use rdma_engine::types::Psn;
use rdma_engine::wire::{NakCode, Operation, Syndrome};

use super::flow::Flow;
use super::{FlowId, MAX_CANDIDATES, PairedBy, Tracker};
use crate::decode::packet_view::{Moment, View};

/// What the responder of a flow waits for in vain.
#[derive(Clone, Copy, Debug)]
pub(in crate::decode) struct Disagreement {
    /// The PSN it expects.
    pub(in crate::decode) expected: Psn,
    /// It says so in ACKs of what was never sent, not in NAKs.
    pub(in crate::decode) by_ack: bool,
    /// The first answer that said so.
    pub(in crate::decode) since: Moment,
    /// How often it was said.
    pub(in crate::decode) times: u32,
    /// What the requester sends again instead.
    pub(in crate::decode) sent: Option<Psn>,
}

/// An answer that fits no request, and the flow it may be for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Misfit {
    asking: FlowId,
    psn: Psn,
    moment: Moment,
}

/// What a misfitting answer says to expect, and whether by an ACK.
fn expectation(packet: &View) -> Option<(Psn, bool)> {
    match (packet.info.operation, packet.syndrome) {
        (Operation::Acknowledge, Some(Syndrome::Nak { code: NakCode::PsnSequence })) => {
            Some((packet.psn, false))
        }
        (Operation::Acknowledge, Some(Syndrome::Ack { .. })) => Some((packet.psn.advance(1), true)),
        _ => None,
    }
}

impl Tracker {
    /// The flow that an answer is about whose PSN fits no request: the one that keeps repeating, when one answer more
    /// says what the last one said.
    pub(super) fn find_repeating(&mut self, id: FlowId, packet: &View) -> Option<FlowId> {
        let (expected, by_ack) = expectation(packet)?;
        let candidates = self.unpaired.get(&(packet.destination, packet.source))?;
        let waits = |other: &&FlowId| {
            let flow = &self.flows[other.0];
            **other != id && flow.key.transport == packet.info.transport && flow.unanswered().is_some()
        };
        let candidates = candidates.iter().rev().take(MAX_CANDIDATES).filter(waits);
        let asking = candidates.max_by_key(|other| self.rank(**other, packet)).copied()?;
        let misfit = Misfit { asking, psn: packet.psn, moment: packet.moment };
        let before = self.flows[id.0].misfit.replace(misfit);
        let before = before.filter(|before| before.asking == asking && before.psn == packet.psn)?;
        let repeated = self.flows[asking.0].unanswered().filter(|(message, _)| message.resent > 0);
        let sent = Some(repeated?.0.first_psn);
        let disagreement = Disagreement { expected, by_ack, since: before.moment, times: 1, sent };
        self.flows[asking.0].disagreement = Some(disagreement);
        self.pair(id, asking, PairedBy::Repetition);
        Some(asking)
    }
}

impl Flow {
    /// An answer says that the responder expects this PSN.
    pub(super) fn expects(&mut self, packet: &View) {
        let Some((expected, by_ack)) = expectation(packet) else { return };
        match &mut self.disagreement {
            Some(known) if (known.expected, known.by_ack) == (expected, by_ack) => known.times += 1,
            other => {
                let since = packet.moment;
                *other = Some(Disagreement { expected, by_ack, since, times: 1, sent: None });
            }
        }
    }

    /// A request is sent, for the first time or again: does the requester heed what it was told?
    pub(super) fn heed(&mut self, psn: Psn, again: bool) {
        let Some(known) = &mut self.disagreement else { return };
        let is_it = psn == known.expected || (known.by_ack && !again && psn.is_after(known.expected));
        if is_it {
            self.disagreement = None;
        } else if again && (known.by_ack || psn.is_after(known.expected)) {
            known.sent = Some(psn);
        }
    }

    /// What both ends never agreed on up to the end.
    pub(in crate::decode) fn disagreement(&self) -> Option<&Disagreement> {
        self.disagreement.as_ref().filter(|known| known.times > 1 && known.sent.is_some())
    }
}
