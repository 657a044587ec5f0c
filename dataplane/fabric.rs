//! A worker's transport, or none: sources and sinks have no RDMA side.

use crate::bridge::Packet;
use crate::stats::Tally;
use rdma_engine::buf::{Buf, Egress};
use rdma_engine::qp::QpState;
use rdma_engine::transport::{Completions, Counters, Posted, Transport};
use rdma_engine::types::Time;
use rdma_engine::wr::{QpId, RecvWr, Refusal, Refused, SendWr, SrqId};
use std::os::fd::RawFd;

/// What the loop of a worker asks of a transport beside [`Transport`]. Transports whose device has a port of its own
/// keep what is given here.
pub trait WorkerTransport: Transport<Buf = Packet> {
    /// A frame from a port that the transport shares with the service; what is the service's comes back.
    #[inline]
    fn claim(&mut self, now: Time, frame: Packet) -> Option<Packet> {
        let _ = now;
        Some(frame)
    }

    /// Shows what it counts.
    fn publish(&self, tally: &mut Tally) {
        let _ = tally;
    }

    /// Asks for a flight record of every queue pair, where the transport keeps them.
    fn record(&mut self) {}

    /// True if there is something to do without an event or a frame to say so.
    #[inline]
    fn has_work(&self, now: Time) -> bool {
        let _ = now;
        false
    }
}

impl WorkerTransport for rdma_engine::verbs::Verbs<Packet> {}

impl WorkerTransport for rdma_engine::loopback::LoopTransport<Packet> {}

impl<T: WorkerTransport> WorkerTransport for Fabric<T> {
    #[inline]
    fn claim(&mut self, now: Time, frame: Packet) -> Option<Packet> {
        match self {
            Fabric::Wired(t) => t.claim(now, frame),
            Fabric::None => Some(frame),
        }
    }

    fn publish(&self, tally: &mut Tally) {
        if let Fabric::Wired(t) = self {
            t.publish(tally);
        }
    }

    fn record(&mut self) {
        if let Fabric::Wired(t) = self {
            t.record();
        }
    }

    #[inline]
    fn has_work(&self, now: Time) -> bool {
        self.wired().is_some_and(|t| t.has_work(now))
    }
}

/// A transport that may be missing; a missing one refuses everything and completes nothing.
#[derive(Debug)]
pub enum Fabric<T> {
    /// The worker has a transport.
    Wired(T),
    /// It has none.
    None,
}

impl<T: Transport> Fabric<T> {
    fn wired(&self) -> Option<&T> {
        match self {
            Fabric::Wired(t) => Some(t),
            Fabric::None => None,
        }
    }

    fn wired_mut(&mut self) -> Option<&mut T> {
        match self {
            Fabric::Wired(t) => Some(t),
            Fabric::None => None,
        }
    }
}

fn unwired<W>(wr: W) -> Posted<W> {
    Err(Refused { wr, why: Refusal::Stale })
}

impl<B: Buf, T: Transport<Buf = B>> Transport for Fabric<T> {
    type Buf = B;
    type Qp = T::Qp;

    fn attach(&mut self, qp: T::Qp) -> Result<QpId, T::Qp> {
        match self {
            Fabric::Wired(t) => t.attach(qp),
            Fabric::None => Err(qp),
        }
    }

    fn detach(&mut self, qp: QpId) -> Option<T::Qp> {
        self.wired_mut()?.detach(qp)
    }

    #[inline]
    fn post_send(&mut self, qp: QpId, wr: SendWr<B>) -> Posted<SendWr<B>> {
        match self {
            Fabric::Wired(t) => t.post_send(qp, wr),
            Fabric::None => unwired(wr),
        }
    }

    #[inline]
    fn post_recv(&mut self, qp: QpId, wr: RecvWr<B>) -> Posted<RecvWr<B>> {
        match self {
            Fabric::Wired(t) => t.post_recv(qp, wr),
            Fabric::None => unwired(wr),
        }
    }

    #[inline]
    fn post_srq_recv(&mut self, srq: SrqId, wr: RecvWr<B>) -> Posted<RecvWr<B>> {
        match self {
            Fabric::Wired(t) => t.post_srq_recv(srq, wr),
            Fabric::None => unwired(wr),
        }
    }

    #[inline]
    fn flush(&mut self, now: Time, egress: &mut impl Egress<B>) {
        if let Fabric::Wired(t) = self {
            t.flush(now, egress);
        }
    }

    #[inline]
    fn poll(&mut self, now: Time, out: &mut Completions<B>) -> usize {
        self.wired_mut().map_or(0, |t| t.poll(now, out))
    }

    #[inline]
    fn ingress(&mut self, now: Time, frame: B) {
        if let Fabric::Wired(t) = self {
            t.ingress(now, frame);
        }
    }

    fn state(&self, qp: QpId) -> Option<QpState> {
        self.wired()?.state(qp)
    }

    #[inline]
    fn send_room(&self, qp: QpId) -> usize {
        self.wired().map_or(0, |t| t.send_room(qp))
    }

    #[inline]
    fn recv_room(&self, qp: QpId) -> usize {
        self.wired().map_or(0, |t| t.recv_room(qp))
    }

    fn in_flight(&self, qp: QpId) -> usize {
        self.wired().map_or(0, |t| t.in_flight(qp))
    }

    fn fail(&mut self, qp: QpId) {
        if let Fabric::Wired(t) = self {
            t.fail(qp);
        }
    }

    fn next_timer(&self) -> Time {
        self.wired().map_or(Time::NEVER, Transport::next_timer)
    }

    fn arm(&mut self) -> bool {
        // Without a transport there is nothing that could complete: it never forbids to sleep.
        self.wired_mut().is_none_or(Transport::arm)
    }

    fn event_fd(&self) -> Option<RawFd> {
        self.wired()?.event_fd()
    }

    fn acknowledge(&mut self) {
        if let Fabric::Wired(t) = self {
            t.acknowledge();
        }
    }

    fn recover_cq(&mut self, cq: u8) -> Result<String, String> {
        self.wired_mut().map_or_else(|| Err("no transport".into()), |t| t.recover_cq(cq))
    }

    fn counters(&self) -> Counters {
        self.wired().map_or_else(Counters::default, Transport::counters)
    }
}
