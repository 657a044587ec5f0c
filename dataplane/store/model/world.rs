//! Everything around nodes and gateways: clients, messages under way, faults, and who goes next.

use super::gateway::{Gateway, Lookup, Op, Outcome, State, Wish};
use super::history::{Event, Kind, MOST};
use super::memory::Version;
use super::node::{Answer, Ask, Node, Reply, Request};
use super::{CLIENTS, CLOCK_SKEW, GATEWAYS, KEYS, Key, NODES, Rules, SETTLING, Summary, owner};
use rdma_engine::sim::rng::Rng;
use std::collections::VecDeque;

/// Requests a client has under way at most. Each gateway has one client.
const PIPELINE: usize = 3;

/// What kind of trouble a run is about. Runs that do little of everything find little.
struct Profile {
    keys: Key,
    gets: u64,
    /// Of a million stores, those after which the node's core does something else.
    pauses: u32,
    /// Connections are lost, nodes restart, memberships change.
    faults: bool,
    flushes: u64,
    ttls: u32,
    forgeries: u32,
}

impl Profile {
    fn new(rng: &mut Rng) -> Self {
        Profile {
            keys: rng.within(1, KEYS.into()) as Key,
            gets: rng.pick(&[40, 60, 80]),
            pauses: rng.pick(&[0, 30_000, 150_000]),
            faults: rng.chance(500_000),
            flushes: rng.pick(&[0, 2, 6]),
            ttls: rng.pick(&[0, 250_000, 600_000]),
            forgeries: rng.pick(&[0, 900_000]),
        }
    }
}

pub(super) struct World {
    rng: Rng,
    profile: Profile,
    rules: Rules,
    now: u64,
    nodes: Vec<Node>,
    gateways: Vec<Gateway>,
    /// Answers on their way to each gateway, with the node they come from.
    answers: Vec<VecDeque<(usize, Reply)>>,
    pub(super) history: Vec<Event>,
    pub(super) summary: Summary,
    tickets: u64,
    versions: Version,
    /// The newest membership, and its number.
    members: Vec<usize>,
    generation: u32,
    /// By node: its core does something else until then. READs go on.
    idle_until: [u64; NODES],
    calm: bool,
}

impl World {
    pub(super) fn new(seed: u64, rules: Rules) -> Self {
        let mut rng = Rng::new(seed);
        let members = vec![0, 1];
        let clocks: Vec<u64> = (0..NODES).map(|_| rng.below(CLOCK_SKEW)).collect();
        let node = |n: usize| Node::new(n, rules, members.clone(), clocks[n]);
        let nodes = (0..NODES).map(node).collect();
        let mut gateways = Vec::new();
        for _ in 0..GATEWAYS {
            let clock = rng.below(CLOCK_SKEW);
            gateways.push(Gateway::new(rules, members.clone(), clock, &clocks, &mut rng));
        }
        World {
            profile: Profile::new(&mut rng),
            rng,
            rules,
            now: 0,
            nodes,
            gateways,
            answers: vec![VecDeque::new(); GATEWAYS],
            history: Vec::new(),
            summary: Summary::default(),
            tickets: 0,
            versions: 0,
            members,
            generation: 0,
            idle_until: [0; NODES],
            calm: false,
        }
    }

    pub(super) fn step(&mut self) {
        self.now += 1;
        let gateway = self.rng.below(GATEWAYS as u64) as usize;
        let node = self.rng.below(NODES as u64) as usize;
        match self.rng.below(1000) {
            0..180 => self.ask(gateway),
            180..480 => self.serve(node),
            480..850 => self.go_on(gateway),
            850..940 => self.take_answer(gateway),
            940..970 => self.credit(gateway, node),
            970..982 => self.reload(gateway),
            982..987 if !self.calm => self.on_its_own(node),
            987..990 if self.faults() => self.disconnect(gateway, node),
            990..992 if self.faults() => self.restart(node),
            992..994 if self.faults() => self.change_membership(),
            _ => {}
        }
    }

    fn faults(&self) -> bool {
        self.profile.faults && !self.calm
    }

    /// Lets everything under way come to its end.
    pub(super) fn settle(&mut self) {
        self.calm = true;
        for _ in 0..SETTLING {
            let busy =
                self.gateways.iter().any(|g| !g.ops.is_empty()) || self.nodes.iter().any(|n| !n.is_idle());
            if !busy {
                return;
            }
            self.step();
        }
        panic!("requests stay without an answer: {:?}", self.gateways);
    }

    /// A client asks for something.
    fn ask(&mut self, gateway: usize) {
        let key = self.rng.below(self.profile.keys.into()) as Key;
        let under_way = self.gateways[gateway].ops.len();
        let told = |key: Key| self.history.iter().filter(|e| e.key == key).count();
        if self.calm || under_way >= PIPELINE || (0..KEYS).any(|k| told(k) + 12 > MOST) {
            return;
        }
        self.versions += 1;
        let version = self.versions;
        let (wish, kind) = match self.rng.below(100) {
            n if n < self.profile.gets => (Wish::Get, Kind::Get(None)),
            n if n >= 100 - self.profile.flushes => (Wish::Flush, Kind::Remove),
            n if n % 5 == 0 => (Wish::Delete, Kind::Remove),
            _ => {
                let units = self.rng.within(1, 3) as usize;
                let ttl = self.rng.chance(self.profile.ttls).then(|| self.rng.within(100, 400));
                (Wish::Set { version, units, ttl }, Kind::Set(version))
            }
        };
        let keys = if matches!(wish, Wish::Flush) { 0..KEYS } else { key..key + 1 };
        self.tickets += 1;
        let client = self.tickets as usize % CLIENTS;
        let (began, program) = (self.now, Some((gateway * CLIENTS + client, self.tickets)));
        let first = self.history.len();
        self.history.extend(keys.map(|key| Event { key, kind, began, ended: None, program }));
        let (ticket, events, state) = (self.tickets, (first..self.history.len()).collect(), State::Waiting);
        self.gateways[gateway].ops.push(Op { ticket, client, key, wish, events, sent: false, state });
    }

    /// A node does its next store.
    fn serve(&mut self, node: usize) {
        if self.now < self.nodes[node].down_until.max(self.idle_until[node]) {
            return;
        }
        if !self.calm && self.rng.chance(self.profile.pauses) {
            self.idle_until[node] = self.now + self.rng.within(20, 400);
        }
        if let Some(reply) = self.nodes[node].step(self.now, &mut self.history) {
            self.answers[reply.0].push_back((node, reply));
        }
    }

    /// One of a gateway's requests goes on.
    fn go_on(&mut self, gateway: usize) {
        let count = self.gateways[gateway].ops.len() as u64;
        if count == 0 {
            return;
        }
        let index = self.rng.below(count) as usize;
        match &self.gateways[gateway].ops[index].state {
            State::Waiting if self.gateways[gateway].may_begin(index) => self.begin(gateway, index),
            State::Reading(_) => self.read(gateway, index),
            _ => {}
        }
    }

    fn begin(&mut self, gateway: usize, index: usize) {
        let g = &self.gateways[gateway];
        let op = &g.ops[index];
        let node = owner(op.key, &g.members);
        let wanted = if matches!(op.wish, Wish::Flush) { g.members.clone() } else { vec![node] };
        if wanted.iter().any(|n| g.connected[*n].is_none()) {
            return self.fail(gateway, index);
        }
        if op.wish.is_get() {
            let lookup = g.look_up(op.key, node, self.now);
            self.gateways[gateway].ops[index].state = State::Reading(lookup);
        } else {
            self.send(gateway, index, wanted);
        }
    }

    fn send(&mut self, gateway: usize, index: usize, nodes: Vec<usize>) {
        let forged = self.rng.chance(self.profile.forgeries).then_some(self.versions + 1_000_000);
        let g = &self.gateways[gateway];
        let disguise = forged.and_then(|version| g.forgery(version, &mut self.rng));
        let (op, generation) = (&g.ops[index], g.generation);
        let request = Request { gateway, ticket: op.ticket, generation, ask: g.ask(op, disguise) };
        nodes.iter().for_each(|n| self.nodes[*n].inbox.push_back(request.clone()));
        let op = &mut self.gateways[gateway].ops[index];
        (op.sent, op.state) = (true, State::Asked(nodes));
    }

    /// A READ brings a unit, is lost in part, or is complete and used.
    fn read(&mut self, gateway: usize, index: usize) {
        let World { gateways, nodes, rng, .. } = self;
        let op = &mut gateways[gateway].ops[index];
        let State::Reading(lookup) = &mut op.state else { return };
        if !lookup.is_complete() {
            lookup.sample(&nodes[lookup.node].memory, rng);
            return;
        }
        if rng.chance(60_000) {
            return lookup.retry(rng);
        }
        let key = op.key;
        let State::Reading(mut lookup) = std::mem::replace(&mut op.state, State::Waiting) else { return };
        let outcome = gateways[gateway].take(key, &mut lookup, self.now);
        self.conclude_read(gateway, index, lookup, &outcome);
    }

    fn conclude_read(&mut self, gateway: usize, index: usize, lookup: Box<Lookup>, outcome: &Outcome) {
        match outcome {
            Outcome::Found(version) => self.answer_get(gateway, index, Some(*version)),
            Outcome::NotFound => self.answer_get(gateway, index, None),
            // It began under an older membership: begin it again, perhaps at another node.
            Outcome::AskNode | Outcome::Outdated
                if lookup.generation != self.gateways[gateway].generation => {}
            Outcome::AskNode => self.send(gateway, index, vec![lookup.node]),
            Outcome::Outdated => self.gateways[gateway].ops[index].state = State::Outdated,
            Outcome::Going => {
                self.summary.races += 1;
                self.gateways[gateway].ops[index].state = State::Reading(lookup);
            }
        }
    }

    fn answer_get(&mut self, gateway: usize, index: usize, seen: Option<Version>) {
        let op = self.gateways[gateway].ops.remove(index);
        let event = &mut self.history[op.events[0]];
        (event.kind, event.ended) = (Kind::Get(seen), Some(self.now));
        self.summary.gets += 1;
        self.summary.hits += u64::from(seen.is_some());
    }

    /// The client is told that its request failed. One that never left, or only reads, had no effect.
    fn fail(&mut self, gateway: usize, index: usize) {
        let op = self.gateways[gateway].ops.remove(index);
        if !op.sent || op.wish.is_get() {
            op.events.iter().for_each(|e| self.history[*e].began = u64::MAX);
        }
    }

    fn take_answer(&mut self, gateway: usize) {
        let Some((node, (_, ticket, answer, epoch))) = self.answers[gateway].pop_front() else { return };
        let g = &mut self.gateways[gateway];
        g.known_epoch[node] = g.known_epoch[node].max(epoch);
        if ticket == 0 {
            return self.take_joined(gateway, node, &answer);
        }
        let Some(index) = g.ops.iter().position(|o| o.ticket == ticket) else { return };
        let State::Asked(missing) = &mut g.ops[index].state else { return };
        missing.retain(|n| *n != node);
        let last = missing.is_empty();
        let key = g.ops[index].key;
        match answer {
            Answer::Generation(newer) => {
                let ours = g.generation;
                g.ops[index].state = if newer > ours { State::Outdated } else { State::Waiting };
            }
            Answer::NoRoom => {
                g.ops[index].sent = false;
                self.fail(gateway, index);
            }
            Answer::Value(found) => {
                g.learn(key, node, &Answer::Value(found));
                self.answer_get(gateway, index, found.map(|(version, _)| version));
            }
            done if last => {
                g.learn(key, node, &done);
                let op = g.ops.remove(index);
                op.events.iter().for_each(|e| self.history[*e].ended = Some(self.now));
                self.summary.mutations += 1;
            }
            _ => {}
        }
    }

    /// News about epochs go both ways.
    fn credit(&mut self, gateway: usize, node: usize) {
        let g = &mut self.gateways[gateway];
        if self.nodes[node].down_until > self.now {
            return;
        }
        if g.connected[node].is_none() {
            g.connected[node] = Some(self.nodes[node].incarnation);
            g.known_epoch[node] = self.nodes[node].epoch;
            self.nodes[node].reported[gateway] = self.nodes[node].epoch;
            return;
        }
        let ask = Ask::Report(g.oldest(node));
        self.nodes[node].inbox.push_back(Request { gateway, ticket: 0, generation: g.generation, ask });
        let epoch = self.nodes[node].epoch;
        self.answers[gateway].push_back((node, (gateway, u64::MAX, Answer::Done, epoch)));
    }

    /// The gateway takes the newest configuration: it tells every node, and uses it when all have answered.
    fn reload(&mut self, gateway: usize) {
        let g = &mut self.gateways[gateway];
        if g.reload.is_none() && g.generation < self.generation {
            g.reload = Some((self.generation, self.members.clone(), (0..NODES).collect()));
        }
        let Some((generation, members, missing)) = g.reload.clone() else { return };
        for node in missing.into_iter().filter(|n| g.connected[*n].is_some()) {
            let ask = Ask::Join(generation, members.clone());
            self.nodes[node].inbox.push_back(Request { gateway, ticket: 0, generation, ask });
        }
        if !self.rules.membership() {
            self.gateways[gateway].reload.as_mut().expect("it was there").2.clear();
            self.finish_reload(gateway);
        }
    }

    /// A node has told which membership it serves; it may have been asked more than once, and for an older one.
    fn take_joined(&mut self, gateway: usize, node: usize, answer: &Answer) {
        let Some((generation, _, missing)) = &mut self.gateways[gateway].reload else { return };
        match answer {
            Answer::Generation(served) if served == generation => {
                missing.retain(|n| *n != node);
                self.finish_reload(gateway);
            }
            // It dropped what a still newer one takes away, not what ours does: ours must never be used.
            Answer::Generation(served) if served > generation => self.gateways[gateway].reload = None,
            _ => {}
        }
    }

    fn finish_reload(&mut self, gateway: usize) {
        let g = &mut self.gateways[gateway];
        if g.reload.as_ref().is_none_or(|(_, _, missing)| !missing.is_empty()) {
            return;
        }
        let Some((generation, members, _)) = g.reload.take() else { return };
        (g.generation, g.members) = (generation, members);
        g.cache.clear();
        for op in g.ops.iter_mut().filter(|o| matches!(o.state, State::Outdated)) {
            op.state = State::Waiting;
        }
    }

    fn change_membership(&mut self) {
        let sets: [&[usize]; 4] = [&[0, 1], &[0, 1, 2], &[1, 2], &[0, 2]];
        self.members = self.rng.pick(&sets).to_vec();
        self.generation += 1;
    }

    /// What a node does without being asked.
    fn on_its_own(&mut self, node: usize) {
        let crowded = self.history.len() > usize::from(KEYS) * MOST;
        if self.now < self.nodes[node].down_until || !self.nodes[node].is_idle() || crowded {
            return;
        }
        if !self.rules.keys_stay_in_bucket() {
            self.nodes[node].displace();
        } else if self.rng.chance(300_000) {
            self.nodes[node].evict_any(self.now, &mut self.history);
        }
    }

    /// The node destroys the gateway's queue pairs, as it does with one that has been silent for long.
    fn disconnect(&mut self, gateway: usize, node: usize) {
        self.nodes[node].reported[gateway] = u32::MAX;
        self.lose(gateway, node);
    }

    fn restart(&mut self, node: usize) {
        let until = self.now + self.rng.within(1, 60);
        self.nodes[node].restart(self.now, until, &mut self.history);
        for gateway in 0..GATEWAYS {
            self.answers[gateway].retain(|(from, _)| *from != node);
            self.lose(gateway, node);
            if self.rules.membership() {
                self.nodes[node].reported[gateway] = u32::MAX;
                self.gateways[gateway].cache.retain(|_, (at, _)| *at != node);
            }
        }
    }

    /// Everything of a gateway at this node fails.
    fn lose(&mut self, gateway: usize, node: usize) {
        self.gateways[gateway].connected[node] = None;
        let lost = |op: &Op| match &op.state {
            State::Reading(l) => l.node == node,
            State::Asked(nodes) => nodes.contains(&node),
            _ => false,
        };
        while let Some(index) = self.gateways[gateway].ops.iter().position(lost) {
            self.fail(gateway, index);
        }
    }
}
