//! Keepalives, silence, goodbye.

use super::super::super::frame::append;
use super::super::super::message::Fence;
use super::*;
use crate::types::Qpn;

const SECOND_MS: u64 = 1_000;

fn totals(frames: u64) -> Vec<QpTotal> {
    vec![QpTotal { qpn: Qpn::new(0x102), messages: frames / 2, frames }]
}

#[test]
fn keepalives_keep_an_idle_session() {
    for auth in [Auth::None, key(1)] {
        let mut pair = established(&auth);
        let seconds = if cfg!(miri) { 2 } else { 60 };
        pair.run_ms(seconds * SECOND_MS);
        for player in &pair.ends {
            assert!(player.session.is_established(), "{:?}", player.end());
            assert_eq!(player.session.round_trip_ns(), Some(0));
        }
        let frames = pair.said[CLIENT].len() as u64 / 36;
        assert!(frames > 10 * seconds, "a keepalive every 100 ms in {seconds} s, {frames} frames");
    }
}

#[test]
fn a_silent_peer_is_lost_after_the_agreed_time() {
    let mut pair = Pair::usual(&key(1));
    pair.ends[SERVER].offer.dead_after_ms = 300;
    pair.settle();
    let start = pair.now;
    while pair.ends[CLIENT].end().is_none() {
        let next = pair.next_timeout().unwrap();
        pair.advance(next.since_ns(pair.now));
        pair.wires = Default::default();
    }
    assert_eq!(pair.ends[CLIENT].end(), Some(&End::Lost(LostReason::Silent(300))));
    assert_eq!(pair.now.since_ns(start), 300_000_000, "the smaller of both counts");
    assert!(ends_once(&pair.ends[CLIENT]).to_string().contains("300 ms"));
}

#[test]
fn a_probe_ends_a_dead_session_early_and_leaves_a_live_one() {
    let mut pair = established(&key(1));
    pair.ends[SERVER].session.probe(pair.now, 50);
    pair.collect();
    pair.run_ms(SECOND_MS);
    assert!(pair.ends[SERVER].session.is_established());
    pair.ends[SERVER].session.probe(pair.now, 50);
    pair.ends[SERVER].session.probe(pair.now, 500);
    pair.wires = Default::default();
    pair.advance(50_000_000);
    assert!(matches!(ends_once(&pair.ends[SERVER]), End::Lost(LostReason::Silent(50..150))));
}

#[test]
fn a_broken_connection_is_noticed_at_once() {
    let mut pair = established(&key(1));
    pair.ends[CLIENT].session.handle_disconnect(Some(std::io::ErrorKind::ConnectionReset));
    pair.ends[SERVER].session.handle_disconnect(None);
    pair.collect();
    let reset = std::io::ErrorKind::ConnectionReset;
    assert_eq!(ends_once(&pair.ends[CLIENT]), &End::Lost(LostReason::Reset(reset)));
    assert_eq!(ends_once(&pair.ends[SERVER]), &End::Lost(LostReason::Closed));
}

#[test]
fn a_peer_that_never_reads_is_lost() {
    let mut pair = established(&Auth::None);
    let server = &mut pair.ends[SERVER];
    let fence = Fence { from: 2, to: 3 };
    let mut bytes = Vec::new();
    let message = Message::Keepalive(fence, 1);
    append(&mut bytes, message.kind(), |out| message.encode_body(out), None);
    let mut most = 0;
    while server.end().is_none() {
        server.hear(pair.now, &bytes);
        most = most.max(server.session.poll_transmit().len());
    }
    assert_eq!(ends_once(server), &End::Lost(LostReason::Stalled));
    assert!(most <= MAX_UNSENT + MAX_FRAME);
}

#[test]
fn goodbye_carries_the_totals_and_closes_both() {
    for first in [CLIENT, SERVER] {
        let mut pair = established(&key(1));
        pair.ends[1 - first].says_goodbye = false;
        pair.ends[first].session.goodbye(pair.now, GoodbyeReason::QpError, totals(40));
        pair.ends[first].session.goodbye(pair.now, GoodbyeReason::Shutdown, totals(99));
        pair.collect();
        pair.run_ms(SECOND_MS);
        let heard = SessionEvent::PeerGoodbye { reason: GoodbyeReason::QpError, totals: totals(40) };
        assert!(pair.ends[1 - first].events.contains(&heard));
        assert!(pair.ends.iter().all(|end| end.end().is_none()), "the other end still receives");
        pair.ends[1 - first].session.goodbye(pair.now, GoodbyeReason::Shutdown, totals(7));
        pair.collect();
        pair.settle();
        let heard = SessionEvent::PeerGoodbye { reason: GoodbyeReason::Shutdown, totals: totals(7) };
        assert!(pair.ends[first].events.contains(&heard));
        pair.ends.iter().for_each(|player| assert_eq!(ends_once(player), &End::Closed));
    }
}

#[test]
fn both_ends_may_say_goodbye_at_once() {
    let mut pair = established(&key(1));
    for end in [CLIENT, SERVER] {
        pair.ends[end].session.goodbye(pair.now, GoodbyeReason::Shutdown, totals(end as u64));
    }
    pair.collect();
    pair.settle();
    pair.ends.iter().for_each(|player| assert_eq!(ends_once(player), &End::Closed));
}

#[test]
fn a_goodbye_without_answer_has_a_deadline() {
    let mut pair = established(&key(1));
    pair.ends[SERVER].says_goodbye = false;
    pair.ends[CLIENT].session.goodbye(pair.now, GoodbyeReason::Shutdown, Vec::new());
    pair.collect();
    pair.run_ms(10 * SECOND_MS);
    assert_eq!(ends_once(&pair.ends[CLIENT]), &End::Lost(LostReason::NoGoodbye(5_000)));
}

#[test]
fn goodbye_before_the_terms_is_a_refusal() {
    let mut pair = Pair::usual(&key(1));
    pair.ends[CLIENT].session.goodbye(pair.now, GoodbyeReason::Shutdown, Vec::new());
    pair.collect();
    pair.settle();
    let End::RefusedByPeer(refusal) = ends_once(&pair.ends[SERVER]) else { panic!() };
    assert_eq!(refusal.reason, RefuseReason::Draining);
}
