//! A queue pair with its in-flight rings.
#![allow(unsafe_code)] // reason: calls libibverbs.

use super::cq::Cq;
use super::error::{VerbsError, check};
use super::event::Owner;
use super::ffi;
use super::modify::{attributes, modify};
use super::pd::Pd;
use super::post::Short;
use super::sge::Sge;
use super::srq::Srq;
use crate::buf::Buf;
use crate::inflight::InFlight;
use crate::qp::{Change, QpCaps, QpSpec, QpState};
use crate::types::{QpType, Qpn};
use crate::wr::{Cookie, Op, Status, UdDest};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The flag of a fenced request.
pub(super) const FENCE: u32 = ffi::ibv_send_flags::IBV_SEND_FENCE.0;

/// A posted send.
#[derive(Debug)]
pub(super) struct Sending<B> {
    pub(super) op: Op,
    pub(super) buf: B,
    pub(super) cookie: Cookie,
    pub(super) ud: Option<UdDest>,
    /// The only segment, if there is one.
    pub(super) first: Sge,
    /// Segments.
    pub(super) sges: u16,
    /// Flags of the request without SIGNALED.
    pub(super) flags: u32,
}

/// A posted receive.
#[derive(Debug)]
pub(super) struct Receiving<B> {
    pub(super) buf: B,
    pub(super) cookie: Cookie,
    /// The only segment, if there is one.
    pub(super) first: Sge,
    /// Segments.
    pub(super) sges: u16,
}

/// The owners of one queue's buffers: first those on the device, then those that wait for `flush`.
#[derive(Debug)]
pub(super) struct Lane<E> {
    pub(super) ring: InFlight<E>,
    /// Index of the first entry that is not on the device.
    pub(super) waiting_from: u32,
    /// Index of the entry that the device refused.
    refused: Option<u32>,
}

impl<E> Lane<E> {
    fn new(depth: u32) -> Self {
        Lane { ring: InFlight::new(depth.max(1) as usize), waiting_from: 0, refused: None }
    }

    /// Entries that wait for `flush`, or to be flushed here.
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        self.ring.next_index().wrapping_sub(self.waiting_from)
    }

    /// Entries on the device.
    #[inline]
    pub(super) fn on_device(&self) -> u32 {
        self.waiting_from.wrapping_sub(self.ring.oldest_index())
    }

    /// Notes the end of a batch of `n` requests.
    #[inline]
    pub(super) fn advance(&mut self, n: u32, end: Result<(), Short>) -> Result<(), Short> {
        match end {
            Ok(()) => self.waiting_from = self.waiting_from.wrapping_add(n),
            Err(short) => {
                self.waiting_from = self.waiting_from.wrapping_add(short.taken);
                self.refused = Some(self.waiting_from);
            }
        }
        end
    }

    /// The oldest entry, if it is not on the device, to be flushed here; with it how it ended.
    pub(super) fn pop_waiting(&mut self) -> Option<(E, Status)> {
        if self.on_device() > 0 {
            return None;
        }
        let index = self.ring.oldest_index();
        let entry = self.ring.pop()?;
        self.waiting_from = self.ring.oldest_index();
        let status = if self.refused == Some(index) { Status::LocQpOpErr } else { Status::WrFlushErr };
        Some((entry, status))
    }

    /// Entries that a completion for `index` retires; none if it is not on the device.
    #[inline]
    pub(super) fn covered_by(&self, index: u32) -> usize {
        let covered = self.ring.covered_by(index);
        if covered <= self.on_device() as usize { covered } else { 0 }
    }

    /// The device is gone: whatever was on it waits to be flushed here.
    fn recall(&mut self) {
        self.waiting_from = self.ring.oldest_index();
    }

    /// What was refused before is over.
    fn reset(&mut self) {
        self.refused = None;
    }

    /// Gives all entries up.
    fn leak(&mut self) -> usize {
        let mut n = 0;
        while let Some(entry) = self.ring.pop() {
            std::mem::forget(entry);
            n += 1;
        }
        n
    }
}

/// A queue pair. It owns the buffers posted to it and is destroyed before they are let go of; if the device does not
/// destroy it, they are given up and counted.
#[derive(Debug)]
pub struct Qp<B: Buf> {
    /// `None` once destroyed.
    raw: Option<NonNull<ffi::ibv_qp>>,
    num: Qpn,
    pub(super) kind: QpType,
    pub(super) state: QpState,
    pub(super) caps: QpCaps,
    /// Bytes of the longest message.
    pub(super) max_message: u32,
    /// READs and atomics may be posted.
    pub(super) reads: bool,
    /// Signalled requests: how many unsignalled ones since.
    pub(super) unsignalled: u16,
    /// A fenced request waits here, not on the device, until the READs and atomics before it are done.
    pub(super) software_fences: bool,
    /// One does.
    pub(super) held: bool,
    /// In the list of those with something to flush.
    pub(super) dirty: bool,
    /// In the list of those whose waiting requests are flushed here.
    pub(super) failing: bool,
    pub(super) send: Lane<Sending<B>>,
    pub(super) recv: Lane<Receiving<B>>,
    /// Number of its completion queue at the worker.
    pub(super) cq_index: u8,
    pub(super) cq: Arc<Cq>,
    pub(super) srq: Option<Arc<Srq<B>>>,
    pd: Arc<Pd>,
}

// SAFETY: the pointers name objects of libibverbs, which locks them; the buffers are Send.
unsafe impl<B: Buf> Send for Qp<B> {}

/// Where a queue pair is made.
pub(super) struct Place<B: Buf> {
    pub(super) pd: Arc<Pd>,
    pub(super) cq: Arc<Cq>,
    pub(super) srq: Option<Arc<Srq<B>>>,
    pub(super) owner: Owner,
    /// Bytes of the longest message.
    pub(super) max_message: u32,
}

impl<B: Buf> Qp<B> {
    /// Creates a queue pair in RESET.
    pub(super) fn create(spec: &QpSpec, place: Place<B>) -> Result<Self, VerbsError> {
        let Place { pd, cq, srq, owner, max_message } = place;
        check_caps(&pd, spec)?;
        let mut init = init_attributes(spec, &cq, srq.as_deref(), owner);
        // SAFETY: domain and queues live as long as the queue pair, which holds references to them.
        let raw = NonNull::new(unsafe { ffi::ibv_create_qp(pd.raw(), &mut init) })
            .ok_or_else(|| VerbsError::CreateQp { kind: spec.kind, source: io::Error::last_os_error() })?;
        // SAFETY: just created.
        let num = Qpn::new(unsafe { raw.as_ref() }.qp_num);
        let recv_depth = if srq.is_some() { 0 } else { spec.caps.recv_depth };
        let caps = QpCaps { recv_depth, ..spec.caps };
        Ok(Qp {
            raw: Some(raw),
            num,
            kind: spec.kind,
            state: QpState::Reset,
            caps,
            max_message,
            reads: spec.kind == QpType::Rc,
            unsignalled: 0,
            software_fences: pd.context.software_fences.load(Ordering::Relaxed),
            held: false,
            dirty: false,
            failing: false,
            send: Lane::new(caps.send_depth),
            recv: Lane::new(recv_depth),
            cq_index: spec.cq,
            cq,
            srq,
            pd,
        })
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.num
    }

    /// Its state, as far as it is known here: a failure shows with the first completion that tells it.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Depths and limits it was created with.
    pub fn caps(&self) -> QpCaps {
        self.caps
    }

    /// Waiting sends that may go on the device now: all, up to a fenced one that has to wait.
    #[inline]
    pub(super) fn sendable(&self) -> u32 {
        let waiting = self.send.waiting();
        if !self.software_fences {
            return waiting;
        }
        let entry = |k: u32| self.send.ring.entry(self.send.waiting_from.wrapping_add(k));
        let fenced = |k: &u32| entry(*k).is_some_and(|entry| entry.flags & FENCE != 0);
        (0..waiting).filter(fenced).find(|k| self.fetches_before(*k)).unwrap_or(waiting)
    }

    /// True if a READ or atomic before the `k`-th waiting send is not done.
    fn fetches_before(&self, k: u32) -> bool {
        let first = self.send.ring.oldest_index();
        let before = 0..self.send.on_device() + k;
        before
            .into_iter()
            .any(|n| self.send.ring.entry(first.wrapping_add(n)).is_some_and(|entry| entry.op.fills_buffer()))
    }

    /// Null once destroyed.
    #[inline]
    pub(super) fn raw(&self) -> *mut ffi::ibv_qp {
        self.raw.map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    /// True while the device knows it.
    #[inline]
    pub(super) fn lives(&self) -> bool {
        self.raw.is_some()
    }

    /// Changes its state after the table.
    pub(super) fn change(&mut self, port: u8, change: &Change) -> Result<(), VerbsError> {
        let to = self.state.after(self.kind, change)?;
        let (mut attr, mask) = attributes(self.kind, port, change);
        if let Some(raw) = self.raw {
            // SAFETY: not destroyed.
            unsafe { modify(raw.as_ptr(), &mut attr, mask) }.map_err(|source| VerbsError::ModifyQp {
                qpn: self.num,
                kind: self.kind,
                to,
                source,
            })?;
        }
        self.state = to;
        match change {
            Change::Rts(rts) => self.reads = self.kind == QpType::Rc && rts.max_rd_atomic > 0,
            Change::Reset => {
                self.unsignalled = 0;
                self.send.reset();
                self.recv.reset();
            }
            _ => {}
        }
        Ok(())
    }

    /// To ERR, whatever its state. Done again on a queue pair in ERR it makes the device look once more for requests to
    /// flush; rxe needs that for receives posted while it failed.
    pub(super) fn fail(&mut self) {
        if self.state == QpState::Reset {
            return;
        }
        self.state = QpState::Err;
        let Some(raw) = self.raw else { return };
        let (mut attr, mask) = attributes(self.kind, 0, &Change::Err);
        // SAFETY: not destroyed.
        if let Err(e) = unsafe { modify(raw.as_ptr(), &mut attr, mask) } {
            super::event::say_once("cannot move a queue pair to ERR", &e);
        }
    }

    /// The state the device knows, for the case that only it can tell: a failed send of an unreliable queue pair.
    pub(super) fn ask_state(&self) -> Option<QpState> {
        let raw = self.raw?;
        // SAFETY: plain numbers, for which zero is a value; null pointers in the second.
        let (mut attr, mut init) =
            unsafe { (std::mem::zeroed::<ffi::ibv_qp_attr>(), std::mem::zeroed::<ffi::ibv_qp_init_attr>()) };
        let mask = ffi::ibv_qp_attr_mask::IBV_QP_STATE.0 as i32;
        // SAFETY: not destroyed; both structures are writable.
        check(unsafe { ffi::ibv_query_qp(raw.as_ptr(), &mut attr, mask, &mut init) }).ok()?;
        QpState::ALL.into_iter().find(|s| *s as u32 == attr.qp_state)
    }

    /// Destroys the queue pair; afterwards the device touches none of its buffers, and what was on it waits to be
    /// flushed here. On failure they are given up.
    pub(super) fn destroy(&mut self) -> Result<(), VerbsError> {
        let Some(raw) = self.raw.take() else { return Ok(()) };
        // SAFETY: created by us, destroyed once.
        let rc = unsafe { ffi::ibv_destroy_qp(raw.as_ptr()) };
        if self.state != QpState::Reset {
            self.state = QpState::Err;
        }
        match check(rc) {
            Ok(()) => {
                self.send.recall();
                self.recv.recall();
                Ok(())
            }
            Err(source) => {
                let leaked = self.send.leak() + self.recv.leak();
                self.pd.context.give_up(leaked);
                super::event::say_once("cannot destroy a queue pair; its buffers are given up", &source);
                Err(VerbsError::DestroyQp { qpn: self.num, leaked, source })
            }
        }
    }
}

impl<B: Buf> Drop for Qp<B> {
    fn drop(&mut self) {
        // A failure has been said and counted.
        let _ = self.destroy();
    }
}

/// Checks the numbers against the device's limits, because the device would only say "invalid".
fn check_caps(pd: &Pd, spec: &QpSpec) -> Result<(), VerbsError> {
    let (caps, limits) = (&spec.caps, &pd.context.limits);
    // 30 bits of a wr_id are the index.
    let depth = u64::from(limits.qp_depth.min(1 << 30));
    pd.context.within("send depth", caps.send_depth.into(), depth)?;
    pd.context.within("send segments", caps.send_sge.into(), limits.sge.into())?;
    if spec.srq.is_none() {
        pd.context.within("receive depth", caps.recv_depth.into(), depth)?;
        pd.context.within("receive segments", caps.recv_sge.into(), limits.sge.into())?;
    }
    Ok(())
}

fn init_attributes<B>(spec: &QpSpec, cq: &Cq, srq: Option<&Srq<B>>, owner: Owner) -> ffi::ibv_qp_init_attr {
    let caps = &spec.caps;
    let own_receives = srq.is_none();
    let qp_type = match spec.kind {
        QpType::Rc => ffi::ibv_qp_type::IBV_QPT_RC,
        QpType::Uc => ffi::ibv_qp_type::IBV_QPT_UC,
        QpType::Ud => ffi::ibv_qp_type::IBV_QPT_UD,
    };
    ffi::ibv_qp_init_attr {
        qp_context: owner.pack(),
        send_cq: cq.raw(),
        recv_cq: cq.raw(),
        srq: srq.map_or(std::ptr::null_mut(), Srq::raw),
        cap: ffi::ibv_qp_cap {
            max_send_wr: caps.send_depth.max(1),
            max_recv_wr: if own_receives { caps.recv_depth.max(1) } else { 0 },
            max_send_sge: u32::from(caps.send_sge).max(1),
            max_recv_sge: if own_receives { u32::from(caps.recv_sge).max(1) } else { 0 },
            max_inline_data: caps.inline_bytes,
        },
        qp_type,
        sq_sig_all: 0,
    }
}
