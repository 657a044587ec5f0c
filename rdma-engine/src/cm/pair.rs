//! Both ends of an exchange on a wire in memory and virtual time, for tests and fuzzing.

use std::net::Ipv4Addr;

use super::auth::{Auth, PresharedKey};
use super::message::{GoodbyeReason, Identity, Nonce};
use super::offer::{Offer, QpOffer, ServiceId, ServiceKind, TransportKind};
use super::session::{End, Session, SessionConfig, SessionEvent, Timing};
use crate::types::{Psn, Qpn, Time};

/// Index of the client in the arrays of a [`Pair`].
pub const CLIENT: usize = 0;
/// Index of the server in the arrays of a [`Pair`].
pub const SERVER: usize = 1;

/// One session with the application's part played for it.
pub struct Player {
    /// The session.
    pub session: Session,
    /// What it offers when asked.
    pub offer: Offer,
    /// All events so far.
    pub events: Vec<SessionEvent>,
    /// Calls `local_ready` once the terms are agreed.
    pub gets_ready: bool,
    /// Answers a goodbye.
    pub says_goodbye: bool,
}

impl Player {
    /// Plays the application of `session`.
    pub fn new(session: Session, offer: Offer) -> Self {
        Player { session, offer, events: Vec::new(), gets_ready: true, says_goodbye: true }
    }

    /// Answers every event that waits.
    pub fn react(&mut self, now: Time) {
        while let Some(event) = self.session.poll_event() {
            match &event {
                SessionEvent::OfferWanted(_) => {
                    self.session.offer(now, self.offer.clone()).expect("the offer is within its bounds");
                }
                SessionEvent::Agreed(_) if self.gets_ready => self.session.local_ready(now),
                SessionEvent::PeerGoodbye { .. } if self.says_goodbye => {
                    self.session.goodbye(now, GoodbyeReason::Shutdown, Vec::new());
                }
                _ => {}
            }
            self.events.push(event);
        }
    }

    /// Bytes from the peer.
    pub fn hear(&mut self, now: Time, bytes: &[u8]) {
        self.session.handle_bytes(now, bytes);
        self.react(now);
    }

    /// All that it has to send.
    pub fn speak(&mut self) -> Vec<u8> {
        let bytes = self.session.poll_transmit().to_vec();
        self.session.transmitted(bytes.len());
        bytes
    }

    /// How it ended, if it did.
    pub fn end(&self) -> Option<&End> {
        self.events.iter().find_map(|event| match event {
            SessionEvent::Ended(end) => Some(end),
            _ => None,
        })
    }

    /// True if it was ever established.
    pub fn was_established(&self) -> bool {
        self.events.contains(&SessionEvent::Established)
    }
}

/// A config for the node `node`.
pub fn config(node: &str, nonce: Nonce, auth: Auth) -> SessionConfig {
    let instance = node.bytes().fold(7, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let identity = Identity { node: node.to_owned(), instance, generation: u64::from(nonce[0]) + 1 };
    SessionConfig { identity, nonce, auth, timing: Timing::default() }
}

/// The key the tests use.
pub fn key(byte: u8) -> Auth {
    Auth::PresharedKey(PresharedKey::new(&[byte; 32]).expect("32 bytes are a key"))
}

/// The service the tests use.
pub fn service() -> ServiceId {
    ServiceId { kind: ServiceKind::Relay, name: "east-west".into() }
}

/// An offer with `qps` queue pairs.
pub fn offer(host: u8, qps: u32) -> Offer {
    let mut offer = Offer::new(service(), TransportKind::Soft, Ipv4Addr::new(10, 0, 0, host).into());
    let qp = |n| QpOffer {
        qpn: Qpn::new(u32::from(host) * 0x100 + n),
        psn: Psn::new(n),
        worker: 0,
        udp_source_port: 0xC000,
        receive_credits: 64,
        lane: 0,
    };
    offer.qps = (2..2 + qps).map(qp).collect();
    (offer.keepalive_ms, offer.dead_after_ms) = (100, 500);
    offer
}

/// A client and a server with a wire between them.
pub struct Pair {
    /// The time.
    pub now: Time,
    /// Client and server.
    pub ends: [Player; 2],
    /// Bytes on their way from each end.
    pub wires: [Vec<u8>; 2],
    /// Bytes that each end ever sent.
    pub said: [Vec<u8>; 2],
}

impl Pair {
    /// Two ends with these settings; the server's challenge is on the wire.
    pub fn new(client: SessionConfig, server: SessionConfig) -> Self {
        let now = Time(1_000_000_000);
        let client = Session::client(now, client, None);
        let server = Session::server(now, server, vec![service()]);
        let ends = [Player::new(client, offer(1, 2)), Player::new(server, offer(2, 2))];
        let mut pair = Pair { now, ends, wires: Default::default(), said: Default::default() };
        pair.collect();
        pair
    }

    /// Two ends that agree with and without a key.
    pub fn usual(auth: &Auth) -> Self {
        Pair::new(config("west", [1; 32], auth.clone()), config("east", [2; 32], auth.clone()))
    }

    /// Lets both ends react and put their bytes on the wire.
    pub fn collect(&mut self) {
        for (end, player) in self.ends.iter_mut().enumerate() {
            player.react(self.now);
            let bytes = player.speak();
            self.said[end].extend_from_slice(&bytes);
            self.wires[end].extend_from_slice(&bytes);
        }
    }

    /// Up to `count` bytes from `from` reach the other end.
    pub fn deliver(&mut self, from: usize, count: usize) {
        let count = count.min(self.wires[from].len());
        let bytes: Vec<u8> = self.wires[from].drain(..count).collect();
        self.ends[1 - from].hear(self.now, &bytes);
        self.collect();
    }

    /// Delivers all there is until nobody says anything.
    pub fn settle(&mut self) {
        while self.wires.iter().any(|wire| !wire.is_empty()) {
            self.deliver(CLIENT, usize::MAX);
            self.deliver(SERVER, usize::MAX);
        }
    }

    /// The next deadline of either end.
    pub fn next_timeout(&self) -> Option<Time> {
        self.ends.iter().filter_map(|end| end.session.poll_timeout()).min()
    }

    /// Time passes; both ends look at the clock.
    pub fn advance(&mut self, ns: u64) {
        self.now = self.now.after_ns(ns);
        for end in &mut self.ends {
            end.session.handle_timeout(self.now);
        }
        self.collect();
    }

    /// `ms` milliseconds pass; every deadline is met and every byte delivered.
    pub fn run_ms(&mut self, ms: u64) {
        let until = self.now.after_ns(ms * 1_000_000);
        self.settle();
        while let Some(next) = self.next_timeout().filter(|next| *next <= until) {
            self.advance(next.since_ns(self.now));
            self.settle();
        }
        self.now = until;
    }

    /// The TCP connection breaks for both.
    pub fn cut(&mut self) {
        self.wires = Default::default();
        for end in &mut self.ends {
            end.session.handle_disconnect(None);
        }
        self.collect();
    }
}
