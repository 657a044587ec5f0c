//! The rules of [`super::super::model`] on the real store: a writer whose stores become visible one by one, in units of 64 bytes,
//! and gateways whose READs go on in between, on a schedule that follows from a seed.
//!
//! The writer works ahead on its own arena; a copy of it, which gateways read, gets its stores out of the log one after the
//! other. Answers and epochs wait in the same log, so nobody hears of anything before it is visible. What a key's value was
//! at which time is known exactly, so every answer is checked against the time of its GET.

use super::*;
use crate::store::geometry::Probe;
use crate::store::layout::Location;
use crate::store::region::Store;
use rdma_engine::sim::rng::Rng;
use std::collections::{HashMap, VecDeque};

const KEYS: u64 = 10;
const GATEWAYS: usize = 3;
/// Runs without a fault; in an optimised build they take as long as the others do in a plain one.
const SEEDS: u64 = if cfg!(debug_assertions) { 8 } else { 300 };

/// What is left out on purpose, to see that it is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// The slot is published before the old item is marked dead.
    PublishFirst,
    /// Gateways do not report what they still look at.
    NoReports,
    /// A flush is answered at its beginning.
    FlushUnswept,
}

/// A value between two moments, or none.
#[derive(Clone, Copy, Debug)]
struct Span {
    version: Option<u32>,
    from: u64,
}

enum Step {
    Store(Store),
    /// From here on the key has this value.
    Value(u64, Option<u32>),
    /// A mutation is answered.
    Told(usize, u64, Option<Location>),
}

struct Get {
    key: u64,
    began: u64,
    epoch: u64,
    seq: Option<u64>,
    probe: Probe,
    /// Units still to be read, and what came.
    missing: Vec<usize>,
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    /// Of the item being read; `None` while buckets are.
    item: Option<Slot>,
}

#[derive(Default)]
struct Gateway {
    known_epoch: u64,
    gets: Vec<Get>,
    cache: HashMap<u64, Location>,
}

struct World {
    node: Node,
    shadow: Arena,
    steps: VecDeque<Step>,
    gateways: Vec<Gateway>,
    told_epoch: u64,
    spans: HashMap<u64, Vec<Span>>,
    /// By place what lives there, as the writer knows it.
    owners: HashMap<u64, u64>,
    rng: Rng,
    now: u64,
    fault: Fault,
    checked: u64,
    hits: u64,
    wrong: Vec<String>,
}

fn name(key: u64) -> Vec<u8> {
    format!("key-{key}").into_bytes()
}

impl World {
    fn new(seed: u64, fault: Fault) -> Self {
        // Few cells, small segments: everything is reused and cut anew all the time.
        let node = Node::new(16, 6 << 10);
        *node.writer.memory.log.borrow_mut() = Some(vec![]);
        let shadow = Arena::new(6 << 10, Backing::Pages).unwrap();
        let bytes = node.bytes(0, (6 << 10) / UNIT as u32);
        shadow.window().copy_in(0, &bytes);
        let mut world = World {
            node,
            shadow,
            steps: VecDeque::new(),
            gateways: vec![],
            told_epoch: 1,
            spans: (0..KEYS).map(|k| (k, vec![Span { version: None, from: 0 }])).collect(),
            owners: HashMap::new(),
            rng: Rng::new(seed),
            now: 1,
            fault,
            checked: 0,
            hits: 0,
            wrong: vec![],
        };
        for g in 0..GATEWAYS {
            let known_epoch = world.node.writer.connect(g).unwrap();
            world.gateways.push(Gateway { known_epoch, ..Gateway::default() });
        }
        world
    }

    fn step(&mut self) {
        self.now += 1;
        let g = self.rng.below(GATEWAYS as u64) as usize;
        match self.rng.below(100) {
            0..40 => self.show(),
            40..45 if self.steps.is_empty() => self.mutate(g),
            45..52 if self.gateways[g].gets.len() < 4 => self.begin_get(g),
            52..94 => self.go_on(g),
            94..97 => self.report(g),
            97 if self.steps.is_empty() && self.rng.below(20) == 0 => self.flush(),
            98 if self.rng.below(30) == 0 => self.reconnect(g),
            _ => {}
        }
    }

    // ---- the node ------------------------------------------------------------------------------------------------

    fn mutate(&mut self, g: usize) {
        let key = self.rng.below(KEYS);
        let version = self.now as u32;
        if self.rng.below(5) == 0 {
            self.node.writer.delete(&name(key), 0);
            self.collect(None);
            self.steps.push_back(Step::Told(g, key, None));
            return;
        }
        self.gateways[g].cache.remove(&key);
        let value = version.to_le_bytes().repeat(self.rng.within(4, 100) as usize);
        let stored = self.node.set(&name(key), &value);
        self.collect(stored.ok().map(|i| (key, version, i.location.place)));
        self.node.writer.tick();
        self.collect(None);
        self.steps.push_back(Step::Told(g, key, stored.ok().map(|i| i.location)));
    }

    fn flush(&mut self) {
        let mut sweep = self.node.writer.begin_flush();
        if self.fault == Fault::FlushUnswept {
            // Answered, and so it has to hold.
            (0..KEYS).for_each(|k| self.steps.push_back(Step::Value(k, None)));
        }
        while !self.node.writer.flush(&mut sweep, 1) {}
        self.collect(None);
    }

    /// Takes what the writer stored, units apart, and marks where values begin and end.
    fn collect(&mut self, stored: Option<(u64, u32, u64)>) {
        let log = self.node.writer.memory.log.borrow_mut().as_mut().map(std::mem::take).unwrap();
        let buckets = self.node.geometry.bucket_offset(0, 0);
        let data = self.node.geometry.first_place(0) as usize * UNIT;
        let mut steps = vec![];
        let mut dead = None;
        for store in log {
            match store {
                Store::Bytes(at, bytes) => {
                    let mut pieces = vec![];
                    let mut from = 0;
                    while from < bytes.len() {
                        let n = (UNIT - (at + from) % UNIT).min(bytes.len() - from);
                        pieces.push(Step::Store(Store::Bytes(at + from, bytes[from..from + n].to_vec())));
                        from += n;
                    }
                    while !pieces.is_empty() {
                        let i = self.rng.below(pieces.len() as u64) as usize;
                        steps.push(pieces.swap_remove(i));
                    }
                }
                Store::Word(at, word) => {
                    let is_death = at >= data && word == crate::store::layout::DEAD;
                    let is_slot = (buckets..data).contains(&at);
                    steps.push(Step::Store(Store::Word(at, word)));
                    if is_death {
                        dead = Some((steps.len() - 1, self.owners.remove(&((at / UNIT) as u64)).unwrap()));
                    }
                    if is_slot && word == 0 {
                        let (_, key) = dead.take().expect("dead before its slot is cleared");
                        steps.push(Step::Value(key, None));
                    } else if is_slot {
                        let (key, version, place) = stored.unwrap();
                        self.owners.insert(place, key);
                        steps.push(Step::Value(key, Some(version)));
                        if let (Some((at, _)), Fault::PublishFirst) = (dead.take(), self.fault) {
                            let death = steps.remove(at);
                            steps.push(death);
                        }
                    }
                }
                Store::Epoch(epoch) => steps.push(Step::Store(Store::Epoch(epoch))),
            }
        }
        self.steps.extend(steps);
    }

    /// One more store can be seen, and with it the value that it makes.
    fn show(&mut self) {
        self.show_one();
        while let Some(Step::Value(..)) = self.steps.front() {
            self.show_one();
        }
    }

    fn show_one(&mut self) {
        let Some(step) = self.steps.pop_front() else { return };
        let window = self.shadow.window();
        match step {
            Step::Store(Store::Word(at, word)) => {
                window.word(at).store(word.to_le(), std::sync::atomic::Ordering::Relaxed);
            }
            Step::Store(Store::Bytes(at, bytes)) => window.copy_in(at, &bytes),
            Step::Store(Store::Epoch(epoch)) => self.told_epoch = epoch,
            Step::Value(key, version) => {
                let span = Span { version, from: self.now };
                self.spans.get_mut(&key).unwrap().push(span);
            }
            Step::Told(g, key, location) => {
                let gateway = &mut self.gateways[g];
                gateway.known_epoch = self.told_epoch;
                gateway.cache.remove(&key);
                gateway.cache.extend(location.map(|l| (key, l)));
            }
        }
    }

    // ---- gateways ------------------------------------------------------------------------------------------------

    fn begin_get(&mut self, g: usize) {
        let key = self.rng.below(KEYS);
        let probe = self.node.geometry.probe(&self.node.secrets, &name(key));
        let epoch = self.gateways[g].known_epoch;
        let (missing, bytes) = (vec![], vec![]);
        let mut get =
            Get { key, began: self.now, epoch, seq: None, probe, missing, bytes, slots: vec![], item: None };
        match self.gateways[g].cache.get(&key) {
            Some(l) => {
                get.seq = Some(l.seq);
                get.read_item(Slot { tag: probe.tag, units: l.units, place: l.place });
            }
            None => get.read_buckets(),
        }
        self.gateways[g].gets.push(get);
    }

    /// A READ brings one more unit, or is used. Units of an item come in any order.
    fn go_on(&mut self, g: usize) {
        let count = self.gateways[g].gets.len() as u64;
        if count == 0 {
            return;
        }
        let index = self.rng.below(count) as usize;
        let get = &mut self.gateways[g].gets[index];
        if !get.missing.is_empty() {
            let i = self.rng.below(get.missing.len() as u64) as usize;
            let unit = get.missing.swap_remove(i);
            let from = match get.item {
                Some(slot) => (slot.place as usize + unit) * UNIT,
                None => self.node.geometry.bucket_offset(0, get.probe.buckets[unit]),
            };
            self.shadow.window().copy_out(from, &mut get.bytes[unit * UNIT..(unit + 1) * UNIT]);
            return;
        }
        let mut get = self.gateways[g].gets.swap_remove(index);
        if self.use_read(g, &mut get) {
            self.gateways[g].gets.push(get);
        }
    }

    /// True if the lookup goes on.
    fn use_read(&mut self, g: usize, get: &mut Get) -> bool {
        let Some(slot) = get.item else {
            for bucket in get.bytes.as_chunks::<UNIT>().0 {
                get.slots.extend(candidates(bucket, get.probe.tag, &self.node.geometry));
            }
            return self.next_candidate(get);
        };
        let key = name(get.key);
        let wanted = Wanted { key: &key, place: slot.place, units: slot.units, seq: get.seq };
        let times = Times { began_ms: 0, now_ms: 0 };
        match judge(&self.node.secrets, &wanted, &[&get.bytes], times) {
            Verdict::Found(found) => {
                let value = &get.bytes[found.value_at..found.value_at + found.value_len];
                let version = u32::from_le_bytes(value[..4].try_into().unwrap());
                if value.chunks(4).any(|v| v != version.to_le_bytes()) {
                    self.wrong.push(format!("torn value of key {}", get.key));
                }
                self.gateways[g].cache.insert(get.key, found.location);
                self.answer(get, Some(version));
                false
            }
            Verdict::Other if get.seq.is_none() => self.next_candidate(get),
            Verdict::Expired => unreachable!("nothing expires here"),
            _ => {
                self.gateways[g].cache.remove(&get.key);
                get.epoch = self.gateways[g].known_epoch;
                get.seq = None;
                get.read_buckets();
                true
            }
        }
    }

    fn next_candidate(&mut self, get: &mut Get) -> bool {
        match get.slots.pop() {
            Some(slot) => get.read_item(slot),
            None => {
                self.answer(get, None);
                return false;
            }
        }
        true
    }

    /// The key must have had this value at some time of the GET.
    fn answer(&mut self, get: &Get, seen: Option<u32>) {
        self.checked += 1;
        self.hits += u64::from(seen.is_some());
        let spans = &self.spans[&get.key];
        let during = spans.iter().enumerate().filter(|(i, s)| {
            let until = spans.get(i + 1).map_or(u64::MAX, |next| next.from);
            s.version == seen && s.from <= self.now && until >= get.began
        });
        if during.count() == 0 {
            self.wrong.push(format!("key {}: {seen:?} from {} to {}", get.key, get.began, self.now));
        }
    }

    fn report(&mut self, g: usize) {
        let gateway = &mut self.gateways[g];
        gateway.known_epoch = self.told_epoch;
        let oldest = gateway.gets.iter().map(|get| get.epoch).min().unwrap_or(gateway.known_epoch);
        let told = if self.fault == Fault::NoReports { self.node.writer.epoch() } else { oldest };
        self.node.writer.report(g, told).unwrap();
    }

    /// The node destroys a gateway's queue pairs: its READs end without an answer.
    fn reconnect(&mut self, g: usize) {
        self.node.writer.disconnect(g);
        self.gateways[g].gets.clear();
        self.node.writer.connect(g).unwrap();
        // It hears of no epoch that cannot be seen yet.
        self.gateways[g].known_epoch = self.told_epoch;
        self.node.writer.epochs.set_back(g, self.told_epoch);
    }
}

impl Get {
    fn read_item(&mut self, slot: Slot) {
        self.item = Some(slot);
        self.missing = (0..slot.units as usize).collect();
        self.bytes = vec![0; slot.units as usize * UNIT];
    }

    fn read_buckets(&mut self) {
        (self.item, self.missing, self.bytes) = (None, vec![0, 1], vec![0; 2 * UNIT]);
        self.slots.clear();
    }
}

/// GETs that were checked, those with a value, and what was wrong.
fn run(seed: u64, fault: Fault) -> (u64, u64, Vec<String>) {
    let mut world = World::new(seed, fault);
    (0..20_000).for_each(|_| world.step());
    world.node.writer.arena.check();
    (world.checked, world.hits, world.wrong)
}

#[test]
fn no_get_sees_what_was_not_there() {
    let (mut checked, mut hits) = (0, 0);
    for seed in 0..SEEDS {
        let (c, h, wrong) = run(seed, Fault::None);
        assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
        (checked, hits) = (checked + c, hits + h);
    }
    assert!(checked > SEEDS * 800 && hits * 3 > checked, "{hits} hits of {checked}");
}

/// The fault shows in one of the runs from `first` on, and without it nothing is wrong there.
fn is_seen(fault: Fault, first: u64) {
    let seed = (first..first + 200).find(|seed| !run(*seed, fault).2.is_empty());
    let seed = seed.expect("the fault is never seen");
    assert!(run(seed, Fault::None).2.is_empty(), "seed {seed}");
}

#[test]
fn publishing_before_the_dead_mark_is_seen() {
    is_seen(Fault::PublishFirst, 75);
}

#[test]
fn reuse_without_waiting_is_seen() {
    is_seen(Fault::NoReports, 0);
}

#[test]
fn answering_a_flush_before_its_sweep_is_seen() {
    is_seen(Fault::FlushUnswept, 1);
}
