//! Frames between the workers of a node.

use crate::bridge::Packet;
use crossbeam_queue::ArrayQueue;
use rdma_engine::wire::Mac;
use std::net::IpAddr;
use std::sync::Arc;

/// Things that wait for a worker at most.
pub const HANDOVER: usize = 256;

/// What one worker hands to another.
#[derive(Debug)]
pub(super) enum Handed {
    /// A RoCE frame for a queue pair of the other worker.
    Frame(Packet),
    /// The address of a neighbour: questions of one worker may be answered to another.
    Neighbour(IpAddr, Mac),
}

/// One ring a worker, known to all workers of the node.
#[derive(Clone, Debug)]
pub(super) struct Handover {
    rings: Arc<[ArrayQueue<Handed>]>,
    own: usize,
}

impl Handover {
    /// The ends of all workers.
    pub(super) fn new(workers: usize) -> Vec<Handover> {
        let rings: Arc<[_]> = (0..workers).map(|_| ArrayQueue::new(HANDOVER)).collect();
        (0..workers).map(|own| Handover { rings: Arc::clone(&rings), own }).collect()
    }

    /// True if there are others.
    #[inline]
    pub(super) fn has_others(&self) -> bool {
        self.rings.len() > 1
    }

    /// Hands something to `worker`; false if its ring is full and the thing is gone.
    #[inline]
    pub(super) fn give(&self, worker: usize, thing: Handed) -> bool {
        self.rings[worker].push(thing).is_ok()
    }

    /// True if `worker` is another one of this node.
    #[inline]
    pub(super) fn is_other(&self, worker: usize) -> bool {
        worker != self.own && worker < self.rings.len()
    }

    /// Tells all others.
    pub(super) fn tell(&self, ip: IpAddr, mac: Mac) {
        for worker in (0..self.rings.len()).filter(|w| *w != self.own) {
            // A worker that is not told asks for itself.
            self.rings[worker].push(Handed::Neighbour(ip, mac)).ok();
        }
    }

    /// The next thing for this worker.
    #[inline]
    pub(super) fn take(&self) -> Option<Handed> {
        self.rings[self.own].pop()
    }

    /// True if something waits for this worker.
    #[inline]
    pub(super) fn has_some(&self) -> bool {
        !self.rings[self.own].is_empty()
    }
}
