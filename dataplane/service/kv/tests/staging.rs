//! Calls that are written into the memory node.

use crate::service::kv::message::{CallHeader, CallKind};
use crate::service::kv::sim::{Cluster, Setup};
use crate::stats::Counter;
use rdma_engine::sim::Rng;
use zerocopy::IntoBytes;

fn setup() -> Setup {
    Setup { partitions: 2, gateways: 2, staging_slots: 3, write_imm_from: 300, ..Setup::default() }
}

#[test]
fn large_calls_are_written_and_small_ones_sent() {
    let mut c = Cluster::new(setup());
    for (n, len) in [1usize, 100, 200, 400, 4096, 11_000].into_iter().enumerate() {
        let (gateway, value) = (n % 2, "v".repeat(len));
        let written = c.count(Counter::KvCallsWritten);
        assert_eq!(c.say(gateway, &format!("set k{n} 5 0 {len}\r\n{value}\r\n")), "STORED\r\n");
        assert_eq!(c.count(Counter::KvCallsWritten) - written, u64::from(len >= 300), "{len} bytes");
        assert_eq!(
            c.say(1 - gateway, &format!("get k{n}\r\n")),
            format!("VALUE k{n} 5 {len}\r\n{value}\r\nEND\r\n")
        );
    }
    c.close();
}

#[test]
fn calls_beyond_the_slots_are_sent() {
    let mut c = Cluster::new(setup());
    let value = "v".repeat(1000);
    for round in 0..20 {
        for n in 0..40 {
            c.ask(0, n * 100, format!("set k{n} 0 0 1000\r\n{value}\r\n").as_bytes());
        }
        assert!(c.until(|c| c.gateways[0].engine.is_idle() && c.gateways[0].replies.len() == 40));
        let stored = |(_, reply): &(u32, Vec<u8>)| reply == b"STORED\r\n";
        assert!(c.gateways[0].replies.drain(..).all(|r| stored(&r)), "round {round}");
    }
    let written = c.count(Counter::KvCallsWritten);
    assert!(
        (20 * 6..20 * 40).contains(&written),
        "{written} of 800 written: all slots each time, and not all calls"
    );
    c.close();
}

/// Slots are as good as new after every loss of a connection, whatever was in them.
#[test]
fn a_connection_that_broke_gives_its_slots_back() {
    let mut c = Cluster::new(setup());
    let value = "v".repeat(1000);
    for _ in 0..10 {
        for n in 0..20 {
            c.ask(0, n * 100, format!("set k{n} 0 0 1000\r\n{value}\r\n").as_bytes());
        }
        c.turns(2);
        c.fail_gateway_end(0, 0);
        c.fail_node_end(0, 0);
        assert!(c.until(|c| c.gateways[0].links.is_empty() && c.gateways[0].engine.is_idle()));
        c.turns(100);
        c.gateways[0].replies.clear();
        c.connect(0, 0);
        assert!(c.all_up());
        let written = c.count(Counter::KvCallsWritten);
        for n in 0..6 {
            assert_eq!(c.say(0, &format!("set k{n} 0 0 1000\r\n{value}\r\n")), "STORED\r\n");
        }
        assert_eq!(c.count(Counter::KvCallsWritten) - written, 6);
    }
    c.close();
}

/// Immediates that name no slot, lengths beyond one, and text that is no call.
#[test]
fn a_node_answers_whatever_is_written() {
    let mut c = Cluster::new(setup());
    assert_eq!(c.say(0, "set key 0 0 5\r\nvalue\r\n"), "STORED\r\n");
    let mut rng = Rng::new(4);
    let mut written = 0;
    for _ in 0..500 {
        let header = CallHeader {
            kind: CallKind::Operation as u8,
            spare: [0; 3],
            call: 0xFFF0.into(),
            generation: 1.into(),
            oldest: 1.into(),
        };
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend((0..rng.below(400)).map(|_| rng.bits() as u8));
        bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
        if bytes.len() >= 4 {
            // Not the number of a job of the gateway that is used for this.
            bytes[4..].iter_mut().take(4).zip([0xF0, 0xFF, 0, 0]).for_each(|(to, byte)| *to = byte);
        }
        let slot = if rng.below(2) == 0 { rng.below(3) as u32 } else { rng.bits() as u32 };
        c.forge_written_call(1, rng.below(30_000), slot, &bytes);
        written += 1;
        c.turns(3);
    }
    let answered = |c: &Cluster| c.node_count(Counter::KvCallsServed) >= written;
    assert!(c.until(answered), "{} of {written}", c.node_count(Counter::KvCallsServed));
    assert!(c.node_count(Counter::KvMalformed) > 300);
    assert_eq!(c.say(0, "get key\r\n"), "VALUE key 0 5\r\nvalue\r\nEND\r\n");
    c.fail_gateway_end(0, 1);
    c.fail_node_end(0, 1);
    c.close();
}
