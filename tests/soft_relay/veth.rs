//! Ports of the kernel's network in a name space of its own: what in-memory links do not do.

use crate::one_process::conf;
use crate::run::{Run, assert_all_arrived, assert_balanced, meeting_place, total};
use std::process::Command;

/// A cable of the kernel, `va` to `vb`, in the name space that a run is started in.
const CABLE: &str =
    "ip link set lo up; ip link add va type veth peer name vb; ip link set va up; ip link set vb up";

/// Why there can be none here.
fn no_cable() -> Option<&'static str> {
    let made = Command::new("unshare").args(["-n", "sh", "-ec", CABLE]).output();
    match made {
        Err(_) => Some("there is no unshare command"),
        Ok(made) if !made.status.success() => {
            Some("making network name spaces and veth takes root and iproute2")
        }
        Ok(_) => None,
    }
}

/// Two queues each, of which the kernel picks one by a hash of addresses and ports that it does not tell: about half of
/// all queue pairs have their packets come in at the other worker.
#[test]
fn packets_at_the_wrong_queue_are_handed_over() {
    if let Some(why) = no_cable() {
        println!("SKIPPED: {why}");
        return;
    }
    let ports = [(0, "a"), (1, "b")].map(|(number, end)| {
        format!("[[port]]\nname = \"wire-{end}\"\ndevice = \"net_af_packet{number},iface=v{end},qpairs=2\"\nmtu = 1500\n")
    });
    let conf = conf(2, 1500, ["192.0.2.1/24", "192.0.2.2/24"], "ack_timeout_us = 500000", "", 8_009);
    let link = conf.find("[[link]]\nname = \"wire\"").unwrap();
    let end = link + conf[link..].find("[fabric]").unwrap();
    let conf =
        [&conf[..link], &ports.concat(), &conf[end..], "\n[service.relay]\nqps_per_worker = 8\n"].concat();
    let last = Run::start_after(CABLE, "queues", &conf).last_words();
    assert_all_arrived(&last, 8_009);
    for relay in ["relay-a", "relay-b"] {
        assert_balanced(&last, relay);
    }
    // With 32 directions of packets it would take a miracle for none to go wrong.
    let handed = |relay| total(&last, relay, "handed_over");
    assert!(handed("relay-a") + handed("relay-b") > 0, "{last}");
}

/// DPDK's driver calls the link of a packet socket up whatever becomes of its interface.
#[test]
fn a_link_that_goes_down_is_noticed() {
    if let Some(why) = no_cable() {
        println!("SKIPPED: {why}");
        return;
    }
    let conf = r#"
poll = "adaptive"
[[port]]
name = "in"
device = "net_af_packet0,iface=va"
[[node]]
name = "sink"
service = "sink"
ports = ["in"]
"#;
    // The cable is cut from within the name space, as soon as the port is there, and mended again.
    let cut = format!("{CABLE}; (sleep 2; ip link set vb down; sleep 5; ip link set vb up) & true");
    let mut run = Run::start_after(&cut, "cut", conf);
    run.wait_for("a port that is up", |report| report["ports"][0]["link_up"] == true);
    run.wait_for("the cut", |report| report["ports"][0]["link_up"] == false);
    run.wait_for_log("the link is down");
    run.wait_for_log("the link is up again");
    run.ask_to_end();
    run.last_words();
}

#[test]
fn an_address_that_the_kernel_has_is_not_used() {
    if let Some(why) = no_cable() {
        println!("SKIPPED: {why}");
        return;
    }
    let conf = format!(
        r#"
poll = "adaptive"
[eal]
lcores = "0@0,1@1"
[[link]]
name = "client"
ports = ["out", "in"]
[[port]]
name = "wire"
device = "net_af_packet0,iface=va"
[fabric]
transport = "soft"
listen = "{}"
key = "a key for tests and nothing else"
[fabric.soft]
port = "wire"
addresses = ["fd00:15::1/64"]
[[node]]
name = "relay"
service = "relay"
ports = ["in"]
[[node]]
name = "sink"
service = "sink"
ports = ["out"]
"#,
        meeting_place(10)
    );
    let kernel = format!("{CABLE}; ip -6 address add fd00:15::1/64 dev vb nodad");
    let mut run = Run::start_after(&kernel, "duplicate", &conf);
    run.wait_for("the duplicate", |report| total(report, "relay", "duplicate_addresses") == 1);
    run.wait_for("one more report", |_| true);
    let log = run.log();
    assert_eq!(log.matches("fd00:15::1 is not used: the station").count(), 1, "{log}");
    run.ask_to_end();
    run.last_words();
}
