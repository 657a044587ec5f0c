//! What rxe0 counts.

use std::fs;

const DIRECTORY: &str = "/sys/class/infiniband/rxe0/ports/1/hw_counters";

/// One of the hardware counters of rxe0's port.
pub fn count(name: &str) -> u64 {
    let path = format!("{DIRECTORY}/{name}");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.trim().parse().expect("a number")
}

/// All of them that count something, by name: one is how long the kernel takes what it has read for new.
pub fn all() -> Vec<(String, u64)> {
    let entries = fs::read_dir(DIRECTORY).expect("counters");
    let names = entries.map(|entry| entry.expect("a counter").file_name().into_string().expect("a name"));
    names.filter(|name| name != "lifespan").map(|name| (name.clone(), count(&name))).collect()
}

/// How much these counters have grown since it was made.
pub struct Growth<const N: usize> {
    names: [&'static str; N],
    before: [u64; N],
}

impl<const N: usize> Growth<N> {
    pub fn of(names: [&'static str; N]) -> Self {
        Growth { names, before: names.map(count) }
    }

    pub fn so_far(&self) -> [u64; N] {
        std::array::from_fn(|i| count(self.names[i]) - self.before[i])
    }
}
