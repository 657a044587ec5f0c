//! Other lists of memory nodes while clients go on.

use crate::service::kv::members::Members;
use crate::service::kv::ownership::Owners;
use crate::service::kv::sim::{Cluster, Life, Race, Relists, Setup, members};
use crate::stats::Counter;
use rdma_engine::buf::Pool;

const KEYS: usize = 300;

fn fill(c: &mut Cluster, mark: &str) {
    for n in 0..KEYS {
        assert_eq!(c.say(0, &format!("set k{n} 0 0 1\r\n{mark}\r\n")), "STORED\r\n");
    }
}

/// Keys that are there, with what they should hold.
fn present(c: &mut Cluster, mark: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for n in 0..KEYS {
        match c.say(0, &format!("get k{n}\r\n")).as_str() {
            "END\r\n" => {}
            reply => {
                assert_eq!(reply, format!("VALUE k{n} 0 1\r\n{mark}\r\nEND\r\n"));
                found.push(n);
            }
        }
    }
    found
}

#[test]
fn a_key_whose_node_comes_back_is_not_looked_for_elsewhere() {
    let mut c = Cluster::new(Setup { nodes: 2, partitions: 4, gateways: 2, ..Setup::default() });
    fill(&mut c, "x");
    let (mut hits, mut errors) = (0, 0);
    for generation in 2..30 {
        // Nodes are down for the second gateway when the first has told them of another list, and up again when it has as well.
        c.relist(0, generation, &[0, 1]);
        assert!(c.until(|c| c.gateways[0].engine.is_settled()));
        for n in 0..8 {
            let reply = c.say(1, &format!("touch k{n} 0\r\n"));
            assert!(reply.starts_with("SERVER_ERROR"), "list {generation}: {reply}");
        }
        c.relist(1, generation, &[0, 1]);
        for turn in 0..30u32 {
            for n in 0..8 {
                let text = [format!("get k{n}\r\n"), format!("touch k{n} 0\r\n")];
                c.ask(1, 20 * (8 * turn + n), text[turn as usize % 2].as_bytes());
            }
            c.turn();
        }
        assert!(c.until(|c| c.gateways[1].engine.is_idle()));
        for (_, reply) in c.gateways[1].replies.drain(..) {
            let reply = String::from_utf8(reply).unwrap();
            assert!(reply != "END\r\n" && reply != "NOT_FOUND\r\n", "list {generation}: not there");
            let error = reply.starts_with("SERVER_ERROR");
            (hits, errors) = (hits + u32::from(!error), errors + u32::from(error));
        }
    }
    assert!(hits > 100 && errors > 100, "{hits} hits, {errors} errors");
    c.close();
}

#[test]
fn what_moved_away_is_not_missing_by_an_old_list() {
    for first in 0..20 {
        let setup = Setup { nodes: 2, nodes_max: 3, gateways: 2, partitions: 2, ..Setup::default() };
        let mut c = Cluster::new(setup);
        fill(&mut c, "x");
        let new = c.add_node();
        c.relist(0, 2, &[0, 1, new]);
        assert!(c.until(|c| c.gateways[0].engine.is_settled()));
        // The other gateway knows no place and has the list before: of what it does not find it cannot say that it is not there.
        let mut errors = 0;
        for n in first..first + 20 {
            let reply = c.say(1, &format!("get k{n}\r\n"));
            assert_ne!(reply, "END\r\n", "k{n}");
            errors += u32::from(reply.starts_with("SERVER_ERROR"));
        }
        assert!(errors > 0);
    }
}

#[test]
fn a_node_that_comes_or_goes_moves_its_share_and_nothing_else() {
    let mut c =
        Cluster::new(Setup { nodes: 2, nodes_max: 3, partitions: 2, locations: 10_000, ..Setup::default() });
    fill(&mut c, "x");
    let new = c.add_node();
    assert_eq!(present(&mut c, "x").len(), KEYS, "connected is not listed");
    c.relist(0, 2, &[0, 1, new]);
    assert!(c.all_up());
    let buckets = c.count(Counter::KvBucketReads);
    let stayed = present(&mut c, "x");
    assert!((KEYS / 2..KEYS * 5 / 6).contains(&stayed.len()), "{} stayed", stayed.len());
    let looked = c.count(Counter::KvBucketReads) - buckets;
    assert_eq!(looked as usize, KEYS - stayed.len(), "places of those that stayed are known");
    fill(&mut c, "y");
    assert_eq!(present(&mut c, "y").len(), KEYS);
    // Back again: what the newcomer had is gone, and what moved to it does not come back as it was.
    c.relist(0, 3, &[0, 1]);
    assert!(c.until(|c| c.has_left(new)), "{:?}", c.downs());
    c.fail_node_end(new, 0);
    assert!(c.all_up());
    assert_eq!(present(&mut c, "y"), stayed);
    c.turns(3000);
    let stats = c.say(0, "stats\r\n");
    assert!(stats.contains(&format!("STAT curr_items {}\r\n", stayed.len())), "{stats}");
    assert!(stats.contains("STAT nodes 2\r\n") && stats.contains("STAT nodes_up 2\r\n"), "{stats}");
    c.close();
}

#[test]
fn a_node_that_missed_a_list_starts_empty() {
    let mut c = Cluster::new(Setup { nodes: 2, ..Setup::default() });
    fill(&mut c, "x");
    // Out of reach, and then out of the list.
    c.fail_gateway_end(1, 0);
    c.fail_node_end(1, 0);
    assert!(c.until(|c| c.is_apart(1)));
    c.relist(0, 2, &[0]);
    assert!(c.all_up());
    fill(&mut c, "y");
    c.connect(1, 0);
    c.turns(1000);
    assert_eq!(present(&mut c, "y").len(), KEYS, "it has no share");
    c.relist(0, 3, &[0, 1]);
    assert!(c.all_up());
    let stayed = present(&mut c, "y").len();
    assert!((KEYS / 3..KEYS * 2 / 3).contains(&stayed), "{stayed}");
    c.close();
}

#[test]
fn nothing_is_made_of_what_a_node_has_from_before_a_list_that_it_missed() {
    let mut c = Cluster::new(Setup { nodes: 2, gateways: 2, arena: 32 << 20, ..Setup::default() });
    fill(&mut c, "x");
    c.fail_gateway_end(1, 0);
    c.fail_node_end(1, 0);
    c.turns(100);
    c.relist(0, 2, &[0]);
    assert!(c.until(|c| c.gateways[0].engine.is_settled()));
    c.connect(1, 0);
    c.relist(0, 3, &[0, 1]);
    let node = |c: &Cluster| {
        (c.nodes[1].workers[0].node.writer().generation(), c.nodes[1].workers[0].node.writer().counts().items)
    };
    let before = node(&c).1;
    assert!(c.until(|c| node(c).1 < before));
    // This one was never without the node.
    c.relist(1, 3, &[0, 1]);
    let of_the_second =
        |n: &usize| members(1, 0..2).owner(&Owners::default(), format!("k{n}").as_bytes()) == 1;
    let keys: Vec<usize> = (0..KEYS).filter(of_the_second).take(40).collect();
    let appends: String = keys.iter().map(|n| format!("append k{n} 0 0 1\r\ny\r\n")).collect();
    assert_eq!(c.say(1, &appends), "NOT_STORED\r\n".repeat(keys.len()));
    assert!(node(&c).1 > 10, "it was over too early");
    assert!(c.all_up());
    assert_eq!(node(&c), (3, 0));
    c.close();
}

#[test]
fn a_gateway_with_an_older_list_is_refused_and_does_not_serve() {
    let mut c = Cluster::new(Setup { nodes: 2, gateways: 2, ..Setup::default() });
    fill(&mut c, "x");
    c.relist(0, 2, &[0]);
    assert!(c.until(|c| c.gateways[0].engine.is_settled()));
    let kept = present(&mut c, "x").len();
    assert!((KEYS / 3..KEYS * 2 / 3).contains(&kept), "{kept}");
    assert!(c.say(0, "set k1 0 0 1\r\ny\r\n").starts_with("STORED"));
    // What the other gateway remembers of places at the node that left is dead.
    let replies: Vec<String> = (0..KEYS).map(|n| c.say(1, &format!("get k{n}\r\n"))).collect();
    let old = |reply: &&String| reply.contains("\r\nx\r\n");
    assert!(replies.iter().filter(old).count() <= kept);
    assert!(!replies[1].contains("\r\nx\r\n"), "{}", replies[1]);
    c.relist(1, 2, &[0]);
    assert!(c.until(|c| c.gateways[1].engine.nodes_up() == 1));
    assert_eq!(c.say(1, "get k1\r\n"), "VALUE k1 0 1\r\ny\r\nEND\r\n");
    c.close();
}

#[test]
fn lists_may_follow_each_other_faster_than_they_are_taken() {
    let mut c = Cluster::new(Setup { nodes: 3, ..Setup::default() });
    fill(&mut c, "x");
    for n in 0..20 {
        c.ask(0, n, b"get k1 k2 k3 k4\r\n");
        c.ask(0, n, b"set k5 0 0 1\r\nx\r\n");
    }
    c.relist(0, 2, &[0, 1]);
    c.relist(0, 3, &[0]);
    c.turns(3);
    c.relist(0, 4, &[0, 1]);
    c.turns(1);
    c.relist(0, 5, &[0, 2]);
    assert!(c.all_up(), "{:?}", c.downs());
    assert!(c.until(|c| c.gateways[0].replies.len() == 40));
    c.gateways[0].replies.clear();
    let left = present(&mut c, "x").len();
    // At least what the first node that left had, a third, is gone.
    assert!(left < KEYS * 3 / 4, "{left}");
    fill(&mut c, "z");
    assert_eq!(present(&mut c, "z").len(), KEYS);
    c.close();
}

#[test]
fn a_node_that_does_not_answer_keeps_a_list_waiting_for_a_while_only() {
    let mut c = Cluster::new(Setup { nodes: 2, ..Setup::default() });
    fill(&mut c, "x");
    c.nodes[1].is_dead = true;
    for n in 0..12 {
        c.ask(0, n, format!("set k{n} 0 0 1\r\ny\r\n").as_bytes());
    }
    c.turns(100);
    let at_once = c.gateways[0].replies.len();
    assert!((1..12).contains(&at_once), "{at_once} keys of 12 at the node that answers");
    c.relist(0, 2, &[0]);
    assert!(c.all_up(), "the list is not taken");
    assert!(c.until(|c| c.gateways[0].replies.len() == 12));
    let lost = |(_, reply): &&(u32, Vec<u8>)| reply.starts_with(b"SERVER_ERROR memory node lost");
    assert_eq!(c.gateways[0].replies.iter().filter(lost).count(), 12 - at_once);
    c.gateways[0].replies.clear();
    assert_eq!(c.say(0, "set k1 0 0 1\r\nz\r\n"), "STORED\r\n");
    c.nodes[1].is_dead = false;
    c.fail_node_end(1, 0);
    c.close();
}

#[test]
fn requests_that_waited_for_keys_come_before_later_ones() {
    let mut c = Cluster::new(Setup { nodes: 2, nodes_max: 3, ..Setup::default() });
    let new = c.add_node();
    fill(&mut c, "x");
    c.relist(0, 2, &[0, 1, new]);
    for n in 0..40 {
        c.ask(0, 1, format!("set k{n} 0 0 1\r\na\r\n").as_bytes());
    }
    assert!(c.until(|c| c.gateways[0].engine.is_settled()));
    for n in 0..40 {
        c.ask(0, 1, format!("set k{n} 0 0 1\r\nb\r\n").as_bytes());
    }
    assert!(c.until(|c| c.gateways[0].replies.len() == 80));
    c.gateways[0].replies.clear();
    for n in 0..40 {
        assert_eq!(c.say(0, &format!("get k{n}\r\n")), format!("VALUE k{n} 0 1\r\nb\r\nEND\r\n"));
    }
    c.close();
}

/// Keys that the list of these nodes and the one of those give to different ones.
fn moving(from: &[usize], to: &[usize]) -> Vec<usize> {
    let [from, to] = [from, to].map(|nodes| members(1, nodes.iter().copied()));
    let owner = |list: &Members, n: &usize| list.owner(&Owners::default(), format!("k{n}").as_bytes());
    (0..KEYS).filter(|n| owner(&from, n) != owner(&to, n)).collect()
}

#[test]
fn a_key_that_changes_hands_is_not_missing_while_its_old_owner_shows_it() {
    let mut c = Cluster::new(Setup { nodes: 3, gateways: 2, arena: 32 << 20, ..Setup::default() });
    fill(&mut c, "x");
    let keys = moving(&[0, 1, 2], &[0, 1]);
    // The other gateway keeps the list before, and knows the places.
    let shows = |c: &mut Cluster, n: usize| c.say(1, &format!("get k{n}\r\n")).starts_with("VALUE");
    keys.iter().for_each(|n| assert!(shows(&mut c, *n)));
    c.relist(0, 2, &[0, 1]);
    for n in &keys {
        c.ask(0, *n as u32 * 20, format!("get k{n}\r\n").as_bytes());
    }
    c.turns(4);
    assert!(keys[..20].iter().any(|n| shows(&mut c, *n)), "it was over too early");
    while !c.gateways[0].engine.is_idle() || !c.gateways[0].replies.is_empty() {
        for (client, reply) in std::mem::take(&mut c.gateways[0].replies) {
            assert_eq!(reply, b"END\r\n");
            let key = client as usize / 20;
            assert!(!shows(&mut c, key), "k{key} was missing, and then it was not");
        }
        c.turn();
    }
}

#[test]
fn what_comes_when_keys_have_settled_does_not_overtake_what_waited() {
    let mut waited = 0;
    // Keys settle in one of these turns, and what comes in it finds requests that have not gone on yet.
    for turns in 0..8 {
        let mut c = Cluster::new(Setup { nodes: 2, nodes_max: 3, ..Setup::default() });
        let new = c.add_node();
        c.relist(0, 2, &[0, 1, new]);
        let keys = &moving(&[0, 1], &[0, 1, new])[..4];
        for key in keys {
            c.ask(0, *key as u32 * 20, format!("set k{key} 0 0 1\r\nx\r\n").as_bytes());
        }
        c.turns(turns);
        waited += u32::from(!c.gateways[0].engine.is_settled());
        for key in keys {
            c.ask_next(0, *key as u32 * 20 + 1, format!("get k{key}\r\n").as_bytes());
        }
        assert!(c.until(|c| c.gateways[0].replies.len() == 8));
        for (client, reply) in std::mem::take(&mut c.gateways[0].replies) {
            let key = client / 20;
            let expected = [b"STORED\r\n".to_vec(), format!("VALUE k{key} 0 1\r\nx\r\nEND\r\n").into()];
            assert_eq!(reply, expected[client as usize % 20], "after {turns} turns");
        }
        c.close();
    }
    assert!((1..8).contains(&waited), "{waited} of 8 came before");
}

#[test]
fn a_node_that_leaves_is_told_even_if_there_is_no_buffer_at_first() {
    let mut c = Cluster::new(Setup { nodes: 2, ..Setup::default() });
    let frames = c.gateways[0].end.pools.frames.clone();
    let taken: Vec<_> = std::iter::from_fn(|| frames.alloc()).collect();
    c.relist(0, 2, &[0]);
    c.turns(20);
    assert_eq!(c.nodes[1].workers[0].node.writer().generation(), 1);
    drop(taken);
    assert!(c.until(|c| c.has_left(1)), "{:?}", c.downs());
    assert_eq!(c.nodes[1].workers[0].node.writer().generation(), 2);
    c.fail_node_end(1, 0);
    c.close();
}

#[test]
fn a_gateway_says_once_that_a_node_serves_another_list() {
    let mut c = Cluster::new(Setup { nodes: 2, gateways: 2, ..Setup::default() });
    c.relist(0, 5, &[0]);
    assert!(c.until(|c| c.gateways[0].engine.is_settled()));
    let of_the_second =
        |n: &usize| members(1, 0..2).owner(&Owners::default(), format!("k{n}").as_bytes()) == 1;
    let key = (0..KEYS).find(of_the_second).unwrap();
    let set = format!("set k{key} 0 0 1\r\ny\r\n");
    assert_eq!(c.say(1, &set), "SERVER_ERROR memory node serves another membership\r\n");
    c.turns(50_000);
    // The one that left that list is asked by this gateway, and tells it.
    assert_eq!(c.gateways[1].engine.list_conflict(), Some((1, 1, 5)));
    assert_eq!(c.gateways[1].engine.list_conflict(), None);
    c.turns(50_000);
    assert_eq!(c.gateways[1].engine.list_conflict(), None);
    // The same number with other nodes, and back in order with the next one.
    c.relist(1, 5, &[0, 1]);
    c.turns(50_000);
    let found: Vec<_> = std::iter::from_fn(|| c.gateways[1].engine.list_conflict()).collect();
    assert!(found.contains(&(0, 5, 5)), "{found:?}");
    for gateway in 0..2 {
        c.relist(gateway, 6, &[0]);
    }
    assert!(c.until(|c| c.gateways.iter().all(|g| g.engine.is_settled() && g.engine.nodes_up() == 1)));
    c.close();
}

/// A value that few items of leave places of their class for.
fn large(mark: char) -> String {
    mark.to_string().repeat(3000)
}

/// Stores keys that the first of two nodes has and would give to a second one, until a SET waits for a place. Its key.
fn stall_a_set(c: &mut Cluster, gateway: usize, mark: char) -> String {
    let moves = |key: &String| members(2, 0..2).owner(&Owners::default(), key.as_bytes()) == 1;
    for (n, key) in (0..).map(|n| format!("k{n}")).filter(moves).take(3000).enumerate() {
        let stalled = c.node_count(Counter::KvStalled);
        c.ask(gateway, n as u32, format!("set {key} 0 0 3000\r\n{}\r\n", large(mark)).as_bytes());
        let waits = |c: &Cluster| c.node_count(Counter::KvStalled) > stalled;
        assert!(c.until(|c| !c.gateways[gateway].replies.is_empty() || waits(c)));
        match c.gateways[gateway].replies.pop_front() {
            Some((_, reply)) => assert_eq!(reply, b"STORED\r\n"),
            None => return key,
        }
    }
    panic!("nothing waits");
}

#[test]
fn a_call_that_waits_does_not_outlive_its_list() {
    let small = Setup { arena: 3 << 20, segment_units: 256, ..Setup::default() };
    let mut c = Cluster::new(Setup { nodes: 1, nodes_max: 2, gateways: 3, ..small });
    let new = c.add_node();
    // It does not report, so that no place becomes free.
    c.gateways[0].is_stuck = true;
    let key = stall_a_set(&mut c, 1, '1');
    c.relist(2, 2, &[0, new]);
    assert!(c.until(|c| c.gateways[2].engine.is_settled() && c.gateways[2].engine.nodes_up() == 2));
    c.gateways[0].is_stuck = false;
    assert!(c.until(|c| !c.gateways[1].replies.is_empty()));
    let (_, told) = c.gateways[1].replies.pop_front().unwrap();
    assert_eq!(String::from_utf8_lossy(&told), "SERVER_ERROR memory node serves another membership\r\n");
    let get = format!("get {key}\r\n");
    let second = format!("VALUE {key} 0 3000\r\n{}\r\nEND\r\n", large('2'));
    assert_eq!(c.say(2, &format!("set {key} 0 0 3000\r\n{}\r\n", large('2'))), "STORED\r\n");
    assert!(c.say(2, &get) == second);
    assert!(!c.say(1, &get).starts_with("VALUE"), "from the old owner, by the old list");
    // Back at the old owner, which has to have nothing of it.
    c.relist(2, 3, &[0]);
    assert!(c.until(|c| c.gateways[2].engine.is_settled() && c.gateways[2].engine.nodes_up() == 1));
    assert_eq!(c.say(2, &get), "END\r\n");
}

/// Readers and writers at two gateways, which take each list at different times; nodes come and go.
#[test]
fn lists_change_while_clients_read_and_write() {
    let setup =
        Setup { nodes: 2, nodes_max: 3, partitions: 2, gateways: 2, tear: 8, seed: 11, ..Setup::default() };
    let mut race = Race::new(setup, 200, 2000, Life::Short);
    let (mut relists, mut lists) = (Relists::new(&mut race), 0);
    race.run(15_000, |race| {
        relists.next(race);
        lists += 1;
    });
    assert!(lists > 2, "{lists}");
    assert!(race.hits > race.gets / 10, "{} hits of {}", race.hits, race.gets);
    race.cluster.close();
}

/// As above, with too little room, and with a gateway that does not report while lists are taken: calls by the old list wait for
/// places while keys get another owner.
#[test]
fn lists_change_while_calls_wait_for_places() {
    for seed in [2, 14] {
        let small = Setup { arena: 128 << 10, segment_units: 256, ..Setup::default() };
        let setup = Setup { nodes: 2, nodes_max: 3, gateways: 3, tear: 4, seed, ..small };
        let mut race = Race::new(setup, 150, 3000, Life::Long);
        let (mut relists, mut lists) = (Relists::new(&mut race), 0);
        race.run(3000, |race| {
            (0..10).for_each(|_| relists.next(race));
            lists += 10;
        });
        assert!(lists > 0 && relists.stalled > 5, "{lists} lists, {} calls waited", relists.stalled);
        assert!(race.hits > race.gets / 10, "{} hits of {}", race.hits, race.gets);
        race.cluster.close();
    }
}
