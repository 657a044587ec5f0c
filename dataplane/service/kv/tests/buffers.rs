//! READs come back in buffers of any shape.

use crate::service::kv::sim::{Cluster, Given, Setup};
use crate::store::layout::{ItemHeader, UNIT};

/// Bytes of a value: in a unit with header and key, filling the last unit to its end or all but a few bytes, and many.
fn lengths(key: &str) -> impl Iterator<Item = usize> {
    let head = size_of::<ItemHeader>() + key.len();
    let fills = (head + 1).next_multiple_of(UNIT) - head;
    (0..9).map(move |less| fills + 2 * UNIT - less).chain([0, 1, 700, 1500, 5000])
}

#[test]
fn a_value_is_whole_whatever_buffers_it_was_read_in() {
    for given in [Given::Posted, Given::Full, Given::Chained(64), Given::Chained(100), Given::Chained(256)] {
        let mut c = Cluster::new(Setup { gateways: 2, ..Setup::default() });
        c.gateways[0].end.transport.given = given;
        for key in ["k".to_owned(), "k".repeat(63), "k".repeat(64), "k".repeat(250)] {
            for len in lengths(&key) {
                let value = "v".repeat(len);
                assert_eq!(c.say(1, &format!("set {key} 7 0 {len}\r\n{value}\r\n")), "STORED\r\n");
                let whole = format!("VALUE {key} 7 {len}\r\n{value}\r\nEND\r\n");
                // By its buckets, then where it was found; with two spaces it does not go the short way.
                for text in ["get ", "get ", "get  "] {
                    let reply = c.say(0, &format!("{text}{key}\r\n"));
                    assert!(reply == whole, "{text:?}: {len} bytes of a {}-byte key, {given:?}", key.len());
                }
            }
        }
        c.close();
    }
}
