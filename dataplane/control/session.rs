//! The TCP sessions of a node's links: who is met, what becomes of it, how it ends.

use super::endpoint::Endpoint;
use super::layout::Layout;
use super::line::LineEvent;
use super::link::{Meeting, Phase, Wanted, seat_for};
use super::node::NodeControl;
use crate::worker::Order;
use rdma_engine::cm::{GoodbyeReason, Peer, Refusal, RefuseReason, SessionEvent, SessionId};
use rdma_engine::types::Time;
use std::net::IpAddr;
use tracing::{info, warn};

/// Time a peer's queue pairs get to close after its goodbye before they are torn down.
const CLOSE_NS: u64 = 500_000_000;

impl<D: Endpoint> NodeControl<'_, D> {
    pub(super) fn on_line(&mut self, now: Time, line: usize, event: LineEvent) {
        let LineEvent { session, peer, event } = event;
        if let SessionEvent::OfferWanted(other) = event {
            return self.on_offer_wanted(now, line, session, peer, other);
        }
        let mine = |l: &super::link::Link<D::Qp>| l.line == line && l.has(session);
        // Otherwise it is of a session that has been given up meanwhile.
        let Some(link) = self.links.iter().position(mine) else { return };
        match event {
            SessionEvent::Agreed(agreement) => self.on_agreed(now, link, &agreement),
            SessionEvent::Established => self.on_established(link),
            SessionEvent::PeerGoodbye { reason, .. } => self.on_goodbye(now, link, reason),
            SessionEvent::Ended(end) => {
                let l = &mut self.links[link];
                l.wanted = l.wanted.take().filter(|w| w.session != session);
                if l.meeting.as_ref().is_some_and(|m| m.session == session) {
                    info!(node = %self.settings.name, "connection to {peer} over: {end}");
                    l.end_meeting(now);
                    self.fail_all(link);
                }
            }
            SessionEvent::OfferWanted(_) => {}
        }
    }

    /// A session begins: on a line of its own it is its link's, at a memory node it gets a seat.
    fn on_offer_wanted(
        &mut self,
        now: Time,
        line: usize,
        session: SessionId,
        address: IpAddr,
        peer: Option<Box<Peer>>,
    ) {
        let link = match (self.settings.layout, &peer) {
            (Layout::Memory { .. }, Some(peer)) => match seat_for(&self.links, &peer.identity.node) {
                Some(seat) => {
                    self.links[seat].holder = Some(peer.identity.node.clone());
                    seat
                }
                None => return self.refuse_seat(now, line, session, address),
            },
            _ => line.min(self.links.len() - 1),
        };
        self.links[link].wanted = Some(Wanted { session, address, peer });
        self.retry_offer(now, link);
    }

    fn refuse_seat(&mut self, now: Time, line: usize, session: SessionId, address: IpAddr) {
        let holders: Vec<_> = self.links.iter().filter_map(|l| l.holder.as_deref()).collect();
        let why = format!(
            "all {} seats are taken, by {}; raise seats at the memory node, or stop a gateway",
            self.links.len(),
            holders.join(", ")
        );
        warn!(node = %self.settings.name, "no seat for {address}: {why}");
        self.lines[line].refuse(now, session, Refusal::new(RefuseReason::Busy, why));
    }

    /// Makes the offer that a session waits for, once nothing is left of the last connection.
    pub(super) fn retry_offer(&mut self, now: Time, link: usize) {
        let l = &mut self.links[link];
        if self.draining || l.meeting.is_some() || !l.is_empty() {
            return;
        }
        let Some(wanted) = l.wanted.take() else { return };
        let (session, peer) = (wanted.session, wanted.address);
        let made = self.make_offer(link, &wanted);
        let line = &mut self.lines[self.links[link].line];
        let error = match made {
            Ok((offer, offered)) => match line.offer(now, session, offer) {
                Ok(()) => {
                    let peer_name = wanted.peer.map_or_else(|| "peer".to_owned(), |p| p.identity.node);
                    let meeting = Meeting { session, peer, peer_name, phase: Phase::Offered, offered };
                    self.links[link].meeting = Some(meeting);
                    return;
                }
                Err(error) => format!("the offer breaks a bound: {error}"),
            },
            Err(why) => why,
        };
        warn!(node = %self.settings.name, "no offer to {peer}: {error}");
        line.refuse(now, session, Refusal::new(RefuseReason::Application, error));
        self.fail_all(link);
    }

    pub(super) fn note_armed(&mut self, now: Time, link: usize) {
        let l = &mut self.links[link];
        let all_armed = l.places.iter_mut().filter_map(super::slot::Place::working).all(|w| w.armed);
        if let Some(m) = l.meeting.as_mut().filter(|m| all_armed && m.phase == Phase::Arming) {
            m.phase = Phase::Ready;
            self.lines[l.line].local_ready(now, m.session);
        }
    }

    fn on_established(&mut self, link: usize) {
        if let Some(m) = &mut self.links[link].meeting {
            m.phase = Phase::Established;
            // What has been said so far came by TCP.
            info!(
                node = %self.settings.name,
                "{} at {} has its queue pairs ready, and so has this end: whether RDMA gets through will show",
                m.peer_name, m.peer
            );
        }
        let ready: Vec<_> = self.links[link].working().map(|p| (p.worker, p.path)).collect();
        for (worker, path) in ready {
            self.order(worker, Order::Ready(path));
        }
    }

    /// Refuses the session that is under way.
    pub(super) fn refuse(&mut self, now: Time, link: usize, why: String) {
        warn!(node = %self.settings.name, "{why}");
        if let Some(m) = self.links[link].end_meeting(now) {
            let refusal = Refusal::new(RefuseReason::Application, why);
            self.lines[self.links[link].line].refuse(now, m.session, refusal);
        }
        self.fail_all(link);
    }

    /// The peer will send no more. After the shutdown of a relay its last messages are still on their way; a gateway has
    /// had all its answers, and the requests that a memory node leaves behind fail. After an error nothing is worth
    /// waiting for.
    fn on_goodbye(&mut self, now: Time, link: usize, reason: GoodbyeReason) {
        info!(node = %self.settings.name, "the peer says goodbye: {reason:?}");
        match &mut self.links[link].meeting {
            Some(m) if reason == GoodbyeReason::Shutdown => {
                m.phase = Phase::Leaving(now);
                if self.settings.layout.is_kv() {
                    self.fail_all(link);
                }
            }
            _ => self.rebuild(now, link, GoodbyeReason::QpError),
        }
    }

    /// Answers a goodbye once all queue pairs are closed, or after a bounded wait.
    pub(super) fn finish_leaving(&mut self, now: Time, link: usize) {
        let l = &mut self.links[link];
        let Some(Meeting { phase: Phase::Leaving(since), .. }) = l.meeting else { return };
        if l.is_empty() {
            let totals = l.totals();
            if let Some(m) = l.end_meeting(now) {
                self.lines[l.line].goodbye(now, m.session, GoodbyeReason::Shutdown, totals);
            }
        } else if now.since_ns(since) > CLOSE_NS {
            self.fail_all(link);
        }
    }
}
