//! Readers against writers, evictions and restarts; `examples/kv_race.rs` goes on for as long as asked.

use crate::service::kv::sim::{Race, Setup, restart};
use crate::stats::Counter;

const GETS: u64 = 10_000;

#[test]
fn readers_never_see_what_was_not_there() {
    for seed in 0..3 {
        let setup = Setup {
            gateways: 2,
            tear: 12,
            staging_slots: seed as u16,
            write_imm_from: 400,
            seed,
            ..Setup::default()
        };
        let mut race = Race::new(setup, 60, 1000);
        race.run(GETS, |_| ());
        let torn: u64 = race.cluster.gateways.iter().map(|g| g.end.transport.torn).sum();
        let (races, located) = (race.cluster.count(Counter::KvRaces), race.cluster.count(Counter::KvLocated));
        assert_eq!(race.errors, 0, "{:?}", race.cluster.downs());
        assert!(
            race.hits > race.gets / 3 && torn > 50 && races > 50 && located > 1000,
            "{torn} {races} {located}"
        );
        race.cluster.close();
    }
}

#[test]
fn evictions_make_no_value_wrong() {
    let setup = Setup {
        gateways: 2,
        partitions: 2,
        tear: 8,
        arena: 6 << 20,
        segment_units: 256,
        locations: 500,
        seed: 7,
        ..Setup::default()
    };
    let mut race = Race::new(setup, 4000, 11_000);
    race.run(GETS, |_| ());
    assert!(race.cluster.node_count(Counter::KvEvicted) > 20);
    assert_eq!(race.errors, 0, "{:?}", race.cluster.downs());
    race.cluster.close();
}

#[test]
fn restarts_of_a_node_bring_nothing_back() {
    let setup = Setup { nodes: 2, gateways: 2, tear: 8, seed: 3, ..Setup::default() };
    let mut race = Race::new(setup, 200, 2000);
    let mut restarts = 0;
    race.run(GETS, |race| {
        let node = race.rng.below(2) as usize;
        restart(race, node);
        restarts += 1;
    });
    assert!(restarts > 1, "{restarts}");
    race.cluster.close();
}
