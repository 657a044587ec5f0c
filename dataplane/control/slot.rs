//! Queue pairs of a node as control sees them.

use crate::flow::PathIndex;
use crate::service::relay::PathTotals;
use rdma_engine::types::{Psn, Qpn, Time};

/// Where a queue pair is.
#[derive(Debug)]
pub enum Slot<Q> {
    /// There is none.
    Free,
    /// Made, in INIT, waiting for the peer's numbers.
    Fresh {
        /// The queue pair.
        qp: Q,
        /// Its number.
        qpn: Qpn,
        /// First PSN it will send.
        psn: Psn,
    },
    /// With its worker.
    Working(Working),
}

/// A queue pair that a worker has.
#[derive(Clone, Copy, Debug)]
pub struct Working {
    /// Its number.
    pub qpn: Qpn,
    /// The peer's queue pair.
    pub peer_qpn: Qpn,
    /// True once its receives are posted.
    pub armed: bool,
    /// True from the moment it was told to go.
    pub failing: bool,
    /// Since when.
    pub since: Time,
}

/// A place for a queue pair: one path of one worker.
#[derive(Debug)]
pub struct Place<Q> {
    /// The worker.
    pub worker: usize,
    /// The path at that worker.
    pub path: PathIndex,
    /// What its queue pairs are for.
    pub lane: u16,
    /// What is there.
    pub slot: Slot<Q>,
    /// What the last queue pair carried.
    pub last: Option<(Qpn, PathTotals)>,
    /// Connections so far.
    pub connections: u64,
}

impl<Q> Place<Q> {
    /// True without a queue pair.
    pub fn is_free(&self) -> bool {
        matches!(self.slot, Slot::Free)
    }

    /// Forgets the queue pair: its worker has given it back.
    pub(super) fn free(&mut self) {
        self.slot = Slot::Free;
    }

    /// The queue pair at work here.
    pub fn working(&mut self) -> Option<&mut Working> {
        match &mut self.slot {
            Slot::Working(w) => Some(w),
            _ => None,
        }
    }

    /// Takes a fresh queue pair out.
    pub fn take_fresh(&mut self) -> Option<(Q, Qpn, Psn)> {
        match std::mem::replace(&mut self.slot, Slot::Free) {
            Slot::Fresh { qp, qpn, psn } => Some((qp, qpn, psn)),
            other => {
                self.slot = other;
                None
            }
        }
    }

    /// In a word, for tables.
    pub fn state(&self) -> &'static str {
        match &self.slot {
            Slot::Free => "down",
            Slot::Fresh { .. } => "init",
            Slot::Working(w) if w.failing => "closing",
            Slot::Working(w) if w.armed => "up",
            Slot::Working(_) => "arming",
        }
    }
}
