//! Both state machines back to back.

mod attack;
mod refusals;
mod running;

use proptest::prelude::*;

use super::super::fuzz::fuzz_session;
use super::super::pair::{CLIENT, Pair, Player, SERVER, key};
use super::*;

fn agreement(player: &Player) -> &Agreement {
    let agreed = player.events.iter().find_map(|event| match event {
        SessionEvent::Agreed(agreement) => Some(agreement),
        _ => None,
    });
    agreed.expect("the ends came to terms")
}

fn established(auth: &Auth) -> Pair {
    let mut pair = Pair::usual(auth);
    pair.settle();
    assert!(pair.ends.iter().all(Player::was_established), "{:?}", pair.ends.each_ref().map(|e| &e.events));
    pair
}

#[test]
fn both_ends_come_to_the_same_terms_and_are_established() {
    for auth in [Auth::None, key(1)] {
        let pair = established(&auth);
        let [client, server] = pair.ends.each_ref().map(agreement);
        assert_eq!(client.agreed.mirrored(), server.agreed);
        assert_eq!(client.peer.identity.node, "east");
        assert_eq!(server.peer.identity.node, "west");
        assert_eq!(client.peer.offer, pair.ends[SERVER].offer);
        assert_eq!(server.peer.offer, pair.ends[CLIENT].offer);
        assert_eq!(client.agreed.qps.len(), 2);
    }
}

#[test]
fn events_come_in_order() {
    let pair = established(&key(1));
    let kinds = |end: usize| -> Vec<&'static str> {
        let kind = |event: &SessionEvent| match event {
            SessionEvent::OfferWanted(None) => "offer",
            SessionEvent::OfferWanted(Some(_)) => "offer to a peer",
            SessionEvent::Agreed(_) => "agreed",
            SessionEvent::Established => "established",
            _ => "other",
        };
        pair.ends[end].events.iter().map(kind).collect()
    };
    assert_eq!(kinds(CLIENT), ["offer", "agreed", "established"]);
    assert_eq!(kinds(SERVER), ["offer to a peer", "agreed", "established"]);
}

#[test]
fn nobody_is_established_before_both_are_ready() {
    for late in [CLIENT, SERVER] {
        let mut pair = Pair::usual(&key(1));
        pair.ends[late].gets_ready = false;
        pair.settle();
        assert!(!pair.ends.iter().any(Player::was_established));
        pair.ends[late].session.local_ready(pair.now);
        pair.collect();
        pair.settle();
        assert!(pair.ends.iter().all(Player::was_established));
        pair.ends[late].session.local_ready(pair.now);
        pair.collect();
        assert!(pair.wires[late].is_empty(), "a second local_ready says nothing");
    }
}

#[test]
fn an_offer_outside_its_bounds_is_returned_and_another_one_taken() {
    let mut pair = Pair::usual(&Auth::None);
    let challenge = std::mem::take(&mut pair.wires[SERVER]);
    let session = &mut pair.ends[CLIENT].session;
    session.handle_bytes(pair.now, &challenge);
    assert!(matches!(session.poll_event(), Some(SessionEvent::OfferWanted(None))));
    let mut bad = pair.ends[CLIENT].offer.clone();
    bad.retry_count = 9;
    let session = &mut pair.ends[CLIENT].session;
    assert_eq!(session.offer(pair.now, bad).unwrap_err().field, "retry_count");
    session.offer(pair.now, pair.ends[CLIENT].offer.clone()).unwrap();
    pair.collect();
    pair.settle();
    assert!(pair.ends.iter().all(Player::was_established));
}

/// Total bytes that each end sends up to Established.
fn handshake_len(auth: &Auth) -> [usize; 2] {
    established(auth).said.each_ref().map(Vec::len)
}

/// Delivers everything except what lies behind byte `at` from `from`.
fn settle_up_to(pair: &mut Pair, from: usize, at: usize) {
    let mut left = at;
    loop {
        let step = left.min(pair.wires[from].len());
        pair.deliver(from, step);
        left -= step;
        pair.deliver(1 - from, usize::MAX);
        if pair.wires[1 - from].is_empty() && (left == 0 || pair.wires[from].is_empty()) {
            return;
        }
    }
}

fn ends_once(player: &Player) -> &End {
    let ends = player.events.iter().filter(|event| matches!(event, SessionEvent::Ended(_))).count();
    assert_eq!(ends, 1, "{:?}", player.events);
    player.end().unwrap()
}

#[test]
#[cfg_attr(miri, ignore = "too many sessions for an interpreter")]
fn a_cut_at_any_byte_ends_both_ends_once() {
    for auth in [Auth::None, key(1)] {
        for from in [CLIENT, SERVER] {
            for at in 0..=handshake_len(&auth)[from] {
                let mut pair = Pair::usual(&auth);
                settle_up_to(&mut pair, from, at);
                pair.cut();
                for player in &pair.ends {
                    assert_eq!(ends_once(player), &End::Lost(LostReason::Closed));
                    assert!(player.session.poll_timeout().is_none());
                }
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many sessions for an interpreter")]
fn silence_from_any_byte_on_ends_both_ends_by_their_deadlines() {
    for auth in [Auth::None, key(1)] {
        for from in [CLIENT, SERVER] {
            for at in 0..handshake_len(&auth)[from] {
                let mut pair = Pair::usual(&auth);
                settle_up_to(&mut pair, from, at);
                // From here on nothing from `from` arrives; the other direction works.
                while let Some(next) = pair.next_timeout() {
                    pair.advance(next.since_ns(pair.now));
                    pair.wires[from].clear();
                    pair.deliver(1 - from, usize::MAX);
                    pair.wires[from].clear();
                }
                pair.ends.iter().for_each(|player| {
                    ends_once(player);
                });
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    /// However TCP cuts the stream and however long it takes, the ends come to terms.
    #[test]
    fn any_chunking_and_delay_succeeds(
        steps in prop::collection::vec((0usize..2, 1usize..300, 0u64..2_000_000), 1..200),
        keyed: bool,
    ) {
        let mut pair = Pair::usual(&if keyed { key(1) } else { Auth::None });
        for (from, count, delay_ns) in steps {
            pair.deliver(from, count);
            pair.advance(delay_ns);
        }
        pair.settle();
        prop_assert!(pair.ends.iter().all(Player::was_established));
    }

    #[test]
    fn the_fuzz_target_holds_on_random_scripts(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz_session(&bytes);
    }

    /// Mostly deliveries, so that the scripts get far.
    #[test]
    fn the_fuzz_target_holds_on_likely_scripts(
        keyed in 0u8..2,
        steps in prop::collection::vec((prop_oneof![4 => Just(0u8), 4 => Just(1u8), 1 => 6u8..14], any::<u8>()), 0..80),
    ) {
        let mut script = vec![2 | keyed];
        steps.iter().for_each(|(op, amount)| script.extend_from_slice(&[*op, *amount]));
        fuzz_session(&script);
    }
}
