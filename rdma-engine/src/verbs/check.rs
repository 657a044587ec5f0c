//! Which requests are taken: checked when they are posted, so that the device never has to refuse one.

use super::ah::AhTable;
use super::ffi;
use super::qp::Qp;
use super::sge::{GRH_BYTES, NO_SGE, Sge, contents, keyed, spare, spare_behind_grh, unkeyed};
use super::srq::Srq;
use crate::buf::Buf;
use crate::mem::KeyTable;
use crate::types::QpType;
use crate::wr::{Op, OpKind, RecvWr, Refusal, SendWr};

pub(super) type Flags = ffi::ibv_send_flags;

/// Longest message of any transport.
const MESSAGE_MOST: usize = 1 << 31;

/// What requests are checked against.
pub(super) struct Checks<'a> {
    pub(super) keys: &'a mut KeyTable,
    pub(super) ahs: &'a AhTable,
    /// Room for the longest list of segments.
    pub(super) scratch: &'a mut [Sge],
}

impl Checks<'_> {
    /// The segments and flags of a send, or why it is not taken.
    #[inline]
    pub(super) fn send<B: Buf>(
        &mut self,
        qp: &Qp<B>,
        wr: &mut SendWr<B>,
    ) -> Result<(Sge, u16, u32), Refusal> {
        if !qp.state.takes_sends() {
            return Err(Refusal::State);
        }
        self.operation(qp, wr)?;
        let len = wr.buf.len();
        let limit = usize::from(qp.caps.send_sge);
        let mut flags = flag(wr.fence, Flags::IBV_SEND_FENCE) | flag(wr.solicited, Flags::IBV_SEND_SOLICITED);
        let n = if wr.op.fills_buffer() {
            let wanted = wr.op.response_len() as usize;
            if len != 0 || !wr.buf.is_unique() || wr.buf.room() < wanted {
                return Err(Refusal::NoRoom);
            }
            keyed(spare(&mut wr.buf, wanted), self.keys, &mut self.scratch[..limit])?
        } else if len > qp.max_message as usize || len > MESSAGE_MOST {
            return Err(Refusal::TooLong);
        } else if len <= qp.caps.inline_bytes as usize {
            flags |= flag(len > 0, Flags::IBV_SEND_INLINE);
            unkeyed(contents(&wr.buf), &mut self.scratch[..limit])?
        } else {
            keyed(contents(&wr.buf), self.keys, &mut self.scratch[..limit])?
        };
        if qp.send.ring.room() == 0 {
            return Err(Refusal::Full);
        }
        Ok((self.first(n), n as u16, flags))
    }

    /// Which operations a transport type has, and which of them need a destination.
    #[inline]
    fn operation<B: Buf>(&self, qp: &Qp<B>, wr: &SendWr<B>) -> Result<(), Refusal> {
        let possible = match (qp.kind, wr.op.kind()) {
            (_, OpKind::Send) => !matches!(wr.op, Op::SendInv(_)),
            (QpType::Rc | QpType::Uc, OpKind::Write) => true,
            (QpType::Rc, _) => qp.reads,
            _ => false,
        };
        if !possible {
            return Err(Refusal::Unsupported);
        }
        match (qp.kind, &wr.ud) {
            (QpType::Ud, Some(to)) => self.ahs.handle(to.ah).map(|_| ()).ok_or(Refusal::Destination),
            (QpType::Ud, None) | (_, Some(_)) => Err(Refusal::Destination),
            (_, None) => Ok(()),
        }
    }

    /// The segments of a receive, or why it is not taken.
    #[inline]
    pub(super) fn recv<B: Buf>(&mut self, qp: &Qp<B>, wr: &mut RecvWr<B>) -> Result<(Sge, u16), Refusal> {
        if !qp.state.takes_receives() {
            return Err(Refusal::State);
        }
        if qp.srq.is_some() {
            return Err(Refusal::Unsupported);
        }
        let n = self.receive(&mut wr.buf, qp.kind == QpType::Ud, qp.caps.recv_sge)?;
        if qp.recv.ring.room() == 0 {
            return Err(Refusal::Full);
        }
        Ok((self.first(n), n as u16))
    }

    /// Writes the segments of a receiving buffer; how many, or why it is not taken.
    #[inline]
    fn receive<B: Buf>(&mut self, buf: &mut B, grh: bool, limit: u16) -> Result<usize, Refusal> {
        if !buf.is_empty() || !buf.is_unique() || (grh && !buf.reserve(GRH_BYTES)) {
            return Err(Refusal::NoRoom);
        }
        let out = &mut self.scratch[..usize::from(limit)];
        if grh {
            keyed(spare_behind_grh(buf), self.keys, out)
        } else {
            keyed(spare(buf, usize::MAX), self.keys, out)
        }
    }

    /// The segments of a receive on a shared queue, or why it is not taken.
    #[inline]
    pub(super) fn shared<B: Buf>(&mut self, srq: &Srq<B>, wr: &mut RecvWr<B>) -> Result<(Sge, u16), Refusal> {
        let n = self.receive(&mut wr.buf, false, srq.spec.sge)?;
        Ok((self.first(n), n as u16))
    }

    #[inline]
    fn first(&self, n: usize) -> Sge {
        if n == 0 { NO_SGE } else { self.scratch[0] }
    }
}

#[inline]
pub(super) fn flag(set: bool, flag: Flags) -> u32 {
    if set { flag.0 } else { 0 }
}
