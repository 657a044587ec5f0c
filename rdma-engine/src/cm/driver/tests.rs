//! Over real TCP on loopback. No test depends on how long something takes; each fails after a
//! minute without the event it waits for.

mod hostile;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use super::super::message::{GoodbyeReason, QpTotal};
use super::super::pair::{key, service};
use super::super::refuse::RefuseReason;
use super::super::session::{End, LostReason, SessionEvent};
use super::super::{Auth, Refusal};
use super::*;

const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

struct Server {
    listener: Listener,
    log: Vec<ListenerEvent>,
}

struct Client {
    connector: Connector,
    log: Vec<ConnectorEvent>,
    /// A client that is not polled is a process that hangs.
    hangs: bool,
}

impl Client {
    fn new(connector: Connector) -> Self {
        Client { connector, log: Vec::new(), hangs: false }
    }

    fn count(&self, wanted: impl Fn(&SessionEvent) -> bool) -> usize {
        self.log.iter().filter(|event| wanted(&event.event)).count()
    }

    fn established(&self) -> usize {
        self.count(|event| *event == SessionEvent::Established)
    }

    fn refusals(&self) -> Vec<&Refusal> {
        let refusals = self.log.iter().map(|event| match &event.event {
            SessionEvent::Ended(End::RefusedByPeer(refusal)) => Some(refusal),
            _ => None,
        });
        refusals.flatten().collect()
    }
}

/// One thread plays all parts, and the machine may be busy: nobody is lost for being slow.
fn offer(host: u8, qps: u32) -> super::super::Offer {
    let mut offer = super::super::pair::offer(host, qps);
    offer.dead_after_ms = PATIENCE_MS;
    offer
}

const PATIENCE_MS: u32 = 600_000;

/// All servers and clients of a test, played by one thread.
struct World {
    start: Instant,
    servers: Vec<Server>,
    clients: Vec<Client>,
}

impl World {
    fn new() -> Self {
        World { start: Instant::now(), servers: Vec::new(), clients: Vec::new() }
    }

    fn now(&self) -> Time {
        Time(self.start.elapsed().as_nanos() as u64 + 1_000_000_000)
    }

    fn server(&mut self, config: ListenerConfig) -> SocketAddr {
        let listener = Listener::bind(self.now(), config).unwrap();
        let addr = listener.local_addr().unwrap();
        self.servers.push(Server { listener, log: Vec::new() });
        addr
    }

    fn client(&mut self, config: ConnectorConfig) -> usize {
        self.clients.push(Client::new(Connector::new(self.now(), config).unwrap()));
        self.clients.len() - 1
    }

    fn poll(&mut self) {
        let now = self.now();
        for server in &mut self.servers {
            server.listener.poll(now);
            while let Some(event) = server.listener.next_event() {
                let id = event.session;
                match &event.event {
                    SessionEvent::OfferWanted(_) => server.listener.offer(now, id, offer(2, 2)).unwrap(),
                    SessionEvent::Agreed(_) => server.listener.local_ready(now, id),
                    SessionEvent::PeerGoodbye { .. } => {
                        server.listener.goodbye(now, id, GoodbyeReason::Shutdown, Vec::new());
                    }
                    _ => {}
                }
                server.log.push(event);
            }
        }
        for client in self.clients.iter_mut().filter(|client| !client.hangs) {
            client.connector.poll(now);
            while let Some(event) = client.connector.next_event() {
                let id = event.session;
                match &event.event {
                    SessionEvent::OfferWanted(_) => client.connector.offer(now, id, offer(1, 2)).unwrap(),
                    SessionEvent::Agreed(_) => client.connector.local_ready(now, id),
                    _ => {}
                }
                client.log.push(event);
            }
        }
    }

    fn sleep(&self) {
        let clients = || self.clients.iter().filter(|client| !client.hangs).map(|client| &client.connector);
        let mut fds: Vec<_> = self.servers.iter().flat_map(|server| server.listener.fds()).collect();
        fds.extend(clients().flat_map(Connector::fds));
        let listeners = self.servers.iter().filter_map(|server| server.listener.next_timeout());
        let next = listeners.chain(clients().filter_map(Connector::next_timeout)).min();
        // A bound, so that a condition outside (or a fault) does not sleep for ever.
        let bound = self.now().after_ns(100_000_000);
        wait(&fds, self.now(), Some(next.unwrap_or(bound).min(bound))).unwrap();
    }

    fn run_until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        while !done(self) {
            if self.start.elapsed().as_secs() > 60 {
                let logs: Vec<_> = self.clients.iter().map(|client| &client.log).collect();
                panic!("no {what} within a minute: {logs:?}");
            }
            self.poll();
            self.sleep();
        }
    }
}

fn listen_at(bind: SocketAddr, auth: Auth) -> ListenerConfig {
    let mut config = ListenerConfig::new(bind, "east".into(), 2, auth, vec![service()]);
    config.timing.handshake_ms = PATIENCE_MS;
    config.timing.ready_ms = PATIENCE_MS;
    config.probe_ms = PATIENCE_MS;
    config
}

fn connect_to(peer: SocketAddr, auth: Auth) -> ConnectorConfig {
    let mut config = ConnectorConfig::new(peer, "west".into(), 1, auth);
    config.timing.handshake_ms = PATIENCE_MS;
    config.timing.ready_ms = PATIENCE_MS;
    config
}

#[test]
fn a_client_connects_and_connects_again_after_the_server_died() {
    for auth in [Auth::None, key(1)] {
        let mut world = World::new();
        let addr = world.server(listen_at(LOCALHOST, auth.clone()));
        world.client(connect_to(addr, auth.clone()));
        world.run_until("session", |world| world.clients[0].established() == 1);
        // Killed: its sockets close, and nobody listens for a while.
        world.servers.clear();
        world.run_until("refused attempt", |world| {
            let refused = End::Lost(LostReason::Unreachable(std::io::ErrorKind::ConnectionRefused));
            world.clients[0].count(|event| *event == SessionEvent::Ended(refused.clone())) >= 2
        });
        let closed = world.clients[0].count(|event| {
            matches!(event, SessionEvent::Ended(End::Lost(LostReason::Closed | LostReason::Reset(_))))
        });
        assert_eq!(closed, 1);
        world.server(listen_at(addr, auth.clone()));
        world.run_until("second session", |world| world.clients[0].established() == 2);
    }
}

#[test]
fn a_server_notices_a_dead_client_and_takes_it_again() {
    let mut world = World::new();
    let addr = world.server(listen_at(LOCALHOST, key(1)));
    world.client(connect_to(addr, key(1)));
    world.run_until("session", |world| world.clients[0].established() == 1);
    world.clients.clear();
    world.client(connect_to(addr, key(1)));
    world.run_until("second session", |world| world.clients[0].established() == 1);
    let lost = |event: &ListenerEvent| matches!(event.event, SessionEvent::Ended(End::Lost(_)));
    assert_eq!(world.servers[0].log.iter().filter(|event| lost(event)).count(), 1);
}

#[test]
fn ipv6_and_dual_stack_work() {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    let mut world = World::new();
    let addr = match Listener::bind(Time(1), listen_at(any, key(1))) {
        Ok(_) => world.server(listen_at(any, key(1))),
        Err(error) => return eprintln!("SKIPPED: no IPv6 here: {error}"),
    };
    world.client(connect_to((Ipv6Addr::LOCALHOST, addr.port()).into(), key(1)));
    let mut other = connect_to((Ipv4Addr::LOCALHOST, addr.port()).into(), key(1));
    other.node = "north".into();
    world.client(other);
    world.run_until("both sessions", |world| world.clients.iter().all(|client| client.established() == 1));
}

#[test]
fn goodbye_carries_totals_over_tcp_and_stop_is_final() {
    let mut world = World::new();
    let addr = world.server(listen_at(LOCALHOST, key(1)));
    world.client(connect_to(addr, key(1)));
    let totals = vec![QpTotal { qpn: crate::types::Qpn::new(0x102), messages: 3, frames: 9 }];
    for round in 1..=2 {
        world.run_until("session", |world| world.clients[0].established() == round);
        let now = world.now();
        let client = &mut world.clients[0];
        let id = client.log.last().unwrap().session;
        if round == 2 {
            client.connector.stop();
        }
        client.connector.goodbye(now, id, GoodbyeReason::QpError, totals.clone());
        world.run_until("close", |world| {
            world.clients[0].count(|event| *event == SessionEvent::Ended(End::Closed)) == round
        });
    }
    world.run_until("stop", |world| world.clients[0].connector.is_stopped());
    let heard = SessionEvent::PeerGoodbye { reason: GoodbyeReason::QpError, totals };
    assert_eq!(world.servers[0].log.iter().filter(|event| event.event == heard).count(), 2);
    assert!(world.clients[0].connector.fds().is_empty());
    assert_eq!(world.clients[0].connector.next_timeout(), None);
}

#[test]
fn calls_for_an_earlier_session_reach_nobody() {
    let mut world = World::new();
    let addr = world.server(listen_at(LOCALHOST, key(1)));
    world.client(connect_to(addr, key(1)));
    world.run_until("session", |world| world.clients[0].established() == 1);
    let now = world.now();
    let stale = SessionId(1);
    let refusal = Refusal::new(RefuseReason::Application, "late");
    let connector = &mut world.clients[0].connector;
    connector.offer(now, stale, offer(1, 2)).unwrap();
    connector.local_ready(now, stale);
    connector.goodbye(now, stale, GoodbyeReason::Shutdown, Vec::new());
    connector.refuse(now, stale, refusal.clone());
    assert!(connector.next_event().is_none());
    let listener = &mut world.servers[0].listener;
    listener.offer(now, stale, offer(2, 2)).unwrap();
    listener.local_ready(now, stale);
    listener.goodbye(now, stale, GoodbyeReason::Shutdown, Vec::new());
    listener.refuse(now, stale, refusal);
    assert!(listener.next_event().is_none());
    assert_eq!(listener.offer(now, stale, offer(2, 600)).unwrap_err().field, "number of queue pairs");
}

#[test]
fn what_cannot_start_says_why() {
    let first = Listener::bind(Time(1), listen_at(LOCALHOST, key(1))).unwrap();
    let taken = first.local_addr().unwrap();
    let error = |config| Listener::bind(Time(1), config).err().unwrap().to_string();
    let text = error(listen_at(taken, key(1)));
    assert!(text.contains(&taken.to_string()) && text.contains("ss -ltn"), "{text}");
    let mut nameless = listen_at(LOCALHOST, key(1));
    nameless.node.clear();
    assert!(error(nameless).contains("node name"));
    let mut idle = listen_at(LOCALHOST, key(1));
    idle.services.clear();
    assert!(error(idle).contains("no service"));
    let far = "192.0.2.1:7".parse().unwrap();
    let text = Connector::new(Time(1), connect_to(far, Auth::None)).err().unwrap().to_string();
    assert!(text.contains("192.0.2.1") && text.contains("set a key"), "{text}");
}
