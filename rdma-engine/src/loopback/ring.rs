//! What two queue pairs share: the ring of flushed requests, and who they are.

use super::bells::Bells;
use super::datagram::Inbox;
use crate::inflight::InFlight;
use crate::qp::QpState;
use crate::types::{Gid, Psn, QpType, Qpn};
use crate::wr::{Cookie, Op, Status};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// No slot: the queue pair is not attached.
const NOWHERE: u32 = u32::MAX;
/// State of a queue pair that was destroyed.
const GONE: u8 = u8::MAX;

/// A flushed request. Its buffer stays here until it completes.
#[derive(Debug)]
pub(super) struct Entry<B> {
    pub(super) op: Op,
    pub(super) buf: B,
    pub(super) cookie: Cookie,
    /// First PSN it takes.
    pub(super) psn: Psn,
    /// Set when it is served.
    pub(super) status: Status,
}

/// Why the peer does not go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    /// It does.
    None,
    /// It has no receive for the next request: come again after so many nanoseconds.
    Rnr(u64),
    /// The next request is not the one it expects (PSN): it does not answer.
    Deaf,
    /// The queue pair failed: nothing more is served.
    Failed,
}

/// Flushed requests of one queue pair, served by its peer.
#[derive(Debug)]
pub(super) struct Ring<B> {
    pub(super) entries: InFlight<Entry<B>>,
    /// Index of the first entry that is not served.
    pub(super) next: u32,
    pub(super) hold: Hold,
}

impl<B> Ring<B> {
    /// Entries not yet served.
    #[inline]
    pub(super) fn unserved(&self) -> usize {
        self.entries.next_index().wrapping_sub(self.next) as usize
    }

    /// The next entry to serve.
    #[inline]
    pub(super) fn front(&mut self) -> Option<&mut Entry<B>> {
        self.entries.entry_mut(self.next)
    }

    /// The next entry is served, and ended so.
    #[inline]
    pub(super) fn served(&mut self, status: Status) {
        if let Some(entry) = self.entries.entry_mut(self.next) {
            entry.status = status;
            self.next = self.next.wrapping_add(1);
        }
    }

    /// All entries count as served: an unreliable peer lost them.
    pub(super) fn lose_all(&mut self) -> usize {
        let lost = self.unserved();
        (0..lost).for_each(|_| self.served(Status::Success));
        lost
    }

    /// The oldest entry, if it is served.
    #[inline]
    pub(super) fn pop_served(&mut self) -> Option<Entry<B>> {
        if self.entries.oldest_index() == self.next { None } else { self.entries.pop() }
    }

    /// The oldest entry, served or not; what was not served is flushed.
    pub(super) fn pop_any(&mut self) -> Option<Entry<B>> {
        if self.entries.oldest_index() == self.next {
            self.served(Status::WrFlushErr);
        }
        self.entries.pop()
    }

    /// As new, without completions.
    pub(super) fn clear(&mut self) {
        while self.entries.pop().is_some() {}
        self.next = self.entries.next_index();
        self.hold = Hold::None;
    }
}

/// A queue pair as others see it.
#[derive(Debug)]
pub(super) struct Shared<B> {
    pub(super) qpn: Qpn,
    pub(super) gid: Gid,
    pub(super) kind: QpType,
    pub(super) domain: u32,
    bells: Arc<Bells>,
    /// Its bell, or NOWHERE.
    slot: AtomicU32,
    /// A [`QpState`] or GONE; written by the owner.
    state: AtomicU8,
    /// The peer it is connected to; written by the owner.
    dest: AtomicU32,
    /// What datagrams must show; written by the owner.
    qkey: AtomicU32,
    ring: Mutex<Ring<B>>,
    /// Arrived datagrams; UD only.
    pub(super) inbox: Option<Mutex<Inbox>>,
}

/// The lock, if nobody holds it.
#[inline]
pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(p)) => Some(p.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl<B> Shared<B> {
    pub(super) fn new(
        (qpn, gid, kind, domain): (Qpn, Gid, QpType, u32),
        bells: Arc<Bells>,
        send_depth: u32,
        inbox: Option<Inbox>,
    ) -> Self {
        let ring = Ring { entries: InFlight::new(send_depth as usize), next: 0, hold: Hold::None };
        Shared {
            qpn,
            gid,
            kind,
            domain,
            bells,
            slot: AtomicU32::new(NOWHERE),
            state: AtomicU8::new(QpState::Reset as u8),
            dest: AtomicU32::new(0),
            qkey: AtomicU32::new(0),
            ring: Mutex::new(ring),
            inbox: inbox.map(Mutex::new),
        }
    }

    /// Tells its worker to look at this queue pair. What was written before is seen then.
    #[inline]
    pub(super) fn alert(&self) {
        // Pairs with the fence in `set_slot`: either this sees the slot, or the worker sees what was written before.
        fence(Ordering::SeqCst);
        let slot = self.slot.load(Ordering::Relaxed);
        if slot != NOWHERE {
            self.bells.ring(slot as usize);
        }
    }

    /// Attaches it to a slot, or detaches it.
    pub(super) fn set_slot(&self, slot: Option<u16>) {
        self.slot.store(slot.map_or(NOWHERE, u32::from), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if let Some(slot) = slot {
            self.bells.ring(usize::from(slot));
        }
    }

    /// True if it belongs to the worker with these bells.
    pub(super) fn hears(&self, bells: &Arc<Bells>) -> bool {
        Arc::ptr_eq(&self.bells, bells)
    }

    /// Its state; ERR when it is gone.
    #[inline]
    pub(super) fn state(&self) -> QpState {
        let state = self.state.load(Ordering::Acquire);
        QpState::ALL.get(usize::from(state)).copied().unwrap_or(QpState::Err)
    }

    pub(super) fn set_state(&self, state: QpState) {
        self.state.store(state as u8, Ordering::Release);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.state.load(Ordering::Acquire) == GONE
    }

    /// Destroyed: frees what is in the ring.
    pub(super) fn set_gone(&self) {
        self.set_slot(None);
        self.state.store(GONE, Ordering::Release);
        self.ring().clear();
    }

    #[inline]
    pub(super) fn dest(&self) -> Qpn {
        Qpn::new(self.dest.load(Ordering::Acquire))
    }

    pub(super) fn set_dest(&self, qpn: Qpn) {
        self.dest.store(qpn.value(), Ordering::Release);
    }

    #[inline]
    pub(super) fn qkey(&self) -> u32 {
        self.qkey.load(Ordering::Relaxed)
    }

    pub(super) fn set_qkey(&self, qkey: u32) {
        self.qkey.store(qkey, Ordering::Relaxed);
    }

    /// Its ring, for the rare cases that may wait.
    pub(super) fn ring(&self) -> MutexGuard<'_, Ring<B>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its ring, if nobody is at it.
    #[inline]
    pub(super) fn try_ring(&self) -> Option<MutexGuard<'_, Ring<B>>> {
        try_lock(&self.ring)
    }
}
