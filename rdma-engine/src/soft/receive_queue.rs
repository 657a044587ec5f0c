//! The receive side of a queue pair: its own queue or a shared one, and the receive in use.

use super::event::Event;
use super::landing::Landing;
use super::qp::Qp;
use super::shared::Shared;
use crate::buf::{Buf, Pool};
use crate::inflight::InFlight;
use crate::qp::QpSpec;
use crate::wr::{Done, Received, RecvWr, Refusal, Refused, SrqId, Status};

/// Receives of one queue pair. Completions come in the order the receives were taken.
#[derive(Debug)]
pub(crate) struct ReceiveQueue<B> {
    /// Receives waiting; empty for ever with a shared queue.
    own: InFlight<RecvWr<B>>,
    srq: Option<SrqId>,
    /// The receive that the message in progress has taken.
    current: Option<RecvWr<B>>,
    /// The bytes of that message.
    landing: Landing<B>,
    /// Own: posted and not yet given back by `poll`. Shared: taken and not yet given back.
    outstanding: u32,
    depth: u32,
}

impl<B: Buf> ReceiveQueue<B> {
    pub(crate) fn new(spec: &QpSpec) -> Self {
        let depth = if spec.srq.is_some() { 0 } else { spec.caps.recv_depth };
        ReceiveQueue {
            own: InFlight::new(depth.max(1) as usize),
            srq: spec.srq,
            current: None,
            landing: Landing::new(),
            outstanding: 0,
            depth,
        }
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding as usize
    }

    pub(crate) fn room(&self) -> usize {
        (self.depth - self.outstanding.min(self.depth)) as usize
    }

    /// Queues a receive of the queue pair's own queue.
    pub(crate) fn post(&mut self, wr: RecvWr<B>) -> Result<(), Refused<RecvWr<B>>> {
        if self.srq.is_some() {
            return Err(Refused { wr, why: Refusal::Unsupported });
        }
        if self.room() == 0 {
            return Err(Refused { wr, why: Refusal::Full });
        }
        match self.own.push(wr) {
            Ok(_) => {
                self.outstanding += 1;
                Ok(())
            }
            Err(wr) => Err(Refused { wr, why: Refusal::Full }),
        }
    }

    /// A completion of it was given to the caller.
    #[inline]
    pub(crate) fn collected(&mut self) -> Option<SrqId> {
        self.outstanding -= 1;
        self.srq
    }

    /// True while a message has a receive.
    #[inline]
    pub(crate) fn in_use(&self) -> bool {
        self.current.is_some()
    }

    /// Forgets what has arrived; the receive stays in use for the next message.
    pub(crate) fn restart(&mut self) {
        self.landing.reset();
    }
}

impl<B: Buf> Qp<B> {
    /// Makes sure that a receive is in use; false if none is posted.
    #[inline]
    pub(crate) fn take_receive<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>) -> bool {
        let queue = &mut self.receives;
        if queue.current.is_some() {
            return true;
        }
        queue.current = match queue.srq {
            None => queue.own.pop(),
            Some(srq) => {
                let taken = shared.srqs[usize::from(srq.0)].take();
                queue.outstanding += u32::from(taken.is_some());
                if taken.is_some() && shared.srqs[usize::from(srq.0)].fell_below_limit() {
                    shared.tell(Event::SrqLimit(srq));
                }
                taken
            }
        };
        queue.current.is_some()
    }

    /// True if a receive is in use or could be taken.
    #[inline]
    pub(crate) fn has_receive<P: Pool<Buf = B>>(&self, shared: &Shared<P>) -> bool {
        let queue = &self.receives;
        queue.current.is_some()
            || match queue.srq {
                None => !queue.own.is_empty(),
                Some(srq) => !shared.srqs[usize::from(srq.0)].is_empty(),
            }
    }

    /// Takes the payload of a packet into the receive in use; false if it does not fit.
    #[inline]
    pub(crate) fn land<P: Pool<Buf = B>>(
        &mut self,
        shared: &Shared<P>,
        packet: &super::arrived::Arrived,
        frame: B,
    ) -> bool {
        let Some(current) = &mut self.receives.current else { return false };
        let landing = &mut self.receives.landing;
        let fits = landing.fits(&current.buf, packet.len());
        if fits {
            landing.land(&mut current.buf, frame, packet.payload(), usize::from(shared.config.copybreak));
        }
        fits
    }

    /// Completes the receive in use.
    #[inline]
    pub(crate) fn complete_receive<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        received: Received,
        status: Status,
    ) {
        let Some(current) = self.receives.current.take() else { return };
        let buf = match status {
            Status::Success => self.receives.landing.finish(current.buf),
            _ => {
                self.receives.landing.reset();
                current.buf
            }
        };
        shared.complete(self.spec.cq, self.id, current.cookie, Done::Received(received), status, buf);
    }

    /// Completes every receive with a flush: the one in use, then the queue.
    pub(crate) fn flush_receives<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>) {
        self.complete_receive(shared, Received::default(), Status::WrFlushErr);
        while let Some(wr) = self.receives.own.pop() {
            let done = Done::Received(Received::default());
            shared.complete(self.spec.cq, self.id, wr.cookie, done, Status::WrFlushErr, wr.buf);
        }
    }
}
