//! The end that accepts.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Socket, Type};

use super::super::allow::{AllowList, admit};
use super::super::auth::Auth;
use super::super::message::{GoodbyeReason, Identity, QpTotal};
use super::super::offer::{Offer, OfferError, ServiceId};
use super::super::refuse::{Refusal, RefuseReason};
use super::super::session::{End, Peer, Session, SessionConfig, SessionEvent, Timing};
use super::budget::Budget;
use super::link::{Link, ReadBuffer, read_buffer};
use super::peers::{Generations, PeerKey};
use super::{CmError, Interest, SessionId, fresh_nonce};
use crate::types::Time;

/// Connections taken in one turn.
const ACCEPTS_PER_TURN: usize = 16;
/// Connections that wait in the kernel.
const BACKLOG: i32 = 128;
/// Pause after the system refused us a socket.
const ACCEPT_PAUSE_NS: u64 = 100_000_000;

/// What a listener is told.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// Address and TCP port to listen on; port 0 takes a free one.
    pub bind: SocketAddr,
    /// Name of this node.
    pub node: String,
    /// Random number of this run of the process.
    pub instance: u64,
    /// How peers prove themselves.
    pub auth: Auth,
    /// Who may connect.
    pub allow: AllowList,
    /// What is served here.
    pub services: Vec<ServiceId>,
    /// Deadlines of the sessions.
    pub timing: Timing,
    /// Most sessions that have proven themselves.
    pub max_sessions: usize,
    /// Most connections that have not. One address gets a quarter of them, at least one.
    pub max_half_open: usize,
    /// Connections without success answered and logged in a second; more are closed without a word,
    /// and counted.
    pub refusals_per_s: u32,
    /// Time an existing session gets to show that it lives when its node connects again, in
    /// milliseconds.
    pub probe_ms: u32,
}

impl ListenerConfig {
    /// A config with common limits: 256 sessions, 32 half-open, 10 refusals a second, probes of
    /// 200 ms.
    pub fn new(bind: SocketAddr, node: String, instance: u64, auth: Auth, services: Vec<ServiceId>) -> Self {
        ListenerConfig {
            bind,
            node,
            instance,
            auth,
            allow: AllowList::default(),
            services,
            timing: Timing::default(),
            max_sessions: 256,
            max_half_open: 32,
            refusals_per_s: 10,
            probe_ms: 200,
        }
    }
}

/// Something happened in a session. Sessions that were never let in show up, if at all, with
/// [`SessionEvent::Ended`] alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenerEvent {
    /// Which session.
    pub session: SessionId,
    /// Where its peer connected from.
    pub peer: SocketAddr,
    /// What happened.
    pub event: SessionEvent,
}

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ListenerStats {
    /// Connections taken.
    pub accepted: u64,
    /// Connections told no.
    pub refused: u64,
    /// Connections that came to nothing and were neither answered nor logged, as too many had been in
    /// this second.
    pub dropped_silently: u64,
    /// Times the system refused us a socket or random numbers.
    pub accept_errors: u64,
}

struct Slot {
    link: Link,
    /// Known once the peer has proven itself and was let in.
    key: Option<PeerKey>,
    /// How the session ended, if it did.
    end: Option<End>,
}

/// Listens for peers and holds their sessions.
pub struct Listener {
    config: ListenerConfig,
    socket: TcpListener,
    paused_until: Option<Time>,
    draining: bool,
    next_generation: u64,
    slots: Vec<Slot>,
    /// Sessions that are over and hand over their last words.
    leaving: Vec<Link>,
    generations: Generations,
    refusals: Budget,
    events: VecDeque<ListenerEvent>,
    buffer: ReadBuffer,
    stats: ListenerStats,
}

impl Listener {
    /// Listens.
    pub fn bind(now: Time, config: ListenerConfig) -> Result<Self, CmError> {
        if config.services.is_empty() {
            return Err(CmError::NoService);
        }
        identity(&config, 0).check()?;
        fresh_nonce()?;
        let socket = listen(config.bind).map_err(|source| CmError::Listen { addr: config.bind, source })?;
        Ok(Listener {
            socket,
            paused_until: None,
            draining: false,
            next_generation: now.0.max(1),
            slots: Vec::new(),
            leaving: Vec::new(),
            generations: Generations::default(),
            refusals: Budget::new(now, config.refusals_per_s),
            events: VecDeque::new(),
            buffer: read_buffer(),
            stats: ListenerStats::default(),
            config,
        })
    }

    /// The address listened on, with the port that was taken.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Counters since the start.
    pub fn stats(&self) -> ListenerStats {
        self.stats
    }

    /// Takes connections and bytes, meets deadlines, sends. Then take the events.
    pub fn poll(&mut self, now: Time) {
        self.accept_all(now);
        for slot in &mut self.slots {
            slot.link.receive(now, &mut self.buffer);
        }
        for index in 0..self.slots.len() {
            self.take_events(now, index);
        }
        self.retire(now);
        for link in &mut self.leaving {
            link.receive(now, &mut self.buffer);
            link.flush(now);
        }
        self.leaving.retain(|link| !link.is_closed());
    }

    /// The next event, oldest first.
    pub fn next_event(&mut self) -> Option<ListenerEvent> {
        self.events.pop_front()
    }

    fn accept_all(&mut self, now: Time) {
        if self.paused_until.is_some_and(|until| now < until) {
            return;
        }
        self.paused_until = None;
        for _ in 0..ACCEPTS_PER_TURN {
            match self.socket.accept() {
                Ok((stream, peer)) => self.accept(now, stream, peer),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The peer went away again while it waited.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(_) => return self.pause(now),
            }
        }
    }

    /// Without a pause, a readable listener that cannot be served would make its thread spin.
    fn pause(&mut self, now: Time) {
        self.stats.accept_errors += 1;
        self.paused_until = Some(now.after_ns(ACCEPT_PAUSE_NS));
    }

    fn accept(&mut self, now: Time, stream: TcpStream, peer: SocketAddr) {
        self.stats.accepted += 1;
        let (Ok(()), Ok(nonce)) = (stream.set_nonblocking(true), fresh_nonce()) else {
            self.stats.accept_errors += 1;
            return;
        };
        let generation = self.next_generation;
        self.next_generation += 1;
        let identity = identity(&self.config, generation);
        let (auth, timing) = (self.config.auth.clone(), self.config.timing);
        let config = SessionConfig { identity, nonce, auth, timing };
        let session = match self.room_for(peer.ip()) {
            Ok(()) => Session::server(now, config, self.config.services.clone()),
            Err(refusal) => Session::refusing(now, config, refusal),
        };
        let link = Link::new(SessionId(generation), peer, session, stream);
        self.slots.push(Slot { link, key: None, end: None });
    }

    fn room_for(&self, ip: IpAddr) -> Result<(), Refusal> {
        admit(&self.config.auth, &self.config.allow, ip)?;
        if self.draining {
            return Err(Refusal::new(RefuseReason::Draining, ""));
        }
        let busy = |what: &str, count: usize, limit: usize| {
            if count < limit {
                return Ok(());
            }
            Err(Refusal::new(RefuseReason::Busy, format!("{count} of {limit} {what}")))
        };
        let half_open = || self.slots.iter().filter(|slot| slot.key.is_none());
        let (sessions, limit) = (self.slots.len() - half_open().count(), self.config.max_half_open);
        let of_address = half_open().filter(|slot| slot.link.peer.ip() == ip).count();
        busy("sessions", sessions, self.config.max_sessions)?;
        busy("half-open connections", half_open().count(), limit)?;
        busy("half-open connections of your address", of_address, (limit / 4).max(1))
    }

    fn take_events(&mut self, now: Time, index: usize) {
        while let Some(event) = self.slots[index].link.session.poll_event() {
            match event {
                SessionEvent::OfferWanted(Some(peer)) => self.meet(now, index, peer),
                // Told when the session leaves its slot, if it is to be told at all.
                SessionEvent::Ended(end) => self.slots[index].end = Some(end),
                event => self.tell(index, event),
            }
        }
    }

    fn tell(&mut self, index: usize, event: SessionEvent) {
        let link = &self.slots[index].link;
        self.events.push_back(ListenerEvent { session: link.id, peer: link.peer, event });
    }

    /// A peer has proven itself.
    fn meet(&mut self, now: Time, index: usize, peer: Box<Peer>) {
        let key = PeerKey::of(&peer);
        let verdict = self.check_single(now, &key).and_then(|()| self.generations.admit(&key, &peer));
        match verdict {
            Ok(()) => {
                self.slots[index].key = Some(key);
                self.tell(index, SessionEvent::OfferWanted(Some(peer)));
            }
            Err(refusal) => self.slots[index].link.session.refuse(refusal),
        }
    }

    /// Refuses a second connection, and makes the first one show that it lives: if its peer is gone,
    /// the next attempt finds the way free.
    fn check_single(&mut self, now: Time, key: &PeerKey) -> Result<(), Refusal> {
        let probe_ms = self.config.probe_ms;
        let alive = |slot: &&mut Slot| slot.key.as_ref() == Some(key) && !slot.link.session.is_finished();
        let first = self.slots.iter_mut().find(alive);
        let Some(Slot { link, .. }) = first else { return Ok(()) };
        link.session.probe(now, probe_ms);
        let detail = format!("connected from {} already; asked whether it still lives", link.peer);
        Err(Refusal::new(RefuseReason::AlreadyConnected, detail))
    }

    /// Moves what is over out of the slots, and sends what the others have to say.
    fn retire(&mut self, now: Time) {
        let mut index = 0;
        while index < self.slots.len() {
            if self.slots[index].end.is_some() {
                let slot = self.slots.swap_remove(index);
                self.see_off(now, slot);
            } else {
                self.slots[index].link.flush(now);
                index += 1;
            }
        }
    }

    fn see_off(&mut self, now: Time, slot: Slot) {
        let Slot { mut link, key, end: Some(end) } = slot else { return };
        let refused = matches!(end, End::RefusedPeer(_));
        // A peer that was let in is always told; for the others there is a budget.
        if key.is_none() && !self.refusals.take(now) {
            self.stats.dropped_silently += 1;
            return;
        }
        self.stats.refused += u64::from(refused);
        match end {
            End::Closed => tracing::info!(peer = %link.peer, "{end}"),
            _ => tracing::warn!(peer = %link.peer, "{end}"),
        }
        let (session, peer) = (link.id, link.peer);
        self.events.push_back(ListenerEvent { session, peer, event: SessionEvent::Ended(end) });
        link.flush(now);
        if !link.is_closed() && self.leaving.len() < self.config.max_half_open {
            self.leaving.push(link);
        }
    }

    /// Refuses whoever connects from now on; sessions go on until their goodbye.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Lets the application act on a session that is not over yet.
    fn act<T>(&mut self, now: Time, id: SessionId, act: impl FnOnce(&mut Session) -> T) -> Option<T> {
        let index = self.slots.iter().position(|slot| slot.link.id == id)?;
        let result = act(&mut self.slots[index].link.session);
        self.take_events(now, index);
        self.retire(now);
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

    /// See [`Session::goodbye`].
    pub fn goodbye(&mut self, now: Time, id: SessionId, reason: GoodbyeReason, totals: Vec<QpTotal>) {
        self.act(now, id, |session| session.goodbye(now, reason, totals));
    }

    /// See [`Session::refuse`].
    pub fn refuse(&mut self, now: Time, id: SessionId, refusal: Refusal) {
        self.act(now, id, |session| session.refuse(refusal));
    }

    /// What to wait for.
    pub fn fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        let socket = self.paused_until.is_none().then(|| (self.socket.as_fd(), Interest::READ));
        let links = self.slots.iter().map(|slot| &slot.link).chain(&self.leaving);
        socket.into_iter().chain(links.map(Link::fd)).collect()
    }

    /// When to poll even if nothing is ready.
    pub fn next_timeout(&self) -> Option<Time> {
        let links = self.slots.iter().map(|slot| &slot.link).chain(&self.leaving);
        links.filter_map(Link::next_timeout).chain(self.paused_until).min()
    }
}

fn identity(config: &ListenerConfig, generation: u64) -> Identity {
    Identity { node: config.node.clone(), instance: config.instance, generation }
}

fn listen(addr: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    // After a restart the port is ours at once, whatever old connections linger.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
