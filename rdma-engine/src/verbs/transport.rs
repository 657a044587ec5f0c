//! A worker's side of the verbs transport.

use super::ah::AhTable;
use super::check::Checks;
use super::cq::Channel;
use super::device::WorkerQueues;
use super::pd::Pd;
use super::poll::CqSide;
use super::post::Stage;
use super::qp::{Qp, Receiving, Sending};
use super::sge::{NO_SGE, Sge};
use super::srq::{Shared, Slab, Srq};
use super::table::Table;
use crate::buf::{Buf, Egress};
use crate::mem::KeyTable;
use crate::qp::QpState;
use crate::transport::{Completions, Counters, Posted, Transport};
use crate::types::{QpType, Qpn, Time};
use crate::wr::{QpId, RecvWr, Refusal, Refused, SendWr, SrqId};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Segments of a chain at most, whatever the device takes.
pub(super) const SEGMENTS_MOST: usize = 256;

/// The transport of one worker on libibverbs.
///
/// Belongs to one thread at a time; nothing here takes a lock between posting and polling.
#[derive(Debug)]
pub struct Verbs<B: Buf> {
    // Declared, and so dropped, before the queues that the queue pairs use.
    pub(super) table: Table<B>,
    pub(super) srqs: Vec<SrqSide<B>>,
    pub(super) cqs: Vec<CqSide>,
    pub(super) channel: Option<Arc<Channel>>,
    /// Slots of queue pairs with something to put on the device, each once.
    dirty: Vec<u16>,
    /// Slots of queue pairs in ERR with requests that are flushed here, each once.
    pub(super) failing: Vec<u16>,
    pub(super) stage: Stage,
    scratch: Box<[Sge]>,
    keys: KeyTable,
    ahs: Arc<AhTable>,
    /// Datagrams queued or in flight.
    pub(super) datagrams: usize,
    /// A datagram queue pair was attached, so address handles are used.
    uses_ahs: bool,
    pub(super) counters: Counters,
    pub(super) queues: Arc<WorkerQueues<B>>,
    pub(super) pd: Arc<Pd>,
}

/// A shared receive queue with its posted buffers.
#[derive(Debug)]
pub(super) struct SrqSide<B: Buf> {
    pub(super) srq: Arc<Srq<B>>,
    pub(super) slab: Slab<B>,
    /// Places in the slab of what waits for `flush`.
    pub(super) waiting: Vec<u32>,
}

impl<B: Buf> SrqSide<B> {
    pub(super) fn new(srq: Arc<Srq<B>>) -> Self {
        let depth = srq.spec.depth;
        SrqSide { srq, slab: Slab::new(depth), waiting: Vec::with_capacity(depth as usize) }
    }

    /// Lets go of the queue: its buffers go home when the last queue pair on it is gone.
    pub(super) fn retire(&mut self) {
        self.srq.bequeath(std::mem::replace(&mut self.slab, Slab::new(0)));
    }
}

impl<B: Buf> Drop for SrqSide<B> {
    fn drop(&mut self) {
        self.retire();
    }
}

/// What a transport is made of.
pub(super) struct Parts<B: Buf> {
    pub(super) pd: Arc<Pd>,
    pub(super) queues: Arc<WorkerQueues<B>>,
    pub(super) channel: Option<Arc<Channel>>,
    pub(super) keys: KeyTable,
    pub(super) max_qps: u16,
}

impl<B: Buf> Verbs<B> {
    pub(super) fn new(parts: Parts<B>) -> Self {
        let Parts { pd, queues, channel, keys, max_qps } = parts;
        let (cqs, srqs) = queues.all();
        let mut stage = Stage::new();
        srqs.iter().for_each(|s| stage.fit_recvs(s.spec.depth, s.spec.sge));
        Verbs {
            table: Table::new(max_qps),
            srqs: srqs.into_iter().map(SrqSide::new).collect(),
            cqs: cqs.into_iter().map(CqSide::new).collect(),
            channel,
            dirty: Vec::with_capacity(max_qps.into()),
            failing: Vec::with_capacity(max_qps.into()),
            stage,
            scratch: vec![NO_SGE; SEGMENTS_MOST].into_boxed_slice(),
            keys,
            ahs: Arc::clone(&queues.ahs),
            datagrams: 0,
            uses_ahs: false,
            counters: Counters::default(),
            queues,
            pd,
        }
    }

    /// Number of an attached queue pair; `None` if `qp` is stale.
    pub fn qpn(&self, qp: QpId) -> Option<Qpn> {
        Some(self.table.qp(qp)?.qpn())
    }

    /// Something of a queue pair is done: a fenced request may be next.
    #[inline]
    pub(super) fn release_held(&mut self, id: QpId) {
        if let Some(qp) = self.table.qp_mut(id)
            && std::mem::take(&mut qp.held)
        {
            Self::mark_dirty(&mut self.dirty, qp, id.slot);
        }
    }

    #[inline]
    fn mark_dirty(dirty: &mut Vec<u16>, qp: &mut Qp<B>, slot: u16) {
        if !qp.dirty {
            qp.dirty = true;
            dirty.push(slot);
        }
    }

    /// Has the waiting requests of a queue pair in ERR completed by the next polls.
    #[cold]
    pub(super) fn mark_failing(&mut self, slot: u16) {
        if let Some((_, qp)) = self.table.in_slot(slot)
            && !qp.failing
        {
            qp.failing = true;
            self.failing.push(slot);
        }
    }

    /// Puts posted receives on their queues and leaves sends waiting for `flush`: where a peer may send at once, all
    /// queue pairs have their receives before the first word goes out.
    pub fn flush_receives(&mut self) {
        for at in 0..self.dirty.len() {
            self.ring_receives(self.dirty[at]);
        }
        self.ring_shared();
    }

    /// Puts what waits in one slot on the device: receives first, so that an answer finds them.
    #[inline]
    fn ring(&mut self, slot: u16) {
        self.ring_receives(slot);
        let Some((id, qp)) = self.table.in_slot(slot) else { return };
        qp.dirty = false;
        if qp.state == QpState::Err {
            return self.mark_failing(slot);
        }
        let n = qp.sendable();
        qp.held = n < qp.send.waiting();
        if n > 0 {
            self.counters.doorbells += 1;
            if let Err(short) = self.stage.ring_sends(id, (qp, n), &mut self.keys, &self.ahs) {
                self.refused_by_device(id, short);
            }
        }
    }

    #[inline]
    fn ring_receives(&mut self, slot: u16) {
        let Some((id, qp)) = self.table.in_slot(slot) else { return };
        if qp.recv.waiting() == 0 || qp.state == QpState::Err {
            return;
        }
        self.counters.doorbells += 1;
        if let Err(short) = self.stage.ring_recvs(id, qp, &mut self.keys) {
            self.refused_by_device(id, short);
        }
    }

    /// Puts waiting receives on the shared queues.
    #[inline]
    fn ring_shared(&mut self) {
        for (at, side) in self.srqs.iter_mut().enumerate() {
            if side.waiting.is_empty() {
                continue;
            }
            let SrqSide { srq, slab, waiting } = side;
            let taken = match self.stage.ring_shared((at as u16, srq), slab, waiting, &mut self.keys) {
                Ok(()) => waiting.len(),
                Err(short) => short.taken as usize,
            };
            self.counters.doorbells += 1;
            // Receives complete in any order, so the rest may wait for the next turn.
            waiting.drain(..taken);
        }
    }
}

impl<B: Buf> Transport for Verbs<B> {
    type Buf = B;
    type Qp = Qp<B>;

    fn attach(&mut self, qp: Qp<B>) -> Result<QpId, Qp<B>> {
        // A queue pair made before its completion queue was rebuilt is of no use.
        let current = self.cqs.get(usize::from(qp.cq_index)).is_some_and(|s| Arc::ptr_eq(&s.cq, &qp.cq));
        let sge = usize::from(qp.caps.send_sge.max(qp.caps.recv_sge));
        if !current || qp.state == QpState::Reset || sge > SEGMENTS_MOST || self.table.is_full() {
            return Err(qp);
        }
        self.stage.fit_sends(qp.caps.send_depth, qp.caps.send_sge);
        self.stage.fit_recvs(qp.caps.recv_depth, qp.caps.recv_sge);
        self.uses_ahs |= qp.kind == QpType::Ud;
        Ok(self.table.insert(qp))
    }

    fn detach(&mut self, id: QpId) -> Option<Qp<B>> {
        let qp = self.table.qp(id)?;
        if !qp.send.ring.is_empty() || !qp.recv.ring.is_empty() {
            return None;
        }
        self.dirty.retain(|slot| *slot != id.slot);
        self.failing.retain(|slot| *slot != id.slot);
        let mut qp = self.table.remove(id)?;
        (qp.dirty, qp.failing) = (false, false);
        Some(qp)
    }

    #[inline]
    fn post_send(&mut self, id: QpId, mut wr: SendWr<B>) -> Posted<SendWr<B>> {
        let Some(qp) = self.table.qp_mut(id) else { return Err(Refused { wr, why: Refusal::Stale }) };
        let mut checks = Checks { keys: &mut self.keys, ahs: &self.ahs, scratch: &mut self.scratch };
        let (first, sges, flags) = match checks.send(qp, &mut wr) {
            Ok(laid) => laid,
            Err(why) => return Err(Refused { wr, why }),
        };
        let SendWr { op, buf, cookie, fence, solicited, ud } = wr;
        let entry = Sending { op, buf, cookie, ud, first, sges, flags };
        if let Err(Sending { op, buf, cookie, ud, .. }) = qp.send.ring.push(entry) {
            let wr = SendWr { op, buf, cookie, fence, solicited, ud };
            return Err(Refused { wr, why: Refusal::Full });
        }
        self.datagrams += usize::from(ud.is_some());
        self.counters.sends_posted += 1;
        Self::mark_dirty(&mut self.dirty, qp, id.slot);
        Ok(())
    }

    #[inline]
    fn post_recv(&mut self, id: QpId, mut wr: RecvWr<B>) -> Posted<RecvWr<B>> {
        let Some(qp) = self.table.qp_mut(id) else { return Err(Refused { wr, why: Refusal::Stale }) };
        let mut checks = Checks { keys: &mut self.keys, ahs: &self.ahs, scratch: &mut self.scratch };
        let (first, sges) = match checks.recv(qp, &mut wr) {
            Ok(laid) => laid,
            Err(why) => return Err(Refused { wr, why }),
        };
        let entry = Receiving { buf: wr.buf, cookie: wr.cookie, first, sges };
        if let Err(Receiving { buf, cookie, .. }) = qp.recv.ring.push(entry) {
            return Err(Refused { wr: RecvWr { buf, cookie }, why: Refusal::Full });
        }
        self.counters.receives_posted += 1;
        Self::mark_dirty(&mut self.dirty, qp, id.slot);
        Ok(())
    }

    #[inline]
    fn post_srq_recv(&mut self, srq: SrqId, mut wr: RecvWr<B>) -> Posted<RecvWr<B>> {
        let Some(side) = self.srqs.get_mut(usize::from(srq.0)) else {
            return Err(Refused { wr, why: Refusal::Stale });
        };
        let mut checks = Checks { keys: &mut self.keys, ahs: &self.ahs, scratch: &mut self.scratch };
        let (first, sges) = match checks.shared(&side.srq, &mut wr) {
            Ok(laid) => laid,
            Err(why) => return Err(Refused { wr, why }),
        };
        match side.slab.insert(Shared { buf: wr.buf, cookie: wr.cookie, first, sges }) {
            Ok(place) => side.waiting.push(place),
            Err(Shared { buf, cookie, .. }) => {
                return Err(Refused { wr: RecvWr { buf, cookie }, why: Refusal::Full });
            }
        }
        self.counters.receives_posted += 1;
        Ok(())
    }

    #[inline]
    fn flush(&mut self, _now: Time, _egress: &mut impl Egress<B>) {
        for at in 0..self.dirty.len() {
            self.ring(self.dirty[at]);
        }
        self.dirty.clear();
        if !self.srqs.is_empty() {
            self.ring_shared();
        }
        if self.uses_ahs && self.datagrams == 0 {
            self.ahs.rest();
        }
    }

    #[inline]
    fn poll(&mut self, _now: Time, out: &mut Completions<B>) -> usize {
        let before = out.len();
        for c in 0..self.cqs.len() {
            self.drain(c, out);
        }
        if !self.failing.is_empty() {
            self.flush_failing(out);
        }
        out.len() - before
    }

    fn state(&self, qp: QpId) -> Option<QpState> {
        Some(self.table.qp(qp)?.state)
    }

    #[inline]
    fn send_room(&self, qp: QpId) -> usize {
        self.table.qp(qp).map_or(0, |qp| qp.send.ring.room())
    }

    #[inline]
    fn recv_room(&self, qp: QpId) -> usize {
        self.table.qp(qp).filter(|qp| qp.srq.is_none()).map_or(0, |qp| qp.recv.ring.room())
    }

    fn in_flight(&self, qp: QpId) -> usize {
        self.table.qp(qp).map_or(0, |qp| qp.send.ring.len() + qp.recv.ring.len())
    }

    fn fail(&mut self, id: QpId) {
        let Some(qp) = self.table.qp_mut(id) else { return };
        qp.fail();
        self.mark_failing(id.slot);
    }

    fn arm(&mut self) -> bool {
        if self.cqs.is_empty() || !self.failing.is_empty() {
            return false;
        }
        // All are armed before any is looked at: a completion that comes in between makes an event.
        self.cqs.iter().all(|side| side.cq.arm())
            && !self.cqs.iter_mut().any(|side| side.has_some(usize::MAX))
    }

    fn event_fd(&self) -> Option<RawFd> {
        self.channel.as_ref().map(|c| c.fd())
    }

    fn acknowledge(&mut self) {
        // Each armed queue makes one event at most.
        if let Some(channel) = &self.channel {
            channel.acknowledge(2 * self.cqs.len());
        }
    }

    fn counters(&self) -> Counters {
        Counters { leaked: self.pd.context.leaked.load(Ordering::Relaxed), ..self.counters }
    }
}
