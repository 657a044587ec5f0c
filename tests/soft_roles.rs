//! Loops of workers on DPDK ports, turned by hand, with a switch of our own between them: two relays whose clients and
//! RoCE packets share a port, or whose packets come in at any queue but the right one, or get lost.

use dpdk_bind::port::{Demand, PortConfig};
use dpdk_bind::{Burst, Eal, Mbuf, Mempool, PoolConfig, Port, PortId, RxQueue, TxQueue, link};
use isthmus::bridge::{Packet, PacketPool};
use isthmus::fabric::Fabric;
use isthmus::service::Pools;
use isthmus::service::any::AnyService;
use isthmus::service::relay::{OnFull, OnTableFull, Relay, RelaySettings};
use isthmus::soft::{SoftEndpoint, SoftPort, SoftWorker};
use isthmus::stats::{Board, Counter, DropReason, Snapshot};
use isthmus::worker::{FabricPort, LaneKind, Mailbox, Order, PathOrder, PortLane, Report, Role, RoleLoop};
use rdma_engine::mem::Access;
use rdma_engine::qp::{AddressVector, BringUp, InitAttr, QpCaps, QpSpec, RtrAttr, RtsAttr};
use rdma_engine::soft::SoftQp;
use rdma_engine::transport::{CqSpec, Device, WorkerSpec};
use rdma_engine::types::{Pmtu, Psn, QpType, Qpn, Time};
use std::sync::Arc;

/// Bytes of a client frame.
const FRAME: usize = 200;
/// Nanoseconds of a turn: timers run on a clock of the test's own.
const TURN_NS: u64 = 20_000;

/// The address of an end.
fn ip(end: usize) -> String {
    format!("192.0.2.{}", end + 1)
}

/// One end: its workers, and the far sides of its ports in the hands of the switch.
struct End {
    workers: Vec<RoleLoop<SoftWorker>>,
    boards: Vec<Arc<Board>>,
    mailboxes: Vec<Arc<Mailbox<SoftQp<Packet>>>>,
    device: SoftEndpoint,
    client: FarSide,
    /// `None` where the packets share the client port.
    wire: Option<FarSide>,
    _ports: Vec<Port>,
}

/// The other end of a link's cable.
struct FarSide {
    rx: Vec<RxQueue>,
    tx: Vec<TxQueue>,
    _port: Port,
}

fn open(eal: &Eal, id: &PortId, queues: u16, pool: &Mempool) -> (Port, Vec<RxQueue>, Vec<TxQueue>) {
    let config = PortConfig {
        rx_queues: queues,
        tx_queues: queues,
        promiscuous: Demand::Prefer,
        pools: vec![pool.clone()],
        ..PortConfig::default()
    };
    let (mut port, rx, tx) = Port::configure(eal, id, &config).unwrap();
    port.start().unwrap();
    (port, rx, tx)
}

/// A link: the near port with its queues, and the far side.
fn cable(eal: &Eal, name: &str, queues: u16, pool: &Mempool) -> (Port, Vec<(RxQueue, TxQueue)>, FarSide) {
    let (near, far) = link::cross(eal, name, queues, 1024).unwrap();
    let (port, rx, tx) = open(eal, &near, queues, pool);
    let (far_port, far_rx, far_tx) = open(eal, &far, queues, pool);
    (port, rx.into_iter().zip(tx).collect(), FarSide { rx: far_rx, tx: far_tx, _port: far_port })
}

fn settings() -> RelaySettings {
    RelaySettings {
        paths: 1,
        copybreak: 128,
        on_full: OnFull::Wait,
        on_table_full: OnTableFull::Hash,
        dead_path_wait_ns: 1_000_000_000,
        credit_refresh_ns: 1_000_000,
        flow_capacity: 1024,
        flow_idle_ms: 1000,
        seed: 7,
    }
}

const RECEIVES: u32 = 32;

fn end(eal: &Eal, at: usize, test: &str, workers: u16, shared: bool, pools: &[Mempool; 3]) -> End {
    let name = |what: &str| format!("{test}{what}{at}");
    let (client_port, mut client_queues, client) = cable(eal, &name("c"), workers, &pools[0]);
    let mut ports = vec![client_port];
    let (mut wire_queues, wire) = if shared {
        (vec![], None)
    } else {
        let (port, queues, far) = cable(eal, &name("w"), workers, &pools[0]);
        ports.push(port);
        (queues, Some(far))
    };
    let port = SoftPort {
        dad: true,
        window: 256,
        dcqcn_mbps: Some(100_000),
        flight_records: None,
        name: "wire".into(),
        mac: [2, 0, 0, 0, 0, at as u8 + 1],
        addresses: vec![format!("{}/24", ip(at)).parse().unwrap()],
        gateway: None,
        vlan: None,
        mtu: 1500,
        in_memory: false,
        dscp: 0,
        pmtu: None,
        max_qps: 1,
        steering: None,
    };
    let frames = PacketPool(pools[0].clone());
    let device = SoftEndpoint::new(port, vec![frames.clone(); workers.into()]).unwrap();
    let spec = WorkerSpec { cqs: vec![CqSpec { depth: 256, events: false }], srqs: vec![], max_qps: 1 };
    let (mut loops, mut boards, mut mailboxes) = (vec![], vec![], vec![]);
    for worker in 0..usize::from(workers) {
        let (rx, tx) = client_queues.remove(0);
        let mut port = PortLane::new(rx, tx, LaneKind::Client, 1_000_000_000);
        let fabric_port = if shared {
            port = port.shared(1_000_000_000);
            FabricPort::Shared
        } else {
            let (rx, tx) = wire_queues.remove(0);
            FabricPort::Own(PortLane::new(rx, tx, LaneKind::Fabric, 1_000_000_000))
        };
        let (board, mailbox) = (Arc::new(Board::default()), Mailbox::new(1));
        loops.push(RoleLoop::new(Role {
            name: format!("relay-{at}"),
            worker,
            service: AnyService::Relay(Relay::new(settings())),
            fabric: Fabric::Wired(device.create_worker(worker, &spec).unwrap()),
            port,
            fabric_port,
            pools: Pools {
                frames: frames.clone(),
                messages: PacketPool(pools[1].clone()),
                slices: PacketPool(pools[2].clone()),
            },
            board: Arc::clone(&board),
            mailbox: Arc::clone(&mailbox),
        }));
        boards.push(board);
        mailboxes.push(mailbox);
    }
    End { workers: loops, boards, mailboxes, device, client, wire, _ports: ports }
}

/// A queue pair of each worker at each end, up and attached. Worker n talks to worker n of the other end.
fn connect(ends: &mut [End; 2]) {
    let caps = QpCaps { send_depth: 32, recv_depth: RECEIVES, send_sge: 8, recv_sge: 1, ..QpCaps::default() };
    let spec = QpSpec { kind: QpType::Rc, caps, srq: None, cq: 0 };
    for worker in 0..ends[0].workers.len() {
        let fresh = [0, 1].map(|end: usize| {
            let made = BringUp::create(&ends[end].device, worker, &spec).unwrap();
            made.init(InitAttr { access: Access::LOCAL, qkey: 0 }).unwrap()
        });
        let qpns: [Qpn; 2] = [fresh[0].qpn(), fresh[1].qpn()];
        let paused = fresh.map(|qp| qp.pause());
        for (at, qp) in paused.into_iter().enumerate() {
            let gid = ends[1 - at].device.gid();
            let rtr = RtrAttr {
                path: AddressVector::to(gid, 0),
                dest_qpn: qpns[1 - at],
                rq_psn: Psn::new(0xFF_FF00),
                pmtu: Pmtu::B1024,
                max_dest_rd_atomic: 1,
                min_rnr_timer: 1,
            };
            let rts = RtsAttr {
                sq_psn: Psn::new(0xFF_FF00),
                timeout: 10,
                retry_cnt: 7,
                rnr_retry: 7,
                max_rd_atomic: 1,
            };
            let up = BringUp::resume(&ends[at].device, qp).rtr(rtr).and_then(|qp| qp.rts(rts)).unwrap();
            let order = PathOrder {
                lane: 0,
                peer: 0,
                local_worker: worker as u16,
                peer_worker: worker as u16,
                region: None,
                staging: None,
                application: [].into(),
                kind: QpType::Rc,
                generation: 1,
                peer_credits: RECEIVES,
                recv_depth: RECEIVES,
                message_bytes: 4096,
                max_segments: 8,
                ud: None,
                srq: None,
            };
            ends[at].mailboxes[worker].order(Order::Attach { path: 0, qp: up, order }).unwrap();
        }
    }
}

/// What the switch does with RoCE packets.
#[derive(Clone, Copy)]
struct Switch {
    /// Every so-many-th is lost; 0 for none.
    lose: u64,
    /// Queue that packets from queue `q` come out of.
    queue: fn(usize, usize) -> usize,
    passed: u64,
}

/// A client frame with a number; flows differ in their last address byte.
fn client_frame(pool: &Mempool, number: u32) -> Mbuf {
    let mut frame = pool.alloc().unwrap();
    let bytes = frame.append(FRAME).unwrap();
    bytes.fill(number as u8);
    bytes[..14].copy_from_slice(&[2, 9, 9, 9, 9, 1, 2, 9, 9, 9, 9, number as u8 % 8, 0x88, 0xB5]);
    bytes[20..24].copy_from_slice(&number.to_be_bytes());
    frame
}

fn is_client_frame(bytes: &[u8]) -> bool {
    bytes.len() == FRAME && bytes[12..14] == [0x88, 0xB5]
}

/// Everything of a test.
struct Lab {
    ends: [End; 2],
    switch: Switch,
    pools: [Mempool; 3],
    now: Time,
    /// Client frames that came out, by end: their numbers.
    arrived: [Vec<u32>; 2],
}

impl Lab {
    fn new(
        eal: &Eal,
        test: &str,
        workers: u16,
        shared: bool,
        lose: u64,
        queue: fn(usize, usize) -> usize,
    ) -> Lab {
        let pool = |what: &str, count, data_room| {
            let config = PoolConfig { count, cache: 0, data_room, ..PoolConfig::default() };
            Mempool::create(eal, &format!("{test}{what}"), &config).unwrap()
        };
        let pools = [pool("f", 8191, 2304), pool("m", 1023, 4352), pool("s", 1023, 0)];
        let ends = [0, 1].map(|at| end(eal, at, test, workers, shared, &pools));
        let switch = Switch { lose, queue, passed: 0 };
        let mut lab = Lab { ends, switch, pools, now: Time(1), arrived: [vec![], vec![]] };
        connect(&mut lab.ends);
        lab.until("all receives are posted", |lab| {
            lab.ends.iter().all(|e| e.mailboxes.iter().all(|m| matches!(m.report(), Some(Report::Armed(0)))))
        });
        for end in &lab.ends {
            end.mailboxes.iter().for_each(|m| m.order(Order::Ready(0)).unwrap());
        }
        lab
    }

    fn turn(&mut self) {
        self.now = self.now.after_ns(TURN_NS);
        for end in &mut self.ends {
            for worker in &mut end.workers {
                worker.run_once(self.now);
            }
        }
        for from in 0..2 {
            let [a, b] = &mut self.ends;
            let (one, other) = if from == 0 { (a, b) } else { (b, a) };
            forward(&mut self.switch, &mut self.arrived[from], one, other);
        }
    }

    /// Turns until `done`.
    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Lab) -> bool) {
        for _ in 0..50_000 {
            self.turn();
            if done(self) {
                return;
            }
        }
        panic!("{what}: never; {:?}", [self.counts(0), self.counts(1)]);
    }

    /// Sends `n` client frames into the client port of `end`, on every queue in turn.
    fn send(&mut self, end: usize, first: u32, n: u32) {
        for number in first..first + n {
            let mut burst = Burst::<1>::new();
            burst.push(client_frame(&self.pools[0], number)).unwrap();
            let queue = number as usize % self.ends[end].client.tx.len();
            // A full ring is waited for.
            while self.ends[end].client.tx[queue].tx(&mut burst) == 0 {
                self.turn();
            }
        }
    }

    fn counts(&mut self, end: usize) -> Snapshot {
        let end = &mut self.ends[end];
        end.workers.iter_mut().for_each(|w| w.tick(self.now));
        let mut sum = Snapshot::default();
        end.boards.iter().for_each(|b| sum.merge(&b.read()));
        sum
    }

    /// Takes everything down; the pools must be full then.
    fn finish(self) {
        let Lab { ends, pools, .. } = self;
        for end in ends {
            let End { workers, device, client, wire, _ports, .. } = end;
            workers.into_iter().for_each(|w| drop(w.finish()));
            drop((device, client, wire, _ports));
        }
        for pool in &pools {
            assert!(pool.is_full(), "{}: {} of {}", pool.name(), pool.available(), pool.capacity());
        }
    }
}

/// Empties the far sides of `one`: client frames have arrived, packets go on to `other`.
fn forward(switch: &mut Switch, arrived: &mut Vec<u32>, one: &mut End, other: &mut End) {
    let mut burst = Burst::<32>::new();
    let End { client, wire, .. } = one;
    for (is_wire, side) in [(false, Some(client)), (true, wire.as_mut())] {
        let Some(side) = side else { continue };
        for queue in 0..side.rx.len() {
            while side.rx[queue].rx(&mut burst) > 0 {
                for frame in burst.drain() {
                    // What a relay cut out of a message may lie in several pieces.
                    let mut copy = [0; 2048];
                    let len = frame.copy_to(0, &mut copy);
                    let bytes = &copy[..len];
                    if !is_wire && is_client_frame(bytes) {
                        arrived.push(u32::from_be_bytes(bytes[20..24].try_into().unwrap()));
                        continue;
                    }
                    switch.passed += 1;
                    if switch.lose > 0 && switch.passed.is_multiple_of(switch.lose) {
                        continue;
                    }
                    let to = other.wire.as_mut().unwrap_or(&mut other.client);
                    let queue = (switch.queue)(queue, to.tx.len());
                    let mut one = Burst::<1>::new();
                    one.push(frame).unwrap();
                    // A full ring loses the packet.
                    to.tx[queue].tx(&mut one);
                }
            }
        }
    }
}

/// Carries `n` frames each way and checks what arrived: everything, each flow in order.
fn carry(lab: &mut Lab, n: u32) {
    for round in 0..n / 50 {
        lab.send(0, round * 50, 50);
        lab.send(1, round * 50, 50);
        // Not more than can be kept while a shared port has to be polled.
        let least = (50 * round as usize).saturating_sub(100);
        lab.until("most of it has arrived", |lab| lab.arrived.iter().all(|a| a.len() >= least));
    }
    lab.until("everything has arrived", |lab| lab.arrived.iter().all(|a| a.len() == n as usize));
    for numbers in &mut lab.arrived {
        for flow in 0..8 {
            let of_flow: Vec<u32> = numbers.iter().copied().filter(|f| f % 8 == flow).collect();
            assert!(of_flow.is_sorted(), "flow {flow} came out of order");
        }
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..n), "each frame once");
    }
    // Announcements may still be on their way beside the clients' frames.
    lab.until("the books balance", |lab| {
        [0, 1].into_iter().all(|end| {
            let c = lab.counts(end);
            let same = |one, other| c.value(one) == c.value(other);
            same(Counter::RxFrames, Counter::FramesSent) && same(Counter::TxFrames, Counter::FramesReceived)
        })
    });
    for end in [0, 1] {
        let c = lab.counts(end);
        let value = |counter| c.value(counter);
        // Where the port is shared, announcements may be carried beside the clients' frames.
        assert!((u64::from(n)..u64::from(n) + 20).contains(&value(Counter::RxFrames)), "{c:?}");
        assert_eq!(c.all_drops(), 0, "{c:?}");
        assert!(value(Counter::FabricRxFrames) > 0 && value(Counter::FabricTxFrames) > 0);
    }
}

fn same(queue: usize, _: usize) -> usize {
    queue
}

fn next(queue: usize, queues: usize) -> usize {
    (queue + 1) % queues
}

/// RoCE packets, ARP and client frames on one port. A ping from the outside is answered there, other frames are relayed.
fn packets_share_the_client_port(eal: &Eal) {
    let mut lab = Lab::new(eal, "sh", 1, true, 0, same);
    carry(&mut lab, 5000);
    lab.finish();
}

/// Every packet comes in at the other worker's queue: it is handed over, and no frame is lost or out of order.
fn packets_find_their_worker(eal: &Eal) {
    let mut lab = Lab::new(eal, "ho", 2, false, 0, next);
    carry(&mut lab, 5000);
    let c = lab.counts(0);
    assert!(c.value(Counter::HandedOver) > 0 && c.dropped(DropReason::FabricHandoverFull) == 0, "{c:?}");
    assert_eq!(c.dropped(DropReason::FabricUnknownQp), 0, "handed over once, to the right one: {c:?}");
    lab.finish();
}

/// One packet of 50 is lost on the way: all frames arrive, and the counters say how.
fn lost_packets_are_sent_again(eal: &Eal) {
    for shared in [false, true] {
        let mut lab = Lab::new(eal, if shared { "ls" } else { "lo" }, 1, shared, 50, same);
        carry(&mut lab, 5000);
        let c = lab.counts(0);
        assert!(c.value(Counter::Retransmitted) > 0, "{c:?}");
        assert!(c.value(Counter::NaksSent) + c.value(Counter::Timeouts) > 0, "{c:?}");
        assert!(c.dropped(DropReason::FabricOutOfOrder) > 0, "{c:?}");
        lab.finish();
    }
}

/// One test, as a process has one EAL.
#[test]
fn workers_on_ports() {
    let given = std::env::var("ISTHMUS_EAL_MEMORY").unwrap_or_default();
    let huge = if given.contains("--no-huge") { "--no-huge" } else { "--in-memory" };
    let prefix = format!("--file-prefix=soft-roles-{}", std::process::id());
    let args = ["soft_roles", huge, "-m", "192", "--no-pci", "--no-telemetry", "-l", "0", &prefix];
    let eal = Eal::init(args).unwrap();
    packets_share_the_client_port(&eal);
    packets_find_their_worker(&eal);
    lost_packets_are_sent_again(&eal);
}
