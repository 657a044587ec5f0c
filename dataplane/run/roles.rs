//! Workers of a plan: services with their numbers.

use super::error::RunError;
use super::kv::{self, MemoryStart};
use super::load;
use crate::bridge::{Packet, PacketPool};
use crate::config::{FlowTableFull, OnFull as ConfigOnFull, Protocol};
use crate::host::Duplicates;
use crate::plan::{PlanNode, PlanRelay, PlanService, PlanSink, PlanSource};
use crate::service::Pools;
use crate::service::any::AnyService;
use crate::service::relay::{OnFull, OnTableFull, Relay, RelaySettings};
use crate::service::traffic::{Addressing, Proto, Shape, Sink, SinkSettings, Source, SourceSettings};
use dpdk_bind::Mempool;

/// Longest time a TX queue may take nothing before waiting frames are dropped, where frames wait. Nanoseconds.
const TX_WAIT_NS: u64 = 1_000_000_000;
/// The same for RoCE frames: a queue that takes none holds the transport back, and only a dead one costs frames.
pub(super) const FABRIC_TX_WAIT_NS: u64 = TX_WAIT_NS;
/// How long credits may go untold. Nanoseconds.
const CREDIT_REFRESH_NS: u64 = 1_000_000;

/// What services are made with beside the plan.
#[derive(Default)]
pub(super) struct Making<'a> {
    /// Of all random choices.
    pub(super) seed: u64,
    /// Nanoseconds since 1970 when the clock of the workers was 0.
    pub(super) unix_ns_at_zero: u64,
    /// MAC address of the client port, if there is one.
    pub(super) mac: [u8; 6],
    /// The client port is an end of a link in memory.
    pub(super) in_memory: bool,
    /// The client port fills in checksums.
    pub(super) tx_checksums: bool,
    /// The client port sends chains of buffers.
    pub(super) chains: bool,
    /// A memory node's memory.
    pub(super) memory: Option<&'a MemoryStart>,
    /// What workers of a gateway find out about its addresses.
    pub(super) duplicates: Option<Duplicates>,
}

/// What the workers of a node that has addresses towards clients share, where it wants to know about duplicates.
pub(super) fn duplicates(node: &PlanNode) -> Option<Duplicates> {
    match &node.service {
        PlanService::Kv(kv) if kv.dad => Some(Duplicates::new(&kv.addresses)),
        _ => None,
    }
}

/// The service of one worker of a node.
///
/// # Errors
/// A memory node whose arena is of another size than its geometry.
pub(super) fn service(
    node: &PlanNode,
    worker: usize,
    making: &Making<'_>,
) -> Result<AnyService<Packet>, RunError> {
    let workers = node.workers.len() as u32;
    Ok(match &node.service {
        PlanService::Relay(relay) => AnyService::Relay(Relay::new(relay_settings(relay, making.seed))),
        PlanService::Source(source) => {
            AnyService::Source(Source::new(source_settings(source, worker as u32, workers)))
        }
        PlanService::Load(plan) => AnyService::Load(Box::new(load::client(node, plan, worker, making)?)),
        PlanService::Sink(sink) => AnyService::Sink(Sink::new(sink_settings(sink))),
        PlanService::Kv(kv) => AnyService::Kv(Box::new(kv::gateway(kv, worker, node.workers.len(), making))),
        PlanService::Memory(memory) => {
            AnyService::Memory(Box::new(kv::memory(node, memory, worker, making)?))
        }
    })
}

/// How long unsent frames of this node wait for their TX queue.
pub(super) fn tx_wait_ns(node: &PlanNode) -> u64 {
    match &node.service {
        PlanService::Relay(relay) if relay.on_full == ConfigOnFull::Drop => 0,
        _ => TX_WAIT_NS,
    }
}

/// The pools a node's workers use.
pub(super) fn pools(node: &PlanNode, port_pool: Option<usize>, all: &[Mempool]) -> Pools<PacketPool> {
    let frames =
        port_pool.or(node.frame_pool).expect("the plan gives a node without a port a pool of frames");
    let pick = |at: Option<usize>| PacketPool(all[at.unwrap_or(frames)].clone());
    Pools { frames: pick(None), messages: pick(node.message_pool), slices: pick(node.slice_pool) }
}

fn relay_settings(relay: &PlanRelay, seed: u64) -> RelaySettings {
    RelaySettings {
        paths: relay.qps_per_worker as usize,
        copybreak: relay.copybreak as usize,
        on_full: match relay.on_full {
            ConfigOnFull::Wait => OnFull::Wait,
            ConfigOnFull::Drop => OnFull::Drop,
        },
        on_table_full: match relay.on_flow_table_full {
            FlowTableFull::Hash => OnTableFull::Hash,
            FlowTableFull::Drop => OnTableFull::Drop,
        },
        dead_path_wait_ns: u64::from(relay.dead_path_wait_ms) * 1_000_000,
        credit_refresh_ns: CREDIT_REFRESH_NS,
        flow_capacity: relay.flow_capacity as usize,
        flow_idle_ms: relay.flow_idle_s.saturating_mul(1000),
        seed,
    }
}

/// This worker's share of a total; the first workers take what does not divide.
fn share(total: u64, worker: u32, workers: u32) -> u64 {
    let (worker, workers) = (u64::from(worker), u64::from(workers));
    total / workers + u64::from(worker < total % workers)
}

fn source_settings(source: &PlanSource, worker: u32, workers: u32) -> SourceSettings {
    let flows = share(source.flows.into(), worker, workers) as u32;
    let before: u64 = (0..worker).map(|w| share(source.flows.into(), w, workers)).sum();
    SourceSettings {
        first_flow: before as u32,
        flows: flows.max(1),
        sizes: source.sizes.clone(),
        shapes: source.protocols.iter().map(|p| Shape { proto: proto(*p), vlan: source.vlan }).collect(),
        rate_pps: source.rate_pps.map_or(0, |rate| share(rate, worker, workers).max(1)),
        count: source.count.map_or(0, |count| share(count, worker, workers)),
        addressing: Addressing {
            source_mac: [2, 0x15, 0x74, 0, (worker >> 8) as u8, worker as u8],
            destination_mac: source.dst_mac,
        },
    }
}

fn proto(protocol: Protocol) -> Proto {
    match protocol {
        Protocol::Udp4 => Proto::UdpV4,
        Protocol::Tcp4 => Proto::TcpV4,
        Protocol::Udp6 => Proto::UdpV6,
        Protocol::Tcp6 => Proto::TcpV6,
        Protocol::Other => Proto::Other,
    }
}

fn sink_settings(sink: &PlanSink) -> SinkSettings {
    SinkSettings { flows: sink.flows, verify: sink.verify, echo: sink.echo }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (total, workers) in [(10, 3), (2, 3), (1_000_000, 7), (0, 2)] {
            let sum: u64 = (0..workers).map(|w| share(total, w, workers)).sum();
            assert_eq!(sum, total);
        }
    }
}
