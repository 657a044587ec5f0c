//! Workers of the key-value service: a memory node's start, and both services with the numbers of the plan.

use super::error::RunError;
use super::roles::Making;
use crate::bridge::Packet;
use crate::control::{Endpoint, Layout};
use crate::front::{FrontSettings, TxChecksums};
use crate::host::HostSettings;
use crate::plan::{PlanKv, PlanMemoryNode, PlanNode};
use crate::service::kv::Gateway;
use crate::service::kv::engine::EngineSettings;
use crate::service::kv::members::Members;
use crate::service::kv::message::NodeHello;
use crate::service::kv::staging::{Shape, Staging};
use crate::service::memory::{MemoryNode, MemorySettings};
use crate::soft::station_mac;
use crate::store::geometry::Geometry;
use crate::store::seal::Secrets;
use crate::store::{Writer, write_superblock};
use rdma_engine::cm::RegionOffer;
use rdma_engine::mem::{Access, Arena, Backing, Region};
use zerocopy::IntoBytes;

/// One start of a memory node: its memory, and what it draws anew each time.
pub(super) struct MemoryStart {
    region: Region,
    /// By seat, if calls may be written.
    staging: Vec<Region>,
    shape: Shape,
    geometry: Geometry,
    /// What its secrets are made from.
    bits: [u64; 4],
    epoch: u64,
    value_bytes_max: u32,
}

impl MemoryStart {
    /// Maps and registers the arena: peers may read it, and nothing else. Beside it a staging region for each seat, if the plan
    /// has any, whose key one gateway is given.
    ///
    /// # Errors
    /// In words.
    pub(super) fn new<D: Endpoint>(
        memory: &PlanMemoryNode,
        backing: Backing,
        device: &D,
    ) -> Result<Self, String> {
        let geometry = Geometry::new(memory.arena_bytes, memory.partitions).map_err(|e| e.to_string())?;
        let len = usize::try_from(memory.arena_bytes).map_err(|e| e.to_string())?;
        let arena = Arena::new(len, backing).map_err(|e| e.to_string())?;
        let region = device.register(&arena, Access::REMOTE_READ).map_err(|e| e.to_string())?;
        let write = Access::REMOTE_WRITE.and(Access::LOCAL_WRITE);
        let seats = if memory.staging.slots > 0 { memory.seats } else { 0 };
        let make = |_| {
            let arena =
                Arena::new(memory.staging.region_bytes as usize, backing).map_err(|e| e.to_string())?;
            device.register(&arena, write).map_err(|e| format!("staging: {e}"))
        };
        let staging = (0..seats).map(make).collect::<Result<_, _>>()?;
        let shape = memory.staging_shape();
        let random = || getrandom::u64().map_err(|e| format!("no random numbers: {e}"));
        let bits = [random()?, random()?, random()?, random()?];
        let value_bytes_max = memory.value_bytes_max;
        Ok(MemoryStart { region, staging, shape, geometry, bits, epoch: random()?.max(1), value_bytes_max })
    }

    /// The memory as gateways are told of it.
    pub(super) fn region(&self) -> RegionOffer {
        RegionOffer::of(&self.region)
    }

    /// The staging regions as gateways are told of them, by seat.
    pub(super) fn staging(&self) -> Vec<RegionOffer> {
        self.staging.iter().map(RegionOffer::of).collect()
    }

    /// What the node says of itself to its gateways.
    pub(super) fn hello(&self) -> Vec<u8> {
        let hello = NodeHello::new(&self.geometry, self.epoch, self.bits, self.value_bytes_max, self.shape);
        hello.as_bytes().to_vec()
    }

    /// Marks the arena as laid out, when all its writers are made.
    pub(super) fn publish(&self, node: &PlanNode) -> Result<(), RunError> {
        write_superblock(self.region.window(), &self.geometry, self.epoch).map_err(|e| failed(node, e))
    }

    fn writer(&self, node: &PlanNode, partition: usize) -> Result<Writer, RunError> {
        let (window, secrets) = (self.region.window(), Secrets::new(self.bits));
        Writer::new(window, self.geometry, partition as u32, secrets, self.epoch, 0)
            .map_err(|e| failed(node, e))
    }
}

fn failed(node: &PlanNode, why: impl ToString) -> RunError {
    RunError::Fabric { node: node.name.clone(), why: why.to_string() }
}

/// The memory node on one worker: the writer of one partition.
pub(super) fn memory(
    node: &PlanNode,
    memory: &PlanMemoryNode,
    worker: usize,
    making: &Making<'_>,
) -> Result<MemoryNode<Packet>, RunError> {
    let start = making.memory.ok_or_else(|| failed(node, "a memory node needs an RDMA side"))?;
    let layout = Layout::Memory {
        seats: memory.seats as usize,
        gateway_workers_max: memory.gateway_workers_max as usize,
    };
    let settings = MemorySettings {
        paths: layout.paths_per_worker(),
        gateway_workers_max: memory.gateway_workers_max as u16,
        value_bytes_max: memory.value_bytes_max as usize,
        message_bytes: memory.message_bytes as usize,
        staging: Staging {
            shape: start.shape,
            partition: worker as u16,
            partitions: memory.partitions,
            regions: start.staging.iter().map(|region| region.window()).collect(),
        },
        unix_ns_at_zero: making.unix_ns_at_zero,
    };
    Ok(MemoryNode::new(settings, start.writer(node, worker)?))
}

/// The gateway on one worker.
pub(super) fn gateway(kv: &PlanKv, worker: usize, workers: usize, making: &Making<'_>) -> Gateway<Packet> {
    let nodes_max = kv.nodes_max as usize;
    let layout = Layout::Gateway { nodes: nodes_max, node_workers_max: kv.node_workers_max as usize };
    let places = kv.nodes.iter().map(String::as_str).zip(0..);
    let engine = EngineSettings {
        members: Members::new(kv.generation.into(), places),
        nodes_max,
        node_workers_max: kv.node_workers_max as u16,
        paths: layout.paths_per_worker(),
        jobs: kv.requests as usize,
        locations: kv.locations as usize,
        value_bytes_max: kv.value_bytes_max as usize,
        write_imm_from: kv.write_imm_from_bytes.map_or(usize::MAX, |bytes| bytes as usize),
        unix_ns_at_zero: making.unix_ns_at_zero,
    };
    let host = HostSettings {
        mac: station_mac(making.mac, &kv.addresses),
        addresses: kv.addresses.clone(),
        gateway: kv.gateway,
        vlan: kv.vlan,
        duplicates: making.duplicates.clone(),
        other_vlan: Default::default(),
    };
    let front = FrontSettings {
        allow: kv.allow.clone(),
        mtu: kv.mtu,
        datagram_bytes: kv.datagram_bytes as u16,
        request_bytes_max: kv.request_bytes_max as usize,
        segments_max: if making.chains { 8 } else { 1 },
        tx_checksums: TxChecksums { ip: making.tx_checksums, udp: making.tx_checksums },
        // Each worker has its share, so that the node as a whole keeps the bound.
        errors_per_second: (ERRORS_PER_SECOND / workers.max(1) as u32).max(1),
        ..FrontSettings::new(host, kv.port)
    };
    Gateway::new(engine, front, worker == 0)
}

/// Replies a second to requests that make no sense.
const ERRORS_PER_SECOND: u32 = 1000;
