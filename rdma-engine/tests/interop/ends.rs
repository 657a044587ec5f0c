//! One device type for both ends: kernel rxe through verbs, or RoCEv2 of our own.

use crate::arena_pool::{ArenaBuf, ArenaPool};
use rdma_engine::buf::Egress;
use rdma_engine::mem::{Access, Arena, Region};
use rdma_engine::qp::{AddressVector, Change, QpSpec, QpState};
use rdma_engine::soft::{SoftDevice, SoftError, SoftQp, SoftTransport};
use rdma_engine::transport::{Completions, Counters, Device, Posted, Transport, WorkerSpec};
use rdma_engine::types::{Gid, Qpn, Time};
use rdma_engine::verbs::{Qp, Verbs, VerbsDevice, VerbsError};
use rdma_engine::wr::{AhId, QpId, RecvWr, SendWr, SrqId};

/// One of each: devices, queue pairs, workers, errors.
pub enum Either<K, O> {
    Kernel(K),
    Own(O),
}

pub type EndDevice = Either<VerbsDevice<ArenaBuf>, SoftDevice<ArenaPool>>;
pub type EndQp = Either<Qp<ArenaBuf>, SoftQp<ArenaBuf>>;
pub type EndTransport = Either<Verbs<ArenaBuf>, SoftTransport<ArenaPool>>;

#[derive(Debug, thiserror::Error)]
pub enum EndError {
    #[error(transparent)]
    Kernel(#[from] VerbsError),
    #[error(transparent)]
    Own(#[from] SoftError),
    #[error("the queue pair is of the other end: modify it there")]
    Mixed,
}

macro_rules! either {
    ($of:expr, $inner:ident => $value:expr) => {
        match $of {
            Either::Kernel($inner) => $value,
            Either::Own($inner) => $value,
        }
    };
}

impl Transport for EndTransport {
    type Buf = ArenaBuf;
    type Qp = EndQp;

    fn attach(&mut self, qp: EndQp) -> Result<QpId, EndQp> {
        match (self, qp) {
            (Either::Kernel(t), Either::Kernel(qp)) => t.attach(qp).map_err(Either::Kernel),
            (Either::Own(t), Either::Own(qp)) => t.attach(qp).map_err(Either::Own),
            (_, qp) => Err(qp),
        }
    }

    fn detach(&mut self, qp: QpId) -> Option<EndQp> {
        match self {
            Either::Kernel(t) => t.detach(qp).map(Either::Kernel),
            Either::Own(t) => t.detach(qp).map(Either::Own),
        }
    }

    fn post_send(&mut self, qp: QpId, wr: SendWr<ArenaBuf>) -> Posted<SendWr<ArenaBuf>> {
        either!(self, t => t.post_send(qp, wr))
    }

    fn post_recv(&mut self, qp: QpId, wr: RecvWr<ArenaBuf>) -> Posted<RecvWr<ArenaBuf>> {
        either!(self, t => t.post_recv(qp, wr))
    }

    fn post_srq_recv(&mut self, srq: SrqId, wr: RecvWr<ArenaBuf>) -> Posted<RecvWr<ArenaBuf>> {
        either!(self, t => t.post_srq_recv(srq, wr))
    }

    fn flush(&mut self, now: Time, egress: &mut impl Egress<ArenaBuf>) {
        either!(self, t => t.flush(now, egress));
    }

    fn poll(&mut self, now: Time, out: &mut Completions<ArenaBuf>) -> usize {
        either!(self, t => t.poll(now, out))
    }

    fn ingress(&mut self, now: Time, frame: ArenaBuf) {
        either!(self, t => t.ingress(now, frame));
    }

    fn state(&self, qp: QpId) -> Option<QpState> {
        either!(self, t => t.state(qp))
    }

    fn send_room(&self, qp: QpId) -> usize {
        either!(self, t => t.send_room(qp))
    }

    fn recv_room(&self, qp: QpId) -> usize {
        either!(self, t => t.recv_room(qp))
    }

    fn in_flight(&self, qp: QpId) -> usize {
        either!(self, t => t.in_flight(qp))
    }

    fn fail(&mut self, qp: QpId) {
        either!(self, t => t.fail(qp));
    }

    fn next_timer(&self) -> Time {
        either!(self, t => t.next_timer())
    }

    fn counters(&self) -> Counters {
        either!(self, t => t.counters())
    }
}

impl Device for EndDevice {
    type Qp = EndQp;
    type Transport = EndTransport;
    type Error = EndError;

    fn create_worker(&self, worker: usize, spec: &WorkerSpec) -> Result<EndTransport, EndError> {
        Ok(match self {
            Either::Kernel(d) => Either::Kernel(d.create_worker(worker, spec)?),
            Either::Own(d) => Either::Own(d.create_worker(worker, spec)?),
        })
    }

    fn create_qp(&self, worker: usize, spec: &QpSpec) -> Result<EndQp, EndError> {
        Ok(match self {
            Either::Kernel(d) => Either::Kernel(d.create_qp(worker, spec)?),
            Either::Own(d) => Either::Own(d.create_qp(worker, spec)?),
        })
    }

    fn qpn(&self, qp: &EndQp) -> Qpn {
        match (self, qp) {
            (Either::Kernel(d), Either::Kernel(qp)) => d.qpn(qp),
            (Either::Own(d), Either::Own(qp)) => d.qpn(qp),
            _ => panic!("a queue pair of the other end"),
        }
    }

    fn modify(&self, qp: &mut EndQp, change: &Change) -> Result<(), EndError> {
        match (self, qp) {
            (Either::Kernel(d), Either::Kernel(qp)) => Ok(d.modify(qp, change)?),
            (Either::Own(d), Either::Own(qp)) => Ok(d.modify(qp, change)?),
            _ => Err(EndError::Mixed),
        }
    }

    fn destroy_qp(&self, qp: EndQp) -> Result<(), EndError> {
        match (self, qp) {
            (Either::Kernel(d), Either::Kernel(qp)) => Ok(d.destroy_qp(qp)?),
            (Either::Own(d), Either::Own(qp)) => Ok(d.destroy_qp(qp)?),
            _ => Err(EndError::Mixed),
        }
    }

    fn register(&self, arena: &Arena, access: Access) -> Result<Region, EndError> {
        Ok(either!(self, d => d.register(arena, access)?))
    }

    fn register_buffers(&self, arena: &Arena) -> Result<(), EndError> {
        either!(self, d => d.register_buffers(arena)?);
        Ok(())
    }

    fn create_ah(&self, worker: usize, path: &AddressVector) -> Result<AhId, EndError> {
        Ok(either!(self, d => d.create_ah(worker, path)?))
    }

    fn gid(&self) -> Gid {
        either!(self, d => d.gid())
    }
}
