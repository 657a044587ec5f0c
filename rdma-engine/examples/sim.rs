//! Runs the simulator over many seeds.
//!
//! ```text
//! cargo run --release --example sim -- --seeds 1000000 --start 0
//! cargo run --release --example sim -- --seeds 1 --start 4711 --trace
//! cargo run --release --example sim -- --huge
//! ```

use rdma_engine::sim;
use rdma_engine::types::Pmtu;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Seed under way, for the message of a panic.
static SEED: AtomicU64 = AtomicU64::new(0);

fn main() -> ExitCode {
    let Some(arguments) = Arguments::read(std::env::args().skip(1)) else {
        eprintln!("usage: sim [--seeds N] [--start S] [--trace] [--huge]");
        return ExitCode::from(2);
    };
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let seed = SEED.load(Ordering::Relaxed);
        eprintln!("seed {seed} panicked; replay: --start {seed} --seeds 1 --trace");
        default(info);
    }));
    arguments.run()
}

/// The longest messages there are, over a network that loses one frame in 2000.
fn huge() -> ExitCode {
    let write = ("WRITE of 2^31 bytes", sim::huge::write(1 << 31, Pmtu::B4096, 500));
    let read = ("READ of 2^28 bytes", sim::huge::read(1 << 28, Pmtu::B1024, 500));
    let mut code = ExitCode::SUCCESS;
    for (name, result) in [write, read] {
        match result {
            Ok(()) => println!("{name}: every byte right"),
            Err(wrong) => {
                println!("{name}: {wrong}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

struct Arguments {
    seeds: u64,
    start: u64,
    trace: bool,
    huge: bool,
}

impl Arguments {
    fn read(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let mut arguments = Arguments { seeds: 10_000, start: 0, trace: false, huge: false };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--seeds" => arguments.seeds = words.next()?.parse().ok()?,
                "--start" => arguments.start = words.next()?.parse().ok()?,
                "--huge" => arguments.huge = true,
                "--trace" => arguments.trace = true,
                _ => return None,
            }
        }
        Some(arguments)
    }

    fn run(&self) -> ExitCode {
        if self.huge {
            return huge();
        }
        let (started, mut requests, mut failed, mut wrong) = (Instant::now(), 0, 0, 0);
        for seed in self.start..self.start.saturating_add(self.seeds) {
            SEED.store(seed, Ordering::Relaxed);
            match sim::run(seed, self.trace) {
                Ok(outcome) => {
                    requests += outcome.succeeded;
                    failed += outcome.failed;
                    if self.trace {
                        println!("{outcome:#?}");
                    }
                }
                Err(failure) => {
                    wrong += 1;
                    println!("{failure}");
                }
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "{} seeds from {}: {requests} requests, {failed} flows given up, {wrong} seeds wrong, {seconds:.1} s",
            self.seeds, self.start
        );
        if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
