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
    let Some(end) = window.iter().position(|&b| b == b'\n') else {
        return Err(unfinished(input));
    };
    let line = match input[..end].strip_suffix(b"\r") {
        Some(line) if !line.is_empty() => line,
        _ => &input[..end],
    };
    let line = line.split(|&b| b == 0).next().unwrap_or(line);
    Ok((line, end + 1))
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

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.0.iter().position(|&b| b != b' ')?;
        let text = &self.0[start..];
        let end = text.iter().position(|&b| b == b' ').unwrap_or(text.len());
        self.0 = &text[end..];
        Some(&text[..end])
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
