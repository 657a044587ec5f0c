//! Basic and extended statistics.

#![allow(unsafe_code)] // Fills arrays of DPDK's statistics structures.

use core::mem::MaybeUninit;

use dpdk_sys as sys;

use super::{Port, PortError};
use crate::eal::text;

/// Counters since the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames received.
    pub rx_packets: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames dropped by the NIC because its queues were full.
    pub rx_missed: u64,
    /// Broken frames.
    pub rx_errors: u64,
    /// Frames that failed to be sent.
    pub tx_errors: u64,
    /// Times there was no buffer to receive into.
    pub rx_no_mbuf: u64,
}

/// One extended counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xstat {
    /// The driver's name of it.
    pub name: String,
    /// Its value.
    pub value: u64,
}

impl Port {
    /// The basic counters; all 0 where the driver has none.
    pub fn stats(&self) -> PortStats {
        let mut raw = MaybeUninit::<sys::rte_eth_stats>::zeroed();
        // SAFETY: zeroed is valid; filled in on success.
        let raw = unsafe {
            sys::rte_eth_stats_get(self.index(), raw.as_mut_ptr());
            raw.assume_init()
        };
        PortStats {
            rx_packets: raw.ipackets,
            tx_packets: raw.opackets,
            rx_bytes: raw.ibytes,
            tx_bytes: raw.obytes,
            rx_missed: raw.imissed,
            rx_errors: raw.ierrors,
            tx_errors: raw.oerrors,
            rx_no_mbuf: raw.rx_nombuf,
        }
    }

    /// The extended counters, basic and per-queue ones included.
    pub fn xstats(&self) -> Vec<Xstat> {
        let index = self.index();
        // SAFETY: with no array both return the number of counters; the arrays have room for as many.
        unsafe {
            let count =
                usize::try_from(sys::rte_eth_xstats_get_names(index, core::ptr::null_mut(), 0)).unwrap_or(0);
            let mut names = Vec::<sys::rte_eth_xstat_name>::with_capacity(count);
            let mut values = Vec::<sys::rte_eth_xstat>::with_capacity(count);
            let named = sys::rte_eth_xstats_get_names(index, names.as_mut_ptr(), count as u32);
            let valued = sys::rte_eth_xstats_get(index, values.as_mut_ptr(), count as u32);
            // More than there is room for means that the set changed meanwhile: nothing was written.
            let filled = |n: i32| usize::try_from(n).ok().filter(|&n| n <= count).unwrap_or(0);
            names.set_len(filled(named));
            values.set_len(filled(valued));
            let name_of = |id: u64| names.get(id as usize).map(|n| text(n.name.as_ptr()));
            values.iter().filter_map(|v| Some(Xstat { name: name_of(v.id)?, value: v.value })).collect()
        }
    }

    /// Sets all counters to 0, where the driver can.
    pub fn reset_stats(&mut self) -> Result<(), PortError> {
        let index = self.index();
        // SAFETY: the port is configured.
        self.attempt("reset the statistics", || unsafe { sys::rte_eth_stats_reset(index) })?;
        // SAFETY: the port is configured.
        self.attempt("reset the extended statistics", || match unsafe { sys::rte_eth_xstats_reset(index) } {
            // The driver has none of its own.
            rc if rc == -libc::ENOTSUP => 0,
            rc => rc,
        })
    }
}
