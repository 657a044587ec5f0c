//! What the benchmarks of whole programs have in common.

use std::fs;

/// The machine, in a line.
pub(crate) fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    format!("machine: {}, {cpus} CPUs", cpu_model())
}

/// The middle of the figures, which it sorts.
pub(crate) fn median(figures: &mut [f64]) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find_map(|l| l.strip_prefix("model name"));
    line.map_or("unknown CPU".into(), |l| l.trim_start_matches(['\t', ' ', ':']).to_owned())
}
