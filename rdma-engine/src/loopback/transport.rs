//! The worker's side: its table of queue pairs and the queues they share.

use super::bells::Bells;
use super::keys::{KeyCache, Keys};
use super::qp::LoopQp;
use super::{flush, harvest, post};
use crate::buf::{Buf, Egress};
use crate::mem::KeyTable;
use crate::qp::QpState;
use crate::transport::{Completions, Counters, Posted, SrqSpec, Transport, WorkerSpec};
use crate::types::{Gid, Time};
use crate::wr::{AhId, Completion, Done, QpId, RecvWr, SendWr, SrqId, Status};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Address handles of a device.
#[derive(Clone, Debug, Default)]
pub(super) struct Handles {
    shared: Arc<Mutex<Vec<Gid>>>,
    /// A worker's copy; renewed when a handle is not in it.
    copy: Vec<Gid>,
}

impl Handles {
    pub(super) fn add(&self, gid: Gid) -> Option<AhId> {
        let mut all = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let id = u16::try_from(all.len()).ok()?;
        all.push(gid);
        Some(AhId(id))
    }

    /// The address behind a handle.
    pub(super) fn gid(&mut self, ah: AhId) -> Option<Gid> {
        if usize::from(ah.0) >= self.copy.len() {
            self.copy.clone_from(&self.shared.lock().unwrap_or_else(PoisonError::into_inner));
        }
        self.copy.get(usize::from(ah.0)).copied()
    }
}

/// Receives that any queue pair of the worker may take.
pub(super) struct Srq<B> {
    pub(super) queue: VecDeque<RecvWr<B>>,
    pub(super) depth: usize,
    pub(super) sge: u16,
}

struct Cq<B> {
    queue: VecDeque<Completion<B>>,
    depth: usize,
}

/// What the queue pairs of a worker share.
pub(super) struct Desk<B> {
    pub(super) bells: Arc<Bells>,
    pub(super) keys: KeyCache,
    pub(super) buffers: KeyTable,
    pub(super) handles: Handles,
    pub(super) srqs: Vec<Srq<B>>,
    cqs: Vec<Cq<B>>,
    pub(super) counters: Counters,
    /// Messages of unreliable queue pairs that were lost.
    pub(super) drops: u64,
    /// Slots with something to flush.
    pub(super) dirty: Vec<u16>,
    /// The earliest deadline of any queue pair, or earlier.
    pub(super) next_timer: Time,
}

impl<B> Desk<B> {
    pub(super) fn new(
        spec: &WorkerSpec,
        bells: Arc<Bells>,
        keys: Arc<Keys>,
        buffers: KeyTable,
        handles: Handles,
    ) -> Self {
        let cq = |depth: usize| Cq { queue: VecDeque::with_capacity(depth), depth };
        let srq = |s: &SrqSpec| Srq {
            queue: VecDeque::with_capacity(s.depth as usize),
            depth: s.depth as usize,
            sge: s.sge,
        };
        Desk {
            bells,
            keys: KeyCache::new(keys),
            buffers,
            handles,
            srqs: spec.srqs.iter().map(srq).collect(),
            cqs: spec.cqs.iter().map(|s| cq(s.depth as usize)).collect(),
            counters: Counters::default(),
            drops: 0,
            // What stays dirty is pushed behind what is looked at.
            dirty: Vec::with_capacity(2 * usize::from(spec.max_qps)),
            next_timer: Time::NEVER,
        }
    }

    /// True if the completion queue takes one more.
    #[inline]
    pub(super) fn has_room(&self, cq: usize) -> bool {
        self.cqs[cq].queue.len() < self.cqs[cq].depth
    }

    /// Queues a completion; there is room.
    #[inline]
    pub(super) fn complete(&mut self, cq: usize, completion: Completion<B>) {
        self.cqs[cq].queue.push_back(completion);
    }

    /// The worker looks at this queue pair again in its next poll.
    #[inline]
    pub(super) fn ring_again(&self, qp: QpId) {
        self.bells.ring(usize::from(qp.slot));
    }

    #[inline]
    fn count(&mut self, c: &Completion<B>) {
        match c.done {
            Done::Sent(_) => self.counters.sends_completed += 1,
            Done::Received(_) => self.counters.receives_completed += 1,
        }
        match c.status {
            Status::Success => {}
            Status::WrFlushErr => self.counters.flushed += 1,
            _ => self.counters.errors += 1,
        }
    }
}

struct Slot<B: Buf> {
    generation: u16,
    qp: Option<LoopQp<B>>,
}

/// A worker of a [`Loopback`](super::Loopback) device.
///
/// Dropping it destroys its queue pairs and frees every buffer in flight.
pub struct LoopTransport<B: Buf> {
    table: Vec<Slot<B>>,
    free: Vec<u16>,
    bells: Arc<Bells>,
    life: Arc<()>,
    desk: Desk<B>,
}

impl<B: Buf> fmt::Debug for LoopTransport<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.table.iter().filter_map(|s| s.qp.as_ref())).finish()
    }
}

impl<B: Buf> LoopTransport<B> {
    pub(super) fn new(max_qps: u16, bells: Arc<Bells>, desk: Desk<B>) -> Self {
        let table = (0..max_qps).map(|_| Slot { generation: 0, qp: None }).collect();
        LoopTransport { table, free: (0..max_qps).rev().collect(), bells, life: Arc::new(()), desk }
    }

    /// Tells whether this transport still exists.
    pub(super) fn life(&self) -> Weak<()> {
        Arc::downgrade(&self.life)
    }

    /// Messages that unreliable queue pairs of this worker lost: no receive, no room, no right, no peer.
    pub fn drops(&self) -> u64 {
        self.desk.drops
    }

    #[inline]
    fn qp(&self, id: QpId) -> Option<&LoopQp<B>> {
        let slot = self.table.get(usize::from(id.slot))?;
        slot.qp.as_ref().filter(|_| slot.generation == id.generation)
    }

    #[inline]
    fn qp_mut(&mut self, id: QpId) -> Option<(&mut LoopQp<B>, &mut Desk<B>)> {
        let slot = self.table.get_mut(usize::from(id.slot))?;
        let generation = slot.generation;
        slot.qp.as_mut().filter(|_| generation == id.generation).map(|qp| (qp, &mut self.desk))
    }
}

impl<B: Buf> Transport for LoopTransport<B> {
    type Buf = B;
    type Qp = LoopQp<B>;

    fn attach(&mut self, mut qp: LoopQp<B>) -> Result<QpId, LoopQp<B>> {
        // One that belongs to another worker would never be heard.
        if qp.state() == QpState::Reset || !qp.shared.hears(&self.bells) {
            return Err(qp);
        }
        let Some(slot) = self.free.pop() else { return Err(qp) };
        let place = &mut self.table[usize::from(slot)];
        qp.id = QpId { slot, generation: place.generation };
        let id = qp.id;
        qp.shared.set_slot(Some(slot));
        place.qp = Some(qp);
        Ok(id)
    }

    fn detach(&mut self, id: QpId) -> Option<LoopQp<B>> {
        if self.qp(id)?.in_flight() > 0 {
            return None;
        }
        let place = &mut self.table[usize::from(id.slot)];
        place.generation = place.generation.wrapping_add(1);
        let mut qp = place.qp.take()?;
        qp.shared.set_slot(None);
        qp.dirty = false;
        self.desk.dirty.retain(|s| *s != id.slot);
        self.free.push(id.slot);
        Some(qp)
    }

    #[inline]
    fn post_send(&mut self, id: QpId, wr: SendWr<B>) -> Posted<SendWr<B>> {
        match self.qp_mut(id) {
            Some((qp, desk)) => post::send(qp, desk, wr),
            None => Err(post::stale(wr)),
        }
    }

    #[inline]
    fn post_recv(&mut self, id: QpId, wr: RecvWr<B>) -> Posted<RecvWr<B>> {
        match self.qp_mut(id) {
            Some((qp, desk)) => post::recv(qp, desk, wr),
            None => Err(post::stale(wr)),
        }
    }

    #[inline]
    fn post_srq_recv(&mut self, srq: SrqId, wr: RecvWr<B>) -> Posted<RecvWr<B>> {
        post::srq_recv(&mut self.desk, srq, wr)
    }

    fn flush(&mut self, now: Time, _egress: &mut impl Egress<B>) {
        let LoopTransport { table, desk, .. } = self;
        // What has to stay dirty is pushed behind those that are looked at now.
        let listed = desk.dirty.len();
        for i in 0..listed {
            let slot = usize::from(desk.dirty[i]);
            if let Some(qp) = &mut table[slot].qp {
                flush::transmit(qp, desk);
            }
        }
        desk.dirty.drain(..listed);
        if now >= desk.next_timer {
            desk.next_timer = Time::NEVER;
            table.iter_mut().filter_map(|s| s.qp.as_mut()).for_each(|qp| flush::expire(qp, desk, now));
        }
    }

    fn poll(&mut self, now: Time, out: &mut Completions<B>) -> usize {
        let LoopTransport { table, bells, desk, .. } = self;
        desk.keys.renew();
        bells.answer(|slot| {
            if let Some(qp) = &mut table[slot].qp {
                harvest::visit(qp, desk, now);
            }
        });
        let before = out.len();
        'queues: for cq in 0..desk.cqs.len() {
            while let Some(c) = desk.cqs[cq].queue.front() {
                if out.is_full() {
                    break 'queues;
                }
                let own = desk.srqs.is_empty();
                let qp = table[usize::from(c.qp.slot)].qp.as_mut().filter(|q| q.id == c.qp);
                match (qp, c.done) {
                    (Some(qp), Done::Sent(_)) => qp.sends_out -= 1,
                    (Some(qp), Done::Received(_)) if own || qp.spec.srq.is_none() => qp.receives_out -= 1,
                    _ => {}
                }
                let c = desk.cqs[cq].queue.pop_front().expect("it was there");
                desk.count(&c);
                out.push(c);
            }
        }
        out.len() - before
    }

    fn state(&self, id: QpId) -> Option<QpState> {
        self.qp(id).map(LoopQp::state)
    }

    fn send_room(&self, id: QpId) -> usize {
        self.qp(id).map_or(0, |qp| (qp.spec.caps.send_depth - qp.sends_out) as usize)
    }

    fn recv_room(&self, id: QpId) -> usize {
        let own = self.qp(id).filter(|qp| qp.spec.srq.is_none());
        own.map_or(0, |qp| (qp.spec.caps.recv_depth - qp.receives_out) as usize)
    }

    fn in_flight(&self, id: QpId) -> usize {
        self.qp(id).map_or(0, LoopQp::in_flight)
    }

    fn fail(&mut self, id: QpId) {
        if let Some((qp, desk)) = self.qp_mut(id) {
            harvest::fail(qp, desk);
        }
    }

    fn next_timer(&self) -> Time {
        self.desk.next_timer
    }

    fn counters(&self) -> Counters {
        self.desk.counters
    }
}
