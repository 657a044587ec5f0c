//! The end of a job, and of a command: results become text.

use super::job::{Failure, Outcome, Step, Task};
use super::reply::{Said, say, spoil, text, value};
use super::request::{Answer, Client, Request, Style};
use super::slab::{NONE, Slab};
use super::verb::Verb;
use super::{Engine, Job, REQUEST_JOBS};
use crate::memcached::reply::Output;
use crate::memcached::reply::{LINE_BYTES_MAX, TOO_LARGE, answer as put_outcome, value_line};
use crate::memcached::{self, Command, Form, Hit, KEY_BYTES_MAX, Limits, Parsed, parse, rpc};
use crate::service::Context;
use crate::service::kv::output::contiguous;
use crate::stats::Counter;
use arrayvec::ArrayVec;
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::transport::Transport;

/// The longest line: `me` and meta replies with a key in base64 and every flag.
const LINE: usize = LINE_BYTES_MAX + 64;

/// A line being written.
#[derive(Default)]
struct Line(ArrayVec<u8, LINE>);

impl Output for Line {
    fn put(&mut self, bytes: &[u8]) {
        // Longer ones cannot be; they would be cut, not overrun.
        self.0.try_extend_from_slice(bytes).ok();
    }
}

impl<B: Buf, C: Client> Engine<B, C> {
    /// A job is over.
    pub(super) fn finish<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32, result: Outcome<B>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let Some(job) = self.jobs.value(at) else { return };
        debug_assert_eq!(job.reads_out, 0);
        job.step = Step::Done;
        job.result = result;
        let request = job.request;
        self.give_way(at);
        self.job_over(ctx, request);
    }

    /// A job reads no more, and others have their turn.
    #[inline]
    pub(super) fn give_way(&mut self, at: u32) {
        let Engine { jobs, parts, order, due, .. } = self;
        let Some(job) = jobs.value(at) else { return };
        let (lane, writes) = (job.lane, job.writes);
        if let Some(began) = job.began.take() {
            parts[usize::from(job.part)].lookups.end(began);
        }
        if let Some(lane) = lane {
            order.leave(lane, writes, |at| {
                if let Some(job) = jobs.value(at) {
                    job.take_turn();
                    due.push_back(at);
                }
            });
        }
    }

    /// One of a request's jobs is over; after the last one its command is.
    fn job_over<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let limits = self.limits();
        let Engine { jobs, requests, gathered, large, kept, .. } = self;
        let Some(request) = requests.value(at) else { return };
        request.roll.pending -= 1;
        if request.roll.pending > 0 {
            return;
        }
        Conclusion { jobs, gathered, large, limits }.conclude(ctx, request);
        if request.text.is_empty() {
            return self.reply(ctx, at);
        }
        // What is answered already waits for the rest: of such there may not be much, or it takes what the rest needs.
        let buffers = request.answer.body.as_ref().map_or(0, B::segment_count);
        *kept = *kept - request.answer.kept + buffers;
        request.answer.kept = buffers;
        if buffers > REQUEST_JOBS || *kept > ctx.pools.frames.capacity() / 8 {
            spoil(ctx, &mut request.answer);
            *kept -= std::mem::take(&mut request.answer.kept);
        }
        self.idle.push_back(at);
    }
}

/// The end of a command: what it needs of the engine.
struct Conclusion<'e, B> {
    jobs: &'e mut Slab<Job<B>>,
    gathered: &'e mut Vec<u8>,
    /// See [`Engine`].
    large: &'e mut usize,
    limits: Limits,
}

impl<B: Buf> Conclusion<'_, B> {
    /// All jobs of a command are over.
    fn conclude<T, P, C>(&mut self, ctx: &mut Context<'_, T, P>, request: &mut Request<B, C>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let Request { frame, text, command_at, style, roll, answer, .. } = request;
        let frame = frame.as_ref().map_or(&b""[..], B::first);
        let mut decoded;
        let parsed = match *style {
            Style::Other => {
                decoded = [0; KEY_BYTES_MAX];
                match parse(&frame[*command_at..text.end], &mut decoded, &self.limits) {
                    Parsed::Request(parsed) => Some(parsed.command),
                    // It was one a moment ago.
                    Parsed::Incomplete { .. } | Parsed::Close => None,
                }
            }
            Style::Values { .. } | Style::Word { .. } => None,
        };
        let (mut at, mut failed, mut is_ended) = (roll.first, None, false);
        while at != NONE {
            let Some(job) = self.jobs.value(at) else { break };
            let (this, key, fetches, task) = (at, job.key, job.fetches, job.task);
            at = job.sibling;
            let is_large = job.is_large;
            let result = std::mem::replace(&mut job.result, Outcome::Open);
            self.jobs.discard(this);
            if let Outcome::Failed(failure) = result {
                ctx.tally.add(Counter::KvServerErrors, 1);
                *self.large -= usize::from(is_large);
                failed = failed.or(Some(failure));
                continue;
            }
            let said = match (*style, &parsed) {
                (Style::Values { cas }, _) => {
                    let is_last = at == NONE && failed.is_none();
                    let said = self.say_value(ctx, key.of(frame), result, (task, cas), is_last, answer);
                    is_ended = is_last && matches!(said, Ok(Said::Copied | Said::Hung));
                    said
                }
                (Style::Word { quiet, verb }, _) => {
                    self.say_item(ctx, b"", (verb, fetches), &Form::Text { quiet }, result, answer)
                }
                (Style::Other, Some(Command::Item { key, operation, form })) => {
                    let verb = Verb::of(operation, form);
                    self.say_item(ctx, key, (verb, fetches), form, result, answer)
                }
                _ => Ok(Said::Nothing),
            };
            if is_large && said == Ok(Said::Hung) {
                answer.large += 1;
            } else {
                *self.large -= usize::from(is_large);
            }
            failed = failed.or(said.err());
        }
        if !is_ended {
            conclude_text(ctx, *style, parsed.as_ref(), failed, answer);
        }
    }

    /// One key of a `get`, and the end of the answer behind the last one's value.
    fn say_value<T, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        key: Option<&[u8]>,
        result: Outcome<B>,
        (task, cas): (Task, bool),
        is_last: bool,
        answer: &mut Answer<B>,
    ) -> Result<Said, Failure>
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let key = key.ok_or(Failure::Refused)?;
        // What the owner is asked for from the first is a `gat`.
        let verb = if task == Task::Call { Verb::Touch { is_meta: false } } else { Verb::Read };
        let hit = match result {
            Outcome::Hit(hit, buf) => Some((hit, buf)),
            Outcome::Answer(buf) => self.hit_of(buf, |_| ())?,
            _ => None,
        };
        let Some((hit, buf)) = hit else {
            verb.miss(ctx.tally);
            return Ok(Said::Nothing);
        };
        verb.hit(ctx.tally);
        let mut line = Line::default();
        value_line(&mut line, key, hit.flags, hit.size, cas.then_some(hit.cas));
        Ok(value(ctx, answer, &line.0, buf, if is_last { b"\r\nEND\r\n" } else { b"\r\n" }))
    }

    /// What an owner answered: the item that was hit, and the value that the answer ends with. `other` is told of anything
    /// else.
    fn hit_of(
        &mut self,
        mut buf: B,
        other: impl FnOnce(&memcached::Outcome<'_>),
    ) -> Result<Option<(Hit<'static>, B)>, Failure> {
        let outcome = rpc::answer(contiguous(&buf, self.gathered));
        let (hit, len) = match outcome.map_err(|rpc::Malformed| Failure::Refused)? {
            memcached::Outcome::Hit(hit) => (without_value(&hit), hit.value.len()),
            outcome => {
                other(&outcome);
                return Ok(None);
            }
        };
        buf.adj(buf.len() - len);
        Ok(Some((hit, buf)))
    }

    /// Any other command on one key.
    fn say_item<T, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        key: &[u8],
        (verb, fetches): (Verb, bool),
        form: &Form<'_>,
        result: Outcome<B>,
        answer: &mut Answer<B>,
    ) -> Result<Said, Failure>
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let mut line = Line::default();
        let hit = match result {
            Outcome::Hit(hit, buf) => Some((hit, buf)),
            Outcome::Answer(buf) => self.hit_of(buf, |other| {
                verb.done(ctx.tally, other);
                put_outcome(&mut line, form, key, other);
            })?,
            _ => {
                put_outcome(&mut line, form, key, &memcached::Outcome::NotFound);
                None
            }
        };
        let Some((hit, buf)) = hit else {
            if fetches {
                verb.miss(ctx.tally);
            }
            text(ctx, answer, &[&line.0]);
            return Ok(Said::Nothing);
        };
        verb.hit(ctx.tally);
        let has_value = matches!(form, Form::Meta(meta) if meta.value);
        put_outcome(&mut line, form, key, &memcached::Outcome::Hit(hit));
        if has_value {
            // The value comes between the line and the last line ending.
            let head = line.0.len().saturating_sub(2);
            return Ok(value(ctx, answer, &line.0[..head], buf, b"\r\n"));
        }
        text(ctx, answer, &[&line.0]);
        Ok(Said::Nothing)
    }
}

/// What ends a command's answer, or stands for all of it.
fn conclude_text<T, P>(
    ctx: &mut Context<'_, T, P>,
    style: Style,
    command: Option<&Command<'_>>,
    failed: Option<Failure>,
    answer: &mut Answer<T::Buf>,
) where
    T: Transport,
    P: Pool<Buf = T::Buf>,
{
    let quiet = match (style, command) {
        (Style::Word { quiet, .. }, _) => quiet,
        (_, Some(Command::Flush { quiet, .. } | Command::TooLarge { quiet, .. })) => *quiet,
        _ => false,
    };
    match (style, command, failed) {
        (_, Some(Command::TooLarge { .. }), _) if !quiet => say(ctx, answer, TOO_LARGE),
        (_, _, Some(failure)) if !quiet => {
            // The request made sense: its answer is none of those that are limited.
            say(ctx, answer, failure.text());
        }
        (Style::Values { .. }, _, None) => say(ctx, answer, "END"),
        (_, Some(Command::Flush { .. }), None) if !quiet => say(ctx, answer, "OK"),
        _ => {}
    }
}

/// What is known of an item beside its value.
fn without_value(hit: &Hit<'_>) -> Hit<'static> {
    let Hit { value: _, size, flags, cas, ttl_s, idle_s, bits, won } = *hit;
    Hit { value: b"", size, flags, cas, ttl_s, idle_s, bits, won }
}
