//! The soft transport in cycles: operations of all sizes beside a bare memory copy, round trips beside a jitter probe,
//! and the cost of having many queue pairs open.
//!
//! ```text
//! cargo bench -p rdma-engine --bench soft                      everything
//! cargo bench -p rdma-engine --bench soft -- write 64 4096     one operation, some sizes
//! cargo bench -p rdma-engine --bench soft -- latency growth    the other tables
//! ```
//! Both endpoints run in one thread and hand frames to each other in bursts: nothing but their own work is counted,
//! the making of buffers and ICRCs included. A rate is that of a core that does nothing else.
#![allow(unsafe_code)] // reason: reading the time stamp counter.

mod clock;
mod ends;
mod slab;

use clock::{percentiles, print_machine, probe, tsc, tsc_hz, us};
use ends::{Ends, Shape};
use rdma_engine::wr::OpKind;
use std::hint::black_box;

const KINDS: [(&str, OpKind); 4] = [
    ("read", OpKind::Read),
    ("write", OpKind::Write),
    ("send", OpKind::Send),
    ("fetch_add", OpKind::FetchAdd),
];
const SIZES: [u32; 7] = [8, 64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20];
/// Round trips of one table row.
const ROUND_TRIPS: usize = 100_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|w| !w.starts_with("--")).collect();
    let sizes: Vec<u32> = words.iter().filter_map(|w| w.parse().ok()).collect();
    let named = |name: &str| words.iter().any(|w| w == name);
    let all = words.iter().all(|w| w.parse::<u32>().is_ok());
    let wanted = |size: &u32| sizes.is_empty() || sizes.contains(size);
    print_machine();
    let kinds: Vec<_> = KINDS.into_iter().filter(|(name, _)| all || named(name)).collect();
    if !kinds.is_empty() {
        throughput(&kinds, &wanted);
    }
    if all && sizes.is_empty() || named("latency") {
        latency();
    }
    if all && sizes.is_empty() || named("growth") {
        growth();
    }
}

fn throughput(kinds: &[(&str, OpKind)], wanted: &dyn Fn(&u32) -> bool) {
    println!("\ncycles per operation, and the rates of one core");
    println!(
        "{:<10} {:>8} {:>8} {:>10} {:>10} {:>10} {:>10} {:>9} {:>9}",
        "operation", "bytes", "memcpy", "initiator", "responder", "Mops/s i", "Mops/s r", "Gb/s i", "Gb/s r"
    );
    for &(name, kind) in kinds {
        for size in SIZES.into_iter().filter(wanted) {
            if kind != OpKind::FetchAdd || size == 8 {
                operation(name, kind, size);
            }
        }
    }
}

fn operation(name: &str, kind: OpKind, size: u32) {
    let operations = (40_000_000 / u64::from(size.max(64))).clamp(500, 400_000);
    let mut ends = Ends::new(Shape::ONE);
    ends.run(kind, size, operations / 10);
    let cycles = ends.run(kind, size, operations);
    let rate = |cycles: u64| tsc_hz() / cycles as f64 / 1e6;
    let bits = |cycles: u64| rate(cycles) * f64::from(size) * 8.0 / 1e3;
    let [i, r] = cycles;
    println!(
        "{name:<10} {size:>8} {:>8} {i:>10} {r:>10} {:>10.2} {:>10.2} {:>9.1} {:>9.1}",
        memcpy(size as usize),
        rate(i),
        rate(r),
        bits(i),
        bits(r)
    );
}

/// Median cycles of a bare copy of so many bytes, between buffers that take turns as those of the transport do.
fn memcpy(size: usize) -> u64 {
    let memory = vec![1u8; ends::MEMORY];
    let mut out: Vec<Vec<u8>> = (0..if size > 4096 { 8 } else { 64 }).map(|_| vec![1; size]).collect();
    let mut samples = Vec::new();
    for _ in 0..if size > 4096 { 200 } else { 2000 } {
        let from = tsc();
        for (n, out) in out.iter_mut().enumerate() {
            let at = n * 4096 % (memory.len() - size);
            out.copy_from_slice(black_box(&memory[at..at + size]));
            black_box(out.as_slice());
        }
        samples.push((tsc() - from) / out.len() as u64);
    }
    percentiles(&mut samples)[0]
}

fn latency() {
    println!("\nround trips from the post to the completion, one at a time, in microseconds");
    println!("{:<10} {:>8} {:>9} {:>9} {:>9}", "operation", "bytes", "p50", "p99", "p99.9");
    let row = |name: &str, size: u32, samples: &mut [u64]| {
        let [p50, p99, p999] = percentiles(samples).map(us);
        println!("{name:<10} {size:>8} {p50:>9.2} {p99:>9.2} {p999:>9.2}");
        p50
    };
    for (name, kind) in KINDS {
        for size in [8, 64, 4096].into_iter().filter(|&s| kind != OpKind::FetchAdd || s == 8) {
            let mut ends = Ends::new(Shape::ONE);
            (0..1000).for_each(|_| _ = ends.round_trip(kind, size));
            let mut samples: Vec<u64> = (0..ROUND_TRIPS).map(|_| ends.round_trip(kind, size)).collect();
            let p50 = row(name, size, &mut samples);
            // A turn of the probe lasts as long as a round trip, so that it meets as many gaps.
            row("  probe", size, &mut probe(ROUND_TRIPS, (p50 * tsc_hz() / 1e6) as u64));
        }
    }
}

fn growth() {
    println!("\n64-byte WRITEs of 64 queue pairs in use, by the number of queue pairs open");
    println!("{:>8} {:>10} {:>10} {:>8}", "open", "initiator", "responder", "ratio");
    let mut base = 0;
    for open in [64, 1000, 10_000] {
        let mut ends = Ends::new(Shape { open, active: 64, depth: 4 });
        ends.run(OpKind::Write, 64, 40_000);
        let [i, r] = ends.run(OpKind::Write, 64, 400_000);
        base = if base == 0 { i + r } else { base };
        println!("{open:>8} {i:>10} {r:>10} {:>8.3}", (i + r) as f64 / base as f64);
    }
}
