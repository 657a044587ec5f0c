//! Statistics as people and programs read them: a table or JSON lines every interval, and a report at the end.

use super::sample::Sample;
use super::{Counter, Tally};
use crate::config::StatsFormat;
use crate::plan::Plan;
use rdma_engine::types::Time;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};

/// Shows samples at an interval.
#[derive(Debug)]
pub struct Reporter {
    interval_ns: Option<u64>,
    json: bool,
    due: Time,
    before: Sample,
}

impl Reporter {
    /// A reporter as the plan wants it.
    pub fn new(plan: &Plan) -> Self {
        let json = match plan.stats.format {
            StatsFormat::Json => true,
            StatsFormat::Table => false,
            StatsFormat::Auto => !std::io::stdout().is_terminal(),
        };
        let interval_ns = plan.stats.interval_s.map(|s| u64::from(s) * 1_000_000_000);
        Reporter { interval_ns, json, due: Time(0), before: Sample::default() }
    }

    /// True when the next report is due.
    pub fn is_due(&mut self, now: Time) -> bool {
        let Some(interval) = self.interval_ns else { return false };
        let due = now >= self.due;
        if due {
            self.due = now.after_ns(interval);
        }
        due
    }

    /// Shows a sample, with rates since the last one.
    pub fn show(&mut self, sample: &Sample) {
        let text = if self.json { json(sample) } else { table(sample, &self.before) };
        self.before = sample.clone();
        print(&text);
    }

    /// Shows the totals at the end.
    pub fn conclude(&mut self, sample: &Sample, unclean: &[String]) {
        let text = if self.json { json(sample) } else { table(sample, &Sample::default()) };
        print(&text);
        for line in unclean {
            print(&format!("{line}\n"));
        }
    }
}

/// A reader that has gone away is no reason to stop.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn table(now: &Sample, before: &Sample) -> String {
    let seconds = (now.at_ms - before.at_ms).max(1) as f64 / 1000.0;
    let mut out = String::new();
    for (i, w) in now.workers.iter().enumerate() {
        let earlier = before.workers.get(i).map_or_else(Tally::default, |w| w.counts.clone());
        let t = w.counts.since(&earlier);
        let busy = t.value(Counter::BusyCycles) as f64;
        let all = busy + t.value(Counter::IdleCycles) as f64;
        let _ = write!(
            out,
            "{:12} {} lcore {} rx {:>10.0}/s tx {:>10.0}/s sent {:>10} received {:>10} busy {:>5.1} %",
            w.node,
            w.worker,
            w.lcore,
            t.value(Counter::RxFrames) as f64 / seconds,
            t.value(Counter::TxFrames) as f64 / seconds,
            w.counts.value(Counter::FramesSent),
            w.counts.value(Counter::FramesReceived),
            100.0 * busy / all.max(1.0),
        );
        for (reason, n) in w.counts.drops() {
            let _ = write!(out, " {}={n}", reason.name());
        }
        out.push('\n');
    }
    for p in &now.paths {
        let peer = p.peer.as_deref().unwrap_or("-");
        let _ = writeln!(out, "{:12} {} path {} {} {peer}", p.node, p.worker, p.path, p.state);
    }
    out
}

fn json(now: &Sample) -> String {
    let worker = |w: &super::sample::WorkerSample| {
        let counts: serde_json::Map<_, _> =
            Counter::ALL.iter().map(|c| (c.name().to_owned(), w.counts.value(*c).into())).collect();
        let drops: serde_json::Map<_, _> =
            w.counts.drops().map(|(r, n)| (r.name().to_owned(), n.into())).collect();
        serde_json::json!({
            "node": w.node, "worker": w.worker, "lcore": w.lcore, "service": w.service,
            "counts": counts, "drops": drops,
        })
    };
    let path = |p: &super::sample::PathSample| {
        serde_json::json!({
            "node": p.node, "worker": p.worker, "path": p.path, "state": p.state, "qpn": p.qpn,
            "connections": p.connections,
        })
    };
    let port = |p: &super::sample::PortSample| {
        serde_json::json!({
            "name": p.name, "rx_packets": p.rx_packets, "tx_packets": p.tx_packets,
            "rx_missed": p.rx_missed, "tx_errors": p.tx_errors, "rx_no_mbuf": p.rx_no_mbuf,
        })
    };
    let line = serde_json::json!({
        "at_ms": now.at_ms,
        "workers": now.workers.iter().map(worker).collect::<Vec<_>>(),
        "paths": now.paths.iter().map(path).collect::<Vec<_>>(),
        "ports": now.ports.iter().map(port).collect::<Vec<_>>(),
    });
    format!("{line}\n")
}
