//! Files that pre-shared keys come from: the only thing of a plan that lies outside of the configuration.

use super::Plan;
use super::access::halves;
use super::ledger::fabric_at;
use crate::config::{KeySource, Problem};

/// What is wrong with the key files of a plan: not there, not to be read, open to others, no key in them.
pub fn key_file_problems(plan: &Plan) -> Vec<Problem> {
    let sources = plan.nodes.iter().enumerate().filter_map(|(index, node)| {
        let source = node.fabric.as_ref()?.key.as_ref()?;
        matches!(source, KeySource::File(_)).then_some((index, source))
    });
    let problem = |(index, source): (usize, &KeySource)| {
        let error = source.load().err()?;
        let (what, remedy) = halves(&error.to_string(), "make one with: openssl rand -hex 32");
        Some(Problem { at: fabric_at(index, "key_file"), default: None, what, remedy })
    };
    sources.filter_map(problem).collect()
}
