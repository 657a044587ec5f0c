//! RoCEv2 of our own against that of the kernel: one end on rxe0, the other one on the far end of its wire.

use crate::balance::Balance;
use crate::end::{End, directory, say};
use crate::guest::{Watch, relay, run, verified};
use std::path::Path;
use std::time::Instant;

/// For a test of this module in the guest; elsewhere it says why the test is skipped.
fn in_guest(test: &str) -> Option<Watch> {
    let device = |name: &str| Path::new("/sys/class/infiniband").join(name).exists();
    if std::env::var_os("IN_RXE_VM").is_some() && device("rxe0") && !device("rxe1") {
        return Some(Watch(Instant::now()));
    }
    say(&format!("SKIPPED {test}: needs the guest's soft-RoCE device with a free wire, see scripts/rxe-vm"));
    None
}

/// Which end is of the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Soft,
    Kernel,
}

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// Where the frames enter.
    from: From,
    qp: &'static str,
    ipv6: bool,
    count: u64,
}

const CASE: Case = Case { name: "", from: From::Soft, qp: "rc", ipv6: false, count: 1_000 };

/// An end's configuration, with the keys of `service` for the source or the sink. The ends meet over the loopback
/// interface, so that only RoCE is on the wire.
fn conf(case: &Case, on: From, meets: &str, service: &str) -> String {
    // The two relays on different cores.
    let lcores = if meets == "listen" { "0@0,1@0,2@1" } else { "0@1,1@1,2@0" };
    let host = if case.ipv6 { "[::1]" } else { "127.0.0.1" };
    let (transport, rest) = match on {
        From::Kernel => ("verbs", "[fabric.verbs]\ndevice = \"rxe0\"\n".to_owned()),
        From::Soft => {
            let address = if case.ipv6 { "fd00:198:18::2/64" } else { "198.18.0.2/24" };
            let device = "net_af_packet0,iface=v1,framesz=8192,blocksz=8192,qdisc_bypass=0";
            let port = format!("[[port]]\nname = \"wire\"\ndevice = \"{device}\"\nmtu = 4200\n");
            ("soft", format!("[fabric.soft]\nport = \"wire\"\naddresses = [\"{address}\"]\n{port}"))
        }
    };
    // Datagrams have no room for more than one packet.
    let message = if case.qp == "ud" { "[service.relay]\nmessage_bytes = 4000\n" } else { "" };
    format!(
        r#"poll = "adaptive"
        [eal]
        hugepages = "no-huge"
        lcores = "{lcores}"
        [stats]
        format = "json"
        [drain]
        timeout_ms = 20000
        [fabric]
        transport = "{transport}"
        {meets} = "{host}:7471"
        key = "a key that only this test knows, 32 bytes"
        allow = ["127.0.0.0/8", "::1/128"]
        keepalive_ms = 1000
        pmtu = 4096
        ack_timeout_us = 500000
        qp = "{qp}"
        {rest}
        {message}
        [[link]]
        name = "l"
        ports = ["s", "p"]
        {relay}
        {service}"#,
        qp = case.qp,
        relay = relay("r", "p", 1),
    )
}

/// Carries a case's frames, and holds against each other what both ends counted.
fn carry(case: Case) -> Balance {
    let dir = directory(&format!("interop-{}", case.name));
    let node = |name, keys: &str| {
        format!(
            "[[node]]\nname = \"{name}\"\nservice = \"{name}\"\nports = [\"s\"]\n[node.{name}]\nflows = 5000\n{keys}\n"
        )
    };
    let sizes = "sizes = [60, 128, 1000, 1514]\nprotocols = [\"udp4\", \"tcp6\", \"other\"]";
    let to = if case.from == From::Soft { From::Kernel } else { From::Soft };
    // No faster than a guest under load carries: what waits in the ring when the source is done would not enter.
    let source = node("source", &format!("count = {}\nrate_pps = 300\n{sizes}", case.count));
    let b = End::start(&dir, "b", &conf(&case, to, "connect", &node("sink", "")));
    let mut a = End::start(&dir, "a", &conf(&case, case.from, "listen", &source));
    // Its end is that of its source; the peer goes on.
    a.wait_until("end", |_| false);
    verified(&a.stop(), &b.stop(), case.count)
}

/// The same where nothing may be lost.
fn carry_all(case: Case) {
    let balance = carry(case);
    assert_eq!((balance.dropped, balance.lost, balance.left), (0, 0, case.count));
}

#[test]
fn rc_from_the_kernel_over_ipv6() {
    let Some(_watch) = in_guest("rc_from_the_kernel_over_ipv6") else { return };
    carry_all(Case { name: "rc-kernel", from: From::Kernel, ipv6: true, ..CASE });
}

#[test]
fn uc_from_soft_over_ipv6() {
    let Some(_watch) = in_guest("uc_from_soft_over_ipv6") else { return };
    carry(Case { name: "uc-soft", qp: "uc", ipv6: true, ..CASE });
}

#[test]
fn uc_from_the_kernel() {
    let Some(_watch) = in_guest("uc_from_the_kernel") else { return };
    carry(Case { name: "uc-kernel", from: From::Kernel, qp: "uc", count: 500, ..CASE });
}

#[test]
fn ud_from_soft() {
    let Some(_watch) = in_guest("ud_from_soft") else { return };
    carry(Case { name: "ud-soft", qp: "ud", count: 500, ..CASE });
}

#[test]
fn ud_from_the_kernel_over_ipv6() {
    let Some(_watch) = in_guest("ud_from_the_kernel_over_ipv6") else { return };
    carry(Case { name: "ud-kernel", from: From::Kernel, qp: "ud", ipv6: true, ..CASE });
}

/// A wire that does to the frames of both ends as `netem` is told, until it is dropped.
struct BadWire;

impl BadWire {
    fn new(netem: &str) -> BadWire {
        run("modprobe sch_netem");
        for end in ["v0", "v1"] {
            run(&format!("tc qdisc add dev {end} root netem limit 10000 {netem}"));
        }
        BadWire
    }
}

impl Drop for BadWire {
    fn drop(&mut self) {
        for end in ["v0", "v1"] {
            run(&format!("tc qdisc del dev {end} root"));
        }
    }
}

#[test]
fn rc_loses_nothing_where_the_wire_loses_one_in_a_hundred() {
    let Some(_watch) = in_guest("rc_loses_nothing_where_the_wire_loses_one_in_a_hundred") else { return };
    let _wire = BadWire::new("loss 1%");
    carry_all(Case { name: "loss-soft", ..CASE });
    carry_all(Case { name: "loss-kernel", from: From::Kernel, ..CASE });
}

/// One frame in ten goes at once, before those that wait their two milliseconds.
#[test]
fn rc_loses_nothing_where_frames_overtake_each_other() {
    let Some(_watch) = in_guest("rc_loses_nothing_where_frames_overtake_each_other") else { return };
    let _wire = BadWire::new("delay 2ms reorder 10%");
    carry_all(Case { name: "order-soft", count: 500, ..CASE });
    carry_all(Case { name: "order-kernel", from: From::Kernel, count: 500, ..CASE });
}
