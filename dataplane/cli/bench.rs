//! `bench`: puts a load on a server and tells what came back.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand, ValueEnum};

use super::bench_words::{self, Count, RateWord, RatioWord, SpanWord, TimeWord};
use super::{FAILED, USAGE, complain, print};
use crate::load::driver::{DriverError, DriverSettings, Stage, Target, drive};
use crate::load::{Arrivals, Dialect, LoadSettings, Popularity, Report, Share, Sizes};

/// What to put a load on.
#[derive(Debug, Subcommand)]
pub(super) enum Bench {
    /// A key-value service that speaks memcached's protocol: this one, or memcached itself
    ///
    /// Writes all keys once, warms up, then sends GETs and SETs for some seconds and verifies every byte of every reply.
    /// Prints rates, latencies from p50 to p99.99 and what was lost. Exit code 1 if any reply was wrong, or a request was given
    /// up without one.
    #[command(after_help = AFTER_HELP)]
    Kv(Box<Kv>),
}

const AFTER_HELP: &str = "\
Examples:
  memcached -l 127.0.0.1 -p 11211 -U 11211 -t 1 &
      a server to try it on, with UDP switched on
  isthmus bench kv udp://127.0.0.1:11211
      defaults: 100k keys, 64-byte values, 9 GETs to each SET, 32 at a time, 10 seconds
  isthmus bench kv tcp://127.0.0.1:11211 --value 4KiB --ratio 7:3 --flows 8 --pid $(pidof memcached)
      also what it costs the server
  isthmus bench kv udp://127.0.0.1:11211 --rate 50k --svg latency.svg
      at a fixed rate, latencies counted from when a request was due; and a plot

Read more in docs/bench-kv.md.";

/// `bench kv`.
#[derive(Debug, Args)]
pub(super) struct Kv {
    /// udp://HOST:PORT or tcp://HOST:PORT
    #[arg(value_name = "TARGET")]
    target: String,
    /// Keys; k and M are 1000 and 1000000
    #[arg(long, value_name = "N", default_value = "100k", help_heading = "Workload")]
    keys: Count,
    /// Bytes of a key, 9 to 250
    #[arg(long, value_name = "BYTES", default_value_t = 16, help_heading = "Workload",
          value_parser = clap::value_parser!(u16).range(9..=250))]
    key_size: u16,
    /// Value size: one (4KiB), a range, log-uniform (64..64KiB), or a list with weights (64:7,4KiB:3); 24 bytes at least
    #[arg(long, value_name = "SIZE", default_value = "64", help_heading = "Workload")]
    value: Sizes,
    /// GETs to SETs
    #[arg(long, value_name = "G:S", default_value = "9:1", help_heading = "Workload")]
    ratio: RatioWord,
    /// Skew of the keys' popularity; larger is more skewed
    #[arg(long, value_name = "THETA", default_value_t = 0.99, help_heading = "Workload",
          value_parser = bench_words::theta)]
    zipf: f64,
    /// All keys equally popular
    #[arg(long, conflicts_with = "zipf", help_heading = "Workload")]
    uniform: bool,
    /// Meta commands (mg, ms) instead of get and set
    #[arg(long, help_heading = "Workload")]
    meta: bool,
    /// Read by gat instead of get, which only the owner of a key can answer
    #[arg(long, conflicts_with = "meta", help_heading = "Workload")]
    touch: bool,
    /// What the random numbers start from; the same seed asks for the same keys
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workload")]
    seed: u64,
    /// Do not write all keys first; reads then miss what nobody has written
    #[arg(long, help_heading = "Workload")]
    no_preload: bool,
    /// Requests under way at a time on each flow
    #[arg(long, value_name = "N", default_value_t = 8, help_heading = "How it is driven")]
    depth: u32,
    /// Connections (TCP) or sockets (UDP), shared out to the threads
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "How it is driven")]
    flows: u16,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "How it is driven")]
    threads: u16,
    /// Requests a second at a fixed rate (open loop), such as 300k; without it each reply makes room for a request
    #[arg(long, value_name = "RATE", help_heading = "How it is driven")]
    rate: Option<RateWord>,
    /// How the requests of a --rate are spread
    #[arg(long, value_enum, default_value_t = Spread::Poisson, help_heading = "How it is driven")]
    arrivals: Spread,
    /// How long to measure: 10s, 500ms, 2m
    #[arg(long, value_name = "TIME", default_value = "10s", help_heading = "How it is driven")]
    time: SpanWord,
    /// Time before that which is not measured
    #[arg(long, value_name = "TIME", default_value = "1s", help_heading = "How it is driven")]
    warm_up: TimeWord,
    /// End after this many requests, if that is sooner
    #[arg(long, value_name = "N", help_heading = "How it is driven")]
    requests: Option<Count>,
    /// Time after which a request or reply counts as lost (UDP) or a connection as dead (TCP)
    #[arg(long, value_name = "TIME", default_value = "1s", help_heading = "How it is driven")]
    timeout: SpanWord,
    /// Times a lost request is sent again before it is given up
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "How it is driven")]
    retries: u8,
    /// Never sleep: a little faster, at the price of a whole core for each thread
    #[arg(long, help_heading = "How it is driven")]
    spin: bool,
    /// Print JSON
    #[arg(long, help_heading = "Report")]
    json: bool,
    /// Write a plot of the latencies
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    svg: Option<PathBuf>,
    /// The server's process: tells its CPU time and cycles per request
    #[arg(long, value_name = "PID", help_heading = "Report")]
    pid: Option<u32>,
}

/// How requests at a rate are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Spread {
    /// At random, independent of each other, as those of many users are
    Poisson,
    /// At equal distances
    Uniform,
}

/// A target that is none.
#[derive(Debug, thiserror::Error)]
enum TargetError {
    #[error("`{0}` has no scheme this command knows; write udp://HOST:PORT or tcp://HOST:PORT")]
    Scheme(String),
    #[error("`{0}` has no port that a server could have; write it as in udp://127.0.0.1:11211")]
    Port(String),
    #[error("`{host}` cannot be found: {source}")]
    Name { host: String, source: io::Error },
}

impl Kv {
    /// Runs it; the exit code.
    pub(super) fn run(&self) -> u8 {
        let settings = match self.settings() {
            Ok(settings) => settings,
            Err(error) => return complain(USAGE, &error),
        };
        let plot = match self.svg.as_ref().map(|path| Plot::open(path)).transpose() {
            Ok(plot) => plot,
            Err(error) => return complain(FAILED, &error),
        };
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // A second one ends it at once.
            let hooked = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)));
            if let Err(error) = hooked {
                return complain(FAILED, &error);
            }
        }
        // A gateway reads its list of memory nodes anew by it, and who sends it by the program's name means the gateway.
        let passed_over = Arc::new(AtomicBool::new(false));
        if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGHUP, passed_over) {
            return complain(FAILED, &error);
        }
        match drive(&settings, &stop, &|stage| self.tell(stage)) {
            Ok(driven) => self.report(&Report::of_driven(&settings, driven), plot),
            Err(
                error @ (DriverError::Threads { .. } | DriverError::Depth { .. } | DriverError::TooLong(_)),
            ) => complain(USAGE, &error),
            Err(error) => complain(FAILED, &error),
        }
    }

    fn settings(&self) -> Result<DriverSettings, TargetError> {
        let target = target(&self.target)?;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let arrivals = match (&self.rate, self.arrivals) {
            (None, _) => Arrivals::Closed,
            (Some(RateWord(rate)), Spread::Poisson) => Arrivals::Poisson(*rate),
            (Some(RateWord(rate)), Spread::Uniform) => Arrivals::Uniform(*rate),
        };
        let load = LoadSettings {
            keys: self.keys.0,
            key_bytes: self.key_size,
            popularity: if self.uniform { Popularity::Uniform } else { Popularity::Zipf(self.zipf) },
            sizes: self.value.clone(),
            ratio: (self.ratio.0, self.ratio.1),
            dialect: match (self.meta, self.touch) {
                (true, _) => Dialect::Meta,
                (_, true) => Dialect::Touch,
                _ => Dialect::Text,
            },
            seed: self.seed,
            stream: 0,
            run: since_1970.as_secs() as u32,
            share: Share::ALL,
            preload: !self.no_preload,
            warm_up_ns: nanoseconds(self.warm_up.0),
            measure_ns: nanoseconds(self.time.0),
            requests: self.requests.as_ref().map_or(0, |count| u64::from(count.0)),
            arrivals,
            timeout_ns: nanoseconds(self.timeout.0),
            retries: self.retries,
        };
        Ok(DriverSettings {
            load,
            target,
            flows: self.flows,
            depth: self.depth,
            threads: self.threads,
            spins: self.spin,
            pid: self.pid,
        })
    }

    /// What it is doing, for people who wait.
    fn tell(&self, stage: Stage) {
        let mut err = io::stderr().lock();
        // It takes as long as it takes, so that it is told wherever standard error goes.
        if stage == Stage::Preload || err.is_terminal() {
            let what = match stage {
                Stage::Preload => format!("storing {} keys first", self.keys.0),
                Stage::WarmUp => format!("warming up for {:?}", self.warm_up.0),
                Stage::Measure => format!("measuring for {:?}", self.time.0),
            };
            // Nobody reads it: so be it.
            drop(writeln!(err, "{what} ..."));
        }
    }

    /// Prints the report; the exit code.
    fn report(&self, report: &Report, plot: Option<Plot<'_>>) -> u8 {
        let plotted = plot.map_or(Ok(()), |plot| plot.write(&report.svg()));
        let text = if self.json { format!("{:#}\n", report.json()) } else { report.table() };
        let mut code = print(&text);
        if let Err(error) = plotted {
            code = code.max(complain(FAILED, &error));
        }
        match report.verdict() {
            None => code,
            Some(why) => {
                drop(writeln!(io::stderr().lock(), "{}: {why}", report.target));
                FAILED.max(code)
            }
        }
    }
}

/// The file that the plot goes to: opened before the run, so that no run is for nothing.
struct Plot<'a> {
    path: &'a Path,
    file: File,
}

/// A plot that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{path} cannot be written: {source}; give --svg another file")]
struct PlotError {
    path: String,
    source: io::Error,
}

impl<'a> Plot<'a> {
    fn open(path: &'a Path) -> Result<Self, PlotError> {
        // What is there stays until there is something to put in its place.
        let file = File::options().write(true).create(true).truncate(false).open(path);
        file.map(|file| Plot { path, file }).map_err(|source| Self::error(path, source))
    }

    fn write(mut self, text: &str) -> Result<(), PlotError> {
        let written = self.file.set_len(0).and_then(|()| self.file.write_all(text.as_bytes()));
        // A device or a pipe has no length.
        let written = written.or_else(|_| self.file.write_all(text.as_bytes()));
        written.map_err(|source| Self::error(self.path, source))
    }

    fn error(path: &Path, source: io::Error) -> PlotError {
        PlotError { path: path.display().to_string(), source }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The address behind `udp://HOST:PORT` and the like.
fn target(text: &str) -> Result<Target, TargetError> {
    let (scheme, rest) = text.split_once("://").ok_or_else(|| TargetError::Scheme(text.into()))?;
    let make = match scheme {
        "udp" => Target::Udp,
        "tcp" => Target::Tcp,
        _ => return Err(TargetError::Scheme(text.into())),
    };
    let rest = rest.trim_end_matches('/');
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port != 0);
    if rest.rsplit_once(':').is_none_or(|(host, port)| host.is_empty() || !is_port(port)) {
        return Err(TargetError::Port(text.into()));
    }
    if let Ok(address) = SocketAddr::from_str(rest) {
        return Ok(make(address));
    }
    let named = |source| TargetError::Name { host: rest.into(), source };
    let mut found = rest.to_socket_addrs().map_err(named)?;
    let nothing = || named(io::Error::new(io::ErrorKind::NotFound, "no address"));
    found.next().map(make).ok_or_else(nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_addresses_with_a_scheme() {
        assert_eq!(target("udp://127.0.0.1:11211").unwrap().to_string(), "udp://127.0.0.1:11211");
        assert_eq!(target("tcp://[::1]:7/").unwrap().to_string(), "tcp://[::1]:7");
        for (bad, word) in [
            ("127.0.0.1:1", "no scheme"),
            ("http://127.0.0.1:1", "no scheme"),
            ("udp://127.0.0.1", "no port"),
            ("udp://:11211", "no port"),
            ("tcp://host:x", "no port"),
            ("udp://127.0.0.1:0", "no port"),
            ("udp://[::1]:0", "no port"),
        ] {
            let error = target(bad).unwrap_err().to_string();
            assert!(error.contains(word), "{bad}: {error}");
        }
    }
}
