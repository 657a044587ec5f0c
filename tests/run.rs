//! `isthmus run` on this machine, as a user sees it.

#[path = "support/run.rs"]
mod process;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use process::{Run, assert_all_arrived, total};
use serde_json::Value;
use socket2::{Domain, SockAddr, Socket, Type};

fn directory(test: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("run-{test}"))
}

/// Runs a file, until the first frames have arrived.
fn carrying(test: &str, conf: &Path) -> Run {
    let mut run = Run::start_in(&directory(test), conf);
    run.wait_for("frames", |report| total(report, "sink", "frames_verified") > 0);
    run
}

/// Asks a run's telemetry socket.
fn ask(run: &Run, test: &str, question: &str) -> Value {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    socket.connect(&SockAddr::unix(telemetry(run, test)).unwrap()).unwrap();
    let mut answer = vec![0; 1 << 16];
    let mut receive =
        || (&socket).read(&mut answer).map(|n| String::from_utf8_lossy(&answer[..n]).into_owned());
    assert!(receive().unwrap().contains("max_output_len"));
    socket.send(question.as_bytes()).unwrap();
    serde_json::from_str(&receive().unwrap()).unwrap()
}

/// `dpdk_telemetry.v2`, perhaps with a number behind it, once it is there.
fn telemetry(run: &Run, test: &str) -> PathBuf {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(20) {
        let prefixes = fs::read_dir(directory(test).join("dpdk")).into_iter().flatten().flatten();
        let files = prefixes.flat_map(|p| fs::read_dir(p.path()).into_iter().flatten().flatten());
        let mut named = files.filter(|f| f.file_name().to_string_lossy().starts_with("dpdk_telemetry.v2"));
        if let Some(found) = named.next() {
            return found.path();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no telemetry socket; {}", run.log())
}

/// Frames of 65 536 flows go through both ends of a relay; while they do, the telemetry socket answers.
#[test]
fn a_relay_in_one_process_loses_nothing_and_shows_it_on_the_socket() {
    let run = carrying("loopback", Path::new("conf/relay-loopback.toml"));
    let ask = |question| ask(&run, "loopback", question);
    let info = &ask("/isthmus/info")["/isthmus/info"];
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(info["workers"], serde_json::json!(["source/0", "relay-a/0", "relay-b/0", "sink/0"]));
    let workers = &ask("/isthmus/workers")["/isthmus/workers"];
    assert!(workers["relay_a/0"]["service"] == "relay" && workers["relay_a/0"]["drops"] == 0, "{workers}");
    let relay = &ask("/isthmus/workers,relay-b/0")["/isthmus/workers"];
    assert!(relay["counts"]["frames_received"].as_u64() > Some(0), "{relay}");
    let paths = &ask("/isthmus/paths")["/isthmus/paths"];
    assert_eq!(paths["relay_a/0/0"]["state"], "up", "{paths}");
    let pools = &ask("/isthmus/pools")["/isthmus/pools"];
    assert!(pools.as_object().is_some_and(|p| p.len() >= 4), "{pools}");
    for command in ["/isthmus/drops", "/isthmus/ports"] {
        assert!(ask(command)[command].is_object(), "{command}");
    }
    run.ask_to_end();
    let last = run.last_words();
    let made = total(&last, "source", "frames_made");
    assert!(made > 0);
    assert_all_arrived(&last, made);
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
    let mut run = carrying("records", &path);
    run.signal("-USR1");
    let captures = || {
        let files = fs::read_dir(&dir).unwrap().flatten().map(|f| f.path());
        files.filter(|f| f.extension().is_some_and(|e| e == "pcapng")).collect::<Vec<_>>()
    };
    run.wait_for("captures", |_| captures().len() >= 2);
    run.ask_to_end();
    run.last_words();
    let told =
        Command::new(env!("CARGO_BIN_EXE_isthmus")).arg("decode").arg(&captures()[0]).output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("RC_") && told.contains("Conversation 1"), "{told}");
}

/// A wrapper may pass one wish to stop on twice: to the process, and to its group.
#[test]
fn one_wish_to_stop_may_come_as_two_signals() {
    let run = carrying("signals", Path::new("conf/relay-loopback.toml"));
    run.signal("-TERM");
    run.signal("-TERM");
    assert_eq!(run.last_words()["final"], true);
}
