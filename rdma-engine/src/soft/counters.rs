//! What an endpoint counts: frames by their fate, every drop under a name.

use crate::wire::WireError;

/// Why a frame was dropped without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum DropReason {
    /// The frame lies in several pieces and the pool had no buffer to join them.
    Segmented,
    /// No queue pair has this number.
    UnknownQp,
    /// The opcode belongs to another transport type than the queue pair.
    WrongTransport,
    /// The queue pair's state takes no such packet.
    State,
    /// Source or destination address is not that of the queue pair's path.
    Address,
    /// Another partition.
    Pkey,
    /// A datagram with a wrong Q_Key.
    Qkey,
    /// The ICRC is wrong.
    Icrc,
    /// A packet from the future; a NAK was sent, or one is on its way.
    OutOfOrder,
    /// A duplicate; it was answered as far as the standard says.
    Duplicate,
    /// A duplicate READ or atomic that is not in the replay cache.
    NotReplayable,
    /// A response to nothing that is outstanding.
    Ghost,
    /// A READ response after a gap.
    ResponseGap,
    /// A request that was refused by a NAK.
    Refused,
    /// No receive was posted; RC answered with an RNR NAK.
    NoReceive,
    /// A datagram or an unreliable message longer than the receive.
    TooLong,
    /// A packet of an unreliable message that had lost an earlier one.
    BrokenMessage,
    /// An unreliable WRITE without the right to.
    NoAccess,
    /// The event queue was full.
    EventsFull,
    /// An opcode that this endpoint does not serve.
    Unserved,
    /// The transmit ring gave a frame back.
    EgressFull,
    /// A datagram whose destination was not resolved in time.
    Unresolved,
}

impl DropReason {
    /// Number of reasons, for arrays indexed by `reason as usize`.
    pub const COUNT: usize = DropReason::Unresolved as usize + 1;

    /// All of them.
    pub const ALL: [DropReason; Self::COUNT] = {
        use DropReason::*;
        [
            Segmented,
            UnknownQp,
            WrongTransport,
            State,
            Address,
            Pkey,
            Qkey,
            Icrc,
            OutOfOrder,
            Duplicate,
            NotReplayable,
            Ghost,
            ResponseGap,
            Refused,
            NoReceive,
            TooLong,
            BrokenMessage,
            NoAccess,
            EventsFull,
            Unserved,
            EgressFull,
            Unresolved,
        ]
    };
}

/// Totals since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SoftCounters {
    /// Frames given to `ingress`.
    pub frames_in: u64,
    /// Frames put into the egress.
    pub frames_out: u64,
    /// Frames that are no RoCEv2 packets, by [`WireError`].
    pub malformed: [u64; WireError::COUNT],
    /// Frames dropped, by [`DropReason`].
    pub dropped: [u64; DropReason::COUNT],
    /// Request packets sent again.
    pub retransmitted: u64,
    /// Retransmission timers that ran out.
    pub timeouts: u64,
    /// Sequence NAKs sent.
    pub sequence_naks_sent: u64,
    /// Sequence NAKs received.
    pub sequence_naks: u64,
    /// RNR NAKs sent.
    pub rnr_naks_sent: u64,
    /// RNR NAKs received.
    pub rnr_naks: u64,
    /// READs asked for again from the middle.
    pub reads_resumed: u64,
    /// Acknowledgements sent.
    pub acks_sent: u64,
    /// Congestion notifications sent.
    pub cnps_sent: u64,
    /// Congestion notifications received.
    pub cnps: u64,
    /// Requests held because an earlier one was missing.
    pub held: u64,
    /// Selective acknowledgements sent.
    pub sacks_sent: u64,
    /// Selective acknowledgements received.
    pub sacks: u64,
    /// Times the pool had no buffer for a frame; it is sent later.
    pub pool_dry: u64,
}

impl SoftCounters {
    /// Frames dropped for `reason`.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    pub(crate) fn drop_many(&mut self, reason: DropReason, count: u32) {
        self.dropped[reason as usize] += u64::from(count);
    }

    #[inline]
    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }
}
