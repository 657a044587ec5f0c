//! Who waits for whom, turn by turn.

use crate::service::kv::engine::Arrival;
use crate::service::kv::sim::{Cluster, Setup};
use crate::stats::Counter;
use rdma_engine::buf::Pool;
use rdma_engine::heap::HeapBuf;

/// Located GETs keep the send queue full, one of them coming back in a turn and one more being asked. What needs more room than
/// that, or came before, has its turn all the same.
#[test]
fn no_lookup_is_overtaken_for_ever() {
    for text in ["get missing\r\n", "get hot\r\n"] {
        let mut c = Cluster::new(Setup::default());
        assert_eq!(c.say(0, "set hot 0 0 1\r\nx\r\n"), "STORED\r\n");
        c.gateways[0].end.transport.narrow = Some((16, 1));
        let mut next = 1000;
        let mut ask = |c: &mut Cluster, text: &str| {
            next += 20;
            c.ask_next(0, next, text.as_bytes());
            next
        };
        for _ in 0..40 {
            ask(&mut c, "get hot\r\n");
        }
        for _ in 0..50 {
            ask(&mut c, "get hot\r\n");
            c.turn();
        }
        let number = ask(&mut c, text);
        let mut turns = 0;
        while !c.gateways[0].replies.drain(..).any(|(client, _)| client == number) {
            ask(&mut c, "get hot\r\n");
            c.turn();
            turns += 1;
            assert!(turns < 200, "{text:?} is overtaken by everything");
        }
    }
}

#[test]
fn commands_that_end_at_once_cost_no_turn_each() {
    let mut c = Cluster::new(Setup::default());
    c.fail_gateway_end(0, 0);
    c.turns(50);
    c.ask(0, 77, b"get a\r\nget b\r\nget c\r\nget d\r\nget e\r\nget f\r\n");
    c.turn();
    let down = "SERVER_ERROR memory node down\r\n".repeat(6);
    assert_eq!(c.gateways[0].replies.pop_front(), Some((77, down.into_bytes())));
}

#[test]
fn what_comes_behind_a_completion_overtakes_nothing() {
    let mut c = Cluster::new(Setup::default());
    assert_eq!(c.say(0, "set x 0 0 1\r\nx\r\n"), "STORED\r\n");
    for round in 0..50u32 {
        let first = 10_000 + round * 20;
        for turns in 1..6 {
            assert_eq!(c.say(0, "set k 0 0 1\r\n0\r\n"), "STORED\r\n");
            c.say(0, "get x\r\n");
            c.ask(0, first, b"get x\r\nset k 0 0 1\r\n1\r\n");
            c.turns(turns);
            c.ask_next(0, first + 1, b"get k\r\n");
            assert!(c.until(|c| c.gateways[0].replies.len() == 2));
            // Of the first request one command is answered; the other one comes before what comes now.
            let (_, reply) = c.gateways[0].replies.drain(..).find(|(n, _)| *n == first + 1).unwrap();
            assert_eq!(String::from_utf8_lossy(&reply), "VALUE k 0 1\r\n1\r\nEND\r\n", "after {turns} turns");
        }
    }
    c.close();
}

#[test]
fn every_get_is_a_hit_a_miss_or_an_error_however_it_is_asked() {
    let mut c = Cluster::new(Setup::default());
    c.say(0, "set key 0 0 4\r\nfour\r\n");
    let mut counted = |text: &str| {
        let counters = [Counter::KvGets, Counter::KvGetHits, Counter::KvGetMisses, Counter::KvReads];
        let counters = [[Counter::KvRequests, Counter::KvReplies].as_slice(), &counters].concat();
        counted(&mut c, &counters, text)
    };
    // With two spaces it does not go the short way.
    for hit in ["get key\r\n", "get  key\r\n", "gets key\r\n", "mg key v\r\n"] {
        assert_eq!(counted(hit), [1, 1, 1, 1, 0, 1], "{hit:?}");
    }
    for miss in ["get none\r\n", "get  none\r\n", "mg none v\r\n"] {
        assert_eq!(counted(miss), [1, 1, 1, 0, 1, 0], "{miss:?}");
    }
    c.close();
}

#[test]
fn every_set_is_counted_however_it_is_asked() {
    let mut c = Cluster::new(Setup::default());
    let counters = [
        Counter::KvRequests,
        Counter::KvReplies,
        Counter::KvMutations,
        Counter::KvSets,
        Counter::KvCalls,
        Counter::KvUnanswered,
    ];
    for said in ["set key 0 0 4\r\nfour\r\n", "set key  0 0 4\r\nfour\r\n", "ms key 4\r\nfour\r\n"] {
        assert_eq!(counted(&mut c, &counters, said), [1, 1, 1, 1, 1, 0], "{said:?}");
        assert_eq!(c.say(0, "get key\r\n"), "VALUE key 0 4\r\nfour\r\nEND\r\n");
    }
    c.close();
}

#[test]
fn a_set_is_answered_in_the_frame_it_came_in() {
    // Longer values go out where they came in: that frame is of use when they have gone.
    for bytes in [4, 1000] {
        let mut c = Cluster::new(Setup::default());
        c.gateways[0].end.transport.sends_first = true;
        let value = "v".repeat(bytes);
        let set = c.gateways[0].frame(format!("set key 0 0 {bytes}\r\n{value}\r\n").as_bytes());
        let reply = asked_without_frames(&mut c, set);
        assert_eq!(reply, Some((5, b"STORED\r\n".to_vec())), "{bytes}");
        assert_eq!(c.say(0, "get key\r\n"), format!("VALUE key 0 {bytes}\r\n{value}\r\nEND\r\n"));
        c.close();
    }
}

/// Those buffers are few, and answers of nodes come in them: a client's answer does not keep one while it waits for its port.
#[test]
fn no_set_is_answered_in_a_message_it_came_in() {
    let mut c = Cluster::new(Setup::default());
    let set = c.gateways[0].frame(b"set key 0 0 4\r\nfour\r\n");
    // Without another buffer the answer is that there is none.
    let (_, reply) = asked_without_frames(&mut c, Arrival { in_message: true, ..set }).unwrap();
    assert!(reply.starts_with(b"SERVER_ERROR out of memory"), "{}", String::from_utf8_lossy(&reply));
    c.close();
}

/// What is answered while there is no buffer to answer in.
fn asked_without_frames(c: &mut Cluster, asked: Arrival<HeapBuf>) -> Option<(u32, Vec<u8>)> {
    let calls = c.count(Counter::KvCalls);
    c.ask_in(0, 5, asked);
    assert!(c.until(|c| c.count(Counter::KvCalls) > calls));
    let frames = &c.gateways[0].end.pools.frames;
    let held: Vec<_> = std::iter::from_fn(|| frames.alloc()).collect();
    assert!(!held.is_empty());
    assert!(c.until(|c| c.gateways[0].engine.is_idle()));
    c.gateways[0].replies.pop_front()
}

/// What saying something adds to these.
fn counted(c: &mut Cluster, counters: &[Counter], text: &str) -> Vec<u64> {
    let now = |c: &Cluster| counters.iter().map(|counter| c.count(*counter)).collect::<Vec<_>>();
    let before = now(c);
    c.say(0, text);
    now(c).iter().zip(before).map(|(now, before)| now - before).collect()
}
