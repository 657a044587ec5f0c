//! Another list of memory nodes takes the place of the present one while requests go on.
//!
//! 1. No request is begun any more; those under way end. Nothing is left then that was meant for an owner by the old list. A
//!    node that keeps requests from ending for too long loses its connection, which ends them.
//! 2. The list is exchanged, and every connected node is told, those that leave as well. Keys whose owner stays the same are
//!    served at once: what is asked of that node comes after what it was told.
//! 3. Requests for keys that change hands wait until every connected node has answered, for a while: a node answers when no
//!    item is left that the new list gives to another one, so nobody reads or writes a key at its old owner any more.
//! 4. Queue pairs to nodes that have left are given up.

use super::Engine;
use super::job::Step;
use super::parts::{Membership as Standing, PathState};
use super::request::Client;
use super::slab::NONE;
use crate::flow::PathIndex;
use crate::memcached::{Command, KEY_BYTES_MAX, Parsed, parse};
use crate::service::Context;
use crate::service::kv::members::Members;
use crate::service::kv::message::NodeCounts;
use crate::service::relay::PathEnd;
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::transport::Transport;
use rdma_engine::types::Time;
use std::collections::VecDeque;

/// Longest time that requests wait for keys that change hands. Nanoseconds.
const HOLD_NS: u64 = 500_000_000;

/// How long requests under way may keep a list waiting: longer than a node lets a call wait for a place. Nanoseconds.
const PATIENCE_NS: u64 = 250_000_000;
/// What is under way then and still is after this time is given up. Nanoseconds.
const LOOK_AGAIN_NS: u64 = 50_000_000;

/// Lists that come and go.
#[derive(Debug)]
pub(super) struct Relisting {
    /// The next one, until nothing is under way any more.
    pub(super) coming: Option<Box<Members>>,
    /// When what is under way is looked at again.
    coming_until: Time,
    /// By job: its ticket, if it was under way when it was looked at last.
    slow: Box<[u32]>,
    /// The one before, until every connected node serves the present one.
    pub(super) before: Option<Box<Members>>,
    /// Number of the list before the present one; 0 without.
    pub(super) generation_before: u64,
    /// Requests that wait for keys that change hands, oldest first.
    held: VecDeque<u32>,
    /// When they are answered that there is no node.
    held_until: Time,
    /// Lists that are done with: control takes them back.
    used: [Option<Box<Members>>; 2],
}

impl Relisting {
    /// Room for so many requests that wait.
    pub(super) fn new(requests: usize) -> Self {
        Relisting {
            coming: None,
            coming_until: Time(0),
            slow: vec![NONE; requests].into(),
            before: None,
            generation_before: 0,
            held: VecDeque::with_capacity(requests),
            held_until: Time(0),
            used: [None, None],
        }
    }

    fn give_back(&mut self, list: Option<Box<Members>>) {
        if let Some(list) = list
            && let Some(room) = self.used.iter_mut().find(|room| room.is_none())
        {
            *room = Some(list);
        }
    }
}

impl<B: Buf, C: Client> Engine<B, C> {
    /// Takes another list of nodes, as soon as nothing is under way. One that waited for that gives way.
    pub fn relist<T, P>(&mut self, ctx: &mut Context<'_, T, P>, members: Box<Members>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let given_way = self.relisting.coming.replace(members);
        if given_way.is_none() {
            self.relisting.coming_until = ctx.now.after_ns(PATIENCE_NS);
            self.relisting.slow.fill(NONE);
        }
        self.relisting.give_back(given_way);
        // Those that wait for keys to settle would wait for each other.
        self.relisting.held_until = ctx.now;
        self.settle(ctx);
        self.exchange(ctx);
    }

    /// True if the request's next command is about a key that changes hands, and it may wait for that.
    pub(super) fn has_to_wait(&self, now: Time, at: u32) -> bool {
        if self.relisting.before.is_none() || now >= self.relisting.held_until {
            return false;
        }
        let Some(request) = self.requests.get(at) else { return false };
        // A client's requests stay in their order.
        let flow = request.client.flow();
        let of_same = |at: &u32| self.requests.get(*at).is_some_and(|held| held.client.flow() == flow);
        if self.relisting.held.iter().any(of_same) {
            return true;
        }
        let moves = |key: &[u8]| self.owner_of(key) == self.nowhere();
        let mut decoded = [0; KEY_BYTES_MAX];
        let text = &request.bytes()[request.text.clone()];
        let Parsed::Request(parsed) = parse(text, &mut decoded, &self.limits()) else { return false };
        match parsed.command {
            Command::Get { mut keys, .. } => keys.any(moves),
            Command::Item { key, .. } => moves(key),
            Command::TooLarge { stale_key, .. } => stale_key.is_some_and(moves),
            _ => false,
        }
    }

    /// Lets a request wait until keys have settled.
    pub(super) fn hold(&mut self, at: u32) {
        self.relisting.held.push_back(at);
    }

    /// True if no request waits for keys to settle.
    #[inline]
    pub(super) fn holds_none(&self) -> bool {
        self.relisting.held.is_empty()
    }

    /// Lets requests that waited go on, when keys have settled or the time is over. They come before anything that came later,
    /// in their order.
    #[inline]
    pub(super) fn let_go(&mut self, now: Time) {
        if self.relisting.held.is_empty() {
            return;
        }
        if self.relisting.before.is_none() || now >= self.relisting.held_until {
            while let Some(request) = self.relisting.held.pop_back() {
                self.idle.push_front(request);
            }
        }
    }

    /// True unless keys are changing hands, or are about to.
    pub fn is_settled(&self) -> bool {
        self.relisting.coming.is_none() && self.relisting.before.is_none()
    }

    /// A list that is not used any more.
    pub fn used_list(&mut self) -> Option<Box<Members>> {
        self.relisting.used.iter_mut().find_map(Option::take)
    }

    /// The node that owns a key; while the key changes hands, one that there is not.
    #[inline]
    pub(super) fn owner_of(&self, key: &[u8]) -> usize {
        let owner = self.members.owner(&self.owners, key);
        match &self.relisting.before {
            Some(before) if before.owner(&self.owners, key) != owner => self.nowhere(),
            _ => owner,
        }
    }

    /// A node that never takes operations.
    fn nowhere(&self) -> usize {
        self.nodes.len() - 1
    }

    /// True if the partition is to know who shares the keys: its node is one of them, or was.
    pub(super) fn is_told(&self, part: usize) -> bool {
        let node = usize::from(self.parts[part].node);
        self.is_member(node) || self.nodes[node].leaves
    }

    /// True if the node at this place has a share of the keys.
    pub(super) fn is_member(&self, node: usize) -> bool {
        self.members.index(node).is_some()
    }

    /// Gives up connections whose nodes have kept a list waiting for too long, and with them what is under way there.
    pub(super) fn hurry<T, P>(&mut self, ctx: &mut Context<'_, T, P>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        if self.relisting.coming.is_none() || ctx.now < self.relisting.coming_until {
            return;
        }
        self.relisting.coming_until = ctx.now.after_ns(LOOK_AGAIN_NS);
        for at in 0..self.jobs.capacity() {
            let ticket = self.jobs.ticket(at);
            let Some(job) = self.jobs.value(at) else { continue };
            let part = &self.parts[usize::from(job.part)];
            let path = match job.step {
                Step::Reading => part.read,
                Step::Asked => part.call,
                Step::Ordered | Step::Item | Step::Buckets | Step::Ask | Step::Lost | Step::Done => continue,
            };
            // One that was begun just now, as the next command of a request, has time until the next look.
            if std::mem::replace(&mut self.relisting.slow[at as usize], ticket) == ticket {
                self.path_failed(ctx, path, PathEnd::Told);
            }
        }
        self.settle(ctx);
    }

    /// Exchanges the lists, if one is coming and nothing is under way.
    pub(super) fn exchange<T, P>(&mut self, ctx: &mut Context<'_, T, P>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        if !self.requests.is_empty() || self.draining {
            return;
        }
        let Some(coming) = self.relisting.coming.take() else { return };
        let before = std::mem::replace(&mut self.members, coming);
        self.relisting.generation_before = before.generation;
        // Of keys that were changing hands nothing is known: none counts as staying where it is.
        let unsettled = self.relisting.before.replace(before);
        let is_settled = unsettled.is_none();
        self.relisting.give_back(unsettled);
        for node in 0..self.nodes.len() {
            let stays = is_settled && self.nodes[node].is_up && self.is_member(node);
            self.nodes[node].leaves = !self.is_member(node) && self.is_attached(node);
            for part in self.parts_of(node) {
                if self.parts[part].membership == Standing::Unknown && !self.is_ready(part) {
                    continue;
                }
                self.parts[part].membership = Standing::Unknown;
                self.join(ctx, part);
                if stays && self.parts[part].membership == Standing::Asked {
                    self.parts[part].membership = Standing::Renewed;
                }
            }
        }
        self.relisting.held_until = ctx.now.after_ns(HOLD_NS);
        self.note_up();
        self.see_off(ctx);
    }

    /// Partitions at a node's place.
    pub(super) fn parts_of(&self, node: usize) -> std::ops::Range<usize> {
        let most = usize::from(self.settings.node_workers_max);
        node * most..(node + 1) * most
    }

    /// The list before is done with as soon as no connected node has yet to answer.
    pub(super) fn note_settled(&mut self) {
        if self.relisting.before.is_none() {
            return;
        }
        let has_yet_to_answer = |part: usize| match self.parts[part].membership {
            Standing::Asked | Standing::Renewed | Standing::Other => true,
            Standing::Unknown => self.is_ready(part) && self.is_told(part),
            Standing::Ours => false,
        };
        if !(0..self.parts.len()).any(has_yet_to_answer) {
            let before = self.relisting.before.take();
            self.relisting.give_back(before);
        }
    }

    /// Gives up queue pairs to nodes that are not in the list any more and know it.
    pub(super) fn see_off<T, P>(&mut self, ctx: &mut Context<'_, T, P>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        for node in 0..self.nodes.len() {
            if !self.nodes[node].leaves {
                continue;
            }
            let mut parts = self.parts_of(node);
            // One that could not be told yet is told by the next tick, for a while.
            let in_time = ctx.now < self.relisting.held_until;
            let is_owed = |p: usize| match self.parts[p].membership {
                Standing::Asked => true,
                Standing::Unknown => in_time && self.is_ready(p),
                _ => false,
            };
            if parts.any(is_owed) {
                continue;
            }
            self.nodes[node].leaves = false;
            for path in 0..self.paths.len() {
                if self.is_path_of(path, node) {
                    self.path_failed(ctx, Some(path as PathIndex), PathEnd::Closed);
                }
            }
            for part in self.parts_of(node) {
                self.parts[part].counts = NodeCounts::default();
            }
        }
    }

    fn is_attached(&self, node: usize) -> bool {
        (0..self.paths.len()).any(|path| self.is_path_of(path, node))
    }

    /// True if a queue pair is in use here, to this node.
    fn is_path_of(&self, path: usize, node: usize) -> bool {
        let path = &self.paths[path];
        matches!(path.state, PathState::Armed | PathState::Up)
            && self.parts_of(node).contains(&usize::from(path.part))
    }
}
