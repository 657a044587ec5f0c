//! What happened to a flow that a reader should know of.

use std::fmt;

use rdma_engine::types::Psn;
use rdma_engine::wire::NakCode;

use super::message::Kind;
use crate::decode::packet_view::{Moment, Remote};
use crate::decode::units::{Bytes, Duration};

/// Most events kept of a flow.
const MAX_EVENTS: usize = 48;

/// What was refused, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::decode) struct Refusal {
    pub(in crate::decode) psn: Psn,
    pub(in crate::decode) code: NakCode,
    /// `None` if the request is not in the capture.
    pub(in crate::decode) kind: Option<Kind>,
    pub(in crate::decode) remote: Option<Remote>,
    /// Bytes of the message.
    pub(in crate::decode) len: u64,
    /// All of the message was sent.
    pub(in crate::decode) whole: bool,
    /// READs and atomics that waited for their answer, this one included if it is one.
    pub(in crate::decode) outstanding: u32,
}

/// Something worth a line of the conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::decode) enum What {
    /// PSNs that do not appear in the capture before their successors.
    Gap { psn: Psn, missing: u32 },
    /// Packets sent again.
    Resent { psn: Psn, packets: u32, first_frame: Option<u64> },
    /// A packet that fills a gap: it was lost before the capture, or overtaken.
    Late { psn: Psn, packets: u32 },
    /// The responder had no receive posted.
    RnrNak { psn: Psn, wait_ns: u64 },
    /// The packet refused by an RNR NAK was sent again.
    RnrResent { psn: Psn, waited_ns: Option<u64>, asked_ns: u64 },
    /// The responder misses a packet.
    SequenceNak { expected: Psn },
    /// The responder refused a request for good.
    Refused(Refusal),
    /// Response packets of a READ that do not appear before their successors.
    ReadGap { psn: Psn, missing: u32 },
    /// The requester asked for the rest of a READ.
    ReadResumed { psn: Psn, received: u64, len: u64 },
    /// An ACK passed over a READ or atomic whose response did not come.
    ResponseLost { psn: Psn, kind: Kind },
    /// The PSNs started somewhere else.
    NewStream { psn: Psn },
    /// A request with a bad ICRC claims this PSN.
    Damaged { psn: Psn },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            What::Gap { psn, missing } => write!(
                f,
                "gap: {} from PSN {psn} on not seen here (lost before this point, or not captured)",
                Packets(missing)
            ),
            What::Resent { psn, packets, first_frame } => {
                write!(f, "retransmission of {} from PSN {psn} on", Packets(packets))?;
                first_frame.map_or(Ok(()), |frame| write!(f, ", message of frame {frame}"))
            }
            What::Late { psn, packets } => {
                write!(f, "{} from PSN {psn} on fill a gap: sent again or overtaken", Packets(packets))
            }
            What::RnrNak { psn, wait_ns } => write!(
                f,
                "RNR NAK at PSN {psn}: no receive posted; the requester has to wait {}",
                Duration(wait_ns)
            ),
            What::RnrResent { psn, waited_ns, asked_ns } => rnr_resent(f, psn, waited_ns, asked_ns),
            What::SequenceNak { expected } => {
                write!(f, "NAK, PSN sequence error: the responder misses PSN {expected}")
            }
            What::Refused(refusal) => refused(f, &refusal),
            What::ReadGap { psn, missing } => {
                write!(f, "READ response: {} from PSN {psn} on not seen here", Packets(missing))
            }
            What::ReadResumed { psn, received, len } => {
                write!(
                    f,
                    "READ cut short: after {} of {} the rest was asked for again from PSN {psn}",
                    Bytes(received),
                    Bytes(len)
                )
            }
            What::ResponseLost { psn, kind } => write!(
                f,
                "an ACK passed over the {} at PSN {psn}: its response was lost or not captured",
                kind.name()
            ),
            What::Damaged { psn } => {
                write!(f, "bad ICRC in a frame that claims PSN {psn}: not followed, as receivers drop it")
            }
            What::NewStream { psn } => {
                write!(f, "PSNs jump to {psn}: a new connection on the same QP, by all appearance")
            }
        }
    }
}

fn rnr_resent(f: &mut fmt::Formatter<'_>, psn: Psn, waited_ns: Option<u64>, asked_ns: u64) -> fmt::Result {
    write!(f, "PSN {psn} sent again after an RNR wait")?;
    match waited_ns {
        Some(ns) if ns < asked_ns => {
            write!(f, " of {}, less than the {} asked for", Duration(ns), Duration(asked_ns))
        }
        Some(ns) => write!(f, " of {}", Duration(ns)),
        None => Ok(()),
    }
}

fn refused(f: &mut fmt::Formatter<'_>, refusal: &Refusal) -> fmt::Result {
    let Refusal { psn, code, kind, remote, .. } = *refusal;
    write!(f, "NAK, {code}, for the {} at PSN {psn}", kind.map_or("request", Kind::name))?;
    match remote {
        Some(Remote { addr, rkey, len }) => {
            write!(f, " ({} at {addr:#x}, rkey {rkey:#x})", Bytes(u64::from(len)))
        }
        None => Ok(()),
    }
}

struct Packets(u32);

impl fmt::Display for Packets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("1 packet"),
            n => write!(f, "{n} packets"),
        }
    }
}

/// An event and where it shows.
#[derive(Clone, Copy, Debug)]
pub(in crate::decode) struct Event {
    pub(in crate::decode) moment: Moment,
    pub(in crate::decode) what: What,
}

/// The first events of a flow, and how many more there were.
#[derive(Default, Debug)]
pub(in crate::decode) struct Events {
    list: Vec<Event>,
    left_out: u64,
}

impl Events {
    /// Adds an event. Runs of retransmitted or late packets become one.
    pub(super) fn push(&mut self, moment: Moment, what: What) {
        if self.list.last_mut().is_some_and(|last| extend(&mut last.what, &what)) {
            return;
        }
        if self.list.len() < MAX_EVENTS {
            self.list.push(Event { moment, what });
        } else {
            self.left_out += 1;
        }
    }

    pub(in crate::decode) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.list.iter()
    }

    pub(in crate::decode) const fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// Lengthens a run by what follows it directly; false if it does not.
fn extend(last: &mut What, next: &What) -> bool {
    match (last, next) {
        (What::Resent { psn, packets, .. }, &What::Resent { psn: next, packets: more, .. })
        | (What::Late { psn, packets }, &What::Late { psn: next, packets: more })
            if psn.advance(*packets) == next =>
        {
            *packets = packets.saturating_add(more);
            true
        }
        _ => false,
    }
}

/// What is said about a packet at the end of its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::decode) enum Mark {
    Retransmission { first_frame: Option<u64> },
    GapBefore { missing: u32 },
    FillsGap,
    AfterRnr { waited_ns: Option<u64> },
    ResumesRead,
    DuplicateAck,
    Duplicate,
    ResponseGapBefore { missing: u32 },
    Unasked,
    CapturedTwice,
    NewStream,
    DamagedBefore,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Mark::Retransmission { first_frame: Some(frame) } => {
                write!(f, "retransmission (message of frame {frame})")
            }
            Mark::Retransmission { first_frame: None } => f.write_str("retransmission"),
            Mark::GapBefore { missing } => write!(f, "{} missing before", Packets(missing)),
            Mark::FillsGap => f.write_str("fills a gap"),
            Mark::AfterRnr { waited_ns: Some(ns) } => write!(f, "sent again {} after RNR NAK", Duration(ns)),
            Mark::AfterRnr { waited_ns: None } => f.write_str("sent again after RNR NAK"),
            Mark::ResumesRead => f.write_str("resumes a READ"),
            Mark::DuplicateAck => f.write_str("repeated ACK"),
            Mark::Duplicate => f.write_str("repeated response"),
            Mark::ResponseGapBefore { missing } => write!(f, "{} missing before", Packets(missing)),
            Mark::Unasked => f.write_str("request not in this capture"),
            Mark::CapturedTwice => f.write_str("same packet captured twice"),
            Mark::DamagedBefore => f.write_str("what comes before it has a bad ICRC"),
            Mark::NewStream => f.write_str("PSNs start anew"),
        }
    }
}
