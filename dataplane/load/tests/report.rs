use super::*;

fn report() -> Report {
    let mut meter = Meter::default();
    for i in 0..100_000u64 {
        let ns = 40_000 + i * i / 20_000 + if i % 5000 == 0 { 2_000_000 } else { 0 };
        meter.gets.saturating_record(ns);
        if i % 10 < 4 {
            meter.sets.saturating_record(ns + 30_000);
        }
    }
    meter.counts = Counts { hits: 99_000, misses: 1000, stored: 40_000, ..Counts::default() };
    meter.counts.bytes_read = 99_000 * 4096;
    meter.measured_ns = 2_000_000_000;
    let load = LoadSettings { ratio: (7, 3), ..LoadSettings::default() };
    let mut report = Report::new("udp://127.0.0.1:11211".into(), load, 4, 32, meter);
    report.version = Some("1.6.18".into());
    report.thread_cpu_s = vec![1.0];
    report.server_cpu = Some(ProcessCpu { user_s: 0.4, system_s: 1.0 });
    report.tsc_hz = Some(2e9);
    report.extra.push(Extra { name: "READs per GET".into(), value: 1.0, unit: String::new() });
    report
}

#[test]
fn the_table_says_it_all() {
    let table = report().table();
    for part in [
        "udp://127.0.0.1:11211 (version 1.6.18)",
        "100 000 keys of 16 B, Zipf 0.99, values of 64 B, GET:SET 7:3, text commands",
        "4 flows x 32 requests under way, closed loop, seed 1",
        "  requests/s    70 000  (140 000 in 2.00 s)\n",
        "  GET/s         50 000  202.8 MB/s  99.00 % hits\n",
        "       p50       p90       p99     p99.9    p99.99       max\n",
        "  replies       wrong 0, lost 0\n",
        "  generator     1 thread, busiest 50 % of a core, 7.14 us per request\n",
        "  server        70 % of a core, 10.00 us per request (2.86 user, 7.14 kernel), 20 000 cycles\n",
        "  READs per GET 1.000\n",
    ] {
        assert!(table.contains(part), "{part} is not in\n{table}");
    }
    assert!(!table.contains("note:"));
}

#[test]
fn what_makes_figures_doubtful_is_said() {
    let mut report = report();
    report.thread_cpu_s = vec![1.99, 0.2];
    report.counts.unsent = 12;
    report.counts.losses = 5000;
    report.counts.faults = 21;
    report.faults = vec!["get k1: torn".into()];
    assert_eq!(report.verdict().unwrap(), "21 wrong replies");
    assert_eq!(report.warnings().len(), 3);
    assert!(!report.is_good());
    let table = report.table();
    assert!(table.contains("wrong: get k1: torn\nwrong: 20 more\n"), "{table}");
}

#[test]
fn requests_that_were_given_up_make_a_run_bad() {
    let mut report = report();
    assert_eq!(report.verdict(), None);
    report.counts.losses = 3;
    assert!(report.is_good(), "what was lost and asked again has been answered");
    report.counts.unanswered = 3;
    assert_eq!(report.verdict().unwrap(), "3 requests were given up without a reply");
    report.given_up = Some("nobody answered".into());
    assert_eq!(report.verdict().unwrap(), "nobody answered");
}

#[test]
fn json_holds_the_same() {
    let value = report().json();
    assert_eq!(value["requests"], 140_000);
    assert_eq!(value["hit_ratio"], 0.99);
    assert_eq!(value["server"]["cycles_per_request"], 20_000.0);
    assert_eq!(value["load"]["zipf"], 0.99);
    assert_eq!(value["extra"][0]["name"], "READs per GET");
    let p50 = value["get"]["latency_us"]["p50"].as_f64().unwrap();
    assert!((p50 - 165.0).abs() < 2.0, "{p50}");
    assert_eq!(
        Report { gets: Meter::default().gets, ..report() }.json()["get"]["latency_us"],
        serde_json::Value::Null
    );
}

/// With `ISTHMUS_PLOT=FILE` the plot is kept, to be looked at.
#[test]
fn the_plot_is_well_formed_and_inside_its_frame() {
    let svg = Report { target: "a<b & c".into(), ..report() }.svg();
    if let Some(path) = std::env::var_os("ISTHMUS_PLOT") {
        std::fs::write(path, &svg).unwrap();
    }
    assert!(svg.contains("a&lt;b &amp; c") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("<polyline").count(), 2);
    assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    for list in svg.split("points=\"").skip(1) {
        let points: Vec<&str> = list.split('"').next().unwrap().split(' ').collect();
        assert!(points.len() > 100);
        let mut before = (0.0, 1e9);
        for point in points {
            let (x, y) = point.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((90.0..=830.0).contains(&x) && (78.0..=438.0).contains(&y), "{point}");
            assert!(x >= before.0 && y <= before.1, "more of them take longer");
            before = (x, y);
        }
    }
    let nothing = Report { gets: Meter::default().gets, sets: Meter::default().sets, ..report() }.svg();
    assert!(!nothing.contains("NaN") && !nothing.contains("inf"));
}
