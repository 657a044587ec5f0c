//! Back-pressure, credits, and what unreliable paths lose.

use super::carry::{all_home, relays};
use super::rig::{Pair, Setup, frame, label};
use super::watch::Fate;
use crate::service::Service;
use crate::service::relay::{OnFull, PathState, Relay};
use crate::stats::{Counter, DropReason};
use proptest::prelude::*;
use rdma_engine::heap::{HeapBuf, HeapPool};
use rdma_engine::loopback::LoopTransport;
use rdma_engine::types::QpType;

fn one_path(setup: Setup) -> Setup {
    setup.with(|r| r.paths = 1)
}

fn wants_rx(relay: &Relay<HeapBuf>) -> bool {
    Service::<LoopTransport<HeapBuf>, HeapPool>::wants_rx(relay)
}

/// Offers `n` frames of 16 flows.
fn offer(pair: &mut Pair<HeapPool>, end: usize, n: u32, length: usize) {
    for i in 0..n {
        assert!(pair.ends[end].offer(&frame(i % 16, i / 16, length)));
    }
}

#[test]
fn a_slow_port_holds_the_sender_back_and_loses_nothing() {
    let mut pair = relays(one_path(Setup::default()));
    pair.ends[1].tx_rate = 0;
    offer(&mut pair, 0, 1000, 300);
    pair.turns(500);
    let sender = &pair.ends[0];
    assert!(sender.relay.frames_held() > 0 && !wants_rx(&sender.relay));
    assert!(sender.rx.len() > 200, "the ring is the backlog");
    assert!(sender.count(Counter::Stalls) > 0);
    assert_eq!(sender.tally.all_drops(), 0);
    pair.ends[1].tx_rate = 32;
    pair.settle();
    assert_eq!((pair.ends[1].sent_count, pair.ends[0].tally.all_drops()), (1000, 0));
    assert!(!pair.saw_rnr());
    pair.close();
    all_home(pair);
}

#[test]
fn on_full_drop_drops_for_want_of_credits() {
    let mut pair = relays(one_path(Setup::default().with(|r| r.on_full = OnFull::Drop)));
    pair.ends[1].tx_rate = 0;
    offer(&mut pair, 0, 1000, 300);
    pair.turns(500);
    let dropped = pair.ends[0].dropped(DropReason::NoCredit);
    assert!(dropped > 0 && pair.ends[0].rx.is_empty() && pair.ends[0].relay.frames_held() == 0);
    assert_eq!(pair.ends[0].tally.all_drops(), dropped);
    pair.ends[1].tx_rate = 32;
    pair.settle();
    assert_eq!(pair.ends[1].sent_count + dropped, 1000);
    pair.close();
    all_home(pair);
}

#[test]
fn a_message_that_finds_the_queue_full_is_posted_later() {
    for on_full in [OnFull::Wait, OnFull::Drop] {
        let mut pair = relays(one_path(Setup::default().with(|r| r.on_full = on_full)));
        pair.ends[0].transport.refuse = 3;
        offer(&mut pair, 0, 20, 100);
        pair.turn();
        assert_eq!(pair.ends[0].relay.frames_held(), 20);
        offer(&mut pair, 0, 10, 100);
        pair.turn();
        let dropped = pair.ends[0].dropped(DropReason::QueueFull);
        assert_eq!(dropped, if on_full == OnFull::Drop { 10 } else { 0 });
        pair.settle();
        assert_eq!(pair.ends[1].sent_count + dropped, 30);
        pair.close();
        all_home(pair);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Whatever the depth and however slow the ports: nothing stands still and no message finds the peer unready.
    #[test]
    fn credits_neither_run_out_nor_are_overdrawn(
        depth in 4u32..12,
        srq in any::<bool>(),
        rates in [1usize..6, 1usize..40],
        offers in [0u32..400, 1u32..400],
        length in 60usize..2000,
        pause in 0usize..200,
        small in any::<bool>(),
    ) {
        let message_bytes = if small { 2100 } else { 9216 };
        let mut pair = relays(Setup { depth, srq, message_bytes, ..Setup::default() });
        for (end, frames) in offers.into_iter().enumerate() {
            offer(&mut pair, end, frames, length);
            pair.ends[end].tx_rate = 0;
        }
        pair.turns(pause);
        (0..2).for_each(|end| pair.ends[end].tx_rate = rates[end]);
        pair.settle();
        for (end, frames) in offers.into_iter().enumerate() {
            prop_assert_eq!(pair.ends[1 - end].sent_count, u64::from(frames));
            prop_assert_eq!(pair.ends[end].tally.all_drops(), 0);
        }
        prop_assert!(!pair.saw_rnr());
        pair.close();
        all_home(pair);
    }
}

/// Frames that were sent and neither arrived nor were counted lost.
fn unaccounted(pair: &Pair<HeapPool>, from: usize) -> u64 {
    let [sender, receiver] = [&pair.ends[from], &pair.ends[1 - from]];
    let known = receiver.count(Counter::FramesReceived) + receiver.dropped(DropReason::LostInTransit);
    sender.count(Counter::FramesSent) - known
}

#[test]
fn what_unreliable_paths_lose_is_known_to_the_frame() {
    for setup in [Setup { kind: QpType::Uc, ..Setup::default() }, Setup::ud()] {
        for (lose, later) in [(5, 0), (3, 4), (0, 3), (2, 0)] {
            let mut pair = relays(one_path(setup));
            for end in &mut pair.ends {
                end.transport.judge = Box::new(move |n| match n {
                    n if lose > 0 && n % lose == 1 => Fate::Lose,
                    n if later > 0 && n % later == 2 => Fate::Later,
                    _ => Fate::Arrive,
                });
            }
            offer(&mut pair, 0, 600, 400);
            offer(&mut pair, 1, 200, 60);
            pair.settle();
            pair.close();
            for from in 0..2 {
                assert_eq!(unaccounted(&pair, from), 0, "{} lose {lose} later {later}", setup.kind);
                let lost = pair.ends[1 - from].dropped(DropReason::LostInTransit);
                assert!(lost > 0 || from == 1);
                let totals = [0, 1].map(|end| pair.ends[end].downs[0].2);
                assert_eq!(totals[1 - from].frames_lost, lost);
                assert_eq!(totals[from].frames_sent, totals[1 - from].frames_received + lost);
            }
            // What arrived did so in order.
            let mut last = [None; 16];
            for bytes in &pair.ends[1].sent {
                let (flow, sequence) = label(bytes);
                assert!(last[flow as usize] < Some(sequence));
                last[flow as usize] = Some(sequence);
            }
            all_home(pair);
        }
    }
}

#[test]
fn a_path_that_has_lost_everything_asks_until_it_goes_on() {
    for setup in [Setup { kind: QpType::Uc, ..Setup::default() }, Setup::ud()] {
        let mut pair = relays(one_path(setup));
        // The first thing lost is the data, then the question, then the answers.
        for (end, lost) in [(1, 0..20), (0, 0..3)] {
            pair.ends[end].transport.judge =
                Box::new(move |n| if lost.contains(&n) { Fate::Lose } else { Fate::Arrive });
        }
        offer(&mut pair, 0, 400, 1000);
        pair.settle();
        pair.close();
        assert_eq!(unaccounted(&pair, 0), 0);
        assert!(pair.ends[1].sent_count > 0 && pair.ends[0].count(Counter::ControlReceived) > 0);
        all_home(pair);
    }
}

#[test]
fn a_close_that_is_lost_is_said_again() {
    for (end, lost) in [(0, 1), (1, 1), (0, 2)] {
        let mut pair = relays(one_path(Setup { kind: QpType::Uc, ..Setup::default() }));
        pair.ends[end].transport.judge = Box::new(move |n| if n < lost { Fate::Lose } else { Fate::Arrive });
        pair.close();
        assert!(pair.ends.iter().all(|e| e.tally.all_drops() == 0));
        all_home(pair);
    }
}

#[test]
fn nothing_is_sent_before_the_peer_is_ready() {
    for kind in [QpType::Rc, QpType::Uc] {
        let mut pair = Pair::apart(one_path(Setup { kind, ..Setup::default() }), super::carry::pools());
        pair.arm(0);
        pair.ends[0].relay.drain();
        pair.turns(50);
        assert_eq!(pair.states(), [vec![PathState::Closing], vec![PathState::Armed]]);
        assert_eq!(pair.ends[0].count(Counter::ControlSent), 0);
        assert!(!pair.ends[0].relay.is_drained());
        pair.ends.iter_mut().for_each(|end| end.relay.path_ready(0));
        pair.close();
        all_home(pair);
    }
}
