//! What only the owner of a key can do, or what nobody else could find out: calls and their answers.

use super::job::{Failure, KeyAt, Outcome, Step, Task};
use super::lookup::key_of;
use super::request::{Client, Request};
use super::{Admission, Engine, Mark, What};
use crate::flow::PathIndex;
use crate::memcached::rpc::{CALL_BYTES_MAX, Call, put_call, put_call_head};
use crate::memcached::{Command, KEY_BYTES_MAX, KeyBuffer, Limits, Operation, Parsed, parse};
use crate::service::Context;
use crate::service::kv::message::{
    ANSWER_HEADER, AnswerHeader, AnswerKind, CALL_HEADER, CallHeader, CallKind, NodeCounts,
};
use crate::service::kv::output::BufOutput;
use crate::service::relay::PathEnd;
use crate::stats::Counter;
use rdma_engine::buf::{Buf, Pool, copy_out};
use rdma_engine::transport::Transport;
use rdma_engine::wr::{Completion, Op, SendWr, Status};
use zerocopy::{FromBytes, IntoBytes};

/// Values beyond this length go out where they came in, behind a buffer with the head of the call. Bytes.
const COPYBREAK: usize = 512;
/// Credits that are kept for what nodes are told by themselves.
pub(super) const REPORT_CREDITS: u32 = 1;
/// Tickets of these calls; jobs have lower numbers.
pub(super) const REPORT: u32 = 0xFFFF;
pub(super) const JOIN: u32 = 0xFFFE;

impl<B: Buf, C: Client> Engine<B, C> {
    /// True if a job's call could be posted now.
    #[inline]
    pub(super) fn can_call(&self, part: usize) -> bool {
        let p = &self.parts[part];
        p.call.is_none() || p.calls_out + REPORT_CREDITS < p.credits
    }

    /// Bytes of a message that the partition's node takes.
    fn message_room(&self, part: usize) -> usize {
        let link = self.parts[part].call.and_then(|path| self.paths[usize::from(path)].link.as_ref());
        link.map_or(usize::MAX, |link| link.message_bytes as usize)
    }

    /// Calls the owner, or waits for credit.
    pub(super) fn ask_owner<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let Some(job) = self.jobs.value(at) else { return };
        let (part, fetches) = (usize::from(job.part), job.fetches);
        if !self.can_call(part) {
            return self.line_up(at, |p| &mut p.to_call);
        }
        // The answer may bring a value of any size.
        if fetches {
            match self.admit_large(ctx, at) {
                Admission::Go => {}
                Admission::Wait => return self.line_up(at, |p| &mut p.to_call),
                Admission::Fail => return self.finish(ctx, at, Outcome::Failed(Failure::OutOfMemory)),
            }
        }
        let Some(message) = self.message(ctx, at) else {
            return self.line_up(at, |p| &mut p.to_call);
        };
        if message.len() > self.message_room(part) {
            return self.finish(ctx, at, Outcome::Failed(Failure::Refused));
        }
        let ticket = self.jobs.ticket(at);
        if self.post_call(ctx, part, CallKind::Operation, ticket, message) {
            let Some(job) = self.jobs.value(at) else { return };
            job.step = Step::Asked;
        } else {
            self.line_up(at, |p| &mut p.to_call);
        }
    }

    /// Puts the job's call together, behind room for the header.
    fn message<T, P>(&mut self, ctx: &Context<'_, T, P>, at: u32) -> Option<B>
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let (request, key_at) = self.jobs.value(at).map(|job| (job.request, job.key))?;
        let limits = self.limits();
        let request = self.requests.value(request)?;
        let (bytes, mut decoded) = (request.bytes(), [0; KEY_BYTES_MAX]);
        let store = request.store.and_then(|store| Some((key_at.of(bytes)?, store.again(bytes)?)));
        let call = match store {
            Some((key, store)) => Call::Operation { key, operation: Operation::Store(store) },
            None => call_of(request, key_at, &mut decoded, &limits)?,
        };
        let value: &[u8] = match &call {
            Call::Operation { operation: Operation::Store(store), .. } => store.value,
            _ => b"",
        };
        let head = CALL_HEADER + CALL_BYTES_MAX + KEY_BYTES_MAX;
        if value.len() > COPYBREAK && head <= ctx.pools.frames.buf_room() {
            let at = value.as_ptr().addr() - bytes.as_ptr().addr();
            if let Some(value) = ctx.pools.slices.slice(request.frame.as_ref()?, at, value.len()) {
                let mut buf = ctx.pools.frames.alloc()?;
                buf.append(CALL_HEADER)?;
                put_call_head(&mut BufOutput::new(&mut buf), &call);
                return buf.chain(value).is_ok().then_some(buf);
            }
        }
        let small = head + value.len() <= ctx.pools.frames.buf_room();
        let mut buf = if small { ctx.pools.frames.alloc()? } else { ctx.pools.messages.alloc()? };
        buf.append(CALL_HEADER)?;
        let mut out = BufOutput::new(&mut buf);
        put_call(&mut out, &call);
        out.is_whole().then_some(buf)
    }

    /// Posts a call that is complete but for its header.
    pub(super) fn post_call<T, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        part: usize,
        kind: CallKind,
        ticket: u32,
        mut message: B,
    ) -> bool
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let p = &mut self.parts[part];
        let Some(path) = p.call else { return false };
        let Some(link) = &self.paths[usize::from(path)].link else { return false };
        let oldest = p.lookups.oldest();
        let header = CallHeader {
            kind: kind as u8,
            spare: [0; 3],
            call: ticket.into(),
            generation: self.members.generation.into(),
            oldest: oldest.into(),
        };
        match message.try_unique().and_then(|bytes| bytes.get_mut(..CALL_HEADER)) {
            Some(room) => room.copy_from_slice(header.as_bytes()),
            None => return false,
        }
        // Slots are freed by the number of the call, which only operations have for themselves alone.
        let large = kind == CallKind::Operation && message.len() >= self.settings.write_imm_from;
        let staging = p.staging.as_mut().filter(|_| large);
        let op = match staging.and_then(|slots| slots.take(ticket, message.len())) {
            Some((slot, immediate)) => Op::WriteImm(slot, immediate),
            None => Op::Send,
        };
        let wr = SendWr::new(op, message, Mark::cookie(What::Call, path.into()));
        if ctx.transport.post_send(link.qp, wr).is_err() {
            if let Some(slots) = &mut p.staging {
                slots.give_back(ticket);
            }
            return false;
        }
        ctx.tally.add(Counter::KvCalls, 1);
        ctx.tally.add(Counter::KvCallsWritten, u64::from(op != Op::Send));
        p.calls_out += 1;
        (p.told_epoch, p.told_at) = (oldest, ctx.now);
        self.paths[usize::from(path)].totals.frames_sent += 1;
        true
    }

    /// A call is out, or was not taken.
    pub(super) fn called<T, P>(&mut self, ctx: &mut Context<'_, T, P>, mark: Mark, status: Status)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        if status != Status::Success {
            self.path_failed(ctx, Some(mark.of as PathIndex), PathEnd::Send(status));
        }
    }

    /// An answer of a node.
    pub(super) fn answered<T, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        mark: Mark,
        completion: Completion<B>,
    ) where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let at = mark.of as usize;
        if completion.status != Status::Success {
            return self.path_failed(ctx, Some(mark.of as PathIndex), PathEnd::Receive(completion.status));
        }
        let Some(path) = self.paths.get_mut(at) else { return };
        path.owed += 1;
        path.totals.frames_received += 1;
        let part = usize::from(path.part);
        self.post_owed(ctx, at);
        let mut head = [0; ANSWER_HEADER];
        let whole = copy_out(&completion.buf, 0, &mut head) == ANSWER_HEADER;
        let header = AnswerHeader::read_from_bytes(&head).ok().filter(|_| whole);
        let kind = header.and_then(|h| AnswerKind::from_code(h.kind));
        let (Some(header), Some(kind)) = (header, kind) else {
            // What it answers is not known: the connection is of no use any more.
            ctx.tally.add(Counter::KvMalformed, 1);
            return self.path_failed(ctx, Some(at as PathIndex), PathEnd::Told);
        };
        let unix_ms = self.unix_ms(ctx.now);
        self.node_of(part).hear_clock(ctx.now, unix_ms, header.clock_ms.get());
        let p = &mut self.parts[part];
        p.calls_out = p.calls_out.saturating_sub(1);
        if let Some(slots) = &mut p.staging {
            slots.give_back(header.call.get());
        }
        p.lookups.hear(header.epoch.get());
        match header.call.get() {
            REPORT => self.report_answered(part, &completion.buf),
            JOIN => self.join_answered(ctx, part, kind, &header),
            ticket => self.job_answered(ctx, ticket, kind, &header, completion.buf),
        }
        if !self.parts[part].to_call.is_empty() {
            self.go_on_part(ctx, part);
        }
    }

    fn report_answered(&mut self, part: usize, answer: &B) {
        let mut counts = [0; size_of::<NodeCounts>()];
        let p = &mut self.parts[part];
        p.is_report_out = false;
        if copy_out(answer, ANSWER_HEADER, &mut counts) == counts.len()
            && let Ok(counts) = NodeCounts::read_from_bytes(&counts)
        {
            p.counts = counts;
        }
    }

    fn job_answered<T, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        ticket: u32,
        kind: AnswerKind,
        header: &AnswerHeader,
        mut answer: B,
    ) where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        // Of a job that was given up meanwhile.
        let Some(at) = self.jobs.of_ticket(ticket) else { return };
        let Some(job) = self.jobs.value(at) else { return };
        let (part, hash, task) = (job.part, job.probe.hash, job.task);
        if job.step != Step::Asked {
            return;
        }
        let location = header.location();
        let geometry = self.node_of(usize::from(part)).node.map(|node| node.geometry);
        if let (Some(at), Some(geometry)) = (location, geometry)
            && (at.units > geometry.largest() || !geometry.holds(at.place, at.units))
        {
            // No item can be there: whoever says so is not to be believed.
            ctx.tally.add(Counter::KvMalformed, 1);
            let path = self.parts[usize::from(part)].call;
            return self.path_failed(ctx, path, PathEnd::Told);
        }
        let failure = match kind {
            AnswerKind::Done => {
                match location {
                    Some(location) => self.locations.stored(hash, part, location),
                    None if task == Task::Call => self.locations.forget(hash),
                    None => {}
                }
                answer.adj(ANSWER_HEADER);
                let Err(answer) = self.answer_stored(ctx, at, answer) else { return };
                return self.finish(ctx, at, Outcome::Answer(answer));
            }
            AnswerKind::Stale | AnswerKind::OtherMembership => {
                self.lost_membership(usize::from(part), header.generation.get());
                Failure::Membership
            }
            AnswerKind::Malformed => Failure::Refused,
        };
        self.finish(ctx, at, Outcome::Failed(failure));
    }
}

/// The call that a request's present command makes for one of its keys.
fn call_of<'r, B: Buf, C>(
    request: &'r Request<B, C>,
    key_at: KeyAt,
    decoded: &'r mut KeyBuffer,
    limits: &Limits,
) -> Option<Call<'r>> {
    let Parsed::Request(parsed) = parse(request.command(), decoded, limits) else { return None };
    Some(match parsed.command {
        Command::Get { fetch, .. } => {
            let key = key_at.of(request.bytes())?;
            // What is asked for by a GET is the value.
            Call::Operation { key, operation: Operation::Fetch(fetch) }
        }
        Command::Item { key, operation, .. } => Call::Operation { key, operation },
        Command::Flush { delay, .. } => Call::Flush { delay },
        ref command => Call::Drop { key: key_of(command) },
    })
}
