//! Two soft endpoints in one thread that hand their frames to each other.

use super::slab::{SlabBuf, SlabPool};
use rdma_engine::buf::{Buf, Egress, Pool};
use rdma_engine::mem::{Access, Arena, Backing, Region};
use rdma_engine::qp::{AddressVector, BringUp, Change, InitAttr, QpCaps, QpSpec, RtrAttr, RtsAttr};
use rdma_engine::soft::{Agreement, Recording, SoftConfig, SoftDevice, SoftTransport};
use rdma_engine::transport::{Completions, CqSpec, Device, Transport, WorkerSpec};
use rdma_engine::types::{Pmtu, Psn, QpType, Qpn, Time};
use rdma_engine::wire::Mac;
use rdma_engine::wr::{Cookie, Op, QpId, RecvWr, RemoteSlice, SendWr, Status};
use std::net::{IpAddr, Ipv4Addr};

/// Frames of one flush.
const BURST: usize = 64;

struct Frames(Vec<SlabBuf>);

impl Egress<SlabBuf> for Frames {
    fn push(&mut self, frame: SlabBuf) -> Result<(), SlabBuf> {
        self.0.push(frame);
        Ok(())
    }
    fn room(&self) -> usize {
        BURST - self.0.len()
    }
}

/// Both ends.
pub(crate) struct Pair {
    transports: [SoftTransport<SlabPool>; 2],
    _devices: [SoftDevice<SlabPool>; 2],
    qps: [QpId; 2],
    region: Region,
    pool: SlabPool,
    frames: [Frames; 2],
    now: Time,
    carried: u64,
}

pub(crate) fn ip(end: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + end as u8))
}

fn mac(end: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, end as u8])
}

pub(crate) fn rights() -> Access {
    Access::LOCAL_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC)
}

impl Pair {
    pub(crate) fn new(pool: SlabPool, agreed: Agreement) -> Self {
        let devices = [0, 1].map(|end| {
            let mut config = SoftConfig::new(mac(end), vec![ip(end)]);
            config.recorder_frames = 16;
            SoftDevice::new(config, vec![pool.clone()]).expect("a device")
        });
        let cqs = vec![CqSpec { depth: 1024, events: false }];
        let worker = WorkerSpec { cqs, srqs: vec![], max_qps: 4 };
        let mut transports = devices.each_ref().map(|d| d.create_worker(0, &worker).expect("a worker"));
        let caps = QpCaps { send_depth: 32, recv_depth: 64, ..QpCaps::default() };
        let spec = QpSpec { kind: QpType::Rc, caps, srq: None, cq: 0 };
        let [a, b] = devices.each_ref().map(|d| d.create_qp(0, &spec).expect("a queue pair"));
        let qpns = [devices[0].qpn(&a), devices[1].qpn(&b)];
        let a = bring_up(&devices[0], a, 1, qpns[1], agreed);
        let b = bring_up(&devices[1], b, 0, qpns[0], agreed);
        for (end, transport) in transports.iter_mut().enumerate() {
            transport.set_neighbour(ip(1 - end), mac(1 - end));
        }
        let qps = [transports[0].attach(a), transports[1].attach(b)].map(|qp| qp.expect("room"));
        let arena = Arena::new(1 << 16, Backing::Pages).expect("memory");
        let region = devices[1].register(&arena, rights()).expect("a region");
        let frames = [0, 1].map(|_| Frames(Vec::with_capacity(BURST)));
        Pair { transports, _devices: devices, qps, region, pool, frames, now: Time(1), carried: 0 }
    }

    pub(crate) fn slice(&self, len: u32) -> RemoteSlice {
        self.region.slice(0, len).expect("inside")
    }

    pub(crate) fn retransmitted(&self) -> u64 {
        self.transports[0].soft_counters().retransmitted
    }

    /// Both ends learn the addresses of more neighbours than they remember.
    pub(crate) fn learn_many(&mut self) {
        for n in 0..3000_u32 {
            let ip = IpAddr::V4(Ipv4Addr::from_bits(0x0B00_0000 + n));
            self.transports.iter_mut().for_each(|t| t.set_neighbour(ip, mac(1)));
        }
    }

    pub(crate) fn held(&self) -> u64 {
        self.transports.iter().map(|t| t.soft_counters().held).sum()
    }

    /// Takes what was recorded of the first end's queue pair.
    pub(crate) fn take_recording(&mut self) -> Option<Recording> {
        self.transports[0].take_recording(self.qps[0])
    }

    /// Carries `count` requests from the first end to the second; every `lose`-th frame is lost, 0 for none.
    pub(crate) fn carry(&mut self, op: Op, len: usize, count: usize, lose: u64) {
        let (mut posted, mut done) = (0, 0);
        while done < count {
            self.post_receives();
            while posted < count && self.transports[0].send_room(self.qps[0]) > 0 {
                let mut buf = self.pool.alloc().expect("a buffer");
                if !op.fills_buffer() {
                    assert!(buf.append(len).is_some());
                }
                let wr = SendWr::new(op, buf, Cookie(posted as u64));
                assert!(self.transports[0].post_send(self.qps[0], wr).is_ok());
                posted += 1;
            }
            self.turn(lose);
            done += self.poll();
        }
    }

    fn post_receives(&mut self) {
        while self.transports[1].recv_room(self.qps[1]) > 0 {
            let wr = RecvWr { buf: self.pool.alloc().expect("a buffer"), cookie: Cookie(0) };
            assert!(self.transports[1].post_recv(self.qps[1], wr).is_ok());
        }
    }

    fn turn(&mut self, lose: u64) {
        for end in 0..2 {
            self.transports[end].flush(self.now, &mut self.frames[end]);
            for frame in self.frames[end].0.drain(..) {
                self.carried += 1;
                if lose == 0 || !self.carried.is_multiple_of(lose) {
                    self.transports[1 - end].ingress(self.now, frame);
                }
            }
        }
        self.now = self.now.after_ns(1_000_000);
    }

    fn poll(&mut self) -> usize {
        let mut batch = Completions::new();
        let n = self.transports[0].poll(self.now, &mut batch);
        assert!(batch.iter().all(|c| c.status == Status::Success));
        batch.clear();
        self.transports[1].poll(self.now, &mut batch);
        assert!(batch.iter().all(|c| c.status == Status::Success));
        n
    }
}

type Qp = <SoftDevice<SlabPool> as Device>::Qp;

fn bring_up(device: &SoftDevice<SlabPool>, mut qp: Qp, peer: usize, dest_qpn: Qpn, agreed: Agreement) -> Qp {
    let init = InitAttr { access: rights(), qkey: 0 };
    device.modify(&mut qp, &Change::Init(init)).expect("INIT");
    device.agree(&mut qp, agreed).expect("before RTR");
    let rtr = RtrAttr {
        path: AddressVector::to(ip(peer).into(), 0),
        dest_qpn,
        rq_psn: Psn::new(0),
        pmtu: Pmtu::B1024,
        max_dest_rd_atomic: 16,
        min_rnr_timer: 12,
    };
    let rts = RtsAttr { sq_psn: Psn::new(0), timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 16 };
    BringUp::resume(device, qp).rtr(rtr).expect("RTR").rts(rts).expect("RTS")
}
