//! A request arrives: what has to hold before it is executed, in the order of the standard.

use super::super::arrived::Arrived;
use super::super::counters::DropReason;
use super::super::qp::Qp;
use super::super::shared::Shared;
use super::{Message, Responder};
use crate::buf::{Buf, Pool};
use crate::mem::Access;
use crate::wire::{NakCode, Operation, Position, Syndrome};
use crate::wr::Status;

/// Longest message of the standard, in bytes.
pub(super) const MAX_MESSAGE: u32 = 1 << 31;

/// What is wrong with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// No receive is posted: the peer may try again.
    NoReceive,
    /// The connection ends: what the peer is told, and how the receive in use completes here.
    Fatal(NakCode, Status),
    /// The connection ends and the peer is told nothing: a key could not be invalidated.
    Silent(Status),
}

impl Fault {
    pub(super) const INVALID: Fault = Fault::Fatal(NakCode::InvalidRequest, Status::RemInvReqErr);
    pub(super) const ACCESS: Fault = Fault::Fatal(NakCode::RemoteAccess, Status::LocAccessErr);
    pub(super) const TOO_LONG: Fault = Fault::Fatal(NakCode::InvalidRequest, Status::LocLenErr);
}

impl<B: Buf> Qp<B> {
    /// A request of the peer.
    #[inline(always)]
    pub(crate) fn on_request<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        packet: &Arrived,
        frame: B,
    ) {
        if !self.state.answers() {
            return shared.drop(DropReason::State);
        }
        match packet.psn.since(self.responder.expected) {
            0 => {
                if self.serve_expected(shared, packet, frame) {
                    self.release_held(shared);
                }
            }
            1.. if self.hold.is_some() => self.hold_back(shared, packet, frame),
            1.. => self.on_gap(shared),
            _ => self.on_duplicate(shared, packet, &frame),
        }
        if self.owes() {
            self.wake(shared);
        }
    }

    /// The request that was expected: executed, or refused. True if the next one may follow.
    #[inline(always)]
    pub(crate) fn serve_expected<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        packet: &Arrived,
        frame: B,
    ) -> bool {
        self.responder.fill_gap();
        let result = self.serve(shared, packet, frame);
        if let Err(fault) = result {
            self.refuse(shared, packet.psn, fault);
        }
        result.is_ok()
    }

    /// Checks and executes the request that was expected.
    #[inline(always)]
    fn serve<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        packet: &Arrived,
        frame: B,
    ) -> Result<(), Fault> {
        self.responder.check_sequence(packet)?;
        match packet.info.operation {
            Operation::ReadRequest => {
                self.check_right(Access::REMOTE_READ)?;
                self.serve_read(shared, packet, &frame)
            }
            Operation::Send => {
                self.check_receive(shared, packet)?;
                self.serve_send(shared, packet, frame)
            }
            Operation::Write => {
                self.check_right(Access::REMOTE_WRITE)?;
                self.check_receive(shared, packet)?;
                self.serve_write(shared, packet, frame)
            }
            Operation::CompareSwap | Operation::FetchAdd => {
                self.check_right(Access::REMOTE_ATOMIC)?;
                self.serve_atomic(shared, packet, &frame)
            }
            // FLUSH and ATOMIC_WRITE: not offered, so the peer should not ask.
            _ => Err(Fault::INVALID),
        }
    }

    /// The queue pair's own rights (`qp_access_flags`).
    #[inline]
    fn check_right(&self, need: Access) -> Result<(), Fault> {
        if self.access.allows(need) { Ok(()) } else { Err(Fault::INVALID) }
    }

    /// Where the packet takes a receive there has to be one.
    #[inline]
    fn check_receive<P: Pool<Buf = B>>(&self, shared: &Shared<P>, packet: &Arrived) -> Result<(), Fault> {
        let lacks = packet.info.takes_receive() && !self.has_receive(shared);
        if lacks { Err(Fault::NoReceive) } else { Ok(()) }
    }
}

impl Responder {
    /// The expected packet is here: a NAK about it that is still owed would be a lie.
    #[inline]
    fn fill_gap(&mut self) {
        if std::mem::take(&mut self.gap_told)
            && self.owed.is_some_and(|(_, syndrome)| !matches!(syndrome, Syndrome::Ack { .. }))
        {
            self.owed = None;
        }
    }

    /// FIRST and ONLY start a message where none is unfinished; MIDDLE and LAST go on with one of their kind.
    #[inline]
    fn check_sequence(&self, packet: &Arrived) -> Result<(), Fault> {
        if continues(self.message, packet) { Ok(()) } else { Err(Fault::INVALID) }
    }
}

/// True if `packet` may come next in `message`.
#[inline]
fn continues(message: Message, packet: &Arrived) -> bool {
    match (packet.info.position, message) {
        (Position::First | Position::Only, Message::Idle) => true,
        (Position::Middle | Position::Last, Message::Send) => packet.info.operation == Operation::Send,
        (Position::Middle | Position::Last, Message::Write { .. }) => {
            packet.info.operation == Operation::Write
        }
        _ => false,
    }
}

/// Why `packet` cannot come next in `message`, or has the wrong length there; `left` are the bytes a WRITE has to
/// come. Shared by reliable and unreliable connections.
#[inline]
pub(crate) fn message_fault(message: Message, packet: &Arrived, pmtu: u32) -> Option<Fault> {
    let len = packet.len() as u32;
    let fits = packet.pad_fits && packet.info.payload.permits(len, pmtu);
    let whole = match message {
        Message::Write { left, .. } if packet.info.position.ends() => len == left,
        Message::Write { left, total, .. } => len < left && total <= MAX_MESSAGE,
        _ => true,
    };
    (!fits || !whole).then_some(Fault::INVALID)
}

/// [`continues`], for unreliable connections.
pub(crate) fn is_continuation(message: Message, packet: &Arrived) -> bool {
    continues(message, packet)
}
