//! Replies, read as they come: whole, in pieces, and cut anywhere.

use super::call::Call;
use super::fault::{Fault, Quote};
use super::request::Speech;
use super::value::{Check, Checked, VALUE_BYTES_MAX, Value};
use crate::memcached::number::parse_u32;
use arrayvec::ArrayVec;

/// Longest line that is put together from pieces; a reply to one of our requests has none that is longer.
const LINE_BYTES: usize = 512;

/// What a reply said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    /// A whole value of the right key; its version is not judged yet.
    Hit(Value),
    /// There is no item.
    Miss,
    /// A write was done.
    Stored,
    /// Something is wrong.
    Wrong(Fault),
}

/// What stands in front of a value.
#[derive(Clone, Copy, Debug)]
struct ValueLine {
    flags: u32,
    bytes: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// In a line.
    Line,
    /// In a value of which this many bytes are to come, then a line end.
    Value { left: u32 },
    /// In the line end behind a value.
    ValueEnd,
    /// In the line behind a value.
    End,
}

/// Reads one reply after the other.
#[derive(Debug)]
pub struct ReplyReader {
    state: State,
    /// The beginning of a line that was cut.
    line: ArrayVec<u8, LINE_BYTES>,
    check: Check,
    head: ValueLine,
    /// The first that was wrong with this reply.
    fault: Option<Fault>,
}

impl Default for ReplyReader {
    fn default() -> Self {
        ReplyReader {
            state: State::Line,
            line: ArrayVec::new(),
            check: Check::default(),
            head: ValueLine { flags: 0, bytes: 0 },
            fault: None,
        }
    }
}

impl ReplyReader {
    /// True between two replies.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Line) && self.line.is_empty()
    }

    /// Forgets what it has read of a reply.
    pub fn reset(&mut self) {
        self.state = State::Line;
        self.line.clear();
        self.fault = None;
    }

    /// Reads on in the reply to `call`: how many bytes of `input` belong to it, and what it said if it is complete.
    #[inline]
    pub fn feed(&mut self, speech: &Speech, call: &Call, input: &[u8]) -> (usize, Option<Said>) {
        let mut at = 0;
        while at < input.len() {
            let (used, said) = self.step(speech, call, &input[at..]);
            at += used;
            if said.is_some() {
                self.reset();
                return (at, said);
            }
        }
        (at, None)
    }

    /// A whole reply in pieces, as datagrams bring it.
    #[inline]
    pub fn whole<'p>(
        &mut self,
        speech: &Speech,
        call: &Call,
        pieces: impl Iterator<Item = &'p [u8]>,
    ) -> Said {
        let mut said = None;
        for mut piece in pieces {
            if said.is_none() {
                let (used, now) = self.feed(speech, call, piece);
                said = now;
                piece = &piece[used..];
            }
            if !piece.is_empty() {
                self.reset();
                return Said::Wrong(Fault::Trailing(Quote::new(piece)));
            }
        }
        self.reset();
        said.unwrap_or(Said::Wrong(Fault::CutShort))
    }

    fn step(&mut self, speech: &Speech, call: &Call, input: &[u8]) -> (usize, Option<Said>) {
        match self.state {
            State::Value { left } => {
                let n = input.len().min(left as usize);
                self.check.feed(speech.seed, &input[..n]);
                let left = left - n as u32;
                self.state = if left == 0 { State::ValueEnd } else { State::Value { left } };
                (n, None)
            }
            State::Line | State::ValueEnd | State::End => self.line_step(speech, call, input),
        }
    }

    /// A line, or a piece of one.
    fn line_step(&mut self, speech: &Speech, call: &Call, input: &[u8]) -> (usize, Option<Said>) {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            return match self.line.try_extend_from_slice(input) {
                Ok(()) => (input.len(), None),
                Err(_) => (input.len(), Some(Said::Wrong(Fault::Unreadable(Quote::new(&self.line))))),
            };
        };
        let used = end + 1;
        if self.line.is_empty() {
            return (used, self.read_line(speech, call, without_return(&input[..end])));
        }
        if self.line.try_extend_from_slice(&input[..end]).is_err() {
            return (used, Some(Said::Wrong(Fault::Unreadable(Quote::new(&self.line)))));
        }
        let line = std::mem::take(&mut self.line);
        (used, self.read_line(speech, call, without_return(&line)))
    }

    #[inline]
    fn read_line(&mut self, speech: &Speech, call: &Call, line: &[u8]) -> Option<Said> {
        match self.state {
            State::Line if call.is_get() => self.read_head(speech, call, line),
            State::Line => {
                let stored: &[u8] = if speech.dialect.is_meta() { b"HD" } else { b"STORED" };
                Some(if line == stored { Said::Stored } else { unexpected(line) })
            }
            State::ValueEnd if !line.is_empty() => Some(Said::Wrong(Fault::Unreadable(Quote::new(line)))),
            State::ValueEnd if !speech.dialect.is_meta() => {
                self.state = State::End;
                None
            }
            State::ValueEnd => Some(self.verdict(call)),
            State::End if line == b"END" => Some(self.verdict(call)),
            State::End | State::Value { .. } => Some(Said::Wrong(Fault::Unreadable(Quote::new(line)))),
        }
    }

    /// The first line of a reply to a read.
    #[inline]
    fn read_head(&mut self, speech: &Speech, call: &Call, line: &[u8]) -> Option<Said> {
        let mut words = line.split(|byte| *byte == b' ');
        let first = words.next()?;
        let (name, head) = match (speech.dialect.is_meta(), first) {
            (false, b"END") | (true, b"EN") if first.len() == line.len() => {
                return Some(Said::Miss);
            }
            (false, b"VALUE") => text_head(words),
            (true, b"VA") => meta_head(words),
            _ => return Some(unexpected(line)),
        };
        let Some(head) = head.filter(|head| head.bytes <= VALUE_BYTES_MAX) else {
            return Some(Said::Wrong(Fault::Unreadable(Quote::new(line))));
        };
        if !speech.keys.is(call.key, name) {
            self.fault = Some(Fault::OtherKey(Quote::new(name)));
        }
        self.head = head;
        self.check = Check::default();
        self.state = if head.bytes == 0 { State::ValueEnd } else { State::Value { left: head.bytes } };
        None
    }

    /// What is said of a value that is complete.
    #[inline]
    fn verdict(&mut self, call: &Call) -> Said {
        if let Some(fault) = self.fault.take() {
            return Said::Wrong(fault);
        }
        let ValueLine { flags, bytes } = self.head;
        Said::Wrong(match self.check.finish() {
            Checked::Short => Fault::NotOurs { read: bytes },
            Checked::Damaged { says, at } => Fault::of_damage(says, at, call.key, bytes),
            Checked::Whole(value) if value.key != call.key => Fault::ForeignValue { key: value.key },
            Checked::Whole(value) if value.version.number != flags => {
                Fault::Flags { written: value.version.number, read: flags }
            }
            Checked::Whole(value) => return Said::Hit(value),
        })
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// What begins like this is a whole reply; after anything else the next one may be anywhere.
const REFUSALS: [&[u8]; 4] = [b"SERVER_ERROR ", b"CLIENT_ERROR ", b"NOT_STORED", b"NS"];

#[cold]
fn unexpected(line: &[u8]) -> Said {
    let is_refusal = REFUSALS.iter().any(|word| line.starts_with(word));
    Said::Wrong(if is_refusal { Fault::Unexpected } else { Fault::Unreadable }(Quote::new(line)))
}

/// `<key> <flags> <bytes>` behind `VALUE`.
#[inline]
fn text_head<'l>(mut words: impl Iterator<Item = &'l [u8]>) -> (&'l [u8], Option<ValueLine>) {
    let name = words.next().unwrap_or_default();
    let (flags, bytes) = (words.next().and_then(parse_u32), words.next().and_then(parse_u32));
    let head = flags.zip(bytes).filter(|_| words.next().is_none());
    (name, head.map(|(flags, bytes)| ValueLine { flags, bytes }))
}

/// `<bytes> f<flags> k<key>` behind `VA`.
#[inline]
fn meta_head<'l>(mut words: impl Iterator<Item = &'l [u8]>) -> (&'l [u8], Option<ValueLine>) {
    let bytes = words.next().and_then(parse_u32);
    let (mut name, mut flags) = (&b""[..], None);
    for word in words {
        match word.split_first() {
            Some((b'f', rest)) => flags = parse_u32(rest),
            Some((b'k', rest)) => name = rest,
            _ => {}
        }
    }
    (name, flags.zip(bytes).map(|(flags, bytes)| ValueLine { flags, bytes }))
}

#[cfg(test)]
#[path = "tests/reply.rs"]
mod tests;
