//! Operations of the soft transport over a veth pair, one thread at each end: what `scripts/rxe-compare` holds against
//! kernel rxe on the same pair.
//!
//! ```text
//! veth v0 v1 64 1024      operations a second: WRITE, READ and SEND of 64 and of 1024 bytes
//! ```

#[path = "../soft/slab.rs"]
#[allow(dead_code)]
mod slab;
mod wire;

use rdma_engine::buf::{Buf, Pool};
use rdma_engine::mem::{Access, Arena, Backing, Region};
use rdma_engine::qp::{AddressVector, BringUp, Change, InitAttr, QpCaps, QpSpec, RtrAttr, RtsAttr};
use rdma_engine::soft::{SoftConfig, SoftDevice, SoftTransport};
use rdma_engine::transport::{Completions, CqSpec, Device, Transport, WorkerSpec};
use rdma_engine::types::{Pmtu, Psn, QpType, Qpn, Time};
use rdma_engine::wire::Mac;
use rdma_engine::wr::{Cookie, Op, QpId, RecvWr, RemoteSlice, SendWr, Status};
use slab::{SlabBuf, SlabPool};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use wire::Wire;

/// Requests outstanding, as many as perftest has.
const DEPTH: u32 = 128;
/// Memory the peer reads and writes.
const MEMORY: usize = 1 << 20;
/// How long one figure is measured.
const SPAN: Duration = Duration::from_millis(1500);

/// What one end has to know of the other.
#[derive(Clone, Copy)]
struct Peer {
    qpn: Qpn,
    memory: RemoteSlice,
}

fn ip(end: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(198, 18, 0, 11 + end as u8))
}

/// Of nobody on these interfaces: the kernel passes the frames over.
fn mac(end: usize) -> Mac {
    Mac([2, 0, 0, 0, 1, end as u8])
}

struct End {
    wire: Wire,
    transport: SoftTransport<SlabPool>,
    qp: QpId,
    peer: Peer,
    _region: Region,
    pool: SlabPool,
    start: Instant,
    done: Completions<SlabBuf>,
}

impl End {
    fn open(end: usize, interface: &str, tell: &Sender<Peer>, hear: &Receiver<Peer>) -> End {
        let pool = SlabPool::new(4096);
        let mut config = SoftConfig::new(mac(end), vec![ip(end)]);
        config.ethernet_mtu = 4200;
        let device = SoftDevice::new(config, vec![pool.clone()]).expect("a device");
        let worker =
            WorkerSpec { cqs: vec![CqSpec { depth: 4096, events: false }], srqs: vec![], max_qps: 1 };
        let mut transport = device.create_worker(0, &worker).expect("a worker");
        transport.set_neighbour(ip(1 - end), mac(1 - end));
        let rights = Access::LOCAL_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_WRITE);
        let region = device.register(&Arena::new(MEMORY, Backing::Pages).expect("memory"), rights);
        let region = region.expect("a region");
        let caps = QpCaps { send_depth: DEPTH, recv_depth: 4 * DEPTH, ..QpCaps::default() };
        let spec = QpSpec { kind: QpType::Rc, caps, srq: None, cq: 0 };
        let mut qp = device.create_qp(0, &spec).expect("a queue pair");
        let memory = region.slice(0, MEMORY as u32).expect("all of it");
        tell.send(Peer { qpn: device.qpn(&qp), memory }).expect("the other end lives");
        let peer = hear.recv().expect("the other end lives");
        device.modify(&mut qp, &Change::Init(InitAttr { access: rights, qkey: 0 })).expect("INIT");
        let rtr = RtrAttr {
            path: AddressVector::to(ip(1 - end).into(), 0),
            dest_qpn: peer.qpn,
            rq_psn: Psn::new(0),
            pmtu: Pmtu::B4096,
            max_dest_rd_atomic: 128,
            min_rnr_timer: 12,
        };
        let rts =
            RtsAttr { sq_psn: Psn::new(0), timeout: 17, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 128 };
        let qp = BringUp::resume(&device, qp).rtr(rtr).expect("RTR").rts(rts).expect("RTS");
        let qp = transport.attach(qp).expect("room");
        let wire = Wire::open(interface).expect("a packet socket");
        let (start, done) = (Instant::now(), Completions::new());
        End { wire, transport, qp, peer, _region: region, pool, start, done }
    }

    /// One turn: frames in, frames out, completions. Returns how many.
    fn turn(&mut self) -> usize {
        let now = Time(self.start.elapsed().as_nanos() as u64 + 1);
        let transport = &mut self.transport;
        self.wire.receive(&self.pool, |frame| transport.ingress(now, frame));
        transport.flush(now, &mut self.wire);
        self.wire.send();
        let mut completed = 0;
        while self.transport.poll(now, &mut self.done) > 0 {
            completed += self.done.len();
            assert!(self.done.drain(..).all(|c| c.status == Status::Success));
        }
        completed
    }

    fn post_receives(&mut self) {
        while self.transport.recv_room(self.qp) > 0 {
            let wr = RecvWr { buf: self.pool.alloc().expect("a buffer"), cookie: Cookie(0) };
            assert!(self.transport.post_recv(self.qp, wr).is_ok());
        }
    }

    fn post_sends(&mut self, op: Op, len: usize) -> usize {
        let room = self.transport.send_room(self.qp);
        for _ in 0..room {
            let mut buf = self.pool.alloc().expect("a buffer");
            if !op.fills_buffer() {
                buf.append(len).expect("room");
            }
            assert!(self.transport.post_send(self.qp, SendWr::new(op, buf, Cookie(0))).is_ok());
        }
        room
    }

    /// Operations a second.
    fn rate(&mut self, op: Op, len: usize) -> f64 {
        let (mut under_way, mut completed) = (0, 0);
        let from = Instant::now();
        while from.elapsed() < SPAN {
            under_way += self.post_sends(op, len);
            let n = self.turn();
            (under_way, completed) = (under_way - n, completed + n);
        }
        let rate = completed as f64 / from.elapsed().as_secs_f64();
        while under_way > 0 {
            under_way -= self.turn();
        }
        rate
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|w| !w.starts_with("--")).collect();
    let [near, far, sizes @ ..] = &words[..] else {
        println!("needs the names of both interfaces of a veth pair; scripts/rxe-compare has them");
        return;
    };
    let sizes: Vec<usize> = sizes.iter().filter_map(|w| w.parse().ok()).collect();
    let ((to_far, from_near), (to_near, from_far)) = (channel(), channel());
    static STOP: AtomicBool = AtomicBool::new(false);
    let far = far.clone();
    let responder = std::thread::spawn(move || {
        let mut end = End::open(1, &far, &to_near, &from_near);
        while !STOP.load(Ordering::Relaxed) {
            end.post_receives();
            end.turn();
        }
    });
    let mut end = End::open(0, near, &to_far, &from_far);
    // Until the other end listens.
    std::thread::sleep(Duration::from_millis(300));
    for len in sizes {
        let at = RemoteSlice { len: len as u32, ..end.peer.memory };
        for (name, op) in [("write", Op::Write(at)), ("read", Op::Read(at)), ("send", Op::Send)] {
            println!("{name} {len} {:.0}", end.rate(op, len));
        }
    }
    let counters = *end.transport.soft_counters();
    println!("# {} packets sent again, {} time-outs", counters.retransmitted, counters.timeouts);
    STOP.store(true, Ordering::Relaxed);
    responder.join().expect("the other end");
}
