//! Readers against writers, evictions, expiry and restarts, with READs that linger and tear: every value says which key it
//! belongs to, which mutation wrote it, and whether it is whole; what a client was told is held against what it may see.

use super::cluster::{Cluster, Setup};
use rdma_engine::sim::Rng;
use std::collections::HashMap;

/// The value of a key's nth mutation.
fn value(key: u32, version: u64, len: usize) -> Vec<u8> {
    let mut bytes = format!("{key}:{version}:{len}:").into_bytes();
    let mut state = u64::from(key) << 32 | version;
    while bytes.len() < len.max(24) {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        bytes.push((state >> 56) as u8);
    }
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

/// What is known of a key. Versions only grow, as every mutation of it is made here.
#[derive(Default)]
struct Known {
    /// The last mutation that was begun.
    begun: u64,
    /// The newest that somebody was told of, by an acknowledgement or by seeing it.
    told: u64,
}

enum Asked {
    Get { key: u32, told: u64 },
    Set { key: u32, version: u64 },
    Delete { key: u32, version: u64 },
}

/// Clients that know what they may see.
pub struct Race {
    /// What they talk to.
    pub cluster: Cluster,
    /// Random choices.
    pub rng: Rng,
    known: HashMap<u32, Known>,
    asked: HashMap<u32, Asked>,
    next: u32,
    /// GETs answered.
    pub gets: u64,
    /// Of these, with a value.
    pub hits: u64,
    /// Requests answered by an error.
    pub errors: u64,
    keys: u64,
    largest: u64,
}

impl Race {
    /// `keys` keys with values of up to `largest` bytes.
    pub fn new(setup: Setup, keys: u64, largest: u64) -> Self {
        let rng = Rng::new(setup.seed);
        let cluster = Cluster::new(setup);
        Race {
            cluster,
            rng,
            known: HashMap::new(),
            asked: HashMap::new(),
            next: 0,
            gets: 0,
            hits: 0,
            errors: 0,
            keys,
            largest,
        }
    }

    /// One request of somebody at some gateway.
    fn ask(&mut self) {
        let gateway = self.rng.below(self.cluster.gateways.len() as u64) as usize;
        let key = self.rng.below(self.keys).min(self.rng.below(self.keys)) as u32;
        let known = self.known.entry(key).or_default();
        let client = self.next;
        self.next += 1;
        let (asked, text) = match self.rng.below(10) {
            0..7 => (Asked::Get { key, told: known.told }, format!("get key{key}\r\n").into_bytes()),
            7..9 => {
                known.begun += 1;
                let version = known.begun;
                let value = value(key, version, self.rng.below(self.largest) as usize);
                let head = format!("set key{key} 0 0 {}\r\n", value.len());
                (Asked::Set { key, version }, [head.as_bytes(), &value, b"\r\n"].concat())
            }
            _ => {
                known.begun += 1;
                let version = known.begun;
                (Asked::Delete { key, version }, format!("delete key{key}\r\n").into_bytes())
            }
        };
        // Several mutations of a key under way at several gateways have no order that the test could know.
        let mutating = |a: &Asked| !matches!(a, Asked::Get { .. });
        let of = |a: &Asked| match a {
            Asked::Get { key, .. } | Asked::Set { key, .. } | Asked::Delete { key, .. } => *key,
        };
        if mutating(&asked) && self.asked.values().any(|a| mutating(a) && of(a) == key) {
            self.known.entry(key).or_default().begun -= 1;
            return;
        }
        self.asked.insert(client, asked);
        self.cluster.ask(gateway, client, &text);
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
        match asked {
            Asked::Get { key, told } => {
                self.gets += 1;
                let known = self.known.entry(key).or_default();
                if reply == b"END\r\n" || reply.starts_with(b"SERVER_ERROR") {
                    self.errors += u64::from(reply[0] == b'S');
                    return;
                }
                let at = reply.windows(2).position(|w| w == b"\r\n").expect("a line") + 2;
                let head = String::from_utf8_lossy(&reply[..at]).into_owned();
                assert!(head.starts_with(&format!("VALUE key{key} 0 ")), "{head}");
                let body = reply[at..].strip_suffix(b"\r\nEND\r\n").expect("an end");
                let (of, version) = read_value(body);
                assert_eq!(of, key, "a foreign value");
                assert!(
                    version >= told,
                    "key {key}: version {version}, but {told} was told before it was asked"
                );
                assert!(version <= known.begun);
                known.told = known.told.max(version);
                self.hits += 1;
            }
            Asked::Set { key, version } => {
                if reply == b"STORED\r\n" {
                    let known = self.known.entry(key).or_default();
                    known.told = known.told.max(version);
                } else {
                    self.errors += 1;
                    assert!(reply.starts_with(b"SERVER_ERROR"), "{}", String::from_utf8_lossy(reply));
                }
            }
            Asked::Delete { key, version } => {
                if !reply.starts_with(b"SERVER_ERROR") {
                    assert!(reply == b"DELETED\r\n" || reply == b"NOT_FOUND\r\n");
                    // Whatever is seen from now on was set later.
                    let known = self.known.entry(key).or_default();
                    known.told = known.told.max(version);
                }
            }
        }
    }

    /// Asks until `gets` GETs have been answered; every 2000 turns something else happens.
    ///
    /// # Panics
    /// If anybody saw what was not there.
    pub fn run(&mut self, gets: u64, mut now_and_then: impl FnMut(&mut Self)) {
        let mut turns = 0u64;
        while self.gets < gets {
            for _ in 0..self.rng.below(8) {
                if self.asked.len() < 200 && self.cluster.gateways.iter().all(|g| g.engine.has_room()) {
                    self.ask();
                }
            }
            self.cluster.turn();
            self.hear();
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
    }
}

/// Restarts a node: its connections break, its contents are gone.
pub fn restart(race: &mut Race, node: usize) {
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

/// A third node that comes into the list of two and leaves it again, list after list; two gateways take each list at different
/// times.
pub struct Relists {
    new: usize,
    generation: u64,
}

impl Relists {
    /// Of a race of two nodes with room for a third, whose lists have the number 1.
    pub fn new(race: &mut Race) -> Self {
        Relists { new: race.cluster.add_node(), generation: 1 }
    }

    /// The next list.
    ///
    /// # Panics
    /// If a node that has left is not let go.
    pub fn next(&mut self, race: &mut Race) {
        self.generation += 1;
        let (new, comes) = (self.new, self.generation.is_multiple_of(2));
        if comes && self.generation > 2 {
            // It was let go and comes back by a connection of its own.
            (0..2).for_each(|g| race.cluster.connect(new, g));
        }
        let list: &[usize] = if comes { &[0, 1, new] } else { &[0, 1] };
        let first = race.rng.below(2) as usize;
        race.cluster.relist(first, self.generation, list);
        for _ in 0..race.rng.below(300) {
            race.cluster.turn();
            race.hear();
        }
        race.cluster.relist(1 - first, self.generation, list);
        let mut turns = 0;
        while !comes && !race.cluster.is_apart(new) {
            race.cluster.turn();
            race.hear();
            turns += 1;
            assert!(turns < 100_000, "it is not let go: {:?}", race.cluster.downs());
            if race.cluster.has_left(new) {
                (0..2).for_each(|g| race.cluster.fail_node_end(new, g));
            }
        }
    }
}
