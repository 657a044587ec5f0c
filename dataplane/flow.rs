//! The flow table: which path a flow has taken, chosen once so that its order holds.
//!
//! Fixed capacity, no allocation after set-up. A flow has one place: a cache line of four entries found by its
//! signature. **When that line is full** the entry that was idle longest gives way if it is older than the idle time;
//! if none is, the flow gets no entry and its path follows from its signature alone, which keeps its order as long as
//! the set of living paths does not change. Ageing is lazy: nothing walks the table on the hot path.

/// Index of a path of this worker.
pub type PathIndex = u16;

/// Entries of one cache line.
const WAYS: usize = 4;

/// A flow's entry, 16 bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Signature; 0 marks a free entry.
    signature: u64,
    /// Last use, in milliseconds since the start (wraps after 49 days; compared in a circle).
    seen_ms: u32,
    path: PathIndex,
}

const FREE: Entry = Entry { signature: 0, seen_ms: 0, path: 0 };

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([Entry; WAYS]);

/// What a lookup found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The flow is known and goes this way.
    Known(PathIndex),
    /// The flow is new: `insert` would store it.
    New,
    /// The flow is new and its line is full of busy flows.
    Full,
}

/// Counters of a table; totals but for `live`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FlowStats {
    /// Entries in use, idle ones included until they give way.
    pub live: u64,
    /// Flows stored.
    pub inserted: u64,
    /// Idle flows that gave way to others.
    pub aged: u64,
    /// Lookups that found no place (a flow without an entry counts each time).
    pub full: u64,
    /// Flows moved to another path because theirs died.
    pub moved: u64,
}

/// A table of flows.
#[derive(Debug)]
pub struct FlowTable {
    lines: Box<[Line]>,
    mask: u64,
    idle_ms: u32,
    stats: FlowStats,
}

impl FlowTable {
    /// A table with at least `capacity` entries (rounded up to a power of two) whose flows may give way after
    /// `idle_ms` without a frame.
    pub fn new(capacity: usize, idle_ms: u32) -> Self {
        let lines = capacity.div_ceil(WAYS).next_power_of_two();
        let mask = lines as u64 - 1;
        FlowTable {
            lines: crate::huge::table(Line([FREE; WAYS]), lines),
            mask,
            idle_ms,
            stats: FlowStats::default(),
        }
    }

    /// Entries it holds at most.
    pub fn capacity(&self) -> usize {
        self.lines.len() * WAYS
    }

    /// Counters.
    pub fn stats(&self) -> FlowStats {
        self.stats
    }

    #[inline]
    fn line(&self, signature: u64) -> usize {
        // The low bits choose the path of flows without an entry; take others.
        ((signature >> 20) & self.mask) as usize
    }

    /// Asks the cache for the line of this flow ahead of its lookup.
    #[inline]
    pub fn prefetch(&self, signature: u64) {
        crate::prefetch::read(&self.lines[self.line(signature)]);
    }

    /// Finds a flow and marks it used.
    #[inline]
    pub fn lookup(&mut self, signature: u64, now_ms: u32) -> Lookup {
        let at = self.line(signature);
        let line = &mut self.lines[at].0;
        for e in line.iter_mut() {
            if e.signature == signature {
                e.seen_ms = now_ms;
                return Lookup::Known(e.path);
            }
        }
        let idle_ms = self.idle_ms;
        let free = |e: &Entry| e.signature == 0 || now_ms.wrapping_sub(e.seen_ms) > idle_ms;
        if line.iter().any(free) {
            Lookup::New
        } else {
            self.stats.full += 1;
            Lookup::Full
        }
    }

    /// Stores a flow that [`lookup`](Self::lookup) called new, over a free entry or the one idle longest. Without a
    /// place it does nothing.
    pub fn insert(&mut self, signature: u64, path: PathIndex, now_ms: u32) {
        let at = self.line(signature);
        let age = |e: &Entry| if e.signature == 0 { u32::MAX } else { now_ms.wrapping_sub(e.seen_ms) };
        let oldest = self.lines[at].0.iter_mut().max_by_key(|e| age(e)).expect("a line has entries");
        if age(oldest) <= self.idle_ms {
            return;
        }
        if oldest.signature == 0 {
            self.stats.live += 1;
        } else {
            self.stats.aged += 1;
        }
        self.stats.inserted += 1;
        *oldest = Entry { signature, seen_ms: now_ms, path };
    }

    /// Sends a known flow another way.
    pub fn reroute(&mut self, signature: u64, path: PathIndex) {
        let at = self.line(signature);
        if let Some(e) = self.lines[at].0.iter_mut().find(|e| e.signature == signature) {
            e.path = path;
            self.stats.moved += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn entries_and_lines_have_the_size_they_are_meant_to_have() {
        assert_eq!((size_of::<Entry>(), size_of::<Line>()), (16, 64));
        assert_eq!(FlowTable::new(65_536, 1).capacity(), 65_536);
        assert_eq!(FlowTable::new(5, 1).capacity(), 8);
    }

    #[test]
    fn a_flow_keeps_its_path() {
        let mut t = FlowTable::new(64, 1000);
        assert_eq!(t.lookup(7, 0), Lookup::New);
        t.insert(7, 3, 0);
        assert_eq!(t.lookup(7, 10), Lookup::Known(3));
        t.reroute(7, 1);
        assert_eq!(t.lookup(7, 10), Lookup::Known(1));
        assert_eq!(t.stats(), FlowStats { live: 1, inserted: 1, moved: 1, ..FlowStats::default() });
    }

    #[test]
    fn a_full_line_refuses_until_a_flow_is_idle() {
        let mut t = FlowTable::new(4, 1000);
        for s in 1..=4 {
            t.insert(s, s as u16, s as u32);
        }
        assert_eq!(t.lookup(5, 900), Lookup::Full);
        t.insert(5, 9, 900);
        assert_eq!(t.lookup(5, 900), Lookup::Full, "an insert without a place does nothing");
        assert_eq!(t.lookup(1, 1001), Lookup::Known(1), "the oldest is used again");
        assert_eq!(t.lookup(5, 1003), Lookup::New, "the second is idle now");
        t.insert(5, 9, 1003);
        assert_eq!(t.lookup(5, 1003), Lookup::Known(9));
        assert_eq!(t.lookup(2, 1003), Lookup::Full);
        assert_eq!(t.stats().aged, 1);
    }

    #[test]
    fn time_may_wrap() {
        let mut t = FlowTable::new(4, 1000);
        for s in 1..=4 {
            t.insert(s, 0, u32::MAX - 10);
        }
        assert_eq!(t.lookup(5, 20), Lookup::Full);
        assert_eq!(t.lookup(5, 1000), Lookup::New);
    }

    /// The signature of flow `i`.
    fn signature(i: u32) -> u64 {
        let frame = [&i.to_be_bytes()[..], &[0; 10]].concat();
        crate::classify::Classifier::new(9).classify(&frame).signature
    }

    #[test]
    fn a_growing_crowd_finds_no_more_places_than_there_are() {
        const FLOWS: u32 = 65_536;
        let mut t = FlowTable::new(FLOWS as usize, 1000);
        let mut full = [0; 4];
        for i in 0..2 * FLOWS {
            match t.lookup(signature(i), i / 1000) {
                Lookup::New => t.insert(signature(i), (i % 7) as u16, i / 1000),
                Lookup::Full => full[(i / (FLOWS / 2)) as usize] += 1,
                Lookup::Known(_) => panic!("flow {i} was never here"),
            }
        }
        let FlowStats { live, inserted, aged, full: all, moved } = t.stats();
        assert_eq!((t.capacity(), live, aged, moved), (FLOWS as usize, inserted, 0, 0));
        assert_eq!((live + all, all), (2 * u64::from(FLOWS), full.iter().sum::<u64>()));
        assert!(live <= u64::from(FLOWS));
        // A place is one of four: half full, nearly all flows have one; full, four in five.
        assert!(full[0] < u64::from(FLOWS) / 2 / 20, "{full:?}");
        assert!(full[0] + full[1] < u64::from(FLOWS) / 4, "{full:?}");
        // An hour later all of them have gone idle, and the others find a place.
        let later = 3_600_000;
        for i in 0..FLOWS / 2 {
            assert_eq!(t.lookup(signature(i + 3 * FLOWS), later), Lookup::New);
        }
        assert_eq!(t.stats().full, all);
    }

    proptest! {
        /// Against a list of flows: who is in the table and busy keeps its path, and nobody gets another's.
        #[test]
        fn busy_flows_keep_their_path(
            capacity in 4usize..64,
            steps in prop::collection::vec((0u32..100, 0u32..400, 0u16..9), 1..400),
        ) {
            const IDLE_MS: u32 = 1000;
            let mut t = FlowTable::new(capacity, IDLE_MS);
            let mut known: HashMap<u64, (PathIndex, u32)> = HashMap::new();
            let mut now = u32::MAX - 5000;
            for (flow, wait, path) in steps {
                now = now.wrapping_add(wait);
                let s = signature(flow);
                let busy = known.get(&s).filter(|k| now.wrapping_sub(k.1) <= IDLE_MS).copied();
                match t.lookup(s, now) {
                    Lookup::Known(got) => {
                        prop_assert_eq!(Some(got), known.get(&s).map(|k| k.0));
                        if path == 8 {
                            t.reroute(s, path);
                        }
                        known.insert(s, (if path == 8 { path } else { got }, now));
                    }
                    Lookup::New => {
                        prop_assert!(busy.is_none(), "a busy flow was forgotten");
                        t.insert(s, path, now);
                        known.insert(s, (path, now));
                    }
                    Lookup::Full => {
                        prop_assert!(busy.is_none(), "a busy flow was forgotten");
                        known.remove(&s);
                    }
                }
                let stats = t.stats();
                prop_assert!(stats.live <= t.capacity() as u64);
                prop_assert_eq!(stats.inserted, stats.live + stats.aged);
            }
        }
    }
}
