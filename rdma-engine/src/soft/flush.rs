//! Sending: timers first, then every queue pair in its turn, until the egress is full or nobody has anything left.

use super::ASK_AGAIN_NS;
use super::counters::DropReason;
use super::endpoint::SoftTransport;
use super::frame;
use super::management::Outgoing;
use super::qp::Qp;
use super::requester::{Turn, push};
use super::shared::Shared;
use crate::buf::{Buf, Egress, Pool};
use crate::qp::QpState;
use crate::types::Time;
use crate::wire::Bth;
use crate::wr::Status;

/// Timers handled in one flush; the rest is due at once again.
const MAX_TIMERS: usize = 256;

impl<P: Pool> SoftTransport<P> {
    /// Sends what is due, as far as `egress` takes it.
    pub(crate) fn send_all(&mut self, now: Time, egress: &mut impl Egress<P::Buf>) {
        self.refresh();
        if let Some(recorder) = &mut self.shared.recorder {
            recorder.tick(now);
        }
        self.run_timers(now);
        self.send_outgoing(now, egress);
        // Whoever is queued while this runs waits for his turn behind the others; the egress bounds it all.
        while egress.room() > 0 {
            let Some(slot) = self.shared.ready.next() else { break };
            let Some(qp) = self.qps[usize::from(slot)].as_mut() else { continue };
            qp.queued = false;
            match qp.take_turn(&mut self.shared, now, egress) {
                Turn::Idle => {}
                Turn::Sent => qp.wake(&mut self.shared),
                Turn::Dry => {
                    qp.wake(&mut self.shared);
                    self.shared.soft.pool_dry += 1;
                    break;
                }
            }
        }
    }

    fn run_timers(&mut self, now: Time) {
        for _ in 0..MAX_TIMERS {
            let Some(slot) = self.shared.timers.pop_due(now) else { break };
            if let Some(qp) = self.qps[usize::from(slot)].as_mut() {
                qp.on_timer(&mut self.shared, now);
            }
        }
    }

    fn send_outgoing(&mut self, now: Time, egress: &mut impl Egress<P::Buf>) {
        let waiting = self.outgoing.len();
        for _ in 0..waiting {
            if egress.room() == 0 {
                return;
            }
            let Some(message) = self.outgoing.pop_front() else { return };
            self.send_one(now, message, egress);
        }
    }

    fn send_one(&mut self, now: Time, mut message: Outgoing<P::Buf>, egress: &mut impl Egress<P::Buf>) {
        let shared = &mut self.shared;
        if !message.path.resolved && now >= message.ask_again {
            let hope = shared.ask_neighbour(now, &mut message.path);
            message.ask_again = now.after_ns(ASK_AGAIN_NS);
            if !hope {
                return shared.drop(DropReason::Unresolved);
            }
        }
        if !message.path.resolved {
            return self.outgoing.push_back(message);
        }
        match message.build(&shared.pool, shared.config.icrc, self.management_psn) {
            Some(frame) => {
                self.management_psn = self.management_psn.advance(1);
                push(shared, u16::MAX, egress, frame);
            }
            None => self.outgoing.push_back(message),
        }
    }
}

impl<B: Buf> Qp<B> {
    /// One turn: at most a quantum of frames, answers before requests. [`Turn::Sent`] if there may be more to send.
    #[inline]
    fn take_turn<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        egress: &mut impl Egress<B>,
    ) -> Turn {
        if self.path.as_ref().is_some_and(|p| !p.resolved) && !self.await_path(shared, now) {
            return Turn::Idle;
        }
        let mut left = shared.config.quantum.max(1);
        while left > 0 && egress.room() > 0 && (self.congestion.is_due() || self.owes()) {
            match self.pay(shared, now, egress) {
                Turn::Sent => left -= 1,
                Turn::Idle => break,
                Turn::Dry => return Turn::Dry,
            }
        }
        while left > 0 && egress.room() > 0 {
            match self.send_request(shared, now, egress) {
                Turn::Sent => left -= 1,
                other => return other,
            }
        }
        Turn::Sent
    }

    /// Sends something that is owed to the peer: a congestion notification, or the next answer.
    #[inline]
    fn pay<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        egress: &mut impl Egress<B>,
    ) -> Turn {
        if self.congestion.take_due() {
            return self.send_notification(shared, egress);
        }
        self.send_answer(shared, now, egress)
    }

    #[cold]
    fn send_notification<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        egress: &mut impl Egress<B>,
    ) -> Turn {
        let Some(path) = &self.path else { return Turn::Sent };
        let bth = Bth::cnp(self.dest_qpn);
        let put = |out: &mut [u8]| out.copy_from_slice(&Bth::CNP_PAYLOAD);
        let len = Bth::CNP_PAYLOAD.len();
        let none = crate::wire::NoHeaders;
        match frame::build(&shared.pool, shared.config.icrc, &path.template, bth, &none, len, put) {
            Some(frame) => {
                shared.soft.cnps_sent += 1;
                push(shared, self.id.slot, egress, frame);
                Turn::Sent
            }
            None => {
                self.congestion.put_back();
                Turn::Dry
            }
        }
    }

    /// The peer's MAC address is not known: asks for it, and gives up in the end. True if it is known now.
    #[cold]
    fn await_path<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, now: Time) -> bool {
        let waits = self.requester.has_unsent() || self.owes();
        let Some(path) = self.path.as_mut().filter(|_| waits) else { return false };
        if now < self.ask_again && self.ask_again != Time::NEVER {
            return false;
        }
        let hope = shared.ask_neighbour(now, path);
        if path.resolved {
            return true;
        }
        if !hope && self.requester.has_unsent() && self.state == QpState::Rts {
            self.fail_unresolved(shared);
            return false;
        }
        self.ask_again = now.after_ns(ASK_AGAIN_NS);
        shared.timers.fire_by(self.id.slot, self.ask_again);
        false
    }

    fn fail_unresolved<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>) {
        shared.drop(DropReason::Unresolved);
        self.fail_send(shared, Status::RetryExcErr);
    }
}
