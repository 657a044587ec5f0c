//! What a memory node does between calls: sweeps for flushes and memberships, expiry, room ahead of demand.

use super::MemoryNode;
use crate::memcached::Exptime;
use crate::service::Context;
use crate::service::kv::message::{AnswerKind, Told};
use crate::service::relay::PathEnd;
use crate::store::{Sweep, Writer};
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::transport::Transport;

/// Buckets of a sweep in one turn.
const SWEEP_BUCKETS: u32 = 64;
/// Buckets looked through for expired items in one tick.
const EXPIRE_BUCKETS: u32 = 4;
/// When no place has become free for so long the gateway that holds back most is given up. Nanoseconds.
const GIVE_UP_NS: u64 = 500_000_000;

/// A call that is answered when something is over.
type Waiting = (usize, u32);

/// A sweep that calls wait for.
#[derive(Debug)]
struct Task {
    sweep: Sweep,
    waiting: Vec<Waiting>,
}

/// What there is to do.
#[derive(Debug)]
pub(super) struct Chores {
    flush: Option<Task>,
    /// Unix second of a flush to come.
    flush_at: Option<u32>,
    join: Option<Task>,
    /// Who shares the keys, by identity, and which of them this node is, if it is one. Empty until the first gateway comes.
    members: Vec<u64>,
    own: Option<usize>,
    /// The membership under way leaves what stays this node's own; otherwise nothing.
    keeps: bool,
    expire: Sweep,
    /// Answers that no buffer was there for.
    owed: Vec<(Waiting, AnswerKind)>,
}

impl Chores {
    pub(super) fn new(writer: &Writer) -> Self {
        Chores {
            flush: None,
            flush_at: None,
            join: None,
            members: Vec::new(),
            own: None,
            keeps: false,
            expire: writer.begin_flush(),
            owed: Vec::new(),
        }
    }

    /// True if there is something to go on with.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.flush.is_some() || self.join.is_some() || !self.owed.is_empty()
    }

    /// Answers a call as soon as there is a buffer.
    pub(super) fn owe(&mut self, seat: usize, call: u32, kind: AnswerKind) {
        self.owed.push(((seat, call), kind));
    }

    /// Forgets a seat's calls: whoever takes it next is not to get their answers.
    pub(super) fn forget(&mut self, seat: usize) {
        for task in self.flush.iter_mut().chain(&mut self.join) {
            task.waiting.retain(|(of, _)| *of != seat);
        }
        self.owed.retain(|((of, _), _)| *of != seat);
    }

    /// Sweeps under way that end whatever was there when they began.
    #[inline]
    pub(super) fn flushes(&self) -> impl Iterator<Item = &Sweep> {
        let join = self.join.as_ref().filter(|_| !self.keeps);
        self.flush.iter().chain(join).map(|task| &task.sweep)
    }

    /// Makes all items go, at once or at a time to come. True if the call is answered when they have gone.
    pub(super) fn begin_flush(
        &mut self,
        writer: &Writer,
        seat: usize,
        call: u32,
        delay: Exptime,
        now_s: u32,
    ) -> bool {
        let at = if delay.0 == 0 { now_s } else { delay.deadline(now_s) };
        if at > now_s {
            self.flush_at = Some(at);
            return false;
        }
        self.flush_at = None;
        let waiting = self.flush.take().map_or_else(Vec::new, |task| task.waiting);
        let task = self.flush.insert(Task { sweep: writer.begin_flush(), waiting });
        task.waiting.push((seat, call));
        true
    }

    /// Takes a membership; what to answer, or `None` if that is known when foreign keys have gone.
    pub(super) fn begin_join(
        &mut self,
        writer: &mut Writer,
        seat: usize,
        call: u32,
        generation: u64,
        told: Told<'_>,
    ) -> Option<AnswerKind> {
        let Told { before, own, nodes } = told;
        let same = self.own == own && self.members.iter().copied().eq(nodes.iter().map(|m| m.get()));
        if generation < writer.generation() {
            return Some(AnswerKind::Stale);
        }
        if generation == writer.generation() && !self.members.is_empty() {
            if !same {
                return Some(AnswerKind::OtherMembership);
            }
            let Some(task) = &mut self.join else { return Some(AnswerKind::Done) };
            task.waiting.push((seat, call));
            return None;
        }
        if self.join.is_some() {
            // What the one under way takes away could be this node's own by the new one. It is asked for again.
            return Some(AnswerKind::OtherMembership);
        }
        self.members.clear();
        self.members.extend(nodes.iter().map(|m| m.get()));
        self.own = own;
        // Whoever served another one than the last has missed writes to its keys elsewhere.
        self.keeps = before == writer.generation() && own.is_some();
        let Some(sweep) = writer.begin_join(generation) else { return Some(AnswerKind::Done) };
        if writer.counts().items == 0 {
            // Nothing is there that could be foreign.
            return Some(AnswerKind::Done);
        }
        self.join = Some(Task { sweep, waiting: vec![(seat, call)] });
        None
    }
}

impl<B: Buf> MemoryNode<B> {
    /// Goes on with sweeps, some buckets at a time.
    pub(super) fn go_on<T, P>(&mut self, ctx: &mut Context<'_, T, P>) -> bool
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        for ((seat, call), kind) in std::mem::take(&mut self.chores.owed) {
            self.answer_plain(ctx, seat, call, kind);
        }
        let (writer, chores) = (&mut self.writer, &mut self.chores);
        if let Some(task) = &mut chores.flush
            && writer.flush(&mut task.sweep, SWEEP_BUCKETS)
        {
            let task = chores.flush.take();
            self.answer_all(ctx, task);
        }
        let (writer, chores) = (&mut self.writer, &mut self.chores);
        if let Some(task) = &mut chores.join {
            let (members, own, owners) = (&chores.members, chores.own, self.owners);
            let ours = |key: &[u8]| Some(owners.owner(key, members.iter().copied())) == own;
            let is_over = if chores.keeps {
                writer.drop_foreign(&mut task.sweep, SWEEP_BUCKETS, ours)
            } else {
                writer.flush(&mut task.sweep, SWEEP_BUCKETS)
            };
            if is_over {
                let task = chores.join.take();
                self.answer_all(ctx, task);
            }
        }
        true
    }

    fn answer_all<T, P>(&mut self, ctx: &mut Context<'_, T, P>, task: Option<Task>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        for (seat, call) in task.into_iter().flat_map(|task| task.waiting) {
            self.answer_plain(ctx, seat, call, AnswerKind::Done);
        }
    }

    /// What is due every now and then.
    pub(super) fn tidy<T, P>(&mut self, ctx: &mut Context<'_, T, P>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let unix_ms = self.unix_ms(ctx.now);
        self.writer.tick();
        self.writer.expire(&mut self.chores.expire, EXPIRE_BUCKETS, unix_ms);
        if self.chores.flush_at.is_some_and(|at| u64::from(at) * 1000 <= unix_ms) {
            self.chores.flush_at = None;
            let sweep = self.writer.begin_flush();
            self.chores.flush.get_or_insert(Task { sweep, waiting: Vec::new() }).sweep = sweep;
        }
        for at in 0..self.seats.len() {
            self.post_owed(ctx, at);
        }
        self.try_stalled(ctx);
        if self.starved_for(ctx.now) >= GIVE_UP_NS {
            self.give_up_slowest(ctx);
        }
    }

    /// The gateway that holds back most loses its READs: its queue pair goes, and comes back when it connects anew.
    fn give_up_slowest<T: Transport<Buf = B>, P>(&mut self, ctx: &mut Context<'_, T, P>) {
        let (Some((gateway, epoch)), retired) = self.writer.slowest() else { return };
        if retired == 0 || epoch >= self.writer.epoch() {
            return;
        }
        self.starved_since = None;
        if let Some(at) = self.seats.iter().position(|seat| seat.gateway == Some(gateway)) {
            self.seat_failed(ctx, at, PathEnd::Told);
        }
    }
}
