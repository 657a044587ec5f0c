//! A selective acknowledgement arrives, and what it shows to be missing is sent again.

use super::super::arrived::Arrived;
use super::super::counters::DropReason;
use super::super::hold::{BITS_LEN, REPORT_LEN, SPAN};
use super::super::qp::Qp;
use super::super::shared::Shared;
use super::transmit::{Turn, push};
use super::{Due, forward};
use crate::buf::{Buf, Egress, Pool};
use crate::types::Time;
use crate::wire::Position;

impl<B: Buf> Qp<B> {
    /// The peer misses some packets and has others.
    #[cold]
    pub(super) fn on_report<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        packet: &Arrived,
        frame: &B,
    ) {
        let r = &self.requester;
        let known = forward(r.una, packet.psn) <= forward(r.una, r.high);
        let report = frame.first().get(packet.payload()).and_then(|b| b.first_chunk::<REPORT_LEN>());
        let Some(report) = report.filter(|_| r.selective.is_some() && known) else {
            return shared.drop(DropReason::Ghost);
        };
        shared.soft.sacks += 1;
        let (map, rest) = report.split_at(BITS_LEN);
        let mut bits = [0; SPAN / 64];
        for (word, bytes) in bits.iter_mut().zip(map.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let refusals = rest.last().copied().unwrap_or(0);
        self.acknowledge_before(shared, now, packet.psn);
        self.requester.note_report(now, packet.psn, &bits, refusals);
        self.release_responses(shared, now);
        self.wake(shared);
    }

    /// Sends again the next packet that the peer misses; idle if there is none.
    #[cold]
    pub(super) fn send_again<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        egress: &mut impl Egress<B>,
    ) -> Turn {
        if self.requester.rnr_until != Time::NEVER {
            return Turn::Idle;
        }
        let Some(hole) = self.requester.next_hole() else { return Turn::Idle };
        if self.has_to_wait(shared, now) {
            return Turn::Idle;
        }
        let (r, Some(path)) = (&self.requester, &self.path) else { return Turn::Idle };
        let Some(wqe) = r.ring.entry(hole.index) else { return Turn::Idle };
        let fills = wqe.fills_buffer();
        // Of a READ at the head only the responses up to the first one that is held.
        let missing = self.missing_responses(shared).filter(|_| fills && hole.psn == r.unacknowledged());
        let left = wqe.packets - hole.packet;
        let psns = if fills { missing.unwrap_or(left).min(left) } else { 1 };
        let offset = hole.packet as usize * self.pmtu as usize;
        let due = Due {
            psn: hole.psn,
            index: hole.packet,
            position: Position::of(hole.packet, wqe.packets),
            offset,
            len: (wqe.len as usize - offset).min(psns as usize * self.pmtu as usize),
            ack_request: true,
        };
        let Some(frame) = self.build(shared, path, wqe, &due) else { return Turn::Dry };
        shared.soft.retransmitted += 1;
        shared.soft.reads_resumed += u64::from(fills && hole.packet > 0);
        self.congestion.sent(&shared.config, now, frame.len());
        push(shared, self.id.slot, egress, frame);
        self.requester.sent_again(hole, psns);
        Turn::Sent
    }
}
