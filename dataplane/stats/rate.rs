//! What a worker did in a second, and how numbers are written in tables.

use super::{Counter, Tally};

/// Rates of one worker between two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    /// Frames from the RX queue, a second.
    pub(super) rx: f64,
    /// Frames to the TX queue, a second.
    pub(super) tx: f64,
    /// Relay: frames sent to the peer, a second.
    pub(super) sent: f64,
    /// Relay: frames that came from the peer, a second.
    pub(super) received: f64,
    /// Bits of frames at the port, both ways, 10^9 a second. Without preamble, checksum and gap.
    pub(super) gbps: f64,
    /// Share of the time that went into turns that did something, in percent; none without turns. What is left over is idle turns,
    /// sleep, and turns of other workers of the lcore.
    pub(super) busy: Option<f64>,
    /// Cycles of those turns for each frame that came in or was made; none without frames.
    pub(super) cycles: Option<f64>,
}

impl Rates {
    /// Rates of what was counted from `before` to `now`, which took `seconds` of `tsc_hz` cycles each.
    pub(super) fn between(now: &Tally, before: Option<&Tally>, seconds: f64, tsc_hz: u64) -> Self {
        let t = before.map_or_else(|| now.clone(), |b| now.since(b));
        let count = |c| t.value(c) as f64;
        let per_second = |c| count(c) / seconds;
        let busy = count(Counter::BusyCycles);
        let has_turned = busy + count(Counter::IdleCycles) > 0.0 && tsc_hz > 0;
        let frames = count(Counter::RxFrames) + count(Counter::FramesReceived) + count(Counter::FramesMade);
        Rates {
            rx: per_second(Counter::RxFrames),
            tx: per_second(Counter::TxFrames),
            sent: per_second(Counter::FramesSent),
            received: per_second(Counter::FramesReceived),
            gbps: gigabits(t.value(Counter::RxBytes) + t.value(Counter::TxBytes), seconds),
            busy: has_turned.then(|| (100.0 * busy / (seconds * tsc_hz as f64)).min(100.0)),
            cycles: (frames > 0.0).then(|| busy / frames),
        }
    }
}

/// Seconds between two moments in milliseconds, never 0.
pub(super) fn seconds(now_ms: u64, before_ms: u64) -> f64 {
    now_ms.saturating_sub(before_ms).max(1) as f64 / 1000.0
}

/// 10^9 bits a second.
pub(super) fn gigabits(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 * 8.0 / seconds / 1e9
}

/// Three digits and the unit: `812`, `9.30k`, `14.9M`.
pub(super) fn short(value: f64) -> String {
    let mut value = value;
    for unit in ["", "k", "M", "G", "T"] {
        if value < 999.5 {
            return if unit.is_empty() && (value >= 9.95 || value.fract() == 0.0) {
                format!("{value:.0}")
            } else if unit.is_empty() {
                format!("{value:.1}")
            } else {
                format!("{}{unit}", three_digits(value))
            };
        }
        value /= 1000.0;
    }
    format!("{value:.0}P")
}

/// Three digits of a value below 1000: `0.42`, `14.9`, `100`.
pub(super) fn three_digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// A total with a comma before every third digit.
pub(super) fn grouped(n: u64) -> String {
    grouped_by(',', n)
}

/// A number with `mark` between its thousands.
pub(crate) fn grouped_by(mark: char, n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(mark);
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let all = [0.0, 0.5, 7.0, 9.96, 812.0, 999.4, 999.6, 9_300.0, 99_960.0, 14_880_952.0, 2.5e9];
        let text: Vec<String> = all.into_iter().map(short).collect();
        assert_eq!(text, ["0", "0.5", "7", "10", "812", "999", "1.00k", "9.30k", "100k", "14.9M", "2.50G"]);
        assert_eq!([0.421, 14.94, 99.97].map(three_digits), ["0.42", "14.9", "100"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn rates_are_of_the_interval() {
        let (mut before, mut now) = (Tally::default(), Tally::default());
        before.add(Counter::RxFrames, 100);
        now.add(Counter::RxFrames, 300);
        now.add(Counter::RxBytes, 250_000_000);
        now.add(Counter::BusyCycles, 40_000);
        now.add(Counter::IdleCycles, 120_000);
        let r = Rates::between(&now, Some(&before), 2.0, 80_000);
        assert_eq!((r.rx, r.gbps, r.busy, r.cycles), (100.0, 1.0, Some(25.0), Some(200.0)));
        // A worker that sleeps counts no cycles meanwhile: it is not busy then.
        assert_eq!(Rates::between(&now, Some(&before), 2.0, 800_000).busy, Some(2.5));
        // Counts are told every 256 turns, so that some are of the time before.
        assert_eq!(Rates::between(&now, Some(&before), 2.0, 10_000).busy, Some(100.0));
        assert_eq!(Rates::between(&now, Some(&before), 2.0, 0).busy, None);
        let idle = Rates::between(&now, Some(&now), 2.0, 80_000);
        assert_eq!((idle.rx, idle.busy, idle.cycles), (0.0, None, None));
    }
}
