//! One case's surroundings: two ends, their workers, and the steps that carry messages between them.

use super::{Features, Node, NodeSpec, Rig, bytes};
use crate::buf::Pool;
use crate::mem::{Access, Arena, Backing, Region};
use crate::qp::{AddressVector, BringUp, Change, InitAttr, QpCaps, QpSpec, QpState, RtrAttr, RtsAttr};
use crate::transport::{Completions, CqSpec, Device, Transport, WorkerSpec};
use crate::types::{Pmtu, Psn, QpType, Qpn, Time};
use crate::wr::{Completion, Cookie, Done, Op, QpId, RecvWr, SendWr, SrqId, Status, UdDest};
use std::collections::VecDeque;

/// The end that usually asks.
pub const A: usize = 0;
/// The end that usually answers.
pub const B: usize = 1;

/// How two queue pairs are connected; a copy per pair, changed where a case wants something special.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Transport type.
    pub kind: QpType,
    /// Depths and limits, at both ends.
    pub caps: QpCaps,
    /// Rights of the peer through each queue pair.
    pub access: [Access; 2],
    /// Shared receive queues.
    pub srq: [Option<SrqId>; 2],
    /// Completion queues.
    pub cq: [u8; 2],
    /// Path MTU.
    pub pmtu: Pmtu,
    /// Local ACK timeout code.
    pub timeout: u8,
    /// Transport retries.
    pub retry_cnt: u8,
    /// RNR retries.
    pub rnr_retry: u8,
    /// RNR timer code.
    pub min_rnr_timer: u8,
    /// READs and atomics outstanding, as asked by each end.
    pub max_rd_atomic: [u8; 2],
    /// READs and atomics served at once by each end.
    pub max_dest_rd_atomic: [u8; 2],
    /// Q_Key; UD only.
    pub qkey: u32,
}

/// Every right.
pub(super) fn all_rights() -> Access {
    Access::LOCAL_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC)
}

impl Link {
    /// A link of this kind with all rights and depth 64.
    pub fn new(kind: QpType, features: &Features) -> Self {
        let sge = features.max_sge.min(16);
        Link {
            kind,
            caps: QpCaps {
                send_depth: 64,
                recv_depth: 64,
                send_sge: sge,
                recv_sge: sge,
                ..QpCaps::default()
            },
            access: [all_rights(); 2],
            srq: [None; 2],
            cq: [0; 2],
            pmtu: features.pmtu,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            max_rd_atomic: [features.max_rd_atomic.min(4); 2],
            max_dest_rd_atomic: [features.max_rd_atomic.min(4); 2],
            qkey: 0x1111_1111,
        }
    }
}

/// Two queue pairs that talk to each other, by end.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// As their transports know them.
    pub qp: [QpId; 2],
    /// As the network knows them.
    pub qpn: [Qpn; 2],
}

/// Queue pairs off their transports, by end.
pub type QpsOf<R> = [<<R as Rig>::Transport as Transport>::Qp; 2];

/// One end. The fields are dropped in this order.
pub struct End<R: Rig> {
    /// Completions polled and not yet looked at.
    pub done: VecDeque<Completion<R::Buf>>,
    /// The worker's side.
    pub transport: R::Transport,
    /// The control side.
    pub device: R::Device,
    /// Its buffers.
    pub pool: R::Pool,
}

/// A case at work.
pub struct Session<'r, R: Rig> {
    /// Both ends.
    pub ends: [End<R>; 2],
    /// What joins them.
    pub rig: &'r mut R,
    /// What they can do.
    pub features: Features,
    cookies: u64,
}

impl<'r, R: Rig> Session<'r, R> {
    /// Both ends with a worker of one completion queue.
    pub fn open(rig: &'r mut R) -> Self {
        let cqs = vec![CqSpec { depth: 4096, events: false }];
        Self::open_with(rig, &WorkerSpec { cqs, srqs: vec![], max_qps: 16 })
    }

    /// Both ends with such a worker.
    pub fn open_with(rig: &'r mut R, worker: &WorkerSpec) -> Self {
        let nodes = rig.open(&NodeSpec { buffers: 1024, room: 2048 });
        let end = |Node { device, pool }: Node<R::Device, R::Pool>| {
            let transport = device.create_worker(0, worker).expect("a worker");
            End { done: VecDeque::new(), transport, device, pool }
        };
        Session { ends: nodes.map(end), features: rig.features(), rig, cookies: 0 }
    }

    /// Ends the case: everything is dropped, then both pools must be full.
    pub fn finish(self) {
        let pools = self.ends.map(|End { done, transport, device, pool }| {
            drop((done, transport));
            drop(device);
            pool
        });
        self.rig.close();
        for (name, pool) in ["A", "B"].into_iter().zip(&pools) {
            assert_eq!(pool.available(), pool.capacity(), "buffers of end {name} are missing");
        }
    }

    /// A registered region of `len` bytes at `end`.
    pub fn region(&self, end: usize, len: usize, access: Access) -> Region {
        let arena = Arena::new(len, Backing::Pages).expect("an arena");
        self.ends[end].device.register(&arena, access).expect("a region")
    }

    /// The path from `end` to the other one.
    pub fn path(&self, end: usize) -> AddressVector {
        AddressVector::to(self.ends[1 - end].device.gid(), self.rig.sgid_index(end))
    }

    /// Two queue pairs of this kind, connected to each other, in RTS and attached.
    pub fn connect(&mut self, link: &Link) -> Pair {
        let (qps, qpn) = self.bring_up(link, [QpState::Rts; 2]);
        let [a, b] = qps;
        Pair { qp: [self.attach(A, a), self.attach(B, b)], qpn }
    }

    /// Two queue pairs of this kind, brought up as far as these states (INIT, RTR or RTS), not attached.
    pub fn bring_up(&self, link: &Link, states: [QpState; 2]) -> (QpsOf<R>, [Qpn; 2]) {
        let up = |end: usize| {
            let spec = QpSpec { kind: link.kind, caps: link.caps, srq: link.srq[end], cq: link.cq[end] };
            let up = BringUp::create(&self.ends[end].device, 0, &spec).expect("a queue pair");
            up.init(InitAttr { access: link.access[end], qkey: link.qkey }).expect("INIT")
        };
        let (a, b) = (up(A), up(B));
        let qpn = [a.qpn(), b.qpn()];
        let mut qps = [a.pause(), b.pause()];
        for (end, qp) in qps.iter_mut().enumerate().filter(|(end, _)| states[*end] != QpState::Init) {
            self.modify(end, qp, &Change::Rtr(self.rtr(link, end, qpn[1 - end])));
        }
        for (end, qp) in qps.iter_mut().enumerate().filter(|(end, _)| states[*end] == QpState::Rts) {
            self.modify(end, qp, &Change::Rts(Self::rts(link, end)));
        }
        (qps, qpn)
    }

    /// Changes the state of a queue pair off its transport, which must succeed.
    pub fn modify(&self, end: usize, qp: &mut <R::Transport as Transport>::Qp, change: &Change) {
        let changed = self.ends[end].device.modify(qp, change);
        changed.unwrap_or_else(|e| panic!("{change:?}: {e}"));
    }

    /// Attaches a queue pair, which must succeed.
    pub fn attach(&mut self, end: usize, qp: <R::Transport as Transport>::Qp) -> QpId {
        self.ends[end].transport.attach(qp).ok().expect("the table of queue pairs has room")
    }

    /// First PSN sent by `end`: A's wraps early.
    pub const fn first_psn(end: usize) -> Psn {
        Psn::new(if end == A { 0xFF_FFFC } else { 0x1234 })
    }

    /// What takes the queue pair at `end` to RTR.
    pub fn rtr(&self, link: &Link, end: usize, dest_qpn: Qpn) -> RtrAttr {
        RtrAttr {
            path: self.path(end),
            dest_qpn,
            rq_psn: Self::first_psn(1 - end),
            pmtu: link.pmtu,
            max_dest_rd_atomic: link.max_dest_rd_atomic[end],
            min_rnr_timer: link.min_rnr_timer,
        }
    }

    /// What takes the queue pair at `end` to RTS.
    pub fn rts(link: &Link, end: usize) -> RtsAttr {
        RtsAttr {
            sq_psn: Self::first_psn(end),
            timeout: link.timeout,
            retry_cnt: link.retry_cnt,
            rnr_retry: link.rnr_retry,
            max_rd_atomic: link.max_rd_atomic[end],
        }
    }

    /// Where datagrams from `end` to the other end of `pair` go; makes an address handle.
    pub fn ud_dest(&self, end: usize, pair: &Pair, qkey: u32) -> UdDest {
        let ah = self.ends[end].device.create_ah(0, &self.path(end)).expect("an address handle");
        UdDest { ah, qpn: pair.qpn[1 - end], qkey }
    }

    /// A mark that no other request of the case has.
    pub fn cookie(&mut self) -> Cookie {
        self.cookies += 1;
        Cookie(self.cookies)
    }

    /// Posts a request, which must be taken.
    pub fn post(&mut self, end: usize, qp: QpId, wr: SendWr<R::Buf>) {
        let (op, why) = (wr.op, self.ends[end].transport.post_send(qp, wr).err().map(|r| r.why));
        assert_eq!(why, None, "{op:?} was refused");
    }

    /// Posts a request that carries `bytes`.
    pub fn send(&mut self, end: usize, qp: QpId, op: Op, bytes: &[u8]) -> Cookie {
        let (buf, cookie) = (bytes::filled_chain(&self.ends[end].pool, bytes, 1), self.cookie());
        self.post(end, qp, SendWr::new(op, buf, cookie));
        cookie
    }

    /// An empty buffer of `end` with room for `len` bytes.
    pub fn room_for(&self, end: usize, len: usize) -> R::Buf {
        let pool = &self.ends[end].pool;
        bytes::empty_chain(pool, len.div_ceil(pool.buf_room()).max(1))
    }

    /// Posts a READ or an atomic.
    pub fn fetch(&mut self, end: usize, qp: QpId, op: Op) -> Cookie {
        let (buf, cookie) = (self.room_for(end, op.response_len() as usize), self.cookie());
        self.post(end, qp, SendWr::new(op, buf, cookie));
        cookie
    }

    /// Posts a receive for `len` bytes.
    pub fn recv(&mut self, end: usize, qp: QpId, len: usize) -> Cookie {
        let wr = RecvWr { buf: self.room_for(end, len), cookie: self.cookie() };
        let cookie = wr.cookie;
        let why = self.ends[end].transport.post_recv(qp, wr).err().map(|r| r.why);
        assert_eq!(why, None, "a receive was refused");
        cookie
    }

    /// Posts a receive for `len` bytes to a shared queue.
    pub fn recv_shared(&mut self, end: usize, srq: SrqId, len: usize) -> Cookie {
        let wr = RecvWr { buf: self.room_for(end, len), cookie: self.cookie() };
        let cookie = wr.cookie;
        let why = self.ends[end].transport.post_srq_recv(srq, wr).err().map(|r| r.why);
        assert_eq!(why, None, "a shared receive was refused");
        cookie
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.rig.now()
    }

    /// One turn of both ends: flush, carry, poll.
    pub fn step(&mut self) {
        self.step_polling([true; 2]);
    }

    /// One turn without flush: what was only posted stays where it is.
    pub fn drift(&mut self) {
        let [a, b] = &mut self.ends;
        self.rig.advance([&mut a.transport, &mut b.transport]);
        self.poll(A);
        self.poll(B);
    }

    /// One turn in which only some ends poll.
    pub fn step_polling(&mut self, polls: [bool; 2]) {
        for (i, end) in self.ends.iter_mut().enumerate() {
            self.rig.flush(i, &mut end.transport);
        }
        let [a, b] = &mut self.ends;
        self.rig.advance([&mut a.transport, &mut b.transport]);
        for i in (0..2).filter(|i| polls[*i]) {
            self.poll(i);
        }
    }

    /// Polls one end; returns how many completions came.
    pub fn poll(&mut self, end: usize) -> usize {
        let (now, e) = (self.rig.now(), &mut self.ends[end]);
        let mut batch = Completions::new();
        let n = e.transport.poll(now, &mut batch);
        assert_eq!(n, batch.len(), "poll() miscounts");
        e.done.extend(batch);
        n
    }

    /// Steps until `ready` says so; the case fails when the patience of the rig is at its end.
    pub fn until(&mut self, what: &str, ready: impl Fn(&Self) -> bool) {
        let start = self.now();
        while !ready(self) {
            assert!(self.now().since_ns(start) < self.features.patience_ns, "waited in vain for {what}");
            self.step();
        }
    }

    /// The next `n` completions at `end`.
    pub fn wait(&mut self, end: usize, n: usize) -> Vec<Completion<R::Buf>> {
        self.until(&format!("{n} completions at end {end}"), |s| s.ends[end].done.len() >= n);
        self.ends[end].done.drain(..n).collect()
    }

    /// The next completion at `end`, which must be a success with this mark.
    pub fn wait_ok(&mut self, end: usize, cookie: Cookie) -> Completion<R::Buf> {
        let c = self.wait(end, 1).pop().expect("one");
        assert_eq!((c.cookie, c.status), (cookie, Status::Success), "{:?}", c.done);
        c
    }

    /// Makes turns of this kind for as long as anything could still come.
    pub fn linger(&mut self, turn: impl Fn(&mut Self)) {
        let start = self.now();
        while self.now().since_ns(start) < self.features.quiet_ns {
            turn(self);
        }
    }

    /// Steps for as long as anything could still come, then checks that nothing came at either end.
    pub fn quiet(&mut self) {
        self.linger(Self::step);
        self.nothing_came();
    }

    /// Checks that there is no completion at either end.
    pub fn nothing_came(&self) {
        for end in &self.ends {
            let first = end.done.front().map(|c| (c.cookie, c.done, c.status));
            assert_eq!(first, None, "an unexpected completion");
        }
    }

    /// The next completions at `end`, which must be these, by mark and status.
    pub fn wait_all(&mut self, end: usize, wanted: &[(Cookie, Status)]) {
        let got = self.wait(end, wanted.len());
        let got: Vec<_> = got.iter().map(|c| (c.cookie, c.status)).collect();
        assert_eq!(got, wanted, "completions at end {end}");
    }

    /// One SEND each way, checked: this pair works.
    pub fn exchange(&mut self, pair: &Pair) {
        for from in [A, B] {
            let bytes = bytes::pattern(self.cookies, 77);
            let r = self.recv(1 - from, pair.qp[1 - from], 77);
            let s = self.send(from, pair.qp[from], Op::Send, &bytes);
            let got = self.wait_ok(1 - from, r);
            assert_eq!(bytes::contents(&got.buf), bytes);
            let sent = self.wait_ok(from, s);
            assert_eq!((sent.qp, sent.done), (pair.qp[from], Done::Sent(Op::Send.kind())));
        }
    }

    /// Moves both queue pairs to ERR, waits until all they hold has come back, detaches and destroys them.
    pub fn tear_down(&mut self, pair: &Pair) {
        for (end, qp) in pair.qp.into_iter().enumerate() {
            self.ends[end].transport.fail(qp);
        }
        self.until("the queue pairs to drain", |s| {
            (0..2).all(|end| s.ends[end].transport.in_flight(pair.qp[end]) == 0)
        });
        for (end, qp) in pair.qp.into_iter().enumerate() {
            let qp = self.ends[end].transport.detach(qp).expect("nothing is in flight");
            self.ends[end].device.destroy_qp(qp).expect("destroyed");
        }
    }
}
