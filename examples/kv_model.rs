//! Runs the consistency model of the key-value service over many seeds:
//!
//! ```text
//! cargo run --release --example kv_model -- --seeds 1000000
//! cargo run --release --example kv_model -- --minutes 60 --start 5000000
//! cargo run --release --example kv_model -- --without 3
//! ```
//!
//! Ends with 1 at the first history that no order explains, and says which seed it was; without a rule (`--without`) that is
//! what is to be expected.

use isthmus::store::model::{Rules, Summary, run};
use std::process::ExitCode;
use std::time::{Duration, Instant};

struct Arguments {
    seeds: u64,
    start: u64,
    limit: Option<Duration>,
    rules: Rules,
}

fn arguments() -> Option<Arguments> {
    let mut a = Arguments { seeds: 100_000, start: 0, limit: None, rules: Rules::ALL };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value: u64 = words.next()?.parse().ok()?;
        match word.as_str() {
            "--seeds" => a.seeds = value,
            "--start" => a.start = value,
            "--minutes" => (a.limit, a.seeds) = (Some(Duration::from_secs(60 * value)), u64::MAX),
            "--without" if (1..=8).contains(&value) => a.rules = Rules::without(value as u8),
            _ => return None,
        }
    }
    Some(a)
}

fn main() -> ExitCode {
    let Some(a) = arguments() else {
        eprintln!("usage: kv_model [--seeds N | --minutes M] [--start SEED] [--without RULE (1 to 8)]");
        return ExitCode::from(2);
    };
    let (began, mut total, mut told) = (Instant::now(), Summary::default(), Instant::now());
    for n in 0..a.seeds {
        match run(a.start + n, a.rules) {
            Ok(s) => {
                total.gets += s.gets;
                total.hits += s.hits;
                total.mutations += s.mutations;
                total.races += s.races;
            }
            Err(violation) => {
                println!("{violation}");
                return ExitCode::FAILURE;
            }
        }
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            println!("{} seeds, {} GETs", n + 1, total.gets);
        }
        if a.limit.is_some_and(|limit| began.elapsed() > limit) {
            break;
        }
    }
    println!(
        "{} GETs ({} hits, {} looked again), {} mutations in {:.1} s: every history has an order that explains it",
        total.gets,
        total.hits,
        total.races,
        total.mutations,
        began.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}
