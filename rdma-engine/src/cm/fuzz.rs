//! What a fuzzer throws at both ends of the exchange, and what must hold whatever it throws.

use super::auth::Auth;
use super::frame::{FrameKind, split};
use super::message::GoodbyeReason;
use super::pair::{CLIENT, Pair, Player, SERVER, config, key, offer, service};
use super::session::{Session, SessionEvent};
use crate::types::Time;

/// Feeds `bytes` to the state machines; panics if they panic or break a rule.
///
/// The first byte chooses: bit 0 with or without a key; bit 1 a hostile peer that sends the rest as
/// it is, or a pair of honest ends whose wire the rest bends; bit 2 which end the hostile peer meets.
pub fn fuzz_session(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let auth = if choice & 1 != 0 { key(7) } else { Auth::None };
    if choice & 2 != 0 {
        bent_wire(&auth, rest);
    } else {
        hostile_peer(&auth, choice & 4 != 0, rest);
    }
}

/// One end against bytes of the attacker: a length byte, then so many bytes in one piece.
fn hostile_peer(auth: &Auth, client: bool, mut script: &[u8]) {
    let mut now = Time(0);
    let session = if client {
        Session::client(now, config("west", [1; 32], auth.clone()), None)
    } else {
        Session::server(now, config("east", [2; 32], auth.clone()), vec![service()])
    };
    let mut player = Player::new(session, offer(1, 2));
    while let Some((&len, rest)) = script.split_first() {
        let (piece, rest) = rest.split_at(rest.len().min(usize::from(len)));
        player.hear(now, piece);
        player.speak();
        now = now.after_ns(u64::from(len) * 100_000);
        player.session.handle_timeout(now);
        script = rest;
    }
    if matches!(auth, Auth::PresharedKey(_)) {
        let agreed = player.events.iter().any(|event| matches!(event, SessionEvent::Agreed(_)));
        assert!(!agreed, "a peer without the key came to terms");
    }
    wait_for_the_end(&mut player, now);
}

/// Two honest ends; two bytes a step say what happens on the wire.
fn bent_wire(auth: &Auth, script: &[u8]) {
    let mut pair = Pair::usual(auth);
    // Set when an end will receive a bent byte.
    let mut bent = [false; 2];
    for step in script.chunks_exact(2) {
        let (from, amount) = (usize::from(step[0] & 1), usize::from(step[1]));
        match step[0] >> 1 & 7 {
            0..=2 => pair.deliver(from, amount + 1),
            // Once in each direction: a second time might mend the first.
            3 => bent[1 - from] = bent[1 - from] || bend(&mut pair, from, amount),
            4 => pair.advance(amount as u64 * 4_000_000),
            5 => pair.ends[from].session.goodbye(pair.now, GoodbyeReason::QpError, Vec::new()),
            6 => pair.ends[from].session.probe(pair.now, 50),
            _ if amount > 250 => pair.cut(),
            _ => pair.settle(),
        }
        pair.collect();
        check_bent(auth, &pair, bent);
    }
    for end in [CLIENT, SERVER] {
        wait_for_the_end(&mut pair.ends[end], pair.now);
    }
}

/// Flips a bit of a byte on the wire, up to the Ready of its sender: whoever receives it must not come
/// further. False if there is no such byte.
fn bend(pair: &mut Pair, from: usize, at: usize) -> bool {
    let len = pair.wires[from].len();
    if len == 0 {
        return false;
    }
    let delivered = pair.said[from].len() - len;
    let decides = delivered + at % len < end_of_ready(&pair.said[from]);
    if decides {
        pair.wires[from][at % len] ^= 1 << (at % 8);
    }
    decides
}

/// Where the Ready in a stream of honest frames ends; at the end of the stream if it has none.
fn end_of_ready(said: &[u8]) -> usize {
    let mut at = 0;
    while let Ok(Some(frame)) = split(&said[at..]) {
        at += frame.len;
        if frame.kind == FrameKind::Ready {
            break;
        }
    }
    at
}

fn check_bent(auth: &Auth, pair: &Pair, bent: [bool; 2]) {
    if matches!(auth, Auth::None) {
        return;
    }
    for (end, bent) in bent.into_iter().enumerate() {
        assert!(!bent || !pair.ends[end].was_established(), "a bent message was believed");
    }
}

/// Left alone, a session ends by itself and says so once.
fn wait_for_the_end(player: &mut Player, mut now: Time) {
    for _ in 0..64 {
        let Some(next) = player.session.poll_timeout() else { break };
        now = now.max(next);
        player.session.handle_timeout(now);
        player.react(now);
        player.speak();
    }
    let ends = player.events.iter().filter(|event| matches!(event, SessionEvent::Ended(_))).count();
    assert!(player.session.is_finished() && ends == 1, "{ends} ends of {:?}", player.session);
    assert!(player.session.poll_timeout().is_none());
}
