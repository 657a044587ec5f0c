//! Posting: requests are checked and taken in at once, put on the device by `flush`, one doorbell per queue pair.
#![allow(unsafe_code)] // reason: fills C structures and calls libibverbs.

use super::ah::AhTable;
use super::check::{Flags, flag};
use super::ffi;
use super::qp::{FENCE, Qp, Receiving, Sending};
use super::sge::{NO_SGE, Sge, contents, keyed, spare, spare_behind_grh, unkeyed};
use super::srq::{Shared, Slab, Srq};
use super::wrid::{Queue, WrId};
use crate::buf::Buf;
use crate::mem::KeyTable;
use crate::types::QpType;
use crate::wr::{Op, QpId};

/// Room to build the requests of one queue pair, shared by all of a worker.
pub(super) struct Stage {
    sends: Vec<ffi::ibv_send_wr>,
    recvs: Vec<ffi::ibv_recv_wr>,
    sges: Vec<Sge>,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sends, recvs, sges) = (self.sends.len(), self.recvs.len(), self.sges.len());
        write!(f, "Stage {{ sends: {sends}, recvs: {recvs}, sges: {sges} }}")
    }
}

// SAFETY: the pointers in it are written and used within one call.
unsafe impl Send for Stage {}

impl Stage {
    pub(super) const fn new() -> Self {
        Stage { sends: Vec::new(), recvs: Vec::new(), sges: Vec::new() }
    }

    /// Makes room for a queue of `depth` requests with `sge` segments each. Not on the fast path.
    pub(super) fn fit_sends(&mut self, depth: u32, sge: u16) {
        while self.sends.len() < depth as usize {
            // SAFETY: plain numbers, unions of them and null pointers, for which zero is a value.
            self.sends.push(unsafe { std::mem::zeroed() });
        }
        self.fit_sges(depth, sge);
    }

    /// The same for receives.
    pub(super) fn fit_recvs(&mut self, depth: u32, sge: u16) {
        while self.recvs.len() < depth as usize {
            // SAFETY: as above.
            self.recvs.push(unsafe { std::mem::zeroed() });
        }
        self.fit_sges(depth, sge);
    }

    fn fit_sges(&mut self, depth: u32, sge: u16) {
        let most = depth as usize * usize::from(sge.max(1));
        self.sges.resize(self.sges.len().max(most), NO_SGE);
    }
}

/// The device did not take all requests of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Short {
    /// How many it took.
    pub(super) taken: u32,
    /// The last one it took is not signalled, so nothing will ever say that it is done.
    pub(super) in_doubt: bool,
}

impl Short {
    /// None at all.
    const NONE: Short = Short { taken: 0, in_doubt: false };
}

impl Stage {
    /// Puts the first `n` waiting sends of a queue pair on its device: one doorbell. They must not be more than `fit_sends`
    /// was told.
    #[inline]
    pub(super) fn ring_sends<B: Buf>(
        &mut self,
        id: QpId,
        (qp, n): (&mut Qp<B>, u32),
        keys: &mut KeyTable,
        ahs: &AhTable,
    ) -> Result<(), Short> {
        let first = qp.send.waiting_from;
        let kept = if qp.software_fences { !FENCE } else { !0 };
        let mut used = 0;
        for k in 0..n {
            let index = first.wrapping_add(k);
            let Some(entry) = qp.send.ring.entry_mut(index) else { return Err(Short::NONE) };
            let at = used;
            used += lay_send(entry, keys, &mut self.sges[at..]).ok_or(Short::NONE)?;
            qp.unsignalled += 1;
            let signal = k + 1 == n || qp.unsignalled >= qp.caps.signal_every;
            if signal {
                qp.unsignalled = 0;
            }
            let wr = &mut self.sends[k as usize];
            wr.wr_id = WrId::new(Queue::Send, id.slot, id.generation, index).pack();
            wr.sg_list = self.sges.as_mut_ptr().wrapping_add(at).cast();
            wr.num_sge = i32::from(entry.sges);
            wr.send_flags = entry.flags & kept | flag(signal, Flags::IBV_SEND_SIGNALED);
            operands(wr, entry, ahs);
        }
        let rc = self.post_sends(qp, n);
        qp.send.advance(n, rc)
    }

    fn post_sends<B: Buf>(&mut self, qp: &Qp<B>, n: u32) -> Result<(), Short> {
        let base = self.sends.as_mut_ptr();
        // SAFETY: `n` is at most the length; each request points to the next one of the same array. The buffers they
        // name are owned by the ring until their completion or the end of the queue pair.
        unsafe {
            for k in 0..n as usize {
                (*base.add(k)).next = base.add(k + 1);
            }
            (*base.add(n as usize - 1)).next = std::ptr::null_mut();
            let mut bad = std::ptr::null_mut();
            if ffi::ibv_post_send(qp.raw(), base, &mut bad) == 0 {
                return Ok(());
            }
            let taken = taken(base, bad, n);
            let signalled = |k: u32| (*base.add(k as usize)).send_flags & Flags::IBV_SEND_SIGNALED.0 != 0;
            // The last request of the batch before was signalled.
            Err(Short { taken, in_doubt: taken > 0 && !signalled(taken - 1) })
        }
    }

    /// Puts the waiting receives of a queue pair on its device.
    #[inline]
    pub(super) fn ring_recvs<B: Buf>(
        &mut self,
        id: QpId,
        qp: &mut Qp<B>,
        keys: &mut KeyTable,
    ) -> Result<(), Short> {
        let (n, first) = (qp.recv.waiting(), qp.recv.waiting_from);
        let grh = qp.kind == QpType::Ud;
        let mut used = 0;
        for k in 0..n {
            let index = first.wrapping_add(k);
            let Some(entry) = qp.recv.ring.entry_mut(index) else { return Err(Short::NONE) };
            let (at, Receiving { buf, first, sges, .. }) = (used, entry);
            used += lay_recv(buf, grh, (*first, *sges), keys, &mut self.sges[at..]).ok_or(Short::NONE)?;
            let wr = &mut self.recvs[k as usize];
            wr.wr_id = WrId::new(Queue::Recv, id.slot, id.generation, index).pack();
            wr.sg_list = self.sges.as_mut_ptr().wrapping_add(at).cast();
            wr.num_sge = i32::from(*sges);
        }
        let raw = qp.raw();
        // SAFETY: the queue pair lives; the function is its context's own.
        let rc = self.post_recvs(n, |wr, bad| unsafe { ffi::ibv_post_recv(raw, wr, bad) });
        qp.recv.advance(n, rc)
    }

    /// Puts the entries `waiting` of a shared queue on its device; how many were not taken.
    pub(super) fn ring_shared<B: Buf>(
        &mut self,
        srq: (u16, &Srq<B>),
        slab: &mut Slab<B>,
        waiting: &[u32],
        keys: &mut KeyTable,
    ) -> Result<(), Short> {
        let mut used = 0;
        for (k, place) in waiting.iter().enumerate() {
            let Some(Shared { buf, first, sges, .. }) = slab.get_mut(*place) else { return Err(Short::NONE) };
            let at = used;
            used += lay_recv(buf, false, (*first, *sges), keys, &mut self.sges[at..]).ok_or(Short::NONE)?;
            let wr = &mut self.recvs[k];
            wr.wr_id = WrId::new(Queue::Shared, srq.0, 0, *place).pack();
            wr.sg_list = self.sges.as_mut_ptr().wrapping_add(at).cast();
            wr.num_sge = i32::from(*sges);
        }
        // SAFETY: the queue lives; the function is its context's own.
        self.post_recvs(waiting.len() as u32, |wr, bad| unsafe {
            ffi::ibv_post_srq_recv(srq.1.raw(), wr, bad)
        })
    }

    fn post_recvs(
        &mut self,
        n: u32,
        post: impl FnOnce(*mut ffi::ibv_recv_wr, *mut *mut ffi::ibv_recv_wr) -> i32,
    ) -> Result<(), Short> {
        let base = self.recvs.as_mut_ptr();
        // SAFETY: as in `post_sends`.
        unsafe {
            for k in 0..n as usize {
                (*base.add(k)).next = base.add(k + 1);
            }
            (*base.add(n as usize - 1)).next = std::ptr::null_mut();
            let mut bad = std::ptr::null_mut();
            if post(base, &mut bad) == 0 {
                return Ok(());
            }
            Err(Short { taken: taken(base, bad, n), in_doubt: false })
        }
    }
}

/// Requests in front of the one that was refused.
///
/// # Safety
/// `bad` is null or points into the `n` requests from `base`.
unsafe fn taken<T>(base: *mut T, bad: *mut T, n: u32) -> u32 {
    if bad.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    let at = unsafe { bad.offset_from(base) };
    u32::try_from(at).map_or(0, |at| at.min(n))
}

/// Writes the segments of a send; how many. One alone was kept when the request was taken; a chain and bytes that the
/// CPU copies are looked at again.
#[inline]
fn lay_send<B: Buf>(entry: &mut Sending<B>, keys: &mut KeyTable, out: &mut [Sge]) -> Option<usize> {
    let out = &mut out[..usize::from(entry.sges)];
    let is_inline = entry.flags & Flags::IBV_SEND_INLINE.0 != 0;
    let n = match (entry.sges, is_inline) {
        (0, _) => 0,
        (_, true) => unkeyed(contents(&entry.buf), out).ok()?,
        (1, false) => {
            out[0] = entry.first;
            1
        }
        (_, false) if entry.op.fills_buffer() => {
            keyed(spare(&mut entry.buf, entry.op.response_len() as usize), keys, out).ok()?
        }
        (_, false) => keyed(contents(&entry.buf), keys, out).ok()?,
    };
    (n == usize::from(entry.sges)).then_some(n)
}

/// Writes the segments of a receive; how many.
#[inline]
fn lay_recv<B: Buf>(
    buf: &mut B,
    grh: bool,
    (first, sges): (Sge, u16),
    keys: &mut KeyTable,
    out: &mut [Sge],
) -> Option<usize> {
    let out = &mut out[..usize::from(sges)];
    let n = match sges {
        0 => 0,
        1 => {
            out[0] = first;
            1
        }
        _ if grh => keyed(spare_behind_grh(buf), keys, out).ok()?,
        _ => keyed(spare(buf, usize::MAX), keys, out).ok()?,
    };
    (n == usize::from(sges)).then_some(n)
}

/// Fills in what depends on the operation.
#[inline]
fn operands<B: Buf>(wr: &mut ffi::ibv_send_wr, entry: &Sending<B>, ahs: &AhTable) {
    use ffi::ibv_wr_opcode::*;
    let imm = |value: u32| ffi::imm_data_invalidated_rkey_union_t { imm_data: value.to_be() };
    let rdma = |addr, rkey| ffi::wr_t { rdma: ffi::rdma_t { remote_addr: addr, rkey } };
    let atomic = |word: crate::wr::RemoteWord, compare_add, swap| ffi::wr_t {
        atomic: ffi::atomic_t { remote_addr: word.addr, compare_add, swap, rkey: word.rkey.0 },
    };
    wr.opcode = match entry.op {
        Op::Send | Op::SendInv(_) => IBV_WR_SEND,
        Op::SendImm(value) => {
            wr.imm_data_invalidated_rkey_union = imm(value);
            IBV_WR_SEND_WITH_IMM
        }
        Op::Write(to) => {
            wr.wr = rdma(to.addr, to.rkey.0);
            IBV_WR_RDMA_WRITE
        }
        Op::WriteImm(to, value) => {
            wr.imm_data_invalidated_rkey_union = imm(value);
            wr.wr = rdma(to.addr, to.rkey.0);
            IBV_WR_RDMA_WRITE_WITH_IMM
        }
        Op::Read(from) => {
            wr.wr = rdma(from.addr, from.rkey.0);
            IBV_WR_RDMA_READ
        }
        Op::FetchAdd { word, add } => {
            wr.wr = atomic(word, add, 0);
            IBV_WR_ATOMIC_FETCH_AND_ADD
        }
        Op::CompareSwap { word, compare, swap } => {
            wr.wr = atomic(word, compare, swap);
            IBV_WR_ATOMIC_CMP_AND_SWP
        }
    };
    if let Some(to) = entry.ud {
        let ah = ahs.handle(to.ah).map_or(std::ptr::null_mut(), std::ptr::NonNull::as_ptr);
        wr.wr = ffi::wr_t { ud: ffi::ud_t { ah, remote_qpn: to.qpn.value(), remote_qkey: to.qkey } };
    }
}
