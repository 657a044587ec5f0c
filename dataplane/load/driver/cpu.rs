//! What a run costs: CPU time of our threads, and of a server process.

use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::io;
use std::time::Instant;

/// CPU time that the calling thread has used, in seconds.
pub(super) fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// CPU time of a process.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct ProcessCpu {
    /// Seconds in user space.
    pub user_s: f64,
    /// Seconds in the kernel.
    pub system_s: f64,
}

impl ProcessCpu {
    /// What the process has used so far.
    pub(super) fn of(pid: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        Self::parse(&text, ticks).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not understood"))
    }

    /// The name in parentheses may hold anything, spaces and parentheses included.
    fn parse(stat: &str, ticks: f64) -> Option<Self> {
        let (_, after_name) = stat.rsplit_once(')')?;
        let mut words = after_name.split_whitespace().skip(11).map(|word| word.parse::<u64>().ok());
        let (user, system) = (words.next()??, words.next()??);
        Some(ProcessCpu { user_s: user as f64 / ticks, system_s: system as f64 / ticks })
    }

    /// Both.
    pub fn seconds(&self) -> f64 {
        self.user_s + self.system_s
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        ProcessCpu { user_s: self.user_s - before.user_s, system_s: self.system_s - before.system_s }
    }
}

/// Time and time stamp counter at one moment: two of them give its rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    at: Instant,
    tsc: u64,
}

impl Moment {
    pub(super) fn now() -> Self {
        Moment { at: Instant::now(), tsc: dpdk_bind::tsc::rdtsc() }
    }

    /// Ticks a second from `before` to here; none if that is too short to say.
    pub(super) fn tsc_hz(&self, before: &Self) -> Option<f64> {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        (seconds > 0.01).then(|| (self.tsc - before.tsc) as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_is_no_trap() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 9 9 20 0 4";
        assert_eq!(ProcessCpu::parse(stat, 100.0), Some(ProcessCpu { user_s: 2.5, system_s: 0.5 }));
        assert_eq!(ProcessCpu::parse("7 (x) S 1", 100.0), None);
    }

    #[test]
    fn our_own_process_is_read() {
        let before = ProcessCpu::of(std::process::id()).unwrap();
        let thread = thread_seconds();
        let mut random = crate::load::Random::new(1);
        while thread_seconds() - thread < 0.05 {
            std::hint::black_box(random.bits());
        }
        let used = ProcessCpu::of(std::process::id()).unwrap().since(&before);
        assert!(used.seconds() >= 0.03, "{used:?}");
        assert!(ProcessCpu::of(u32::MAX).is_err());
    }
}
