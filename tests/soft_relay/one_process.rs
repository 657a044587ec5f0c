use crate::run::{Run, assert_all_arrived, assert_balanced, meeting_place, total};
use serde_json::Value;

/// source -> relay -> soft over a link -> relay -> sink, with `shared` among the keys of `[fabric]` and `soft` among
/// those of both ends.
fn conf(workers: u32, mtu: u32, addresses: [&str; 2], fabric: &str, soft: &str, frames: u64) -> String {
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
