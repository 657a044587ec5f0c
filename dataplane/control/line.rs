//! The TCP side of a node: it listens or it connects.

use rdma_engine::cm::{
    Connector, GoodbyeReason, Interest, Listener, Offer, OfferError, QpTotal, Refusal, SessionEvent,
    SessionId,
};
use rdma_engine::types::Time;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

/// A listener for one peer, or a connector to it.
pub enum Line {
    /// The peer comes to us.
    Listen(Box<Listener>),
    /// We go to the peer.
    Connect(Box<Connector>, SocketAddr),
    /// There is no peer.
    Nobody,
}

/// Something happened on the line.
#[derive(Debug)]
pub struct LineEvent {
    /// In which session.
    pub session: SessionId,
    /// The other end's TCP address.
    pub peer: IpAddr,
    /// What.
    pub event: SessionEvent,
}

impl Line {
    /// Takes bytes and connections, meets deadlines, sends.
    pub fn poll(&mut self, now: Time) {
        match self {
            Line::Listen(l) => l.poll(now),
            Line::Connect(c, _) => c.poll(now),
            Line::Nobody => {}
        }
    }

    /// The next event, oldest first.
    pub fn next_event(&mut self) -> Option<LineEvent> {
        match self {
            Line::Listen(l) => {
                let e = l.next_event()?;
                Some(LineEvent { session: e.session, peer: e.peer.ip(), event: e.event })
            }
            Line::Connect(c, peer) => {
                let e = c.next_event()?;
                Some(LineEvent { session: e.session, peer: peer.ip(), event: e.event })
            }
            Line::Nobody => None,
        }
    }

    /// Answers a wanted offer.
    pub fn offer(&mut self, now: Time, session: SessionId, offer: Offer) -> Result<(), OfferError> {
        match self {
            Line::Listen(l) => l.offer(now, session, offer),
            Line::Connect(c, _) => c.offer(now, session, offer),
            Line::Nobody => Ok(()),
        }
    }

    /// Says that the queue pairs are up and their receives posted.
    pub fn local_ready(&mut self, now: Time, session: SessionId) {
        match self {
            Line::Listen(l) => l.local_ready(now, session),
            Line::Connect(c, _) => c.local_ready(now, session),
            Line::Nobody => {}
        }
    }

    /// Ends a session that worked.
    pub fn goodbye(&mut self, now: Time, session: SessionId, reason: GoodbyeReason, totals: Vec<QpTotal>) {
        match self {
            Line::Listen(l) => l.goodbye(now, session, reason, totals),
            Line::Connect(c, _) => c.goodbye(now, session, reason, totals),
            Line::Nobody => {}
        }
    }

    /// Ends a session that does not work out.
    pub fn refuse(&mut self, now: Time, session: SessionId, refusal: Refusal) {
        match self {
            Line::Listen(l) => l.refuse(now, session, refusal),
            Line::Connect(c, _) => c.refuse(now, session, refusal),
            Line::Nobody => {}
        }
    }

    /// No further session after the present one.
    pub fn stop(&mut self) {
        match self {
            Line::Listen(l) => l.drain(),
            Line::Connect(c, _) => c.stop(),
            Line::Nobody => {}
        }
    }

    /// What to wait for.
    pub fn fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        match self {
            Line::Listen(l) => l.fds(),
            Line::Connect(c, _) => c.fds(),
            Line::Nobody => vec![],
        }
    }

    /// When to poll though nothing is ready.
    pub fn next_timeout(&self) -> Option<Time> {
        match self {
            Line::Listen(l) => l.next_timeout(),
            Line::Connect(c, _) => c.next_timeout(),
            Line::Nobody => None,
        }
    }
}
