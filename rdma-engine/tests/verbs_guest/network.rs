//! What happens to the network device under an RDMA port. These tests change the network and therefore run in the guest
//! alone.

use crate::pair::{End, Pair, plain, skipped};
use rdma_engine::qp::QpState;
use rdma_engine::transport::{Device, Transport};
use rdma_engine::verbs::{AsyncEvent, PortEvent, PortState, devices};
use rdma_engine::wr::{Op, Status};
use std::process::Command;

/// True in the guest; says so where it is not.
fn may_change_the_network(test: &str) -> bool {
    let allowed = std::env::var_os("IN_RXE_VM").is_some();
    if !allowed {
        skipped(test, "changes the network; only for the guest");
    }
    allowed
}

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split_whitespace()).status().unwrap();
    assert!(status.success(), "ip {words}");
}

/// The events that come until one is `last`.
fn until(end: &mut End, last: AsyncEvent) -> Vec<AsyncEvent> {
    let mut seen = vec![];
    loop {
        seen.push(end.event());
        if seen.last() == Some(&last) {
            return seen;
        }
    }
}

fn port(what: PortEvent) -> AsyncEvent {
    AsyncEvent::Port { what, port: 1 }
}

#[test]
fn a_link_that_goes_and_comes_is_told_and_survived() {
    let test = "a_link_that_goes_and_comes";
    if !may_change_the_network(test) {
        return;
    }
    let Some(mut p) = Pair::open(test) else { return };
    let (qa, qb) = p.rc();
    p.b.recvs(qb, 0..2);
    p.b.flush();
    // Routes go with the link; they are put back as they were.
    let routes = routes_over("v0");
    // So that the IPv6 addresses stay, and are there at once when the link comes back.
    for (key, value) in [("keep_addr_on_down", "1"), ("accept_dad", "0")] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/v0/{key}"), value).unwrap();
    }
    ip("link set v0 down");
    let seen = until(&mut p.a, port(PortEvent::Down));
    assert_eq!(seen.last().unwrap().to_string(), "port 1: down");
    assert_eq!(p.a.device.report().unwrap().ports[0].state, PortState::Down);
    p.a.send(qa, Op::Send, b"into the dark", 0);
    p.a.flush();
    let lost = p.a.one();
    // rxe finds no route and says so by LocQpOpErr; a NIC would retry in vain.
    assert!(matches!(lost.status, Status::LocQpOpErr | Status::RetryExcErr), "{}", lost.status);
    assert_eq!(p.a.transport.state(qa), Some(QpState::Err));
    drop(lost);
    ip("link set v0 up");
    routes.iter().for_each(|route| ip(&format!("route replace {route}")));
    until(&mut p.a, port(PortEvent::Up));
    assert_eq!(p.a.device.report().unwrap().ports[0].state, PortState::Active);
    p.a.destroy(qa);
    p.b.fail_and_destroy(qb);
    let (qa, qb) = p.rc();
    p.b.recv(qb, 7);
    p.b.flush();
    p.a.send(qa, Op::Send, b"light again", 8);
    p.a.flush();
    assert_eq!(p.b.one().buf.to_vec(), b"light again");
    assert_eq!(p.a.one().status, Status::Success);
    p.close();
}

/// The routes over `dev` that somebody has set, as words for `ip route replace`.
fn routes_over(dev: &str) -> Vec<String> {
    let shown = Command::new("ip").args(["route", "show", "table", "all"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let by_the_kernel = |line: &&str| line.contains("proto kernel");
    let over_it = |line: &&str| line.contains(&format!("dev {dev} "));
    shown.lines().filter(over_it).filter(|l| !by_the_kernel(l)).map(String::from).collect()
}

#[test]
fn a_new_address_is_a_new_gid() {
    let test = "a_new_address_is_a_new_gid";
    if !may_change_the_network(test) {
        return;
    }
    let found = devices().unwrap();
    let mut end = End::open(&found[0].name, &plain());
    let before = end.device.gids().unwrap();
    ip("addr add 198.18.77.1/20 dev v0");
    until(&mut end, port(PortEvent::GidsChanged));
    let after = end.device.gids().unwrap();
    let new: Vec<_> = after.iter().filter(|g| !before.contains(g)).collect();
    assert_eq!(new.len(), 1);
    assert_eq!((new[0].gid.ip().to_string(), new[0].prefix_len), ("198.18.77.1".into(), Some(20)));
    assert_eq!(end.device.use_gid(new[0].index).unwrap().gid, end.device.gid());
    ip("addr del 198.18.77.1/20 dev v0");
    until(&mut end, port(PortEvent::GidsChanged));
    assert_eq!(end.device.gids().unwrap(), before);
}
