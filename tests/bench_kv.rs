//! `isthmus bench kv` against memcached itself, and what it says when there is none. Without memcached the tests that want
//! it say SKIPPED.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// A memcached of our own on a loopback port, over TCP and UDP, ended on drop.
struct Memcached {
    child: Child,
    port: u16,
}

impl Memcached {
    /// `None`, with the reason said, where there is none.
    fn start(test: &str, more: &[&str]) -> Option<Self> {
        let program = Path::new("/usr/bin/memcached");
        if !program.exists() {
            eprintln!("SKIPPED: {test}: memcached is not installed");
            return None;
        }
        let port = free_port();
        let number = port.to_string();
        let words = ["-l", "127.0.0.1", "-p", &number, "-U", &number, "-t", "1", "-m", "64", "-u", "nobody"];
        let child = Command::new(program).args(words).args(more).stderr(Stdio::null()).spawn().unwrap();
        let memcached = Memcached { child, port };
        for _ in 0..1000 {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Some(memcached);
            }
            sleep(Duration::from_millis(10));
        }
        panic!("memcached does not listen on port {port}");
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        // It is of no use any more, and may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that neither protocol uses.
fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        match UdpSocket::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return port,
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn bench(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isthmus"));
    command.args(["bench", "kv"]).args(words.split_whitespace()).env_remove("ISTHMUS_LOG").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The report of a run that went well.
fn report(words: &str) -> serde_json::Value {
    let output = bench(&format!("{words} --json"));
    let said = text(&output.stdout);
    assert!(output.status.success(), "{words}: {}\n{said}", text(&output.stderr));
    serde_json::from_str(&said).unwrap()
}

/// A count of requests bounds each run.
const SHORT: &str = "--keys 2k --requests 6000 --warm-up 10ms --time 20s --timeout 5s --ratio 7:3";

#[test]
fn memcached_is_measured_and_verified() {
    let Some(memcached) = Memcached::start("bench kv", &[]) else { return };
    let (port, pid) = (memcached.port, memcached.child.id());
    for (target, more) in [
        ("udp", "--value 64..8KiB --flows 2 --depth 4 --retries 3"),
        ("udp", "--value 4KiB --flows 2 --depth 4 --retries 3 --meta --threads 2"),
        ("tcp", "--value 64:9,100KiB:1 --flows 3 --depth 16 --threads 2"),
        ("tcp", "--value 4KiB --flows 2 --depth 8 --meta --key-size 250 --uniform"),
        ("tcp", "--value 64 --rate 50k --depth 64 --spin"),
    ] {
        let report = report(&format!("{target}://127.0.0.1:{port} {SHORT} {more} --pid {pid}"));
        assert_eq!(report["faults"], 0, "{target} {more}: {report:#}");
        assert!(report["requests"].as_u64().unwrap() >= 5900, "{target} {more}: {report:#}");
        assert!(report["version"].as_str().unwrap().starts_with("1."));
        assert!(report["hit_ratio"].as_f64().unwrap() > 0.99, "{target} {more}: {report:#}");
        for op in ["get", "set"] {
            let latency = &report[op]["latency_us"];
            let [p50, p99, max] = ["p50", "p99", "max"].map(|name| latency[name].as_f64().unwrap());
            assert!(p50 > 1.0 && p50 <= p99 && p99 <= max, "{latency}");
        }
        assert!(report["server"]["us_per_request"].as_f64().is_some(), "{report:#}");
        assert!(report["generator"]["busiest_share"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn a_full_memcached_misses_and_is_not_wrong() {
    // Far more values than it has memory for.
    let Some(memcached) = Memcached::start("bench kv on a full memcached", &["-m", "2"]) else {
        return;
    };
    let target = format!("tcp://127.0.0.1:{}", memcached.port);
    let report = report(&format!("{target} {SHORT} --value 20KiB --depth 8"));
    assert_eq!(report["faults"], 0, "{report:#}");
    assert!(report["get"]["misses"].as_u64().unwrap() > 0, "{report:#}");
}

#[test]
fn another_program_that_writes_the_same_keys_is_noticed() {
    let Some(memcached) = Memcached::start("bench kv beside a stranger", &[]) else { return };
    let target = format!("tcp://127.0.0.1:{}", memcached.port);
    report(&format!("{target} {SHORT} --seed 1"));
    // The values there are of another seed: whole, and not what this run would have written.
    let reads = SHORT.replace("7:3", "1:0");
    let output = bench(&format!("{target} {reads} --seed 2 --no-preload"));
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("wrong: get k-------0000") && said.contains("torn: byte 16"), "{said}");
}

#[test]
fn what_is_asked_for_is_written() {
    let Some(memcached) = Memcached::start("bench kv --svg", &[]) else { return };
    let plot = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-kv.svg");
    let target = format!("udp://127.0.0.1:{}", memcached.port);
    let output = bench(&format!("{target} {SHORT} --svg {}", plot.display()));
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.contains("requests/s") && said.contains("p99.99") && said.contains("wrong 0"), "{said}");
    assert!(std::fs::read_to_string(plot).unwrap().contains("<polyline"));
}

#[test]
fn whoever_is_not_there_is_named_with_what_to_do() {
    let (silent, closed) = (UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), free_port());
    let silent_port = silent.local_addr().unwrap().port();
    for (target, words) in [
        (format!("tcp://127.0.0.1:{closed}"), ["speaks UDP only so far: udp://127.0.0.1:", "memcached -p"]),
        (format!("udp://127.0.0.1:{closed}"), ["refuses the connection", "memcached -U"]),
        (format!("udp://127.0.0.1:{silent_port}"), ["no answer", "memcached -U"]),
    ] {
        let output = bench(&target);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()), "{said}");
        assert!(words.iter().all(|word| said.contains(word)) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn slips_on_the_command_line_say_what_would_be_right() {
    for (words, part) in [
        ("127.0.0.1:11211", "udp://HOST:PORT"),
        ("udp://127.0.0.1", "has no port"),
        ("tcp://127.0.0.1:1 --value 10", "24 to"),
        ("tcp://127.0.0.1:1 --value 4KB", "4KiB"),
        ("tcp://127.0.0.1:1 --ratio 7", "7:3"),
        ("tcp://127.0.0.1:1 --threads 8 --flows 4", "fewer threads"),
        ("tcp://127.0.0.1:1 --depth 0", "requests under way"),
        ("udp://127.0.0.1:1 --value 64KiB", "tcp://"),
        ("udp://127.0.0.1:1 --zipf 0", "0.99"),
        ("udp://127.0.0.1:0", "no port that a server could have"),
        ("udp://127.0.0.1:1 --time 0s", "above 0"),
        ("udp://127.0.0.1:1 --timeout 0s", "above 0"),
    ] {
        let output = bench(words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {said}");
        assert!(said.contains(part), "{words}: {said}");
    }
}

/// A server that says its version, stores what it is given, and never answers a `get`.
fn forgetful() -> u16 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut bytes = [0; 2048];
        while let Ok((n, from)) = socket.recv_from(&mut bytes) {
            let reply: &[u8] = match bytes.get(8..12.min(n)) {
                Some(b"vers") => b"VERSION 1.6.18\r\n",
                Some(b"set ") => b"STORED\r\n",
                _ => continue,
            };
            socket.send_to(&[&bytes[..2], b"\0\0\0\x01\0\0", reply].concat(), from).unwrap();
        }
    });
    port
}

#[test]
fn requests_that_are_given_up_make_it_fail_and_so_does_a_plot_without_a_place() {
    let target = format!("udp://127.0.0.1:{}", forgetful());
    let few = "--keys 20 --requests 40 --warm-up 1ms --timeout 50ms --ratio 1:1";
    let output = bench(&format!("{target} {few}"));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("given up without a reply") && text(&output.stdout).contains("lost"), "{said}");
    // Before anything is measured.
    let output = bench(&format!("{target} {few} --svg /nowhere/latency.svg"));
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()), "{said}");
    assert!(said.contains("/nowhere/latency.svg cannot be written") && said.contains("--svg"), "{said}");
}

#[test]
fn a_server_that_stores_nothing_is_named_with_its_answer_and_what_to_do() {
    let Some(memcached) = Memcached::start("bench kv on a memcached for small items", &["-I", "512k"]) else {
        return;
    };
    let target = format!("tcp://127.0.0.1:{}", memcached.port);
    let output = bench(&format!("{target} --value 600KiB --threads 2"));
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()), "{said}");
    for part in
        [&*target, "all of the first 100 SETs", "SERVER_ERROR object too large for cache", "smaller --value"]
    {
        assert!(said.contains(part), "{said}");
    }
}
