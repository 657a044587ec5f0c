//! A sample as one line of JSON. Names stay once they are there; new ones may come.

use super::kv::{self, Ratios};
use super::rate::{Rates, seconds};
use super::sample::{PathSample, PoolSample, PortSample, Sample, WorkerSample};
use super::{Counter, Tally};
use serde_json::{Map, Value, json};

/// A line without its end: totals of `now`, rates since `before`.
pub(super) fn line(now: &Sample, before: &Sample) -> Value {
    let seconds = seconds(now.at_ms, before.at_ms);
    let earlier = |i: usize| before.workers.get(i);
    json!({
        "at_ms": now.at_ms,
        "interval_ms": now.at_ms.saturating_sub(before.at_ms),
        "tsc_hz": now.tsc_hz,
        "workers": now.workers.iter().enumerate().map(|(i, w)| {
            let before = earlier(i).map(|w| &w.counts);
            let mut value = worker(w);
            value["rates"] = rates(&Rates::between(&w.counts, before, seconds, now.tsc_hz));
            add_kv_rates(w, before, seconds, &mut value["rates"]);
            value
        }).collect::<Vec<_>>(),
        "paths": now.paths.iter().map(path).collect::<Vec<_>>(),
        "ports": now.ports.iter().map(port).collect::<Vec<_>>(),
        "pools": now.pools.iter().map(pool).collect::<Vec<_>>(),
    })
}

/// The last line: as [`line`] with rates of the whole run, and what went wrong in taking it down.
pub(super) fn final_line(last: &Sample, unclean: &[String]) -> Value {
    let mut value = line(last, &Sample::default());
    value["final"] = true.into();
    value["unclean"] = unclean.into();
    value
}

/// A worker: who it is, its counts, and its drops that are not 0.
pub(super) fn worker(w: &WorkerSample) -> Value {
    let counts: Map<_, _> =
        Counter::ALL.iter().map(|c| (c.name().to_owned(), w.counts.value(*c).into())).collect();
    let drops: Map<_, _> = w.counts.drops().map(|(r, n)| (r.name().to_owned(), n.into())).collect();
    json!({
        "node": w.node, "worker": w.worker, "lcore": w.lcore, "service": w.service,
        "counts": counts, "drops": drops,
    })
}

fn rates(r: &Rates) -> Value {
    json!({
        "rx_frames": r.rx, "tx_frames": r.tx, "frames_sent": r.sent, "frames_received": r.received,
        "gbps": r.gbps, "busy_percent": r.busy, "cycles_per_frame": r.cycles,
    })
}

/// What a worker of the key-value service did, a second, and the ratios of a gateway.
fn add_kv_rates(w: &WorkerSample, before: Option<&Tally>, seconds: f64, rates: &mut Value) {
    let since = before.map_or_else(|| w.counts.clone(), |b| w.counts.since(b));
    for (name, rate) in kv::rates(w.service, &since, seconds) {
        rates[name] = rate.into();
    }
    if w.service == kv::GATEWAY {
        let Ratios { hit_percent, reads_per_get, cycles_per_request } = Ratios::of(&since);
        rates["kv_hit_percent"] = hit_percent.into();
        rates["kv_reads_per_get"] = reads_per_get.into();
        rates["kv_cycles_per_request"] = cycles_per_request.into();
    }
}

/// A path.
pub(super) fn path(p: &PathSample) -> Value {
    json!({
        "node": p.node, "worker": p.worker, "path": p.path, "state": p.state, "qpn": p.qpn,
        "peer_qpn": p.peer_qpn, "peer": p.peer, "peer_name": p.peer_name,
        "connections": p.connections,
    })
}

/// A port.
pub(super) fn port(p: &PortSample) -> Value {
    json!({
        "name": p.name, "link_up": p.link_up, "rx_packets": p.rx_packets, "tx_packets": p.tx_packets,
        "rx_bytes": p.known_rx_bytes(), "tx_bytes": p.known_tx_bytes(), "rx_missed": p.rx_missed,
        "rx_errors": p.rx_errors, "rx_no_mbuf": p.rx_no_mbuf, "tx_errors": p.tx_errors,
    })
}

/// A pool.
pub(super) fn pool(p: &PoolSample) -> Value {
    json!({ "name": p.name, "capacity": p.capacity, "available": p.available })
}
