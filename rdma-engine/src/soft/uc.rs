//! Unreliable connection, receiving side: whole messages or nothing, no answer ever.
//!
//! A packet that does not continue the message drops that message; the next FIRST or ONLY starts a new one, whatever
//! its PSN. A receive that was partly filled is used for it.

use super::arrived::Arrived;
use super::counters::DropReason;
use super::qp::Qp;
use super::responder::{Message, is_continuation, message_fault, write_in_progress};
use super::shared::Shared;
use crate::buf::{Buf, Pool};
use crate::mem::Access;
use crate::wire::Operation;
use crate::wr::{Received, Status};

impl<B: Buf> Qp<B> {
    /// A packet for an unreliable connection.
    pub(crate) fn on_unreliable<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        packet: &Arrived,
        frame: B,
    ) {
        if !self.state.answers() {
            return shared.drop(DropReason::State);
        }
        let starts = packet.info.position.starts();
        if starts || packet.psn != self.responder.expected {
            // Whatever was unfinished is lost.
            self.break_message();
        }
        self.responder.expected = packet.psn.advance(1);
        let served = if !is_continuation(self.responder.message, packet) {
            Err(DropReason::BrokenMessage)
        } else {
            match packet.info.operation {
                Operation::Send => self.take_unreliable_send(shared, packet, frame),
                _ => self.take_unreliable_write(shared, packet, &frame),
            }
        };
        if let Err(reason) = served {
            self.break_message();
            shared.drop(reason);
        }
    }

    fn break_message(&mut self) {
        self.responder.message = Message::Idle;
        self.receives.restart();
    }

    fn take_unreliable_send<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        packet: &Arrived,
        frame: B,
    ) -> Result<(), DropReason> {
        if message_fault(Message::Send, packet, self.pmtu).is_some() {
            return Err(DropReason::Refused);
        }
        if !self.take_receive(shared) {
            return Err(DropReason::NoReceive);
        }
        let imm = packet.imm(frame.first());
        if !self.land(shared, packet, frame) {
            return Err(DropReason::TooLong);
        }
        self.responder.message = Message::Send;
        if packet.info.position.ends() {
            self.responder.message = Message::Idle;
            let received = Received { imm, ..Received::default() };
            self.complete_receive(shared, received, Status::Success);
            shared.solicited |= packet.solicited;
        }
        Ok(())
    }

    fn take_unreliable_write<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        packet: &Arrived,
        frame: &B,
    ) -> Result<(), DropReason> {
        let bytes = frame.first();
        let message = write_in_progress(self.responder.message, packet, bytes);
        let Message::Write { addr, rkey, left, total } = message else {
            return Err(DropReason::BrokenMessage);
        };
        if message_fault(message, packet, self.pmtu).is_some() {
            return Err(DropReason::Refused);
        }
        if !self.access.allows(Access::REMOTE_WRITE) {
            return Err(DropReason::NoAccess);
        }
        let imm = packet.imm(bytes);
        if imm.is_some() && !self.take_receive(shared) {
            return Err(DropReason::NoReceive);
        }
        if total > 0 {
            let reach = if packet.info.position.starts() { total as usize } else { packet.len() };
            let target = shared.regions.target(self.pd, rkey, Access::REMOTE_WRITE, addr, reach);
            target.ok_or(DropReason::NoAccess)?.copy_in(&bytes[packet.payload()]);
        }
        if let Some(imm) = imm {
            let received = Received { imm: Some(imm), written: Some(total), ..Received::default() };
            self.complete_receive(shared, received, Status::Success);
            shared.solicited |= packet.solicited;
        }
        let len = packet.len() as u32;
        let rest = Message::Write { addr: addr.wrapping_add(len.into()), rkey, left: left - len, total };
        self.responder.message = if packet.info.position.ends() { Message::Idle } else { rest };
        Ok(())
    }
}
