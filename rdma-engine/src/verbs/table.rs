//! The queue pairs attached to a worker: found by slot and generation, or by number where receives are shared.

use super::qp::Qp;
use super::srq::Srq;
use crate::buf::Buf;
use crate::types::{QpType, Qpn};
use crate::wr::QpId;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// A place for a queue pair. The generation counts its users.
#[derive(Debug)]
struct Slot<B: Buf> {
    generation: u16,
    qp: Option<Qp<B>>,
}

/// All of them. Its size is fixed at the start.
#[derive(Debug)]
pub(super) struct Table<B: Buf> {
    slots: Vec<Slot<B>>,
    free: Vec<u16>,
    /// Slots of queue pairs on a shared receive queue, by number.
    numbers: HashMap<u32, u16, BuildHasherDefault<QpnHasher>>,
}

impl<B: Buf> Table<B> {
    pub(super) fn new(max_qps: u16) -> Self {
        Table {
            slots: (0..max_qps).map(|_| Slot { generation: 0, qp: None }).collect(),
            free: (0..max_qps).rev().collect(),
            numbers: HashMap::with_capacity_and_hasher(usize::from(max_qps), BuildHasherDefault::new()),
        }
    }

    /// True if no slot is free.
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Takes `qp` in.
    ///
    /// # Panics
    /// If there is no room.
    pub(super) fn insert(&mut self, qp: Qp<B>) -> QpId {
        let at = self.free.pop().expect("a free slot");
        if qp.srq.is_some() {
            self.numbers.insert(qp.qpn().value(), at);
        }
        let slot = &mut self.slots[usize::from(at)];
        slot.qp = Some(qp);
        QpId { slot: at, generation: slot.generation }
    }

    /// Takes the queue pair out; identifiers of it are stale from now on.
    pub(super) fn remove(&mut self, id: QpId) -> Option<Qp<B>> {
        self.qp(id)?;
        let slot = &mut self.slots[usize::from(id.slot)];
        let qp = slot.qp.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.slot);
        if qp.srq.is_some() {
            self.numbers.remove(&qp.qpn().value());
        }
        Some(qp)
    }

    #[inline]
    pub(super) fn qp(&self, id: QpId) -> Option<&Qp<B>> {
        let slot = self.slots.get(usize::from(id.slot))?;
        slot.qp.as_ref().filter(|_| slot.generation == id.generation)
    }

    #[inline]
    pub(super) fn qp_mut(&mut self, id: QpId) -> Option<&mut Qp<B>> {
        let slot = self.slots.get_mut(usize::from(id.slot))?;
        slot.qp.as_mut().filter(|_| slot.generation == id.generation)
    }

    /// Whoever is in this slot now.
    #[inline]
    pub(super) fn in_slot(&mut self, slot: u16) -> Option<(QpId, &mut Qp<B>)> {
        let place = self.slots.get_mut(usize::from(slot))?;
        let id = QpId { slot, generation: place.generation };
        place.qp.as_mut().map(|qp| (id, qp))
    }

    /// The queue pair of this number, if it shares its receives.
    #[inline]
    pub(super) fn sharing(&self, qpn: Qpn) -> Option<QpId> {
        let slot = *self.numbers.get(&qpn.value())?;
        Some(QpId { slot, generation: self.slots[usize::from(slot)].generation })
    }

    /// Takes destroyed queue pairs off a shared receive queue, so that it can go.
    pub(super) fn leave_srq(&mut self, srq: &Arc<Srq<B>>) {
        for qp in self.slots.iter_mut().filter_map(|s| s.qp.as_mut()) {
            if !qp.lives() && qp.srq.as_ref().is_some_and(|s| Arc::ptr_eq(s, srq)) {
                self.numbers.remove(&qp.qpn().value());
                qp.srq = None;
            }
        }
    }

    /// Datagrams queued or in flight, counted anew.
    pub(super) fn datagrams(&self) -> usize {
        let all = self.slots.iter().filter_map(|s| s.qp.as_ref());
        all.filter(|qp| qp.kind == QpType::Ud).map(|qp| qp.send.ring.len()).sum()
    }

    /// The identifiers of all of them.
    pub(super) fn ids(&self) -> impl Iterator<Item = QpId> + '_ {
        let taken = |(at, s): (usize, &Slot<B>)| {
            s.qp.is_some().then_some(QpId { slot: at as u16, generation: s.generation })
        };
        self.slots.iter().enumerate().filter_map(taken)
    }
}

/// Spreads 24-bit numbers by one multiplication.
#[derive(Default, Debug)]
struct QpnHasher(u64);

impl Hasher for QpnHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u32((*b).into()));
    }

    fn write_u32(&mut self, n: u32) {
        let mixed = (self.0 ^ u64::from(n)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ mixed >> 32;
    }
}
