//! What an endpoint has to tell its worker beside completions.

use crate::types::{Gid, Qpn};
use crate::wr::{QpId, SrqId, Status};
use std::collections::VecDeque;
use std::net::IpAddr;

/// Events kept until they are taken; more are dropped and counted, but for failures, which are told later.
const MAX_EVENTS: usize = 1024;
/// Those of them that peers can cause as often as they like.
const MAX_CAUSED: usize = MAX_EVENTS / 2;

/// Something happened that is not a completion.
#[derive(Debug)]
pub enum Event<B> {
    /// Packets wait for the MAC address of this neighbour; answer with `set_neighbour`.
    NeedsNeighbour(IpAddr),
    /// A datagram for the general services interface (connection management).
    Management {
        /// The sender.
        gid: Gid,
        /// Its queue pair, usually 1.
        qpn: Qpn,
        /// The payload.
        buf: B,
    },
    /// A queue pair went to ERR.
    QpError {
        /// Which.
        qp: QpId,
        /// The first error.
        status: Status,
    },
    /// The first packet of the peer arrived at a queue pair in RTR.
    Established(QpId),
    /// A queue pair in SQD has finished what it had started.
    SendQueueDrained(QpId),
    /// The receives of a shared queue fell below its limit.
    SrqLimit(SrqId),
    /// The network told that a flow of this queue pair met congestion, since the last of these events was taken.
    Congestion(QpId),
}

impl<B> Event<B> {
    /// True for what peers can cause as often as they like.
    fn is_caused(&self) -> bool {
        matches!(self, Event::Management { .. } | Event::Congestion(_))
    }
}

/// Events not taken yet.
#[derive(Debug)]
pub(crate) struct Events<B> {
    waiting: VecDeque<Event<B>>,
    /// Those of them that peers have caused.
    caused: usize,
}

impl<B> Events<B> {
    pub(crate) fn new() -> Self {
        Events { waiting: VecDeque::with_capacity(MAX_EVENTS), caused: 0 }
    }

    /// False if there was no room.
    pub(crate) fn push(&mut self, event: Event<B>) -> bool {
        let caused = event.is_caused();
        let room = self.waiting.len() < MAX_EVENTS && (!caused || self.caused < MAX_CAUSED);
        if room {
            self.caused += usize::from(caused);
            self.waiting.push_back(event);
        }
        room
    }

    pub(crate) fn pop(&mut self) -> Option<Event<B>> {
        let event = self.waiting.pop_front()?;
        self.caused -= usize::from(event.is_caused());
        Some(event)
    }
}
