use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::opcode_table::OPCODES;

/// BTH opcode: three bits of transport, five of operation. Any byte is representable; whether it means
/// something is the business of its table row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(transparent)]
pub struct Opcode(pub u8);

/// A packet's transport, from the top three bits of the opcode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Transport {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Reliable datagram; nobody builds it.
    Rd = 2,
    /// Unreliable datagram.
    Ud = 3,
    /// Congestion notification packet.
    Cnp = 4,
    /// Extended reliable connection.
    Xrc = 5,
    /// Opcodes left to manufacturers (0xC0 and up).
    Vendor = 6,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Rc => "RC",
            Transport::Uc => "UC",
            Transport::Rd => "RD",
            Transport::Ud => "UD",
            Transport::Cnp => "CNP",
            Transport::Xrc => "XRC",
            Transport::Vendor => "vendor",
        })
    }
}

/// What a packet is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Operation {
    /// To a posted receive.
    Send,
    /// Into the peer's memory.
    Write,
    /// Asks for the peer's memory.
    ReadRequest,
    /// Brings it.
    ReadResponse,
    /// Acknowledges.
    Acknowledge,
    /// Acknowledges an atomic, with the value before.
    AtomicAcknowledge,
    /// Compares and swaps eight bytes.
    CompareSwap,
    /// Adds to eight bytes.
    FetchAdd,
    /// Makes writes persistent or visible (memory placement extensions).
    Flush,
    /// Writes eight bytes at once (memory placement extensions).
    AtomicWrite,
    /// Tells the sender of a flow that it met congestion.
    CongestionNotification,
    /// Acknowledges all before its PSN, and says in its payload which packets from there on have arrived.
    SelectiveAcknowledge,
    /// No row of the table.
    Unknown,
}

/// Where in its message a packet stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Position {
    /// Starts a message of several packets.
    First,
    /// Neither starts nor ends it.
    Middle,
    /// Ends it.
    Last,
    /// The whole message.
    Only,
}

impl Position {
    /// FIRST or ONLY.
    #[inline]
    pub const fn starts(self) -> bool {
        matches!(self, Position::First | Position::Only)
    }

    /// LAST or ONLY.
    #[inline]
    pub const fn ends(self) -> bool {
        matches!(self, Position::Last | Position::Only)
    }

    /// The position of packet `index` (from 0) of `count`.
    #[inline]
    pub const fn of(index: u32, count: u32) -> Self {
        // Most messages are one packet.
        if count == 1 && index == 0 {
            return Position::Only;
        }
        match (index == 0, index + 1 >= count) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, true) => Position::Last,
            (false, false) => Position::Middle,
        }
    }
}

/// How much payload a packet may carry. FIRST and MIDDLE packets are always full, so that the receiver can
/// tell where the next one goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PayloadRule {
    /// No payload.
    None,
    /// Exactly the path MTU.
    Full,
    /// 1 to the path MTU.
    SomeUpToFull,
    /// 0 to the path MTU.
    UpToFull,
    /// Exactly 8 bytes.
    Eight,
    /// Exactly 16 bytes.
    Sixteen,
}

impl PayloadRule {
    /// True if a payload of `len` bytes is allowed where the path MTU is `pmtu` bytes.
    #[inline]
    pub const fn permits(self, len: u32, pmtu: u32) -> bool {
        match self {
            PayloadRule::None => len == 0,
            PayloadRule::Full => len == pmtu,
            PayloadRule::SomeUpToFull => len != 0 && len <= pmtu,
            PayloadRule::UpToFull => len <= pmtu,
            PayloadRule::Eight => len == 8,
            PayloadRule::Sixteen => len == 16,
        }
    }
}

/// Who answers a packet, and when.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum AckRule {
    /// Nobody: responses, unreliable transports, congestion notifications.
    Never,
    /// An ACK if the acknowledge request bit is set; ACKs may be coalesced.
    OnRequest,
    /// Its own response, whether asked for or not; never a plain ACK.
    OwnResponse,
}

/// What ends a SEND or WRITE message, beside its payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tailing {
    /// Nothing.
    Plain,
    /// Immediate data.
    Immediate,
    /// A key to invalidate (SEND on RC).
    Invalidate,
}

/// An extended header. Where several follow a BTH they stand in this order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Header {
    /// Flush.
    Feth = 0,
    /// Datagram.
    Deth = 1,
    /// RDMA.
    Reth = 2,
    /// Atomic request.
    AtomicEth = 3,
    /// Acknowledgement.
    Aeth = 4,
    /// Atomic result.
    AtomicAckEth = 5,
    /// Immediate data.
    ImmDt = 6,
    /// Key to invalidate.
    Ieth = 7,
}

impl Header {
    /// All of them, in wire order.
    pub const ALL: [Header; 8] = [
        Header::Feth,
        Header::Deth,
        Header::Reth,
        Header::AtomicEth,
        Header::Aeth,
        Header::AtomicAckEth,
        Header::ImmDt,
        Header::Ieth,
    ];

    /// Bytes.
    pub const fn size(self) -> usize {
        match self {
            Header::Feth => size_of::<super::Feth>(),
            Header::Deth => size_of::<super::Deth>(),
            Header::Reth => size_of::<super::Reth>(),
            Header::AtomicEth => size_of::<super::AtomicEth>(),
            Header::Aeth => size_of::<super::Aeth>(),
            Header::AtomicAckEth => size_of::<super::AtomicAckEth>(),
            Header::ImmDt => size_of::<super::ImmDt>(),
            Header::Ieth => size_of::<super::Ieth>(),
        }
    }
}

/// A set of extended headers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HeaderSet(u8);

impl HeaderSet {
    /// No header.
    pub const EMPTY: HeaderSet = HeaderSet(0);
    /// Bytes of the longest set that an opcode has.
    pub const MAX_LEN: usize = 28;
    /// Offset of a header that is not in the set.
    pub(super) const ABSENT: u8 = u8::MAX;

    /// The set of these headers.
    pub const fn of(headers: &[Header]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < headers.len() {
            bits |= 1 << headers[i] as u8;
            i += 1;
        }
        HeaderSet(bits)
    }

    /// True if `header` is in the set.
    #[inline]
    pub const fn contains(self, header: Header) -> bool {
        self.0 & (1 << header as u8) != 0
    }

    /// Bytes of all of them.
    pub const fn len(self) -> usize {
        let mut len = 0;
        let mut i = 0;
        while i < Header::ALL.len() {
            if self.contains(Header::ALL[i]) {
                len += Header::ALL[i].size();
            }
            i += 1;
        }
        len
    }

    /// True for [`HeaderSet::EMPTY`].
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// For each header its offset after the BTH, [`HeaderSet::ABSENT`] if it is not in the set.
    pub(super) const fn offsets(self) -> [u8; 8] {
        let mut offsets = [Self::ABSENT; 8];
        let mut at = 0;
        let mut i = 0;
        while i < Header::ALL.len() {
            if self.contains(Header::ALL[i]) {
                offsets[i] = at;
                at += Header::ALL[i].size() as u8;
            }
            i += 1;
        }
        offsets
    }
}

/// A row of the opcode table.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub struct OpcodeInfo {
    /// Transport and operation, such as `RC_SEND_ONLY`.
    pub name: &'static str,
    /// Offset of each header after the BTH, indexed by `Header as usize`.
    pub(super) offsets: [u8; 8],
    /// Headers after the BTH.
    pub headers: HeaderSet,
    /// Their bytes.
    pub headers_len: u8,
    /// Transport.
    pub transport: Transport,
    /// What it is about.
    pub operation: Operation,
    /// Where in its message.
    pub position: Position,
    /// What payload is allowed.
    pub payload: PayloadRule,
    /// Who has to answer.
    pub ack: AckRule,
}

const _: () = assert!(size_of::<OpcodeInfo>() == 32);

impl OpcodeInfo {
    /// True if the opcode has a row.
    #[inline]
    pub const fn is_known(&self) -> bool {
        !matches!(self.operation, Operation::Unknown)
    }

    /// True for packets from responder to requester.
    #[inline]
    pub const fn is_response(&self) -> bool {
        matches!(
            self.operation,
            Operation::ReadResponse
                | Operation::Acknowledge
                | Operation::AtomicAcknowledge
                | Operation::SelectiveAcknowledge
        )
    }

    /// True for packets from requester to responder.
    #[inline]
    pub const fn is_request(&self) -> bool {
        self.is_known() && !self.is_response() && !matches!(self.operation, Operation::CongestionNotification)
    }

    /// True if this packet takes a receive from the responder's queue: SEND when it starts, WRITE with
    /// immediate when it ends.
    #[inline]
    pub const fn takes_receive(&self) -> bool {
        match self.operation {
            Operation::Send => self.position.starts(),
            Operation::Write => self.headers.contains(Header::ImmDt),
            _ => false,
        }
    }

    /// The name without the transport, such as `SEND_ONLY`.
    pub fn operation_name(&self) -> &'static str {
        self.name.split_once('_').map_or(self.name, |(_, operation)| operation)
    }
}

impl Opcode {
    /// RC acknowledgement.
    pub const RC_ACKNOWLEDGE: Opcode = Opcode(0x11);
    /// RC acknowledgement of an atomic.
    pub const RC_ATOMIC_ACKNOWLEDGE: Opcode = Opcode(0x12);
    /// RC READ request.
    pub const RC_READ_REQUEST: Opcode = Opcode(0x0C);
    /// RC compare and swap.
    pub const RC_COMPARE_SWAP: Opcode = Opcode(0x13);
    /// RC fetch and add.
    pub const RC_FETCH_ADD: Opcode = Opcode(0x14);
    /// UD datagram.
    pub const UD_SEND_ONLY: Opcode = Opcode(0x64);
    /// UD datagram with immediate data.
    pub const UD_SEND_ONLY_IMM: Opcode = Opcode(0x65);
    /// Congestion notification packet.
    pub const CNP: Opcode = Opcode(0x81);
    /// Selective acknowledgement between two ends of this transport.
    pub const SACK: Opcode = Opcode(0xD1);

    /// The row of this opcode; unknown ones have a row that says so.
    #[inline]
    pub fn info(self) -> &'static OpcodeInfo {
        &OPCODES[usize::from(self.0)]
    }

    /// The SEND opcode of a packet. FIRST and MIDDLE ignore `tail`; UC has no invalidate and falls back to
    /// plain; UD has only [`Opcode::UD_SEND_ONLY`] and [`Opcode::UD_SEND_ONLY_IMM`].
    #[inline]
    pub const fn send(transport: Transport, position: Position, tail: Tailing) -> Self {
        let operation = match (position, tail) {
            (Position::First, _) => 0x00,
            (Position::Middle, _) => 0x01,
            (Position::Last, Tailing::Immediate) => 0x03,
            (Position::Last, Tailing::Invalidate) if matches!(transport, Transport::Rc) => 0x16,
            (Position::Last, _) => 0x02,
            (Position::Only, Tailing::Immediate) => 0x05,
            (Position::Only, Tailing::Invalidate) if matches!(transport, Transport::Rc) => 0x17,
            (Position::Only, _) => 0x04,
        };
        Opcode((transport as u8) << 5 | operation)
    }

    /// The WRITE opcode of a packet (RC and UC). FIRST and MIDDLE ignore `imm`.
    #[inline]
    pub const fn write(transport: Transport, position: Position, imm: bool) -> Self {
        let operation = match (position, imm) {
            (Position::First, _) => 0x06,
            (Position::Middle, _) => 0x07,
            (Position::Last, false) => 0x08,
            (Position::Last, true) => 0x09,
            (Position::Only, false) => 0x0A,
            (Position::Only, true) => 0x0B,
        };
        Opcode((transport as u8) << 5 | operation)
    }

    /// The RC READ response opcode of a packet.
    #[inline]
    pub const fn read_response(position: Position) -> Self {
        Opcode(match position {
            Position::First => 0x0D,
            Position::Middle => 0x0E,
            Position::Last => 0x0F,
            Position::Only => 0x10,
        })
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#04x} {}", self.0, self.info().name)
    }
}
