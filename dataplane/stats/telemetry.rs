//! Samples as answers on DPDK's telemetry socket: `dpdk-telemetry.py` and whatever else reads it.
//!
//! The socket knows whole numbers, text and names of letters, digits, `_` and `/` only; so rates are rounded, and workers
//! are called `node/worker`, with `_` for what a name may not hold.

use super::kv::{self, Ratios};
use super::rate::{Rates, seconds};
use super::sample::{Sample, WorkerSample};
use super::{Counter, Tally, json};
use dpdk_bind::telemetry::{Value, clean_name};
use std::sync::{Arc, Mutex};

/// The last two samples, where the telemetry thread finds them.
#[derive(Debug, Default)]
pub struct Latest(Mutex<[Arc<Sample>; 2]>);

impl Latest {
    /// Puts a new sample in front of the last one.
    pub fn publish(&self, sample: Sample) {
        let mut held = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        held.swap(0, 1);
        held[0] = Arc::new(sample);
    }

    /// The newest sample and the one before.
    fn read(&self) -> [Arc<Sample>; 2] {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

/// A command: what it is called, its help, what it answers to a parameter.
pub struct Command {
    /// Its name.
    pub name: &'static str,
    /// One line, at most 63 bytes.
    pub help: &'static str,
    answer: fn(&Sample, &Sample, &str) -> Value,
}

impl Command {
    /// The answer from the samples as they are now.
    pub fn answer(&self, latest: &Latest, parameter: &str) -> Value {
        let [now, before] = latest.read();
        (self.answer)(&now, &before, parameter.trim())
    }
}

/// All commands.
pub static COMMANDS: [Command; 7] = [
    Command { name: "/isthmus/info", help: "Version, uptime and what runs.", answer: info },
    Command {
        name: "/isthmus/workers",
        help: "Rates of all workers. Parameter NODE/N: all counters of one.",
        answer: workers,
    },
    Command { name: "/isthmus/kv", help: "Key-value service: gateways and memory nodes.", answer: key_value },
    Command { name: "/isthmus/drops", help: "Frames dropped, by worker and reason.", answer: drops },
    Command { name: "/isthmus/paths", help: "Queue pairs: state, numbers, peer.", answer: paths },
    Command { name: "/isthmus/ports", help: "Link and driver totals of all ports.", answer: ports },
    Command { name: "/isthmus/pools", help: "Buffer pools: capacity and free buffers.", answer: pools },
];

fn info(now: &Sample, before: &Sample, _: &str) -> Value {
    Value::from([
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("uptime_ms", now.at_ms.into()),
        ("interval_ms", now.at_ms.saturating_sub(before.at_ms).into()),
        ("tsc_hz", now.tsc_hz.into()),
        ("workers", Value::Array(now.workers.iter().map(|w| name(w).into()).collect())),
    ])
}

fn name(w: &WorkerSample) -> String {
    format!("{}/{}", w.node, w.worker)
}

fn workers(now: &Sample, before: &Sample, wanted: &str) -> Value {
    if !wanted.is_empty() {
        // The name may be that of the configuration, or as the socket shows it.
        let meant = |w: &&WorkerSample| name(w) == wanted || clean_name(&name(w)) == wanted;
        return match now.workers.iter().find(meant) {
            Some(worker) => value(&json::worker(worker)),
            None => format!("no worker '{wanted}': /isthmus/info lists them").into(),
        };
    }
    let seconds = seconds(now.at_ms, before.at_ms);
    let summary = |(i, w): (usize, &WorkerSample)| {
        let earlier = before.workers.get(i).map(|w| &w.counts);
        let rates = rates(&Rates::between(&w.counts, earlier, seconds, now.tsc_hz));
        let since = earlier.map_or_else(|| w.counts.clone(), |e| w.counts.since(e));
        let mut fields = vec![
            ("lcore", u64::from(w.lcore).into()),
            ("service", w.service.into()),
            ("drops", w.counts.all_drops().into()),
            ("fabric_drops", w.counts.fabric_drops().into()),
        ];
        fields.extend(rates);
        let mut fields = dict(fields);
        add(&mut fields, kv_rates(w.service, &since, seconds));
        (name(w), fields)
    };
    Value::Dict(now.workers.iter().enumerate().map(summary).collect())
}

fn rates(r: &Rates) -> Vec<(&'static str, Value)> {
    let whole = |f: f64| Value::U64(f.round() as u64);
    let mut fields = vec![
        ("rx_frames_per_s", whole(r.rx)),
        ("tx_frames_per_s", whole(r.tx)),
        ("frames_sent_per_s", whole(r.sent)),
        ("frames_received_per_s", whole(r.received)),
        ("port_mbps", whole(r.gbps * 1000.0)),
    ];
    fields.extend(r.busy.map(|f| ("busy_percent", whole(f))));
    fields.extend(r.cycles.map(|f| ("cycles_per_frame", whole(f))));
    fields
}

fn dict(fields: Vec<(&'static str, Value)>) -> Value {
    Value::Dict(fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
}

fn add(fields: &mut Value, more: Vec<(String, Value)>) {
    if let Value::Dict(fields) = fields {
        fields.extend(more);
    }
}

/// What a worker or node of the key-value service did in the last interval; nothing of others.
fn kv_rates(service: &str, since: &Tally, seconds: f64) -> Vec<(String, Value)> {
    let whole = |f: f64| Value::U64(f.round() as u64);
    let rate = |(name, rate): (&str, f64)| (format!("{name}_per_s"), whole(rate));
    let mut fields: Vec<_> = kv::rates(service, since, seconds).into_iter().map(rate).collect();
    let ratios = Ratios::of(since);
    if service == kv::GATEWAY {
        fields.extend(ratios.hit_percent.map(|f| ("kv_hit_percent".into(), whole(f))));
        fields.extend(ratios.cycles_per_request.map(|f| ("kv_cycles_per_request".into(), whole(f))));
    }
    fields
}

/// By node: figures and totals, and rates of the last interval.
fn key_value(now: &Sample, before: &Sample, _: &str) -> Value {
    let seconds = seconds(now.at_ms, before.at_ms);
    let mut all = Vec::new();
    for service in [kv::GATEWAY, kv::MEMORY] {
        for (node, counts, since) in kv::nodes(now, before, service) {
            let mut fields: Vec<(String, Value)> = vec![("service".into(), service.into())];
            fields.extend(kv_totals(service, now, node, &counts));
            fields.extend(kv_rates(service, &since, seconds));
            all.push((node.to_owned(), Value::Dict(fields)));
        }
    }
    Value::Dict(all)
}

fn kv_totals(service: &str, now: &Sample, node: &str, counts: &Tally) -> Vec<(String, Value)> {
    // All that a gateway counts stand before what both count, and all of a memory node behind.
    let both = Counter::KvMalformed as usize;
    let counters = match service {
        kv::GATEWAY => &Counter::ALL[Counter::KvRequests as usize..=both],
        _ => &Counter::ALL[both..=Counter::KvExpired as usize],
    };
    let (up, all) = kv::nodes_up(now, node);
    let total = |c: &Counter| {
        let value = match c {
            Counter::KvNodesUp => up,
            Counter::KvNodesDown => all - up,
            _ => counts.value(*c),
        };
        (c.name().to_owned(), value.into())
    };
    counters.iter().map(total).collect()
}

fn drops(now: &Sample, _: &Sample, _: &str) -> Value {
    let reasons = |w: &WorkerSample| {
        Value::Dict(w.counts.drops().map(|(reason, n)| (reason.name().to_owned(), n.into())).collect())
    };
    Value::Dict(now.workers.iter().map(|w| (name(w), reasons(w))).collect())
}

fn paths(now: &Sample, _: &Sample, _: &str) -> Value {
    let named =
        now.paths.iter().map(|p| (format!("{}/{}/{}", p.node, p.worker, p.path), value(&json::path(p))));
    Value::Dict(named.collect())
}

fn ports(now: &Sample, _: &Sample, _: &str) -> Value {
    // What a driver does not count is left out: the socket knows no null.
    let known = |p| match json::port(p) {
        serde_json::Value::Object(all) => all.into_iter().filter(|(_, v)| !v.is_null()).collect(),
        other => other,
    };
    Value::Dict(now.ports.iter().map(|p| (p.name.clone(), value(&known(p)))).collect())
}

fn pools(now: &Sample, _: &Sample, _: &str) -> Value {
    Value::Dict(now.pools.iter().map(|p| (p.name.clone(), value(&json::pool(p)))).collect())
}

/// A value of JSON as the socket can carry it: no fractions, no null.
fn value(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => "".into(),
        Json::Bool(b) => u64::from(*b).into(),
        Json::Number(n) => n
            .as_u64()
            .map(Value::U64)
            .or_else(|| n.as_i64().map(Value::I64))
            .unwrap_or_else(|| Value::I64(n.as_f64().unwrap_or_default().round() as i64)),
        Json::String(s) => s.as_str().into(),
        Json::Array(all) => Value::Array(all.iter().map(value).collect()),
        Json::Object(all) => Value::Dict(all.iter().map(|(k, v)| (k.clone(), value(v))).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::DropReason;

    fn field<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
        path.iter().fold(value, |value, key| {
            let Value::Dict(entries) = value else { panic!("{key} in {value:?}") };
            &entries.iter().find(|(k, _)| k == key).unwrap_or_else(|| panic!("no {key} in {entries:?}")).1
        })
    }

    fn sample(at_ms: u64, frames: u64) -> Sample {
        let mut counts = Tally::default();
        counts.add(Counter::RxFrames, frames);
        counts.drop(DropReason::PathDown, frames / 10);
        counts.drop(DropReason::FabricIcrc, frames / 100);
        let worker = WorkerSample { node: "a".into(), worker: 1, lcore: 3, service: "relay", counts };
        Sample { at_ms, tsc_hz: 1, workers: vec![worker], ..Sample::default() }
    }

    fn ask(latest: &Latest, command: &str, parameter: &str) -> Value {
        COMMANDS.iter().find(|c| c.name == command).unwrap().answer(latest, parameter)
    }

    #[test]
    fn rates_are_of_the_last_interval() {
        let latest = Latest::default();
        latest.publish(sample(1000, 500));
        latest.publish(sample(3000, 2500));
        let all = ask(&latest, "/isthmus/workers", "");
        assert_eq!(field(&all, &["a/1", "rx_frames_per_s"]), &Value::U64(1000));
        assert_eq!(field(&all, &["a/1", "drops"]), &Value::U64(250), "what the final report calls dropped");
        assert_eq!(field(&all, &["a/1", "fabric_drops"]), &Value::U64(25));
        assert_eq!(field(&ask(&latest, "/isthmus/drops", ""), &["a/1", "path_down"]), &Value::U64(250));
        assert_eq!(field(&ask(&latest, "/isthmus/info", ""), &["uptime_ms"]), &Value::U64(3000));
    }

    #[test]
    fn one_worker_shows_all_its_counters() {
        let latest = Latest::default();
        latest.publish(sample(1000, 500));
        let one = ask(&latest, "/isthmus/workers", " a/1 ");
        assert_eq!(field(&one, &["counts", "rx_frames"]), &Value::U64(500));
        let Value::Dict(counts) = field(&one, &["counts"]) else { panic!("{one:?}") };
        assert_eq!(counts.len(), Counter::ALL.len());
        assert_eq!(
            ask(&latest, "/isthmus/workers", "b/0"),
            "no worker 'b/0': /isthmus/info lists them".into()
        );
    }

    #[test]
    fn the_key_value_service_is_told_by_node() {
        let sample = |at_ms, gets| {
            let workers = [(0, 2), (1, 1)].map(|(worker, up)| {
                let mut counts = Tally::default();
                counts.add(Counter::KvGets, gets);
                counts.add(Counter::KvGetHits, gets / 4);
                counts.add(Counter::KvGetMisses, gets - gets / 4);
                counts.set(Counter::KvNodesUp, up);
                counts.set(Counter::KvNodesDown, 2 - up);
                WorkerSample { node: "gw".into(), worker, lcore: 1, service: kv::GATEWAY, counts }
            });
            Sample { at_ms, workers: workers.into(), ..Sample::default() }
        };
        let latest = Latest::default();
        latest.publish(sample(1000, 4000));
        latest.publish(sample(2000, 8000));
        let all = ask(&latest, "/isthmus/kv", "");
        for (name, value) in [
            ("kv_gets", 16_000),
            ("kv_gets_per_s", 8000),
            ("kv_hit_percent", 25),
            ("kv_nodes_up", 1),
            ("kv_nodes_down", 1),
            ("kv_malformed", 0),
        ] {
            assert_eq!(field(&all, &["gw", name]), &Value::U64(value), "{name}");
        }
        let worker = ask(&latest, "/isthmus/workers", "");
        assert_eq!(field(&worker, &["gw/1", "kv_gets_per_s"]), &Value::U64(4000));
    }

    #[test]
    fn help_fits_and_names_are_allowed() {
        for command in &COMMANDS {
            assert!(command.help.len() <= 63 && command.name.len() <= 55, "{}", command.name);
        }
    }
}
