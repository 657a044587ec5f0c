//! Requests as bytes.

use super::call::{Call, Op};
use super::key::KeyFormat;
use super::value::{Value, Version};
use crate::memcached::KEY_BYTES_MAX;
use crate::memcached::number::Decimal;
use crate::memcached::udp::{FrameHeader, HEADER_BYTES};
use arrayvec::ArrayVec;
use std::ops::Range;
use zerocopy::IntoBytes;

/// In which of memcached's languages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// `get`, `set`.
    Text,
    /// `mg`, `ms`.
    Meta,
    /// `gat`, `set`: reads that change when an item expires, so that the owner of the key has to carry them out.
    Touch,
}

impl Dialect {
    /// Its name in settings and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Dialect::Text => "text",
            Dialect::Meta => "meta",
            Dialect::Touch => "touch",
        }
    }

    /// Replies are those of the meta protocol.
    #[inline]
    pub(super) fn is_meta(self) -> bool {
        self == Dialect::Meta
    }
}

/// Bytes of a request in front of its value, at most: frame header, command, key, three numbers.
pub const HEAD_BYTES_MAX: usize = HEADER_BYTES + KEY_BYTES_MAX + 48;

/// What all requests of a load share.
#[derive(Clone, Copy, Debug)]
pub struct Speech {
    /// Language.
    pub dialect: Dialect,
    /// Names of keys.
    pub keys: KeyFormat,
    /// Of the values.
    pub seed: u64,
    /// Of the values written.
    pub run: u32,
}

/// The bytes of one request, made where they are wanted: a value is nowhere in memory.
#[derive(Clone, Debug)]
pub struct Request {
    head: ArrayVec<u8, HEAD_BYTES_MAX>,
    value: Option<Value>,
    seed: u64,
}

const LINE_END: &[u8] = b"\r\n";

fn put(out: &mut ArrayVec<u8, HEAD_BYTES_MAX>, bytes: &[u8]) {
    out.try_extend_from_slice(bytes).expect("the longest request fits");
}

impl Speech {
    /// The request of `call`, in a datagram with this id or in a stream.
    #[inline]
    pub fn request(&self, call: &Call, datagram: Option<u16>) -> Request {
        let mut head = ArrayVec::new();
        if let Some(id) = datagram {
            let one = FrameHeader { request_id: id.into(), datagrams: 1.into(), ..FrameHeader::default() };
            put(&mut head, one.as_bytes());
        }
        let value = match call.op {
            Op::Get { .. } => {
                self.get(call.key, &mut head);
                None
            }
            Op::Set { write, length } => {
                self.set(call.key, write.number, length, &mut head);
                let version = Version { run: self.run, number: write.number };
                Some(Value { key: call.key, version, length })
            }
        };
        Request { head, value, seed: self.seed }
    }

    /// Reads ask for the flags too: a write's number travels there a second time.
    #[inline]
    fn get(&self, key: u32, head: &mut ArrayVec<u8, HEAD_BYTES_MAX>) {
        let (before, after): (&[u8], &[u8]) = match self.dialect {
            Dialect::Text => (b"get ", LINE_END),
            Dialect::Touch => (b"gat 0 ", LINE_END),
            Dialect::Meta => (b"mg ", b" f k v\r\n"),
        };
        put(head, before);
        self.keys.write(key, head);
        put(head, after);
    }

    #[inline]
    fn set(&self, key: u32, flags: u32, length: u32, head: &mut ArrayVec<u8, HEAD_BYTES_MAX>) {
        let (flags, length) = (Decimal::new(u64::from(flags)), Decimal::new(u64::from(length)));
        match self.dialect {
            Dialect::Text | Dialect::Touch => {
                put(head, b"set ");
                self.keys.write(key, head);
                put(head, b" ");
                put(head, flags.bytes());
                put(head, b" 0 ");
                put(head, length.bytes());
            }
            Dialect::Meta => {
                put(head, b"ms ");
                self.keys.write(key, head);
                put(head, b" ");
                put(head, length.bytes());
                put(head, b" F");
                put(head, flags.bytes());
            }
        }
        put(head, LINE_END);
    }
}

impl Request {
    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.head.len() + self.value.map_or(0, |value| value.length as usize + LINE_END.len())
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the bytes in `range` to `out`, which is as long.
    ///
    /// # Panics
    /// If the range reaches beyond the request.
    #[inline]
    pub fn write(&self, range: Range<usize>, out: &mut [u8]) {
        let (head, mut at, mut out) = (self.head.as_slice(), range.start, &mut out[..range.len()]);
        if at < head.len() {
            let n = out.len().min(head.len() - at);
            out[..n].copy_from_slice(&head[at..at + n]);
            out = &mut out[n..];
            at += n;
        }
        if out.is_empty() {
            return;
        }
        let Some(value) = self.value else { panic!("a part of the request") };
        let (end, in_value) = (value.length as usize, at - head.len());
        let n = out.len().min(end.saturating_sub(in_value));
        if n > 0 {
            value.write(self.seed, in_value, &mut out[..n]);
        }
        let rest = &mut out[n..];
        if !rest.is_empty() {
            let from = in_value + n - end;
            rest.copy_from_slice(&LINE_END[from..from + rest.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::ledger::Write;
    use rdma_engine::types::Time;

    fn call(op: Op) -> Call {
        Call { key: 0x2A, op, due: Time(0), retries: 0, measured: true }
    }

    fn speech(dialect: Dialect) -> Speech {
        Speech { dialect, keys: KeyFormat::new(10), seed: 1, run: 7 }
    }

    fn bytes(request: &Request) -> Vec<u8> {
        let mut out = vec![0; request.len()];
        request.write(0..request.len(), &mut out);
        out
    }

    fn value() -> Vec<u8> {
        let mut out = vec![0; 64];
        Value { key: 0x2A, version: Version { run: 7, number: 3 }, length: 64 }.write(1, 0, &mut out);
        out
    }

    #[test]
    fn golden_requests() {
        let set = call(Op::Set { write: Write { number: 3, low: 1 }, length: 64 });
        let get = call(Op::Get { floor: 0 });
        let said = |dialect, call| bytes(&speech(dialect).request(&call, None));
        assert_eq!(said(Dialect::Text, get), b"get k-0000002a\r\n");
        assert_eq!(said(Dialect::Meta, get), b"mg k-0000002a f k v\r\n");
        let text = [b"set k-0000002a 3 0 64\r\n", &value()[..], b"\r\n"].concat();
        assert_eq!(said(Dialect::Text, set), text);
        assert_eq!(said(Dialect::Meta, set), [b"ms k-0000002a 64 F3\r\n", &value()[..], b"\r\n"].concat());
        let datagram = bytes(&speech(Dialect::Text).request(&set, Some(0x1234)));
        assert_eq!(datagram, [b"\x12\x34\0\0\0\x01\0\0", &text[..]].concat());
    }

    #[test]
    fn any_part_is_as_in_the_whole() {
        let set = call(Op::Set { write: Write { number: 3, low: 1 }, length: 64 });
        for request in [
            speech(Dialect::Meta).request(&set, Some(9)),
            speech(Dialect::Text).request(&call(Op::Get { floor: 1 }), None),
        ] {
            let whole = bytes(&request);
            for from in 0..=whole.len() {
                for to in from..=whole.len() {
                    let mut part = vec![0; to - from];
                    request.write(from..to, &mut part);
                    assert_eq!(part, whole[from..to], "{from}..{to}");
                }
            }
        }
    }

    #[test]
    fn the_longest_request_fits() {
        let longest = Speech { keys: KeyFormat::new(250), ..speech(Dialect::Text) };
        let write = Write { number: u32::MAX, low: 1 };
        let request = longest.request(&call(Op::Set { write, length: 64 << 20 }), Some(1));
        assert!(request.head.len() <= HEAD_BYTES_MAX);
    }
}
