//! A line of statistics.

use serde_json::Value;
use std::collections::BTreeMap;

/// One line, parsed.
#[derive(Clone, Default, Debug)]
pub struct Report(Value);

impl Report {
    /// A line that is a report, if it is one.
    pub fn parse(line: &str) -> Option<Report> {
        serde_json::from_str(line).ok().map(Report)
    }

    /// The last one of a run that was taken down wholly.
    pub fn is_final(&self) -> bool {
        self.0["final"] == true && self.0["unclean"].as_array().is_some_and(Vec::is_empty)
    }

    /// Milliseconds since its process could begin to work.
    pub fn at_ms(&self) -> u64 {
        self.0["at_ms"].as_u64().unwrap_or(0)
    }

    /// A count, summed over the workers of a service (`relay`, `source`, `sink`).
    pub fn count(&self, service: &str, name: &str) -> u64 {
        self.of(service).filter_map(|w| w["counts"][name].as_u64()).sum()
    }

    /// The same of one node's workers.
    pub fn node_count(&self, node: &str, name: &str) -> u64 {
        self.workers().filter(|w| w["node"] == node).filter_map(|w| w["counts"][name].as_u64()).sum()
    }

    /// Drops by reason, summed over the workers of a service.
    pub fn drops(&self, service: &str) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for (reason, n) in self.of(service).filter_map(|w| w["drops"].as_object()).flatten() {
            *sums.entry(reason.clone()).or_default() += n.as_u64().unwrap_or(0);
        }
        sums
    }

    /// Paths of all workers that carry frames.
    pub fn paths_up(&self) -> usize {
        self.0["paths"].as_array().map_or(0, |paths| paths.iter().filter(|p| p["state"] == "up").count())
    }

    /// The smallest number of connections that any path has had.
    pub fn connections(&self) -> u64 {
        let paths = self.0["paths"].as_array().into_iter().flatten();
        paths.filter_map(|p| p["connections"].as_u64()).min().unwrap_or(0)
    }

    fn workers(&self) -> impl Iterator<Item = &Value> {
        self.0["workers"].as_array().into_iter().flatten()
    }

    fn of<'a>(&'a self, service: &'a str) -> impl Iterator<Item = &'a Value> {
        self.workers().filter(move |w| w["service"] == service)
    }
}
