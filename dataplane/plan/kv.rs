//! Numbers of the key-value service: the gateway's and the memory node's.

use std::net::IpAddr;

use rdma_engine::cm::Cidr;
use rdma_engine::cm::offer::MAX_QPS;
use serde::Serialize;

use super::bounds::{MAX_MESSAGE_BYTES, MIN_MESSAGE_BYTES};
use super::ledger::{Ledger, counted, service_at};
use super::nodes::DraftNode;
use super::ports::Draft;
use super::{PlanNode, PlanPeer, PlanService, access, fabric};
use crate::config::{Config, InterfaceAddress, KeyPath, KvKeys, MemoryKeys};
use crate::control::KV_LANES;
use crate::front::REQUEST_LINE_BYTES;
use crate::service::kv::engine::{MOST_JOBS, REQUEST_JOBS};
use crate::service::kv::message::{BESIDE_VALUE, MOST_NODES, message_bytes_for};
use crate::service::kv::staging::Shape;
use crate::store::geometry::{self, Geometry};
use crate::store::layout::MOST_VALUE;
use crate::store::reclaim::MOST_GATEWAYS;

/// Numbers of a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanKv {
    /// Own addresses towards the clients.
    pub addresses: Vec<InterfaceAddress>,
    /// Next hop for clients outside the prefixes.
    pub gateway: Option<IpAddr>,
    /// VLAN id of the clients' frames.
    pub vlan: Option<u16>,
    /// Duplicates of the IPv6 addresses are looked for.
    pub dad: bool,
    /// UDP port that is served.
    pub port: u16,
    /// Networks that clients may come from; empty = any, as the file may not have an empty list.
    #[serde(serialize_with = "access::as_texts")]
    pub allow: Vec<Cidr>,
    /// Largest IP packet of the client port in bytes.
    pub mtu: u16,
    /// Bytes of one datagram of a reply, frame header included.
    pub datagram_bytes: u32,
    /// Names of the memory nodes as the file has them, in the order of the links: what keys are spread by.
    pub nodes: Vec<String>,
    /// Nodes that another list may have.
    pub nodes_max: u32,
    /// Number of that list.
    pub generation: u32,
    /// Workers that one memory node may have.
    pub node_workers_max: u32,
    /// Places of items that each worker remembers.
    pub locations: u32,
    /// Keys that each worker has under way.
    pub requests: u32,
    /// Longest value in bytes.
    pub value_bytes_max: u32,
    /// Longest request in bytes.
    pub request_bytes_max: u32,
    /// Longest message to and from a memory node in bytes.
    pub message_bytes: u32,
    /// Messages from this size in bytes on go by RDMA WRITE with immediate; `None` = none do.
    pub write_imm_from_bytes: Option<u32>,
}

/// Numbers of a memory node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanMemoryNode {
    /// Bytes of registered memory.
    pub arena_bytes: u64,
    /// Parts of it with one writer each: the node's workers.
    pub partitions: u32,
    /// Gateways at once.
    pub seats: u32,
    /// Workers that one gateway may have.
    pub gateway_workers_max: u32,
    /// Longest message to and from a gateway in bytes.
    pub message_bytes: u32,
    /// Longest value in bytes: what a message carries.
    pub value_bytes_max: u32,
    /// Staging regions, one a seat.
    pub staging: PlanStaging,
}

/// Memory that gateways write calls to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PlanStaging {
    /// Calls of one gateway worker to one worker at once; 0 = no staging at all.
    pub slots: u32,
    /// Bytes of each seat's region.
    pub region_bytes: u64,
    /// Bytes of all.
    pub bytes: u64,
}

/// One request may ask for so many keys at once.
const FEWEST_REQUESTS: u32 = REQUEST_JOBS as u32;
/// Keys under way at one worker at most.
const MOST_REQUESTS: u32 = MOST_JOBS as u32;
/// Longest message by default: with its headroom one mbuf holds it.
const DEFAULT_MESSAGE_BYTES: u32 = 65_024;
/// Calls in a lane of a staging region at most.
const MOST_STAGING_SLOTS: u32 = 64;
/// UDP header and frame header of memcached: what a request has besides its text where it is put together.
const REASSEMBLY_EXTRA_BYTES: u32 = 8;
/// IP and UDP headers of a datagram.
const UDP_OVERHEAD: [u32; 2] = [28, 48];

/// Fragmented requests that a worker puts together at once; each takes a message buffer.
pub(super) const REASSEMBLIES: u32 = 64;

/// Longest item that a message of so many bytes can carry: its value.
fn value_room(message_bytes: u32) -> u32 {
    message_bytes.saturating_sub(BESIDE_VALUE).clamp(1, MOST_VALUE as u32)
}

/// The gateway's numbers.
pub(super) fn gateway(
    config: &Config,
    index: usize,
    node: &DraftNode,
    ports: &Draft,
    ledger: &mut Ledger,
) -> PlanKv {
    let keys = config.node[index].kv.over(&config.service.kv);
    let at = |key| service_at(index, "kv", key);
    let missing = ("clients need an address to ask", "give one with prefix: addresses = [\"192.0.2.10/24\"]");
    let addresses = fabric::host_addresses(keys.addresses.as_ref(), &at("addresses"), missing, ledger);
    let mtu = node.ports.first().map_or(1500, |port| ports.ports[*port].port.mtu);
    let message_bytes = message_bytes(keys.message_bytes, index, "kv", ledger);
    let mut number = |key, value, default, range| ledger.number(at(key), value, default, range, "");
    let vlan = keys.vlan.map(|id| number("vlan", Some(id), id, 1..=4094));
    let port = number("port", keys.port, 11_211, 1..=65_535);
    let from = keys.write_imm_from_bytes;
    let write_imm_from_bytes =
        from.map(|from| number("write_imm_from_bytes", Some(from), from, 1..=message_bytes));
    let requests = number("requests", keys.requests, 4096, FEWEST_REQUESTS..=MOST_REQUESTS);
    let most = MAX_MESSAGE_BYTES - REASSEMBLY_EXTRA_BYTES;
    let request_bytes_max =
        number("request_bytes_max", keys.request_bytes_max, message_bytes.min(most), 64..=most);
    let plan = PlanKv {
        gateway: fabric::next_hop(keys.gateway.as_ref(), at("gateway"), &addresses, ledger),
        vlan: vlan.and_then(|id| u16::try_from(id).ok()),
        dad: keys.dad.unwrap_or(true),
        port: u16::try_from(port).unwrap_or(u16::MAX),
        allow: access::networks(keys.allow.as_ref(), &at("allow"), ledger),
        mtu,
        datagram_bytes: datagram_bytes(&keys, index, mtu, &addresses, ledger),
        nodes: keys.nodes.clone().unwrap_or_default(),
        nodes_max: nodes_max(&keys, index, &node.name, ledger),
        generation: ledger.number(at("generation"), keys.generation, 1, 1..=u32::MAX, ""),
        node_workers_max: ledger.number(at("node_workers_max"), keys.node_workers_max, 4, 1..=64, "workers"),
        locations: ledger.number(at("locations"), keys.locations, 1 << 20, 64..=1 << 28, "places"),
        requests,
        value_bytes_max: value_bytes_max(&keys, index, message_bytes, request_bytes_max, ledger),
        request_bytes_max,
        message_bytes,
        write_imm_from_bytes,
        addresses,
    };
    if keys.allow.as_ref().is_some_and(Vec::is_empty) {
        let remedy = "list the networks that clients come from, or leave it out for all";
        ledger.refuse(at("allow"), "no client may ask", remedy);
    }
    check_session(index, "node_workers_max", plan.node_workers_max, node.workers(), ledger);
    plan
}

/// What queue pairs and buffers are laid out for: room for one more by a reload, or for a quarter more.
fn nodes_max(keys: &KvKeys, index: usize, name: &str, ledger: &mut Ledger) -> u32 {
    let listed = keys.nodes.as_ref().map_or(0, |nodes| nodes.len() as u32);
    let most = MOST_NODES as u32;
    let default = (listed + (listed / 4).max(1)).min(most);
    let at = service_at(index, "kv", "nodes_max");
    let max = ledger.number(at.clone(), keys.nodes_max, default, 1..=most, "memory nodes");
    if listed > most {
        let what = format!("{listed} memory nodes are listed, {most} is the most");
        ledger.refuse(service_at(index, "kv", "nodes"), what, "list fewer");
    } else if listed > max {
        let what = format!("{listed} memory nodes are listed");
        ledger.refuse_value(
            at,
            max,
            what,
            format!("set nodes_max = {listed} or more, which takes effect with a start only"),
        );
    }
    ledger.rule(
        "nodes",
        name,
        format!("{} listed, nodes_max", counted(listed, "memory node")),
        format!("room for {max}"),
    );
    max.max(listed)
}

/// Both ends' workers have to fit one session.
fn check_session(index: usize, key: &str, theirs: u32, ours: u32, ledger: &mut Ledger) {
    let service = if key == "node_workers_max" { "kv" } else { "memory" };
    let qps = theirs as usize * ours as usize * KV_LANES;
    if qps > MAX_QPS {
        let most = MAX_QPS / KV_LANES / (ours as usize).max(1);
        let what = format!("with {ours} workers here that is {qps} queue pairs, a session has {MAX_QPS}");
        ledger.refuse_value(
            service_at(index, service, key),
            theirs,
            what,
            format!("set {key} = {most} or less"),
        );
    }
}

fn message_bytes(value: Option<u32>, index: usize, service: &str, ledger: &mut Ledger) -> u32 {
    let at = service_at(index, service, "message_bytes");
    let range = 2 * MIN_MESSAGE_BYTES..=MAX_MESSAGE_BYTES;
    ledger.number(at, value, DEFAULT_MESSAGE_BYTES, range, "bytes: a message is one mbuf")
}

/// What a message and what a request carry with the longest key, whichever is less.
fn value_bytes_max(
    keys: &KvKeys,
    index: usize,
    message_bytes: u32,
    request_bytes: u32,
    ledger: &mut Ledger,
) -> u32 {
    let (by_message, by_request) =
        (value_room(message_bytes), request_bytes.saturating_sub(REQUEST_LINE_BYTES as u32).max(1));
    let room = by_message.min(by_request);
    let at = service_at(index, "kv", "value_bytes_max");
    let value = ledger.number(at.clone(), keys.value_bytes_max, room, 1..=MOST_VALUE as u32, "bytes");
    if value <= room {
        return value;
    }
    let carrier =
        if by_message <= by_request { "message of message_bytes" } else { "request of request_bytes_max" };
    let most = value_room(MAX_MESSAGE_BYTES);
    let wanted = value.min(most);
    let mut steps = Vec::new();
    if value > most {
        steps.push(format!("value_bytes_max = {most}, as a message is one mbuf"));
    }
    if wanted > by_message {
        let bytes = message_bytes_for(wanted);
        steps.push(format!("message_bytes = {bytes} here and at the memory nodes"));
    }
    if wanted > by_request && keys.request_bytes_max.is_some() {
        steps.push(format!("request_bytes_max = {}", wanted + REQUEST_LINE_BYTES as u32));
    }
    let remedy = format!("set {}; or value_bytes_max = {room} or less", steps.join(", "));
    ledger.refuse_value(at, value, format!("with the longest key a {carrier} carries {room}"), remedy);
    room
}

/// A datagram is one IP packet of the client port.
fn datagram_bytes(
    keys: &KvKeys,
    index: usize,
    mtu: u16,
    addresses: &[InterfaceAddress],
    ledger: &mut Ledger,
) -> u32 {
    let v6 = addresses.iter().any(|own| own.address.is_ipv6());
    let most = u32::from(mtu).saturating_sub(UDP_OVERHEAD[usize::from(v6)]).max(64);
    let at = service_at(index, "kv", "datagram_bytes");
    let bytes = ledger.number(at.clone(), keys.datagram_bytes, 1400.min(most), 64..=65_507, "bytes");
    if bytes > most {
        let what = format!("the port's mtu of {mtu} carries {most}");
        ledger.refuse_value(
            at,
            bytes,
            what,
            format!("set datagram_bytes = {most} or less, or raise the mtu"),
        );
    }
    bytes.min(most)
}

/// The memory node's numbers.
pub(super) fn memory(config: &Config, index: usize, node: &DraftNode, ledger: &mut Ledger) -> PlanMemoryNode {
    let keys = config.node[index].memory.over(&config.service.memory);
    let at = |key| service_at(index, "memory", key);
    let partitions = node.workers();
    let range = 1..=crate::store::layout::MOST_BYTES;
    let arena_bytes =
        ledger.number(at("arena_bytes"), keys.arena_bytes, geometry::DEFAULT_BYTES, range, "bytes");
    if let Err(error) = Geometry::new(arena_bytes, partitions) {
        let text = error.to_string();
        let (what, remedy) = text.rsplit_once(": ").unwrap_or((&text, "use another size"));
        ledger.refuse_value(at("arena_bytes"), arena_bytes, what, remedy);
    }
    warn_of_few_segments(arena_bytes, partitions, at("arena_bytes"), ledger);
    let most = MOST_GATEWAYS as u32;
    let seats = ledger.number(at("seats"), keys.seats, 8, 1..=most, "gateways");
    let each = ledger.number(at("gateway_workers_max"), keys.gateway_workers_max, 8, 1..=most, "workers");
    if seats * each > most {
        let what = format!("with {each} workers each that is {}, a node knows {most} in all", seats * each);
        let remedy = format!("set seats = {} or less, or lower gateway_workers_max", (most / each).max(1));
        ledger.refuse_value(at("seats"), seats, what, remedy);
    }
    check_session(index, "gateway_workers_max", each, partitions, ledger);
    ledger.rule(
        "arena",
        &node.name,
        format!("arena_bytes, {} (one per worker)", counted(partitions, "partition")),
        format!("{} MiB", arena_bytes.div_ceil(1 << 20)),
    );
    let message_bytes = message_bytes(keys.message_bytes, index, "memory", ledger);
    PlanMemoryNode {
        arena_bytes,
        partitions,
        seats,
        gateway_workers_max: each,
        message_bytes,
        value_bytes_max: value_room(message_bytes),
        staging: staging(&keys, (index, &node.name), (seats, each, partitions), message_bytes, ledger),
    }
}

/// Fewest segments of a partition without a warning: a segment takes items of one size class, and there are up to eight classes
/// from a power of two to the next. So values that differ by a factor of up to four fit side by side.
const SEGMENTS: u32 = 16;

/// An arena of a few segments a partition holds a few sizes of items, and gives up a large part of what it holds for another one.
fn warn_of_few_segments(bytes: u64, partitions: u32, at: Vec<KeyPath>, ledger: &mut Ledger) {
    let Ok(geometry) = Geometry::new(bytes, partitions) else { return };
    if geometry.segments() >= SEGMENTS {
        return;
    }
    let what = format!(
        "{bytes} bytes are {} of about 1 MiB for each of {}; a segment holds items of about one size, so values of different sizes hardly fit side by side",
        counted(geometry.segments(), "segment"),
        counted(partitions, "partition")
    );
    let remedy = format!("set {} or more, or use fewer workers", enough_bytes(partitions));
    ledger.warn(at, what, remedy);
}

/// Whole MiB that give each partition [`SEGMENTS`].
fn enough_bytes(partitions: u32) -> u64 {
    let is_enough = |mib: &u64| Geometry::new(mib << 20, partitions).is_ok_and(|g| g.segments() >= SEGMENTS);
    (1..=u64::from(partitions * SEGMENTS) * 2).find(is_enough).unwrap_or_default() << 20
}

/// A region for each seat, with slots of a message each between any two workers.
fn staging(
    keys: &MemoryKeys,
    (index, name): (usize, &str),
    (seats, each, partitions): (u32, u32, u32),
    message_bytes: u32,
    ledger: &mut Ledger,
) -> PlanStaging {
    let at = service_at(index, "memory", "staging_slots");
    let slots = ledger.number(at, keys.staging_slots, 0, 0..=MOST_STAGING_SLOTS, "calls");
    let region_bytes = shape(slots, message_bytes).bytes(each as usize, partitions as usize);
    let bytes = region_bytes * u64::from(seats);
    if slots > 0 {
        let from = format!("{seats} seats x {each} x {partitions} workers x {slots} staging_slots x message");
        ledger.rule("staging", name, from, format!("{} MiB", bytes.div_ceil(1 << 20)));
    }
    PlanStaging { slots, region_bytes, bytes }
}

/// A slot takes any message, on lines of its own.
fn shape(slots: u32, message_bytes: u32) -> Shape {
    Shape { slots: slots as u16, slot_bytes: message_bytes.next_multiple_of(64) }
}

impl PlanKv {
    /// Bytes of the messages that its largest values need, to and from any memory node.
    pub fn message_bytes_min(&self) -> u32 {
        message_bytes_for(self.value_bytes_max).min(self.message_bytes)
    }
}

impl PlanMemoryNode {
    /// Bytes of the messages that its largest items need, to and from any gateway.
    pub fn message_bytes_min(&self) -> u32 {
        message_bytes_for(self.value_bytes_max).min(self.message_bytes)
    }

    /// How the staging regions are cut.
    pub fn staging_shape(&self) -> Shape {
        shape(self.staging.slots, self.message_bytes)
    }
}

/// What a gateway and a memory node of this process ask of each other.
pub(super) fn check_meetings(nodes: &[PlanNode], ledger: &mut Ledger) {
    let mut guests = vec![0u32; nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        let (PlanService::Kv(kv), Some(fabric)) = (&node.service, &node.fabric) else { continue };
        for peer in &fabric.peers {
            let PlanPeer::InProcess(other) = *peer else { continue };
            let PlanService::Memory(memory) = &nodes[other].service else { continue };
            guests[other] += 1;
            check_staging((index, kv), (&nodes[other], memory), ledger);
            check_meeting((index, node, kv), (other, &nodes[other], memory), ledger);
        }
    }
    for (index, (node, guests)) in nodes.iter().zip(guests).enumerate() {
        let PlanService::Memory(memory) = &node.service else { continue };
        if guests > memory.seats {
            let what = format!("{guests} gateways of this file go to {}", node.name);
            let at = service_at(index, "memory", "seats");
            ledger.refuse_value(at, memory.seats, what, format!("set seats = {guests} or more"));
        }
    }
}

/// Calls that the gateway would write go by SEND where there is no memory to write them into.
fn check_staging(
    (index, kv): (usize, &PlanKv),
    (node, memory): (&PlanNode, &PlanMemoryNode),
    ledger: &mut Ledger,
) {
    if kv.write_imm_from_bytes.is_some() && memory.staging.slots == 0 {
        let what = format!("node {} has no staging region, so all calls to it go by SEND", node.name);
        let remedy = "set staging_slots (1 to 64) at the memory node, or leave this out";
        ledger.warn(service_at(index, "kv", "write_imm_from_bytes"), what, remedy);
    }
}

fn check_meeting(
    (index, gateway, kv): (usize, &PlanNode, &PlanKv),
    (other, node, memory): (usize, &PlanNode, &PlanMemoryNode),
    ledger: &mut Ledger,
) {
    let (ours, theirs) = (gateway.workers.len() as u32, node.workers.len() as u32);
    if theirs > kv.node_workers_max {
        let what = format!("node {} has {}", node.name, counted(theirs, "worker"));
        let at = service_at(index, "kv", "node_workers_max");
        ledger.refuse_value(
            at,
            kv.node_workers_max,
            what,
            format!("set node_workers_max = {theirs} or more"),
        );
    }
    if ours > memory.gateway_workers_max {
        let what = format!("node {} has {}", gateway.name, counted(ours, "worker"));
        let at = service_at(other, "memory", "gateway_workers_max");
        let remedy = format!("set gateway_workers_max = {ours} or more");
        ledger.refuse_value(at, memory.gateway_workers_max, what, remedy);
    }
    let room = memory.value_bytes_max;
    if kv.value_bytes_max > room {
        let what = format!(
            "node {} takes values of {} bytes, this carries {room}",
            gateway.name, kv.value_bytes_max
        );
        let at = service_at(other, "memory", "message_bytes");
        let remedy = format!("set message_bytes = {}, as at the gateway", kv.message_bytes);
        ledger.refuse_value(at, memory.message_bytes, what, remedy);
    }
    // Other gateways may store what is read here: all of them carry the largest item of the node.
    let least = memory.message_bytes_min();
    if kv.message_bytes < least {
        let what = format!("the largest items of node {} take messages of {least} bytes", node.name);
        let at = service_at(index, "kv", "message_bytes");
        let remedy = format!("set message_bytes = {}, as at the memory node", memory.message_bytes);
        ledger.refuse_value(at, kv.message_bytes, what, remedy);
    }
}
