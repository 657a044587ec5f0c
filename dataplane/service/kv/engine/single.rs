//! A request that is one `get` of one key, or one plain `set`, and nothing else: most of what a cache is asked.
//!
//! What `commands`, `finish` and `reply` do in steps for any request is done here in one go for this one. Request and job are the
//! same as ever in between, so whatever is out of the ordinary goes the general way from where it is.

use super::job::{Job, KeyAt, Task};
use super::request::{Answer, Arrival, Client, Request, Roll, StoreAt, Style};
use super::verb::Verb;
use super::{Engine, Reply};
use crate::memcached::{Outcome, get_alone, reply, rpc, set_alone};
use crate::service::Context;
use crate::stats::Counter;
use crate::store::geometry::Probe;
use crate::store::reader::Found;
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::transport::Transport;
use std::ops::Range;

/// What follows the only value.
const END: &[u8] = b"\r\nEND\r\n";
/// The answer to a `set`.
const STORED: &[u8] = b"STORED\r\n";
/// How the two are answered.
const VALUE: Style = Style::Values { cas: false };
const WORD: Style = Style::Word { quiet: false, verb: Verb::Store };

/// Such a request: where its key is in the frame, and what it stores.
pub(super) struct One {
    key: Range<usize>,
    store: Option<StoreAt>,
}

impl<B: Buf, C: Client> Engine<B, C> {
    /// The request in this text of a frame, if it is such a one and its key is not about to change hands.
    #[inline]
    pub(super) fn as_one(&self, frame: &[u8], text: &Range<usize>) -> Option<One> {
        if !self.is_settled() {
            return None;
        }
        let said = frame.get(text.clone())?;
        let (key, store) = match said.first()? {
            b'g' => (get_alone(said)?, None),
            b's' => {
                let (key, store) = set_alone(said, &self.limits())?;
                (key, Some(StoreAt::of_store(&store, frame)?))
            }
            _ => return None,
        };
        let start = key.as_ptr().addr() - frame.as_ptr().addr();
        Some(One { key: start..start + key.len(), store })
    }

    /// Takes such a request and begins it.
    #[inline]
    pub(super) fn ask_one<T, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        client: C,
        asked: Arrival<B>,
        one: One,
    ) where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let (Arrival { frame, text, in_message }, One { key, store }) = (asked, one);
        let bytes = &frame.first()[key.clone()];
        let node = self.members.owner(&self.owners, bytes);
        let (part, probe) = self.aim(node, bytes);
        let lane = (probe != Probe::NOWHERE).then_some(probe.hash ^ client.flow());
        let (style, task) = match store {
            None => (VALUE, Task::Fetch { claim: false }),
            Some(_) => (WORD, Task::Call),
        };
        let request = Request {
            client,
            frame: Some(frame),
            in_message,
            command_at: text.start,
            text: text.end..text.end,
            style,
            store,
            roll: Roll::EMPTY,
            answer: Answer::default(),
        };
        let Some(at) = self.requests.insert(request) else { return debug_assert!(false, "no room") };
        let key = KeyAt::Frame { at: key.start as u32, len: key.len() as u8 };
        let job = Job::new((at, task, store.is_none()), key, lane, part, probe);
        let (Some(job), Some(request)) = (self.jobs.insert(job), self.requests.value(at)) else {
            return debug_assert!(false, "no room for a job");
        };
        request.roll = Roll { first: job, last: job, pending: 1 };
        ctx.tally.add(if style == VALUE { Counter::KvGets } else { Counter::KvMutations }, 1);
        ctx.tally.add(Counter::KvSets, u64::from(style == WORD));
        if let Some(lane) = lane {
            self.order.prefetch(lane);
            self.locations.prefetch(probe.hash);
        }
        self.fresh.push_back(job);
    }

    /// Answers such a `set` that its owner has carried out; `answer` is what it said. Gives that back if it is something else, the
    /// job is another's, or the request's own frame cannot take the answer.
    #[inline]
    pub(super) fn answer_stored<T, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        at: u32,
        answer: B,
    ) -> Result<(), B>
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        if answer.segment_count() != 1 || !matches!(rpc::answer(answer.first()), Ok(Outcome::Stored { .. })) {
            return Err(answer);
        }
        let Some(job) = self.jobs.get(at) else { return Err(answer) };
        let request_at = job.request;
        let fits = |r: &&mut Request<B, C>| r.is_one(at, WORD) && !job.is_large && !r.in_message;
        let Some(request) = self.requests.value(request_at).filter(fits) else { return Err(answer) };
        // While its value is still on the way the frame is shared.
        let frame = request.frame.take_if(|frame| frame.is_unique() && frame.segment_count() == 1);
        let Some(mut body) = frame else { return Err(answer) };
        // The text's own room is enough, and in front of it there is that for headers: those of the request.
        body.adj(request.command_at);
        body.truncate(0);
        match body.append(STORED.len()) {
            Some(room) => room.copy_from_slice(STORED),
            None => debug_assert!(false, "a set is longer than its answer"),
        }
        let client = request.client;
        self.give_way(at);
        self.jobs.discard(at);
        self.requests.discard(request_at);
        ctx.tally.add(Counter::KvReplies, 1);
        self.replies.push_back(Reply { client, body, is_error: false });
        Ok(())
    }

    /// Answers such a `get` with the item that was found; `buf` begins with it. Gives it back if the job is another's, or the
    /// buffer has no room for what comes around the value.
    #[inline]
    pub(super) fn answer_one<T, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        at: u32,
        found: &Found,
        mut buf: B,
    ) -> Result<(), B>
    where
        T: Transport<Buf = B>,
    {
        let Some(job) = self.jobs.get(at) else { return Ok(()) };
        let Some(request) = self.requests.get(job.request) else { return Err(buf) };
        let Some(key) = job.key.of(request.bytes()).filter(|_| request.is_one(at, VALUE) && !job.is_large)
        else {
            return Err(buf);
        };
        let line = reply::ValueLine::new(key, found.flags, found.value_len as u32);
        // The line has room where header and key were.
        let begin = found.value_at.checked_sub(line.len());
        let (Some(begin), true) = (begin, buf.segment_count() == 1 && buf.tailroom() >= END.len()) else {
            return Err(buf);
        };
        buf.truncate(found.value_at + found.value_len);
        let Some(bytes) = buf.try_unique() else { return Err(buf) };
        line.write(&mut bytes[begin..found.value_at]);
        buf.adj(begin);
        if let Some(room) = buf.append(END.len()) {
            room.copy_from_slice(END);
        }
        let (client, request) = (request.client, job.request);
        self.give_way(at);
        self.jobs.discard(at);
        self.requests.discard(request);
        ctx.tally.add(Counter::KvGetHits, 1);
        ctx.tally.add(Counter::KvReplies, 1);
        self.replies.push_back(Reply { client, body: buf, is_error: false });
        Ok(())
    }
}

impl<B: Buf, C> Request<B, C> {
    /// True if this job is the last that is left of the request, and nothing has been answered before it.
    #[inline]
    fn is_one(&self, job: u32, style: Style) -> bool {
        self.roll.first == job
            && self.roll.last == job
            && self.style == style
            && self.text.is_empty()
            && self.answer.body.is_none()
            && !self.answer.is_spoilt
    }
}
