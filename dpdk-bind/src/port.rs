//! Ethernet ports.

#![allow(unsafe_code)] // Calls rte_eth_dev_* on ports this process has configured.

mod config;
pub(crate) mod device;
mod error;
mod info;
mod interrupt;
mod queue;
pub mod rss;
mod setup;
mod stats;

use core::cell::Cell;
use core::ffi::c_int;
use core::fmt;
use core::marker::PhantomData;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use dpdk_sys as sys;

pub use config::{Demand, PortConfig};
pub use error::PortError;
pub use info::{DescLimits, PortInfo, RxOffloads, TxOffloads};
pub use interrupt::RxInterrupt;
pub use queue::{RxQueue, TxQueue};
pub use rss::HashTypes;
pub use stats::{PortStats, Xstat};

use crate::eal::{Eal, EalInner, lock};
use crate::mempool::Mempool;
use device::Device;

/// A port as DPDK numbers it, and an interest in its device: a virtual device this process made is removed
/// when the last id (or port, or queue) naming it is gone.
#[derive(Clone)]
pub struct PortId {
    index: u16,
    device: Option<Arc<Device>>,
}

impl PortId {
    pub(crate) fn new(index: u16, device: Option<Arc<Device>>) -> Self {
        PortId { index, device }
    }

    /// The id of a port that is there.
    pub(crate) fn find(eal: &EalInner, index: u16) -> Option<PortId> {
        // SAFETY: the EAL is up; any number may be asked about.
        if unsafe { sys::rte_eth_dev_is_valid_port(index) } == 0 {
            return None;
        }
        let device = lock(&eal.devices).get(&index).and_then(std::sync::Weak::upgrade);
        Some(PortId { index, device })
    }

    /// DPDK's number of the port, which also stands in [`Mbuf::port`](crate::Mbuf::port).
    pub fn index(&self) -> u16 {
        self.index
    }
}

impl PartialEq for PortId {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

impl Eq for PortId {}

impl fmt::Debug for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PortId({})", self.index)
    }
}

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.index.fmt(f)
    }
}

/// State of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Whether it is up.
    pub up: bool,
    /// Speed in Mb/s; `None` if unknown. Virtual devices report what they please.
    pub speed_mbps: Option<u32>,
    /// Whether both directions work at once.
    pub full_duplex: bool,
}

/// A configured port. Stopped and closed when it and all its queues are dropped.
///
/// Not `Sync`: the control operations of DPDK are for one thread at a time.
pub struct Port {
    inner: Arc<PortInner>,
    info: PortInfo,
    config: PortConfig,
    notes: Vec<String>,
    mac: [u8; 6],
    _not_sync: PhantomData<Cell<()>>,
}

/// What a port shares with its queues. Fields are dropped after the port is closed, in this order.
pub(crate) struct PortInner {
    pub(crate) started: AtomicBool,
    /// Queue handles that exist.
    pub(crate) queues_alive: AtomicUsize,
    name: String,
    /// The driver allocates from these until the port is closed.
    _pools: Vec<Mempool>,
    pub(crate) id: PortId,
    eal: Arc<EalInner>,
}

impl Port {
    /// Number of ports.
    pub fn count(_eal: &Eal) -> usize {
        // SAFETY: the EAL is up.
        usize::from(unsafe { sys::rte_eth_dev_count_avail() })
    }

    /// Every port.
    pub fn list(eal: &Eal) -> Vec<PortInfo> {
        let mut found = Vec::new();
        let mut next = 0;
        loop {
            // SAFETY: the EAL is up. When there are no more the answer is a number without a port.
            let index = unsafe { sys::rte_eth_find_next(next) };
            let Some(id) = PortId::find(eal.inner(), index) else { return found };
            found.extend(PortInfo::query(&id));
            next = index + 1;
        }
    }

    /// The port of this name, such as `0000:3b:00.0` or `net_null0`.
    pub fn by_name(eal: &Eal, name: &str) -> Result<PortId, PortError> {
        let missing = || PortError::NoSuchPort(name.to_owned());
        let c_name = std::ffi::CString::new(name).map_err(|_| missing())?;
        let mut index = 0;
        // SAFETY: the EAL is up; `index` is written on success.
        let rc = unsafe { sys::rte_eth_dev_get_port_by_name(c_name.as_ptr(), &raw mut index) };
        if rc == 0 { PortId::find(eal.inner(), index).ok_or_else(missing) } else { Err(missing()) }
    }

    /// The port with this number.
    pub fn by_index(eal: &Eal, index: u16) -> Result<PortId, PortError> {
        PortId::find(eal.inner(), index).ok_or_else(|| PortError::NoSuchPort(index.to_string()))
    }

    /// What the driver of a port offers.
    pub fn query(id: &PortId) -> Result<PortInfo, PortError> {
        PortInfo::query(id).ok_or_else(|| PortError::NoSuchPort(id.to_string()))
    }

    /// Configures a port with its queues. Where the driver cannot do what is merely preferred, the port does
    /// without and says so in [`Port::notes`]; what the configuration requires is refused by name.
    ///
    /// The port is not started yet. A port can be configured once at a time; after it is closed a virtual
    /// device is gone, and a physical one needs a new process.
    pub fn configure(
        eal: &Eal,
        id: &PortId,
        config: &PortConfig,
    ) -> Result<(Port, Vec<RxQueue>, Vec<TxQueue>), PortError> {
        setup::configure(eal, id, config)
    }

    /// Starts the port: from here on its queues move frames.
    pub fn start(&mut self) -> Result<(), PortError> {
        if self.inner.started.load(Ordering::Acquire) {
            return Ok(());
        }
        // SAFETY: the port is configured and stopped.
        self.attempt("start the port", || unsafe { sys::rte_eth_dev_start(self.index()) })?;
        self.inner.started.store(true, Ordering::Release);
        setup::after_start(self)
    }

    /// Stops the port and frees what its in-memory links hold for it.
    ///
    /// Refused as long as a queue handle exists: another core might be in the middle of a burst.
    pub fn stop(&mut self) -> Result<(), PortError> {
        let alive = self.inner.queues_alive.load(Ordering::Acquire);
        if alive > 0 {
            return Err(PortError::QueuesAlive { port: self.name().to_owned(), alive });
        }
        self.attempt("stop the port", || self.inner.stop().err().unwrap_or(0))
    }

    /// New handles to all queues of a port whose former ones have been dropped: to start again after a stop,
    /// or to hand queues to other cores.
    pub fn queues(&mut self) -> Result<(Vec<RxQueue>, Vec<TxQueue>), PortError> {
        let alive = self.inner.queues_alive.load(Ordering::Acquire);
        if alive > 0 {
            return Err(PortError::QueuesAlive { port: self.name().to_owned(), alive });
        }
        let rx = (0..self.config.rx_queues).map(|q| RxQueue::new(&self.inner, q, self.config.rx_interrupt));
        let tx = (0..self.config.tx_queues).map(|q| TxQueue::new(&self.inner, q));
        Ok((rx.collect(), tx.collect()))
    }

    /// Whether it is started.
    pub fn is_started(&self) -> bool {
        self.inner.started.load(Ordering::Acquire)
    }

    /// What was asked for and the driver does not do, one line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Its id.
    pub fn id(&self) -> &PortId {
        &self.inner.id
    }

    /// DPDK's number of it.
    pub fn index(&self) -> u16 {
        self.inner.id.index
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// What the driver offers.
    pub fn info(&self) -> &PortInfo {
        &self.info
    }

    /// The configuration in effect: descriptor counts as adjusted, demands that were not met turned off.
    pub fn config(&self) -> &PortConfig {
        &self.config
    }

    /// Its MAC address.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// State of the link; does not wait for a negotiation under way.
    pub fn link(&self) -> Link {
        let mut raw = sys::dpdk_sys_link::default();
        // SAFETY: the port is configured; `raw` is always filled in, with zeros if the driver has no answer.
        unsafe { sys::dpdk_sys_link(self.index(), &raw mut raw) };
        let known = raw.speed_mbps != 0 && raw.speed_mbps != u32::MAX;
        Link {
            up: raw.up != 0,
            speed_mbps: known.then_some(raw.speed_mbps),
            full_duplex: raw.full_duplex != 0,
        }
    }

    /// Brings the link down or up, where the driver can.
    pub fn set_link(&mut self, up: bool) -> Result<(), PortError> {
        let index = self.index();
        // SAFETY: the port is configured.
        self.attempt("set the link state", || unsafe {
            if up { sys::rte_eth_dev_set_link_up(index) } else { sys::rte_eth_dev_set_link_down(index) }
        })
    }

    /// Largest payload of an Ethernet frame, bytes.
    pub fn mtu(&self) -> u16 {
        let mut mtu = 0;
        // SAFETY: the port is configured; `mtu` is written on success.
        let rc = unsafe { sys::rte_eth_dev_get_mtu(self.index(), &raw mut mtu) };
        if rc == 0 { mtu } else { self.config.mtu }
    }

    /// Accepts frames for any MAC address, or only for its own.
    pub fn promiscuous(&mut self, on: bool) -> Result<(), PortError> {
        let index = self.index();
        // SAFETY: the port is configured.
        self.attempt("set promiscuous mode", || unsafe {
            if on { sys::rte_eth_promiscuous_enable(index) } else { sys::rte_eth_promiscuous_disable(index) }
        })
    }

    /// Whether it accepts frames for any MAC address.
    pub fn is_promiscuous(&self) -> bool {
        // SAFETY: the port is configured.
        unsafe { sys::rte_eth_promiscuous_get(self.index()) == 1 }
    }

    /// Accepts frames for any multicast address (IPv6 neighbour discovery needs some), or only those set.
    pub fn all_multicast(&mut self, on: bool) -> Result<(), PortError> {
        let index = self.index();
        // SAFETY: the port is configured.
        self.attempt("set all-multicast mode", || unsafe {
            if on {
                sys::rte_eth_allmulticast_enable(index)
            } else {
                sys::rte_eth_allmulticast_disable(index)
            }
        })
    }

    /// Makes a call to the driver that returns 0 or a negated error number.
    fn attempt(&self, operation: &'static str, call: impl FnOnce() -> c_int) -> Result<(), PortError> {
        match self.inner.eal.journal.listen(call) {
            (0, _) => Ok(()),
            (rc, said) => Err(PortError::driver(&self.info, operation, rc, said)),
        }
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("index", &self.index())
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl PortInner {
    /// Stops the port if it runs. No queue handle may exist.
    fn stop(&self) -> Result<(), c_int> {
        if self.started.swap(false, Ordering::AcqRel) {
            // SAFETY: the port is started, and no core can be in a burst without a queue handle.
            let rc = unsafe { sys::rte_eth_dev_stop(self.id.index) };
            if rc != 0 {
                return Err(rc);
            }
        }
        if let Some(device) = &self.id.device {
            device.drain_rx(self.id.index);
        }
        Ok(())
    }
}

impl Drop for PortInner {
    fn drop(&mut self) {
        let warn = |what: &str, rc: c_int| {
            let error = io::Error::from_raw_os_error(-rc);
            tracing::warn!(target: "dpdk", port = self.name, %error, "the driver did not {what} the port");
        };
        if let Err(rc) = self.stop() {
            warn("stop", rc);
        }
        // SAFETY: stopped, and the last handle is going.
        let rc = unsafe { sys::rte_eth_dev_close(self.id.index) };
        if rc != 0 {
            warn("close", rc);
        }
        if let Some(device) = &self.id.device {
            device.port_closed(self.id.index);
        }
        lock(&self.eal.configured).remove(&self.id.index);
    }
}
