//! `[service.load]` and a node's own table of the same keys.

use serde::{Deserialize, Serialize};

/// `service.load.commands`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandKind {
    /// `get` and `set`.
    #[default]
    Text,
    /// `mg` and `ms`.
    Meta,
    /// `gat` and `set`: the owner of a key answers every read.
    Touch,
}

/// `[service.load]`: clients that ask a key-value service for keys.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoadKeys {
    /// Own addresses, with prefix length.
    pub addresses: Option<Vec<String>>,
    /// Next hop for a server outside the prefixes.
    pub gateway: Option<String>,
    /// VLAN id of all frames.
    pub vlan: Option<u32>,
    /// Address and UDP port of the server.
    pub server: Option<String>,
    /// UDP source ports of each worker.
    pub flows: Option<u32>,
    /// Requests under way on each of them.
    pub depth: Option<u32>,
    /// Keys that are asked for.
    pub keys: Option<u32>,
    /// Bytes of a key.
    pub key_bytes: Option<u32>,
    /// Bytes of a value.
    pub value_bytes: Option<u32>,
    /// Which commands are used.
    pub commands: Option<CommandKind>,
    /// Weights of reads and writes: two numbers.
    pub ratio: Option<Vec<u32>>,
    /// Exponent of Zipf's law that keys are chosen by; 0 = all alike.
    pub zipf: Option<f64>,
    /// Requests a second of the whole node; 0 = as many as are answered.
    pub rate: Option<f64>,
    /// Seconds before the measurement.
    pub warm_up_s: Option<u32>,
    /// Seconds of the measurement.
    pub measure_s: Option<u32>,
    /// Requests of the whole node after which the measurement ends earlier; 0 = none.
    pub requests: Option<u64>,
}

impl LoadKeys {
    /// The keys in force for a node: its own where it has them, otherwise those of `shared`.
    #[must_use]
    pub fn over(&self, shared: &Self) -> Self {
        let (own, base) = (self.clone(), shared.clone());
        Self {
            addresses: own.addresses.or(base.addresses),
            gateway: own.gateway.or(base.gateway),
            vlan: own.vlan.or(base.vlan),
            server: own.server.or(base.server),
            flows: own.flows.or(base.flows),
            depth: own.depth.or(base.depth),
            keys: own.keys.or(base.keys),
            key_bytes: own.key_bytes.or(base.key_bytes),
            value_bytes: own.value_bytes.or(base.value_bytes),
            commands: own.commands.or(base.commands),
            ratio: own.ratio.or(base.ratio),
            zipf: own.zipf.or(base.zipf),
            rate: own.rate.or(base.rate),
            warm_up_s: own.warm_up_s.or(base.warm_up_s),
            measure_s: own.measure_s.or(base.measure_s),
            requests: own.requests.or(base.requests),
        }
    }
}
