//! A gateway worker: clients' requests, its cache of locations, its READs.

use super::memory::{Bucket, Header, Memory, Slot, Unit, Version, buckets_of, tag_of};
use super::node::{Answer, Ask, Location};
use super::{CLOCK_BOUND, Key, NODES, Rules};
use rdma_engine::sim::rng::Rng;
use std::collections::BTreeMap;

/// A value nobody wrote: pieces of several.
pub(super) const TORN: Version = Version::MAX;
/// Tries by READ before a GET goes the long way.
const TRIES: u32 = 3;

#[derive(Clone, Debug)]
pub(super) enum Wish {
    Get,
    Set { version: Version, units: usize, ttl: Option<u64> },
    Delete,
    Flush,
}

impl Wish {
    pub(super) fn is_get(&self) -> bool {
        matches!(self, Wish::Get)
    }
}

/// A client's request.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) ticket: u64,
    /// Whose it is, of the gateway's clients: those of one are in its order.
    pub(super) client: usize,
    pub(super) key: Key,
    pub(super) wish: Wish,
    /// Its events in the history: one, or one for each key.
    pub(super) events: Vec<usize>,
    /// It has left at least once, so that it may have had an effect.
    pub(super) sent: bool,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    /// Not begun, or to be begun again.
    Waiting,
    Reading(Box<Lookup>),
    /// Nodes that have not answered.
    Asked(Vec<usize>),
    /// Refused: a newer membership than ours is there.
    Outdated,
}

/// What a READ goes for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    Unit(usize),
    Bucket(usize),
    Generation,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Sample {
    Unit(Unit),
    Bucket(Bucket),
    Generation(u32),
}

/// READs under way for one GET.
#[derive(Debug)]
pub(super) struct Lookup {
    pub(super) node: usize,
    /// The node's epoch as it was known when this try began.
    pub(super) epoch: u32,
    pub(super) generation: u32,
    began: u64,
    tries: u32,
    /// From the cache.
    cached: Option<Location>,
    /// From the buckets: what is still to be looked at, the last one now.
    slots: Vec<Slot>,
    targets: Vec<Target>,
    samples: Vec<Option<Sample>>,
}

/// Where a GET goes on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Going,
    Found(Version),
    NotFound,
    /// Ask the node.
    AskNode,
    Outdated,
}

/// How an item that was read looks.
enum Verdict {
    Ours(Version, Location),
    Expired,
    /// Somebody else's, alive.
    Other,
    /// Dead, changing, or no item at all.
    Nothing,
}

#[derive(Debug)]
pub(super) struct Gateway {
    rules: Rules,
    pub(super) ops: Vec<Op>,
    pub(super) cache: BTreeMap<Key, (usize, Location)>,
    pub(super) generation: u32,
    pub(super) members: Vec<usize>,
    /// Nodes whose answer to the new membership is missing, and that membership.
    pub(super) reload: Option<(u32, Vec<usize>, Vec<usize>)>,
    pub(super) known_epoch: [u32; NODES],
    /// Restarts of nodes it has seen; `None` without a connection.
    pub(super) connected: [Option<u32>; NODES],
    /// By node what its clock is ahead of ours, as it told us: right within the bound.
    offset: [i64; NODES],
    /// Our own clock is this far ahead of true time.
    clock: u64,
}

impl Gateway {
    pub(super) fn new(
        rules: Rules,
        members: Vec<usize>,
        clock: u64,
        node_clocks: &[u64],
        rng: &mut Rng,
    ) -> Self {
        let mut offset = [0; NODES];
        for (o, theirs) in offset.iter_mut().zip(node_clocks) {
            let error = rng.below(2 * CLOCK_BOUND) as i64 - CLOCK_BOUND as i64;
            *o = if rules.node_clock() { *theirs as i64 - clock as i64 + error } else { 0 };
        }
        Gateway {
            rules,
            ops: Vec::new(),
            cache: BTreeMap::new(),
            generation: 0,
            members,
            reload: None,
            known_epoch: [1; NODES],
            connected: [Some(0); NODES],
            offset,
            clock,
        }
    }

    /// The node's time as this gateway believes it to be.
    fn time_of(&self, node: usize, now: u64) -> u64 {
        (now + self.clock).saturating_add_signed(self.offset[node])
    }

    /// True if nothing that came earlier has to be waited for.
    pub(super) fn may_begin(&self, index: usize) -> bool {
        let op = &self.ops[index];
        let conflict = |earlier: &Op| {
            let same = earlier.client == op.client;
            let both_read = earlier.wish.is_get() && op.wish.is_get();
            let all = matches!(earlier.wish, Wish::Flush) || matches!(op.wish, Wish::Flush);
            same && (all || (earlier.key == op.key && !both_read))
        };
        !self.rules.program_order() || !self.ops[..index].iter().any(conflict)
    }

    /// The oldest epoch in which a lookup at this node may have begun.
    pub(super) fn oldest(&self, node: usize) -> u32 {
        let lookups = self.ops.iter().filter_map(|op| match &op.state {
            State::Reading(l) if l.node == node => Some(l.epoch),
            _ => None,
        });
        lookups.min().unwrap_or(self.known_epoch[node])
    }

    /// Begins a GET by READ.
    pub(super) fn look_up(&self, key: Key, node: usize, now: u64) -> Box<Lookup> {
        let cached = self.cache.get(&key).filter(|(at, _)| *at == node).map(|(_, location)| *location);
        let mut lookup = Box::new(Lookup {
            node,
            epoch: 0,
            generation: self.generation,
            began: now,
            tries: 0,
            cached,
            slots: Vec::new(),
            targets: Vec::new(),
            samples: Vec::new(),
        });
        self.begin_try(&mut lookup, key, now);
        lookup
    }

    fn begin_try(&self, lookup: &mut Lookup, key: Key, now: u64) {
        lookup.epoch = self.known_epoch[lookup.node];
        lookup.began = now;
        lookup.slots.clear();
        match lookup.cached {
            Some(l) => lookup.read((l.place..l.place + l.units).map(Target::Unit).collect()),
            None => {
                let buckets = buckets_of(key).map(Target::Bucket);
                lookup.read(buckets.into_iter().chain([Target::Generation]).collect());
            }
        }
    }

    /// Uses what a READ brought. A lookup that goes on is changed for its next READ.
    pub(super) fn take(&mut self, key: Key, lookup: &mut Lookup, now: u64) -> Outcome {
        if lookup.cached.is_none() && lookup.slots.is_empty() {
            return self.take_buckets(key, lookup);
        }
        let slot = lookup.slots.last().copied();
        match self.judge(key, lookup, now) {
            Verdict::Ours(version, location) => {
                if self.generation == lookup.generation {
                    self.cache.insert(key, (lookup.node, location));
                }
                Outcome::Found(version)
            }
            Verdict::Expired => Outcome::NotFound,
            Verdict::Other if slot.is_some() => {
                lookup.slots.pop();
                if lookup.slots.is_empty() { Outcome::NotFound } else { lookup.read_item() }
            }
            Verdict::Other | Verdict::Nothing => {
                self.cache.remove(&key);
                lookup.cached = None;
                lookup.tries += 1;
                if lookup.tries == TRIES {
                    return Outcome::AskNode;
                }
                self.begin_try(lookup, key, now);
                Outcome::Going
            }
        }
    }

    fn take_buckets(&self, key: Key, lookup: &mut Lookup) -> Outcome {
        let mut generation = lookup.generation;
        for sample in lookup.samples.iter().flatten() {
            match sample {
                Sample::Bucket(b) => lookup.slots.extend(b.iter().flatten().filter(|s| s.tag == tag_of(key))),
                Sample::Generation(g) => generation = *g,
                Sample::Unit(_) => {}
            }
        }
        if self.rules.membership() && generation != lookup.generation {
            return Outcome::Outdated;
        }
        if lookup.slots.is_empty() { Outcome::NotFound } else { lookup.read_item() }
    }

    fn judge(&self, key: Key, lookup: &Lookup, now: u64) -> Verdict {
        let units: Vec<Unit> = lookup.samples.iter().flatten().filter_map(Sample::unit).collect();
        let Target::Unit(place) = lookup.targets[0] else { return Verdict::Nothing };
        let Some(h) = units[0].as_header() else { return Verdict::Nothing };
        let genuine = h.sealed || !self.rules.grid_and_seal();
        if !genuine || !h.live || h.place != place || h.units != units.len() {
            return Verdict::Nothing;
        }
        if h.key != key {
            return Verdict::Other;
        }
        if lookup.cached.is_some_and(|l| l.seq != h.seq) {
            return Verdict::Nothing;
        }
        if let Some(expires) = h.expires {
            if self.time_of(lookup.node, lookup.began) >= expires {
                return Verdict::Expired;
            }
            if self.time_of(lookup.node, now) >= expires {
                // It was alive when we began and may have been replaced before it expired: look again.
                return Verdict::Nothing;
            }
        }
        Verdict::Ours(value(&h, &units), Location { place, units: h.units, seq: h.seq })
    }

    /// What goes to the nodes for a request.
    pub(super) fn ask(&self, op: &Op, disguise: Option<Header>) -> Ask {
        match op.wish {
            Wish::Get => Ask::Get(op.key),
            Wish::Set { version, units, ttl } => Ask::Set { key: op.key, version, units, ttl, disguise },
            Wish::Delete => Ask::Delete(op.key),
            Wish::Flush => Ask::Flush,
        }
    }

    /// Remembers what an answer says about a key's place.
    pub(super) fn learn(&mut self, key: Key, node: usize, answer: &Answer) {
        match answer {
            Answer::Stored(location) | Answer::Value(Some((_, location))) => {
                self.cache.insert(key, (node, *location));
            }
            _ => {}
        }
    }

    /// A header that somebody who knows everything but the node's secret would put into a value.
    pub(super) fn forgery(&self, version: Version, rng: &mut Rng) -> Option<Header> {
        let known: Vec<_> = self.cache.iter().collect();
        let (key, (_, at)) = known.get(rng.below(known.len() as u64) as usize)?;
        let Location { place, units, seq } = *at;
        Some(Header { key: **key, seq, place, units, version, live: true, expires: None, sealed: false })
    }
}

/// The value of an item that was read: that of its header if all units are its.
fn value(h: &Header, units: &[Unit]) -> Version {
    let own = |u: &Unit| matches!(u, Unit::Body { version, .. } if *version == h.version);
    if units[1..].iter().all(own) { h.version } else { TORN }
}

impl Sample {
    fn unit(&self) -> Option<Unit> {
        if let Sample::Unit(u) = self { Some(*u) } else { None }
    }
}

impl Lookup {
    fn read(&mut self, targets: Vec<Target>) {
        self.samples = vec![None; targets.len()];
        self.targets = targets;
    }

    fn read_item(&mut self) -> Outcome {
        let slot = self.slots.last().copied().expect("the caller looked");
        self.read((slot.place..slot.place + slot.units).map(Target::Unit).collect());
        Outcome::Going
    }

    /// True when every unit has been read.
    pub(super) fn is_complete(&self) -> bool {
        self.samples.iter().all(Option::is_some)
    }

    /// The node's adapter reads one more unit. Those of an item come in any order, READs of one doorbell in theirs.
    pub(super) fn sample(&mut self, memory: &Memory, rng: &mut Rng) {
        let missing: Vec<usize> = (0..self.samples.len()).filter(|i| self.samples[*i].is_none()).collect();
        let in_order = self.cached.is_none() && self.slots.is_empty();
        let pick = if in_order { 0 } else { rng.below(missing.len() as u64) as usize };
        let Some(i) = missing.get(pick).copied() else { return };
        self.samples[i] = Some(match self.targets[i] {
            Target::Unit(u) => Sample::Unit(memory.data[u]),
            Target::Bucket(b) => Sample::Bucket(memory.buckets[b]),
            Target::Generation => Sample::Generation(memory.generation),
        });
    }

    /// Answers are lost: everything from some point on is read again.
    pub(super) fn retry(&mut self, rng: &mut Rng) {
        let from = rng.below(self.samples.len() as u64) as usize;
        self.samples[from..].fill(None);
    }
}
