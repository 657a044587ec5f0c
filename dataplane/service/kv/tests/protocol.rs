//! What clients say and are told, against a map.

use crate::service::kv::sim::{Cluster, Setup, VALUE};
use crate::stats::Counter;

#[test]
fn a_client_can_set_get_and_delete() {
    let mut c = Cluster::new(Setup::default());
    assert_eq!(c.say(0, "get a\r\n"), "END\r\n");
    assert_eq!(c.say(0, "set a 5 0 3\r\nabc\r\n"), "STORED\r\n");
    assert_eq!(c.say(0, "get a\r\n"), "VALUE a 5 3\r\nabc\r\nEND\r\n");
    assert_eq!(c.say(0, "get a b a\r\n"), "VALUE a 5 3\r\nabc\r\nVALUE a 5 3\r\nabc\r\nEND\r\n");
    assert!(c.say(0, "gets a\r\n").starts_with("VALUE a 5 3 "));
    assert_eq!(c.say(0, "append a 0 0 2\r\nde\r\n"), "STORED\r\n");
    assert_eq!(c.say(0, "mg a v s f\r\n"), "VA 5 s5 f5\r\nabcde\r\n");
    assert_eq!(c.say(0, "delete a\r\n"), "DELETED\r\n");
    assert_eq!(c.say(0, "get a\r\n"), "END\r\n");
    assert_eq!(c.say(0, "incr n 1\r\n"), "NOT_FOUND\r\n");
    assert_eq!(c.say(0, "set n 0 0 1\r\n9\r\nincr n 3\r\n"), "STORED\r\n12\r\n");
    assert_eq!(
        c.say(0, "version\r\nverbosity 1\r\nmn\r\nnonsense\r\n"),
        "VERSION 1.6.18-isthmus\r\nOK\r\nMN\r\nERROR\r\n"
    );
    c.close();
}

#[test]
fn a_known_place_costs_one_read_and_the_node_nothing() {
    let mut c = Cluster::new(Setup::default());
    c.say(0, "set key 0 0 4\r\nfour\r\n");
    let (reads, served) = (c.count(Counter::KvReads), c.node_count(Counter::KvCallsServed));
    let reports = c.node_count(Counter::KvReportsServed);
    for _ in 0..100 {
        assert_eq!(c.say(0, "get key\r\n"), "VALUE key 0 4\r\nfour\r\nEND\r\n");
    }
    assert_eq!(c.count(Counter::KvReads) - reads, 100, "the answer to the set told the place");
    assert_eq!(c.count(Counter::KvBucketReads), 0);
    let told = c.node_count(Counter::KvReportsServed) - reports;
    assert_eq!(c.node_count(Counter::KvCallsServed) - served, told, "no call but reports");
    c.close();
}

#[test]
fn a_place_that_nobody_told_is_found_by_buckets() {
    let mut c = Cluster::new(Setup { gateways: 2, ..Setup::default() });
    c.say(0, "set key 1 0 4\r\nfour\r\n");
    assert_eq!(c.say(1, "get key\r\n"), "VALUE key 1 4\r\nfour\r\nEND\r\n");
    assert_eq!(c.count(Counter::KvBucketReads), 1);
    assert_eq!(c.say(1, "get key\r\n"), "VALUE key 1 4\r\nfour\r\nEND\r\n");
    assert_eq!((c.count(Counter::KvBucketReads), c.count(Counter::KvReads)), (1, 2));
    // Another gateway's mutation: the place is stale, which the item itself says.
    c.say(0, "set key 2 0 5\r\nfiver\r\n");
    assert_eq!(c.say(1, "get key\r\n"), "VALUE key 2 5\r\nfiver\r\nEND\r\n");
    assert_eq!((c.count(Counter::KvBucketReads), c.count(Counter::KvRaces)), (2, 1));
    c.close();
}

#[test]
fn values_of_all_sizes_come_back() {
    let mut c = Cluster::new(Setup { partitions: 2, ..Setup::default() });
    for len in [0, 1, 63, 64, 200, 1000, 1800, 1900, 2048, 4096, 9000, VALUE] {
        let value: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
        let set = [format!("set k{len} 3 0 {len}\r\n").as_bytes(), &value, b"\r\n"].concat();
        assert_eq!(c.talk(0, &set), b"STORED\r\n", "{len}");
        let expected = [format!("VALUE k{len} 3 {len}\r\n").as_bytes(), &value, b"\r\nEND\r\n"].concat();
        let got = c.talk(0, format!("get k{len}\r\n").as_bytes());
        assert!(got == expected, "{len}: {:?}", String::from_utf8_lossy(&got[..got.len().min(99)]));
        // By a call: what touches goes to the owner.
        let got = c.talk(0, format!("gat 0 k{len}\r\n").as_bytes());
        assert!(got == expected, "{len}: {:?}", String::from_utf8_lossy(&got[..got.len().min(99)]));
        let expected = [format!("VA {len} f3\r\n").as_bytes(), &value, b"\r\n"].concat();
        assert!(c.talk(0, format!("mg k{len} v f\r\n").as_bytes()) == expected, "{len}");
    }
    let large = [format!("set big 0 0 {}\r\n", VALUE + 1).as_bytes(), &vec![1; VALUE + 1], b"\r\n"].concat();
    assert_eq!(c.talk(0, &large), b"SERVER_ERROR object too large for cache\r\n");
    let all: String = (0..500).map(|n| format!(" k{n}")).collect();
    let reply = c.talk(0, format!("get{all}\r\n").as_bytes());
    assert!(reply.starts_with(b"VALUE k0 3 0\r\n\r\nVALUE k1 3 1\r\n") && reply.ends_with(b"\r\nEND\r\n"));
    c.close();
}

#[test]
fn keys_in_base64_are_read_by_rdma_too() {
    let mut c = Cluster::new(Setup::default());
    assert_eq!(c.say(0, "ms Zm9v 3 b\r\nbar\r\n"), "HD\r\n");
    assert_eq!(c.say(0, "mg Zm9v v k b\r\n"), "VA 3 kZm9v b\r\nbar\r\n");
    assert_eq!(c.say(0, "get foo\r\n"), "VALUE foo 0 3\r\nbar\r\nEND\r\n");
    assert!(c.count(Counter::KvReads) >= 2);
    c.close();
}

#[test]
fn who_reads_a_stale_item_first_renews_it() {
    let mut c = Cluster::new(Setup::default());
    c.say(0, "ms a 1\r\nx\r\n");
    assert_eq!(c.say(0, "md a I T30\r\n"), "HD\r\n");
    assert_eq!(c.say(0, "mg a v\r\n"), "VA 1 X W\r\nx\r\n");
    assert_eq!(c.say(0, "mg a v\r\n"), "VA 1 Z X\r\nx\r\n");
    assert_eq!(c.say(0, "ms a 1\r\ny\r\nmg a v\r\n"), "HD\r\nVA 1\r\ny\r\n");
    c.close();
}

#[test]
fn items_go_at_their_time_by_the_nodes_clock() {
    let mut c = Cluster::new(Setup::default());
    assert_eq!(c.say(0, "set a 0 1 1\r\nx\r\nset b 0 -1 1\r\ny\r\n"), "STORED\r\nSTORED\r\n");
    assert_eq!(c.say(0, "get a b\r\n"), "VALUE a 0 1\r\nx\r\nEND\r\n");
    assert_eq!(c.say(0, "mg a t\r\n"), "HD t1\r\n");
    c.turns(110_000);
    assert_eq!(c.say(0, "get a\r\n"), "END\r\n");
    assert_eq!(c.say(0, "mg a\r\n"), "EN\r\n");
    c.close();
}

#[test]
fn a_flush_is_over_when_no_cached_place_can_hit() {
    let mut c = Cluster::new(Setup { nodes: 2, partitions: 2, gateways: 2, ..Setup::default() });
    for n in 0..200 {
        c.say(0, &format!("set k{n} 0 0 1\r\nx\r\n"));
        c.say(1, &format!("get k{n}\r\n"));
    }
    assert_eq!(c.say(0, "flush_all\r\n"), "OK\r\n");
    for n in 0..200 {
        assert_eq!(c.say(1, &format!("get k{n}\r\n")), "END\r\n", "{:?}", c.downs());
    }
    assert_eq!(c.say(0, "set k 0 0 1\r\nz\r\nflush_all noreply\r\nget k\r\n"), "STORED\r\nEND\r\n");
    c.close();
}

/// What makes something new of an item, or renews it; `K` is its key, `U` its cas unique. And what is answered without one.
const RENEWALS: [(&str, &str); 18] = [
    ("append K 0 0 1\r\n1", "NOT_STORED"),
    ("prepend K 0 0 1\r\n1", "NOT_STORED"),
    ("replace K 0 0 1\r\n1", "NOT_STORED"),
    ("cas K 0 0 1 U\r\n1", "NOT_FOUND"),
    ("incr K 1", "NOT_FOUND"),
    ("decr K 1", "NOT_FOUND"),
    ("touch K 100", "NOT_FOUND"),
    ("gat 100 K", "END"),
    ("gats 100 K", "END"),
    ("ms K 1 MA\r\n1", "NS"),
    ("ms K 1 MP\r\n1", "NS"),
    ("ms K 1 CU\r\n1", "NF"),
    ("ms K 1 I C9999999999999999\r\n1", "NF"),
    ("ma K D1", "NF"),
    ("mg K v T100", "EN"),
    ("mg K v R100", "EN"),
    ("md K I T100", "NF"),
    ("md K", "NF"),
];
/// Keys that each of them is tried on.
const RENEWED: usize = 8;

/// Stores what [`RENEWALS`] are about, and as many others.
fn store_what_is_renewed(c: &mut Cluster) {
    let keys = (0..RENEWED).flat_map(|n| (0..RENEWALS.len()).map(move |i| format!("k{n}-{i}")));
    let sets: String = keys.map(|key| format!("set {key} 0 0 1\r\n7\r\nset x{key} 0 0 0\r\n\r\n")).collect();
    assert_eq!(c.say(0, &sets), "STORED\r\n".repeat(2 * RENEWED * RENEWALS.len()));
}

/// Tries all [`RENEWALS`] by the second gateway, while a flush that the node has begun is under way.
fn renew_during_a_flush(c: &mut Cluster, uniques: &[Vec<String>]) {
    for (n, uniques) in uniques.iter().enumerate() {
        let of = |(i, unique): (usize, &String)| {
            RENEWALS[i].0.replace('K', &format!("k{n}-{i}")).replace('U', unique) + "\r\n"
        };
        let text: String = uniques.iter().enumerate().map(of).collect();
        c.ask(1, 20 * n as u32, text.as_bytes());
    }
    assert!(c.until(|c| c.gateways[1].replies.len() == RENEWED));
    let items = c.nodes[0].workers[0].node.writer().counts().items;
    assert!(items > RENEWED as u64, "the flush was over too early: {items} items");
    let expected: String = RENEWALS.iter().map(|(_, reply)| format!("{reply}\r\n")).collect();
    for (_, reply) in c.gateways[1].replies.drain(..) {
        assert_eq!(String::from_utf8_lossy(&reply), expected);
    }
}

#[test]
fn nothing_is_made_of_what_a_flush_under_way_takes() {
    // Of a delayed one the time comes a hundredth of a second after the begin.
    let unix_ns = 1_700_000_000_990_000_000;
    for command in ["flush_all\r\n", "flush_all 1\r\n"] {
        let mut c = Cluster::new(Setup { gateways: 2, arena: 32 << 20, unix_ns, ..Setup::default() });
        store_what_is_renewed(&mut c);
        let unique =
            |c: &mut Cluster, key: String| c.say(0, &format!("mg {key} c\r\n"))[4..].trim().to_owned();
        let of = |c: &mut Cluster, n| (0..RENEWALS.len()).map(|i| unique(c, format!("k{n}-{i}"))).collect();
        let uniques: Vec<Vec<String>> = (0..RENEWED).map(|n| of(&mut c, n)).collect();
        assert_eq!(c.say(0, "set kept 0 0 1\r\n1\r\n"), "STORED\r\n");
        let items = |c: &Cluster| c.nodes[0].workers[0].node.writer().counts().items;
        let before = items(&c);
        c.ask(0, 1, command.as_bytes());
        assert!(c.until(|c| items(c) < before), "it does not begin");
        assert_eq!(c.say(1, "set kept 0 0 1\r\n2\r\nappend kept 0 0 1\r\n3\r\n"), "STORED\r\nSTORED\r\n");
        renew_during_a_flush(&mut c, &uniques);
        assert!(c.until(|c| items(c) == 1), "{} items", items(&c));
        assert!(c.until(|c| !c.gateways[0].replies.is_empty()));
        assert_eq!(c.gateways[0].replies.pop_front().unwrap().1, b"OK\r\n");
        assert_eq!(c.say(0, "get kept\r\n"), "VALUE kept 0 2\r\n23\r\nEND\r\n");
        c.close();
    }
}

#[test]
fn the_order_of_a_clients_requests_is_kept() {
    let mut c = Cluster::new(Setup { tear: 20, ..Setup::default() });
    for round in 0..50 {
        // Two spaces make a `get` that is not taken the short way.
        for n in 0..5u32 {
            c.ask(0, 4 * n, format!("set k 0 0 6\r\n{round:03}{n:03}\r\n").as_bytes());
            c.ask(0, 4 * n + 1, b"get k\r\n");
            c.ask(0, 4 * n + 2, b"get  k\r\n");
            c.ask(0, 4 * n + 3, b"get k\r\n");
        }
        c.until(|c| c.gateways[0].replies.len() == 20);
        for n in 0..20u32 {
            let expected = match n % 4 {
                0 => "STORED\r\n".to_owned(),
                _ => format!("VALUE k 0 6\r\n{round:03}{:03}\r\nEND\r\n", n / 4),
            };
            let reply = c.gateways[0].replies.iter().find(|(client, _)| *client == n).unwrap();
            assert_eq!(String::from_utf8_lossy(&reply.1), expected);
        }
        c.gateways[0].replies.clear();
    }
    c.close();
}

#[test]
fn clients_that_write_the_same_key_do_not_wait_for_each_other() {
    let mut c = Cluster::new(Setup::default());
    assert_eq!(c.say(0, "set k 0 0 1\r\n0\r\n"), "STORED\r\n");
    let (calls, reads) = (c.count(Counter::KvCalls), c.count(Counter::KvReads));
    for n in 0..4u32 {
        c.ask(0, 100 * n, b"set k 0 0 1\r\n1\r\n");
        c.ask(0, 100 * n + 50, b"get k\r\n");
    }
    c.turn();
    assert_eq!(c.count(Counter::KvCalls) - calls, 4);
    assert_eq!(c.count(Counter::KvReads) - reads, 4);
    assert!(c.until(|c| c.gateways[0].replies.len() == 8));
    c.gateways[0].replies.clear();
    assert_eq!(c.say(0, "get k\r\n"), "VALUE k 0 1\r\n1\r\nEND\r\n");
    c.close();
}

#[test]
fn an_overtaken_get_looks_first_where_the_next_item_was_stored() {
    let mut c = Cluster::new(Setup { tear: 4, ..Setup::default() });
    for n in 0..200u32 {
        c.ask(0, 1000 * n, format!("set k 0 0 4\r\n{n:04}\r\n").as_bytes());
        c.ask(0, 1000 * n + 500, b"get k\r\n");
        c.turns(3);
    }
    assert!(c.until(|c| c.gateways[0].engine.is_idle()));
    let (races, buckets) = (c.count(Counter::KvRaces), c.count(Counter::KvBucketReads));
    assert!(races > 20 && buckets < races, "{races} races, {buckets} lookups by buckets");
    c.close();
}

#[test]
fn stats_tell_what_the_nodes_hold() {
    let mut c = Cluster::new(Setup::default());
    (0..50).for_each(|n| assert_eq!(c.say(0, &format!("set k{n} 0 0 1\r\nx\r\n")), "STORED\r\n"));
    c.turns(20_000);
    let stats = c.say(0, "stats\r\n");
    assert!(stats.contains("STAT curr_items 50\r\n") && stats.contains("STAT nodes_up 1\r\n"), "{stats}");
    assert!(stats.ends_with("END\r\n"));
    assert_eq!(c.say(0, "stats reset\r\nstats items\r\n"), "RESET\r\nEND\r\n");
    c.close();
}

#[test]
fn what_has_no_room_waits_and_nothing_else_does() {
    // Fewer places in the send queues than credits, then fewer buffers than requests.
    for setup in [Setup { send_depth: 4, ..Setup::default() }, Setup { frames: 70, ..Setup::default() }] {
        let mut c = Cluster::new(setup.clone());
        for round in 0..20 {
            for n in 0..30 {
                c.ask(0, n, format!("set k{n} 0 0 2\r\n{round:02}\r\n").as_bytes());
            }
            assert!(c.until(|c| c.gateways[0].replies.len() == 30), "{setup:?}: {:?}", c.downs());
            c.gateways[0].replies.clear();
            for n in 0..30 {
                c.ask(0, n, format!("get k{n} other{n}\r\n").as_bytes());
            }
            assert!(c.until(|c| c.gateways[0].replies.len() == 30), "{setup:?}: {:?}", c.downs());
            let hit = |r: &(u32, Vec<u8>)| r.1.ends_with(format!("2\r\n{round:02}\r\nEND\r\n").as_bytes());
            assert!(c.gateways[0].replies.drain(..).all(|r| hit(&r)));
        }
        c.close();
    }
}

#[test]
fn many_large_values_in_one_request_cost_that_request_alone() {
    // A quarter of the large buffers is what values may have.
    let mut c = Cluster::new(Setup { messages: 80, ..Setup::default() });
    let value = "v".repeat(VALUE);
    assert_eq!(c.say(0, &format!("set big 0 0 {VALUE}\r\n{value}\r\n")), "STORED\r\n");
    for verb in ["get", "gat 0"] {
        let keys = " big".repeat(30);
        let reply = c.say(0, &format!("{verb}{keys}\r\n"));
        assert!(reply.ends_with("SERVER_ERROR out of memory writing get response\r\n"));
        assert_eq!(reply.matches("VALUE big").count(), 20, "{verb}");
        // Those who ask for one at a time wait and get it.
        (0..200).for_each(|n| c.ask(0, n, format!("{verb} big\r\n").as_bytes()));
        assert!(c.until(|c| c.gateways[0].replies.len() == 200));
        assert!(c.gateways[0].replies.drain(..).all(|(_, r)| r.ends_with(b"\r\nEND\r\n")));
    }
    c.close();
}

#[test]
fn many_commands_in_one_datagram_are_answered_in_their_order() {
    let mut c = Cluster::new(Setup { partitions: 2, ..Setup::default() });
    let sets: String = (0..600).map(|n| format!("set k{n} 0 0 1\r\n{}\r\n", n % 10)).collect();
    assert_eq!(c.say(0, &sets), "STORED\r\n".repeat(600));
    let gets: String = (0..600).map(|n| format!("get k{n}\r\n")).collect();
    let replies: String = (0..600).map(|n| format!("VALUE k{n} 0 1\r\n{}\r\nEND\r\n", n % 10)).collect();
    assert_eq!(c.say(0, &gets), replies);
    c.close();
}

#[test]
fn a_burst_of_requests_is_answered_whole() {
    let mut c = Cluster::new(Setup::default());
    for n in 0..200 {
        c.ask(0, n, format!("set k{n} 0 0 3\r\n{n:03}\r\n").as_bytes());
    }
    // Each client's own: its requests are answered in their order.
    for n in 0..200 {
        c.ask(0, n, format!("get k{n}\r\n").as_bytes());
    }
    assert!(c.until(|c| c.gateways[0].replies.len() == 400), "{}", c.gateways[0].replies.len());
    let mut stored = 0;
    for (n, reply) in c.gateways[0].replies.drain(..) {
        match reply.as_slice() {
            b"STORED\r\n" => stored += 1,
            value => {
                assert_eq!(String::from_utf8_lossy(value), format!("VALUE k{n} 0 3\r\n{n:03}\r\nEND\r\n"))
            }
        }
    }
    assert_eq!(stored, 200);
    c.close();
}
