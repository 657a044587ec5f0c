//! The peer's visit: requests are served in order, in the ring of the one who asked.

use super::keys::KeyCache;
use super::qp::{LoopQp, Responder, completion};
use super::ring::{Entry, Hold, Ring};
use super::transport::Desk;
use crate::buf::{Buf, fill};
use crate::mem::{Access, Window};
use crate::qp::QpState;
use crate::types::{QpType, Rkey};
use crate::wr::{Completion, Done, Op, Received, RecvWr, RemoteSlice, RemoteWord, Status};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Requests served in one visit, so that one busy peer cannot hold the worker.
const VISIT_BUDGET: usize = 64;

/// What became of a request.
enum Verdict {
    /// Done; a receive may have been used for it.
    Served(Option<Received>),
    /// Lost, as unreliable queue pairs do.
    Lost,
    /// No receive: the requester has to come again.
    NotReady,
    /// Not the request that is expected: not answered.
    Deaf,
    /// Refused with this status at the requester; a receive in use ends with the second one.
    Fatal(Status, Option<Status>),
    /// The queue pair here failed without telling; the receive in use ends with this.
    Silent(Status),
}

/// Serves what the peer has flushed.
pub(super) fn serve<B: Buf>(qp: &mut LoopQp<B>, desk: &mut Desk<B>) {
    if !qp.state().answers() {
        return;
    }
    let Some(peer) = &qp.peer else { return };
    let Some(mut ring) = peer.try_ring() else { return desk.ring_again(qp.id) };
    if ring.unserved() == 0 || ring.hold != Hold::None {
        return;
    }
    if peer.dest() != qp.shared.qpn {
        // It is connected to someone else. Should it come back, it rings.
        return;
    }
    let mut visit = Visit {
        reliable: qp.spec.kind == QpType::Rc,
        domain: qp.shared.domain,
        answers: &mut qp.answers,
        receives: &mut qp.receives,
        pmtu_bytes: qp.pmtu.bytes() as usize,
    };
    let (mut served, mut failed) = (0, false);
    while served < VISIT_BUDGET && ring.hold == Hold::None && desk.has_room(qp.cq) {
        let Some(entry) = ring.front() else { break };
        let srq = qp.spec.srq.map(|srq| usize::from(srq.0));
        let (verdict, wr) = visit.judge(entry, desk, srq);
        served += 1;
        failed = conclude(&mut ring, &verdict, visit.answers.rnr_ns, desk);
        if let Some((done, status, wr)) = receipt(verdict, wr) {
            let c: Completion<B> = completion(qp.id, wr.cookie, Done::Received(done), status, wr.buf);
            desk.complete(qp.cq, c);
        }
        if failed {
            break;
        }
    }
    let more = ring.unserved() > 0 && ring.hold == Hold::None && !failed;
    drop(ring);
    if served > 0 {
        peer.alert();
    }
    if more {
        desk.ring_again(qp.id);
    }
    if failed {
        qp.shared.set_state(QpState::Err);
        qp.shared.ring().hold = Hold::Failed;
        qp.alert_peer();
    }
}

/// Notes a verdict in the ring; true if the queue pair here failed.
fn conclude<B>(ring: &mut Ring<B>, verdict: &Verdict, rnr_ns: u64, desk: &mut Desk<B>) -> bool {
    match verdict {
        Verdict::Served(_) => ring.served(Status::Success),
        Verdict::Lost => {
            desk.drops += 1;
            ring.served(Status::Success);
        }
        Verdict::NotReady => ring.hold = Hold::Rnr(rnr_ns),
        Verdict::Deaf => ring.hold = Hold::Deaf,
        Verdict::Fatal(status, _) => {
            ring.served(*status);
            ring.hold = Hold::Failed;
            return true;
        }
        Verdict::Silent(_) => return true,
    }
    false
}

/// What a receive in use completes with.
fn receipt<B>(verdict: Verdict, wr: Option<RecvWr<B>>) -> Option<(Received, Status, RecvWr<B>)> {
    let (done, status) = match verdict {
        Verdict::Served(received) => (received.unwrap_or_default(), Status::Success),
        Verdict::Fatal(_, Some(status)) | Verdict::Silent(status) => (Received::default(), status),
        _ => return None,
    };
    wr.map(|wr| (done, status, wr))
}

/// One visit of a responder.
struct Visit<'a, B> {
    reliable: bool,
    domain: u32,
    answers: &'a mut Responder,
    receives: &'a mut VecDeque<RecvWr<B>>,
    pmtu_bytes: usize,
}

impl<B: Buf> Visit<'_, B> {
    /// Serves one request; gives the receive it used.
    fn judge(
        &mut self,
        entry: &mut Entry<B>,
        desk: &mut Desk<B>,
        srq: Option<usize>,
    ) -> (Verdict, Option<RecvWr<B>>) {
        if self.reliable && entry.psn != self.answers.expected {
            return (Verdict::Deaf, None);
        }
        let Desk { srqs, keys, .. } = desk;
        let queue = match srq {
            Some(srq) => &mut srqs[srq].queue,
            None => &mut *self.receives,
        };
        let verdict = execute(self.answers, self.domain, keys, queue.front_mut(), entry);
        let uses = matches!(entry.op, Op::Send | Op::SendImm(_) | Op::SendInv(_) | Op::WriteImm(..));
        let verdict = if self.reliable { verdict } else { unreliable(verdict) };
        let wr = match &verdict {
            Verdict::Served(_) | Verdict::Fatal(_, Some(_)) | Verdict::Silent(_) if uses => queue.pop_front(),
            _ => None,
        };
        if let Verdict::Served(_) = verdict {
            let bytes = entry.buf.len().div_ceil(self.pmtu_bytes).max(1) as u32;
            self.answers.expected = entry.psn.advance(bytes);
        }
        (verdict, wr)
    }
}

/// An unreliable responder answers nothing: what it cannot serve is lost.
fn unreliable(verdict: Verdict) -> Verdict {
    if let Verdict::Served(_) = verdict { verdict } else { Verdict::Lost }
}

/// The checks in the order of the standard (rights of the queue pair, receive, length, key), then the work.
fn execute<B: Buf>(
    answers: &Responder,
    domain: u32,
    keys: &KeyCache,
    receive: Option<&mut RecvWr<B>>,
    entry: &mut Entry<B>,
) -> Verdict {
    let memory = Memory { answers, domain, keys };
    match entry.op {
        Op::Send => receive_message(receive, &entry.buf, Received::default()),
        Op::SendImm(imm) => {
            receive_message(receive, &entry.buf, Received { imm: Some(imm), ..Received::default() })
        }
        Op::SendInv(rkey) => {
            let note = Received { invalidated: Some(rkey), ..Received::default() };
            let verdict = receive_message(receive, &entry.buf, note);
            let arrived = matches!(verdict, Verdict::Served(_));
            if arrived && !keys.invalidate(rkey, domain) {
                return Verdict::Silent(Status::RemInvReqErr);
            }
            verdict
        }
        Op::Write(to) => memory.write(to, &entry.buf, None),
        Op::WriteImm(to, imm) => match receive {
            Some(_) => memory.write(to, &entry.buf, Some(imm)),
            None if answers.access.allows(Access::REMOTE_WRITE) => Verdict::NotReady,
            None => Verdict::Fatal(Status::RemInvReqErr, None),
        },
        Op::Read(from) => memory.read(from, &mut entry.buf),
        Op::FetchAdd { word, add } => {
            memory.atomic(word, &mut entry.buf, |cell| cell.fetch_add(add, Ordering::AcqRel))
        }
        Op::CompareSwap { word, compare, swap } => memory.atomic(word, &mut entry.buf, |cell| {
            cell.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire).unwrap_or_else(|v| v)
        }),
    }
}

/// A SEND goes into a receive.
fn receive_message<B: Buf>(receive: Option<&mut RecvWr<B>>, message: &B, note: Received) -> Verdict {
    let Some(wr) = receive else { return Verdict::NotReady };
    if fill(&mut wr.buf, message.len(), message.segments()) {
        Verdict::Served(Some(note))
    } else {
        Verdict::Fatal(Status::RemInvReqErr, Some(Status::LocLenErr))
    }
}

/// A responder's memory, as far as the asking queue pair may reach.
struct Memory<'a> {
    answers: &'a Responder,
    domain: u32,
    keys: &'a KeyCache,
}

const NOT_ALLOWED: Verdict = Verdict::Fatal(Status::RemInvReqErr, None);
const NO_ACCESS: Verdict = Verdict::Fatal(Status::RemAccessErr, None);

impl Memory<'_> {
    fn window(&self, rkey: Rkey, right: Access, addr: u64, len: usize) -> Option<Window> {
        self.keys.window(rkey, self.domain, right, addr, len)
    }

    /// WRITE; a zero-length one checks neither key nor address.
    fn write<B: Buf>(&self, to: RemoteSlice, buf: &B, imm: Option<u32>) -> Verdict {
        if !self.answers.access.allows(Access::REMOTE_WRITE) {
            return NOT_ALLOWED;
        }
        let len = buf.len();
        if len > 0 {
            let Some(window) = self.window(to.rkey, Access::REMOTE_WRITE, to.addr, len) else {
                return Verdict::Fatal(Status::RemAccessErr, imm.map(|_| Status::LocAccessErr));
            };
            let mut offset = 0;
            for segment in buf.segments() {
                window.copy_in(offset, segment);
                offset += segment.len();
            }
        }
        let note = |imm| Received { imm: Some(imm), written: Some(len as u32), ..Received::default() };
        Verdict::Served(imm.map(note))
    }

    /// READ; a zero-length one checks neither key nor address.
    fn read<B: Buf>(&self, from: RemoteSlice, buf: &mut B) -> Verdict {
        if !self.answers.access.allows(Access::REMOTE_READ) || self.answers.max_reads == 0 {
            return NOT_ALLOWED;
        }
        let len = from.len as usize;
        if len > 0 {
            let Some(window) = self.window(from.rkey, Access::REMOTE_READ, from.addr, len) else {
                return NO_ACCESS;
            };
            let mut offset = 0;
            for area in buf.spare() {
                let n = area.len().min(len - offset);
                window.copy_out(offset, &mut area[..n]);
                offset += n;
            }
        }
        buf.filled(len);
        Verdict::Served(None)
    }

    fn atomic<B: Buf>(
        &self,
        word: RemoteWord,
        buf: &mut B,
        change: impl FnOnce(&std::sync::atomic::AtomicU64) -> u64,
    ) -> Verdict {
        if !self.answers.access.allows(Access::REMOTE_ATOMIC) || self.answers.max_reads == 0 {
            return NOT_ALLOWED;
        }
        let Some(window) = self.window(word.rkey, Access::REMOTE_ATOMIC, word.addr, 8) else {
            return NO_ACCESS;
        };
        if !word.addr.is_multiple_of(8) {
            return NOT_ALLOWED;
        }
        let before = change(window.word(0)).to_ne_bytes();
        if fill(buf, 8, [&before[..]].into_iter()) { Verdict::Served(None) } else { NO_ACCESS }
    }
}
