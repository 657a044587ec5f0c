//! Peers that say what makes no sense, and clients that do.

use crate::memcached::operation::{Operation, Store};
use crate::memcached::rpc::{Call, put_call};
use crate::service::kv::message::{AnswerHeader, CallHeader};
use crate::service::kv::sim::{Cluster, Setup, VALUE};
use crate::stats::Counter;
use rdma_engine::heap::HeapPool;
use rdma_engine::sim::Rng;
use zerocopy::IntoBytes;

fn call(kind: u8, generation: u64, oldest: u64) -> Vec<u8> {
    let header = CallHeader {
        kind,
        spare: [0; 3],
        call: 7.into(),
        generation: generation.into(),
        oldest: oldest.into(),
    };
    header.as_bytes().to_vec()
}

fn set(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = call(1, 1, 1);
    put_call(
        &mut bytes,
        &Call::Operation { key, operation: Operation::Store(Store { value, ..Store::default() }) },
    );
    bytes
}

#[test]
fn a_node_answers_every_message_and_stays_whole() {
    let mut c = Cluster::new(Setup::default());
    assert_eq!(c.say(0, "set key 0 0 5\r\nvalue\r\n"), "STORED\r\n");
    let mut rng = Rng::new(1);
    let good = [
        set(b"key2", b"value"),
        [call(2, 1, 1), vec![1; 80]].concat(),
        [call(3, 1, 1), vec![0; 24]].concat(),
        [call(1, 1, 1), vec![5, 0, 0, 0, 0, 0]].concat(),
        [call(1, 1, 1), vec![6, 1, b'x']].concat(),
    ];
    let mut sent = 0;
    for round in 0..3000 {
        let mut bytes = good[rng.below(good.len() as u64) as usize].clone();
        match rng.below(4) {
            0 => bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize),
            1 => bytes.extend((0..rng.below(300)).map(|n| n as u8)),
            2 => bytes = (0..rng.below(200)).map(|_| rng.bits() as u8).collect(),
            _ => {}
        }
        for _ in 0..rng.below(4) {
            if !bytes.is_empty() {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << rng.below(8);
            }
        }
        // Membership numbers that grow for ever would only lock the good gateway out.
        if bytes.len() >= 16 {
            bytes[8..16].copy_from_slice(&1u64.to_le_bytes());
        }
        if bytes.is_empty() {
            continue;
        }
        c.forge_call(0, &bytes);
        sent += 1;
        c.turns(if round % 8 == 0 { 40 } else { 3 });
    }
    c.turns(2000);
    let (served, answers) = (c.node_count(Counter::KvCallsServed), c.node_count(Counter::KvAnswers));
    assert!(served > sent && served == answers, "{sent} sent, {served} served, {answers} answered");
    assert!(c.node_count(Counter::KvMalformed) > 500);
    assert_eq!(c.downs(), [vec![], vec![]]);
    assert_eq!(
        c.say(0, "set key 0 0 5\r\nvalue\r\nget key\r\n"),
        "STORED\r\nVALUE key 0 5\r\nvalue\r\nEND\r\n"
    );
    c.close();
}

#[test]
fn a_call_of_another_membership_changes_nothing() {
    let mut c = Cluster::new(Setup { generation: 5, ..Setup::default() });
    for generation in [0u64, 4, 6, u64::MAX] {
        let mut bytes = set(b"key", b"value");
        bytes[8..16].copy_from_slice(&generation.to_le_bytes());
        c.forge_call(0, &bytes);
        c.turns(20);
    }
    assert_eq!(c.say(0, "get key\r\n"), "END\r\n");
    c.close();
}

#[test]
fn a_gateway_survives_answers_that_make_no_sense() {
    let mut rng = Rng::new(2);
    for round in 0..60 {
        let mut c = Cluster::new(Setup::default());
        c.say(0, "set key 0 0 5\r\nvalue\r\n");
        for n in 0..20 {
            c.ask(0, n, b"get key other\r\nincr key 1\r\n");
        }
        for _ in 0..8 {
            let header = AnswerHeader {
                kind: rng.below(6) as u8,
                call: (rng.bits() as u32 & 0x1F).into(),
                units: (rng.bits() as u16).into(),
                place: rng.bits().into(),
                ..AnswerHeader::default()
            };
            let mut bytes = header.as_bytes().to_vec();
            bytes.extend((0..rng.below(60)).map(|_| rng.bits() as u8));
            bytes.truncate(if round % 2 == 0 {
                bytes.len()
            } else {
                1 + rng.below(bytes.len() as u64) as usize
            });
            c.forge_answer(0, &bytes);
            c.turns(1);
        }
        assert!(c.until(|c| c.gateways[0].replies.len() == 20), "{} replies", c.gateways[0].replies.len());
    }
}

#[test]
fn requests_that_make_no_sense_get_memcacheds_error_or_silence() {
    let mut c = Cluster::new(Setup::default());
    for (request, reply) in [
        ("get\r\n", "ERROR\r\n"),
        ("set a 0 0 3\r\nabcd\r\n", "CLIENT_ERROR bad data chunk\r\n"),
        ("incr a x\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"),
        ("touch a\r\n", "ERROR\r\n"),
    ] {
        assert!(c.say(0, request).starts_with(reply), "{request:?}");
    }
    let long = format!("get {}\r\n", "k".repeat(251));
    assert_eq!(c.say(0, &long), "CLIENT_ERROR bad command line format\r\n");
    // The beginning of a request is all there will ever be.
    c.ask(0, 1, b"set a 0 0 10\r\nabc");
    c.ask(0, 2, b"get a");
    c.turns(500);
    assert!(c.gateways[0].replies.is_empty());
    let mut rng = Rng::new(3);
    for n in 0..5000 {
        let words: [&[u8]; 12] =
            [b"get ", b"set ", b"mg ", b"ms ", b"a ", b"\r\n", b"0 ", b"1", b" v", b"\0", b"incr ", b"\xff"];
        let text: Vec<u8> =
            (0..1 + rng.below(14)).flat_map(|_| words[rng.below(12) as usize].to_vec()).collect();
        c.ask(0, n, &text);
        c.turns(2);
    }
    c.turns(500);
    let keys: String = (0..1024).map(|_| " k").collect();
    assert_eq!(c.gateways[0].replies.drain(..).filter(|(_, r)| !r.ends_with(b"\r\n")).count(), 0);
    assert!(c.say(0, &format!("get{keys} k\r\n")).ends_with("END\r\n"));
    let value = "v".repeat(VALUE);
    assert_eq!(c.say(0, &format!("append a 0 0 {VALUE}\r\n{value}\r\n")), "NOT_STORED\r\n");
    assert_eq!(c.say(0, &format!("set a 0 0 {VALUE}\r\n{value}\r\n")), "STORED\r\n");
    assert_eq!(c.say(0, "append a 0 0 1\r\nx\r\n"), "NOT_STORED\r\n");
    c.close();
}

/// Buffers too small for an item that another gateway stored: such gateways are not connected. Were one nevertheless, it
/// would say so to every request, and have room for the next.
#[test]
fn an_item_larger_than_every_buffer_is_answered_too() {
    let mut c = Cluster::new(Setup { gateways: 2, ..Setup::default() });
    c.gateways[1].end.pools.messages = HeapPool::new(200, 4000);
    let value = "v".repeat(VALUE);
    assert_eq!(c.say(0, &format!("set big 0 0 {VALUE}\r\n{value}\r\n")), "STORED\r\n");
    let no_room = "SERVER_ERROR out of memory writing get response\r\n";
    for _ in 0..3000 {
        assert_eq!(c.say(1, "get big\r\n"), no_room);
    }
    assert_eq!(c.say(1, "mg big v\r\n"), no_room);
    assert_eq!(c.say(1, "set small 0 0 1\r\nx\r\nget small big none\r\n").lines().next(), Some("STORED"));
    assert_eq!(c.downs(), [vec![], vec![]]);
    // Nothing of it is under way any more: the node may reclaim, and another list is taken.
    c.relist(1, 2, &[0]);
    assert!(c.until(|c| c.gateways[1].engine.is_settled()));
}

#[test]
fn a_place_where_no_item_can_be_is_not_believed() {
    // Units of a segment are 1024, those of the arena 131072.
    for (place, units) in
        [(100_000, 60_000u16), (100, 2), (u64::MAX, 2), (100_000, 1025), (131_071, 4), (1 << 40, 1)]
    {
        let mut c = Cluster::new(Setup::default());
        c.ask(0, 1, b"set k 0 0 1\r\ny\r\n");
        c.turn();
        let header = AnswerHeader {
            kind: 1,
            units: units.into(),
            generation: 1.into(),
            place: place.into(),
            seq: 3.into(),
            ..AnswerHeader::default()
        };
        // Stored, and what clients compare.
        c.forge_answer(0, &[header.as_bytes(), &[2], &9u64.to_le_bytes()].concat());
        assert!(c.until(|c| !c.gateways[0].replies.is_empty()));
        let (_, reply) = c.gateways[0].replies.pop_front().unwrap();
        assert_eq!(reply, b"SERVER_ERROR memory node lost before it answered\r\n", "{place} {units}");
        assert_eq!(c.count(Counter::KvMalformed), 1);
        assert!(c.until(|c| !c.downs()[0].is_empty()));
    }
}
