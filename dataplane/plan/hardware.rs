//! What the machine can do, as far as it is known. The plan is made without it for `check`, and again with it
//! before anything starts.

/// Facts about the machine. What is unknown stays empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hardware {
    /// CPUs that this process may run on.
    pub cpus: Vec<u16>,
    /// Hugepage memory in MiB that is free, or will be when DPDK starts.
    pub hugepages_free_mib: Option<u64>,
    /// All memory in MiB.
    pub memory_mib: Option<u64>,
    /// DPDK ports.
    pub ports: Vec<PortLimits>,
    /// RDMA devices, one entry per physical port.
    pub rdma: Vec<RdmaLimits>,
}

impl Hardware {
    /// Facts about the DPDK device of that name.
    pub fn port(&self, device: &str) -> Option<&PortLimits> {
        self.ports.iter().find(|port| port.device == device)
    }
}

/// Limits of a DPDK port, from `rte_eth_dev_info_get`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortLimits {
    /// Device name, such as `net_null0` or `0000:3b:00.0`.
    pub device: String,
    /// RX queues.
    pub max_rx_queues: u32,
    /// TX queues.
    pub max_tx_queues: u32,
    /// RX descriptors.
    pub rx_desc: DescriptorLimits,
    /// TX descriptors.
    pub tx_desc: DescriptorLimits,
    /// Smallest MTU.
    pub min_mtu: u32,
    /// Largest MTU.
    pub max_mtu: u32,
    /// Offers RSS on IP fields.
    pub rss: bool,
    /// Offers IPv4, UDP and TCP checksums on TX.
    pub tx_checksum: bool,
}

/// Limits of a descriptor ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorLimits {
    /// Fewest.
    pub min: u32,
    /// Most.
    pub max: u32,
    /// The count is a multiple of this; 0 and 1 say nothing.
    pub align: u32,
}

/// Limits of an RDMA device and of one of its ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaLimits {
    /// Device name.
    pub device: String,
    /// Physical port from 1.
    pub port: u8,
    /// The port is up.
    pub active: bool,
    /// Active MTU in bytes.
    pub active_mtu: u32,
    /// Entries of the GID table.
    pub gids: u32,
    /// Queue pairs.
    pub max_qp: u32,
    /// Requests of one queue.
    pub max_qp_wr: u32,
    /// Segments of one request.
    pub max_sge: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Requests of a shared receive queue; 0 = none offered.
    pub max_srq_wr: u32,
    /// READs and atomics outstanding on one QP.
    pub max_read_depth: u32,
}

impl From<&dpdk_bind::PortInfo> for PortLimits {
    fn from(info: &dpdk_bind::PortInfo) -> Self {
        Self {
            device: info.name.clone(),
            max_rx_queues: u32::from(info.max_rx_queues),
            max_tx_queues: u32::from(info.max_tx_queues),
            rx_desc: info.rx_desc.into(),
            tx_desc: info.tx_desc.into(),
            min_mtu: u32::from(info.min_mtu),
            max_mtu: u32::from(info.max_mtu),
            rss: !info.rss.is_empty(),
            tx_checksum: info.tx_offloads.checksums(),
        }
    }
}

impl From<dpdk_bind::port::DescLimits> for DescriptorLimits {
    /// A driver that does not care says 0 or 65535.
    fn from(limits: dpdk_bind::port::DescLimits) -> Self {
        let max = if limits.max == 0 { u16::MAX } else { limits.max };
        Self { min: u32::from(limits.min), max: u32::from(max), align: u32::from(limits.align) }
    }
}
