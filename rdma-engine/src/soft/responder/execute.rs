//! An expected request is carried out.

use super::super::arrived::Arrived;
use super::super::qp::Qp;
use super::super::shared::Shared;
use super::check::{Fault, MAX_MESSAGE, message_fault};
use super::replay::{Asked, Exchange};
use super::{Message, Responder};
use crate::buf::{Buf, Pool};
use crate::mem::Access;
use crate::types::Psn;
use crate::wire::{Operation, Syndrome};
use crate::wr::{Received, Status};

/// Of what is to be read, so much is fetched from memory ahead: what follows the hardware sees coming. Bytes.
const PREFETCH_BYTES: usize = 256;

impl<B: Buf> Qp<B> {
    /// A packet of a SEND: into the receive.
    #[inline]
    pub(super) fn serve_send<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        packet: &Arrived,
        frame: B,
    ) -> Result<(), Fault> {
        if let Some(fault) = message_fault(Message::Send, packet, self.pmtu) {
            return Err(fault);
        }
        self.take_receive(shared);
        let (imm, invalidated) = (packet.imm(frame.first()), packet.ieth(frame.first()));
        if !self.land(shared, packet, frame) {
            return Err(Fault::TOO_LONG);
        }
        if packet.info.position.ends() {
            if let Some(rkey) = invalidated
                && !shared.regions.invalidate(self.pd, rkey)
            {
                return Err(Fault::Silent(Status::RemInvReqErr));
            }
            let received = Received { imm, invalidated, ..Received::default() };
            self.complete_receive(shared, received, Status::Success);
            shared.solicited |= packet.solicited;
        }
        self.responder.accept(packet, Message::Send);
        Ok(())
    }

    /// A packet of a WRITE: into the region.
    #[inline]
    pub(super) fn serve_write<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        packet: &Arrived,
        frame: B,
    ) -> Result<(), Fault> {
        let bytes = frame.first();
        let message = write_in_progress(self.responder.message, packet, bytes);
        let Message::Write { addr, rkey, left, total } = message else { return Err(Fault::INVALID) };
        if let Some(fault) = message_fault(message, packet, self.pmtu) {
            return Err(fault);
        }
        // Of a message without bytes neither key nor address is looked at.
        if total > 0 {
            let reach = if packet.info.position.starts() { total as usize } else { packet.len() };
            let target = shared.regions.target(self.pd, rkey, Access::REMOTE_WRITE, addr, reach);
            target.ok_or(Fault::ACCESS)?.copy_in(&bytes[packet.payload()]);
        }
        if let Some(imm) = packet.imm(bytes) {
            self.take_receive(shared);
            let received = Received { imm: Some(imm), written: Some(total), ..Received::default() };
            self.complete_receive(shared, received, Status::Success);
            shared.solicited |= packet.solicited;
        }
        let len = packet.len() as u32;
        let rest = Message::Write { addr: addr.wrapping_add(len.into()), rkey, left: left - len, total };
        self.responder.accept(packet, rest);
        Ok(())
    }

    /// A READ: its answer is owed from now on, and read from memory when it is sent.
    #[inline(always)]
    pub(super) fn serve_read<P: Pool<Buf = B>>(
        &mut self,
        shared: &Shared<P>,
        packet: &Arrived,
        frame: &B,
    ) -> Result<(), Fault> {
        let Some(reth) = packet.reth(frame.first()) else { return Err(Fault::INVALID) };
        let (addr, rkey, len) = (reth.addr.get(), reth.rkey(), reth.len.get());
        // Half of the PSNs is the past.
        let packets = if len <= self.pmtu { 1 } else { len.div_ceil(self.pmtu) };
        if packet.len() != 0 || len > MAX_MESSAGE || packets >= 1 << 23 || !self.responder.may_ask() {
            return Err(Fault::INVALID);
        }
        let target = shared.regions.target(self.pd, rkey, Access::REMOTE_READ, addr, len as usize);
        match target {
            // The answer is made when all that came with the request has been looked at.
            Some(target) => target.prefetch((len as usize).min(PREFETCH_BYTES)),
            None if len > 0 => return Err(Fault::ACCESS),
            None => {}
        }
        self.responder.answer_later(packet.psn, packets, Asked::Read { addr, rkey, len });
        Ok(())
    }

    /// An atomic: executed now, answered later, never executed again.
    pub(super) fn serve_atomic<P: Pool<Buf = B>>(
        &mut self,
        shared: &Shared<P>,
        packet: &Arrived,
        frame: &B,
    ) -> Result<(), Fault> {
        let Some(eth) = packet.atomic(frame.first()) else { return Err(Fault::INVALID) };
        if packet.len() != 0 || !self.responder.may_ask() {
            return Err(Fault::INVALID);
        }
        let addr = eth.addr.get();
        let target = shared.regions.target(self.pd, eth.rkey(), Access::REMOTE_ATOMIC, addr, 8);
        let target = target.ok_or(Fault::ACCESS)?;
        if addr % 8 != 0 {
            return Err(Fault::INVALID);
        }
        let original = match packet.info.operation {
            Operation::FetchAdd => target.fetch_add(eth.swap_add.get()),
            _ => target.compare_swap(eth.compare.get(), eth.swap_add.get()),
        };
        self.responder.answer_later(packet.psn, 1, Asked::Atomic { original });
        Ok(())
    }
}

/// The WRITE that `packet` starts or goes on with.
#[inline]
pub(crate) fn write_in_progress(message: Message, packet: &Arrived, frame: &[u8]) -> Message {
    match packet.reth(frame) {
        Some(reth) => {
            let len = reth.len.get();
            Message::Write { addr: reth.addr.get(), rkey: reth.rkey(), left: len, total: len }
        }
        None => message,
    }
}

impl Responder {
    /// A packet of a SEND or WRITE was executed; `message` goes on unless this was its last.
    #[inline]
    fn accept(&mut self, packet: &Arrived, message: Message) {
        let ends = packet.info.position.ends();
        self.message = if ends { Message::Idle } else { message };
        if ends {
            self.count_message();
        }
        self.newest = Some(packet.psn);
        self.expected = packet.psn.advance(1);
        if packet.ack_request {
            // Acknowledges everything before it too, whatever was owed.
            self.owed = Some((packet.psn, Syndrome::ACK));
        }
    }

    /// True if the peer may have one more READ or atomic outstanding.
    fn may_ask(&self) -> bool {
        self.replay.depth() > 0 && !self.replay.is_full()
    }

    /// A READ or atomic was accepted. Its answer acknowledges what came before, so an ACK owed for that is not sent.
    #[inline(always)]
    fn answer_later(&mut self, psn: Psn, packets: u32, asked: Asked) {
        self.count_message();
        self.replay.push(Exchange::new(psn, packets, self.msn, asked));
        self.expected = psn.advance(packets);
        self.owed = None;
    }
}
