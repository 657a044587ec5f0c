//! Posting: what is refused, and where the rest is queued.

use super::datagram::MAX_DATAGRAM;
use super::qp::LoopQp;
use super::transport::Desk;
use crate::buf::Buf;
use crate::mem::KeyTable;
use crate::transport::Posted;
use crate::types::QpType;
use crate::wr::{Op, OpKind, RecvWr, Refusal, Refused, SendWr, SrqId};

/// Bytes of the longest message (IBTA vol. 1, 9.7.7).
const MAX_MESSAGE: usize = 1 << 31;

/// Gives back a request for a queue pair that is gone.
#[cold]
pub(super) fn stale<W>(wr: W) -> Refused<W> {
    Refused { wr, why: Refusal::Stale }
}

/// Why an operation is not possible on a queue pair of this kind.
#[inline]
fn unsupported(kind: QpType, op: &Op, max_reads: u32) -> bool {
    let reads = || op.fills_buffer();
    match kind {
        QpType::Rc => max_reads == 0 && reads(),
        QpType::Uc => reads() || matches!(op, Op::SendInv(_)),
        QpType::Ud => op.kind() != OpKind::Send || matches!(op, Op::SendInv(_)),
    }
}

fn contents_registered<B: Buf>(keys: &mut KeyTable, buf: &B) -> bool {
    keys.is_empty() || buf.segments().all(|s| keys.lkey(s.as_ptr().addr(), s.len()).is_some())
}

fn room_registered<B: Buf>(keys: &mut KeyTable, buf: &mut B) -> bool {
    keys.is_empty() || buf.spare().all(|s| keys.lkey(s.as_ptr().addr(), s.len()).is_some())
}

#[inline]
fn refuses_send<B: Buf>(qp: &LoopQp<B>, keys: &mut KeyTable, wr: &mut SendWr<B>) -> Option<Refusal> {
    let kind = qp.spec.kind;
    let fills = wr.op.fills_buffer();
    let limit = if kind == QpType::Ud { MAX_DATAGRAM } else { MAX_MESSAGE };
    let checks = [
        (!qp.state().takes_sends(), Refusal::State),
        (unsupported(kind, &wr.op, qp.asks.max_reads), Refusal::Unsupported),
        (wr.ud.is_some() != (kind == QpType::Ud), Refusal::Destination),
        (wr.buf.segment_count() > usize::from(qp.spec.caps.send_sge), Refusal::TooManySegments),
    ];
    if let Some((_, why)) = checks.into_iter().find(|(refused, _)| *refused) {
        return Some(why);
    }
    if fills {
        let room = wr.buf.is_empty() && wr.buf.is_unique() && wr.buf.room() >= wr.op.response_len() as usize;
        if !room {
            return Some(Refusal::NoRoom);
        }
        return (!room_registered(keys, &mut wr.buf)).then_some(Refusal::NotRegistered);
    }
    if wr.buf.len() > limit {
        return Some(Refusal::TooLong);
    }
    (!contents_registered(keys, &wr.buf)).then_some(Refusal::NotRegistered)
}

/// Queues a request.
#[inline]
pub(super) fn send<B: Buf>(qp: &mut LoopQp<B>, desk: &mut Desk<B>, mut wr: SendWr<B>) -> Posted<SendWr<B>> {
    if let Some(why) = refuses_send(qp, &mut desk.buffers, &mut wr) {
        return Err(Refused { wr, why });
    }
    if qp.sends_out == qp.spec.caps.send_depth {
        return Err(Refused { wr, why: Refusal::Full });
    }
    qp.staged.push_back(wr);
    qp.sends_out += 1;
    desk.counters.sends_posted += 1;
    if !qp.dirty {
        qp.dirty = true;
        desk.dirty.push(qp.id.slot);
    }
    Ok(())
}

/// Why a buffer cannot receive.
#[inline]
fn refuses_receive<B: Buf>(keys: &mut KeyTable, wr: &mut RecvWr<B>, sge: u16) -> Option<Refusal> {
    if wr.buf.segment_count() > usize::from(sge) {
        return Some(Refusal::TooManySegments);
    }
    if !wr.buf.is_empty() || !wr.buf.is_unique() {
        return Some(Refusal::NoRoom);
    }
    (!room_registered(keys, &mut wr.buf)).then_some(Refusal::NotRegistered)
}

/// Queues a receive.
#[inline]
pub(super) fn recv<B: Buf>(qp: &mut LoopQp<B>, desk: &mut Desk<B>, mut wr: RecvWr<B>) -> Posted<RecvWr<B>> {
    if !qp.state().takes_receives() {
        return Err(Refused { wr, why: Refusal::State });
    }
    if qp.spec.srq.is_some() {
        return Err(Refused { wr, why: Refusal::Unsupported });
    }
    if let Some(why) = refuses_receive(&mut desk.buffers, &mut wr, qp.spec.caps.recv_sge) {
        return Err(Refused { wr, why });
    }
    if qp.receives_out == qp.spec.caps.recv_depth {
        return Err(Refused { wr, why: Refusal::Full });
    }
    qp.receives.push_back(wr);
    qp.receives_out += 1;
    desk.counters.receives_posted += 1;
    if !qp.state().answers() && !qp.dirty {
        // In ERR the flush that follows sends it back.
        qp.dirty = true;
        desk.dirty.push(qp.id.slot);
    }
    Ok(())
}

/// Queues a shared receive.
#[inline]
pub(super) fn srq_recv<B: Buf>(desk: &mut Desk<B>, srq: SrqId, mut wr: RecvWr<B>) -> Posted<RecvWr<B>> {
    let Desk { srqs, buffers, counters, .. } = desk;
    let Some(srq) = srqs.get_mut(usize::from(srq.0)) else { return Err(stale(wr)) };
    if let Some(why) = refuses_receive(buffers, &mut wr, srq.sge) {
        return Err(Refused { wr, why });
    }
    if srq.queue.len() == srq.depth {
        return Err(Refused { wr, why: Refusal::Full });
    }
    srq.queue.push_back(wr);
    counters.receives_posted += 1;
    Ok(())
}
