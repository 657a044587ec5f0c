//! A gateway's list of memory nodes changes while it works: new ones are met first, then the workers share the keys anew, then
//! those that left are let go.

use super::endpoint::Endpoint;
use super::line::Line;
use super::node::NodeControl;
use crate::service::kv::members::Members;
use crate::worker::Order;
use rdma_engine::cm::GoodbyeReason;
use rdma_engine::types::Time;
use tracing::{info, warn};

/// How long a new list waits for the new nodes. Those that are not there by then are down like any other.
const MEET_NS: u64 = 1_000_000_000;

/// A list that waits for its new nodes.
#[derive(Debug)]
pub(super) struct Coming {
    members: Members,
    new: Vec<usize>,
    until: Time,
}

impl<D: Endpoint> NodeControl<'_, D> {
    /// Names the nodes of the links, in their order: the list as it is at the start.
    pub fn name_links(&mut self, names: &[String]) {
        for (link, name) in self.links.iter_mut().zip(names) {
            link.listed = Some(name.clone());
        }
    }

    /// Nodes of the present list with the links that they have.
    pub fn listed(&self) -> impl Iterator<Item = (usize, &str)> {
        let links = self.links.iter().enumerate().filter(|(_, link)| !link.leaves);
        links.filter_map(|(at, link)| Some((at, link.listed.as_deref()?)))
    }

    /// Links that new nodes may have.
    pub fn free_links(&self) -> Vec<usize> {
        let free = |at: &usize| self.links[*at].listed.is_none() && self.links[*at].is_vacant();
        (0..self.links.len()).filter(free).collect()
    }

    /// Takes another list of nodes: `new` ones, each with a [free link](Self::free_links), and without those at the links
    /// `gone`; the others stay where they are.
    pub fn relist(
        &mut self,
        now: Time,
        generation: u64,
        new: Vec<(usize, String, Line)>,
        gone: impl IntoIterator<Item = usize>,
    ) {
        let mut met = Vec::new();
        for (at, name, line) in new {
            self.lines[at] = line;
            self.links[at].line = at;
            self.links[at].listed = Some(name);
            met.push(at);
        }
        for at in gone {
            self.links[at].leaves = true;
        }
        let members = Members::new(generation, self.listed().map(|(at, name)| (name, at as u16)));
        self.coming = Some(Coming { members, new: met, until: now.after_ns(MEET_NS) });
    }

    /// Tells the workers of a list once its new nodes are there, or have had time to be.
    pub(super) fn deliver_list(&mut self, now: Time) {
        let Some(coming) = &self.coming else { return };
        let met = coming.new.iter().all(|at| self.links[*at].is_established());
        if !met && now < coming.until {
            return;
        }
        let Some(Coming { members, .. }) = self.coming.take() else { return };
        self.links.iter_mut().for_each(|link| link.list_conflicts.clear());
        info!(node = %self.settings.name, "keys are shared by list {} of {} memory nodes", members.generation, members.len());
        for worker in 0..self.workers() {
            self.order(worker, Order::Relist(Box::new(members.clone())));
        }
    }

    /// A worker found that a memory node serves another list than ours; others find it as well.
    pub(super) fn note_list_conflict(&mut self, at: usize, ours: u64, theirs: u64) {
        let node = &self.settings.name;
        let Some(link) = self.links.get_mut(at) else { return };
        let is_told = link.list_conflicts.contains(&(ours, theirs));
        let Some(name) = link.listed.as_deref().filter(|_| !is_told) else { return };
        if theirs > ours {
            warn!(%node, "memory node {name} serves list {theirs}, and this gateway has list {ours}: no keys are served until it has the newer one: set nodes and generation = {theirs} as at the other gateways, and send SIGHUP");
        } else if theirs == ours {
            warn!(%node, "memory node {name} serves another list with the number {ours}: no keys are served until all gateways have the same: set the right nodes and generation = {} at each, and send SIGHUP", ours + 1);
        } else {
            warn!(%node, "memory node {name} serves list {theirs} and does not take list {ours} yet: it is asked again");
        }
        link.list_conflicts.push((ours, theirs));
    }

    /// Lets a node go that has left: its queue pairs when the workers have given them up, then its connection.
    pub(super) fn let_go(&mut self, now: Time, at: usize) {
        let link = &mut self.links[at];
        // Until the workers know the new list they have use for it.
        if !link.leaves || self.coming.is_some() {
            return;
        }
        // A session that waits for an offer gets none, and ends by its own deadline.
        link.wanted = None;
        if link.is_established() && !link.is_empty() {
            return;
        }
        self.rebuild(now, at, GoodbyeReason::Shutdown);
        self.lines[self.links[at].line].stop();
        let link = &mut self.links[at];
        if link.is_empty() {
            (link.leaves, link.holder, link.met_workers) = (false, None, None);
            if let Some(name) = link.listed.take() {
                info!(node = %self.settings.name, "{name} has left");
            }
        }
    }
}
