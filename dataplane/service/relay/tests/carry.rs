//! What a relay carries: order, sizes, copies and cuts.

use super::rig::{Pair, Setup, frame, label};
use crate::service::Pools;
use crate::service::relay::OnFull;
use crate::stats::{Counter, DropReason};
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::heap::HeapPool;
use rdma_engine::types::QpType;
use std::collections::HashMap;

pub(super) fn pools() -> [Pools<HeapPool>; 2] {
    [0, 1].map(|_| Pools {
        frames: HeapPool::new(2048, 9100),
        messages: HeapPool::new(512, 9216),
        slices: HeapPool::new(2048, 0),
    })
}

pub(super) fn relays(setup: Setup) -> Pair<HeapPool> {
    Pair::connected(setup, pools())
}

/// Takes the pair apart; every buffer has to be home.
pub(super) fn all_home(pair: Pair<HeapPool>) {
    for pools in pair.dismantle() {
        for pool in [&pools.frames, &pools.messages, &pools.slices] {
            assert!(pool.is_full(), "{} of {} buffers are missing", pool.in_use(), pool.capacity());
        }
    }
}

/// Numbers of each flow, in the order of arrival.
fn by_flow(frames: &[Vec<u8>]) -> HashMap<u32, Vec<u32>> {
    let mut flows: HashMap<u32, Vec<u32>> = HashMap::new();
    for bytes in frames {
        let (flow, sequence) = label(bytes);
        flows.entry(flow).or_default().push(sequence);
    }
    flows
}

#[test]
fn flows_keep_their_order_over_many_paths() {
    for kind in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let setup = if kind == QpType::Ud { Setup::ud() } else { Setup { kind, ..Setup::default() } };
        let mut pair = relays(setup.with(|r| r.paths = 4));
        let mut next = [[0u32; 60]; 2];
        for round in 0..40u32 {
            for (end, next) in next.iter_mut().enumerate() {
                for i in 0..25u32 {
                    let flow = (round * 7 + i * i) % 60;
                    let sequence = &mut next[flow as usize];
                    let length = 60 + ((round * 131 + i * 977) % 1900) as usize;
                    assert!(pair.ends[end].offer(&frame(flow, *sequence, length)));
                    *sequence += 1;
                }
            }
            pair.turn();
        }
        pair.settle();
        for (end, next) in next.iter().enumerate() {
            let flows = by_flow(&pair.ends[1 - end].sent);
            for (flow, sequences) in &flows {
                assert!(sequences.iter().copied().eq(0..next[*flow as usize]), "{kind} flow {flow}");
            }
            assert_eq!(pair.ends[1 - end].sent_count, 1000);
            assert!(pair.ends[end].relay.flow_stats().inserted >= flows.len() as u64);
            assert_eq!(pair.ends[end].tally.all_drops(), 0);
        }
        pair.close();
        all_home(pair);
    }
}

#[test]
fn frames_of_every_size_arrive_as_they_were() {
    let mut pair = relays(Setup::default());
    let sizes = (60..=1600).step_by(7).chain((1600..=9018).step_by(211)).chain([255, 256, 257, 9000, 9018]);
    let mut offered: Vec<Vec<u8>> =
        sizes.enumerate().map(|(i, size)| frame(i as u32, i as u32, size)).collect();
    // Shorter ones than Ethernet has, down to a header.
    offered.extend((14..60).map(|n| (0..n).map(|i| (n * 3 + i) as u8).collect::<Vec<u8>>()));
    for bytes in &offered {
        assert!(pair.ends[0].offer(bytes));
    }
    pair.settle();
    let mut arrived = std::mem::take(&mut pair.ends[1].sent);
    offered.sort();
    arrived.sort();
    assert!(offered == arrived, "{} frames offered, {} arrived", offered.len(), arrived.len());
    pair.close();
    all_home(pair);
}

#[test]
fn runts_cost_a_counter() {
    let mut pair = relays(Setup::default());
    for n in 0..14 {
        assert!(pair.ends[0].offer(&[7; 14][..n]));
        assert!(pair.ends[0].offer(&frame(n as u32, 0, 60)));
    }
    pair.settle();
    assert_eq!((pair.ends[0].dropped(DropReason::Runt), pair.ends[1].sent_count), (14, 14));
    all_home(pair);
}

#[test]
fn the_copybreak_decides_what_is_copied() {
    for (length, copied, sliced) in [(256, 9, 0), (257, 0, 9)] {
        let setup = Setup { max_segments: 10, ..Setup::default() }.with(|r| r.paths = 1);
        let mut pair = relays(setup);
        for i in 0..10 {
            assert!(pair.ends[0].offer(&frame(4, i, length)));
        }
        pair.settle();
        assert_eq!(pair.ends[0].count(Counter::MessagesSent), 1);
        assert_eq!(pair.ends[0].count(Counter::FramesCopied), copied, "the first frame stays where it is");
        assert_eq!(pair.ends[1].count(Counter::FramesSliced), sliced, "the last takes the buffer along");
        assert_eq!(by_flow(&pair.ends[1].sent)[&4], (0..10).collect::<Vec<_>>());
        all_home(pair);
    }
}

/// Messages that `frames` of `length` bytes of one flow make.
fn messages(setup: Setup, frames: u32, length: usize) -> u64 {
    let mut pair = relays(setup.with(|r| r.paths = 1));
    for i in 0..frames {
        assert!(pair.ends[0].offer(&frame(5, i, length)));
    }
    pair.settle();
    assert_eq!(by_flow(&pair.ends[1].sent)[&5], (0..frames).collect::<Vec<_>>());
    let messages = pair.ends[0].count(Counter::MessagesSent);
    all_home(pair);
    messages
}

#[test]
fn messages_are_cut_at_their_limits() {
    // 24 bytes of header, then 2 + 300 a frame: three of them.
    let bytes = Setup { message_bytes: 24 + 3 * 302, max_segments: 8, ..Setup::default() };
    assert_eq!(messages(bytes, 10, 300), 4);
    assert_eq!(messages(Setup { message_bytes: 24 + 3 * 302 - 1, ..bytes }, 10, 300), 5);
    let segments = Setup { max_segments: 3, ..Setup::default() };
    assert_eq!(messages(segments, 10, 300), 4);
    assert_eq!(messages(Setup { max_segments: 1, ..segments }, 10, 300), 10);
    assert_eq!(messages(Setup { max_segments: 1, ..segments }, 10, 100), 1, "copies are no segments");
    assert_eq!(messages(Setup::default(), 32, 60), 1, "a message holds a burst of small frames");
    assert_eq!(messages(Setup::default(), 33, 60), 2);
}

#[test]
fn a_frame_too_long_for_a_message_is_dropped_by_name() {
    let mut pair = relays(Setup { message_bytes: 1026, ..Setup::default() });
    for (i, length) in [1000, 1001, 9000, 1000].into_iter().enumerate() {
        assert!(pair.ends[0].offer(&frame(i as u32, 0, length)));
    }
    pair.settle();
    assert_eq!((pair.ends[0].dropped(DropReason::Oversize), pair.ends[1].sent_count), (2, 2));
    all_home(pair);
}

/// A frame in so many segments.
fn scattered(pair: &Pair<HeapPool>, bytes: &[u8], segments: usize) -> rdma_engine::heap::HeapBuf {
    let frames = &pair.ends[0].pools.frames;
    let mut parts = bytes.chunks(bytes.len().div_ceil(segments)).map(|part| {
        let mut buf = frames.alloc().unwrap();
        buf.append(part.len()).unwrap().copy_from_slice(part);
        buf
    });
    let mut head = parts.next().unwrap();
    parts.for_each(|part| head.chain(part).unwrap());
    head
}

#[test]
fn scattered_frames_are_carried_up_to_the_limit_of_segments() {
    let mut pair = relays(Setup { max_segments: 4, ..Setup::default() });
    for (i, segments) in [1, 2, 3, 4, 5, 7, 4].into_iter().enumerate() {
        let whole = scattered(&pair, &frame(9, i as u32, 1500), segments);
        pair.ends[0].rx.push_back(whole);
    }
    pair.settle();
    assert_eq!(by_flow(&pair.ends[1].sent)[&9], [0, 1, 2, 3, 6]);
    assert_eq!(pair.ends[0].dropped(DropReason::Oversize), 2);
    assert!(pair.ends.iter().all(|e| e.downs.is_empty()), "a frame must not cost the path");
    all_home(pair);
}

#[test]
fn shared_frames_and_frames_without_headroom_get_their_header_in_front() {
    let mut pair = relays(Setup::default());
    let pools = &pair.ends[0].pools;
    let mut parents = vec![];
    let mut offered = vec![];
    for i in 0..6u32 {
        let bytes = frame(3, i, 400);
        let mut buf = pools.frames.alloc().unwrap();
        buf.append(bytes.len()).unwrap().copy_from_slice(&bytes);
        if i % 2 == 0 {
            offered.push(pools.slices.slice(&buf, 0, bytes.len()).unwrap());
            parents.push(buf);
        } else {
            let (headroom, mut tight) = (buf.headroom(), pools.frames.alloc().unwrap());
            tight.prepend(headroom).unwrap()[..bytes.len().min(headroom)].fill(0);
            tight.truncate(0);
            tight.append(bytes.len()).unwrap().copy_from_slice(&bytes);
            offered.push(tight);
        }
    }
    assert!(offered.iter().all(|f| f.headroom() < 88 || !f.is_unique()));
    pair.ends[0].rx.extend(offered);
    pair.settle();
    assert_eq!(by_flow(&pair.ends[1].sent)[&3], [0, 1, 2, 3, 4, 5]);
    drop(parents);
    all_home(pair);
}

#[test]
fn a_dry_pool_costs_frames_by_name_and_nothing_else() {
    let mut few = pools();
    few[1].frames = HeapPool::new(4, 9100);
    few[1].slices = HeapPool::new(4, 0);
    let mut pair = Pair::connected(Setup::default().with(|r| r.paths = 1), few);
    pair.ends[1].tx_rate = 2;
    for i in 0..200 {
        assert!(pair.ends[0].offer(&frame(i % 8, i / 8, if i % 2 == 0 { 100 } else { 500 })));
    }
    pair.settle();
    let dry = pair.ends[1].dropped(DropReason::PoolDry);
    assert!(dry > 0 && dry + pair.ends[1].sent_count == 200, "{dry} dropped");
    pair.close();
    all_home(pair);
}

#[test]
fn without_a_place_in_the_flow_table_frames_go_by_their_hash_or_not_at_all() {
    use crate::service::relay::OnTableFull;
    for policy in [OnTableFull::Hash, OnTableFull::Drop] {
        let setup = Setup::default().with(|r| (r.flow_capacity, r.on_table_full) = (8, policy));
        let mut pair = relays(setup.with(|r| r.on_full = OnFull::Wait));
        for i in 0..400 {
            assert!(pair.ends[0].offer(&frame(i % 100, i / 100, 60)));
        }
        pair.settle();
        let (dropped, stats) =
            (pair.ends[0].dropped(DropReason::FlowTableFull), pair.ends[0].relay.flow_stats());
        assert!(stats.full >= 4 * 92 && stats.live <= 8, "{stats:?}");
        assert_eq!(dropped, if policy == OnTableFull::Drop { stats.full } else { 0 });
        assert_eq!(pair.ends[1].sent_count + dropped, 400);
        for (flow, sequences) in by_flow(&pair.ends[1].sent) {
            assert!(sequences.iter().copied().eq(0..4), "flow {flow}: {sequences:?}");
        }
        all_home(pair);
    }
}
