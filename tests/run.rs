//! `isthmus run` on this machine, as a user sees it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::{Domain, SockAddr, Socket, Type};

/// A run with a runtime directory of its own, ended when it is dropped.
struct Run {
    child: Child,
    stdout: BufReader<ChildStdout>,
    dir: PathBuf,
}

impl Run {
    fn start(test: &str, conf: &str) -> Run {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("run-{test}"));
        drop(fs::remove_dir_all(&dir));
        fs::create_dir_all(&dir).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_isthmus"))
            .args(["--in-memory", "--", "run", conf])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("RUNTIME_DIRECTORY", &dir)
            .env_remove("ISTHMUS_LOG")
            .stdout(Stdio::piped())
            .stderr(fs::File::create(dir.join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Run { child, stdout, dir }
    }

    /// The next line of statistics.
    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}; {}", self.complaints()))
    }

    fn complaints(&self) -> String {
        fs::read_to_string(self.dir.join("stderr")).unwrap_or_default()
    }

    fn ask(&self, question: &str) -> Value {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        socket.connect(&SockAddr::unix(self.telemetry()).unwrap()).unwrap();
        let mut answer = vec![0; 1 << 16];
        let mut receive =
            || (&socket).read(&mut answer).map(|n| String::from_utf8_lossy(&answer[..n]).into_owned());
        assert!(receive().unwrap().contains("max_output_len"));
        socket.send(question.as_bytes()).unwrap();
        serde_json::from_str(&receive().unwrap()).unwrap()
    }

    /// `dpdk_telemetry.v2`, perhaps with a number behind it, once it is there.
    fn telemetry(&self) -> PathBuf {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(20) {
            let prefixes = fs::read_dir(self.dir.join("dpdk")).into_iter().flatten().flatten();
            let files = prefixes.flat_map(|p| fs::read_dir(p.path()).into_iter().flatten().flatten());
            let mut named =
                files.filter(|f| f.file_name().to_string_lossy().starts_with("dpdk_telemetry.v2"));
            if let Some(found) = named.next() {
                return found.path();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("no telemetry socket; {}", self.complaints())
    }

    fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(kill.success());
    }

    /// Asks it to end; its exit code and last line.
    fn end(mut self) -> (i32, Value) {
        self.signal("-TERM");
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        let code = self.child.wait().unwrap().code();
        let last = rest.lines().last().unwrap_or_default();
        let last =
            serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {rest}; {}", self.complaints()));
        (code.expect("not ended by a signal"), last)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A counter over all workers of a node.
fn total(report: &Value, node: &str, counter: &str) -> u64 {
    let workers = report["workers"].as_array().unwrap().iter().filter(|w| w["node"] == node);
    workers.map(|w| w["counts"][counter].as_u64().unwrap_or_else(|| panic!("no {counter}"))).sum()
}

/// Frames of 65 536 flows go through both ends of a relay; while they do, the telemetry socket answers.
#[test]
fn a_relay_in_one_process_loses_nothing_and_shows_it_on_the_socket() {
    let mut run = Run::start("loopback", "conf/relay-loopback.toml");
    while total(&run.line(), "sink", "frames_verified") == 0 {}
    let info = &run.ask("/isthmus/info")["/isthmus/info"];
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(info["workers"], serde_json::json!(["source/0", "relay-a/0", "relay-b/0", "sink/0"]));
    let workers = &run.ask("/isthmus/workers")["/isthmus/workers"];
    assert!(workers["relay_a/0"]["service"] == "relay" && workers["relay_a/0"]["drops"] == 0, "{workers}");
    let relay = &run.ask("/isthmus/workers,relay-b/0")["/isthmus/workers"];
    assert!(relay["counts"]["frames_received"].as_u64() > Some(0), "{relay}");
    let paths = &run.ask("/isthmus/paths")["/isthmus/paths"];
    assert_eq!(paths["relay_a/0/0"]["state"], "up", "{paths}");
    let pools = &run.ask("/isthmus/pools")["/isthmus/pools"];
    assert!(pools.as_object().is_some_and(|p| p.len() >= 4), "{pools}");
    for command in ["/isthmus/drops", "/isthmus/ports"] {
        assert!(run.ask(command)[command].is_object(), "{command}");
    }
    let (code, last) = run.end();
    assert_eq!((code, &last["unclean"]), (0, &serde_json::json!([])));
    let made = total(&last, "source", "frames_made");
    assert!(made > 0);
    assert_eq!(total(&last, "sink", "frames_verified"), made);
    for fault in ["missing", "duplicates", "corrupt", "out_of_order", "foreign"] {
        assert_eq!(total(&last, "sink", fault), 0, "{fault}");
    }
}

/// SIGUSR1 brings a capture of every queue pair's last packets, which `decode` reads.
#[test]
fn flight_records_come_on_request() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("flight-records");
    drop(fs::remove_dir_all(&dir));
    fs::create_dir_all(&dir).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let conf = fs::read_to_string(root.join("conf/relay-soft.toml")).unwrap();
    let conf = conf
        .replace("# flight_records = \".\"", &format!("flight_records = {:?}", dir.display().to_string()));
    let path = dir.join("relay.toml");
    fs::write(&path, conf).unwrap();
    let mut run = Run::start("records", path.to_str().unwrap());
    while total(&run.line(), "sink", "frames_verified") == 0 {}
    run.signal("-USR1");
    let captures = || {
        let files = fs::read_dir(&dir).unwrap().flatten().map(|f| f.path());
        files.filter(|f| f.extension().is_some_and(|e| e == "pcapng")).collect::<Vec<_>>()
    };
    while captures().len() < 2 {
        run.line();
    }
    let (code, last) = run.end();
    assert_eq!((code, &last["unclean"]), (0, &serde_json::json!([])));
    let told =
        Command::new(env!("CARGO_BIN_EXE_isthmus")).arg("decode").arg(&captures()[0]).output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("RC_") && told.contains("Conversation 1"), "{told}");
}

/// A wrapper may pass one wish to stop on twice: to the process, and to its group.
#[test]
fn one_wish_to_stop_may_come_as_two_signals() {
    let mut run = Run::start("signals", "conf/relay-loopback.toml");
    while total(&run.line(), "sink", "frames_verified") == 0 {}
    run.signal("-TERM");
    let (code, last) = run.end();
    assert_eq!((code, &last["final"]), (0, &serde_json::json!(true)));
}
