//! Responses and acknowledgements are sent, in the order of their PSNs.

use super::super::frame;
use super::super::path::Path;
use super::super::qp::Qp;
use super::super::requester::Turn;
use super::super::shared::Shared;
use super::check::Fault;
use super::replay::{Asked, Exchange};
use crate::buf::{Buf, Egress, Pool};
use crate::mem::Access;
use crate::types::{Psn, Time};
use crate::wire::{Aeth, AethAtomicAck, AtomicAckEth, NakCode, NoHeaders, Opcode, Position, Syndrome};
use zerocopy::big_endian::U64;

/// A READ's memory is no longer accessible.
struct Gone;

impl<B: Buf> Qp<B> {
    /// Sends the next thing owed to the peer.
    #[inline]
    pub(crate) fn send_answer<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        egress: &mut impl Egress<B>,
    ) -> Turn {
        let r = &mut self.responder;
        let pending = r.replay.pending().map(|exchange| exchange.next_psn());
        let owed = r.owed;
        // A long answer holds back acknowledgements of what came after it.
        if pending.is_some_and(|psn| owed.is_none_or(|(owed, _)| psn.is_before(owed))) {
            return self.send_exchange(shared, now, egress);
        }
        match owed {
            // As the answers before it, a report waits for those to READs.
            None | Some((_, Syndrome::Ack { .. }))
                if pending.is_none() && self.hold.as_ref().is_some_and(|h| h.is_due()) =>
            {
                self.send_report(shared, egress)
            }
            None => Turn::Idle,
            Some((psn, syndrome)) => self.send_acknowledge(shared, egress, psn, syndrome),
        }
    }

    fn send_acknowledge<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        egress: &mut impl Egress<B>,
        psn: Psn,
        syndrome: Syndrome,
    ) -> Turn {
        let Some(path) = &self.path else { return Turn::Idle };
        let aeth = Aeth::new(syndrome, self.responder.msn);
        let bth = self.bth(Opcode::RC_ACKNOWLEDGE, psn);
        let built = frame::build(&shared.pool, shared.config.icrc, &path.template, bth, &aeth, 0, |_| ());
        let Some(frame) = built else { return Turn::Dry };
        match syndrome {
            Syndrome::RnrNak { .. } => shared.soft.rnr_naks_sent += 1,
            Syndrome::Nak { code: NakCode::PsnSequence } => shared.soft.sequence_naks_sent += 1,
            _ => shared.soft.acks_sent += 1,
        }
        super::super::requester::push(shared, self.id.slot, egress, frame);
        self.responder.owed = None;
        Turn::Sent
    }

    /// Sends the next packet of the oldest answer that is pending.
    #[inline(always)]
    fn send_exchange<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        egress: &mut impl Egress<B>,
    ) -> Turn {
        if self.has_to_wait(shared, now) {
            return Turn::Idle;
        }
        let (Some(path), Some(exchange)) = (&self.path, self.responder.replay.at_cursor()) else {
            return Turn::Idle;
        };
        let psn = exchange.next_psn();
        let built = match exchange.asked {
            Asked::Read { .. } => self.build_response(shared, path, exchange, psn),
            Asked::Atomic { original } => Ok(self.build_atomic_answer(shared, path, exchange, psn, original)),
        };
        match built {
            Ok(Some(frame)) => {
                self.congestion.sent(&shared.config, now, frame.len());
                super::super::requester::push(shared, self.id.slot, egress, frame);
                self.responder.replay.sent();
                Turn::Sent
            }
            Ok(None) => Turn::Dry,
            Err(Gone) => {
                // The region was invalidated or dropped while the answer was on its way.
                self.responder.replay.silence();
                self.refuse(shared, psn, Fault::ACCESS);
                Turn::Sent
            }
        }
    }

    #[inline]
    fn build_response<P: Pool<Buf = B>>(
        &self,
        shared: &Shared<P>,
        path: &Path,
        exchange: &Exchange,
        psn: Psn,
    ) -> Result<Option<B>, Gone> {
        let Asked::Read { addr, rkey, len } = exchange.asked else { return Err(Gone) };
        let offset = exchange.next * self.pmtu;
        let here = (len - offset).min(self.pmtu) as usize;
        let position = Position::of(exchange.next - exchange.from, exchange.to - exchange.from);
        let bth = self.bth(Opcode::read_response(position), psn);
        let at = addr.wrapping_add(offset.into());
        let target = shared.regions.target(self.pd, rkey, Access::REMOTE_READ, at, here);
        if target.is_none() && len > 0 {
            return Err(Gone);
        }
        let put = |out: &mut [u8]| {
            if let Some(target) = target {
                target.copy_out(out);
            }
        };
        let (pool, icrc, template) = (&shared.pool, shared.config.icrc, &path.template);
        Ok(match position {
            Position::Middle => frame::build(pool, icrc, template, bth, &NoHeaders, here, put),
            _ => {
                let aeth = Aeth::new(Syndrome::ACK, exchange.msn);
                frame::build(pool, icrc, template, bth, &aeth, here, put)
            }
        })
    }

    fn build_atomic_answer<P: Pool<Buf = B>>(
        &self,
        shared: &Shared<P>,
        path: &Path,
        exchange: &Exchange,
        psn: Psn,
        original: u64,
    ) -> Option<B> {
        let aeth = Aeth::new(Syndrome::ACK, exchange.msn);
        let headers = AethAtomicAck { aeth, atomic: AtomicAckEth { original: U64::new(original) } };
        let bth = self.bth(Opcode::RC_ATOMIC_ACKNOWLEDGE, psn);
        frame::build(&shared.pool, shared.config.icrc, &path.template, bth, &headers, 0, |_| ())
    }
}
