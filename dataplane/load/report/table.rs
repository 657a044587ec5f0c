//! The table.

use super::{QUANTILES, Report, grouped};
use hdrhistogram::Histogram;
use std::fmt::Write;

impl Report {
    /// For people: lines of at most 100 characters or so.
    pub fn table(&self) -> String {
        let version = self.version.as_ref().map_or(String::new(), |v| format!(" (version {v})"));
        let mut out = format!("{}{version}\n{}\n\n", self.target, self.load_line());
        self.rates(&mut out);
        self.latencies(&mut out);
        self.trouble(&mut out);
        self.costs(&mut out);
        for extra in &self.extra {
            line(&mut out, &extra.name, &format!("{} {}", short(extra.value), extra.unit));
        }
        for warning in self.warnings() {
            let _ = writeln!(out, "\nnote: {warning}");
        }
        for fault in &self.faults {
            let _ = writeln!(out, "wrong: {fault}");
        }
        if self.counts.faults > self.faults.len() as u64 {
            let _ = writeln!(out, "wrong: {} more", grouped(self.counts.faults - self.faults.len() as u64));
        }
        out
    }

    fn rates(&self, out: &mut String) {
        let rate = |n: u64| grouped(self.per_second(n).round() as u64);
        let megabytes = |bytes: u64| format!("{:.1} MB/s", self.per_second(bytes) * 1e-6);
        let counts = &self.counts;
        let all =
            format!("{}  ({} in {:.2} s)", rate(self.requests()), grouped(self.requests()), self.seconds);
        line(out, "requests/s", &all);
        if let Some(ratio) = self.hit_ratio() {
            let hits = format!("{:.2} % hits", 100.0 * ratio);
            let text = format!("{}  {}  {hits}", rate(self.gets.len()), megabytes(counts.bytes_read));
            line(out, "GET/s", &text);
        }
        if counts.stored > 0 {
            line(out, "SET/s", &format!("{}  {}", rate(counts.stored), megabytes(counts.bytes_written)));
        }
    }

    fn latencies(&self, out: &mut String) {
        let _ = write!(out, "\n  {:<14}", "latency, us");
        for (name, _) in QUANTILES {
            let _ = write!(out, "{name:>10}");
        }
        let _ = writeln!(out, "{:>10}", "max");
        for (name, histogram) in [("GET", &self.gets), ("SET", &self.sets)] {
            if !histogram.is_empty() {
                latency_line(out, name, histogram);
            }
        }
        out.push('\n');
    }

    fn trouble(&self, out: &mut String) {
        let c = &self.counts;
        let figures = [
            ("wrong", c.faults),
            ("lost", c.losses),
            ("given up", c.unanswered),
            ("late", c.late),
            ("unsent", c.unsent),
            ("strange", c.strangers),
            ("reconnects", c.reconnects),
        ];
        let parts: Vec<String> = figures
            .iter()
            .filter(|(name, n)| *n > 0 || *name == "wrong" || *name == "lost")
            .map(|(name, n)| format!("{name} {}", grouped(*n)))
            .collect();
        line(out, "replies", &parts.join(", "));
    }

    fn costs(&self, out: &mut String) {
        let requests = self.requests().max(1) as f64;
        if let Some(busiest) = self.busiest_thread() {
            let cpu: f64 = self.thread_cpu_s.iter().sum();
            let threads = self.thread_cpu_s.len();
            let text = format!(
                "{threads} thread{}, busiest {:.0} % of a core, {:.2} us per request",
                if threads == 1 { "" } else { "s" },
                100.0 * busiest,
                cpu * 1e6 / requests,
            );
            line(out, "generator", &text);
        }
        if let (Some(cpu), Some(us)) = (self.server_cpu, self.server_us()) {
            let cycles =
                self.server_cycles().map_or(String::new(), |n| format!(", {} cycles", grouped(n as u64)));
            let text = format!(
                "{:.0} % of a core, {us:.2} us per request ({:.2} user, {:.2} kernel){cycles}",
                100.0 * cpu.seconds() / self.seconds.max(1e-9),
                cpu.user_s * 1e6 / requests,
                cpu.system_s * 1e6 / requests,
            );
            line(out, "server", &text);
        }
    }
}

fn line(out: &mut String, name: &str, text: &str) {
    let _ = writeln!(out, "  {name:<14}{}", text.trim_end());
}

fn latency_line(out: &mut String, name: &str, histogram: &Histogram<u64>) {
    let us = |ns: u64| format!("{:.1}", ns as f64 / 1000.0);
    let _ = write!(out, "  {name:<14}");
    for (_, quantile) in QUANTILES {
        let _ = write!(out, "{:>10}", us(histogram.value_at_quantile(quantile)));
    }
    let _ = writeln!(out, "{:>10}", us(histogram.max()));
}

/// Some digits of a number.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => grouped(value.round().max(0.0) as u64),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
