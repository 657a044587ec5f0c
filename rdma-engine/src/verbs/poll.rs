//! Polling: work completions become buffers again.
#![allow(unsafe_code)] // reason: reads unions of C structures.

use super::cq::Cq;
use super::ffi;
use super::grh;
use super::qp::{Receiving, Sending};
use super::sge::GRH_BYTES;
use super::transport::Verbs;
use super::wrid::{Queue, WrId};
use crate::buf::Buf;
use crate::qp::QpState;
use crate::transport::{Completions, Counters};
use crate::types::{QpType, Qpn, Rkey};
use crate::wr::{Completion, Done, QpId, Received, Status, UdSource};
use std::sync::Arc;

/// Work completions taken from a queue at once.
const WC_BATCH: usize = 32;

/// A completion queue with what was taken from it and not yet given out.
pub(super) struct CqSide {
    pub(super) cq: Arc<Cq>,
    taken: Box<[ffi::ibv_wc]>,
    next: usize,
    len: usize,
}

impl std::fmt::Debug for CqSide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CqSide").field("cq", &self.cq).field("taken", &(self.len - self.next)).finish()
    }
}

impl CqSide {
    pub(super) fn new(cq: Arc<Cq>) -> Self {
        // SAFETY: plain numbers and a union of them, for which zero is a value.
        let taken = (0..WC_BATCH).map(|_| unsafe { std::mem::zeroed() }).collect();
        CqSide { cq, taken, next: 0, len: 0 }
    }

    /// True if a completion is there, given the chance to take up to `most` from the device.
    #[inline]
    pub(super) fn has_some(&mut self, most: usize) -> bool {
        if self.next < self.len {
            return true;
        }
        let most = most.min(WC_BATCH);
        self.next = 0;
        self.len = self.cq.poll(&mut self.taken[..most]).unwrap_or(0);
        self.len > 0
    }
}

/// What a work completion says, without its unions.
#[derive(Clone, Copy)]
struct Wc {
    id: u64,
    status: Status,
    bytes: u32,
    qpn: Qpn,
    received: Received,
    /// The network header was delivered.
    grh: bool,
    source_qpn: Qpn,
}

impl Wc {
    #[inline]
    fn read(wc: &ffi::ibv_wc) -> Self {
        let status = Status::from_code(wc.status);
        let has = |flag: ffi::ibv_wc_flags| wc.wc_flags & flag.0 != 0;
        // SAFETY: both members are 32 bits.
        let word = unsafe { wc.imm_data_invalidated_rkey_union.invalidated_rkey };
        let ok = status == Status::Success;
        let by_write = wc.opcode == ffi::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;
        let received = Received {
            imm: (ok && has(ffi::ibv_wc_flags::IBV_WC_WITH_IMM)).then_some(u32::from_be(word)),
            invalidated: (ok && has(ffi::ibv_wc_flags::IBV_WC_WITH_INV)).then_some(Rkey(word)),
            written: (ok && by_write).then_some(wc.byte_len),
            source: None,
        };
        Wc {
            id: wc.wr_id,
            status,
            bytes: wc.byte_len,
            qpn: Qpn::new(wc.qp_num),
            received,
            grh: has(ffi::ibv_wc_flags::IBV_WC_GRH),
            source_qpn: Qpn::new(wc.src_qp),
        }
    }
}

impl<B: Buf> Verbs<B> {
    /// Empties completion queue `c` as far as `out` has room.
    #[inline]
    pub(super) fn drain(&mut self, c: usize, out: &mut Completions<B>) {
        while !out.is_full() {
            let side = &mut self.cqs[c];
            if !side.has_some(out.remaining_capacity()) {
                return;
            }
            let wc = Wc::read(&side.taken[side.next]);
            if self.retire(&wc, out) {
                self.cqs[c].next += 1;
            }
        }
    }

    /// Gives out what a work completion covers; false if `out` filled up before the end.
    #[inline]
    fn retire(&mut self, wc: &Wc, out: &mut Completions<B>) -> bool {
        let Some(id) = WrId::unpack(wc.id) else {
            self.counters.stale += 1;
            return true;
        };
        match id.queue {
            Queue::Send => self.retire_sends(id, wc, out),
            Queue::Recv => self.retire_recv(id, wc, out),
            Queue::Shared => self.retire_shared(id, wc, out),
        }
    }

    /// A completion covers the requests before it that were not signalled: they succeeded.
    #[inline]
    fn retire_sends(&mut self, wr: WrId, wc: &Wc, out: &mut Completions<B>) -> bool {
        let id = QpId { slot: wr.slot, generation: wr.generation };
        let Some(qp) = self.table.qp_mut(id) else {
            self.counters.stale += 1;
            return true;
        };
        let mut covered = qp.send.covered_by(wr.index(qp.send.ring.oldest_index()));
        if covered == 0 {
            self.counters.stale += 1;
        }
        while covered > 0 {
            if out.is_full() {
                return false;
            }
            let Some(entry) = qp.send.ring.pop() else { break };
            covered -= 1;
            let status = if covered == 0 { wc.status } else { Status::Success };
            self.datagrams -= usize::from(entry.ud.is_some());
            self.counters.sends_completed += 1;
            out.push(sent(id, entry, status));
        }
        if qp.held {
            self.release_held(id);
        }
        if wc.status != Status::Success {
            self.failed(id, wc.status, true);
        }
        true
    }

    #[inline]
    fn retire_recv(&mut self, wr: WrId, wc: &Wc, out: &mut Completions<B>) -> bool {
        let id = QpId { slot: wr.slot, generation: wr.generation };
        let Some(qp) = self.table.qp_mut(id) else {
            self.counters.stale += 1;
            return true;
        };
        let datagram = qp.kind == QpType::Ud;
        let mut covered = qp.recv.covered_by(wr.index(qp.recv.ring.oldest_index()));
        if covered == 0 {
            self.counters.stale += 1;
        }
        while covered > 0 {
            if out.is_full() {
                return false;
            }
            let Some(Receiving { buf, cookie, .. }) = qp.recv.ring.pop() else { break };
            covered -= 1;
            self.counters.receives_completed += 1;
            // Receives complete one by one; one that was passed over has lost its completion.
            let mut done = Completion {
                qp: id,
                cookie,
                done: Done::Received(Received::default()),
                status: Status::GeneralErr,
                buf,
            };
            if covered == 0 {
                receive(&mut done, wc, datagram.then_some(Grh::InHeadroom));
            }
            out.push(done);
        }
        if wc.status != Status::Success {
            self.failed(id, wc.status, false);
        }
        true
    }

    /// A receive of a shared queue: the work completion names the queue pair by number.
    #[inline]
    fn retire_shared(&mut self, wr: WrId, wc: &Wc, out: &mut Completions<B>) -> bool {
        if out.is_full() {
            return false;
        }
        let entry = self.srqs.get_mut(usize::from(wr.slot)).and_then(|s| s.slab.remove(wr.index(0)));
        let owner = self.table.sharing(wc.qpn);
        let (Some(entry), Some(id)) = (entry, owner) else {
            // The queue pair is gone: the buffer goes home.
            self.counters.stale += 1;
            return true;
        };
        let datagram = self.table.qp(id).is_some_and(|qp| qp.kind == QpType::Ud);
        let (done, status) = (Done::Received(Received::default()), wc.status);
        let mut done = Completion { qp: id, cookie: entry.cookie, done, status, buf: entry.buf };
        receive(&mut done, wc, datagram.then_some(Grh::InContents));
        self.counters.receives_completed += 1;
        out.push(done);
        if wc.status != Status::Success {
            self.failed(id, wc.status, false);
        }
        true
    }

    /// Notes that a queue pair has failed. Not inlined: this is not the fast path.
    #[cold]
    fn failed(&mut self, id: QpId, status: Status, sending: bool) {
        count(&mut self.counters, status);
        let Some(qp) = self.table.qp_mut(id) else { return };
        if qp.state == QpState::Err {
            return;
        }
        // An unreliable queue pair may only have lost its send side (SQE); the device knows.
        let unreliable = qp.kind != QpType::Rc && sending;
        match if unreliable { qp.ask_state() } else { None } {
            Some(QpState::Sqe) => qp.state = QpState::Sqe,
            _ => {
                qp.fail();
                self.mark_failing(id.slot);
            }
        }
    }

    /// Completes, here, what queue pairs in ERR hold and their device never got.
    #[cold]
    pub(super) fn flush_failing(&mut self, out: &mut Completions<B>) {
        let mut at = 0;
        while at < self.failing.len() && !out.is_full() {
            if self.flush_slot(self.failing[at], out) {
                self.failing.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// The same for one of them; true if nothing of it waits any more.
    fn flush_slot(&mut self, slot: u16, out: &mut Completions<B>) -> bool {
        let Some((id, qp)) = self.table.in_slot(slot) else { return true };
        while !out.is_full() {
            let Some((entry, status)) = qp.send.pop_waiting() else { break };
            count(&mut self.counters, status);
            self.datagrams -= usize::from(entry.ud.is_some());
            self.counters.sends_completed += 1;
            out.push(sent(id, entry, status));
        }
        while !out.is_full() {
            let Some((Receiving { buf, cookie, .. }, status)) = qp.recv.pop_waiting() else { break };
            count(&mut self.counters, status);
            self.counters.receives_completed += 1;
            out.push(Completion { qp: id, cookie, done: Done::Received(Received::default()), status, buf });
        }
        qp.failing = qp.send.waiting() + qp.recv.waiting() > 0;
        !qp.failing
    }
}

/// Counts a request that did not succeed.
fn count(counters: &mut Counters, status: Status) {
    match status {
        Status::Success => {}
        Status::WrFlushErr => counters.flushed += 1,
        _ => counters.errors += 1,
    }
}

#[inline]
fn sent<B: Buf>(qp: QpId, mut entry: Sending<B>, status: Status) -> Completion<B> {
    if status == Status::Success && entry.op.fills_buffer() {
        entry.buf.filled(entry.op.response_len() as usize);
    }
    Completion { qp, cookie: entry.cookie, done: Done::Sent(entry.op.kind()), status, buf: entry.buf }
}

/// Where a datagram's network header was received.
#[derive(Clone, Copy)]
enum Grh {
    /// In front of the buffer's start.
    InHeadroom,
    /// At the beginning of the contents.
    InContents,
}

/// Fills in what was received.
#[inline]
fn receive<B: Buf>(to: &mut Completion<B>, wc: &Wc, grh: Option<Grh>) {
    to.status = wc.status;
    if wc.status != Status::Success {
        return;
    }
    let mut received = wc.received;
    let bytes = if received.written.is_some() { 0 } else { wc.bytes as usize };
    match grh {
        None => to.buf.filled(bytes),
        Some(Grh::InHeadroom) => {
            to.buf.filled(bytes.saturating_sub(GRH_BYTES));
            // The room was made when the receive was posted.
            let header = to.buf.prepend(GRH_BYTES).and_then(|h| <[u8; GRH_BYTES]>::try_from(&*h).ok());
            received.source = Some(source(wc, header.as_ref()));
            to.buf.adj(if header.is_some() { GRH_BYTES } else { 0 });
        }
        Some(Grh::InContents) => {
            to.buf.filled(bytes);
            let mut header = [0; GRH_BYTES];
            let n = crate::buf::copy_out(&to.buf, 0, &mut header);
            received.source = Some(source(wc, (n == GRH_BYTES).then_some(&header)));
            to.buf.adj(n);
        }
    }
    to.done = Done::Received(received);
}

#[inline]
fn source(wc: &Wc, header: Option<&[u8; GRH_BYTES]>) -> UdSource {
    UdSource { qpn: wc.source_qpn, gid: header.filter(|_| wc.grh).and_then(grh::source) }
}
