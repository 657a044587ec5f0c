//! What an endpoint has to tell its worker beside completions.

use crate::types::{Gid, Qpn};
use crate::wr::{QpId, SrqId, Status};
use std::collections::VecDeque;
use std::net::IpAddr;

/// Events kept until they are taken; more are dropped and counted.
const MAX_EVENTS: usize = 1024;

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
    /// The network told that a flow of this queue pair met congestion.
    Congestion(QpId),
}

/// Events not taken yet.
#[derive(Debug)]
pub(crate) struct Events<B>(VecDeque<Event<B>>);

impl<B> Events<B> {
    pub(crate) fn new() -> Self {
        Events(VecDeque::with_capacity(MAX_EVENTS))
    }

    /// False if there was no room.
    pub(crate) fn push(&mut self, event: Event<B>) -> bool {
        let room = self.0.len() < MAX_EVENTS;
        if room {
            self.0.push_back(event);
        }
        room
    }

    pub(crate) fn pop(&mut self) -> Option<Event<B>> {
        self.0.pop_front()
    }
}
