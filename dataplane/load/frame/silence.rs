//! A server that says nothing at all: noticed, told with what to do, and not waited for without end.

use super::FrameClient;
use rdma_engine::buf::Buf;
use rdma_engine::types::Time;
use std::net::IpAddr;

/// How long a client asks a server that has never answered. Nanoseconds.
pub const PATIENCE_NS: u64 = 10_000_000_000;

/// What has never come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Silence {
    /// Nobody says that the address is his.
    #[error(
        "nobody answered ARP or neighbour discovery for {0} on the load's port within {patience_s} s; check that the server runs and has this address, and that both ends are on one link with the same vlan",
        patience_s = PATIENCE_NS / 1_000_000_000
    )]
    NoNeighbour(IpAddr),
    /// The server is there, and does not answer requests.
    #[error(
        "{0} is there, but has answered no request within {patience_s} s; check its UDP port, its allow list and its counts of drops, and that its memory nodes are connected",
        patience_s = PATIENCE_NS / 1_000_000_000
    )]
    NoReply(IpAddr),
}

/// How the client and its server stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hearing {
    /// Not asked yet.
    NotYet,
    /// Asked since then, and never heard.
    Since(Time),
    /// Heard.
    Heard,
    /// Given up.
    Never(Silence),
}

impl<B: Buf> FrameClient<B> {
    /// Gives a server up that has never said anything.
    #[cold]
    pub(super) fn listen(&mut self, now: Time) {
        match self.hearing {
            _ if self.counts.replies > 0 => self.hearing = Hearing::Heard,
            Hearing::NotYet if self.is_open => self.hearing = Hearing::Since(now),
            Hearing::Since(since) if now.since_ns(since) >= PATIENCE_NS => {
                let who = if self.server_mac.is_some() { self.ends.server.ip() } else { self.ends.next_hop };
                let silence =
                    if self.server_mac.is_some() { Silence::NoReply(who) } else { Silence::NoNeighbour(who) };
                self.hearing = Hearing::Never(silence);
                self.stop(now);
            }
            _ => {}
        }
    }

    /// Why it gave up, if it did.
    pub fn silence(&self) -> Option<Silence> {
        match self.hearing {
            Hearing::Never(silence) => Some(silence),
            _ => None,
        }
    }
}
