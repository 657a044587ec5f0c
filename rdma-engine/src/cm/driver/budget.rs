//! How many answers a second somebody is worth who may not be worth any.

use crate::types::Time;

/// A bucket of tokens that fills with time.
#[derive(Clone, Debug)]
pub struct Budget {
    per_s: u64,
    /// Tokens times 10^9.
    filled: u64,
    at: Time,
}

const TOKEN: u64 = 1_000_000_000;

impl Budget {
    /// `per_s` tokens a second, and as many at once after a quiet second.
    pub fn new(now: Time, per_s: u32) -> Self {
        Budget { per_s: u64::from(per_s), filled: u64::from(per_s) * TOKEN, at: now }
    }

    /// Takes a token if there is one.
    pub fn take(&mut self, now: Time) -> bool {
        let full = self.per_s * TOKEN;
        self.filled = self.filled.saturating_add(now.since_ns(self.at).saturating_mul(self.per_s)).min(full);
        self.at = self.at.max(now);
        let taken = self.filled >= TOKEN;
        if taken {
            self.filled -= TOKEN;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_rate() {
        let mut budget = Budget::new(Time(0), 10);
        assert_eq!((0..50).filter(|_| budget.take(Time(0))).count(), 10);
        assert!(!budget.take(Time(99_999_999)));
        assert!(budget.take(Time(100_000_000)));
        assert!(!budget.take(Time(100_000_000)));
        let later = Time(3_600_000_000_000);
        assert_eq!((0..50).filter(|_| budget.take(later)).count(), 10, "never more than a second's worth");
        assert!(!Budget::new(Time(0), 0).take(Time::NEVER));
    }
}
