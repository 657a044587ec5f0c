//! A request that is one `get` of one key and nothing else, which is most of what a cache is asked.
//!
//! What `commands`, `finish` and `reply` do in steps for any request is done here in one go for this one. Request and job are the
//! same as ever in between, so whatever is out of the ordinary goes the general way from where it is.

use super::job::{Job, KeyAt, Task};
use super::request::{Answer, Client, Request, Roll, Style};
use super::{Engine, Reply};
use crate::memcached::{get_alone, reply};
use crate::service::Context;
use crate::stats::Counter;
use crate::store::geometry::Probe;
use crate::store::reader::Found;
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::transport::Transport;
use std::ops::Range;

/// What follows the only value.
const END: &[u8] = b"\r\nEND\r\n";

/// Such a request: where its key is in the frame, and where the text ends.
pub(super) struct One {
    key: Range<usize>,
    text: Range<usize>,
}

impl<B: Buf, C: Client> Engine<B, C> {
    /// The request in this text of a frame, if it is such a one and its key is not about to change hands.
    #[inline]
    pub(super) fn as_one(&self, frame: &[u8], text: &Range<usize>) -> Option<One> {
        if !self.is_settled() {
            return None;
        }
        let key = get_alone(frame.get(text.clone())?)?;
        let start = key.as_ptr().addr() - frame.as_ptr().addr();
        Some(One { key: start..start + key.len(), text: text.clone() })
    }

    /// Takes such a request and begins it.
    #[inline]
    pub(super) fn ask_one<T, P>(&mut self, ctx: &mut Context<'_, T, P>, client: C, frame: B, one: One)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let One { key, text } = one;
        let bytes = &frame.first()[key.clone()];
        let node = self.members.owner(&self.owners, bytes);
        let (part, probe) = self.aim(node, bytes);
        let lane = (probe != Probe::NOWHERE).then_some(probe.hash ^ client.flow());
        let request = Request {
            client,
            frame: Some(frame),
            command_at: text.start,
            text: text.end..text.end,
            style: Style::Values { cas: false },
            store: None,
            roll: Roll::EMPTY,
            answer: Answer::default(),
        };
        let Some(at) = self.requests.insert(request) else { return debug_assert!(false, "no room") };
        let key = KeyAt::Frame { at: key.start as u32, len: key.len() as u8 };
        let job = Job::new((at, Task::Fetch { claim: false }, true), key, lane, part, probe);
        let (Some(job), Some(request)) = (self.jobs.insert(job), self.requests.value(at)) else {
            return debug_assert!(false, "no room for a job");
        };
        request.roll = Roll { first: job, last: job, pending: 1 };
        ctx.tally.add(Counter::KvGets, 1);
        if let Some(lane) = lane {
            self.order.prefetch(lane);
            self.locations.prefetch(probe.hash);
        }
        self.fresh.push_back(job);
    }

    /// Answers such a request with the item that was found; `buf` begins with it. Gives it back if the job is another's, or the
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
        let Some(key) = job.key.of(request.bytes()).filter(|_| request.is_one(at) && !job.is_large) else {
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
    fn is_one(&self, job: u32) -> bool {
        self.roll.first == job
            && self.roll.last == job
            && self.style == Style::Values { cas: false }
            && self.text.is_empty()
            && self.answer.body.is_none()
            && !self.answer.is_spoilt
    }
}
