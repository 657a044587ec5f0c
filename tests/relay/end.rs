//! A running `isthmus run`.

use crate::report::Report;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How long anything may take before a test calls it stuck. Nothing is measured by it.
const STUCK: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(50);

/// A line that is shown although the test passes, as `# LINE` in a log of TAP.
pub fn say(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// An empty directory of this test's own.
pub fn directory(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("relay-{test}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// One process. Dropped, it is killed: a test that fails leaves nothing behind.
pub struct End {
    child: Child,
    name: String,
    out: PathBuf,
    log: PathBuf,
}

impl End {
    /// Writes `NAME.toml` into `directory` and runs it. What it prints goes into files there, anew.
    pub fn start(directory: &Path, name: &str, conf: &str) -> End {
        let file = |ending: &str| directory.join(format!("{name}.{ending}"));
        fs::write(file("toml"), conf).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_isthmus"))
            .arg("run")
            .arg(file("toml"))
            .env_remove("ISTHMUS_LOG")
            .stdin(std::process::Stdio::null())
            .stdout(File::create(file("out")).unwrap())
            .stderr(File::create(file("err")).unwrap())
            .spawn()
            .unwrap();
        End { child, name: name.to_owned(), out: file("out"), log: file("err") }
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its statistics so far, oldest first.
    pub fn reports(&self) -> Vec<Report> {
        let text = fs::read_to_string(&self.out).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().filter_map(Report::parse).collect()
    }

    /// The newest statistics; zeros before there are any.
    pub fn report(&self) -> Report {
        self.reports().pop().unwrap_or_default()
    }

    /// Waits until `done` or until the process ends, which is for [`stop`](Self::stop) to judge.
    pub fn wait_until(&mut self, what: &str, mut done: impl FnMut(&End) -> bool) {
        let start = Instant::now();
        while !done(self) {
            if self.child.try_wait().unwrap().is_some() {
                return;
            }
            assert!(start.elapsed() < STUCK, "{}: no {what}; its log:\n{}", self.name, self.log());
            std::thread::sleep(PAUSE);
        }
    }

    /// Waits until the process ends by itself.
    pub fn wait_for_end(&mut self, patience: Duration) {
        let start = Instant::now();
        while !self.has_ended() {
            assert!(start.elapsed() < patience, "{} does not end; its log:\n{}", self.name, self.log());
            std::thread::sleep(PAUSE);
        }
    }

    /// What its load measured, if it has said so.
    pub fn load(&self) -> serde_json::Value {
        let text = fs::read_to_string(&self.out).unwrap_or_default();
        let lines =
            text.lines().rev().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut loads = lines.map(|line| line["load"].clone()).filter(|load| load.is_object());
        loads.next().unwrap_or_default()
    }

    /// True once it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Ends it as a crash would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, if it has not, and waits. Its final report, if it ended well.
    pub fn stop(mut self) -> Report {
        let pid = rustix::process::Pid::from_child(&self.child);
        if !self.has_ended() {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        }
        let status = self.ended();
        let report = self.reports().into_iter().rfind(Report::is_final).unwrap_or_default();
        let log = self.log();
        assert!(status.success(), "{} ended with {status}; its log:\n{log}", self.name);
        assert!(report.is_final(), "{}: no final report", self.name);
        report
    }

    fn ended(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < STUCK, "{} does not end; its log:\n{}", self.name, self.log());
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // Both fail where it has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
