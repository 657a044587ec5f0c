//! What a run is told as: a table, JSON, a plot.

mod json;
mod svg;
mod table;

use super::driver::{Driven, DriverSettings, ProcessCpu};
use super::meter::{Counts, Meter};
use super::popularity::Popularity;
use super::settings::{Arrivals, LoadSettings};
use hdrhistogram::Histogram;

/// Quantiles that are told, with their names.
pub const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];

/// Share of a core from which on a thread of the generator may be what limits the rate.
const BUSY: f64 = 0.95;

/// Something that whoever ran the load knows beside: cycles per request of a role, READs per GET.
#[derive(Clone, PartialEq, Debug)]
pub struct Extra {
    /// What it is, in a few words.
    pub name: String,
    /// How much.
    pub value: f64,
    /// Of what, such as `cycles per request`; may be empty.
    pub unit: String,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Whom it asked.
    pub target: String,
    /// What that calls itself, if it was asked.
    pub version: Option<String>,
    /// What was asked for.
    pub load: LoadSettings,
    /// Flows, all together.
    pub flows: u32,
    /// Requests under way on each, at most.
    pub depth: u32,
    /// Seconds of the measurement.
    pub seconds: f64,
    /// What was counted.
    pub counts: Counts,
    /// Latencies of reads, in nanoseconds.
    pub gets: Histogram<u64>,
    /// Latencies of writes, in nanoseconds.
    pub sets: Histogram<u64>,
    /// Why a server was given up that never answered, or stored nothing.
    pub given_up: Option<String>,
    /// The first faults, in words.
    pub faults: Vec<String>,
    /// CPU seconds of each thread of the generator; empty if it was not measured.
    pub thread_cpu_s: Vec<f64>,
    /// CPU time of the server's process, if it was measured.
    pub server_cpu: Option<ProcessCpu>,
    /// Ticks a second of the time stamp counter, if known.
    pub tsc_hz: Option<f64>,
    /// What else there is to say.
    pub extra: Vec<Extra>,
}

impl Report {
    /// Of a load with these settings, all clients together, and what they measured together.
    pub fn new(target: String, load: LoadSettings, flows: u32, depth: u32, meter: Meter) -> Self {
        Report {
            target,
            version: None,
            load,
            flows,
            depth,
            seconds: meter.measured_ns as f64 * 1e-9,
            counts: meter.counts,
            gets: meter.gets,
            sets: meter.sets,
            given_up: None,
            faults: meter.faults,
            thread_cpu_s: vec![],
            server_cpu: None,
            tsc_hz: None,
            extra: vec![],
        }
    }

    /// Of a run over sockets.
    pub fn of_driven(settings: &DriverSettings, driven: Driven) -> Self {
        let target = settings.target.to_string();
        let load = settings.load.clone();
        Report {
            version: Some(driven.version),
            thread_cpu_s: driven.thread_cpu_s,
            server_cpu: driven.server_cpu,
            tsc_hz: driven.tsc_hz,
            ..Report::new(target, load, u32::from(settings.flows), settings.depth, driven.meter)
        }
    }

    /// Requests that were answered well.
    pub fn requests(&self) -> u64 {
        self.gets.len() + self.sets.len()
    }

    /// The same, a second.
    pub fn requests_per_s(&self) -> f64 {
        self.per_second(self.requests())
    }

    fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }

    /// Reads that found their item, of all reads; none without reads.
    pub fn hit_ratio(&self) -> Option<f64> {
        let reads = self.counts.hits + self.counts.misses;
        (reads > 0).then(|| self.counts.hits as f64 / reads as f64)
    }

    /// True if nothing was wrong, nothing was given up, and something was answered: misses, and losses that another attempt
    /// made good, are no errors.
    pub fn is_good(&self) -> bool {
        self.verdict().is_none()
    }

    /// What is wrong, if anything is.
    pub fn verdict(&self) -> Option<String> {
        if let Some(why) = &self.given_up {
            return Some(why.clone());
        }
        let Counts { faults, unanswered, .. } = self.counts;
        match (faults, unanswered, self.requests()) {
            (0, 0, 1..) => None,
            (0, _, 0) => Some("no reply at all".into()),
            (0, 1, _) => Some("a request was given up without a reply".into()),
            (0, _, _) => Some(format!("{unanswered} requests were given up without a reply")),
            (1, ..) => Some("a wrong reply".into()),
            (..) => Some(format!("{faults} wrong replies")),
        }
    }

    /// Share of a core that the busiest thread of the generator used; none if it was not measured.
    pub fn busiest_thread(&self) -> Option<f64> {
        let most = self.thread_cpu_s.iter().copied().reduce(f64::max)?;
        (self.seconds > 0.0).then(|| most / self.seconds)
    }

    /// What makes one careful with the figures, a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut out = vec![];
        let open = self.load.arrivals != Arrivals::Closed;
        if self.busiest_thread().is_some_and(|busy| busy > BUSY) {
            out.push(
                "the generator used all of a core: the server may be faster than this; try more --threads"
                    .into(),
            );
        }
        if self.counts.unsent > 0 {
            out.push(format!(
                "{} requests were due and never sent: the server is slower than the rate asked for, or --depth is too small",
                self.counts.unsent
            ));
        }
        if self.counts.losses * 1000 > self.requests() {
            let why = if open { "a lower --rate" } else { "a smaller --depth" };
            out.push(format!("many requests or replies were lost: socket buffers overflow; try {why}"));
        }
        out
    }

    /// Microseconds of CPU of the server per request; none if unknown.
    fn server_us(&self) -> Option<f64> {
        let cpu = self.server_cpu?;
        (self.requests() > 0).then(|| cpu.seconds() * 1e6 / self.requests() as f64)
    }

    /// TSC cycles of the server per request; none if unknown.
    pub fn server_cycles(&self) -> Option<f64> {
        Some(self.server_us()? * 1e-6 * self.tsc_hz?)
    }

    /// What was asked for, in a line.
    fn load_line(&self) -> String {
        let load = &self.load;
        let popularity = match load.popularity {
            Popularity::Uniform => "uniform".into(),
            Popularity::Zipf(theta) => format!("Zipf {theta}"),
        };
        let arrivals = match load.arrivals {
            Arrivals::Closed => "closed loop".into(),
            Arrivals::Uniform(rate) => format!("{}/s at equal distances", grouped(rate as u64)),
            Arrivals::Poisson(rate) => format!("{}/s at random", grouped(rate as u64)),
        };
        let dialect = load.dialect.name();
        format!(
            "{} keys of {} B, {popularity}, values of {}, GET:SET {}:{}, {dialect} commands\n\
             {} x {} requests under way, {arrivals}, seed {}",
            grouped(u64::from(load.keys)),
            load.key_bytes,
            load.sizes,
            load.ratio.0,
            load.ratio.1,
            flows(self.flows),
            self.depth,
            load.seed,
        )
    }
}

fn flows(n: u32) -> String {
    if n == 1 { "1 flow".into() } else { format!("{n} flows") }
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    crate::stats::grouped_by(' ', number)
}

#[cfg(test)]
#[path = "../tests/report.rs"]
mod tests;
