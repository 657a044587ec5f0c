//! Time, and waiting for it.

use rdma_engine::types::Time;
use rustix::event::Timespec;
use rustix::event::epoll;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// Longest sleep, so that a wish to stop is heard.
const SLEEP_MAX_NS: u64 = 50_000_000;
/// Shorter waits are spent spinning: waking up takes as long.
const SPIN_NS: u64 = 60_000;

/// The time of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn new() -> Self {
        Clock(Instant::now())
    }

    pub(super) fn now(self) -> Time {
        // From 1 on: 0 is when nothing has happened yet.
        Time(self.0.elapsed().as_nanos() as u64 + 1)
    }
}

/// Sleeps until a socket has something to say.
pub(super) struct Sleeper {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    /// Never sleeps.
    spins: bool,
}

impl std::fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sleeper")
            .field("epoll", &self.epoll)
            .field("spins", &self.spins)
            .finish_non_exhaustive()
    }
}

impl Sleeper {
    pub(super) fn new(spins: bool) -> io::Result<Self> {
        // Sleeps are to end when they should, not up to 50 us later. Where that is refused they end later.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).ok();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Sleeper { epoll, events: Vec::with_capacity(64), spins })
    }

    /// Another handle to the same, to add sockets with.
    pub(super) fn handle(&self) -> io::Result<Self> {
        Ok(Sleeper { epoll: self.epoll.try_clone()?, events: Vec::new(), spins: self.spins })
    }

    fn flags(writes: bool) -> epoll::EventFlags {
        if writes { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN }
    }

    /// Wakes when `socket` can be read.
    pub(super) fn add(&self, socket: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, epoll::EventData::new_u64(0), Self::flags(false))?)
    }

    /// Wakes also when it can be written, or does not any more.
    pub(super) fn watch_writes(&self, socket: impl AsFd, writes: bool) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(0), Self::flags(writes))?)
    }

    /// Sleeps until then at the latest, if that is worth it.
    pub(super) fn sleep(&mut self, now: Time, until: Time) -> io::Result<()> {
        let wait_ns = until.since_ns(now).min(SLEEP_MAX_NS);
        if self.spins || wait_ns < SPIN_NS {
            std::hint::spin_loop();
            return Ok(());
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: (wait_ns - SPIN_NS / 2) as i64 };
        self.events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
