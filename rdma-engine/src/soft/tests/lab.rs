//! The scripted peer.

use crate::buf::{Buf, Pool};
use crate::heap::{HeapBuf, HeapPool};
use crate::mem::{Access, Arena, Backing, Region};
use crate::qp::{AddressVector, BringUp, Change, InitAttr, QpCaps, QpSpec, QpState, RtrAttr, RtsAttr};
use crate::sim::rig::{Outbox, frame_from, mac};
use crate::soft::{Agreement, Entropy, SoftConfig, SoftDevice, SoftTransport};
use crate::suite::contents;
use crate::transport::{Completions, CqSpec, Device, SrqSpec, Transport, WorkerSpec};
use crate::types::{Pmtu, Psn, QpType, Qpn, Time};
use crate::wire::{Bth, ExtendedHeaders, HeaderTemplate, Mac, NoHeaders, Opcode, RoceFrame, Syndrome, Vlans};
use crate::wr::{Completion, Cookie, Op, QpId, RecvWr, RemoteSlice, SendWr, SrqId, Status};

pub(super) use crate::soft::fuzz::{ip, route};

/// Our first PSN.
pub(super) const SQ_PSN: u32 = 0xFF_FFF0;
/// The peer's first PSN.
pub(super) const RQ_PSN: u32 = 0x10_0000;
/// The peer's queue pair.
pub(super) const PEER_QPN: Qpn = Qpn::new(0x11);
/// Payload of a full packet.
pub(super) const PMTU: usize = 256;
/// Bytes of the region.
pub(super) const MEMORY: usize = 8192;

/// How the queue pair is made.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) kind: QpType,
    pub(super) access: Access,
    pub(super) region: Access,
    pub(super) rd_atomic: u8,
    pub(super) dest_rd_atomic: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) window: u16,
    pub(super) srq: bool,
    pub(super) state: QpState,
    pub(super) resolved: bool,
    /// The MAC address that the peer's IP address resolves to.
    pub(super) peer_mac: Mac,
    /// Of our frames.
    pub(super) vlans: Vlans,
    pub(super) selective: bool,
    pub(super) recorder_frames: u32,
    pub(super) max_held: u32,
}

pub(super) fn all_rights() -> Access {
    Access::LOCAL_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC)
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            kind: QpType::Rc,
            access: all_rights(),
            region: all_rights(),
            rd_atomic: 4,
            dest_rd_atomic: 4,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            window: 256,
            srq: false,
            state: QpState::Rts,
            resolved: true,
            peer_mac: mac(1),
            vlans: Vlans::NONE,
            selective: false,
            recorder_frames: 0,
            max_held: 1024,
        }
    }
}

/// A frame that came out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Out {
    pub(super) name: &'static str,
    pub(super) psn: Psn,
    pub(super) ack_request: bool,
    pub(super) solicited: bool,
    pub(super) aeth: Option<(Syndrome, u32)>,
    pub(super) reth: Option<(u64, u32)>,
    pub(super) original: Option<u64>,
    pub(super) payload: Vec<u8>,
}

/// An endpoint with one queue pair, and everything its peer needs.
pub(super) struct Lab {
    pub(super) device: SoftDevice<HeapPool>,
    pub(super) transport: SoftTransport<HeapPool>,
    pub(super) region: Region,
    pub(super) qp: QpId,
    pub(super) qpn: Qpn,
    pub(super) pool: HeapPool,
    pub(super) now: Time,
    pub(super) template: HeaderTemplate,
}

impl Lab {
    pub(super) fn new() -> Self {
        Self::with(Setup::default())
    }

    pub(super) fn with(setup: Setup) -> Self {
        let mut config = SoftConfig::new(mac(0), vec![ip(0)]);
        (config.max_qps, config.max_regions, config.max_ahs) = (4, 8, 4);
        (config.window, config.copybreak) = (setup.window, 64);
        (config.recorder_frames, config.max_held) = (setup.recorder_frames, setup.max_held);
        (config.entropy, config.quantum) = (Entropy::Seed(3), 1000);
        config.vlans = setup.vlans;
        let device = SoftDevice::new(config, vec![HeapPool::new(4096, 2048)]).unwrap();
        let cqs = vec![CqSpec { depth: 64, events: false }];
        let srqs = vec![SrqSpec { depth: 8, sge: 1 }];
        let mut transport = device.create_worker(0, &WorkerSpec { cqs, srqs, max_qps: 4 }).unwrap();
        let arena = Arena::new(MEMORY, Backing::Pages).unwrap();
        let region = device.register(&arena, setup.region).unwrap();
        if setup.resolved {
            transport.set_neighbour(ip(1), setup.peer_mac);
        }
        let qp = bring_up(&device, &setup);
        let qpn = device.qpn(&qp);
        let qp = transport.attach(qp).unwrap();
        let template = HeaderTemplate::new(&route()).unwrap();
        let pool = HeapPool::new(512, 4096);
        Lab { device, transport, region, qp, qpn, pool, now: Time(1), template }
    }

    /// The PSN of the peer's `n`-th packet.
    pub(super) fn psn(n: u32) -> Psn {
        Psn::new(RQ_PSN).advance(n)
    }

    /// The PSN of our `n`-th packet.
    pub(super) fn our_psn(n: u32) -> Psn {
        Psn::new(SQ_PSN).advance(n)
    }

    /// `len` bytes from `offset` of the region.
    pub(super) fn slice(&self, offset: usize, len: u32) -> RemoteSlice {
        self.region.slice(offset, len).unwrap()
    }

    pub(super) fn memory(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.region.window().copy_out(offset, &mut out);
        out
    }

    pub(super) fn bytes_of<H: ExtendedHeaders>(&self, bth: Bth, extended: &H, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![0; 8192];
        let len = self.template.write_frame(&mut out, payload, 7, bth, extended);
        out.truncate(len);
        out
    }

    /// Gives the endpoint a frame.
    pub(super) fn give_bytes(&mut self, bytes: &[u8]) {
        let frame = frame_from(&HeapPool::new(1, 9000), bytes).unwrap();
        self.transport.ingress(self.now, frame);
    }

    pub(super) fn give<H: ExtendedHeaders>(&mut self, bth: Bth, extended: &H, payload: &[u8]) {
        let bytes = self.bytes_of(bth, extended, payload);
        self.give_bytes(&bytes);
    }

    /// A packet of the peer: its `n`-th PSN, with the acknowledge request bit if `ask`.
    pub(super) fn bth(&self, opcode: u8, n: u32, ask: bool) -> Bth {
        Bth::new(Opcode(opcode), self.qpn, Self::psn(n)).with_ack_request(ask)
    }

    /// A SEND_ONLY of the peer.
    pub(super) fn give_send(&mut self, n: u32, payload: &[u8]) {
        self.give(self.bth(0x04, n, true), &NoHeaders, payload);
    }

    /// A response of the peer to our `n`-th PSN.
    pub(super) fn answer<H: ExtendedHeaders>(&mut self, opcode: u8, n: u32, extended: &H, payload: &[u8]) {
        let bth = Bth::new(Opcode(opcode), self.qpn, Self::our_psn(n));
        self.give(bth, extended, payload);
    }

    /// An ACK or NAK of the peer for our `n`-th PSN.
    pub(super) fn acknowledge(&mut self, n: u32, syndrome: u8) {
        let aeth = crate::wire::Aeth { syndrome, msn: crate::wire::U24::new(0) };
        self.answer(0x11, n, &aeth, &[]);
    }

    /// Everything the endpoint sends now.
    pub(super) fn out(&mut self) -> Vec<Out> {
        let mut outbox = Outbox::new(4000);
        self.transport.flush(self.now, &mut outbox);
        outbox.frames.iter().map(|f| read(f.first())).collect()
    }

    /// Names of everything the endpoint sends now.
    pub(super) fn names(&mut self) -> Vec<&'static str> {
        self.out().iter().map(|o| o.name).collect()
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, ns: u64) {
        self.now = self.now.after_ns(ns);
    }

    pub(super) fn post(&mut self, op: Op, payload: &[u8]) {
        self.post_wr(|buf| SendWr::new(op, buf, Cookie(0)), payload);
    }

    pub(super) fn post_wr(&mut self, wr: impl FnOnce(HeapBuf) -> SendWr<HeapBuf>, payload: &[u8]) {
        let mut buf = self.pool.alloc().unwrap();
        buf.append(payload.len()).unwrap().copy_from_slice(payload);
        let posted = self.transport.post_send(self.qp, wr(buf));
        assert!(posted.is_ok(), "{:?}", posted.err().map(|r| r.why));
    }

    pub(super) fn post_recv(&mut self, cookie: u64) {
        let wr = RecvWr { buf: self.pool.alloc().unwrap(), cookie: Cookie(cookie) };
        assert!(self.transport.post_recv(self.qp, wr).is_ok());
    }

    pub(super) fn post_srq_recv(&mut self, cookie: u64) {
        let wr = RecvWr { buf: self.pool.alloc().unwrap(), cookie: Cookie(cookie) };
        assert!(self.transport.post_srq_recv(SrqId(0), wr).is_ok());
    }

    pub(super) fn poll(&mut self) -> Vec<Completion<HeapBuf>> {
        let mut batch = Completions::new();
        self.transport.poll(self.now, &mut batch);
        batch.into_iter().collect()
    }

    /// Statuses of all completions that are there.
    pub(super) fn statuses(&mut self) -> Vec<Status> {
        self.poll().iter().map(|c| c.status).collect()
    }

    pub(super) fn state(&self) -> QpState {
        self.transport.state(self.qp).unwrap()
    }
}

pub(super) fn bring_up(device: &SoftDevice<HeapPool>, setup: &Setup) -> <SoftDevice<HeapPool> as Device>::Qp {
    let caps = QpCaps { send_depth: 16, recv_depth: 16, send_sge: 4, recv_sge: 4, ..QpCaps::default() };
    let spec = QpSpec { kind: setup.kind, caps, srq: setup.srq.then_some(SrqId(0)), cq: 0 };
    let mut qp = device.create_qp(0, &spec).unwrap();
    let init = InitAttr { access: setup.access, qkey: 0x77 };
    let rtr = RtrAttr {
        path: AddressVector::to(ip(1).into(), 0),
        dest_qpn: PEER_QPN,
        rq_psn: Psn::new(RQ_PSN),
        pmtu: Pmtu::B256,
        max_dest_rd_atomic: setup.dest_rd_atomic,
        min_rnr_timer: 12,
    };
    let rts = RtsAttr {
        sq_psn: Psn::new(SQ_PSN),
        timeout: setup.timeout,
        retry_cnt: setup.retry_cnt,
        rnr_retry: setup.rnr_retry,
        max_rd_atomic: setup.rd_atomic,
    };
    device.modify(&mut qp, &Change::Init(init)).unwrap();
    if setup.selective {
        device.agree(&mut qp, Agreement { selective_repeat: true, jumbo_payload: 0 }).unwrap();
    }
    if setup.state == QpState::Init {
        return qp;
    }
    let up = BringUp::resume(device, qp).rtr(rtr).unwrap();
    let mut qp = up.rts(rts).unwrap();
    if setup.state == QpState::Rtr {
        // There is no way back from RTS: a second one that stops in RTR.
        qp = device.create_qp(0, &spec).unwrap();
        device.modify(&mut qp, &Change::Init(init)).unwrap();
        device.modify(&mut qp, &Change::Rtr(rtr)).unwrap();
    }
    qp
}

/// A frame in words; its ICRC must be right.
pub(super) fn read(bytes: &[u8]) -> Out {
    let frame = RoceFrame::parse(bytes).unwrap();
    assert!(frame.icrc_ok());
    let (bth, packet) = (frame.bth(), &frame.packet);
    Out {
        name: packet.info.operation_name(),
        psn: bth.psn.psn(),
        ack_request: bth.ack_request(),
        solicited: bth.solicited(),
        aeth: packet.aeth().map(|a| (a.meaning(), a.msn.value())),
        reth: packet.reth().map(|r| (r.addr.get(), r.len.get())),
        original: packet.atomic_ack().map(|a| a.original.get()),
        payload: frame.payload().to_vec(),
    }
}

/// Contents of a completion's buffer.
pub(super) fn bytes(c: &Completion<HeapBuf>) -> Vec<u8> {
    contents(&c.buf)
}
