//! The two sides of a transport: [`Device`] for the control thread, [`Transport`] for a worker.
//!
//! # Contract of every transport
//!
//! 1. **Ownership.** `post_*` moves the buffer. It comes back exactly once: in a [`Refused`], in a [`Completion`], or
//!    home to its pool when the queue pair is destroyed. No timeout gives back a buffer that hardware may still touch.
//! 2. **Order.** The requests of one send queue complete in the order they were posted, and so do the receives of one
//!    receive queue. (Receives of a shared queue complete in any order.)
//! 3. **Every request completes**, signalled on the device or not: selective signalling is the transport's business.
//!    In ERR all that is posted completes, in order, with [`Status::WrFlushErr`](crate::wr::Status::WrFlushErr) or the
//!    error that caused it.
//! 4. **Nothing moves before `flush`.** `post_*` only queues; `flush` rings one doorbell for each queue
//!    pair that has something new (or puts frames into the egress).
//! 5. **Bounded.** `poll` fills at most what its array holds, `flush` at most what the egress takes; no call blocks.
//! 6. **A receive or READ gives a buffer with these bytes**, not necessarily the one posted; a UD receive has no
//!    network header in front: the transport strips it and reports the sender.
//! 7. A transport belongs to one thread at a time. A queue pair is made and changed by the control thread through
//!    [`Device`], then attached; a worker only ever moves it to ERR.

use crate::buf::{Buf, Egress};
use crate::mem::{Access, Arena, Region};
use crate::qp::{AddressVector, Change, QpSpec, QpState};
use crate::types::{Gid, Qpn, Time};
use crate::wr::{AhId, Completion, QpId, RecvWr, Refused, SendWr, SrqId};
use arrayvec::ArrayVec;

/// Completions taken in one poll.
pub const POLL_BATCH: usize = 64;

/// Room for one poll's completions.
pub type Completions<B> = ArrayVec<Completion<B>, POLL_BATCH>;

/// Result of posting: the request comes back when it was not taken.
pub type Posted<W> = Result<(), Refused<W>>;

/// A worker's side: post, flush, poll.
pub trait Transport: Sized {
    /// Buffers of this worker.
    type Buf: Buf;
    /// A queue pair off the transport: not yet attached, or detached again.
    type Qp: Send;

    /// Takes a queue pair (in any state from INIT on) into service; gives it back when the table is full.
    fn attach(&mut self, qp: Self::Qp) -> Result<QpId, Self::Qp>;

    /// Takes a queue pair out of service once nothing of it is in flight; `None` while something is, or if `qp` is
    /// stale. Call [`fail`](Transport::fail) and poll first.
    fn detach(&mut self, qp: QpId) -> Option<Self::Qp>;

    /// Queues a request.
    fn post_send(&mut self, qp: QpId, wr: SendWr<Self::Buf>) -> Posted<SendWr<Self::Buf>>;

    /// Queues a receive.
    fn post_recv(&mut self, qp: QpId, wr: RecvWr<Self::Buf>) -> Posted<RecvWr<Self::Buf>>;

    /// Queues a receive that any queue pair on `srq` may take.
    fn post_srq_recv(&mut self, srq: SrqId, wr: RecvWr<Self::Buf>) -> Posted<RecvWr<Self::Buf>>;

    /// Sets off what has been posted, and what timers and acknowledgements make due.
    fn flush(&mut self, now: Time, egress: &mut impl Egress<Self::Buf>);

    /// Appends completions to `out` up to its capacity; returns how many.
    fn poll(&mut self, now: Time, out: &mut Completions<Self::Buf>) -> usize;

    /// A frame from the network, by value. Transports whose device receives by itself drop it.
    fn ingress(&mut self, now: Time, frame: Self::Buf) {
        let _ = (now, frame);
    }

    /// State of a queue pair; `None` if `qp` is stale.
    fn state(&self, qp: QpId) -> Option<QpState>;

    /// Requests that the send queue would take now; 0 if `qp` is stale.
    fn send_room(&self, qp: QpId) -> usize;

    /// Receives that the receive queue would take now; 0 if `qp` is stale.
    fn recv_room(&self, qp: QpId) -> usize;

    /// Buffers of this queue pair in flight, both queues.
    fn in_flight(&self, qp: QpId) -> usize;

    /// Moves a queue pair to ERR: all that is posted will complete.
    fn fail(&mut self, qp: QpId);

    /// When `flush` must be called next although nothing was posted; [`Time::NEVER`] if there is no timer.
    fn next_timer(&self) -> Time {
        Time::NEVER
    }

    /// Arms the completion queues for an event, then says whether it is safe to sleep: false if completions are there
    /// already or if there is nothing to sleep on.
    fn arm(&mut self) -> bool {
        false
    }

    /// File descriptor that turns readable after [`arm`](Transport::arm); level-triggered.
    fn event_fd(&self) -> Option<std::os::fd::RawFd> {
        None
    }

    /// Takes and acknowledges the events of [`event_fd`](Transport::event_fd).
    fn acknowledge(&mut self) {}

    /// Makes a completion queue anew that has lost completions, giving up every queue pair on it: what they had in
    /// flight completes as flushed. Gives a sentence for the log.
    fn recover_cq(&mut self, cq: u8) -> Result<String, String> {
        Err(format!("completion queue {cq}: this transport's queues do not overflow"))
    }

    /// Counters since the start.
    fn counters(&self) -> Counters;
}

/// What a transport counts. All are totals since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Requests taken by `post_send`.
    pub sends_posted: u64,
    /// Receives taken by `post_recv` and `post_srq_recv`.
    pub receives_posted: u64,
    /// Send completions given to the caller.
    pub sends_completed: u64,
    /// Receive completions given to the caller.
    pub receives_completed: u64,
    /// Completions with an error other than a flush.
    pub errors: u64,
    /// Completions flushed.
    pub flushed: u64,
    /// Doorbells rung, or batches of frames made.
    pub doorbells: u64,
    /// Completions for queue pairs that are gone.
    pub stale: u64,
    /// Buffers given up because the device did not let go of them.
    pub leaked: u64,
}

/// A completion queue of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CqSpec {
    /// Completions it holds; at least the sum of the depths of all queues on it, or it may overflow.
    pub depth: u32,
    /// With a completion channel, so that the worker can sleep on it.
    pub events: bool,
}

/// A shared receive queue of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqSpec {
    /// Receives it holds.
    pub depth: u32,
    /// Segments of a receive.
    pub sge: u16,
}

/// What a worker's transport is made with.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WorkerSpec {
    /// Completion queues, in polling order: the first is emptied first.
    pub cqs: Vec<CqSpec>,
    /// Shared receive queues; [`SrqId`] is the index here.
    pub srqs: Vec<SrqSpec>,
    /// Queue pairs attached at once.
    pub max_qps: u16,
}

/// The control thread's side: devices, queue pairs, regions.
///
/// One value serves all workers of a node. Calls may block (they are system calls on verbs).
pub trait Device: Sync {
    /// A queue pair off its transport.
    type Qp: Send;
    /// The worker's side.
    type Transport: Transport<Qp = Self::Qp>;
    /// What can go wrong.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Makes the transport of the worker with this index, with its completion queues and shared receive queues. Once
    /// per worker, before its queue pairs are created.
    fn create_worker(&self, worker: usize, spec: &WorkerSpec) -> Result<Self::Transport, Self::Error>;

    /// Creates a queue pair in RESET that the worker with this index will own.
    fn create_qp(&self, worker: usize, spec: &QpSpec) -> Result<Self::Qp, Self::Error>;

    /// Its number.
    fn qpn(&self, qp: &Self::Qp) -> Qpn;

    /// Changes its state, after the table in [`crate::qp::state`].
    fn modify(&self, qp: &mut Self::Qp, change: &Change) -> Result<(), Self::Error>;

    /// Destroys a detached queue pair. What is still in flight goes home after the device let go of it.
    fn destroy_qp(&self, qp: Self::Qp) -> Result<(), Self::Error>;

    /// Registers an arena so that peers can use it as far as `access` goes.
    fn register(&self, arena: &Arena, access: Access) -> Result<Region, Self::Error>;

    /// Registers the memory that buffers of all workers come from (a mempool's chunks) for local use, so that posted
    /// buffers are found by address. Before `create_worker`.
    fn register_buffers(&self, arena: &Arena) -> Result<(), Self::Error>;

    /// Makes a path for datagrams, usable by the worker's transport.
    fn create_ah(&self, worker: usize, path: &AddressVector) -> Result<AhId, Self::Error>;

    /// The local address that peers are told.
    fn gid(&self) -> Gid;
}
