//! The time stamp counter, the machine's name, and the gaps in which the machine did something else.

#![allow(unsafe_code)] // reason: reads the time stamp counter.

use std::time::{Duration, Instant};

/// The counter now.
#[inline]
pub(crate) fn tsc() -> u64 {
    // SAFETY: reads a counter.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// Its frequency, measured once.
pub(crate) fn tsc_hz() -> f64 {
    static HZ: std::sync::OnceLock<f64> = std::sync::OnceLock::new();
    *HZ.get_or_init(|| {
        let (started, from) = (Instant::now(), tsc());
        while started.elapsed() < Duration::from_millis(100) {}
        (tsc() - from) as f64 / started.elapsed().as_secs_f64()
    })
}

/// Microseconds of so many cycles.
pub(crate) fn us(cycles: u64) -> f64 {
    cycles as f64 / tsc_hz() * 1e6
}

/// Prints what this is measured on, and how to measure it again.
pub(crate) fn print_machine() {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name\t: ")).unwrap_or("unknown processor");
    let cores = cpu.lines().filter(|l| l.starts_with("processor")).count();
    println!("machine: {model}, {cores} cores, TSC {:.2} GHz", tsc_hz() / 1e9);
    let arguments: Vec<String> = std::env::args().skip(1).filter(|w| w != "--bench").collect();
    println!("command: cargo bench -p rdma-engine --bench soft -- {}", arguments.join(" "));
}

/// The percentiles of `samples`, in cycles: p50, p99, p99.9.
pub(crate) fn percentiles(samples: &mut [u64]) -> [u64; 3] {
    samples.sort_unstable();
    let at = |q: f64| samples[((samples.len() - 1) as f64 * q) as usize];
    [at(0.5), at(0.99), at(0.999)]
}

/// A loop that does nothing for a while and notes what each of its turns took, in cycles: the jitter probe.
pub(crate) fn probe(turns: usize, turn_cycles: u64) -> Vec<u64> {
    let mut samples = Vec::with_capacity(turns);
    for _ in 0..turns {
        let from = tsc();
        while tsc() - from < turn_cycles {
            std::hint::spin_loop();
        }
        samples.push(tsc() - from);
    }
    samples
}
