//! A process of Isthmus, its configuration and its last words.

#![allow(dead_code)] // Each binary uses some of it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longest life of a process here: the slowest machine needs a fraction of it.
const LIMIT: Duration = Duration::from_secs(60);

/// A run, ended when it is dropped.
pub(crate) struct Run {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: PathBuf,
    conf: PathBuf,
    started: Instant,
}

/// EAL options of this machine, as `scripts/setup` found them to work.
fn memory() -> Vec<String> {
    let given = std::env::var("ISTHMUS_EAL_MEMORY").unwrap_or_default();
    let no_huge = given.contains("--no-huge");
    vec![if no_huge { "--no-huge" } else { "--in-memory" }.into()]
}

impl Run {
    /// Runs the configuration `text`, under a name that is unique among the tests of its binary.
    pub(crate) fn start(name: &str, text: &str) -> Run {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_isthmus")), name, text)
    }

    /// The same in a network name space of its own, after these words of a shell.
    pub(crate) fn start_after(words: &str, name: &str, text: &str) -> Run {
        let mut command = Command::new("unshare");
        command.args(["-n", "sh", "-ec", &format!("{words}; exec \"$@\""), "sh"]);
        command.arg(env!("CARGO_BIN_EXE_isthmus"));
        Self::start_by(command, name, text)
    }

    fn start_by(mut command: Command, name: &str, text: &str) -> Run {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("soft-relay");
        fs::create_dir_all(&dir).unwrap();
        let conf = dir.join(format!("{name}.toml"));
        fs::write(&conf, format!("{text}\n[stats]\nformat = \"json\"\ntelemetry = false\n")).unwrap();
        let prefix = format!("--file-prefix=soft-{}-{name}", std::process::id());
        command.args(memory()).args([&prefix, "--", "run"]).arg(&conf);
        Self::spawn(command, dir.join(format!("{name}.log")), &conf)
    }

    /// Runs a file that is there, with `dir`, which is made anew, for what DPDK and the command leave behind.
    pub(crate) fn start_in(dir: &Path, conf: &Path) -> Run {
        drop(fs::remove_dir_all(dir));
        fs::create_dir_all(dir).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_isthmus"));
        command.args(memory()).args(["--", "run"]).arg(conf);
        command.current_dir(env!("CARGO_MANIFEST_DIR")).env("RUNTIME_DIRECTORY", dir);
        Self::spawn(command, dir.join("stderr"), conf)
    }

    fn spawn(mut command: Command, stderr: PathBuf, conf: &Path) -> Run {
        command.env_remove("ISTHMUS_LOG").stdout(Stdio::piped());
        let mut child = command.stderr(fs::File::create(&stderr).unwrap()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Run { child, stdout, stderr, conf: conf.to_owned(), started: Instant::now() }
    }

    /// What it has said on standard error.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// The file it runs.
    pub(crate) fn conf(&self) -> &Path {
        &self.conf
    }

    /// Waits until its log says so.
    pub(crate) fn wait_for_log(&mut self, line: &str) {
        while !self.log().contains(line) {
            assert!(self.report().is_some(), "it ended without saying {line:?}: {}", self.log());
        }
    }

    /// The next report; `None` after the last one.
    pub(crate) fn report(&mut self) -> Option<Value> {
        assert!(self.started.elapsed() < LIMIT, "still running: {}", self.log());
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}")))
    }

    /// Fails if it has ended already.
    pub(crate) fn assert_alive(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none() && self.started.elapsed() < LIMIT, "{ended:?}: {}", self.log());
    }

    /// Reports until one is as wanted.
    pub(crate) fn wait_for(&mut self, what: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        loop {
            match self.report() {
                Some(report) if wanted(&report) => return report,
                Some(_) => {}
                None => panic!("ended before {what}: {}", self.log()),
            }
        }
    }

    /// Sends it a signal, such as `-TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let killed = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
    }

    /// Asks it to drain and end.
    pub(crate) fn ask_to_end(&self) {
        self.signal("-TERM");
    }

    /// Kills it, as nothing it could prepare for.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Its last report, once it has ended well and left nothing behind.
    pub(crate) fn last_words(mut self) -> Value {
        let mut last = Value::Null;
        while let Some(report) = self.report() {
            last = report;
        }
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}\n{last}", self.log());
        assert_eq!(last["unclean"], serde_json::json!([]), "{}", self.log());
        last
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A counter over all workers of a node.
pub(crate) fn total(report: &Value, node: &str, counter: &str) -> u64 {
    let workers = report["workers"].as_array().unwrap().iter().filter(|w| w["node"] == node);
    workers.map(|w| w["counts"][counter].as_u64().unwrap_or_else(|| panic!("no {counter}"))).sum()
}

/// A sink has seen `frames`, all of them whole and in order.
pub(crate) fn assert_all_arrived(report: &Value, frames: u64) {
    for fault in ["missing", "duplicates", "corrupt", "out_of_order", "foreign"] {
        assert_eq!(total(report, "sink", fault), 0, "{fault}: {report}");
    }
    assert_eq!(total(report, "sink", "frames_verified"), frames, "{report}");
}

/// What entered a relay has left it.
pub(crate) fn assert_balanced(report: &Value, relay: &str) {
    let count = |name| total(report, relay, name);
    let entered = count("rx_frames") + count("frames_received");
    assert_eq!(entered, count("frames_sent") + count("tx_frames"), "{relay}: {report}");
    assert!(count("fabric_rx_frames") > 0 && count("fabric_tx_frames") > 0, "{relay}: {report}");
}

/// Where the ends of a test's relay meet: an address of the loopback network that no other process takes, and a port that
/// no other test of this process takes.
pub(crate) fn meeting_place(number: u64) -> String {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    format!("127.{}.{b}.{c}:{}", a + 1, 7000 + number % 1000)
}
