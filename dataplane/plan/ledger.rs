//! What the plan collects on its way: problems, warnings and the rules it applied.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::AppliedRule;
use crate::config::{KeyPath, Problem};

/// Problems, warnings and rules.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
    pub(super) rules: Vec<AppliedRule>,
}

impl Ledger {
    /// Refuses the value at `at`.
    pub(super) fn refuse(&mut self, at: Vec<KeyPath>, what: impl Into<String>, remedy: impl Into<String>) {
        self.problems.push(Problem { at, default: None, what: what.into(), remedy: remedy.into() });
    }

    /// Refuses the value at `at`, which is `value` when the file does not set it.
    pub(super) fn refuse_value(
        &mut self,
        at: Vec<KeyPath>,
        value: impl Display,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let default = Some(value.to_string());
        self.problems.push(Problem { at, default, what: what.into(), remedy: remedy.into() });
    }

    /// Notes something that is allowed but probably not meant.
    pub(super) fn warn(&mut self, at: Vec<KeyPath>, what: impl Into<String>, remedy: impl Into<String>) {
        self.warnings.push(Problem { at, default: None, what: what.into(), remedy: remedy.into() });
    }

    /// Records a rule.
    pub(super) fn rule(
        &mut self,
        name: &'static str,
        subject: impl Into<String>,
        inputs: impl Into<String>,
        result: impl Into<String>,
    ) {
        let (subject, inputs, result) = (subject.into(), inputs.into(), result.into());
        self.rules.push(AppliedRule { name, subject, inputs, result });
    }

    /// `value`, or `default` when it is not set. Outside `range` it is refused and the default, or the nearest bound,
    /// is used, so that the rest of the plan can still be looked at.
    pub(super) fn number<T>(
        &mut self,
        at: Vec<KeyPath>,
        value: Option<T>,
        default: T,
        range: RangeInclusive<T>,
        unit: &str,
    ) -> T
    where
        T: PartialOrd + Display + Copy,
    {
        let chosen = value.unwrap_or(default);
        if range.contains(&chosen) {
            return chosen;
        }
        let (low, high) = (*range.start(), *range.end());
        let space = if unit.is_empty() { "" } else { " " };
        let remedy = format!("give a number from {low} to {high}{space}{unit}");
        self.refuse_value(at, chosen, "out of range", remedy);
        if range.contains(&default) {
            default
        } else if chosen > high {
            high
        } else {
            low
        }
    }
}

/// `1 worker`, `2 workers`.
pub(super) fn counted(count: u32, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Places of a key that a node may have of its own: `node[n].TABLE.KEY`, else `SHARED.KEY`.
pub(super) fn own_or_shared(node: usize, table: &str, shared: &[&str], key: &str) -> Vec<KeyPath> {
    let own = KeyPath::item("node", node).key(table);
    let own = key.split('.').fold(own, |path, step| path.key(step));
    let base = shared.iter().fold(KeyPath::default(), |path, step| path.key(step));
    let base = key.split('.').fold(base, |path, step| path.key(step));
    vec![own, base]
}

/// Places of a key of `[fabric]` for node `node`.
pub(super) fn fabric_at(node: usize, key: &str) -> Vec<KeyPath> {
    own_or_shared(node, "fabric", &["fabric"], key)
}

/// Places of a key of `[service.SERVICE]` for node `node`; where neither is set, the node is shown.
pub(super) fn service_at(node: usize, service: &str, key: &str) -> Vec<KeyPath> {
    let mut at = own_or_shared(node, service, &["service", service], key);
    at.push(at[0].clone());
    at
}
