//! RX and TX queues: the packet path.

#![allow(unsafe_code)] // One call into the driver per burst.

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dpdk_sys as sys;

use super::interrupt::RxInterrupt;
use super::{Demand, PortId, PortInner};
use crate::burst::Burst;

/// A handle to a queue; while one exists its port is not stopped.
pub(super) struct Handle {
    port: Arc<PortInner>,
    pub(super) port_index: u16,
    pub(super) queue: u16,
    _not_sync: PhantomData<Cell<()>>,
}

impl Handle {
    pub(super) fn new(port: &Arc<PortInner>, queue: u16) -> Self {
        port.queues_alive.fetch_add(1, Ordering::AcqRel);
        Handle { port: Arc::clone(port), port_index: port.id.index(), queue, _not_sync: PhantomData }
    }

    #[inline]
    fn started(&self) -> bool {
        self.port.started.load(Ordering::Acquire)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.port.queues_alive.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The only handle to one RX queue: `Send`, so that it can move to the core that polls it, but not `Sync`.
pub struct RxQueue {
    handle: Handle,
    interrupt: Demand,
}

impl RxQueue {
    pub(super) fn new(port: &Arc<PortInner>, queue: u16, interrupt: Demand) -> Self {
        RxQueue { handle: Handle::new(port, queue), interrupt }
    }

    /// Receives as many frames as are there and fit behind those already in `burst`; returns how many.
    /// Never waits. 0 while the port is not started.
    ///
    /// Some drivers only fill bursts of at least 4 (or 32) well: offer that much room.
    #[inline]
    pub fn rx<const N: usize>(&mut self, burst: &mut Burst<N>) -> usize {
        if !self.handle.started() {
            return 0;
        }
        let (port, queue, room) = (self.handle.port_index, self.handle.queue, burst.room() as u16);
        // SAFETY: the port is started and cannot be stopped while this handle exists, this is the queue's only
        // handle, and `room` pointers fit; what the driver wrote are mbufs that nobody else owns.
        unsafe {
            let n = usize::from(sys::dpdk_sys_rx_burst(port, queue, burst.free_slots(), room));
            burst.grow(n);
            n
        }
    }

    /// Number of the queue on its port.
    pub fn index(&self) -> u16 {
        self.handle.queue
    }

    /// Its port.
    pub fn port(&self) -> &PortId {
        &self.handle.port.id
    }

    /// The queue's interrupt, where the driver has one, the port was configured with `rx_interrupt`, and it
    /// is started.
    pub fn interrupt(&self) -> Option<RxInterrupt> {
        if !self.interrupt.is_wanted() || !self.handle.started() {
            return None;
        }
        RxInterrupt::open(Handle::new(&self.handle.port, self.handle.queue))
    }
}

/// The only handle to one TX queue: `Send`, so that it can move to the core that uses it, but not `Sync`.
pub struct TxQueue {
    handle: Handle,
}

impl TxQueue {
    pub(super) fn new(port: &Arc<PortInner>, queue: u16) -> Self {
        TxQueue { handle: Handle::new(port, queue) }
    }

    /// Sends frames from the front of `burst`; returns how many the driver took. Those are the driver's now;
    /// the others stay in the burst, in order, from its front on. 0 while the port is not started.
    ///
    /// Frames of several segments need [`TxOffloads::chains`](super::TxOffloads::chains).
    #[inline]
    pub fn tx<const N: usize>(&mut self, burst: &mut Burst<N>) -> usize {
        if burst.is_empty() || !self.handle.started() {
            return 0;
        }
        let (port, queue, len) = (self.handle.port_index, self.handle.queue, burst.len() as u16);
        // SAFETY: as in `rx`; the burst owns `len` mbufs, and gives up exactly those the driver took.
        unsafe {
            let n = usize::from(sys::dpdk_sys_tx_burst(port, queue, burst.used_slots(), len));
            burst.forget_front(n);
            n
        }
    }

    /// Makes frames that request offloads ready for [`TxQueue::tx`] (some drivers want the sum of the pseudo
    /// header in the checksum field); returns how many from the front are, less than `burst.len()` if the next
    /// one asks for what the driver cannot do. Changes frame bytes: call it only with unique frames.
    #[inline]
    pub fn prepare<const N: usize>(&mut self, burst: &mut Burst<N>) -> usize {
        if !self.handle.started() {
            return 0;
        }
        let (port, queue, len) = (self.handle.port_index, self.handle.queue, burst.len() as u16);
        // SAFETY: as in `tx`; ownership does not change.
        unsafe { usize::from(sys::dpdk_sys_tx_prepare(port, queue, burst.used_slots(), len)) }
    }

    /// Number of the queue on its port.
    pub fn index(&self) -> u16 {
        self.handle.queue
    }

    /// Its port.
    pub fn port(&self) -> &PortId {
        &self.handle.port.id
    }
}

impl fmt::Debug for RxQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RxQueue({}:{})", self.handle.port_index, self.handle.queue)
    }
}

impl fmt::Debug for TxQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TxQueue({}:{})", self.handle.port_index, self.handle.queue)
    }
}
