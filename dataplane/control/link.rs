//! One peer of a node: its session and the queue pairs to it.

use super::layout::Layout;
use super::slot::{Place, Slot};
use rdma_engine::cm::{Offer, Peer, QpTotal, SessionId};
use rdma_engine::types::Time;
use std::net::IpAddr;

/// A session as it stands.
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

/// The session that the queue pairs belong to.
#[derive(Debug)]
pub(super) struct Meeting {
    pub(super) session: SessionId,
    pub(super) peer: IpAddr,
    pub(super) peer_name: String,
    pub(super) phase: Phase,
    /// Places in use, in the order of the offer.
    pub(super) offered: Vec<usize>,
}

/// A session that waits for an offer until the last one's queue pairs are gone.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) session: SessionId,
    pub(super) address: IpAddr,
    /// The other end, where it speaks first.
    pub(super) peer: Option<Box<Peer>>,
}

impl Wanted {
    pub(super) fn offer(&self) -> Option<&Offer> {
        self.peer.as_ref().map(|peer| &peer.offer)
    }
}

/// One peer: the only one of a relay, a memory node of a gateway, a seat of a memory node.
#[derive(Debug)]
pub struct Link<Q> {
    /// Number of its line.
    pub(super) line: usize,
    pub(super) places: Vec<Place<Q>>,
    pub(super) meeting: Option<Meeting>,
    pub(super) wanted: Option<Wanted>,
    /// What was last said about the choice of the local address.
    pub(super) last_address: String,
    /// Workers of the peer when it was met last; forgotten when an offer comes to nothing.
    pub(super) met_workers: Option<usize>,
    /// The node that has or had this seat.
    pub(super) holder: Option<String>,
    /// When its last session was over.
    pub(super) left_at: Time,
    /// The memory node that a gateway goes to by this link, as its file names it.
    pub(super) listed: Option<String>,
    /// It is not in the list any more, and let go as soon as nothing needs it.
    pub(super) leaves: bool,
    /// Numbers of the gateway's list and of others that the memory node was found to serve, as they were told.
    pub(super) list_conflicts: Vec<(u64, u64)>,
}

impl<Q> Link<Q> {
    pub(super) fn new(layout: Layout, at: usize, line: usize, workers: usize) -> Self {
        Link {
            line,
            places: layout.places(at, workers),
            meeting: None,
            wanted: None,
            last_address: String::new(),
            met_workers: None,
            holder: None,
            left_at: Time(0),
            listed: None,
            list_conflicts: Vec::new(),
            leaves: false,
        }
    }

    /// The queue pairs' places.
    pub fn places(&self) -> &[Place<Q>] {
        &self.places
    }

    /// The peer's name and address while there is one.
    pub fn peer(&self) -> Option<String> {
        self.meeting.as_ref().map(|m| format!("{} at {}", m.peer_name, m.peer))
    }

    /// The peer that it is for, whether it is there or not: a memory node as the gateway's file names it, or the gateway that has
    /// or had this seat.
    pub fn name(&self) -> Option<&str> {
        self.listed.as_deref().or(self.holder.as_deref())
    }

    /// True for the first place of a memory node that is in the gateway's list and has never been there.
    pub(super) fn misses(&self, place: &Place<Q>) -> bool {
        let is_wanted = self.listed.is_some() && !self.leaves;
        let is_first = self.places.first().is_some_and(|first| std::ptr::eq(first, place));
        is_wanted && is_first && self.is_empty() && self.places.iter().all(|p| p.connections == 0)
    }

    /// True while both ends can send.
    pub fn is_established(&self) -> bool {
        self.meeting.as_ref().is_some_and(|m| m.phase == Phase::Established)
    }

    /// True without queue pairs.
    pub(super) fn is_empty(&self) -> bool {
        self.places.iter().all(Place::is_free)
    }

    /// True if a peer can have it that did not have it before.
    pub(super) fn is_vacant(&self) -> bool {
        self.meeting.is_none() && self.wanted.is_none() && self.is_empty()
    }

    /// True if this session is the link's.
    pub(super) fn has(&self, session: SessionId) -> bool {
        self.meeting.as_ref().is_some_and(|m| m.session == session)
            || self.wanted.as_ref().is_some_and(|w| w.session == session)
    }

    pub(super) fn end_meeting(&mut self, now: Time) -> Option<Meeting> {
        let meeting = self.meeting.take()?;
        self.left_at = now;
        if matches!(meeting.phase, Phase::Offered) {
            self.met_workers = None;
        }
        Some(meeting)
    }

    /// What the last queue pairs carried.
    pub(super) fn totals(&self) -> Vec<QpTotal> {
        let total = |p: &Place<Q>| {
            let (qpn, t) = p.last?;
            Some(QpTotal { qpn, messages: 0, frames: t.frames_sent })
        };
        self.places.iter().filter_map(total).collect()
    }

    /// Places with a queue pair that the workers have.
    pub(super) fn working(&self) -> impl Iterator<Item = &Place<Q>> {
        self.places.iter().filter(|p| matches!(p.slot, Slot::Working(_)))
    }
}

/// The seat for a peer of this name: the one it had, or one that nobody ever had, or the one left longest ago.
pub(super) fn seat_for<Q>(links: &[Link<Q>], name: &str) -> Option<usize> {
    let had = links.iter().position(|l| l.holder.as_deref() == Some(name) && l.meeting.is_none());
    had.or_else(|| {
        let vacant = links.iter().enumerate().filter(|(_, l)| l.is_vacant());
        vacant.min_by_key(|(_, l)| (l.holder.is_some(), l.left_at)).map(|(at, _)| at)
    })
}
