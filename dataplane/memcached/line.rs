//! Command lines and their words.

use super::request::Parsed;

/// Bytes without a line feed after which only a multi-get may go on.
const LINE_BYTES_PLAIN: usize = 2048;
/// Bytes without a line feed after which nothing may go on: 64 KiB, a few hundred keys of the longest kind.
const LINE_BYTES_MAX: usize = 65_536;
/// Words of which a command's fixed arguments are taken.
const WORDS: usize = 8;

/// Splits off the first line: what it says and how many bytes it has with its ending (`\n` or `\r\n`).
///
/// What follows a NUL in a line is not looked at; to memcached it is the end of a C string.
pub(super) fn split(input: &[u8]) -> Result<(&[u8], usize), Parsed<'_>> {
    let window = &input[..input.len().min(LINE_BYTES_MAX)];
    let Some(end) = find(b'\n', window) else {
        return Err(unfinished(input));
    };
    let line = match input[..end].strip_suffix(b"\r") {
        Some(line) if !line.is_empty() => line,
        _ => &input[..end],
    };
    let line = find(0, line).map_or(line, |nul| &line[..nul]);
    Ok((line, end + 1))
}

/// Where a byte is first, eight bytes at a time: lines and words are short, and looked through once for each of their ends.
#[inline]
pub(super) fn find(byte: u8, text: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    // The lowest of the bits that remain is that of the first byte that is 0; higher ones may be wrong.
    let found = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word) ^ (ONES * u64::from(byte));
        let zeros = word.wrapping_sub(ONES) & !word & (ONES << 7);
        (zeros != 0).then_some(zeros.trailing_zeros() as usize / 8)
    };
    let (words, rest) = text.as_chunks();
    for (i, word) in words.iter().enumerate() {
        if let Some(at) = found(word) {
            return Some(8 * i + at);
        }
    }
    match text.last_chunk() {
        _ if rest.is_empty() => None,
        // What it has of the words before is known not to be it.
        Some(last) => found(last).map(|at| text.len() - 8 + at),
        None => rest.iter().position(|&b| b == byte),
    }
}

/// What to make of input without a line feed.
fn unfinished(input: &[u8]) -> Parsed<'_> {
    let spaces = input.iter().take(101).take_while(|&&b| b == b' ').count();
    let rest = &input[spaces..];
    let multi_get = spaces <= 100 && (rest.starts_with(b"get ") || rest.starts_with(b"gets "));
    let limit = if multi_get { LINE_BYTES_MAX } else { LINE_BYTES_PLAIN };
    if input.len() > limit { Parsed::Close } else { Parsed::Incomplete { missing: 1 } }
}

/// The words of a line: what is between spaces. Nothing else separates.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Words<'a>(pub(super) &'a [u8]);

impl Words<'_> {
    /// More than so many there cannot be in so many bytes.
    #[inline]
    pub fn most(&self) -> usize {
        self.0.len().div_ceil(2)
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.0.iter().position(|&b| b != b' ')?;
        let text = &self.0[start..];
        let (word, rest) = text.split_at(find(b' ', text).unwrap_or(text.len()));
        self.0 = rest;
        Some(word)
    }
}

/// The first words of a line, to be had by their place.
pub(super) struct Arguments<'a> {
    words: [&'a [u8]; WORDS],
    /// Words of the line, the command among them.
    pub(super) count: usize,
    /// The last of them.
    pub(super) last: &'a [u8],
}

impl<'a> Arguments<'a> {
    pub(super) fn new(line: &'a [u8]) -> Self {
        let mut arguments = Self { words: [b""; WORDS], count: 0, last: b"" };
        for word in Words(line) {
            if let Some(place) = arguments.words.get_mut(arguments.count) {
                *place = word;
            }
            arguments.count += 1;
            arguments.last = word;
        }
        arguments
    }

    /// The word at `index` (below 8), the command at 0; empty when there is none.
    pub(super) fn word(&self, index: usize) -> &'a [u8] {
        self.words[index]
    }

    /// Whether the reply is to be left out. Like memcached, looks at the last word wherever it stands.
    pub(super) fn noreply(&self) -> bool {
        self.last == b"noreply"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_byte_is_found_wherever_it_is() {
        let mut state = 1u64;
        for len in 0..40 {
            for _ in 0..300 {
                // Few different bytes, neighbours of the one that is looked for among them.
                let mut next = || {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    [b' ', b'!', 0x1F, 0xA0, 0x80, 0, 0xFF, b'x'][(state >> 33) as usize % 8]
                };
                let text: Vec<u8> = (0..len).map(|_| next()).collect();
                for byte in [b' ', 0, 0xFF, b'q'] {
                    assert_eq!(find(byte, &text), text.iter().position(|&b| b == byte), "{byte} in {text:?}");
                }
            }
        }
    }
}
