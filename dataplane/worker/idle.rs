//! What an lcore does when there is nothing to do.
//!
//! `busy` polls on. `adaptive` backs off in three steps: it spins for a bounded number of empty turns, then pauses, then
//! sleeps in `poll(2)` on whatever can wake it: RX interrupts and completion channels, armed and looked at once more
//! before the sleep. Queues without either (null, ring, pcap, af_packet) are looked at again after a bounded time. Every
//! sleep is bounded: orders of control have no file descriptor and are seen at the end of one.

use super::ports::PortLane;
use super::role::{FabricPort, Role, RoleLoop};
use crate::fabric::WorkerTransport;
use dpdk_bind::port::RxInterrupt;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// Pauses between two turns once spinning has found nothing.
const PAUSE_TURNS: u32 = 256;
/// First and shortest sleep.
const SLEEP_MIN_US: u32 = 20;

/// How an lcore treats idleness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdlePolicy {
    /// Polls on.
    Busy,
    /// Backs off.
    Adaptive {
        /// Empty turns before the first pause.
        spin_turns: u32,
        /// Longest sleep in microseconds.
        sleep_max_us: u32,
    },
}

/// Counts empty turns and sleeps.
#[derive(Debug)]
pub struct Sleeper {
    policy: IdlePolicy,
    empty_turns: u32,
    sleep_us: u32,
    interrupts: Vec<RxInterrupt>,
    /// True if every queue that can bring work has something to wake us.
    all_wake: bool,
    polled: Vec<libc::pollfd>,
}

impl Sleeper {
    /// A sleeper for these roles.
    pub fn new<T: WorkerTransport>(policy: IdlePolicy, roles: &[Role<T>]) -> Self {
        let mut interrupts = Vec::new();
        let mut all_wake = true;
        if policy != IdlePolicy::Busy {
            for role in roles {
                let fabric = match &role.fabric_port {
                    FabricPort::Own(lane) => Some(lane),
                    FabricPort::None | FabricPort::Shared => None,
                };
                for rx in std::iter::once(&role.port).chain(fabric).filter_map(PortLane::rx_queue) {
                    match rx.interrupt() {
                        Some(interrupt) => interrupts.push(interrupt),
                        None => all_wake = false,
                    }
                }
            }
        }
        let polled = Vec::with_capacity(interrupts.len() + roles.len());
        Sleeper { policy, empty_turns: 0, sleep_us: SLEEP_MIN_US, interrupts, all_wake, polled }
    }

    /// Called after each round of turns; true if it slept.
    #[inline]
    pub fn rest<T: WorkerTransport>(&mut self, busy: bool, loops: &mut [RoleLoop<T>]) -> bool {
        let IdlePolicy::Adaptive { spin_turns, sleep_max_us } = self.policy else { return false };
        if busy {
            self.empty_turns = 0;
            self.sleep_us = SLEEP_MIN_US;
            return false;
        }
        self.empty_turns = self.empty_turns.saturating_add(1);
        if self.empty_turns <= spin_turns {
            return false;
        }
        if self.empty_turns <= spin_turns.saturating_add(PAUSE_TURNS) {
            std::hint::spin_loop();
            return false;
        }
        self.sleep(sleep_max_us, loops)
    }

    fn sleep<T: WorkerTransport>(&mut self, max_us: u32, loops: &mut [RoleLoop<T>]) -> bool {
        self.polled.clear();
        for interrupt in &self.interrupts {
            // A descriptor of -1 is passed over: the interrupt that cannot be armed leaves the bounded sleep.
            let fd = if interrupt.enable().is_ok() { interrupt.as_raw_fd() } else { -1 };
            self.polled.push(readable(fd));
        }
        // Armed, then looked at once more: what came in between is found by the turn that follows.
        let mut safe = true;
        for role in loops.iter_mut() {
            safe &= role.arm(|fd| self.polled.push(readable(fd)));
        }
        let found = loops.iter_mut().any(RoleLoop::has_frames);
        if safe && !found {
            let longest = if self.all_wake { max_us } else { self.sleep_us.min(max_us) };
            wait(&mut self.polled, Duration::from_micros(longest.into()));
            self.sleep_us = self.sleep_us.saturating_mul(2).min(max_us.max(SLEEP_MIN_US));
        }
        for (interrupt, polled) in self.interrupts.iter().zip(&self.polled) {
            if polled.revents & libc::POLLIN != 0 {
                interrupt.acknowledge();
            }
            // A driver that cannot be told to stop interrupting costs wake-ups, not frames.
            interrupt.disable().ok();
        }
        loops.iter_mut().for_each(RoleLoop::acknowledge);
        true
    }
}

fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

mod sys;
pub(crate) use sys::wait;
