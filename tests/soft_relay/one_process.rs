use crate::run::{Run, assert_all_arrived, assert_balanced, meeting_place, total};
use serde_json::Value;

/// source -> relay -> soft over a link -> relay -> sink, with `shared` among the keys of `[fabric]` and `soft` among
/// those of both ends.
pub(crate) fn conf(
    workers: u32,
    mtu: u32,
    addresses: [&str; 2],
    fabric: &str,
    soft: &str,
    frames: u64,
) -> String {
    let lcores = (0..=workers).map(|l| format!("{l}@{}", l % 2)).collect::<Vec<_>>().join(",");
    let links = [("near", "src", "a", 1500), ("far", "b", "dst", 1500), ("wire", "wire-a", "wire-b", mtu)]
        .map(|(name, one, two, mtu)| {
            format!("[[link]]\nname = \"{name}\"\nports = [\"{one}\", \"{two}\"]\nmtu = {mtu}\n")
        })
        .concat();
    let node = |name: &str, service: &str, port: &str| {
        format!(
            "[[node]]\nname = \"{name}\"\nservice = \"{service}\"\nports = [\"{port}\"]\nworkers = {workers}\n"
        )
    };
    let end = |meet: &str, port: &str, address: &str| {
        format!(
            "[node.fabric]\n{meet}\n[node.fabric.soft]\nport = \"{port}\"\naddresses = [\"{address}\"]\n{soft}\n"
        )
    };
    // Tests of one process make different numbers of frames.
    let place = meeting_place(frames);
    [
        format!("[eal]\nlcores = \"{lcores}\"\n"),
        links,
        format!("[fabric]\ntransport = \"soft\"\nkey = \"a key for tests and nothing else\"\n{fabric}\n"),
        node("source", "source", "src"),
        node("relay-a", "relay", "a"),
        end(&format!("listen = \"{place}\""), "wire-a", addresses[0]),
        node("relay-b", "relay", "b"),
        end(&format!("connect = \"{place}\""), "wire-b", addresses[1]),
        node("sink", "sink", "dst"),
        format!("[service.source]\nflows = 1000\nsizes = \"imix\"\ncount = {frames}\n"),
    ]
    .join("\n")
}

const V4: [&str; 2] = ["192.0.2.1/24", "192.0.2.2/24"];
const V6: [&str; 2] = ["2001:db8::1/64", "2001:db8::2/64"];

fn carry(name: &str, conf: &str, frames: u64) -> Value {
    let last = Run::start(name, conf).last_words();
    assert_all_arrived(&last, frames);
    assert_balanced(&last, "relay-a");
    assert_balanced(&last, "relay-b");
    last
}

/// Payload bytes of a full packet, as the two ends agreed it, seen from the sizes of packets.
fn longest_packets(report: &Value) -> u64 {
    total(report, "relay-a", "fabric_tx_bytes") / total(report, "relay-a", "fabric_tx_frames")
}

/// A configuration whose frames are too long for the largest packet of the standard, on a wire that carries longer ones.
pub(crate) fn beyond_the_standard(conf: &str) -> String {
    conf.replace("mtu = 1500", "mtu = 8000")
        .replace("mtu = 4200", "mtu = 9000")
        .replace("sizes = \"imix\"", "sizes = [8000]")
        .replace("transport = \"soft\"", "transport = \"soft\"\npmtu = 8192")
}

/// Packets with a payload of more than 4096 bytes that a relay has sent at least: as many as it takes to come to the bytes that
/// it has sent if all others were of 4096 bytes, with the longest headers there are.
pub(crate) fn packets_beyond_the_standard(report: &Value, relay: &str) -> u64 {
    let count = |name| total(report, relay, name);
    let (ordinary, longest) = (4096 + 102, 9018);
    let packets = count("fabric_tx_frames") - count("acks_sent");
    count("fabric_tx_bytes").saturating_sub(packets * ordinary) / (longest - ordinary)
}

#[test]
fn rc_in_packets_beyond_the_standard() {
    for (addresses, frames) in [(V4, 3_005), (V6, 3_006)] {
        let conf = beyond_the_standard(&conf(1, 4200, addresses, "", "", frames));
        let last = carry("jumbo", &conf, frames);
        // Every frame is a message of its own, and fits one packet.
        assert!(packets_beyond_the_standard(&last, "relay-a") > frames / 2, "{last}");
        assert_eq!(total(&last, "relay-a", "retransmitted"), 0, "{last}");
    }
}

#[test]
fn one_end_that_keeps_to_the_standard_is_enough() {
    let conf = beyond_the_standard(&conf(1, 4200, V4, "", "", 2_007));
    let (common, second) = conf.split_at(conf.find("name = \"relay-b\"").unwrap());
    let second = second.replacen("[node.fabric]", "[node.fabric]\npmtu = 4096", 1);
    let last = carry("half", &[common, &second].concat(), 2_007);
    assert_eq!(packets_beyond_the_standard(&last, "relay-a"), 0, "{last}");
}

#[test]
fn rc_in_jumbo_packets() {
    let last = carry("rc", &conf(1, 4200, V4, "", "", 30_001), 30_001);
    assert!(longest_packets(&last) > 1100, "more than fits PMTU 1024: {last}");
    assert_eq!(total(&last, "relay-a", "retransmitted"), 0, "{last}");
    assert!(total(&last, "relay-a", "acks_sent") > 0, "{last}");
}

#[test]
fn uc_over_ipv6_in_a_vlan_in_ordinary_packets() {
    let last = carry("uc", &conf(1, 1500, V6, "qp = \"uc\"\ndscp = 26", "vlan = 100", 20_002), 20_002);
    assert!(longest_packets(&last) < 1150, "{last}");
}

#[test]
fn ud_in_jumbo_packets() {
    carry("ud", &conf(1, 4200, V4, "qp = \"ud\"", "", 20_003), 20_003);
}

#[test]
fn two_workers_with_two_queue_pairs_each_and_shared_receives() {
    let last = carry("two", &conf(2, 4200, V4, "srq = true", "vlan = 7", 20_004), 20_004);
    assert_eq!(last["paths"].as_array().map(Vec::len), Some(8), "{last}");
    let relays = last["workers"].as_array().unwrap().iter().filter(|w| w["service"] == "relay");
    assert_eq!(relays.clone().count(), 4, "{last}");
    for relay in relays {
        assert!(relay["counts"]["fabric_rx_frames"].as_u64() > Some(0), "{relay}");
    }
}

/// Runs it until its log says `part`, which must come once, and stops it.
fn says(name: &str, conf: &str, part: &str) {
    let mut run = Run::start(name, conf);
    run.wait_for(part, |_| true);
    while !run.log().contains(part) {
        assert!(run.report().is_some(), "ended without `{part}`: {}", run.log());
    }
    run.report();
    run.ask_to_end();
    let log = run.log();
    run.last_words();
    assert_eq!(log.matches(part).count(), 1, "{log}");
}

#[test]
fn a_vlan_at_one_end_only_is_named() {
    let conf = conf(1, 1500, V4, "", "", 0);
    let second = conf.rfind("port = \"wire-b\"").unwrap();
    let (first, second) = conf.split_at(second);
    let conf = [first, "vlan = 100\n", second].concat();
    says("vlan", &conf, "frames for us arrive in VLAN 100, and none is configured: set vlan = 100");
}
