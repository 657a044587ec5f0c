//! RX interrupts, for workers that sleep.

#![allow(unsafe_code)] // Arms the interrupt and takes events off an epoll descriptor.

use core::fmt;
use core::mem::MaybeUninit;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use dpdk_sys as sys;

use super::queue::Handle;
use crate::eal::quietly;

/// The interrupt of one RX queue, as a descriptor that becomes readable when frames have arrived.
///
/// To sleep: [`enable`](Self::enable), poll the queue once more, wait for the descriptor (in an epoll set of your
/// own, with whatever else may wake you), [`acknowledge`](Self::acknowledge), [`disable`](Self::disable), and poll
/// the queue until it is empty. Like a queue handle, it keeps its port from being stopped.
pub struct RxInterrupt {
    queue: Handle,
    /// An epoll set of DPDK's making with the queue's event in it. Being a descriptor itself it can be waited for,
    /// and DPDK knows how each driver's events are taken off.
    epoll: OwnedFd,
    /// Whether the driver has something to arm; otherwise (net_tap) its descriptor is always live.
    armable: bool,
}

impl RxInterrupt {
    pub(super) fn open(queue: Handle) -> Option<RxInterrupt> {
        // SAFETY: plain system call; the descriptor is ours.
        let epoll = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))?
        };
        let mut interrupt = RxInterrupt { queue, epoll, armable: true };
        // Most drivers have no interrupts; asking is no error.
        if quietly(|| interrupt.control(sys::RTE_INTR_EVENT_ADD)) != 0 {
            return None;
        }
        match quietly(|| interrupt.enable().and_then(|()| interrupt.disable())) {
            Ok(()) => Some(interrupt),
            Err(e) if e.raw_os_error() == Some(libc::ENOTSUP) => {
                interrupt.armable = false;
                Some(interrupt)
            }
            Err(_) => None,
        }
    }

    /// Arms it. Frames that came before do not count on all drivers, so poll once more after this.
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: the queue exists.
        self.arm(|port, queue| unsafe { sys::rte_eth_dev_rx_intr_enable(port, queue) })
    }

    /// Disarms it.
    pub fn disable(&self) -> io::Result<()> {
        // SAFETY: the queue exists.
        self.arm(|port, queue| unsafe { sys::rte_eth_dev_rx_intr_disable(port, queue) })
    }

    /// Takes the event off, so that the descriptor can become readable again; returns whether there was one.
    pub fn acknowledge(&self) -> bool {
        let mut event = MaybeUninit::<sys::rte_epoll_event>::zeroed();
        // SAFETY: room for one event; with a timeout of 0 the call does not wait.
        unsafe { sys::rte_epoll_wait(self.epoll.as_raw_fd(), event.as_mut_ptr(), 1, 0) > 0 }
    }

    fn arm(&self, call: impl FnOnce(u16, u16) -> i32) -> io::Result<()> {
        if !self.armable {
            return Ok(());
        }
        match call(self.queue.port_index, self.queue.queue) {
            0 => Ok(()),
            rc => Err(io::Error::from_raw_os_error(-rc)),
        }
    }

    /// Puts the queue's event into the epoll set or takes it out.
    fn control(&self, operation: u32) -> i32 {
        let (port, queue, epoll) = (self.queue.port_index, self.queue.queue, self.epoll.as_raw_fd());
        // SAFETY: the queue exists and its port is started; no user data.
        unsafe { sys::rte_eth_dev_rx_intr_ctl_q(port, queue, epoll, operation as i32, core::ptr::null_mut()) }
    }
}

impl AsRawFd for RxInterrupt {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

impl fmt::Debug for RxInterrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RxInterrupt({}:{})", self.queue.port_index, self.queue.queue)
    }
}

impl Drop for RxInterrupt {
    fn drop(&mut self) {
        // Not there if it could not be put in.
        quietly(|| self.control(sys::RTE_INTR_EVENT_DEL));
    }
}
