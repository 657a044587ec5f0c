//! Shared receive queues and the slab of their posted buffers.
#![allow(unsafe_code)] // reason: calls libibverbs.

use super::error::{VerbsError, check};
use super::event::Owner;
use super::ffi;
use super::pd::Pd;
use super::sge::Sge;
use crate::transport::SrqSpec;
use crate::wr::Cookie;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// A shared receive queue. Queue pairs hold references, so it is destroyed after them; the buffers left in it go home
/// after that.
#[derive(Debug)]
pub(super) struct Srq<B> {
    raw: NonNull<ffi::ibv_srq>,
    pub(super) spec: SrqSpec,
    pd: Arc<Pd>,
    /// What the worker left here when it stopped; empty as long as it runs.
    estate: Mutex<Option<Slab<B>>>,
}

// SAFETY: libibverbs locks its objects; every verb may be called from any thread. The buffers are Send and behind a
// mutex.
unsafe impl<B: Send> Send for Srq<B> {}
// SAFETY: as above.
unsafe impl<B: Send> Sync for Srq<B> {}

impl<B> Srq<B> {
    pub(super) fn create(pd: &Arc<Pd>, spec: SrqSpec, owner: Owner) -> Result<Arc<Self>, VerbsError> {
        let limits = &pd.context.limits;
        pd.context.within("shared receive queue depth", spec.depth.into(), limits.srq_depth.into())?;
        pd.context.within("segments of a shared receive", spec.sge.into(), limits.srq_sge.into())?;
        let attr = ffi::ibv_srq_attr { max_wr: spec.depth, max_sge: spec.sge.into(), srq_limit: 0 };
        let mut init = ffi::ibv_srq_init_attr { srq_context: owner.pack(), attr };
        // SAFETY: the domain lives, `init` is filled.
        let raw = NonNull::new(unsafe { ffi::ibv_create_srq(pd.raw(), &mut init) }).ok_or_else(|| {
            VerbsError::CreateSrq { depth: spec.depth, sge: spec.sge, source: io::Error::last_os_error() }
        })?;
        Ok(Arc::new(Srq { raw, spec, pd: Arc::clone(pd), estate: Mutex::new(None) }))
    }

    pub(super) fn raw(&self) -> *mut ffi::ibv_srq {
        self.raw.as_ptr()
    }

    /// Asks for an event when fewer than `limit` receives are left.
    pub(super) fn arm_limit(&self, limit: u32) -> Result<(), VerbsError> {
        let mut attr = ffi::ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: limit };
        let mask = ffi::ibv_srq_attr_mask::IBV_SRQ_LIMIT;
        // SAFETY: the queue lives.
        check(unsafe { ffi::ibv_modify_srq(self.raw(), &mut attr, mask.0 as i32) })
            .map_err(|source| VerbsError::ModifySrq { source })
    }

    /// Leaves the posted buffers to be let go of when the queue is destroyed.
    pub(super) fn bequeath(&self, slab: Slab<B>) {
        *self.estate.lock().unwrap_or_else(PoisonError::into_inner) = Some(slab);
    }
}

impl<B> Drop for Srq<B> {
    fn drop(&mut self) {
        // SAFETY: created by us; the queue pairs on it held references to us and are gone.
        let rc = unsafe { ffi::ibv_destroy_srq(self.raw()) };
        let Err(e) = check(rc) else { return };
        super::event::say_once("cannot destroy a shared receive queue; its buffers are given up", &e);
        let estate = self.estate.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(slab) = estate {
            self.pd.context.give_up(slab.len());
            std::mem::forget(slab);
        }
    }
}

/// A receive on a shared queue.
#[derive(Debug)]
pub(super) struct Shared<B> {
    pub(super) buf: B,
    pub(super) cookie: Cookie,
    pub(super) first: Sge,
    pub(super) sges: u16,
}

/// Receives of a shared queue: they complete in any order.
#[derive(Debug)]
pub(super) struct Slab<B> {
    entries: Box<[Option<Shared<B>>]>,
    free: Vec<u32>,
}

impl<B> Slab<B> {
    pub(super) fn new(depth: u32) -> Self {
        Slab { entries: (0..depth).map(|_| None).collect(), free: (0..depth).rev().collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// The place of the new entry, or the entry back when there is none.
    #[inline]
    pub(super) fn insert(&mut self, entry: Shared<B>) -> Result<u32, Shared<B>> {
        let Some(at) = self.free.pop() else { return Err(entry) };
        self.entries[at as usize] = Some(entry);
        Ok(at)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Shared<B>> {
        self.entries.get_mut(at as usize)?.as_mut()
    }

    #[inline]
    pub(super) fn remove(&mut self, at: u32) -> Option<Shared<B>> {
        let entry = self.entries.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sge::NO_SGE;
    use super::*;

    fn entry(n: u64) -> Shared<u64> {
        Shared { buf: n, cookie: Cookie(n), first: NO_SGE, sges: 0 }
    }

    #[test]
    fn a_slab_is_bounded_and_forgets_what_it_gave() {
        let mut slab = Slab::new(2);
        let (a, b) = (slab.insert(entry(1)).unwrap(), slab.insert(entry(2)).unwrap());
        assert_eq!(slab.insert(entry(3)).unwrap_err().buf, 3);
        assert_eq!(slab.remove(a).unwrap().buf, 1);
        assert!(slab.remove(a).is_none() && slab.remove(99).is_none());
        assert_eq!((slab.len(), slab.get_mut(b).unwrap().buf), (1, 2));
    }
}
