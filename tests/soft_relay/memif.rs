use crate::one_process::{beyond_the_standard, packets_beyond_the_standard};
use crate::run::{Run, assert_all_arrived, assert_balanced, meeting_place, total};
use std::fs;
use std::time::Duration;

/// One end; the cable is shared memory, named by `socket`.
fn conf(end: char, tcp: &str, socket: &str, frames: u64) -> String {
    let (role, address, meet) = match end {
        'a' => ("server", "192.0.2.1/24", "listen"),
        _ => ("client", "192.0.2.2/24", "connect"),
    };
    let far = if end == 'a' { ("source", "src") } else { ("sink", "dst") };
    format!(
        r#"
[eal]
lcores = "{lcores}"
[[link]]
name = "client"
ports = ["{port}", "in"]
[[port]]
name = "wire"
device = "net_memif0,role={role},socket={socket},bsize=8192"
mtu = 4200
[fabric]
transport = "soft"
{meet} = "{tcp}"
key = "a key for tests and nothing else"
keepalive_ms = 1000
# On a machine that is busy with other tests a peer may be away for a while.
ack_timeout_us = 500000
[fabric.soft]
port = "wire"
addresses = ["{address}"]
[[node]]
name = "{service}"
service = "{service}"
ports = ["{port}"]
[[node]]
name = "relay-{end}"
service = "relay"
ports = ["in"]
[service.source]
flows = 1000
sizes = "imix"
count = {frames}
rate_pps = {rate}
"#,
        lcores = if end == 'a' { "0@0,1@0" } else { "0@1,1@1" },
        service = far.0,
        port = far.1,
        rate = if frames == 0 { 20_000 } else { 0 },
    )
}

fn place(name: &str) -> (String, String) {
    let id = std::process::id();
    let number = name.bytes().map(u64::from).sum::<u64>();
    (meeting_place(number), format!("isthmus-{id}-{name}"))
}

/// The end that makes the traffic, once the socket is there that the other one looks for.
fn start_a(name: &str, conf: &str, socket: &str) -> Run {
    let mut run = Run::start(name, conf);
    // It is an abstract one, which is no file.
    while !fs::read_to_string("/proc/net/unix").unwrap().contains(socket) {
        run.assert_alive();
        std::thread::sleep(Duration::from_millis(10));
    }
    run
}

#[test]
fn two_processes_lose_nothing() {
    let (tcp, socket) = place("pair");
    let a = start_a("pair-a", &conf('a', &tcp, &socket, 20_000), &socket);
    let b = Run::start("pair-b", &conf('b', &tcp, &socket, 0));
    let a = a.last_words();
    assert_eq!(total(&a, "source", "frames_made"), 20_000);
    assert_balanced(&a, "relay-a");
    b.ask_to_end();
    let b = b.last_words();
    assert_all_arrived(&b, 20_000);
    assert_balanced(&b, "relay-b");
}

/// Packets of 8192 bytes between two processes, each in one buffer of the shared memory.
#[test]
fn two_processes_agree_on_packets_beyond_the_standard() {
    let (tcp, socket) = place("jumbo");
    let conf = |end, frames| {
        let conf = conf(end, &tcp, &socket, frames).replace("bsize=8192", "bsize=16384");
        beyond_the_standard(&conf.replace("\"in\"]\n[[port]]", "\"in\"]\nmtu = 1500\n[[port]]"))
    };
    let a = start_a("jumbo-a", &conf('a', 2_000), &socket);
    let b = Run::start("jumbo-b", &conf('b', 0));
    let a = a.last_words();
    assert!(packets_beyond_the_standard(&a, "relay-a") > 1_000, "{a}");
    b.ask_to_end();
    assert_all_arrived(&b.last_words(), 2_000);
}

/// The receiving process dies in the middle of it and is started again: traffic flows again, and the other process, which
/// has lived through it, has all of its buffers at the end.
#[test]
fn a_killed_process_comes_back() {
    let (tcp, socket) = place("killed");
    let start_b = |name: &str| Run::start(name, &conf('b', &tcp, &socket, 0));
    let verified = |report: &serde_json::Value| total(report, "sink", "frames_verified") > 0;
    let a = start_a("killed-a", &conf('a', &tcp, &socket, 0), &socket);
    let mut b = start_b("killed-b1");
    b.wait_for("traffic", verified);
    b.kill();
    let mut b = start_b("killed-b2");
    b.wait_for("traffic after the restart", verified);
    a.ask_to_end();
    let a = a.last_words();
    assert!(a["paths"][0]["connections"].as_u64() >= Some(2), "{a}");
    b.ask_to_end();
    let b = b.last_words();
    for fault in ["duplicates", "corrupt", "foreign"] {
        assert_eq!(total(&b, "sink", fault), 0, "{fault}: {b}");
    }
}
