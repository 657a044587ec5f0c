//! Making room: places ahead of demand, and segments from classes that need them less.
//!
//! A place that was evicted cannot be used before gateways have reported, so a class keeps some free or on their way there.
//! Segments go to whoever asks first; when all have gone, a class evicts its own. A segment changes hands when a class has
//! none, or when what it evicts is much younger than what another one keeps: the other's segment is drained.

use super::writer::Writer;

/// Of a class's cells one in so many is kept free or waiting.
const RESERVE: u32 = 64;
/// At most this many.
const MOST_RESERVE: u32 = 1024;
/// Evictions for one write at most.
const EVICTIONS: usize = 2;
/// Classes above its own that an item may borrow a place of, while its own has no segment.
const BORROW: usize = 8;
/// A class gets its first segment when it has filled one of so many parts of it, elsewhere.
const WORTH: u32 = 4;
/// Evicted from a segment that is drained, in one tick.
const DRAIN: usize = 16;
/// Places freed for one write, and in one tick.
const RECLAIM: usize = 8;
const RECLAIM_TICK: usize = 256;
/// Ticks between two looks at the balance of classes.
const BALANCE_TICKS: u32 = 64;

/// What making room remembers.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// A class that wants a segment and has none.
    starved: Option<usize>,
    /// The segment being drained.
    draining: Option<u32>,
    /// By class units that were wanted, as long as it has no segment; halved whenever the arena has been written once.
    demand: Vec<u32>,
    /// Units written since.
    written: u64,
    /// By class the age of what it evicted last, since the last look.
    evicted: Vec<Option<u32>>,
    ticks: u32,
}

impl Room {
    pub(super) fn new(classes: usize) -> Self {
        let (demand, evicted) = (vec![0; classes], vec![None; classes]);
        Room { starved: None, draining: None, demand, written: 0, evicted, ticks: 0 }
    }
}

impl Writer {
    /// A place for an item of this class, or of a larger one while this has no segment.
    pub(super) fn make_room(&mut self, class: usize) -> Option<u64> {
        self.reclaim(RECLAIM);
        let class = self.home(class)?;
        self.keep_reserve(class);
        let stamp = self.ageing.stamp();
        self.arena.take(class, stamp).or_else(|| {
            self.reclaim(RECLAIM_TICK);
            self.arena.take(class, stamp)
        })
    }

    /// The class to take a place of. Few items of a size are not worth a segment, so they borrow.
    fn home(&mut self, class: usize) -> Option<usize> {
        let units = self.geometry.segment_units();
        self.room.written += u64::from(self.arena.size(class));
        if self.room.written >= u64::from(units) * u64::from(self.geometry.segments()) {
            self.room.written = 0;
            self.room.demand.iter_mut().for_each(|d| *d /= 2);
        }
        if self.arena.segments_of(class) > 0 {
            self.room.demand[class] = 0;
            return Some(class);
        }
        self.room.demand[class] = self.room.demand[class].saturating_add(self.arena.size(class));
        let last = (class + BORROW).min(self.arena.classes() - 1);
        let lender = (class + 1..=last).find(|c| self.arena.segments_of(*c) > 0);
        if lender.is_some() && self.room.demand[class] < units / WORTH {
            return lender;
        }
        if self.arena.spare() > 0 {
            return Some(class);
        }
        self.room.starved.get_or_insert(class);
        lender
    }

    /// Work that no request waits for, bounded; to be called now and then.
    pub fn tick(&mut self) {
        self.reclaim(RECLAIM_TICK);
        match self.room.draining {
            Some(segment) => self.drain(segment),
            None => self.balance(),
        }
    }

    fn reclaim(&mut self, most: usize) {
        self.arena.reclaim(self.epochs.least(), self.epochs.now(), most);
    }

    fn keep_reserve(&mut self, class: usize) {
        let cells = self.arena.cells_of(class);
        let reserve = (cells / RESERVE).clamp(1, MOST_RESERVE);
        for _ in 0..EVICTIONS {
            if self.arena.spare() > 0 || cells - self.arena.live_of(class) >= reserve {
                return;
            }
            let Some((place, age)) = self.ageing.victim(&self.arena, class) else { return };
            self.room.evicted[class] = Some(age);
            self.evict(place);
        }
        self.reclaim(EVICTIONS);
    }

    fn drain(&mut self, segment: u32) {
        let mut from = 0;
        for _ in 0..DRAIN {
            let Some((n, place)) = self.arena.item_in(segment, from) else {
                // What is left of it waits for its epoch, and then the segment is free.
                self.room.draining = None;
                return;
            };
            from = n + 1;
            self.evict(place);
        }
    }

    /// Finds a segment that would be of more use to another class.
    fn balance(&mut self) {
        let starved = self.room.starved.take().filter(|c| self.arena.segments_of(*c) == 0);
        self.room.ticks += 1;
        let due = self.room.ticks.is_multiple_of(BALANCE_TICKS);
        if self.arena.spare() > 0 || (starved.is_none() && !due) {
            return;
        }
        let pressed =
            (0..self.arena.classes()).filter_map(|c| self.room.evicted[c].map(|age| (age, c))).min();
        if due {
            self.room.evicted.fill(None);
        }
        let wanted = starved.map(|c| (0, c)).or(pressed);
        let Some((age, class)) = wanted else { return };
        let enough = if starved.is_some() { 1 } else { 2 };
        let mut donor = None;
        for other in (0..self.arena.classes()).filter(|c| *c != class) {
            if self.arena.segments_of(other) < enough {
                continue;
            }
            let oldest = self.ageing.victim(&self.arena, other).map_or(u32::MAX, |(_, age)| age);
            if donor.is_none_or(|(a, _)| oldest > a) {
                donor = Some((oldest, other));
            }
        }
        let Some((oldest, other)) = donor else { return };
        if starved.is_some() || oldest / 2 > age {
            let random = self.ageing.random();
            self.room.draining = self.arena.drain(other, random);
        }
    }
}
