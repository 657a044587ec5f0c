//! What nodes are told by themselves: which nodes share the keys, which items were used, how old the oldest lookup is.

use super::Engine;
use super::calls::{JOIN, REPORT};
use super::parts::{Membership as Standing, OtherList, PathState};
use super::request::Client;
use crate::flow::PathIndex;
use crate::service::Context;
use crate::service::kv::message::{AnswerHeader, AnswerKind, CALL_HEADER, CallKind, Membership};
use crate::stats::Counter;
use crate::store::locations::BATCH;
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::transport::Transport;
use zerocopy::IntoBytes;

/// While there is something to tell, or calls are not answered, a node is told this often. Calls may wait for places that
/// only a newer epoch sets free, and a newer epoch comes only with an answer. Nanoseconds.
const REPORT_NS: u64 = 1_000_000;
/// Without anything to tell, this often: other gateways may wait for places. Nanoseconds.
const IDLE_NS: u64 = 10_000_000;
/// A node that serves another membership is asked again after this time. Nanoseconds.
const JOIN_AGAIN_NS: u64 = 100_000_000;

impl<B: Buf, C: Client> Engine<B, C> {
    /// Timers.
    pub fn tick<T, P>(&mut self, ctx: &mut Context<'_, T, P>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        if self.started.0 == 0 {
            self.started = ctx.now;
        }
        for at in 0..self.paths.len() {
            self.post_owed(ctx, at);
        }
        self.hurry(ctx);
        self.exchange(ctx);
        for part in 0..self.parts.len() {
            match self.parts[part].membership {
                Standing::Unknown => self.join(ctx, part),
                Standing::Other if ctx.now.since_ns(self.parts[part].asked_at) >= JOIN_AGAIN_NS => {
                    self.join(ctx, part);
                }
                Standing::Ours | Standing::Renewed => self.report(ctx, part),
                Standing::Asked | Standing::Other => {}
            }
        }
        self.see_off(ctx);
        if self.draining && self.requests.is_empty() {
            self.close(ctx);
        }
        let up = self.nodes_up() as u64;
        ctx.tally.set(Counter::KvNodesUp, up);
        ctx.tally.set(Counter::KvNodesDown, self.members.len() as u64 - up);
        let counts = self.locations.counts();
        ctx.tally.set(Counter::KvLocationsReplaced, counts.replaced);
        self.settle(ctx);
    }

    pub(super) fn is_ready(&self, part: usize) -> bool {
        let up =
            |path: Option<PathIndex>| path.is_some_and(|p| self.paths[usize::from(p)].state == PathState::Up);
        up(self.parts[part].read) && up(self.parts[part].call)
    }

    /// Tells a node who shares the keys, if it is one of them or was.
    pub(super) fn join<T, P>(&mut self, ctx: &mut Context<'_, T, P>, part: usize)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        if !self.is_ready(part) || self.parts[part].calls_out >= self.parts[part].credits || self.draining {
            return;
        }
        if !self.is_told(part) {
            return;
        }
        let own = self.members.index(usize::from(self.parts[part].node));
        let nodes = self.members.len();
        let head = Membership::new(nodes, own, self.relisting.generation_before);
        let Some(mut message) = ctx.pools.frames.alloc() else { return };
        let bytes = CALL_HEADER + size_of::<Membership>();
        let Some(room) = message.append(bytes + 8 * nodes) else { return };
        room[CALL_HEADER..bytes].copy_from_slice(head.as_bytes());
        for (place, identity) in room[bytes..].chunks_exact_mut(8).zip(self.members.identities()) {
            place.copy_from_slice(&identity.to_le_bytes());
        }
        if self.post_call(ctx, part, CallKind::Join, JOIN, message) {
            self.parts[part].membership = Standing::Asked;
            self.parts[part].asked_at = ctx.now;
        }
    }

    pub(super) fn join_answered<T, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        part: usize,
        kind: AnswerKind,
        header: &AnswerHeader,
    ) where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        if kind == AnswerKind::Done && header.generation.get() < self.members.generation {
            // To what it was told of the list before; it has been told of ours since.
            return;
        }
        let ours = kind == AnswerKind::Done && header.generation.get() == self.members.generation;
        self.parts[part].membership = if ours { Standing::Ours } else { Standing::Other };
        ctx.tally.add(Counter::KvMembershipRefused, u64::from(!ours));
        let (generation, node) = (self.members.generation, self.node_of(part));
        if ours {
            node.other_list = OtherList::None;
        } else {
            node.other_list.hear(generation, header.generation.get());
        }
        self.note_up();
    }

    /// A node serves another membership, with this number.
    pub(super) fn lost_membership(&mut self, part: usize, generation: u64) {
        self.parts[part].membership = Standing::Other;
        let ours = self.members.generation;
        self.node_of(part).other_list.hear(ours, generation);
        self.note_up();
    }

    /// A node that serves another list of nodes than ours, once when it is found out: its place, and the
    /// numbers of our list and its.
    pub fn list_conflict(&mut self) -> Option<(usize, u64, u64)> {
        self.nodes.iter_mut().enumerate().find_map(|(at, node)| {
            let (ours, theirs) = node.other_list.news()?;
            Some((at, ours, theirs))
        })
    }

    /// Tells a node of hits and of the oldest lookup.
    fn report<T, P>(&mut self, ctx: &mut Context<'_, T, P>, part: usize)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let p = &self.parts[part];
        let since = ctx.now.since_ns(p.told_at);
        let hits = self.locations.batch(part as u16).map_or(0, |b| b.len());
        let busy = p.lookups.oldest() > p.told_epoch || p.calls_out > 0 || hits * 2 >= BATCH;
        let due = since >= if busy { REPORT_NS } else { IDLE_NS };
        if !due || p.is_report_out || p.calls_out >= p.credits || !self.is_ready(part) {
            return;
        }
        let Some(mut message) = ctx.pools.frames.alloc() else { return };
        let Some(batch) = self.locations.batch(part as u16) else { return };
        let Some(room) = message.append(CALL_HEADER + 8 * batch.len()) else { return };
        for (place, hit) in room[CALL_HEADER..].chunks_exact_mut(8).zip(batch.iter()) {
            place.copy_from_slice(&hit.to_le_bytes());
        }
        batch.clear();
        if self.post_call(ctx, part, CallKind::Report, REPORT, message) {
            self.parts[part].is_report_out = true;
            ctx.tally.add(Counter::KvReports, 1);
        }
    }
}
