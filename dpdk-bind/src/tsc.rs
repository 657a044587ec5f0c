//! The time stamp counter: the clock of the poll loop.

#![allow(unsafe_code)] // Reads the counter and asks the EAL for its rate.

use crate::eal::Eal;

/// Reads the time stamp counter, about 10 ns. Not ordered against the instructions around it.
#[inline]
pub fn rdtsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and Linux leaves it enabled for user code.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: reads the virtual counter, which Linux makes readable from EL0.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }
}

/// Ticks per second as the EAL measured or read them at start.
pub fn tsc_hz(_eal: &Eal) -> u64 {
    // SAFETY: the EAL is initialised, as the argument proves.
    unsafe { dpdk_sys::rte_get_tsc_hz() }
}

/// Converts counter readings to nanoseconds since the clock was made: one multiplication and one shift.
///
/// Copies agree with each other. Readings on different cores agree as well as the cores' counters do (all
/// current server CPUs synchronise them); a reading from before the start counts as 0.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: u64,
    /// Nanoseconds per tick, times 2^32.
    mult: u64,
    hz: u64,
}

const SHIFT: u32 = 32;
const NS_PER_S: u128 = 1_000_000_000;

impl Clock {
    /// A clock that starts now.
    pub fn new(eal: &Eal) -> Self {
        Clock::with_hz(rdtsc(), tsc_hz(eal))
    }

    /// A clock over a counter of `hz` ticks per second that read `start` at time 0.
    ///
    /// # Panics
    /// If `hz` is 0.
    pub fn with_hz(start: u64, hz: u64) -> Self {
        assert!(hz > 0, "a clock needs a rate");
        Clock { start, mult: ((NS_PER_S << SHIFT) / u128::from(hz)) as u64, hz }
    }

    /// Nanoseconds since the start.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.at(rdtsc())
    }

    /// Nanoseconds from the start to the counter reading `tsc`.
    #[inline]
    pub fn at(&self, tsc: u64) -> u64 {
        self.ticks_to_ns(tsc.saturating_sub(self.start))
    }

    /// Length in nanoseconds of `ticks`.
    #[inline]
    pub fn ticks_to_ns(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.mult)) >> SHIFT) as u64
    }

    /// Ticks in `ns` nanoseconds, rounded down.
    pub fn ns_to_ticks(&self, ns: u64) -> u64 {
        (u128::from(ns) * u128::from(self.hz) / NS_PER_S) as u64
    }

    /// Ticks per second.
    pub fn hz(&self) -> u64 {
        self.hz
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_year_is_off_by_less_than_a_second() {
        for hz in [24_000_000, 1_000_000_000, 2_595_123_456, 5_700_000_001] {
            let clock = Clock::with_hz(7, hz);
            let year_s = 365 * 24 * 3600;
            let ns = clock.at(7 + hz * year_s);
            assert!(ns.abs_diff(year_s * 1_000_000_000) < 1_000_000_000, "{hz}: {ns}");
        }
    }

    #[test]
    fn ticks_and_back() {
        let clock = Clock::with_hz(0, 2_600_000_000);
        assert_eq!(clock.ns_to_ticks(1_000), 2_600);
        assert!(clock.ticks_to_ns(2_600).abs_diff(1_000) <= 1);
    }

    #[test]
    fn before_the_start_is_zero() {
        assert_eq!(Clock::with_hz(100, 1_000).at(99), 0);
    }

    #[test]
    fn the_counter_does_not_run_backwards() {
        let mut last = rdtsc();
        for _ in 0..10_000 {
            let now = rdtsc();
            assert!(now >= last);
            last = now;
        }
    }
}
