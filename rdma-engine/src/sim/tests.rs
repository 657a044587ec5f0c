use super::*;
use crate::soft::DropReason;

/// Seeds of each of the four parts of the test run, which CPUs share; `cargo run --release --example sim` runs more.
const SEEDS: u64 = 500;

/// A run short enough for an interpreter.
#[test]
fn short_runs_keep_their_promises() {
    for seed in 0..3 {
        let scenario = Scenario { pairs: 1, requests: 4, longest: 300, ..Scenario::new(seed) };
        run_scenario(scenario, false).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many bytes for an interpreter")]
fn every_seed_of_the_first_part_keeps_its_promises() {
    try_seeds(0);
}

#[test]
#[cfg_attr(miri, ignore = "too many bytes for an interpreter")]
fn every_seed_of_the_second_part_keeps_its_promises() {
    try_seeds(1);
}

#[test]
#[cfg_attr(miri, ignore = "too many bytes for an interpreter")]
fn every_seed_of_the_third_part_keeps_its_promises() {
    try_seeds(2);
}

#[test]
#[cfg_attr(miri, ignore = "too many bytes for an interpreter")]
fn every_seed_of_the_fourth_part_keeps_its_promises() {
    try_seeds(3);
}

fn try_seeds(part: u64) {
    let (mut succeeded, mut failed, mut given_up, mut refused) = (0, 0, 0, 0);
    let mut total = Total::default();
    for seed in part * SEEDS..(part + 1) * SEEDS {
        let Scenario { retry_cnt, rnr_retry, refusals, .. } = Scenario::new(seed);
        match run(seed, false) {
            Ok(outcome) => {
                succeeded += outcome.succeeded;
                match (refusals, retry_cnt, rnr_retry) {
                    (true, ..) => refused += outcome.failed,
                    (_, 7, 7) => failed += outcome.failed,
                    _ => given_up += outcome.failed,
                }
                total.add(&outcome);
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    println!(
        "{succeeded} requests succeeded; flows failed: {failed}, with few retries {given_up}, by refusals {refused}; {total:?}"
    );
    assert!(succeeded > SEEDS * 20 && failed < SEEDS / 4, "{succeeded} {failed}");
    assert!(given_up > 2 && refused > 25, "{given_up} {refused}");
    total.assert_everything_happened();
}

/// What the seeds together must have met; a fault that never happens tests nothing.
#[derive(Debug, Default)]
struct Total {
    retransmitted: u64,
    timeouts: u64,
    sequence_naks: u64,
    rnr_naks: u64,
    reads_resumed: u64,
    duplicates: u64,
    bad_icrcs: u64,
    cnps: u64,
    pool_dry: u64,
    sacks: u64,
    held: u64,
    cut: u64,
    overflowed: u64,
}

impl Total {
    fn add(&mut self, outcome: &Outcome) {
        for c in &outcome.counters {
            self.retransmitted += c.retransmitted;
            self.timeouts += c.timeouts;
            self.sequence_naks += c.sequence_naks;
            self.rnr_naks += c.rnr_naks;
            self.reads_resumed += c.reads_resumed;
            self.duplicates += c.drops(DropReason::Duplicate);
            self.bad_icrcs += c.drops(DropReason::Icrc);
            self.cnps += c.cnps;
            self.pool_dry += c.pool_dry;
            self.sacks += c.sacks;
            self.held += c.held;
        }
        self.cut += outcome.fates.cut;
        self.overflowed += outcome.fates.overflowed;
    }

    fn assert_everything_happened(&self) {
        let Total { retransmitted, timeouts, sequence_naks, rnr_naks, reads_resumed, .. } = *self;
        let Total { duplicates, bad_icrcs, cnps, pool_dry, sacks, held, cut, overflowed, .. } = *self;
        let all = [retransmitted, timeouts, sequence_naks, rnr_naks, reads_resumed, duplicates];
        let more = [bad_icrcs, cnps, pool_dry, sacks, held, cut, overflowed];
        assert!(all.iter().chain(&more).all(|n| *n > 10), "{self:?}");
    }
}

/// Longer than anything the seeds make up.
#[test]
#[cfg_attr(miri, ignore = "too many bytes for an interpreter")]
fn scenarios_with_long_messages_can_be_made() {
    for seed in 0..10 {
        let scenario = Scenario { requests: 4, longest: 100_000, ..Scenario::new(seed) };
        run_scenario(scenario, false).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many bytes for an interpreter")]
fn a_seed_runs_the_same_every_time() {
    for seed in 0..50 {
        let [a, b] = [0, 1].map(|_| format!("{:?}", run(seed, false)));
        assert_eq!(a, b);
    }
}
