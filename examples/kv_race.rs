//! Gateways and memory nodes on virtual time, with READs that linger and tear, evictions, expiry, flushes, restarts, and nodes that
//! come and go: no client may ever see what was not there.
//!
//! ```text
//! cargo run --release --example kv_race -- [GETS [FIRST-SEED]]
//! ```
//!
//! Runs seed after seed until so many GETs have been answered (10 million without a number). A run that fails says what was
//! wrong; its seed is the last one printed.

use isthmus::service::kv::sim::{Life, Race, Relists, Setup, restart};
use isthmus::stats::Counter;

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.replace('_', "").parse::<u64>().expect("a number"));
    let gets = args.next().unwrap_or(10_000_000);
    let first = args.next().unwrap_or(0);
    let (mut done, mut hits, mut torn, mut evicted) = (0, 0, 0, 0);
    let (mut restarts, mut lists) = (0u64, 0u64);
    for seed in first.. {
        println!(
            "seed {seed}: {done} GETs, {hits} hits, {torn} READs torn, {evicted} evictions, {restarts} restarts, {lists} lists"
        );
        if done >= gets {
            return;
        }
        let (small, restarting, relisting) = (seed % 4 == 1, seed % 4 == 2, seed % 4 == 3);
        // Calls wait for places while lists are taken.
        let waiting = seed % 8 == 7;
        let setup = Setup {
            nodes: if restarting || relisting { 2 } else { 1 },
            nodes_max: 3,
            partitions: 1 + (seed % 2) as u32,
            gateways: if waiting { 3 } else { 2 },
            arena: if waiting {
                256 << 10
            } else if small {
                6 << 20
            } else {
                8 << 20
            },
            segment_units: if small || waiting { 256 } else { 1024 },
            locations: 500,
            tear: 1 + (seed % 20) as u32,
            staging_slots: (seed % 5) as u16,
            write_imm_from: 700,
            seed,
            ..Setup::default()
        };
        // Nothing is ever missing that was there.
        let keeping = seed % 8 == 4;
        let (keys, largest) = match (small, waiting) {
            (true, _) => (2000, 9000),
            (_, true) => (150, 3000),
            _ => (60, 1500),
        };
        let life = match (small || waiting, keeping) {
            (true, _) => Life::Long,
            (_, true) => Life::Kept,
            _ => Life::Short,
        };
        let mut race = Race::new(setup, keys, largest, life);
        let mut relists = relisting.then(|| Relists::new(&mut race));
        race.run((gets - done).min(200_000), |race| {
            if restarting {
                let node = race.rng.below(2) as usize;
                restart(race, node);
                restarts += 1;
            }
            if let Some(relists) = &mut relists {
                relists.next(race);
                lists += 1;
            }
        });
        done += race.gets;
        hits += race.hits;
        torn += race.cluster.gateways.iter().map(|g| g.end.transport.torn).sum::<u64>();
        evicted += race.cluster.node_count(Counter::KvEvicted);
        assert!(restarting || relisting || race.errors == 0, "{} requests failed", race.errors);
        race.cluster.close();
    }
}
