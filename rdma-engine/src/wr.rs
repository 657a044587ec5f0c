//! Work requests and completions: what is asked of a queue pair and what it answers.

use crate::types::{Gid, Qpn, Rkey};
use std::fmt;

/// A range of a peer's memory. The bytes are the peer's; `addr` means nothing here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteSlice {
    /// The peer's virtual address.
    pub addr: u64,
    /// Key of the peer's region.
    pub rkey: Rkey,
    /// Bytes.
    pub len: u32,
}

/// An aligned 64-bit word of a peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteWord {
    /// The peer's virtual address, a multiple of 8.
    pub addr: u64,
    /// Key of the peer's region.
    pub rkey: Rkey,
}

/// The operations. Immediate values are host order here and big-endian on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// The buffer's contents go into a receive of the peer.
    #[doc(alias = "IBV_WR_SEND")]
    Send,
    /// SEND with 32 bits beside the message.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    SendImm(u32),
    /// SEND that also invalidates a key of the peer. Verbs refuses it where regions are ordinary MRs.
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    SendInv(Rkey),
    /// The contents go into the peer's memory; its software sees nothing. `len` is the buffer's.
    #[doc(alias = "IBV_WR_RDMA_WRITE")]
    Write(RemoteSlice),
    /// WRITE that takes a receive of the peer to report 32 bits and the length.
    #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
    WriteImm(RemoteSlice, u32),
    /// The peer's memory comes into the (empty) buffer; the peer's software sees nothing.
    #[doc(alias = "IBV_WR_RDMA_READ")]
    Read(RemoteSlice),
    /// Adds to a word of the peer; its value before comes into the (empty) buffer, 8 bytes in host order.
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    FetchAdd {
        /// The word.
        word: RemoteWord,
        /// What is added, modulo 2^64.
        add: u64,
    },
    /// Replaces a word of the peer if it equals `compare`; its value before comes into the (empty) buffer, 8 bytes in
    /// host order.
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    CompareSwap {
        /// The word.
        word: RemoteWord,
        /// The value that must be there.
        compare: u64,
        /// The value put there.
        swap: u64,
    },
}

impl Op {
    /// The operation without its operands.
    #[inline]
    pub const fn kind(&self) -> OpKind {
        match self {
            Op::Send | Op::SendImm(_) | Op::SendInv(_) => OpKind::Send,
            Op::Write(_) | Op::WriteImm(..) => OpKind::Write,
            Op::Read(_) => OpKind::Read,
            Op::FetchAdd { .. } => OpKind::FetchAdd,
            Op::CompareSwap { .. } => OpKind::CompareSwap,
        }
    }

    /// True if bytes come back into the buffer, which has to be empty and large enough.
    #[inline]
    pub const fn fills_buffer(&self) -> bool {
        matches!(self.kind(), OpKind::Read | OpKind::FetchAdd | OpKind::CompareSwap)
    }

    /// Bytes that come back: the length of a READ, 8 for an atomic, else 0.
    #[inline]
    pub const fn response_len(&self) -> u32 {
        match self {
            Op::Read(r) => r.len,
            Op::FetchAdd { .. } | Op::CompareSwap { .. } => 8,
            _ => 0,
        }
    }
}

/// An operation without its operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OpKind {
    /// Any SEND.
    Send,
    /// Any WRITE.
    Write,
    /// READ.
    Read,
    /// FETCH_ADD.
    FetchAdd,
    /// COMPARE_SWAP.
    CompareSwap,
}

/// The poster's own mark on a request, given back with the completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[doc(alias = "wr_id")]
pub struct Cookie(pub u64);

/// A queue pair attached to a transport. The generation fences completions and calls that mean an earlier one of the
/// same slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QpId {
    /// Index in the transport's table.
    pub slot: u16,
    /// How often the slot has been reused.
    pub generation: u16,
}

/// A shared receive queue of a transport.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SrqId(pub u16);

/// An address handle of a transport: the path to a datagram peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AhId(pub u16);

/// Where a datagram goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdDest {
    /// The path.
    pub ah: AhId,
    /// The peer's queue pair.
    pub qpn: Qpn,
    /// The peer's Q_Key.
    pub qkey: u32,
}

/// A request for a send queue. Posting moves the buffer.
#[derive(Debug)]
pub struct SendWr<B> {
    /// What to do.
    pub op: Op,
    /// The bytes to send, or the empty buffer that bytes come into.
    pub buf: B,
    /// Given back with the completion.
    pub cookie: Cookie,
    /// Wait until all earlier READs and atomics of this queue pair are complete.
    pub fence: bool,
    /// Wake a peer that armed its CQ for solicited completions only.
    pub solicited: bool,
    /// The destination; UD only, and there required.
    pub ud: Option<UdDest>,
}

impl<B> SendWr<B> {
    /// A request without flags.
    #[inline]
    pub const fn new(op: Op, buf: B, cookie: Cookie) -> Self {
        SendWr { op, buf, cookie, fence: false, solicited: false, ud: None }
    }
}

/// A request for a receive queue: an empty buffer with room for the largest message.
#[derive(Debug)]
pub struct RecvWr<B> {
    /// Where the message goes.
    pub buf: B,
    /// Given back with the completion.
    pub cookie: Cookie,
}

/// Why a request was not taken. The request comes back beside it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// The queue is full; poll completions first.
    Full,
    /// The identifier means a queue pair that is gone.
    Stale,
    /// The state of the queue pair takes no such request (sends before RTS, anything in RESET).
    State,
    /// The message exceeds what the queue pair or the protocol carries. The soft transport READs 2^22 packets at most, so at
    /// a path MTU of 256 up to 1 GiB; everything else, and READs from a path MTU of 512 on, up to the 2 GiB of the standard.
    TooLong,
    /// The chain has more segments than the queue pair's scatter/gather limit.
    TooManySegments,
    /// A segment lies in no registered region.
    NotRegistered,
    /// The buffer that bytes should come into is shared, not empty, or too small.
    NoRoom,
    /// The transport type, or this transport, has no such operation.
    Unsupported,
    /// A datagram without a destination, or a destination on a connected queue pair.
    Destination,
    /// The device refused the request.
    Device,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Full => "queue full",
            Refusal::Stale => "queue pair gone",
            Refusal::State => "wrong queue pair state",
            Refusal::TooLong => "message too long",
            Refusal::TooManySegments => "too many segments",
            Refusal::NotRegistered => "buffer not registered",
            Refusal::NoRoom => "no room in the destination buffer",
            Refusal::Unsupported => "operation not supported",
            Refusal::Destination => "destination missing or not allowed",
            Refusal::Device => "refused by the device",
        })
    }
}

/// A request that was not taken, given back whole.
#[derive(Debug)]
pub struct Refused<W> {
    /// The request.
    pub wr: W,
    /// Why.
    pub why: Refusal,
}

/// Where a datagram came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdSource {
    /// The sender's queue pair.
    pub qpn: Qpn,
    /// The sender's address, where the network header was delivered.
    pub gid: Option<Gid>,
}

/// What was completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    /// A request of the send queue.
    Sent(OpKind),
    /// A receive.
    Received(Received),
}

/// What a receive took in. On error only the status and the cookie mean anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// The immediate value, host order.
    pub imm: Option<u32>,
    /// The key the peer invalidated.
    pub invalidated: Option<Rkey>,
    /// Set for WRITE_IMM: so many bytes are in the region the peer wrote, none in the buffer.
    pub written: Option<u32>,
    /// The sender of a datagram.
    pub source: Option<UdSource>,
}

/// A request that is done. The buffer is back: for a receive or a READ one *with these bytes*, which need not be the
/// one that was posted, nor cut into segments like it.
#[derive(Debug)]
pub struct Completion<B> {
    /// The queue pair.
    pub qp: QpId,
    /// The poster's mark.
    pub cookie: Cookie,
    /// What was done.
    pub done: Done,
    /// How it ended.
    pub status: Status,
    /// The buffer. After an error its contents are unspecified.
    pub buf: B,
}

/// How a request ended; the numbers are those of the verbs interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[doc(alias = "ibv_wc_status")]
#[repr(u8)]
pub enum Status {
    /// Done.
    Success = 0,
    /// The message is longer than the receive, or the segments exceed a limit.
    LocLenErr = 1,
    /// The request was malformed or not possible in this state.
    LocQpOpErr = 2,
    /// A local segment lies outside its region, or the key is wrong.
    LocProtErr = 4,
    /// The queue pair was in ERR.
    WrFlushErr = 5,
    /// Binding a memory window failed.
    MwBindErr = 6,
    /// The peer's response made no sense.
    BadRespErr = 7,
    /// A peer's access to local memory failed while a receive was in use.
    LocAccessErr = 8,
    /// The peer refused the request as invalid.
    RemInvReqErr = 9,
    /// The peer refused access to its memory.
    RemAccessErr = 10,
    /// The peer could not complete the operation.
    RemOpErr = 11,
    /// No answer after all retries.
    RetryExcErr = 12,
    /// The peer never had a receive posted.
    RnrRetryExcErr = 13,
    /// The device failed.
    FatalErr = 19,
    /// A response timed out.
    RespTimeoutErr = 20,
    /// Any other failure.
    GeneralErr = 21,
}

impl Status {
    /// The status with this number of the verbs interface; unknown ones are [`Status::GeneralErr`].
    pub fn from_code(code: u32) -> Self {
        use Status::*;
        let known = [
            Success,
            LocLenErr,
            LocQpOpErr,
            LocProtErr,
            WrFlushErr,
            MwBindErr,
            BadRespErr,
            LocAccessErr,
            RemInvReqErr,
            RemAccessErr,
            RemOpErr,
            RetryExcErr,
            RnrRetryExcErr,
            FatalErr,
            RespTimeoutErr,
        ];
        known.into_iter().find(|s| *s as u32 == code).unwrap_or(GeneralErr)
    }

    /// The status in words, with the usual cause.
    pub const fn words(self) -> &'static str {
        match self {
            Status::Success => "success",
            Status::LocLenErr => "local length error: a message is longer than the receive posted for it",
            Status::LocQpOpErr => {
                "local operation error: a malformed request, or a message longer than its receive"
            }
            Status::LocProtErr => "local protection error: a buffer is not registered where its key says",
            Status::WrFlushErr => "flushed: the queue pair was already in error",
            Status::MwBindErr => "memory window bind error",
            Status::BadRespErr => "bad response: the peer answered with an unexpected opcode or length",
            Status::LocAccessErr => "local access error: the peer touched memory here without the right to",
            Status::RemInvReqErr => {
                "remote invalid request: the peer allows no such operation, or its receive is too small"
            }
            Status::RemAccessErr => {
                "remote access error: wrong rkey, range, right or protection domain at the peer"
            }
            Status::RemOpErr => "remote operation error: the peer failed while serving the request",
            Status::RetryExcErr => "transport retries exceeded: the peer, its queue pair or the path is gone",
            Status::RnrRetryExcErr => "receiver-not-ready retries exceeded: the peer posts no receives",
            Status::FatalErr => "fatal device error",
            Status::RespTimeoutErr => "response timeout",
            Status::GeneralErr => "general error",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}
