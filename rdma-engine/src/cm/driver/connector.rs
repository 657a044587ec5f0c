//! The end that connects, and connects again.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Socket, Type};

use super::super::allow::{AllowList, admit};
use super::super::auth::Auth;
use super::super::message::{GoodbyeReason, Identity, QpTotal};
use super::super::offer::{Offer, OfferError};
use super::super::refuse::Refusal;
use super::super::session::{End, LostReason, Session, SessionConfig, SessionEvent, Timing};
use super::backoff::{Backoff, Delays};
use super::link::{Link, ReadBuffer, read_buffer};
use super::{CmError, Interest, SessionId, fresh_nonce};
use crate::types::Time;

/// What a connector is told.
#[derive(Clone, Debug)]
pub struct ConnectorConfig {
    /// Address and TCP port of the peer's listener.
    pub peer: SocketAddr,
    /// Local address to connect from, if it matters.
    pub bind: Option<IpAddr>,
    /// Name of this node.
    pub node: String,
    /// Random number of this run of the process.
    pub instance: u64,
    /// Name the peer must have, if it matters.
    pub expect_node: Option<String>,
    /// How the peer proves itself.
    pub auth: Auth,
    /// Peers that may be connected to without a key (besides loopback).
    pub allow: AllowList,
    /// Deadlines of the session.
    pub timing: Timing,
    /// Longest time for TCP to connect, in milliseconds. TCP itself would ask again only after a second,
    /// too late for a peer that has just come back.
    pub connect_ms: u32,
    /// When to try again.
    pub backoff: Backoff,
}

impl ConnectorConfig {
    /// A config with common limits: 300 ms to connect, delays of 50 to 500 ms.
    pub fn new(peer: SocketAddr, node: String, instance: u64, auth: Auth) -> Self {
        ConnectorConfig {
            peer,
            bind: None,
            node,
            instance,
            expect_node: None,
            auth,
            allow: AllowList::default(),
            timing: Timing::default(),
            connect_ms: 300,
            backoff: Backoff::default(),
        }
    }
}

/// Something happened in an attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectorEvent {
    /// Which attempt; each has its own.
    pub session: SessionId,
    /// What happened. After [`SessionEvent::Ended`] the next attempt follows by itself.
    pub event: SessionEvent,
}

enum State {
    /// Until the next attempt.
    Waiting(Time),
    /// TCP connects; until the deadline.
    Connecting(SessionId, TcpStream, Time),
    /// A session.
    Running(Box<Link>),
    /// No more attempts.
    Stopped,
}

/// Stays connected with one peer.
pub struct Connector {
    config: ConnectorConfig,
    state: State,
    /// The last session, handing over its last words.
    leaving: Option<Box<Link>>,
    stops: bool,
    next_generation: u64,
    delays: Delays,
    established_at: Option<Time>,
    last_logged: Option<End>,
    events: VecDeque<ConnectorEvent>,
    buffer: ReadBuffer,
}

impl Connector {
    /// A connector whose first attempt starts with the first [`Connector::poll`].
    pub fn new(now: Time, config: ConnectorConfig) -> Result<Self, CmError> {
        admit(&config.auth, &config.allow, config.peer.ip())
            .map_err(|refusal| CmError::NotAllowed { addr: config.peer, refusal })?;
        let nonce = fresh_nonce()?;
        let seed = u64::from_ne_bytes(std::array::from_fn(|n| nonce[n]));
        let connector = Connector {
            state: State::Waiting(now),
            leaving: None,
            stops: false,
            // Time goes on, so a later connector of this process has later generations.
            next_generation: now.0.max(1),
            delays: Delays::new(config.backoff, seed),
            established_at: None,
            last_logged: None,
            events: VecDeque::new(),
            buffer: read_buffer(),
            config,
        };
        connector.identity(0).check()?;
        Ok(connector)
    }

    fn identity(&self, generation: u64) -> Identity {
        Identity { node: self.config.node.clone(), instance: self.config.instance, generation }
    }

    /// True if no session runs and no attempt will follow.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, State::Stopped) && self.leaving.is_none()
    }

    /// Connects, takes bytes, meets deadlines, sends. Then take the events.
    pub fn poll(&mut self, now: Time) {
        if let Some(link) = &mut self.leaving {
            link.receive(now, &mut self.buffer);
            link.flush(now);
            if link.is_closed() {
                self.leaving = None;
            }
        }
        match std::mem::replace(&mut self.state, State::Stopped) {
            State::Waiting(until) if until <= now => self.connect(now),
            State::Connecting(id, stream, deadline) => self.check_connected(now, id, stream, deadline),
            other => self.state = other,
        }
        if let State::Running(link) = &mut self.state {
            link.receive(now, &mut self.buffer);
            link.flush(now);
            self.take_events(now);
        }
    }

    /// The next event, oldest first.
    pub fn next_event(&mut self) -> Option<ConnectorEvent> {
        self.events.pop_front()
    }

    fn connect(&mut self, now: Time) {
        let id = SessionId(self.next_generation);
        self.next_generation += 1;
        match start_connecting(self.config.peer, self.config.bind) {
            Ok(stream) => {
                let deadline = now.after_ns(u64::from(self.config.connect_ms) * 1_000_000);
                self.state = State::Connecting(id, stream, deadline);
            }
            Err(error) => self.unreachable(now, id, error.kind()),
        }
    }

    fn check_connected(&mut self, now: Time, id: SessionId, stream: TcpStream, deadline: Time) {
        let failed = match (stream.take_error(), stream.peer_addr()) {
            (Ok(None), Ok(_)) => return self.open(now, id, stream),
            (Ok(None), Err(error)) if error.kind() == ErrorKind::NotConnected => {
                if now < deadline {
                    self.state = State::Connecting(id, stream, deadline);
                    return;
                }
                ErrorKind::TimedOut
            }
            (Ok(Some(error)) | Err(error), _) | (_, Err(error)) => error.kind(),
        };
        self.unreachable(now, id, failed);
    }

    fn open(&mut self, now: Time, id: SessionId, stream: TcpStream) {
        let Ok(nonce) = fresh_nonce() else { return self.unreachable(now, id, ErrorKind::Other) };
        let (auth, timing) = (self.config.auth.clone(), self.config.timing);
        let config = SessionConfig { identity: self.identity(id.0), nonce, auth, timing };
        let session = Session::client(now, config, self.config.expect_node.clone());
        self.state = State::Running(Box::new(Link::new(id, self.config.peer, session, stream)));
    }

    fn unreachable(&mut self, now: Time, id: SessionId, error: ErrorKind) {
        let end = End::Lost(LostReason::Unreachable(error));
        self.events.push_back(ConnectorEvent { session: id, event: SessionEvent::Ended(end.clone()) });
        self.ended(now, &end);
    }

    fn take_events(&mut self, now: Time) {
        let State::Running(link) = &mut self.state else { return };
        let mut ended = None;
        while let Some(event) = link.session.poll_event() {
            match &event {
                SessionEvent::Established => {
                    self.established_at = Some(now);
                    self.last_logged = None;
                }
                SessionEvent::Ended(end) => ended = Some(end.clone()),
                _ => {}
            }
            self.events.push_back(ConnectorEvent { session: link.id, event });
        }
        if let Some(end) = ended {
            self.ended(now, &end);
        }
    }

    fn ended(&mut self, now: Time, end: &End) {
        self.log(end);
        // A session that worked for a while starts the delays anew; one that fails at once does not.
        let steady_ns = 2 * u64::from(self.config.backoff.cap_ms) * 1_000_000;
        if self.established_at.take().is_some_and(|at| now.since_ns(at) >= steady_ns) {
            self.delays.succeeded();
        }
        let next = now.after_ns(self.delays.after(end));
        let next = if self.stops { State::Stopped } else { State::Waiting(next) };
        if let State::Running(mut link) = std::mem::replace(&mut self.state, next) {
            link.flush(now);
            self.leaving = Some(link).filter(|link| !link.is_closed());
        }
    }

    /// The same end again and again is one line.
    fn log(&mut self, end: &End) {
        let peer = self.config.peer;
        if self.last_logged.as_ref() == Some(end) {
            return tracing::debug!(%peer, "{end}");
        }
        match end {
            End::Closed => tracing::info!(%peer, "{end}"),
            end => tracing::warn!(%peer, "{end}"),
        }
        self.last_logged = Some(end.clone());
    }

    /// Lets the application act on the session of attempt `id`, if it still runs.
    fn act<T>(&mut self, now: Time, id: SessionId, act: impl FnOnce(&mut Session) -> T) -> Option<T> {
        let State::Running(link) = &mut self.state else { return None };
        if link.id != id {
            return None;
        }
        let result = act(&mut link.session);
        link.flush(now);
        self.take_events(now);
        Some(result)
    }

    /// Answers [`SessionEvent::OfferWanted`]; see [`Session::offer`]. Without effect if the session
    /// is over.
    pub fn offer(&mut self, now: Time, id: SessionId, offer: Offer) -> Result<(), OfferError> {
        offer.check()?;
        self.act(now, id, |session| session.offer(now, offer)).unwrap_or(Ok(()))
    }

    /// Answers [`SessionEvent::Agreed`]; see [`Session::local_ready`].
    pub fn local_ready(&mut self, now: Time, id: SessionId) {
        self.act(now, id, |session| session.local_ready(now));
    }

    /// Ends the session; the next attempt follows. See [`Session::goodbye`].
    pub fn goodbye(&mut self, now: Time, id: SessionId, reason: GoodbyeReason, totals: Vec<QpTotal>) {
        self.act(now, id, |session| session.goodbye(now, reason, totals));
    }

    /// Refuses the peer; the next attempt follows. See [`Session::refuse`].
    pub fn refuse(&mut self, now: Time, id: SessionId, refusal: Refusal) {
        self.act(now, id, |session| session.refuse(refusal));
    }

    /// No attempt follows the present one. A session that runs goes on until its goodbye.
    pub fn stop(&mut self) {
        self.stops = true;
        if !matches!(self.state, State::Running(_)) {
            self.state = State::Stopped;
        }
    }

    /// What to wait for.
    pub fn fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        let current = match &self.state {
            State::Connecting(_, stream, _) => Some((stream.as_fd(), Interest::WRITE)),
            State::Running(link) => Some(link.fd()),
            State::Waiting(_) | State::Stopped => None,
        };
        current.into_iter().chain(self.leaving.as_ref().map(|link| link.fd())).collect()
    }

    /// When to poll even if nothing is ready.
    pub fn next_timeout(&self) -> Option<Time> {
        let current = match &self.state {
            State::Waiting(until) | State::Connecting(_, _, until) => Some(*until),
            State::Running(link) => link.next_timeout(),
            State::Stopped => None,
        };
        current.into_iter().chain(self.leaving.as_ref().and_then(|link| link.next_timeout())).min()
    }
}

fn start_connecting(peer: SocketAddr, bind: Option<IpAddr>) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(peer), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    if let Some(ip) = bind {
        socket.bind(&SocketAddr::new(ip, 0).into())?;
    }
    match socket.connect(&peer.into()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}
