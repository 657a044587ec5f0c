//! Orders from control to a worker and what the worker reports.

use crate::flow::PathIndex;
use crate::service::kv::members::Members;
use crate::service::relay::{PathEnd, PathLink, PathTotals};
use crossbeam_queue::ArrayQueue;
use rdma_engine::cm::RegionOffer;
use rdma_engine::types::QpType;
use rdma_engine::wr::{QpId, SrqId, UdDest};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A path as control knows it: everything a service has to know but the number its queue pair gets on the worker.
#[derive(Clone, Debug)]
pub struct PathOrder {
    /// What its queue pair is for, of those that the service has.
    pub lane: u16,
    /// Number of the peer: 0 at a relay, the memory node in order of the configuration at a gateway, the seat at a
    /// memory node.
    pub peer: u16,
    /// Worker of this end.
    pub local_worker: u16,
    /// Worker of the peer that owns the other queue pair.
    pub peer_worker: u16,
    /// The peer's memory, where it offers any.
    pub region: Option<RegionOffer>,
    /// More memory of the peer, that this peer alone may write.
    pub staging: Option<Box<RegionOffer>>,
    /// The peer's greeting.
    pub application: Arc<[u8]>,
    /// Transport type.
    pub kind: QpType,
    /// Number of the connection.
    pub generation: u32,
    /// Messages the peer is ready to take.
    pub peer_credits: u32,
    /// Receives to post.
    pub recv_depth: u32,
    /// Bytes of a message.
    pub message_bytes: u32,
    /// Segments of a message.
    pub max_segments: u16,
    /// Where datagrams go.
    pub ud: Option<UdDest>,
    /// The shared receive queue.
    pub srq: Option<SrqId>,
}

impl PathOrder {
    /// The relay's view of it once the queue pair has its place.
    pub fn link(&self, qp: QpId) -> PathLink {
        PathLink {
            qp,
            kind: self.kind,
            generation: self.generation,
            peer_credits: self.peer_credits,
            recv_depth: self.recv_depth,
            message_bytes: self.message_bytes,
            max_segments: self.max_segments,
            ud: self.ud,
            srq: self.srq,
        }
    }
}

/// An order to a worker.
#[derive(Debug)]
pub enum Order<Q> {
    /// Use this queue pair: attach it, post its receives.
    Attach {
        /// Which path.
        path: PathIndex,
        /// The queue pair, in RTS.
        qp: Q,
        /// Its numbers.
        order: PathOrder,
    },
    /// The peer is ready: send.
    Ready(PathIndex),
    /// The connection behind the path is gone.
    Fail(PathIndex),
    /// The queue pair that the path has given back is destroyed: its peer can no longer reach this end through it. Comes
    /// before another queue pair for the path; not at all where the device could not destroy it.
    Released(PathIndex),
    /// This completion queue lost completions: give up its queue pairs and make it anew.
    RebuildCq(u8),
    /// Share the keys by this list of memory nodes, as soon as nothing is under way by the present one.
    Relist(Box<Members>),
    /// Make a flight record of every queue pair.
    Record,
    /// The way is open: a source may begin.
    Start,
    /// Take nothing new and finish.
    Drain,
    /// The deadline has passed: give up what is left.
    Abandon,
    /// Return.
    Stop,
}

/// What a worker reports.
#[derive(Debug)]
pub enum Report<Q> {
    /// The path has its receives posted.
    Armed(PathIndex),
    /// The queue pair could not be attached.
    Refused(PathIndex, Q),
    /// The path is free again; here is its queue pair.
    Down {
        /// Which path.
        path: PathIndex,
        /// The queue pair, nothing in flight.
        qp: Q,
        /// Why it ended.
        end: PathEnd,
        /// What it carried.
        totals: PathTotals,
    },
    /// A list of memory nodes that is not used any more.
    Relisted(Box<Members>),
    /// A memory node serves another list of nodes than ours.
    ListConflict {
        /// Which one, by its place.
        node: usize,
        /// Number of our list.
        ours: u64,
        /// Number of its list.
        theirs: u64,
    },
    /// The service has done all that it was there for.
    Finished,
    /// The drain is done.
    Drained,
}

/// The two queues between control and one worker. Bounded: control gives few orders at a time, and a worker keeps a
/// report it has no place for.
#[derive(Debug)]
pub struct Mailbox<Q> {
    orders: ArrayQueue<Order<Q>>,
    reports: ArrayQueue<Report<Q>>,
    /// Set with every order, so that a worker need not touch the queue to know that it is empty.
    mail: AtomicBool,
}

impl<Q> Mailbox<Q> {
    /// A mailbox for a worker with this many paths.
    pub fn new(paths: usize) -> Arc<Self> {
        let capacity = 5 * paths + 8;
        Arc::new(Mailbox {
            orders: ArrayQueue::new(capacity),
            reports: ArrayQueue::new(capacity),
            mail: AtomicBool::new(false),
        })
    }

    /// Gives an order; it comes back if the worker has too many to carry out.
    pub fn order(&self, order: Order<Q>) -> Result<(), Order<Q>> {
        let result = self.orders.push(order);
        self.mail.store(true, Ordering::Release);
        result
    }

    /// The next report.
    pub fn report(&self) -> Option<Report<Q>> {
        self.reports.pop()
    }

    /// True if orders may be waiting.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.mail.load(Ordering::Relaxed)
    }

    /// The next order; for the worker.
    pub fn next_order(&self) -> Option<Order<Q>> {
        if !self.mail.swap(false, Ordering::Acquire) {
            return None;
        }
        let order = self.orders.pop();
        if !self.orders.is_empty() {
            self.mail.store(true, Ordering::Release);
        }
        order
    }

    /// Reports to control; the report comes back if control is behind.
    pub fn tell(&self, report: Report<Q>) -> Result<(), Report<Q>> {
        self.reports.push(report)
    }
}
