//! The life of one message, step by step: from the work request to its completion.
//!
//! Told on a second look at the packets: a second pass over the file, so that nothing has to be kept for it, or
//! what is remembered of an input that cannot be read twice. The steps are those of the textbooks; what a
//! capture cannot show (posting, DMA, completion queues) is said to be inferred.

use std::fmt::{self, Write};

use rdma_engine::types::Qpn;
use rdma_engine::wire::Operation;

use super::conversation::{FlowKey, Kind, Message, Outcome};
use super::dissect::IcrcVerdict;
use super::packet_view::View;
use super::units::{Bytes, Count, Duration};

/// Most packets of a message shown one by one.
const MAX_SHOWN: usize = 8;

/// Collects the packets of one message, then tells of it.
pub(super) struct Story {
    key: FlowKey,
    message: Message,
    /// The requester's own queue pair, where it is known.
    own_qpn: Option<Qpn>,
    start_ns: Option<u64>,
    /// The last frame that is no longer known, where the input could not be read twice.
    forgotten: Option<u64>,
    requests: Shown,
    answers: Shown,
}

/// The first lines of what may be many.
#[derive(Default)]
struct Shown {
    lines: Vec<String>,
    left_out: u64,
}

impl Shown {
    fn push(&mut self, line: impl FnOnce() -> String) {
        if self.lines.len() < MAX_SHOWN {
            self.lines.push(line());
        } else {
            self.left_out += 1;
        }
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        for line in &self.lines {
            writeln!(out, "       {line}")?;
        }
        match self.left_out {
            0 => Ok(()),
            n => writeln!(out, "       and {}", Count(n, "more packet")),
        }
    }
}

impl Story {
    pub(super) fn new(key: FlowKey, message: Message, own_qpn: Option<Qpn>, start_ns: Option<u64>) -> Self {
        let (requests, answers) = (Shown::default(), Shown::default());
        Story { key, message, own_qpn, start_ns, forgotten: None, requests, answers }
    }

    /// Frames up to this one cannot be shown.
    pub(super) fn forget_through(&mut self, frame: Option<u64>) {
        self.forgotten = frame.filter(|frame| *frame >= self.message.first.frame);
    }

    /// The last frame that can belong to the message.
    pub(super) fn last_frame(&self) -> u64 {
        self.message.answer.map_or(self.message.latest.frame, |answer| answer.frame)
    }

    /// Takes in a packet of the second look, if it belongs to the message.
    pub(super) fn observe(&mut self, view: &View) {
        let frame = view.moment.frame;
        if frame < self.message.first.frame || frame > self.last_frame() {
            return;
        }
        let there = (view.source, view.destination) == (self.key.source, self.key.destination);
        let back = (view.destination, view.source) == (self.key.source, self.key.destination);
        let same_transport = view.info.transport == self.key.transport;
        let is_answer = view.info.is_response();
        if there && same_transport && view.dest_qpn == self.key.dest_qpn && !is_answer {
            if self.message.contains(view.psn) {
                let line = self.request_line(view);
                self.requests.push(|| line);
            }
        } else if back && same_transport && is_answer && self.own_qpn.is_none_or(|own| own == view.dest_qpn) {
            let settles = self.message.answer.is_some_and(|answer| answer.frame == frame);
            if settles || self.message.contains(view.psn) {
                let line = self.answer_line(view);
                self.answers.push(|| line);
            }
        }
    }

    fn time(&self, view: &View) -> String {
        let since = view.moment.time_ns.zip(self.start_ns).map(|(time, start)| time.saturating_sub(start));
        since.map_or(String::new(), |ns| format!(" at {:.6} s", ns as f64 / 1e9))
    }

    fn request_line(&self, view: &View) -> String {
        let mut line = format!(
            "frame {}{}: BTH opcode {:#04x} {}, QP {}, PSN {}, AckReq {}, SE {}, pad {}, P_Key {:#06x}",
            view.moment.frame,
            self.time(view),
            view.opcode,
            view.info.name,
            view.dest_qpn,
            view.psn,
            u8::from(view.bits.ack_request),
            u8::from(view.bits.solicited),
            view.bits.pad,
            view.bits.pkey
        );
        if let Some(remote) = view.remote {
            let header = match view.info.operation {
                Operation::CompareSwap | Operation::FetchAdd => "AtomicETH",
                _ => "RETH",
            };
            let (addr, rkey, len) = (remote.addr, remote.rkey, Bytes(u64::from(remote.len)));
            line += &format!("; {header} address {addr:#x}, rkey {rkey:#x}, length {len}");
        }
        if view.payload_len > 0 {
            line += &format!("; payload {}", Bytes(u64::from(view.payload_len)));
        }
        line + icrc_words(view.icrc)
    }

    fn answer_line(&self, view: &View) -> String {
        let mut line = format!(
            "frame {}{}: BTH opcode {:#04x} {}, QP {}, PSN {}",
            view.moment.frame,
            self.time(view),
            view.opcode,
            view.info.name,
            view.dest_qpn,
            view.psn
        );
        if let Some(((syndrome, msn), meaning)) = view.aeth.zip(view.syndrome) {
            line += &format!("; AETH syndrome {syndrome:#04x} = {meaning}, MSN {msn}");
        }
        if let Some(original) = view.original {
            line += &format!("; AtomicAckETH: the value was {original:#x}");
        }
        if view.payload_len > 0 {
            line += &format!("; payload {}", Bytes(u64::from(view.payload_len)));
        }
        line + icrc_words(view.icrc)
    }

    /// Tells the story.
    pub(super) fn tell(&self, out: &mut String) -> fmt::Result {
        let message = &self.message;
        writeln!(out, "\nThe life of one {} (frame {})", message.title(), message.first.frame)?;
        self.tell_posting(out)?;
        self.tell_packets(out)?;
        self.tell_arrival(out)?;
        self.tell_answer(out)?;
        self.tell_completion(out)
    }

    fn tell_posting(&self, out: &mut String) -> fmt::Result {
        let message = &self.message;
        let (requester, responder) = (self.key.source.ip(), self.key.destination.ip());
        let own = self.own_qpn.map_or(String::new(), |qpn| format!(" {qpn}"));
        let verb = match (message.kind, message.imm, message.invalidate) {
            (Kind::Send, true, _) => "IBV_WR_SEND_WITH_IMM",
            (Kind::Send, _, true) => "IBV_WR_SEND_WITH_INV",
            (Kind::Send, ..) => "IBV_WR_SEND",
            (Kind::Write, true, _) => "IBV_WR_RDMA_WRITE_WITH_IMM",
            (Kind::Write, ..) => "IBV_WR_RDMA_WRITE",
            (Kind::Read, ..) => "IBV_WR_RDMA_READ",
            (Kind::CompareSwap, ..) => "IBV_WR_ATOMIC_CMP_AND_SWP",
            (Kind::FetchAdd, ..) => "IBV_WR_ATOMIC_FETCH_AND_ADD",
            (Kind::Flush, ..) => "IBV_WR_FLUSH",
            (Kind::AtomicWrite, ..) => "IBV_WR_ATOMIC_WRITE",
        };
        writeln!(
            out,
            "  1. Work request. {requester} posted {verb} of {} to the send queue (SQ) of its QP{own} with \
             ibv_post_send. Local address and lkey stay in the host: no packet carries them. [inferred]",
            Bytes(message.len())
        )?;
        if message.kind == Kind::Send || message.imm {
            writeln!(
                out,
                "     {responder} had posted a receive (ibv_post_recv) to QP {}: without one it answers RNR \
                 NAK instead of ACK. [inferred]",
                self.key.dest_qpn
            )?;
        }
        Ok(())
    }

    fn tell_packets(&self, out: &mut String) -> fmt::Result {
        let message = &self.message;
        let packets = match message.kind {
            Kind::Read | Kind::Flush => 1,
            _ => message.packets,
        };
        write!(
            out,
            "  2. On the wire. The adapter read the data by DMA and made {}: ",
            Count(u64::from(packets), "packet")
        )?;
        match message.kind {
            Kind::Send => writeln!(
                out,
                "each has a BTH (which QP, which PSN). A SEND has no RETH: the receiver's own buffer says \
                 where the data goes."
            )?,
            Kind::CompareSwap | Kind::FetchAdd => {
                writeln!(out, "a BTH, then an AtomicETH with address, rkey and operands.")?;
            }
            Kind::Read => writeln!(
                out,
                "a BTH, then a RETH with the remote address, rkey and length. The data comes back in \
                 READ responses, which take {} from this one on.",
                Count(u64::from(message.packets), "PSN")
            )?,
            _ => writeln!(
                out,
                "each has a BTH; the first also a RETH: where in the peer's memory, by which rkey, how many \
                 bytes."
            )?,
        }
        if let Some(frame) = self.forgotten {
            writeln!(
                out,
                "       frames up to {frame} are no longer known, as the capture was not read from a file"
            )?;
        }
        self.requests.write(out)?;
        if message.resent > 0 {
            writeln!(out, "     {} of it sent again.", Count(u64::from(message.resent), "packet"))?;
        }
        Ok(())
    }

    fn tell_arrival(&self, out: &mut String) -> fmt::Result {
        let (responder, qpn) = (self.key.destination.ip(), self.key.dest_qpn);
        let check = "checked ICRC, QP and PSN";
        match self.message.kind {
            Kind::Send => writeln!(
                out,
                "  3. Arrival. {responder}'s adapter {check}, took the oldest receive of QP {qpn}, wrote the \
                 data into its buffer by DMA, and put a completion (CQE: IBV_WC_RECV, byte_len {}) into the \
                 completion queue, which its program finds with ibv_poll_cq. [inferred]",
                self.message.len()
            ),
            Kind::Write if self.message.imm => writeln!(
                out,
                "  3. Arrival. {responder}'s adapter {check}, the rkey and its bounds, wrote the data by DMA, and \
                 completed a receive (IBV_WC_RECV_RDMA_WITH_IMM) to hand over the immediate. [inferred]"
            ),
            Kind::Write => writeln!(
                out,
                "  3. Arrival. {responder}'s adapter {check}, the rkey and its bounds, and wrote the data into \
                 memory by DMA. Its CPU notices nothing, no completion is made there. [inferred]"
            ),
            _ => writeln!(
                out,
                "  3. Arrival. {responder}'s adapter {check}, the rkey and its bounds, and did the work in \
                 memory by itself. Its CPU notices nothing. [inferred]"
            ),
        }
    }

    fn tell_answer(&self, out: &mut String) -> fmt::Result {
        let message = &self.message;
        match message.outcome {
            Outcome::Pending => out.push_str("  4. Answer. None in this capture.\n"),
            Outcome::Answered if message.kind.has_own_response() => {
                out.push_str("  4. Answer. The response acknowledges the request as well:\n");
            }
            Outcome::Answered => out.push_str(
                "  4. Answer. An ACK: its PSN says up to which packet everything arrived, its AETH how it \
                 went and how many messages are complete (MSN):\n",
            ),
            Outcome::Refused(_) => out.push_str("  4. Answer. A NAK, which ends the connection:\n"),
        }
        self.answers.write(out)
    }

    fn tell_completion(&self, out: &mut String) -> fmt::Result {
        let message = &self.message;
        let opcode = match message.kind {
            Kind::Send => "IBV_WC_SEND",
            Kind::Write => "IBV_WC_RDMA_WRITE",
            Kind::Read => "IBV_WC_RDMA_READ",
            Kind::CompareSwap => "IBV_WC_COMP_SWAP",
            Kind::FetchAdd => "IBV_WC_FETCH_ADD",
            Kind::Flush => "IBV_WC_FLUSH",
            Kind::AtomicWrite => "IBV_WC_ATOMIC_WRITE",
        };
        let took = message.answer.and_then(|answer| answer.since_ns(&message.first));
        let took = took.map_or(String::new(), |ns| format!(", {} after its first packet", Duration(ns)));
        match message.outcome {
            Outcome::Answered => writeln!(
                out,
                "  5. Completion. With that answer, not before, the work request is complete: if it was \
                 signaled, {}'s adapter puts a CQE ({opcode}, IBV_WC_SUCCESS) into its completion queue{took}, and \
                 the buffer belongs to the program again. [inferred]",
                self.key.source.ip()
            ),
            Outcome::Refused(code) => writeln!(
                out,
                "  5. Completion. An error CQE ({}); the QP goes to the error state and flushes what is \
                 behind. [inferred]",
                refused_status(code)
            ),
            Outcome::Pending => writeln!(
                out,
                "  5. Completion. Not yet: without an answer the requester repeats until its retries are used \
                 up, then completes it with an error (IBV_WC_RETRY_EXC_ERR). [inferred]"
            ),
        }
    }
}

fn refused_status(code: rdma_engine::wire::NakCode) -> &'static str {
    use rdma_engine::wire::NakCode;
    match code {
        NakCode::InvalidRequest => "IBV_WC_REM_INV_REQ_ERR",
        NakCode::RemoteAccess => "IBV_WC_REM_ACCESS_ERR",
        _ => "IBV_WC_REM_OP_ERR",
    }
}

fn icrc_words(verdict: IcrcVerdict) -> &'static str {
    match verdict {
        IcrcVerdict::Good => "; ICRC good",
        IcrcVerdict::Bad => "; ICRC BAD",
        IcrcVerdict::Unknown => "; ICRC not in the capture",
    }
}
