//! Configuring and starting a port: compares what is asked for with what the driver offers.

#![allow(unsafe_code)] // Calls rte_eth_dev_configure and its followers.

use core::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use dpdk_sys as sys;

use super::info::{PortInfo, RX_CHECKSUMS, TX_CHECKSUMS, raw_info};
use super::queue::Handle;
use super::rss::HashTypes;
use super::{Demand, Port, PortConfig, PortError, PortId, PortInner, RxQueue, TxQueue};
use crate::eal::{Eal, EalInner, lock};
use crate::mbuf::HEADROOM;
use crate::mempool::Mempool;

/// Ethernet header and FCS: what a frame is longer than its MTU where the driver does not say.
const FRAME_OVERHEAD: u32 = 14 + 4;

/// A port on its way to being configured.
struct Setup<'a> {
    info: PortInfo,
    /// What is asked for, corrected as it turns out what can be had.
    config: PortConfig,
    notes: Vec<String>,
    rx_offloads: u64,
    tx_offloads: u64,
    hash: HashTypes,
    claim: Claim<'a>,
}

/// Keeps others from configuring the same port; given back unless it becomes a [`PortInner`].
struct Claim<'a> {
    eal: &'a Arc<EalInner>,
    index: u16,
    kept: bool,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.kept {
            lock(&self.eal.configured).remove(&self.index);
        }
    }
}

pub(super) fn configure(
    eal: &Eal,
    id: &PortId,
    config: &PortConfig,
) -> Result<(Port, Vec<RxQueue>, Vec<TxQueue>), PortError> {
    let mut setup = Setup::begin(eal, id, config)?;
    setup.check_sizes()?;
    setup.choose_rss()?;
    setup.choose_checksums()?;
    setup.choose_segments();
    setup.configure_device()?;
    setup.set_up_queues()?;
    setup.set_mtu()?;
    let mut port = setup.finish();
    let (rx, tx) = port.queues()?;
    Ok((port, rx, tx))
}

impl<'a> Setup<'a> {
    fn begin(eal: &'a Eal, id: &PortId, config: &PortConfig) -> Result<Self, PortError> {
        let info = Port::query(id)?;
        if !lock(&eal.inner().configured).insert(id.index()) {
            return Err(PortError::InUse(info.label()));
        }
        let claim = Claim { eal: eal.inner(), index: id.index(), kept: false };
        let (hash, config) = (HashTypes::default(), config.clone());
        Ok(Setup { info, config, notes: Vec::new(), rx_offloads: 0, tx_offloads: 0, hash, claim })
    }

    fn note(&mut self, text: impl core::fmt::Display) {
        self.notes.push(format!("port {}: {text}", self.info.label()));
    }

    fn refuse(&self, key: &'static str, value: impl ToString, reason: String) -> PortError {
        PortError::Config { port: self.info.label(), key, value: value.to_string(), reason }
    }

    /// Does without, or refuses to.
    fn missing(&mut self, demand: Demand, what: &str, so: &str) -> Result<(), PortError> {
        match demand {
            Demand::Require => Err(PortError::Unsupported { port: self.info.label(), what: what.to_owned() }),
            _ => {
                self.note(format_args!("the driver does not offer {what}; {so}"));
                Ok(())
            }
        }
    }

    fn check_sizes(&self) -> Result<(), PortError> {
        let (config, info) = (&self.config, &self.info);
        let queues = [
            ("rx_queues", config.rx_queues, info.max_rx_queues, "RX"),
            ("tx_queues", config.tx_queues, info.max_tx_queues, "TX"),
        ];
        for (key, wanted, max, kind) in queues {
            if wanted > max {
                return Err(self.refuse(
                    key,
                    wanted,
                    format!("the driver {} has {max} {kind} queues at most", info.driver),
                ));
            }
        }
        if config.rx_queues == 0 && config.tx_queues == 0 {
            return Err(self.refuse("rx_queues", 0, "a port needs at least one queue".into()));
        }
        if !(info.min_mtu..=info.max_mtu).contains(&config.mtu) {
            let reason = format!("the driver {} takes {} to {}", info.driver, info.min_mtu, info.max_mtu);
            return Err(self.refuse("mtu", config.mtu, reason));
        }
        let pools = config.pools.len();
        if config.rx_queues > 0 && pools != 1 && pools != usize::from(config.rx_queues) {
            let reason =
                format!("give one pool for all RX queues or one for each of the {}", config.rx_queues);
            return Err(self.refuse("pools", pools, reason));
        }
        Ok(())
    }

    fn choose_rss(&mut self) -> Result<(), PortError> {
        let demand = self.config.rss;
        if !demand.is_wanted() {
            return Ok(());
        }
        self.hash = HashTypes::WANTED.intersection(self.info.rss);
        if self.hash.is_empty() {
            self.config.rss = Demand::Off;
            return self.missing(demand, "RSS", "each frame comes in by the queue the device chooses");
        }
        if self.info.rx_offloads.rss_hash() {
            self.rx_offloads |= sys::DPDK_SYS_RX_RSS_HASH;
        }
        Ok(())
    }

    fn choose_checksums(&mut self) -> Result<(), PortError> {
        let (rx, tx) = (self.config.rx_checksum, self.config.tx_checksum);
        if rx.is_wanted() {
            self.rx_offloads |= self.info.rx_offloads.bits & RX_CHECKSUMS;
            if !self.info.rx_offloads.checksums() {
                self.config.rx_checksum = Demand::Off;
                self.missing(rx, "RX checksum offload", "checksums are checked in software")?;
            }
        }
        if tx.is_wanted() {
            self.tx_offloads |= self.info.tx_offloads.bits & TX_CHECKSUMS;
            if !self.info.tx_offloads.checksums() {
                self.config.tx_checksum = Demand::Off;
                self.missing(tx, "TX checksum offload", "checksums are computed in software")?;
            }
        }
        Ok(())
    }

    /// Chains in TX wherever possible; in RX if a frame can be longer than a buffer.
    fn choose_segments(&mut self) {
        self.tx_offloads |= self.info.tx_offloads.bits & sys::DPDK_SYS_TX_MULTI_SEGS;
        let room = self.config.pools.iter().map(|p| p.data_room().saturating_sub(HEADROOM)).min();
        let Some(room) = room.filter(|_| self.config.rx_queues > 0) else { return };
        let frame = u32::from(self.config.mtu) + self.frame_overhead();
        if frame as usize <= room {
            return;
        }
        if self.info.rx_offloads.scatter() {
            self.rx_offloads |= sys::DPDK_SYS_RX_SCATTER;
        } else {
            self.note(format_args!(
                "frames of {frame} bytes do not fit buffers of {room} and the driver does not scatter; longer ones \
                 may be lost"
            ));
        }
    }

    fn frame_overhead(&self) -> u32 {
        match self.info.max_mtu {
            u16::MAX => FRAME_OVERHEAD,
            max_mtu => self.info.max_frame.saturating_sub(max_mtu.into()).clamp(FRAME_OVERHEAD, 64),
        }
    }

    /// The MTU as the device is told. A driver without an MTU (memif) may name a longest frame that it does not keep
    /// to, and DPDK refuses more than that: such a one is told less, and carries what its buffers hold.
    fn claimed_mtu(&self) -> u16 {
        let most = self.info.max_frame.saturating_sub(FRAME_OVERHEAD);
        match self.info.max_mtu {
            u16::MAX => self.config.mtu.min(u16::try_from(most).unwrap_or(u16::MAX)),
            _ => self.config.mtu,
        }
    }

    fn configure_device(&mut self) -> Result<(), PortError> {
        let mut raw = sys::rte_eth_conf::default();
        raw.rxmode.mtu = self.claimed_mtu().into();
        raw.rxmode.offloads = self.rx_offloads;
        raw.txmode.offloads = self.tx_offloads;
        if !self.hash.is_empty() {
            raw.rxmode.mq_mode = sys::RTE_ETH_MQ_RX_RSS;
            raw.rx_adv_conf.rss_conf.rss_hf = self.hash.bits();
        }
        raw.intr_conf.set_rxq(self.config.rx_interrupt.is_wanted().into());
        let (rx, tx) = (self.config.rx_queues, self.config.tx_queues);
        // SAFETY: the port is claimed, exists, and is not started; DPDK copies the configuration.
        self.attempt("configure the port", || unsafe {
            sys::rte_eth_dev_configure(self.claim.index, rx, tx, &raw const raw)
        })?;
        self.adjust_descriptors()
    }

    fn adjust_descriptors(&mut self) -> Result<(), PortError> {
        let (mut rx, mut tx) = (self.config.rx_desc, self.config.tx_desc);
        // SAFETY: the port exists; both numbers are read and written.
        self.attempt("adjust the numbers of descriptors", || unsafe {
            sys::rte_eth_dev_adjust_nb_rx_tx_desc(self.claim.index, &raw mut rx, &raw mut tx)
        })?;
        for (kind, wanted, got) in [("RX", self.config.rx_desc, rx), ("TX", self.config.tx_desc, tx)] {
            if wanted != got {
                self.note(format_args!("{got} {kind} descriptors instead of {wanted}"));
            }
        }
        (self.config.rx_desc, self.config.tx_desc) = (rx, tx);
        Ok(())
    }

    fn set_up_queues(&mut self) -> Result<(), PortError> {
        let index = self.claim.index;
        let Some(raw) = raw_info(index) else { return Err(PortError::NoSuchPort(index.to_string())) };
        // The port's offloads hold for every queue. A driver's default might have "fast free", which is not for
        // us: buffers may be shared and of several pools.
        let (mut rx_conf, mut tx_conf) = (raw.default_rxconf, raw.default_txconf);
        (rx_conf.offloads, tx_conf.offloads) = (self.rx_offloads, self.tx_offloads);
        let socket = self.info.socket.unwrap_or(u32::MAX);
        for queue in 0..self.config.rx_queues {
            let pool = self.pool_of(queue).raw();
            // SAFETY: the port is configured with this queue; the pool lives until the port is closed.
            self.attempt("set up an RX queue (are the pool's buffers large enough?)", || unsafe {
                sys::rte_eth_rx_queue_setup(
                    index,
                    queue,
                    self.config.rx_desc,
                    socket,
                    &raw const rx_conf,
                    pool,
                )
            })?;
        }
        for queue in 0..self.config.tx_queues {
            // SAFETY: the port is configured with this queue.
            self.attempt("set up a TX queue", || unsafe {
                sys::rte_eth_tx_queue_setup(index, queue, self.config.tx_desc, socket, &raw const tx_conf)
            })?;
        }
        Ok(())
    }

    fn pool_of(&self, queue: u16) -> &Mempool {
        // The number of pools was checked: one, or one per queue.
        self.config.pools.get(usize::from(queue)).unwrap_or(&self.config.pools[0])
    }

    /// Most drivers have taken the MTU with the configuration; some only take it by a call of its own, and some
    /// not at all, which is the business of whoever set up the interface below.
    fn set_mtu(&mut self) -> Result<(), PortError> {
        let index = self.claim.index;
        // net_af_packet has the call and fails in it where the interface differs.
        if self.info.driver == "net_af_packet" {
            if self.config.mtu != 1500 {
                self.note("the MTU is the interface's: set it with `ip link set ... mtu`");
            }
            return Ok(());
        }
        // SAFETY: the port is configured and stopped.
        let (rc, said) =
            self.claim.eal.journal.listen(|| unsafe { sys::rte_eth_dev_set_mtu(index, self.config.mtu) });
        match -rc {
            0 => Ok(()),
            libc::ENOTSUP => {
                let mtu = self.config.mtu;
                if mtu != 1500 {
                    self.note(format_args!(
                        "the driver has no MTU; frames up to {mtu} are passed as they are"
                    ));
                }
                Ok(())
            }
            _ => Err(PortError::driver(&self.info, "set the MTU", rc, said)),
        }
    }

    /// Makes a call to the driver that returns 0 or a negated error number.
    fn attempt(&self, operation: &'static str, call: impl FnOnce() -> i32) -> Result<(), PortError> {
        match self.claim.eal.journal.listen(call) {
            (0, _) => Ok(()),
            (rc, said) => Err(PortError::driver(&self.info, operation, rc, said)),
        }
    }

    fn finish(mut self) -> Port {
        self.claim.kept = true;
        let id = self.info.id.clone();
        if let Some(device) = &id.device {
            device.port_configured(id.index());
        }
        let mac = mac_of(id.index());
        let inner = PortInner {
            started: AtomicBool::new(false),
            queues_alive: AtomicUsize::new(0),
            name: self.info.name.clone(),
            _pools: self.config.pools.clone(),
            id,
            eal: Arc::clone(self.claim.eal),
        };
        let (info, config) = (self.info.clone(), self.config.clone());
        let notes = core::mem::take(&mut self.notes);
        Port { inner: Arc::new(inner), info, config, notes, mac, _not_sync: PhantomData }
    }
}

fn mac_of(index: u16) -> [u8; 6] {
    let mut raw = sys::rte_ether_addr::default();
    // SAFETY: written on success; zero otherwise.
    unsafe { sys::rte_eth_macaddr_get(index, &raw mut raw) };
    raw.addr_bytes
}

/// What can only be asked of a running port.
pub(super) fn after_start(port: &mut Port) -> Result<(), PortError> {
    let label = port.info.label();
    let mut missing = |demand: Demand, what: &str, so: &str| match demand {
        Demand::Require => Err(PortError::Unsupported { port: label.clone(), what: what.to_owned() }),
        _ => {
            let note = format!("port {label}: the driver does not offer {what}; {so}");
            if !port.notes.contains(&note) {
                port.notes.push(note);
            }
            Ok(())
        }
    };
    let index = port.inner.id.index();
    if port.config.promiscuous.is_wanted() {
        // SAFETY: the port is started.
        let rc = crate::eal::quietly(|| unsafe { sys::rte_eth_promiscuous_enable(index) });
        if rc != 0 {
            missing(port.config.promiscuous, "promiscuous mode", "it receives what the device lets through")?;
        }
    }
    let wants_interrupt = port.config.rx_interrupt.is_wanted() && port.config.rx_queues > 0;
    if wants_interrupt && super::RxInterrupt::open(Handle::new(&port.inner, 0)).is_none() {
        missing(port.config.rx_interrupt, "RX interrupts", "an idle worker sleeps for fixed times instead")?;
    }
    Ok(())
}
