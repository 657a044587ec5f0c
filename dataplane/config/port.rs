//! `[[port]]` and `[[link]]`: where frames come from and go to.

use serde::{Deserialize, Serialize};

/// `[[port]]`: one Ethernet port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PortKeys {
    /// Name that nodes and reports use.
    pub name: String,
    /// Virtual device with its arguments (`net_null0,size=64`) or a PCI address (`0000:3b:00.0`).
    pub device: String,
    /// RX/TX queue pairs; by default as many as its node has workers.
    pub queues: Option<u32>,
    /// Descriptors of one RX ring.
    pub rx_desc: Option<u32>,
    /// Descriptors of one TX ring.
    pub tx_desc: Option<u32>,
    /// Largest IP packet in bytes (Ethernet header and VLAN tag come on top).
    pub mtu: Option<u32>,
    /// Spread flows over the queues by their hash; by default where the driver can.
    pub rss: Option<bool>,
    /// Take frames for any MAC address.
    pub promiscuous: Option<bool>,
    /// Let the NIC compute checksums.
    pub checksum_offload: ChecksumOffload,
    /// Buffers of the port's pool; sized by the plan by default.
    pub pool_frames: Option<u32>,
    /// Buffers that each lcore keeps at hand, for every pool of this port.
    pub pool_cache: Option<u32>,
}

/// `checksum_offload`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChecksumOffload {
    /// Where the driver offers it.
    #[default]
    Auto,
    /// Demand it.
    On,
    /// Compute in software.
    Off,
}

/// `[[link]]`: an in-memory cable. It makes two ports; what one transmits the other receives, without a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkKeys {
    /// Name in reports.
    pub name: String,
    /// Names of the two ports it makes.
    pub ports: Vec<String>,
    /// Queue pairs of both ports; by default the larger number of workers at the two ends.
    pub queues: Option<u32>,
    /// Slots of one ring, a power of two.
    pub ring_size: Option<u32>,
    /// Largest IP packet in bytes.
    pub mtu: Option<u32>,
    /// Buffers of the pool of each end; sized by the plan by default.
    pub pool_frames: Option<u32>,
    /// Buffers that each lcore keeps at hand, for every pool of this link.
    pub pool_cache: Option<u32>,
}
