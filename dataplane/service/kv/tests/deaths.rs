//! Nodes and gateways that go away, and come back.

use crate::service::kv::sim::{Cluster, Setup};
use crate::stats::Counter;
use rdma_engine::buf::Pool;

#[test]
fn a_node_that_is_down_costs_its_keys_and_nothing_else() {
    let mut c = Cluster::new(Setup { nodes: 2, ..Setup::default() });
    for n in 0..100 {
        assert_eq!(c.say(0, &format!("set k{n} 0 0 1\r\nx\r\n")), "STORED\r\n");
    }
    c.nodes[1].is_dead = true;
    c.fail_gateway_end(1, 0);
    let (mut up, mut down) = (0, 0);
    for n in 0..100 {
        match c.say(0, &format!("get k{n}\r\n")).as_str() {
            "SERVER_ERROR memory node down\r\n" => down += 1,
            reply => {
                assert_eq!(reply, format!("VALUE k{n} 0 1\r\nx\r\nEND\r\n"));
                up += 1;
            }
        }
    }
    assert!(up > 30 && down > 30, "{up} {down}");
    let all: String = (0..100).map(|n| format!(" k{n}")).collect();
    let reply = c.say(0, &format!("get{all}\r\n"));
    assert_eq!(reply.matches("VALUE").count(), up);
    assert!(reply.ends_with("SERVER_ERROR memory node down\r\n"));
    assert_eq!(c.say(0, "flush_all\r\n"), "SERVER_ERROR memory node down\r\n");
}

#[test]
fn a_node_that_comes_back_serves_nothing_old() {
    let mut c = Cluster::new(Setup::default());
    for n in 0..100 {
        assert_eq!(c.say(0, &format!("set k{n} 0 0 1\r\nx\r\n")), "STORED\r\n");
    }
    c.fail_gateway_end(0, 0);
    c.fail_node_end(0, 0);
    assert!(c.until(|c| c.is_apart(0)));
    assert_eq!(c.say(0, "get k1\r\n"), "SERVER_ERROR memory node down\r\n");
    let node = c.start_node();
    c.nodes[0] = node;
    c.connect(0, 0);
    assert!(c.all_up());
    for n in 0..100 {
        assert_eq!(c.say(0, &format!("get k{n}\r\n")), "END\r\n");
    }
    assert_eq!(c.say(0, "set k1 0 0 1\r\ny\r\nget k1\r\n"), "STORED\r\nVALUE k1 0 1\r\ny\r\nEND\r\n");
    c.close();
}

#[test]
fn a_connection_that_broke_comes_back_with_everything() {
    let mut c = Cluster::new(Setup { partitions: 2, ..Setup::default() });
    for n in 0..100 {
        assert_eq!(c.say(0, &format!("set k{n} 0 0 1\r\nx\r\n")), "STORED\r\n");
    }
    for _ in 0..5 {
        c.fail_gateway_end(0, 0);
        c.fail_node_end(0, 0);
        assert!(c.until(|c| c.is_apart(0)));
        c.connect(0, 0);
        assert!(c.all_up());
        for n in 0..100 {
            assert_eq!(c.say(0, &format!("get k{n}\r\n")), format!("VALUE k{n} 0 1\r\nx\r\nEND\r\n"));
        }
    }
    c.close();
}

#[test]
fn requests_under_way_are_answered_when_a_node_dies() {
    let mut c = Cluster::new(Setup { tear: 10, ..Setup::default() });
    c.say(0, "set k 0 0 1\r\nx\r\n");
    let mut client = 0;
    for turns in 0..12 {
        for _ in 0..20 {
            c.ask(0, client, b"get k nothing\r\n");
            c.ask(0, client + 1, format!("set k{client} 0 0 3\r\nabc\r\n").as_bytes());
            c.ask(0, client + 2, b"incr k 1\r\n");
            client += 3;
        }
        c.turns(turns);
        c.fail_gateway_end(0, 0);
        c.fail_node_end(0, 0);
        assert!(c.until(|c| c.gateways[0].replies.len() == 60), "{} replies", c.gateways[0].replies.len());
        c.gateways[0].replies.clear();
        assert!(c.until(|c| c.is_apart(0)));
        c.connect(0, 0);
        assert!(c.all_up());
    }
    // No slot leaks: every key is there once or not at all, and the node can still be filled.
    assert_eq!(c.say(0, "flush_all\r\n"), "OK\r\n");
    c.turns(20_000);
    assert!(c.say(0, "stats\r\n").contains("STAT curr_items 0\r\n"));
    c.close();
}

#[test]
fn a_gateway_that_dies_leaves_the_node_to_the_others() {
    let mut c = Cluster::new(Setup { gateways: 2, arena: 3 << 20, segment_units: 256, ..Setup::default() });
    // It has lookups under way when it falls silent: nothing may be used again until it is gone.
    for n in 0..50 {
        c.ask(0, n, format!("set a{n} 0 0 5\r\nvalue\r\n").as_bytes());
        c.ask(0, n, format!("get a{n}\r\n").as_bytes());
    }
    c.fail_node_end(0, 0);
    let value = "v".repeat(3000);
    let mut stored = 0;
    for n in 0..3000 {
        stored += usize::from(c.say(1, &format!("set k{n} 0 0 3000\r\n{value}\r\n")) == "STORED\r\n");
    }
    assert_eq!(stored, 3000, "evictions go on without it");
    assert!(c.node_count(Counter::KvEvicted) > 1000);
}

#[test]
fn a_gateway_that_does_not_report_loses_its_reads() {
    let mut c = Cluster::new(Setup { gateways: 2, arena: 3 << 20, segment_units: 256, ..Setup::default() });
    c.gateways[0].is_stuck = true;
    let value = "v".repeat(3000);
    let mut stored = 0;
    for n in 0..3000 {
        let reply = c.say(1, &format!("set k{n} 0 0 3000\r\n{value}\r\n"));
        stored += usize::from(reply == "STORED\r\n");
    }
    assert!(c.downs()[1].iter().any(|(path, _)| *path == 0), "the silent gateway's READs are given up");
    assert!(stored > 2900, "{stored}");
    assert!(c.node_count(Counter::KvStalled) > 0);
}

/// How many calls the first node has taken and not answered.
fn unanswered(c: &Cluster) -> u64 {
    c.node_count(Counter::KvCallsServed) - c.node_count(Counter::KvAnswers)
}

/// A node with items, of which a sweep takes its time.
fn roomy() -> Cluster {
    let mut c = Cluster::new(Setup { arena: 32 << 20, ..Setup::default() });
    let sets: String = (0..300).map(|n| format!("set k{n} 0 0 1\r\nx\r\n")).collect();
    assert_eq!(c.say(0, &sets), "STORED\r\n".repeat(300));
    c.turns(100);
    assert_eq!(unanswered(&c), 0);
    c
}

/// Breaks the connection while calls are unanswered, and makes another one. How many never were.
fn connect_anew(c: &mut Cluster) -> u64 {
    assert!(c.until(|c| unanswered(c) > 0));
    c.turns(10);
    c.fail_gateway_end(0, 0);
    c.fail_node_end(0, 0);
    assert!(c.until(|c| c.is_apart(0)));
    let lost = unanswered(c);
    assert!(lost > 0, "it was answered in time");
    c.gateways[0].replies.clear();
    c.connect(0, 0);
    lost
}

#[test]
fn a_connection_gets_no_answers_to_calls_of_the_one_before() {
    let items = |c: &Cluster| c.nodes[0].workers[0].node.writer().counts().items;
    // To a flush.
    let mut c = roomy();
    c.ask(0, 1, b"flush_all\r\n");
    let lost = connect_anew(&mut c);
    assert!(items(&c) > 0, "the flush was over too early");
    assert!(c.all_up() && c.until(|c| items(c) == 0));
    c.turns(1000);
    assert_eq!(unanswered(&c), lost);
    c.close();
    // To a list, which the new connection waits for as well.
    let mut c = roomy();
    c.relist(0, 2, &[0]);
    let lost = connect_anew(&mut c);
    c.turns(20);
    assert_eq!(
        (unanswered(&c), c.gateways[0].engine.nodes_up()),
        (lost + 1, 0),
        "the sweep was over too early"
    );
    assert!(c.all_up());
    c.turns(100);
    assert_eq!(unanswered(&c), lost);
    c.close();
    // To what there was no buffer for.
    let mut c = roomy();
    let frames = c.nodes[0].workers[0].end.pools.frames.clone();
    let taken: Vec<_> = std::iter::from_fn(|| frames.alloc()).collect();
    c.ask(0, 1, b"set k1 0 0 1\r\nx\r\n");
    c.turns(1000);
    assert!(c.node_count(Counter::KvReportsServed) > 0);
    let lost = connect_anew(&mut c);
    c.turns(20);
    drop(taken);
    assert!(c.all_up());
    c.turns(100);
    assert_eq!(unanswered(&c), lost);
    c.close();
}
