//! Commands of a request, one after the other; the keys of one command all at once.

use super::Engine;
use super::job::{Job, KeyAt, Task};
use super::reply::{say, say_error, text};
use super::request::{Answer, Client, Roll, StoreAt, Style};
use super::slab::NONE;
use super::verb::Verb;
use crate::memcached::{
    Command, Form, KEY_BYTES_MAX, Limits, Operation, Parsed, Refusal, VERSION, parse, reply,
};
use crate::service::Context;
use crate::service::kv::order::Turn;
use crate::stats::Counter;
use crate::store::geometry::Probe;
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::transport::Transport;

/// A key that has more of them in one request than there is room for.
const MANY_KEYS: &str = "SERVER_ERROR too many keys in one request";

impl<B: Buf, C: Client> Engine<B, C> {
    /// Reads the request's next command and begins it; the reply goes out after the last one.
    pub(super) fn next_command<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        while let Some(request) = self.requests.value(at) {
            if request.roll.pending > 0 {
                return;
            }
            if request.text.is_empty() {
                break;
            }
            if self.has_to_wait(ctx.now, at) {
                return self.hold(at);
            }
            if !self.begin_command(ctx, at) {
                break;
            }
        }
        self.reply(ctx, at);
    }

    /// False when there is no command any more.
    fn begin_command<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32) -> bool
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let limits = self.limits();
        let Some(request) = self.requests.value(at) else { return false };
        let Some(frame) = request.frame.take() else { return false };
        let (bytes, text, mut roll) = (frame.first(), request.text.clone(), Roll::EMPTY);
        let mut decoded = [0; KEY_BYTES_MAX];
        let parsed = match parse(&bytes[text.clone()], &mut decoded, &limits) {
            Parsed::Request(parsed) => parsed,
            // A datagram is all there will ever be: what is missing never comes.
            Parsed::Incomplete { .. } | Parsed::Close => {
                ctx.tally.add(Counter::KvMalformed, 1);
                return false;
            }
        };
        request.style = style_of(&parsed.command);
        request.store = StoreAt::of(&parsed.command, bytes);
        request.command_at = text.start;
        request.text.start = (text.start + parsed.used).saturating_add(parsed.skip).min(text.end);
        let (flow, mut answer) = (request.client.flow(), std::mem::take(&mut request.answer));
        let mut begin = Begin { engine: self, request: at, flow, frame: bytes, roll: &mut roll };
        begin.command(ctx, &parsed.command, &mut answer);
        if let Some(request) = self.requests.value(at) {
            (request.roll, request.answer, request.frame) = (roll, answer, Some(frame));
        }
        true
    }

    /// The partition at a node that a key is in, and where it may be there; nowhere while the node takes no operations, which is
    /// answered at once.
    #[inline]
    pub(super) fn aim(&self, node: usize, key: &[u8]) -> (u16, Probe) {
        let state = &self.nodes[node];
        let probe = match &state.node {
            Some(n) if state.is_up => n.geometry.probe(&n.secrets, key),
            _ => Probe::NOWHERE,
        };
        let part = node * usize::from(self.settings.node_workers_max) + probe.partition as usize;
        (part as u16, probe)
    }

    pub(super) fn limits(&self) -> Limits {
        Limits { value_bytes_max: self.settings.value_bytes_max }
    }
}

/// A command being begun.
struct Begin<'a, B: Buf, C: Client> {
    engine: &'a mut Engine<B, C>,
    request: u32,
    /// Of its client.
    flow: u64,
    frame: &'a [u8],
    roll: &'a mut Roll,
}

impl<B: Buf, C: Client> Begin<'_, B, C> {
    fn command<T, P>(&mut self, ctx: &mut Context<'_, T, P>, command: &Command<'_>, answer: &mut Answer<B>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        match *command {
            Command::Get { keys, fetch, .. } => {
                if keys.most() > self.engine.jobs.room() && keys.count() > self.engine.jobs.room() {
                    return say_error(ctx, answer, MANY_KEYS);
                }
                let task = task_of(&Operation::Fetch(fetch));
                for key in keys {
                    ctx.tally.add(Counter::KvGets, 1);
                    self.key(key, task, true);
                }
                if self.roll.pending == 0 {
                    // As memcached answers a `gat` without a key.
                    say(ctx, answer, "END");
                }
            }
            Command::Item { key, ref operation, .. } => {
                let reads = matches!(operation, Operation::Fetch(_));
                ctx.tally.add(if reads { Counter::KvGets } else { Counter::KvMutations }, 1);
                ctx.tally.add(Counter::KvSets, u64::from(matches!(operation, Operation::Store(_))));
                self.key(key, task_of(operation), reads);
            }
            Command::Flush { .. } => {
                ctx.tally.add(Counter::KvFlushes, 1);
                self.flush();
            }
            Command::TooLarge { stale_key: Some(key), .. } => self.key(key, Task::Call, false),
            Command::TooLarge { quiet, .. } => plain(ctx, answer, reply::TOO_LARGE, quiet),
            Command::Version => text(ctx, answer, &[b"VERSION ", VERSION.as_bytes(), b"\r\n"]),
            Command::Verbosity { quiet } => plain(ctx, answer, "OK", quiet),
            Command::Noop => plain(ctx, answer, "MN", false),
            Command::Refused { refusal, quiet } => {
                ctx.tally.add(Counter::KvMalformed, 1);
                if !quiet {
                    say_error(ctx, answer, Refusal::text(refusal));
                }
            }
            Command::Stats(group) => self.engine.say_stats(ctx, group, answer),
            Command::Quit => {}
        }
    }

    /// One partition after the other loses everything.
    fn flush(&mut self) {
        let most = usize::from(self.engine.settings.node_workers_max);
        for node in 0..self.engine.nodes.len() {
            if !self.engine.is_member(node) {
                continue;
            }
            let partitions = self.engine.nodes[node].node.map_or(1, |n| n.geometry.partitions() as usize);
            for partition in 0..partitions.min(most) {
                self.job(KeyAt::None, Task::Flush, false, (node * most + partition) as u16, Probe::NOWHERE);
            }
        }
    }

    /// A job for a key.
    fn key(&mut self, key: &[u8], task: Task, fetches: bool) {
        let engine = &mut *self.engine;
        let node = engine.owner_of(key);
        // A key of the frame is used where it is.
        let at = (key.as_ptr().addr()).wrapping_sub(self.frame.as_ptr().addr());
        let place = match self.frame.get(at..at.wrapping_add(key.len())) {
            Some(_) if at < self.frame.len() => KeyAt::Frame { at: at as u32, len: key.len() as u8 },
            _ => KeyAt::Encoded,
        };
        let (part, probe) = engine.aim(node, key);
        self.job(place, task, fetches, part, probe);
    }

    fn job(&mut self, key: KeyAt, task: Task, fetches: bool, part: u16, probe: Probe) {
        let engine = &mut *self.engine;
        let is_ordered = task != Task::Flush && probe != Probe::NOWHERE;
        let lane = is_ordered.then_some(probe.hash ^ self.flow);
        let job = Job::new((self.request, task, fetches), key, lane, part, probe);
        let Some(at) = engine.jobs.insert(job) else { return };
        self.roll.pending += 1;
        let last = std::mem::replace(&mut self.roll.last, at);
        if last == NONE {
            self.roll.first = at;
        } else if let Some(last) = engine.jobs.value(last) {
            last.sibling = at;
        }
        if let Some(lane) = lane {
            engine.order.prefetch(lane);
            engine.locations.prefetch(probe.hash);
        }
        engine.fresh.push_back(at);
    }
}

impl<B: Buf, C: Client> Engine<B, C> {
    /// A new job takes its turn, or waits for it. True if it has it.
    #[inline]
    pub(super) fn enter(&mut self, at: u32) -> bool {
        let Some(job) = self.jobs.value(at) else { return false };
        let writes = job.writes;
        let has_turn = job.lane.is_none_or(|lane| self.order.enter(lane, at, writes) == Turn::Now);
        if has_turn {
            job.take_turn();
        }
        has_turn
    }
}

fn style_of(command: &Command<'_>) -> Style {
    match *command {
        Command::Get { cas, .. } => Style::Values { cas },
        Command::Item { ref operation, ref form, .. } => match *form {
            Form::Text { quiet } => Style::Word { quiet, verb: Verb::of(operation, form) },
            _ => Style::Other,
        },
        _ => Style::Other,
    }
}

fn task_of(operation: &Operation<'_>) -> Task {
    match operation {
        Operation::Fetch(fetch) if !operation.is_mutation() => Task::Fetch { claim: fetch.claim },
        _ => Task::Call,
    }
}

fn plain<T, P>(ctx: &mut Context<'_, T, P>, answer: &mut Answer<T::Buf>, line: &str, quiet: bool)
where
    T: Transport,
    P: Pool<Buf = T::Buf>,
{
    if !quiet {
        say(ctx, answer, line);
    }
}
