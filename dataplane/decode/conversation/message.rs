//! Messages as a requester asked for them, and what became of them.

use rdma_engine::types::Psn;
use rdma_engine::wire::{NakCode, Operation};

use super::super::packet_view::{Moment, Remote, View};

/// What a message asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(in crate::decode) enum Kind {
    Send,
    Write,
    Read,
    CompareSwap,
    FetchAdd,
    Flush,
    AtomicWrite,
}

impl Kind {
    pub(in crate::decode) const ALL: [Kind; 7] = [
        Kind::Send,
        Kind::Write,
        Kind::Read,
        Kind::CompareSwap,
        Kind::FetchAdd,
        Kind::Flush,
        Kind::AtomicWrite,
    ];

    pub(in crate::decode) const fn of(operation: Operation) -> Option<Self> {
        match operation {
            Operation::Send => Some(Kind::Send),
            Operation::Write => Some(Kind::Write),
            Operation::ReadRequest => Some(Kind::Read),
            Operation::CompareSwap => Some(Kind::CompareSwap),
            Operation::FetchAdd => Some(Kind::FetchAdd),
            Operation::Flush => Some(Kind::Flush),
            Operation::AtomicWrite => Some(Kind::AtomicWrite),
            _ => None,
        }
    }

    pub(in crate::decode) const fn name(self) -> &'static str {
        match self {
            Kind::Send => "SEND",
            Kind::Write => "WRITE",
            Kind::Read => "READ",
            Kind::CompareSwap => "COMPARE_SWAP",
            Kind::FetchAdd => "FETCH_ADD",
            Kind::Flush => "FLUSH",
            Kind::AtomicWrite => "ATOMIC_WRITE",
        }
    }

    /// True if a response of its own answers it, never a plain ACK.
    pub(in crate::decode) const fn has_own_response(self) -> bool {
        !matches!(self, Kind::Send | Kind::Write)
    }
}

/// How a message ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::decode) enum Outcome {
    /// Not answered so far.
    Pending,
    /// Acknowledged, or its response arrived whole.
    Answered,
    /// Refused for good.
    Refused(NakCode),
}

/// One message of a requester.
#[derive(Clone, Copy, Debug)]
pub(in crate::decode) struct Message {
    pub(in crate::decode) kind: Kind,
    pub(in crate::decode) imm: bool,
    pub(in crate::decode) invalidate: bool,
    /// The peer's memory, for all but SEND.
    pub(in crate::decode) remote: Option<Remote>,
    pub(in crate::decode) first_psn: Psn,
    /// PSNs it takes.
    pub(in crate::decode) packets: u32,
    /// False while more of its packets are to come.
    pub(in crate::decode) whole: bool,
    /// Payload seen in requests.
    pub(in crate::decode) bytes: u64,
    pub(in crate::decode) first: Moment,
    /// Its last packet, sent for the first time.
    pub(in crate::decode) sent: Moment,
    /// Its latest packet, retransmissions included.
    pub(in crate::decode) latest: Moment,
    /// Packets sent again.
    pub(in crate::decode) resent: u32,
    /// RNR NAKs it met.
    pub(in crate::decode) rnr_naks: u32,
    /// Response payload seen.
    pub(in crate::decode) received: u64,
    /// Next response PSN expected.
    pub(in crate::decode) next_response: Psn,
    /// The frame that settled it.
    pub(in crate::decode) answer: Option<Moment>,
    pub(in crate::decode) outcome: Outcome,
}

impl Message {
    /// A message that begins with this packet.
    pub(super) fn begin(kind: Kind, packet: &View) -> Self {
        Message {
            kind,
            imm: packet.imm,
            invalidate: packet.invalidate,
            remote: packet.remote,
            first_psn: packet.psn,
            packets: 1,
            whole: packet.info.position.ends(),
            bytes: u64::from(packet.payload_len),
            first: packet.moment,
            sent: packet.moment,
            latest: packet.moment,
            resent: 0,
            rnr_naks: 0,
            received: 0,
            next_response: packet.psn,
            answer: None,
            outcome: Outcome::Pending,
        }
    }

    /// One more packet of it, sent for the first time.
    pub(super) fn append(&mut self, packet: &View) {
        self.packets = (packet.psn.since(self.first_psn).max(0) as u32).saturating_add(1);
        self.bytes += u64::from(packet.payload_len);
        self.whole = packet.info.position.ends();
        self.imm |= packet.imm;
        self.invalidate |= packet.invalidate;
        self.sent = packet.moment;
        self.latest = packet.moment;
    }

    /// A READ was asked for again, from this packet's PSN on: what came after that comes once more.
    pub(super) fn restart_responses(&mut self, packet: &View) {
        let remaining = packet.remote.map_or(0, |remote| u64::from(remote.len));
        self.received = self.received.min(self.len().saturating_sub(remaining));
        self.next_response = packet.psn;
    }

    pub(in crate::decode) fn last_psn(&self) -> Psn {
        self.first_psn.advance(self.packets.saturating_sub(1))
    }

    pub(in crate::decode) fn contains(&self, psn: Psn) -> bool {
        let at = psn.since(self.first_psn);
        at >= 0 && at.unsigned_abs() < self.packets
    }

    /// Bytes asked for: what the RETH announces, or what was seen.
    pub(in crate::decode) fn len(&self) -> u64 {
        match (self.kind, self.remote) {
            (Kind::Read | Kind::Write | Kind::Flush, Some(remote)) => u64::from(remote.len),
            (Kind::CompareSwap | Kind::FetchAdd, _) => 8,
            _ => self.bytes,
        }
    }

    /// The name with what ends it, such as `SEND with immediate`.
    pub(in crate::decode) fn title(&self) -> String {
        let suffix = match (self.imm, self.invalidate) {
            (true, _) => " with immediate",
            (_, true) => " with invalidate",
            _ => "",
        };
        format!("{}{suffix}", self.kind.name())
    }
}

/// Sums over the messages of one kind in one direction.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::decode) struct Totals {
    pub(in crate::decode) messages: u64,
    pub(in crate::decode) bytes: u64,
    pub(in crate::decode) answered: u64,
    pub(in crate::decode) refused: u64,
    /// Shortest, longest and sum of the times from last packet to answer, over answered messages whose times
    /// are known and that were sent once.
    pub(in crate::decode) fastest_ns: u64,
    pub(in crate::decode) slowest_ns: u64,
    pub(in crate::decode) sum_ns: u64,
    pub(in crate::decode) timed: u64,
}

impl Totals {
    /// Counts a message that was settled or given up.
    pub(super) fn add(&mut self, message: &Message) {
        self.messages += 1;
        self.bytes += message.len();
        match message.outcome {
            Outcome::Answered => self.answered += 1,
            Outcome::Refused(_) => self.refused += 1,
            Outcome::Pending => {}
        }
        let answered = message.outcome == Outcome::Answered && message.resent == 0;
        if let (true, Some(answer)) = (answered, message.answer)
            && let Some(ns) = answer.since_ns(&message.sent)
        {
            self.fastest_ns = if self.timed == 0 { ns } else { self.fastest_ns.min(ns) };
            self.slowest_ns = self.slowest_ns.max(ns);
            self.sum_ns = self.sum_ns.saturating_add(ns);
            self.timed += 1;
        }
    }

    pub(in crate::decode) fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.timed)
    }
}
