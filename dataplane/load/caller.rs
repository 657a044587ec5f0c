//! The part of a client that knows no transport: which request comes next, what a reply is worth, when it is over.

use super::call::{Call, Op};
use super::fault::Fault;
use super::ledger::Ledger;
use super::meter::Meter;
use super::pace::Pace;
use super::popularity::Ranks;
use super::random::{Random, mix};
use super::refusal::{REFUSED_MAX, Refusal};
use super::reply::Said;
use super::request::Speech;
use super::settings::{LoadSettings, PRELOAD_RETRIES};
use rdma_engine::types::Time;

/// Draws after which a write becomes a read, as too many writes of the keys drawn are under way.
const DRAWS: usize = 8;

/// What a client is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Writes every key once; this is the next one.
    Preload {
        /// Number of the key among those of the share.
        next: u32,
    },
    /// All keys are written. It goes on when it is [released](Caller::release), so that several clients measure together.
    Loaded,
    /// Sends requests that are not measured.
    WarmUp {
        /// When that ends.
        until: Time,
    },
    /// Measures.
    Measure {
        /// When it began.
        from: Time,
        /// When it ends.
        until: Time,
    },
    /// Waits for replies, sends nothing more.
    Drain,
    /// All replies are there, or given up.
    Done,
}

/// One client.
#[derive(Debug)]
pub struct Caller {
    settings: LoadSettings,
    speech: Speech,
    ranks: Ranks,
    random: Random,
    ledger: Ledger,
    meter: Meter,
    pace: Pace,
    phase: Phase,
    /// Requests under way.
    outstanding: u32,
    /// Requests of the measurement that were begun.
    begun: u64,
    /// Something was answered well before the measurement.
    is_served: bool,
    /// What the server said that has stored nothing.
    refusal: Option<Refusal>,
}

impl Caller {
    /// A client that begins when it is first asked for a request.
    pub fn new(settings: LoadSettings) -> Self {
        let mut random = Random::new(mix(settings.seed) ^ settings.stream);
        let next = if settings.preload { 0 } else { u32::MAX };
        Caller {
            speech: settings.speech(),
            ranks: Ranks::new(settings.keys, settings.popularity),
            ledger: Ledger::new(settings.keys, settings.share, settings.run),
            meter: Meter::default(),
            pace: Pace::new(settings.arrivals, Time(0), Random::new(random.bits())),
            phase: Phase::Preload { next },
            outstanding: 0,
            begun: 0,
            is_served: false,
            refusal: None,
            random,
            settings,
        }
    }

    /// How requests are written.
    pub fn speech(&self) -> &Speech {
        &self.speech
    }

    /// What was asked for.
    pub fn settings(&self) -> &LoadSettings {
        &self.settings
    }

    /// What was measured so far.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// What it is doing.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Requests under way.
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Why it ended early: the server refused all that was to be written first.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref().filter(|refusal| refusal.times >= self.refused_max())
    }

    fn refused_max(&self) -> u32 {
        REFUSED_MAX.min(self.share_keys())
    }

    /// True when all is said.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Ends the measurement early; what is under way is still waited for.
    pub fn stop(&mut self, now: Time) {
        match self.phase {
            Phase::Measure { from, .. } => self.end_measurement(from, now),
            Phase::Preload { .. } | Phase::Loaded | Phase::WarmUp { .. } => self.phase = Phase::Drain,
            Phase::Drain | Phase::Done => {}
        }
        self.drained();
    }

    /// When [`begin`](Self::begin) could give another request, as far as time decides it: also when a phase ends.
    pub fn next_due(&self, now: Time) -> Time {
        match self.phase {
            // Once all is written the replies decide.
            Phase::Preload { next } if next >= self.share_keys() && self.outstanding > 0 => Time::NEVER,
            Phase::Preload { .. } => now,
            Phase::WarmUp { until } | Phase::Measure { until, .. } => self.pace.due(now).min(until),
            Phase::Loaded | Phase::Drain | Phase::Done => Time::NEVER,
        }
    }

    /// The next request, if one is due. It counts as sent.
    #[inline]
    pub fn begin(&mut self, now: Time) -> Option<Call> {
        self.advance(now);
        let call = match self.phase {
            Phase::Preload { next } => self.preload(next, now)?,
            Phase::WarmUp { .. } | Phase::Measure { .. } => {
                let due = self.pace.due(now);
                if due > now {
                    return None;
                }
                self.pace.advance();
                self.draw(due)
            }
            Phase::Loaded | Phase::Drain | Phase::Done => return None,
        };
        self.outstanding += 1;
        Some(call)
    }

    /// Moves to the next phase when it is time.
    #[inline]
    pub fn advance(&mut self, now: Time) {
        match self.phase {
            Phase::WarmUp { until } if now >= until => {
                // What was due earlier and could not begin is no part of the measurement.
                self.pace = Pace::new(self.settings.arrivals, until, Random::new(self.random.bits()));
                self.phase = Phase::Measure { from: until, until: until.after_ns(self.settings.measure_ns) };
                self.advance(now);
            }
            Phase::Measure { from, until } if now >= until => self.end_measurement(from, until),
            Phase::Measure { from, .. }
                if self.settings.requests > 0 && self.begun >= self.settings.requests =>
            {
                self.end_measurement(from, now);
            }
            Phase::Preload { next } if next >= self.share_keys() && self.outstanding == 0 => {
                self.phase = Phase::Loaded;
            }
            _ => {}
        }
        self.drained();
    }

    /// Begins the warm-up, if all keys are written.
    pub fn release(&mut self, now: Time) {
        if self.phase != Phase::Loaded {
            return;
        }
        self.pace = Pace::new(self.settings.arrivals, now, Random::new(self.random.bits()));
        self.phase = Phase::WarmUp { until: now.after_ns(self.settings.warm_up_ns) };
    }

    fn end_measurement(&mut self, from: Time, until: Time) {
        if self.settings.requests == 0 {
            self.meter.counts.unsent += self.pace.skip_to(until);
        }
        self.meter.measured_ns = until.since_ns(from);
        self.phase = Phase::Drain;
    }

    fn drained(&mut self) {
        if self.phase == Phase::Drain && self.outstanding == 0 {
            self.phase = Phase::Done;
        }
    }

    fn share_keys(&self) -> u32 {
        self.settings.share.count(self.settings.keys)
    }

    fn preload(&mut self, next: u32, now: Time) -> Option<Call> {
        if next >= self.share_keys() {
            return None;
        }
        self.phase = Phase::Preload { next: next + 1 };
        let key = next * self.settings.share.of + self.settings.share.index;
        let write = self.ledger.begin(key)?;
        let length = self.settings.sizes.draw(&mut self.random);
        Some(Call { key, op: Op::Set { write, length }, due: now, retries: 0, measured: false })
    }

    #[inline]
    fn draw(&mut self, due: Time) -> Call {
        let measured = matches!(self.phase, Phase::Measure { .. });
        self.begun += u64::from(measured);
        let (gets, sets) = self.settings.ratio;
        let mut key = self.ranks.draw(&mut self.random);
        if self.random.below(u64::from(gets) + u64::from(sets)) >= u64::from(gets) {
            for _ in 0..DRAWS {
                let own = self.settings.share.nearest(key, self.settings.keys);
                if let Some(write) = self.ledger.begin(own) {
                    let length = self.settings.sizes.draw(&mut self.random);
                    return Call { key: own, op: Op::Set { write, length }, due, retries: 0, measured };
                }
                key = self.ranks.draw(&mut self.random);
            }
        }
        let floor = self.ledger.floor(key);
        Call { key, op: Op::Get { floor }, due, retries: 0, measured }
    }

    /// A request was answered.
    #[inline]
    pub fn answered(&mut self, call: &Call, said: Said, now: Time) {
        self.outstanding -= 1;
        let mut hit_bytes = None;
        let fault = match (said, call.op) {
            (Said::Hit(value), Op::Get { floor }) => {
                hit_bytes = Some(value.length);
                let judged = self.ledger.judge(call.key, floor, value.version);
                judged.err().map(|wrong| Fault::Version { seen: value.version, wrong })
            }
            (Said::Wrong(fault), _) => Some(fault),
            _ => None,
        };
        if let Op::Set { write, .. } = call.op {
            self.ledger.end(call.key, write, fault.is_none());
        }
        match fault {
            Some(fault) => {
                self.meter.wrong(self.speech.keys, call, &fault);
                self.refused(fault);
            }
            None if call.measured => self.meter.answered(call, now, hit_bytes),
            None => self.is_served = true,
        }
        self.drained();
    }

    /// A server that refuses all it is given at first is asked for nothing more.
    #[cold]
    fn refused(&mut self, fault: Fault) {
        let (Phase::Preload { .. }, false, Fault::Unexpected(said)) = (self.phase, self.is_served, fault)
        else {
            return;
        };
        let times = 1 + self.refusal.as_ref().map_or(0, |refusal| refusal.times);
        self.refusal = Some(Refusal { times, said });
        if times >= self.refused_max() {
            self.phase = Phase::Drain;
        }
    }

    /// No answer came in time. The request to send again, or `None` if it is given up.
    #[cold]
    pub fn lost(&mut self, mut call: Call) -> Option<Call> {
        self.meter.counts.losses += u64::from(call.measured);
        if let Op::Set { write, .. } = call.op {
            self.ledger.lose(call.key, write.number);
        }
        let most = match self.phase {
            Phase::Preload { .. } => self.settings.retries.max(PRELOAD_RETRIES),
            _ => self.settings.retries,
        };
        if call.retries < most {
            call.retries += 1;
            return Some(call);
        }
        self.meter.counts.unanswered += u64::from(call.measured);
        self.outstanding -= 1;
        if let Op::Set { write, .. } = call.op {
            self.ledger.end(call.key, write, false);
        }
        self.drained();
        None
    }

    /// A reply came to a request that was counted as lost.
    #[cold]
    pub fn late(&mut self, call: &Call) {
        self.meter.counts.late += u64::from(call.measured);
    }

    /// Something came that is no reply to anything.
    #[cold]
    pub fn stranger(&mut self) {
        self.meter.counts.strangers += 1;
    }

    /// A connection was lost and is made again.
    #[cold]
    pub fn reconnected(&mut self) {
        self.meter.counts.reconnects += 1;
    }
}
