//! Nodes that meet over TCP, with devices of the loopback transport and workers of the test's own.

use super::*;
use crate::service::kv::message::NodeHello;
use crate::service::kv::staging::Shape;
use crate::service::relay::{PathEnd, PathTotals};
use crate::store::geometry::Geometry;
use crate::worker::{Mailbox, Order, PathOrder, Report};
use rdma_engine::cm::{
    AllowList, Auth, Connector, ConnectorConfig, Listener, ListenerConfig, Offer, QpOffer, RegionOffer,
    ServiceId, ServiceKind, TransportKind,
};
use rdma_engine::heap::HeapBuf;
use rdma_engine::loopback::{Hub, Loopback};
use rdma_engine::mem::Access;
use rdma_engine::qp::{InitAttr, QpCaps, QpSpec};
use rdma_engine::transport::{CqSpec, Device, WorkerSpec};
use rdma_engine::types::{Gid, Psn, QpType, Qpn, Rkey, Time};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use zerocopy::IntoBytes;

type Net = Hub<HeapBuf>;
type Dev = Loopback<HeapBuf>;
type Qp = <Dev as Device>::Qp;

/// What a path is told about itself: lane, peer, own worker, the peer's worker, generation.
type Seen = (u16, u16, u16, u16, u32);

fn seen(order: &PathOrder) -> Seen {
    (order.lane, order.peer, order.local_worker, order.peer_worker, order.generation)
}

/// One worker: holds what it is given until it is told to let go.
#[derive(Default)]
struct Worker {
    paths: BTreeMap<u16, (Qp, Seen)>,
    ready: Vec<u16>,
    /// Paths given back and not heard of since.
    unreleased: Vec<u16>,
    last: Option<PathOrder>,
}

impl Worker {
    fn turn(&mut self, mailbox: &Mailbox<Qp>) {
        while let Some(order) = mailbox.next_order() {
            match order {
                Order::Attach { path, qp, order } => {
                    assert!(!self.unreleased.contains(&path), "attached before it was released");
                    assert!(self.paths.insert(path, (qp, seen(&order))).is_none());
                    self.last = Some(order);
                    mailbox.tell(Report::Armed(path)).unwrap();
                }
                Order::Ready(path) => self.ready.push(path),
                Order::Fail(path) => self.give_back(mailbox, path, PathEnd::Told),
                Order::Released(path) => self.unreleased.retain(|p| *p != path),
                Order::Drain => mailbox.tell(Report::Drained).unwrap(),
                _ => {}
            }
        }
    }

    fn give_back(&mut self, mailbox: &Mailbox<Qp>, path: u16, end: PathEnd) {
        if let Some((qp, _)) = self.paths.remove(&path) {
            self.unreleased.push(path);
            self.ready.retain(|p| *p != path);
            mailbox.tell(Report::Down { path, qp, end, totals: PathTotals::default() }).unwrap();
        }
    }
}

/// A node with its workers.
struct Node<'d> {
    control: NodeControl<'d, Dev>,
    workers: Vec<Worker>,
    mailboxes: Vec<Arc<Mailbox<Qp>>>,
}

impl Node<'_> {
    fn turn(&mut self, now: Time) {
        self.control.poll(now);
        for (worker, mailbox) in self.workers.iter_mut().zip(&self.mailboxes) {
            worker.turn(mailbox);
        }
    }

    fn paths(&self) -> Vec<Seen> {
        self.workers.iter().flat_map(|w| w.paths.values().map(|(_, seen)| *seen)).collect()
    }

    /// Paths of one peer.
    fn paths_of(&self, peer: u16) -> usize {
        self.paths().iter().filter(|seen| seen.1 == peer).count()
    }

    fn ready(&self) -> usize {
        self.workers.iter().map(|w| w.ready.len()).sum()
    }
}

/// A device with transports for so many workers; the transports have to outlive the queue pairs.
fn device(hub: &Net, workers: usize) -> (Dev, Vec<<Dev as Device>::Transport>) {
    let device = hub.device();
    let spec = WorkerSpec {
        cqs: vec![CqSpec { depth: 64, events: false }, CqSpec { depth: 64, events: false }],
        srqs: vec![],
        max_qps: 64,
    };
    let transports = (0..workers).map(|w| device.create_worker(w, &spec).unwrap()).collect();
    (device, transports)
}

fn lane(cq: u8, access: Access, credits: u32) -> LaneSettings {
    let caps = QpCaps { send_depth: 8, recv_depth: credits.max(1), ..QpCaps::default() };
    LaneSettings {
        spec: QpSpec { kind: QpType::Rc, caps, srq: None, cq },
        init: InitAttr { access, qkey: 0 },
        credits,
        least_peer_credits: credits.min(2),
    }
}

fn service(kind: ServiceKind) -> ServiceId {
    ServiceId { kind, name: "isthmus".into() }
}

const REGION: RegionOffer =
    RegionOffer { addr: 0x1000, len: 0x1000, rkey: Rkey(7), access: Access::REMOTE_READ };

fn settings(name: &str, kind: ServiceKind, workers: usize, layout: Layout) -> NodeSettings {
    let mut offer =
        Offer::new(service(kind), TransportKind::Loopback, Gid::from(std::net::IpAddr::from([0u8; 4])));
    offer.workers = workers as u16;
    offer.application = name.as_bytes().to_vec();
    let reads = if kind == ServiceKind::KvMemory { Access::REMOTE_READ } else { Access::LOCAL };
    if kind == ServiceKind::KvMemory {
        offer.regions = vec![REGION];
    }
    let lanes = vec![lane(0, reads, 0), lane(1, Access::LOCAL, 8)];
    NodeSettings { name: name.into(), offer, staging: vec![], lanes, layout }
}

fn node<'d>(device: &'d Dev, lines: Vec<Line>, workers: usize, settings: NodeSettings) -> Node<'d> {
    let mailboxes: Vec<_> = (0..workers).map(|_| Mailbox::new(settings.layout.paths_per_worker())).collect();
    let control = NodeControl::new(settings, device, lines, mailboxes.clone());
    Node { control, workers: (0..workers).map(|_| Worker::default()).collect(), mailboxes }
}

fn memory<'d>(
    device: &'d Dev,
    name: &str,
    workers: usize,
    (seats, gateway_workers_max): (usize, usize),
    instance: u64,
) -> (Node<'d>, SocketAddr) {
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let services = vec![service(ServiceKind::KvMemory)];
    let mut config = ListenerConfig::new(bind, name.into(), instance, Auth::None, services);
    config.max_sessions = seats + 1;
    let listener = Listener::bind(Time(1), config).unwrap();
    let addr = listener.local_addr().unwrap();
    let layout = Layout::Memory { seats, gateway_workers_max };
    let lines = vec![Line::Listen(Box::new(listener))];
    (node(device, lines, workers, settings(name, ServiceKind::KvMemory, workers, layout)), addr)
}

fn gateway<'d>(
    device: &'d Dev,
    name: &str,
    workers: usize,
    nodes: &[SocketAddr],
    node_workers_max: usize,
    instance: u64,
) -> Node<'d> {
    let line = |addr: &SocketAddr| {
        let mut config = ConnectorConfig::new(*addr, name.into(), instance, Auth::None);
        config.allow = AllowList::default();
        Line::Connect(Box::new(Connector::new(Time(1), config).unwrap()), *addr)
    };
    let layout = Layout::Gateway { nodes: nodes.len(), node_workers_max };
    let lines = nodes.iter().map(line).collect();
    node(device, lines, workers, settings(name, ServiceKind::KvGateway, workers, layout))
}

/// Turns all nodes until `done`; a turn is a millisecond of their time.
fn until(now: &mut Time, nodes: &mut [Node<'_>], what: &str, done: impl Fn(&[Node<'_>]) -> bool) {
    for _ in 0..30_000 {
        *now = now.after_ns(1_000_000);
        nodes.iter_mut().for_each(|n| n.turn(*now));
        if done(nodes) {
            return;
        }
    }
    panic!("{what}: never");
}

#[test]
fn a_gateway_meets_nodes_of_any_number_of_workers() {
    let hub = Net::new();
    let (small, big, front) = (device(&hub, 1), device(&hub, 3), device(&hub, 2));
    let (a, at_a) = memory(&small.0, "a", 1, (2, 8), 1);
    let (b, at_b) = memory(&big.0, "b", 3, (2, 8), 2);
    let g = gateway(&front.0, "g", 2, &[at_a, at_b], 4, 3);
    let (mut now, mut nodes) = (Time(1), [a, b, g]);
    until(&mut now, &mut nodes, "connected", |n| n[2].control.is_established() && n[0].ready() == 4);
    until(&mut now, &mut nodes, "ready", |n| n[1].ready() == 12 && n[2].ready() == 16);
    // Both ends know of each queue pair whose it is: the generation is common to its two halves.
    let mut theirs: Vec<_> = [0usize, 1]
        .iter()
        .flat_map(|n| nodes[*n].paths().into_iter().map(|(l, _, w, g, gen_)| (*n as u16, l, w, g, gen_)))
        .collect();
    let mut ours: Vec<_> =
        nodes[2].paths().into_iter().map(|(l, n, g, w, gen_)| (n, l, w, g, gen_)).collect();
    theirs.sort_unstable();
    ours.sort_unstable();
    assert_eq!(ours, theirs);
    let order = nodes[2].workers[0].last.clone().unwrap();
    assert_eq!((order.region, &order.application[..]), (Some(REGION), &b"b"[..]));
    let order = nodes[0].workers[0].last.clone().unwrap();
    assert_eq!((order.region, &order.application[..], order.recv_depth), (None, &b"g"[..], 8));
    // What was offered in vain is gone.
    assert!(nodes[2].control.links().iter().flat_map(Link::places).all(|p| p.state() != "init"));
}

#[test]
fn a_failed_queue_pair_rebuilds_its_own_link_alone() {
    let hub = Net::new();
    let (one, two, front) = (device(&hub, 1), device(&hub, 1), device(&hub, 1));
    let (a, at_a) = memory(&one.0, "a", 1, (1, 1), 1);
    let (b, at_b) = memory(&two.0, "b", 1, (1, 1), 2);
    let g = gateway(&front.0, "g", 1, &[at_a, at_b], 2, 3);
    let (mut now, mut nodes) = (Time(1), [a, b, g]);
    until(&mut now, &mut nodes, "connected", |n| n[2].ready() == 4 && n[1].ready() == 2);
    let before = (nodes[2].paths(), nodes[1].paths());
    let Node { workers, mailboxes, .. } = &mut nodes[2];
    workers[0].give_back(&mailboxes[0], 0, PathEnd::Closed);
    // A queue pair that closed is no error; one that failed is.
    workers[0].give_back(&mailboxes[0], 1, PathEnd::Refused(rdma_engine::wr::Refusal::Stale));
    let old = before.0.clone();
    until(&mut now, &mut nodes, "connected again", |n| n[2].ready() == 4 && n[2].paths() != old);
    let of = |paths: &[Seen], peer| paths.iter().filter(|s| s.1 == peer).copied().collect::<Vec<_>>();
    let after = nodes[2].paths();
    assert_ne!(of(&before.0, 0), of(&after, 0));
    assert_eq!(of(&before.0, 1), of(&after, 1), "the other node's queue pairs stay");
    assert_eq!(before.1, nodes[1].paths());
}

#[test]
fn seats_are_kept_by_name_and_nobody_else_is_disturbed() {
    let hub = Net::new();
    let (back, front) = (device(&hub, 1), [device(&hub, 1), device(&hub, 1), device(&hub, 1)]);
    let (m, at) = memory(&back.0, "m", 1, (2, 2), 1);
    let g = |n: usize, name, instance| gateway(&front[n].0, name, 1, &[at], 2, instance);
    let (mut now, mut nodes) = (Time(1), vec![m, g(0, "g0", 2)]);
    until(&mut now, &mut nodes, "the first sits", |n| n[1].ready() == 2);
    nodes.push(g(1, "g1", 3));
    until(&mut now, &mut nodes, "the second sits", |n| n[2].ready() == 2);
    assert_eq!((nodes[0].paths_of(0), nodes[0].paths_of(1)), (2, 2));
    // A third finds no seat.
    nodes.push(g(2, "g2", 4));
    for _ in 0..500 {
        now = now.after_ns(1_000_000);
        nodes.iter_mut().for_each(|n| n.turn(now));
        assert!(nodes[3].paths().is_empty());
    }
    // The first dies without a word and comes back under its name: the same seat, while the second has noticed nothing.
    let second = nodes[2].paths();
    drop(nodes.remove(3));
    drop(nodes.remove(1));
    until(&mut now, &mut nodes, "its queue pairs are gone", |n| n[0].paths_of(0) == 0);
    nodes.push(g(0, "g0", 5));
    until(&mut now, &mut nodes, "it is back", |n| n[2].ready() == 2 && n[0].ready() == 4);
    assert_eq!((nodes[0].paths_of(0), nodes[0].paths_of(1)), (2, 2));
    assert_eq!(nodes[1].paths(), second);
    // A newcomer takes the seat of one that has left.
    drop(nodes.remove(1));
    until(&mut now, &mut nodes, "the second has left", |n| n[0].paths_of(1) == 0);
    nodes.push(g(2, "g2", 6));
    until(&mut now, &mut nodes, "the third sits", |n| n[2].ready() == 2 && n[0].paths_of(1) == 2);
}

#[test]
fn a_drained_gateway_leaves_and_its_node_goes_on() {
    let hub = Net::new();
    let (back, front) = (device(&hub, 2), device(&hub, 2));
    let (m, at) = memory(&back.0, "m", 2, (1, 2), 1);
    let (mut now, mut nodes) = (Time(1), vec![m, gateway(&front.0, "g", 2, &[at], 4, 2)]);
    until(&mut now, &mut nodes, "connected", |n| n[0].ready() == 8 && n[1].ready() == 8);
    nodes[1].control.drain();
    until(&mut now, &mut nodes, "drained", |n| n[1].control.is_drained());
    for _ in 0..2000 {
        now = now.after_ns(1_000_000);
        nodes[0].turn(now);
        if nodes[1].control.close(now) {
            break;
        }
    }
    until(&mut now, &mut nodes[..1], "the seat is empty", |n| n[0].paths().is_empty());
    assert!(nodes[0].control.links()[0].peer().is_none());
    nodes[0].control.drain();
    until(&mut now, &mut nodes[..1], "the node is drained, too", |n| n[0].control.is_drained());
}

fn offer_of(workers: u16, qps: &[(u16, u16)]) -> Offer {
    let mut offer = settings("g", ServiceKind::KvGateway, 1, Layout::Relay { qps_per_worker: 1 }).offer;
    offer.workers = workers;
    let qp = |(n, (worker, lane)): (usize, &(u16, u16))| QpOffer {
        qpn: Qpn::new(2 + n as u32),
        psn: Psn::new(0),
        worker: *worker,
        udp_source_port: 0,
        receive_credits: 8,
        lane: *lane,
    };
    offer.qps = qps.iter().enumerate().map(qp).collect();
    offer
}

#[test]
fn what_does_not_fit_is_refused_by_the_key_that_would_make_it_fit() {
    let layout = Layout::Memory { seats: 2, gateway_workers_max: 2 };
    let refused = |offer: &Offer, workers| layout.offered(workers, Some(offer), None).unwrap_err();
    let common = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 0), (0, 1), (1, 0), (1, 1)];
    assert_eq!(layout.offered(2, Some(&offer_of(2, &common)), None).unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
    let one = offer_of(1, &[(0, 0), (0, 1), (0, 0), (0, 1)]);
    assert_eq!(layout.offered(2, Some(&one), None).unwrap(), [0, 1, 4, 5]);
    assert!(refused(&one, 3).contains("node_workers_max = 3"));
    assert!(refused(&offer_of(3, &common), 1).contains("gateway_workers_max = 3"));
    assert!(refused(&offer_of(2, &[(0, 0), (1, 0), (0, 1), (1, 1)]), 1).contains("queue pair 1"));
    assert!(layout.offered(1, None, None).is_err());
    let gateway = Layout::Gateway { nodes: 2, node_workers_max: 4 };
    assert_eq!(gateway.offered(2, None, None).unwrap().len(), 16);
    assert_eq!(gateway.offered(2, None, Some(3)).unwrap().len(), 12);
}

#[test]
fn messages_that_one_end_cannot_carry_are_refused_by_both_numbers() {
    let of = |largest, least| {
        let mut offer = offer_of(1, &[]);
        (offer.message_size, offer.min_message_size) = (largest, least);
        offer
    };
    let (at_gateway, at_node) = (
        Layout::Gateway { nodes: 1, node_workers_max: 1 },
        Layout::Memory { seats: 1, gateway_workers_max: 1 },
    );
    // The gateway's offer, the node's, and what is said to both.
    let cases = [
        ((8000, 8000), (8000, 8000), &[][..]),
        ((8000, 500), (9000, 8000), &[]),
        ((7999, 500), (8000, 8000), &["8000", "7999", "message_bytes = 8000 at the gateway"]),
        ((9000, 8001), (8000, 600), &["8001", "8000", "message_bytes = 8001 at the memory node"]),
    ];
    for ((g, g_least), (n, n_least), said) in cases {
        let (gateway, node) = (of(g, g_least), of(n, n_least));
        let told = [at_gateway.check_messages(&gateway, &node), at_node.check_messages(&node, &gateway)];
        for told in told {
            assert_eq!(told.is_err(), !said.is_empty(), "{told:?}");
            assert!(said.iter().all(|word| told.as_ref().unwrap_err().contains(word)), "{told:?}");
        }
    }
    // The offer says less than the hello.
    let mut node = of(8000, 0);
    let geometry = Geometry::new(64 << 20, 1).unwrap();
    let shape = Shape { slots: 0, slot_bytes: 0 };
    node.application = NodeHello::new(&geometry, 1, [0; 4], 7000, shape).as_bytes().to_vec();
    assert!(at_gateway.check_messages(&of(7400, 1), &node).is_ok());
    assert!(at_gateway.check_messages(&of(7300, 1), &node).unwrap_err().contains("7000"));
}

/// It is tried again and again, as the other end may be started anew with other numbers.
#[test]
fn a_gateway_too_small_for_a_node_waits_until_it_fits() {
    let hub = Net::new();
    let (node_device, front) = (device(&hub, 1), device(&hub, 1));
    let (mut a, at_a) = memory(&node_device.0, "a", 1, (2, 1), 1);
    let mut g = gateway(&front.0, "g", 1, &[at_a], 1, 2);
    a.control.settings.offer.min_message_size = 8000;
    g.control.settings.offer.message_size = 4000;
    let (mut nodes, mut now) = ([a, g], Time(1));
    for _ in 0..3000 {
        now = now.after_ns(1_000_000);
        nodes.iter_mut().for_each(|n| n.turn(now));
        assert!(nodes[1].workers[0].paths.is_empty());
    }
    nodes[1].control.settings.offer.message_size = 8000;
    until(&mut now, &mut nodes, "they fit now", |n| n[1].workers[0].ready.len() == 2);
}

#[test]
fn paths_are_numbered_through_all_peers_of_a_worker() {
    let layouts = [
        Layout::Relay { qps_per_worker: 3 },
        Layout::Gateway { nodes: 3, node_workers_max: 2 },
        Layout::Memory { seats: 4, gateway_workers_max: 3 },
    ];
    for layout in layouts {
        let workers = 2;
        let places: Vec<_> =
            (0..layout.links()).flat_map(|link| layout.places::<()>(link, workers)).collect();
        for worker in 0..workers {
            let mut paths: Vec<_> =
                places.iter().filter(|p| p.worker == worker).map(|p| usize::from(p.path)).collect();
            paths.sort_unstable();
            assert!(paths.into_iter().eq(0..layout.paths_per_worker()), "{layout:?}");
        }
    }
}

#[test]
fn a_memory_node_that_has_never_been_there_is_shown_by_its_name() {
    let hub = Net::new();
    let front = device(&hub, 2);
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let mut gateway = gateway(&front.0, "g", 2, &[nobody, nobody], 4, 1);
    gateway.control.name_links(&["one:7474".to_owned()]);
    let shown: Vec<_> =
        gateway.control.shown().map(|(link, place)| (link.name().unwrap(), place.state())).collect();
    assert_eq!(shown, [("one:7474", "down")], "a link without a node is nobody's");
}
