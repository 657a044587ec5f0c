//! Memory nodes and gateways, joined by the loopback transport: control and clients are played by the test.

use super::ends::{End, Gateway, NodeEnd, with_ctx};
use crate::flow::PathIndex;
use crate::service::Context;
use crate::service::kv::engine::{Arrival, Engine, EngineSettings, REQUEST_JOBS};
use crate::service::kv::link::{KvLink, Lane};
use crate::service::kv::members::Members;
use crate::service::kv::message::NodeHello;
use crate::service::kv::staging::{Shape, Staging};
use crate::service::memory::{MemoryNode, MemorySettings};
use crate::service::relay::PathEnd;
use crate::stats::Counter;
use crate::store::geometry::Geometry;
use crate::store::seal::Secrets;
use crate::store::{Writer, write_superblock};
use rdma_engine::cm::RegionOffer;
use rdma_engine::heap::HeapBuf;
use rdma_engine::loopback::Hub;
use rdma_engine::mem::{Access, Arena, Backing, Region};
use rdma_engine::transport::Device;
use rdma_engine::types::Time;
use rdma_engine::wr::{Op, RemoteSlice};
use std::collections::VecDeque;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Time of a turn.
const TURN_NS: u64 = 10_000;
/// Turns between two ticks.
const TICK_TURNS: u64 = 8;
/// Values up to this size.
pub const VALUE: usize = 12_000;
pub(super) const MESSAGE: u32 = 16_000;
pub(super) const DEPTH: u32 = 16;
/// When virtual time begins. Nanoseconds since 1970.
const EPOCH_NS: u64 = 1_700_000_000_000_000_000;

/// Numbers of a cluster.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Memory nodes.
    pub nodes: usize,
    /// Memory nodes that another list may have.
    pub nodes_max: usize,
    /// Workers of each node.
    pub partitions: u32,
    /// Gateways, of one worker each.
    pub gateways: usize,
    /// Bytes of each node's arena.
    pub arena: u64,
    /// Units of a segment.
    pub segment_units: u32,
    /// Locations that a gateway remembers.
    pub locations: usize,
    /// Number of the membership.
    pub generation: u64,
    /// READs take so many turns at most, and see each unit at another time.
    pub tear: u32,
    /// Nanoseconds since 1970 when virtual time begins.
    pub unix_ns: u64,
    /// Requests that a queue pair holds.
    pub send_depth: u32,
    /// Large buffers of a worker.
    pub messages: usize,
    /// Small buffers of a worker.
    pub frames: usize,
    /// Calls that go by WRITE with immediate between two workers at once.
    pub staging_slots: u16,
    /// Calls from this size on do, if there are slots.
    pub write_imm_from: usize,
    /// Of all random choices.
    pub seed: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            nodes: 1,
            nodes_max: 0,
            partitions: 1,
            gateways: 1,
            arena: 8 << 20,
            segment_units: 1024,
            locations: 1000,
            generation: 1,
            tear: 0,
            unix_ns: EPOCH_NS,
            send_depth: 2 * DEPTH,
            messages: 2000,
            frames: 6000,
            staging_slots: 0,
            write_imm_from: 0,
            seed: 1,
        }
    }
}

/// A memory node: one arena, one worker a partition.
pub struct Node {
    /// One a partition.
    pub workers: Vec<NodeEnd>,
    region: Region,
    /// By gateway.
    staging: Vec<Region>,
    hello: Arc<[u8]>,
    /// It was killed: nothing of it moves.
    pub is_dead: bool,
}

/// Everything.
pub struct Cluster {
    /// The numbers.
    pub setup: Setup,
    /// Memory nodes.
    pub nodes: Vec<Node>,
    /// Gateways.
    pub gateways: Vec<Gateway>,
    /// Virtual time.
    pub now: Time,
    hub: Hub<HeapBuf>,
    turns: u64,
    starts: u64,
    /// Nodes of the list.
    listed: usize,
}

/// A list of these nodes.
pub(in crate::service::kv) fn members(generation: u64, nodes: impl Iterator<Item = usize>) -> Members {
    let names: Vec<(String, u16)> = nodes.map(|n| (format!("node{n}"), n as u16)).collect();
    Members::new(generation, names.iter().map(|(name, n)| (name.as_str(), *n)))
}

/// The path of a partition's lane at a gateway.
fn gateway_path(setup: &Setup, node: usize, partition: usize, lane: Lane) -> PathIndex {
    ((node * setup.partitions as usize + partition) * 2 + lane as usize) as PathIndex
}

/// The path of a gateway's lane at a node's worker.
fn node_path(gateway: usize, lane: Lane) -> PathIndex {
    (gateway * 2 + lane as usize) as PathIndex
}

impl Cluster {
    /// All connected and joined.
    pub fn new(setup: Setup) -> Self {
        let hub = Hub::new();
        let gateways = (0..setup.gateways).map(|g| {
            let settings = EngineSettings {
                members: members(setup.generation, 0..setup.nodes),
                nodes_max: setup.nodes_max.max(setup.nodes),
                node_workers_max: setup.partitions as u16,
                paths: setup.nodes_max.max(setup.nodes) * setup.partitions as usize * 2,
                jobs: 2 * REQUEST_JOBS,
                locations: setup.locations,
                value_bytes_max: VALUE,
                write_imm_from: setup.write_imm_from,
                unix_ns_at_zero: setup.unix_ns,
            };
            let end = End::new(&Arc::new(hub.device()), 0, &setup, setup.seed * 100 + g as u64);
            Gateway {
                end,
                engine: Engine::new(settings),
                links: vec![],
                call_qp: None,
                downs: vec![],
                replies: VecDeque::new(),
                errors: 0,
                is_stuck: false,
                inbox: VecDeque::new(),
            }
        });
        let gateways = gateways.collect();
        let mut cluster = Cluster {
            nodes: vec![],
            gateways,
            now: Time(1),
            hub,
            turns: 0,
            starts: 0,
            listed: setup.nodes,
            setup: setup.clone(),
        };
        for _ in 0..setup.nodes {
            let node = cluster.start_node();
            cluster.nodes.push(node);
        }
        for node in 0..setup.nodes {
            (0..setup.gateways).for_each(|g| cluster.connect(node, g));
        }
        assert!(cluster.all_up());
        cluster
    }

    /// A node that has just started, with nothing in it.
    pub fn start_node(&mut self) -> Node {
        self.starts += 1;
        let setup = &self.setup;
        let geometry =
            Geometry::with_segments_of(setup.segment_units, setup.arena, setup.partitions).unwrap();
        let arena = Arena::new(geometry.bytes() as usize, Backing::Pages).unwrap();
        let bits = [self.starts, 2, 3, setup.seed];
        let epoch = self.starts;
        let writer = |p| Writer::new(arena.window(), geometry, p, Secrets::new(bits), epoch, 0).unwrap();
        let device = Arc::new(self.hub.device());
        let shape = Shape { slots: setup.staging_slots, slot_bytes: MESSAGE };
        let staging_bytes = shape.bytes(1, setup.partitions as usize) as usize;
        let seats = if staging_bytes > 0 { setup.gateways } else { 0 };
        let staging: Vec<Arena> =
            (0..seats).map(|_| Arena::new(staging_bytes, Backing::Pages).unwrap()).collect();
        let node = |p: u32| {
            let settings = MemorySettings {
                staging: Staging {
                    shape,
                    partition: p as u16,
                    partitions: setup.partitions,
                    regions: staging.iter().map(|a| a.window()).collect(),
                },
                paths: setup.gateways * 2,
                gateway_workers_max: 1,
                value_bytes_max: VALUE,
                message_bytes: MESSAGE as usize,
                unix_ns_at_zero: setup.unix_ns,
            };
            NodeEnd {
                end: End::new(&device, p as usize, &Setup { tear: 0, ..setup.clone() }, 0),
                node: MemoryNode::new(settings, writer(p)),
                links: vec![],
                call_qp: None,
                downs: vec![],
            }
        };
        let workers: Vec<NodeEnd> = (0..setup.partitions).map(node).collect();
        write_superblock(arena.window(), &geometry, epoch).unwrap();
        let region = workers[0].end.device.register(&arena, Access::REMOTE_READ).unwrap();
        let hello = NodeHello::new(&geometry, epoch, bits, VALUE as u32, shape).as_bytes().into();
        let write = Access::REMOTE_WRITE.and(Access::LOCAL_WRITE);
        let staging = staging.iter().map(|a| workers[0].end.device.register(a, write).unwrap()).collect();
        Node { workers, region, staging, hello, is_dead: false }
    }

    /// Connects a gateway with a node, both lanes of all partitions.
    pub fn connect(&mut self, node: usize, gateway: usize) {
        for partition in 0..self.setup.partitions as usize {
            for lane in [Lane::Read, Lane::Call] {
                self.connect_lane(node, gateway, partition, lane);
            }
        }
    }

    fn connect_lane(&mut self, n: usize, g: usize, partition: usize, lane: Lane) {
        let paths = (gateway_path(&self.setup, n, partition, lane), node_path(g, lane));
        let (node, gateway) = (&mut self.nodes[n], &mut self.gateways[g]);
        let (region, staging) = (RegionOffer::of(&node.region), node.staging.get(g).map(RegionOffer::of));
        let hello = Arc::clone(&node.hello);
        gateway.end.transport.look_at(node.region.window(), region.addr);
        let worker = &mut node.workers[partition];
        let (theirs, their_qpn) = worker.end.queue_pair(Access::REMOTE_READ.and(Access::REMOTE_WRITE));
        let (ours, our_qpn) = gateway.end.queue_pair(Access::LOCAL);
        let receives = if lane == Lane::Call { DEPTH } else { 0 };
        let their_qp = worker.end.raise(theirs, &gateway.end, our_qpn);
        let mut link = KvLink {
            qp: their_qp,
            lane,
            peer: g as u16,
            peer_worker: 0,
            peer_credits: receives,
            recv_depth: receives,
            message_bytes: MESSAGE,
            worker: partition as u16,
            region: None,
            staging: None,
            hello: Arc::from(&b""[..]),
        };
        with_ctx!(&mut worker.end, self.now, |ctx| worker.node.attach(&mut ctx, paths.1, link.clone()));
        link.qp = gateway.end.raise(ours, &worker.end, their_qpn);
        (link.peer, link.peer_worker, link.worker) = (n as u16, partition as u16, 0);
        (link.region, link.staging, link.hello) = (Some(region), staging, hello);
        let our_qp = link.qp;
        with_ctx!(&mut gateway.end, self.now, |ctx| gateway.engine.attach(&mut ctx, paths.0, link));
        if lane == Lane::Call {
            (gateway.call_qp, worker.call_qp) = (Some(our_qp), Some(their_qp));
        }
        gateway.links.push(paths.0);
        worker.links.push(paths.1);
        gateway.engine.path_ready(paths.0);
        worker.node.path_ready(paths.1);
    }

    /// A gateway says something to a node that no gateway would say.
    pub fn forge_call(&mut self, gateway: usize, bytes: &[u8]) {
        assert!(self.may_forge_call(gateway, bytes));
    }

    /// As [`forge_call`](Self::forge_call); false if the connection is not there any more.
    pub fn may_forge_call(&mut self, gateway: usize, bytes: &[u8]) -> bool {
        let g = &mut self.gateways[gateway];
        g.end.forge(g.call_qp.expect("a connection"), Op::Send, bytes)
    }

    /// A gateway writes something into its staging region at the first node, `at` bytes from its begin, with this immediate.
    pub fn forge_written_call(&mut self, gateway: usize, at: u64, immediate: u32, bytes: &[u8]) {
        assert!(self.may_forge_written_call(gateway, at, immediate, bytes));
    }

    /// As [`forge_written_call`](Self::forge_written_call); false if the connection is not there any more.
    pub fn may_forge_written_call(&mut self, gateway: usize, at: u64, immediate: u32, bytes: &[u8]) -> bool {
        let region = &self.nodes[0].staging[gateway];
        let len = bytes.len() as u32;
        let to = RemoteSlice { addr: region.window().addr() + at, rkey: region.rkey(), len };
        let g = &mut self.gateways[gateway];
        g.end.forge(g.call_qp.expect("a connection"), Op::WriteImm(to, immediate), bytes)
    }

    /// A node answers what no node would answer.
    pub fn forge_answer(&mut self, node: usize, bytes: &[u8]) {
        assert!(self.may_forge_answer(node, bytes));
    }

    /// As [`forge_answer`](Self::forge_answer); false if the connection is not there any more.
    pub fn may_forge_answer(&mut self, node: usize, bytes: &[u8]) -> bool {
        let w = &mut self.nodes[node].workers[0];
        w.end.forge(w.call_qp.expect("a connection"), Op::Send, bytes)
    }

    /// Control gives up what is between a gateway and a node, at the gateway's end.
    pub fn fail_gateway_end(&mut self, node: usize, gateway: usize) {
        for partition in 0..self.setup.partitions as usize {
            for lane in [Lane::Read, Lane::Call] {
                let path = gateway_path(&self.setup, node, partition, lane);
                let g = &mut self.gateways[gateway];
                with_ctx!(&mut g.end, self.now, |ctx| g.engine.fail(&mut ctx, path));
            }
        }
    }

    /// Control gives up what is between a gateway and a node, at the node's end.
    pub fn fail_node_end(&mut self, node: usize, gateway: usize) {
        for partition in 0..self.setup.partitions as usize {
            for lane in [Lane::Read, Lane::Call] {
                let w = &mut self.nodes[node].workers[partition];
                with_ctx!(&mut w.end, self.now, |ctx| w.node.fail(&mut ctx, node_path(gateway, lane)));
            }
        }
    }

    /// A client's request.
    pub fn ask(&mut self, gateway: usize, client: u32, text: &[u8]) {
        let asked = self.gateways[gateway].frame(text);
        self.ask_in(gateway, client, asked);
    }

    /// A client's request that comes in the next turn, behind what is completed then.
    pub fn ask_next(&mut self, gateway: usize, client: u32, text: &[u8]) {
        let asked = self.gateways[gateway].frame(text);
        self.gateways[gateway].inbox.push_back((client, asked));
    }

    /// A client's request where it came in.
    pub fn ask_in(&mut self, gateway: usize, client: u32, asked: Arrival<HeapBuf>) {
        let (now, g) = (self.now, &mut self.gateways[gateway]);
        assert!(g.engine.has_room());
        with_ctx!(&mut g.end, now, |ctx| g.engine.ask(&mut ctx, client, asked));
    }

    /// What a request is answered when everything is done that it asked for; empty if that is nothing.
    pub fn ask_all(&mut self, gateway: usize, text: &[u8]) -> Vec<u8> {
        self.ask(gateway, 77, text);
        assert!(self.until(|c| c.gateways[gateway].engine.is_idle()));
        self.gateways[gateway].replies.pop_front().map_or_else(Vec::new, |(_, reply)| reply)
    }

    /// A request and its reply.
    pub fn talk(&mut self, gateway: usize, text: &[u8]) -> Vec<u8> {
        self.ask(gateway, 77, text);
        let answered = self.until(|c| !c.gateways[gateway].replies.is_empty());
        assert!(answered, "no reply to {:?}", String::from_utf8_lossy(text));
        let (client, reply) = self.gateways[gateway].replies.pop_front().unwrap();
        assert_eq!(client, 77);
        reply
    }

    /// As [`talk`](Self::talk), for text.
    pub fn say(&mut self, gateway: usize, text: &str) -> String {
        String::from_utf8(self.talk(gateway, text.as_bytes())).unwrap()
    }

    /// One more node, connected with every gateway; no list has it yet. Its number.
    pub fn add_node(&mut self) -> usize {
        let node = self.start_node();
        self.nodes.push(node);
        let n = self.nodes.len() - 1;
        (0..self.setup.gateways).for_each(|g| self.connect(n, g));
        n
    }

    /// Gives a gateway another list of nodes.
    pub fn relist(&mut self, gateway: usize, generation: u64, nodes: &[usize]) {
        self.listed = nodes.len();
        let (now, list) = (self.now, Box::new(members(generation, nodes.iter().copied())));
        let g = &mut self.gateways[gateway];
        with_ctx!(&mut g.end, now, |ctx| g.engine.relist(&mut ctx, list));
    }

    /// Turns until every gateway may use every node of the list.
    pub fn all_up(&mut self) -> bool {
        let nodes = self.listed;
        self.until(|c| c.gateways.iter().all(|g| g.engine.nodes_up() == nodes && g.engine.is_settled()))
    }

    /// One turn of everybody.
    pub fn turn(&mut self) {
        self.turns += 1;
        let (now, tick) = (self.now, self.turns.is_multiple_of(TICK_TURNS));
        for node in self.nodes.iter_mut().filter(|n| !n.is_dead) {
            node.workers.iter_mut().for_each(|w| w.turn(now, tick));
        }
        self.gateways.iter_mut().filter(|g| !g.is_stuck).for_each(|g| g.turn(now, tick));
        self.now = now.after_ns(TURN_NS);
    }

    /// So many turns.
    pub fn turns(&mut self, n: usize) {
        (0..n).for_each(|_| self.turn());
    }

    /// Turns until `done`, at most for a second; false if it never came.
    pub fn until(&mut self, done: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..100_000 {
            if done(self) {
                return true;
            }
            self.turn();
        }
        done(self)
    }

    /// Sum of a counter over all gateways.
    pub fn count(&self, counter: Counter) -> u64 {
        self.gateways.iter().map(|g| g.end.count(counter)).sum()
    }

    /// Sum of a counter over all nodes.
    pub fn node_count(&self, counter: Counter) -> u64 {
        self.nodes.iter().flat_map(|n| &n.workers).map(|w| w.end.count(counter)).sum()
    }

    /// Paths that have gone down: the gateways', then the nodes'.
    pub fn downs(&self) -> [Vec<(PathIndex, PathEnd)>; 2] {
        let gateways = self.gateways.iter().flat_map(|g| g.downs.clone()).collect();
        let nodes = self.nodes.iter().flat_map(|n| &n.workers).flat_map(|w| w.downs.clone()).collect();
        [gateways, nodes]
    }

    /// True if no queue pair with a node is left, at either end.
    pub fn is_apart(&self, node: usize) -> bool {
        self.has_left(node) && self.nodes[node].workers.iter().all(|w| w.links.is_empty())
    }

    /// True if no gateway has a queue pair with a node.
    pub fn has_left(&self, node: usize) -> bool {
        let partitions = self.setup.partitions as usize;
        let ours = (0..partitions)
            .flat_map(|p| [Lane::Read, Lane::Call].map(|l| gateway_path(&self.setup, node, p, l)));
        let ours: Vec<PathIndex> = ours.collect();
        self.gateways.iter().all(|g| ours.iter().all(|path| !g.links.contains(path)))
    }

    /// As [`close`](Self::close), when what the nodes count of their items has been found right.
    pub fn close_checked(self) {
        self.nodes.iter().flat_map(|n| &n.workers).for_each(|w| w.node.writer().check());
        self.close();
    }

    /// Everything is closed; no buffer is lost.
    pub fn close(mut self) {
        self.gateways.iter_mut().for_each(|g| g.engine.drain());
        assert!(self.until(|c| c.gateways.iter().all(|g| g.engine.is_drained())), "gateways do not drain");
        self.nodes.iter_mut().flat_map(|n| &mut n.workers).for_each(|w| w.node.drain());
        self.turns(200);
        assert!(self.nodes.iter().flat_map(|n| &n.workers).all(|w| w.node.is_drained()));
        let mut pools = Vec::new();
        for node in self.nodes {
            pools.extend(node.workers.into_iter().map(|w| w.end.pools));
        }
        pools.extend(self.gateways.into_iter().map(|g| g.end.pools));
        for p in &pools {
            assert!(p.frames.is_full(), "{} frames are lost", p.frames.in_use());
            assert!(p.messages.is_full(), "{} messages are lost", p.messages.in_use());
        }
    }
}
