//! A node's control: its workers and their mailboxes, its device's events, its links to peers, its drain.

use super::endpoint::{Endpoint, FabricAction};
use super::layout::{LaneSettings, Layout};
use super::line::Line;
use super::link::Link;
use super::relist::Coming;
use super::slot::Place;
use crate::flow::PathIndex;
use crate::service::relay::PathEnd;
use crate::worker::{Mailbox, Order, Report};
use rdma_engine::cm::{GoodbyeReason, Offer, RegionOffer};
use rdma_engine::types::{Qpn, Time};
use std::collections::VecDeque;
use std::sync::Arc;
use tracing::warn;

/// What a node's connections are made with.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// The node's name.
    pub name: String,
    /// What is offered to each peer, but for address and queue pairs.
    pub offer: Offer,
    /// By link: memory that this peer alone may write, if there is any.
    pub staging: Vec<RegionOffer>,
    /// What the queue pairs of each lane are made with.
    pub lanes: Vec<LaneSettings>,
    /// How many there are, and to whom.
    pub layout: Layout,
}

/// A node as the main lcore sees it.
pub struct NodeControl<'d, D: Endpoint> {
    pub(super) settings: NodeSettings,
    pub(super) device: &'d D,
    pub(super) lines: Vec<Line>,
    pub(super) links: Vec<Link<D::Qp>>,
    mailboxes: Vec<Arc<Mailbox<D::Qp>>>,
    /// Orders a worker had no room for yet.
    unsent: Vec<VecDeque<Order<D::Qp>>>,
    /// Link and place of each path, by worker.
    owners: Vec<Vec<(usize, usize)>>,
    drained: Vec<bool>,
    pub(super) draining: bool,
    /// A list of memory nodes that the workers have not been told yet.
    pub(super) coming: Option<Coming>,
}

impl<'d, D: Endpoint> NodeControl<'d, D> {
    /// A node that has met nobody yet.
    ///
    /// # Panics
    /// Without a line.
    pub fn new(
        settings: NodeSettings,
        device: &'d D,
        mut lines: Vec<Line>,
        mailboxes: Vec<Arc<Mailbox<D::Qp>>>,
    ) -> Self {
        let (layout, workers) = (settings.layout, mailboxes.len());
        let line_of = |link: usize| if matches!(layout, Layout::Gateway { .. }) { link } else { 0 };
        let links: Vec<Link<D::Qp>> =
            (0..layout.links()).map(|at| Link::new(layout, at, line_of(at), workers)).collect();
        assert!(!lines.is_empty(), "a line to some peer");
        // Links of a gateway that no memory node has yet.
        lines.resize_with(lines.len().max(links.iter().map(|l| l.line + 1).max().unwrap_or(0)), || {
            Line::Nobody
        });
        let mut owners = vec![vec![(0, 0); layout.paths_per_worker()]; workers];
        for (at, link) in links.iter().enumerate() {
            for (n, place) in link.places.iter().enumerate() {
                owners[place.worker][usize::from(place.path)] = (at, n);
            }
        }
        NodeControl {
            unsent: mailboxes.iter().map(|_| VecDeque::new()).collect(),
            drained: vec![false; workers],
            settings,
            device,
            lines,
            links,
            mailboxes,
            owners,
            draining: false,
            coming: None,
        }
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Its peers: the one of a relay, the memory nodes of a gateway, the seats of a memory node.
    pub fn links(&self) -> &[Link<D::Qp>] {
        &self.links
    }

    /// Peers with the places of their queue pairs that are worth showing.
    pub fn shown(&self) -> impl Iterator<Item = (&Link<D::Qp>, &Place<D::Qp>)> {
        let all = !self.settings.layout.is_kv();
        let places = self.links.iter().flat_map(|link| link.places.iter().map(move |place| (link, place)));
        places.filter(move |(link, place)| {
            all || place.connections > 0 || !place.is_free() || link.misses(place)
        })
    }

    /// True while every peer that the node goes to is there. Those that come to a memory node come when they like.
    pub fn is_established(&self) -> bool {
        let is_gateway = matches!(self.settings.layout, Layout::Gateway { .. });
        let needed = |l: &&Link<D::Qp>| !is_gateway || (l.listed.is_some() && !l.leaves);
        self.is_memory_node() || self.links.iter().filter(needed).all(Link::is_established)
    }

    /// True for a node that others come to for its memory.
    pub fn is_memory_node(&self) -> bool {
        matches!(self.settings.layout, Layout::Memory { .. })
    }

    /// The TCP side, for waiting.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Does whatever is due: device events, reports of the workers, the TCP sessions.
    pub fn poll(&mut self, now: Time) {
        while let Some(event) = self.device.poll_event() {
            warn!(node = %self.settings.name, "{}", event.words);
            self.on_fabric(now, event.action);
        }
        for worker in 0..self.mailboxes.len() {
            while let Some(report) = self.mailboxes[worker].report() {
                self.on_report(now, worker, report);
            }
        }
        for line in 0..self.lines.len() {
            self.lines[line].poll(now);
            while let Some(event) = self.lines[line].next_event() {
                self.on_line(now, line, event);
            }
        }
        for link in 0..self.links.len() {
            self.retry_offer(now, link);
            self.finish_leaving(now, link);
            self.let_go(now, link);
        }
        self.deliver_list(now);
        self.give_up_when_drained();
        self.deliver_orders();
    }

    /// Begins to shut down: the workers finish what they have, then the connections are closed.
    pub fn drain(&mut self) {
        self.draining = true;
        for worker in 0..self.mailboxes.len() {
            self.order(worker, Order::Drain);
        }
        self.deliver_orders();
    }

    /// The drain's deadline has passed.
    pub fn abandon(&mut self) {
        for worker in 0..self.mailboxes.len() {
            self.order(worker, Order::Abandon);
        }
        self.deliver_orders();
    }

    /// True when every worker is drained and no queue pair is left.
    pub fn is_drained(&self) -> bool {
        self.are_workers_drained() && self.links.iter().all(Link::is_empty)
    }

    fn are_workers_drained(&self) -> bool {
        self.drained.iter().all(|d| *d)
    }

    /// The key-value service knows no closing of a path: what has no request under way is given up.
    fn give_up_when_drained(&mut self) {
        if self.draining && self.settings.layout.is_kv() && self.are_workers_drained() {
            (0..self.links.len()).for_each(|link| self.fail_all(link));
        }
    }

    /// Ends the TCP sessions after a drain; true once they are over.
    pub fn close(&mut self, now: Time) -> bool {
        for link in &self.links {
            if let Some(meeting) = &link.meeting {
                let totals = link.totals();
                self.lines[link.line].goodbye(now, meeting.session, GoodbyeReason::Shutdown, totals);
            }
        }
        self.lines.iter_mut().for_each(Line::stop);
        self.poll(now);
        self.links.iter().all(|l| l.meeting.is_none())
    }

    pub(super) fn workers(&self) -> usize {
        self.mailboxes.len()
    }

    pub(super) fn order(&mut self, worker: usize, order: Order<D::Qp>) {
        self.unsent[worker].push_back(order);
    }

    fn deliver_orders(&mut self) {
        for (mailbox, unsent) in self.mailboxes.iter().zip(&mut self.unsent) {
            while let Some(order) = unsent.pop_front() {
                if let Err(back) = mailbox.order(order) {
                    unsent.push_front(back);
                    break;
                }
            }
        }
    }

    /// Link and place of a path that a worker speaks of.
    fn place(&mut self, worker: usize, path: PathIndex) -> (usize, &mut Place<D::Qp>) {
        let (link, place) = self.owners[worker][usize::from(path)];
        (link, &mut self.links[link].places[place])
    }

    fn on_fabric(&mut self, now: Time, action: FabricAction) {
        match action {
            FabricAction::None => {}
            FabricAction::RebuildCq { worker, cq } => {
                if worker < self.mailboxes.len() {
                    self.order(worker, Order::RebuildCq(cq));
                }
            }
            FabricAction::Reconnect => {
                for link in 0..self.links.len() {
                    self.rebuild(now, link, GoodbyeReason::PortChanged);
                }
            }
        }
    }

    fn on_report(&mut self, now: Time, worker: usize, report: Report<D::Qp>) {
        match report {
            Report::Armed(path) => {
                let (link, place) = self.place(worker, path);
                if let Some(w) = place.working() {
                    w.armed = true;
                }
                self.note_armed(now, link);
            }
            Report::Refused(path, qp) => {
                let (link, place) = self.place(worker, path);
                place.free();
                self.destroy(qp);
                self.refuse(now, link, "a worker has no place for the queue pair".into());
            }
            Report::Down { path, qp, end, totals } => {
                let qpn = self.device.qpn(&qp);
                let (link, place) = self.place(worker, path);
                place.last = Some((qpn, totals));
                place.free();
                if self.destroy(qp) {
                    self.order(worker, Order::Released(path));
                }
                self.note_down(now, link, qpn, end);
            }
            Report::Finished | Report::Relisted(_) => {}
            Report::ListConflict { node, ours, theirs } => self.note_list_conflict(node, ours, theirs),
            Report::Drained => self.drained[worker] = true,
        }
    }

    /// A queue pair has gone. If that was an error while the peer is there, its whole connection is rebuilt.
    fn note_down(&mut self, now: Time, link: usize, qpn: Qpn, end: PathEnd) {
        if matches!(end, PathEnd::Closed | PathEnd::Told) || self.draining {
            return;
        }
        if self.links[link].is_established() {
            warn!(node = %self.settings.name, %qpn, "{end}; connecting again");
            self.rebuild(now, link, GoodbyeReason::QpError);
        }
    }

    /// Ends the session and gives up its queue pairs; the line meets the peer again by itself.
    pub(super) fn rebuild(&mut self, now: Time, link: usize, reason: GoodbyeReason) {
        if let Some(m) = self.links[link].end_meeting(now) {
            let totals = self.links[link].totals();
            self.lines[self.links[link].line].goodbye(now, m.session, reason, totals);
        }
        self.fail_all(link);
    }

    /// Tells the workers to give up every queue pair of a link, and destroys those that no worker has.
    pub(super) fn fail_all(&mut self, link: usize) {
        for at in 0..self.links[link].places.len() {
            let place = &mut self.links[link].places[at];
            let (worker, path) = (place.worker, place.path);
            let fresh = place.take_fresh();
            let told = place.working().filter(|w| !w.failing).map(|w| w.failing = true);
            if let Some((qp, ..)) = fresh {
                self.destroy(qp);
            }
            if told.is_some() {
                self.order(worker, Order::Fail(path));
            }
        }
    }

    /// True if the device has let go of it.
    pub(super) fn destroy(&self, qp: D::Qp) -> bool {
        let done = self.device.destroy_qp(qp);
        if let Err(error) = &done {
            warn!(node = %self.settings.name, "{error}");
        }
        done.is_ok()
    }
}
