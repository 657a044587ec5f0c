//! How much fits, what stays, and what happens when places are short.

use super::*;
use crate::store::locations::Locations;
use rdma_engine::sim::rng::Rng;
use std::collections::HashMap;

/// A plain build is slow: there segments, arena and values are smaller by this, so that all ratios stay the same.
const SCALE: u64 = if cfg!(debug_assertions) { 16 } else { 1 };

/// Fills until things have been evicted for a while; bytes of keys and values that are live, to bytes of the segments.
fn filled(mib: u64, mut value_len: impl FnMut(&mut Rng) -> usize) -> f64 {
    let mut rng = Rng::new(3);
    let mut node = Node::new(super::super::geometry::SEGMENT_UNITS / SCALE as u32, (mib << 20) / SCALE);
    let data = u64::from(node.geometry.segments() * node.geometry.segment_units()) * UNIT as u64;
    let bytes = vec![0x5a; 1 << 17];
    let mut written = 0;
    let mut i = 0u64;
    while written < data * 3 / 2 {
        let value = &bytes[..value_len(&mut rng)];
        i += 1;
        if i.is_multiple_of(64) {
            node.writer.tick();
        }
        if node.set(format!("key-{i:012}").as_bytes(), value).is_ok() {
            written += value.len() as u64;
        }
    }
    node.writer.arena.check();
    let counts = node.writer.counts();
    assert!(counts.busy * 50 < counts.written, "{counts:?}");
    assert!(counts.evicted_from_bucket == 0, "{counts:?}");
    counts.bytes as f64 / data as f64
}

#[test]
fn at_most_15_percent_are_wasted_on_values_of_4_kib() {
    let used = filled(64, |_| 4096);
    println!("4 KiB: {:.1} % wasted", 100.0 * (1.0 - used));
    assert!(used >= 0.85, "{used}");
}

#[test]
fn at_most_15_percent_are_wasted_on_values_of_64_bytes_to_64_kib() {
    // As many of each power of two, and as many of each size.
    let by_size = filled(256, |rng| rng.within(64, 65_536 / SCALE) as usize);
    let by_power = filled(256, |rng| {
        let low = 64usize << rng.below(if SCALE == 1 { 10 } else { 6 });
        low + rng.below(low as u64 + 1) as usize
    });
    let wasted = |used: f64| 100.0 * (1.0 - used);
    println!("64 B to 64 KiB: {:.1} % wasted, by powers of two {:.1} %", wasted(by_size), wasted(by_power));
    assert!(by_size >= 0.85 && by_power >= 0.85, "{by_size} {by_power}");
}

/// Draws keys by Zipf's law.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(n: usize, s: f64) -> Self {
        let mut sum = 0.0;
        let mut table: Vec<f64> = (1..=n)
            .map(|i| {
                sum += (i as f64).powf(-s);
                sum
            })
            .collect();
        table.iter_mut().for_each(|x| *x /= sum);
        Zipf(table)
    }

    fn draw(&self, rng: &mut Rng) -> u32 {
        let x = rng.bits() as f64 / u64::MAX as f64;
        self.0.partition_point(|p| *p < x).min(self.0.len() - 1) as u32
    }
}

/// Exact LRU: a stamp for each key, and keys by stamp.
struct Lru {
    capacity: usize,
    stamps: HashMap<u32, u64>,
    by_stamp: std::collections::BTreeMap<u64, u32>,
    now: u64,
}

impl Lru {
    fn get(&mut self, key: u32) -> bool {
        self.now += 1;
        let old = self.stamps.insert(key, self.now);
        if let Some(old) = old {
            self.by_stamp.remove(&old);
        }
        self.by_stamp.insert(self.now, key);
        if self.stamps.len() > self.capacity {
            let (_, key) = self.by_stamp.pop_first().unwrap();
            self.stamps.remove(&key);
        }
        old.is_some()
    }
}

/// Hit ratios of the store with a gateway of so many locations, and of exact LRU with as many places as the store has.
fn hit_ratios(locations: usize) -> (f64, f64) {
    let (keys, gets) = if SCALE == 1 { (60_000, 600_000) } else { (6_000, 60_000) };
    let (zipf, mut rng) = (Zipf::new(keys, 0.99), Rng::new(17));
    let mut node = Node::new(256, if SCALE == 1 { 4 << 20 } else { 420 << 10 });
    let class = node.writer.arena.class_of(6).unwrap();
    let capacity = (node.geometry.segments() * (256 / node.writer.arena.size(class))) as usize;
    assert!(capacity * 5 < keys && capacity * 10 > keys, "{capacity}");
    let (stamps, by_stamp) = (HashMap::new(), std::collections::BTreeMap::new());
    let mut lru = Lru { capacity, stamps, by_stamp, now: 0 };
    let mut gateway = Locations::new(locations, 1, capacity as u64 / 8);
    let (mut hits, mut exact, mut told) = (0, 0, 0);
    for i in 0..gets {
        let number = zipf.draw(&mut rng);
        let key = format!("key-{number}").into_bytes();
        // The first third only fills.
        let counts = i >= gets / 3;
        exact += u32::from(lru.get(number) && counts);
        let hash = node.secrets.place.hash(&key);
        gateway.find(hash);
        if let Some((found, _)) = node.look_up(&key, 0) {
            hits += u32::from(counts);
            gateway.found(hash, 0, found.location);
        } else {
            let item = node.set(&key, &[7; 300]).unwrap();
            gateway.stored(hash, 0, item.location);
        }
        let batch = gateway.batch(0).unwrap();
        if i % 128 == 0 || batch.is_full() {
            told += batch.len();
            node.writer.hits(batch.drain(..));
        }
    }
    assert!(node.writer.counts().evicted > gets as u64 / 60);
    println!("{locations} locations: {:.1} uses told for 100 GETs", 100.0 * told as f64 / f64::from(gets));
    let counted = f64::from(gets - gets / 3);
    (f64::from(hits) / counted, f64::from(exact) / counted)
}

#[test]
fn hits_are_within_two_points_of_exact_lru() {
    for locations in [32_768, 2_048] {
        let (ours, exact) = hit_ratios(locations);
        println!("{locations} locations: {:.2} % hits, exact LRU {:.2} %", 100.0 * ours, 100.0 * exact);
        assert!(ours > exact - 0.02, "{ours} with {locations} locations, exact LRU {exact}");
    }
}

#[test]
fn a_silent_gateway_stops_reuse_until_it_reports_or_is_gone() {
    let mut node = Node::new(64, 64 << 10);
    let epoch = node.writer.connect(7).unwrap();
    let mut busy = 0;
    for i in 0..2000u32 {
        busy += u32::from(node.set(&i.to_be_bytes(), &[1; 100]) == Err(Refused::Busy));
        node.writer.tick();
    }
    assert!(busy > 500, "{busy}");
    // What is there stays: a gateway that is silent costs room for new items, not the old ones.
    let counts = node.writer.counts();
    assert!(counts.items > 200, "{counts:?}");
    let (slowest, waiting) = node.writer.slowest();
    assert!(slowest == Some((7, epoch)) && waiting > 0);
    node.writer.report(7, node.writer.epoch()).unwrap();
    assert!(node.set(b"a", &[1; 100]).is_ok());
    node.writer.disconnect(7);
    for i in 0..2000u32 {
        node.set(&i.to_be_bytes(), &[2; 100]).unwrap();
    }
    node.writer.arena.check();
}

#[test]
fn a_class_without_a_segment_gets_one_from_another() {
    let mut node = Node::new(128, 256 << 10);
    let mut i = 0u32;
    while node.writer.counts().evicted < 100 {
        i += 1;
        node.set(&i.to_be_bytes(), &[1; 100]).unwrap();
    }
    // Nothing but small cells; a large item has to wait for a segment.
    let large = vec![2; 128 * UNIT - UNIT - 5];
    let mut tries = 0;
    while node.set(b"large", &large).is_err() {
        tries += 1;
        assert!(tries < 200, "no segment became free");
        node.writer.tick();
    }
    assert!(node.look_up(b"large", 0).is_some());
    node.writer.arena.check();
}

#[test]
fn segments_follow_the_load() {
    let mut node = Node::new(256, 2 << 20);
    let write = |node: &mut Node, len: usize, rounds: u64| {
        for i in 0..rounds {
            // A write that finds no place is not repeated here.
            let _ = node.set(format!("{len}-{}", i % 4000).as_bytes(), &vec![1; len]);
            node.writer.tick();
        }
    };
    write(&mut node, 150, 10_000);
    write(&mut node, 900, 3);
    let class = node.writer.arena.class_of(16).unwrap();
    let before = node.writer.arena.segments_of(class);
    write(&mut node, 900, 20_000);
    let after = node.writer.arena.segments_of(class);
    assert!(after > before + node.geometry.segments() as usize / 2, "{before} then {after} segments");
    node.writer.arena.check();
}
