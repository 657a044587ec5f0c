//! The soft transport in tables: packets, and what went wrong on their way.

use super::grid::{Grid, Side, View, clip};
use super::rate::{gigabits, grouped, short, three_digits};
use super::sample::Sample;
use super::table::counts_by_node;
use super::{Counter, Tally};
use Side::{Left, Right};

/// Longest name shown.
const NAME_MAX: usize = 12;

fn is_used(counts: &Tally) -> bool {
    counts.value(Counter::FabricRxFrames) + counts.value(Counter::FabricTxFrames) > 0
}

/// Rates of the workers that carry RoCE packets of our own; nothing where none does.
pub(super) fn rates(now: &Sample, before: &Sample, seconds: f64, view: View) -> String {
    let mut grid = Grid::new([
        ("roce", Left),
        ("rx/s", Right),
        ("tx/s", Right),
        ("Gb/s", Right),
        ("again/s", Right),
        ("timeouts/s", Right),
        ("naks/s", Right),
        ("cnps/s", Right),
        ("over/s", Right),
    ])
    .on(view)
    .sparing(&["over/s", "cnps/s", "Gb/s", "naks/s"]);
    for (i, w) in now.workers.iter().enumerate().filter(|(_, w)| is_used(&w.counts)) {
        let since = before.workers.get(i).map_or_else(|| w.counts.clone(), |b| w.counts.since(&b.counts));
        let rate = |counters: &[Counter]| {
            short(counters.iter().map(|c| since.value(*c)).sum::<u64>() as f64 / seconds)
        };
        let bytes = since.value(Counter::FabricRxBytes) + since.value(Counter::FabricTxBytes);
        grid.row([
            format!("{}/{}", clip(&w.node, NAME_MAX), w.worker),
            rate(&[Counter::FabricRxFrames]),
            rate(&[Counter::FabricTxFrames]),
            three_digits(gigabits(bytes, seconds)),
            rate(&[Counter::Retransmitted]),
            rate(&[Counter::Timeouts]),
            rate(&[Counter::NaksReceived, Counter::RnrNaksReceived]),
            rate(&[Counter::CnpsReceived]),
            rate(&[Counter::HandedOver]),
        ]);
    }
    grid.text()
}

/// Totals of the nodes that carried RoCE packets of our own.
pub(super) fn totals(last: &Sample, view: View) -> String {
    let mut grid = Grid::new([
        ("roce", Left),
        ("received", Right),
        ("sent", Right),
        ("again", Right),
        ("timeouts", Right),
        ("naks", Right),
        ("rnr naks", Right),
        ("cnps", Right),
        ("handed over", Right),
    ])
    .on(view)
    .sparing(&["handed over", "cnps", "rnr naks", "naks"]);
    for (node, counts) in counts_by_node(last).into_iter().filter(|(_, c)| is_used(c)) {
        let total = |counter| grouped(counts.value(counter));
        grid.row([
            clip(node, NAME_MAX),
            total(Counter::FabricRxFrames),
            total(Counter::FabricTxFrames),
            total(Counter::Retransmitted),
            total(Counter::Timeouts),
            total(Counter::NaksReceived),
            total(Counter::RnrNaksReceived),
            total(Counter::CnpsReceived),
            total(Counter::HandedOver),
        ]);
    }
    grid.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::sample::WorkerSample;

    fn sample(at_ms: u64, packets: u64) -> Sample {
        let worker = |node: &str, packets: u64| {
            let mut counts = Tally::default();
            counts.add(Counter::FabricTxFrames, packets);
            counts.add(Counter::FabricTxBytes, packets * 1250);
            counts.add(Counter::Retransmitted, packets / 100);
            WorkerSample { node: node.into(), worker: 0, lcore: 1, service: "relay", counts }
        };
        Sample { at_ms, workers: vec![worker("relay", packets), worker("sink", 0)], ..Sample::default() }
    }

    #[test]
    fn workers_with_packets_are_shown_and_no_others() {
        let shown = rates(&sample(2000, 300_000), &sample(1000, 100_000), 1.0, View::PLAIN);
        let line = shown.lines().nth(1).unwrap();
        assert_eq!(
            line.split_whitespace().take(5).collect::<Vec<_>>(),
            ["relay/0", "0", "200k", "2.00", "2.00k"]
        );
        assert_eq!(shown.lines().count(), 2);
        let total = totals(&sample(2000, 300_000), View::PLAIN);
        assert!(total.lines().nth(1).unwrap().contains("300,000"), "{total}");
        assert_eq!(rates(&sample(1, 0), &sample(0, 0), 1.0, View::PLAIN), "");
    }
}
