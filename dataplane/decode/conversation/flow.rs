//! One direction between two queue pairs: the requests that travel in it, and what became of them.

use std::collections::VecDeque;

use rdma_engine::types::{Gid, Psn, Qpn};
use rdma_engine::wire::{Operation, Position, Transport};

use super::damage::DamagedRequest;
use super::disagreement::{Disagreement, Misfit};
use super::event::{Events, Mark, What};
use super::follow::Follow;
use super::message::{Kind, Message, Outcome, Totals};
use super::psn_set::PsnSet;
use crate::decode::dissect::IcrcVerdict;
use crate::decode::packet_view::{Moment, View};

/// Most messages of a flow kept while they wait for an answer.
const MAX_PENDING: usize = 1024;

/// PSNs further apart than this belong to different connections.
const SAME_STREAM: i32 = 1 << 20;

/// Packets remembered to notice that one frame was captured twice.
const RECENT: usize = 8;

/// Two captures of one packet are no further apart than this.
const TWICE_NS: u64 = 1_000_000;

/// Names a direction: who sends, and to which queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::decode) struct FlowKey {
    pub(in crate::decode) source: Gid,
    pub(in crate::decode) destination: Gid,
    pub(in crate::decode) dest_qpn: Qpn,
    pub(in crate::decode) transport: Transport,
}

/// Place of a flow in the tracker's list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::decode) struct FlowId(pub(super) usize);

/// How the other direction was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::decode) enum PairedBy {
    /// Connection management named both queue pairs.
    Cm,
    /// An answer carried the PSN of a request.
    Psn,
    /// Answers that fit no request came again and again while the other one repeated its own.
    Repetition,
    /// Nothing else between the two addresses was left.
    Elimination,
}

/// Numbers of a flow beside its messages.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::decode) struct Counts {
    pub(in crate::decode) frames: u64,
    pub(in crate::decode) requests: u64,
    /// ACKs, NAKs and responses sent in this direction.
    pub(in crate::decode) answers: u64,
    pub(in crate::decode) resent: u64,
    pub(in crate::decode) missing: u64,
    pub(in crate::decode) late: u64,
    pub(in crate::decode) rnr_naks: u64,
    pub(in crate::decode) sequence_naks: u64,
    pub(in crate::decode) refusals: u64,
    pub(in crate::decode) read_gaps: u64,
    pub(in crate::decode) reads_resumed: u64,
    pub(in crate::decode) duplicate_acks: u64,
    pub(in crate::decode) unasked: u64,
    /// Of these, responses to requests that the capture lost: others before and after are in it.
    pub(in crate::decode) uncaptured: u64,
    pub(in crate::decode) twice: u64,
    pub(in crate::decode) bad_icrc: u64,
    /// Of these, requests that were acknowledged all the same.
    pub(in crate::decode) damaged_taken: u64,
    pub(in crate::decode) malformed: u64,
    pub(in crate::decode) cnps: u64,
    pub(in crate::decode) congestion_marks: u64,
    /// Packets as large as the path MTU that were sent, and the largest that was ever answered.
    pub(in crate::decode) largest_sent: u32,
    pub(in crate::decode) largest_acked: u32,
    /// Longest series of retransmissions of one PSN.
    pub(in crate::decode) most_repeats: u32,
}

/// A packet remembered.
#[derive(Clone, Copy, Debug)]
struct Trace {
    psn: Psn,
    ip_id: u16,
    opcode: u8,
    time_ns: Option<u64>,
}

/// An RNR NAK that the requester has to heed.
#[derive(Clone, Copy, Debug)]
pub(super) struct RnrWait {
    pub(super) psn: Psn,
    pub(super) since: Moment,
    pub(super) wait_ns: u64,
}

/// One direction.
#[derive(Debug)]
pub(in crate::decode) struct Flow {
    pub(in crate::decode) key: FlowKey,
    pub(in crate::decode) peer: Option<(FlowId, PairedBy)>,
    /// Index of the connection that CM opened it by.
    pub(in crate::decode) connection: Option<usize>,
    pub(in crate::decode) first: Option<Moment>,
    pub(in crate::decode) last: Option<Moment>,
    /// Latest ACK, NAK or response that travelled in this direction.
    pub(in crate::decode) last_answer: Option<Moment>,
    pub(in crate::decode) source_port: u16,
    pub(in crate::decode) counts: Counts,
    pub(in crate::decode) totals: [Totals; Kind::ALL.len()],
    pub(in crate::decode) events: Events,
    /// Payload of FIRST and MIDDLE packets.
    pub(in crate::decode) pmtu: Option<u32>,
    pub(super) pending: VecDeque<Message>,
    pub(super) open: Option<Message>,
    /// Everything up to here was acknowledged.
    pub(super) acked: Option<Psn>,
    pub(super) rnr: Option<RnrWait>,
    /// Lowest PSN that the next new request may have, and how far above it may be.
    pub(super) next: Option<Psn>,
    pub(super) slack: u32,
    /// The first request of the stream that was seen.
    pub(super) first_psn: Option<Psn>,
    pub(super) missing: PsnSet,
    pub(super) damaged: Vec<DamagedRequest>,
    pub(super) disagreement: Option<Disagreement>,
    /// The latest answer in this direction that fits no request.
    pub(super) misfit: Option<Misfit>,
    recent: VecDeque<Trace>,
    repeated: Option<(Psn, u32)>,
}

/// Where a request stands in the stream.
enum Place {
    Next,
    Ahead(u32),
    Behind,
    Elsewhere,
}

impl Flow {
    pub(super) fn new(key: FlowKey) -> Self {
        Flow {
            key,
            peer: None,
            connection: None,
            first: None,
            last: None,
            last_answer: None,
            source_port: 0,
            counts: Counts::default(),
            totals: [Totals::default(); Kind::ALL.len()],
            events: Events::default(),
            pmtu: None,
            pending: VecDeque::new(),
            open: None,
            acked: None,
            rnr: None,
            next: None,
            slack: 0,
            first_psn: None,
            missing: PsnSet::default(),
            damaged: Vec::new(),
            disagreement: None,
            misfit: None,
            recent: VecDeque::with_capacity(RECENT),
            repeated: None,
        }
    }

    /// Counts a packet that travels in this direction, whatever it is.
    pub(super) fn count(&mut self, packet: &View) {
        self.first.get_or_insert(packet.moment);
        self.last = Some(packet.moment);
        self.source_port = packet.source_port;
        self.counts.frames += 1;
        self.counts.bad_icrc += u64::from(packet.icrc == IcrcVerdict::Bad);
        self.counts.malformed += u64::from(!packet.intact);
        self.counts.congestion_marks += u64::from(packet.congestion_experienced);
        self.counts.cnps += u64::from(packet.is_cnp());
    }

    /// True if the same packet was there a moment ago: captured on two interfaces, or by a mirror port.
    /// Only the IPv4 identification tells that from a retransmission, where senders count it up per packet.
    pub(super) fn is_second_copy(&mut self, packet: &View) -> bool {
        let View { psn, ip_id, opcode, .. } = *packet;
        let time_ns = packet.moment.time_ns;
        let tells = ip_id != 0
            && ip_id != psn.value() as u16
            && !self.recent.iter().any(|trace| trace.ip_id == ip_id && trace.psn != psn);
        let same = |trace: &Trace| {
            let apart = time_ns.zip(trace.time_ns).map(|(now, then)| now.abs_diff(then));
            (trace.psn, trace.ip_id, trace.opcode) == (psn, ip_id, opcode)
                && apart.is_none_or(|ns| ns < TWICE_NS)
        };
        if tells && self.recent.iter().any(same) {
            self.counts.twice += 1;
            return true;
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(Trace { psn, ip_id, opcode, time_ns });
        false
    }

    /// Follows a request.
    pub(super) fn request(&mut self, packet: &View, follow: &mut Follow) -> Option<Mark> {
        self.counts.requests += 1;
        self.counts.largest_sent = self.counts.largest_sent.max(packet.payload_len);
        let place = self.place(packet.psn);
        self.heed(packet.psn, matches!(place, Place::Behind));
        let mark = match place {
            Place::Next => {
                self.advance(packet, follow);
                None
            }
            Place::Ahead(missing) => Some(self.skip_ahead(packet, missing, follow)),
            Place::Behind => Some(self.again(packet, follow)),
            Place::Elsewhere => {
                self.start_anew(follow);
                self.events.push(packet.moment, What::NewStream { psn: packet.psn });
                self.advance(packet, follow);
                Some(Mark::NewStream)
            }
        };
        self.repair(packet.psn);
        mark
    }

    fn place(&self, psn: Psn) -> Place {
        let Some(next) = self.next else { return Place::Next };
        let ahead = psn.since(next);
        match ahead {
            0.. if ahead.unsigned_abs() <= self.slack => Place::Next,
            0..SAME_STREAM => Place::Ahead(ahead.unsigned_abs()),
            ..0 if ahead > -SAME_STREAM => Place::Behind,
            _ => Place::Elsewhere,
        }
    }

    fn skip_ahead(&mut self, packet: &View, missing: u32, follow: &mut Follow) -> Mark {
        let psn = self.next.unwrap_or(packet.psn);
        self.missing.insert(psn, missing);
        if self.came_damaged(psn, missing) {
            self.advance(packet, follow);
            return Mark::DamagedBefore;
        }
        self.counts.missing += u64::from(missing);
        self.events.push(packet.moment, What::Gap { psn, missing });
        self.advance(packet, follow);
        Mark::GapBefore { missing }
    }

    /// Takes in a request that is sent for the first time.
    fn advance(&mut self, packet: &View, follow: &mut Follow) {
        self.settle_read_length(packet.psn);
        if matches!(packet.info.position, Position::First | Position::Middle) {
            self.pmtu = Some(packet.payload_len).filter(|len| *len > 0);
        }
        let Some(kind) = Kind::of(packet.info.operation) else { return };
        let message = match self.open.take() {
            Some(mut open) if open.kind == kind && !packet.info.position.starts() => {
                open.append(packet);
                open
            }
            unfinished => {
                if let Some(unfinished) = unfinished {
                    self.settle(unfinished, follow);
                }
                Message::begin(kind, packet)
            }
        };
        self.first_psn.get_or_insert(packet.psn);
        self.next = Some(packet.psn.advance(1));
        self.slack = 0;
        self.keep(message, follow);
    }

    /// Files a message that got a new packet.
    fn keep(&mut self, mut message: Message, follow: &mut Follow) {
        if message.kind == Kind::Read {
            let (packets, slack) = self.read_span(message.len());
            message.packets = packets;
            self.next = Some(message.first_psn.advance(packets));
            self.slack = slack;
        }
        if !message.whole {
            self.open = Some(message);
        } else if self.key.transport == Transport::Rc {
            self.pending.push_back(message);
            if self.pending.len() > MAX_PENDING
                && let Some(oldest) = self.pending.pop_front()
            {
                self.settle(oldest, follow);
            }
        } else {
            self.settle(message, follow);
        }
    }

    /// PSNs that a READ of `len` bytes takes: the least, and how many more it may be. Exact once the path
    /// MTU is known.
    fn read_span(&self, len: u64) -> (u32, u32) {
        let packets = |pmtu: u64| len.div_ceil(pmtu).clamp(1, 1 << 23) as u32;
        match self.pmtu {
            Some(pmtu) => (packets(u64::from(pmtu)), 0),
            None => (packets(4096), packets(256) - packets(4096)),
        }
    }

    /// The request after a READ tells how many PSNs the READ took.
    fn settle_read_length(&mut self, next: Psn) {
        if self.slack > 0
            && let Some(read) = self.pending.back_mut()
            && next.is_after(read.first_psn)
        {
            read.packets = next.since(read.first_psn).unsigned_abs().min(read.packets + self.slack);
        }
    }

    /// A request whose PSN was passed already.
    fn again(&mut self, packet: &View, follow: &mut Follow) -> Mark {
        if self.missing.remove(packet.psn) {
            self.counts.late += 1;
            self.events.push(packet.moment, What::Late { psn: packet.psn, packets: 1 });
            self.add_late(packet, follow);
            return Mark::FillsGap;
        }
        self.counts.resent += 1;
        self.count_repeats(packet.psn);
        let message = self.message_mut(packet.psn).map(|message| {
            message.resent = message.resent.saturating_add(1);
            message.latest = packet.moment;
            let before = *message;
            if packet.info.operation == Operation::ReadRequest {
                message.restart_responses(packet);
            }
            before
        });
        if let Some(rnr) = self.rnr.take_if(|rnr| rnr.psn == packet.psn) {
            let waited_ns = packet.moment.since_ns(&rnr.since);
            let what = What::RnrResent { psn: packet.psn, waited_ns, asked_ns: rnr.wait_ns };
            self.events.push(packet.moment, what);
            return Mark::AfterRnr { waited_ns };
        }
        if packet.info.operation == Operation::ReadRequest
            && let Some(read) = message.filter(|message| message.first_psn != packet.psn)
        {
            self.counts.reads_resumed += 1;
            let remaining = packet.remote.map_or(0, |remote| u64::from(remote.len));
            let received = read.len().saturating_sub(remaining);
            let what = What::ReadResumed { psn: packet.psn, received, len: read.len() };
            self.events.push(packet.moment, what);
            return Mark::ResumesRead;
        }
        let first_frame = message.map(|message| message.first.frame);
        self.events.push(packet.moment, What::Resent { psn: packet.psn, packets: 1, first_frame });
        Mark::Retransmission { first_frame }
    }

    fn count_repeats(&mut self, psn: Psn) {
        let repeats = match self.repeated {
            Some((of, n)) if of == psn => n.saturating_add(1),
            // Going back resends a run: only its first packet starts a new series.
            Some((of, n)) if psn.is_after(of) && n > 0 => return,
            _ => 1,
        };
        self.repeated = Some((psn, repeats));
        self.counts.most_repeats = self.counts.most_repeats.max(repeats);
    }

    /// A packet of a gap arrives: it belongs to a message that is known, or is one of its own.
    fn add_late(&mut self, packet: &View, follow: &mut Follow) {
        if let Some(message) = self.message_mut(packet.psn) {
            message.bytes += u64::from(packet.payload_len);
            message.latest = packet.moment;
            return;
        }
        let Some(kind) = Kind::of(packet.info.operation) else { return };
        let mut message = Message::begin(kind, packet);
        message.whole = true;
        if self.key.transport == Transport::Rc && self.pending.len() < MAX_PENDING {
            let at = self.pending.partition_point(|m| m.first_psn.is_before(packet.psn));
            self.pending.insert(at, message);
        } else {
            self.settle(message, follow);
        }
    }

    /// The unanswered message that takes `psn`.
    pub(super) fn message_mut(&mut self, psn: Psn) -> Option<&mut Message> {
        self.pending.iter_mut().chain(self.open.as_mut()).find(|message| message.contains(psn))
    }

    /// True if an answer with this PSN makes sense for what was asked here.
    pub(super) fn awaits(&self, psn: Psn) -> bool {
        let asked = self.pending.iter().chain(self.open.as_ref()).any(|message| message.contains(psn));
        asked || self.missing.contains(psn) || (self.counts.requests > 0 && self.next == Some(psn))
    }

    /// Books a message that nothing more is expected of.
    pub(super) fn settle(&mut self, message: Message, follow: &mut Follow) {
        self.totals[message.kind as usize].add(&message);
        if message.outcome == Outcome::Answered {
            let packet = message.bytes.min(u64::from(self.pmtu.unwrap_or(u32::MAX)));
            self.counts.largest_acked = self.counts.largest_acked.max(packet as u32);
        }
        follow.settled(&self.key, &message);
    }

    /// Forgets the stream so far: another connection uses the same numbers.
    pub(super) fn start_anew(&mut self, follow: &mut Follow) {
        self.give_up(follow);
        (self.next, self.slack, self.acked, self.rnr) = (None, 0, None, None);
        (self.disagreement, self.damaged, self.first_psn) = (None, Vec::new(), None);
        self.missing = PsnSet::default();
        self.repeated = None;
    }

    /// Books what is still waiting, as unanswered.
    pub(super) fn give_up(&mut self, follow: &mut Follow) {
        while let Some(message) = self.pending.pop_front() {
            self.settle(message, follow);
        }
        if let Some(message) = self.open.take() {
            self.settle(message, follow);
        }
    }

    /// The first message that has no answer, and how many there are.
    pub(in crate::decode) fn unanswered(&self) -> Option<(&Message, usize)> {
        let first = self.pending.front().or(self.open.as_ref())?;
        Some((first, self.pending.len() + usize::from(self.open.is_some())))
    }

    fn still_waiting(&self, kind: Kind) -> impl Iterator<Item = &Message> {
        self.pending.iter().chain(&self.open).filter(move |message| message.kind == kind)
    }

    /// Messages of this kind that were not settled.
    pub(in crate::decode) fn waiting(&self, kind: Kind) -> u64 {
        self.still_waiting(kind).count() as u64
    }

    /// Their bytes.
    pub(in crate::decode) fn waiting_bytes(&self, kind: Kind) -> u64 {
        self.still_waiting(kind).map(Message::len).sum()
    }
}
