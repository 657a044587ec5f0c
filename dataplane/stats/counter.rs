//! Names of counters.

/// What a worker counts. All are totals.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum Counter {
    /// Turns of the loop.
    Turns,
    /// Turns that found nothing to do.
    IdleTurns,
    /// TSC cycles of turns that did something.
    BusyCycles,
    /// TSC cycles of turns that found nothing to do.
    IdleCycles,
    /// Frames taken from RX queues.
    RxFrames,
    /// Their bytes.
    RxBytes,
    /// Frames given to TX queues.
    TxFrames,
    /// Their bytes.
    TxBytes,
    /// Relay: frames whose message the transport reported sent.
    FramesSent,
    /// Relay: messages with frames posted.
    MessagesSent,
    /// Relay: credit and closing messages posted.
    ControlSent,
    /// Relay: frames that arrived in messages.
    FramesReceived,
    /// Relay: messages with frames that arrived.
    MessagesReceived,
    /// Relay: credit and closing messages that arrived.
    ControlReceived,
    /// Relay: frames copied into a message rather than chained.
    FramesCopied,
    /// Relay: frames split off a received message without a copy.
    FramesSliced,
    /// Relay: turns that could not post for want of credits or room.
    Stalls,
    /// Source: frames made.
    FramesMade,
    /// Sink: frames that verified.
    FramesVerified,
    /// Sink: frames that came after a newer one of their flow; they were counted missing before.
    OutOfOrder,
    /// Sink: the newest frame of a flow once more.
    Duplicates,
    /// Sink: frames whose checksum is wrong.
    Corrupt,
    /// Sink: frames that no source of ours made.
    Foreign,
    /// Sink: frames skipped in the sequence of their flow; late ones are not taken off again.
    Missing,
    /// Gateway: requests taken from clients.
    KvRequests,
    /// Gateway: replies made.
    KvReplies,
    /// Gateway: datagrams sent to clients.
    KvDatagrams,
    /// Gateway: of these, with headers in front of the value where it came in.
    KvInPlace,
    /// Gateway: requests put together from fragments.
    KvReassembled,
    /// Gateway: memory nodes that take operations (a figure, no total).
    KvNodesUp,
    /// Gateway: memory nodes that do not (a figure, no total).
    KvNodesDown,
    /// Gateway: keys to be read.
    KvGets,
    /// Gateway: of these, found.
    KvGetHits,
    /// Gateway: of these, not found.
    KvGetMisses,
    /// Gateway: operations that change something.
    KvMutations,
    /// Gateway: reads that began at a remembered place.
    KvLocated,
    /// Gateway: RDMA READs of items.
    KvReads,
    /// Gateway: lookups by buckets, three READs each.
    KvBucketReads,
    /// Gateway: lookups done again because something changed meanwhile.
    KvRaces,
    /// Gateway: reads that the owner was asked for.
    KvSendGets,
    /// Gateway: calls to memory nodes, reports among them.
    KvCalls,
    /// Gateway: reports of hits and epochs.
    KvReports,
    /// Gateway: keys answered by SERVER_ERROR.
    KvServerErrors,
    /// Gateway: times a node served another membership.
    KvMembershipRefused,
    /// Gateway: remembered places that had to go for others.
    KvLocationsReplaced,
    /// Key-value: requests, calls or answers that make no sense.
    KvMalformed,
    /// Memory node: calls taken.
    KvCallsServed,
    /// Memory node: of these, reports.
    KvReportsServed,
    /// Memory node: answers sent.
    KvAnswers,
    /// Memory node: calls that waited for a place.
    KvStalled,
    /// Memory node: items that are live (a figure, no total).
    KvItems,
    /// Memory node: bytes of their keys and values (a figure, no total).
    KvItemBytes,
    /// Memory node: items that had to go for want of room.
    KvEvicted,
    /// Memory node: items found past their time.
    KvExpired,
    /// Soft transport: frames of its own taken from RX queues.
    FabricRxFrames,
    /// Their bytes.
    FabricRxBytes,
    /// Soft transport: frames of its own given to TX queues.
    FabricTxFrames,
    /// Their bytes.
    FabricTxBytes,
    /// Soft transport: request packets sent again.
    Retransmitted,
    /// Soft transport: acknowledgements that did not come in time.
    Timeouts,
    /// Soft transport: sequence errors told to the peer.
    NaksSent,
    /// Soft transport: sequence errors the peer told of.
    NaksReceived,
    /// Soft transport: times the peer was told that no receive is posted.
    RnrNaksSent,
    /// Soft transport: times the peer told so.
    RnrNaksReceived,
    /// Soft transport: READs asked for again from the middle.
    ReadsResumed,
    /// Soft transport: acknowledgements sent.
    AcksSent,
    /// Soft transport: packets held because an earlier one was missing.
    Held,
    /// Soft transport: selective acknowledgements sent.
    SacksSent,
    /// Soft transport: selective acknowledgements received.
    SacksReceived,
    /// Soft transport: congestion notifications sent.
    CnpsSent,
    /// Soft transport: congestion notifications received.
    CnpsReceived,
    /// Soft transport: times the pool had no buffer for a frame; it is sent later.
    FabricPoolDry,
    /// Soft transport: frames that came in at another worker's queue and were handed to it.
    HandedOver,
    /// Soft transport: ARP, neighbour discovery and pings that came in.
    HostFrames,
    /// Soft transport: messages in which somebody else claims an address of ours.
    AddressConflicts,
    /// Soft transport: neighbours that did not answer when asked for their MAC address.
    NeighboursUnanswered,
}

impl Counter {
    /// All counters, in order of their numbers.
    pub const ALL: [Counter; 76] = [
        Counter::Turns,
        Counter::IdleTurns,
        Counter::BusyCycles,
        Counter::IdleCycles,
        Counter::RxFrames,
        Counter::RxBytes,
        Counter::TxFrames,
        Counter::TxBytes,
        Counter::FramesSent,
        Counter::MessagesSent,
        Counter::ControlSent,
        Counter::FramesReceived,
        Counter::MessagesReceived,
        Counter::ControlReceived,
        Counter::FramesCopied,
        Counter::FramesSliced,
        Counter::Stalls,
        Counter::FramesMade,
        Counter::FramesVerified,
        Counter::OutOfOrder,
        Counter::Duplicates,
        Counter::Corrupt,
        Counter::Foreign,
        Counter::Missing,
        Counter::KvRequests,
        Counter::KvReplies,
        Counter::KvDatagrams,
        Counter::KvInPlace,
        Counter::KvReassembled,
        Counter::KvNodesUp,
        Counter::KvNodesDown,
        Counter::KvGets,
        Counter::KvGetHits,
        Counter::KvGetMisses,
        Counter::KvMutations,
        Counter::KvLocated,
        Counter::KvReads,
        Counter::KvBucketReads,
        Counter::KvRaces,
        Counter::KvSendGets,
        Counter::KvCalls,
        Counter::KvReports,
        Counter::KvServerErrors,
        Counter::KvMembershipRefused,
        Counter::KvLocationsReplaced,
        Counter::KvMalformed,
        Counter::KvCallsServed,
        Counter::KvReportsServed,
        Counter::KvAnswers,
        Counter::KvStalled,
        Counter::KvItems,
        Counter::KvItemBytes,
        Counter::KvEvicted,
        Counter::KvExpired,
        Counter::FabricRxFrames,
        Counter::FabricRxBytes,
        Counter::FabricTxFrames,
        Counter::FabricTxBytes,
        Counter::Retransmitted,
        Counter::Timeouts,
        Counter::NaksSent,
        Counter::NaksReceived,
        Counter::RnrNaksSent,
        Counter::RnrNaksReceived,
        Counter::ReadsResumed,
        Counter::AcksSent,
        Counter::Held,
        Counter::SacksSent,
        Counter::SacksReceived,
        Counter::CnpsSent,
        Counter::CnpsReceived,
        Counter::FabricPoolDry,
        Counter::HandedOver,
        Counter::HostFrames,
        Counter::AddressConflicts,
        Counter::NeighboursUnanswered,
    ];

    /// The name used in tables, JSON and telemetry.
    pub const fn name(self) -> &'static str {
        match self {
            Counter::Turns => "turns",
            Counter::IdleTurns => "idle_turns",
            Counter::BusyCycles => "busy_cycles",
            Counter::IdleCycles => "idle_cycles",
            Counter::RxFrames => "rx_frames",
            Counter::RxBytes => "rx_bytes",
            Counter::TxFrames => "tx_frames",
            Counter::TxBytes => "tx_bytes",
            Counter::FramesSent => "frames_sent",
            Counter::MessagesSent => "messages_sent",
            Counter::ControlSent => "control_sent",
            Counter::FramesReceived => "frames_received",
            Counter::MessagesReceived => "messages_received",
            Counter::ControlReceived => "control_received",
            Counter::FramesCopied => "frames_copied",
            Counter::FramesSliced => "frames_sliced",
            Counter::Stalls => "stalls",
            Counter::FramesMade => "frames_made",
            Counter::FramesVerified => "frames_verified",
            Counter::OutOfOrder => "out_of_order",
            Counter::Duplicates => "duplicates",
            Counter::Corrupt => "corrupt",
            Counter::Foreign => "foreign",
            Counter::Missing => "missing",
            Counter::FabricRxFrames => "fabric_rx_frames",
            Counter::FabricRxBytes => "fabric_rx_bytes",
            Counter::FabricTxFrames => "fabric_tx_frames",
            Counter::FabricTxBytes => "fabric_tx_bytes",
            Counter::Retransmitted => "retransmitted",
            Counter::Timeouts => "timeouts",
            Counter::NaksSent => "naks_sent",
            Counter::NaksReceived => "naks_received",
            Counter::RnrNaksSent => "rnr_naks_sent",
            Counter::RnrNaksReceived => "rnr_naks_received",
            Counter::ReadsResumed => "reads_resumed",
            Counter::AcksSent => "acks_sent",
            Counter::Held => "held",
            Counter::SacksSent => "sacks_sent",
            Counter::SacksReceived => "sacks_received",
            Counter::CnpsSent => "cnps_sent",
            Counter::CnpsReceived => "cnps_received",
            Counter::FabricPoolDry => "fabric_pool_dry",
            Counter::HandedOver => "handed_over",
            Counter::HostFrames => "host_frames",
            Counter::AddressConflicts => "address_conflicts",
            Counter::NeighboursUnanswered => "neighbours_unanswered",
            other => other.kv_name(),
        }
    }

    const fn kv_name(self) -> &'static str {
        match self {
            Counter::KvRequests => "kv_requests",
            Counter::KvReplies => "kv_replies",
            Counter::KvDatagrams => "kv_datagrams",
            Counter::KvInPlace => "kv_in_place",
            Counter::KvReassembled => "kv_reassembled",
            Counter::KvNodesUp => "kv_nodes_up",
            Counter::KvNodesDown => "kv_nodes_down",
            Counter::KvGets => "kv_gets",
            Counter::KvGetHits => "kv_get_hits",
            Counter::KvGetMisses => "kv_get_misses",
            Counter::KvMutations => "kv_mutations",
            Counter::KvLocated => "kv_located",
            Counter::KvReads => "kv_reads",
            Counter::KvBucketReads => "kv_bucket_reads",
            Counter::KvRaces => "kv_races",
            Counter::KvSendGets => "kv_send_gets",
            Counter::KvCalls => "kv_calls",
            Counter::KvReports => "kv_reports",
            Counter::KvServerErrors => "kv_server_errors",
            Counter::KvMembershipRefused => "kv_membership_refused",
            Counter::KvLocationsReplaced => "kv_locations_replaced",
            Counter::KvMalformed => "kv_malformed",
            Counter::KvCallsServed => "kv_calls_served",
            Counter::KvReportsServed => "kv_reports_served",
            Counter::KvAnswers => "kv_answers",
            Counter::KvStalled => "kv_stalled",
            Counter::KvItems => "kv_items",
            Counter::KvItemBytes => "kv_item_bytes",
            Counter::KvEvicted => "kv_evicted",
            Counter::KvExpired => "kv_expired",
            _ => "unnamed",
        }
    }
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
