//! What fuzzers call: bytes become frames, requests and passing time for one endpoint. Nothing may panic.

use super::{Agreement, Entropy, Event, SoftConfig, SoftDevice, SoftTransport};
use crate::buf::{Buf, Pool};
use crate::heap::{HeapBuf, HeapPool};
use crate::mem::{Access, Arena, Backing, Region};
use crate::qp::{AddressVector, BringUp, Change, InitAttr, QpCaps, QpSpec, RtrAttr, RtsAttr};
use crate::sim::rig::{Outbox, frame_from, mac};
use crate::transport::{Completions, CqSpec, Device, Transport, WorkerSpec};
use crate::types::{Pmtu, Psn, QpType, Qpn, Time};
use crate::wire::{Bth, HeaderTemplate, NoHeaders, Opcode, Route, Vlans};
use crate::wr::{Cookie, Op, QpId, RecvWr, RemoteSlice, RemoteWord, SendWr};
use std::net::{IpAddr, Ipv4Addr};

/// Feeds one endpoint with what `data` describes: raw frames, frames that its queue pairs take for those of their peer,
/// requests, receives, time. ICRCs are not checked, so that a fuzzer gets past them. Inputs of odd length meet a reliable
/// queue pair that has agreed on selective repeat.
pub fn ingress(data: &[u8]) {
    let mut target = Target::new(!data.len().is_multiple_of(2));
    let mut input = Input(data);
    while let Some(what) = input.byte() {
        target.step(what, &mut input);
    }
    target.end();
}

/// Bytes to be used up.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// Up to `n` bytes.
    fn take(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A number; missing bytes are 0.
    fn number(&mut self) -> u32 {
        let mut bytes = [0; 4];
        let taken = self.take(4);
        bytes[..taken.len()].copy_from_slice(taken);
        u32::from_le_bytes(bytes)
    }
}

const KINDS: [QpType; 3] = [QpType::Rc, QpType::Uc, QpType::Ud];

struct Target {
    transport: SoftTransport<HeapPool>,
    region: Region,
    qps: Vec<(QpId, Qpn)>,
    pool: HeapPool,
    template: HeaderTemplate,
    now: Time,
    /// The peer's PSN per queue pair, so that frames follow each other.
    psn: [u32; 3],
}

/// Address of one of two ends.
pub(super) fn ip(end: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1 + end))
}

/// The route from the peer, end 1, to us.
pub(super) fn route() -> Route {
    Route {
        source_mac: mac(1),
        destination_mac: mac(0),
        vlans: Vlans::NONE,
        source: ip(1),
        destination: ip(0),
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        source_port: 1,
    }
}

impl Target {
    fn new(selective: bool) -> Self {
        let mut config = SoftConfig::new(mac(0), vec![ip(0)]);
        (config.max_qps, config.max_regions, config.max_ahs) = (4, 4, 2);
        (config.icrc, config.copybreak, config.entropy) = (false, 32, Entropy::Seed(1));
        let device = SoftDevice::new(config, vec![HeapPool::new(64, 2048)]).expect("a device");
        let cqs = vec![CqSpec { depth: 64, events: false }];
        let worker = WorkerSpec { cqs, srqs: vec![], max_qps: 4 };
        let mut transport = device.create_worker(0, &worker).expect("a worker");
        transport.set_neighbour(ip(1), mac(1));
        let arena = Arena::new(4096, Backing::Pages).expect("memory");
        let region = device.register(&arena, rights()).expect("a region");
        let peer = AddressVector::to(ip(1).into(), 0);
        device.create_ah(0, &peer).expect("a path");
        let qps = KINDS.map(|kind| {
            let (qp, qpn) = bring_up(&device, kind, peer, selective);
            (transport.attach(qp).ok().unwrap_or_else(|| unreachable!()), qpn)
        });
        let template = HeaderTemplate::new(&route()).expect("one family");
        let pool = HeapPool::new(256, 1024);
        Target { transport, region, qps: qps.to_vec(), pool, template, now: Time(0), psn: [0; 3] }
    }

    fn step(&mut self, what: u8, input: &mut Input<'_>) {
        let which = usize::from(what >> 4) % KINDS.len();
        match what & 15 {
            0 => self.raw(input),
            1..=7 => self.packet(which, input),
            8 => self.response(which, input),
            9 | 10 => self.post(which, input),
            11 | 12 => self.post_receive(which),
            13 => self.now = self.now.after_ns(u64::from(input.number())),
            14 => self.transport.fail(self.qps[which].0),
            _ => self.turn(),
        }
        if what & 15 > 12 {
            self.turn();
        }
    }

    fn raw(&mut self, input: &mut Input<'_>) {
        let len = input.number() as usize % 256;
        let frame = frame_from(&self.pool, input.take(len));
        if let Some(frame) = frame {
            self.transport.ingress(self.now, frame);
        }
    }

    /// A request of the peer, near the PSN that is expected.
    fn packet(&mut self, which: usize, input: &mut Input<'_>) {
        let (opcode, jump) = (input.byte().unwrap_or(0), input.byte().unwrap_or(0) as i8);
        let psn = self.psn[which].wrapping_add_signed(if jump % 4 == 0 { i32::from(jump) } else { 0 });
        self.psn[which] = psn.wrapping_add(1);
        self.give(which, opcode, Psn::new(psn), input);
    }

    /// A response of the peer to something that may be outstanding.
    fn response(&mut self, which: usize, input: &mut Input<'_>) {
        let (opcode, psn) = (input.byte().unwrap_or(0), input.byte().unwrap_or(0));
        self.give(which, 0x0D + opcode % 6, Psn::new(psn.into()), input);
    }

    /// A frame whose extended headers are the fuzzer's, but for the key and the address, which may be right.
    fn give(&mut self, which: usize, opcode: u8, psn: Psn, input: &mut Input<'_>) {
        let len = input.number() as usize % 1100;
        let right = input.byte().unwrap_or(0) & 1 == 0;
        let mut body = input.take(len).to_vec();
        let window = self.region.window();
        if right && body.len() >= 12 {
            let offset = u64::from(body[7]);
            body[..8].copy_from_slice(&(window.addr() + offset).to_be_bytes());
            body[8..12].copy_from_slice(&self.region.rkey().0.to_be_bytes());
        }
        let info = Opcode(opcode).info();
        // The headers are written as payload of a packet without any, then the opcode is put in.
        let bth = Bth::new(Opcode(0x04), self.qps[which].1, psn).with_ack_request(len.is_multiple_of(2));
        let mut bytes = vec![0; body.len() + 128];
        let end = self.template.write_frame(&mut bytes, &body, 0, bth, &NoHeaders);
        bytes.truncate(end);
        bytes[42] = opcode;
        if usize::from(info.headers_len) <= body.len()
            && let Some(frame) = frame_from(&self.pool_for_frames(), &bytes)
        {
            self.transport.ingress(self.now, frame);
        }
    }

    fn pool_for_frames(&self) -> HeapPool {
        HeapPool::new(1, 2048)
    }

    fn post(&mut self, which: usize, input: &mut Input<'_>) {
        let Some(mut buf) = self.pool.alloc() else { return };
        let at = RemoteSlice { addr: 64, rkey: self.region.rkey(), len: input.number() % 1024 };
        let word = RemoteWord { addr: 64, rkey: self.region.rkey() };
        let op = match input.byte().unwrap_or(0) % 6 {
            0 => Op::Send,
            1 => Op::Write(at),
            2 => Op::Read(at),
            3 => Op::FetchAdd { word, add: 1 },
            4 => Op::SendImm(7),
            _ => Op::SendInv(self.region.rkey()),
        };
        if !op.fills_buffer() {
            fill(&mut buf, at.len as usize);
        }
        let wr = SendWr { fence: at.len.is_multiple_of(5), ..SendWr::new(op, buf, Cookie(0)) };
        drop(self.transport.post_send(self.qps[which].0, wr));
    }

    fn post_receive(&mut self, which: usize) {
        if let Some(buf) = self.pool.alloc() {
            drop(self.transport.post_recv(self.qps[which].0, RecvWr { buf, cookie: Cookie(0) }));
        }
    }

    fn turn(&mut self) {
        self.transport.flush(self.now, &mut Outbox::new(64));
        let mut batch = Completions::new();
        while self.transport.poll(self.now, &mut batch) > 0 {
            batch.clear();
        }
        while let Some(event) = self.transport.poll_event() {
            assert!(!matches!(event, Event::NeedsNeighbour(asked) if asked == ip(1)));
        }
    }

    /// Takes everything down: all that was posted comes back.
    fn end(mut self) {
        for (qp, _) in std::mem::take(&mut self.qps) {
            self.transport.fail(qp);
            self.turn();
            assert_eq!(self.transport.in_flight(qp), 0);
            assert!(self.transport.detach(qp).is_some());
        }
        drop(self.transport);
        assert!(self.pool.is_full(), "a buffer is missing");
    }
}

fn fill(buf: &mut HeapBuf, len: usize) {
    if let Some(bytes) = buf.append(len) {
        bytes.fill(1);
    }
}

fn rights() -> Access {
    Access::LOCAL_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC)
}

type Qp = <SoftDevice<HeapPool> as Device>::Qp;

fn bring_up(
    device: &SoftDevice<HeapPool>,
    kind: QpType,
    peer: AddressVector,
    selective_repeat: bool,
) -> (Qp, Qpn) {
    let caps = QpCaps { send_depth: 8, recv_depth: 8, ..QpCaps::default() };
    let mut qp = device.create_qp(0, &QpSpec { kind, caps, srq: None, cq: 0 }).expect("a queue pair");
    let qpn = device.qpn(&qp);
    let init = InitAttr { access: rights(), qkey: 0 };
    device.modify(&mut qp, &Change::Init(init)).expect("INIT");
    if kind == QpType::Rc {
        device.agree(&mut qp, Agreement { selective_repeat, jumbo_payload: 0 }).expect("in time");
    }
    let rtr = RtrAttr {
        path: peer,
        dest_qpn: Qpn::new(0x11),
        rq_psn: Psn::new(0),
        pmtu: Pmtu::B256,
        max_dest_rd_atomic: 2,
        min_rnr_timer: 1,
    };
    let rts = RtsAttr { sq_psn: Psn::new(0), timeout: 5, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 2 };
    (BringUp::resume(device, qp).rtr(rtr).expect("RTR").rts(rts).expect("RTS"), qpn)
}

#[cfg(test)]
mod tests {
    use crate::soft::split_mix;
    use proptest::prelude::*;

    /// Short enough for an interpreter.
    #[test]
    fn nothing_in_a_few_bytes_panics() {
        let mut state = 1;
        for len in [30, 61] {
            let bytes: Vec<u8> = (0..len).map(|_| split_mix(&mut state) as u8).collect();
            super::ingress(&bytes);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        #[cfg_attr(miri, ignore = "too many frames for an interpreter")]
        fn nothing_that_arrives_panics(data in prop::collection::vec(any::<u8>(), 0..1500)) {
            super::ingress(&data);
        }
    }
}
