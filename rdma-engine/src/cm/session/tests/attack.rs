//! What a peer without the key, or one on the path, can try.

use super::super::super::frame::{append, split};
use super::super::super::message::{AuthMode, Challenge, Fence};
use super::super::super::pair::{config, offer, service};
use super::*;

fn refusal(player: &Player) -> Refusal {
    match ends_once(player) {
        End::RefusedPeer(refusal) => refusal.clone(),
        other => panic!("not refused but {other}"),
    }
}

fn refuses(player: &Player, reason: RefuseReason) {
    assert_eq!(refusal(player).reason, reason, "{}", refusal(player));
    assert!(!player.was_established());
}

#[test]
fn a_wrong_key_is_refused_and_both_ends_know() {
    let mut pair = Pair::new(config("west", [1; 32], key(1)), config("east", [2; 32], key(2)));
    pair.settle();
    refuses(&pair.ends[SERVER], RefuseReason::AuthFailed);
    let End::RefusedByPeer(refusal) = ends_once(&pair.ends[CLIENT]) else { panic!() };
    assert!(refusal.to_string().contains("give both ends the same key"), "{refusal}");
}

/// Plays recorded frames one by one, so that the application can act in between.
fn play(player: &mut Player, mut recorded: &[u8]) {
    while let Some(frame) = split(recorded).unwrap() {
        player.hear(Time(0), &recorded[..frame.len]);
        recorded = &recorded[frame.len..];
        if recorded.is_empty() {
            return;
        }
    }
}

/// The server of a recorded session accepts; a new one, with a fresh nonce, does not.
#[test]
fn a_recorded_client_proves_nothing() {
    let recorded = established(&key(1)).said[CLIENT].clone();
    let server = |nonce| {
        let session = Session::server(Time(0), config("east", nonce, key(1)), vec![service()]);
        Player::new(session, offer(2, 2))
    };
    let mut same_nonce = server([2; 32]);
    play(&mut same_nonce, &recorded);
    assert!(same_nonce.was_established(), "the recording itself is sound");
    let mut fresh = server([3; 32]);
    play(&mut fresh, &recorded);
    refuses(&fresh, RefuseReason::AuthFailed);
}

#[test]
fn a_recorded_server_proves_nothing() {
    let recorded = established(&key(1)).said[SERVER].clone();
    let client =
        |nonce| Player::new(Session::client(Time(0), config("west", nonce, key(1)), None), offer(1, 2));
    let mut same_nonce = client([1; 32]);
    play(&mut same_nonce, &recorded);
    assert!(same_nonce.was_established(), "the recording itself is sound");
    let mut fresh = client([3; 32]);
    play(&mut fresh, &recorded);
    refuses(&fresh, RefuseReason::AuthFailed);
}

/// The client's own proof comes back to it as the server's.
#[test]
fn a_proof_sent_back_is_no_proof() {
    let mut pair = Pair::usual(&key(1));
    pair.deliver(SERVER, usize::MAX);
    let hello = pair.wires[CLIENT].clone();
    let frame = split(&hello).unwrap().unwrap();
    let Message::Hello(hello) = Message::decode_body(frame.kind, frame.body).unwrap() else { panic!() };
    let mut their_offer = hello.offer.clone();
    their_offer.gid = pair.ends[SERVER].offer.gid;
    let agreed = super::super::super::negotiate(&their_offer, &hello.offer).unwrap();
    let reply = super::super::super::message::HelloReply {
        identity: hello.identity,
        offer: their_offer,
        terms: agreed.terms,
    };
    let reply = Message::HelloReply(Box::new(reply));
    let mut bytes = Vec::new();
    let mut own_tag = |_: &[u8]| <[u8; 32]>::try_from(frame.tag.unwrap()).unwrap();
    append(&mut bytes, reply.kind(), |out| reply.encode_body(out), Some(&mut own_tag));
    pair.ends[CLIENT].hear(pair.now, &bytes);
    refuses(&pair.ends[CLIENT], RefuseReason::AuthFailed);
}

/// Everything an end says comes back to it, in every role it can be met in.
#[test]
fn an_echo_gets_nowhere() {
    let mut client =
        Player::new(Session::client(Time(0), config("west", [1; 32], key(1)), None), offer(1, 2));
    let mut server =
        Player::new(Session::server(Time(0), config("east", [2; 32], key(1)), vec![service()]), offer(2, 2));
    let challenge = server.speak();
    server.hear(Time(0), &challenge);
    refuses(&server, RefuseReason::Unexpected);
    client.hear(Time(0), &challenge);
    let hello = client.speak();
    client.hear(Time(0), &hello);
    refuses(&client, RefuseReason::Unexpected);
}

/// A node whose own client is led back to its own server proves the key to itself.
#[test]
fn a_node_led_back_to_itself_notices() {
    let mut pair = Pair::new(config("west", [1; 32], key(1)), config("west", [2; 32], key(1)));
    pair.settle();
    refuses(&pair.ends[SERVER], RefuseReason::SelfConnection);
}

#[test]
fn frames_echoed_or_repeated_in_a_session_are_refused() {
    for repeat_own in [true, false] {
        let mut pair = established(&key(1));
        pair.advance(100_000_000);
        let keepalives = pair.wires.clone();
        if repeat_own {
            pair.ends[CLIENT].hear(pair.now, &keepalives[CLIENT]);
        } else {
            pair.ends[CLIENT].hear(pair.now, &keepalives[SERVER]);
            assert!(pair.ends[CLIENT].end().is_none());
            pair.ends[CLIENT].hear(pair.now, &keepalives[SERVER]);
        }
        let End::RefusedPeer(refusal) = ends_once(&pair.ends[CLIENT]) else { panic!() };
        assert_eq!(refusal.reason, RefuseReason::AuthFailed);
    }
}

#[test]
fn an_unsealed_frame_in_a_sealed_session_is_refused() {
    let mut pair = established(&key(1));
    let mut bytes = Vec::new();
    let message = Message::Keepalive(Fence { from: 3, to: 2 }, 1);
    append(&mut bytes, message.kind(), |out| message.encode_body(out), None);
    pair.ends[CLIENT].hear(pair.now, &bytes);
    let End::RefusedPeer(refusal) = ends_once(&pair.ends[CLIENT]) else { panic!() };
    assert_eq!(refusal.reason, RefuseReason::AuthFailed);
}

/// With a key, a bent bit anywhere keeps the end that received it from being established.
#[test]
#[cfg_attr(miri, ignore = "too many sessions for an interpreter")]
fn no_bent_byte_is_believed() {
    for from in [CLIENT, SERVER] {
        for at in 0..handshake_len(&key(1))[from] {
            let mut pair = Pair::usual(&key(1));
            settle_up_to(&mut pair, from, at);
            pair.wires[from][0] ^= 1 << (at % 8);
            pair.run_ms(60_000);
            assert!(!pair.ends[1 - from].was_established(), "byte {at} of end {from}");
            pair.ends.iter().for_each(|player| {
                ends_once(player);
            });
        }
    }
}

/// A wrong key, a bent hello and a bent proof look the same from outside.
#[test]
fn failures_of_the_proof_cannot_be_told_apart() {
    let answer = |client: Auth, bend: Option<usize>| {
        let mut pair = Pair::new(config("west", [1; 32], client), config("east", [2; 32], key(2)));
        pair.deliver(SERVER, usize::MAX);
        if let Some(from_end) = bend {
            let at = pair.wires[CLIENT].len() - from_end;
            pair.wires[CLIENT][at] ^= 0x80;
        }
        let before = pair.said[SERVER].len();
        pair.deliver(CLIENT, usize::MAX);
        refuses(&pair.ends[SERVER], RefuseReason::AuthFailed);
        pair.said[SERVER][before..].to_vec()
    };
    let wrong_key = answer(key(1), None);
    assert_eq!(wrong_key, answer(key(2), Some(1)), "last byte of the proof");
    assert_eq!(wrong_key, answer(key(2), Some(32)), "first byte of the proof");
    assert_eq!(wrong_key, answer(key(2), Some(200)), "a byte of the hello");
}

#[test]
fn there_is_no_falling_back_to_no_key() {
    let mut pair = Pair::new(config("west", [1; 32], key(1)), config("east", [2; 32], Auth::None));
    pair.settle();
    refuses(&pair.ends[CLIENT], RefuseReason::AuthMode);
    assert!(pair.ends[SERVER].events.len() == 1, "the server never saw an offer");
    let mut pair = Pair::new(config("west", [1; 32], Auth::None), config("east", [2; 32], key(1)));
    pair.settle();
    refuses(&pair.ends[CLIENT], RefuseReason::AuthMode);
    // A client that lies about what it understood.
    let mut pair = Pair::new(config("west", [1; 32], Auth::None), config("east", [2; 32], key(1)));
    pair.wires[SERVER].clear();
    let mut bytes = Vec::new();
    let challenge = Message::Challenge(Challenge { nonce: [2; 32], auth: AuthMode::None });
    append(&mut bytes, challenge.kind(), |out| challenge.encode_body(out), None);
    pair.ends[CLIENT].hear(pair.now, &bytes);
    pair.collect();
    pair.settle();
    refuses(&pair.ends[SERVER], RefuseReason::AuthMode);
}
