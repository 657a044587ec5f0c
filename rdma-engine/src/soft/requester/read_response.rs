//! Data of a READ arrives, or the result of an atomic.

use super::super::arrived::Arrived;
use super::super::counters::DropReason;
use super::super::qp::Qp;
use super::super::shared::Shared;
use super::acknowledge::Acked;
use super::forward;
use crate::buf::{Buf, Pool, fill};
use crate::types::{Psn, Time};
use crate::wire::Syndrome;
use crate::wr::{OpKind, Status};

impl<B: Buf> Qp<B> {
    /// A READ response acknowledges everything before it. True if the request it answers is now the oldest.
    fn acknowledge_by_response<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        psn: Psn,
    ) -> bool {
        let packets = forward(self.requester.una, psn);
        if packets == 0 {
            return true;
        }
        match self.acknowledge(shared, now, packets, 1) {
            Acked::ResponseLost => false,
            Acked::Progress | Acked::Nothing => true,
        }
    }

    pub(super) fn on_read_response<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        packet: &Arrived,
        frame: B,
    ) {
        if !self.acknowledge_by_response(shared, now, packet.psn) {
            return self.hold_response(shared, packet, frame);
        }
        let r = &mut self.requester;
        let Some(wqe) = r.ring.entry_mut(r.ring.oldest_index()) else { return };
        if wqe.kind != OpKind::Read {
            return self.fail_send(shared, Status::BadRespErr);
        }
        if packet.psn != r.una {
            // Responses before this one are missing. The READ is asked for again from the gap.
            return self.hold_response(shared, packet, frame);
        }
        let index = forward(wqe.first, packet.psn);
        let last = index + 1 == wqe.packets;
        let want = if last { wqe.len - index * self.pmtu } else { self.pmtu };
        // A resumed READ starts with FIRST or ONLY by the standard, with MIDDLE or LAST from rxe.
        // One that was asked for again in parts has LASTs where those end.
        let in_place = packet.info.position.ends() == last || r.selective.is_some();
        if packet.len() != want as usize || !in_place || !is_positive(packet, &frame) {
            return self.fail_send(shared, Status::BadRespErr);
        }
        let copybreak = usize::from(shared.config.copybreak);
        r.landing.land(&mut wqe.wr.buf, frame, packet.payload(), copybreak);
        if last {
            self.complete_send(shared, Status::Success);
        } else {
            r.acknowledge_part(1);
        }
        self.progress(shared, now);
    }

    pub(super) fn on_atomic_acknowledge<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        packet: &Arrived,
        frame: B,
    ) {
        if !self.acknowledge_by_response(shared, now, packet.psn) {
            return self.hold_response(shared, packet, frame);
        }
        let r = &mut self.requester;
        let Some(wqe) = r.ring.entry_mut(r.ring.oldest_index()) else { return };
        let Some(original) = packet.atomic_ack(frame.first()) else { return };
        if !matches!(wqe.kind, OpKind::FetchAdd | OpKind::CompareSwap) {
            return self.fail_send(shared, Status::BadRespErr);
        }
        if packet.psn != r.una {
            return shared.drop(DropReason::ResponseGap);
        }
        if !is_positive(packet, &frame) {
            return self.fail_send(shared, Status::BadRespErr);
        }
        // Room for it was checked when it was posted. The value is a number; memory is host order.
        let filled = fill(&mut wqe.wr.buf, 8, std::iter::once(&original.to_ne_bytes()[..]));
        debug_assert!(filled);
        self.complete_send(shared, Status::Success);
        self.progress(shared, now);
    }
}

/// True unless the response refuses what it answers: only an ACKNOWLEDGE may do that. MIDDLEs say nothing.
#[inline]
fn is_positive<B: Buf>(packet: &Arrived, frame: &B) -> bool {
    packet.aeth(frame.first()).is_none_or(|aeth| matches!(aeth.meaning(), Syndrome::Ack { .. }))
}
