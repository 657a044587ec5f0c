//! Paths dying, coming back and closing.

use super::carry::{all_home, pools, relays};
use super::rig::{Pair, Setup, TURN_NS, frame, label};
use crate::service::relay::{OnFull, PathEnd, PathState};
use crate::stats::{Counter, DropReason};
use rdma_engine::heap::HeapPool;
use rdma_engine::types::QpType;
use rdma_engine::wr::Status;
use std::collections::HashSet;

fn offer(pair: &mut Pair<HeapPool>, end: usize, numbers: std::ops::Range<u32>) {
    for i in numbers {
        assert!(pair.ends[end].offer(&frame(i % 32, i / 32, 60 + (i as usize * 37) % 900)));
    }
}

/// Frames that arrived, each of them once.
fn distinct(pair: &Pair<HeapPool>, end: usize) -> usize {
    let seen: HashSet<(u32, u32)> = pair.ends[end].sent.iter().map(|f| label(f)).collect();
    assert_eq!(seen.len(), pair.ends[end].sent.len(), "a frame came twice");
    seen.len()
}

#[test]
fn flows_of_a_dead_path_move_to_the_others() {
    let mut pair = relays(Setup::default().with(|r| r.paths = 3));
    offer(&mut pair, 0, 0..320);
    pair.settle();
    pair.fail(1);
    offer(&mut pair, 0, 320..640);
    pair.settle();
    assert_eq!((distinct(&pair, 1), pair.ends[0].tally.all_drops()), (640, 0));
    assert!(pair.ends[0].relay.flow_stats().moved > 0);
    assert!(pair.ends.iter().all(|e| e.downs == [(1, PathEnd::Told, e.downs[0].2)]));
    assert_eq!(pair.states()[0], [PathState::Up, PathState::Empty, PathState::Up]);
    pair.connect(1);
    // New flows use it again; those that have moved stay where they are.
    let moved = pair.ends[0].relay.flow_stats().moved;
    for i in 0..64 {
        assert!(pair.ends[0].offer(&frame(100 + i, 0, 60)));
    }
    offer(&mut pair, 0, 640..960);
    pair.settle();
    assert_eq!(pair.ends[0].relay.flow_stats().moved, moved);
    assert_eq!(distinct(&pair, 1), 640 + 64 + 320);
    assert!(pair.ends[1].relay.path_totals(1).frames_received > 0);
    pair.close();
    all_home(pair);
}

#[test]
fn frames_under_way_on_a_dying_path_are_dropped_by_name_or_arrive() {
    for end in 0..2 {
        let mut pair = relays(Setup::default());
        pair.ends[1].tx_rate = 3;
        offer(&mut pair, 0, 0..2000);
        pair.turns(5);
        pair.fail_at(end, 0);
        // The other side learns it from its transport: what it sends is not answered any more.
        assert!(pair.until(|p| p.ends[end].links[0].is_none()));
        pair.fail_at(1 - end, 0);
        pair.ends[1].tx_rate = 32;
        pair.settle();
        let lost = pair.ends[0].dropped(DropReason::PathDown);
        assert_eq!(distinct(&pair, 1) as u64 + lost, 2000);
        assert_eq!(pair.ends[0].tally.all_drops(), lost);
        assert_eq!(pair.ends[1].tally.all_drops(), 0);
        pair.reconnect();
        pair.close();
        all_home(pair);
    }
}

#[test]
fn without_any_path_frames_wait_for_a_while_and_are_then_dropped_under_one_name() {
    let mut pair = relays(Setup::default());
    let patience = (pair.setup.relay.dead_path_wait_ns / TURN_NS) as usize;
    (0..2).for_each(|path| pair.fail(path));
    offer(&mut pair, 0, 0..320);
    pair.turns(patience - 1);
    assert_eq!(pair.ends[0].tally.all_drops(), 0);
    assert_eq!((pair.ends[0].relay.frames_held(), pair.ends[0].rx.len()), (32, 288));
    // Giving up again what is already given up does not make the wait longer.
    (0..2).for_each(|path| pair.fail(path));
    pair.turns(15);
    assert_eq!(pair.ends[0].dropped(DropReason::PathDown), 320);
    assert_eq!(pair.ends[0].tally.all_drops(), 320);
    pair.reconnect();
    offer(&mut pair, 0, 320..640);
    pair.settle();
    assert_eq!(distinct(&pair, 1), 320);
    pair.close();
    all_home(pair);
}

#[test]
fn frames_that_wait_go_on_when_the_connection_is_back_in_time() {
    let mut pair = relays(Setup::default());
    (0..2).for_each(|path| pair.fail(path));
    offer(&mut pair, 0, 0..320);
    pair.turns(20);
    pair.reconnect();
    pair.settle();
    assert_eq!((distinct(&pair, 1), pair.ends[0].tally.all_drops()), (320, 0));
    all_home(pair);
}

#[test]
fn with_on_full_drop_nothing_waits_for_a_dead_path() {
    let mut pair = relays(Setup::default().with(|r| r.on_full = OnFull::Drop));
    (0..2).for_each(|path| pair.fail(path));
    offer(&mut pair, 0, 0..320);
    pair.turns(12);
    assert_eq!((pair.ends[0].dropped(DropReason::PathDown), pair.ends[0].tally.all_drops()), (320, 320));
    all_home(pair);
}

#[test]
fn a_connection_that_is_built_over_an_old_backlog_stays() {
    for srq in [false, true] {
        let mut pair = relays(Setup { srq, ..Setup::default() }.with(|r| r.paths = 1));
        pair.ends[1].tx_rate = 0;
        offer(&mut pair, 0, 0..1000);
        pair.turns(100);
        assert!(pair.ends[1].relay.frames_waiting() > 0, "the port is stuck");
        for _ in 0..5 {
            pair.fail(0);
            assert!(pair.until(|p| p.ends.iter().all(|e| e.links[0].is_none())));
            pair.reconnect();
            pair.turns(50);
        }
        pair.ends[1].tx_rate = 5;
        pair.settle();
        let lost = pair.ends[0].dropped(DropReason::PathDown);
        let unseen = 1000 - lost - distinct(&pair, 1) as u64;
        assert!(unseen == 0 || srq, "{unseen} frames are nowhere");
        let ends: Vec<PathEnd> = pair.ends.iter().flat_map(|e| e.downs.iter().map(|d| d.1)).collect();
        assert_eq!(ends, [PathEnd::Told; 10]);
        assert!(!pair.saw_rnr());
        pair.close();
        all_home(pair);
    }
}

#[test]
fn paths_on_a_shared_queue_come_and_go() {
    let mut pair = relays(Setup { srq: true, ..Setup::default() }.with(|r| r.paths = 4));
    let mut sent = 0;
    for round in 0..12 {
        for end in 0..2 {
            offer(&mut pair, end, sent..sent + 320);
        }
        sent += 320;
        pair.settle();
        pair.fail(round % 4);
        assert!(pair.until(|p| p.ends.iter().all(|e| e.links[usize::from(round % 4)].is_none())));
        if round % 3 == 2 {
            pair.reconnect();
        }
    }
    assert_eq!([0, 1].map(|end| distinct(&pair, end)), [sent as usize; 2]);
    assert!(pair.ends.iter().all(|e| e.tally.all_drops() == 0) && !pair.saw_rnr());
    pair.reconnect();
    pair.close();
    all_home(pair);
}

#[test]
fn one_side_or_both_drain_and_nothing_is_lost() {
    for kind in [QpType::Rc, QpType::Uc, QpType::Ud] {
        for both in [false, true] {
            let setup = if kind == QpType::Ud { Setup::ud() } else { Setup { kind, ..Setup::default() } };
            let mut pair = relays(setup);
            pair.ends[1].tx_rate = 4;
            offer(&mut pair, 0, 0..900);
            offer(&mut pair, 1, 0..900);
            pair.turns(10);
            pair.ends[0].relay.drain();
            if both {
                pair.ends[1].relay.drain();
            }
            let closed = |p: &Pair<HeapPool>| p.ends.iter().all(|e| e.links.iter().all(Option::is_none));
            assert!(pair.until(closed), "{:?}", pair.states());
            assert!(pair.ends[0].relay.is_drained());
            pair.until(|p| p.ends.iter().all(|e| e.outbox.is_empty() && e.relay.frames_waiting() == 0));
            for (from, to) in [(0, 1), (1, 0)] {
                let down = pair.ends[from].dropped(DropReason::PathDown);
                let went = pair.ends[from].taken - down - pair.ends[from].relay.frames_held() as u64;
                assert_eq!(distinct(&pair, to) as u64, went, "{kind} from {from}");
                assert_eq!(pair.ends[from].tally.all_drops(), down);
            }
            assert_eq!(pair.ends[0].tally.all_drops(), 0, "what was taken before the drain was sent");
            let ends = pair.ends.iter().flat_map(|e| e.downs.iter().map(|d| d.1));
            assert!(ends.eq([PathEnd::Closed; 4]));
            all_home(pair);
        }
    }
}

/// The peer has used all its credits, the last one for telling ours, when this side closes.
#[test]
fn a_side_without_data_credits_can_still_close() {
    for depth in [4, 5, 8] {
        let mut pair = relays(Setup { depth, ..Setup::default() }.with(|r| r.paths = 1));
        (0..2).for_each(|end| pair.ends[end].tx_rate = 0);
        for end in 0..2 {
            offer(&mut pair, end, 0..600);
        }
        pair.turns(100);
        pair.ends[0].tx_rate = 32;
        pair.turns(6);
        pair.ends[0].tx_rate = 0;
        pair.turns(100);
        (0..2).for_each(|end| pair.ends[end].relay.drain());
        (0..2).for_each(|end| pair.ends[end].tx_rate = 32);
        pair.close();
        all_home(pair);
    }
}

#[test]
fn abandoning_drops_what_is_held_by_name() {
    let mut pair = relays(Setup::default());
    pair.ends[1].tx_rate = 0;
    offer(&mut pair, 0, 0..1000);
    offer(&mut pair, 1, 0..40);
    pair.turns(100);
    let held = pair.ends[0].relay.frames_held() as u64;
    let waiting = pair.ends[1].relay.frames_waiting() as u64;
    assert!(held > 0 && waiting > 0);
    for end in 0..2 {
        pair.ends[end].relay.drain();
        assert!(!pair.ends[end].relay.is_drained());
        pair.abandon(end);
        pair.ends[end].check_balance();
    }
    assert_eq!(pair.ends[0].dropped(DropReason::Drained), held);
    assert_eq!(pair.ends[1].dropped(DropReason::Drained), waiting);
    assert!(pair.until(|p| p.ends.iter().all(|e| e.links.iter().all(Option::is_none))));
    assert!(pair.ends.iter().all(|e| e.relay.is_drained()));
    all_home(pair);
}

#[test]
fn a_peer_that_is_gone_ends_the_path_by_its_transport() {
    let mut pair = relays(Setup::default().with(|r| r.paths = 1));
    pair.fail_at(1, 0);
    assert!(pair.until(|p| p.ends[1].links[0].is_none()));
    offer(&mut pair, 0, 0..32);
    assert!(pair.until(|p| p.ends[0].links[0].is_none()));
    assert_eq!(pair.ends[0].downs[0].1, PathEnd::Send(Status::RetryExcErr));
    assert_eq!(pair.ends[0].dropped(DropReason::PathDown), 32);
    assert_eq!(pair.ends[0].count(Counter::FramesSent), 0);
    pair.reconnect();
    offer(&mut pair, 0, 32..64);
    pair.settle();
    assert_eq!(distinct(&pair, 1), 32);
    pair.close();
    all_home(pair);
}

#[test]
fn receives_that_a_dry_pool_kept_back_are_posted_later() {
    let mut few = pools();
    few[1].messages = HeapPool::new(12, 9216);
    let mut pair = Pair::connected(Setup::default(), few);
    offer(&mut pair, 0, 0..32);
    pair.turns(10);
    pair.ends[1].pools.messages = HeapPool::new(64, 9216);
    offer(&mut pair, 0, 32..640);
    pair.settle();
    assert_eq!((distinct(&pair, 1), pair.saw_rnr()), (640, false));
    pair.close();
    all_home(pair);
}
