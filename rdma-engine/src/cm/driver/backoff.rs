//! When to try again.

use super::super::session::End;

/// Bounded exponential delays with jitter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// First delay in milliseconds; doubled with each failure.
    pub base_ms: u32,
    /// Longest delay in milliseconds. With 500 a peer that returns is met again within half a second.
    pub cap_ms: u32,
    /// Delay after a refusal that only a change of settings can cure, in milliseconds.
    pub refused_ms: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { base_ms: 50, cap_ms: 500, refused_ms: 2_000 }
    }
}

/// The delays of one connector.
pub(super) struct Delays {
    backoff: Backoff,
    failures: u32,
    random: u64,
}

impl Delays {
    /// `seed` keeps many clients of one server from coming back in step.
    pub(super) fn new(backoff: Backoff, seed: u64) -> Self {
        Delays { backoff, failures: 0, random: seed | 1 }
    }

    /// A session worked: the next failure begins with the first delay.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Nanoseconds to wait after `end`: between half and all of the delay.
    pub(super) fn after(&mut self, end: &End) -> u64 {
        let delay_ms = match end {
            End::RefusedPeer(refusal) | End::RefusedByPeer(refusal) if !refusal.reason.is_transient() => {
                self.backoff.refused_ms
            }
            _ => self.next(),
        };
        let ns = u64::from(delay_ms) * 1_000_000;
        ns / 2 + self.next_random() % (ns / 2 + 1)
    }

    fn next(&mut self) -> u32 {
        let factor = 1u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = (self.failures + 1).min(31);
        self.backoff.base_ms.saturating_mul(factor).min(self.backoff.cap_ms)
    }

    /// xorshift: jitter needs no secrecy.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::refuse::{Refusal, RefuseReason};
    use super::super::super::session::LostReason;
    use super::*;

    const LOST: End = End::Lost(LostReason::Closed);

    #[test]
    fn delays_double_up_to_the_cap_and_start_again_after_success() {
        let mut delays = Delays::new(Backoff::default(), 42);
        for full_ms in [50, 100, 200, 400, 500, 500] {
            let ms = delays.after(&LOST) as f64 / 1e6;
            assert!(ms >= f64::from(full_ms) / 2.0 && ms <= f64::from(full_ms), "{ms} of {full_ms}");
        }
        for _ in 0..100 {
            assert!(delays.after(&LOST) <= 500_000_000);
        }
        delays.succeeded();
        assert!(delays.after(&LOST) <= 50_000_000);
    }

    #[test]
    fn a_refusal_that_needs_a_human_waits_longer() {
        let mut delays = Delays::new(Backoff::default(), 42);
        let refused = |reason| End::RefusedByPeer(Refusal::new(reason, ""));
        assert!(delays.after(&refused(RefuseReason::AuthFailed)) >= 1_000_000_000);
        assert!(delays.after(&refused(RefuseReason::Busy)) <= 50_000_000);
    }

    #[test]
    fn clients_do_not_come_back_in_step() {
        let delay = |seed| Delays::new(Backoff::default(), seed).after(&LOST);
        let mut all: Vec<u64> =
            (1..100).map(|seed| delay(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed))).collect();
        all.sort_unstable();
        all.dedup();
        assert!(all.len() > 90);
    }
}
