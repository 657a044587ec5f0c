use super::*;

/// Columns of a terminal that is wide.
const WIDE: usize = 200;
use crate::stats::sample::{PathSample, PoolSample, PortSample, WorkerSample};
use crate::stats::{Counter, DropReason, Tally};

fn counts(values: &[(Counter, u64)], drops: &[(DropReason, u64)]) -> Tally {
    let mut tally = Tally::default();
    values.iter().for_each(|(c, n)| tally.add(*c, *n));
    drops.iter().for_each(|(r, n)| tally.drop(*r, *n));
    tally
}

fn worker(node: &str, lcore: u32, service: &'static str, counts: Tally) -> WorkerSample {
    WorkerSample { node: node.into(), worker: 0, lcore, service, counts }
}

/// A relay, a source before it and a sink behind the other end, `n` thousand frames after the start.
fn sample(at_ms: u64, n: u64) -> Sample {
    let n = n * 1000;
    let dropped = n / 100;
    let relay = counts(
        &[
            (Counter::RxFrames, n),
            (Counter::RxBytes, n * 1000),
            (Counter::FramesSent, n - dropped),
            (Counter::BusyCycles, n * 50),
            (Counter::IdleCycles, n * 150),
        ],
        &[(DropReason::NoCredit, dropped)],
    );
    let source =
        counts(&[(Counter::FramesMade, n), (Counter::TxFrames, n), (Counter::BusyCycles, n * 90)], &[]);
    let sink = counts(&[(Counter::RxFrames, n - dropped), (Counter::FramesVerified, n - dropped)], &[]);
    let path = |path, up: bool| PathSample {
        node: "east".into(),
        worker: 0,
        path,
        qpn: Some(0x11),
        peer_qpn: up.then_some(0x2a),
        peer: up.then(|| "west at 192.0.2.2:4791".into()),
        peer_name: None,
        state: if up { "up" } else { "init" },
        connections: u64::from(up),
    };
    Sample {
        at_ms,
        tsc_hz: 2_000_000_000,
        workers: vec![
            worker("east", 1, "relay", relay),
            worker("generator-of-frames", 2, "source", source),
            worker("end", 3, "sink", sink),
        ],
        ports: vec![PortSample {
            name: "wan0".into(),
            link_up: true,
            rx_packets: n,
            rx_bytes: n * 1000,
            rx_missed: 3,
            ..PortSample::default()
        }],
        paths: vec![path(0, true), path(1, false)],
        pools: vec![
            PoolSample { name: "frames-0".into(), capacity: 8191, available: 700 },
            PoolSample { name: "slices-0".into(), capacity: 4095, available: 4095 },
        ],
    }
}

const TABLE: &str = "\
isthmus  up 3.0 s, rates of the last 2.0 s

worker         service lcore  rx/s  tx/s sent/s recv/s Gb/s busy % cyc/frame
east/0         relay       1 12.0M     0  11.9M      0 96.0   30.0        50
generator-o~/0 source      2     0 12.0M      -      - 0.00   54.0        90
end/0          sink        3 11.9M     0      -      - 0.00      -         0

path      state    qp  peer qp  connections  peer
east/0.0  up     0x11     0x2a            1  west at 192.0.2.2:4791
east/0.1  init   0x11        -            0  -

port  link   rx/s  tx/s  rx Gb/s  tx Gb/s  missed  no mbuf  errors
wan0  up    12.0M     0     96.0     0.00       3        0       0

drops at  reason     per second    total
east      no_credit        120k  250,000

emptiest pool  frames-0: 700 of 8,191 buffers free

";

const REPORT: &str = "\
isthmus ran 12.3 s

node              service   from port     to port        sent  received  dropped
east              relay    25,000,000           0  24,750,000         0  250,000
generator-of-fr~  source            0  25,000,000           -         -        0
end               sink     24,750,000           0           -         -        0

drops at  reason       total  because
east      no_credit  250,000  the peer granted no credit: it is slower

balance of east: 25,000,000 from port = 24,750,000 sent + 250,000 dropped: balanced

sink end: 24,750,000 verified, in order, none missing: good

pools: all 2 are full
";

#[test]
fn table_is_as_expected() {
    let (before, now) = (sample(1000, 1000), sample(3000, 25_000));
    let text = shown(Style::Blocks, &now, &before, WIDE);
    assert_eq!(text, TABLE, "\n{text}");
    assert!(text.lines().all(|l| l.chars().count() <= 80));
}

#[test]
fn table_of_large_numbers_keeps_to_eighty_columns() {
    let mut now = sample(1000, 99_888_777);
    now.workers
        .iter_mut()
        .for_each(|w| (w.node, w.lcore, w.worker) = ("a-node-with-a-long-name".into(), 127, 15));
    now.ports[0].name = "a-port-with-a-long-name".into();
    now.ports[0].rx_missed = u64::MAX;
    let text = shown(Style::Blocks, &now, &Sample::default(), WIDE);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn drops_are_red_on_a_terminal_where_wanted() {
    let now = sample(1000, 1);
    let [red, plain] =
        [true, false].map(|color| shown(Style::Screen { color }, &now, &Sample::default(), WIDE));
    assert!(!plain.contains('\x1b') && plain.ends_with('\n'), "moving the cursor is the screen's business");
    let painted: Vec<&str> = red.lines().filter(|l| l.contains("\x1b[31m")).collect();
    assert!(matches!(painted[..], [line] if line.contains("no_credit")), "{painted:?}");
    assert_eq!(red.replace("\x1b[31m", "").replace("\x1b[0m", ""), plain);
    assert!(!shown(Style::Blocks, &now, &Sample::default(), WIDE).contains('\x1b'));
}

#[test]
fn style_follows_the_format_and_the_terminal() {
    let screen = |color| Style::Screen { color };
    let cases = [
        (StatsFormat::Json, true, false, Style::Json),
        (StatsFormat::Auto, false, false, Style::Json),
        (StatsFormat::Auto, true, false, screen(true)),
        (StatsFormat::Table, true, true, screen(false)),
        (StatsFormat::Table, false, false, Style::Blocks),
    ];
    for (format, terminal, no_color, style) in cases {
        assert_eq!(Style::of(format, terminal, no_color), style, "{format:?} {terminal} {no_color}");
    }
}

#[test]
fn many_paths_are_counted_by_state() {
    let mut now = sample(1000, 1);
    now.paths = now.paths.iter().cycle().take(64).cloned().collect();
    let text = shown(Style::Blocks, &now, &Sample::default(), WIDE);
    assert!(text.contains("east     32  up     west at 192.0.2.2:4791\n"), "{text}");
    assert!(text.contains("east     32  init   -\n"), "{text}");
}

#[test]
fn final_report_is_as_expected() {
    let mut last = sample(12_340, 25_000);
    last.pools[0].available = 8191;
    let text = concluded(Style::Blocks, &last, &[], WIDE);
    assert_eq!(text, REPORT, "\n{text}");
}

#[test]
fn final_report_names_what_does_not_hold() {
    let mut last = sample(1000, 1);
    last.workers[0].counts.add(Counter::FramesReceived, 7);
    last.workers[0].counts.drop(DropReason::LostInTransit, 5);
    last.workers[2].counts.add(Counter::Missing, 3);
    last.workers[2].counts.add(Counter::Corrupt, 1);
    let text = concluded(Style::Blocks, &last, &["a queue pair could not be emptied".into()], WIDE);
    for line in [
        "balance of east: 1,000 from port + 7 from peer = 990 sent + 10 dropped: 7 unaccounted for",
        "sink end: 990 verified, BAD: 3 missing, 1 corrupt",
        "pools: 1 of 2 not full: frames-0 has 700 of 8,191",
        "unclean: a queue pair could not be emptied",
    ] {
        assert!(text.lines().any(|l| l == line), "no line '{line}' in\n{text}");
    }
    last.workers[0].counts.add(Counter::TxFrames, 8);
    assert!(concluded(Style::Blocks, &last, &[], WIDE).contains(": 1 too many\n"));
}

#[test]
fn sinks_that_saw_little_say_so() {
    let verdict = |counts| {
        let last = Sample { workers: vec![worker("end", 1, "sink", counts)], ..Sample::default() };
        concluded(Style::Blocks, &last, &[], WIDE)
    };
    assert!(verdict(Tally::default()).contains("sink end: saw no frame\n"));
    let unverified = counts(&[(Counter::RxFrames, 9)], &[]);
    assert!(verdict(unverified).contains("sink end: 9 frames seen, not verified\n"));
}

#[test]
fn json_is_one_line_with_the_names_others_rely_on() {
    let (before, now) = (sample(1000, 1000), sample(3000, 25_000));
    let text = shown(Style::Json, &now, &before, WIDE);
    assert_eq!(text.matches('\n').count(), 1);
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let at = |pointer: &str| value.pointer(pointer).unwrap_or_else(|| panic!("no {pointer}")).clone();
    assert_eq!(at("/workers/0/node"), "east");
    assert_eq!(at("/workers/0/service"), "relay");
    assert_eq!(at("/workers/0/counts/rx_frames"), 25_000_000);
    assert_eq!(at("/workers/0/counts/tx_frames"), 0);
    assert_eq!(at("/workers/0/drops"), serde_json::json!({ "no_credit": 250_000 }));
    assert_eq!(at("/workers/0/rates/rx_frames"), 12_000_000.0);
    assert_eq!(at("/workers/0/rates/busy_percent"), 30.0);
    assert_eq!(at("/workers/2/rates/busy_percent"), serde_json::Value::Null);
    assert_eq!(at("/ports/0/rx_packets"), 25_000_000);
    assert_eq!(at("/ports/0/tx_packets"), 0);
    assert_eq!(at("/ports/0/link_up"), true);
    assert_eq!(at("/paths/0/state"), "up");
    assert_eq!(at("/paths/0/peer_qpn"), 0x2a);
    assert_eq!(at("/paths/1/peer"), serde_json::Value::Null);
    assert_eq!(at("/pools/0/available"), 700);
    assert_eq!(at("/interval_ms"), 2000);
    assert!(value.get("final").is_none());
}

#[test]
fn the_last_json_line_says_that_it_is_the_last() {
    let text = concluded(Style::Json, &sample(2000, 1000), &["a \"reason\"".into()], WIDE);
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value["final"], true);
    assert_eq!(value["unclean"], serde_json::json!(["a \"reason\""]));
    assert_eq!(value["workers"][0]["rates"]["rx_frames"], 500_000.0);
}
