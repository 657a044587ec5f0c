//! The next packet of a request is due.

use super::super::counters::DropReason;
use super::super::frame;
use super::super::path::Path;
use super::super::qp::Qp;
use super::super::shared::Shared;
use super::{Requester, Wqe, forward};
use crate::buf::{Buf, Egress, Pool};
use crate::qp::QpState;
use crate::types::{Psn, QpType, Time};
use crate::wire::{
    AtomicEth, Bth, Deth, DethImm, Ieth, ImmDt, NoHeaders, Opcode, Position, Reth, RethImm, Tailing,
};
use crate::wr::{Op, OpKind, RemoteSlice, Status, UdDest};
use zerocopy::big_endian::U32;

/// Packets after which an acknowledgement is asked for in the middle of a message.
const MAX_UNASKED: u32 = 64;

/// What a turn to send came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// A frame was sent.
    Sent,
    /// Nothing may be sent now; an event will change that.
    Idle,
    /// The pool is dry; try again later.
    Dry,
}

/// The packet that is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) psn: Psn,
    /// Which packet of its message.
    pub(super) index: u32,
    pub(super) position: Position,
    /// Offset of its payload in the message.
    pub(super) offset: usize,
    /// Bytes of it, or those that a READ asks for.
    pub(super) len: usize,
    pub(super) ack_request: bool,
}

impl<B: Buf> Requester<B> {
    /// True if the packet that is due may leave now.
    #[inline]
    fn may_send(&self, wqe: &Wqe<B>) -> bool {
        if self.rnr_until != Time::NEVER || forward(self.una, self.next) >= self.window {
            return false;
        }
        // Requests wait only before their first packet; a resumed READ starts in the middle.
        if wqe.fills_buffer() && self.reads >= self.max_rd_atomic {
            return false;
        }
        !(wqe.wr.fence && self.packet == 0 && self.reads > 0)
    }

    /// In SQD only what has been started goes on.
    #[inline]
    fn is_held(&self) -> bool {
        self.drain_at.is_some_and(|at| at == self.send)
    }

    #[inline]
    fn due(&self, wqe: &Wqe<B>, pmtu: u32) -> Due {
        let position = Position::of(self.packet, wqe.packets);
        let offset = self.packet as usize * pmtu as usize;
        let rest = wqe.len as usize - offset;
        // A READ asks for all that is left of it.
        let len = if wqe.kind == OpKind::Read { rest } else { rest.min(pmtu as usize) };
        // The last packet before the window closes asks too, or nobody would open it again.
        let closing = forward(self.una, self.next) + 1 >= self.window;
        let ack_request = position.ends() || closing || self.unasked >= MAX_UNASKED;
        Due { psn: self.next, index: self.packet, position, offset, len, ack_request }
    }

    /// The packet `due`, `psns` of them for a READ, has been sent.
    #[inline]
    fn sent(&mut self, due: &Due, psns: u32, packets: u32, fills: bool) {
        self.next = due.psn.advance(psns);
        if forward(self.una, self.next) > forward(self.una, self.high) {
            self.high = self.next;
        }
        self.unasked = if due.ack_request { 0 } else { self.unasked + 1 };
        self.packet = due.index + psns;
        if self.packet == packets {
            self.send = self.send.wrapping_add(1);
            self.packet = 0;
            self.reads += u32::from(fills);
        }
    }
}

impl<B: Buf> Qp<B> {
    /// Sends the next packet of the send queue, if one is due and may leave.
    #[inline]
    pub(crate) fn send_request<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        egress: &mut impl Egress<B>,
    ) -> Turn {
        if self.requester.may_have_hole() && matches!(self.state, QpState::Rts | QpState::Sqd) {
            match self.send_again(shared, now, egress) {
                Turn::Idle => {}
                other => return other,
            }
        }
        let r = &self.requester;
        if !r.has_unsent() || self.state != QpState::Rts && (self.state != QpState::Sqd || r.is_held()) {
            return Turn::Idle;
        }
        if self.has_to_wait(shared, now) {
            return Turn::Idle;
        }
        match self.spec.kind {
            QpType::Rc => self.send_reliable(shared, now, egress),
            QpType::Uc => self.send_unreliable(shared, now, egress),
            QpType::Ud => self.send_datagram(shared, now, egress),
        }
    }

    #[inline]
    fn send_reliable<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        egress: &mut impl Egress<B>,
    ) -> Turn {
        let (r, Some(path)) = (&self.requester, &self.path) else { return Turn::Idle };
        let Some(wqe) = r.ring.entry(r.send).filter(|w| r.may_send(w)) else { return Turn::Idle };
        let mut due = r.due(wqe, self.pmtu);
        // At a slow pace the packet that would ask comes too late for the timer.
        due.ack_request |= self.congestion.is_paced();
        let Some(frame) = self.build_here(shared, path, wqe, &due) else { return Turn::Dry };
        let (packets, fills) = (wqe.packets, wqe.fills_buffer());
        let psns = if fills { packets - due.index } else { 1 };
        let fresh = forward(r.una, due.psn) >= forward(r.una, r.high);
        if !fresh {
            shared.soft.retransmitted += 1;
            shared.soft.reads_resumed += u64::from(fills && due.index > 0);
        }
        self.congestion.sent(&shared.config, now, frame.len());
        push(shared, self.id.slot, egress, frame);
        let r = &mut self.requester;
        r.sent(&due, psns, packets, fills);
        if r.selective.is_some() {
            r.note_sent(now, due.psn, fresh, due.ack_request || fills);
            shared.timers.fire_by(self.id.slot, r.probe_at());
        }
        if r.deadline == Time::NEVER {
            r.deadline = r.timeout_at(now);
            shared.timers.fire_by(self.id.slot, r.deadline);
        }
        Turn::Sent
    }

    fn send_unreliable<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        egress: &mut impl Egress<B>,
    ) -> Turn {
        let (r, Some(path)) = (&self.requester, &self.path) else { return Turn::Idle };
        let Some(wqe) = r.ring.entry(r.send) else { return Turn::Idle };
        let due = Due { ack_request: false, ..r.due(wqe, self.pmtu) };
        let Some(frame) = self.build(shared, path, wqe, &due) else { return Turn::Dry };
        let packets = wqe.packets;
        self.congestion.sent(&shared.config, now, frame.len());
        push(shared, self.id.slot, egress, frame);
        self.requester.sent(&due, 1, packets, false);
        if due.position.ends() {
            // Done when transmitted.
            self.complete_send(shared, Status::Success);
        }
        Turn::Sent
    }

    fn send_datagram<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        egress: &mut impl Egress<B>,
    ) -> Turn {
        let r = &self.requester;
        let Some(wqe) = r.ring.entry(r.send) else { return Turn::Idle };
        // Without a destination none was posted.
        let Some(to) = wqe.wr.ud else { return Turn::Idle };
        if !shared.paths[usize::from(to.ah.0)].resolved {
            return self.await_datagram_path(shared, now, to);
        }
        let due = Due { ack_request: false, ..r.due(wqe, self.pmtu) };
        let path = &shared.paths[usize::from(to.ah.0)];
        let Some(frame) = self.build_datagram(shared, path, wqe, &due, to) else { return Turn::Dry };
        push(shared, self.id.slot, egress, frame);
        self.requester.sent(&due, 1, 1, false);
        self.complete_send(shared, Status::Success);
        Turn::Sent
    }

    /// The destination's MAC address is not known. After too long the datagram is lost, as datagrams may be.
    #[cold]
    fn await_datagram_path<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        to: UdDest,
    ) -> Turn {
        let at = usize::from(to.ah.0);
        let mut path = shared.paths[at].clone();
        let hope = shared.ask_neighbour(now, &mut path);
        let resolved = path.resolved;
        shared.paths[at] = path;
        if hope && !resolved {
            self.ask_again = now.after_ns(super::super::ASK_AGAIN_NS);
            shared.timers.fire_by(self.id.slot, self.ask_again);
            return Turn::Idle;
        }
        if !resolved {
            shared.drop(DropReason::Unresolved);
            shared.paths[at].waiting_since = Time::NEVER;
            let r = &mut self.requester;
            let due = r.ring.entry(r.send).map(|wqe| r.due(wqe, self.pmtu));
            if let Some(due) = due {
                r.sent(&due, 1, 1, false);
                self.complete_send(shared, Status::Success);
            }
        }
        self.wake(shared);
        Turn::Idle
    }

    /// Makes the frame of a connected queue pair.
    #[inline(never)]
    pub(super) fn build<P: Pool<Buf = B>>(
        &self,
        shared: &Shared<P>,
        path: &Path,
        wqe: &Wqe<B>,
        due: &Due,
    ) -> Option<B> {
        self.build_here(shared, path, wqe, due)
    }

    /// The same in the place where nearly all frames are made.
    #[inline(always)]
    fn build_here<P: Pool<Buf = B>>(
        &self,
        shared: &Shared<P>,
        path: &Path,
        wqe: &Wqe<B>,
        due: &Due,
    ) -> Option<B> {
        match wqe.wr.op {
            Op::Send => self.build_send(shared, path, wqe, due, Tailing::Plain, NoHeaders),
            Op::SendImm(imm) => self.build_send(shared, path, wqe, due, Tailing::Immediate, imm_header(imm)),
            Op::SendInv(rkey) => {
                let ieth = Ieth { rkey: U32::new(rkey.0) };
                self.build_send(shared, path, wqe, due, Tailing::Invalidate, ieth)
            }
            Op::Write(to) => self.build_write(shared, path, wqe, due, to, None),
            Op::WriteImm(to, imm) => self.build_write(shared, path, wqe, due, to, Some(imm)),
            Op::Read(from) => self.build_read(shared, path, due, from),
            Op::FetchAdd { word, add } => {
                let eth = AtomicEth::fetch_add(word.addr, word.rkey, add);
                self.build_bare(shared, path, Opcode::RC_FETCH_ADD, due, &eth)
            }
            Op::CompareSwap { word, compare, swap } => {
                let eth = AtomicEth::compare_swap(word.addr, word.rkey, compare, swap);
                self.build_bare(shared, path, Opcode::RC_COMPARE_SWAP, due, &eth)
            }
        }
    }

    /// The BTH of a packet of a SEND or WRITE.
    #[inline]
    fn message_bth(&self, opcode: Opcode, wqe: &Wqe<B>, due: &Due) -> Bth {
        let solicited = wqe.wr.solicited && due.position.ends();
        self.bth(opcode, due.psn).with_ack_request(due.ack_request).with_solicited(solicited)
    }

    #[inline]
    fn with_payload<P: Pool<Buf = B>, H: crate::wire::ExtendedHeaders>(
        &self,
        shared: &Shared<P>,
        path: &Path,
        bth: Bth,
        extended: &H,
        wqe: &Wqe<B>,
        due: &Due,
    ) -> Option<B> {
        let put = |out: &mut [u8]| copy_payload(&wqe.wr.buf, due.offset, out);
        frame::build(&shared.pool, shared.config.icrc, &path.template, bth, extended, due.len, put)
    }

    #[inline]
    fn build_send<P: Pool<Buf = B>, H: crate::wire::ExtendedHeaders>(
        &self,
        shared: &Shared<P>,
        path: &Path,
        wqe: &Wqe<B>,
        due: &Due,
        tailing: Tailing,
        tail: H,
    ) -> Option<B> {
        let bth = self.message_bth(Opcode::send(self.transport(), due.position, tailing), wqe, due);
        if due.position.ends() {
            self.with_payload(shared, path, bth, &tail, wqe, due)
        } else {
            self.with_payload(shared, path, bth, &NoHeaders, wqe, due)
        }
    }

    #[inline]
    fn build_write<P: Pool<Buf = B>>(
        &self,
        shared: &Shared<P>,
        path: &Path,
        wqe: &Wqe<B>,
        due: &Due,
        to: RemoteSlice,
        imm: Option<u32>,
    ) -> Option<B> {
        let opcode = Opcode::write(self.transport(), due.position, imm.is_some());
        let mut bth = self.message_bth(opcode, wqe, due);
        if imm.is_none() {
            bth = bth.with_solicited(false);
        }
        let reth = Reth::new(to.addr, to.rkey, wqe.len);
        match (due.position, imm) {
            (Position::Only, Some(imm)) => {
                let headers = RethImm { reth, imm: imm_header(imm) };
                self.with_payload(shared, path, bth, &headers, wqe, due)
            }
            (Position::Last, Some(imm)) => self.with_payload(shared, path, bth, &imm_header(imm), wqe, due),
            (Position::First | Position::Only, _) => self.with_payload(shared, path, bth, &reth, wqe, due),
            (Position::Middle | Position::Last, _) => {
                self.with_payload(shared, path, bth, &NoHeaders, wqe, due)
            }
        }
    }

    /// A READ request, for all of it or from the first missing byte on.
    fn build_read<P: Pool<Buf = B>>(
        &self,
        shared: &Shared<P>,
        path: &Path,
        due: &Due,
        from: RemoteSlice,
    ) -> Option<B> {
        let addr = from.addr.wrapping_add(due.offset as u64);
        let reth = Reth::new(addr, from.rkey, due.len as u32);
        self.build_bare(shared, path, Opcode::RC_READ_REQUEST, due, &reth)
    }

    /// A request without payload that has an answer of its own.
    #[inline]
    fn build_bare<P: Pool<Buf = B>, H: crate::wire::ExtendedHeaders>(
        &self,
        shared: &Shared<P>,
        path: &Path,
        opcode: Opcode,
        due: &Due,
        extended: &H,
    ) -> Option<B> {
        let bth = self.bth(opcode, due.psn).with_ack_request(true);
        frame::build(&shared.pool, shared.config.icrc, &path.template, bth, extended, 0, |_| ())
    }

    fn build_datagram<P: Pool<Buf = B>>(
        &self,
        shared: &Shared<P>,
        path: &Path,
        wqe: &Wqe<B>,
        due: &Due,
        to: UdDest,
    ) -> Option<B> {
        let deth = Deth::new(to.qkey, self.number.qpn);
        let bth = |opcode| Bth::new(opcode, to.qpn, due.psn).with_solicited(wqe.wr.solicited);
        match wqe.wr.op {
            Op::SendImm(imm) => {
                let headers = DethImm { deth, imm: imm_header(imm) };
                self.with_payload(shared, path, bth(Opcode::UD_SEND_ONLY_IMM), &headers, wqe, due)
            }
            _ => self.with_payload(shared, path, bth(Opcode::UD_SEND_ONLY), &deth, wqe, due),
        }
    }
}

fn imm_header(imm: u32) -> ImmDt {
    ImmDt { data: imm.to_be_bytes() }
}

/// Copies the payload of a packet out of the poster's buffer.
#[inline]
fn copy_payload<B: Buf>(buf: &B, offset: usize, out: &mut [u8]) {
    if let Some(bytes) = buf.first().get(offset..offset + out.len()) {
        crate::buf::copy(out, bytes);
    } else {
        crate::buf::copy_out(buf, offset, out);
    }
}

/// Puts a frame into the egress. One that is refused is lost, as on the wire.
#[inline(always)]
pub(crate) fn push<P: Pool>(
    shared: &mut Shared<P>,
    slot: u16,
    egress: &mut impl Egress<P::Buf>,
    frame: P::Buf,
) {
    if let Some(recorder) = &mut shared.recorder {
        recorder.note(slot, true, &frame);
    }
    match egress.push(frame) {
        Ok(()) => shared.soft.frames_out += 1,
        Err(_lost) => shared.drop(DropReason::EgressFull),
    }
}
