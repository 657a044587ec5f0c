//! Words of `bench` that clap does not know: counts, rates, times, ratios.

use std::str::FromStr;
use std::time::Duration;

/// A word that is not understood, and what would be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write {0}")]
pub(super) struct WordError(&'static str);

/// Splits a number from what follows.
fn split(text: &str) -> Option<(f64, &str)> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text[..at].parse().ok().map(|number| (number, &text[at..]))
}

/// A number with k, M or G behind it.
fn scaled(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" | "m" => 1e6,
        "G" | "g" => 1e9,
        _ => return None,
    };
    Some(number * factor)
}

/// How many, above 0: `100000`, `100k`, `1.5M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count(pub(super) u32);

impl FromStr for Count {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let whole = scaled(text).filter(|n| n.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(n));
        whole.map(|n| Count(n as u32)).ok_or(WordError("a number from 1 up, such as 5000, 100k or 1M"))
    }
}

/// Per second: `300k`, `1M`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RateWord(pub(super) f64);

impl FromStr for RateWord {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let text = text.strip_suffix("/s").unwrap_or(text);
        let rate = scaled(text).filter(|rate| (0.1..=1e9).contains(rate));
        rate.map(RateWord).ok_or(WordError("requests a second, such as 5000, 300k or 1M"))
    }
}

/// How long: `10s`, `500ms`, `2m`; seconds without a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeWord(pub(super) Duration);

impl FromStr for TimeWord {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let factor = |unit| match unit {
            "us" => Some(1e-6),
            "ms" => Some(1e-3),
            "" | "s" => Some(1.0),
            "m" | "min" => Some(60.0),
            "h" => Some(3600.0),
            _ => None,
        };
        let seconds = split(text).and_then(|(n, unit)| Some(n * factor(unit)?));
        let seconds = seconds.filter(|s| (0.0..=1e6).contains(s));
        seconds
            .map(|s| TimeWord(Duration::from_secs_f64(s)))
            .ok_or(WordError("a time such as 10s, 500ms or 2m"))
    }
}

/// How long something takes that takes some time: a [`TimeWord`] above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpanWord(pub(super) Duration);

impl FromStr for SpanWord {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let TimeWord(time) = text.parse()?;
        if time < Duration::from_micros(1) {
            Err(WordError("a time above 0, such as 10s, 500ms or 2m"))
        } else {
            Ok(SpanWord(time))
        }
    }
}

/// Two weights: `7:3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RatioWord(pub(super) u32, pub(super) u32);

impl FromStr for RatioWord {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let pair = text.split_once(':').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let pair =
            pair.filter(|(a, b): &(u32, u32)| (1..=1_000_000).contains(&(u64::from(*a) + u64::from(*b))));
        pair.map(|(a, b)| RatioWord(a, b)).ok_or(WordError("GETs to SETs as in 7:3, 1:0 for GETs alone"))
    }
}

/// The exponent of a Zipf distribution.
pub(super) fn theta(text: &str) -> Result<f64, WordError> {
    let theta = text.parse().ok().filter(|theta: &f64| (0.01..=10.0).contains(theta));
    theta.ok_or(WordError("a number from 0.01 to 10, such as 0.99; --uniform makes all keys alike"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_as_people_write_them() {
        assert_eq!("100k".parse(), Ok(Count(100_000)));
        assert_eq!("1.5M".parse(), Ok(Count(1_500_000)));
        assert_eq!("300k/s".parse(), Ok(RateWord(300_000.0)));
        assert_eq!("2.5".parse(), Ok(TimeWord(Duration::from_millis(2500))));
        assert_eq!("500ms".parse(), Ok(TimeWord(Duration::from_millis(500))));
        assert_eq!("7:3".parse(), Ok(RatioWord(7, 3)));
        assert_eq!(theta("0.99"), Ok(0.99));
    }

    #[test]
    fn slips_are_refused() {
        for bad in ["", "0", "-1", "1.5", "k", "1x", "5G", "nan", "1e3"] {
            assert!(bad.parse::<Count>().is_err(), "{bad}");
        }
        for bad in ["0", "k", "-5"] {
            assert!(bad.parse::<RateWord>().is_err(), "{bad}");
        }
        for bad in ["", "s", "10 parsecs", "-1s"] {
            assert!(bad.parse::<TimeWord>().is_err(), "{bad}");
        }
        for bad in ["7", "0:0", "a:b", "7:3:1", "-1:2"] {
            assert!(bad.parse::<RatioWord>().is_err(), "{bad}");
        }
        for bad in ["0", "11", "x", "nan"] {
            assert!(theta(bad).is_err(), "{bad}");
        }
    }
}
