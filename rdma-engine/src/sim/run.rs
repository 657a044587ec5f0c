//! One run: both ends on virtual time until everything asked is done, every result checked.

use super::flow::Flow;
use super::host::{Host, SHARED_WORDS, connect};
use super::network::{Fates, Network};
use super::rng::Rng;
use super::scenario::Scenario;
use super::trace::Trace;
use crate::soft::SoftCounters;
use crate::transport::{Completions, Transport};
use crate::types::{QpType, Time};
use crate::wr::{Completion, Status};
use std::fmt;

/// Turns after which a run that is not done hangs.
const MAX_TURNS: u32 = 400_000;
/// Time that passes in a turn in which somebody only waits to post something.
const TURN_NS: u64 = 2000;

/// What a run came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Requests that completed with success.
    pub succeeded: u64,
    /// Queue pairs that failed, where that was allowed.
    pub failed: u64,
    /// What the network did.
    pub fates: Fates,
    /// What the two endpoints counted.
    pub counters: [SoftCounters; 2],
    /// How long it took, in virtual time.
    pub ended: Time,
}

/// A run that went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// When it was noticed.
    pub at: Time,
    /// What was wrong.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} at {} ns: {}", self.seed, self.at.0, self.what)?;
        write!(f, "replay: cargo run --release --example sim -- --start {} --seeds 1 --trace", self.seed)
    }
}

/// The two ends, what lies between them, and what they want of each other.
pub(super) struct Run {
    pub(super) scenario: Scenario,
    pub(super) hosts: [Host; 2],
    pub(super) network: Network,
    /// By end that posts, then by pair.
    pub(super) flows: [Vec<Flow>; 2],
    pub(super) now: Time,
    pub(super) rng: Rng,
    pub(super) trace: Trace,
    pub(super) succeeded: u64,
    /// By pair: it will be renewed.
    pub(super) renewals_left: Vec<bool>,
    /// A pair is being taken down: its receives come back.
    pub(super) retiring: bool,
}

/// Runs the scenario of `seed`, with every frame printed if `trace`.
///
/// # Errors
/// [`Failure`] says what was wrong and how to see it again.
pub fn run(seed: u64, trace: bool) -> Result<Outcome, Failure> {
    run_scenario(Scenario::new(seed), trace)
}

/// Runs a scenario made by hand.
///
/// # Errors
/// As [`run`].
pub fn run_scenario(scenario: Scenario, trace: bool) -> Result<Outcome, Failure> {
    let seed = scenario.seed;
    let mut run = Run::new(scenario, Trace::new(trace));
    match run.play().and_then(|()| run.check_memory()) {
        Ok(()) => run.close(),
        Err(what) => Err(Failure { seed, at: run.now, what }),
    }
}

impl Run {
    fn new(scenario: Scenario, trace: Trace) -> Self {
        let number = |end: usize, pair: usize| (end * scenario.pairs + pair + 1) as u64;
        Run {
            hosts: connect(&scenario),
            network: Network::new(scenario.faults.clone(), scenario.seed ^ 0xFACE),
            flows: [0, 1]
                .map(|e| (0..scenario.pairs).map(|p| Flow::new(number(e, p), scenario.area())).collect()),
            now: Time(0),
            rng: Rng::new(scenario.seed ^ 0xBEEF),
            trace,
            succeeded: 0,
            renewals_left: vec![scenario.renewals; scenario.pairs],
            retiring: false,
            scenario,
        }
    }

    fn play(&mut self) -> Result<(), String> {
        for _ in 0..MAX_TURNS {
            for end in 0..2 {
                self.post_receives(end)?;
                self.post_requests(end)?;
                let (scenario, now) = (&self.scenario, self.now);
                self.hosts[end].flush(scenario, now, end, &mut self.network, &mut self.trace);
                self.poll(end)?;
            }
            self.renew()?;
            if self.is_done() {
                return Ok(());
            }
            self.advance();
        }
        Err(format!("it hangs: {}", self.state_in_words()))
    }

    /// Lets time pass to the next event, and delivers what has arrived.
    fn advance(&mut self) {
        let timers = self.hosts.iter().map(|h| h.transport.next_timer()).min().unwrap_or(Time::NEVER);
        let mut next = timers.min(self.network.next_arrival());
        if self.wants_to_post() {
            next = next.min(self.now.after_ns(TURN_NS));
        }
        if next != Time::NEVER {
            self.now = self.now.max(next);
        }
        // Something is always left to the turn of the other end.
        self.now = self.now.after_ns(1);
        while let Some((end, bytes)) = self.network.receive(self.now) {
            self.hosts[end].ingress(self.now, &bytes, self.scenario.shared_ppm, &mut self.rng);
        }
    }

    pub(super) fn poll(&mut self, end: usize) -> Result<(), String> {
        let mut batch = Completions::new();
        while self.hosts[end].transport.poll(self.now, &mut batch) > 0 {
            for completion in batch.drain(..) {
                self.trace.note(self.now, end, || completion_in_words(&completion));
                self.check_completion(end, completion)?;
            }
        }
        Ok(())
    }

    /// True while a reliable flow goes on; a queue pair that failed takes its flows with it.
    pub(super) fn is_alive(&self, end: usize, pair: usize) -> bool {
        self.flows[end][pair].failed.is_none()
    }

    fn wants_to_post(&self) -> bool {
        (0..2).any(|end| {
            (0..self.scenario.pairs).any(|pair| {
                let flow = &self.flows[end][pair];
                let more = flow.failed.is_none() && flow.requests.len() < self.scenario.requests as usize;
                let host = &self.hosts[end];
                more && host.transport.send_room(host.qps[pair]) > 0 || self.wants_receive(end, pair)
            })
        })
    }

    fn is_done(&self) -> bool {
        let posted = (0..2).all(|end| (0..self.scenario.pairs).all(|pair| self.is_flow_done(end, pair)));
        let quiet = self.network.next_arrival() == Time::NEVER;
        let nothing_due = self.hosts.iter().all(|h| h.transport.next_timer() > self.now);
        posted && quiet && nothing_due
    }

    fn state_in_words(&self) -> String {
        let flow =
            |f: &Flow| format!("{} posted {} completed {} arrived", f.requests.len(), f.completed, f.arrived);
        let flows: Vec<_> = self.flows.iter().flatten().map(flow).collect();
        format!("{flows:?}; {:?}", self.scenario)
    }

    fn check_memory(&self) -> Result<(), String> {
        for end in 0..2 {
            (0..self.scenario.pairs).try_for_each(|pair| self.check_memory_of(end, pair))?;
            self.check_shared_words(end)?;
        }
        Ok(())
    }

    /// What the flow of a pair from `end` has done to the other end.
    pub(super) fn check_memory_of(&self, end: usize, pair: usize) -> Result<(), String> {
        let mut area = vec![0; self.scenario.area()];
        self.hosts[1 - end].region.window().copy_out(pair * self.scenario.area(), &mut area);
        if self.scenario.kind == QpType::Rc
            && let Some(wrong) = self.flows[end][pair].wrong_memory(&area)
        {
            return Err(format!("memory of end {} for pair {pair}: {wrong}", 1 - end));
        }
        self.check_arrivals(end, pair)
    }

    /// FETCH_ADDs of all flows on one word form a chain from 0 to its value: each was executed exactly once.
    fn check_shared_words(&self, end: usize) -> Result<(), String> {
        if self.flows[end].iter().any(|f| f.failed.is_some() || f.shared_unsure) {
            return Ok(());
        }
        for word in 0..SHARED_WORDS {
            let shared = self.flows[end].iter().flat_map(|f| &f.shared);
            let mut adds: Vec<_> = shared.filter(|s| s.0 == word).map(|s| (s.1, s.2)).collect();
            adds.sort_unstable();
            let mut value = 0;
            for (original, add) in adds {
                if original != value {
                    return Err(format!("shared word {word}: an add found {original}, not {value}"));
                }
                value += add;
            }
            let mut now = [0; 8];
            let at = self.scenario.area() * self.scenario.pairs + word * 8;
            self.hosts[1 - end].region.window().copy_out(at, &mut now);
            if u64::from_ne_bytes(now) != value {
                return Err(format!("shared word {word} is {}, not {value}", u64::from_ne_bytes(now)));
            }
        }
        Ok(())
    }

    fn close(self) -> Result<Outcome, Failure> {
        let failed = self.flows.iter().flatten().filter(|f| f.failed.is_some()).count() as u64;
        let counters = [0, 1].map(|e| *self.hosts[e].transport.soft_counters());
        let (seed, at) = (self.scenario.seed, self.now);
        let outcome = Outcome {
            succeeded: self.succeeded,
            failed,
            fates: self.network.fates,
            counters,
            ended: self.now,
        };
        for host in self.hosts {
            if let Some(what) = host.close() {
                return Err(Failure { seed, at, what });
            }
        }
        Ok(outcome)
    }
}

fn completion_in_words<B>(c: &Completion<B>) -> String {
    let status = if c.status == Status::Success { "ok" } else { c.status.words() };
    format!("completion of {:?} {:?}: {status}", c.qp, c.done)
}
