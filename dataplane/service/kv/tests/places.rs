//! Places where items were, and READs that look for them there.

use crate::service::kv::sim::{Cluster, Setup};
use crate::stats::Counter;

/// Turns in which a SET has its place, unless nothing becomes free: a report's time, many times over.
const LONG: usize = 2000;

/// Which of a lookup's READs does not come back.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kept {
    /// That of the item, where it was last seen.
    Located,
    /// Those of the buckets.
    Buckets,
    /// That of the item that the buckets led to.
    Item,
}

/// Begins a lookup one of whose READs does not come back.
fn keep(c: &mut Cluster, kept: Kept) {
    if kept == Kept::Located {
        assert!(c.say(0, "get held\r\n").starts_with("VALUE"));
    }
    let located = c.count(Counter::KvLocated);
    let phase = if kept == Kept::Buckets { Counter::KvBucketReads } else { Counter::KvReads };
    let begun = c.count(phase);
    c.ask(0, 1, b"get held\r\n");
    assert!(c.until(|c| c.count(phase) > begun));
    c.gateways[0].end.transport.keeps_reads = true;
    assert_eq!(c.count(Counter::KvLocated) > located, kept == Kept::Located);
}

/// Stores values by the other gateway; the number of those that have their place before one waits for long.
fn store(c: &mut Cluster, most: usize) -> usize {
    let value = "v".repeat(3000);
    for n in 0..most {
        c.ask(1, n as u32 * 20, format!("set k{n} 0 0 3000\r\n{value}\r\n").as_bytes());
        for _ in 0..LONG {
            c.turn();
            if !c.gateways[1].replies.is_empty() {
                break;
            }
        }
        match c.gateways[1].replies.pop_front() {
            Some((_, reply)) => assert_eq!(reply, b"STORED\r\n"),
            None => return n,
        }
    }
    most
}

#[test]
fn no_place_is_used_again_while_a_read_may_look_at_it() {
    for kept in [Kept::Located, Kept::Buckets, Kept::Item] {
        let small = Setup { arena: 256 << 10, segment_units: 256, ..Setup::default() };
        let mut c = Cluster::new(Setup { gateways: 2, ..small });
        assert_eq!(c.say(1, "set held 0 0 4\r\nheld\r\n"), "STORED\r\n");
        keep(&mut c, kept);
        assert!(store(&mut c, 200) < 200, "places were used again: {kept:?}");
        assert!(c.node_count(Counter::KvEvicted) > 0);
        c.gateways[0].end.transport.keeps_reads = false;
        assert!(c.until(|c| !c.gateways[0].replies.is_empty() && !c.gateways[1].replies.is_empty()));
        assert_eq!(c.gateways[1].replies.pop_front().unwrap().1, b"STORED\r\n");
        assert_eq!(store(&mut c, 20), 20);
        assert_eq!(c.downs(), [vec![], vec![]]);
        c.close();
    }
}
