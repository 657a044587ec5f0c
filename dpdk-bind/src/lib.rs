//! Safe ownership over DPDK (22.11 or newer).
//!
//! | type | owns | goes away |
//! |---|---|---|
//! | [`Eal`] | the process's one EAL | `rte_eal_cleanup` when the last thing made from it is gone |
//! | [`Mempool`] | a pool of buffers (shared handle) | freed once every handle is dropped **and** it is full |
//! | [`Mbuf`] | one chain of buffers | back into the pool on drop |
//! | [`Burst`] | up to `N` mbufs | freed in bulk on drop |
//! | [`Port`], [`RxQueue`], [`TxQueue`] | a configured port and its queues | stopped and closed with the last of them |
//! | [`PortId`] | an interest in a device | a virtual device is removed with its last id |
//!
//! Rules that make the safe part safe:
//! - An mbuf is owned by exactly one handle. TX takes what it sends out of the burst and leaves the rest.
//! - Bytes are writable only where nobody else can see them: [`Mbuf::try_unique`], [`Mbuf::prepend`] and
//!   [`Mbuf::append`] return `None` on shared or indirect segments.
//! - Memory is never unmapped under an mbuf: a pool that is not full is kept, and while one is kept the EAL
//!   is not cleaned up. Both are reported once in the log.
//! - A port is stopped only when none of its queue handles is left, so no other core can be in a burst.
//!
//! Nothing on the packet path allocates, logs, locks or counts references; each burst costs one call through
//! the C shim of `dpdk-sys`. DPDK's own log goes to `tracing` under the target `dpdk`.

mod burst;
pub mod eal;
pub mod link;
pub mod mbuf;
pub mod mempool;
pub mod port;
pub mod telemetry;
pub mod tsc;
pub mod vdev;

pub use burst::Burst;
pub use eal::{Eal, EalError, Lcore};
pub use mbuf::Mbuf;
pub use mempool::{Mempool, PoolConfig, PoolError};
pub use port::{Port, PortConfig, PortError, PortId, PortInfo, RxQueue, TxQueue};

pub use telemetry::Telemetry;
pub use vdev::Vdev;

/// Version of libdpdk this build was made against.
pub const DPDK_BUILT_AGAINST: &str = dpdk_sys::BUILT_AGAINST;
