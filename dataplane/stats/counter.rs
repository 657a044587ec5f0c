//! Names of counters and drop reasons.

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
    pub const ALL: [Counter; 46] = [
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
        }
    }
}

/// Why a frame went no further.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum DropReason {
    /// Shorter than an Ethernet header.
    Runt,
    /// Longer than a message to the peer may be.
    Oversize,
    /// No queue pair to the peer is alive, or the one that carried the frame died under it.
    PathDown,
    /// The peer has granted no credit (`on_full = "drop"`).
    NoCredit,
    /// The send queue is full (`on_full = "drop"`).
    QueueFull,
    /// The flow table has no place for the flow (`on_flow_table_full = "drop"`).
    FlowTableFull,
    /// A pool had no buffer.
    PoolDry,
    /// A message from the peer that does not hold together (counted once a message).
    Malformed,
    /// A message of an earlier connection (counted once a message).
    StaleGeneration,
    /// The TX queue took nothing for too long.
    TxFull,
    /// The drain deadline passed.
    Drained,
    /// Sent by the peer and never arrived (UC, UD, or a connection that broke).
    LostInTransit,
    /// The service has no use for frames on this port.
    NotWanted,
    /// The relay could take no more while its port carried RoCE frames too.
    SharedPortFull,
    /// RoCE frames: the TX queue took nothing for too long.
    FabricTxFull,
    /// Frames to our RoCE port or host side that hold no packet that makes sense.
    FabricMalformed,
    /// RoCE packets whose ICRC is wrong.
    FabricIcrc,
    /// RoCE frames whose IP checksum the NIC found wrong.
    FabricChecksum,
    /// RoCE packets to a queue pair that does not exist.
    FabricUnknownQp,
    /// RoCE packets that the queue pair does not admit: another sender, transport type, state or key.
    FabricNotAdmitted,
    /// RoCE packets after a gap, or of a message with a lost packet.
    FabricOutOfOrder,
    /// RoCE packets that came before, or that answer nothing.
    FabricDuplicate,
    /// RoCE requests refused: too long, without the right to, or not valid.
    FabricRefused,
    /// RoCE messages for which no receive was posted.
    FabricNoReceive,
    /// RoCE requests given up because the peer's MAC address could not be found out.
    FabricUnresolved,
    /// Frames on the fabric port that are none of ours.
    FabricNotWanted,
    /// RoCE frames that came in at the wrong queue while the right worker had no room.
    FabricHandoverFull,
}

impl DropReason {
    /// All reasons, in order of their numbers.
    pub const ALL: [DropReason; 27] = [
        DropReason::Runt,
        DropReason::Oversize,
        DropReason::PathDown,
        DropReason::NoCredit,
        DropReason::QueueFull,
        DropReason::FlowTableFull,
        DropReason::PoolDry,
        DropReason::Malformed,
        DropReason::StaleGeneration,
        DropReason::TxFull,
        DropReason::Drained,
        DropReason::LostInTransit,
        DropReason::NotWanted,
        DropReason::SharedPortFull,
        DropReason::FabricTxFull,
        DropReason::FabricMalformed,
        DropReason::FabricIcrc,
        DropReason::FabricChecksum,
        DropReason::FabricUnknownQp,
        DropReason::FabricNotAdmitted,
        DropReason::FabricOutOfOrder,
        DropReason::FabricDuplicate,
        DropReason::FabricRefused,
        DropReason::FabricNoReceive,
        DropReason::FabricUnresolved,
        DropReason::FabricNotWanted,
        DropReason::FabricHandoverFull,
    ];

    /// The name used in tables, JSON and telemetry.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Runt => "runt",
            DropReason::Oversize => "oversize",
            DropReason::PathDown => "path_down",
            DropReason::NoCredit => "no_credit",
            DropReason::QueueFull => "queue_full",
            DropReason::FlowTableFull => "flow_table_full",
            DropReason::PoolDry => "pool_dry",
            DropReason::Malformed => "malformed",
            DropReason::StaleGeneration => "stale_generation",
            DropReason::TxFull => "tx_full",
            DropReason::Drained => "drained",
            DropReason::LostInTransit => "lost_in_transit",
            DropReason::NotWanted => "not_wanted",
            DropReason::SharedPortFull => "shared_port_full",
            DropReason::FabricTxFull => "fabric_tx_full",
            DropReason::FabricMalformed => "fabric_malformed",
            DropReason::FabricIcrc => "fabric_icrc",
            DropReason::FabricChecksum => "fabric_checksum",
            DropReason::FabricUnknownQp => "fabric_unknown_qp",
            DropReason::FabricNotAdmitted => "fabric_not_admitted",
            DropReason::FabricOutOfOrder => "fabric_out_of_order",
            DropReason::FabricDuplicate => "fabric_duplicate",
            DropReason::FabricRefused => "fabric_refused",
            DropReason::FabricNoReceive => "fabric_no_receive",
            DropReason::FabricUnresolved => "fabric_unresolved",
            DropReason::FabricNotWanted => "fabric_not_wanted",
            DropReason::FabricHandoverFull => "fabric_handover_full",
        }
    }

    /// True for frames of the soft transport: no frame of the service is lost by it, so it is no part of a service's
    /// balance.
    pub const fn is_fabric(self) -> bool {
        self as usize >= DropReason::FabricTxFull as usize
    }

    /// What happened, in a line of at most 46 characters. `docs/statistics.md` says more.
    pub const fn help(self) -> &'static str {
        match self {
            DropReason::Runt => "shorter than an Ethernet header",
            DropReason::Oversize => "longer than a message to the peer may be",
            DropReason::PathDown => "no queue pair to the peer lived, or it died",
            DropReason::NoCredit => "the peer granted no credit: it is slower",
            DropReason::QueueFull => "the send queue was full",
            DropReason::FlowTableFull => "the flow table had no place for the flow",
            DropReason::PoolDry => "a pool had no buffer: give it more",
            DropReason::Malformed => "messages that do not hold together",
            DropReason::StaleGeneration => "messages of an earlier connection",
            DropReason::TxFull => "the port's TX queue took nothing for too long",
            DropReason::Drained => "still waiting when the drain's time was up",
            DropReason::LostInTransit => "sent by the peer, never arrived",
            DropReason::NotWanted => "no use for frames that come to this port",
            DropReason::SharedPortFull => "no room while RoCE frames shared the port",
            DropReason::FabricTxFull => "RoCE: the TX queue took nothing for too long",
            DropReason::FabricMalformed => "RoCE: no packets that make sense",
            DropReason::FabricIcrc => "RoCE: packets whose ICRC is wrong",
            DropReason::FabricChecksum => "RoCE: the NIC found the IP checksum wrong",
            DropReason::FabricUnknownQp => "RoCE: no queue pair has this number",
            DropReason::FabricNotAdmitted => "RoCE: wrong sender, type, state or key",
            DropReason::FabricOutOfOrder => "RoCE: packets after a gap",
            DropReason::FabricDuplicate => "RoCE: packets that came before",
            DropReason::FabricRefused => "RoCE: requests that were refused",
            DropReason::FabricNoReceive => "RoCE: no receive was posted",
            DropReason::FabricUnresolved => "RoCE: the peer's MAC address is not known",
            DropReason::FabricNotWanted => "RoCE port: frames that are none of ours",
            DropReason::FabricHandoverFull => "RoCE: the right worker had no room",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
