//! What rxe0 counts.

use std::fs;

/// One of the hardware counters of rxe0's port.
pub fn count(name: &str) -> u64 {
    let path = format!("/sys/class/infiniband/rxe0/ports/1/hw_counters/{name}");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.trim().parse().expect("a number")
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
