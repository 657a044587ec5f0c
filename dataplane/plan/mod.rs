//! The plan: a [`Config`](crate::config::Config) with every number known. Only the plan reaches code that runs.
//!
//! [`resolve`] is a pure function of the configuration and, once DPDK is up, of what the hardware can do. It
//! collects every problem, refuses what breaks a sizing rule, and records each rule it applied.

mod access;
mod bounds;
mod depths;
mod devices;
mod drivers;
mod eal;
mod fabric;
mod hardware;
mod key_files;
mod kv;
mod kv_lanes;
mod kv_peers;
mod lcores;
mod ledger;
mod limits;
mod load;
mod memory;
mod nodes;
mod peers;
mod pools;
mod ports;
mod resolve;
mod services;
mod subnets;

#[cfg(test)]
mod tests;

pub use bounds::{
    COMPLETION_BURST, FRAME_OVERHEAD_BYTES, GRH_BYTES, HEADROOM_BYTES, MAX_DEPTH, MAX_MESSAGE_BYTES,
    RELAY_HEADER_MAX_BYTES, RX_BURST, TX_BACKLOG, TX_BURST,
};
pub use drivers::{DriverFacts, driver_facts};
pub use eal::probe_args;
pub use fabric::{DEFAULT_LINK_MBPS, PlanFabric, PlanPeer, PlanQp, PlanSoft, PlanTiming, PlanTransport};
pub use hardware::{DescriptorLimits, Hardware, PortLimits, RdmaLimits};
pub use key_files::key_file_problems;
pub use kv::{PlanKv, PlanMemoryNode, PlanStaging};
pub use load::PlanLoad;
pub use memory::memory_problems;
pub use resolve::resolve;
pub use services::{PlanRelay, PlanSink, PlanSource};

use std::ops::Range;

use serde::Serialize;

use crate::config::{ChecksumOffload, Hugepages, Problem, ServiceKind, StatsFormat};

/// Everything this process is going to set up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// Arguments of EAL, without the program name.
    pub eal_args: Vec<String>,
    /// Lcores, the main one first.
    pub lcores: Vec<PlanLcore>,
    /// Ports: those of `[[port]]` in file order, then two per `[[link]]`.
    pub ports: Vec<PlanPort>,
    /// In-memory cross links.
    pub links: Vec<PlanLink>,
    /// Service instances in file order.
    pub nodes: Vec<PlanNode>,
    /// Buffer pools.
    pub pools: Vec<PlanPool>,
    /// Memory in all.
    pub memory: PlanMemory,
    /// What an idle worker does.
    pub poll: PollPolicy,
    /// Statistics output.
    pub stats: PlanStats,
    /// Shutdown.
    pub drain: PlanDrain,
    /// Sizing rules in the order they were applied.
    pub rules: Vec<AppliedRule>,
    /// What is allowed but probably not meant.
    #[serde(skip)]
    pub warnings: Vec<Problem>,
}

/// One lcore and what it runs, turn by turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanLcore {
    /// EAL's lcore id.
    pub id: u16,
    /// CPUs it is bound to; empty when that is the CPU of the same number.
    pub cpus: Vec<u16>,
    /// The main lcore runs control and no worker.
    pub main: bool,
    /// Workers that it runs in turn.
    pub roles: Vec<RoleRef>,
}

/// A worker of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RoleRef {
    /// Index into [`Plan::nodes`].
    pub node: usize,
    /// Index into [`PlanNode::workers`].
    pub worker: usize,
}

/// One Ethernet port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanPort {
    /// Its name in the file.
    pub name: String,
    /// What it is made of.
    pub source: PortSource,
    /// RX/TX queue pairs.
    pub queues: u16,
    /// Descriptors of one RX ring.
    pub rx_desc: u16,
    /// Descriptors of one TX ring.
    pub tx_desc: u16,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// False where the driver is known to refuse `set_mtu`: do not call it.
    pub set_mtu: bool,
    /// Spreading of flows over queues.
    pub rss: RssPlan,
    /// Take frames for any MAC address.
    pub promiscuous: bool,
    /// Checksums computed by the NIC.
    pub checksum_offload: ChecksumOffload,
    /// Index into [`Plan::pools`]: RX buffers, copies and frames of its own.
    pub pool: usize,
    /// Index into [`Plan::nodes`]; `None` when no node uses it.
    pub node: Option<usize>,
}

impl PlanPort {
    /// Longest frame without frame check sequence: Ethernet header, one VLAN tag and the MTU.
    pub fn max_frame_bytes(&self) -> u32 {
        u32::from(self.mtu) + FRAME_OVERHEAD_BYTES
    }
}

impl PortSource {
    /// True for an end of a link: whatever leaves it arrives as it was.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        matches!(self, PortSource::LinkEnd { .. })
    }
}

/// What a port is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PortSource {
    /// A virtual device that EAL makes.
    Vdev {
        /// EAL's name for it, such as `net_null0`.
        device: String,
        /// Arguments after the name, without the leading comma.
        args: String,
        /// Driver, such as `net_null`.
        driver: String,
    },
    /// A PCI device.
    Pci {
        /// Address in full, `0000:3b:00.0`.
        device: String,
        /// Arguments after the address, without the leading comma.
        args: String,
    },
    /// One end of a cross link, made with `rte_eth_from_rings`.
    LinkEnd {
        /// Index into [`Plan::links`].
        link: usize,
        /// 0 or 1.
        end: usize,
    },
}

impl PortSource {
    /// EAL's name of the device; `None` for the end of a link.
    pub fn device(&self) -> Option<&str> {
        match self {
            Self::Vdev { device, .. } | Self::Pci { device, .. } => Some(device),
            Self::LinkEnd { .. } => None,
        }
    }
}

/// Spreading of flows over the queues of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RssPlan {
    /// Not asked for.
    Off,
    /// Where the driver offers it.
    WhereOffered,
    /// Start fails without it.
    Required,
}

/// An in-memory cable: what one end transmits on queue n, the other receives on queue n.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanLink {
    /// Its name in the file.
    pub name: String,
    /// Indices into [`Plan::ports`].
    pub ports: [usize; 2],
    /// Queue pairs of both ends: 2 x this many rings.
    pub queues: u16,
    /// Frames that one ring holds, a power of two minus one.
    pub ring_size: u32,
}

/// A service instance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanNode {
    /// Its name in the file.
    pub name: String,
    /// What it does, with its numbers.
    pub service: PlanService,
    /// Ports it serves, indices into [`Plan::ports`]: one, and none of a memory node.
    pub ports: Vec<usize>,
    /// One per lcore it runs on.
    pub workers: Vec<PlanWorker>,
    /// RDMA side, for services that have one.
    pub fabric: Option<PlanFabric>,
    /// Pool of frames and short messages of a node without a port, index into [`Plan::pools`].
    pub frame_pool: Option<usize>,
    /// Pool of receive buffers, index into [`Plan::pools`].
    pub message_pool: Option<usize>,
    /// Pool of indirect mbufs that point into received messages, index into [`Plan::pools`].
    pub slice_pool: Option<usize>,
}

impl PlanNode {
    /// Queue pairs of each worker.
    pub fn qps_per_worker(&self) -> usize {
        self.workers.first().map_or(0, |worker| worker.qps.len())
    }
}

/// One worker of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanWorker {
    /// The lcore that runs it.
    pub lcore: u16,
    /// Queues of the node's ports that only this worker polls and transmits on: one of each port.
    pub queues: Vec<PortQueue>,
    /// Queues that carry RoCE frames (`transport = "soft"`).
    pub fabric_queues: Vec<PortQueue>,
    /// QPs it owns, numbered through the node.
    pub qps: Range<u32>,
}

/// A queue pair of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PortQueue {
    /// Index into [`Plan::ports`].
    pub port: usize,
    /// RX and TX queue of that number.
    pub queue: u16,
}

/// A service with its numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanService {
    /// Carries Ethernet flows over RDMA.
    Relay(PlanRelay),
    /// Makes traffic.
    Source(PlanSource),
    /// Takes and verifies traffic.
    Sink(PlanSink),
    /// A gateway of the key-value service.
    Kv(PlanKv),
    /// A memory node of it.
    Memory(PlanMemoryNode),
    /// Clients of it.
    Load(PlanLoad),
}

impl PlanService {
    /// Which service.
    pub fn kind(&self) -> ServiceKind {
        match self {
            Self::Relay(_) => ServiceKind::Relay,
            Self::Source(_) => ServiceKind::Source,
            Self::Sink(_) => ServiceKind::Sink,
            Self::Kv(_) => ServiceKind::Kv,
            Self::Memory(_) => ServiceKind::Memory,
            Self::Load(_) => ServiceKind::Load,
        }
    }
}

/// A pool of mbufs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanPool {
    /// DPDK's name for it.
    pub name: String,
    /// Mbufs.
    pub count: u32,
    /// Bytes of one mbuf's buffer, headroom included; 0 for indirect mbufs.
    pub data_room: u16,
    /// Mbufs that each lcore keeps at hand.
    pub cache: u32,
    /// The sum that `count` is made of.
    pub why: String,
    /// Registered with the RDMA device.
    pub registered: bool,
}

impl PlanPool {
    /// Memory of the pool in bytes: mbufs with their headers, and the pool's ring.
    pub fn bytes(&self) -> u64 {
        memory::pool_bytes(u64::from(self.count), u64::from(self.data_room))
    }
}

/// Memory in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PlanMemory {
    /// Kind of pages.
    pub hugepages: Hugepages,
    /// Pools in bytes.
    pub pools_bytes: u64,
    /// Rings of ports and links in bytes.
    pub rings_bytes: u64,
    /// Arenas of memory nodes in bytes; beside what EAL is given.
    pub arenas_bytes: u64,
    /// Flow tables, QP state and flight records in bytes; ordinary memory.
    pub tables_bytes: u64,
    /// What EAL is given in MiB.
    pub eal_mib: u64,
}

/// What an idle worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PollPolicy {
    /// Polls on.
    Busy,
    /// Backs off.
    Adaptive {
        /// Empty turns before the first back-off.
        spin_turns: u32,
        /// Longest sleep in microseconds where the driver has no interrupt.
        sleep_max_us: u32,
    },
}

/// Statistics output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PlanStats {
    /// Seconds between two reports; `None` = only the final one.
    pub interval_s: Option<u32>,
    /// Shape of a report.
    pub format: StatsFormat,
    /// Answer on DPDK's telemetry socket.
    pub telemetry: bool,
}

/// Shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PlanDrain {
    /// Milliseconds that requests in flight have to complete.
    pub timeout_ms: u32,
}

/// A sizing rule that was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AppliedRule {
    /// Its name.
    pub name: &'static str,
    /// What it was applied to.
    pub subject: String,
    /// The numbers that went in.
    pub inputs: String,
    /// What came out.
    pub result: String,
}
