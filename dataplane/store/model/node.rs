//! A memory node: one writer that carries out requests, one store after the other, while READs look on.

use super::history::{Event, Kind};
use super::memory::{
    BUCKETS, Header, Memory, SEGMENT, SLOTS, Slot, UNITS, Unit, Version, buckets_of, tag_of,
};
use super::{CLOCK_BOUND, GATEWAYS, Key, Rules, owner};
use std::collections::{BTreeMap, VecDeque};

/// Where an item is, as gateways remember it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Location {
    pub(super) place: usize,
    pub(super) units: usize,
    pub(super) seq: u32,
}

/// What a gateway asks for.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Set {
        key: Key,
        version: Version,
        units: usize,
        ttl: Option<u64>,
        disguise: Option<Header>,
    },
    Delete(Key),
    Get(Key),
    Flush,
    /// A new membership.
    Join(u32, Vec<usize>),
    /// Every lookup of this gateway began in this epoch or later.
    Report(u32),
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) gateway: usize,
    pub(super) ticket: u64,
    pub(super) generation: u32,
    pub(super) ask: Ask,
}

#[derive(Clone, Debug)]
pub(super) enum Answer {
    Stored(Location),
    Done,
    Value(Option<(Version, Location)>),
    NoRoom,
    /// The node serves this membership.
    Generation(u32),
}

/// One visible step of a request.
#[derive(Clone, Debug)]
enum Store {
    Unit(usize, Unit),
    Dead(usize),
    Slot(usize, usize, Option<Slot>),
    Generation(u32),
    Retire {
        place: usize,
        units: usize,
    },
    /// The removal with this number in the history is over.
    Removed(usize),
    /// The expiry with this number has a value to end.
    Born(usize),
    Answer(usize, u64, Answer),
}

#[derive(Clone, Copy, Debug)]
struct Item {
    version: Version,
    location: Location,
    bucket: usize,
    slot: usize,
    expires: Option<u64>,
}

#[derive(Debug)]
struct Retired {
    place: usize,
    units: usize,
    epoch: u32,
}

/// What leaves a node: who it is for, which request it answers, and the node's epoch.
pub(super) type Reply = (usize, u64, Answer, u32);

#[derive(Debug)]
pub(super) struct Node {
    number: usize,
    rules: Rules,
    pub(super) memory: Memory,
    /// Counts restarts: keys of earlier ones open nothing.
    pub(super) incarnation: u32,
    pub(super) down_until: u64,
    /// Counts places that were retired.
    pub(super) epoch: u32,
    /// By gateway the oldest epoch in which a lookup of it may have begun.
    pub(super) reported: [u32; GATEWAYS],
    pub(super) inbox: VecDeque<Request>,
    items: BTreeMap<Key, Item>,
    retired: Vec<Retired>,
    program: VecDeque<Store>,
    seq: u32,
    /// Kept through a restart.
    members: Vec<usize>,
    /// Kept through a restart.
    generation: u32,
    /// Its clock is this far ahead of true time.
    pub(super) clock: u64,
    turn: usize,
}

impl Node {
    pub(super) fn new(number: usize, rules: Rules, members: Vec<usize>, clock: u64) -> Self {
        Node {
            number,
            rules,
            memory: Memory::new(0),
            incarnation: 0,
            down_until: 0,
            epoch: 1,
            reported: [1; GATEWAYS],
            inbox: VecDeque::new(),
            items: BTreeMap::new(),
            retired: Vec::new(),
            program: VecDeque::new(),
            seq: 0,
            members,
            generation: 0,
            clock,
            turn: 0,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.program.is_empty() && self.inbox.is_empty()
    }

    /// One store of the request under way, or the beginning of the next one.
    pub(super) fn step(&mut self, now: u64, history: &mut Vec<Event>) -> Option<Reply> {
        match self.program.pop_front() {
            Some(store) => self.carry_out(store, now, history),
            None => {
                let request = self.inbox.pop_front()?;
                self.begin(request, now, history);
                None
            }
        }
    }

    fn carry_out(&mut self, store: Store, now: u64, history: &mut [Event]) -> Option<Reply> {
        match store {
            Store::Unit(at, unit) => self.memory.data[at] = unit,
            Store::Dead(at) => {
                if let Unit::Head(h) = &mut self.memory.data[at] {
                    h.live = false;
                }
            }
            Store::Slot(bucket, slot, entry) => self.memory.buckets[bucket][slot] = entry,
            Store::Generation(generation) => self.memory.generation = generation,
            Store::Retire { place, units } => {
                self.retired.push(Retired { place, units, epoch: self.epoch });
                self.epoch += 1;
            }
            Store::Removed(event) => history[event].ended = Some(now),
            Store::Born(event) => {
                history[event].ended = Some((history[event].began + CLOCK_BOUND).max(now) + CLOCK_BOUND);
            }
            Store::Answer(gateway, ticket, answer) => return Some((gateway, ticket, answer, self.epoch)),
        }
        None
    }

    fn begin(&mut self, request: Request, now: u64, history: &mut Vec<Event>) {
        let Request { gateway, ticket, generation, ask } = request;
        let old = self.rules.membership() && generation < self.generation;
        let answer = match ask {
            Ask::Report(epoch) => {
                self.reported[gateway] = self.reported[gateway].max(epoch);
                return;
            }
            Ask::Join(generation, members) => self.join(generation, members, now, history),
            _ if old => Answer::Generation(self.generation),
            Ask::Set { key, version, units, ttl, disguise } => {
                self.set(key, version, units, ttl, disguise, now, history)
            }
            Ask::Delete(key) => {
                self.remove(key);
                Answer::Done
            }
            Ask::Get(key) => Answer::Value(self.get(key, now)),
            Ask::Flush => {
                self.flush();
                Answer::Done
            }
        };
        self.program.push_back(Store::Answer(gateway, ticket, answer));
    }

    fn get(&self, key: Key, now: u64) -> Option<(Version, Location)> {
        let item = self.items.get(&key)?;
        let expired = item.expires.is_some_and(|e| now + self.clock >= e);
        (!expired).then_some((item.version, item.location))
    }

    #[allow(clippy::too_many_arguments)]
    fn set(
        &mut self,
        key: Key,
        version: Version,
        units: usize,
        ttl: Option<u64>,
        disguise: Option<Header>,
        now: u64,
        history: &mut Vec<Event>,
    ) -> Answer {
        let Some(place) = self.find_place(units) else {
            // It is free when no lookup can see it any more; this request does not wait for that.
            self.evict_any(now, history);
            return Answer::NoRoom;
        };
        let old = self.items.get(&key).copied();
        let (bucket, slot) = match old {
            Some(item) => (item.bucket, item.slot),
            None => self.find_slot(key, now, history),
        };
        self.seq += 1;
        let expires = ttl.map(|ttl| now + self.clock + ttl);
        let location = Location { place, units, seq: self.seq };
        let head = Header { key, seq: self.seq, place, units, version, live: true, expires, sealed: true };
        let disguise = disguise.map(|h| Header { sealed: false, ..h });
        for i in 1..units {
            self.program.push_back(Store::Unit(place + i, Unit::Body { version, disguise }));
        }
        self.program.push_back(Store::Unit(place, Unit::Head(head)));
        let publish = Store::Slot(bucket, slot, Some(Slot { tag: tag_of(key), place, units }));
        let dead = old.map(|item| Store::Dead(item.location.place));
        if self.rules.dead_before_published() {
            self.program.extend(dead);
            self.program.push_back(publish);
        } else {
            self.program.push_back(publish);
            self.program.extend(dead);
        }
        if let Some(ttl) = ttl {
            let began = (now + ttl).saturating_sub(CLOCK_BOUND);
            history.push(Event { key, kind: Kind::Expire(version), began, ended: None, program: None });
            self.program.push_back(Store::Born(history.len() - 1));
        }
        self.program.extend(old.map(|i| Store::Retire { place: i.location.place, units: i.location.units }));
        self.items.insert(key, Item { version, location, bucket, slot, expires });
        Answer::Stored(location)
    }

    /// A free place on the grid of a segment of this class, or of one that has no class now.
    fn find_place(&mut self, units: usize) -> Option<usize> {
        let oldest = self.reported.iter().copied().min().unwrap_or(u32::MAX);
        let waits = self.rules.reuse_waits();
        self.retired.retain(|r| waits && r.epoch >= oldest);
        let mut used = [0usize; UNITS];
        let live = self.items.values().map(|i| (i.location.place, i.location.units));
        for (place, class) in live.chain(self.retired.iter().map(|r| (r.place, r.units))) {
            used[place..place + class].fill(class);
        }
        // Another place every time, so that old ones are met again in other roles.
        self.turn = (self.turn + 7) % UNITS;
        let starts = (0..UNITS).map(|i| (i + self.turn) % UNITS);
        let fits = |start: &usize| {
            let segment = start / SEGMENT * SEGMENT;
            let on_grid = (start - segment).is_multiple_of(units)
                && used[segment..segment + SEGMENT].iter().all(|u| *u == 0 || *u == units);
            start + units <= UNITS
                && used[*start..start + units].iter().all(|u| *u == 0)
                && (on_grid || !self.rules.grid_and_seal())
        };
        starts.into_iter().find(fits)
    }

    /// A slot for a new key: a free one of its buckets, else that of a key that is evicted.
    fn find_slot(&mut self, key: Key, now: u64, history: &mut Vec<Event>) -> (usize, usize) {
        let taken = |bucket: usize, slot: usize| {
            self.items.iter().find(|(_, i)| (i.bucket, i.slot) == (bucket, slot)).map(|(key, _)| *key)
        };
        let all = buckets_of(key).into_iter().flat_map(|b| (0..SLOTS).map(move |s| (b, s)));
        let places: Vec<_> = all.collect();
        if let Some(free) = places.iter().find(|(b, s)| taken(*b, *s).is_none()) {
            return *free;
        }
        let (bucket, slot) = places[self.turn % places.len()];
        let victim = taken(bucket, slot).expect("no slot is free");
        self.evict(victim, now, history);
        (bucket, slot)
    }

    pub(super) fn evict_any(&mut self, now: u64, history: &mut Vec<Event>) {
        let keys: Vec<Key> = self.items.keys().copied().collect();
        if let Some(key) = keys.get(self.turn % keys.len().max(1)) {
            self.evict(*key, now, history);
        }
    }

    fn evict(&mut self, key: Key, now: u64, history: &mut Vec<Event>) {
        history.push(Event { key, kind: Kind::Remove, began: now, ended: None, program: None });
        self.remove(key);
        self.program.push_back(Store::Removed(history.len() - 1));
    }

    fn remove(&mut self, key: Key) {
        let Some(item) = self.items.remove(&key) else { return };
        let Location { place, units, .. } = item.location;
        self.program.extend([
            Store::Dead(place),
            Store::Slot(item.bucket, item.slot, None),
            Store::Retire { place, units },
        ]);
    }

    fn flush(&mut self) {
        let keys: Vec<Key> = self.items.keys().copied().collect();
        for key in keys {
            let before = self.program.len();
            self.remove(key);
            if !self.rules.flush_sweeps() {
                // Cached locations go on hitting.
                self.program.remove(before);
            }
        }
    }

    fn join(&mut self, generation: u32, members: Vec<usize>, now: u64, history: &mut Vec<Event>) -> Answer {
        if generation > self.generation {
            (self.generation, self.members) = (generation, members);
            if self.rules.membership() {
                // First the number, then what it takes away: whoever misses a key and reads the old number after that
                // has missed nothing.
                self.program.push_back(Store::Generation(generation));
                let foreign = |key: &Key| owner(*key, &self.members) != self.number;
                let gone: Vec<Key> = self.items.keys().copied().filter(foreign).collect();
                gone.into_iter().for_each(|key| self.evict(key, now, history));
            }
        }
        Answer::Generation(self.generation)
    }

    /// Moves a key to its other bucket, which no node may do while readers may look.
    pub(super) fn displace(&mut self) {
        let free = |items: &BTreeMap<Key, Item>, bucket: usize| {
            (0..SLOTS).find(|s| items.values().all(|i| (i.bucket, i.slot) != (bucket, *s)))
        };
        let keys: Vec<Key> = self.items.keys().copied().collect();
        let Some(key) = keys.get(self.turn % keys.len().max(1)).copied() else { return };
        let from = self.items[&key];
        let to = buckets_of(key).into_iter().find(|b| *b != from.bucket).unwrap_or(BUCKETS);
        let Some(slot) = free(&self.items, to) else { return };
        let Location { place, units, .. } = from.location;
        let entry = Slot { tag: tag_of(key), place, units };
        self.program.extend([Store::Slot(to, slot, Some(entry)), Store::Slot(from.bucket, from.slot, None)]);
        self.items.insert(key, Item { bucket: to, slot, ..from });
    }

    /// Power fails; it is back at `until`. What was there is gone, but for the membership it has seen.
    pub(super) fn restart(&mut self, now: u64, until: u64, history: &mut Vec<Event>) {
        for key in self.items.keys() {
            let (key, kind) = (*key, Kind::Remove);
            history.push(Event { key, kind, began: now, ended: Some(until), program: None });
        }
        self.items.clear();
        self.inbox.clear();
        self.program.clear();
        self.down_until = until;
        if self.rules.membership() {
            self.incarnation += 1;
            self.memory = Memory::new(self.generation);
            self.retired.clear();
        } else {
            // The old contents can still be read, but nobody keeps books about them.
            self.memory.buckets = Memory::new(0).buckets;
        }
    }
}
