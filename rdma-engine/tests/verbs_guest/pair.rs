//! Two devices that talk to each other, and what every test needs to use them.

use crate::arena_pool::{ArenaBuf, ArenaPool};
use rdma_engine::buf::{NoEgress, Pool};
use rdma_engine::mem::{Access, Arena, Backing, Region};
use rdma_engine::qp::{AddressVector, BringUp, InitAttr, QpCaps, QpSpec, RtrAttr, RtsAttr};
use rdma_engine::transport::{Completions, CqSpec, Device, Transport, WorkerSpec};
use rdma_engine::types::{Pmtu, Psn, QpType, Qpn, Time};
use rdma_engine::verbs::{AsyncEvent, Qp, Verbs, VerbsDevice, devices};
use rdma_engine::wr::{Completion, Cookie, Op, QpId, RecvWr, SendWr};
use std::io::Write;
use std::time::{Duration, Instant};

/// How long anything may take before a test calls it stuck. Nothing is measured.
const STUCK: Duration = Duration::from_secs(60);
/// The Q_Key of the tests.
pub const QKEY: u32 = 0x1111_1111;

/// Says so where the test's own output is captured, too.
pub fn skipped(test: &str, why: &str) {
    let line = format!("SKIPPED {test}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// One end: a device with one worker's transport.
pub struct End {
    // Before the device and the pool.
    pub transport: Verbs<ArenaBuf>,
    pub device: VerbsDevice<ArenaBuf>,
    pub pool: ArenaPool,
    got: Completions<ArenaBuf>,
}

/// Both ends.
pub struct Pair {
    pub a: End,
    pub b: End,
}

/// One completion queue without events, no shared receive queues, 16 queue pairs.
pub fn plain() -> WorkerSpec {
    WorkerSpec { cqs: vec![CqSpec { depth: 1024, events: false }], srqs: vec![], max_qps: 16 }
}

/// A specification on completion queue 0 with receives of its own.
pub fn spec(kind: QpType) -> QpSpec {
    let caps =
        QpCaps { send_depth: 64, recv_depth: 64, send_sge: 8, recv_sge: 4, inline_bytes: 0, signal_every: 1 };
    QpSpec { kind, caps, srq: None, cq: 0 }
}

impl End {
    /// Opens `name` with a pool of 256 buffers of 8 KiB.
    pub fn open(name: &str, worker: &WorkerSpec) -> End {
        let device = VerbsDevice::open(name, 1).unwrap();
        End::with(device, worker)
    }

    pub fn with(device: VerbsDevice<ArenaBuf>, worker: &WorkerSpec) -> End {
        let pool = ArenaPool::new(256, 8192);
        device.register_buffers(pool.arena()).unwrap();
        let transport = device.create_worker(0, worker).unwrap();
        End { transport, device, pool, got: Completions::new() }
    }

    /// A registered arena of `len` zero bytes.
    pub fn region(&self, len: usize, access: Access) -> Region {
        self.device.register(&Arena::new(len, Backing::Pages).unwrap(), access).unwrap()
    }

    pub fn send(&mut self, qp: QpId, op: Op, bytes: &[u8], cookie: u64) {
        let wr = SendWr::new(op, self.pool.with(bytes), Cookie(cookie));
        self.transport.post_send(qp, wr).unwrap();
    }

    /// Asks for bytes of the peer: a READ or an atomic.
    pub fn fetch(&mut self, qp: QpId, op: Op, cookie: u64) {
        let wr = SendWr::new(op, self.pool.alloc().unwrap(), Cookie(cookie));
        self.transport.post_send(qp, wr).unwrap();
    }

    pub fn recv(&mut self, qp: QpId, cookie: u64) {
        let wr = RecvWr { buf: self.pool.alloc().unwrap(), cookie: Cookie(cookie) };
        self.transport.post_recv(qp, wr).unwrap();
    }

    pub fn recvs(&mut self, qp: QpId, cookies: std::ops::Range<u64>) {
        cookies.for_each(|c| self.recv(qp, c));
    }

    pub fn flush(&mut self) {
        self.transport.flush(Time(0), &mut NoEgress);
    }

    /// Completions there are now.
    pub fn poll(&mut self) -> Vec<Completion<ArenaBuf>> {
        self.got.clear();
        self.transport.poll(Time(0), &mut self.got);
        self.got.drain(..).collect()
    }

    /// Waits for `n` completions.
    pub fn take(&mut self, n: usize) -> Vec<Completion<ArenaBuf>> {
        let (start, mut all) = (Instant::now(), vec![]);
        while all.len() < n {
            all.extend(self.poll());
            assert!(start.elapsed() < STUCK, "{} of {n} completions after a minute: {all:?}", all.len());
            std::thread::yield_now();
        }
        assert_eq!(all.len(), n, "more completions than asked for");
        all
    }

    /// Waits for one completion.
    pub fn one(&mut self) -> Completion<ArenaBuf> {
        self.take(1).remove(0)
    }

    /// Waits for an asynchronous event.
    pub fn event(&mut self) -> AsyncEvent {
        let start = Instant::now();
        loop {
            if let Some(event) = self.device.poll_async() {
                return event;
            }
            assert!(start.elapsed() < STUCK, "no event after a minute");
            std::thread::yield_now();
        }
    }

    /// A queue pair in INIT.
    pub fn init(&self, spec: &QpSpec) -> Qp<ArenaBuf> {
        self.init_with(spec, all_access())
    }

    pub fn init_with(&self, spec: &QpSpec, access: Access) -> Qp<ArenaBuf> {
        let up = BringUp::create(&self.device, 0, spec).unwrap();
        up.init(InitAttr { access, qkey: QKEY }).unwrap().pause()
    }

    /// The way from here to `peer`.
    pub fn path_to(&self, peer: &End) -> AddressVector {
        AddressVector::to(peer.device.gid(), self.device.gid_index() as u8)
    }

    /// From INIT to RTS towards queue pair `dest` of `peer`.
    pub fn up(&self, qp: Qp<ArenaBuf>, peer: &End, dest: Qpn, rts: RtsAttr) -> Qp<ArenaBuf> {
        let rtr = RtrAttr {
            path: self.path_to(peer),
            dest_qpn: dest,
            rq_psn: Psn::new(100),
            pmtu: Pmtu::B1024,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 1,
        };
        let up = BringUp::resume(&self.device, qp);
        up.rtr(rtr).unwrap().rts(rts).unwrap()
    }

    /// Destroys a queue pair that has nothing in flight.
    pub fn destroy(&mut self, qp: QpId) {
        let qp = self.transport.detach(qp).expect("nothing in flight");
        self.device.destroy_qp(qp).unwrap();
    }

    /// Moves a queue pair to ERR, takes what it had in flight, and destroys it.
    pub fn fail_and_destroy(&mut self, qp: QpId) -> Vec<Completion<ArenaBuf>> {
        self.transport.fail(qp);
        let mut flushed = vec![];
        let start = Instant::now();
        while self.transport.in_flight(qp) > 0 {
            flushed.extend(self.poll());
            assert!(start.elapsed() < STUCK, "{} still in flight", self.transport.in_flight(qp));
        }
        self.destroy(qp);
        flushed
    }
}

/// Everything to everybody.
pub fn all_access() -> Access {
    let remote = Access::REMOTE_READ.and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC);
    remote.and(Access::LOCAL_WRITE)
}

/// Quick to give up: about 70 ms twice.
pub fn rts() -> RtsAttr {
    RtsAttr { sq_psn: Psn::new(100), timeout: 14, retry_cnt: 2, rnr_retry: 7, max_rd_atomic: 4 }
}

impl Pair {
    /// The first two devices, or `None` where there are not two, after saying so.
    pub fn open(test: &str) -> Option<Pair> {
        Pair::open_with(test, &plain(), &plain())
    }

    pub fn open_with(test: &str, a: &WorkerSpec, b: &WorkerSpec) -> Option<Pair> {
        let found = devices().unwrap_or_default();
        if found.len() < 2 {
            skipped(test, "needs two RDMA devices that reach each other, as the guest has");
            return None;
        }
        Some(Pair { a: End::open(&found[0].name, a), b: End::open(&found[1].name, b) })
    }

    /// Two connected queue pairs.
    pub fn connect(&mut self, spec_a: &QpSpec, spec_b: &QpSpec) -> (QpId, QpId) {
        self.connect_with(spec_a, spec_b, rts())
    }

    pub fn connect_with(&mut self, spec_a: &QpSpec, spec_b: &QpSpec, rts: RtsAttr) -> (QpId, QpId) {
        let (qp_a, qp_b) = (self.a.init(spec_a), self.b.init(spec_b));
        let (num_a, num_b) = (qp_a.qpn(), qp_b.qpn());
        let qp_a = self.a.up(qp_a, &self.b, num_b, rts);
        let qp_b = self.b.up(qp_b, &self.a, num_a, rts);
        (self.a.transport.attach(qp_a).unwrap(), self.b.transport.attach(qp_b).unwrap())
    }

    pub fn rc(&mut self) -> (QpId, QpId) {
        self.connect(&spec(QpType::Rc), &spec(QpType::Rc))
    }

    /// Ends everything and checks that every buffer is home.
    pub fn close(self) {
        for end in [self.a, self.b] {
            let pool = end.pool.clone();
            assert_eq!(end.device.leaked(), 0);
            drop(end);
            assert!(pool.is_full(), "{} buffers are missing", pool.in_use());
        }
    }
}
