//! Bytes, durations and lists as people read them.

use std::fmt;

/// A number of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0)
    }
}

/// A duration in nanoseconds, shown in the unit that keeps it short.
#[derive(Clone, Copy, Debug)]
pub(super) struct Duration(pub(super) u64);

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0;
        match ns {
            0..1_000 => write!(f, "{ns} ns"),
            1_000..1_000_000 => write!(f, "{}.{} us", ns / 1_000, ns % 1_000 / 100),
            1_000_000..1_000_000_000 => write!(f, "{}.{:02} ms", ns / 1_000_000, ns % 1_000_000 / 10_000),
            _ => write!(f, "{}.{:03} s", ns / 1_000_000_000, ns % 1_000_000_000 / 1_000_000),
        }
    }
}

/// `n` of something: "1 frame", "2 frames".
#[derive(Clone, Copy, Debug)]
pub(super) struct Count<'a>(pub(super) u64, pub(super) &'a str);

impl fmt::Display for Count<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} {}{plural}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_choose_their_unit() {
        let shown = [0, 999, 1_500, 65_000, 655_360_000, 2_150_000_000].map(|ns| Duration(ns).to_string());
        assert_eq!(shown, ["0 ns", "999 ns", "1.5 us", "65.0 us", "655.36 ms", "2.150 s"]);
    }

    #[test]
    fn counts_know_one_from_many() {
        assert_eq!([0, 1, 2].map(|n| Count(n, "frame").to_string()), ["0 frames", "1 frame", "2 frames"]);
    }
}
