//! `[service.kv]` and `[service.memory]`, and a node's own tables of the same keys.

use serde::Deserialize;

/// `[service.kv]`: a gateway of the key-value service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KvKeys {
    /// Own addresses towards the clients, with prefix length.
    pub addresses: Option<Vec<String>>,
    /// Next hop for clients outside the prefixes.
    pub gateway: Option<String>,
    /// VLAN id of the clients' frames.
    pub vlan: Option<u32>,
    /// Look whether another station has one of the IPv6 addresses; true by default.
    pub dad: Option<bool>,
    /// UDP port that is served.
    pub port: Option<u32>,
    /// Networks that clients may come from; empty = any.
    pub allow: Option<Vec<String>>,
    /// Bytes of one datagram of a reply, frame header included.
    pub datagram_bytes: Option<u32>,
    /// Memory nodes: names of nodes of this file, or "host:port" of others.
    pub nodes: Option<Vec<String>>,
    /// Memory nodes that the list may have after a reload.
    pub nodes_max: Option<u32>,
    /// Number of this list of memory nodes; a higher one replaces a lower one everywhere.
    pub generation: Option<u32>,
    /// Workers that one memory node may have.
    pub node_workers_max: Option<u32>,
    /// Places of items that each worker remembers.
    pub locations: Option<u32>,
    /// Keys of requests that each worker has under way.
    pub requests: Option<u32>,
    /// Longest value in bytes.
    pub value_bytes_max: Option<u32>,
    /// Longest request in bytes, put together from its fragments.
    pub request_bytes_max: Option<u32>,
    /// Longest message to and from a memory node in bytes: what bounds an item.
    pub message_bytes: Option<u32>,
    /// Messages from this size in bytes on go by RDMA WRITE with immediate, where the memory node has room for them.
    pub write_imm_from_bytes: Option<u32>,
    /// Queue pairs of READs.
    pub read: ReadKeys,
    /// Queue pairs of calls.
    pub call: CallKeys,
}

/// `[service.memory]`: a memory node of the key-value service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryKeys {
    /// Bytes of registered memory that items live in.
    pub arena_bytes: Option<u64>,
    /// Gateways at once.
    pub seats: Option<u32>,
    /// Workers that one gateway may have.
    pub gateway_workers_max: Option<u32>,
    /// Longest message to and from a gateway in bytes.
    pub message_bytes: Option<u32>,
    /// Calls that a gateway worker may have written to a worker's staging region at once; 0 = no such region.
    pub staging_slots: Option<u32>,
    /// Queue pairs of calls.
    pub call: CallKeys,
}

/// Queue pairs on which a gateway reads items.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReadKeys {
    /// READs that one queue pair may have in flight.
    pub send_depth: Option<u32>,
    /// Every how many READs a completion is asked for.
    pub signal_every: Option<u32>,
    /// Entries of each worker's completion queue for them.
    pub cq_depth: Option<u32>,
}

/// Queue pairs of requests and answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CallKeys {
    /// Messages that one queue pair may have in flight.
    pub send_depth: Option<u32>,
    /// Receives that one queue pair keeps posted.
    pub recv_depth: Option<u32>,
    /// Every how many messages a completion is asked for.
    pub signal_every: Option<u32>,
    /// Entries of each worker's completion queue for them.
    pub cq_depth: Option<u32>,
}

impl KvKeys {
    /// The keys in force for a node: its own where it has them, otherwise those of `shared`.
    #[must_use]
    pub fn over(&self, shared: &Self) -> Self {
        let (own, base) = (self.clone(), shared.clone());
        Self {
            addresses: own.addresses.or(base.addresses),
            gateway: own.gateway.or(base.gateway),
            vlan: own.vlan.or(base.vlan),
            dad: own.dad.or(base.dad),
            port: own.port.or(base.port),
            allow: own.allow.or(base.allow),
            datagram_bytes: own.datagram_bytes.or(base.datagram_bytes),
            nodes: own.nodes.or(base.nodes),
            nodes_max: own.nodes_max.or(base.nodes_max),
            generation: own.generation.or(base.generation),
            node_workers_max: own.node_workers_max.or(base.node_workers_max),
            locations: own.locations.or(base.locations),
            requests: own.requests.or(base.requests),
            value_bytes_max: own.value_bytes_max.or(base.value_bytes_max),
            request_bytes_max: own.request_bytes_max.or(base.request_bytes_max),
            message_bytes: own.message_bytes.or(base.message_bytes),
            write_imm_from_bytes: own.write_imm_from_bytes.or(base.write_imm_from_bytes),
            read: own.read.over(&base.read),
            call: own.call.over(&base.call),
        }
    }
}

impl MemoryKeys {
    /// The keys in force for a node: its own where it has them, otherwise those of `shared`.
    #[must_use]
    pub fn over(&self, shared: &Self) -> Self {
        Self {
            arena_bytes: self.arena_bytes.or(shared.arena_bytes),
            seats: self.seats.or(shared.seats),
            gateway_workers_max: self.gateway_workers_max.or(shared.gateway_workers_max),
            message_bytes: self.message_bytes.or(shared.message_bytes),
            staging_slots: self.staging_slots.or(shared.staging_slots),
            call: self.call.over(&shared.call),
        }
    }
}

impl ReadKeys {
    fn over(&self, shared: &Self) -> Self {
        Self {
            send_depth: self.send_depth.or(shared.send_depth),
            signal_every: self.signal_every.or(shared.signal_every),
            cq_depth: self.cq_depth.or(shared.cq_depth),
        }
    }
}

impl CallKeys {
    fn over(&self, shared: &Self) -> Self {
        Self {
            send_depth: self.send_depth.or(shared.send_depth),
            recv_depth: self.recv_depth.or(shared.recv_depth),
            signal_every: self.signal_every.or(shared.signal_every),
            cq_depth: self.cq_depth.or(shared.cq_depth),
        }
    }
}
