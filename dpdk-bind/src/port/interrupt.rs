//! RX interrupts, for workers that sleep.

#![allow(unsafe_code)] // Arms the interrupt and borrows its descriptor.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use dpdk_sys as sys;

/// The interrupt of one RX queue. To sleep: [`enable`](Self::enable), poll the queue once more, wait for the
/// descriptor to be readable, [`acknowledge`](Self::acknowledge), [`disable`](Self::disable).
///
/// Its descriptor belongs to the driver and is closed with the port: do not keep this longer than the queue
/// handle it came from.
#[derive(Debug)]
pub struct RxInterrupt {
    port: u16,
    queue: u16,
    fd: RawFd,
}

impl RxInterrupt {
    pub(super) fn open(port: u16, queue: u16) -> Option<RxInterrupt> {
        // SAFETY: the port is started; DPDK checks for the interrupt and returns -1 without one.
        let fd = crate::eal::quietly(|| unsafe { sys::rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue) });
        let interrupt = (fd >= 0).then_some(RxInterrupt { port, queue, fd })?;
        // A descriptor alone is no promise: some drivers have one and cannot arm it.
        crate::eal::quietly(|| interrupt.enable().and_then(|()| interrupt.disable())).ok()?;
        Some(interrupt)
    }

    /// Arms it: the descriptor becomes readable when frames arrive. Frames that came before do not count on
    /// all drivers, so poll once more after this.
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: DPDK checks port and queue.
        check(unsafe { sys::rte_eth_dev_rx_intr_enable(self.port, self.queue) })
    }

    /// Disarms it.
    pub fn disable(&self) -> io::Result<()> {
        // SAFETY: DPDK checks port and queue.
        check(unsafe { sys::rte_eth_dev_rx_intr_disable(self.port, self.queue) })
    }

    /// Reads the event off the descriptor, so that it can become readable again.
    pub fn acknowledge(&self) {
        let mut count = [0u8; 8];
        // SAFETY: reads into a buffer of ours; the descriptor is an eventfd or vfio/uio one of 4 or 8 bytes. A
        // failure means that there was nothing to read.
        unsafe { libc::read(self.fd, count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsRawFd for RxInterrupt {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

fn check(rc: i32) -> io::Result<()> {
    if rc == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-rc)) }
}
