use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::opcode::{Header, HeaderSet};
use super::syndrome::Syndrome;
use super::u24::U24;
use crate::types::{Qpn, Rkey};

/// What follows the BTH of a packet with a known opcode, as one struct: the header(s) of one table row.
///
/// Writing a packet takes one of these, so its size is known to the compiler.
pub trait ExtendedHeaders: IntoBytes + Immutable + Unaligned {
    /// Which headers these are.
    const SET: HeaderSet;
}

/// RDMA extended transport header: where the peer's memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Reth {
    /// Virtual address in the responder's region.
    pub addr: U64,
    /// Key of the region.
    pub rkey: U32,
    /// Length of the whole message, in bytes.
    pub len: U32,
}

const _: () = assert!(size_of::<Reth>() == 16);

impl Reth {
    /// `len` bytes at `addr` of the region `rkey`.
    #[inline]
    pub const fn new(addr: u64, rkey: Rkey, len: u32) -> Self {
        Reth { addr: U64::new(addr), rkey: U32::new(rkey.0), len: U32::new(len) }
    }

    /// Key of the region.
    #[inline]
    pub fn rkey(&self) -> Rkey {
        Rkey(self.rkey.get())
    }
}

/// Acknowledge extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Aeth {
    /// See [`Syndrome`].
    pub syndrome: u8,
    /// Message sequence number: request messages completed by the responder, modulo 2^24.
    pub msn: U24,
}

const _: () = assert!(size_of::<Aeth>() == 4);

impl Aeth {
    /// With this meaning and message sequence number (low 24 bits).
    #[inline]
    pub const fn new(syndrome: Syndrome, msn: u32) -> Self {
        Aeth { syndrome: syndrome.byte(), msn: U24::new(msn) }
    }

    /// What the syndrome means.
    #[inline]
    pub const fn meaning(&self) -> Syndrome {
        Syndrome::from_byte(self.syndrome)
    }
}

/// Atomic extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AtomicEth {
    /// Virtual address, a multiple of 8.
    pub addr: U64,
    /// Key of the region.
    pub rkey: U32,
    /// Value to swap in, or to add.
    pub swap_add: U64,
    /// Value to compare with; ignored by FETCH_ADD.
    pub compare: U64,
}

const _: () = assert!(size_of::<AtomicEth>() == 28);

impl AtomicEth {
    /// FETCH_ADD: add `add` to the 8 bytes at `addr`.
    #[inline]
    pub const fn fetch_add(addr: u64, rkey: Rkey, add: u64) -> Self {
        Self::compare_swap(addr, rkey, 0, add)
    }

    /// COMPARE_SWAP: where the 8 bytes at `addr` equal `compare`, make them `swap`.
    #[inline]
    pub const fn compare_swap(addr: u64, rkey: Rkey, compare: u64, swap: u64) -> Self {
        AtomicEth {
            addr: U64::new(addr),
            rkey: U32::new(rkey.0),
            swap_add: U64::new(swap),
            compare: U64::new(compare),
        }
    }

    /// Key of the region.
    #[inline]
    pub fn rkey(&self) -> Rkey {
        Rkey(self.rkey.get())
    }
}

/// Atomic acknowledge extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AtomicAckEth {
    /// Value before the operation: a number, whatever the byte order of the memory.
    pub original: U64,
}

const _: () = assert!(size_of::<AtomicAckEth>() == 8);

/// Immediate data: four opaque bytes for the receiver's completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ImmDt {
    /// As posted; verbs hold it in network order.
    pub data: [u8; 4],
}

const _: () = assert!(size_of::<ImmDt>() == 4);

/// Invalidate extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ieth {
    /// Key the receiver is to invalidate.
    pub rkey: U32,
}

const _: () = assert!(size_of::<Ieth>() == 4);

/// Datagram extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Deth {
    /// Queue key, to equal the receiver's.
    pub qkey: U32,
    /// 0.
    pub reserved: u8,
    /// Sending queue pair, for the answer.
    pub source_qpn: U24,
}

const _: () = assert!(size_of::<Deth>() == 8);

impl Deth {
    /// The queue key of the general services interface (QPN 1).
    pub const GSI_QKEY: u32 = 0x8001_0000;

    /// From `source_qpn`, for receivers with this queue key.
    #[inline]
    pub fn new(qkey: u32, source_qpn: Qpn) -> Self {
        Deth { qkey: U32::new(qkey), reserved: 0, source_qpn: source_qpn.into() }
    }
}

/// Flush extended transport header (memory placement extensions).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Feth {
    /// Selectivity level (2 bits) and placement type (4 bits) in the low six bits.
    pub selection: U32,
}

const _: () = assert!(size_of::<Feth>() == 4);

/// Nothing follows the BTH.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NoHeaders;

/// RETH with immediate data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RethImm {
    /// Where.
    pub reth: Reth,
    /// Immediate data.
    pub imm: ImmDt,
}

/// AETH with the original value of an atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AethAtomicAck {
    /// Acknowledgement.
    pub aeth: Aeth,
    /// Result.
    pub atomic: AtomicAckEth,
}

/// DETH with immediate data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DethImm {
    /// Sender and queue key.
    pub deth: Deth,
    /// Immediate data.
    pub imm: ImmDt,
}

/// FLUSH: what to flush, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FethReth {
    /// What.
    pub feth: Feth,
    /// Where.
    pub reth: Reth,
}

impl ExtendedHeaders for NoHeaders {
    const SET: HeaderSet = HeaderSet::EMPTY;
}

impl ExtendedHeaders for Reth {
    const SET: HeaderSet = HeaderSet::of(&[Header::Reth]);
}

impl ExtendedHeaders for RethImm {
    const SET: HeaderSet = HeaderSet::of(&[Header::Reth, Header::ImmDt]);
}

impl ExtendedHeaders for Aeth {
    const SET: HeaderSet = HeaderSet::of(&[Header::Aeth]);
}

impl ExtendedHeaders for AethAtomicAck {
    const SET: HeaderSet = HeaderSet::of(&[Header::Aeth, Header::AtomicAckEth]);
}

impl ExtendedHeaders for AtomicEth {
    const SET: HeaderSet = HeaderSet::of(&[Header::AtomicEth]);
}

impl ExtendedHeaders for ImmDt {
    const SET: HeaderSet = HeaderSet::of(&[Header::ImmDt]);
}

impl ExtendedHeaders for Ieth {
    const SET: HeaderSet = HeaderSet::of(&[Header::Ieth]);
}

impl ExtendedHeaders for Deth {
    const SET: HeaderSet = HeaderSet::of(&[Header::Deth]);
}

impl ExtendedHeaders for DethImm {
    const SET: HeaderSet = HeaderSet::of(&[Header::Deth, Header::ImmDt]);
}

impl ExtendedHeaders for FethReth {
    const SET: HeaderSet = HeaderSet::of(&[Header::Feth, Header::Reth]);
}
