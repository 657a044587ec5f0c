//! `[[node]]`: one service instance. Several may live in one process, both ends of a relay among them.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{FabricKeys, KvKeys, LoadKeys, MemoryKeys, RelayKeys, SinkKeys, SourceKeys};

/// `[[node]]`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeKeys {
    /// Name in reports, and for `connect` of the loopback transport.
    pub name: String,
    /// What it does.
    pub service: Option<ServiceKind>,
    /// Ports that its workers receive from and transmit to.
    pub ports: Vec<String>,
    /// How many workers, or on which lcores.
    pub workers: Option<Workers>,
    /// Keys of `[fabric]` that differ for this node.
    pub fabric: FabricKeys,
    /// Keys of `[service.relay]` that differ for this node.
    pub relay: RelayKeys,
    /// Keys of `[service.source]` that differ for this node.
    pub source: SourceKeys,
    /// Keys of `[service.sink]` that differ for this node.
    pub sink: SinkKeys,
    /// Keys of `[service.kv]` that differ for this node.
    pub kv: KvKeys,
    /// Keys of `[service.memory]` that differ for this node.
    pub memory: MemoryKeys,
    /// Keys of `[service.load]` that differ for this node.
    pub load: LoadKeys,
}

/// `node.service`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceKind {
    /// Carries Ethernet flows over RDMA.
    Relay,
    /// Makes traffic.
    Source,
    /// Takes traffic and verifies it.
    Sink,
    /// Answers memcached's clients out of the memory nodes' memory.
    Kv,
    /// Keeps the items of gateways.
    Memory,
    /// Asks a key-value service for keys and measures the answers.
    Load,
}

impl ServiceKind {
    /// The word used in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Source => "source",
            Self::Sink => "sink",
            Self::Kv => "kv",
            Self::Memory => "memory",
            Self::Load => "load",
        }
    }

    /// True for a service with an RDMA side.
    pub fn has_fabric(self) -> bool {
        matches!(self, Self::Relay | Self::Kv | Self::Memory)
    }

    /// True for a service that serves a port.
    pub fn has_ports(self) -> bool {
        self != Self::Memory
    }
}

/// `node.workers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workers {
    /// So many, placed by the plan.
    Count(u32),
    /// One on each of these lcores.
    Lcores(Vec<u32>),
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WorkersVisitor)
    }
}

struct WorkersVisitor;

impl<'de> Visitor<'de> for WorkersVisitor {
    type Value = Workers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of workers or a list of lcores such as [1, 2]")
    }

    fn visit_i64<E: serde::de::Error>(self, count: i64) -> Result<Self::Value, E> {
        let wrong = |_| E::invalid_value(serde::de::Unexpected::Signed(count), &self);
        u32::try_from(count).map(Workers::Count).map_err(wrong)
    }

    fn visit_u64<E: serde::de::Error>(self, count: u64) -> Result<Self::Value, E> {
        let wrong = |_| E::invalid_value(serde::de::Unexpected::Unsigned(count), &self);
        u32::try_from(count).map(Workers::Count).map_err(wrong)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut lcores = Vec::new();
        while let Some(lcore) = list.next_element()? {
            lcores.push(lcore);
        }
        Ok(Workers::Lcores(lcores))
    }
}
