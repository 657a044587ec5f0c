//! The workers of a cluster, each with its transport and buffers.

use super::cluster::{DEPTH, MESSAGE, Setup};
use super::torn::Torn;
use crate::flow::PathIndex;
use crate::service::kv::engine::{Arrival, Client, Engine};
use crate::service::memory::MemoryNode;
use crate::service::outbox::Outbox;
use crate::service::relay::PathEnd;
use crate::service::{Burst, Context, Pools, Service};
use crate::stats::{Counter, Tally};
use rdma_engine::buf::{Buf, NoEgress, Pool, copy_out};
use rdma_engine::heap::{HeapBuf, HeapPool};
use rdma_engine::loopback::{LoopQp, LoopTransport, Loopback};
use rdma_engine::mem::Access;
use rdma_engine::qp::{AddressVector, BringUp, InitAttr, QpCaps, QpSpec, RtrAttr, RtsAttr};
use rdma_engine::transport::{Completions, CqSpec, Device, Transport, WorkerSpec};
use rdma_engine::types::{Pmtu, Psn, QpType, Qpn, Time};
use rdma_engine::wr::{Cookie, Op, QpId, SendWr};
use std::collections::VecDeque;
use std::sync::Arc;

/// What both kinds of worker have.
pub struct End {
    /// The worker's transport.
    pub transport: Torn,
    pub(super) device: Arc<Loopback<HeapBuf>>,
    worker: usize,
    send_depth: u32,
    /// Its buffers.
    pub pools: Pools<HeapPool>,
    /// Its counts.
    pub tally: Tally,
    pub(super) outbox: Outbox<HeapBuf>,
}

impl End {
    pub(super) fn new(device: &Arc<Loopback<HeapBuf>>, worker: usize, setup: &Setup, seed: u64) -> Self {
        let spec =
            WorkerSpec { cqs: vec![CqSpec { depth: 65_536, events: false }], srqs: vec![], max_qps: 64 };
        let transport: LoopTransport<HeapBuf> = device.create_worker(worker, &spec).unwrap();
        let pools = Pools {
            frames: HeapPool::new(setup.frames, 2048),
            messages: HeapPool::new(setup.messages, MESSAGE as usize + 512),
            slices: HeapPool::new(64, 64),
        };
        End {
            transport: Torn::new(transport, setup.tear, seed),
            device: Arc::clone(device),
            worker,
            send_depth: setup.send_depth,
            pools,
            tally: Tally::default(),
            outbox: Outbox::default(),
        }
    }

    /// A message that no service of ours would send. False if the queue pair takes none.
    pub(super) fn forge(&mut self, qp: QpId, op: Op, bytes: &[u8]) -> bool {
        let mut buf = self.pools.messages.alloc().unwrap();
        buf.append(bytes.len()).unwrap().copy_from_slice(bytes);
        // Its completion belongs to nobody.
        self.transport.post_send(qp, SendWr::new(op, buf, Cookie(u64::MAX))).is_ok()
    }

    /// A count.
    pub fn count(&self, counter: Counter) -> u64 {
        self.tally.value(counter)
    }

    /// A queue pair in INIT.
    pub(super) fn queue_pair(&self, access: Access) -> (LoopQp<HeapBuf>, Qpn) {
        let caps = QpCaps {
            send_depth: self.send_depth,
            recv_depth: DEPTH,
            send_sge: 8,
            recv_sge: 1,
            ..QpCaps::default()
        };
        let spec = QpSpec { kind: QpType::Rc, caps, srq: None, cq: 0 };
        let made = BringUp::create(&*self.device, self.worker, &spec)
            .unwrap()
            .init(InitAttr { access, qkey: 0 })
            .unwrap();
        let qpn = made.qpn();
        (made.pause(), qpn)
    }

    pub(super) fn raise(&mut self, qp: LoopQp<HeapBuf>, peer: &End, dest_qpn: Qpn) -> QpId {
        let rtr = RtrAttr {
            path: AddressVector::to(peer.device.gid(), 0),
            dest_qpn,
            rq_psn: Psn::new(1),
            pmtu: Pmtu::B1024,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 1,
        };
        // A call that finds no receive is the end of the path: it must not happen.
        let rts = RtsAttr { sq_psn: Psn::new(1), timeout: 14, retry_cnt: 1, rnr_retry: 0, max_rd_atomic: 16 };
        let up = BringUp::resume(&*self.device, qp).rtr(rtr).unwrap().rts(rts).unwrap();
        self.transport.attach(up).unwrap()
    }
}

/// Runs a call of a service with its context.
macro_rules! with_ctx {
    ($end:expr, $now:expr, |$ctx:ident| $body:expr) => {{
        let End { transport, pools, tally, outbox, .. } = $end;
        let mut $ctx = Context { now: $now, transport, tx: outbox, pools, tally };
        $body
    }};
}

pub(super) use with_ctx;

/// A memory node's worker.
pub struct NodeEnd {
    /// What every worker has.
    pub end: End,
    /// The service.
    pub node: MemoryNode<HeapBuf>,
    /// Paths that are up.
    pub(super) links: Vec<PathIndex>,
    /// The queue pair of the newest call lane.
    pub(super) call_qp: Option<QpId>,
    /// Paths that went down.
    pub downs: Vec<(PathIndex, PathEnd)>,
}

/// Requests are numbered; twenty in a row are a client's.
pub(super) fn client_of(request: u32) -> u64 {
    u64::from(request / 20)
}

impl Client for u32 {
    fn flow(&self) -> u64 {
        client_of(*self).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// A gateway worker.
pub struct Gateway {
    /// What every worker has.
    pub end: End,
    /// The service.
    pub engine: Engine<HeapBuf, u32>,
    /// Paths that are up.
    pub links: Vec<PathIndex>,
    /// The queue pair of the newest call lane.
    pub(super) call_qp: Option<QpId>,
    /// Paths that went down.
    pub downs: Vec<(PathIndex, PathEnd)>,
    /// Replies that nobody took yet: client and text.
    pub replies: VecDeque<(u32, Vec<u8>)>,
    /// Replies so far that said nothing but errors.
    pub errors: u64,
    /// It does nothing at all.
    pub is_stuck: bool,
    /// Requests that come in the next turn behind its completions, as in a worker's.
    pub(super) inbox: VecDeque<(u32, Arrival<HeapBuf>)>,
}

impl NodeEnd {
    pub(super) fn turn(&mut self, now: Time, tick: bool) {
        let mut done = Completions::new();
        self.end.transport.poll(now, &mut done);
        for completion in done {
            with_ctx!(&mut self.end, now, |ctx| self.node.on_completion(&mut ctx, completion));
        }
        let mut burst = Burst::new();
        with_ctx!(&mut self.end, now, |ctx| self.node.on_burst(&mut ctx, &mut burst));
        self.end.transport.flush(now, &mut NoEgress);
        if tick {
            with_ctx!(&mut self.end, now, |ctx| self.node.on_tick(&mut ctx));
        }
        while let Some((path, qp, end)) = with_ctx!(&mut self.end, now, |ctx| self.node.take_down(&mut ctx)) {
            self.links.retain(|l| *l != path);
            self.downs.push((path, end));
            let qp = self.end.transport.detach(qp).expect("nothing of it is in flight");
            self.end.device.destroy_qp(qp).unwrap();
            self.node.released(path);
        }
    }
}

impl Gateway {
    /// A frame with a request.
    pub fn frame(&self, text: &[u8]) -> Arrival<HeapBuf> {
        let (pools, in_message) = (&self.end.pools, text.len() > 2000);
        let pool = if in_message { &pools.messages } else { &pools.frames };
        let mut frame = pool.alloc().unwrap();
        frame.append(text.len()).unwrap().copy_from_slice(text);
        Arrival { frame, text: 0..text.len(), in_message }
    }

    pub(super) fn turn(&mut self, now: Time, tick: bool) {
        let mut done = Completions::new();
        self.end.transport.poll(now, &mut done);
        for completion in done {
            with_ctx!(&mut self.end, now, |ctx| self.engine.completed(&mut ctx, completion));
        }
        while self.engine.has_room()
            && let Some((client, asked)) = self.inbox.pop_front()
        {
            with_ctx!(&mut self.end, now, |ctx| self.engine.ask(&mut ctx, client, asked));
        }
        with_ctx!(&mut self.end, now, |ctx| self.engine.go_on(&mut ctx));
        self.end.transport.flush(now, &mut NoEgress);
        if tick {
            with_ctx!(&mut self.end, now, |ctx| self.engine.tick(&mut ctx));
        }
        while let Some((path, qp, end)) = with_ctx!(&mut self.end, now, |ctx| self.engine.take_down(&mut ctx))
        {
            self.links.retain(|l| *l != path);
            self.downs.push((path, end));
            let qp = self.end.transport.detach(qp).expect("nothing of it is in flight");
            self.end.device.destroy_qp(qp).unwrap();
        }
        while let Some(reply) = self.engine.next_reply() {
            let mut bytes = vec![0; reply.body.len()];
            copy_out(&reply.body, 0, &mut bytes);
            self.errors += u64::from(reply.is_error);
            self.replies.push_back((reply.client, bytes));
        }
    }
}
