//! No file can make the decoder panic, loop or grow without bound.

use proptest::collection::vec;
use proptest::prelude::*;

use super::peers::From::{A, B};
use super::peers::Talk;
use super::{CAPTURES, data};
use crate::decode::{DecodeOptions, Followed, Show, run_stream};

fn exercise(bytes: &[u8]) {
    let all = [
        DecodeOptions::default(),
        DecodeOptions { json: true, ..Default::default() },
        DecodeOptions { json: true, show: Show::Conversations, follow: Followed::Frame(3) },
    ];
    for options in all {
        let _ = run_stream(bytes, &options, &mut std::io::sink());
    }
}

fn capture() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(&CAPTURES[1..])
        .prop_map(|name| std::fs::read(data(&format!("roce/{name}.pcap"))).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() })]

    #[test]
    fn damaged_captures_never_panic(
        mut bytes in capture(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..200),
        keep in any::<prop::sample::Index>(),
    ) {
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        exercise(&bytes);
        bytes.truncate(keep.index(bytes.len()));
        exercise(&bytes);
    }

    #[test]
    fn noise_after_a_file_header_never_panics(noise in vec(any::<u8>(), 0..2000), which in 0usize..6) {
        let magics: [&[u8]; 6] = [
            &[0xD4, 0xC3, 0xB2, 0xA1],
            &[0xA1, 0xB2, 0x3C, 0x4D],
            &[0x0A, 0x0D, 0x0D, 0x0A, 28, 0, 0, 0, 0x4D, 0x3C, 0x2B, 0x1A],
            &[0x0A, 0x0D, 0x0D, 0x0A, 0, 0, 0, 28, 0x1A, 0x2B, 0x3C, 0x4D],
            &[0x0A, 0x0D, 0x0D, 0x0A],
            &[],
        ];
        exercise(&[magics[which], &noise].concat());
    }

    #[test]
    fn any_order_of_packets_is_followed(steps in vec((0u8..9, 0u32..12, any::<bool>()), 0..80)) {
        let mut talk = Talk::new();
        for (what, psn, from_a) in steps {
            let from = if from_a { A } else { B };
            let psn = psn.wrapping_sub(6) & 0xFF_FFFF;
            match what {
                0 => talk.send(from, psn, 8),
                1 => talk.send_long(from, psn, 3),
                2 => talk.read(from, psn, 3000),
                3 => talk.response(from, psn, rdma_engine::wire::Position::Middle, 1024),
                4 => talk.response(from, psn, rdma_engine::wire::Position::Last, 20),
                5 => talk.ack(from, psn),
                6 => talk.nak(from, psn, rdma_engine::wire::NakCode::RemoteAccess),
                7 => talk.rnr(from, psn, 3),
                _ => talk.nak(from, psn, rdma_engine::wire::NakCode::PsnSequence),
            };
        }
        exercise(&talk.file());
    }
}

#[test]
fn lengths_that_make_no_sense_end_the_file_with_a_sentence() {
    let mut file = Talk::new().file();
    file.extend([0; 8]);
    file.extend([0xFF; 8]);
    let summary = run_stream(&file[..], &DecodeOptions::default(), &mut Vec::new()).unwrap();
    assert!(summary.stopped.unwrap().contains("a record claims more than 1 MiB"));

    let section = [
        0x0A, 0x0D, 0x0D, 0x0A, 28, 0, 0, 0, 0x4D, 0x3C, 0x2B, 0x1A, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 28,
        0, 0, 0,
    ];
    for (block, words) in [
        ([6, 0, 0, 0, 13, 0, 0, 0], "impossible length"),
        ([6, 0, 0, 0, 4, 0, 0, 0], "impossible length"),
        ([6, 0, 0, 0, 0, 0, 0, 0x7F], "more than 1 MiB"),
        ([9, 0, 0, 0, 0, 0, 0, 0x7F], "ends inside a record"),
    ] {
        let file = [&section[..], &block].concat();
        let summary = run_stream(&file[..], &DecodeOptions::default(), &mut Vec::new()).unwrap();
        let stopped = summary.stopped.unwrap();
        assert!(stopped.contains(words), "{stopped}");
    }
}

#[test]
fn tables_are_bounded() {
    let mut talk = Talk::new();
    for i in 0..20_000 {
        talk.qpns = [0x100, 0x1000 + i];
        talk.send(A, i, 4);
    }
    let options = DecodeOptions { show: Show::Conversations, ..Default::default() };
    let (text, summary) = super::decode(&talk.file(), &options);
    assert_eq!(summary.conversations, 16_384);
    assert!(text.contains(&format!("{} not followed, tables full", 20_000 - 16_384)));
}

#[test]
fn more_interfaces_than_are_kept_are_named_as_such() {
    let mut file = vec![10, 13, 13, 10, 28, 0, 0, 0, 0x4D, 0x3C, 0x2B, 0x1A, 1, 0, 0, 0];
    file.extend([0xFF; 8]);
    file.extend([28, 0, 0, 0]);
    (0..5000).for_each(|_| file.extend([1, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0]));
    let summary = run_stream(&file[..], &DecodeOptions::default(), &mut Vec::new()).unwrap();
    let stopped = summary.stopped.unwrap();
    assert!(stopped.contains("more than 4096 interfaces"), "{stopped}");
}
