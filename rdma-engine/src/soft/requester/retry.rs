//! Going back: after a time-out, a sequence NAK, an RNR NAK, or a gap in responses.

use super::super::qp::Qp;
use super::super::shared::Shared;
use super::Requester;
use crate::buf::{Buf, Pool};
use crate::types::{Psn, QpType, Time};
use crate::wire::RnrTimer;
use crate::wr::Status;

/// `rnr_retry` that means "for ever".
const RNR_RETRY_FOR_EVER: u8 = 7;

impl<B: Buf> Requester<B> {
    /// When the retransmission timer, started now, runs out.
    #[inline]
    pub(super) fn timeout_at(&self, now: Time) -> Time {
        if self.timeout_ns == 0 { Time::NEVER } else { now.after_ns(self.timeout_ns) }
    }

    /// Everything from the oldest outstanding PSN on is to be sent again. Of a READ only what has not arrived: its
    /// request then starts at the first missing response.
    fn go_back(&mut self) {
        self.send = self.ring.oldest_index();
        self.packet = self.ring.entry(self.send).map_or(0, |wqe| self.oldest_done(wqe.first));
        self.next = self.una;
        self.reads = 0;
        self.unasked = 0;
        self.deadline = Time::NEVER;
        self.forget_reports();
    }

    fn is_waiting_for_receiver(&self) -> bool {
        self.rnr_until != Time::NEVER
    }

    /// True if what is to be sent again has not been sent yet.
    fn has_just_gone_back(&self) -> bool {
        self.next == self.una
    }
}

impl<B: Buf> Qp<B> {
    /// One more retry: goes back, or fails the oldest request if there is none left. By the standard 7 means seven.
    fn retry<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>) {
        if self.requester.retries_left == 0 {
            return self.fail_send(shared, Status::RetryExcErr);
        }
        self.requester.retries_left -= 1;
        self.requester.go_back();
        self.wake(shared);
    }

    /// NAK 0x60: the peer misses `psn`.
    #[cold]
    pub(super) fn on_sequence_nak<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, now: Time, psn: Psn) {
        shared.soft.sequence_naks += 1;
        let oldest = self.acknowledge_before(shared, now, psn);
        // rxe sends this NAK also after an RNR NAK for the same PSN: the wait goes on. It is sent once for a gap, so
        // another one for the same PSN is a copy; only the timer tells that what was sent again was lost again.
        let r = &mut self.requester;
        let copy = r.went_back == Some(psn) || r.has_just_gone_back();
        if oldest && !r.is_waiting_for_receiver() && !copy {
            r.went_back = Some(psn);
            self.retry(shared);
        }
    }

    /// RNR NAK: the peer had no receive for `psn`.
    #[cold]
    pub(super) fn on_rnr_nak<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        psn: Psn,
        timer: RnrTimer,
    ) {
        shared.soft.rnr_naks += 1;
        if !self.acknowledge_before(shared, now, psn) || self.requester.is_waiting_for_receiver() {
            return;
        }
        let r = &mut self.requester;
        match r.rnr_left {
            0 => return self.fail_send(shared, Status::RnrRetryExcErr),
            RNR_RETRY_FOR_EVER => {}
            _ => r.rnr_left -= 1,
        }
        r.go_back();
        // After the wait it may be lost, and missed again.
        r.went_back = None;
        r.rnr_until = now.after_ns(timer.wait_ns());
        // The peer is alive: transport retries start anew.
        r.retries_left = r.retry_cnt;
    }

    /// A response shows that an earlier one was lost. Goes back once; should that be lost too, the timer will tell.
    #[cold]
    pub(crate) fn on_response_gap<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>) {
        let r = &mut self.requester;
        let again = r.went_back == Some(r.una) || r.is_waiting_for_receiver() || r.has_just_gone_back();
        if again {
            return;
        }
        if r.selective.is_some() {
            (r.went_back, r.went_whole) = (Some(r.una), false);
            r.ask_head_again();
            return self.wake(shared);
        }
        self.retry(shared);
        self.requester.went_back = Some(self.requester.una);
    }

    /// There was no room to hold a response: it and those behind it come again only if all is asked for again.
    #[cold]
    pub(crate) fn on_response_refused<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>) {
        let r = &mut self.requester;
        let again = r.went_back == Some(r.una) && r.went_whole;
        if !again && !r.is_waiting_for_receiver() && !r.has_just_gone_back() {
            (r.went_back, r.went_whole) = (Some(r.una), true);
            // The shortage is ours: it says nothing of the peer, and costs none of its retries.
            r.go_back();
            self.wake(shared);
        }
    }

    /// A timer of this queue pair ran out, or was thought to.
    #[cold]
    pub(crate) fn on_timer<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, now: Time) {
        if self.ask_again <= now {
            self.ask_again = Time::NEVER;
            self.wake(shared);
        }
        if self.requester.rnr_until <= now {
            self.requester.rnr_until = Time::NEVER;
            self.wake(shared);
        }
        if self.requester.probe(now) {
            self.wake(shared);
        }
        if self.requester.deadline <= now && self.spec.kind == QpType::Rc {
            shared.soft.timeouts += 1;
            self.requester.went_back = None;
            self.retry(shared);
        }
        if self.congestion.stop_waiting(now) {
            self.wake(shared);
        }
        let deadline = self.requester.next_deadline().min(self.ask_again).min(self.congestion.waits_until());
        shared.timers.fire_by(self.id.slot, deadline);
    }
}
