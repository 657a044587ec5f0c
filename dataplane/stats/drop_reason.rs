//! Why frames go no further.

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
    /// Clients' frames or requests that make no sense.
    ClientMalformed,
    /// Clients' frames whose IP or UDP checksum is wrong.
    ClientChecksum,
    /// Requests from addresses or ports that are not answered.
    ClientRefused,
    /// Requests in fragments of which some did not come.
    ClientIncomplete,
    /// Replies that found no room, or errors above their rate.
    ReplyDropped,
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
    pub const ALL: [DropReason; 32] = [
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
        DropReason::ClientMalformed,
        DropReason::ClientChecksum,
        DropReason::ClientRefused,
        DropReason::ClientIncomplete,
        DropReason::ReplyDropped,
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
            DropReason::ClientMalformed => "client_malformed",
            DropReason::ClientChecksum => "client_checksum",
            DropReason::ClientRefused => "client_refused",
            DropReason::ClientIncomplete => "client_incomplete",
            DropReason::ReplyDropped => "reply_dropped",
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
            DropReason::ClientMalformed => "clients: packets that make no sense",
            DropReason::ClientChecksum => "clients: wrong IP or UDP checksum",
            DropReason::ClientRefused => "clients: addresses or ports not answered",
            DropReason::ClientIncomplete => "clients: fragments that did not all come",
            DropReason::ReplyDropped => "replies without room, or too many errors",
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
