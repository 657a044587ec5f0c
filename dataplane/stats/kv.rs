//! The key-value service in tables: what gateways answered and how, and what memory nodes hold.

use super::grid::{Grid, Side, View, clip};
use super::rate::{grouped, short, three_digits};
use super::sample::Sample;
use super::table::counts_by_node;
use super::{Counter, Tally};
use Side::{Left, Right};

/// What a gateway is called among the services.
pub(super) const GATEWAY: &str = "kv";
/// What a memory node is called among the services.
pub(super) const MEMORY: &str = "memory";
/// Longest name shown.
const NAME_MAX: usize = 12;
/// Width that the tables of gateways keep to where their contents allow.
const WIDTH: usize = 100;
/// Requests a second below which cycles for each say nothing: what a worker does without any is the most of them.
const BUSY_REQUESTS: f64 = 1000.0;

/// Figures of the key-value service that are none of one counter, of any time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratios {
    /// Share of the keys read that were found, in percent; none where none was read.
    pub(super) hit_percent: Option<f64>,
    /// RDMA READs for each key read, those of buckets among them.
    pub(super) reads_per_get: Option<f64>,
    /// Cycles of turns that did something, for each request.
    pub(super) cycles_per_request: Option<f64>,
}

impl Ratios {
    /// Those of what a gateway counted.
    pub(super) fn of(counts: &Tally) -> Self {
        let value = |c| counts.value(c) as f64;
        let per = |n: f64, of: f64| (of > 0.0).then(|| n / of);
        let (hits, misses) = (value(Counter::KvGetHits), value(Counter::KvGetMisses));
        let reads = value(Counter::KvReads) + 3.0 * value(Counter::KvBucketReads);
        Ratios {
            hit_percent: per(100.0 * hits, hits + misses),
            reads_per_get: per(reads, value(Counter::KvGets)),
            cycles_per_request: per(value(Counter::BusyCycles), value(Counter::KvRequests)),
        }
    }
}

/// How many memory nodes a gateway may use, and of how many: by its worker that can use the fewest.
pub(super) fn nodes_up(sample: &Sample, gateway: &str) -> (u64, u64) {
    let workers = sample.workers.iter().filter(|w| w.node == gateway);
    let (mut fewest, mut all) = (u64::MAX, 0);
    for w in workers {
        let up = w.counts.value(Counter::KvNodesUp);
        fewest = fewest.min(up);
        all = all.max(up + w.counts.value(Counter::KvNodesDown));
    }
    (fewest.min(all), all)
}

/// The nodes of a service: name, all that they counted, and what they did since `before`.
pub(super) fn nodes<'a>(
    now: &'a Sample,
    before: &Sample,
    service: &str,
) -> impl Iterator<Item = (&'a str, Tally, Tally)> {
    let earlier: Vec<(String, Tally)> =
        counts_by_node(before).into_iter().map(|(n, t)| (n.to_owned(), t)).collect();
    let is_wanted = |name: &str| now.workers.iter().any(|w| w.node == name && w.service == service);
    let wanted: Vec<_> = counts_by_node(now).into_iter().filter(|(name, _)| is_wanted(name)).collect();
    wanted.into_iter().map(move |(name, counts)| {
        let before = earlier.iter().find(|e| e.0 == name);
        let since = before.map_or_else(|| counts.clone(), |e| counts.since(&e.1));
        (name, counts, since)
    })
}

/// What a worker of this service did, a second, by the names of the counters.
pub(super) fn rates(service: &str, since: &Tally, seconds: f64) -> Vec<(&'static str, f64)> {
    let counters: &[Counter] = match service {
        GATEWAY => &[
            Counter::KvRequests,
            Counter::KvReplies,
            Counter::KvGets,
            Counter::KvMutations,
            Counter::KvReads,
            Counter::KvSendGets,
            Counter::KvRaces,
            Counter::KvServerErrors,
        ],
        MEMORY => &[Counter::KvCallsServed, Counter::KvEvicted, Counter::KvExpired, Counter::KvStalled],
        _ => &[],
    };
    counters.iter().map(|c| (c.name(), since.value(*c) as f64 / seconds)).collect()
}

fn or_dash(value: Option<f64>, text: impl Fn(f64) -> String) -> String {
    value.map_or("-".into(), text)
}

fn percent(value: f64) -> String {
    format!("{value:.1}")
}

/// What gateways answered, a second, and how; red where a memory node is down.
pub(super) fn gateways(now: &Sample, before: &Sample, seconds: f64, view: View) -> String {
    let mut grid = Grid::new([
        ("gateway", Left),
        ("nodes up", Right),
        ("gets/s", Right),
        ("hit %", Right),
        ("sets/s", Right),
        ("reads/get", Right),
        ("by send/s", Right),
        ("races/s", Right),
        ("errors/s", Right),
        ("cyc/req", Right),
    ])
    .within(WIDTH)
    .on(view)
    .sparing(&["cyc/req", "races/s", "by send/s", "reads/get"]);
    for (name, _, since) in nodes(now, before, GATEWAY) {
        let rate = |c| since.value(c) as f64 / seconds;
        let ratios = Ratios::of(&since);
        let (up, all) = nodes_up(now, name);
        let cycles = ratios.cycles_per_request.filter(|_| rate(Counter::KvRequests) >= BUSY_REQUESTS);
        let cells = [
            clip(name, NAME_MAX),
            format!("{up} of {all}"),
            short(rate(Counter::KvGets)),
            or_dash(ratios.hit_percent, percent),
            short(rate(Counter::KvMutations)),
            or_dash(ratios.reads_per_get, three_digits),
            short(rate(Counter::KvSendGets)),
            short(rate(Counter::KvRaces)),
            short(rate(Counter::KvServerErrors)),
            or_dash(cycles, short),
        ];
        if up < all { grid.red_row(cells) } else { grid.row(cells) }
    }
    grid.text()
}

/// What memory nodes hold, and what they do a second.
pub(super) fn memory_nodes(now: &Sample, before: &Sample, seconds: f64, view: View) -> String {
    let mut grid = Grid::new([
        ("memory", Left),
        ("calls/s", Right),
        ("items", Right),
        ("MiB", Right),
        ("of MiB", Right),
        ("used %", Right),
        ("evicted/s", Right),
        ("expired/s", Right),
        ("stalled/s", Right),
    ])
    .on(view)
    .sparing(&["of MiB", "expired/s", "MiB", "stalled/s"]);
    for (name, counts, since) in nodes(now, before, MEMORY) {
        let rate = |c| short(since.value(c) as f64 / seconds);
        // Reports come whether anybody asks for anything or not.
        let calls = since.value(Counter::KvCallsServed).saturating_sub(since.value(Counter::KvReportsServed));
        let (held, room) = (counts.value(Counter::KvItemBytes), counts.value(Counter::KvDataBytes));
        grid.row([
            clip(name, NAME_MAX),
            short(calls as f64 / seconds),
            short(counts.value(Counter::KvItems) as f64),
            mebibytes(held),
            mebibytes(room),
            or_dash((room > 0).then(|| 100.0 * held as f64 / room as f64), percent),
            rate(Counter::KvEvicted),
            rate(Counter::KvExpired),
            rate(Counter::KvStalled),
        ]);
    }
    grid.text()
}

fn mebibytes(bytes: u64) -> String {
    match bytes {
        0 => "0".into(),
        // A few items have to show.
        1..52_429 => "<0.1".into(),
        n => format!("{:.1}", n as f64 / f64::from(1 << 20)),
    }
}

/// Totals of gateways.
pub(super) fn gateway_totals(last: &Sample, view: View) -> String {
    let mut grid = Grid::new([
        ("gateway", Left),
        ("gets", Right),
        ("hits", Right),
        ("hit %", Right),
        ("sets", Right),
        ("reads/get", Right),
        ("by send", Right),
        ("races", Right),
        ("errors", Right),
        ("malformed", Right),
    ])
    .within(WIDTH)
    .on(view)
    .sparing(&["hit %", "races", "by send", "reads/get"]);
    for (name, counts, _) in nodes(last, &Sample::default(), GATEWAY) {
        let total = |c| grouped(counts.value(c));
        let ratios = Ratios::of(&counts);
        grid.row([
            clip(name, NAME_MAX),
            total(Counter::KvGets),
            total(Counter::KvGetHits),
            or_dash(ratios.hit_percent, percent),
            total(Counter::KvMutations),
            or_dash(ratios.reads_per_get, three_digits),
            total(Counter::KvSendGets),
            total(Counter::KvRaces),
            total(Counter::KvServerErrors),
            total(Counter::KvMalformed),
        ]);
    }
    grid.text()
}

/// Totals of memory nodes.
pub(super) fn memory_totals(last: &Sample, view: View) -> String {
    let mut grid = Grid::new([
        ("memory", Left),
        ("calls", Right),
        ("of these reports", Right),
        ("items", Right),
        ("MiB", Right),
        ("evicted", Right),
        ("expired", Right),
        ("stalled", Right),
    ])
    .on(view)
    .sparing(&["of these reports", "expired", "stalled"]);
    for (name, counts, _) in nodes(last, &Sample::default(), MEMORY) {
        let total = |c| grouped(counts.value(c));
        grid.row([
            clip(name, NAME_MAX),
            total(Counter::KvCallsServed),
            total(Counter::KvReportsServed),
            total(Counter::KvItems),
            mebibytes(counts.value(Counter::KvItemBytes)),
            total(Counter::KvEvicted),
            total(Counter::KvExpired),
            total(Counter::KvStalled),
        ]);
    }
    grid.text()
}

/// Requests against what became of them: each is done exactly once, with a reply or without.
pub(super) fn balance(counts: &Tally) -> String {
    let value = |c| counts.value(c);
    let (requests, replies) = (value(Counter::KvRequests), value(Counter::KvReplies));
    let quiet = value(Counter::KvUnanswered);
    let verdict = match i128::from(requests) - i128::from(replies) - i128::from(quiet) {
        0 => "balanced".into(),
        lost @ 1.. => format!("{lost} unaccounted for"),
        gained => format!("{} too many", -gained),
    };
    let without = if quiet > 0 { format!(" + {} without a reply", grouped(quiet)) } else { String::new() };
    format!("{} requests = {} replies{without}: {verdict}", grouped(requests), grouped(replies))
}

#[cfg(test)]
mod tests;
