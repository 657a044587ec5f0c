//! What the client is told: outcomes in the words of each dialect.

mod meta;

use super::number::Decimal;
use super::operation::{Hit, Outcome};
use super::request::Form;

/// Takes the bytes of a reply.
pub trait Output {
    /// Adds bytes behind those already there.
    fn put(&mut self, bytes: &[u8]);
}

impl Output for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// A reply in memory of fixed size.
///
/// Once something did not fit nothing more is taken: what is there is then the beginning of the reply and no more.
#[derive(Debug)]
pub struct Fixed<'b> {
    buffer: &'b mut [u8],
    used: usize,
    overflowed: bool,
}

impl<'b> Fixed<'b> {
    /// An empty reply.
    pub fn new(buffer: &'b mut [u8]) -> Self {
        Self { buffer, used: 0, overflowed: false }
    }

    /// What was put, or `None` if there was not enough room.
    #[must_use]
    pub fn reply(&self) -> Option<&[u8]> {
        (!self.overflowed).then(|| &self.buffer[..self.used])
    }
}

impl Output for Fixed<'_> {
    fn put(&mut self, bytes: &[u8]) {
        match self.buffer.get_mut(self.used..self.used + bytes.len()) {
            Some(place) if !self.overflowed => {
                place.copy_from_slice(bytes);
                self.used += bytes.len();
            }
            _ => self.overflowed = true,
        }
    }
}

/// Bytes that the first line of a reply can have at most: a key in base64, every flag, and an opaque token.
pub const LINE_BYTES_MAX: usize = 640;

/// The reply to a value that no item has room for.
pub const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";

fn number(out: &mut impl Output, value: u64) {
    out.put(Decimal::new(value).bytes());
}

fn line(out: &mut impl Output, text: &str) {
    out.put(text.as_bytes());
    out.put(b"\r\n");
}

/// A line of its own, if it is to be said.
pub fn say(out: &mut impl Output, text: &str, quiet: bool) {
    if !quiet {
        line(out, text);
    }
}

/// What came of an operation on `key`, in the form that its request asks for.
pub fn answer(out: &mut impl Output, form: &Form<'_>, key: &[u8], outcome: &Outcome<'_>) {
    match form {
        Form::Text { quiet: true } => {}
        Form::Text { quiet: false } => text(out, outcome),
        Form::Meta(form) => meta::answer(out, form, key, outcome),
        Form::Debug => meta::debug(out, key, outcome),
    }
}

// ---- text -------------------------------------------------------------------------------------------------------

fn text(out: &mut impl Output, outcome: &Outcome<'_>) {
    let said = match outcome {
        Outcome::Hit(_) => "TOUCHED",
        Outcome::NotFound => "NOT_FOUND",
        Outcome::Stored { .. } => "STORED",
        Outcome::NotStored => "NOT_STORED",
        Outcome::Exists => "EXISTS",
        Outcome::Deleted => "DELETED",
        Outcome::Number(found) => {
            number(out, found.value);
            ""
        }
        Outcome::NonNumeric | Outcome::OutOfMemory => failure(outcome),
    };
    line(out, said);
}

/// What has the same text in both dialects.
fn failure(outcome: &Outcome<'_>) -> &'static str {
    match outcome {
        Outcome::NonNumeric => "CLIENT_ERROR cannot increment or decrement non-numeric value",
        _ => "SERVER_ERROR out of memory storing object",
    }
}

/// The line in front of a value: `VALUE <key> <flags> <bytes> [<cas unique>]`.
///
/// The value and a line ending follow; where the value is in the reply's buffer already this goes into the room before it.
pub fn value_line(out: &mut impl Output, key: &[u8], flags: u32, bytes: u32, cas: Option<u64>) {
    out.put(b"VALUE ");
    out.put(key);
    out.put(b" ");
    number(out, u64::from(flags));
    out.put(b" ");
    number(out, u64::from(bytes));
    if let Some(cas) = cas {
        out.put(b" ");
        number(out, cas);
    }
    out.put(b"\r\n");
}

/// What [`value_line`] says of a value that is wanted without its cas unique, to be written where there is room for just that.
#[derive(Clone, Copy, Debug)]
pub struct ValueLine<'k> {
    key: &'k [u8],
    flags: u32,
    bytes: u32,
    digits: [usize; 2],
}

impl<'k> ValueLine<'k> {
    /// The line of a value with this key, these flags and so many bytes.
    #[inline]
    #[must_use]
    pub fn new(key: &'k [u8], flags: u32, bytes: u32) -> Self {
        let digits = [flags, bytes].map(|n| n.checked_ilog10().unwrap_or(0) as usize + 1);
        Self { key, flags, bytes, digits }
    }

    /// Its bytes.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        b"VALUE   \r\n".len() + self.key.len() + self.digits[0] + self.digits[1]
    }

    /// Writes it.
    ///
    /// # Panics
    /// If `room` has another length.
    #[inline]
    pub fn write(&self, room: &mut [u8]) {
        assert_eq!(room.len(), self.len(), "room for a line");
        let (word, room) = room.split_at_mut(b"VALUE ".len());
        word.copy_from_slice(b"VALUE ");
        let (key, room) = room.split_at_mut(self.key.len());
        key.copy_from_slice(self.key);
        let (flags, bytes) = room.split_at_mut(1 + self.digits[0]);
        let (bytes, end) = bytes.split_at_mut(1 + self.digits[1]);
        decimal(flags, self.flags);
        decimal(bytes, self.bytes);
        end.copy_from_slice(b"\r\n");
    }
}

/// A space and a number that fills the rest.
#[inline]
fn decimal(room: &mut [u8], mut value: u32) {
    for digit in room.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
    if let Some(space) = room.first_mut() {
        *space = b' ';
    }
}

/// One item of a reply to `get`.
pub fn value(out: &mut impl Output, key: &[u8], hit: &Hit<'_>, cas: bool) {
    value_line(out, key, hit.flags, hit.size, cas.then_some(hit.cas));
    out.put(hit.value);
    out.put(b"\r\n");
}

/// The end of a reply to `get` and `stats`.
pub fn end(out: &mut impl Output) {
    line(out, "END");
}

/// One line of a reply to `stats`.
pub fn stat(out: &mut impl Output, name: &str, value: &str) {
    out.put(b"STAT ");
    out.put(name.as_bytes());
    out.put(b" ");
    line(out, value);
}
