//! The configuration file: what a user may write, exactly as written.
//!
//! A [`Config`] is the TOML text as types; it decides nothing. Keys that were left out stay `None`, so that
//! `crate::plan` alone knows defaults and sizing rules. Unknown keys are refused, and every problem carries the
//! place it comes from ([`ConfigFile`] turns a [`KeyPath`] into file, line, key and value).
//!
//! ```toml
//! [[port]]
//! name = "in"
//! device = "net_null0"
//!
//! [fabric]
//! transport = "verbs"
//! connect = "10.9.0.2:7471"
//! key_file = "relay.key"
//!
//! [[node]]
//! name = "a"
//! service = "relay"
//! ports = ["in"]
//! ```

mod address;
mod decode;
mod eal;
mod eal_words;
mod fabric;
mod file;
mod kv;
mod load;
mod node;
mod port;
mod problem;
pub(crate) mod schema;
mod secret;
mod service;
pub(crate) mod words;

pub use address::{AddressError, HostPort, InterfaceAddress};
pub use eal::{EalKeys, Hugepages, Iova, LcoreText};
pub use eal_words::{EalWordError, apply_eal_words};
pub(crate) use eal_words::{device_name, keyed_words};
pub use fabric::{AuthMode, FabricKeys, QpKind, SoftKeys, TransportKind, VerbsKeys};
pub use file::{ConfigError, ConfigFile, Refused};
pub use kv::{CallKeys, KvKeys, MemoryKeys, ReadKeys};
pub use load::{CommandKind, LoadKeys};
pub use node::{NodeKeys, ServiceKind, Workers};
pub use port::{ChecksumOffload, LinkKeys, PortKeys};
pub use problem::{KeyPath, LocatedProblem, Problem, Segment};
pub use schema::sections;
pub use secret::{KeySource, Secret};
pub use service::{
    FlowTableFull, OnFull, Protocol, RelayKeys, ServiceKeys, SinkKeys, SizeMix, SourceKeys, WeightedSize,
};

use serde::Deserialize;

/// The whole file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What a worker does when it finds no work.
    pub poll: PollMode,
    /// Knobs of `poll = "adaptive"`.
    pub adaptive: AdaptiveKeys,
    /// DPDK's environment abstraction layer.
    pub eal: EalKeys,
    /// Ethernet ports.
    pub port: Vec<PortKeys>,
    /// In-memory cross links; each makes two ports.
    pub link: Vec<LinkKeys>,
    /// RDMA side, shared by all nodes; a node's own `fabric` table wins key by key.
    pub fabric: Option<FabricKeys>,
    /// Service instances of this process.
    pub node: Vec<NodeKeys>,
    /// Settings of the services, shared by all nodes; a node's own table wins key by key.
    pub service: ServiceKeys,
    /// Statistics output.
    pub stats: StatsKeys,
    /// Shutdown.
    pub drain: DrainKeys,
}

/// `poll`: what a worker does when it finds no work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PollMode {
    /// Never sleep: lowest latency, the core is always at 100 %.
    #[default]
    Busy,
    /// Back off after a bounded number of empty turns.
    Adaptive,
}

/// `[adaptive]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdaptiveKeys {
    /// Empty turns before the first back-off.
    pub spin_turns: Option<u32>,
    /// Longest sleep in microseconds where the driver has no interrupt.
    pub sleep_max_us: Option<u32>,
}

/// `[stats]`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StatsKeys {
    /// Seconds between two reports; 0 = only the final one.
    pub interval_s: Option<u32>,
    /// Shape of a report.
    pub format: StatsFormat,
    /// Answer on DPDK's telemetry socket under `/isthmus/`.
    pub telemetry: Option<bool>,
}

/// `stats.format`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatsFormat {
    /// A table on a terminal, JSON lines otherwise.
    #[default]
    Auto,
    /// Always the table.
    Table,
    /// Always JSON lines.
    Json,
}

/// `[drain]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DrainKeys {
    /// Milliseconds that requests in flight have to complete after a stop signal.
    pub timeout_ms: Option<u32>,
}
