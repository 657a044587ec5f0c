//! One session as a state machine without socket, clock or thread.
//!
//! | client | | server |
//! |---|---|---|
//! | AwaitChallenge | <- Challenge | AwaitHello |
//! | AwaitOffer: the application makes its queue pairs | | |
//! | AwaitReply | Hello -> | AwaitOffer: the application makes its queue pairs |
//! | AwaitReady | <- HelloReply | AwaitReady |
//! | queue pairs to RTS, receives posted | Ready <-> Ready | queue pairs to RTS, receives posted |
//! | Established | Keepalive, KeepaliveReply | Established |
//! | Draining | Goodbye <-> Goodbye | Draining |
//! | Finished | | Finished |
//!
//! Bytes and the time go in ([`Session::handle_bytes`], [`Session::handle_timeout`],
//! [`Session::handle_disconnect`]); bytes, events and the next deadline come out
//! ([`Session::poll_transmit`], [`Session::poll_event`], [`Session::poll_timeout`]). Every session ends with
//! exactly one [`SessionEvent::Ended`], whatever the peer does; in every state but the application's own
//! there is a deadline. Memory is bounded by one frame received and [`MAX_UNSENT`] bytes to send.

mod client;
mod running;
mod server;

use std::collections::VecDeque;
use std::fmt;

use super::auth::{Auth, Seal, Transcript};
use super::frame::{self, Frame, FrameError, FrameKind, MAX_FRAME, MINOR, Tagger};
use super::message::{GoodbyeReason, Identity, Message, Nonce, QpTotal};
use super::negotiate::Agreed;
use super::offer::{Offer, ServiceId};
use super::refuse::{Refusal, RefuseReason};
use crate::types::Time;
use running::Heartbeat;

/// Most bytes that wait to be sent; a peer that does not read them is lost.
pub const MAX_UNSENT: usize = 4 * MAX_FRAME;

/// Deadlines of the states before and after the working one, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// For each step up to HelloReply, the application's own included.
    pub handshake_ms: u32,
    /// From HelloReply to Ready of both.
    pub ready_ms: u32,
    /// From the first Goodbye to the second.
    pub drain_ms: u32,
}

impl Default for Timing {
    fn default() -> Self {
        Timing { handshake_ms: 3_000, ready_ms: 5_000, drain_ms: 5_000 }
    }
}

/// What both roles need.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Who this end is. The name must have passed [`Identity::check`].
    pub identity: Identity,
    /// Fresh from the operating system's random numbers, never used twice.
    pub nonce: Nonce,
    /// How the ends prove themselves.
    pub auth: Auth,
    /// Deadlines.
    pub timing: Timing,
}

/// The other end, proven where a key is in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Who it is.
    pub identity: Identity,
    /// What it brings.
    pub offer: Offer,
}

/// Everything needed to bring the queue pairs up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agreement {
    /// The other end.
    pub peer: Peer,
    /// The numbers and the pairs of queue pairs.
    pub agreed: Agreed,
    /// Minor version in use.
    pub minor: u8,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionEvent {
    /// Make queue pairs in INIT and call [`Session::offer`]. A server sees what the client offers.
    OfferWanted(Option<Box<Peer>>),
    /// Bring the queue pairs to RTS, post the receives and call [`Session::local_ready`].
    Agreed(Box<Agreement>),
    /// Both ends are ready: send.
    Established,
    /// The peer posts no more. Receive what its totals promise, then call [`Session::goodbye`].
    PeerGoodbye {
        /// Why.
        reason: GoodbyeReason,
        /// What it sent in all.
        totals: Vec<QpTotal>,
    },
    /// The session is over; the last event.
    Ended(End),
}

/// How a session ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// This end refused the other and told it so.
    RefusedPeer(Refusal),
    /// The other end refused.
    RefusedByPeer(Refusal),
    /// The connection broke, or the peer fell silent.
    Lost(LostReason),
    /// Both said goodbye.
    Closed,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::RefusedPeer(refusal) => write!(f, "refused the peer, telling it: {refusal}"),
            End::RefusedByPeer(refusal) => write!(f, "the peer refused, saying: {refusal}"),
            // There was no peer yet that could get lost.
            End::Lost(LostReason::Unreachable(kind)) => write!(f, "did not reach the peer: {kind}"),
            End::Lost(reason) => write!(f, "lost the peer: {reason}"),
            End::Closed => f.write_str("closed by both ends"),
        }
    }
}

/// How a peer was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LostReason {
    /// It closed the TCP connection without a goodbye.
    Closed,
    /// The TCP connection broke.
    Reset(std::io::ErrorKind),
    /// No TCP connection came about.
    Unreachable(std::io::ErrorKind),
    /// Nothing came for this many milliseconds.
    Silent(u64),
    /// It does not read what we send.
    Stalled,
    /// It did not answer the goodbye within this many milliseconds.
    NoGoodbye(u64),
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LostReason::Closed => f.write_str("it closed the connection without a goodbye"),
            LostReason::Reset(kind) => write!(f, "the TCP connection broke ({kind})"),
            LostReason::Unreachable(kind) => write!(f, "no TCP connection ({kind})"),
            LostReason::Silent(ms) => write!(f, "nothing came for {ms} ms"),
            LostReason::Stalled => f.write_str("it does not read what we send"),
            LostReason::NoGoodbye(ms) => write!(f, "no goodbye within {ms} ms"),
        }
    }
}

enum State {
    /// Client: connected.
    AwaitChallenge,
    /// Server: challenge sent.
    AwaitHello,
    /// The application makes its queue pairs; a server knows the peer.
    AwaitOffer(Option<Box<Peer>>),
    /// Client: hello sent, with this offer.
    AwaitReply(Box<Offer>),
    /// Terms are agreed.
    AwaitReady { local: bool, remote: bool },
    /// Both are ready.
    Established,
    /// One has said goodbye.
    Draining { said: bool, heard: bool },
    /// Over.
    Finished,
}

enum Role {
    /// Expects this node, if any.
    Client(Option<String>),
    /// Runs these services.
    Server(Vec<ServiceId>),
}

/// One end of one TCP connection.
pub struct Session {
    role: Role,
    config: SessionConfig,
    state: State,
    /// End of the current state, where it has one.
    deadline: Option<Time>,
    /// Beginning of the current state, for the words of a timeout.
    since: Time,
    received: Vec<u8>,
    unsent: Vec<u8>,
    sent: usize,
    events: VecDeque<SessionEvent>,
    transcript: Transcript,
    /// Tags what we send, once the key is proven.
    sealing: Option<Seal>,
    /// Checks what we receive, once the key is proven.
    opening: Option<Seal>,
    peer_generation: u64,
    minor: u8,
    heartbeat: Heartbeat,
}

impl Session {
    /// The end that connected. `expect_node` refuses a server of another name.
    pub fn client(now: Time, config: SessionConfig, expect_node: Option<String>) -> Self {
        let mut session = Self::new(now, config, Role::Client(expect_node), State::AwaitChallenge);
        session.expire_after(now, session.config.timing.handshake_ms);
        session
    }

    /// The end that accepted; it runs `services` and refuses clients of others.
    pub fn server(now: Time, config: SessionConfig, services: Vec<ServiceId>) -> Self {
        let mut session = Self::new(now, config, Role::Server(services), State::AwaitHello);
        session.expire_after(now, session.config.timing.handshake_ms);
        session.send_challenge();
        session
    }

    /// A server that only says no: the peer's address is not allowed, or there is no room.
    pub fn refusing(now: Time, config: SessionConfig, refusal: Refusal) -> Self {
        let mut session = Self::new(now, config, Role::Server(Vec::new()), State::AwaitHello);
        session.refuse(refusal);
        session
    }

    fn new(now: Time, config: SessionConfig, role: Role, state: State) -> Self {
        Session {
            role,
            config,
            state,
            deadline: None,
            since: now,
            received: Vec::new(),
            unsent: Vec::new(),
            sent: 0,
            events: VecDeque::new(),
            transcript: Transcript::default(),
            sealing: None,
            opening: None,
            peer_generation: 0,
            minor: MINOR,
            heartbeat: Heartbeat::default(),
        }
    }

    /// Who this end is.
    pub fn identity(&self) -> &Identity {
        &self.config.identity
    }

    /// True once [`SessionEvent::Ended`] was queued. Bytes may still wait to be sent.
    pub fn is_finished(&self) -> bool {
        matches!(self.state, State::Finished)
    }

    /// True from Established until the first goodbye.
    pub fn is_established(&self) -> bool {
        matches!(self.state, State::Established)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    /// Bytes to send now; report with [`Session::transmitted`] how many were taken.
    pub fn poll_transmit(&self) -> &[u8] {
        &self.unsent[self.sent..]
    }

    /// `count` bytes of [`Session::poll_transmit`] are on their way.
    pub fn transmitted(&mut self, count: usize) {
        self.sent = self.unsent.len().min(self.sent + count);
        if self.sent == self.unsent.len() {
            self.unsent.clear();
            self.sent = 0;
        }
    }

    /// Bytes came from the peer, cut anywhere.
    pub fn handle_bytes(&mut self, now: Time, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.is_finished() {
            let room = MAX_FRAME - self.received.len();
            let (now_bytes, later) = bytes.split_at(bytes.len().min(room));
            self.received.extend_from_slice(now_bytes);
            bytes = later;
            self.handle_frames(now);
        }
    }

    fn handle_frames(&mut self, now: Time) {
        let mut received = std::mem::take(&mut self.received);
        let mut used = 0;
        while !self.is_finished() && used < received.len() {
            match frame::split(&received[used..]) {
                Ok(Some(frame)) => {
                    self.handle_frame(now, &frame);
                    used += frame.len;
                }
                Ok(None) => break,
                Err(error) => self.refuse(refusal_of(error)),
            }
        }
        // What is left is less than one frame, since `split` bounds its length.
        if !self.is_finished() {
            received.drain(..used);
            self.received = received;
        }
    }

    fn handle_frame(&mut self, now: Time, frame: &Frame<'_>) {
        if frame.kind == FrameKind::Refuse {
            return self.handle_refusal(frame);
        }
        let result = match self.state {
            State::AwaitChallenge => self.handle_challenge(now, frame),
            State::AwaitHello => self.handle_hello(now, frame),
            State::AwaitReply(_) => self.handle_hello_reply(now, frame),
            State::AwaitReady { .. } | State::Established | State::Draining { .. } => {
                self.handle_running(now, frame)
            }
            State::AwaitOffer(_) | State::Finished => Err(self.unexpected(frame.kind)),
        };
        if let Err(refusal) = result {
            self.refuse(refusal);
        }
    }

    /// Any state takes a refusal, sealed or not: cutting the TCP connection would do as much.
    fn handle_refusal(&mut self, frame: &Frame<'_>) {
        if let Ok(Message::Refuse(refusal)) = Message::decode_body(FrameKind::Refuse, frame.body) {
            self.end(End::RefusedByPeer(refusal));
        } else {
            self.end(End::RefusedByPeer(Refusal::new(RefuseReason::Unknown(0), "")));
        }
    }

    fn unexpected(&self, kind: FrameKind) -> Refusal {
        Refusal::new(RefuseReason::Unexpected, format!("a {kind:?} while we wait for {}", self.awaited()))
    }

    /// What the current state waits for, in words.
    fn awaited(&self) -> &'static str {
        match self.state {
            State::AwaitChallenge => "your Challenge",
            State::AwaitHello => "your Hello",
            State::AwaitOffer(_) => "the queue pairs of our own service",
            State::AwaitReply(_) => "your HelloReply",
            State::AwaitReady { local: false, .. } => "our own queue pairs to be ready",
            State::AwaitReady { .. } => "your Ready",
            State::Established => "Keepalive or Goodbye",
            State::Draining { heard: false, .. } => "your Goodbye",
            State::Draining { .. } => "our own Goodbye",
            State::Finished => "nothing",
        }
    }

    /// The TCP connection is gone: closed by the peer (`None`) or broken.
    pub fn handle_disconnect(&mut self, error: Option<std::io::ErrorKind>) {
        self.end(End::Lost(error.map_or(LostReason::Closed, LostReason::Reset)));
    }

    /// No TCP connection came about.
    pub fn handle_unreachable(&mut self, error: std::io::ErrorKind) {
        self.end(End::Lost(LostReason::Unreachable(error)));
    }

    /// When to call [`Session::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        let beat = match self.state {
            State::Established | State::Draining { .. } => Some(self.heartbeat.next()),
            _ => None,
        };
        self.deadline.into_iter().chain(beat).min()
    }

    /// The time is `now`; harmless when nothing is due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            return self.handle_deadline(now);
        }
        if matches!(self.state, State::Established | State::Draining { .. }) {
            self.beat(now);
        }
    }

    fn handle_deadline(&mut self, now: Time) {
        let waited_ms = now.since_ns(self.since) / 1_000_000;
        if matches!(self.state, State::Draining { .. }) {
            return self.end(End::Lost(LostReason::NoGoodbye(waited_ms)));
        }
        let detail = format!("waited {waited_ms} ms for {}", self.awaited());
        self.refuse(Refusal::new(RefuseReason::Silence, detail));
    }

    /// Says no, with the reason, and ends the session.
    pub fn refuse(&mut self, refusal: Refusal) {
        if self.is_finished() {
            return;
        }
        self.send(&Message::Refuse(refusal.clone()));
        self.end(End::RefusedPeer(refusal));
    }

    fn end(&mut self, end: End) {
        if self.is_finished() {
            return;
        }
        self.state = State::Finished;
        self.deadline = None;
        self.received = Vec::new();
        self.events.push_back(SessionEvent::Ended(end));
    }

    fn enter(&mut self, now: Time, state: State, deadline_ms: Option<u32>) {
        self.state = state;
        self.since = now;
        self.deadline = None;
        if let Some(ms) = deadline_ms {
            self.expire_after(now, ms);
        }
    }

    fn expire_after(&mut self, now: Time, ms: u32) {
        self.deadline = Some(now.after_ns(u64::from(ms) * 1_000_000));
    }

    /// Queues a message, sealed once the key is proven.
    fn send(&mut self, message: &Message) {
        self.compact();
        let Session { unsent, sealing, .. } = self;
        let mut seal = sealing.as_mut().map(|seal| move |signed: &[u8]| seal.tag(signed));
        let tag = seal.as_mut().map(|tag| tag as Tagger<'_>);
        frame::append(unsent, message.kind(), |out| message.encode_body(out), tag);
        if self.unsent.len() > MAX_UNSENT {
            self.end(End::Lost(LostReason::Stalled));
        }
    }

    /// Drops what was sent, so that the buffer holds only what waits.
    fn compact(&mut self) {
        self.unsent.drain(..self.sent);
        self.sent = 0;
    }
}

fn refusal_of(error: FrameError) -> Refusal {
    let reason = match error {
        FrameError::Magic(_) => RefuseReason::Protocol,
        FrameError::Major(_) => RefuseReason::Version,
        FrameError::TooLong(_) => RefuseReason::TooLong,
        FrameError::Kind(_) => RefuseReason::Unexpected,
        FrameError::Flags { .. } => RefuseReason::Malformed,
    };
    Refusal::new(reason, error.to_string())
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:?}, waits for {})", self.config.identity, self.awaited())
    }
}

#[cfg(test)]
mod tests;
