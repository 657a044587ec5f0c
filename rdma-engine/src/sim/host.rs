//! One end of a simulation: an endpoint, its pools, its memory, its queue pairs.

use super::network::Network;
use super::rig::{Outbox, frame_from, mac};
use super::rng::Rng;
use super::scenario::Scenario;
use super::trace::Trace;
use crate::buf::{Buf, Pool};
use crate::heap::{HeapBuf, HeapPool};
use crate::mem::{Access, Arena, Backing, Region};
use crate::qp::{AddressVector, BringUp, InitAttr, QpCaps, QpSpec, RtrAttr, RtsAttr};
use crate::soft::{Agreement, Entropy, Event, SoftConfig, SoftDevice, SoftTransport};
use crate::transport::{CqSpec, Device, SrqSpec, Transport, WorkerSpec};
use crate::types::{Gid, QpType, Qpn, Time};
use crate::wr::{AhId, QpId, SrqId};
use std::net::IpAddr;

/// Keys that the SENDs of a queue pair may invalidate, each once.
pub const KEYS: usize = 3;
/// Words at the end of the memory that all queue pairs use.
pub const SHARED_WORDS: usize = 2;
/// Payload of packets above the standard.
pub const JUMBO: u32 = 8192;
/// Q_Key of datagrams.
pub const QKEY: u32 = 0x1122_3344;

/// One end.
#[derive(Debug)]
pub struct Host {
    /// Control side.
    pub device: SoftDevice<HeapPool>,
    /// Worker's side.
    pub transport: SoftTransport<HeapPool>,
    /// Where the application takes buffers from.
    pub pool: HeapPool,
    /// Where arriving frames are put.
    pub receive: HeapPool,
    /// Where frames to be sent are made.
    pub frames: HeapPool,
    /// Memory the peer may use.
    pub region: Region,
    /// Keys that peers may invalidate.
    pub keys: Vec<Region>,
    /// Attached queue pairs, one for each pair.
    pub qps: Vec<QpId>,
    /// Their numbers.
    pub qpns: Vec<Qpn>,
    /// Path of datagrams.
    pub ah: Option<AhId>,
    /// Somebody else's handles on frames that arrived.
    held: Vec<HeapBuf>,
}

/// Address of an end.
pub fn ip(scenario: &Scenario, end: usize) -> IpAddr {
    let text = if scenario.ipv6 { ["fd00:9::1", "fd00:9::2"] } else { ["10.9.0.1", "10.9.0.2"] };
    text[end].parse().expect("an address")
}

/// Both ends, connected.
pub fn connect(scenario: &Scenario) -> [Host; 2] {
    let mut hosts = [0, 1].map(|end| Host::new(scenario, end));
    for pair in 0..scenario.pairs {
        connect_pair(&mut hosts, scenario, pair);
    }
    hosts
}

/// The queue pairs `pair` of both ends, new ones or in the place of others.
pub fn connect_pair(hosts: &mut [Host; 2], scenario: &Scenario, pair: usize) {
    let ups = [0, 1].map(|end| hosts[end].create(scenario));
    let qpns = [hosts[0].device.qpn(&ups[0]), hosts[1].device.qpn(&ups[1])];
    for (end, up) in ups.into_iter().enumerate() {
        let id = hosts[end].bring_up(scenario, end, up, qpns[1 - end]);
        match hosts[end].qps.get_mut(pair) {
            Some(qp) => (*qp, hosts[end].qpns[pair]) = (id, qpns[end]),
            None => {
                hosts[end].qps.push(id);
                hosts[end].qpns.push(qpns[end]);
            }
        }
    }
}

type Qp = <SoftDevice<HeapPool> as Device>::Qp;

impl Host {
    fn new(scenario: &Scenario, end: usize) -> Self {
        let mut config = SoftConfig::new(mac(end), vec![ip(scenario, end)]);
        config.ethernet_mtu = if scenario.jumbo { 9000 } else { 4200 };
        config.jumbo_payload = if scenario.jumbo { JUMBO } else { 0 };
        config.dcqcn = scenario.dcqcn;
        config.max_held = scenario.max_held;
        config.recorder_frames = scenario.recorder_frames;
        // Whoever comes later takes the slot of an earlier one.
        let max_qps = if scenario.renewals { scenario.pairs as u16 } else { 8 };
        config.max_qps = max_qps;
        config.max_regions = 32;
        config.max_ahs = 4;
        config.window = scenario.window;
        config.quantum = scenario.quantum;
        config.copybreak = scenario.copybreak;
        config.entropy = Entropy::Seed(scenario.seed ^ end as u64);
        let frame = if scenario.jumbo { 9200 } else { 4400 };
        let frames = HeapPool::new(scenario.frames, frame);
        let device = SoftDevice::new(config, vec![frames.clone()]).expect("a device");
        let cqs = vec![CqSpec { depth: 1024, events: false }];
        let srqs = vec![SrqSpec { depth: scenario.depth * scenario.pairs as u32, sge: 1 }];
        let worker = WorkerSpec { cqs, srqs, max_qps };
        let transport = device.create_worker(0, &worker).expect("a worker");
        let memory = scenario.area() * scenario.pairs + SHARED_WORDS * 8;
        let arena = Arena::new(memory, Backing::Pages).expect("memory");
        let region = device.register(&arena, all_rights()).expect("a region");
        let word = Arena::new(8, Backing::Pages).expect("memory");
        let key = |_| device.register_invalidable(&word, all_rights()).expect("a region");
        let keys = (0..KEYS * scenario.pairs).map(key).collect();
        let ah = (scenario.kind == QpType::Ud).then(|| {
            let peer = AddressVector::to(ip(scenario, 1 - end).into(), 0);
            device.create_ah(0, &peer).expect("a path")
        });
        let (pool, receive) = (HeapPool::new(4096, scenario.area()), HeapPool::new(1 << 16, frame));
        let (qps, qpns, held) = (vec![], vec![], vec![]);
        Host { device, transport, pool, receive, frames, region, keys, qps, qpns, ah, held }
    }

    fn create(&self, scenario: &Scenario) -> Qp {
        let depth = scenario.depth;
        let caps = QpCaps {
            send_depth: depth,
            recv_depth: depth,
            send_sge: scenario.send_sge,
            recv_sge: 4,
            ..QpCaps::default()
        };
        let srq = scenario.srq.then_some(SrqId(0));
        self.device.create_qp(0, &QpSpec { kind: scenario.kind, caps, srq, cq: 0 }).expect("a queue pair")
    }

    fn bring_up(&mut self, scenario: &Scenario, end: usize, qp: Qp, dest_qpn: Qpn) -> QpId {
        let peer: Gid = ip(scenario, 1 - end).into();
        let up = BringUp::resume(&self.device, qp);
        let rtr = RtrAttr {
            path: AddressVector::to(peer, 0),
            dest_qpn,
            rq_psn: scenario.psn[1 - end],
            pmtu: scenario.pmtu,
            max_dest_rd_atomic: scenario.rd_atomic,
            min_rnr_timer: scenario.rnr_timer,
        };
        let rts = RtsAttr {
            sq_psn: scenario.psn[end],
            timeout: scenario.timeout,
            retry_cnt: scenario.retry_cnt,
            rnr_retry: scenario.rnr_retry,
            max_rd_atomic: scenario.rd_atomic,
        };
        let mut qp = up.pause();
        let jumbo_payload = if scenario.jumbo { JUMBO } else { 0 };
        let agreed = Agreement { selective_repeat: scenario.selective, jumbo_payload };
        if scenario.kind == QpType::Rc {
            self.device.agree(&mut qp, agreed).expect("what fits the port");
        }
        let init = InitAttr { access: all_rights(), qkey: QKEY };
        self.device.modify(&mut qp, &crate::qp::Change::Init(init)).expect("INIT");
        let qp = BringUp::resume(&self.device, qp).rtr(rtr).expect("RTR").rts(rts).expect("RTS");
        self.transport.attach(qp).expect("room for a queue pair")
    }

    /// Sends what is due into the network and answers questions for MAC addresses.
    pub fn flush(
        &mut self,
        scenario: &Scenario,
        now: Time,
        end: usize,
        network: &mut Network,
        trace: &mut Trace,
    ) {
        let mut outbox = Outbox::new(scenario.burst);
        self.transport.flush(now, &mut outbox);
        for frame in outbox.frames {
            network.send(now, end, frame.first().to_vec(), trace);
        }
        while let Some(event) = self.transport.poll_event() {
            trace.note(now, end, || format!("{event:?}"));
            if let Event::NeedsNeighbour(ip) = event {
                self.transport.set_neighbour(ip, mac(1 - end));
            }
        }
    }

    /// Takes a frame from the network.
    pub fn ingress(&mut self, now: Time, bytes: &[u8], shared_ppm: u32, rng: &mut Rng) {
        let Some(mut frame) = frame_from(&self.receive, bytes) else { return };
        if self.held.len() > 32 {
            self.held.clear();
        }
        if rng.chance(shared_ppm)
            && let Some(slice) = self.receive.slice(&frame, 0, bytes.len())
        {
            self.held.push(std::mem::replace(&mut frame, slice));
        }
        self.transport.ingress(now, frame);
    }

    /// Ends the host; what pools still miss, in words.
    pub fn close(self) -> Option<String> {
        let Host { transport, pool, receive, frames, held, .. } = self;
        drop((transport, held));
        let missing = [pool.in_use(), receive.in_use(), frames.in_use()];
        (missing != [0; 3]).then(|| format!("buffers missing (posted, received, sent): {missing:?}"))
    }
}

fn all_rights() -> Access {
    Access::LOCAL_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC)
}
