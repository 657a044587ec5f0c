//! Queue pairs between a gateway worker and a memory node's worker, as control hands them over.

use crate::worker::PathOrder;
use rdma_engine::cm::RegionOffer;
use rdma_engine::wr::QpId;
use std::sync::Arc;

/// What a queue pair is for. The number travels in the exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Lane {
    /// READs of the gateway; the node's software sees nothing of it.
    Read = 0,
    /// Calls and answers.
    Call = 1,
}

impl Lane {
    /// The lane with this number.
    pub const fn from_code(code: u16) -> Option<Self> {
        match code {
            0 => Some(Lane::Read),
            1 => Some(Lane::Call),
            _ => None,
        }
    }
}

/// One queue pair, attached and in RTS.
#[derive(Clone, Debug)]
pub struct KvLink {
    /// The queue pair at this worker's transport.
    pub qp: QpId,
    /// What it is for.
    pub lane: Lane,
    /// The other end's number here: of the memory node at a gateway, of the seat at a memory node.
    pub peer: u16,
    /// The other end's worker: the partition at a gateway, the gateway worker at a memory node.
    pub peer_worker: u16,
    /// Messages that the other end is ready to take.
    pub peer_credits: u32,
    /// Receives to post.
    pub recv_depth: u32,
    /// Bytes of a message.
    pub message_bytes: u32,
    /// The worker of this end: at a gateway with the other end's, which slots of the staging region are its own.
    pub worker: u16,
    /// The memory that may be read; a gateway has it.
    pub region: Option<RegionOffer>,
    /// The memory that calls may be written to; a gateway has it, if the node has any.
    pub staging: Option<RegionOffer>,
    /// What the other end says of itself.
    pub hello: Arc<[u8]>,
}

impl KvLink {
    /// A queue pair as control orders it to be used; `None` for a lane that the service does not have.
    pub fn of(order: &PathOrder, qp: QpId) -> Option<Self> {
        Some(KvLink {
            qp,
            lane: Lane::from_code(order.lane)?,
            peer: order.peer,
            peer_worker: order.peer_worker,
            peer_credits: order.peer_credits,
            recv_depth: order.recv_depth,
            message_bytes: order.message_bytes,
            worker: order.local_worker,
            region: order.region,
            staging: order.staging.as_deref().copied(),
            hello: Arc::clone(&order.application),
        })
    }
}
