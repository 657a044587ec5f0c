//! The sending rate of a queue pair under congestion: DCQCN (Zhu et al., SIGCOMM 2015), on the caller's clock.
//!
//! A queue pair sends as fast as it can until the first notification. From then on it has a rate, which every
//! notification cuts and which time and bytes sent bring back: first halfway to where it was before the cut
//! (fast recovery), then further by small steps, then by large ones. At the line rate the limit falls away. Nothing
//! runs in the background: what time has done to the rate is worked out when the next frame is due.

use crate::types::Time;

/// Rate control by congestion notifications.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dcqcn {
    /// Rate at which the first notification finds a queue pair, and at which the limit falls away, in Mb/s.
    pub line_rate_mbps: u32,
    /// No queue pair is cut below, in Mb/s.
    pub min_rate_mbps: u32,
    /// Small step of the target rate, in Mb/s.
    pub additive_mbps: u32,
    /// Large step of the target rate, in Mb/s.
    pub hyper_mbps: u32,
    /// Increases in each of fast recovery and additive increase.
    pub threshold: u32,
    /// An increase is due after this time.
    pub increase_ns: u64,
    /// An increase is due after so many bytes.
    pub increase_bytes: u64,
    /// The estimate of congestion decays after this time without a notification.
    pub alpha_ns: u64,
    /// The estimate moves by 1 / 2^this of its distance.
    pub alpha_shift: u8,
    /// At most one cut in this time, whatever the peer sends.
    pub cut_ns: u64,
    /// Bytes that may leave at once when the queue pair was idle.
    pub burst_bytes: u32,
}

impl Dcqcn {
    /// The published parameters for a port of this speed in Mb/s; below 1 Gb/s a tenth of it is the least rate.
    pub const fn new(line_rate_mbps: u32) -> Self {
        Dcqcn {
            line_rate_mbps,
            min_rate_mbps: if line_rate_mbps < 1000 { line_rate_mbps / 10 } else { 100 },
            additive_mbps: 40,
            hyper_mbps: 200,
            threshold: 5,
            increase_ns: 55_000,
            increase_bytes: 10_000_000,
            alpha_ns: 55_000,
            alpha_shift: 8,
            cut_ns: 25_000,
            burst_bytes: 16_384,
        }
    }
}

/// The estimate of congestion that means "all frames are marked".
const ALL: u32 = 1 << 16;
/// Steps of time worked out for one frame; the rest waits for the next one.
const MAX_STEPS: u32 = 4096;

/// Rate and token bucket of one queue pair. Rates are in kb/s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateControl {
    /// False while the queue pair may send as it likes.
    limited: bool,
    rate: u64,
    target: u64,
    /// Estimate of congestion, 0 to [`ALL`].
    alpha: u32,
    /// Increases since the last cut, by time and by bytes.
    by_time: u32,
    by_bytes: u32,
    /// Bytes sent since the last increase by bytes.
    bytes: u64,
    next_increase: Time,
    next_alpha: Time,
    next_cut: Time,
    /// When the bucket holds a token for the next frame.
    next_frame: Time,
}

impl RateControl {
    pub(crate) const fn new() -> Self {
        RateControl {
            limited: false,
            rate: 0,
            target: 0,
            alpha: ALL,
            by_time: 0,
            by_bytes: 0,
            bytes: 0,
            next_increase: Time::NEVER,
            next_alpha: Time::NEVER,
            next_cut: Time(0),
            next_frame: Time(0),
        }
    }

    /// True if frames have to wait for tokens.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.limited
    }

    /// The rate in kb/s, if there is a limit.
    #[cfg(test)]
    fn rate(&self) -> Option<u64> {
        self.limited.then_some(self.rate)
    }

    /// The peer told of congestion.
    pub(crate) fn cut(&mut self, with: &Dcqcn, now: Time) {
        self.advance(with, now);
        if !self.limited {
            (self.limited, self.rate, self.alpha) = (true, line(with), ALL);
            self.next_frame = now;
        } else if now < self.next_cut {
            return;
        }
        self.target = self.rate;
        let cut = self.rate * u64::from(self.alpha) / u64::from(2 * ALL);
        self.rate = (self.rate - cut).max(u64::from(with.min_rate_mbps.max(1)) * 1000);
        self.alpha += (ALL - self.alpha) >> with.alpha_shift;
        (self.by_time, self.by_bytes, self.bytes) = (0, 0, 0);
        self.next_increase = now.after_ns(with.increase_ns.max(1));
        self.next_alpha = now.after_ns(with.alpha_ns.max(1));
        self.next_cut = now.after_ns(with.cut_ns);
    }

    /// When the next frame may leave.
    pub(crate) fn may_send_at(&mut self, with: &Dcqcn, now: Time) -> Time {
        self.advance(with, now);
        if self.limited { self.next_frame } else { Time(0) }
    }

    /// A frame of so many bytes left.
    pub(crate) fn sent(&mut self, with: &Dcqcn, now: Time, bytes: usize) {
        let bytes = bytes as u64;
        let full = Time(now.0.saturating_sub(self.ns_of(with.burst_bytes.into())));
        self.next_frame = self.next_frame.max(full).after_ns(self.ns_of(bytes));
        self.bytes += bytes;
        if self.bytes >= with.increase_bytes {
            self.bytes = 0;
            self.by_bytes += 1;
            self.increase(with);
        }
    }

    /// Time that so many bytes take at the present rate.
    fn ns_of(&self, bytes: u64) -> u64 {
        bytes * 8_000_000 / self.rate.max(1)
    }

    /// What the time up to `now` has done.
    fn advance(&mut self, with: &Dcqcn, now: Time) {
        for _ in 0..MAX_STEPS {
            if !self.limited || self.next_increase.min(self.next_alpha) > now {
                return;
            }
            if self.next_alpha <= self.next_increase {
                self.alpha -= self.alpha >> with.alpha_shift;
                self.next_alpha = self.next_alpha.after_ns(with.alpha_ns.max(1));
            } else {
                self.by_time += 1;
                self.next_increase = self.next_increase.after_ns(with.increase_ns.max(1));
                self.increase(with);
            }
        }
    }

    /// One step up.
    fn increase(&mut self, with: &Dcqcn) {
        let (most, least) = (self.by_time.max(self.by_bytes), self.by_time.min(self.by_bytes));
        if least > with.threshold {
            self.target += u64::from(with.hyper_mbps) * 1000;
        } else if most > with.threshold {
            self.target += u64::from(with.additive_mbps) * 1000;
        }
        self.target = self.target.min(line(with));
        self.rate = (self.rate + self.target).div_ceil(2);
        // Halving the distance never ends; 1 part in 1000 is close enough.
        self.limited = self.rate < line(with) - line(with) / 1000;
    }
}

fn line(with: &Dcqcn) -> u64 {
    u64::from(with.line_rate_mbps.max(with.min_rate_mbps).max(1)) * 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITH: Dcqcn = Dcqcn::new(10_000);

    #[test]
    fn the_first_notification_halves_the_line_rate() {
        let mut rate = RateControl::new();
        assert_eq!((rate.rate(), rate.may_send_at(&WITH, Time(5))), (None, Time(0)));
        rate.cut(&WITH, Time(1000));
        assert_eq!(rate.rate(), Some(5_000_000));
        rate.cut(&WITH, Time(1001));
        assert_eq!(rate.rate(), Some(5_000_000), "one cut in a while, whatever the peer sends");
        for n in 1..1000 {
            rate.cut(&WITH, Time(1000 + n * 50_000));
        }
        assert_eq!(rate.rate(), Some(100_000), "and none below the least");
    }

    #[test]
    fn time_brings_the_rate_back_and_the_limit_falls_away() {
        let mut rate = RateControl::new();
        rate.cut(&WITH, Time(0));
        rate.may_send_at(&WITH, Time(5 * 55_000));
        let recovered = rate.rate().unwrap();
        assert!((9_800_000..10_000_000).contains(&recovered), "fast recovery: {recovered}");
        rate.may_send_at(&WITH, Time(1_000_000_000));
        assert_eq!(rate.rate(), None);
    }

    #[test]
    fn frames_leave_at_the_rate_after_a_burst() {
        let mut rate = RateControl::new();
        let with = Dcqcn { increase_ns: 1 << 50, ..WITH };
        rate.cut(&with, Time(1_000_000));
        // 5 Gb/s are 1.6 ns a byte.
        let (mut now, mut bytes) = (Time(2_000_000), 0);
        while now < Time(3_000_000) {
            let at = rate.may_send_at(&with, now);
            if at <= now {
                rate.sent(&with, now, 1000);
                bytes += 1000;
            } else {
                now = at;
            }
        }
        let rest = 625_000 + u64::from(with.burst_bytes);
        assert!((rest - 2000..rest + 2000).contains(&bytes), "{bytes} of {rest}");
    }
}
