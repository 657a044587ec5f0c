//! A loopback queue pair: what its owner alone knows.

use super::datagram::LastDest;
use super::device::HubInner;
use super::ring::Shared;
use crate::buf::Buf;
use crate::mem::Access;
use crate::qp::{Change, IllegalChange, InitAttr, QpSpec, QpState, RtrAttr, RtsAttr};
use crate::types::{Pmtu, Psn, QpType, Time};
use crate::wr::{Completion, Cookie, Done, QpId, RecvWr, SendWr, Status};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, PoisonError};

/// RNR timer codes in units of 10 us (IBTA vol. 1, table 45). Code 0 is the longest.
const RNR_10US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// What the requester waits for by a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// Nothing.
    No,
    /// The end of the peer's RNR time.
    Rnr,
    /// A peer that does not answer.
    Answer,
}

/// The requester's side.
#[derive(Debug)]
pub(super) struct Requester {
    /// PSN of the next request.
    pub(super) psn: Psn,
    /// READs and atomics in the ring.
    pub(super) reads: u32,
    pub(super) max_reads: u32,
    /// Nanoseconds without an answer until a retry; 0 for no timer.
    pub(super) timeout_ns: u64,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) wait: Wait,
    pub(super) deadline: Time,
    /// Retries left for the request with this index.
    pub(super) retries: (Option<u32>, u8),
    /// RNR retries left for the request with this index.
    pub(super) rnr_retries: (Option<u32>, u8),
}

/// The responder's side.
#[derive(Debug)]
pub(super) struct Responder {
    pub(super) access: Access,
    /// PSN of the next request.
    pub(super) expected: Psn,
    pub(super) max_reads: u8,
    pub(super) rnr_ns: u64,
}

/// A queue pair of a [`Loopback`](super::Loopback) device, off its transport. Dropping it destroys it.
pub struct LoopQp<B: Buf> {
    pub(super) shared: Arc<Shared<B>>,
    pub(super) hub: Arc<HubInner<B>>,
    /// The connected peer.
    pub(super) peer: Option<Arc<Shared<B>>>,
    pub(super) spec: QpSpec,
    pub(super) cq: usize,
    pub(super) pmtu: Pmtu,
    pub(super) asks: Requester,
    pub(super) answers: Responder,
    /// Requests posted and not flushed.
    pub(super) staged: VecDeque<SendWr<B>>,
    pub(super) receives: VecDeque<RecvWr<B>>,
    /// Requests whose completion was not polled, and receives likewise.
    pub(super) sends_out: u32,
    pub(super) receives_out: u32,
    pub(super) last_dest: LastDest<B>,
    /// Present identity; set by attaching.
    pub(super) id: QpId,
    /// It is on the worker's list for the next flush.
    pub(super) dirty: bool,
}

impl<B: Buf> fmt::Debug for LoopQp<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.spec.kind, self.shared.qpn, self.state())
    }
}

/// A completion.
#[inline]
pub(super) fn completion<B>(qp: QpId, cookie: Cookie, done: Done, status: Status, buf: B) -> Completion<B> {
    Completion { qp, cookie, done, status, buf }
}

impl<B: Buf> LoopQp<B> {
    pub(super) fn new(shared: Arc<Shared<B>>, hub: Arc<HubInner<B>>, spec: QpSpec) -> Self {
        let asks = Requester {
            psn: Psn::default(),
            reads: 0,
            max_reads: 0,
            timeout_ns: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            wait: Wait::No,
            deadline: Time::NEVER,
            retries: (None, 0),
            rnr_retries: (None, 0),
        };
        let answers = Responder { access: Access::LOCAL, expected: Psn::default(), max_reads: 0, rnr_ns: 0 };
        let own_receives = if spec.srq.is_some() { 0 } else { spec.caps.recv_depth };
        LoopQp {
            shared,
            hub,
            peer: None,
            spec,
            cq: usize::from(spec.cq),
            pmtu: Pmtu::B4096,
            asks,
            answers,
            staged: VecDeque::with_capacity(spec.caps.send_depth as usize),
            receives: VecDeque::with_capacity(own_receives as usize),
            sends_out: 0,
            receives_out: 0,
            last_dest: None,
            id: QpId { slot: 0, generation: 0 },
            dirty: false,
        }
    }

    #[inline]
    pub(super) fn state(&self) -> QpState {
        self.shared.state()
    }

    /// Buffers in flight.
    pub(super) fn in_flight(&self) -> usize {
        (self.sends_out + self.receives_out) as usize
    }

    /// A completion of this queue pair.
    #[inline]
    pub(super) fn completion(&self, cookie: Cookie, done: Done, status: Status, buf: B) -> Completion<B> {
        completion(self.id, cookie, done, status, buf)
    }

    /// True if the peer serves what is sent to it, now or when its worker comes to it.
    #[inline]
    pub(super) fn peer_answers(&self) -> bool {
        self.peer.as_ref().is_some_and(|p| p.state().answers() && p.dest() == self.shared.qpn)
    }

    /// Tells the peer's worker to look.
    #[inline]
    pub(super) fn alert_peer(&self) {
        if let Some(peer) = &self.peer {
            peer.alert();
        }
    }

    /// Makes a change after the table.
    pub(super) fn change(&mut self, change: &Change) -> Result<(), IllegalChange> {
        let to = self.state().after(self.spec.kind, change)?;
        match change {
            Change::Init(attr) => self.init(attr),
            Change::Rtr(attr) => self.rtr(attr),
            Change::Rts(attr) => self.rts(attr),
            Change::Reset => self.reset(),
            Change::Sqd | Change::Resume | Change::Err => {}
        }
        self.shared.set_state(to);
        self.alert_peer();
        Ok(())
    }

    fn init(&mut self, attr: &InitAttr) {
        self.answers.access = attr.access;
        self.shared.set_qkey(attr.qkey);
    }

    fn rtr(&mut self, attr: &RtrAttr) {
        if self.spec.kind == QpType::Ud {
            return;
        }
        self.pmtu = attr.pmtu;
        self.answers.expected = attr.rq_psn;
        self.answers.max_reads = attr.max_dest_rd_atomic;
        self.answers.rnr_ns = u64::from(RNR_10US[usize::from(attr.min_rnr_timer & 31)]) * 10_000;
        self.shared.set_dest(attr.dest_qpn);
        let peer = self.hub.find(attr.dest_qpn, attr.path.gid);
        self.peer = peer.filter(|p| p.kind == self.spec.kind);
    }

    fn rts(&mut self, attr: &RtsAttr) {
        let asks = &mut self.asks;
        asks.psn = attr.sq_psn;
        asks.max_reads = u32::from(attr.max_rd_atomic);
        asks.timeout_ns = if attr.timeout == 0 { 0 } else { 4096 << (attr.timeout & 31) };
        asks.retry_cnt = attr.retry_cnt;
        asks.rnr_retry = attr.rnr_retry;
    }

    /// Both queues are emptied without completions.
    fn reset(&mut self) {
        self.shared.ring().clear();
        if let Some(inbox) = &self.shared.inbox {
            inbox.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        self.staged.clear();
        self.receives.clear();
        (self.sends_out, self.receives_out) = (0, 0);
        self.asks.reads = 0;
        (self.asks.retries, self.asks.rnr_retries) = ((None, 0), (None, 0));
        self.asks.wait = Wait::No;
        self.asks.deadline = Time::NEVER;
        self.shared.set_dest(crate::types::Qpn::new(0));
        // The old peer learns it from the bell that follows; then nothing ties the two together.
        self.alert_peer();
        self.peer = None;
    }
}

impl<B: Buf> Drop for LoopQp<B> {
    fn drop(&mut self) {
        self.shared.set_gone();
        self.hub.forget(self.shared.qpn);
        self.alert_peer();
    }
}
