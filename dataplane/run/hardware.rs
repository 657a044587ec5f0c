//! What this machine can do, for the plan.

use crate::plan::{Hardware, PortLimits, RdmaLimits};
use dpdk_bind::eal::Hugepages;
use dpdk_bind::{Eal, Port};
use rdma_engine::verbs;

/// CPUs this process may run on.
pub fn cpus() -> Vec<u16> {
    core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|c| c.id as u16).collect()
}

/// Facts that do not need DPDK to be up.
pub fn before_eal() -> Hardware {
    Hardware { cpus: cpus(), rdma: rdma(), ..memory() }
}

/// What there is of memory, and nothing else: no device is looked at.
pub fn memory() -> Hardware {
    // What killed processes left is free as soon as DPDK starts.
    let free = (Hugepages::free_bytes() + Hugepages::left_bytes()) >> 20;
    Hardware { hugepages_free_mib: Some(free), memory_mib: memory_mib(), ..Hardware::default() }
}

/// All memory of the machine, as the kernel says it.
fn memory_mib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib >> 10)
}

impl Hardware {
    /// With what is known once DPDK is up. The EAL has pinned this thread and taken its hugepages by now, so what was
    /// found before about CPUs stays, and what is free says nothing any more.
    #[must_use]
    pub fn with_eal(self, eal: &Eal) -> Self {
        let ports = Port::list(eal).iter().map(PortLimits::from).collect();
        Hardware { hugepages_free_mib: None, ports, ..self }
    }
}

fn rdma() -> Vec<RdmaLimits> {
    let devices = verbs::devices().unwrap_or_default();
    let limits = |d: &verbs::DeviceReport| {
        d.ports
            .iter()
            .map(|p| RdmaLimits {
                device: d.name.clone(),
                port: p.number,
                active: p.state == verbs::PortState::Active,
                active_mtu: p.active_mtu.map_or(0, |m| m.bytes()),
                gids: p.gids.len() as u32,
                max_qp: d.limits.qps,
                max_qp_wr: d.limits.qp_depth,
                max_sge: d.limits.sge,
                max_cq: d.limits.cqs,
                max_cqe: d.limits.cq_depth,
                max_mr: d.limits.mrs,
                max_srq_wr: d.limits.srq_depth,
                max_read_depth: d.limits.rd_atomic.into(),
            })
            .collect::<Vec<_>>()
    };
    devices.iter().flat_map(limits).collect()
}
