//! When the next request is due.

use super::random::Random;
use super::settings::Arrivals;
use rdma_engine::types::Time;

/// Gives due times, one after the other.
#[derive(Debug)]
pub(super) struct Pace {
    arrivals: Arrivals,
    /// Nanoseconds since the start at which the next one is due; a fraction, so that nothing adds up.
    next_ns: f64,
    start: Time,
    random: Random,
}

impl Pace {
    pub(super) fn new(arrivals: Arrivals, start: Time, mut random: Random) -> Self {
        let next_ns = match arrivals {
            Arrivals::Closed => 0.0,
            // Several clients do not beat in time.
            Arrivals::Uniform(rate) | Arrivals::Poisson(rate) => random.unit() * 1e9 / rate,
        };
        Pace { arrivals, next_ns, start, random }
    }

    /// When the next one is due, `now` for a closed loop.
    #[inline]
    pub(super) fn due(&self, now: Time) -> Time {
        match self.arrivals {
            Arrivals::Closed => now,
            Arrivals::Uniform(_) | Arrivals::Poisson(_) => self.start.after_ns(self.next_ns as u64),
        }
    }

    /// One has begun.
    #[inline]
    pub(super) fn advance(&mut self) {
        match self.arrivals {
            Arrivals::Closed => {}
            Arrivals::Uniform(rate) => self.next_ns += 1e9 / rate,
            Arrivals::Poisson(rate) => self.next_ns -= self.random.unit().ln() * 1e9 / rate,
        }
    }

    /// How many were due before `end` and have not begun.
    pub(super) fn skip_to(&mut self, end: Time) -> u64 {
        let mut skipped = 0;
        while self.arrivals != Arrivals::Closed && self.due(end) < end {
            self.advance();
            skipped += 1;
        }
        skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(arrivals: Arrivals, n: usize) -> Vec<f64> {
        let mut pace = Pace::new(arrivals, Time(1000), Random::new(5));
        let mut next = || {
            let due = pace.due(Time(0)).0 as f64;
            pace.advance();
            due
        };
        (0..n).map(|_| next()).collect()
    }

    #[test]
    fn uniform_arrivals_do_not_drift() {
        let times = times(Arrivals::Uniform(300_000.0), 300_001);
        assert!((times[300_000] - times[0] - 1e9).abs() <= 2.0);
    }

    #[test]
    fn poisson_arrivals_have_their_rate_and_their_spread() {
        let times = times(Arrivals::Poisson(1e6), 200_001);
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1000.0).abs() < 15.0, "{mean}");
        assert!((variance.sqrt() - 1000.0).abs() < 30.0, "{variance}");
    }

    #[test]
    fn what_was_due_and_never_began_is_known() {
        let mut pace = Pace::new(Arrivals::Uniform(1e6), Time(0), Random::new(1));
        assert_eq!(pace.skip_to(Time(1_000_000)), 1000);
        assert_eq!(Pace::new(Arrivals::Closed, Time(0), Random::new(1)).skip_to(Time(9)), 0);
    }
}
