//! Queue pairs to memory nodes: up, down, receives.

use super::job::{Failure, Outcome, Step};
use super::parts::{Line, Membership, PathState};
use super::request::Client;
use super::{Engine, Mark, What};
use crate::flow::PathIndex;
use crate::service::Context;
use crate::service::kv::epochs::Lookups;
use crate::service::kv::link::{KvLink, Lane};
use crate::service::kv::message::{Node, NodeHello};
use crate::service::kv::staging::Slots;
use crate::service::relay::{PathEnd, PathTotals};
use crate::stats::Counter;
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::transport::Transport;
use rdma_engine::wr::{QpId, RecvWr, Refusal};

impl<B: Buf, C: Client> Engine<B, C> {
    /// Puts a queue pair to use. A node whose hello makes no sense stays down.
    ///
    /// # Panics
    /// If the path has a queue pair already.
    pub fn attach<T, P>(&mut self, ctx: &mut Context<'_, T, P>, path: PathIndex, link: KvLink)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let most = self.settings.node_workers_max;
        let at = usize::from(path);
        assert!(self.paths[at].link.is_none(), "path {path} is in use");
        let part = usize::from(link.peer) * usize::from(most) + usize::from(link.peer_worker);
        let hello = NodeHello::read(&link.hello);
        self.paths[at].part = part as u16;
        self.paths[at].totals = PathTotals::default();
        self.paths[at].state = PathState::Armed;
        // What is read of its memory has to be there.
        let is_whole = |node: &Node| {
            link.lane == Lane::Call || link.region.is_some_and(|r| r.len >= node.geometry.bytes())
        };
        if let (true, Some(node)) = (part < self.parts.len(), hello.ok().filter(is_whole)) {
            self.meet(part, node);
            let p = &mut self.parts[part];
            match link.lane {
                Lane::Read => {
                    p.read = Some(path);
                    // Every READ of the connection before is back.
                    p.lookups = Lookups::new(0);
                    p.told_epoch = 0;
                    p.region.clone_from(&link.region);
                }
                Lane::Call => {
                    p.call = Some(path);
                    p.credits = link.peer_credits.min(link.recv_depth);
                    p.calls_out = 0;
                    let (own, partitions) = ((link.worker, link.peer_worker), node.geometry.partitions());
                    p.staging = link.staging.and_then(|r| Slots::new(node.staging, r, own, partitions));
                    self.paths[at].owed = link.recv_depth;
                }
            }
        } else {
            ctx.tally.add(Counter::KvMalformed, 1);
        }
        self.paths[at].link = Some(link);
        self.post_owed(ctx, at);
    }

    /// What a node says of itself; another start of it is another node.
    fn meet(&mut self, part: usize, node: Node) {
        let most = usize::from(self.settings.node_workers_max);
        let index = usize::from(self.parts[part].node);
        if self.nodes[index].node.is_none_or(|known| known.epoch != node.epoch) {
            for part in index * most..(index + 1) * most {
                self.locations.forget_node(part as u16);
            }
        }
        self.nodes[index].node = Some(node);
        // An eighth of what the nodes hold.
        let items: u64 = self
            .nodes
            .iter()
            .filter_map(|n| n.node)
            .map(|n| n.geometry.slots() * u64::from(n.geometry.partitions()))
            .sum();
        self.locations.set_period((items / 8).max(64));
    }

    /// The node is ready for the path's messages.
    pub fn path_ready(&mut self, path: PathIndex) {
        let p = &mut self.paths[usize::from(path)];
        if p.state == PathState::Armed {
            p.state = PathState::Up;
        }
    }

    /// Gives a path up because the connection behind it is gone.
    pub fn fail<T, P>(&mut self, ctx: &mut Context<'_, T, P>, path: PathIndex)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        self.path_failed(ctx, Some(path), PathEnd::Told);
        self.settle(ctx);
    }

    /// A path whose queue pair can be taken away: nothing of it is in flight.
    pub fn take_down<T: Transport<Buf = B>, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
    ) -> Option<(PathIndex, QpId, PathEnd)> {
        let at = self.paths.iter().position(|p| {
            let gone = |link: &KvLink| ctx.transport.in_flight(link.qp) == 0;
            matches!(p.state, PathState::Dying(_)) && p.link.as_ref().is_some_and(gone)
        })?;
        let path = &mut self.paths[at];
        let PathState::Dying(end) = std::mem::replace(&mut path.state, PathState::Empty) else { return None };
        let link = path.link.take()?;
        let part = &mut self.parts[usize::from(path.part)];
        match link.lane {
            Lane::Read if part.read == Some(at as PathIndex) => part.read = None,
            Lane::Call if part.call == Some(at as PathIndex) => part.call = None,
            _ => {}
        }
        Some((at as PathIndex, link.qp, end))
    }

    /// What a path carried.
    pub fn path_totals(&self, path: PathIndex) -> PathTotals {
        self.paths[usize::from(path)].totals
    }

    /// Takes no more requests, and gives every path up when those under way are done.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// True when a drain has nothing left to wait for.
    pub fn is_drained(&self) -> bool {
        let down = |state| matches!(state, PathState::Empty | PathState::Dying(_));
        self.draining && self.is_idle() && self.paths.iter().all(|p| down(p.state))
    }

    /// The deadline of a drain has passed.
    pub fn abandon<T, P>(&mut self, ctx: &mut Context<'_, T, P>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        self.draining = true;
        self.close(ctx);
        self.replies.clear();
    }

    pub(super) fn close<T, P>(&mut self, ctx: &mut Context<'_, T, P>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        for path in 0..self.paths.len() {
            self.path_failed(ctx, Some(path as PathIndex), PathEnd::Closed);
        }
        self.settle(ctx);
    }

    /// A queue pair is of no use any more, and its partition with it.
    pub(super) fn path_failed<T, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        path: Option<PathIndex>,
        end: PathEnd,
    ) where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let Some(path) = path else { return };
        let p = &mut self.paths[usize::from(path)];
        let part = usize::from(p.part);
        let Some(link) = p.link.as_ref().filter(|_| matches!(p.state, PathState::Armed | PathState::Up))
        else {
            return;
        };
        let lane = link.lane;
        ctx.transport.fail(link.qp);
        p.state = PathState::Dying(end);
        p.owed = 0;
        if self.parts.get(part).is_none_or(|p| match lane {
            Lane::Read => p.read != Some(path),
            Lane::Call => p.call != Some(path),
        }) {
            return;
        }
        self.parts[part].membership = Membership::Unknown;
        self.note_up();
        self.give_up_jobs(ctx, part);
    }

    /// Jobs of a partition that is gone: those that wait, and those whose answer will not come. READs come back by
    /// themselves.
    fn give_up_jobs<T, P>(&mut self, ctx: &mut Context<'_, T, P>, part: usize)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        (self.parts[part].to_read, self.parts[part].to_call) = (Line::EMPTY, Line::EMPTY);
        for at in 0..self.jobs.capacity() {
            let Some(job) = self.jobs.value(at).filter(|job| usize::from(job.part) == part) else { continue };
            let failure = match job.step {
                Step::Asked => Failure::Unanswered,
                Step::Item | Step::Buckets | Step::Ask => Failure::NodeDown,
                Step::Ordered | Step::Reading | Step::Lost | Step::Done => continue,
            };
            self.finish(ctx, at, Outcome::Failed(failure));
        }
    }

    /// Posts the receives that are due.
    pub(super) fn post_owed<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: usize)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let path = &mut self.paths[at];
        let Some(link) = &path.link else { return };
        while path.owed > 0 {
            let Some(buf) = ctx.pools.messages.alloc() else { return };
            let wr = RecvWr { buf, cookie: Mark::cookie(What::Receive, at as u32) };
            match ctx.transport.post_recv(link.qp, wr) {
                Ok(()) => path.owed -= 1,
                Err(refused) if refused.why == Refusal::Full => return,
                Err(refused) => {
                    return self.path_failed(ctx, Some(at as PathIndex), PathEnd::Refused(refused.why));
                }
            }
        }
    }

    /// Which nodes take operations: those that serve our membership, while no node that is connected serves another.
    pub(super) fn note_up(&mut self) {
        let most = usize::from(self.settings.node_workers_max);
        let is_relisting = self.relisting.before.is_some();
        let partitions = |n: &super::parts::NodeState| {
            n.node.map_or(0, |node| node.geometry.partitions() as usize).min(most)
        };
        let mut all = true;
        for index in 0..self.nodes.len() {
            let count = partitions(&self.nodes[index]);
            let parts = &self.parts[index * most..index * most + count];
            let serves =
                |p: &super::parts::Part| matches!(p.membership, Membership::Ours | Membership::Renewed);
            let joined = count > 0 && parts.iter().all(serves);
            let connected = parts.iter().any(|p| p.read.is_some() && p.membership != Membership::Unknown);
            // Meanwhile keys that change hands are refused by name, so who has not answered yet keeps no others waiting.
            let answers = is_relisting && parts.iter().all(|p| p.membership != Membership::Other);
            self.nodes[index].is_up = joined && self.is_member(index);
            all &= joined || !connected || answers;
        }
        if !all {
            self.nodes.iter_mut().for_each(|n| n.is_up = false);
        }
        self.note_settled();
    }
}
