//! `[service.*]` and a node's own tables of the same keys.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{KvKeys, LoadKeys, MemoryKeys};

/// `[service]`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServiceKeys {
    /// `[service.relay]`.
    pub relay: RelayKeys,
    /// `[service.source]`.
    pub source: SourceKeys,
    /// `[service.sink]`.
    pub sink: SinkKeys,
    /// `[service.kv]`.
    pub kv: KvKeys,
    /// `[service.memory]`.
    pub memory: MemoryKeys,
    /// `[service.load]`.
    pub load: LoadKeys,
}

/// `[service.relay]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RelayKeys {
    /// Largest message in bytes, relay header included.
    pub message_bytes: Option<u32>,
    /// Frames shorter than this are copied instead of pointed to, in bytes.
    pub copybreak: Option<u32>,
    /// Queue pairs of each worker.
    pub qps_per_worker: Option<u32>,
    /// Flows that each worker remembers.
    pub flow_capacity: Option<u32>,
    /// Seconds of silence after which a flow is forgotten.
    pub flow_idle_s: Option<u32>,
    /// What happens to a new flow when the table is full.
    pub on_flow_table_full: Option<FlowTableFull>,
    /// What happens to a frame when its QP takes no more.
    pub on_full: Option<OnFull>,
    /// Milliseconds that frames wait for a dead path, or for the first one after the start, before they are dropped.
    pub dead_path_wait_ms: Option<u32>,
}

/// `on_flow_table_full`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowTableFull {
    /// Its frames go to a QP chosen by hash alone, without an entry.
    #[default]
    Hash,
    /// Its frames are dropped and counted.
    Drop,
}

/// `on_full`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFull {
    /// Stop polling that RX queue: the NIC's ring is the backlog and counts its misses.
    #[default]
    Wait,
    /// Drop the frame and count it.
    Drop,
}

/// `[service.source]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SourceKeys {
    /// Distinct flows.
    pub flows: Option<u32>,
    /// Frame lengths in bytes, without the frame check sequence.
    pub sizes: Option<SizeMix>,
    /// Frames per second of the whole node; 0 = as fast as possible.
    pub rate_pps: Option<u64>,
    /// Frames to send in all; 0 = until stopped.
    pub count: Option<u64>,
    /// Protocols, used in turn by flow.
    pub protocols: Option<Vec<Protocol>>,
    /// Id of the VLAN tag of all frames; without it they have none.
    pub vlan: Option<u32>,
    /// Destination MAC address.
    pub dst_mac: Option<String>,
}

/// `source.protocols`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// UDP over IPv4.
    Udp4,
    /// TCP over IPv4.
    Tcp4,
    /// UDP over IPv6.
    Udp6,
    /// TCP over IPv6.
    Tcp6,
    /// Not IP at all.
    Other,
}

/// `[service.sink]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SinkKeys {
    /// Check order, sequence and checksum of every frame of a source.
    pub verify: Option<bool>,
    /// Flows whose order can be followed: sources number theirs from 0.
    pub flows: Option<u32>,
    /// Send every frame back out of the port it came from.
    pub echo: Option<bool>,
}

impl RelayKeys {
    /// The keys in force for a node: its own where it has them, otherwise those of `shared`.
    #[must_use]
    pub fn over(&self, shared: &Self) -> Self {
        Self {
            message_bytes: self.message_bytes.or(shared.message_bytes),
            copybreak: self.copybreak.or(shared.copybreak),
            qps_per_worker: self.qps_per_worker.or(shared.qps_per_worker),
            flow_capacity: self.flow_capacity.or(shared.flow_capacity),
            flow_idle_s: self.flow_idle_s.or(shared.flow_idle_s),
            on_flow_table_full: self.on_flow_table_full.or(shared.on_flow_table_full),
            on_full: self.on_full.or(shared.on_full),
            dead_path_wait_ms: self.dead_path_wait_ms.or(shared.dead_path_wait_ms),
        }
    }
}

impl SourceKeys {
    /// The keys in force for a node: its own where it has them, otherwise those of `shared`.
    #[must_use]
    pub fn over(&self, shared: &Self) -> Self {
        Self {
            flows: self.flows.or(shared.flows),
            sizes: self.sizes.clone().or_else(|| shared.sizes.clone()),
            rate_pps: self.rate_pps.or(shared.rate_pps),
            count: self.count.or(shared.count),
            protocols: self.protocols.clone().or_else(|| shared.protocols.clone()),
            vlan: self.vlan.or(shared.vlan),
            dst_mac: self.dst_mac.clone().or_else(|| shared.dst_mac.clone()),
        }
    }
}

impl SinkKeys {
    /// The keys in force for a node: its own where it has them, otherwise those of `shared`.
    #[must_use]
    pub fn over(&self, shared: &Self) -> Self {
        Self {
            verify: self.verify.or(shared.verify),
            flows: self.flows.or(shared.flows),
            echo: self.echo.or(shared.echo),
        }
    }
}

/// A frame length and how often it is used relative to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WeightedSize {
    /// Frame length in bytes, without the frame check sequence.
    pub bytes: u32,
    /// Relative frequency.
    pub weight: u32,
}

/// `source.sizes`: one length, a list of lengths, a list of `[length, weight]`, or `"imix"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeMix(pub Vec<WeightedSize>);

impl SizeMix {
    /// The usual Internet mix: 60, 576 and 1514 bytes at 7 : 4 : 1.
    pub fn imix() -> Self {
        let size = |(bytes, weight)| WeightedSize { bytes, weight };
        Self([(60, 7), (576, 4), (1514, 1)].into_iter().map(size).collect())
    }
}

impl<'de> Deserialize<'de> for SizeMix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeMixVisitor)
    }
}

struct SizeMixVisitor;

impl<'de> Visitor<'de> for SizeMixVisitor {
    type Value = SizeMix;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a frame length, a list of lengths or of [length, weight] pairs, or \"imix\"")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        match text {
            "imix" => Ok(SizeMix::imix()),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<Self::Value, E> {
        let wrong = |_| E::invalid_value(serde::de::Unexpected::Signed(bytes), &self);
        let bytes = u32::try_from(bytes).map_err(wrong)?;
        Ok(SizeMix(vec![WeightedSize { bytes, weight: 1 }]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut sizes = Vec::new();
        while let Some(SizeEntry(size)) = list.next_element()? {
            sizes.push(size);
        }
        Ok(SizeMix(sizes))
    }
}

struct SizeEntry(WeightedSize);

impl<'de> Deserialize<'de> for SizeEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeEntryVisitor)
    }
}

struct SizeEntryVisitor;

impl<'de> Visitor<'de> for SizeEntryVisitor {
    type Value = SizeEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a frame length or a [length, weight] pair")
    }

    fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<Self::Value, E> {
        let wrong = |_| E::invalid_value(serde::de::Unexpected::Signed(bytes), &self);
        let bytes = u32::try_from(bytes).map_err(wrong)?;
        Ok(SizeEntry(WeightedSize { bytes, weight: 1 }))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let count_wrong = |n| <A::Error as serde::de::Error>::invalid_length(n, &self);
        let bytes = list.next_element()?.ok_or_else(|| count_wrong(0))?;
        let weight = list.next_element()?.ok_or_else(|| count_wrong(1))?;
        match list.next_element::<u32>()? {
            None => Ok(SizeEntry(WeightedSize { bytes, weight })),
            Some(_) => Err(count_wrong(3)),
        }
    }
}
