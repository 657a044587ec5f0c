//! Next hops and their MAC addresses.
//!
//! A *destination* is an address somebody of ours sends to; its *next hop* is the destination itself or the gateway.
//! Both tables are small and bounded; they are looked through from front to back, as nothing here is done per packet.

use rdma_engine::types::Time;
use rdma_engine::wire::Mac;
use std::net::IpAddr;

/// Entries of each table.
pub(super) const MAX_ENTRIES: usize = 256;
/// Questions before a neighbour counts as not there.
pub(super) const MAX_QUESTIONS: u8 = 5;
/// Time between the first two questions; doubled after each.
pub(super) const ASK_NS: u64 = 100_000_000;

/// What is due for a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Question {
    /// Ask for it.
    Ask(IpAddr),
    /// It has not answered; it is asked for again when somebody wants it again.
    GiveUp,
}

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    ip: IpAddr,
    mac: Option<Mac>,
    /// Questions asked since it was last heard of; `None` if none is open.
    asked: Option<u8>,
    ask_at: Time,
    used: Time,
}

#[derive(Clone, Copy, Debug)]
struct Destination {
    ip: IpAddr,
    hop: IpAddr,
    /// Its next hop's address has to be told.
    untold: bool,
    used: Time,
}

/// The tables.
#[derive(Debug)]
pub(super) struct Neighbours {
    hops: Vec<Neighbour>,
    destinations: Vec<Destination>,
    untold: usize,
    learned: Option<(IpAddr, Mac)>,
    /// The earliest `ask_at`.
    next: Time,
}

impl Default for Neighbours {
    fn default() -> Self {
        Neighbours {
            hops: Vec::with_capacity(MAX_ENTRIES),
            destinations: Vec::with_capacity(MAX_ENTRIES),
            untold: 0,
            learned: None,
            next: Time::NEVER,
        }
    }
}

impl Neighbours {
    /// Somebody waits for `destination`. False if there is no room to remember it.
    pub(super) fn want(&mut self, now: Time, destination: IpAddr, hop: IpAddr) -> bool {
        let Some(at) = self.enter(now, destination, hop) else { return false };
        if self.hops[at].mac.is_some() {
            self.tell(hop);
        } else if self.hops[at].asked.is_none() {
            self.open(at, now);
        }
        true
    }

    /// As [`want`](Self::want), and asks also if the address is known.
    pub(super) fn confirm(&mut self, now: Time, destination: IpAddr, hop: IpAddr) -> bool {
        let Some(at) = self.enter(now, destination, hop) else { return false };
        if self.hops[at].asked.is_none() {
            self.open(at, now);
        }
        true
    }

    fn open(&mut self, at: usize, now: Time) {
        self.hops[at].asked = Some(0);
        self.hops[at].ask_at = now;
        self.next = self.next.min(now);
    }

    /// Places for both; the neighbour's index.
    fn enter(&mut self, now: Time, destination: IpAddr, hop: IpAddr) -> Option<usize> {
        let at = self.enter_hop(now, hop)?;
        match self.destinations.iter_mut().find(|d| d.ip == destination) {
            Some(known) => {
                known.used = now;
                if known.hop != hop {
                    known.hop = hop;
                }
            }
            None => {
                if self.destinations.len() == MAX_ENTRIES {
                    self.forget_destination();
                }
                self.destinations.push(Destination { ip: destination, hop, untold: false, used: now });
            }
        }
        Some(at)
    }

    fn enter_hop(&mut self, now: Time, hop: IpAddr) -> Option<usize> {
        if let Some(at) = self.hops.iter().position(|n| n.ip == hop) {
            self.hops[at].used = now;
            return Some(at);
        }
        if self.hops.len() == MAX_ENTRIES {
            // One that is being asked for is wanted; the one unused for longest is not.
            let idle = self.hops.iter().enumerate().filter(|(_, n)| n.asked.is_none());
            let (at, _) = idle.min_by_key(|(_, n)| n.used)?;
            self.hops.swap_remove(at);
        }
        self.hops.push(Neighbour { ip: hop, mac: None, asked: None, ask_at: Time::NEVER, used: now });
        Some(self.hops.len() - 1)
    }

    fn forget_destination(&mut self) {
        let oldest = self.destinations.iter().enumerate().min_by_key(|(_, d)| d.used);
        if let Some((at, _)) = oldest {
            self.untold -= usize::from(self.destinations.swap_remove(at).untold);
        }
    }

    /// A neighbour was heard of on the wire: remembered if anybody wants it. Other workers are told of it also if it is nothing new
    /// here, or of no use: one of them may have asked, and the answer have come to this one.
    pub(super) fn hear(&mut self, ip: IpAddr, mac: Mac) {
        self.learn(ip, mac);
        self.learned = Some((ip, mac));
    }

    /// Takes a neighbour's address if anybody wants it.
    pub(super) fn learn(&mut self, ip: IpAddr, mac: Mac) {
        let Some(known) = self.hops.iter_mut().find(|n| n.ip == ip) else { return };
        let new = known.mac != Some(mac);
        known.mac = Some(mac);
        known.asked = None;
        known.ask_at = Time::NEVER;
        if new {
            self.tell(ip);
        }
        self.settle_timer();
    }

    /// True if `ip` is known to be somewhere else than at `mac`.
    pub(super) fn knows_other(&self, ip: IpAddr, mac: Mac) -> bool {
        self.hops.iter().any(|n| n.ip == ip && n.mac.is_some_and(|known| known != mac))
    }

    /// True if a neighbour has this address.
    pub(super) fn has(&self, mac: Mac) -> bool {
        self.hops.iter().any(|n| n.mac == Some(mac))
    }

    fn tell(&mut self, hop: IpAddr) {
        for destination in self.destinations.iter_mut().filter(|d| d.hop == hop && !d.untold) {
            destination.untold = true;
            self.untold += 1;
        }
    }

    #[inline]
    pub(super) fn next_resolved(&mut self) -> Option<(IpAddr, Mac)> {
        if self.untold == 0 {
            return None;
        }
        let destination = self.destinations.iter_mut().find(|d| d.untold)?;
        destination.untold = false;
        self.untold -= 1;
        let (ip, hop) = (destination.ip, destination.hop);
        let mac = self.hops.iter().find(|n| n.ip == hop)?.mac?;
        Some((ip, mac))
    }

    #[inline]
    pub(super) fn take_learned(&mut self) -> Option<(IpAddr, Mac)> {
        self.learned.take()
    }

    #[inline]
    pub(super) fn next_timer(&self) -> Time {
        self.next
    }

    /// The next thing due by `now`.
    pub(super) fn next_question(&mut self, now: Time) -> Option<Question> {
        if now < self.next {
            return None;
        }
        let due = self.hops.iter_mut().find(|n| n.ask_at <= now);
        let question = due.map(|n| match n.asked {
            Some(asked) if asked < MAX_QUESTIONS => {
                n.asked = Some(asked + 1);
                n.ask_at = now.after_ns(ASK_NS << asked);
                Question::Ask(n.ip)
            }
            _ => {
                n.asked = None;
                n.ask_at = Time::NEVER;
                Question::GiveUp
            }
        });
        if question.is_none() {
            self.settle_timer();
        }
        question
    }

    fn settle_timer(&mut self) {
        self.next = self.hops.iter().map(|n| n.ask_at).min().unwrap_or(Time::NEVER);
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.hops.len(), self.destinations.len())
    }
}
