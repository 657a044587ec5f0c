//! What a request to the key-value service costs, beside memcached: `cargo bench --bench kv`.
//!
//! Clients, gateway and memory node run in one process over links in memory, all on one core in turn; each role's ledger tells
//! its own cycles. memcached runs on one core and is asked by the same generator over the kernel's loopback, from the other
//! core; its cycles are CPU time, user and kernel, as the kernel counts it. Rounds alternate, and medians are shown.
//!
//! Needs `memcached` and `taskset` (Debian: memcached, util-linux), two CPUs and some hundred hugepages. About five minutes.

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::{machine, median};

/// Rounds of everything.
const ROUNDS: usize = 3;
/// Seconds measured in each.
const SECONDS: u32 = 3;
/// Where memcached listens on loopback.
const PORT: u16 = 21_811;

fn main() {
    if std::env::args().any(|a| a == "--test" || a == "--list") {
        return;
    }
    println!("{}", machine());
    println!("command: cargo bench --bench kv ({ROUNDS} rounds of {SECONDS} s, medians)\n");
    let memcached = Memcached::start();
    mixed(&memcached);
    served();
    unloaded();
    paced(&memcached);
}

/// 7 GETs to 3 SETs, as many as are answered.
fn mixed(memcached: &Memcached) {
    println!("7 GET : 3 SET, 10 000 keys, Zipf 0.99, closed loop of 64, cycles per request");
    println!(
        "{:>6} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10} {:>8}",
        "bytes",
        "requests/s",
        "client",
        "gateway",
        "node",
        "GET p50",
        "GET p99",
        "READs",
        "memc. UDP",
        "memc. TCP",
        "ratio"
    );
    for bytes in [64, 4096] {
        let mut rows: [Vec<f64>; 9] = Default::default();
        for _ in 0..ROUNDS {
            let run = Run::of(&Load { bytes, ..Load::default() });
            let figures = [
                run.requests_per_s(),
                run.cycles("load"),
                run.cycles("gateway"),
                run.cycles("memory"),
                run.latency("get", "p50"),
                run.latency("get", "p99"),
                run.count("gateway", "kv_reads") / run.count("gateway", "kv_gets"),
                memcached.cycles("udp", bytes),
                memcached.cycles("tcp", bytes),
            ];
            rows.iter_mut().zip(figures).for_each(|(row, figure)| row.push(figure));
        }
        let [rate, client, gateway, node, p50, p99, reads, udp, tcp] = rows.map(middle);
        println!(
            "{bytes:>6} {rate:>10.0} {client:>9.0} {gateway:>9.0} {node:>9.0} {p50:>9.1} {p99:>9.1} {reads:>9.2} {udp:>10.0} {tcp:>10.0} {:>7.1}x",
            udp / (gateway + node)
        );
    }
    println!("(latencies in us; ratio: memcached over UDP to gateway and node together)\n");
}

/// GETs that are RDMA READs, and such that the memory node answers.
fn served() {
    println!("GETs alone, closed loop of 64, cycles per request");
    println!(
        "{:>6} {:<22} {:>10} {:>9} {:>9} {:>9}",
        "bytes", "answered by", "requests/s", "gateway", "node", "together"
    );
    for bytes in [64, 4096] {
        for (name, commands) in [("a READ", "text"), ("the node, over SEND", "touch")] {
            let mut rows: [Vec<f64>; 3] = Default::default();
            for _ in 0..ROUNDS {
                let run = Run::of(&Load { bytes, commands, ratio: "[1, 0]", ..Load::default() });
                let figures = [run.requests_per_s(), run.cycles("gateway"), run.cycles("memory")];
                rows.iter_mut().zip(figures).for_each(|(row, figure)| row.push(figure));
            }
            let [rate, gateway, node] = rows.map(middle);
            println!("{bytes:>6} {name:<22} {rate:>10.0} {gateway:>9.0} {node:>9.0} {:>9.0}", gateway + node);
        }
    }
    println!();
}

/// One request at a time.
fn unloaded() {
    println!("one request at a time, 7 GET : 3 SET, us");
    println!(
        "{:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "bytes", "GET p50", "p99", "p99.9", "SET p50", "p99", "p99.9"
    );
    for bytes in [64, 4096] {
        let mut rows: [Vec<f64>; 6] = Default::default();
        for _ in 0..ROUNDS {
            let run = Run::of(&Load { bytes, flows: 1, depth: 1, ..Load::default() });
            let figures = ["get", "set"].map(|op| ["p50", "p99", "p99.9"].map(|q| run.latency(op, q)));
            rows.iter_mut().zip(figures.into_iter().flatten()).for_each(|(row, figure)| row.push(figure));
        }
        let [a, b, c, d, e, f] = rows.map(middle);
        println!("{bytes:>6} {a:>8.1} {b:>8.1} {c:>8.1} {d:>8.1} {e:>8.1} {f:>8.1}");
    }
    println!();
}

/// Share of a core at a fixed rate.
fn paced(memcached: &Memcached) {
    println!("7 GET : 3 SET of 64 bytes at a fixed rate: share of a core that is busy, %");
    println!(
        "{:>10} {:>10} {:>8} {:>6} {:>8} {:>14} {:>10}",
        "asked", "answered", "gateway", "node", "GET p50", "memcached UDP", "answered"
    );
    for rate in [100_000, 300_000] {
        let mut rows: [Vec<f64>; 6] = Default::default();
        for _ in 0..ROUNDS {
            let run = Run::of(&Load { bytes: 64, rate, flows: 16, depth: 16, ..Load::default() });
            let (share, answered) = memcached.share(rate);
            let figures = [
                run.requests_per_s(),
                run.share("gateway"),
                run.share("memory"),
                run.latency("get", "p50"),
                share,
                answered,
            ];
            rows.iter_mut().zip(figures).for_each(|(row, figure)| row.push(figure));
        }
        let [got, gateway, node, p50, share, answered] = rows.map(middle);
        println!(
            "{rate:>10} {got:>10.0} {gateway:>8.1} {node:>6.1} {p50:>8.1} {share:>14.1} {answered:>10.0}"
        );
    }
}

/// What is asked of an Isthmus.
struct Load {
    bytes: u32,
    flows: u32,
    depth: u32,
    /// Requests a second; 0 for as many as are answered.
    rate: u32,
    ratio: &'static str,
    commands: &'static str,
}

impl Default for Load {
    fn default() -> Self {
        Load { bytes: 64, flows: 16, depth: 4, rate: 0, ratio: "[7, 3]", commands: "text" }
    }
}

impl Load {
    /// A value and its headers are one datagram, and one RoCE packet.
    fn config(&self) -> String {
        let Load { bytes, flows, depth, rate, ratio, commands } = self;
        format!(
            r#"poll = "busy"
            [eal]
            lcores = "0@0,1@1"
            [stats]
            format = "json"
            [[link]]
            name = "clients"
            ports = ["asks", "answers"]
            mtu = 9000
            [[link]]
            name = "wire"
            ports = ["wire-gw", "wire-mem"]
            mtu = 9000
            [fabric]
            transport = "soft"
            pmtu = 8192
            [[node]]
            name = "load"
            service = "load"
            ports = ["asks"]
            [node.load]
            addresses = ["198.51.100.2/24"]
            server = "198.51.100.1:11211"
            flows = {flows}
            depth = {depth}
            keys = 10000
            value_bytes = {bytes}
            commands = "{commands}"
            ratio = {ratio}
            rate = {rate}.0
            measure_s = {SECONDS}
            [[node]]
            name = "gateway"
            service = "kv"
            ports = ["answers"]
            [node.fabric.soft]
            port = "wire-gw"
            addresses = ["192.0.2.1/24"]
            [node.kv]
            addresses = ["198.51.100.1/24"]
            nodes = ["memory"]
            node_workers_max = 1
            datagram_bytes = 8900
            [[node]]
            name = "memory"
            service = "memory"
            [node.fabric.soft]
            port = "wire-mem"
            addresses = ["192.0.2.2/24"]
            [node.memory]
            seats = 1
            gateway_workers_max = 1
            "#
        )
    }
}

/// The reports of a run.
struct Run {
    reports: Vec<Value>,
    load: Value,
}

impl Run {
    fn of(load: &Load) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench-kv.toml");
        fs::write(&path, load.config()).expect("a writable target directory");
        let output = Command::new(env!("CARGO_BIN_EXE_isthmus")).arg("run").arg(&path).output();
        let output = output.expect("the command was built");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let load = lines.iter().find_map(|line| line.get("load")).expect("what was measured").clone();
        let reports = lines.into_iter().filter(|line| line.get("workers").is_some()).collect();
        Run { reports, load }
    }

    fn counts(report: &Value, node: &str, name: &str) -> f64 {
        let workers = report["workers"].as_array().map_or(&[][..], Vec::as_slice);
        workers.iter().find(|w| w["node"] == node).and_then(|w| w["counts"][name].as_f64()).unwrap_or(0.0)
    }

    /// Of the whole run.
    fn count(&self, node: &str, name: &str) -> f64 {
        self.reports.last().map_or(0.0, |report| Self::counts(report, node, name))
    }

    /// Busy cycles of a role for each request of the run.
    fn cycles(&self, node: &str) -> f64 {
        self.count(node, "busy_cycles") / self.count("gateway", "kv_requests")
    }

    /// Busy share of a role's core, in percent, while the load ran at its rate.
    fn share(&self, node: &str) -> f64 {
        let hz = self.reports.last().and_then(|report| report["tsc_hz"].as_f64()).unwrap_or(f64::NAN);
        // The first second fills the store, the last one ends.
        let of = |at: usize| {
            let report = &self.reports[at];
            (Self::counts(report, node, "busy_cycles"), report["at_ms"].as_f64().unwrap_or(f64::NAN))
        };
        let ((busy, at), (busy_before, before)) = (of(self.reports.len() - 2), of(1));
        100.0 * (busy - busy_before) / ((at - before) * 1e-3 * hz)
    }

    fn requests_per_s(&self) -> f64 {
        self.load["requests_per_s"].as_f64().unwrap_or(f64::NAN)
    }

    fn latency(&self, op: &str, quantile: &str) -> f64 {
        self.load[op]["latency_us"][quantile].as_f64().unwrap_or(f64::NAN)
    }
}

/// memcached with one thread on the first CPU.
struct Memcached(Child);

impl Memcached {
    fn start() -> Self {
        let port = PORT.to_string();
        let child = Command::new("taskset")
            .args(["-c", "0", "memcached", "-u", "nobody", "-l", "127.0.0.1", "-t", "1", "-m", "512"])
            .args(["-p", &port, "-U", &port])
            .stderr(Stdio::null())
            .spawn();
        let child = child.expect("taskset and memcached are installed");
        std::thread::sleep(Duration::from_millis(500));
        Memcached(child)
    }

    fn ask(&self, protocol: &str, bytes: u32, more: &[&str]) -> Value {
        let (target, size) = (format!("{protocol}://127.0.0.1:{PORT}"), bytes.to_string());
        let (pid, time) = (self.0.id().to_string(), format!("{SECONDS}s"));
        let output = Command::new("taskset")
            .args(["-c", "1", env!("CARGO_BIN_EXE_isthmus"), "bench", "kv", &target, "--json", "--pid", &pid])
            .args(["--value", &size, "--ratio", "7:3", "--keys", "10000", "--time", &time])
            .args(more)
            .output();
        let output = output.expect("the command was built");
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Cycles of CPU time for each request of a closed loop of 64.
    fn cycles(&self, protocol: &str, bytes: u32) -> f64 {
        let report = self.ask(protocol, bytes, &["--flows", "16", "--depth", "4"]);
        report["server"]["cycles_per_request"].as_f64().unwrap_or(f64::NAN)
    }

    /// Its share of a core at a fixed rate of requests of 64 bytes over UDP, in percent, and how many were answered a second.
    fn share(&self, rate: u32) -> (f64, f64) {
        let rate = rate.to_string();
        let report = self.ask("udp", 64, &["--flows", "16", "--depth", "16", "--rate", &rate]);
        let cpu = |name: &str| report["server"][name].as_f64().unwrap_or(f64::NAN);
        let seconds = report["seconds"].as_f64().unwrap_or(f64::NAN);
        let answered = report["requests_per_s"].as_f64().unwrap_or(f64::NAN);
        (100.0 * (cpu("user_s") + cpu("system_s")) / seconds, answered)
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The middle of the figures.
fn middle(mut figures: Vec<f64>) -> f64 {
    median(&mut figures).unwrap_or(f64::NAN)
}
