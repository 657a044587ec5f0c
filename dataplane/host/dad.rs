//! Duplicate address detection: whether another station has one of our IPv6 addresses already.
//!
//! As RFC 4862 asks, each address is probed for once at the start: a solicitation from the unspecified address, then a second
//! in which somebody may object. Meanwhile it is used, as an optimistic address of RFC 4429, so that nothing waits for it:
//! announcements and answers do not override what neighbours remember. Questions do tell our MAC address, which that RFC
//! forbids: Linux answers no others from a neighbour that it does not know.
//!
//! An address that somebody objects to is given up: frames to it are none of ours, and nobody is told that it is here. One
//! worker of a port sends the probes, and objections come in at any queue: workers and control share [`Duplicates`].

use super::Host;
use super::message::Message;
use crate::config::InterfaceAddress;
use rdma_engine::types::Time;
use rdma_engine::wire::Mac;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Time for an objection: RetransTimer of RFC 4861.
pub(super) const PROBE_NS: u64 = 1_000_000_000;
/// Workers of a port start one after the other; what the others have found is looked at so much later.
const SLACK_NS: u64 = 100_000_000;
/// Beside the 48 bits of a MAC address: there is one.
const FOUND: u64 = 1 << 63;

/// Our IPv6 addresses on a port that other stations have as well, for all workers of the port and for control.
#[derive(Clone, Debug)]
pub struct Duplicates(Arc<[(Ipv6Addr, AtomicU64)]>);

/// An address of ours that another station has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Duplicate {
    /// The address.
    pub address: Ipv6Addr,
    /// Where the other one is.
    pub mac: Mac,
    /// True at the worker that found it; the others were told.
    pub first: bool,
}

impl fmt::Display for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Duplicate { address, mac, .. } = self;
        write!(
            f,
            "{address} is not used: the station {mac} has it already; give one of the two another address, or set dad = false if it is no other station"
        )
    }
}

impl Duplicates {
    /// None of these is known to be one.
    pub fn new(addresses: &[InterfaceAddress]) -> Self {
        let v6 = |own: &InterfaceAddress| match own.address {
            IpAddr::V6(ip) => Some((ip, AtomicU64::new(0))),
            IpAddr::V4(_) => None,
        };
        Duplicates(addresses.iter().filter_map(v6).collect())
    }

    /// The station that has `address` as well, if one is known.
    pub fn other(&self, address: IpAddr) -> Option<Mac> {
        let (_, word) = self.0.iter().find(|(own, _)| IpAddr::V6(*own) == address)?;
        let [_, _, mac @ ..] = match word.load(Ordering::Relaxed) {
            0 => return None,
            word => word.to_be_bytes(),
        };
        Some(Mac(mac))
    }

    /// Remembers that `mac` has `address`; true if that is new.
    fn report(&self, address: Ipv6Addr, mac: Mac) -> bool {
        let [a, b, c, d, e, f] = mac.0;
        let word = FOUND | u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        let own = self.0.iter().find(|(own, _)| *own == address);
        own.is_some_and(|(_, cell)| {
            cell.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        })
    }
}

/// How far the detection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Detection {
    /// Nothing was sent yet.
    Due,
    /// Somebody may object until then.
    Open(Time),
    /// Our addresses are ours.
    Over,
}

impl Detection {
    #[inline]
    pub(super) fn next_timer(self) -> Time {
        match self {
            Detection::Due => Time(0),
            Detection::Open(until) => until,
            Detection::Over => Time::NEVER,
        }
    }
}

impl Host {
    /// Begins the detection, or ends it.
    pub(super) fn detect(&mut self, now: Time) {
        match self.detection {
            Detection::Due => {
                self.detection = Detection::Open(now.after_ns(PROBE_NS + SLACK_NS));
                if self.announcements > 0 {
                    (0..self.v6.len()).for_each(|at| self.say(Message::Probe(self.v6[at])));
                }
            }
            Detection::Open(until) if until <= now => {
                self.give_up_what_others_found();
                self.detection = Detection::Over;
            }
            Detection::Open(_) | Detection::Over => {}
        }
    }

    /// True while our addresses may turn out to be somebody else's.
    #[inline]
    pub(super) fn is_optimistic(&self) -> bool {
        self.detection != Detection::Over
    }

    /// An address of ours that has been given up since this was last asked.
    pub fn next_duplicate(&mut self) -> Option<Duplicate> {
        self.given_up.pop()
    }

    fn give_up_what_others_found(&mut self) {
        let Some(duplicates) = self.settings.duplicates.clone() else { return };
        for address in self.v6.clone() {
            if let Some(mac) = duplicates.other(IpAddr::V6(address)) {
                self.give_up(Duplicate { address, mac, first: false });
            }
        }
    }

    /// Another station says that `address` is its own. Once the detection is over, ours is the older right.
    #[cold]
    pub(super) fn object(&mut self, address: Ipv6Addr, mac: Mac) {
        if self.is_optimistic()
            && let Some(duplicates) = &self.settings.duplicates
        {
            let first = duplicates.report(address, mac);
            self.counters.duplicates += u64::from(first);
            self.give_up(Duplicate { address, mac, first });
        }
    }

    fn give_up(&mut self, duplicate: Duplicate) {
        self.v6.retain(|own| *own != duplicate.address);
        self.settings.addresses.retain(|own| own.address != IpAddr::V6(duplicate.address));
        self.waiting.retain(|message| !message.is_for(duplicate.address));
        self.given_up.push(duplicate);
    }
}
