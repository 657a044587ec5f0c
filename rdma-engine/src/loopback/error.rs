//! What can go wrong in setting up a loopback device.

use crate::mem::AccessError;
use crate::qp::IllegalChange;

/// A call of the control side that was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoopbackError {
    /// A second transport for the same worker.
    #[error("worker {0} has its transport already: create each worker once, or drop the old transport first")]
    WorkerExists(usize),
    /// A queue pair or address handle for a worker that does not exist.
    #[error("worker {0} has no transport: call create_worker before its queue pairs are created")]
    NoWorker(usize),
    /// A completion queue that the worker does not have.
    #[error(
        "completion queue {cq} of worker {worker}: it has {cqs}; name a lower one or add one to its spec"
    )]
    NoCq {
        /// The worker.
        worker: usize,
        /// Number asked for.
        cq: u8,
        /// Completion queues the worker has.
        cqs: usize,
    },
    /// A shared receive queue that the worker does not have.
    #[error("shared receive queue {srq} of worker {worker}: it has {srqs}; add it to the worker's spec")]
    NoSrq {
        /// The worker.
        worker: usize,
        /// Number asked for.
        srq: u16,
        /// Shared receive queues the worker has.
        srqs: usize,
    },
    /// A queue without a place, or with too many.
    #[error("a {queue} queue of {depth} entries: the depth is 1 to 2^20")]
    Depth {
        /// Which queue.
        queue: &'static str,
        /// Depth asked for.
        depth: u32,
    },
    /// A change of state that the table does not know.
    #[error(transparent)]
    State(#[from] IllegalChange),
    /// Rights that the verbs do not allow.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// No key left.
    #[error("2^24 regions are registered: drop some, or register fewer and larger ones")]
    NoKey,
    /// Registered twice.
    #[error("these buffers overlap memory that is registered already: register each chunk once")]
    Overlap,
    /// No address handle left.
    #[error("65536 address handles exist: reuse them, one a peer is enough")]
    NoHandle,
}
