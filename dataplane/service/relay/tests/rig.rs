//! Two relays, joined by the loopback transport, on virtual time: control and ports are played by the test.
#![allow(dead_code)] // Compiled into two programs, of which each uses some.

use super::watch::Watched;
use isthmus::service::outbox::Outbox;
use isthmus::service::relay::{
    OnFull, OnTableFull, PathEnd, PathLink, PathState, PathTotals, Relay, RelaySettings,
};
use isthmus::service::traffic::{Addressing, Proto, Shape, TAG_LEN, Tag};
use isthmus::service::{BURST, Burst, Context, Pools, Service};
use isthmus::stats::{Counter, DropReason, Tally};
use rdma_engine::buf::{Buf, NoEgress, Pool, copy_out};
use rdma_engine::loopback::{Hub, LoopQp, Loopback};
use rdma_engine::mem::Access;
use rdma_engine::qp::{AddressVector, BringUp, InitAttr, QpCaps, QpSpec, RtrAttr, RtsAttr};
use rdma_engine::transport::{Completions, CqSpec, Device, SrqSpec, Transport, WorkerSpec};
use rdma_engine::types::{Pmtu, Psn, QpType, Time};
use rdma_engine::wr::{SrqId, Status, UdDest};
use std::collections::VecDeque;

/// Turns between two ticks.
const TICK_TURNS: u64 = 4;
/// Time of a turn.
pub(crate) const TURN_NS: u64 = 10_000;
const QKEY: u32 = 7;

/// Numbers of a pair of relays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) kind: QpType,
    pub(crate) srq: bool,
    /// Sends and receives of each path.
    pub(crate) depth: u32,
    pub(crate) message_bytes: u32,
    pub(crate) max_segments: u16,
    pub(crate) relay: RelaySettings,
}

impl Default for Setup {
    fn default() -> Self {
        let relay = RelaySettings {
            paths: 2,
            copybreak: 256,
            on_full: OnFull::Wait,
            on_table_full: OnTableFull::Hash,
            dead_path_wait_ns: 1_000_000,
            credit_refresh_ns: 100_000,
            flow_capacity: 4096,
            flow_idle_ms: 1000,
            seed: 0x5EED,
        };
        Setup { kind: QpType::Rc, srq: false, depth: 8, message_bytes: 9216, max_segments: 8, relay }
    }
}

impl Setup {
    /// With these numbers of the relay changed.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut RelaySettings)) -> Self {
        change(&mut self.relay);
        self
    }

    /// Datagrams: messages of one packet at most.
    pub(crate) fn ud() -> Self {
        Setup { kind: QpType::Ud, message_bytes: 4096, ..Setup::default() }
    }
}

/// One side: a worker with its relay, its port and what control knows.
pub(crate) struct End<P: Pool> {
    pub(crate) transport: Watched<P::Buf>,
    device: Loopback<P::Buf>,
    pub(crate) relay: Relay<P::Buf>,
    pub(crate) pools: Pools<P>,
    pub(crate) tally: Tally,
    pub(crate) outbox: Outbox<P::Buf>,
    burst: Burst<P::Buf>,
    /// The port's RX ring.
    pub(crate) rx: VecDeque<P::Buf>,
    /// Frames taken out of it.
    pub(crate) taken: u64,
    /// Frames the port takes in a turn.
    pub(crate) tx_rate: usize,
    /// What it took, in order.
    pub(crate) sent: Vec<Vec<u8>>,
    /// Frames it took.
    pub(crate) sent_count: u64,
    /// The queue pair of each path.
    pub(crate) links: Vec<Option<PathLink>>,
    /// Paths taken down: which, why, and their totals.
    pub(crate) downs: Vec<(u16, PathEnd, PathTotals)>,
    kind: QpType,
}

/// Runs a call of the relay with its context.
macro_rules! call {
    ($end:expr, $now:expr, |$relay:ident, $ctx:ident| $body:expr) => {{
        let End { transport, outbox, pools, tally, relay: $relay, .. } = $end;
        let mut $ctx = Context { now: $now, transport, tx: outbox, pools, tally };
        $body
    }};
}

impl<P: Pool> End<P> {
    fn new(device: Loopback<P::Buf>, pools: Pools<P>, setup: &Setup) -> Self {
        let paths = setup.relay.paths;
        let srqs = vec![SrqSpec { depth: setup.depth * paths as u32, sge: 1 }];
        let spec = WorkerSpec {
            cqs: vec![CqSpec { depth: 65_536, events: false }],
            srqs: if setup.srq { srqs } else { vec![] },
            max_qps: 2 * paths as u16,
        };
        let transport = Watched::new(device.create_worker(0, &spec).unwrap());
        End {
            transport,
            device,
            relay: Relay::new(setup.relay),
            pools,
            tally: Tally::default(),
            outbox: Outbox::default(),
            burst: Burst::new(),
            rx: VecDeque::new(),
            taken: 0,
            tx_rate: BURST,
            sent: Vec::new(),
            sent_count: 0,
            links: vec![None; paths],
            downs: Vec::new(),
            kind: setup.kind,
        }
    }

    /// Puts a frame into the RX ring; false if there is no buffer.
    pub(crate) fn offer(&mut self, bytes: &[u8]) -> bool {
        let Some(mut buf) = self.pools.frames.alloc() else { return false };
        buf.append(bytes.len()).expect("a buffer holds a frame").copy_from_slice(bytes);
        self.rx.push_back(buf);
        true
    }

    fn turn(&mut self, now: Time, tick: bool) {
        let wants = Service::<Watched<P::Buf>, P>::wants_rx(&self.relay);
        while wants && self.burst.len() < BURST {
            let Some(frame) = self.rx.pop_front() else { break };
            self.burst.push(frame);
            self.taken += 1;
        }
        let mut burst = std::mem::take(&mut self.burst);
        call!(self, now, |relay, ctx| relay.on_burst(&mut ctx, &mut burst));
        assert!(burst.is_empty(), "a relay takes the whole burst");
        self.transport.flush(now, &mut NoEgress);
        let mut done = Completions::new();
        self.transport.poll(now, &mut done);
        for completion in done {
            call!(self, now, |relay, ctx| relay.on_completion(&mut ctx, completion));
        }
        for frame in self.outbox.drain(self.tx_rate) {
            self.sent_count += 1;
            self.sent.push(bytes_of(&frame));
        }
        if tick {
            self.tick(now);
        }
    }

    fn tick(&mut self, now: Time) {
        call!(self, now, |relay, ctx| relay.on_tick(&mut ctx));
        while let Some((path, link, end)) = call!(self, now, |relay, ctx| relay.take_down(&mut ctx)) {
            let qp: LoopQp<P::Buf> = self.transport.detach(link.qp).expect("nothing of it is in flight");
            self.device.destroy_qp(qp).unwrap();
            self.links[usize::from(path)] = None;
            self.downs.push((path, end, self.relay.path_totals(path)));
        }
    }

    /// Every frame is somewhere.
    pub(crate) fn check_balance(&self) {
        let beyond = [DropReason::LostInTransit, DropReason::Malformed, DropReason::StaleGeneration];
        let drops = self.tally.all_drops() - beyond.map(|r| self.tally.dropped(r)).iter().sum::<u64>();
        let came = self.taken + self.tally.value(Counter::FramesReceived);
        let (held, waiting) = (self.relay.frames_held() as u64, self.relay.frames_waiting() as u64);
        let under_way = self.transport.frames_in_flight() + self.outbox.len() as u64;
        let went = self.tally.value(Counter::FramesSent) + self.sent_count;
        assert_eq!(
            came,
            went + drops + held + waiting + under_way,
            "went {went}, drops {drops}, held {held}, waiting {waiting}, under way {under_way}, {:?}",
            self.tally.drops().collect::<Vec<_>>()
        );
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.tally.dropped(reason)
    }

    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.tally.value(counter)
    }
}

/// A buffer's contents.
pub(crate) fn bytes_of<B: Buf>(buf: &B) -> Vec<u8> {
    let mut bytes = vec![0; buf.len()];
    assert_eq!(copy_out(buf, 0, &mut bytes), buf.len());
    bytes
}

/// Both sides.
pub(crate) struct Pair<P: Pool> {
    pub(crate) ends: [End<P>; 2],
    pub(crate) now: Time,
    pub(crate) setup: Setup,
    pub(crate) generation: u32,
    turns: u64,
}

impl<P: Pool> Pair<P> {
    /// Two relays with all paths up.
    pub(crate) fn connected(setup: Setup, pools: [Pools<P>; 2]) -> Self {
        let mut pair = Self::apart(setup, pools);
        (0..setup.relay.paths as u16).for_each(|path| pair.connect(path));
        pair
    }

    /// Two relays without a connection.
    pub(crate) fn apart(setup: Setup, pools: [Pools<P>; 2]) -> Self {
        let hub = Hub::new();
        let ends = pools.map(|pools| End::new(hub.device(), pools, &setup));
        Pair { ends, now: Time(0), setup, generation: 0, turns: 0 }
    }

    /// A new connection for a path that is free at both ends.
    pub(crate) fn connect(&mut self, path: u16) {
        self.arm(path);
        self.ends.iter_mut().for_each(|end| end.relay.path_ready(path));
    }

    /// As [`connect`](Self::connect), but nobody is told yet that the other is ready.
    pub(crate) fn arm(&mut self, path: u16) {
        let Setup { kind, depth, .. } = self.setup;
        self.generation += 1;
        let caps = QpCaps {
            send_depth: depth,
            recv_depth: depth,
            send_sge: self.setup.max_segments,
            recv_sge: 1,
            ..QpCaps::default()
        };
        let srq = self.setup.srq.then_some(SrqId(0));
        let spec = QpSpec { kind, caps, srq, cq: 0 };
        let init = InitAttr { access: Access::LOCAL_WRITE, qkey: QKEY };
        let made =
            [0, 1].map(|i| BringUp::create(&self.ends[i].device, 0, &spec).unwrap().init(init).unwrap());
        let at = [0, 1].map(|i| (made[i].qpn(), self.ends[i].device.gid()));
        let up = made.map(BringUp::pause);
        for (i, qp) in up.into_iter().enumerate() {
            let (qpn, gid) = at[1 - i];
            let end = &mut self.ends[i];
            let to = AddressVector::to(gid, 0);
            let rtr = RtrAttr {
                path: to,
                dest_qpn: qpn,
                rq_psn: Psn::new(9),
                pmtu: Pmtu::B4096,
                max_dest_rd_atomic: 1,
                min_rnr_timer: 1,
            };
            // No second chance: a message that finds no receive is the end of the path.
            let rts =
                RtsAttr { sq_psn: Psn::new(9), timeout: 14, retry_cnt: 1, rnr_retry: 0, max_rd_atomic: 1 };
            let qp = BringUp::resume(&end.device, qp).rtr(rtr).unwrap().rts(rts).unwrap();
            let ah = (kind == QpType::Ud).then(|| end.device.create_ah(0, &to).unwrap());
            let link = PathLink {
                qp: end.transport.attach(qp).unwrap(),
                kind,
                generation: self.generation,
                peer_credits: depth,
                recv_depth: depth,
                message_bytes: self.setup.message_bytes,
                max_segments: self.setup.max_segments,
                ud: ah.map(|ah| UdDest { ah, qpn, qkey: QKEY }),
                srq,
            };
            end.links[usize::from(path)] = Some(link);
            call!(end, self.now, |relay, ctx| relay.attach(&mut ctx, path, link));
        }
    }

    /// Control gives a path up, at both ends.
    pub(crate) fn fail(&mut self, path: u16) {
        (0..2).for_each(|end| self.fail_at(end, path));
    }

    /// Control gives a path up at one end.
    pub(crate) fn fail_at(&mut self, end: usize, path: u16) {
        call!(&mut self.ends[end], self.now, |relay, ctx| relay.fail(&mut ctx, path));
    }

    /// Gives up what the other end has lost, then brings back every path that is free at both ends.
    pub(crate) fn reconnect(&mut self) {
        for path in 0..self.setup.relay.paths as u16 {
            let states = [0, 1].map(|end| self.ends[end].relay.path_state(path));
            match states.map(|s| matches!(s, PathState::Empty)) {
                [true, true] => self.connect(path),
                [true, false] => self.fail_at(1, path),
                [false, true] => self.fail_at(0, path),
                _ => {}
            }
        }
    }

    pub(crate) fn abandon(&mut self, end: usize) {
        call!(&mut self.ends[end], self.now, |relay, ctx| relay.abandon(&mut ctx));
    }

    /// One turn of each side.
    pub(crate) fn turn(&mut self) {
        self.turns += 1;
        for end in &mut self.ends {
            end.turn(self.now, self.turns.is_multiple_of(TICK_TURNS));
            end.check_balance();
        }
        self.now = self.now.after_ns(TURN_NS);
    }

    pub(crate) fn turns(&mut self, n: usize) {
        (0..n).for_each(|_| self.turn());
    }

    /// Turns until `done`, at most so many that 200 ms go by; false if it never came.
    pub(crate) fn until(&mut self, done: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..20_000 {
            if done(self) {
                return true;
            }
            self.turn();
        }
        done(self)
    }

    /// Turns until no frame is anywhere between the RX rings and the ports.
    pub(crate) fn settle(&mut self) {
        let quiet = |end: &End<P>| {
            let relay = end.relay.frames_held() + end.relay.frames_waiting();
            end.rx.is_empty() && end.outbox.is_empty() && relay == 0 && end.transport.frames_in_flight() == 0
        };
        let moved = |pair: &Self| pair.ends.iter().all(quiet);
        assert!(self.until(moved), "frames stand still: {:?}", self.standing());
        // What has left the sender may not have been polled yet.
        self.turns(8);
        assert!(self.until(moved));
    }

    /// Where frames are.
    fn standing(&self) -> [(usize, usize, usize, u64); 2] {
        [0, 1].map(|i| {
            let end = &self.ends[i];
            let (held, waiting) = (end.relay.frames_held(), end.relay.frames_waiting());
            (end.rx.len(), held, waiting, end.transport.frames_in_flight())
        })
    }

    /// Both sides drain and close all paths.
    pub(crate) fn close(&mut self) {
        self.ends.iter_mut().for_each(|end| end.relay.drain());
        assert!(self.until(|p| p.ends.iter().all(|e| e.relay.is_drained())), "{:?}", self.states());
        assert!(self.until(|p| p.ends.iter().all(|e| e.links.iter().all(Option::is_none))));
        let clean = |d: &(u16, PathEnd, PathTotals)| d.1 == PathEnd::Closed;
        let downs = [0, 1].map(|i| self.ends[i].downs.clone());
        assert!(downs.iter().all(|d| d.iter().rev().take(self.setup.relay.paths).all(clean)), "{downs:?}");
    }

    pub(crate) fn states(&self) -> [Vec<PathState>; 2] {
        let of = |end: &End<P>| (0..end.links.len()).map(|p| end.relay.path_state(p as u16)).collect();
        [of(&self.ends[0]), of(&self.ends[1])]
    }

    /// A message found no receive.
    pub(crate) fn saw_rnr(&self) -> bool {
        self.ends.iter().any(|e| e.transport.errors.contains(&Status::RnrRetryExcErr))
    }

    /// Drops all that uses buffers.
    pub(crate) fn dismantle(self) -> [Pools<P>; 2] {
        self.ends.map(|end| end.pools)
    }
}

/// A frame whose flow, number and contents can be read back.
pub(crate) fn frame(flow: u32, sequence: u32, length: usize) -> Vec<u8> {
    const PROTOS: [Proto; 5] = [Proto::UdpV4, Proto::TcpV4, Proto::UdpV6, Proto::TcpV6, Proto::Other];
    let vlan = flow.is_multiple_of(3).then_some(flow as u16 % 4096);
    let shape = Shape { proto: PROTOS[flow as usize % PROTOS.len()], vlan };
    let mut out: Vec<u8> = (0..length.max(shape.shortest()))
        .map(|i| (i as u32 ^ flow ^ sequence.rotate_left(3)) as u8)
        .collect();
    let addressing = Addressing { source_mac: [2, 0, 0, 0, 0, 1], destination_mac: [2, 0, 0, 0, 0, 2] };
    let at = addressing.write(shape, flow, &mut out);
    let tag = Tag::new(flow, sequence, &out[at + TAG_LEN..]);
    out[at..at + TAG_LEN].copy_from_slice(zerocopy::IntoBytes::as_bytes(&tag));
    out
}

/// Flow and number of a frame made by [`frame`], which must be intact.
pub(crate) fn label(bytes: &[u8]) -> (u32, u32) {
    let at = Addressing::tag_offset(bytes).expect("a frame of the test");
    let (tag, intact) = Tag::read(&bytes[at..]).expect("a frame of the test");
    assert!(intact, "frame {} of flow {} has changed", tag.sequence(), tag.flow());
    (tag.flow(), tag.sequence())
}
