//! What gateways ask of a memory node, one call after the other.

use super::MemoryNode;
use super::items::{NodeItems, seconds};
use crate::memcached::rpc::{self, Call};
use crate::memcached::{Operation, Outcome};
use crate::service::Context;
use crate::service::kv::message::{
    ANSWER_HEADER, AnswerHeader, AnswerKind, CALL_HEADER, CallHeader, CallKind, NodeCounts, membership,
};
use crate::service::kv::output::{BufOutput, contiguous};
use crate::stats::Counter;
use crate::store::geometry::Probe;
use rdma_engine::buf::{Buf, Pool, copy_out};
use rdma_engine::transport::Transport;
use rdma_engine::types::Time;
use zerocopy::{FromBytes, IntoBytes};

/// How long a call waits for a place before it is told that there is none.
const STALL_NS: u64 = 200_000_000;

/// A call that waits.
#[derive(Debug)]
pub(super) struct Stalled<B> {
    pub(super) seat: usize,
    call: u32,
    /// The membership that it was meant for, and that was served when it came.
    generation: u64,
    /// The message.
    buf: B,
    /// When it came.
    since: Time,
}

/// A call that came and is carried out when all of its turn are here.
#[derive(Debug)]
pub(super) struct Arrived<B> {
    pub(super) seat: usize,
    /// The message.
    buf: B,
    /// Where its key may be.
    probe: Probe,
}

/// What became of an operation.
enum Tried<B> {
    Answered(B),
    /// There may be a place when gateways have reported.
    Busy,
    /// The pools are dry.
    NoBuffer,
    /// The answer comes when a sweep is over.
    Later,
}

impl<B: Buf> MemoryNode<B> {
    /// A message of a gateway. What it will look at is fetched while the others of its turn are taken.
    #[inline]
    pub(super) fn take_call<T, P>(&mut self, ctx: &mut Context<'_, T, P>, seat: usize, buf: B)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        if self.inbox.len() == self.inbox.capacity() {
            self.serve_inbox(ctx);
        }
        let key = buf.first().get(CALL_HEADER..).and_then(rpc::key);
        let probe = key.map_or(Probe::NOWHERE, |key| self.writer.expect(key));
        self.inbox.push(Arrived { seat, buf, probe });
    }

    /// Carries out the calls of this turn, in the order in which they came. True if there were any.
    #[inline]
    pub(super) fn serve_inbox<T, P>(&mut self, ctx: &mut Context<'_, T, P>) -> bool
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        if self.inbox.is_empty() {
            return false;
        }
        let mut inbox = std::mem::take(&mut self.inbox);
        for call in inbox.iter().filter(|call| call.probe != Probe::NOWHERE) {
            self.writer.expect_items(&call.probe);
        }
        for call in inbox.drain(..) {
            self.called(ctx, call.seat, call.buf);
        }
        self.inbox = inbox;
        true
    }

    /// Does what a message of a gateway asks for.
    fn called<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: usize, buf: B)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        self.renew_receive(ctx, at);
        self.seats[at].totals.frames_received += 1;
        ctx.tally.add(Counter::KvCallsServed, 1);
        let mut head = [0; CALL_HEADER];
        let whole = copy_out(&buf, 0, &mut head) == CALL_HEADER;
        let Some(header) = CallHeader::read_from_bytes(&head).ok().filter(|_| whole) else {
            return self.answer_plain(ctx, at, 0, AnswerKind::Malformed);
        };
        let caller = self.caller(at);
        if self.writer.report(caller, header.oldest.get()).is_err() {
            ctx.tally.add(Counter::KvMalformed, 1);
        }
        let call = header.call.get();
        match CallKind::from_code(header.kind) {
            Some(CallKind::Operation) if header.generation.get() != self.writer.generation() => {
                self.answer_generation(ctx, at, call, header.generation.get());
            }
            Some(CallKind::Operation) => {
                let generation = header.generation.get();
                self.operate(ctx, Stalled { seat: at, call, generation, buf, since: ctx.now });
            }
            Some(CallKind::Report) => self.reported(ctx, at, call, &buf),
            Some(CallKind::Join) => self.join(ctx, at, &header, &buf),
            None => self.answer_plain(ctx, at, call, AnswerKind::Malformed),
        }
        if !self.stalled.is_empty() {
            self.try_stalled(ctx);
        }
    }

    fn answer_generation<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: usize, call: u32, asked: u64)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let stale = asked < self.writer.generation();
        let kind = if stale { AnswerKind::Stale } else { AnswerKind::OtherMembership };
        self.answer_plain(ctx, at, call, kind);
    }

    /// Carries an operation out, or lets it wait behind those that wait.
    fn operate<T, P>(&mut self, ctx: &mut Context<'_, T, P>, call: Stalled<B>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        if self.stalled.is_empty() {
            match self.try_operation(ctx, &call, false) {
                Tried::Answered(answer) => return self.send(ctx, call.seat, answer),
                Tried::Later => return,
                Tried::Busy | Tried::NoBuffer => {}
            }
        }
        ctx.tally.add(Counter::KvStalled, 1);
        self.stalled.push_back(call);
    }

    /// Goes on with calls that wait, in their order. One that another membership has overtaken is refused as if it came now:
    /// its key may be another node's, which has answered for it since.
    pub(super) fn try_stalled<T, P>(&mut self, ctx: &mut Context<'_, T, P>) -> bool
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let mut any = false;
        while let Some(call) = self.stalled.pop_front() {
            if call.generation != self.writer.generation() {
                self.answer_generation(ctx, call.seat, call.call, call.generation);
                any = true;
                continue;
            }
            let late = ctx.now.since_ns(call.since) >= STALL_NS;
            match self.try_operation(ctx, &call, late) {
                Tried::Answered(answer) => {
                    self.send(ctx, call.seat, answer);
                    any = true;
                }
                Tried::Later => any = true,
                Tried::Busy | Tried::NoBuffer => {
                    self.stalled.push_front(call);
                    break;
                }
            }
        }
        any
    }

    /// How long no place has become free though one was wanted. Nanoseconds.
    pub(super) fn starved_for(&self, now: rdma_engine::types::Time) -> u64 {
        self.starved_since.map_or(0, |since| now.since_ns(since))
    }

    /// `give_up`: do not wait any more, answer that there is no room.
    fn try_operation<T, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        call: &Stalled<B>,
        give_up: bool,
    ) -> Tried<B>
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let mut gathered = std::mem::take(&mut self.gathered);
        let message = &contiguous(&call.buf, &mut gathered)[CALL_HEADER..];
        let tried = match rpc::call(message) {
            Ok(Call::Operation { key, operation }) => self.one_key(ctx, call.call, key, &operation, give_up),
            Ok(Call::Drop { key }) => {
                let unix_ms = self.unix_ms(ctx.now);
                NodeItems::new(&mut self.writer, &mut self.scratch, unix_ms).drop_stale(key);
                self.short_answer(ctx, call.call, AnswerKind::Done, Some(&Outcome::Deleted))
            }
            Ok(Call::Flush { delay }) => {
                let now_s = seconds(self.unix_ms(ctx.now));
                match self.chores.begin_flush(&self.writer, call.seat, call.call, delay, now_s) {
                    true => Tried::Later,
                    false => self.short_answer(ctx, call.call, AnswerKind::Done, Some(&Outcome::Deleted)),
                }
            }
            Err(rpc::Malformed) => {
                ctx.tally.add(Counter::KvMalformed, 1);
                self.short_answer(ctx, call.call, AnswerKind::Malformed, None)
            }
        };
        self.gathered = gathered;
        tried
    }

    fn one_key<T, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        call: u32,
        key: &[u8],
        operation: &Operation<'_>,
        give_up: bool,
    ) -> Tried<B>
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        // Before anything is changed: an answer has to have a buffer.
        let large = matches!(operation, Operation::Fetch(fetch) if fetch.value);
        let buf = if large { ctx.pools.messages.alloc() } else { ctx.pools.frames.alloc() };
        let Some(mut buf) = buf else { return Tried::NoBuffer };
        if buf.append(ANSWER_HEADER).is_none() {
            return Tried::NoBuffer;
        }
        let unix_ms = self.unix_ms(ctx.now);
        for sweep in self.chores.flushes() {
            self.writer.flush_key(sweep, key, unix_ms);
        }
        let mut items = NodeItems::new(&mut self.writer, &mut self.scratch, unix_ms);
        let mut out = BufOutput::new(&mut buf);
        items.carry_out(key, operation, &mut out);
        let whole = out.is_whole();
        let (location, busy) = (items.location(), items.is_busy());
        if busy {
            self.starved_since.get_or_insert(ctx.now);
        } else if matches!(operation, Operation::Store(_)) {
            self.starved_since = None;
        }
        if busy && !give_up {
            return Tried::Busy;
        }
        let mut header = self.header(ctx, call, AnswerKind::Done);
        if let Some(location) = location {
            header.set_location(location);
        }
        if !whole {
            // Larger than a message: more than the largest value, which nobody can have stored.
            return self.short_answer(ctx, call, AnswerKind::Done, Some(&Outcome::OutOfMemory));
        }
        write_header(&mut buf, &header);
        Tried::Answered(buf)
    }

    /// A message with places of items that were used.
    fn reported<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: usize, call: u32, buf: &B)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        ctx.tally.add(Counter::KvReportsServed, 1);
        let mut gathered = std::mem::take(&mut self.gathered);
        let (places, rest) = contiguous(buf, &mut gathered)[CALL_HEADER..].as_chunks::<8>();
        if rest.is_empty() {
            self.writer.hits(places.iter().map(|place| u64::from_le_bytes(*place)));
        }
        self.gathered = gathered;
        let counts = self.writer.counts();
        let told = NodeCounts {
            items: counts.items.into(),
            bytes: counts.bytes.into(),
            written: counts.written.into(),
            evicted: (counts.evicted + counts.evicted_from_bucket).into(),
            expired: counts.expired.into(),
            capacity: self.writer.capacity_bytes().into(),
        };
        let Some(mut answer) = self.plain_answer(ctx, call, AnswerKind::Done) else {
            return self.chores.owe(at, call, AnswerKind::Done);
        };
        if let Some(room) = answer.append(size_of::<NodeCounts>()) {
            room.copy_from_slice(told.as_bytes());
        }
        self.send(ctx, at, answer);
    }

    fn join<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: usize, header: &CallHeader, buf: &B)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let mut gathered = std::mem::take(&mut self.gathered);
        let call = header.call.get();
        let kind = match membership(&contiguous(buf, &mut gathered)[CALL_HEADER..]) {
            Some(told) => {
                let generation = header.generation.get();
                self.chores.begin_join(&mut self.writer, at, call, generation, told)
            }
            None => Some(AnswerKind::Malformed),
        };
        self.gathered = gathered;
        if let Some(kind) = kind {
            self.answer_plain(ctx, at, call, kind);
        }
    }

    pub(super) fn header<T: Transport, P>(
        &self,
        ctx: &Context<'_, T, P>,
        call: u32,
        kind: AnswerKind,
    ) -> AnswerHeader {
        AnswerHeader {
            kind: kind as u8,
            call: call.into(),
            epoch: self.writer.epoch().into(),
            generation: self.writer.generation().into(),
            clock_ms: self.unix_ms(ctx.now).into(),
            ..AnswerHeader::default()
        }
    }

    fn plain_answer<T, P>(&self, ctx: &Context<'_, T, P>, call: u32, kind: AnswerKind) -> Option<B>
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let mut buf = ctx.pools.frames.alloc()?;
        buf.append(ANSWER_HEADER)?;
        write_header(&mut buf, &self.header(ctx, call, kind));
        Some(buf)
    }

    fn short_answer<T, P>(
        &self,
        ctx: &Context<'_, T, P>,
        call: u32,
        kind: AnswerKind,
        outcome: Option<&Outcome<'_>>,
    ) -> Tried<B>
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let Some(mut answer) = self.plain_answer(ctx, call, kind) else { return Tried::NoBuffer };
        if let Some(outcome) = outcome {
            rpc::put_answer(&mut BufOutput::new(&mut answer), outcome);
        }
        Tried::Answered(answer)
    }

    /// An answer that is a header and no more.
    pub(super) fn answer_plain<T, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        at: usize,
        call: u32,
        kind: AnswerKind,
    ) where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        ctx.tally.add(Counter::KvMalformed, u64::from(kind == AnswerKind::Malformed));
        match self.plain_answer(ctx, call, kind) {
            Some(answer) => self.send(ctx, at, answer),
            None => self.chores.owe(at, call, kind),
        }
    }
}

fn write_header<B: Buf>(buf: &mut B, header: &AnswerHeader) {
    if let Some(room) = buf.try_unique().and_then(|bytes| bytes.get_mut(..ANSWER_HEADER)) {
        room.copy_from_slice(header.as_bytes());
    }
}
