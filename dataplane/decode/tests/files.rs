//! One capture in every file format and link type gives one output.

use super::{data, decode};
use crate::decode::DecodeOptions;

/// A frame of a capture: seconds, nanoseconds, bytes.
type Frame = (u32, u32, Vec<u8>);

fn frames() -> Vec<Frame> {
    let file = std::fs::read(data("roce/rxe61-ipv6.pcap")).unwrap();
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while let Some((header, after)) = rest.split_first_chunk::<16>() {
        let field = |at: usize| u32::from_le_bytes(*header[at..].first_chunk().unwrap());
        let (bytes, after) = after.split_at(field(8) as usize);
        frames.push((field(0), field(4) * 1000, bytes.to_vec()));
        rest = after;
    }
    frames
}

/// Integers in the byte order of a file.
struct Writer {
    big: bool,
    out: Vec<u8>,
}

impl Writer {
    fn u16(&mut self, value: u16) -> &mut Self {
        self.out.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.out.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }

    fn padded(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend(bytes);
        self.out.resize(self.out.len().next_multiple_of(4), 0);
        self
    }

    fn block(&mut self, kind: u32, body: impl FnOnce(&mut Writer)) -> &mut Self {
        let mut inner = Writer { big: self.big, out: Vec::new() };
        body(&mut inner);
        let len = inner.out.len() as u32 + 12;
        self.u32(kind).u32(len).padded(&inner.out).u32(len)
    }
}

fn pcap(big: bool, nanoseconds: bool, link_type: u32, frames: &[Frame]) -> Vec<u8> {
    let mut file = Writer { big, out: Vec::new() };
    file.u32(if nanoseconds { 0xA1B2_3C4D } else { 0xA1B2_C3D4 }).u16(2).u16(4);
    file.u32(0).u32(0).u32(65535).u32(link_type);
    for (seconds, ns, bytes) in frames {
        let len = bytes.len() as u32;
        file.u32(*seconds).u32(if nanoseconds { *ns } else { ns / 1000 }).u32(len).u32(len);
        file.out.extend(bytes);
    }
    file.out
}

/// How a pcapng interface counts: option byte, and ticks of a second.
const NANO: (u8, u128) = (9, 1_000_000_000);
const POWER_OF_TWO: (u8, u128) = (0x80 | 40, 1 << 40);

fn pcapng(big: bool, (resolution, per_second): (u8, u128), offset: i64, frames: &[Frame]) -> Vec<u8> {
    let mut file = Writer { big, out: Vec::new() };
    file.block(0x0A0D_0D0A, |b| {
        b.u32(0x1A2B_3C4D).u16(1).u16(0).u32(u32::MAX).u32(u32::MAX);
    });
    file.block(5, |b| {
        b.padded(b"a block of another kind");
    });
    file.block(1, |b| {
        b.u16(1).u16(0).u32(0).u16(9).u16(1).padded(&[resolution]).u16(14).u16(8);
        let offset = if b.big { offset.to_be_bytes() } else { offset.to_le_bytes() };
        b.padded(&offset).u16(0).u16(0);
    });
    for (seconds, ns, bytes) in frames {
        let ns = u128::from(*seconds) * 1_000_000_000 + u128::from(*ns) - offset as u128 * 1_000_000_000;
        // Rounded up, so that rounding down on the way back gives the same nanosecond.
        let ticks = (ns * per_second).div_ceil(1_000_000_000) as u64;
        file.block(6, |b| {
            b.u32(0).u32((ticks >> 32) as u32).u32(ticks as u32);
            b.u32(bytes.len() as u32).u32(bytes.len() as u32).padded(bytes);
        });
    }
    file.out
}

fn text(file: &[u8]) -> String {
    decode(file, &DecodeOptions::default()).0
}

#[test]
fn every_format_gives_the_same_words() {
    let frames = frames();
    let expected = text(&std::fs::read(data("roce/rxe61-ipv6.pcap")).unwrap());
    assert!(expected.contains("RC_READ_RESP_ONLY"));
    for big in [false, true] {
        for nanoseconds in [false, true] {
            assert_eq!(text(&pcap(big, nanoseconds, 1, &frames)), expected);
        }
        for clock in [NANO, POWER_OF_TWO] {
            assert_eq!(text(&pcapng(big, clock, 0, &frames)), expected);
            assert_eq!(text(&pcapng(big, clock, 1_000_000, &frames)), expected);
        }
    }
    // Two sections of different byte order, one after the other.
    let (first, second) = frames.split_at(20);
    let joined = [pcapng(false, NANO, 0, first), pcapng(true, NANO, 0, second)].concat();
    assert_eq!(text(&joined), expected);
}

#[test]
fn old_and_simple_packet_blocks_are_read() {
    let mut file = Writer { big: false, out: Vec::new() };
    file.block(0x0A0D_0D0A, |b| {
        b.u32(0x1A2B_3C4D).u16(1).u16(0).u32(u32::MAX).u32(u32::MAX);
    });
    file.block(1, |b| {
        b.u16(1).u16(0).u32(0);
    });
    let frames: Vec<Frame> =
        frames().into_iter().filter(|(_, _, bytes)| bytes[12] == 0x86 && bytes[20] == 17).collect();
    for (_, _, bytes) in &frames {
        let len = bytes.len() as u32;
        file.block(2, |b| {
            b.u16(0).u16(0).u32(0).u32(1).u32(len).u32(len).padded(bytes);
        });
        file.block(3, |b| {
            b.u32(len).padded(bytes);
        });
    }
    let (_, summary) = decode(&file.out, &DecodeOptions::default());
    assert_eq!((summary.roce_v2, summary.bad_icrc), (2 * frames.len() as u64, 0));
}

#[test]
fn link_types_are_told_apart() {
    let ip: Vec<Frame> = frames().into_iter().filter(|(_, _, bytes)| bytes[12] == 0x86).collect();
    let with = |header: &[u8]| -> Vec<Frame> {
        ip.iter().map(|(s, ns, bytes)| (*s, *ns, [header, &bytes[14..]].concat())).collect()
    };
    let sll = [&[0; 14][..], &[0x86, 0xDD]].concat();
    let sll2 = [&[0x86, 0xDD][..], &[0; 18]].concat();
    let variants = [
        (1, ip.clone()),
        (101, with(&[])),
        (229, with(&[])),
        (0, with(&[30, 0, 0, 0])),
        (113, with(&sll)),
        (276, with(&sll2)),
    ];
    for (link_type, frames) in variants {
        let (_, summary) = decode(&pcap(false, false, link_type, &frames), &DecodeOptions::default());
        assert_eq!((summary.roce_v2, summary.bad_icrc), (9, 0), "link type {link_type}");
    }
    let (text, summary) = decode(&pcap(false, false, 147, &ip), &DecodeOptions::default());
    assert_eq!(summary.roce_v2, 0);
    assert!(text.contains("unknown link type"), "{text}");
}

#[test]
fn a_snap_length_hides_only_what_it_cuts() {
    let frames = frames();
    let cut = |snap: usize| {
        let mut file = Writer { big: false, out: Vec::new() };
        file.u32(0xA1B2_C3D4).u16(2).u16(4).u32(0).u32(0).u32(snap as u32).u32(1);
        for (seconds, ns, bytes) in &frames {
            let kept = &bytes[..snap.min(bytes.len())];
            file.u32(*seconds).u32(ns / 1000).u32(kept.len() as u32).u32(bytes.len() as u32);
            file.out.extend(kept);
        }
        decode(&file.out, &DecodeOptions::default())
    };
    let (text, summary) = cut(96);
    assert_eq!((summary.roce_v2, summary.bad_icrc, summary.malformed), (13, 0, 0));
    assert!(summary.unknown_icrc > 0 && text.contains("ICRC unknown"));
    assert_eq!((summary.conversations, summary.troubled), (1, 0), "{text}");
    // Only the BTH is left.
    let (text, summary) = cut(14 + 40 + 8 + 12);
    assert_eq!(summary.roce_v2, 13);
    assert!(text.contains("headers cut off by the capture"), "{text}");
    let (text, summary) = cut(14 + 40 + 8 + 11);
    assert_eq!(summary.roce_v2, 4, "the frames over IPv4");
    assert!(text.contains("9 cut off before the BTH"), "{text}");
}

#[test]
fn files_that_end_early_are_decoded_as_far_as_they_go() {
    let file = std::fs::read(data("roce/rxe61-ipv6.pcap")).unwrap();
    let whole = decode(&file, &DecodeOptions::default()).1;
    assert_eq!(whole.stopped, None);
    let (text, summary) = decode(&file[..file.len() - 1], &DecodeOptions::default());
    assert_eq!(summary.frames, whole.frames - 1);
    assert!(text.contains("Stopped early: the file ends inside a record after frame 34; the capture was cut short or is still being written\n"), "{text}");
    let (_, summary) = decode(&file[..24], &DecodeOptions::default());
    assert_eq!((summary.frames, summary.stopped), (0, None));
}

#[test]
fn other_files_are_refused_in_words() {
    for bytes in [&b""[..], b"GI", b"GIF89a, not a capture", &[0x0A, 0x0D, 0x0D, 0x0A]] {
        let error = crate::decode::run_stream(bytes, &DecodeOptions::default(), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("not a pcap or pcapng file"), "{error}");
    }
    let missing = std::path::Path::new("no/such/file.pcap");
    let error = crate::decode::run(missing, &DecodeOptions::default(), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().starts_with("no/such/file.pcap: cannot open"), "{error}");
}

/// Of an input that cannot be read twice only the last packets are known at its end.
#[test]
fn what_a_pipe_has_forgotten_is_said() {
    use super::peers::{From, Talk};
    let mut talk = Talk::new();
    talk.send(From::A, 10, 8);
    (0..66_000).for_each(|psn| {
        talk.send(From::B, psn, 4);
    });
    talk.ack(From::B, 10);
    let options = DecodeOptions { show: crate::decode::Show::Conversations, ..Default::default() };
    let (text, _) = decode(&talk.file(), &options);
    let life = text.split_once("The life of one SEND (frame 1)").expect("a life").1;
    assert!(life.contains("frames up to 466 are no longer known"), "{life}");
    assert!(life.contains("frame 66002 at "), "{life}");
}
