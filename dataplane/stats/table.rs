//! The live table: what runs, at which rate, and what is lost.

use super::grid::{Grid, Side, View, clip, fold};
use super::rate::{Rates, gigabits, grouped, seconds, short, three_digits};
use super::sample::{PathSample, Sample};
use super::{DropReason, Tally, kv};
use Side::{Left, Right};
use std::collections::BTreeMap;

/// Most paths that get a line each; more are counted by node and state.
const PATHS_SHOWN: usize = 12;
/// Longest name shown.
const NAME_MAX: usize = 12;
/// Longest name of a peer shown.
const PEER_MAX: usize = 30;
/// Longest line of what was ignored.
const IGNORED_MAX: usize = 70;

/// The table of `now`, with rates since `before`.
pub(super) fn table(now: &Sample, before: &Sample, view: View) -> String {
    let seconds = seconds(now.at_ms, before.at_ms);
    let up = now.at_ms as f64 / 1000.0;
    let mut out = format!("isthmus  up {up:.1} s, rates of the last {seconds:.1} s\n\n");
    let blocks = [
        workers(now, before, seconds, view),
        kv::gateways(now, before, seconds, view),
        kv::memory_nodes(now, before, seconds, view),
        super::roce::rates(now, before, seconds, view),
        paths(now, view),
        ports(now, before, seconds, view),
        drops(now, before, seconds, view),
    ];
    for block in blocks.iter().filter(|b| !b.is_empty()) {
        out.push_str(block);
        out.push('\n');
    }
    out.push_str(&fold(&last_lines(now), view.columns));
    out
}

fn workers(now: &Sample, before: &Sample, seconds: f64, view: View) -> String {
    let mut grid = Grid::new([
        ("worker", Left),
        ("service", Left),
        ("lcore", Right),
        ("rx/s", Right),
        ("tx/s", Right),
        ("sent/s", Right),
        ("recv/s", Right),
        ("Gb/s", Right),
        ("busy %", Right),
        ("cyc/frame", Right),
    ])
    .on(view)
    .sparing(&["lcore", "cyc/frame", "Gb/s", "service"])
    .without(|column| match column {
        "sent/s" | "recv/s" => now.workers.iter().all(|w| w.service != "relay"),
        // A gateway's cycles are told by request.
        "cyc/frame" => now.workers.iter().all(|w| is_kv(w.service)),
        _ => false,
    });
    for (i, w) in now.workers.iter().enumerate() {
        let r = Rates::between(&w.counts, before.workers.get(i).map(|w| &w.counts), seconds, now.tsc_hz);
        let relay = |rate| if w.service == "relay" { short(rate) } else { "-".into() };
        let or_dash = |value: Option<f64>, text: fn(f64) -> String| value.map_or("-".into(), text);
        // A memory node has no port of its own.
        let at_port = |text: String| if w.service == kv::MEMORY { "-".into() } else { text };
        grid.row([
            format!("{}/{}", clip(&w.node, NAME_MAX), w.worker),
            w.service.into(),
            w.lcore.to_string(),
            at_port(short(r.rx)),
            at_port(short(r.tx)),
            relay(r.sent),
            relay(r.received),
            at_port(three_digits(r.gbps)),
            or_dash(r.busy, |v| format!("{v:.1}")),
            or_dash(r.cycles.filter(|_| !is_kv(w.service)), short),
        ]);
    }
    grid.text()
}

fn is_kv(service: &str) -> bool {
    [kv::GATEWAY, kv::MEMORY].contains(&service)
}

/// True if all queue pairs are of the key-value service and up: whom they connect is said by the gateways' line.
fn are_kv_and_up(now: &Sample) -> bool {
    let is_of_kv = |node: &str| now.workers.iter().any(|w| w.node == node && is_kv(w.service));
    !now.paths.is_empty() && now.paths.iter().all(|p| p.state == "up" && is_of_kv(&p.node))
}

/// What is well in two lines, for a table has to leave room for more: nothing lost, who came in vain, paths, pools.
fn last_lines(now: &Sample) -> String {
    let lost = counts_by_node(now).iter().any(|(_, tally)| tally.drops().any(|(r, _)| r.is_loss()));
    let mut first = Vec::from_iter((!lost).then(|| "no drops".to_owned()));
    first.extend(ignored(now));
    let paths = are_kv_and_up(now).then(|| format!("all {} paths up", now.paths.len()));
    let second: Vec<String> = paths.into_iter().chain(emptiest_pool(now)).collect();
    let lines = [first.join("; "), second.join("; ")];
    lines.iter().filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}

fn paths(now: &Sample, view: View) -> String {
    if are_kv_and_up(now) {
        return String::new();
    }
    if now.paths.len() > PATHS_SHOWN {
        return paths_by_state(now, view);
    }
    let mut grid = Grid::new([
        ("path", Left),
        ("state", Left),
        ("qp", Right),
        ("peer qp", Right),
        ("connections", Right),
        ("peer", Left),
    ])
    .on(view)
    .sparing(&["connections", "peer qp", "qp"]);
    let number = |qpn: Option<u32>| qpn.map_or("-".into(), |n| format!("{n:#x}"));
    for p in &now.paths {
        grid.row([
            format!("{}/{}.{}", clip(&p.node, NAME_MAX), p.worker, p.path),
            p.state.into(),
            number(p.qpn),
            number(p.peer_qpn),
            p.connections.to_string(),
            peer(p),
        ]);
    }
    grid.text()
}

fn peer(path: &PathSample) -> String {
    // One that is not there is called as the configuration does.
    path.peer.as_deref().or(path.peer_name.as_deref()).map_or("-".into(), |p| clip(p, PEER_MAX))
}

fn paths_by_state(now: &Sample, view: View) -> String {
    let mut groups = BTreeMap::new();
    for p in &now.paths {
        *groups.entry((clip(&p.node, NAME_MAX), p.state, peer(p))).or_insert(0u64) += 1;
    }
    let mut grid = Grid::new([("node", Left), ("paths", Right), ("state", Left), ("peer", Left)]).on(view);
    for ((node, state, peer), n) in groups {
        grid.row([node, n.to_string(), state.into(), peer]);
    }
    grid.text()
}

fn ports(now: &Sample, before: &Sample, seconds: f64, view: View) -> String {
    let mut grid = Grid::new([
        ("port", Left),
        ("link", Left),
        ("rx/s", Right),
        ("tx/s", Right),
        ("rx Gb/s", Right),
        ("tx Gb/s", Right),
        ("missed", Right),
        ("no mbuf", Right),
        ("errors", Right),
    ])
    .on(view)
    .sparing(&["rx Gb/s", "tx Gb/s", "no mbuf"]);
    for (i, p) in now.ports.iter().enumerate() {
        let earlier = before.ports.get(i).cloned().unwrap_or_default();
        let per_second = |now: u64, before: u64| short(now.saturating_sub(before) as f64 / seconds);
        let bits = |now: Option<u64>, before: u64| {
            now.map_or("-".into(), |now| three_digits(gigabits(now.saturating_sub(before), seconds)))
        };
        grid.row([
            clip(&p.name, NAME_MAX),
            if p.link_up { "up" } else { "down" }.into(),
            per_second(p.rx_packets, earlier.rx_packets),
            per_second(p.tx_packets, earlier.tx_packets),
            bits(p.known_rx_bytes(), earlier.rx_bytes),
            bits(p.known_tx_bytes(), earlier.tx_bytes),
            short(p.rx_missed as f64),
            short(p.rx_no_mbuf as f64),
            short((p.rx_errors + p.tx_errors) as f64),
        ]);
    }
    grid.text()
}

/// What was lost.
fn drops(now: &Sample, before: &Sample, seconds: f64, view: View) -> String {
    let earlier = counts_by_node(before);
    let columns = [("drops at", Left), ("reason", Left), ("per second", Right), ("total", Right)];
    let mut grid = Grid::new(columns).on(view);
    for (node, tally) in counts_by_node(now) {
        for (reason, total) in tally.drops().filter(|(reason, _)| reason.is_loss()) {
            let before = earlier.iter().find(|e| e.0 == node).map_or(0, |e| e.1.dropped(reason));
            let rate = short(total.saturating_sub(before) as f64 / seconds);
            grid.red_row([clip(node, NAME_MAX), reason.name().into(), rate, grouped(total)]);
        }
    }
    grid.text()
}

/// What came and nobody here wanted, in a line.
fn ignored(now: &Sample) -> Option<String> {
    let mut all = Vec::new();
    for (node, tally) in counts_by_node(now) {
        for (reason, total) in tally.drops().filter(|(reason, _)| !reason.is_loss()) {
            all.push(format!("{} {} at {}", grouped(total), reason.name(), clip(node, NAME_MAX)));
        }
    }
    (!all.is_empty()).then(|| clip(&format!("ignored  {}", all.join(", ")), IGNORED_MAX))
}

/// What all workers of a node counted, in the order of the nodes.
pub(super) fn counts_by_node(sample: &Sample) -> Vec<(&str, Tally)> {
    let mut nodes: Vec<(&str, Tally)> = Vec::new();
    for w in &sample.workers {
        match nodes.iter_mut().find(|n| n.0 == w.node) {
            Some(node) => node.1.merge(&w.counts),
            None => nodes.push((&w.node, w.counts.clone())),
        }
    }
    nodes
}

fn emptiest_pool(now: &Sample) -> Option<String> {
    let share = |p: &super::sample::PoolSample| p.available as f64 / p.capacity.max(1) as f64;
    let pool = now.pools.iter().min_by(|a, b| share(a).total_cmp(&share(b)))?;
    let (free, all) = (grouped(pool.available as u64), grouped(pool.capacity as u64));
    Some(format!("emptiest pool  {}: {free} of {all} buffers free", clip(&pool.name, 26)))
}

/// True for a reason that counts what never became a frame of this worker.
pub(super) fn is_beyond_frames(reason: DropReason) -> bool {
    reason.is_fabric()
        || matches!(reason, DropReason::LostInTransit | DropReason::Malformed | DropReason::StaleGeneration)
}
