//! One request and what is known about it.

use super::ledger::Write;
use rdma_engine::types::Time;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Reads; versions below `floor` would be stale.
    Get {
        /// From the [`Ledger`](super::ledger::Ledger), when the request began.
        floor: u32,
    },
    /// Writes `length` bytes.
    Set {
        /// Which version.
        write: Write,
        /// Bytes.
        length: u32,
    },
}

/// A request under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Number of its key.
    pub key: u32,
    /// What it does.
    pub op: Op,
    /// When it should have been sent: latency counts from here.
    pub due: Time,
    /// Times it was sent again.
    pub retries: u8,
    /// It is part of the measurement.
    pub measured: bool,
}

impl Call {
    /// True for a read.
    pub const fn is_get(&self) -> bool {
        matches!(self.op, Op::Get { .. })
    }
}
