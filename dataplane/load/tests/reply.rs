use super::*;
use crate::load::call::Op;
use crate::load::key::KeyFormat;
use crate::load::ledger::Write;
use crate::load::request::Dialect;
use crate::load::value::Version;
use proptest::prelude::*;
use rdma_engine::types::Time;

const RUN: u32 = 5;
const SEED: u64 = 17;

fn speech(dialect: Dialect) -> Speech {
    Speech { dialect, keys: KeyFormat::new(9), seed: SEED, run: RUN }
}

fn get(key: u32) -> Call {
    Call { key, op: Op::Get { floor: 0 }, due: Time(0), retries: 0, measured: true }
}

fn set(key: u32) -> Call {
    Call { op: Op::Set { write: Write { number: 1, low: 1 }, length: 64 }, ..get(key) }
}

fn value(key: u32, number: u32, length: u32) -> Value {
    Value { key, version: Version { run: RUN, number }, length }
}

fn bytes(value: Value) -> Vec<u8> {
    let mut out = vec![0; value.length as usize];
    value.write(SEED, 0, &mut out);
    out
}

fn reply(dialect: Dialect, key: u32, flags: u32, value: &[u8]) -> Vec<u8> {
    let (name, n) = (format!("k{key:08x}"), value.len());
    match dialect {
        Dialect::Text | Dialect::Touch => {
            [format!("VALUE {name} {flags} {n}\r\n").as_bytes(), value, b"\r\nEND\r\n"].concat()
        }
        Dialect::Meta => [format!("VA {n} f{flags} k{name}\r\n").as_bytes(), value, b"\r\n"].concat(),
    }
}

fn said(dialect: Dialect, call: &Call, reply: &[u8]) -> Said {
    ReplyReader::default().whole(&speech(dialect), call, [reply].into_iter())
}

fn fault(call: &Call, reply: &[u8]) -> Fault {
    match said(Dialect::Text, call, reply) {
        Said::Wrong(fault) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn good_replies() {
    for dialect in [Dialect::Text, Dialect::Meta, Dialect::Touch] {
        let whole = reply(dialect, 7, 3, &bytes(value(7, 3, 100)));
        assert_eq!(said(dialect, &get(7), &whole), Said::Hit(value(7, 3, 100)));
    }
    assert_eq!(said(Dialect::Text, &get(7), b"END\r\n"), Said::Miss);
    assert_eq!(said(Dialect::Meta, &get(7), b"EN\r\n"), Said::Miss);
    assert_eq!(said(Dialect::Text, &set(7), b"STORED\r\n"), Said::Stored);
    assert_eq!(said(Dialect::Meta, &set(7), b"HD\r\n"), Said::Stored);
}

#[test]
fn each_kind_of_damage_has_its_name() {
    let good = bytes(value(7, 3, 4096));
    let ask = |flags, value: &[u8]| fault(&get(7), &reply(Dialect::Text, 7, flags, value));
    for at in (64..4096).step_by(64) {
        let torn = [&good[..at], &bytes(value(7, 4, 4096))[at..]].concat();
        assert_eq!(ask(3, &torn), Fault::Torn { version: value(7, 3, 0).version, at });
    }
    assert_eq!(ask(3, &bytes(value(8, 3, 4096))), Fault::ForeignValue { key: 8 });
    assert_eq!(ask(3, &good[..4000]), Fault::Length { written: 4096, read: 4000 });
    assert_eq!(ask(3, &good[..20]), Fault::NotOurs { read: 20 });
    assert_eq!(ask(3, b""), Fault::NotOurs { read: 0 });
    assert_eq!(ask(2, &good), Fault::Flags { written: 3, read: 2 });
    let other = reply(Dialect::Text, 9, 3, &good);
    assert_eq!(fault(&get(7), &other), Fault::OtherKey(Quote::new(b"k00000009")));
}

#[test]
fn replies_to_something_else_are_faults() {
    for line in ["SERVER_ERROR out of memory", "CLIENT_ERROR line too long", "NOT_STORED"] {
        for call in [get(7), set(7)] {
            let refused = Fault::Unexpected(Quote::new(line.as_bytes()));
            assert_eq!(fault(&call, format!("{line}\r\n").as_bytes()), refused);
        }
    }
    for (call, lines) in
        [(get(7), ["STORED", "ERROR", "END extra", ""]), (set(7), ["END", "ERROR", "STORED?", ""])]
    {
        for line in lines {
            let nonsense = Fault::Unreadable(Quote::new(line.as_bytes()));
            assert_eq!(fault(&call, format!("{line}\r\n").as_bytes()), nonsense);
        }
    }
    let whole = reply(Dialect::Text, 7, 3, &bytes(value(7, 3, 100)));
    for n in 0..whole.len() {
        assert_eq!(fault(&get(7), &whole[..n]), Fault::CutShort, "{n} bytes");
    }
    let twice = [&whole[..], b"END\r\n"].concat();
    assert_eq!(fault(&get(7), &twice), Fault::Trailing(Quote::new(b"END\r\n")));
}

#[test]
fn nonsense_is_fatal() {
    let long = vec![b'x'; 600];
    let fatal: [&[u8]; 6] = [
        b"VALUE k00000007 0\r\n",
        b"VALUE k00000007 0 99999999\r\n",
        b"VALUE k00000007 0 64 7 8\r\n",
        b"VALUE k00000007 0 2\r\nabX\r\n",
        b"VALUE k00000007 0 2\r\nab\r\nEDN\r\n",
        &long,
    ];
    for text in fatal {
        let fault = fault(&get(7), text);
        assert!(fault.is_fatal(), "{fault:?}");
    }
}

proptest! {
    /// Streams are cut anywhere.
    #[test]
    fn replies_are_read_from_any_pieces(
        asked in prop::collection::vec((0u8..4, 24u32..400), 1..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        meta in any::<bool>(),
    ) {
        let dialect = if meta { Dialect::Meta } else { Dialect::Touch };
        let (mut stream, mut expected) = (vec![], vec![]);
        for (key, (kind, length)) in asked.into_iter().enumerate() {
            let key = key as u32;
            let (miss, stored): (&[u8], &[u8]) =
                if meta { (b"EN\r\n", b"HD\r\n") } else { (b"END\r\n", b"STORED\r\n") };
            match kind {
                0 => { stream.extend_from_slice(miss); expected.push((get(key), Said::Miss)); }
                1 => { stream.extend_from_slice(stored); expected.push((set(key), Said::Stored)); }
                _ => {
                    stream.extend(reply(dialect, key, 2, &bytes(value(key, 2, length))));
                    expected.push((get(key), Said::Hit(value(key, 2, length))));
                }
            }
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.push(stream.len());
        cuts.sort_unstable();
        let (mut reader, speech, mut from) = (ReplyReader::default(), speech(dialect), 0);
        let mut left = expected.iter();
        let mut next = left.next();
        for cut in cuts {
            while from < cut {
                let (call, want) = next.expect("no bytes are left over");
                let (used, said) = reader.feed(&speech, call, &stream[from..cut]);
                from += used;
                if let Some(said) = said {
                    prop_assert_eq!(&said, want);
                    next = left.next();
                }
            }
        }
        prop_assert!(next.is_none() && reader.is_idle());
    }

    /// Whatever is read, nothing panics, and something is always used.
    #[test]
    fn any_bytes_are_survived(input in prop::collection::vec(any::<u8>(), 1..300), is_get in any::<bool>()) {
        let call = if is_get { get(1) } else { set(1) };
        let mut reader = ReplyReader::default();
        let mut at = 0;
        while at < input.len() {
            let (used, _) = reader.feed(&speech(Dialect::Text), &call, &input[at..]);
            prop_assert!(used > 0);
            at += used;
        }
    }
}
