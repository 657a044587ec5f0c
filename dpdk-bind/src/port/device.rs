//! Devices this process made: what has to be taken down when nobody wants their ports any more.

#![allow(unsafe_code)] // Removes devices, empties and frees rings.

use core::ffi::c_uint;
use core::ptr::NonNull;
use std::ffi::CString;
use std::io;
use std::sync::{Arc, Mutex};

use dpdk_sys as sys;

use crate::eal::{EalInner, errno, lock};

/// A virtual device, or the rings of an in-memory link with the device at each end.
pub(crate) struct Device {
    /// Names on the vdev bus.
    names: Vec<CString>,
    /// Port indices, in the order of `names`.
    ports: Vec<u16>,
    link: Option<Rings>,
    eal: Arc<EalInner>,
}

/// The rings between two ports.
pub(crate) struct Rings {
    /// Rings each of the two ports receives from.
    rx: [Vec<Ring>; 2],
    /// Whether each of the two ports is configured, so that its queues take from its rings. Held while rings
    /// are emptied: a ring has one consumer at a time.
    consumed: Mutex<[bool; 2]>,
}

/// A ring with one producer (the TX queue at one end) and one consumer (the RX queue at the other).
pub(crate) struct Ring(NonNull<sys::rte_ring>);

// SAFETY: rings are made for use by two threads; who may take from one is governed by `Rings::consumed`.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring for `size` mbufs, rounded up to a power of two minus one; the error is `rte_errno`.
    pub(crate) fn create(name: &str, size: u32) -> io::Result<Ring> {
        let name = CString::new(name)?;
        let size = size.saturating_add(1).checked_next_power_of_two().unwrap_or(1 << 31);
        // SAFETY: the EAL is up; DPDK copies the name.
        let raw = unsafe { sys::rte_ring_create(name.as_ptr(), size, -1, sys::dpdk_sys_ring_flags_spsc()) };
        NonNull::new(raw).map(Ring).ok_or_else(|| io::Error::from_raw_os_error(errno()))
    }

    pub(crate) fn raw(&self) -> *mut sys::rte_ring {
        self.0.as_ptr()
    }

    /// Frees the mbufs in it; returns how many. Bounded by what was in it at the start, so that a producer
    /// cannot keep it busy.
    fn drain(&self) -> usize {
        // SAFETY: the caller is the only consumer; the pointers taken out are owned mbufs.
        unsafe {
            let mut left = sys::dpdk_sys_ring_count(self.raw());
            let mut freed = 0;
            while left > 0 {
                let mut mbufs = [core::ptr::null_mut(); 64];
                let n = sys::dpdk_sys_ring_dequeue(self.raw(), mbufs.as_mut_ptr(), left.min(64));
                if n == 0 {
                    break;
                }
                sys::rte_pktmbuf_free_bulk(mbufs.as_mut_ptr(), n as c_uint);
                freed += n as usize;
                left -= n;
            }
            freed
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.drain();
        // SAFETY: nobody uses the ring any more.
        unsafe { sys::rte_ring_free(self.raw()) }
    }
}

impl Rings {
    pub(crate) fn new(rx: [Vec<Ring>; 2]) -> Self {
        Rings { rx, consumed: Mutex::new([false; 2]) }
    }

    fn drain_end(&self, end: usize) -> usize {
        self.rx[end].iter().map(Ring::drain).sum()
    }
}

impl Device {
    /// Registers a device that now exists under `names` as `ports`.
    pub(crate) fn register(
        eal: &Arc<EalInner>,
        names: Vec<CString>,
        ports: Vec<u16>,
        link: Option<Rings>,
    ) -> Arc<Device> {
        let device = Arc::new(Device { names, ports, link, eal: Arc::clone(eal) });
        let mut devices = lock(&eal.devices);
        for &port in &device.ports {
            devices.insert(port, Arc::downgrade(&device));
        }
        drop(devices);
        device
    }

    fn end_of(&self, port: u16) -> Option<(&Rings, usize)> {
        let end = self.ports.iter().position(|&p| p == port)?;
        self.link.as_ref().map(|link| (link, end))
    }

    /// Notes that `port` has queues which take from its rings.
    pub(crate) fn port_configured(&self, port: u16) {
        if let Some((link, end)) = self.end_of(port) {
            lock(&link.consumed)[end] = true;
        }
    }

    /// Frees what waits for `port`, none of whose queue handles exist.
    pub(crate) fn drain_rx(&self, port: u16) {
        if let Some((link, end)) = self.end_of(port) {
            let _no_other_consumer = lock(&link.consumed);
            link.drain_end(end);
        }
    }

    /// Notes that `port` is closed and frees what nobody will ever receive: what waits for it, and what it
    /// sent to a peer that is not there.
    pub(crate) fn port_closed(&self, port: u16) {
        if let Some((link, end)) = self.end_of(port) {
            let mut consumed = lock(&link.consumed);
            consumed[end] = false;
            link.drain_end(end);
            if !consumed[1 - end] {
                link.drain_end(1 - end);
            }
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let mut devices = lock(&self.eal.devices);
        for port in &self.ports {
            // A newer device may have taken the number already.
            if devices.get(port).is_some_and(|d| d.strong_count() == 0) {
                devices.remove(port);
            }
        }
        drop(devices);
        for name in &self.names {
            // SAFETY: no port of the device is configured, as each would hold a reference.
            let rc = unsafe { sys::rte_eal_hotplug_remove(c"vdev".as_ptr(), name.as_ptr()) };
            if rc != 0 {
                let error = io::Error::from_raw_os_error(-rc);
                tracing::warn!(target: "dpdk", device = ?name, %error, "virtual device could not be removed");
            }
        }
    }
}
