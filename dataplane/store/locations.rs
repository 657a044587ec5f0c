//! A gateway worker's memory of where items are, and what it tells nodes of their use.
//!
//! A set-associative table of fixed size: a hash leads to a set of four entries. What it says is only a guess: the item that
//! is read is checked against the key. It counts hits, and keeps their places for the node, which otherwise learns nothing of
//! GETs: each at most once a period, since the node only wants to know what is still used. Of hits picked at random instead, one
//! in two costs 1.4 points of the hit ratio on a Zipf trace, one in eight 2.6.

use super::layout::Location;
use arrayvec::ArrayVec;

/// Entries of a set: together two cache lines.
const WAYS: usize = 4;
/// Places told in one message.
pub const BATCH: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u64,
    seq: u64,
    /// 33 bits of place, 15 of units.
    at: u64,
    node: u16,
    /// In which period it was told or stored.
    period: u16,
    /// Uses that a newcomer has to outlast; 0 for an empty entry as well.
    uses: u8,
    used: bool,
}

const EMPTY: Entry = Entry { hash: 0, seq: 0, at: 0, node: 0, period: 0, uses: 0, used: false };
const _: () = assert!(size_of::<Entry>() * WAYS <= 128);

/// What was asked and answered.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LocationCounts {
    /// Keys that were looked for.
    pub asked: u64,
    /// Of these, found.
    pub hits: u64,
    /// Entries that had to go for others.
    pub replaced: u64,
    /// Uses not told because their batch was full.
    pub untold: u64,
}

/// Places of a node's items that were used.
pub type Batch = ArrayVec<u64, BATCH>;

/// Locations by key hash.
#[derive(Debug)]
pub struct Locations {
    entries: Box<[Entry]>,
    period: u16,
    period_hits: u64,
    period_len: u64,
    batches: Box<[Batch]>,
    counts: LocationCounts,
}

impl Locations {
    /// For up to `capacity` locations (rounded up to whole sets), of nodes numbered below `nodes`, with a new period after
    /// every `period` items found or stored. An eighth of the items that the nodes hold is a good one: a longer period and
    /// they take items for unused that are not, a shorter one and they are told more than they need.
    pub fn new(capacity: usize, nodes: u16, period: u64) -> Self {
        let sets = capacity.div_ceil(WAYS).max(1);
        Locations {
            entries: crate::huge::table(EMPTY, sets * WAYS),
            period: 1,
            period_hits: 0,
            period_len: period.max(1),
            batches: vec![Batch::new(); usize::from(nodes)].into(),
            counts: LocationCounts::default(),
        }
    }

    /// A new period after so many items found or stored from now on.
    pub fn set_period(&mut self, period: u64) {
        self.period_len = period.max(1);
    }

    /// It will be asked soon where that key was seen.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let set = &self.entries[self.set(hash)];
        if let [first, .., last] = set {
            crate::prefetch::read(first);
            crate::prefetch::read(last);
        }
    }

    /// Where the key with this hash was last seen: node and location.
    #[inline]
    pub fn find(&mut self, hash: u64) -> Option<(u16, Location)> {
        self.counts.asked += 1;
        let range = self.set(hash);
        let found = self.entries[range].iter_mut().find(|e| e.used && e.hash == hash)?;
        found.uses = found.uses.saturating_add(1);
        self.counts.hits += 1;
        Some((found.node, found.location()))
    }

    /// Where the key was stored after the item with this sequence, if that is known.
    #[inline]
    pub fn newer(&self, hash: u64, node: u16, seq: u64) -> Option<Location> {
        let found = self.entries[self.set(hash)].iter().find(|e| e.used && e.hash == hash)?;
        (found.node == node && found.seq > seq).then(|| found.location())
    }

    /// An item was found there: remembers it, unless a later one of the key is known, and what is to be told of its use.
    pub fn found(&mut self, hash: u64, node: u16, location: Location) {
        let period = self.period_now();
        let at = self.entry_for(hash);
        let known = &mut self.entries[at];
        let is_known = known.used && known.hash == hash;
        if is_known && known.node == node && known.seq > location.seq {
            return;
        }
        let first = !is_known || known.period != period;
        let uses = if is_known { known.uses } else { 0 };
        *known = Entry::new(hash, node, location, period, uses);
        if first {
            let batch = self.batches.get_mut(usize::from(node));
            if batch.is_none_or(|b| b.try_push(location.place).is_err()) {
                self.counts.untold += 1;
            }
        }
    }

    /// A mutation was answered with the new item's location: the node knows that it is in use.
    pub fn stored(&mut self, hash: u64, node: u16, location: Location) {
        let period = self.period_now();
        let at = self.entry_for(hash);
        self.entries[at] = Entry::new(hash, node, location, period, 0);
    }

    /// Forgets a key: it was deleted, or is not where it was thought to be.
    pub fn forget(&mut self, hash: u64) {
        let range = self.set(hash);
        if let Some(entry) = self.entries[range].iter_mut().find(|e| e.used && e.hash == hash) {
            *entry = EMPTY;
        }
    }

    /// Forgets everything of a node: it has another epoch.
    pub fn forget_node(&mut self, node: u16) {
        self.entries.iter_mut().filter(|e| e.node == node).for_each(|e| *e = EMPTY);
        if let Some(batch) = self.batches.get_mut(usize::from(node)) {
            batch.clear();
        }
    }

    /// Forgets everything: the membership has changed.
    pub fn clear(&mut self) {
        self.entries.fill(EMPTY);
        self.batches.iter_mut().for_each(Batch::clear);
    }

    /// What a node is to be told next; the caller sends and clears it.
    pub fn batch(&mut self, node: u16) -> Option<&mut Batch> {
        self.batches.get_mut(usize::from(node))
    }

    /// What was asked and answered.
    pub fn counts(&self) -> LocationCounts {
        self.counts
    }

    fn set(&self, hash: u64) -> std::ops::Range<usize> {
        let sets = self.entries.len() / WAYS;
        // Other bits than those of partition and buckets would be no better: a set is no bucket.
        let set = ((u128::from(hash.wrapping_mul(0x9E37_79B9_7F4A_7C15)) * sets as u128) >> 64) as usize;
        set * WAYS..(set + 1) * WAYS
    }

    /// The key's entry, or an empty one, or the least used, whose rivals then count for less.
    fn entry_for(&mut self, hash: u64) -> usize {
        let range = self.set(hash);
        let (begin, set) = (range.start, &mut self.entries[range]);
        if let Some(i) = set.iter().position(|e| e.used && e.hash == hash) {
            return begin + i;
        }
        if let Some(i) = set.iter().position(|e| !e.used) {
            return begin + i;
        }
        self.counts.replaced += 1;
        let least = (0..WAYS).min_by_key(|i| set[*i].uses).unwrap_or(0);
        set.iter_mut().for_each(|e| e.uses /= 2);
        begin + least
    }

    fn period_now(&mut self) -> u16 {
        self.period_hits += 1;
        if self.period_hits >= self.period_len {
            self.period_hits = 0;
            self.period = self.period.wrapping_add(1);
        }
        self.period
    }
}

impl Entry {
    fn new(hash: u64, node: u16, l: Location, period: u16, uses: u8) -> Self {
        Entry { hash, seq: l.seq, at: l.place << 15 | u64::from(l.units), node, period, uses, used: true }
    }

    fn location(&self) -> Location {
        Location { place: self.at >> 15, units: (self.at & 0x7fff) as u32, seq: self.seq }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(place: u64) -> Location {
        Location { place, units: 3, seq: place + 100 }
    }

    #[test]
    fn what_was_found_is_remembered_and_forgotten() {
        let mut l = Locations::new(1000, 3, 100);
        for i in 0..100u64 {
            l.found(i << 40 | i, (i % 3) as u16, at(i));
        }
        let known = (0..100u64).filter(|i| l.find(i << 40 | i) == Some(((i % 3) as u16, at(*i)))).count();
        assert!(known > 95, "{known}");
        l.forget(7 << 40 | 7);
        assert_eq!(l.find(7 << 40 | 7), None);
        l.forget_node(1);
        assert!((0..100u64).all(|i| l.find(i << 40 | i).is_none_or(|(node, _)| node != 1)));
        l.clear();
        assert!((0..100u64).all(|i| l.find(i << 40 | i).is_none()));
        assert_eq!(l.counts().asked, 301);
    }

    #[test]
    fn extreme_locations_come_back() {
        let mut l = Locations::new(4, 1, 100);
        let far = Location { place: (1 << 33) - 1, units: (1 << 15) - 1, seq: u64::MAX };
        l.stored(u64::MAX, 0, far);
        assert_eq!(l.find(u64::MAX), Some((0, far)));
        assert!(l.batch(0).unwrap().is_empty(), "a store is no use to tell of");
    }

    #[test]
    fn the_table_keeps_what_is_used_most() {
        let mut l = Locations::new(64, 1, 100);
        l.found(1, 0, at(1));
        for i in 0..10_000u64 {
            l.found(i.wrapping_mul(0xD6E8_FEB8_6659_FD93), 0, at(i));
            for _ in 0..4 {
                assert!(l.find(1).is_some(), "lost after {i}");
            }
        }
        assert!(l.counts().replaced > 9_000);
    }

    #[test]
    fn a_location_is_told_at_most_once_a_period_and_batches_are_bounded() {
        let mut l = Locations::new(4096, 1, 4096);
        (0..1000).for_each(|_| l.found(5, 0, at(5)));
        assert_eq!(l.batch(0).unwrap().len(), 1);
        (0..1000u64).for_each(|i| l.found(i << 32, 0, at(i)));
        assert_eq!(l.batch(0).unwrap().len(), BATCH);
        assert!(l.counts().untold > 900);
        l.found(5, 9, at(5));
        assert!(l.batch(9).is_none(), "a node that does not exist");
    }
}
