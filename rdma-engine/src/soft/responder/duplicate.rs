//! A request from the past, or from the future.

use super::super::arrived::Arrived;
use super::super::counters::DropReason;
use super::super::qp::Qp;
use super::super::shared::Shared;
use super::Responder;
use super::replay::Asked;
use crate::buf::{Buf, Pool};
use crate::types::{Psn, Rkey};
use crate::wire::{NakCode, Operation, Syndrome};

impl<B: Buf> Qp<B> {
    /// A packet is missing. The peer is told once, until the gap is filled.
    #[cold]
    pub(super) fn on_gap<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>) {
        shared.drop(DropReason::OutOfOrder);
        let r = &mut self.responder;
        if !std::mem::replace(&mut r.gap_told, true) {
            r.owed = Some((r.expected, Syndrome::Nak { code: NakCode::PsnSequence }));
        }
    }

    /// A request that was executed before.
    #[cold]
    pub(super) fn on_duplicate<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        packet: &Arrived,
        frame: &B,
    ) {
        let replayed = match packet.info.operation {
            Operation::Send | Operation::Write => {
                self.responder.acknowledge_again();
                true
            }
            Operation::ReadRequest => {
                let partial = self.hold.is_some();
                let reth = packet.reth(frame.first());
                reth.is_some_and(|r| {
                    let (addr, rkey, len) = (r.addr.get(), r.rkey(), r.len.get());
                    self.responder.read_again(packet.psn, addr, rkey, len, self.pmtu, partial)
                })
            }
            Operation::CompareSwap | Operation::FetchAdd => self.responder.atomic_again(packet.psn),
            _ => false,
        };
        self.report_again();
        shared.drop(if replayed { DropReason::Duplicate } else { DropReason::NotReplayable });
    }
}

impl Responder {
    /// A duplicate SEND or WRITE is acknowledged, asked for or not, with the newest that was executed: never with the
    /// PSN of a READ or atomic, which its requester would take for progress.
    fn acknowledge_again(&mut self) {
        if self.owed.is_none()
            && let Some(psn) = self.newest
        {
            self.owed = Some((psn, Syndrome::ACK));
        }
    }

    /// A duplicate READ is executed again from memory if it lies inside one that is remembered: to its end, or if
    /// `partial` was agreed on, as far as it asks.
    fn read_again(&mut self, psn: Psn, addr: u64, rkey: Rkey, len: u32, pmtu: u32, partial: bool) -> bool {
        let Some((at, exchange, index)) = self.replay.find(psn) else { return false };
        let Asked::Read { addr: start, rkey: key, len: whole } = exchange.asked else { return false };
        let skipped = index * pmtu;
        let rest = whole - skipped;
        let fits = len == rest || partial && len < rest && len > 0 && len.is_multiple_of(pmtu);
        let inside = rkey == key && addr == start.wrapping_add(skipped.into()) && fits;
        if inside {
            let asked = index + len.div_ceil(pmtu).max(1);
            // What was not answered yet still is.
            let to = if exchange.is_pending() { exchange.packets } else { asked };
            self.replay.repeat(at, index, to);
        }
        inside
    }

    /// A duplicate atomic gets the same answer again.
    fn atomic_again(&mut self, psn: Psn) -> bool {
        let found = self.replay.find(psn);
        let Some((at, exchange, _)) = found else { return false };
        let atomic = matches!(exchange.asked, Asked::Atomic { .. });
        if atomic {
            self.replay.repeat(at, 0, 1);
        }
        atomic
    }
}
