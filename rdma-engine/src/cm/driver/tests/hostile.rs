//! Second connections, strangers and connections that come to nothing.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::super::super::allow::AllowList;
use super::*;

fn west(addr: SocketAddr, instance: u64) -> ConnectorConfig {
    let mut config = connect_to(addr, key(1));
    config.instance = instance;
    config
}

#[test]
fn a_second_connection_is_refused_while_the_first_lives() {
    let mut world = World::new();
    let addr = world.server(listen_at(LOCALHOST, key(1)));
    world.client(west(addr, 1));
    world.run_until("session", |world| world.clients[0].established() == 1);
    world.client(west(addr, 9));
    world.run_until("two refusals", |world| world.clients[1].refusals().len() >= 2);
    for refusal in world.clients[1].refusals() {
        assert_eq!(refusal.reason, RefuseReason::AlreadyConnected);
        assert!(refusal.to_string().contains("connected from 127.0.0.1"), "{refusal}");
    }
    assert_eq!(world.clients[0].log.len(), 3, "the first session was left alone");
    assert!(world.servers[0].listener.stats().refused >= 2);
}

#[test]
fn a_second_connection_frees_the_way_from_a_first_that_hangs() {
    let mut world = World::new();
    let mut config = listen_at(LOCALHOST, key(1));
    config.probe_ms = 50;
    let addr = world.server(config);
    world.client(west(addr, 1));
    world.run_until("session", |world| world.clients[0].established() == 1);
    world.clients[0].hangs = true;
    world.client(west(addr, 9));
    world.run_until("second session", |world| world.clients[1].established() == 1);
}

#[test]
fn a_generation_of_the_past_is_refused() {
    let mut world = World::new();
    let addr = world.server(listen_at(LOCALHOST, key(1)));
    world.client(west(addr, 1));
    world.run_until("session", |world| world.clients[0].established() == 1);
    world.clients.clear();
    // The same run of the process, but counting from 1.
    world.clients.push(Client::new(Connector::new(Time(0), west(addr, 1)).unwrap()));
    world.run_until("refusal", |world| {
        world.clients[0].refusals().iter().any(|refusal| refusal.reason == RefuseReason::StaleGeneration)
    });
    assert_eq!(world.clients[0].established(), 0);
}

#[test]
fn an_address_off_the_list_is_refused() {
    let mut world = World::new();
    let mut config = listen_at(LOCALHOST, key(1));
    config.allow = AllowList::parse(&["192.0.2.0/24"]).unwrap();
    let addr = world.server(config);
    world.client(connect_to(addr, key(1)));
    world.run_until("refusal", |world| !world.clients[0].refusals().is_empty());
    let refusal = world.clients[0].refusals()[0];
    assert_eq!(refusal.reason, RefuseReason::NotAllowed);
    assert!(refusal.to_string().contains("127.0.0.1"), "{refusal}");
}

#[test]
fn a_draining_listener_keeps_its_sessions_and_takes_no_more() {
    let mut world = World::new();
    let addr = world.server(listen_at(LOCALHOST, key(1)));
    world.client(west(addr, 1));
    world.run_until("session", |world| world.clients[0].established() == 1);
    world.servers[0].listener.drain();
    let mut late = west(addr, 9);
    late.node = "north".into();
    world.client(late);
    world.run_until("refusal", |world| !world.clients[1].refusals().is_empty());
    assert_eq!(world.clients[1].refusals()[0].reason, RefuseReason::Draining);
    assert_eq!(world.clients[0].log.len(), 3);
}

#[test]
fn sessions_are_limited() {
    let mut world = World::new();
    let mut config = listen_at(LOCALHOST, key(1));
    config.max_sessions = 1;
    let addr = world.server(config);
    world.client(west(addr, 1));
    world.run_until("session", |world| world.clients[0].established() == 1);
    let mut other = west(addr, 9);
    other.node = "north".into();
    world.client(other);
    world.run_until("refusal", |world| !world.clients[1].refusals().is_empty());
    let refusal = world.clients[1].refusals()[0];
    assert_eq!(refusal.reason, RefuseReason::Busy);
    assert!(refusal.to_string().contains("1 of 1 sessions"), "{refusal}");
}

/// Connections that say one byte, or nothing, hold their slots until the deadline and no longer.
#[test]
fn slow_peers_cost_their_slots_and_time_out() {
    let mut world = World::new();
    let mut config = listen_at(LOCALHOST, key(1));
    config.timing.handshake_ms = 500;
    config.max_half_open = 8;
    let addr = world.server(config);
    let mut slow: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(addr).unwrap()).collect();
    slow.iter_mut().step_by(2).for_each(|stream| stream.write_all(b"I").unwrap());
    world.run_until("acceptance", |world| world.servers[0].listener.stats().accepted == 4);
    world.client(west(addr, 1));
    world.run_until("session", |world| world.clients[0].established() == 1);
    let silent = |event: &ListenerEvent| match &event.event {
        SessionEvent::Ended(End::RefusedPeer(refusal)) => refusal.reason == RefuseReason::Silence,
        _ => false,
    };
    world.run_until("timeouts", |world| {
        world.servers[0].log.iter().filter(|event| silent(event)).count() == 2
    });
    let busy = |event: &ListenerEvent| match &event.event {
        SessionEvent::Ended(End::RefusedPeer(refusal)) => refusal.to_string().contains("of your address"),
        _ => false,
    };
    assert!(world.servers[0].log.iter().filter(|event| busy(event)).count() >= 2, "a quarter per address");
    // All of them read the words meant for them, and then the end.
    world.run_until("farewell", |world| world.servers[0].listener.fds().len() <= 2);
    for stream in &mut slow {
        let mut heard = Vec::new();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        stream.read_to_end(&mut heard).unwrap();
        assert!(heard.windows(4).any(|word| word == b"ISTM"));
    }
    assert!(world.clients[0].log.len() >= 3);
}

#[test]
fn strangers_beyond_the_budget_are_closed_without_a_word() {
    let mut world = World::new();
    let mut config = listen_at(LOCALHOST, key(1));
    config.refusals_per_s = 1;
    let addr = world.server(config);
    let mut done = 0;
    while world.servers[0].listener.stats().dropped_silently == 0 {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        done += 1;
        world.run_until("end of a stranger", |world| {
            let stats = world.servers[0].listener.stats();
            stats.refused + stats.dropped_silently == done
        });
    }
    let told = world.servers[0].log.iter().filter(|event| matches!(event.event, SessionEvent::Ended(_)));
    assert_eq!(told.count() as u64, world.servers[0].listener.stats().refused);
}

#[test]
fn a_wrong_key_is_known_at_both_ends_and_tried_again_later() {
    let mut world = World::new();
    let addr = world.server(listen_at(LOCALHOST, key(2)));
    world.client(connect_to(addr, key(1)));
    world.run_until("refusal", |world| !world.clients[0].refusals().is_empty());
    assert_eq!(world.clients[0].refusals()[0].reason, RefuseReason::AuthFailed);
    let at_server = |event: &ListenerEvent| match &event.event {
        SessionEvent::Ended(End::RefusedPeer(refusal)) => refusal.reason == RefuseReason::AuthFailed,
        _ => false,
    };
    world.run_until("log", |world| world.servers[0].log.iter().any(at_server));
    world.run_until("another attempt", |world| world.clients[0].refusals().len() >= 2);
}
