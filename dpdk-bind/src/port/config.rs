//! How a port is to be configured.

use crate::mempool::Mempool;

/// How much a feature is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Demand {
    /// Not at all.
    #[default]
    Off,
    /// If the driver has it; otherwise a note.
    Prefer,
    /// Without it the port is refused.
    Require,
}

impl Demand {
    /// Whether it is wanted at all.
    pub fn is_wanted(self) -> bool {
        self != Demand::Off
    }
}

impl From<bool> for Demand {
    /// `true` is a preference.
    fn from(wanted: bool) -> Self {
        if wanted { Demand::Prefer } else { Demand::Off }
    }
}

/// Configuration of a port. `Default` has one queue each way, 1024 descriptors, an MTU of 1500, and no pool:
/// at least the pool has to be set.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// RX queues.
    pub rx_queues: u16,
    /// TX queues.
    pub tx_queues: u16,
    /// Descriptors of each RX queue; adjusted to what the driver takes.
    pub rx_desc: u16,
    /// Descriptors of each TX queue; adjusted to what the driver takes.
    pub tx_desc: u16,
    /// Largest payload of an Ethernet frame, bytes.
    pub mtu: u16,
    /// Spread flows over the RX queues by a hash of addresses and TCP or UDP ports, as far as the driver
    /// hashes those.
    pub rss: Demand,
    /// Accept frames for any MAC address.
    pub promiscuous: Demand,
    /// Have IPv4, UDP and TCP checksums of received frames checked.
    pub rx_checksum: Demand,
    /// Be able to have IPv4, UDP and TCP checksums of sent frames filled in.
    pub tx_checksum: Demand,
    /// Be able to sleep until a queue has frames ([`RxQueue::interrupt`](crate::RxQueue::interrupt)).
    pub rx_interrupt: Demand,
    /// Pools to receive into: one for each RX queue, or one for all.
    pub pools: Vec<Mempool>,
}

impl Default for PortConfig {
    fn default() -> Self {
        PortConfig {
            rx_queues: 1,
            tx_queues: 1,
            rx_desc: 1024,
            tx_desc: 1024,
            mtu: 1500,
            rss: Demand::Off,
            promiscuous: Demand::Off,
            rx_checksum: Demand::Off,
            tx_checksum: Demand::Off,
            rx_interrupt: Demand::Off,
            pools: Vec::new(),
        }
    }
}
