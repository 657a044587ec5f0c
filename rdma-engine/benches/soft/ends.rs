//! Two endpoints in one thread that hand their frames to each other, and the cycles that each of them spends.

use super::clock::tsc;
use super::slab::{SlabBuf, SlabPool};
use rdma_engine::buf::{Buf, Egress, Pool};
use rdma_engine::mem::{Access, Arena, Backing, Region};
use rdma_engine::qp::{AddressVector, BringUp, Change, InitAttr, QpCaps, QpSpec, RtrAttr, RtsAttr};
use rdma_engine::soft::{SoftConfig, SoftDevice, SoftTransport};
use rdma_engine::transport::{Completions, CqSpec, Device, Transport, WorkerSpec};
use rdma_engine::types::{Pmtu, Psn, QpType, Qpn, Time};
use rdma_engine::wire::Mac;
use rdma_engine::wr::{Cookie, Op, OpKind, QpId, RecvWr, RemoteSlice, RemoteWord, SendWr, Status};
use std::net::{IpAddr, Ipv4Addr};

/// Frames of one burst.
const BURST: usize = 64;
/// Memory the peer reads and writes.
pub(crate) const MEMORY: usize = 4 << 20;

/// What the two ends are made with.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Queue pairs open.
    pub(crate) open: usize,
    /// Of these, those in use, spread over all.
    pub(crate) active: usize,
    /// Send queue of each; the receive queue has four times as many.
    pub(crate) depth: u32,
}

impl Shape {
    /// One queue pair with a deep queue.
    pub(crate) const ONE: Shape = Shape { open: 1, active: 1, depth: 64 };
}

/// Frames on their way.
struct Burst(Vec<SlabBuf>);

impl Egress<SlabBuf> for Burst {
    #[inline]
    fn push(&mut self, frame: SlabBuf) -> Result<(), SlabBuf> {
        self.0.push(frame);
        Ok(())
    }
    #[inline]
    fn room(&self) -> usize {
        BURST - self.0.len()
    }
}

struct End {
    transport: SoftTransport<SlabPool>,
    device: SoftDevice<SlabPool>,
    region: Region,
    qps: Vec<QpId>,
    burst: Burst,
    done: Completions<SlabBuf>,
    /// Cycles spent.
    cycles: u64,
}

/// Both ends; the first one initiates.
pub(crate) struct Ends {
    ends: [End; 2],
    pool: SlabPool,
    now: Time,
    /// Index of the queue pair that posts next.
    turn: usize,
    /// Cycles per operation of each end, chunk by chunk.
    chunks: Vec<[u64; 2]>,
}

fn ip(end: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + end as u8))
}

fn mac(end: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, end as u8])
}

fn rights() -> Access {
    Access::LOCAL_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC)
}

/// A buffer for `len` bytes.
fn buffer(pool: &SlabPool, len: usize) -> SlabBuf {
    if len <= 4096 { pool.alloc().expect("a buffer") } else { pool.large() }
}

impl End {
    fn new(end: usize, shape: Shape, pool: &SlabPool) -> Self {
        let mut config = SoftConfig::new(mac(end), vec![ip(end)]);
        config.ethernet_mtu = 4200;
        config.max_qps = shape.open.max(16) as u16;
        let device = SoftDevice::new(config, vec![pool.clone()]).expect("a device");
        let cqs = vec![CqSpec { depth: 4096, events: false }];
        let worker = WorkerSpec { cqs, srqs: vec![], max_qps: shape.open as u16 };
        let transport = device.create_worker(0, &worker).expect("a worker");
        let arena = Arena::new(MEMORY, Backing::Pages).expect("memory");
        let region = device.register(&arena, rights()).expect("a region");
        let burst = Burst(Vec::with_capacity(BURST));
        End { transport, device, region, qps: vec![], burst, done: Completions::new(), cycles: 0 }
    }

    fn create(&self, shape: Shape) -> Qp {
        let caps = QpCaps { send_depth: shape.depth, recv_depth: 4 * shape.depth, ..QpCaps::default() };
        let spec = QpSpec { kind: QpType::Rc, caps, srq: None, cq: 0 };
        self.device.create_qp(0, &spec).expect("a queue pair")
    }

    fn bring_up(&mut self, mut qp: Qp, peer: usize, dest_qpn: Qpn) -> QpId {
        let init = InitAttr { access: rights(), qkey: 0 };
        self.device.modify(&mut qp, &Change::Init(init)).expect("INIT");
        let rtr = RtrAttr {
            path: AddressVector::to(ip(peer).into(), 0),
            dest_qpn,
            rq_psn: Psn::new(0),
            pmtu: Pmtu::B4096,
            max_dest_rd_atomic: 128,
            min_rnr_timer: 12,
        };
        let rts =
            RtsAttr { sq_psn: Psn::new(0), timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 128 };
        let qp = BringUp::resume(&self.device, qp).rtr(rtr).expect("RTR").rts(rts).expect("RTS");
        self.transport.attach(qp).expect("room")
    }
}

type Qp = <SoftDevice<SlabPool> as Device>::Qp;

impl Ends {
    pub(crate) fn new(shape: Shape) -> Self {
        let pool = SlabPool::new(8192);
        let mut ends = [0, 1].map(|end| End::new(end, shape, &pool));
        // Those in use lie far apart in the table.
        let step = shape.open / shape.active;
        for n in 0..shape.open {
            let [a, b] = [0, 1].map(|end: usize| ends[end].create(shape));
            let qpns = [ends[0].device.qpn(&a), ends[1].device.qpn(&b)];
            let ids = [ends[0].bring_up(a, 1, qpns[1]), ends[1].bring_up(b, 0, qpns[0])];
            if n % step == 0 && n / step < shape.active {
                ids.iter().zip(&mut ends).for_each(|(id, end)| end.qps.push(*id));
            }
        }
        for (end, peer) in [(0, 1), (1, 0)] {
            ends[end].transport.set_neighbour(ip(peer), mac(peer));
        }
        let mut ends = Ends { ends, pool, now: Time(1), turn: 0, chunks: Vec::with_capacity(1 << 16) };
        ends.settle();
        ends
    }

    /// Lets the queue pairs that woke up find out that they have nothing to do.
    fn settle(&mut self) {
        for end in &mut self.ends {
            end.transport.flush(self.now, &mut end.burst);
            assert!(end.burst.0.is_empty());
        }
    }

    /// Runs so many operations; the median of the cycles per operation of both ends. A chunk is short, so that those in
    /// which the machine did something else stand out and the median does not see them.
    pub(crate) fn run(&mut self, kind: OpKind, size: u32, operations: u64) -> [u64; 2] {
        let (mut posted, mut completed, mut before) = (0, 0, 0);
        let chunk = if size > 4096 { 4 } else { 256 };
        self.chunks.clear();
        self.ends.iter_mut().for_each(|e| e.cycles = 0);
        while completed < operations {
            self.now = self.now.after_ns(1000);
            posted += self.initiate(kind, size, operations - posted);
            self.respond(kind == OpKind::Send, size);
            completed += self.collect();
            if completed - before >= chunk {
                let per = [0, 1].map(|end: usize| self.ends[end].cycles / (completed - before));
                self.chunks.push(per);
                self.ends.iter_mut().for_each(|e| e.cycles = 0);
                before = completed;
            }
        }
        let mut median = |end: usize| {
            self.chunks.sort_unstable_by_key(|c| c[end]);
            self.chunks[self.chunks.len() / 2][end].max(1)
        };
        [median(0), median(1)]
    }

    /// One operation from the post to its completion, in cycles.
    pub(crate) fn round_trip(&mut self, kind: OpKind, size: u32) -> u64 {
        let started = tsc();
        self.now = self.now.after_ns(1000);
        self.initiate(kind, size, 1);
        loop {
            self.respond(kind == OpKind::Send, size);
            if self.collect() == 1 {
                return tsc() - started;
            }
            self.initiate(kind, size, 0);
        }
    }

    /// The initiator's half: posts, sends.
    fn initiate(&mut self, kind: OpKind, size: u32, most: u64) -> u64 {
        let (memory, rkey) = (self.ends[1].region.window().addr(), self.ends[1].region.rkey());
        let end = &mut self.ends[0];
        let started = tsc();
        let mut posted = 0;
        for _ in 0..end.qps.len() {
            let qp = end.qps[self.turn];
            self.turn = if self.turn + 1 == end.qps.len() { 0 } else { self.turn + 1 };
            let room = (end.transport.send_room(qp) as u64).min(most - posted);
            for n in 0..room {
                let offset = (n * 4096) % (MEMORY as u64 - u64::from(size)) / 8 * 8;
                let at = RemoteSlice { addr: memory + offset, rkey, len: size };
                let word = RemoteWord { addr: memory + offset, rkey };
                let op = match kind {
                    OpKind::Read => Op::Read(at),
                    OpKind::FetchAdd => Op::FetchAdd { word, add: 1 },
                    OpKind::Write => Op::Write(at),
                    _ => Op::Send,
                };
                let mut buf = buffer(&self.pool, size as usize);
                if !op.fills_buffer() {
                    assert!(buf.append(size as usize).is_some());
                }
                assert!(end.transport.post_send(qp, SendWr::new(op, buf, Cookie(n))).is_ok());
            }
            posted += room;
        }
        end.transport.flush(self.now, &mut end.burst);
        end.cycles += tsc() - started;
        posted
    }

    /// The responder's half: takes frames, answers, posts receives.
    fn respond(&mut self, receives: bool, size: u32) {
        let [a, b] = &mut self.ends;
        let started = tsc();
        if receives {
            for &qp in &b.qps {
                while b.transport.recv_room(qp) > 0 {
                    let wr = RecvWr { buf: buffer(&self.pool, size as usize), cookie: Cookie(0) };
                    assert!(b.transport.post_recv(qp, wr).is_ok());
                }
            }
        }
        for frame in a.burst.0.drain(..) {
            b.transport.ingress(self.now, frame);
        }
        b.transport.flush(self.now, &mut b.burst);
        if receives {
            while b.transport.poll(self.now, &mut b.done) > 0 {
                b.done.clear();
            }
        }
        b.cycles += tsc() - started;
    }

    /// The initiator's other half: takes answers, polls.
    fn collect(&mut self) -> u64 {
        let [a, b] = &mut self.ends;
        let started = tsc();
        for frame in b.burst.0.drain(..) {
            a.transport.ingress(self.now, frame);
        }
        let mut completed = 0;
        while a.transport.poll(self.now, &mut a.done) > 0 {
            completed += a.done.len() as u64;
            for c in a.done.drain(..) {
                assert_eq!(c.status, Status::Success);
            }
        }
        a.cycles += tsc() - started;
        completed
    }
}
