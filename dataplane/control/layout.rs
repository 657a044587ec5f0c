//! Which queue pairs a node has with each of its peers, and in which order they stand in an offer.
//!
//! A relay has so many of each worker, all alike. The key-value service has two for each pair of a gateway worker and a node
//! worker: one for READs, one for calls. The n-th queue pair of one offer meets the n-th of the other, so both ends of the
//! key-value service list theirs by node worker, then gateway worker, then lane. A gateway does not know how many workers
//! the node has before it has met it: it offers for as many as it is configured to take, and what the node does not
//! answer is destroyed again.

use super::slot::{Place, Slot};
use crate::flow::PathIndex;
use crate::service::kv::link::Lane;
use crate::service::kv::message::{NodeHello, message_bytes_for};
use rdma_engine::cm::{Agreement, Offer};
use rdma_engine::mem::Access;
use rdma_engine::qp::{InitAttr, QpSpec};

/// Lanes between a gateway worker and a node worker.
pub const KV_LANES: usize = 2;
/// The lane of READs: nothing is ever received on it.
pub const READ_LANE: u16 = Lane::Read as u16;
/// The lane of calls and their answers.
pub const CALL_LANE: u16 = Lane::Call as u16;

/// What the queue pairs of one lane are made with.
#[derive(Clone, Copy, Debug)]
pub struct LaneSettings {
    /// Kind, depths, completion queue.
    pub spec: QpSpec,
    /// What they go to INIT with: the rights of the peer, among others.
    pub init: InitAttr,
    /// Receives that one queue pair may use: what the peer is promised. 0 on a lane that never receives.
    pub credits: u32,
    /// The least that the peer has to promise in turn; 0 on a lane that never sends messages.
    pub least_peer_credits: u32,
}

/// Queue pairs of a node by peer and worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// One peer; so many queue pairs of each worker.
    Relay {
        /// Of each worker.
        qps_per_worker: usize,
    },
    /// A gateway with up to this many memory nodes.
    Gateway {
        /// Memory nodes at most.
        nodes: usize,
        /// Workers that each of them may have.
        node_workers_max: usize,
    },
    /// A memory node with seats for so many gateways.
    Memory {
        /// Gateways at once.
        seats: usize,
        /// Workers that each of them may have.
        gateway_workers_max: usize,
    },
}

impl Layout {
    /// Peers that the node can have at once.
    pub fn links(self) -> usize {
        match self {
            Layout::Relay { .. } => 1,
            Layout::Gateway { nodes, .. } => nodes,
            Layout::Memory { seats, .. } => seats,
        }
    }

    /// Paths of one worker to one peer, at most.
    pub fn paths_per_link(self) -> usize {
        match self {
            Layout::Relay { qps_per_worker } => qps_per_worker,
            Layout::Gateway { node_workers_max, .. } => node_workers_max * KV_LANES,
            Layout::Memory { gateway_workers_max, .. } => gateway_workers_max * KV_LANES,
        }
    }

    /// Paths of one worker, at most.
    pub fn paths_per_worker(self) -> usize {
        self.links() * self.paths_per_link()
    }

    /// True where peers come and go by themselves and most places stay empty.
    pub(super) fn is_kv(self) -> bool {
        !matches!(self, Layout::Relay { .. })
    }

    /// The places of the queue pairs to peer `link`, for a node with this many workers. Paths are numbered through all
    /// peers of a worker.
    pub(super) fn places<Q>(self, link: usize, workers: usize) -> Vec<Place<Q>> {
        let first = link * self.paths_per_link();
        let place = |worker: usize, path: usize, lane: usize| Place {
            worker,
            path: (first + path) as PathIndex,
            lane: lane as u16,
            slot: Slot::Free,
            last: None,
            connections: 0,
        };
        let pairs = |node: usize, gateway: usize| {
            let one = move |node: usize, gateway: usize, lane: usize| match self {
                Layout::Memory { .. } => place(node, gateway * KV_LANES + lane, lane),
                _ => place(gateway, node * KV_LANES + lane, lane),
            };
            (0..node).flat_map(move |n| {
                (0..gateway).flat_map(move |g| (0..KV_LANES).map(move |lane| one(n, g, lane)))
            })
        };
        match self {
            Layout::Relay { qps_per_worker } => {
                let of_worker = |w| (0..qps_per_worker).map(move |path| place(w, path, 0));
                (0..workers).flat_map(of_worker).collect()
            }
            Layout::Gateway { node_workers_max, .. } => pairs(node_workers_max, workers).collect(),
            Layout::Memory { gateway_workers_max, .. } => pairs(workers, gateway_workers_max).collect(),
        }
    }

    /// Which places a session uses, in the order of the offer. `peer` is the other end's offer where it comes first,
    /// `met` the number of its workers the last time.
    ///
    /// # Errors
    /// Why there can be no session, naming the key to change.
    pub(super) fn offered(
        self,
        workers: usize,
        peer: Option<&Offer>,
        met: Option<usize>,
    ) -> Result<Vec<usize>, String> {
        match self {
            Layout::Relay { qps_per_worker } => Ok((0..workers * qps_per_worker).collect()),
            Layout::Gateway { node_workers_max, .. } => {
                let node_workers = met.unwrap_or(node_workers_max).min(node_workers_max);
                Ok((0..node_workers * workers * KV_LANES).collect())
            }
            Layout::Memory { gateway_workers_max, .. } => {
                let peer = peer.ok_or("a memory node answers, it does not ask")?;
                let gateway = usize::from(peer.workers);
                check_gateway(peer, workers, gateway_workers_max)?;
                let of_node = |w: usize| {
                    let first = w * gateway_workers_max * KV_LANES;
                    first..first + gateway * KV_LANES
                };
                Ok((0..workers).flat_map(of_node).collect())
            }
        }
    }

    /// Whether both ends of the key-value service carry the largest message of the other: an item that one of them could
    /// not take would never be answered, and a call or answer that is too long ends the connection.
    ///
    /// # Errors
    /// Both numbers, and the key to change.
    pub(super) fn check_messages(self, ours: &Offer, theirs: &Offer) -> Result<(), String> {
        let (gateway, node) = match self {
            Layout::Relay { .. } => return Ok(()),
            Layout::Gateway { .. } => (ours, theirs),
            Layout::Memory { .. } => (theirs, ours),
        };
        let (carries, needed) = (gateway.message_size, node.min_message_size);
        if carries < needed {
            return Err(format!(
                "the largest items of the memory node take messages of {needed} bytes, those of the gateway are of up to {carries}; set message_bytes = {needed} at the gateway, or {carries} at the memory node"
            ));
        }
        let (carries, needed) = (node.message_size, gateway.min_message_size);
        if carries < needed {
            return Err(format!(
                "the largest values of the gateway take messages of {needed} bytes, those of the memory node are of up to {carries}; set message_bytes = {needed} at the memory node, or lower value_bytes_max at the gateway by {}",
                needed - carries
            ));
        }
        // What a memory node's offer says may be less than what its hello says.
        match NodeHello::read(&node.application) {
            Ok(hello) if message_bytes_for(hello.value_bytes_max) > gateway.message_size => Err(format!(
                "the memory node stores values of {} bytes, whose messages of {} bytes exceed the {} of the gateway; set message_bytes alike at both",
                hello.value_bytes_max,
                message_bytes_for(hello.value_bytes_max),
                gateway.message_size
            )),
            _ => Ok(()),
        }
    }

    /// Whether what was agreed is what the service needs.
    ///
    /// # Errors
    /// What is missing, naming the key to change.
    pub(super) fn check(self, workers: usize, agreement: &Agreement) -> Result<(), String> {
        let Layout::Gateway { node_workers_max, .. } = self else { return Ok(()) };
        let (offer, pairs) = (&agreement.peer.offer, &agreement.agreed.qps);
        let node = usize::from(offer.workers);
        if pairs.len() != node * workers * KV_LANES {
            return Err(format!(
                "the memory node has {node} workers, {} queue pairs are for {}; set node_workers_max = {node} or more (it is {node_workers_max})",
                pairs.len(),
                pairs.len() / (workers * KV_LANES)
            ));
        }
        let owner = |n: usize| n / (workers * KV_LANES);
        if let Some(n) = (0..pairs.len()).find(|n| usize::from(pairs[*n].remote.worker) != owner(*n)) {
            return Err(format!("queue pair {n} of the memory node is of worker {}", pairs[n].remote.worker));
        }
        match offer.regions.as_slice() {
            [region] | [region, _] if region.access.allows(Access::REMOTE_READ) => Ok(()),
            regions => Err(format!(
                "the memory node offers {} regions; one to read is needed, and one to write may follow",
                regions.len()
            )),
        }
    }
}

/// A gateway offers at least a pair of lanes for each worker of ours and each of its own, in the common order.
fn check_gateway(offer: &Offer, workers: usize, gateway_workers_max: usize) -> Result<(), String> {
    let gateway = usize::from(offer.workers);
    if gateway > gateway_workers_max {
        return Err(format!(
            "the gateway has {gateway} workers; set gateway_workers_max = {gateway} or more at the memory node (it is {gateway_workers_max})"
        ));
    }
    let needed = workers * gateway * KV_LANES;
    if offer.qps.len() < needed {
        return Err(format!(
            "the gateway offers {} queue pairs, this memory node has {workers} workers and needs {needed}; set node_workers_max = {workers} or more at the gateway",
            offer.qps.len()
        ));
    }
    for (n, qp) in offer.qps.iter().take(needed).enumerate() {
        let (worker, lane) = (n / KV_LANES % gateway, n % KV_LANES);
        if usize::from(qp.worker) != worker || usize::from(qp.lane) != lane {
            return Err(format!(
                "queue pair {n} of the gateway is of worker {} on lane {}, not of worker {worker} on lane {lane}",
                qp.worker, qp.lane
            ));
        }
    }
    Ok(())
}
