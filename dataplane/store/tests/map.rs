//! Random operations against a map.

use super::*;
use crate::store::Counts;
use proptest::prelude::*;
use rdma_engine::sim::rng::Rng;
use std::collections::HashMap;

struct Expected {
    value: Vec<u8>,
    flags: u32,
    cas: u64,
    expires_ms: u64,
}

struct Pair {
    node: Node,
    map: HashMap<Vec<u8>, Expected>,
    rng: Rng,
    now_ms: u64,
}

impl Pair {
    fn new(seed: u64, segment_units: u32, bytes: u64) -> Self {
        Pair { node: Node::new(segment_units, bytes), map: HashMap::new(), rng: Rng::new(seed), now_ms: 1000 }
    }

    fn value(&mut self, most: u64) -> Vec<u8> {
        let len = self.rng.below(most + 1);
        let first = self.rng.bits();
        (0..len).map(|i| (first.wrapping_add(i * 7)) as u8).collect()
    }

    fn step(&mut self, keys: u64, most: u64) {
        let number = self.rng.below(keys);
        let key = format!("{number}{}", "k".repeat((number % 240) as usize)).into_bytes();
        self.now_ms += self.rng.below(3);
        match self.rng.below(20) {
            0..9 => self.set(key, most),
            9..11 => {
                let there = self.node.writer.delete(&key, self.now_ms);
                let known = self.map.remove(&key).is_some_and(|e| e.expires_ms > self.now_ms);
                assert_eq!(there, known);
            }
            11..13 => {
                let expires_ms = self.now_ms + self.rng.below(50);
                let touched = self.node.writer.touch(&key, Life { expires_ms, marks: 3 }, self.now_ms);
                let known = self.map.get_mut(&key).filter(|e| e.expires_ms > self.now_ms);
                assert_eq!(touched.is_some(), known.is_some());
                if let Some(e) = known {
                    e.expires_ms = expires_ms;
                }
            }
            13 if self.rng.below(200) == 0 => {
                let mut sweep = self.node.writer.begin_flush();
                while !self.node.writer.flush(&mut sweep, 100) {}
                self.map.clear();
                assert_eq!(self.node.writer.counts().items, 0);
            }
            _ => self.compare(&key),
        }
    }

    fn set(&mut self, key: Vec<u8>, most: u64) {
        let value = self.value(most);
        let (flags, cut) = (self.rng.bits() as u32, self.rng.below(value.len() as u64 + 1) as usize);
        let expires_ms = if self.rng.below(4) == 0 { self.now_ms + self.rng.below(100) } else { NEVER };
        let cas = (self.rng.below(5) == 0).then(|| self.rng.bits());
        let pieces = [&value[..cut], &value[cut..]];
        let life = Life { expires_ms, marks: 0 };
        let write = Write { key: &key, value: &pieces, flags, life, cas, written_s: 0 };
        let item = self.node.writer.set(&write, self.now_ms).unwrap();
        assert!(cas.is_none_or(|c| c == item.cas));
        self.map.insert(key, Expected { value, flags, cas: item.cas, expires_ms });
    }

    /// Both ways of a GET say what the map says.
    fn compare(&mut self, key: &[u8]) {
        let by_read = self.node.look_up(key, self.now_ms);
        let item = self.node.writer.find(key, self.now_ms);
        let Some(e) = self.map.get(key).filter(|e| e.expires_ms > self.now_ms) else {
            assert!(by_read.is_none() && item.is_none(), "{by_read:?} {item:?}");
            return;
        };
        let (found, bytes) = by_read.expect("the map has it");
        let item = item.expect("the map has it");
        assert_eq!((&bytes, found.flags, found.cas), (&e.value, e.flags, e.cas));
        assert_eq!((item.flags, item.cas, item.life.expires_ms), (e.flags, e.cas, e.expires_ms));
        assert_eq!(item.location, found.location);
        let from = item.value_len / 3;
        let mut out = vec![0; item.value_len];
        assert_eq!(self.node.writer.read(&item, from, &mut out), e.value.len() - from);
        assert_eq!(out[..e.value.len() - from], e.value[from..]);
    }

    fn finish(&mut self) -> Counts {
        let keys: Vec<_> = self.map.keys().cloned().collect();
        keys.iter().for_each(|k| self.compare(k));
        self.node.writer.arena.check();
        let mut sweep = self.node.writer.begin_flush();
        self.node.writer.expire(&mut sweep, u32::MAX, self.now_ms);
        self.map.retain(|_, e| e.expires_ms > self.now_ms);
        let counts = self.node.writer.counts();
        let bytes: usize = self.map.iter().map(|(k, e)| k.len() + e.value.len()).sum();
        assert_eq!((counts.items, counts.bytes), (self.map.len() as u64, bytes as u64));
        assert_eq!(counts.evicted + counts.evicted_from_bucket + counts.busy, 0);
        counts
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    /// With room for everything nothing is ever lost.
    #[test]
    fn does_as_a_map_does(seed: u64) {
        let mut pair = Pair::new(seed, 128, 4 << 20);
        (0..1000).for_each(|_| pair.step(200, 2000));
        let counts = pair.finish();
        prop_assert!(counts.written > 300 && counts.expired > 10);
    }
}

#[test]
fn items_of_all_sizes_up_to_a_mib() {
    let mut pair = Pair::new(11, super::super::geometry::SEGMENT_UNITS, 64 << 20);
    for len in [0, 1, 63, 64, 65, 4096, 65_536, 524_288, (1 << 20) - 1, 1 << 20] {
        let value: Vec<u8> = (0..len).map(|i| ((i * 31) >> 3) as u8).collect();
        let key = format!("{len}").into_bytes();
        let item = pair.node.set(&key, &value).unwrap();
        pair.map.insert(key, Expected { value, flags: 0, cas: item.cas, expires_ms: NEVER });
    }
    pair.finish();
    let most = vec![1; 1 << 20];
    assert!(pair.node.set(&[b'k'; 250], &most).is_ok());
    assert_eq!(pair.node.look_up(&[b'k'; 250], 0).map(|(_, v)| v.len()), Some(1 << 20));
    assert_eq!(pair.node.set(&[b'k'; 251], b"").err(), Some(Refused::Size));
    assert_eq!(pair.node.set(b"", b"").err(), Some(Refused::Size));
    assert_eq!(pair.node.set(b"k", &vec![1; (1 << 20) + 1]).err(), Some(Refused::Size));
}

#[test]
fn with_too_little_room_keys_are_lost_but_never_mixed_up() {
    let mut rng = Rng::new(5);
    let mut node = Node::new(64, 96 * 1024);
    let mut map: HashMap<u64, u64> = HashMap::new();
    let (mut hits, mut gets) = (0, 0);
    for version in 0..8_000u64 {
        let number = rng.below(400);
        let key = number.to_be_bytes();
        if rng.below(2) == 0 {
            let value = version.to_be_bytes().repeat(rng.within(1, 60) as usize);
            node.set(&key, &value).unwrap();
            map.insert(number, version);
        } else {
            gets += 1;
            let read = node.look_up(&key, 0);
            assert_eq!(read.is_some(), node.writer.find(&key, 0).is_some());
            if let Some((_, value)) = read {
                hits += 1;
                assert!(value.chunks(8).all(|v| v == map[&number].to_be_bytes()));
            }
        }
        if version % 16 == 0 {
            node.writer.tick();
        }
        if version % 1000 == 0 {
            node.writer.arena.check();
        }
    }
    let counts = node.writer.counts();
    assert!(counts.evicted > 200 && hits * 10 > gets, "{hits} of {gets}, {counts:?}");
}

#[test]
fn keys_that_share_tag_and_bucket_are_told_apart() {
    // Two buckets: every key meets every other one.
    let mut node = Node::new(8, 6 << 10);
    assert!(node.geometry.buckets() <= 6, "{}", node.geometry.buckets());
    let keys: Vec<[u8; 4]> = (0..500_000u32).map(u32::to_be_bytes).collect();
    let tag = |k: &[u8; 4]| node.geometry.probe(&node.secrets, k).tag;
    let same: Vec<&[u8; 4]> = keys.iter().filter(|k| tag(k) == 77).take(3).collect();
    for key in &same {
        node.set(*key, &key.repeat(2)).unwrap();
    }
    for key in &same {
        assert_eq!(node.look_up(*key, 0).unwrap().1, key.repeat(2));
    }
    assert!(node.writer.delete(same[1], 0));
    assert!(node.look_up(same[1], 0).is_none() && node.look_up(same[2], 0).is_some());
}

#[test]
fn full_buckets_give_up_their_oldest() {
    let mut node = Node::new(64, 64 << 10);
    let slots = node.geometry.slots();
    for i in 0..4 * slots {
        node.set(&i.to_be_bytes(), b"").unwrap();
        assert!(node.look_up(&i.to_be_bytes(), 0).is_some());
    }
    let counts = node.writer.counts();
    assert!(counts.evicted_from_bucket > 0 && counts.items <= slots, "{counts:?}");
    node.writer.arena.check();
}

#[test]
fn a_new_start_serves_nothing_old() {
    let mut node = Node::new(64, 64 << 10);
    let item = node.set(b"key", b"value").unwrap();
    let slot = Slot { tag: 0, units: item.location.units, place: item.location.place };
    assert!(matches!(node.judge(b"key", slot, 0).0, Verdict::Found(_)));
    node.secrets = Secrets::new([9, 9, 9, 9]);
    node.writer = Writer::new(node.window, node.geometry, 0, node.secrets, 6, 3).unwrap();
    assert!(node.look_up(b"key", 0).is_none() && node.writer.find(b"key", 0).is_none());
    // It is still there, but nobody believes it.
    assert_eq!(node.judge(b"key", slot, 0).0, Verdict::Torn);
    assert_ne!(node.set(b"other", b"").unwrap().cas, item.cas);
    assert_eq!(
        node.window.word(node.geometry.partition_offset(0)).load(std::sync::atomic::Ordering::Relaxed),
        3
    );
    assert!(Writer::new(node.window.sub(0, 64).unwrap(), node.geometry, 0, node.secrets, 6, 3).is_err());
}

#[test]
fn a_new_membership_takes_foreign_keys() {
    let mut node = Node::new(64, 256 << 10);
    for i in 0..200u8 {
        node.set(&[i, 1], &[i]).unwrap();
    }
    let mut sweep = node.writer.begin_join(4).unwrap();
    assert_eq!(node.writer.generation(), 4);
    while !node.writer.drop_foreign(&mut sweep, 3, |k| k[0] % 3 == 0) {}
    for i in 0..200u8 {
        assert_eq!(node.look_up(&[i, 1], 0).is_some(), i % 3 == 0);
    }
    assert!(node.writer.begin_join(4).is_none() && node.writer.begin_join(3).is_none());
}

#[test]
fn a_flush_spares_what_came_after_it_began() {
    let mut node = Node::new(64, 256 << 10);
    for i in 0..100u8 {
        node.set(&[i], b"old").unwrap();
    }
    let mut sweep = node.writer.begin_flush();
    assert!(!node.writer.flush(&mut sweep, 1));
    assert!((0..50u8).all(|i| node.set(&[i], b"new").is_ok()));
    while !node.writer.flush(&mut sweep, 7) {}
    for i in 0..100u8 {
        assert_eq!(node.look_up(&[i], 0).is_some(), i < 50);
    }
}
