//! A request is done, or all of them are flushed.

use super::super::event::Event;
use super::super::qp::Qp;
use super::super::shared::Shared;
use super::{Requester, Wqe};
use crate::buf::{Buf, Pool};
use crate::qp::QpState;
use crate::types::Time;
use crate::wr::{Done, OpKind, Status};

impl<B: Buf> Requester<B> {
    /// Takes the oldest request out of the queue and moves the marks of progress past it.
    #[inline]
    fn retire(&mut self) -> Option<Wqe<B>> {
        let index = self.ring.oldest_index();
        let wqe = self.ring.pop()?;
        self.una = wqe.first.advance(wqe.packets);
        if index == self.send {
            // Acknowledged by what was sent before the last going back.
            self.send = index.wrapping_add(1);
            self.packet = 0;
            self.next = self.una;
        } else if wqe.fills_buffer() {
            self.reads -= 1;
        }
        Some(wqe)
    }
}

impl<B: Buf> Qp<B> {
    /// Completes the oldest request.
    #[inline(always)]
    pub(super) fn complete_send<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, status: Status) {
        let Some(wqe) = self.requester.retire() else { return };
        let (kind, cookie, buf) = (wqe.kind, wqe.wr.cookie, wqe.wr.buf);
        let buf = match status {
            Status::Success if kind == OpKind::Read => self.requester.landing.finish(buf),
            _ => buf,
        };
        shared.complete(self.spec.cq, self.id, cookie, Done::Sent(kind), status, buf);
    }

    /// Completes the oldest request with an error; the queue pair goes to ERR and the rest is flushed.
    pub(crate) fn fail_send<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, status: Status) {
        self.requester.landing.reset();
        let at = self.requester.una;
        self.complete_send(shared, status);
        self.fail(shared, status);
        if let Some(failure) = &mut self.failure {
            failure.unacknowledged = at;
        }
    }

    /// Completes every request with a flush.
    pub(crate) fn flush_sends<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>) {
        self.requester.landing.reset();
        while let Some(wqe) = self.requester.ring.pop() {
            let done = Done::Sent(wqe.kind);
            shared.complete(self.spec.cq, self.id, wqe.wr.cookie, done, Status::WrFlushErr, wqe.wr.buf);
        }
        let r = &mut self.requester;
        (r.send, r.packet, r.reads) = (r.ring.next_index(), 0, 0);
        (r.una, r.next, r.high) = (r.tail, r.tail, r.tail);
        (r.deadline, r.rnr_until) = (Time::NEVER, Time::NEVER);
        r.forget_reports();
    }

    /// There was progress: retries start anew, and so does the timer if anything is outstanding.
    #[inline]
    pub(super) fn progress<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, now: Time) {
        let r = &mut self.requester;
        r.retries_left = r.retry_cnt;
        r.rnr_left = r.rnr_retry;
        r.went_back = None;
        r.deadline = if r.una == r.next { Time::NEVER } else { r.timeout_at(now) };
        r.note_progress(now);
        if self.state == QpState::Sqd {
            self.tell_if_drained(shared);
        }
    }

    /// In SQD: tells once that everything started is complete.
    #[cold]
    pub(crate) fn tell_if_drained<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>) {
        if self.requester.is_drained() && !self.requester.drained_told {
            self.requester.drained_told = true;
            shared.tell(Event::SendQueueDrained(self.id));
        }
    }
}
