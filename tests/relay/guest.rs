//! Two processes between two soft-RoCE devices: rxe0, where frames enter, and rxe1, where they leave.
//!
//! Everything here is some ten times slower than on a machine, above all the start of a process.

use crate::balance;
use crate::capture;
use crate::end::{End, directory, say};
use crate::report::Report;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

mod keys;

/// Says at its end how long a test took.
pub struct Watch(pub Instant);

impl Drop for Watch {
    fn drop(&mut self) {
        say(&format!("{:.1} s", self.0.elapsed().as_secs_f64()));
    }
}

/// For a test of this module in the guest; elsewhere it says why the test is skipped.
fn in_guest(test: &str) -> Option<Watch> {
    if std::env::var_os("IN_RXE_VM").is_some() && Path::new("/sys/class/infiniband/rxe1").exists() {
        return Some(Watch(Instant::now()));
    }
    say(&format!("SKIPPED {test}: needs the guest's two soft-RoCE devices, see scripts/rxe-vm"));
    None
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Frames enter here. It listens.
    A,
    /// Frames leave here. It connects.
    B,
}

/// A configuration of one end, with these keys of `[fabric]` besides the usual ones, and what follows it.
fn conf(side: Side, fabric: &str, rest: &str) -> String {
    let (meets, device) = match side {
        Side::A => ("listen", "rxe0"),
        Side::B => ("connect", "rxe1"),
    };
    format!(
        r#"poll = "adaptive"
        [eal]
        hugepages = "no-huge"
        lcores = "0@0,1@0,2@1"
        [stats]
        format = "json"
        [drain]
        timeout_ms = 20000
        [fabric]
        transport = "verbs"
        {meets} = "198.18.0.1:7471"
        key = "a key that only this test knows, 32 bytes"
        allow = ["198.18.0.0/24"]
        keepalive_ms = 1000
        pmtu = 4096
        {fabric}
        [fabric.verbs]
        device = "{device}"
        {rest}"#
    )
}

/// A relay's node.
pub fn relay(name: &str, port: &str, workers: u32) -> String {
    format!("[[node]]\nname = \"{name}\"\nservice = \"relay\"\nports = [\"{port}\"]\nworkers = {workers}\n")
}

fn port(device: &str, queues: u32, mtu: u32) -> String {
    format!("[[port]]\nname = \"p\"\ndevice = \"{device}\"\nqueues = {queues}\nmtu = {mtu}\n")
}

/// Starts both ends on the same port device but for its arguments: `net_null` as a source and as a drain.
fn null_ends(dir: &Path) -> [End; 2] {
    let a = port("net_null0,size=64", 2, 1500) + &relay("a", "p", 2);
    let b = port("net_null0,no-rx=1", 2, 1500) + &relay("b", "p", 2);
    [End::start(dir, "a", &conf(Side::A, "", &a)), End::start(dir, "b", &conf(Side::B, "", &b))]
}

#[test]
fn devices_shows_both_ends() {
    let Some(_watch) = in_guest("devices_shows_both_ends") else { return };
    let output = Command::new(env!("CARGO_BIN_EXE_isthmus")).arg("devices").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for wanted in [
        "rxe0 1 active Ethernet",
        "rxe1 1 active Ethernet",
        "4096 of 4096",
        "rxe0 1 1 198.18.0.1 RoCEv2 v0",
        "rxe1 1 2 fd00:198:18::2 RoCEv2 v1",
    ] {
        let line = |l: &str| l.split_whitespace().collect::<Vec<_>>().join(" ").contains(wanted);
        assert!(text.lines().any(line), "no line with `{wanted}` in\n{text}");
    }
}

/// Frames of zeros, 2 workers with 2 queue pairs each.
#[test]
fn a_million_frames_are_balanced() {
    const WANTED: u64 = 1_000_000;
    let Some(_watch) = in_guest("a_million_frames_are_balanced") else { return };
    let [mut a, b] = null_ends(&directory("null"));
    a.wait_until("million frames", |e| e.report().count("relay", "frames_sent") > WANTED);
    let balance = balance::hold(&a.stop(), &b.stop());
    assert!(balance.left >= WANTED, "{balance:?}");
    assert_eq!(balance.lost, 0, "over RC");
}

/// Flows of our own source to our own sink, `count` frames.
fn flows(name: &str, fabric: &str, relay_keys: &str, count: u64, source: &str) -> balance::Balance {
    let dir = directory(name);
    let link = |near, far| format!("[[link]]\nname = \"l\"\nports = [\"{near}\", \"{far}\"]\nqueues = 2\n");
    let service = |name, port, keys: &str| {
        format!(
            "[[node]]\nname = \"{name}\"\nservice = \"{name}\"\nports = [\"{port}\"]\nworkers = 2\n[node.{name}]\nflows = 20000\n{keys}\n"
        )
    };
    let keys = format!("[service.relay]\n{relay_keys}\n");
    let source = service("source", "s", &format!("count = {count}\n{source}"));
    let a = [keys.clone(), link("s", "p"), source, relay("a", "p", 2)].concat();
    let b = [keys, link("p", "s"), relay("b", "p", 2), service("sink", "s", "")].concat();
    let b = End::start(&dir, "b", &conf(Side::B, fabric, &b));
    let mut a = End::start(&dir, "a", &conf(Side::A, fabric, &a));
    // Its end is that of its source; the peer goes on.
    a.wait_until("end", |_| false);
    verified(&a.stop(), &b.stop(), count)
}

/// What both ends counted of `count` frames of our own source. What came out is in order, once, and as it went in.
pub fn verified(a: &Report, b: &Report, count: u64) -> balance::Balance {
    let balance = balance::hold(a, b);
    assert_eq!(balance.entered, count);
    let sink = |what: &str| b.count("sink", what);
    assert_eq!(sink("frames_verified"), balance.left, "frames that the sink saw");
    for wrong in ["out_of_order", "duplicates", "corrupt", "foreign"] {
        assert_eq!(sink(wrong), 0, "{wrong}");
    }
    balance
}

#[test]
fn rc_loses_nothing_and_keeps_order() {
    let Some(_watch) = in_guest("rc_loses_nothing_and_keeps_order") else { return };
    let mix = "sizes = [60, 128, 1000, 1514]\nprotocols = [\"udp4\", \"tcp6\", \"other\"]";
    let balance = flows("rc", "qp = \"rc\"", "", 100_000, mix);
    assert_eq!((balance.dropped, balance.lost, balance.left), (0, 0, 100_000));
}

#[test]
fn uc_counts_what_it_loses() {
    let Some(_watch) = in_guest("uc_counts_what_it_loses") else { return };
    flows("uc", "qp = \"uc\"", "", 60_000, "sizes = [60, 1514]");
}

#[test]
fn ud_counts_what_it_loses() {
    let Some(_watch) = in_guest("ud_counts_what_it_loses") else { return };
    flows("ud", "qp = \"ud\"", "message_bytes = 4000", 60_000, "");
}

#[test]
fn a_capture_comes_out_as_it_went_in() {
    const FRAMES: usize = 20_000;
    let Some(_watch) = in_guest("a_capture_comes_out_as_it_went_in") else { return };
    let dir = directory("capture-guest");
    let sent = capture::frames(FRAMES);
    capture::write(&dir.join("in.pcap"), &sent);
    capture::write(&dir.join("none.pcap"), &[]);
    let device =
        |rx, tx| format!("net_pcap0,rx_pcap={}/{rx}.pcap,tx_pcap={}/{tx}.pcap", dir.display(), dir.display());
    let patient = "[service.relay]\ndead_path_wait_ms = 60000\n";
    let a = [patient, &port(&device("in", "back"), 1, 1504), &relay("a", "p", 1)].concat();
    let b = [patient, &port(&device("none", "out"), 1, 1504), &relay("b", "p", 1)].concat();
    let a = End::start(&dir, "a", &conf(Side::A, "", &a));
    let mut b = End::start(&dir, "b", &conf(Side::B, "", &b));
    b.wait_until("frames", |e| e.report().count("relay", "tx_frames") == FRAMES as u64);
    let balance = balance::hold(&a.stop(), &b.stop());
    assert_eq!((balance.dropped, balance.lost), (0, 0));
    capture::assert_same(&sent, &capture::read(&dir.join("out.pcap")));
}

/// One survivor through three losses: the peer's process dies and comes back, then the wire does.
#[test]
fn traffic_comes_back_with_the_peer_and_with_the_wire() {
    let Some(_watch) = in_guest("traffic_comes_back_with_the_peer_and_with_the_wire") else { return };
    // Slowly: while the link goes down this kernel's rxe stalls the whole guest, the longer the more there is to send.
    let dir = directory("lost-peer");
    let link = "[[link]]\nname = \"l\"\nports = [\"s\", \"p\"]\nqueues = 2\n";
    let source = "[[node]]\nname = \"source\"\nservice = \"source\"\nports = [\"s\"]\nworkers = 2\n[node.source]\nrate_pps = 4000\n";
    let a = [link, source, &relay("a", "p", 2)].concat();
    let b = port("net_null0,no-rx=1", 2, 1500) + &relay("b", "p", 2);
    let mut a = End::start(&dir, "a", &conf(Side::A, "", &a));
    let mut b = End::start(&dir, "b", &conf(Side::B, "", &b));
    b.wait_until("traffic", |e| e.report().count("relay", "frames_received") > 4_000);
    b.kill();
    a.wait_until("loss of the paths", |e| e.report().paths_up() == 0);

    let conf_b = std::fs::read_to_string(dir.join("b.toml")).unwrap();
    b = End::start(&dir, "b", &conf_b);
    b.wait_until("traffic", |e| e.report().count("relay", "frames_received") > 0);
    // From its first report, which it makes as soon as it could talk, to the first one with traffic.
    let reports = b.reports();
    let traffic = reports.iter().find(|r| r.count("relay", "frames_received") > 0);
    let back_ms = traffic.expect("seen above").at_ms() - reports[0].at_ms();
    // Reports come once a second. Not judged: it grows with whatever else the machine has to do.
    say(&format!("the peer back: traffic in its report {back_ms} ms later"));

    let connections = a.report().connections();
    run("ip link set v1 down");
    a.wait_until("loss of the paths", |e| e.report().paths_up() == 0);
    wire_up();
    let start = Instant::now();
    a.wait_until("new connection", |e| e.report().connections() > connections && e.report().paths_up() > 0);
    let sent = a.report().count("relay", "frames_sent");
    a.wait_until("traffic", |e| e.report().count("relay", "frames_sent") > sent);
    say(&format!("the wire back: traffic in the sender's report {} ms later", start.elapsed().as_millis()));
    assert!(!b.has_ended(), "the peer's log:\n{}", b.log());

    // Both end well, which they do only if all buffers are home.
    let (a, b) = (a.stop(), b.stop());
    let (entered, dropped) = balance::sender(&a);
    say(&format!("{entered} frames in, {dropped} dropped: {:?}", a.drops("relay")));
    assert_eq!(a.drops("relay").keys().collect::<Vec<_>>(), ["path_down"], "one reason");
    assert!(b.count("relay", "frames_received") > 0);
}

/// Runs a command, which must succeed.
pub fn run(command: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    assert!(Command::new(words[0]).args(&words[1..]).status().unwrap().success(), "{command}");
}

/// What an interface that goes down loses comes back with it here as it would by the machine's network set-up.
fn wire_up() {
    run("ip link set v1 up");
    run("ip route replace 198.18.0.1 dev v1 src 198.18.0.2 table 102");
    run("ip -6 addr replace fd00:198:18::2/64 dev v1 nodad");
    run("ip -6 route replace fd00:198:18::1 dev v1 src fd00:198:18::2 table 102");
}
