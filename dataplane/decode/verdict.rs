//! One line on what most likely went wrong in a conversation.
//!
//! The rules go from certain to likely; the first that holds speaks. Each says what it saw and what that
//! usually means.

use rdma_engine::wire::Transport;

use super::conversation::{Connection, Counts, Flow, Message};
use super::conversation::{Event, What};
use super::refusal::meaning;
use super::units::{Bytes, Count};

/// Both directions of a conversation and how it was opened.
#[derive(Clone, Copy)]
pub(super) struct Talk<'a> {
    pub(super) there: &'a Flow,
    pub(super) back: Option<&'a Flow>,
    pub(super) connection: Option<&'a Connection>,
    /// Time of the last frame of the capture.
    pub(super) end_ns: Option<u64>,
}

/// A message counts as unanswered if nothing came for this long before the capture ended.
const SILENCE_NS: u64 = 500_000_000;

impl<'a> Talk<'a> {
    pub(super) fn flows(&self) -> impl Iterator<Item = &'a Flow> + use<'a> {
        std::iter::once(self.there).chain(self.back)
    }

    fn sum(&self, field: impl Fn(&Counts) -> u64) -> u64 {
        self.flows().map(|flow| field(&flow.counts)).sum()
    }

    fn events(&self) -> impl Iterator<Item = (&'a Flow, &'a Event)> + use<'a> {
        self.flows().flat_map(|flow| flow.events.iter().map(move |event| (flow, event)))
    }

    /// Requests whose answer is overdue: the flow, the first of them, and how many.
    fn overdue(&self) -> Option<(&'a Flow, &'a Message, usize)> {
        self.flows().filter(|flow| flow.key.transport == Transport::Rc).find_map(|flow| {
            let (message, count) = flow.unanswered()?;
            let waited = self.end_ns.zip(message.latest.time_ns).map(|(end, sent)| end.saturating_sub(sent));
            let overdue = message.resent > 0 || waited.is_none_or(|ns| ns > SILENCE_NS);
            overdue.then_some((flow, message, count))
        })
    }

    /// The direction in which the answers to this one travel.
    fn other(&self, flow: &Flow) -> Option<&'a Flow> {
        if std::ptr::eq(flow, self.there) { self.back } else { Some(self.there) }
    }

    fn has_answers(&self, flow: &Flow) -> bool {
        self.other(flow).is_some_and(|other| other.counts.answers > 0)
    }
}

/// The line. `Ok` if nothing went wrong.
pub(super) fn verdict(talk: &Talk<'_>) -> Result<String, String> {
    let rules: [fn(&Talk<'_>) -> Option<String>; 12] = [
        refused,
        bad_icrc,
        rejected,
        disagreed,
        too_large,
        silent_peer,
        receiver_not_ready,
        reads_cut_short,
        lossy,
        uncaptured,
        congested,
        one_sided,
    ];
    let line = rules.iter().find_map(|rule| rule(talk));
    if is_altered(talk) {
        let line = line.unwrap_or_else(|| nothing_wrong(talk));
        return Err(format!(
            "{line}; every frame has a bad ICRC, yet they are answered: the capture was altered (other addresses, \
             cut payloads) or made where the ICRC was not computed yet"
        ));
    }
    match line {
        Some(line) => Err(line),
        None => Ok(nothing_wrong(talk)),
    }
}

/// No ICRC is right, but the ends understand each other.
fn is_altered(talk: &Talk<'_>) -> bool {
    let all_bad = talk.sum(|counts| counts.bad_icrc) == talk.sum(|counts| counts.frames);
    let answered = talk.flows().flat_map(|flow| &flow.totals).any(|totals| totals.answered > 0);
    all_bad && answered
}

fn refused(talk: &Talk<'_>) -> Option<String> {
    let (_, event) = talk.events().find(|(_, event)| matches!(event.what, What::Refused { .. }))?;
    let What::Refused(refusal) = event.what else { return None };
    let kind = refusal.kind.map_or("request", |kind| kind.name());
    let (code, frame, meaning) = (refusal.code, event.moment.frame, meaning(&refusal));
    Some(format!("{kind} refused with \"{code}\" in frame {frame}, which ends the connection: {meaning}"))
}

fn bad_icrc(talk: &Talk<'_>) -> Option<String> {
    let bad = talk.sum(|counts| counts.bad_icrc);
    let taken = talk.sum(|counts| counts.damaged_taken);
    if bad == 0 || is_altered(talk) {
        return None;
    }
    let frames = talk.sum(|counts| counts.frames);
    let seen = format!("{} of {frames} with a bad ICRC", Count(bad, "frame"));
    let all_of_one =
        talk.flows().any(|flow| flow.counts.bad_icrc > 1 && flow.counts.bad_icrc == flow.counts.frames);
    Some(match taken {
        _ if all_of_one => format!(
            "{seen}, all that one side sent: receivers drop them silently; that side computes the ICRC wrongly, or \
             something behind it changes bytes it must not change"
        ),
        0 => format!(
            "{seen}: receivers drop them silently; something on the path, or the sender, changes bytes it must \
             not change"
        ),
        n if n == bad => format!(
            "{seen}, acknowledged all the same and never sent again: what the receiver got was good, the bytes \
             changed on the way to the capture or in it"
        ),
        n => format!(
            "{seen}, of which {n} acknowledged all the same: those changed only on the way to the capture; the \
             others are dropped silently, as something on the path, or the sender, changes bytes it must not change"
        ),
    })
}

fn rejected(talk: &Talk<'_>) -> Option<String> {
    let (moment, reason) = talk.connection?.rejected?;
    Some(format!("rejected in frame {}: reason {reason}", moment.frame))
}

/// Each end counts PSNs from elsewhere.
fn disagreed(talk: &Talk<'_>) -> Option<String> {
    let (flow, known) =
        talk.flows().find_map(|flow| flow.disagreement().zip(Some(flow)).map(|(d, f)| (f, d)))?;
    let (requester, responder) = (flow.key.source.ip(), flow.key.destination.ip());
    let (expected, sent) = (known.expected, known.sent?);
    let said = if known.by_ack { "ACKs of what was never sent" } else { "sequence NAKs" };
    let hint = if flow.totals.iter().any(|totals| totals.answered > 0) {
        "they agreed before, so one of them started anew, or the requester does not go back to what it is asked for"
    } else {
        "compare the PSNs that the two sides were told to start with: sq_psn of each is rq_psn of the other"
    };
    Some(format!(
        "the ends disagree on the PSN: {responder} expects {expected} ({} {said}, from frame {} on), {requester} sends \
         {sent} again and again and never that one; {hint}",
        known.times, known.since.frame
    ))
}

/// Only full packets stay unanswered while small ones get through.
fn too_large(talk: &Talk<'_>) -> Option<String> {
    let flow = talk.flows().find(|flow| {
        let Some((message, _)) = flow.unanswered() else { return false };
        let full = flow.pmtu.is_some_and(|pmtu| flow.counts.largest_sent >= pmtu && pmtu > 256);
        full && message.resent > 1
            && message.packets > 1
            && flow.counts.largest_acked < flow.counts.largest_sent
            && talk.has_answers(flow)
    })?;
    Some(format!(
        "packets of {} are sent again and again while those up to {} are answered: the RDMA MTU does not fit \
         the path; lower it, or raise the MTU of every switch and port on the way",
        Bytes(u64::from(flow.counts.largest_sent)),
        Bytes(u64::from(flow.counts.largest_acked))
    ))
}

fn silent_peer(talk: &Talk<'_>) -> Option<String> {
    let (flow, message, count) = talk.overdue()?;
    if message.rnr_naks > 0 || (message.resent == 0 && !talk.has_answers(flow)) {
        return None;
    }
    let what = format!("{} of frame {}", message.title(), message.first.frame);
    let others = if count > 1 {
        format!(" and {} after it", Count(count as u64 - 1, "message"))
    } else {
        String::new()
    };
    let tries = Count(u64::from(flow.counts.most_repeats), "retransmission");
    let answered_else = talk.other(flow).and_then(|other| other.last_answer);
    let answered_else = answered_else.filter(|answer| answer.frame > message.latest.frame);
    Some(if let Some(answer) = answered_else {
        format!(
            "the {what}{others} is never answered, after {tries}, though the peer does send answers (the last in \
             frame {}): none of them fits it",
            answer.frame
        )
    } else if talk.has_answers(flow) {
        format!(
            "the peer stopped answering at the {what}{others}, after {tries}: its QP went to the error state \
             (a NAK may be lost), or the path broke"
        )
    } else {
        format!(
            "nothing ever came back for the {what}{others}, after {tries}: the peer drops silently what has a \
             wrong QPN, address, P_Key or ICRC, or its QP is not ready to receive yet; or the path is down"
        )
    })
}

fn receiver_not_ready(talk: &Talk<'_>) -> Option<String> {
    let naks = talk.sum(|counts| counts.rnr_naks);
    if naks == 0 {
        return None;
    }
    let stuck = talk.flows().find_map(|flow| flow.unanswered().filter(|(message, _)| message.rnr_naks > 0));
    Some(match stuck {
        Some((message, _)) => format!(
            "{} ended in the {} of frame {} never being taken: the receiver posts no receives any more",
            Count(naks, "RNR NAK"),
            message.title(),
            message.first.frame
        ),
        None => format!(
            "{}: the receiver posted its receives too late or too few; everything got through, but each wait \
             costs the time its timer code says",
            Count(naks, "RNR NAK")
        ),
    })
}

fn lossy(talk: &Talk<'_>) -> Option<String> {
    let naks = talk.sum(|counts| counts.sequence_naks);
    let resent = talk.sum(|counts| counts.resent);
    let missing = talk.sum(|counts| counts.missing);
    let late = talk.sum(|counts| counts.late);
    if naks > 0 || (resent > 0 && missing == 0) {
        let cause =
            if naks > 0 { "the responder missed packets" } else { "answers came too late or were lost" };
        return Some(format!(
            "packet loss, repaired: {cause} ({}, {} retransmitted); look for drops on the path, a link \
             without flow control, or an ACK timeout that is too short",
            Count(naks, "sequence NAK"),
            Count(resent + late, "packet")
        ));
    }
    (missing > 0).then(|| {
        let packets = Count(missing, "packet");
        match (late, talk.there.key.transport) {
            (0, Transport::Uc) => format!("{packets} lost before this point; UC does not repeat them"),
            (0, _) => format!(
                "{packets} missing in the capture, yet never repeated and never asked for: the capture dropped \
                 them, not the network"
            ),
            _ => format!("{packets} did not come in order: lost and repeated, or overtaken on the path"),
        }
    })
}

fn uncaptured(talk: &Talk<'_>) -> Option<String> {
    let answers = talk.sum(|counts| counts.uncaptured);
    (answers > 0).then(|| {
        format!(
            "{} to requests that are not in the capture, though others before them are: the capture dropped \
             them, not the network",
            Count(answers, "response packet")
        )
    })
}

fn reads_cut_short(talk: &Talk<'_>) -> Option<String> {
    let gaps = talk.sum(|counts| counts.read_gaps);
    let resumed = talk.sum(|counts| counts.reads_resumed);
    (gaps + resumed > 0).then(|| {
        format!(
            "READ responses were lost ({} missing here, {} asked for the rest): drops on the way back, where \
             no NAK exists and only the requester's timer helps",
            Count(gaps, "packet"),
            Count(resumed, "request")
        )
    })
}

fn congested(talk: &Talk<'_>) -> Option<String> {
    let (cnps, marks) = (talk.sum(|counts| counts.cnps), talk.sum(|counts| counts.congestion_marks));
    (cnps + marks > 0).then(|| {
        format!(
            "congestion: {} marked by switches, {} sent to slow the senders down; nothing was lost",
            Count(marks, "frame"),
            Count(cnps, "notification")
        )
    })
}

fn one_sided(talk: &Talk<'_>) -> Option<String> {
    let flow = talk.there;
    if talk.back.is_some_and(|back| back.counts.frames > 0) || flow.key.transport == Transport::Uc {
        return None;
    }
    Some(if flow.counts.requests == 0 {
        "only answers were captured, so nothing can be said about the requests; capture both directions"
            .into()
    } else if flow.counts.answers == 0 && flow.counts.resent == 0 {
        "only requests were captured, and none is repeated: the answers took another way past this point; \
         capture both directions to see them"
            .into()
    } else {
        "only one direction was captured; capture both to see what was answered".into()
    })
}

fn nothing_wrong(talk: &Talk<'_>) -> String {
    match talk.flows().find_map(Flow::unanswered) {
        Some((message, _)) => {
            format!(
                "nothing; the {} of frame {} was still waiting when the capture ended",
                message.title(),
                message.first.frame
            )
        }
        None => "nothing".into(),
    }
}
