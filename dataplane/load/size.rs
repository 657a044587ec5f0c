//! How long values are.

use super::random::Random;
use super::value::{VALUE_BYTES_MAX, VALUE_BYTES_MIN};
use std::fmt;
use std::str::FromStr;

/// Lengths of values: one, a range, or a list with weights. Written `4KiB`, `64..64KiB` or `64:7,4KiB:2,64KiB:1`.
#[derive(Clone, PartialEq, Debug)]
pub enum Sizes {
    /// All alike. Bytes.
    Fixed(u32),
    /// From the first to the second, their logarithms alike: as many between 64 and 128 as between 4096 and 8192. Bytes.
    LogUniform(u32, u32),
    /// Length in bytes and weight of each.
    Weighted(Vec<(u32, u32)>),
}

/// Text that is no length, or none that a value can have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SizeError {
    /// Not a number with a unit.
    #[error("`{0}` is no size; write 64, 4KiB or 1MiB")]
    Form(String),
    /// Too small or too large.
    #[error(
        "a value of {0} bytes; {VALUE_BYTES_MIN} to {VALUE_BYTES_MAX} are possible: it carries what it is verified by"
    )]
    Bounds(u64),
    /// The second is not larger than the first.
    #[error("`{0}` is no range; write the smaller size first, such as 64..64KiB")]
    Range(String),
    /// No weight, or none at all.
    #[error("`{0}` has no weight; write size:weight, such as 64:7,4KiB:3, with weights from 1 to 1000000")]
    Weight(String),
}

/// Bytes from text such as `64`, `4KiB`, `1MiB`, `10kB`.
pub(crate) fn bytes(text: &str) -> Result<u64, SizeError> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unit: u64 = match text[digits..].trim() {
        "" | "B" => 1,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "kB" => 1000,
        "MB" => 1_000_000,
        _ => return Err(SizeError::Form(text.into())),
    };
    let number: u64 = text[..digits].parse().map_err(|_| SizeError::Form(text.into()))?;
    number.checked_mul(unit).ok_or_else(|| SizeError::Form(text.into()))
}

fn length(text: &str) -> Result<u32, SizeError> {
    let bytes = bytes(text.trim())?;
    u32::try_from(bytes)
        .ok()
        .filter(|n| (VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(n))
        .ok_or(SizeError::Bounds(bytes))
}

impl FromStr for Sizes {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        if let Some((least, most)) = text.split_once("..") {
            let (least, most) = (length(least)?, length(most)?);
            return if least < most {
                Ok(Sizes::LogUniform(least, most))
            } else {
                Err(SizeError::Range(text.into()))
            };
        }
        if !text.contains([':', ',']) {
            return Ok(Sizes::Fixed(length(text)?));
        }
        let entry = |part: &str| {
            let (size, weight) = part.split_once(':').ok_or_else(|| SizeError::Weight(part.into()))?;
            let weight = weight.trim().parse().ok().filter(|w| (1..=1_000_000).contains(w));
            Ok((length(size)?, weight.ok_or_else(|| SizeError::Weight(part.into()))?))
        };
        text.split(',').map(entry).collect::<Result<_, _>>().map(Sizes::Weighted)
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Fixed(n) => write!(f, "{n} B"),
            Sizes::LogUniform(least, most) => write!(f, "{least} to {most} B, log-uniform"),
            Sizes::Weighted(list) => {
                let parts: Vec<String> = list.iter().map(|(n, weight)| format!("{n} B x {weight}")).collect();
                f.write_str(&parts.join(", "))
            }
        }
    }
}

impl Sizes {
    /// The longest.
    pub fn longest(&self) -> u32 {
        match self {
            Sizes::Fixed(n) | Sizes::LogUniform(_, n) => *n,
            Sizes::Weighted(list) => list.iter().map(|entry| entry.0).max().unwrap_or(VALUE_BYTES_MIN),
        }
    }

    /// One of them.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u32 {
        match self {
            Sizes::Fixed(n) => *n,
            Sizes::LogUniform(least, most) => {
                let ratio = (f64::from(*most) + 1.0) / f64::from(*least);
                let drawn = f64::from(*least) * ratio.powf(1.0 - random.unit());
                (drawn as u32).clamp(*least, *most)
            }
            Sizes::Weighted(list) => {
                let all: u64 = list.iter().map(|entry| u64::from(entry.1)).sum();
                let mut at = random.below(all);
                for &(n, weight) in list {
                    if at < u64::from(weight) {
                        return n;
                    }
                    at -= u64::from(weight);
                }
                unreachable!("below the sum of all weights")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_people_do() {
        let good = [
            ("64", Sizes::Fixed(64)),
            ("4KiB", Sizes::Fixed(4096)),
            ("1MiB", Sizes::Fixed(1 << 20)),
            ("64..64KiB", Sizes::LogUniform(64, 65_536)),
            ("64:7, 4KiB:3", Sizes::Weighted(vec![(64, 7), (4096, 3)])),
        ];
        for (text, sizes) in good {
            assert_eq!(text.parse(), Ok(sizes), "{text}");
        }
        for bad in ["", "x", "4KB", "23", "1GiB", "64..64", "128..64", "64:0", "64,128:1", "64:x", "-1"] {
            assert!(bad.parse::<Sizes>().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_octave_is_as_likely() {
        let (sizes, mut random) = (Sizes::LogUniform(64, 65_535), Random::new(3));
        let mut octaves = [0u32; 10];
        for _ in 0..100_000 {
            octaves[(sizes.draw(&mut random).ilog2() - 6) as usize] += 1;
        }
        assert!(octaves.iter().all(|n| n.abs_diff(10_000) < 600), "{octaves:?}");
    }

    #[test]
    fn weights_are_kept() {
        let (sizes, mut random) = (Sizes::Weighted(vec![(64, 7), (4096, 2), (65_536, 1)]), Random::new(4));
        let drawn: Vec<u32> = (0..100_000).map(|_| sizes.draw(&mut random)).collect();
        for (n, expected) in [(64, 70_000_usize), (4096, 20_000), (65_536, 10_000)] {
            assert!(drawn.iter().filter(|d| **d == n).count().abs_diff(expected) < 900);
        }
    }
}
