//! Decimal numbers as memcached reads and writes them.
//!
//! It reads with C's `strtoul` and its kin: white space and a sign may come first, white space and anything may follow,
//! what is beyond 64 bits is refused and what is beyond 32 bits is cut off where 32 are wanted.

/// Digits of the largest `u64`.
pub const DIGITS_MAX: usize = 20;

/// What C calls a space.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// A sign and digits as they were written.
struct Written {
    negative: bool,
    /// `None` above `u64::MAX`.
    magnitude: Option<u64>,
}

/// Reads sign and digits; `None` when there are no digits or something but white space or NUL follows them.
fn written(text: &[u8]) -> Option<Written> {
    let start = text.iter().position(|&b| !is_space(b))?;
    let text = &text[start..];
    let (negative, text) = match text.first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let ends = text.get(digits).is_none_or(|&b| is_space(b) || b == 0);
    if digits == 0 || !ends {
        return None;
    }
    let add = |sum: u64, &digit: &u8| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    Some(Written { negative, magnitude: text[..digits].iter().try_fold(0, add) })
}

/// Reads an unsigned 64-bit number. A minus sign is taken as long as the result, modulo 2^64, is below 2^63.
#[must_use]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    let written = written(text)?;
    let magnitude = written.magnitude?;
    let value = if written.negative { magnitude.wrapping_neg() } else { magnitude };
    let has_minus = || text.iter().take_while(|&&b| b != 0).any(|&b| b == b'-');
    if value > i64::MAX as u64 && has_minus() { None } else { Some(value) }
}

/// Reads an unsigned number and keeps its low 32 bits.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "so does memcached")]
pub fn parse_u32(text: &[u8]) -> Option<u32> {
    parse_u64(text).map(|value| value as u32)
}

/// Reads a signed 64-bit number and keeps its low 32 bits.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "so does memcached")]
pub fn parse_i32(text: &[u8]) -> Option<i32> {
    let written = written(text)?;
    let magnitude = written.magnitude?;
    let value =
        if written.negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() };
    value.map(|value| value as i32)
}

/// A number in decimal.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    digits: [u8; DIGITS_MAX],
    start: usize,
}

impl Decimal {
    /// Writes `value`.
    #[must_use]
    pub fn new(mut value: u64) -> Self {
        let mut decimal = Self { digits: [b'0'; DIGITS_MAX], start: DIGITS_MAX };
        loop {
            decimal.start -= 1;
            decimal.digits[decimal.start] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                return decimal;
            }
        }
    }

    /// The digits, at least one.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_strtoull_reads() {
        for (text, value) in [
            ("0", Some(0)),
            ("007", Some(7)),
            ("+5", Some(5)),
            ("\t 5", Some(5)),
            ("5 6", Some(5)),
            ("5\r\n", Some(5)),
            ("5\0x", Some(5)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-1", None),
            ("-0", Some(0)),
            ("-18446744073709551615", Some(1)),
            ("18446744073709551615 -", None),
            ("", None),
            (" ", None),
            ("+", None),
            ("--1", None),
            ("5x", None),
            ("0x10", None),
        ] {
            assert_eq!(parse_u64(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn cuts_off_what_is_beyond_32_bits() {
        assert_eq!(parse_u32(b"4294967295"), Some(u32::MAX));
        assert_eq!(parse_u32(b"4294967297"), Some(1));
        assert_eq!(parse_i32(b"4294967297"), Some(1));
        assert_eq!(parse_i32(b"2147483648"), Some(i32::MIN));
        assert_eq!(parse_i32(b"-1"), Some(-1));
        assert_eq!(parse_i32(b"-9223372036854775808"), Some(0));
        assert_eq!(parse_i32(b"-9223372036854775809"), None);
        assert_eq!(parse_i32(b"9223372036854775808"), None);
    }

    #[test]
    fn writes_what_it_reads() {
        for value in [0, 1, 9, 10, 12_345, u64::MAX] {
            let decimal = Decimal::new(value);
            assert_eq!(decimal.bytes(), value.to_string().as_bytes());
            assert_eq!(parse_u64(decimal.bytes()), Some(value));
        }
    }
}
