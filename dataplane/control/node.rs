//! A node's connection to its peer: meet over TCP, bring the queue pairs up, hand them to the workers, take them back.

use super::endpoint::{Endpoint, FabricAction};
use super::line::{Line, LineEvent};
use super::slot::{Place, Slot};
use crate::service::relay::PathEnd;
use crate::worker::{Mailbox, Order, Report};
use rdma_engine::cm::{GoodbyeReason, Offer, QpTotal, Refusal, RefuseReason, SessionEvent, SessionId};
use rdma_engine::qp::{InitAttr, QpSpec};
use rdma_engine::types::{Qpn, Time};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use tracing::{info, warn};

/// Time a peer's queue pairs get to close after its goodbye before they are torn down.
const CLOSE_NS: u64 = 500_000_000;

/// What a node's connection is made with.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// The node's name.
    pub name: String,
    /// What is offered to the peer, but for address and queue pairs.
    pub offer: Offer,
    /// What the queue pairs are made with.
    pub spec: QpSpec,
    /// What they go to INIT with.
    pub init: InitAttr,
    /// Queue pairs of each worker.
    pub qps_per_worker: usize,
    /// Receives that one queue pair may use: what the peer is promised.
    pub credits: u32,
}

/// The connection as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The offer is out.
    Offered,
    /// The workers post receives.
    Arming,
    /// This end is ready.
    Ready,
    /// Both are.
    Established,
    /// The peer has said goodbye, at this time.
    Leaving(Time),
}

#[derive(Debug)]
pub(super) struct Meeting {
    pub(super) session: SessionId,
    pub(super) peer: IpAddr,
    pub(super) peer_name: String,
    pub(super) phase: Phase,
}

/// A node's connection.
pub struct NodeControl<'d, D: Endpoint> {
    pub(super) settings: NodeSettings,
    pub(super) device: &'d D,
    line: Line,
    mailboxes: Vec<Arc<Mailbox<D::Qp>>>,
    /// Orders a worker had no room for yet.
    unsent: Vec<VecDeque<Order<D::Qp>>>,
    pub(super) places: Vec<Place<D::Qp>>,
    pub(super) meeting: Option<Meeting>,
    /// A session that waits for an offer until the last one's queue pairs are gone.
    wants_offer: Option<(SessionId, IpAddr)>,
    drained: Vec<bool>,
    draining: bool,
    pub(super) last_address: String,
}

impl<'d, D: Endpoint> NodeControl<'d, D> {
    /// A connection that has not been made yet.
    pub fn new(
        settings: NodeSettings,
        device: &'d D,
        line: Line,
        mailboxes: Vec<Arc<Mailbox<D::Qp>>>,
    ) -> Self {
        let places = (0..mailboxes.len() * settings.qps_per_worker)
            .map(|n| Place {
                worker: n / settings.qps_per_worker,
                path: (n % settings.qps_per_worker) as u8,
                slot: Slot::Free,
                last: None,
                connections: 0,
            })
            .collect();
        NodeControl {
            unsent: mailboxes.iter().map(|_| VecDeque::new()).collect(),
            drained: vec![false; mailboxes.len()],
            settings,
            device,
            line,
            mailboxes,
            places,
            meeting: None,
            wants_offer: None,
            draining: false,
            last_address: String::new(),
        }
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// The queue pairs' places.
    pub fn places(&self) -> &[Place<D::Qp>] {
        &self.places
    }

    /// The peer's name and address while there is one.
    pub fn peer(&self) -> Option<String> {
        self.meeting.as_ref().map(|m| format!("{} at {}", m.peer_name, m.peer))
    }

    /// True while frames can flow.
    pub fn is_established(&self) -> bool {
        self.meeting.as_ref().is_some_and(|m| m.phase == Phase::Established)
    }

    /// The TCP side, for waiting.
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// Does whatever is due: device events, reports of the workers, the TCP session.
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
        self.line.poll(now);
        while let Some(event) = self.line.next_event() {
            self.on_line(now, event);
        }
        self.retry_offer(now);
        self.finish_leaving(now);
        self.deliver_orders();
    }

    /// Begins to shut down: the workers finish what they have, then the connection is closed.
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
        self.drained.iter().all(|d| *d) && self.places.iter().all(Place::is_free)
    }

    /// Ends the TCP session after a drain; true once it is over.
    pub fn close(&mut self, now: Time) -> bool {
        if let Some(meeting) = &self.meeting {
            let totals = self.totals();
            self.line.goodbye(now, meeting.session, GoodbyeReason::Shutdown, totals);
        }
        self.line.stop();
        self.poll(now);
        self.meeting.is_none()
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

    fn place(&mut self, worker: usize, path: u8) -> &mut Place<D::Qp> {
        &mut self.places[worker * self.settings.qps_per_worker + usize::from(path)]
    }

    fn on_fabric(&mut self, now: Time, action: FabricAction) {
        match action {
            FabricAction::None => {}
            FabricAction::RebuildCq { worker, cq } => {
                if worker < self.mailboxes.len() {
                    self.order(worker, Order::RebuildCq(cq));
                }
            }
            FabricAction::Reconnect => self.rebuild(now, GoodbyeReason::PortChanged),
        }
    }

    fn on_report(&mut self, now: Time, worker: usize, report: Report<D::Qp>) {
        match report {
            Report::Armed(path) => {
                if let Some(w) = self.place(worker, path).working() {
                    w.armed = true;
                }
                self.note_armed(now);
            }
            Report::Refused(path, qp) => {
                self.place(worker, path).slot = Slot::Free;
                self.destroy(qp);
                self.refuse(now, "a worker has no place for the queue pair".into());
            }
            Report::Down { path, qp, end, totals } => {
                let qpn = self.device.qpn(&qp);
                let place = self.place(worker, path);
                place.last = Some((qpn, totals));
                place.slot = Slot::Free;
                self.destroy(qp);
                self.note_down(now, qpn, end);
            }
            Report::Drained => self.drained[worker] = true,
        }
    }

    fn note_armed(&mut self, now: Time) {
        let all_armed = self.places.iter_mut().filter_map(Place::working).all(|w| w.armed);
        if let Some(m) = self.meeting.as_mut().filter(|m| all_armed && m.phase == Phase::Arming) {
            m.phase = Phase::Ready;
            self.line.local_ready(now, m.session);
        }
    }

    /// A queue pair has gone. If that was an error while the peer is there, the whole connection is rebuilt.
    fn note_down(&mut self, now: Time, qpn: Qpn, end: PathEnd) {
        if matches!(end, PathEnd::Closed | PathEnd::Told) || self.draining {
            return;
        }
        let established = self.is_established();
        if established {
            warn!(node = %self.settings.name, %qpn, "{end}; connecting again");
            self.rebuild(now, GoodbyeReason::QpError);
        }
    }

    /// Ends the session and gives up its queue pairs; the line meets the peer again by itself.
    fn rebuild(&mut self, now: Time, reason: GoodbyeReason) {
        if let Some(m) = self.meeting.take() {
            let totals = self.totals();
            self.line.goodbye(now, m.session, reason, totals);
        }
        self.fail_all();
    }

    /// Tells the workers to give up every queue pair, and destroys those that no worker has.
    fn fail_all(&mut self) {
        for at in 0..self.places.len() {
            let (worker, path) = (self.places[at].worker, self.places[at].path);
            if let Some((qp, ..)) = self.places[at].take_fresh() {
                self.destroy(qp);
            }
            if let Some(w) = self.places[at].working().filter(|w| !w.failing) {
                w.failing = true;
                self.order(worker, Order::Fail(path));
            }
        }
    }

    pub(super) fn destroy(&self, qp: D::Qp) {
        if let Err(error) = self.device.destroy_qp(qp) {
            warn!(node = %self.settings.name, "{error}");
        }
    }

    pub(super) fn refuse(&mut self, now: Time, why: String) {
        warn!(node = %self.settings.name, "{why}");
        if let Some(m) = self.meeting.take() {
            self.line.refuse(now, m.session, Refusal::new(RefuseReason::Application, why));
        }
        self.fail_all();
    }

    fn totals(&self) -> Vec<QpTotal> {
        let total = |p: &Place<D::Qp>| {
            let (qpn, t) = p.last?;
            Some(QpTotal { qpn, messages: 0, frames: t.frames_sent })
        };
        self.places.iter().filter_map(total).collect()
    }

    fn on_line(&mut self, now: Time, event: LineEvent) {
        let LineEvent { session, peer, event } = event;
        let mine = self.meeting.as_ref().is_some_and(|m| m.session == session);
        match event {
            SessionEvent::OfferWanted(_) => {
                self.wants_offer = Some((session, peer));
                self.retry_offer(now);
            }
            SessionEvent::Agreed(agreement) if mine => self.on_agreed(now, &agreement),
            SessionEvent::Established if mine => self.on_established(),
            SessionEvent::PeerGoodbye { reason, .. } if mine => self.on_goodbye(now, reason),
            SessionEvent::Ended(end) => {
                if self.wants_offer.is_some_and(|(s, _)| s == session) {
                    self.wants_offer = None;
                }
                if mine {
                    info!(node = %self.settings.name, "connection to {peer} over: {end}");
                    self.meeting = None;
                    self.fail_all();
                }
            }
            // Of a session that has been given up meanwhile.
            _ => {}
        }
    }

    /// Makes the offer that a session waits for, once nothing is left of the last connection.
    fn retry_offer(&mut self, now: Time) {
        let Some((session, peer)) = self.wants_offer else { return };
        if self.draining || self.meeting.is_some() || !self.places.iter().all(Place::is_free) {
            return;
        }
        self.wants_offer = None;
        match self.make_offer(peer) {
            Ok(offer) => match self.line.offer(now, session, offer) {
                Ok(()) => {
                    let peer_name = "peer".to_owned();
                    self.meeting = Some(Meeting { session, peer, peer_name, phase: Phase::Offered });
                }
                Err(error) => {
                    warn!(node = %self.settings.name, "the offer to {peer} breaks a bound: {error}");
                    self.line.refuse(
                        now,
                        session,
                        Refusal::new(RefuseReason::Application, error.to_string()),
                    );
                    self.fail_all();
                }
            },
            Err(why) => {
                warn!(node = %self.settings.name, "no offer to {peer}: {why}");
                self.line.refuse(now, session, Refusal::new(RefuseReason::Application, why));
                self.fail_all();
            }
        }
    }

    fn on_established(&mut self) {
        if let Some(m) = &mut self.meeting {
            m.phase = Phase::Established;
            info!(node = %self.settings.name, "connected to {} at {}", m.peer_name, m.peer);
        }
        for at in 0..self.places.len() {
            let (worker, path) = (self.places[at].worker, self.places[at].path);
            if self.places[at].working().is_some() {
                self.order(worker, Order::Ready(path));
            }
        }
    }

    /// The peer will send no more. After a shutdown its last messages are still on their way; after an error nothing is
    /// worth waiting for.
    fn on_goodbye(&mut self, now: Time, reason: GoodbyeReason) {
        info!(node = %self.settings.name, "the peer says goodbye: {reason:?}");
        match &mut self.meeting {
            Some(m) if reason == GoodbyeReason::Shutdown => m.phase = Phase::Leaving(now),
            _ => self.rebuild(now, GoodbyeReason::QpError),
        }
    }

    /// Answers a goodbye once all queue pairs are closed, or after a bounded wait.
    fn finish_leaving(&mut self, now: Time) {
        let Some(Meeting { phase: Phase::Leaving(since), .. }) = self.meeting else { return };
        if self.places.iter().all(Place::is_free) {
            let totals = self.totals();
            if let Some(m) = self.meeting.take() {
                self.line.goodbye(now, m.session, GoodbyeReason::Shutdown, totals);
            }
        } else if now.since_ns(since) > CLOSE_NS {
            self.fail_all();
        }
    }
}
