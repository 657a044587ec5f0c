//! The key-value service over kernel soft-RoCE: a memory node at rxe1, and a gateway with clients at rxe0.

use super::in_guest;
use crate::end::{End, directory, say};
use std::time::Duration;

const KEY: &str =
    "key = \"a key that only this test knows, 32 bytes\"\nallow = [\"198.18.0.0/24\"]\nkeepalive_ms = 1000";

/// Requests that are measured: `ISTHMUS_KV_REQUESTS`, or as many as take some seconds here.
fn requests() -> u64 {
    std::env::var("ISTHMUS_KV_REQUESTS").ok().and_then(|n| n.parse().ok()).unwrap_or(12_000)
}

fn memory() -> String {
    format!(
        r#"poll = "adaptive"
        [eal]
        hugepages = "no-huge"
        lcores = "0@0,1@1"
        [stats]
        format = "json"
        [fabric]
        transport = "verbs"
        listen = "198.18.0.2:7474"
        {KEY}
        [fabric.verbs]
        device = "rxe1"
        [[node]]
        name = "memory"
        service = "memory"
        [node.memory]
        arena_bytes = 33554432
        message_bytes = 16384
        staging_slots = 4
        seats = 1
        gateway_workers_max = 1"#
    )
}

fn gateway() -> String {
    format!(
        r#"poll = "adaptive"
        [eal]
        hugepages = "no-huge"
        lcores = "0@1,1@0"
        [stats]
        format = "json"
        [[link]]
        name = "clients"
        ports = ["asks", "answers"]
        [fabric]
        transport = "verbs"
        {KEY}
        [fabric.verbs]
        device = "rxe0"
        [[node]]
        name = "load"
        service = "load"
        ports = ["asks"]
        [node.load]
        addresses = ["198.51.100.2/24"]
        server = "198.51.100.1:11211"
        flows = 4
        keys = 500
        value_bytes = 1024
        ratio = [7, 3]
        requests = {}
        measure_s = 600
        [[node]]
        name = "gateway"
        service = "kv"
        ports = ["answers"]
        [node.kv]
        addresses = ["198.51.100.1/24"]
        nodes = ["198.18.0.2:7474"]
        node_workers_max = 1
        message_bytes = 16384
        write_imm_from_bytes = 1000
        requests = 1024"#,
        requests()
    )
}

/// Every value is verified by the clients; a GET leaves no work to the memory node.
#[test]
fn keys_are_read_by_rdma() {
    let Some(_watch) = in_guest("keys_are_read_by_rdma") else { return };
    let dir = directory("keys");
    let memory = End::start(&dir, "memory", &memory());
    let mut gateway = End::start(&dir, "gateway", &gateway());
    // Its end is that of its clients.
    gateway.wait_for_end(Duration::from_secs(700));
    let load = gateway.load();
    let (gateway, memory) = (gateway.stop(), memory.stop());
    let latency = |what: &str| format!("{} us at the median", load[what]["latency_us"]["p50"]);
    say(&format!(
        "{} requests, {} a second; a GET takes {}, a SET {}",
        load["requests"],
        load["requests_per_s"],
        latency("get"),
        latency("set")
    ));
    assert!(load["good"] == true && load["requests"].as_u64() >= Some(requests()), "{load}");
    let count = |name| gateway.count("kv", name);
    let (gets, mutations, calls) = (count("kv_gets"), count("kv_mutations"), count("kv_calls"));
    assert!(
        mutations > requests() / 5 && gets > requests() / 2 && count("kv_reads") >= gets,
        "{gets} {mutations}"
    );
    // One call for each mutation, reports, and the agreement on the membership; none for GETs.
    let (reports, by_send) = (count("kv_reports"), count("kv_send_gets"));
    assert_eq!(calls, mutations + reports + by_send + 1);
    assert!(by_send * 1000 <= gets, "{by_send} of {gets} GETs by SEND");
    // Values travel by WRITE with immediate while there are slots.
    let written = count("kv_calls_written");
    assert!(written > mutations / 4, "{written} of {mutations}");
    // The memory node did what it was called for, and nothing else. The last report may have been on its way at the end.
    let (served, heard) =
        (memory.count("memory", "kv_calls_served"), memory.count("memory", "kv_reports_served"));
    assert!(reports - heard <= 1, "{heard} of {reports} reports");
    assert_eq!(served - heard, mutations + by_send + 1);
    say(&format!(
        "the memory node served {served} calls: {mutations} mutations, {written} of them by WRITE with immediate, {heard} reports, {by_send} GETs, 1 membership; {gets} GETs were {} READs",
        count("kv_reads")
    ));
}
