//! Why frames go no further.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal: $help:literal,)*) => {
        /// Why a frame went no further.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(usize)]
        pub enum DropReason {
            $($(#[$doc])* $name,)*
        }

        impl DropReason {
            /// All reasons, in order of their numbers.
            pub const ALL: &[DropReason] = &[$(DropReason::$name,)*];

            /// The name used in tables, JSON and telemetry.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$name => $text,)* }
            }

            /// What happened, in a line of at most 46 characters. `docs/statistics.md` says more.
            pub const fn help(self) -> &'static str {
                match self { $(DropReason::$name => $help,)* }
            }
        }
    };
}

reasons! {
    /// Shorter than an Ethernet header.
    Runt = "runt": "shorter than an Ethernet header",
    /// Longer than a message to the peer may be.
    Oversize = "oversize": "longer than a message to the peer may be",
    /// No queue pair to the peer is alive, or the one that carried the frame died under it.
    PathDown = "path_down": "no queue pair to the peer lived, or it died",
    /// The peer has granted no credit (`on_full = "drop"`).
    NoCredit = "no_credit": "the peer granted no credit: it is slower",
    /// The send queue is full (`on_full = "drop"`).
    QueueFull = "queue_full": "the send queue was full",
    /// The flow table has no place for the flow (`on_flow_table_full = "drop"`).
    FlowTableFull = "flow_table_full": "the flow table had no place for the flow",
    /// A pool had no buffer.
    PoolDry = "pool_dry": "a pool had no buffer: give it more",
    /// A message from the peer that does not hold together (counted once a message).
    Malformed = "malformed": "messages that do not hold together",
    /// A message of an earlier connection (counted once a message).
    StaleGeneration = "stale_generation": "messages of an earlier connection",
    /// The TX queue took nothing for too long.
    TxFull = "tx_full": "the port's TX queue took nothing for too long",
    /// The drain deadline passed.
    Drained = "drained": "still waiting when the drain's time was up",
    /// Sent by the peer and never arrived (UC, UD, or a connection that broke).
    LostInTransit = "lost_in_transit": "sent by the peer, never arrived",
    /// The service has no use for frames on this port.
    NotWanted = "not_wanted": "for nobody here, as multicasts of the kernel",
    /// The relay could take no more while its port carried RoCE frames too.
    SharedPortFull = "shared_port_full": "no room while RoCE frames shared the port",
    /// Clients' frames or requests that make no sense.
    ClientMalformed = "client_malformed": "clients: packets that make no sense",
    /// Clients' frames whose IP or UDP checksum is wrong.
    ClientChecksum = "client_checksum": "clients: wrong IP or UDP checksum",
    /// Requests from addresses or ports that are not answered.
    ClientRefused = "client_refused": "clients: addresses or ports not answered",
    /// Requests in fragments of which some did not come.
    ClientIncomplete = "client_incomplete": "clients: fragments that did not all come",
    /// Replies that found no room, or errors above their rate.
    ReplyDropped = "reply_dropped": "replies without room, or too many errors",
    /// RoCE frames: the TX queue took nothing for too long.
    FabricTxFull = "fabric_tx_full": "RoCE: the TX queue took nothing for too long",
    /// Frames to our RoCE port or host side that hold no packet that makes sense.
    FabricMalformed = "fabric_malformed": "RoCE: no packets that make sense",
    /// RoCE packets whose ICRC is wrong.
    FabricIcrc = "fabric_icrc": "RoCE: packets whose ICRC is wrong",
    /// RoCE frames whose IP checksum the NIC found wrong.
    FabricChecksum = "fabric_checksum": "RoCE: the NIC found the IP checksum wrong",
    /// RoCE packets to a queue pair that does not exist.
    FabricUnknownQp = "fabric_unknown_qp": "RoCE: no queue pair has this number",
    /// RoCE packets that the queue pair does not admit: another sender, transport type, state or key.
    FabricNotAdmitted = "fabric_not_admitted": "RoCE: wrong sender, type, state or key",
    /// RoCE packets after a gap, or of a message with a lost packet.
    FabricOutOfOrder = "fabric_out_of_order": "RoCE: packets after a gap",
    /// RoCE packets that came before, or that answer nothing.
    FabricDuplicate = "fabric_duplicate": "RoCE: packets that came before",
    /// RoCE requests refused: too long, without the right to, or not valid.
    FabricRefused = "fabric_refused": "RoCE: requests that were refused",
    /// RoCE messages for which no receive was posted.
    FabricNoReceive = "fabric_no_receive": "RoCE: no receive was posted",
    /// RoCE requests given up because the peer's MAC address could not be found out.
    FabricUnresolved = "fabric_unresolved": "RoCE: the peer's MAC address is not known",
    /// Frames on the fabric port that are none of ours.
    FabricNotWanted = "fabric_not_wanted": "RoCE port: frames that are none of ours",
    /// RoCE frames that came in at the wrong queue while the right worker had no room.
    FabricHandoverFull = "fabric_handover_full": "RoCE: the right worker had no room",
}

impl DropReason {
    /// False for what goes no further in a run where all is well, which tables call ignored: frames that a port brings and
    /// nobody asked for, as the kernel's multicasts, and copies of what has come already.
    pub const fn is_loss(self) -> bool {
        !matches!(self, DropReason::NotWanted | DropReason::FabricNotWanted | DropReason::FabricDuplicate)
    }

    /// True for frames of the soft transport: no frame of the service is lost by it, so it is no part of a service's
    /// balance.
    pub const fn is_fabric(self) -> bool {
        self as usize >= DropReason::FabricTxFull as usize
    }
}
