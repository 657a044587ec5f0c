//! What a 64-byte frame costs on its way through a relay, beside testpmd's io forwarding: `cargo bench --bench relay`.
//!
//! Costs are TSC cycles of busy turns for each frame, from the ledger that every worker keeps; the frames of one role are
//! not mixed with those of another, though all roles share an lcore. A relay's ledger on the sending side holds everything
//! from the RX burst to the posted work request, and the completion that frees the frames. Rounds alternate between the
//! programs, and medians are shown: these figures are for comparing lines of one run with each other.
//!
//! Needs `dpdk-testpmd` (Debian: dpdk), two CPUs and some hugepages.

mod support;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{machine, median};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(3);
/// An interrupted turn of the probe is one longer than this.
const GAP: Duration = Duration::from_micros(10);

const NULL: &str = r#"
[[port]]
name = "in"
device = "net_null0,size=64"
"#;

const SOURCE: &str = r#"
[[link]]
name = "near"
ports = ["src", "in"]
[[node]]
name = "source"
service = "source"
ports = ["src"]
[service.source]
flows = 65536
sizes = 60
"#;

const RELAY: &str = include_str!("../tests/data/relay/to-null.toml");

fn main() {
    if std::env::args().any(|a| a == "--test" || a == "--list") {
        return;
    }
    println!("{}", machine());
    println!("command: cargo bench --bench relay ({ROUNDS} rounds of {} s, medians)\n", ROUND.as_secs());
    let probe = probe();
    let mut rows: [Vec<f64>; 6] = Default::default();
    for _ in 0..ROUNDS {
        let null = relay(NULL, "null");
        let source = relay(SOURCE, "source");
        let figures = [testpmd(), null("a"), null("b"), source("source"), source("a"), source("b")];
        for (row, figure) in rows.iter_mut().zip(figures) {
            row.extend(figure);
        }
    }
    let names = [
        "testpmd, io forwarding between null ports",
        "null port -> relay -> posted request (one flow)",
        "received message -> relay -> null port",
        "source of 64 k flows -> link",
        "link -> relay -> posted request (64 k flows)",
        "received message -> relay -> null port",
    ];
    println!(
        "{:<52} {:>8} {:>8} {:>8} {:>10}",
        "TSC cycles per 64-byte frame", "median", "least", "most", "- testpmd"
    );
    let base = median(&mut rows[0]);
    for (name, mut row) in names.into_iter().zip(rows) {
        let Some(mid) = median(&mut row) else {
            println!("{name:<52} (not measured)");
            continue;
        };
        let beyond = base.map_or("".into(), |b| format!("{:+.0}", mid - b));
        println!("{name:<52} {mid:>8.0} {:>8.0} {:>8.0} {beyond:>10}", row[0], row[row.len() - 1]);
    }
    println!("\n{probe}");
}

/// How much of its time an otherwise idle loop loses on this machine.
fn probe() -> String {
    let (start, mut last, mut lost, mut gaps, mut longest) =
        (Instant::now(), Instant::now(), Duration::ZERO, 0, Duration::ZERO);
    while start.elapsed() < ROUND {
        let now = Instant::now();
        let gap = now - last;
        if gap > GAP {
            (lost, gaps, longest) = (lost + gap, gaps + 1, longest.max(gap));
        }
        last = now;
    }
    let share = 100.0 * lost.as_secs_f64() / start.elapsed().as_secs_f64();
    format!(
        "jitter probe before the runs: {share:.2} % of the time in {gaps} gaps over {} us, the longest {} us",
        GAP.as_micros(),
        longest.as_micros()
    )
}

/// Runs a configuration; cycles per frame by node.
fn relay(front: &str, name: &str) -> impl Fn(&str) -> Option<f64> {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{name}.toml"));
    fs::write(
        &path,
        format!("[eal]\nlcores = \"0@0,1@1\"\n{front}{RELAY}[stats]\nformat = \"json\"\ninterval_s = 0\n"),
    )
    .expect("a writable target directory");
    let child = Command::new(env!("CARGO_BIN_EXE_isthmus"))
        .arg("run")
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = child.expect("the command was built");
    std::thread::sleep(ROUND);
    let pid = child.id().to_string();
    drop(Command::new("kill").args(["-INT", &pid]).status());
    let output = child.wait_with_output().expect("a child of ours");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report: Value =
        text.lines().last().and_then(|l| serde_json::from_str(l).ok()).expect("a final report");
    move |node| {
        let worker = report["workers"].as_array()?.iter().find(|w| w["node"] == node)?;
        let count = |name: &str| worker["counts"][name].as_f64().unwrap_or_default();
        let frames = count("frames_sent") + count("frames_received") + count("frames_made");
        (frames > 0.0).then(|| count("busy_cycles") / frames)
    }
}

/// testpmd's own figure; none where it is not installed.
fn testpmd() -> Option<f64> {
    let eal = "--no-pci --in-memory -m 256 -l 0,1 --vdev net_null0,size=64 --vdev net_null1,size=64";
    let own = "-i --forward-mode=io --record-core-cycles";
    let mut child = Command::new("dpdk-testpmd")
        .args(eal.split(' '))
        .arg("--")
        .args(own.split(' '))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut words = child.stdin.take()?;
    words.write_all(b"start\n").ok()?;
    std::thread::sleep(ROUND);
    words.write_all(b"stop\nquit\n").ok()?;
    drop(words);
    let output = child.wait_with_output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let after = text.split("cycles/packet=").nth(1)?;
    after.split_whitespace().next()?.parse().ok()
}
