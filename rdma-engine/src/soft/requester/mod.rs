//! The requester of a queue pair: requests posted, in packets, acknowledged, completed.
//!
//! | file | event or step |
//! |---|---|
//! | [`post`] | a request is posted |
//! | [`transmit`] | the next packet is due |
//! | [`acknowledge`] | an ACK or NAK arrives |
//! | [`read_response`] | data of a READ, or the result of an atomic, arrives |
//! | [`repeat`] | a selective acknowledgement arrives |
//! | [`retry`] | go back: timer, sequence NAK, RNR NAK, gap |
//! | [`complete`] | a request is done, or all of them are flushed |
//!
//! Requests get their PSNs when they are posted. Three of them mark the progress: `una` is the oldest that is not
//! acknowledged, `next` the one to be sent next, `high` the one after the last ever sent. Going back (go-back-N) sets
//! `next` to `una`; the buffers never left the queue, so nothing is copied for it.

mod acknowledge;
mod complete;
mod post;
mod read_response;
mod repeat;
mod retry;
mod selective;
mod transmit;

pub(crate) use selective::Selective;
use transmit::Due;
pub(crate) use transmit::{Turn, push};

use super::config::SoftConfig;
use super::hold::SPAN;
use super::landing::Landing;
use crate::inflight::InFlight;
use crate::qp::RtsAttr;
use crate::types::{MASK_24, Psn, Time};
use crate::wr::{OpKind, SendWr};

/// A request in the send queue. It owns the buffer until it completes.
#[derive(Debug)]
pub(crate) struct Wqe<B> {
    wr: SendWr<B>,
    /// The operation without its operands.
    kind: OpKind,
    first: Psn,
    /// PSNs it takes.
    packets: u32,
    /// Bytes of the message, or of the READ.
    len: u32,
}

impl<B> Wqe<B> {
    /// True if an answer of its own fills its buffer.
    #[inline]
    fn fills_buffer(&self) -> bool {
        matches!(self.kind, OpKind::Read | OpKind::FetchAdd | OpKind::CompareSwap)
    }
}

/// The send queue.
#[derive(Debug)]
pub(crate) struct Requester<B> {
    ring: InFlight<Wqe<B>>,
    /// Bytes of the READ at the head that have arrived.
    landing: Landing<B>,
    /// Posted and not yet given back by `poll`.
    outstanding: u32,
    /// Index of the request that is being put into packets.
    send: u32,
    /// Which of its packets is next.
    packet: u32,
    una: Psn,
    next: Psn,
    high: Psn,
    /// PSN for the next request posted.
    tail: Psn,
    /// READs and atomics sent since the last going back and not complete.
    reads: u32,
    max_rd_atomic: u32,
    /// Packets since the last one that asked for an acknowledgement.
    unasked: u32,
    /// PSNs that may be unacknowledged before another packet is held back.
    window: u32,
    /// Retransmission time-out; 0 for none.
    timeout_ns: u64,
    /// When it runs out.
    deadline: Time,
    /// Nothing is sent before, because the peer had no receive; `NEVER` if not waiting.
    rnr_until: Time,
    retry_cnt: u8,
    rnr_retry: u8,
    retries_left: u8,
    rnr_left: u8,
    /// A gap was seen and answered by going back to this PSN; not again before there is progress.
    went_back: Option<Psn>,
    /// Not only the oldest request, but all from there on: there was no room for the responses.
    went_whole: bool,
    /// In SQD: first request that is not started any more.
    drain_at: Option<u32>,
    /// The event that this has happened was given.
    drained_told: bool,
    /// Selective repeat; `None` unless agreed.
    pub(crate) selective: Option<Box<Selective>>,
}

/// PSNs from `from` on up to `to`, seen as lying in its future.
#[inline]
fn forward(from: Psn, to: Psn) -> u32 {
    to.value().wrapping_sub(from.value()) & MASK_24
}

impl<B: crate::buf::Buf> Requester<B> {
    pub(crate) fn new(depth: usize) -> Self {
        let psn = Psn::default();
        Requester {
            ring: InFlight::new(depth.max(1)),
            landing: Landing::new(),
            outstanding: 0,
            send: 0,
            packet: 0,
            una: psn,
            next: psn,
            high: psn,
            tail: psn,
            reads: 0,
            max_rd_atomic: 0,
            unasked: 0,
            window: 0,
            timeout_ns: 0,
            deadline: Time::NEVER,
            rnr_until: Time::NEVER,
            retry_cnt: 0,
            rnr_retry: 0,
            retries_left: 0,
            rnr_left: 0,
            went_back: None,
            went_whole: false,
            drain_at: None,
            drained_told: false,
            selective: None,
        }
    }

    /// RTR to RTS.
    pub(crate) fn ready(&mut self, config: &SoftConfig, attr: &RtsAttr) {
        (self.una, self.next, self.high, self.tail) = (attr.sq_psn, attr.sq_psn, attr.sq_psn, attr.sq_psn);
        self.max_rd_atomic = attr.max_rd_atomic.into();
        self.window = u32::from(config.window).max(1);
        if let Some(selective) = &mut self.selective {
            selective.start(attr.sq_psn);
            self.window = self.window.min(SPAN as u32);
        }
        self.timeout_ns = if attr.timeout == 0 { 0 } else { 4096 << attr.timeout };
        (self.retry_cnt, self.retries_left) = (attr.retry_cnt, attr.retry_cnt);
        (self.rnr_retry, self.rnr_left) = (attr.rnr_retry, attr.rnr_retry);
    }

    /// RTS to SQD: what has been started is finished, nothing new is started.
    pub(crate) fn drain_from_here(&mut self) {
        // Going back may have left `send` before requests that had been started.
        let started = self.started();
        self.drain_at = Some(started);
        self.drained_told = false;
    }

    /// SQD to RTS.
    pub(crate) fn resume(&mut self) {
        self.drain_at = None;
    }

    /// Index of the first request of which no packet was ever sent.
    fn started(&self) -> u32 {
        let mut index = self.send;
        while let Some(wqe) = self.ring.entry(index) {
            if forward(self.una, wqe.first) >= forward(self.una, self.high) {
                break;
            }
            index = index.wrapping_add(1);
        }
        index
    }

    /// True in SQD when everything that was started is complete.
    pub(crate) fn is_drained(&self) -> bool {
        self.drain_at.is_some_and(|at| self.ring.is_empty() || self.ring.oldest_index() == at)
    }

    /// Posted and not yet given back by `poll`.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding as usize
    }

    /// Requests that the queue would take now.
    pub(crate) fn room(&self) -> usize {
        self.ring.capacity() - self.outstanding as usize
    }

    /// The oldest packet that is not acknowledged.
    pub(crate) fn unacknowledged(&self) -> Psn {
        self.una
    }

    /// A completion was given to the caller.
    #[inline]
    pub(crate) fn collected(&mut self) {
        self.outstanding -= 1;
    }

    /// When this queue has to be looked at again.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Time {
        self.deadline.min(self.rnr_until).min(self.probe_at())
    }

    /// True if a request has packets that were not sent since the last going back.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.send != self.ring.next_index()
    }

    /// True if `psn` was sent and is not acknowledged.
    #[inline]
    fn is_outstanding(&self, psn: Psn) -> bool {
        forward(self.una, psn) < forward(self.una, self.high)
    }

    /// Packets of the oldest request that are acknowledged, or of a READ that have arrived.
    #[inline]
    fn oldest_done(&self, first: Psn) -> u32 {
        forward(first, self.una)
    }
}
