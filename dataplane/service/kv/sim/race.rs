//! Readers against writers of every kind, evictions, expiry, flushes and restarts, with READs that linger and tear: every value says which key it
//! belongs to, which mutation wrote it, and whether it is whole; what clients were told has to be linearizable, key by key.

use super::cluster::{Cluster, Setup};
use super::ends::client_of;
use super::history::{Event, History, Kind};
use super::request::{Known, Life, What};
use crate::stats::Counter;
use rdma_engine::sim::Rng;
use std::collections::{HashMap, HashSet};
use std::mem::Discriminant;

/// The value of a key's nth mutation.
fn value(key: u32, version: u64, len: usize) -> Vec<u8> {
    let mut bytes = format!("{key}:{version}:{len}:").into_bytes();
    let len = len.max(24);
    bytes.reserve(len + 8);
    let mut rng = Rng::new(u64::from(key) << 32 | version);
    while bytes.len() < len {
        bytes.extend_from_slice(&rng.bits().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Key and version of a value, which has to be whole.
fn read_value(bytes: &[u8]) -> (u32, u64) {
    let mut fields = bytes.splitn(4, |b| *b == b':').map(|f| String::from_utf8_lossy(f).into_owned());
    let key = fields.next().and_then(|f| f.parse().ok()).expect("a key");
    let version = fields.next().and_then(|f| f.parse().ok()).expect("a version");
    let len: usize = fields.next().and_then(|f| f.parse().ok()).expect("a length");
    assert!(bytes == value(key, version, len), "a torn value of key {key}, version {version}");
    (key, version)
}

/// Mutations of a key under way at most.
const MUTATIONS: usize = 3;

/// One in so many turns takes longer than the others.
const LONG_TURNS: u64 = 40;
/// That much longer, so that values come to their end.
const LONG_NS: u64 = 50_000_000;

/// The version in a reply to a GET, which has to be whole and the key's, and the cas unique, if there is one.
fn told_version(key: u32, reply: &[u8]) -> (u64, Option<u64>) {
    let at = reply.windows(2).position(|w| w == b"\r\n").expect("a line") + 2;
    let head = String::from_utf8_lossy(&reply[..at]).into_owned();
    assert!(head.starts_with(&format!("VALUE key{key} 0 ")), "{head}");
    let body = reply[at..].strip_suffix(b"\r\nEND\r\n").expect("an end");
    let (of, version) = read_value(body);
    assert_eq!(of, key, "a foreign value");
    (version, head.trim_end().split(' ').nth(4).map(|unique| unique.parse().expect("a cas unique")))
}

/// A request under way.
struct Asked {
    event: Event,
    /// The version it writes, if it does.
    version: u64,
    at_ns: u64,
}

/// Clients that remember what they asked and were told.
pub struct Race {
    /// What they talk to.
    pub cluster: Cluster,
    /// Random choices.
    pub rng: Rng,
    /// Mutations of each key that were asked for: the last one's version.
    versions: HashMap<u32, u64>,
    /// Requests under way, by their number.
    asked: HashMap<u32, Asked>,
    next: u32,
    history: History,
    known: Known,
    /// The last moment.
    moment: u64,
    /// GETs answered.
    pub gets: u64,
    /// Of these, with a value.
    pub hits: u64,
    /// Requests answered by an error.
    pub errors: u64,
    /// Kinds of mutations that were carried out.
    done: HashSet<Discriminant<What>>,
    keys: u64,
    largest: u64,
    life: Life,
    /// Gateways at which nobody asks anything.
    silent: Vec<usize>,
}

impl Race {
    /// `keys` keys with values of up to `largest` bytes.
    pub fn new(setup: Setup, keys: u64, largest: u64, life: Life) -> Self {
        let rng = Rng::new(setup.seed);
        let cluster = Cluster::new(setup);
        Race {
            cluster,
            rng,
            versions: HashMap::new(),
            asked: HashMap::new(),
            next: 0,
            history: History::new(life == Life::Kept),
            known: Known::default(),
            moment: 0,
            gets: 0,
            hits: 0,
            errors: 0,
            done: HashSet::new(),
            keys,
            largest,
            life,
            silent: vec![],
        }
    }

    /// Kinds of mutations that were carried out; seven are the most.
    pub fn kinds_done(&self) -> usize {
        self.done.len()
    }

    /// One request of somebody at some gateway.
    fn ask(&mut self) {
        let gateway = self.rng.below(self.cluster.gateways.len() as u64) as usize;
        if self.silent.contains(&gateway) {
            return;
        }
        let key = self.rng.below(self.keys).min(self.rng.below(self.keys)) as u32;
        let what = What::choose(&mut self.rng, self.life, key, self.known.unique(key));
        let writing = |a: &&Asked| a.event.key == key && !a.event.what.reads();
        if !what.reads() && self.asked.values().filter(writing).count() == MUTATIONS {
            return;
        }
        let last = self.versions.entry(key).or_default();
        *last += u64::from(what.writes());
        let version = *last;
        let value = match what.writes() {
            true => value(key, version, self.rng.below(self.largest) as usize),
            false => vec![],
        };
        let kind = match what {
            What::Get | What::Gets | What::Touch => Kind::Get(None),
            What::Set | What::Add | What::Replace | What::Cas(_) => Kind::Set(version),
            What::SetPast | What::Delete | What::Flush => Kind::Delete,
        };
        let number = self.next;
        self.next += 1;
        self.moment += 1;
        // A client is one of a gateway. A flush is about no key, and so in no order with the client's requests for one.
        let client = match what {
            What::Flush => u64::MAX - u64::from(number),
            _ => (gateway as u64) << 32 | client_of(number),
        };
        let event = Event { key, kind, began: self.moment, ended: None, what, client };
        self.asked.insert(number, Asked { event, version, at_ns: self.cluster.now.0 });
        let text = what.text(&mut self.rng, self.life, key, &value);
        self.cluster.ask_next(gateway, number, &text);
    }

    /// Takes the replies that are there.
    pub fn hear(&mut self) {
        for g in 0..self.cluster.gateways.len() {
            while let Some((client, reply)) = self.cluster.gateways[g].replies.pop_front() {
                let asked = self.asked.remove(&client).expect("a reply to a request");
                self.check(asked, &reply);
            }
        }
    }

    fn check(&mut self, asked: Asked, reply: &[u8]) {
        let Asked { mut event, version, at_ns } = asked;
        let what = event.what;
        self.moment += 1;
        let (is_error, key) = (reply.starts_with(b"SERVER_ERROR"), event.key);
        self.errors += u64::from(is_error);
        self.gets += u64::from(what.reads());
        event.ended = Some(self.moment).filter(|_| !is_error);
        if what.reads() && !is_error {
            let told = (reply != b"END\r\n").then(|| told_version(key, reply));
            self.hits += u64::from(told.is_some());
            if let Some((version, unique)) = told {
                self.known.told((key, version), unique, at_ns);
            }
            if told.is_none() && self.life.is_short(key) {
                // Gateways know a node's clock as well as its last message told it: what is past its time for one of them may be
                // there for another.
                return;
            }
            event.kind = Kind::Get(told.map(|(version, _)| version));
            return self.history.push(event);
        }
        if !is_error && let Some(kind) = self.known.found((key, version), what, self.life, reply) {
            self.history.push(Event { kind, ..event });
        }
        // A mutation that failed may have been carried out all the same.
        let is_done = is_error || what.is_done(reply);
        if !is_done || what.reads() || what == What::Touch {
            return;
        }
        self.done.insert(std::mem::discriminant(&what));
        if what == What::Flush {
            let keys = self.versions.keys();
            return keys.for_each(|key| self.history.push(Event { key: *key, ..event }));
        }
        if what.writes() && !is_error {
            self.known.written((key, version), what, self.life, self.cluster.now.0);
        }
        self.history.push(event);
    }

    /// Looks for an order of everything that was asked and answered.
    fn explain(&self) {
        if let Err(why) = self.history.check() {
            panic!("no order explains what happened: {why}");
        }
    }

    /// A turn in which clients ask.
    fn turn(&mut self) {
        for _ in 0..self.rng.below(8) {
            if self.asked.len() < 200 && self.cluster.gateways.iter().all(|g| g.engine.has_room()) {
                self.ask();
            }
        }
        if self.life == Life::Short && self.rng.below(LONG_TURNS) == 0 {
            self.cluster.now = self.cluster.now.after_ns(LONG_NS);
        }
        self.cluster.turn();
        self.hear();
    }

    /// So many turns, or until `done`.
    fn turns(&mut self, most: usize, done: impl Fn(&Cluster) -> bool) {
        for _ in 0..most {
            if done(&self.cluster) {
                return;
            }
            self.turn();
        }
    }

    /// Asks until `gets` GETs have been answered; every 2000 turns something else happens.
    ///
    /// # Panics
    /// If anybody saw what was not there.
    pub fn run(&mut self, gets: u64, mut now_and_then: impl FnMut(&mut Self)) {
        let mut turns = 0u64;
        while self.gets < gets {
            self.turn();
            turns += 1;
            if turns.is_multiple_of(2000) {
                now_and_then(self);
            }
        }
        let quiet = |r: &Self| r.asked.is_empty();
        // A write may wait for a place until every gateway has reported.
        for _ in 0..200_000 {
            if quiet(self) {
                break;
            }
            self.cluster.turn();
            self.hear();
        }
        assert!(quiet(self), "{} requests without an answer", self.asked.len());
        self.explain();
    }
}

/// Restarts a node: its connections break, its contents are gone.
pub fn restart(race: &mut Race, node: usize) {
    race.known.uniques_repeat();
    let gateways = race.cluster.gateways.len();
    (0..gateways).for_each(|g| race.cluster.fail_gateway_end(node, g));
    (0..gateways).for_each(|g| race.cluster.fail_node_end(node, g));
    while !race.cluster.is_apart(node) {
        race.cluster.turn();
        race.hear();
    }
    let fresh = race.cluster.start_node();
    race.cluster.nodes[node] = fresh;
    (0..gateways).for_each(|g| race.cluster.connect(node, g));
}

/// A third node that comes into the list of two and leaves it again, list after list; gateways take each list at different
/// times. Of three or more one reports nothing while the first takes a list: calls of the others wait for places then.
pub struct Relists {
    new: usize,
    generation: u64,
    /// Calls that waited for places while lists were taken.
    pub stalled: u64,
}

impl Relists {
    /// Of a race of two nodes with room for a third, whose lists have the number 1.
    pub fn new(race: &mut Race) -> Self {
        race.known.uniques_repeat();
        Relists { new: race.cluster.add_node(), generation: 1, stalled: 0 }
    }

    /// The next list.
    ///
    /// # Panics
    /// If a node that has left is not let go.
    pub fn next(&mut self, race: &mut Race) {
        self.generation += 1;
        let (new, comes, gateways) =
            (self.new, self.generation.is_multiple_of(2), race.cluster.gateways.len());
        if comes && self.generation > 2 {
            // It was let go and comes back by a connection of its own.
            (0..gateways).for_each(|g| race.cluster.connect(new, g));
        }
        let list: &[usize] = if comes { &[0, 1, new] } else { &[0, 1] };
        let first = race.rng.below(gateways as u64) as usize;
        let others = (1..gateways).map(|n| (first + n) % gateways);
        if gateways > 2 {
            self.take_while_others_wait(race, first, (first + 1) % gateways, list);
        } else {
            race.cluster.relist(first, self.generation, list);
        }
        for other in others {
            for _ in 0..race.rng.below(300) {
                race.turn();
            }
            race.cluster.relist(other, self.generation, list);
        }
        let mut turns = 0;
        while !comes && !race.cluster.is_apart(new) {
            race.cluster.turn();
            race.hear();
            turns += 1;
            assert!(turns < 100_000, "it is not let go: {:?}", race.cluster.downs());
            if race.cluster.has_left(new) {
                (0..gateways).for_each(|g| race.cluster.fail_node_end(new, g));
            }
        }
    }

    /// One gateway takes a list, while another one reports nothing.
    fn take_while_others_wait(&mut self, race: &mut Race, first: usize, stuck: usize, list: &[usize]) {
        race.silent = vec![first, stuck];
        race.turns(2000, |c| c.gateways[first].engine.is_idle());
        race.cluster.gateways[stuck].is_stuck = true;
        let waited = race.cluster.node_count(Counter::KvStalled);
        race.turns(2000, |c| c.node_count(Counter::KvStalled) > waited);
        race.cluster.relist(first, self.generation, list);
        race.turns(1000, |c| c.gateways[first].engine.is_settled());
        self.stalled += race.cluster.node_count(Counter::KvStalled) - waited;
        race.silent = vec![stuck];
        race.turns(100, |_| false);
        race.cluster.gateways[stuck].is_stuck = false;
        race.silent.clear();
    }
}
