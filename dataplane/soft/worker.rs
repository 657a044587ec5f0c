//! A worker's side: the endpoint, and around it what makes it a host on an Ethernet.

use super::counts;
use super::handover::{Handed, Handover};
use super::records::Watch;
use crate::bridge::{Packet, PacketPool};
use crate::fabric::WorkerTransport;
use crate::host::{Fate, Host, MAX_FRAME, Sort};
use crate::stats::Tally;
use dpdk_bind::mbuf::Checksum;
use rdma_engine::buf::{Buf, Egress, Pool};
use rdma_engine::qp::QpState;
use rdma_engine::soft::{Event, SoftDevice, SoftQp, SoftTransport};
use rdma_engine::transport::{Completions, Counters, Posted, Transport};
use rdma_engine::types::{Qpn, Time};
use rdma_engine::wr::{QpId, RecvWr, SendWr, SrqId, Status};
use std::net::IpAddr;

/// Handed frames taken in one turn.
const HANDED_BURST: usize = 64;
/// Events taken in one turn.
const EVENT_BURST: usize = 64;
/// Answers to pings that wait for the egress.
const MAX_ANSWERS: usize = 32;

/// What this worker counts beside endpoint and host side.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct WorkerCounters {
    /// Frames handed to other workers.
    pub(super) handed_over: u64,
    /// Frames that another worker had no room for.
    pub(super) handover_full: u64,
    /// Frames that are none of ours.
    pub(super) not_wanted: u64,
    /// Frames whose IP checksum the NIC found wrong.
    pub(super) checksum: u64,
    /// Datagrams of connection management, which nobody listens to.
    pub(super) management: u64,
}

/// The soft transport of one worker.
#[derive(Debug)]
pub struct SoftWorker {
    transport: SoftTransport<PacketPool>,
    device: SoftDevice<PacketPool>,
    host: Host,
    handover: Handover,
    pool: PacketPool,
    answers: arrayvec::ArrayVec<Packet, MAX_ANSWERS>,
    /// Peers of queue pairs that were attached and whose address is to be confirmed.
    to_confirm: arrayvec::ArrayVec<IpAddr, 64>,
    counters: WorkerCounters,
    /// Of which queue pairs a flight record is due.
    watch: Watch,
}

impl SoftWorker {
    pub(super) fn new(
        transport: SoftTransport<PacketPool>,
        device: SoftDevice<PacketPool>,
        host: Host,
        handover: Handover,
        pool: PacketPool,
        watch: Watch,
    ) -> Self {
        SoftWorker {
            transport,
            device,
            host,
            handover,
            pool,
            answers: arrayvec::ArrayVec::new(),
            to_confirm: arrayvec::ArrayVec::new(),
            counters: WorkerCounters::default(),
            watch,
        }
    }

    /// A RoCE frame whose base transport header begins at `bth`: to its queue pair's worker.
    #[inline]
    fn steer(&mut self, now: Time, bth: usize, frame: Packet) {
        if self.handover.has_others()
            && let Some(&[a, b, c]) = frame.first().get(bth + 5..bth + 8)
        {
            let qpn = Qpn::new(u32::from_be_bytes([0, a, b, c]));
            let owner = self.device.worker_of(qpn);
            if self.handover.is_other(owner) {
                let taken = self.handover.give(owner, Handed::Frame(frame));
                self.counters.handed_over += u64::from(taken);
                self.counters.handover_full += u64::from(!taken);
                return;
            }
        }
        self.transport.ingress_unrecognized(now, frame);
    }

    /// A frame for the host side.
    #[cold]
    fn read_as_host(&mut self, now: Time, mut frame: Packet) {
        // An answer is written over the question, which others may share.
        if frame.try_unique().is_none() {
            match self.copy(&frame) {
                Some(copy) => frame = copy,
                None => return self.counters.not_wanted += 1,
            }
        }
        let Some(bytes) = frame.try_unique() else { return };
        if let Fate::Answer(len) = self.host.receive(now, bytes) {
            frame.truncate(len);
            frame.0.clear_offloads();
            // Beyond this many in one turn pings go unanswered.
            self.answers.try_push(frame).ok();
        }
        self.after_host();
    }

    fn copy(&self, frame: &Packet) -> Option<Packet> {
        let mut copy = self.pool.alloc()?;
        copy.append(frame.first().len())?.copy_from_slice(frame.first());
        Some(copy)
    }

    /// Addresses that the host side has learned, to whoever waits for them.
    fn after_host(&mut self) {
        if let Some((ip, mac)) = self.host.take_learned() {
            self.handover.tell(ip, mac);
        }
        while let Some((ip, mac)) = self.host.next_resolved() {
            self.transport.set_neighbour(ip, mac);
        }
    }

    /// What other workers have handed over.
    #[inline]
    fn take_handed(&mut self, now: Time) {
        for _ in 0..HANDED_BURST {
            match self.handover.take() {
                Some(Handed::Frame(frame)) => self.transport.ingress(now, frame),
                Some(Handed::Neighbour(ip, mac)) => {
                    self.host.learn(ip, mac);
                    self.after_host();
                }
                None => return,
            }
        }
    }

    #[inline]
    fn take_events(&mut self, now: Time) {
        for _ in 0..EVENT_BURST {
            let Some(event) = self.transport.poll_event() else { return };
            match event {
                Event::NeedsNeighbour(ip) => {
                    self.host.resolve(now, ip);
                    self.after_host();
                }
                Event::Management { .. } => self.counters.management += 1,
                // One that its owner gave up, as at every close, did not fail.
                Event::QpError { status: Status::WrFlushErr, .. } => {}
                Event::QpError { qp, .. } => self.watch.failed(qp),
                // Completions say the rest.
                _ => {}
            }
        }
    }

    #[inline]
    fn run_host(&mut self, now: Time, egress: &mut impl Egress<Packet>) {
        while let Some(peer) = self.to_confirm.pop() {
            self.host.confirm(now, peer);
        }
        if now >= self.host.next_timer() {
            self.host.poll(now);
        }
        if self.host.has_frame() || !self.answers.is_empty() {
            self.send_host_frames(egress);
        }
    }

    #[cold]
    fn send_host_frames(&mut self, egress: &mut impl Egress<Packet>) {
        while egress.room() > 0
            && let Some(answer) = self.answers.pop_at(0)
        {
            egress.push(answer).ok();
        }
        let mut bytes = [0; MAX_FRAME];
        while egress.room() > 0 && self.host.has_frame() {
            let Some(mut frame) = self.pool.alloc() else { return };
            let Some(len) = self.host.next_frame(&mut bytes) else { return };
            if let Some(room) = frame.append(len) {
                room.copy_from_slice(&bytes[..len]);
                egress.push(frame).ok();
            }
        }
    }
}

impl WorkerTransport for SoftWorker {
    #[inline]
    fn claim(&mut self, now: Time, frame: Packet) -> Option<Packet> {
        match self.host.sort(frame.first()) {
            Sort::Other => return Some(frame),
            Sort::Roce(bth) => self.steer(now, bth, frame),
            Sort::Host => self.read_as_host(now, frame),
            Sort::Returned => self.counters.not_wanted += 1,
            Sort::Overheard if self.host.is_from_neighbour(frame.first()) => self.read_as_host(now, frame),
            Sort::Overheard => {
                if let Some(copy) = self.copy(&frame) {
                    self.read_as_host(now, copy);
                }
                return Some(frame);
            }
        }
        None
    }

    fn publish(&self, tally: &mut Tally) {
        counts::publish(tally, self.transport.soft_counters(), &self.host.counters(), &self.counters);
    }

    fn record(&mut self) {
        self.watch.ask();
    }

    #[inline]
    fn has_work(&self, now: Time) -> bool {
        self.handover.has_some() || self.next_timer() <= now
    }
}

impl Transport for SoftWorker {
    type Buf = Packet;
    type Qp = SoftQp<Packet>;

    fn attach(&mut self, qp: SoftQp<Packet>) -> Result<QpId, SoftQp<Packet>> {
        if let Some(peer) = qp.peer()
            && !self.to_confirm.contains(&peer)
        {
            self.to_confirm.try_push(peer).ok();
        }
        let id = self.transport.attach(qp)?;
        self.watch.attach(id);
        Ok(id)
    }

    fn detach(&mut self, qp: QpId) -> Option<SoftQp<Packet>> {
        let detached = self.transport.detach(qp)?;
        self.watch.detach(qp);
        Some(detached)
    }

    #[inline]
    fn post_send(&mut self, qp: QpId, wr: SendWr<Packet>) -> Posted<SendWr<Packet>> {
        self.transport.post_send(qp, wr)
    }

    #[inline]
    fn post_recv(&mut self, qp: QpId, wr: RecvWr<Packet>) -> Posted<RecvWr<Packet>> {
        self.transport.post_recv(qp, wr)
    }

    #[inline]
    fn post_srq_recv(&mut self, srq: SrqId, wr: RecvWr<Packet>) -> Posted<RecvWr<Packet>> {
        self.transport.post_srq_recv(srq, wr)
    }

    #[inline]
    fn flush(&mut self, now: Time, egress: &mut impl Egress<Packet>) {
        if self.handover.has_others() {
            self.take_handed(now);
        }
        self.take_events(now);
        self.run_host(now, egress);
        self.transport.flush(now, egress);
        // After the NAK that a failed one still owed its peer.
        if self.watch.next_timer() <= now {
            self.watch.hand_out(now, &mut self.transport);
        }
    }

    #[inline]
    fn poll(&mut self, now: Time, out: &mut Completions<Packet>) -> usize {
        self.transport.poll(now, out)
    }

    /// A frame from a port that carries nothing but ours.
    #[inline]
    fn ingress(&mut self, now: Time, frame: Packet) {
        if frame.0.rx_ip_checksum() == Checksum::Bad {
            return self.counters.checksum += 1;
        }
        // To our address on the network and to a queue pair of this worker: there is nothing to sort or to steer.
        let Err(frame) = self.transport.ingress_from_peer(now, frame) else { return };
        match self.host.sort(frame.first()) {
            Sort::Roce(bth) => self.steer(now, bth, frame),
            Sort::Host | Sort::Overheard => self.read_as_host(now, frame),
            Sort::Returned | Sort::Other => self.counters.not_wanted += 1,
        }
    }

    fn state(&self, qp: QpId) -> Option<QpState> {
        self.transport.state(qp)
    }

    #[inline]
    fn send_room(&self, qp: QpId) -> usize {
        self.transport.send_room(qp)
    }

    #[inline]
    fn recv_room(&self, qp: QpId) -> usize {
        self.transport.recv_room(qp)
    }

    fn in_flight(&self, qp: QpId) -> usize {
        self.transport.in_flight(qp)
    }

    fn fail(&mut self, qp: QpId) {
        self.transport.fail(qp);
    }

    #[inline]
    fn next_timer(&self) -> Time {
        self.transport.next_timer().min(self.host.next_timer()).min(self.watch.next_timer())
    }

    fn counters(&self) -> Counters {
        self.transport.counters()
    }
}
