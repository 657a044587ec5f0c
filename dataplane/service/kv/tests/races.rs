//! Readers against writers, evictions and restarts; `examples/kv_race.rs` goes on for as long as asked.

use crate::service::kv::sim::{Cluster, Life, Race, Setup, restart};
use crate::stats::Counter;
use rdma_engine::sim::Rng;
use std::collections::HashMap;

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
        let mut race = Race::new(setup, 60, 1000, Life::Short);
        race.run(GETS, |_| ());
        let torn: u64 = race.cluster.gateways.iter().map(|g| g.end.transport.torn).sum();
        let (races, located) = (race.cluster.count(Counter::KvRaces), race.cluster.count(Counter::KvLocated));
        assert_eq!(race.errors, 0, "{:?}", race.cluster.downs());
        // One flush in three thousand requests may be none.
        assert!(race.kinds_done() >= 6, "{} kinds of mutations", race.kinds_done());
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
    let mut race = Race::new(setup, 4000, 11_000, Life::Long);
    race.run(GETS, |_| ());
    assert!(race.cluster.node_count(Counter::KvEvicted) > 20);
    assert_eq!(race.errors, 0, "{:?}", race.cluster.downs());
    race.cluster.close();
}

#[test]
fn what_nobody_deletes_is_never_missing() {
    for seed in 0..2 {
        let setup = Setup { gateways: 2, partitions: 2, tear: 10, locations: 200, seed, ..Setup::default() };
        let mut race = Race::new(setup, 400, 800, Life::Kept);
        race.run(GETS / 2, |_| ());
        assert_eq!(race.errors, 0, "{:?}", race.cluster.downs());
        assert_eq!(race.cluster.node_count(Counter::KvEvicted), 0, "there is room for all");
        assert_eq!(race.kinds_done(), 4);
        assert!(race.hits > race.gets / 2 && race.hits < race.gets, "{} hits of {}", race.hits, race.gets);
        race.cluster.close();
    }
}

#[test]
fn restarts_of_a_node_bring_nothing_back() {
    let setup = Setup { nodes: 2, gateways: 2, tear: 8, seed: 3, ..Setup::default() };
    let mut race = Race::new(setup, 200, 2000, Life::Short);
    let mut restarts = 0;
    race.run(GETS, |race| {
        let node = race.rng.below(2) as usize;
        restart(race, node);
        restarts += 1;
    });
    assert!(restarts > 1, "{restarts}");
    race.cluster.close();
}

/// A key whose value is a list of numbers that clients append and prepend, and one that they count up.
#[derive(Default)]
struct Shared {
    /// Lists that were read: when that was asked, when it was answered, and what was there.
    lists: Vec<(u64, u64, Vec<u32>)>,
    /// By number: when it was to be added, when that was answered, and whether in front.
    added: HashMap<u32, (u64, u64, bool)>,
    /// What counting was answered, with when it was asked and answered.
    counts: Vec<(u64, u64, u64)>,
}

impl Shared {
    /// Takes an answer to what was asked as `number` at `asked`.
    fn hear(&mut self, number: u32, (what, asked): (u64, u64), now: u64, reply: &[u8]) {
        let text = String::from_utf8_lossy(reply);
        match what {
            0 | 1 => {
                assert_eq!(text, "STORED\r\n");
                self.added.insert(number, (asked, now, what == 1));
            }
            2 => self.counts.push((asked, now, text.trim_end().parse().expect("a number"))),
            _ => {
                let lines: Vec<&str> = text.split("\r\n").collect();
                assert!(lines[0].starts_with("VALUE list ") && lines[2] == "END", "{text}");
                let numbers = lines[1].split(',').filter(|n| !n.is_empty()).map(|n| n.parse().unwrap());
                self.lists.push((asked, now, numbers.collect()));
            }
        }
    }

    /// One order explains all answers.
    fn check(&mut self) {
        self.lists.sort_by_key(|(.., list)| list.len());
        for pair in self.lists.windows(2) {
            // The shorter one is a part of the longer one, which grew at its ends.
            let ((shorter_asked, _, shorter), (_, longer_answered, longer)) = (&pair[0], &pair[1]);
            let at = longer.windows(shorter.len()).any(|w| w == shorter);
            assert!(at, "{shorter:?} is no part of {longer:?}");
            assert!(shorter.len() == longer.len() || longer_answered > shorter_asked, "it shrank");
        }
        for (asked, answered, list) in &self.lists {
            let mut seen = list.clone();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), list.len(), "added twice: {list:?}");
            for (number, (add_asked, add_answered, _)) in &self.added {
                let is_there = seen.binary_search(number).is_ok();
                assert!(is_there || add_answered > asked, "{number} was added before, and is not there");
                assert!(!is_there || add_asked < answered, "{number} was there before it was added");
            }
        }
        let (.., all) = self.lists.last().expect("a list");
        let first = all.iter().position(|n| *n == 0).expect("what was there first");
        for (place, number) in all.iter().enumerate().filter(|(_, n)| **n != 0) {
            assert_eq!(self.added[number].2, place < first, "{number} is at the wrong end");
        }
        self.counts.sort_by_key(|(.., count)| *count);
        let expected = (1..).take(self.counts.len());
        assert!(self.counts.iter().map(|(.., count)| *count).eq(expected), "{:?}", self.counts);
        let in_order = |pair: &[(u64, u64, u64)]| pair[0].0 < pair[1].1;
        assert!(
            self.counts.windows(2).all(in_order),
            "a later count was answered before an earlier one was asked"
        );
    }
}

#[test]
fn what_is_added_and_counted_is_there_once_and_in_one_order() {
    for seed in 0..3 {
        let setup = Setup { gateways: 3, partitions: 2, tear: 10, seed, ..Setup::default() };
        let (mut c, mut rng) = (Cluster::new(setup), Rng::new(seed));
        assert_eq!(c.say(0, "set list 0 0 2\r\n0,\r\n"), "STORED\r\n");
        assert_eq!(c.say(0, "set count 0 0 1\r\n0\r\n"), "STORED\r\n");
        let (mut shared, mut asked) = (Shared::default(), HashMap::new());
        let (mut next, mut moment) = (1000, 0);
        while shared.lists.len() < 1000 || !asked.is_empty() {
            moment += 1;
            if shared.lists.len() < 1000 && asked.len() < 30 {
                // A client of its own each.
                next += 20;
                let (what, gateway) = (rng.below(5), rng.below(3) as usize);
                let text = match what {
                    // A list of some hundred numbers does not outgrow a value.
                    0 | 1 if shared.added.len() > 400 => continue,
                    0 => format!("append list 0 0 {}\r\n{next},\r\n", next.to_string().len() + 1),
                    1 => format!("prepend list 0 0 {}\r\n{next},\r\n", next.to_string().len() + 1),
                    2 => "incr count 1\r\n".to_owned(),
                    3 => "get list\r\n".to_owned(),
                    _ => "gat 0 list\r\n".to_owned(),
                };
                asked.insert(next, (what, moment));
                c.ask(gateway, next, text.as_bytes());
            }
            c.turn();
            for gateway in &mut c.gateways {
                for (number, reply) in gateway.replies.drain(..) {
                    moment += 1;
                    shared.hear(number, asked.remove(&number).expect("it was asked"), moment, &reply);
                }
            }
        }
        shared.check();
        assert!(shared.added.len() > 300 && shared.counts.len() > 100);
        c.close();
    }
}
