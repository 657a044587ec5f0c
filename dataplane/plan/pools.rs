//! Buffer pools: enough for every ring, burst and queue at once.

use super::bounds::{
    COMPLETION_BURST, DATA_ROOM_BYTES, DRIVER_OVERHEAD_BYTES, GRH_BYTES, HANDOVER_SLOTS, HEADROOM_BYTES,
    MAX_POOL, PARKED_FRAMES, RX_BURST, TX_BACKLOG,
};
use super::drivers::device_number;
use super::kv::REASSEMBLIES;
use super::ledger::{Ledger, fabric_at};
use super::ports::Draft;
use super::{PlanFabric, PlanNode, PlanPool, PlanQp, PlanService, PlanTransport, PortSource};
use crate::config::{Config, QpKind};
use crate::store::layout::UNIT;
use rdma_engine::soft::SoftConfig;

/// An item of the usual length with its header and key, in bytes.
const USUAL_ITEM_BYTES: u32 = 4096 + 320;
/// Buffers that each lcore keeps at hand of the pools of a node without a port.
const NODE_CACHE: u32 = 256;
/// The same of messages that are as long as an mbuf can be.
const LONG_MESSAGE_CACHE: u32 = 32;

/// Sums the demands on one pool and remembers what they were.
#[derive(Debug, Default)]
struct Demand {
    total: u64,
    terms: Vec<String>,
}

impl Demand {
    fn add(&mut self, what: &str, buffers: u64) {
        if buffers > 0 {
            self.total = self.total.saturating_add(buffers);
            self.terms.push(format!("{what} {buffers}"));
        }
    }

    fn why(&self) -> String {
        self.terms.join(" + ")
    }
}

/// All that the demands are computed from.
pub(super) struct Inputs<'a> {
    pub(super) config: &'a Config,
    pub(super) nodes: &'a [PlanNode],
    pub(super) lcores: u64,
}

/// Sizes all pools and tells ports and nodes which are theirs.
pub(super) fn size(
    config: &Config,
    ports: &mut Draft,
    nodes: &mut [PlanNode],
    lcores: usize,
    ledger: &mut Ledger,
) -> Vec<PlanPool> {
    let mut pools = Vec::new();
    let inputs = Inputs { config, nodes, lcores: lcores as u64 };
    for port in 0..ports.ports.len() {
        let pool = port_pool(port, ports, &inputs, ledger);
        ports.ports[port].port.pool = pools.len();
        pools.push(pool);
    }
    let mut own = Vec::new();
    for index in 0..nodes.len() {
        let inputs = Inputs { config, nodes, lcores: lcores as u64 };
        let messages = message_pool(index, ports, &inputs, ledger);
        let cuts = messages.is_some() && !nodes[index].ports.is_empty();
        let slices = cuts.then(|| slice_pool(index, ports, &inputs, ledger));
        own.push((frame_pool(index, &inputs, ledger), messages, slices));
    }
    for (node, (frames, messages, slices)) in nodes.iter_mut().zip(own) {
        let mut keep = |pool: Option<PlanPool>| {
            pool.map(|pool| {
                pools.push(pool);
                pools.len() - 1
            })
        };
        node.frame_pool = keep(frames);
        node.message_pool = keep(messages);
        node.slice_pool = keep(slices);
    }
    pools
}

/// Buffers that the lcores keep at hand: DPDK flushes a cache at one and a half times its size.
fn cached(cache: u32, lcores: u64) -> u64 {
    u64::from(cache) * 3 / 2 * lcores
}

/// Segments of all requests that a node may have in flight, and of one more on each QP that waits for room. A gateway holds
/// frames of requests and of their replies instead.
fn in_flight(node: &PlanNode) -> u64 {
    if let PlanService::Kv(kv) = &node.service {
        return node.workers.len() as u64 * 2 * u64::from(kv.requests);
    }
    let Some(fabric) = node.fabric.as_ref().filter(|_| matches!(node.service, PlanService::Relay(_))) else {
        return 0;
    };
    let segments = u64::from(fabric.qp.max_sge.min(RX_BURST));
    u64::from(fabric.qp.count) * (u64::from(fabric.qp.send_depth) + 1) * segments
}

/// Receives that a node keeps posted.
fn posted_receives(node: &PlanNode, fabric: &PlanFabric) -> u64 {
    let of_lane = |qp: &PlanQp| {
        let queues = if qp.srq { node.workers.len() as u64 } else { u64::from(qp.count) };
        queues * u64::from(qp.recv_depth)
    };
    fabric.lanes().map(of_lane).sum()
}

/// Messages of calls that a node has in flight, and one more on each queue pair that waits for room.
fn calls(fabric: &PlanFabric) -> u64 {
    fabric.call.as_ref().map_or(0, |call| u64::from(call.count) * (u64::from(call.send_depth) + 1))
}

/// READs that a gateway has in flight; each takes a frame for a short item or a message for a long one.
fn reads(node: &PlanNode, fabric: &PlanFabric) -> u64 {
    let PlanService::Kv(kv) = &node.service else { return 0 };
    let queues = u64::from(fabric.qp.count) * u64::from(fabric.qp.send_depth);
    queues.min(node.workers.len() as u64 * u64::from(kv.requests))
}

/// Frames of others that a node may hold outside of any ring.
fn holdings(node: &PlanNode, ports: &Draft) -> u64 {
    let bursts = node.workers.len() as u64 * u64::from(RX_BURST);
    let echoed = match &node.service {
        PlanService::Sink(sink) if sink.echo => {
            tx_slots(node, ports) + node.workers.len() as u64 * u64::from(TX_BACKLOG)
        }
        _ => 0,
    };
    bursts + in_flight(node) + echoed
}

/// Slots of the TX rings of a node's ports.
fn tx_slots(node: &PlanNode, ports: &Draft) -> u64 {
    node.ports.iter().map(|port| port_tx_slots(*port, ports)).sum()
}

fn port_tx_slots(port: usize, ports: &Draft) -> u64 {
    let port = &ports.ports[port].port;
    u64::from(port.queues) * u64::from(port.tx_desc)
}

/// The node at the far end of a link, which holds the very buffers that this end transmits.
fn far_node<'a>(port: usize, ports: &Draft, nodes: &'a [PlanNode]) -> Option<(usize, &'a PlanNode)> {
    let PortSource::LinkEnd { link, end } = ports.ports[port].port.source else { return None };
    let far = ports.links[link].ports[1 - end];
    let node = nodes.get(ports.ports[far].port.node?)?;
    Some((far, node))
}

/// Packets of the longest message.
fn packets(node: &PlanNode, fabric: &PlanFabric) -> u64 {
    let pmtu = fabric.pmtu.unwrap_or(1024).max(1);
    message_bytes(node).map_or(1, |bytes| u64::from(bytes.div_ceil(pmtu)))
}

/// Longest message of a node that has any.
fn message_bytes(node: &PlanNode) -> Option<u32> {
    match &node.service {
        PlanService::Relay(relay) => Some(relay.message_bytes),
        PlanService::Kv(kv) => Some(kv.message_bytes),
        PlanService::Memory(memory) => Some(memory.message_bytes),
        PlanService::Source(_) | PlanService::Sink(_) | PlanService::Load(_) => None,
    }
}

/// Packets of the items that a gateway is reading, each of the usual length.
fn read_packets(node: &PlanNode, fabric: &PlanFabric) -> u64 {
    reads(node, fabric) * u64::from(USUAL_ITEM_BYTES.div_ceil(fabric.pmtu.unwrap_or(1024).max(1)))
}

/// Received packets that a soft node holds: of messages being received or handed on, and pinned by TX slots.
fn soft_holdings(node: &PlanNode, ports: &Draft) -> u64 {
    let Some(fabric) = &node.fabric else { return 0 };
    let workers = node.workers.len() as u64;
    let handed_over = if workers > 1 { workers * u64::from(HANDOVER_SLOTS) } else { 0 };
    let held = workers * u64::from(held(node, fabric));
    let pinned = match node.service {
        // Replies are cut from what was read, so their slots hold no more than the requests do.
        PlanService::Kv(_) | PlanService::Memory(_) => read_packets(node, fabric),
        _ => tx_slots(node, ports) * packets(node, fabric),
    };
    posted_receives(node, fabric) * packets(node, fabric) + pinned + handed_over + held
}

/// Packets that a worker holds while an earlier one is sent again.
fn held(node: &PlanNode, fabric: &PlanFabric) -> u32 {
    let PlanTransport::Soft(soft) = &fabric.transport else { return 0 };
    SoftConfig::held_for(soft.window, node.qps_per_worker() as u32)
}

/// Client frames that wait while RoCE packets use their port, and a second backlog for its TX queue.
fn shared_port(node: &PlanNode, port: usize) -> u64 {
    let shared = node.ports.contains(&port) && is_soft_port(node, port);
    if shared { node.workers.len() as u64 * u64::from(PARKED_FRAMES + TX_BACKLOG) } else { 0 }
}

fn port_pool(index: usize, ports: &Draft, inputs: &Inputs<'_>, ledger: &mut Ledger) -> PlanPool {
    let draft = &ports.ports[index];
    let port = &draft.port;
    let mut demand = Demand::default();
    let is_link = matches!(port.source, PortSource::LinkEnd { .. });
    if !is_link {
        demand.add("RX rings", u64::from(port.queues) * u64::from(port.rx_desc));
    }
    demand.add("TX rings", port_tx_slots(index, ports));
    let node = port.node.and_then(|node| inputs.nodes.get(node));
    if let Some(node) = node {
        let workers = node.workers.len() as u64;
        demand.add("bursts", workers * u64::from(RX_BURST + TX_BACKLOG));
        if node.ports.contains(&index) {
            demand.add("in flight", in_flight(node));
        }
        demand.add("port shared with RoCE", shared_port(node, index));
        if is_soft_port(node, index) {
            demand.add("received packets", soft_holdings(node, ports));
            demand.add(
                "answers",
                if node.ports.is_empty() { node.fabric.as_ref().map_or(0, calls) } else { 0 },
            );
        }
    }
    if let Some((far_port, far)) = far_node(index, ports, inputs.nodes) {
        let received = if is_soft_port(far, far_port) { soft_holdings(far, ports) } else { 0 };
        let parked = shared_port(far, far_port);
        demand.add("held by the far end", holdings(far, ports) + received + parked);
    }
    demand.add("lcore caches", cached(draft.pool_cache, inputs.lcores));
    let count = pinned_or(draft.pool_frames, &demand, vec![draft.at.key("pool_frames")], &port.name, ledger);
    PlanPool {
        name: format!("{}.frames", port.name),
        count,
        data_room: frame_room(port),
        cache: cache_for(draft.pool_cache, count),
        why: demand.why(),
        registered: node.is_some_and(uses_verbs)
            || far_node(index, ports, inputs.nodes).is_some_and(|(_, far)| uses_verbs(far)),
    }
}

fn is_soft_port(node: &PlanNode, port: usize) -> bool {
    let transport = node.fabric.as_ref().map(|fabric| &fabric.transport);
    matches!(transport, Some(PlanTransport::Soft(soft)) if soft.port == port)
}

fn uses_verbs(node: &PlanNode) -> bool {
    matches!(node.fabric.as_ref().map(|fabric| &fabric.transport), Some(PlanTransport::Verbs { .. }))
}

/// Bytes of one buffer: a whole frame after the headroom, whatever the driver adds to it.
fn frame_room(port: &super::PlanPort) -> u16 {
    let mut frame = (u32::from(port.mtu) + DRIVER_OVERHEAD_BYTES).next_multiple_of(64);
    if let PortSource::Vdev { args, driver, .. } = &port.source {
        // This driver copies out of slots of that size and refuses smaller buffers.
        if driver == "net_af_packet" {
            frame = frame.max(device_number(args, "framesz").unwrap_or(2048).min(32_768));
        }
    }
    u16::try_from(frame.max(DATA_ROOM_BYTES) + HEADROOM_BYTES).unwrap_or(u16::MAX)
}

/// DPDK refuses a cache above two thirds of the pool.
fn cache_for(cache: u32, count: u32) -> u32 {
    cache.min(count / 2)
}

fn pinned_or(
    pinned: Option<u32>,
    demand: &Demand,
    at: Vec<crate::config::KeyPath>,
    subject: &str,
    ledger: &mut Ledger,
) -> u32 {
    let needed = demand.total;
    if needed > u64::from(MAX_POOL) {
        let what = format!("{needed} buffers are needed ({}), a pool has at most {MAX_POOL}", demand.why());
        ledger.refuse(at, what, "lower depths, ring sizes, queues or QPs");
        return MAX_POOL;
    }
    let needed = u32::try_from(needed).unwrap_or(MAX_POOL);
    let count = match pinned {
        Some(count) if count < needed => {
            let what = format!("{needed} buffers are needed: {}", demand.why());
            ledger.refuse(at, what, format!("set {needed} or more, or leave it out"));
            needed
        }
        Some(count) => count,
        None => needed,
    };
    ledger.rule("buffers", subject, demand.why(), format!("{count} buffers"));
    count
}

/// Receive buffers: those posted, and those that a TX slot still points into.
fn message_pool(index: usize, ports: &Draft, inputs: &Inputs<'_>, ledger: &mut Ledger) -> Option<PlanPool> {
    let node = &inputs.nodes[index];
    let fabric = node.fabric.as_ref()?;
    let message_bytes = message_bytes(node)?;
    let mut demand = Demand::default();
    let workers = node.workers.len() as u64;
    demand.add("receives", posted_receives(node, fabric));
    // Items are read in whole units.
    let mut room = message_bytes.next_multiple_of(UNIT as u32);
    match &node.service {
        PlanService::Kv(kv) => {
            demand.add("calls", calls(fabric));
            demand.add("READs", reads(node, fabric));
            demand.add("fragmented requests", workers * u64::from(REASSEMBLIES));
            room = room.max(kv.request_bytes_max + 8);
        }
        PlanService::Memory(_) => demand.add("answers", calls(fabric)),
        _ => demand.add("one message per TX slot", tx_slots(node, ports)),
    }
    let relay = matches!(node.service, PlanService::Relay(_));
    let backlog = if relay { TX_BACKLOG } else { RX_BURST };
    demand.add("completion and TX bursts", workers * u64::from(COMPLETION_BURST + backlog));
    demand.add("sends of its own", u64::from(fabric.call.as_ref().unwrap_or(&fabric.qp).count));
    demand.add("held by the far end", held_far(node, ports, inputs.nodes));
    let cache = node_cache(node, ports).min(if relay { u32::MAX } else { LONG_MESSAGE_CACHE });
    demand.add("lcore caches", cached(cache, inputs.lcores));
    let shared = inputs.config.fabric.as_ref().and_then(|fabric| fabric.pool_messages);
    let pinned = inputs.config.node[index].fabric.pool_messages.or(shared);
    let name = format!("{}.messages", node.name);
    let count = pinned_or(pinned, &demand, fabric_at(index, "pool_messages"), &name, ledger);
    let grh = if fabric.qp.kind == QpKind::Ud { GRH_BYTES } else { 0 };
    Some(PlanPool {
        name,
        count,
        data_room: u16::try_from(HEADROOM_BYTES + grh + room).unwrap_or(u16::MAX),
        cache: cache_for(cache, count),
        why: demand.why(),
        registered: uses_verbs(node),
    })
}

/// Frames and short messages of a node without a port of either kind.
fn frame_pool(index: usize, inputs: &Inputs<'_>, ledger: &mut Ledger) -> Option<PlanPool> {
    let node = &inputs.nodes[index];
    let fabric = node.fabric.as_ref().filter(|_| node.ports.is_empty())?;
    if matches!(fabric.transport, PlanTransport::Soft(_)) {
        return None;
    }
    let mut demand = Demand::default();
    demand.add("answers", calls(fabric));
    demand.add("bursts", node.workers.len() as u64 * u64::from(COMPLETION_BURST));
    demand.add("lcore caches", cached(NODE_CACHE, inputs.lcores));
    let name = format!("{}.frames", node.name);
    let count = pinned_or(None, &demand, vec![crate::config::KeyPath::item("node", index)], &name, ledger);
    Some(PlanPool {
        name,
        count,
        data_room: u16::try_from(DATA_ROOM_BYTES + HEADROOM_BYTES).unwrap_or(u16::MAX),
        cache: cache_for(NODE_CACHE, count),
        why: demand.why(),
        registered: uses_verbs(node),
    })
}

/// Indirect mbufs: one per frame on its way to TX.
fn slice_pool(index: usize, ports: &Draft, inputs: &Inputs<'_>, ledger: &mut Ledger) -> PlanPool {
    let node = &inputs.nodes[index];
    let mut demand = Demand::default();
    demand.add("TX slots", tx_slots(node, ports));
    demand.add("TX bursts", node.workers.len() as u64 * u64::from(TX_BACKLOG));
    if let (PlanService::Kv(_), Some(fabric)) = (&node.service, &node.fabric) {
        demand.add("values of calls", calls(fabric));
    }
    demand.add("held by the far end", held_far(node, ports, inputs.nodes));
    let cache = node_cache(node, ports);
    demand.add("lcore caches", cached(cache, inputs.lcores));
    let name = format!("{}.slices", node.name);
    let at = vec![crate::config::KeyPath::item("node", index)];
    let count = pinned_or(None, &demand, at, &name, ledger);
    let cache = cache_for(cache, count);
    PlanPool { name, count, data_room: 0, cache, why: demand.why(), registered: false }
}

/// Frames that nodes at the far ends of links hold of what this node transmits.
fn held_far(node: &PlanNode, ports: &Draft, nodes: &[PlanNode]) -> u64 {
    let far = node.ports.iter().filter_map(|port| far_node(*port, ports, nodes));
    far.map(|(_, far)| holdings(far, ports)).sum()
}

/// The smallest cache among the node's ports.
fn node_cache(node: &PlanNode, ports: &Draft) -> u32 {
    node.ports.iter().map(|port| ports.ports[*port].pool_cache).min().unwrap_or(NODE_CACHE)
}
