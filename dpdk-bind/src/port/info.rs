//! What a port's driver offers.

#![allow(unsafe_code)] // Reads rte_eth_dev_info.

use core::mem::MaybeUninit;

use dpdk_sys as sys;

use super::PortId;
use super::rss::HashTypes;
use crate::eal::text;

/// What a driver offers on one port.
#[derive(Clone, Debug)]
pub struct PortInfo {
    /// The port.
    pub id: PortId,
    /// Its name: a PCI address or the name of a virtual device.
    pub name: String,
    /// Driver, such as `net_null`.
    pub driver: String,
    /// NUMA socket, if it is on one.
    pub socket: Option<u32>,
    /// Most RX queues.
    pub max_rx_queues: u16,
    /// Most TX queues.
    pub max_tx_queues: u16,
    /// Smallest MTU, bytes.
    pub min_mtu: u16,
    /// Largest MTU, bytes (65535 where the driver does not care).
    pub max_mtu: u16,
    /// Largest frame it can receive, bytes (about 4 G where the driver does not care).
    pub max_frame: u32,
    /// Smallest RX buffer it takes, bytes.
    pub min_rx_buffer: u32,
    /// What it can do to received frames.
    pub rx_offloads: RxOffloads,
    /// What it can do to sent frames.
    pub tx_offloads: TxOffloads,
    /// Header fields its RSS can hash; empty without RSS.
    pub rss: HashTypes,
    /// Entries of the redirection table; 0 without one.
    pub reta_size: u16,
    /// Bytes of the RSS key; 0 without one.
    pub rss_key_len: u8,
    /// Speeds it can run at in Mb/s; empty where the driver does not say.
    pub speeds_mbps: Vec<u32>,
    /// Limits of RX descriptor counts.
    pub rx_desc: DescLimits,
    /// Limits of TX descriptor counts.
    pub tx_desc: DescLimits,
}

/// Offloads for received frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxOffloads {
    pub(super) bits: u64,
}

/// Offloads for sent frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxOffloads {
    pub(super) bits: u64,
}

/// What [`PortConfig::rx_checksum`](super::PortConfig::rx_checksum) asks for.
pub(super) const RX_CHECKSUMS: u64 =
    sys::DPDK_SYS_RX_IPV4_CKSUM | sys::DPDK_SYS_RX_UDP_CKSUM | sys::DPDK_SYS_RX_TCP_CKSUM;

/// What [`PortConfig::tx_checksum`](super::PortConfig::tx_checksum) asks for.
pub(super) const TX_CHECKSUMS: u64 =
    sys::DPDK_SYS_TX_IPV4_CKSUM | sys::DPDK_SYS_TX_UDP_CKSUM | sys::DPDK_SYS_TX_TCP_CKSUM;

impl RxOffloads {
    /// Checks IPv4, UDP and TCP checksums.
    pub fn checksums(self) -> bool {
        self.bits & RX_CHECKSUMS == RX_CHECKSUMS
    }

    /// Reports the RSS hash with the frame.
    pub fn rss_hash(self) -> bool {
        self.bits & sys::DPDK_SYS_RX_RSS_HASH != 0
    }

    /// Spreads a frame over several buffers.
    pub fn scatter(self) -> bool {
        self.bits & sys::DPDK_SYS_RX_SCATTER != 0
    }

    /// DPDK's bits (`RTE_ETH_RX_OFFLOAD_*`).
    pub fn bits(self) -> u64 {
        self.bits
    }
}

impl TxOffloads {
    /// Fills in IPv4, UDP and TCP checksums.
    pub fn checksums(self) -> bool {
        self.bits & TX_CHECKSUMS == TX_CHECKSUMS
    }

    /// Sends chains of several segments.
    pub fn chains(self) -> bool {
        self.bits & sys::DPDK_SYS_TX_MULTI_SEGS != 0
    }

    /// DPDK's bits (`RTE_ETH_TX_OFFLOAD_*`).
    pub fn bits(self) -> u64 {
        self.bits
    }
}

/// Limits of the number of descriptors in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescLimits {
    /// Fewest.
    pub min: u16,
    /// Most (0 or 65535 where the driver does not care).
    pub max: u16,
    /// The number must be a multiple of this.
    pub align: u16,
}

impl From<sys::rte_eth_desc_lim> for DescLimits {
    fn from(raw: sys::rte_eth_desc_lim) -> Self {
        DescLimits { min: raw.nb_min, max: raw.nb_max, align: raw.nb_align.max(1) }
    }
}

impl PortInfo {
    /// Number, name and driver, as messages call the port.
    pub fn label(&self) -> String {
        format!("{} ({}, {})", self.id, self.name, self.driver)
    }

    pub(super) fn query(id: &PortId) -> Option<PortInfo> {
        raw_info(id.index()).map(|raw| PortInfo::from_raw(id, &raw))
    }

    fn from_raw(id: &PortId, raw: &sys::rte_eth_dev_info) -> PortInfo {
        // SAFETY: the EAL is up as there is a port; the driver's name is static.
        let (socket, driver) = unsafe { (sys::rte_eth_dev_socket_id(id.index()), text(raw.driver_name)) };
        PortInfo {
            id: id.clone(),
            name: name_of(id.index()),
            driver,
            socket: u32::try_from(socket).ok(),
            max_rx_queues: raw.max_rx_queues,
            max_tx_queues: raw.max_tx_queues,
            min_mtu: raw.min_mtu,
            max_mtu: raw.max_mtu,
            max_frame: raw.max_rx_pktlen,
            min_rx_buffer: raw.min_rx_bufsize,
            rx_offloads: RxOffloads { bits: raw.rx_offload_capa },
            tx_offloads: TxOffloads { bits: raw.tx_offload_capa },
            rss: HashTypes::from_bits(raw.flow_type_rss_offloads),
            reta_size: raw.reta_size,
            rss_key_len: raw.hash_key_size,
            speeds_mbps: speeds(raw.speed_capa),
            rx_desc: raw.rx_desc_lim.into(),
            tx_desc: raw.tx_desc_lim.into(),
        }
    }
}

pub(super) fn raw_info(index: u16) -> Option<sys::rte_eth_dev_info> {
    let mut raw = MaybeUninit::<sys::rte_eth_dev_info>::zeroed();
    // SAFETY: filled in on success; DPDK checks the number.
    unsafe { (sys::rte_eth_dev_info_get(index, raw.as_mut_ptr()) == 0).then(|| raw.assume_init()) }
}

fn name_of(index: u16) -> String {
    let mut name = [0; 256];
    // SAFETY: DPDK writes at most 64 bytes with their NUL.
    unsafe {
        match sys::rte_eth_dev_get_name_by_port(index, name.as_mut_ptr()) {
            0 => text(name.as_ptr()),
            _ => index.to_string(),
        }
    }
}

/// Speeds in Mb/s by bit of `RTE_ETH_LINK_SPEED_*`, bit 1 first. (Half duplex ones are left out.)
const SPEEDS_MBPS: [u32; 16] = [
    0, 10, 0, 100, 1_000, 2_500, 5_000, 10_000, 20_000, 25_000, 40_000, 50_000, 56_000, 100_000, 200_000,
    400_000,
];

fn speeds(capa: u32) -> Vec<u32> {
    let set = |bit: usize| capa >> bit & 1 == 1;
    SPEEDS_MBPS
        .iter()
        .enumerate()
        .filter(|&(i, &mbps)| mbps != 0 && set(i + 1))
        .map(|(_, &mbps)| mbps)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_bits() {
        assert_eq!(speeds(0), []);
        assert_eq!(speeds(1 << 8 | 1 << 14), [10_000, 100_000]);
        assert_eq!(speeds(1 << 2 | 1 << 5), [10, 1_000]);
    }
}
