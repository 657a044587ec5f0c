//! A request is posted.

use super::super::qp::Qp;
use super::super::shared::{Shared, can_receive};
use super::Wqe;
use crate::buf::{Buf, Pool};
use crate::qp::QpState;
use crate::types::QpType;
use crate::wr::{Op, OpKind, Refusal, Refused, SendWr};

/// Longest message of the standard, in bytes.
const MAX_MESSAGE: u64 = 1 << 31;
/// Most PSNs of a READ. All of its PSNs are outstanding at once, together with a window of others; half of the space
/// has to be left to tell past from future.
const MAX_READ_PACKETS: u32 = 1 << 22;

impl<B: Buf> Qp<B> {
    /// Queues a request, or gives it back.
    pub(crate) fn post_send<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        wr: SendWr<B>,
    ) -> Result<(), Refused<SendWr<B>>> {
        let kind = wr.op.kind();
        let (len, packets) = match self.acceptable(shared, &wr, kind) {
            Ok(fits) => fits,
            Err(why) => return Err(Refused { wr, why }),
        };
        match self.enqueue(wr, kind, len, packets) {
            Ok(()) => {
                self.after_post(shared);
                Ok(())
            }
            Err(wr) => Err(Refused { wr, why: Refusal::Full }),
        }
    }

    #[inline]
    fn after_post<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>) {
        shared.counters.sends_posted += 1;
        if self.state == QpState::Err {
            self.flush_sends(shared);
        } else {
            self.wake(shared);
        }
    }

    /// Length and packets of an acceptable request.
    #[inline]
    fn acceptable<P: Pool<Buf = B>>(
        &self,
        shared: &Shared<P>,
        wr: &SendWr<B>,
        kind: OpKind,
    ) -> Result<(u32, u32), Refusal> {
        if !self.state.takes_sends() {
            return Err(Refusal::State);
        }
        if self.requester.room() == 0 {
            return Err(Refusal::Full);
        }
        if self.spec.kind != QpType::Rc && !self.supports(&wr.op) {
            return Err(Refusal::Unsupported);
        }
        self.check_destination(shared, wr)?;
        if wr.buf.segment_count() > usize::from(self.spec.caps.send_sge.max(1)) {
            return Err(Refusal::TooManySegments);
        }
        let len = match kind {
            OpKind::Send | OpKind::Write => wr.buf.len() as u64,
            OpKind::Read | OpKind::FetchAdd | OpKind::CompareSwap => self.check_response(wr)?,
        };
        match kind {
            OpKind::FetchAdd | OpKind::CompareSwap => Ok((8, 1)),
            _ => self.check_length(kind, len),
        }
    }

    #[inline]
    fn supports(&self, op: &Op) -> bool {
        match self.spec.kind {
            QpType::Rc => true,
            QpType::Uc => matches!(op, Op::Send | Op::SendImm(_) | Op::Write(_) | Op::WriteImm(..)),
            QpType::Ud => matches!(op, Op::Send | Op::SendImm(_)),
        }
    }

    #[inline]
    fn check_destination<P: Pool<Buf = B>>(&self, shared: &Shared<P>, wr: &SendWr<B>) -> Result<(), Refusal> {
        let fits = match &wr.ud {
            None => self.spec.kind != QpType::Ud,
            Some(ud) => self.spec.kind == QpType::Ud && usize::from(ud.ah.0) < shared.paths.len(),
        };
        if fits { Ok(()) } else { Err(Refusal::Destination) }
    }

    /// Length of a request whose answer fills the buffer.
    #[inline]
    fn check_response(&self, wr: &SendWr<B>) -> Result<u64, Refusal> {
        if self.requester.max_rd_atomic == 0 && self.state != QpState::Err {
            return Err(Refusal::Unsupported);
        }
        let len = wr.op.response_len();
        if can_receive(&wr.buf, len as usize) { Ok(len.into()) } else { Err(Refusal::NoRoom) }
    }

    #[inline]
    fn check_length(&self, kind: OpKind, len: u64) -> Result<(u32, u32), Refusal> {
        let pmtu = self.pmtu.max(1);
        if self.spec.kind == QpType::Ud && len > u64::from(pmtu) {
            return Err(Refusal::TooLong);
        }
        packets_of(kind, len, pmtu)
    }

    #[inline]
    fn enqueue(&mut self, wr: SendWr<B>, kind: OpKind, len: u32, packets: u32) -> Result<(), SendWr<B>> {
        let r = &mut self.requester;
        let wqe = Wqe { wr, kind, first: r.tail, packets, len };
        r.ring.push(wqe).map_err(|wqe| wqe.wr)?;
        r.tail = r.tail.advance(packets);
        r.outstanding += 1;
        Ok(())
    }
}

/// Length and packets of a message of a connection, unless it is too long.
#[inline]
fn packets_of(kind: OpKind, len: u64, pmtu: u32) -> Result<(u32, u32), Refusal> {
    if len <= pmtu.into() {
        return Ok((len as u32, 1));
    }
    let packets = len.div_ceil(pmtu.into());
    let too_long = kind == OpKind::Read && packets > MAX_READ_PACKETS.into();
    if too_long || len > MAX_MESSAGE { Err(Refusal::TooLong) } else { Ok((len as u32, packets as u32)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_long_as_the_standard_allows_but_for_reads_in_tiny_packets() {
        for pmtu in [256, 512, 1024, 2048, 4096] {
            let most = if pmtu == 256 { 1 << 30 } else { 1 << 31 };
            assert_eq!(
                packets_of(OpKind::Read, most, pmtu),
                Ok((most as u32, (most / u64::from(pmtu)) as u32))
            );
            assert_eq!(packets_of(OpKind::Read, most + 1, pmtu), Err(Refusal::TooLong));
            assert!(packets_of(OpKind::Write, 1 << 31, pmtu).is_ok());
            assert_eq!(packets_of(OpKind::Send, (1 << 31) + 1, pmtu), Err(Refusal::TooLong));
        }
    }
}
