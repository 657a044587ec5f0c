use super::*;
use crate::stats::DropReason;
use crate::stats::final_report::final_report;
use crate::stats::json;
use crate::stats::sample::{PathSample, PoolSample, PortSample, WorkerSample};
use crate::stats::table::table;

fn worker(node: &str, worker: usize, service: &'static str, values: &[(Counter, u64)]) -> WorkerSample {
    let mut counts = Tally::default();
    values.iter().for_each(|(c, n)| counts.add(*c, *n));
    WorkerSample { node: node.into(), worker, lcore: 1, service, counts }
}

/// What `scripts/run` starts, `n` thousand GETs after the start.
fn sample(at_ms: u64, n: u64) -> Sample {
    let n = n * 1000;
    let mut gateway = worker(
        "gateway",
        0,
        GATEWAY,
        &[
            (Counter::RxFrames, 2 * n),
            (Counter::TxFrames, 2 * n),
            (Counter::BusyCycles, 2 * n * 1700),
            (Counter::IdleCycles, 2 * n * 100),
            (Counter::KvRequests, 2 * n),
            (Counter::KvReplies, 2 * n - n / 10),
            (Counter::KvUnanswered, n / 10),
            (Counter::KvGets, n),
            (Counter::KvGetHits, n - n / 10),
            (Counter::KvGetMisses, n / 10),
            (Counter::KvMutations, n),
            (Counter::KvReads, n),
            (Counter::KvBucketReads, n / 100),
            (Counter::KvNodesUp, 1),
            (Counter::FabricTxFrames, n),
            (Counter::FabricRxFrames, n),
        ],
    );
    gateway.counts.drop(DropReason::NotWanted, 14);
    let memory = worker(
        "memory",
        0,
        MEMORY,
        &[
            (Counter::BusyCycles, n * 600),
            (Counter::IdleCycles, n * 3000),
            (Counter::KvCallsServed, n),
            (Counter::KvReportsServed, n / 100),
            (Counter::KvItems, n),
            (Counter::KvItemBytes, n * 1024),
            (Counter::KvDataBytes, 240 << 20),
            (Counter::KvEvicted, n / 50),
            (Counter::FabricTxFrames, n),
            (Counter::FabricRxFrames, n),
        ],
    );
    let port = |name: &str| PortSample { name: name.into(), link_up: true, ..PortSample::default() };
    let path = |node: &str, path| PathSample {
        node: node.into(),
        worker: 0,
        path,
        qpn: Some(0x11),
        peer_qpn: Some(0x2a),
        peer: Some("memory at 127.0.0.1".into()),
        peer_name: Some("127.0.0.1:7474".into()),
        state: "up",
        connections: 1,
    };
    Sample {
        at_ms,
        tsc_hz: 2_000_000_000,
        workers: vec![gateway, memory],
        ports: ["tap", "wire-gw", "wire-mem"].map(port).into(),
        paths: vec![path("gateway", 0), path("gateway", 1), path("memory", 0), path("memory", 1)],
        pools: vec![PoolSample { name: "memory.messages".into(), capacity: 584, available: 520 }],
    }
}

const TABLE: &str = "\
isthmus  up 3.0 s, rates of the last 2.0 s

worker     service  lcore  rx/s  tx/s  Gb/s  busy %
gateway/0  kv           1  100k  100k  0.00     8.5
memory/0   memory       1     -     -     -     1.5

gateway  nodes up  gets/s  hit %  sets/s  reads/get  by send/s  races/s  errors/s  cyc/req
gateway    1 of 1   50.0k   90.0   50.0k       1.03          0        0         0    1.70k

memory  calls/s  items    MiB  of MiB  used %  evicted/s  expired/s  stalled/s
memory    49.5k   150k  146.5   240.0    61.0      1.00k          0          0

roce        rx/s   tx/s  Gb/s  again/s  timeouts/s  naks/s  cnps/s  over/s
gateway/0  50.0k  50.0k  0.00        0           0       0       0       0
memory/0   50.0k  50.0k  0.00        0           0       0       0       0

port      link  rx/s  tx/s  rx Gb/s  tx Gb/s  missed  no mbuf  errors
tap       up       0     0     0.00     0.00       0        0       0
wire-gw   up       0     0     0.00     0.00       0        0       0
wire-mem  up       0     0     0.00     0.00       0        0       0

no drops; ignored  14 not_wanted at gateway
all 4 paths up; emptiest pool  memory.messages: 520 of 584 buffers free
";

const REPORT: &str = "\
isthmus ran 12.3 s

node     service  from port  to port  dropped
gateway  kv         300,000  300,000        0
memory   memory           -        -        0

gateway     gets     hits  hit %     sets  reads/get  by send  races  errors  malformed
gateway  150,000  135,000   90.0  150,000       1.03        0      0       0          0

memory    calls  of these reports    items    MiB  evicted  expired  stalled
memory  150,000             1,500  150,000  146.5    3,000        0        0

roce     received     sent  again  timeouts  naks  rnr naks  cnps  handed over
gateway   150,000  150,000      0         0     0         0     0            0
memory    150,000  150,000      0         0     0         0     0            0

no drops

ignored at  reason      total  because
gateway     not_wanted     14  for nobody here, as multicasts of the kernel

balance of gateway: 300,000 requests = 285,000 replies + 15,000 without a reply: balanced

pools: full
";

#[test]
fn the_table_is_as_expected_and_fits_a_small_terminal() {
    let text = table(&sample(3000, 150), &sample(1000, 50), View::PLAIN);
    assert_eq!(text, TABLE, "\n{text}");
    assert!(text.lines().count() < 24 && text.lines().all(|l| l.chars().count() <= 100));
}

/// Names and numbers as large as they get.
fn large() -> Sample {
    let mut now = sample(1000, 99_888_777);
    for w in &mut now.workers {
        w.node = format!("{}-with-a-long-name", w.node);
        for c in [Counter::KvSendGets, Counter::KvRaces, Counter::KvServerErrors, Counter::KvStalled] {
            w.counts.add(c, 99_888_777_666);
        }
        w.counts.drop(DropReason::FabricMalformed, 99_888_777_666);
    }
    now.paths[0].state = "down";
    now
}

#[test]
fn nothing_wraps_on_a_small_terminal_and_what_matters_stays() {
    for (columns, is_all) in [(80, false), (100, true)] {
        for now in [sample(1000, 150), large()] {
            let view = View { color: false, columns };
            let unclean =
                ["a reason that takes more than a line of a small terminal, as reasons may".repeat(2)];
            for text in [table(&now, &Sample::default(), view), final_report(&now, &unclean, view)] {
                for line in text.lines() {
                    assert!(line.chars().count() <= columns, "{columns}: {line}");
                }
                assert!(text.contains(" errors"), "{text}");
            }
        }
        let text = table(&large(), &Sample::default(), View { color: false, columns });
        assert_eq!(text.contains("cyc/req"), is_all, "{text}");
    }
}

#[test]
fn a_memory_node_that_is_not_there_is_named_as_in_the_file() {
    let mut now = sample(1000, 1);
    (now.paths[0].state, now.paths[0].peer) = ("down", None);
    let text = table(&now, &Sample::default(), View::PLAIN);
    let line = text.lines().find(|l| l.starts_with("gateway/0.0")).unwrap();
    assert!(line.contains("down") && line.ends_with("127.0.0.1:7474"), "{line}");
    assert_eq!(json::path(&now.paths[0])["peer_name"], "127.0.0.1:7474");
}

#[test]
fn the_table_of_large_numbers_keeps_to_a_hundred_columns() {
    let now = large();
    for line in table(&now, &Sample::default(), View::PLAIN).lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn a_gateway_without_all_its_memory_nodes_is_red_and_what_is_ignored_is_not() {
    let mut now = sample(1000, 1);
    let painted = |now: &Sample| {
        let text = table(now, &Sample::default(), View { color: true, ..View::PLAIN });
        text.lines().filter(|l| l.starts_with("\x1b[31m")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(painted(&now), [""; 0]);
    now.workers.insert(1, worker("gateway", 1, GATEWAY, &[(Counter::KvNodesDown, 1)]));
    assert!(matches!(&painted(&now)[..], [line] if line.contains("0 of 1")), "{:?}", painted(&now));
}

#[test]
fn a_quiet_service_shows_no_ratios_and_a_path_that_is_down_is_listed() {
    let (mut now, before) = (sample(2000, 50), sample(1000, 50));
    let text = gateways(&now, &before, 1.0, View::PLAIN);
    let cells: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(cells, ["gateway", "1", "of", "1", "0", "-", "0", "-", "0", "0", "0", "-"]);
    assert!(!table(&now, &before, View::PLAIN).contains("peer qp"));
    assert_eq!([0, 1, 52_428, 52_429, 1 << 20].map(mebibytes), ["0", "<0.1", "<0.1", "0.1", "1.0"]);
    now.paths[3].state = "down";
    assert!(table(&now, &before, View::PLAIN).contains("peer qp"));
}

#[test]
fn the_final_report_is_as_expected() {
    let mut last = sample(12_340, 150);
    last.pools[0].available = 584;
    let text = final_report(&last, &[], View::PLAIN);
    assert_eq!(text, REPORT, "\n{text}");
    last.workers[0].counts.add(Counter::KvRequests, 3);
    assert!(final_report(&last, &[], View::PLAIN).contains("15,000 without a reply: 3 unaccounted for\n"));
    last.workers[0].counts.add(Counter::KvReplies, 4);
    assert!(final_report(&last, &[], View::PLAIN).contains("15,000 without a reply: 1 too many\n"));
}

#[test]
fn json_has_the_rates_of_the_service() {
    let value = json::line(&sample(3000, 150), &sample(1000, 50));
    let at = |pointer: &str| value.pointer(pointer).unwrap_or_else(|| panic!("no {pointer}")).clone();
    assert_eq!(at("/workers/0/rates/kv_gets"), 50_000.0);
    assert_eq!(at("/workers/0/rates/kv_hit_percent"), 90.0);
    assert_eq!(at("/workers/0/rates/kv_reads_per_get"), 1.03);
    assert_eq!(at("/workers/0/rates/kv_cycles_per_request"), 1700.0);
    assert_eq!(at("/workers/1/rates/kv_calls_served"), 50_000.0);
    assert!(value.pointer("/workers/1/rates/kv_gets").is_none());
    let quiet = json::line(&sample(3000, 150), &sample(1000, 150));
    assert_eq!(quiet.pointer("/workers/0/rates/kv_hit_percent"), Some(&serde_json::Value::Null));
}
