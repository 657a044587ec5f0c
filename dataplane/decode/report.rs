//! The conversations, after all frames: who asked what, what was answered, what went wrong.

use std::fmt::{self, Write};

use rdma_engine::types::Gid;
use rdma_engine::wire::Transport;
use serde_json::{Value, json};

use super::conversation::{Connection, Flow, Kind, PairedBy, Tracker};
use super::units::{Bytes, Count, Duration};
use super::verdict::{Talk, verdict};
use super::words::Service;

/// Most datagram routes listed.
const MAX_ROUTES_LISTED: usize = 32;

/// One conversation, ready to be told.
pub(super) struct Told<'a> {
    pub(super) number: usize,
    pub(super) talk: Talk<'a>,
    /// What went wrong, `Ok` if nothing did.
    pub(super) verdict: Result<String, String>,
}

/// Judges every conversation of the capture.
pub(super) fn judge(tracker: &Tracker, end_ns: Option<u64>) -> Vec<Told<'_>> {
    let conversations = tracker.conversations().into_iter().zip(1..);
    conversations
        .map(|((there, back), number)| {
            let connection = there.connection.or(back.and_then(|back| back.connection));
            let connection = connection.and_then(|at| tracker.connections.get(at));
            let talk = Talk { there, back, connection, end_ns };
            Told { number, talk, verdict: verdict(&talk) }
        })
        .collect()
}

/// Writes all conversations, the connections that did not come about, and the datagrams.
pub(super) fn write_all(
    out: &mut String,
    tracker: &Tracker,
    told: &[Told<'_>],
    start_ns: Option<u64>,
) -> fmt::Result {
    for one in told {
        write_one(out, one, start_ns)?;
    }
    write_failed_connections(out, tracker)?;
    write_datagrams(out, tracker)
}

fn write_one(out: &mut String, told: &Told<'_>, start_ns: Option<u64>) -> fmt::Result {
    let talk = &told.talk;
    let frames = |pick: fn(&Flow) -> Option<u64>| talk.flows().filter_map(pick);
    let first = frames(|flow| flow.first.map(|m| m.frame)).min().unwrap_or_default();
    let last = frames(|flow| flow.last.map(|m| m.frame)).max().unwrap_or_default();
    let title = Title(talk);
    write!(out, "\nConversation {}: {title}, frames {first} to {last}", told.number)?;
    out.push_str(match talk.there.peer {
        Some((_, PairedBy::Cm)) => " (paired by CM)\n",
        Some((_, PairedBy::Psn)) => " (paired by PSN)\n",
        Some((_, PairedBy::Repetition)) => " (paired by repetition)\n",
        Some((_, PairedBy::Elimination)) => " (paired by elimination)\n",
        None => " (one direction only)\n",
    });
    if let Some(connection) = talk.connection {
        write_connection(out, connection)?;
    }
    for flow in talk.flows() {
        write_asked(out, flow)?;
    }
    write_troubles(out, talk)?;
    write_events(out, talk, start_ns)?;
    match &told.verdict {
        Ok(line) | Err(line) => writeln!(out, "  what went wrong: {line}"),
    }
}

/// "RC 10.0.0.1 QP 0x11 <-> 10.0.0.2 QP 0x12".
pub(super) struct Title<'a>(pub(super) &'a Talk<'a>);

impl fmt::Display for Title<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (there, back) = (self.0.there, self.0.back);
        write!(f, "{} {}", there.key.transport, there.key.source.ip())?;
        match back {
            Some(back) => write!(f, " QP {} <-> ", back.key.dest_qpn)?,
            None => write!(f, " QP unknown -> ")?,
        }
        write!(f, "{} QP {}", there.key.destination.ip(), there.key.dest_qpn)
    }
}

fn write_connection(out: &mut String, connection: &Connection) -> fmt::Result {
    write!(
        out,
        "  opened by CM for {}: REQ frame {}",
        Service(connection.service_id),
        connection.request.frame
    )?;
    if connection.repeats > 0 {
        write!(out, " (sent {} times)", connection.repeats + 1)?;
    }
    let steps = [
        ("REP", connection.reply),
        ("RTU", connection.ready),
        ("REJ", connection.rejected.map(|(moment, _)| moment)),
        ("DREQ", connection.disconnect),
        ("DREP", connection.disconnected),
    ];
    for (name, moment) in steps {
        if let Some(moment) = moment {
            write!(out, ", {name} frame {}", moment.frame)?;
        }
    }
    if let Some(mtu) = connection.path_mtu {
        write!(out, "; MTU {mtu}")?;
    }
    writeln!(
        out,
        ", retry {}, RNR retry {}, ACK timeout code {}",
        connection.retry_count, connection.rnr_retry_count, connection.ack_timeout
    )
}

/// What one side asked and what was answered, a line for each kind.
fn write_asked(out: &mut String, flow: &Flow) -> fmt::Result {
    for kind in Kind::ALL {
        let totals = &flow.totals[kind as usize];
        let waiting = flow.waiting(kind);
        if totals.messages + waiting == 0 {
            continue;
        }
        let name = Count(totals.messages + waiting, kind.name());
        write!(
            out,
            "  {} asked: {name}, {}",
            flow.key.source.ip(),
            Bytes(totals.bytes + flow.waiting_bytes(kind))
        )?;
        if flow.key.transport != Transport::Rc {
            out.push_str(", not acknowledged on this transport\n");
            continue;
        }
        match totals.answered {
            0 => out.push_str(", none answered"),
            n if n == totals.messages + waiting => out.push_str(", all answered"),
            n => write!(out, ", {n} answered")?,
        }
        if totals.refused > 0 {
            write!(out, ", {} refused", totals.refused)?;
        }
        if let Some(mean) = totals.mean_ns() {
            let (fast, mean, slow) =
                (Duration(totals.fastest_ns), Duration(mean), Duration(totals.slowest_ns));
            match totals.timed {
                1 => write!(out, ", after {mean}")?,
                _ => write!(out, ", after {fast} to {slow}, {mean} on average")?,
            }
        }
        out.push('\n');
    }
    Ok(())
}

fn write_troubles(out: &mut String, talk: &Talk<'_>) -> fmt::Result {
    for flow in talk.flows() {
        let counts = &flow.counts;
        let troubles = [
            (counts.resent, "retransmitted"),
            (counts.missing, "missing in the capture"),
            (counts.late, "late"),
            (counts.rnr_naks, "answered by RNR NAK"),
            (counts.sequence_naks, "answered by sequence NAK"),
            (counts.refusals, "refused"),
            (counts.read_gaps, "missing in READ responses"),
            (counts.twice, "captured twice"),
            (counts.malformed, "malformed or cut off"),
            (counts.bad_icrc, "with bad ICRC"),
            (counts.congestion_marks, "marked by switches"),
            (counts.cnps, "congestion notifications"),
            (counts.duplicate_acks, "ACKs repeated for them"),
            (counts.unasked, "answers without request"),
        ];
        let shown: Vec<String> =
            troubles.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        if !shown.is_empty() {
            writeln!(out, "  packets of {}: {}", flow.key.source.ip(), shown.join(", "))?;
        }
    }
    Ok(())
}

fn write_events(out: &mut String, talk: &Talk<'_>, start_ns: Option<u64>) -> fmt::Result {
    let mut events: Vec<_> =
        talk.flows().flat_map(|flow| flow.events.iter().map(|e| (flow.key.source, e))).collect();
    events.sort_by_key(|(_, event)| event.moment.frame);
    for (gid, event) in events {
        write!(out, "  frame {:>6}", event.moment.frame)?;
        if let Some(ns) = event.moment.time_ns.zip(start_ns).map(|(t, start)| t.saturating_sub(start)) {
            write!(out, " at {:.6} s", ns as f64 / 1e9)?;
        }
        writeln!(out, ", requests of {}: {}", gid.ip(), event.what)?;
    }
    match talk.flows().map(|flow| flow.events.left_out()).sum::<u64>() {
        0 => Ok(()),
        n => writeln!(out, "  and {}", Count(n, "more event")),
    }
}

/// Connections whose queue pairs never exchanged a packet in this capture.
fn write_failed_connections(out: &mut String, tracker: &Tracker) -> fmt::Result {
    for connection in tracker.connections.iter().filter(|connection| !connection.used) {
        let (active, passive) = (connection.active, connection.passive_gid.ip());
        write!(out, "\nConnection from {} QP {} to {passive}\n", active.gid.ip(), active.qpn)?;
        write_connection(out, connection)?;
        writeln!(out, "  what went wrong: {}", failure(connection))?;
    }
    Ok(())
}

fn failure(connection: &Connection) -> String {
    match (connection.rejected, connection.reply, connection.ready) {
        (Some((moment, reason)), ..) => format!("rejected in frame {}: reason {reason}", moment.frame),
        (None, None, _) if connection.repeats > 0 => format!(
            "the REQ was sent {} times and never answered: nothing listens at that address for RDMA CM, or UDP port \
             4791 is blocked on the way",
            connection.repeats + 1
        ),
        (None, None, _) => "the REQ was not answered in this capture".into(),
        (None, Some(_), None) => {
            "accepted, but the requester never said it was ready: the REP may not have reached it".into()
        }
        (None, Some(_), Some(_)) => "nothing; the queue pairs exchanged no packet in this capture".into(),
    }
}

fn write_datagrams(out: &mut String, tracker: &Tracker) -> fmt::Result {
    let routes = tracker.datagrams();
    if routes.is_empty() {
        return Ok(());
    }
    out.push_str("\nDatagrams (UD; not acknowledged)\n");
    for (route, sums) in routes.iter().take(MAX_ROUTES_LISTED) {
        let from = route.source_qpn.map_or("unknown".into(), |qpn| qpn.to_string());
        let (source, destination): (Gid, Gid) = (route.source, route.destination);
        writeln!(
            out,
            "  {} QP {from} -> {} QP {}: {}, {}, from frame {} on",
            source.ip(),
            destination.ip(),
            route.dest_qpn,
            Count(sums.frames, "frame"),
            Bytes(sums.bytes),
            sums.first_frame
        )?;
    }
    match routes.len().saturating_sub(MAX_ROUTES_LISTED) {
        0 => Ok(()),
        n => writeln!(out, "  and {}", Count(n as u64, "more route")),
    }
}

/// A conversation as a JSON object.
pub(super) fn json(told: &Told<'_>) -> String {
    let talk = &told.talk;
    let direction = |flow: &Flow| {
        let messages: Vec<Value> = Kind::ALL
            .into_iter()
            .filter(|kind| flow.totals[*kind as usize].messages + flow.waiting(*kind) > 0)
            .map(|kind| {
                let totals = &flow.totals[kind as usize];
                json!({
                    "kind": kind.name(),
                    "messages": totals.messages + flow.waiting(kind),
                    "bytes": totals.bytes + flow.waiting_bytes(kind),
                    "answered": totals.answered,
                    "refused": totals.refused,
                })
            })
            .collect();
        json!({
            "src": flow.key.source.ip().to_string(),
            "dst": flow.key.destination.ip().to_string(),
            "dest_qpn": flow.key.dest_qpn.value(),
            "frames": flow.counts.frames,
            "asked": messages,
            "retransmitted": flow.counts.resent,
            "missing": flow.counts.missing,
            "rnr_naks": flow.counts.rnr_naks,
            "sequence_naks": flow.counts.sequence_naks,
            "refusals": flow.counts.refusals,
            "read_gaps": flow.counts.read_gaps,
            "bad_icrc": flow.counts.bad_icrc,
            "cnps": flow.counts.cnps,
            "congestion_marks": flow.counts.congestion_marks,
        })
    };
    let (Ok(line) | Err(line)) = &told.verdict;
    json!({
        "conversation": told.number,
        "transport": talk.there.key.transport.to_string(),
        "title": Title(talk).to_string(),
        "directions": talk.flows().map(direction).collect::<Vec<_>>(),
        "ok": told.verdict.is_ok(),
        "verdict": line,
    })
    .to_string()
}
