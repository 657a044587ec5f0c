//! The host side of a port with addresses of our own: what a kernel would do for it.
//!
//! | file | what it does |
//! |---|---|
//! | `sort` | whose a frame is |
//! | `arp`, `nd` | answers for our addresses, learns those of neighbours |
//! | `dad` | whether another station has one of our IPv6 addresses already |
//! | `echo` | answers a ping in the frame it came in |
//! | `neighbours` | next hops and their MAC addresses, asked for with retries, in bounded tables |
//! | `message` | frames of our own |
//!
//! Sans-IO: frames and times go in, frames come out by [`Host::next_frame`], addresses by [`Host::next_resolved`].
//! Only neighbours that somebody of ours has asked for are remembered, so strangers cannot fill a table.

mod arp;
mod dad;
mod echo;
mod message;
mod nd;
mod neighbours;
mod sort;

pub use dad::{Duplicate, Duplicates};
pub use message::MAX_FRAME;
pub(crate) use sort::header;
pub use sort::{OtherVlan, Sort};

use crate::config::InterfaceAddress;
use arrayvec::ArrayVec;
use dad::Detection;
use message::{Message, Writer};
use neighbours::Neighbours;
use rdma_engine::types::Time;
use rdma_engine::wire::Mac;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Messages of our own that wait to be sent; what comes when it is full is left out, and asked for again.
const MAX_WAITING: usize = 64;
/// How often we say that we are here after a start.
const ANNOUNCEMENTS: u8 = 3;
/// Time between two of these.
const ANNOUNCE_NS: u64 = 1_000_000_000;

/// Who we are on a port.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// The port's MAC address.
    pub mac: Mac,
    /// Our addresses.
    pub addresses: Vec<InterfaceAddress>,
    /// Next hop for destinations outside our subnets.
    pub gateway: Option<IpAddr>,
    /// VLAN id of all frames; `None` for untagged ones.
    pub vlan: Option<u16>,
    /// What is found by detection of duplicate IPv6 addresses; `None` for no detection.
    pub duplicates: Option<Duplicates>,
    /// Where frames are noted that are ours but for their VLAN.
    pub other_vlan: OtherVlan,
}

impl HostSettings {
    /// The neighbour that frames to `destination` go to; `None` if there is no way.
    pub fn next_hop(&self, destination: IpAddr) -> Option<IpAddr> {
        next_hop(&self.addresses, self.gateway, destination)
    }

    /// Our address to ask `neighbour` with.
    fn source_for(&self, neighbour: IpAddr) -> Option<IpAddr> {
        let family = |own: &&InterfaceAddress| own.address.is_ipv4() == neighbour.is_ipv4();
        let mut ours = self.addresses.iter().filter(family);
        ours.clone().find(|own| own.reaches(neighbour)).or_else(|| ours.next()).map(|own| own.address)
    }

    fn is_ours(&self, ip: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address == ip)
    }
}

/// The neighbour that frames to `destination` go to from a host with these addresses and this gateway; `None` if there is no way.
pub fn next_hop(
    addresses: &[InterfaceAddress],
    gateway: Option<IpAddr>,
    destination: IpAddr,
) -> Option<IpAddr> {
    let link_local = matches!(destination, IpAddr::V6(ip) if ip.is_unicast_link_local());
    if link_local || addresses.iter().any(|own| own.reaches(destination)) {
        return Some(destination);
    }
    gateway.filter(|gateway| gateway.is_ipv4() == destination.is_ipv4())
}

/// What the host side counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HostCounters {
    /// Frames for the host side.
    pub received: u64,
    /// Frames of its own and answers.
    pub sent: u64,
    /// Frames that hold no message that makes sense.
    pub malformed: u64,
    /// Messages in which another one claims an address of ours.
    pub conflicts: u64,
    /// IPv6 addresses of ours that are not used because another one has them.
    pub duplicates: u64,
    /// Neighbours that did not answer.
    pub unanswered: u64,
    /// Messages for which there was no room.
    pub left_out: u64,
}

/// What happens to a frame that was given to the host side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It has been read and can be dropped.
    Read,
    /// It has been turned into an answer of the same length or shorter: send its first bytes.
    Answer(usize),
}

/// The host side of one port, as one worker runs it.
#[derive(Debug)]
pub struct Host {
    settings: HostSettings,
    v4: Vec<Ipv4Addr>,
    v6: Vec<Ipv6Addr>,
    neighbours: Neighbours,
    waiting: ArrayVec<Message, MAX_WAITING>,
    announcements: u8,
    announce_at: Time,
    detection: Detection,
    given_up: Vec<Duplicate>,
    counters: HostCounters,
}

impl Host {
    /// A host side that announces its addresses from `now` on if `announces`: one worker of a port does.
    pub fn new(settings: HostSettings, announces: bool, now: Time) -> Self {
        let v4 = |own: &InterfaceAddress| match own.address {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        };
        let v6 = |own: &InterfaceAddress| match own.address {
            IpAddr::V6(ip) => Some(ip),
            IpAddr::V4(_) => None,
        };
        let own_v6: Vec<_> = settings.addresses.iter().filter_map(v6).collect();
        let detects = settings.duplicates.is_some() && !own_v6.is_empty();
        Host {
            v4: settings.addresses.iter().filter_map(v4).collect(),
            detection: if detects { Detection::Due } else { Detection::Over },
            given_up: Vec::with_capacity(own_v6.len()),
            v6: own_v6,
            settings,
            neighbours: Neighbours::default(),
            waiting: ArrayVec::new(),
            announcements: if announces { ANNOUNCEMENTS } else { 0 },
            announce_at: now,
            counters: HostCounters::default(),
        }
    }

    /// Who we are.
    pub fn settings(&self) -> &HostSettings {
        &self.settings
    }

    /// What was counted.
    pub fn counters(&self) -> HostCounters {
        self.counters
    }

    /// Reads a frame that [`sort`](Self::sort) gave to the host side.
    pub fn receive(&mut self, now: Time, frame: &mut [u8]) -> Fate {
        self.counters.received += 1;
        match self.read(now, frame) {
            Some(fate) => {
                self.counters.sent += u64::from(matches!(fate, Fate::Answer(_)));
                fate
            }
            None => {
                self.counters.malformed += 1;
                Fate::Read
            }
        }
    }

    /// Somebody waits for the MAC address of the next hop to `destination`: it comes by
    /// [`next_resolved`](Self::next_resolved).
    pub fn resolve(&mut self, now: Time, destination: IpAddr) {
        if let Some(hop) = self.settings.next_hop(destination) {
            self.counters.left_out += u64::from(!self.neighbours.want(now, destination, hop));
        }
    }

    /// Asks for the next hop to `destination` also if it is known: it may have changed, and the question tells the
    /// neighbour where we are.
    pub fn confirm(&mut self, now: Time, destination: IpAddr) {
        if let Some(hop) = self.settings.next_hop(destination) {
            self.counters.left_out += u64::from(!self.neighbours.confirm(now, destination, hop));
        }
    }

    /// A neighbour's address, as another worker of this port learned it.
    pub fn learn(&mut self, ip: IpAddr, mac: Mac) {
        if !mac.is_multicast() && mac != Mac::default() && !self.settings.is_ours(ip) {
            self.neighbours.learn(ip, mac);
        }
    }

    /// A destination whose next hop has an address now, or another one than before.
    #[inline]
    pub fn next_resolved(&mut self) -> Option<(IpAddr, Mac)> {
        self.neighbours.next_resolved()
    }

    /// The neighbour that was heard of last, for the other workers of the port; once.
    #[inline]
    pub fn take_learned(&mut self) -> Option<(IpAddr, Mac)> {
        self.neighbours.take_learned()
    }

    /// When [`poll`](Self::poll) is due.
    #[inline]
    pub fn next_timer(&self) -> Time {
        let announce = if self.announcements > 0 { self.announce_at } else { Time::NEVER };
        announce.min(self.neighbours.next_timer()).min(self.detection.next_timer())
    }

    /// Announcements and questions that are due.
    pub fn poll(&mut self, now: Time) {
        self.detect(now);
        if self.announcements > 0 && now >= self.announce_at {
            self.announcements -= 1;
            self.announce_at = now.after_ns(ANNOUNCE_NS);
            for at in 0..self.settings.addresses.len() {
                self.say(Message::Announce(self.settings.addresses[at].address));
            }
        }
        while let Some(question) = self.neighbours.next_question(now) {
            match question {
                neighbours::Question::Ask(hop) => {
                    if let Some(from) = self.settings.source_for(hop) {
                        self.say(Message::Ask { from, hop });
                    }
                }
                neighbours::Question::GiveUp => self.counters.unanswered += 1,
            }
        }
    }

    /// True if a frame waits to be sent.
    #[inline]
    pub fn has_frame(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Writes the oldest frame that waits; its length.
    pub fn next_frame(&mut self, out: &mut [u8; MAX_FRAME]) -> Option<usize> {
        let message = self.waiting.pop_at(0)?;
        self.counters.sent += 1;
        Some(message.write(&mut Writer::new(out), &self.settings, self.is_optimistic()))
    }

    fn say(&mut self, message: Message) {
        self.counters.left_out += u64::from(self.waiting.try_push(message).is_err());
    }

    /// A message in which `ip` says that it is at `mac`.
    fn hear(&mut self, ip: IpAddr, mac: Mac) {
        if self.settings.is_ours(ip) {
            self.counters.conflicts += u64::from(mac != self.settings.mac);
            if let IpAddr::V6(ip) = ip
                && mac != self.settings.mac
            {
                self.object(ip, mac);
            }
        } else if !mac.is_multicast() && mac != Mac::default() {
            self.neighbours.hear(ip, mac);
        }
    }
}

#[cfg(test)]
mod tests;
