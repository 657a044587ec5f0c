//! JSON. Names stay once they are there; new ones may come.

use super::{Arrivals, Popularity, QUANTILES, Report};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

impl Report {
    /// One object. Latencies are in microseconds, rates a second.
    pub fn json(&self) -> Value {
        let c = &self.counts;
        json!({
            "target": self.target,
            "version": self.version,
            "good": self.is_good(),
            "load": self.load_json(),
            "seconds": self.seconds,
            "requests": self.requests(),
            "requests_per_s": self.requests_per_s(),
            "hit_ratio": self.hit_ratio(),
            "get": {
                "count": self.gets.len(), "per_s": self.per_second(self.gets.len()),
                "hits": c.hits, "misses": c.misses,
                "bytes_per_s": self.per_second(c.bytes_read), "latency_us": latency(&self.gets),
            },
            "set": {
                "count": self.sets.len(), "per_s": self.per_second(self.sets.len()),
                "bytes_per_s": self.per_second(c.bytes_written), "latency_us": latency(&self.sets),
            },
            "faults": c.faults,
            "fault_texts": self.faults,
            "losses": c.losses,
            "unanswered": c.unanswered,
            "late": c.late,
            "unsent": c.unsent,
            "strangers": c.strangers,
            "reconnects": c.reconnects,
            "generator": {
                "thread_cpu_s": self.thread_cpu_s,
                "busiest_share": self.busiest_thread(),
            },
            "server": self.server_cpu.map(|cpu| json!({
                "user_s": cpu.user_s, "system_s": cpu.system_s,
                "us_per_request": self.server_us(), "cycles_per_request": self.server_cycles(),
            })),
            "tsc_hz": self.tsc_hz,
            "extra": self.extra.iter().map(|e| {
                json!({ "name": e.name, "value": e.value, "unit": e.unit })
            }).collect::<Vec<_>>(),
            "warnings": self.warnings(),
        })
    }

    fn load_json(&self) -> Value {
        let load = &self.load;
        let (arrivals, rate) = match load.arrivals {
            Arrivals::Closed => ("closed", None),
            Arrivals::Uniform(rate) => ("uniform", Some(rate)),
            Arrivals::Poisson(rate) => ("poisson", Some(rate)),
        };
        json!({
            "keys": load.keys,
            "key_bytes": load.key_bytes,
            "zipf": match load.popularity {
                Popularity::Uniform => None,
                Popularity::Zipf(theta) => Some(theta),
            },
            "value": load.sizes.to_string(),
            "gets": load.ratio.0,
            "sets": load.ratio.1,
            "commands": load.dialect.name(),
            "flows": self.flows,
            "depth": self.depth,
            "arrivals": arrivals,
            "rate": rate,
            "seed": load.seed,
        })
    }
}

/// `null` where nothing was measured.
fn latency(histogram: &Histogram<u64>) -> Value {
    if histogram.is_empty() {
        return Value::Null;
    }
    let us = |ns: u64| Value::from(ns as f64 / 1000.0);
    let mut map = Map::new();
    map.insert("mean".into(), (histogram.mean() / 1000.0).into());
    map.insert("min".into(), us(histogram.min()));
    for (name, quantile) in QUANTILES {
        map.insert(name.into(), us(histogram.value_at_quantile(quantile)));
    }
    map.insert("max".into(), us(histogram.max()));
    map.into()
}
