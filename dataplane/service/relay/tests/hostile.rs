//! Messages that no relay sends: each costs a counter, and the path goes on.

use super::carry::{all_home, relays};
use super::rig::{Pair, Setup, frame, label};
use crate::service::relay::header::{FIXED, Header, Kind, MAX_FRAMES, header_len};
use crate::stats::{Counter, DropReason};
use proptest::prelude::*;
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::heap::HeapPool;
use rdma_engine::types::QpType;

fn one_path(kind: QpType) -> Pair<HeapPool> {
    relays(Setup { kind, ..Setup::default() }.with(|r| r.paths = 1))
}

/// Sends `bytes` from the first end as they are.
fn forge(pair: &mut Pair<HeapPool>, bytes: &[u8]) {
    let end = &mut pair.ends[0];
    let mut buf = end.pools.frames.alloc().unwrap();
    buf.append(bytes.len()).unwrap().copy_from_slice(bytes);
    end.transport.forge(end.links[0].unwrap().qp, buf);
    pair.turns(4);
}

/// A message with frames of these lengths, as the first on its path.
fn message(generation: u32, sequence: u32, lengths: &[u16]) -> Vec<u8> {
    let kind = if lengths.is_empty() { Kind::Credit } else { Kind::Data };
    let frames = lengths.len() as u16;
    let header = Header { kind, frames, generation, sequence, credits: 8, frames_before: 0 };
    let mut bytes = vec![0; header_len(lengths.len())];
    header.emit(lengths, &mut bytes);
    bytes.resize(bytes.len() + lengths.iter().map(|l| usize::from(*l)).sum::<usize>(), 0xEE);
    bytes
}

/// Frames pass in both directions, and the path has never gone.
fn still_works(mut pair: Pair<HeapPool>, lost: u64) {
    let before = pair.ends[1].sent_count;
    for i in 0..200 {
        assert!(
            pair.ends[0].offer(&frame(i % 8, i / 8, 100)) && pair.ends[1].offer(&frame(i % 8, i / 8, 90))
        );
    }
    pair.settle();
    pair.close();
    assert_eq!(pair.ends[1].sent_count - before + lost, 200);
    assert_eq!(pair.ends[0].sent_count, 200);
    assert!(pair.ends[1].sent[before as usize..].iter().all(|f| label(f).0 < 8));
    all_home(pair);
}

#[test]
fn malformed_messages_cost_a_counter() {
    let good = |pair: &Pair<HeapPool>| message(pair.generation, 0, &[60, 70]);
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 12] = [
        ("version", |m| m[0] = 2),
        ("kind 0", |m| m[1] = 0),
        ("kind 9", |m| m[1] = 9),
        ("data called credit", |m| m[1] = 2),
        ("more frames than there are", |m| m[3] = 3),
        ("fewer frames than there are", |m| m[3] = 1),
        ("too many frames", |m| m[2] = 1),
        ("a length that is too large", |m| m[FIXED] = 1),
        ("a length of 0", |m| {
            m[FIXED + 1] = 0;
            m[FIXED + 3] += 60;
        }),
        ("cut short", |m| m.truncate(m.len() - 1)),
        ("half a header", |m| m.truncate(FIXED - 1)),
        ("nothing", |m| m.clear()),
    ];
    for kind in [QpType::Rc, QpType::Uc] {
        let mut pair = one_path(kind);
        for (i, (name, damage)) in damages.iter().enumerate() {
            let mut bytes = good(&pair);
            damage(&mut bytes);
            forge(&mut pair, &bytes);
            assert_eq!(pair.ends[1].dropped(DropReason::Malformed), i as u64 + 1, "{name}");
        }
        assert_eq!(pair.ends[1].tally.all_drops(), damages.len() as u64);
        assert_eq!(pair.ends[1].sent_count, 0);
        still_works(pair, 0);
    }
}

#[test]
fn messages_of_another_generation_cost_a_counter() {
    let mut pair = one_path(QpType::Rc);
    for off in [1, u32::MAX] {
        let stale = message(pair.generation.wrapping_add(off), 0, &[60]);
        forge(&mut pair, &stale);
    }
    assert_eq!(pair.ends[1].dropped(DropReason::StaleGeneration), 2);
    assert_eq!(pair.ends[1].sent_count, 0);
    still_works(pair, 0);
}

#[test]
fn totals_that_cannot_be_are_malformed() {
    let mut pair = one_path(QpType::Uc);
    let generation = pair.generation;
    let told = |sequence: u32, frames_before: u64| {
        let mut bytes = message(generation, sequence, &[60]);
        bytes[16..24].copy_from_slice(&frames_before.to_be_bytes());
        bytes
    };
    let most = MAX_FRAMES as u64;
    for impossible in [told(0, 1), told(0, u64::MAX), told(3, 3 * most + 1), told(1, u64::MAX - 5)] {
        forge(&mut pair, &impossible);
    }
    assert_eq!(pair.ends[1].dropped(DropReason::Malformed), 4);
    assert_eq!(pair.ends[1].dropped(DropReason::LostInTransit), 0);
    still_works(pair, 0);
}

#[test]
fn a_message_that_comes_twice_is_taken_once() {
    let mut pair = one_path(QpType::Uc);
    let first = message(pair.generation, 0, &[60, 60]);
    (0..3).for_each(|_| forge(&mut pair, &first));
    assert_eq!((pair.ends[1].sent_count, pair.ends[1].count(Counter::FramesReceived)), (2, 2));
    assert_eq!(pair.ends[1].tally.all_drops(), 0);
    all_home(pair);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Any bytes, and any change of a good message.
    #[test]
    fn no_bytes_of_a_peer_break_the_path(
        rubbish in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..6),
        changes in prop::collection::vec((0usize..FIXED + 4, any::<u8>()), 1..4),
        kind in prop_oneof![Just(QpType::Rc), Just(QpType::Uc)],
    ) {
        let mut pair = one_path(kind);
        for bytes in &rubbish {
            forge(&mut pair, bytes);
        }
        let mut bytes = message(pair.generation, 0, &[60, 70]);
        for (at, value) in changes {
            bytes[at] = value;
        }
        forge(&mut pair, &bytes);
        pair.turns(20);
        prop_assert!(pair.ends.iter().all(|e| e.downs.is_empty() || e.count(Counter::ControlReceived) > 0));
        for i in 0..40 {
            prop_assert!(pair.ends[1].offer(&frame(i % 8, i / 8, 90)));
        }
        pair.turns(100);
        all_home(pair);
    }
}
