//! Giving up what the device has lost: one queue pair, or a completion queue with all on it.
//!
//! These are system calls on the worker's thread, in situations where its queue pairs are dead anyway.

use super::error::VerbsError;
use super::event::Owner;
use super::poll::CqSide;
use super::post::Short;
use super::srq::Srq;
use super::transport::{SrqSide, Verbs};
use crate::buf::Buf;
use crate::transport::Transport;
use crate::wr::{QpId, SrqId};
use std::sync::Arc;

/// What a rebuilt completion queue cost.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rebuilt {
    /// Queue pairs that were destroyed. What they had in flight completes as flushed in the next polls; then they can
    /// be detached, and connected anew.
    pub qps: Vec<QpId>,
    /// Shared receive queues that were made anew and are empty. Their buffers went home, or will when the last queue
    /// pair on the old one is destroyed.
    pub srqs: Vec<SrqId>,
}

impl<B: Buf> Verbs<B> {
    /// The device took only part of a batch, which fails the queue pair: the rest completes here, the first of it as a
    /// malformed request. Where what was taken can never be known to be done, the queue pair is destroyed.
    #[cold]
    pub(super) fn refused_by_device(&mut self, id: QpId, short: Short) {
        if short.in_doubt {
            self.evict(id);
        } else {
            self.fail(id);
        }
    }

    /// Destroys an attached queue pair at once. The device touches none of its buffers afterwards; they come back as
    /// flushed in the next polls, and the queue pair can be detached then. False if `qp` is stale.
    pub fn evict(&mut self, qp: QpId) -> bool {
        let Some(found) = self.table.qp_mut(qp) else { return false };
        // A failure has been said and counted, and its buffers given up.
        let _ = found.destroy();
        self.datagrams = self.table.datagrams();
        self.mark_failing(qp.slot);
        true
    }

    /// Replaces a completion queue that has overflowed ([`AsyncEvent::CqOverflow`](super::AsyncEvent::CqOverflow)) and
    /// evicts every queue pair on it, because their completions are lost. A shared receive queue that one of them used
    /// is replaced too, with the other queue pairs on it.
    pub fn rebuild_cq(&mut self, cq: u8) -> Result<Rebuilt, VerbsError> {
        let have = self.cqs.len();
        let worker = usize::from(self.queues.worker);
        let Some(side) = self.cqs.get(usize::from(cq)) else {
            return Err(VerbsError::UnknownQueue {
                worker,
                what: "completion queue",
                index: cq.into(),
                have,
            });
        };
        let old = Arc::clone(&side.cq);
        let mut lost = Rebuilt::default();
        self.collect(&mut lost, |qp| Arc::ptr_eq(&qp.cq, &old));
        for at in 0..self.srqs.len() {
            let srq = Arc::clone(&self.srqs[at].srq);
            let on_it = |qp: &super::Qp<B>| qp.srq.as_ref().is_some_and(|s| Arc::ptr_eq(s, &srq));
            if lost.qps.iter().any(|id| self.table.qp(*id).is_some_and(on_it)) {
                lost.srqs.push(SrqId(at as u16));
                self.collect(&mut lost, on_it);
            }
        }
        for id in &lost.qps {
            self.evict(*id);
        }
        for srq in &lost.srqs {
            self.replace_srq(*srq)?;
        }
        let owner = self.owner(cq.into());
        let new = old.again(owner)?;
        self.queues.replace_cq(cq.into(), &new);
        self.cqs[usize::from(cq)] = CqSide::new(new);
        Ok(lost)
    }

    fn owner(&self, index: u16) -> Owner {
        Owner { domain: self.pd.domain, worker: self.queues.worker, index }
    }

    fn collect(&self, lost: &mut Rebuilt, is_lost: impl Fn(&super::Qp<B>) -> bool) {
        let also: Vec<_> = self
            .table
            .ids()
            .filter(|id| !lost.qps.contains(id) && self.table.qp(*id).is_some_and(&is_lost))
            .collect();
        lost.qps.extend(also);
    }

    fn replace_srq(&mut self, id: SrqId) -> Result<(), VerbsError> {
        let at = usize::from(id.0);
        let owner = self.owner(id.0);
        let new = Srq::create(&self.pd, self.srqs[at].srq.spec, owner)?;
        self.queues.replace_srq(at, &new);
        // The evicted queue pairs still refer to the old one; it goes with the last of them.
        self.table.leave_srq(&self.srqs[at].srq);
        self.srqs[at] = SrqSide::new(new);
        Ok(())
    }
}
