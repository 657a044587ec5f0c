//! Every reason to refuse is reached, named and known at both ends.

use super::super::super::allow::{AllowList, admit};
use super::super::super::frame::{HEADER_LEN, append};
use super::super::super::message::Fence;
use super::super::super::offer::{ServiceKind, TransportKind};
use super::super::super::pair::{config, offer, service};
use super::*;
use crate::types::QpType;

/// Runs `pair` to its end; what the refusing end said and what the other end heard must be one.
fn refused(mut pair: Pair) -> Refusal {
    pair.run_ms(60_000);
    let ends = pair.ends.each_ref().map(|player| ends_once(player).clone());
    let refusals: Vec<&Refusal> = ends
        .iter()
        .map(|end| match end {
            End::RefusedPeer(refusal) | End::RefusedByPeer(refusal) => refusal,
            other => panic!("ended by {other}"),
        })
        .collect();
    assert!(ends.iter().any(|end| matches!(end, End::RefusedPeer(_))), "{ends:?}");
    if ends.iter().any(|end| matches!(end, End::RefusedByPeer(_))) {
        assert_eq!(refusals[0], refusals[1], "both ends know the same");
    }
    refusals[0].clone()
}

fn usual() -> Pair {
    Pair::usual(&Auth::None)
}

/// Two ends of which the server's offer is spoilt.
fn with_offer(spoil: impl FnOnce(&mut Offer)) -> Refusal {
    let mut pair = usual();
    spoil(&mut pair.ends[SERVER].offer);
    refused(pair)
}

/// The server hears `bytes` instead of a hello.
fn with_bytes(bytes: &[u8]) -> Refusal {
    let mut pair = usual();
    pair.ends[SERVER].hear(pair.now, bytes);
    pair.collect();
    pair.wires[SERVER].drain(..HEADER_LEN + 40);
    refused(pair)
}

fn frame_of(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    append(&mut bytes, message.kind(), |out| message.encode_body(out), None);
    bytes
}

fn not_allowed() -> Refusal {
    refusing(admit(&Auth::None, &AllowList::default(), "192.0.2.1".parse().unwrap()).unwrap_err())
}

/// A server that says no from the start.
fn refusing(refusal: Refusal) -> Refusal {
    let mut pair = usual();
    let session = Session::refusing(pair.now, config("east", [2; 32], Auth::None), refusal);
    pair.ends[SERVER] = Player::new(session, offer(2, 2));
    pair.wires[SERVER].clear();
    pair.collect();
    refused(pair)
}

fn version() -> Refusal {
    let mut pair = usual();
    pair.wires[SERVER][4] = 2;
    refused(pair)
}

fn malformed() -> Refusal {
    let mut pair = usual();
    pair.deliver(SERVER, usize::MAX);
    // The length of the first tagged value reaches beyond the hello.
    pair.wires[CLIENT][HEADER_LEN + 2] = 0xFF;
    refused(pair)
}

fn stale_generation() -> Refusal {
    let mut pair = usual();
    pair.ends[CLIENT].gets_ready = false;
    pair.settle();
    let ready = frame_of(&Message::Ready(Fence { from: 2, to: 999 }));
    pair.ends[SERVER].hear(pair.now, &ready);
    pair.collect();
    refused(pair)
}

fn other_node() -> Refusal {
    let mut pair = usual();
    let expected = Some("north".to_owned());
    let session = Session::client(pair.now, config("west", [1; 32], Auth::None), expected);
    pair.ends[CLIENT] = Player::new(session, offer(1, 2));
    refused(pair)
}

fn disagreement() -> Refusal {
    let mut pair = usual();
    pair.deliver(SERVER, usize::MAX);
    pair.deliver(CLIENT, usize::MAX);
    // The path MTU in the terms, the last tagged value of the reply; Ready follows it.
    let terms = pair.wires[SERVER].len() - (HEADER_LEN + 16) - 36;
    assert_eq!(pair.wires[SERVER][terms..terms + 2], [1, 3]);
    pair.wires[SERVER][terms + 1] = 1;
    refused(pair)
}

fn silence() -> Refusal {
    let mut pair = usual();
    pair.wires[SERVER].clear();
    refused(pair)
}

fn auth(client: Auth, server: Auth) -> Refusal {
    refused(Pair::new(config("west", [1; 32], client), config("east", [2; 32], server)))
}

fn draining() -> Refusal {
    let mut pair = usual();
    pair.ends[SERVER].session.goodbye(pair.now, GoodbyeReason::Shutdown, Vec::new());
    refused(pair)
}

fn application() -> Refusal {
    let mut pair = usual();
    pair.ends[CLIENT].gets_ready = false;
    pair.settle();
    pair.ends[CLIENT].session.refuse(Refusal::new(RefuseReason::Application, "no memory for 9 regions"));
    pair.collect();
    refused(pair)
}

/// How to reach each reason, and words its text must have besides the remedy.
fn case(reason: RefuseReason) -> (Refusal, &'static [&'static str]) {
    use RefuseReason as R;
    let no_detail = |reason| refusing(Refusal::new(reason, "3 of 3"));
    match reason {
        R::NotAllowed => (not_allowed(), &["192.0.2.1"]),
        R::Protocol => (with_bytes(b"GET / HTTP/1.1\r\n\r\n"), &["GET "]),
        R::Version => (version(), &["version 2", "version 1"]),
        R::TooLong => (with_bytes(b"ISTM\x01\x00\x02\x00\x00\x01\x00\x00"), &["65536 bytes", "20480"]),
        R::Malformed => (malformed(), &["Hello", "cut short"]),
        R::Unexpected => {
            (with_bytes(&frame_of(&Message::Ready(Fence { from: 1, to: 1 }))), &["Ready", "Hello"])
        }
        R::AuthMode => (auth(key(1), Auth::None), &["a key", "no key"]),
        R::AuthFailed => (auth(key(1), key(2)), &[]),
        R::Service => {
            (with_offer(|o| o.service.kind = ServiceKind::Perf), &["perf 'east-west'", "relay 'east-west'"])
        }
        R::Node => (other_node(), &["'north'", "'east'"]),
        R::SelfConnection => {
            let same = || config("west", [1; 32], Auth::None);
            (refused(Pair::new(same(), same())), &["'west'"])
        }
        // Counting sessions is the listener's business; here only the way of the refusal.
        R::AlreadyConnected | R::Busy => (no_detail(reason), &["3 of 3"]),
        R::StaleGeneration => (stale_generation(), &["999"]),
        R::Silence => (silence(), &["3000 ms"]),
        R::Draining => (draining(), &[]),
        R::Transport => (with_offer(|o| o.transport = TransportKind::Loopback), &["loopback", "soft"]),
        R::QpType => (with_offer(|o| o.qp_type = QpType::Uc), &["UC", "RC"]),
        R::AddressFamily => {
            let spoil = |o: &mut Offer| o.gid = "fd00::2".parse::<std::net::Ipv6Addr>().unwrap().into();
            (with_offer(spoil), &["fd00::2", "10.0.0.1"])
        }
        R::NoQueuePairs => (with_offer(|o| o.qps.clear()), &["we offer 0", "you offer 2"]),
        R::Lane => (with_offer(|o| o.qps[1].lane = 5), &["pair 1", "5", "0"]),
        R::MessageSize => {
            (with_offer(|o| (o.min_message_size, o.message_size) = (20_000, 30_000)), &["16384", "20000"])
        }
        R::Credits => (with_offer(|o| o.qps[0].receive_credits = 1), &["pair 0", "1"]),
        R::Disagreement => (disagreement(), &["B1024", "B256"]),
        R::Application => (application(), &["no memory for 9 regions"]),
        R::Unknown(_) => unreachable!("not among all()"),
    }
}

#[test]
fn every_reason_is_reached_and_names_value_and_remedy() {
    for reason in RefuseReason::all() {
        let (refusal, words) = case(reason);
        let text = refusal.to_string();
        assert_eq!(refusal.reason, reason, "{text}");
        assert!(text.starts_with(reason.summary()) && text.ends_with(reason.remedy()), "{text}");
        for word in words {
            assert!(text.contains(word), "'{word}' in: {text}");
        }
    }
}

#[test]
fn a_client_of_a_service_not_run_here_is_refused_before_the_application_hears_of_it() {
    let mut pair = usual();
    pair.ends[CLIENT].offer.service.name = "north-south".into();
    pair.settle();
    let End::RefusedPeer(refusal) = ends_once(&pair.ends[SERVER]) else { panic!() };
    assert_eq!(refusal.reason, RefuseReason::Service);
    assert!(refusal.to_string().contains("north-south") && refusal.to_string().contains(&service().name));
    assert_eq!(pair.ends[SERVER].events.len(), 1);
}

#[test]
fn an_unreadable_refusal_is_still_one() {
    let mut pair = usual();
    let mut bytes = Vec::new();
    append(&mut bytes, FrameKind::Refuse, |out| out.push(1), None);
    pair.ends[CLIENT].hear(pair.now, &bytes);
    let End::RefusedByPeer(refusal) = ends_once(&pair.ends[CLIENT]) else { panic!() };
    assert!(refusal.to_string().contains("read the log of the other end"), "{refusal}");
}
