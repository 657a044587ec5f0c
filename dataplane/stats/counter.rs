//! Names of counters.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// What a worker counts. All are totals.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(usize)]
        pub enum Counter {
            $($(#[$doc])* $name,)*
        }

        impl Counter {
            /// All counters, in order of their numbers.
            pub const ALL: &[Counter] = &[$(Counter::$name,)*];

            /// The name used in tables, JSON and telemetry.
            pub const fn name(self) -> &'static str {
                match self { $(Counter::$name => $text,)* }
            }
        }
    };
}

counters! {
    /// Turns of the loop.
    Turns = "turns",
    /// Turns that found nothing to do.
    IdleTurns = "idle_turns",
    /// TSC cycles of turns that did something.
    BusyCycles = "busy_cycles",
    /// TSC cycles of turns that found nothing to do.
    IdleCycles = "idle_cycles",
    /// Frames taken from RX queues.
    RxFrames = "rx_frames",
    /// Their bytes.
    RxBytes = "rx_bytes",
    /// Frames given to TX queues.
    TxFrames = "tx_frames",
    /// Their bytes.
    TxBytes = "tx_bytes",
    /// Relay: frames whose message the transport reported sent.
    FramesSent = "frames_sent",
    /// Relay: messages with frames posted.
    MessagesSent = "messages_sent",
    /// Relay: credit and closing messages posted.
    ControlSent = "control_sent",
    /// Relay: frames that arrived in messages.
    FramesReceived = "frames_received",
    /// Relay: messages with frames that arrived.
    MessagesReceived = "messages_received",
    /// Relay: credit and closing messages that arrived.
    ControlReceived = "control_received",
    /// Relay: frames copied into a message rather than chained.
    FramesCopied = "frames_copied",
    /// Relay: frames split off a received message without a copy.
    FramesSliced = "frames_sliced",
    /// Relay: turns that could not post for want of credits or room.
    Stalls = "stalls",
    /// Source: frames made.
    FramesMade = "frames_made",
    /// Sink: frames that verified.
    FramesVerified = "frames_verified",
    /// Sink: frames that came after a newer one of their flow; they were counted missing before.
    OutOfOrder = "out_of_order",
    /// Sink: the newest frame of a flow once more.
    Duplicates = "duplicates",
    /// Sink: frames whose checksum is wrong.
    Corrupt = "corrupt",
    /// Sink: frames that no source of ours made.
    Foreign = "foreign",
    /// Sink: frames skipped in the sequence of their flow; late ones are not taken off again.
    Missing = "missing",
    /// Gateway: requests taken from clients.
    KvRequests = "kv_requests",
    /// Gateway: replies made.
    KvReplies = "kv_replies",
    /// Gateway: requests that are done without a reply: quiet ones, and those that no buffer was left for.
    KvUnanswered = "kv_unanswered",
    /// Gateway: datagrams sent to clients.
    KvDatagrams = "kv_datagrams",
    /// Gateway: of these, with headers in front of the value where it came in.
    KvInPlace = "kv_in_place",
    /// Gateway: requests put together from fragments.
    KvReassembled = "kv_reassembled",
    /// Gateway: memory nodes that take operations (a figure, no total).
    KvNodesUp = "kv_nodes_up",
    /// Gateway: memory nodes that do not (a figure, no total).
    KvNodesDown = "kv_nodes_down",
    /// Gateway: keys to be read.
    KvGets = "kv_gets",
    /// Gateway: of these, found.
    KvGetHits = "kv_get_hits",
    /// Gateway: of these, not found.
    KvGetMisses = "kv_get_misses",
    /// Gateway: of the hits, those of operations that change the expiry.
    KvTouchHits = "kv_touch_hits",
    /// Gateway: of the misses, those of `gat` and `touch`.
    KvTouchMisses = "kv_touch_misses",
    /// Gateway: operations that change something.
    KvMutations = "kv_mutations",
    /// Gateway: of these, those that store a value, whether they did or not.
    KvSets = "kv_sets",
    /// Gateway: `cas` that stored.
    KvCasHits = "kv_cas_hits",
    /// Gateway: `cas` of what is not there.
    KvCasMisses = "kv_cas_misses",
    /// Gateway: `cas` of what has another cas unique.
    KvCasBadval = "kv_cas_badval",
    /// Gateway: deletions of what was there.
    KvDeleteHits = "kv_delete_hits",
    /// Gateway: deletions of what was not there, or had another cas unique.
    KvDeleteMisses = "kv_delete_misses",
    /// Gateway: numbers that something was added to.
    KvIncrHits = "kv_incr_hits",
    /// Gateway: numbers to be added to that were not there.
    KvIncrMisses = "kv_incr_misses",
    /// Gateway: numbers that something was subtracted from.
    KvDecrHits = "kv_decr_hits",
    /// Gateway: numbers to be subtracted from that were not there.
    KvDecrMisses = "kv_decr_misses",
    /// Gateway: `flush_all`.
    KvFlushes = "kv_flushes",
    /// Gateway: reads that began at a remembered place.
    KvLocated = "kv_located",
    /// Gateway: RDMA READs of items.
    KvReads = "kv_reads",
    /// Gateway: lookups by buckets, three READs each.
    KvBucketReads = "kv_bucket_reads",
    /// Gateway: lookups done again because something changed meanwhile.
    KvRaces = "kv_races",
    /// Gateway: reads that the owner was asked for.
    KvSendGets = "kv_send_gets",
    /// Gateway: calls to memory nodes, reports among them.
    KvCalls = "kv_calls",
    /// Gateway: of these, by RDMA WRITE with immediate.
    KvCallsWritten = "kv_calls_written",
    /// Gateway: reports of hits and epochs.
    KvReports = "kv_reports",
    /// Gateway: keys answered by SERVER_ERROR.
    KvServerErrors = "kv_server_errors",
    /// Gateway: times a node served another membership.
    KvMembershipRefused = "kv_membership_refused",
    /// Gateway: remembered places that had to go for others.
    KvLocationsReplaced = "kv_locations_replaced",
    /// Key-value: requests, calls or answers that make no sense.
    KvMalformed = "kv_malformed",
    /// Memory node: calls taken.
    KvCallsServed = "kv_calls_served",
    /// Memory node: of these, reports.
    KvReportsServed = "kv_reports_served",
    /// Memory node: answers sent.
    KvAnswers = "kv_answers",
    /// Memory node: calls that waited for a place.
    KvStalled = "kv_stalled",
    /// Memory node: items that are live (a figure, no total).
    KvItems = "kv_items",
    /// Memory node: bytes of their keys and values (a figure, no total).
    KvItemBytes = "kv_item_bytes",
    /// Memory node: bytes that there are for items, their headers included (a figure, no total).
    KvDataBytes = "kv_data_bytes",
    /// Memory node: items that had to go for want of room.
    KvEvicted = "kv_evicted",
    /// Memory node: items found past their time.
    KvExpired = "kv_expired",
    /// Soft transport: frames of its own taken from RX queues.
    FabricRxFrames = "fabric_rx_frames",
    /// Their bytes.
    FabricRxBytes = "fabric_rx_bytes",
    /// Soft transport: frames of its own given to TX queues.
    FabricTxFrames = "fabric_tx_frames",
    /// Their bytes.
    FabricTxBytes = "fabric_tx_bytes",
    /// Soft transport: request packets sent again.
    Retransmitted = "retransmitted",
    /// Soft transport: acknowledgements that did not come in time.
    Timeouts = "timeouts",
    /// Soft transport: sequence errors told to the peer.
    NaksSent = "naks_sent",
    /// Soft transport: sequence errors the peer told of.
    NaksReceived = "naks_received",
    /// Soft transport: times the peer was told that no receive is posted.
    RnrNaksSent = "rnr_naks_sent",
    /// Soft transport: times the peer told so.
    RnrNaksReceived = "rnr_naks_received",
    /// Soft transport: READs asked for again from the middle.
    ReadsResumed = "reads_resumed",
    /// Soft transport: acknowledgements sent.
    AcksSent = "acks_sent",
    /// Soft transport: packets held because an earlier one was missing.
    Held = "held",
    /// Soft transport: selective acknowledgements sent.
    SacksSent = "sacks_sent",
    /// Soft transport: selective acknowledgements received.
    SacksReceived = "sacks_received",
    /// Soft transport: congestion notifications sent.
    CnpsSent = "cnps_sent",
    /// Soft transport: congestion notifications received.
    CnpsReceived = "cnps_received",
    /// Soft transport: times the pool had no buffer for a frame; it is sent later.
    FabricPoolDry = "fabric_pool_dry",
    /// Soft transport: frames that came in at another worker's queue and were handed to it.
    HandedOver = "handed_over",
    /// Soft transport: ARP, neighbour discovery and pings that came in.
    HostFrames = "host_frames",
    /// Soft transport: messages in which somebody else claims an address of ours.
    AddressConflicts = "address_conflicts",
    /// Soft transport, gateway: IPv6 addresses of ours that are not used because another station has them.
    DuplicateAddresses = "duplicate_addresses",
    /// Soft transport: neighbours that did not answer when asked for their MAC address.
    NeighboursUnanswered = "neighbours_unanswered",
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::DropReason;
    use std::collections::HashSet;

    #[test]
    fn lists_are_complete_and_names_unique() {
        assert!(Counter::ALL.iter().enumerate().all(|(i, c)| *c as usize == i));
        assert!(DropReason::ALL.iter().enumerate().all(|(i, r)| *r as usize == i));
        let names: HashSet<_> =
            Counter::ALL.iter().map(|c| c.name()).chain(DropReason::ALL.iter().map(|r| r.name())).collect();
        assert_eq!(names.len(), Counter::ALL.len() + DropReason::ALL.len());
    }

    #[test]
    fn help_is_one_short_line_and_the_documentation_explains_every_name() {
        let document = include_str!("../../docs/statistics.md");
        let names = Counter::ALL.iter().map(|c| c.name()).chain(DropReason::ALL.iter().map(|r| r.name()));
        for name in names {
            assert!(document.contains(&format!("| `{name}` |")), "docs/statistics.md lacks `{name}`");
        }
        for reason in DropReason::ALL {
            let help = reason.help();
            assert!(!help.is_empty() && help.len() <= 46 && !help.contains('\n'), "{help}");
        }
    }
}
