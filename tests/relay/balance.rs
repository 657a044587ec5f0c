//! What both ends of a relay counted, held against each other. Traffic goes one way, from A to B.

use crate::end::say;
use crate::report::Report;
use std::collections::BTreeMap;

/// What became of the frames of A.
#[derive(Clone, Copy, Debug)]
pub struct Balance {
    /// Entered A.
    pub entered: u64,
    /// Dropped by A under any name.
    pub dropped: u64,
    /// Sent by A and not seen by B.
    pub lost: u64,
    /// Left B.
    pub left: u64,
}

/// Drops of the relay's own frames by reason: what the transport does with its packets is not among them.
fn drops(end: &Report) -> BTreeMap<String, u64> {
    end.drops("relay").into_iter().filter(|(reason, _)| !reason.starts_with("fabric_")).collect()
}

/// Every frame that entered an end was sent or dropped by name.
pub fn sender(a: &Report) -> (u64, u64) {
    let (entered, sent) = (a.count("relay", "rx_frames"), a.count("relay", "frames_sent"));
    let dropped: u64 = drops(a).values().sum();
    assert_eq!(entered, sent + dropped, "frames in = sent + dropped: {:?}", a.drops("relay"));
    (entered, dropped)
}

/// Also: every frame that A sent was received by B or counted as lost; every frame that B received went to its port or
/// was dropped by name.
pub fn hold(a: &Report, b: &Report) -> Balance {
    let (entered, dropped) = sender(a);
    let (sent, received) = (a.count("relay", "frames_sent"), b.count("relay", "frames_received"));
    let mut b_drops = drops(b);
    let lost = b_drops.remove("lost_in_transit").unwrap_or(0);
    assert_eq!(sent, received + lost, "sent by A = received by B + lost");
    let left = b.count("relay", "tx_frames");
    assert_eq!(
        received,
        left + b_drops.values().sum::<u64>(),
        "received = to the port + dropped: {b_drops:?}"
    );
    let messages = a.count("relay", "messages_sent");
    say(&format!(
        "{entered} frames in, {dropped} dropped, {sent} sent in {messages} messages, {lost} lost, {left} out"
    ));
    Balance { entered, dropped, lost, left }
}
