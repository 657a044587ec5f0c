//! The report at the end: what was carried, what was lost and why, and whether the books balance.

use super::grid::{Grid, Side, View, clip, fold};
use super::rate::grouped;
use super::sample::Sample;
use super::table::{counts_by_node, is_beyond_frames};
use super::{Counter, Tally, kv, roce};
use Side::{Left, Right};

/// Longest name shown.
const NAME_MAX: usize = 16;

/// The report. `unclean` is what could not be taken down.
pub(super) fn final_report(last: &Sample, unclean: &[String], view: View) -> String {
    let nodes = nodes(last);
    let mut out = format!("isthmus ran {:.1} s\n\n", last.at_ms as f64 / 1000.0);
    let blocks = [
        carried(&nodes, view),
        kv::gateway_totals(last, view),
        kv::memory_totals(last, view),
        roce::totals(last, view),
        drops(&nodes, view),
        ignored(&nodes, view),
        fold(&balances(&nodes), view.columns),
        fold(&verdicts(&nodes), view.columns),
    ];
    for block in blocks {
        if !block.is_empty() {
            out.push_str(&block);
            out.push('\n');
        }
    }
    out.push_str(&fold(&pools(last), view.columns));
    for line in unclean {
        out.push_str(&fold(&format!("unclean: {line}\n"), view.columns));
    }
    out
}

/// A node with the counts of all its workers.
struct Node<'a> {
    name: String,
    service: &'a str,
    counts: Tally,
}

fn nodes(sample: &Sample) -> Vec<Node<'_>> {
    let node = |(name, counts): (&str, Tally)| {
        let service = sample.workers.iter().find(|w| w.node == name).map_or("", |w| w.service);
        Node { name: clip(name, NAME_MAX), service, counts }
    };
    counts_by_node(sample).into_iter().map(node).collect()
}

fn carried(nodes: &[Node<'_>], view: View) -> String {
    let mut grid = Grid::new([
        ("node", Left),
        ("service", Left),
        ("from port", Right),
        ("to port", Right),
        ("sent", Right),
        ("received", Right),
        ("dropped", Right),
    ])
    .on(view)
    .sparing(&["service"])
    .without(|column| ["sent", "received"].contains(&column) && nodes.iter().all(|n| n.service != "relay"));
    for n in nodes {
        // A memory node has no port of its own.
        let at_port = |c| if n.service == kv::MEMORY { "-".into() } else { grouped(n.counts.value(c)) };
        let relay = |c| if n.service == "relay" { grouped(n.counts.value(c)) } else { "-".into() };
        grid.row([
            n.name.clone(),
            n.service.into(),
            at_port(Counter::RxFrames),
            at_port(Counter::TxFrames),
            relay(Counter::FramesSent),
            relay(Counter::FramesReceived),
            grouped(n.counts.losses()),
        ]);
    }
    grid.text()
}

fn drops(nodes: &[Node<'_>], view: View) -> String {
    let text = reasons(nodes, "drops at", true, view);
    if text.is_empty() { "no drops\n".into() } else { text }
}

/// What is no loss: it was not for us, or had come already.
fn ignored(nodes: &[Node<'_>], view: View) -> String {
    reasons(nodes, "ignored at", false, view)
}

/// What went no further, as a loss or not, and why.
fn reasons(nodes: &[Node<'_>], heading: &str, losses: bool, view: View) -> String {
    let columns = [(heading, Left), ("reason", Left), ("total", Right), ("because", Left)];
    let mut grid = Grid::new(columns).on(view);
    for n in nodes {
        for (reason, total) in n.counts.drops().filter(|(reason, _)| reason.is_loss() == losses) {
            let cells = [n.name.clone(), reason.name().into(), grouped(total), reason.help().into()];
            if losses { grid.red_row(cells) } else { grid.row(cells) }
        }
    }
    grid.text()
}

/// Frames that entered a relay against those that left it or were dropped, both ways together: which way a frame
/// went that a dry pool or the drain stopped is not counted. Requests of a gateway against replies.
fn balances(nodes: &[Node<'_>]) -> String {
    let line = |n: &Node<'_>| {
        let balance = match n.service {
            "relay" => balance(&n.counts),
            kv::GATEWAY => kv::balance(&n.counts),
            _ => return String::new(),
        };
        format!("balance of {}: {balance}\n", n.name)
    };
    nodes.iter().map(line).collect()
}

fn balance(counts: &Tally) -> String {
    let value = |c| counts.value(c);
    let dropped: u64 = counts.drops().filter(|(r, _)| !is_beyond_frames(*r)).map(|(_, n)| n).sum();
    let entered = [(value(Counter::RxFrames), "from port"), (value(Counter::FramesReceived), "from peer")];
    let left =
        [(value(Counter::FramesSent), "sent"), (value(Counter::TxFrames), "to port"), (dropped, "dropped")];
    let sum = |terms: &[(u64, &str)]| terms.iter().map(|t| i128::from(t.0)).sum::<i128>();
    let verdict = match sum(&entered) - sum(&left) {
        0 => "balanced".into(),
        lost @ 1.. => format!("{lost} unaccounted for"),
        gained => format!("{} too many", -gained),
    };
    format!("{} = {}: {verdict}", terms(&entered), terms(&left))
}

/// The terms of a sum that are not 0.
fn terms(all: &[(u64, &str)]) -> String {
    let shown: Vec<String> =
        all.iter().filter(|t| t.0 > 0).map(|(n, what)| format!("{} {what}", grouped(*n))).collect();
    if shown.is_empty() { "0".into() } else { shown.join(" + ") }
}

fn verdicts(nodes: &[Node<'_>]) -> String {
    let line = |n: &Node<'_>| format!("sink {}: {}\n", n.name, verdict(&n.counts));
    nodes.iter().filter(|n| n.service == "sink").map(line).collect()
}

/// What a sink says of the frames it saw. Frames lost behind the last one of a flow are beyond its knowledge.
fn verdict(counts: &Tally) -> String {
    let wrong = [
        (counts.value(Counter::Missing), "missing"),
        (counts.value(Counter::OutOfOrder), "out of order"),
        (counts.value(Counter::Duplicates), "duplicates"),
        (counts.value(Counter::Corrupt), "corrupt"),
    ];
    let verified = counts.value(Counter::FramesVerified);
    let seen = counts.value(Counter::RxFrames);
    if wrong.iter().any(|w| w.0 > 0) {
        return format!("{} verified, BAD: {}", grouped(verified), terms(&wrong).replace(" + ", ", "));
    }
    // Frames that no source of ours made: a port that others use as well has them.
    let foreign = match counts.value(Counter::Foreign) {
        0 => String::new(),
        n => format!("; {} foreign", grouped(n)),
    };
    match (verified, seen) {
        (0, 0) => "saw no frame".into(),
        (0, 1) => "1 frame seen, not verified".into(),
        (0, _) => format!("{} frames seen, not verified", grouped(seen)),
        _ => format!("{} verified, in order, none missing: good{foreign}", grouped(verified)),
    }
}

/// Whether every buffer is back in its pool.
fn pools(last: &Sample) -> String {
    let all = last.pools.len();
    let short: Vec<String> = last
        .pools
        .iter()
        .filter(|p| p.available < p.capacity)
        .map(|p| {
            format!("{} has {} of {}", clip(&p.name, 26), grouped_size(p.available), grouped_size(p.capacity))
        })
        .collect();
    match (all, short.len()) {
        (0, _) => String::new(),
        (1, 0) => "pools: full\n".into(),
        (_, 0) => format!("pools: all {all} are full\n"),
        (_, n) => format!("pools: {n} of {all} not full: {}\n", short.join(", ")),
    }
}

fn grouped_size(n: usize) -> String {
    grouped(n as u64)
}
