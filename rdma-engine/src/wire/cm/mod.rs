//! Messages of InfiniBand connection management (IBTA 12.6), as RoCE carries them: a MAD in a UD SEND_ONLY
//! to QPN 1.
//!
//! Each message struct is the 232 bytes after the MAD header. Fields of less than a byte have accessors;
//! the byte that holds them is public and named after its parts.

mod cma;
mod reject;
mod reply;
mod request;
mod sidr;

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::mad::{MAD_LEN, MadHeader};

pub use cma::{CmaHeader, PortSpace, service_id};
pub use reject::{CmRej, RejectReason};
pub use reply::{CmDrep, CmDreq, CmMra, CmRep, CmRtu};
pub use request::{CmReq, PathRecord};
pub use sidr::{CmSidrRep, CmSidrReq};

/// Bytes of a message: a MAD without its header.
pub const MESSAGE_LEN: usize = MAD_LEN - size_of::<MadHeader>();

/// Which message a MAD carries: its attribute id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum CmAttribute {
    /// Request for communication.
    Req = 0x10,
    /// Message receipt acknowledgement: "wait longer".
    Mra = 0x11,
    /// Reject.
    Rej = 0x12,
    /// Reply.
    Rep = 0x13,
    /// Ready to use.
    Rtu = 0x14,
    /// Disconnection request.
    Dreq = 0x15,
    /// Disconnection reply.
    Drep = 0x16,
    /// Service id resolution request (UD).
    SidrReq = 0x17,
    /// Service id resolution reply (UD).
    SidrRep = 0x18,
    /// Load alternate path.
    Lap = 0x19,
    /// Alternate path response.
    Apr = 0x1A,
}

impl CmAttribute {
    const ALL: [CmAttribute; 11] = [
        CmAttribute::Req,
        CmAttribute::Mra,
        CmAttribute::Rej,
        CmAttribute::Rep,
        CmAttribute::Rtu,
        CmAttribute::Dreq,
        CmAttribute::Drep,
        CmAttribute::SidrReq,
        CmAttribute::SidrRep,
        CmAttribute::Lap,
        CmAttribute::Apr,
    ];

    /// The attribute with this id.
    pub fn from_id(id: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|a| *a as u16 == id)
    }

    /// The standard's short name.
    pub const fn name(self) -> &'static str {
        match self {
            CmAttribute::Req => "REQ",
            CmAttribute::Mra => "MRA",
            CmAttribute::Rej => "REJ",
            CmAttribute::Rep => "REP",
            CmAttribute::Rtu => "RTU",
            CmAttribute::Dreq => "DREQ",
            CmAttribute::Drep => "DREP",
            CmAttribute::SidrReq => "SIDR_REQ",
            CmAttribute::SidrRep => "SIDR_REP",
            CmAttribute::Lap => "LAP",
            CmAttribute::Apr => "APR",
        }
    }
}

impl fmt::Display for CmAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A message struct with its attribute id.
pub trait CmBody: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned {
    /// Which message this is.
    const ATTRIBUTE: CmAttribute;

    /// A message with every field 0.
    fn zeroed() -> Self
    where
        Self: Sized,
    {
        Self::new_zeroed()
    }
}

/// A parsed message.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each variant is the message its struct describes")]
pub enum CmMessage<'a> {
    Req(&'a CmReq),
    Mra(&'a CmMra),
    Rej(&'a CmRej),
    Rep(&'a CmRep),
    Rtu(&'a CmRtu),
    Dreq(&'a CmDreq),
    Drep(&'a CmDrep),
    SidrReq(&'a CmSidrReq),
    SidrRep(&'a CmSidrRep),
    /// A message that is only named: LAP or APR.
    Other(CmAttribute),
}

impl<'a> CmMessage<'a> {
    /// Reads the payload of a UD packet to QPN 1: the MAD header and the message. `None` unless it is a
    /// whole connection management MAD with a known attribute.
    pub fn parse(payload: &'a [u8]) -> Option<(&'a MadHeader, Self)> {
        let (mad, body) = MadHeader::ref_from_prefix(payload).ok()?;
        let attribute = CmAttribute::from_id(mad.attribute_id.get())?;
        if !mad.is_cm() {
            return None;
        }
        let message = match attribute {
            CmAttribute::Req => CmMessage::Req(message(body)?),
            CmAttribute::Mra => CmMessage::Mra(message(body)?),
            CmAttribute::Rej => CmMessage::Rej(message(body)?),
            CmAttribute::Rep => CmMessage::Rep(message(body)?),
            CmAttribute::Rtu => CmMessage::Rtu(message(body)?),
            CmAttribute::Dreq => CmMessage::Dreq(message(body)?),
            CmAttribute::Drep => CmMessage::Drep(message(body)?),
            CmAttribute::SidrReq => CmMessage::SidrReq(message(body)?),
            CmAttribute::SidrRep => CmMessage::SidrRep(message(body)?),
            CmAttribute::Lap | CmAttribute::Apr => CmMessage::Other(attribute),
        };
        Some((mad, message))
    }

    /// Which message this is.
    pub const fn attribute(&self) -> CmAttribute {
        match self {
            CmMessage::Req(_) => CmAttribute::Req,
            CmMessage::Mra(_) => CmAttribute::Mra,
            CmMessage::Rej(_) => CmAttribute::Rej,
            CmMessage::Rep(_) => CmAttribute::Rep,
            CmMessage::Rtu(_) => CmAttribute::Rtu,
            CmMessage::Dreq(_) => CmAttribute::Dreq,
            CmMessage::Drep(_) => CmAttribute::Drep,
            CmMessage::SidrReq(_) => CmAttribute::SidrReq,
            CmMessage::SidrRep(_) => CmAttribute::SidrRep,
            CmMessage::Other(attribute) => *attribute,
        }
    }
}

fn message<T: CmBody>(body: &[u8]) -> Option<&T> {
    T::ref_from_prefix(body).ok().map(|(message, _)| message)
}

/// A whole MAD: header and message, the payload of the UD packet to QPN 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CmMad {
    /// Header.
    pub header: MadHeader,
    /// A message struct's bytes.
    pub message: [u8; MESSAGE_LEN],
}

const _: () = assert!(size_of::<CmMad>() == MAD_LEN);

impl CmMad {
    /// The MAD that carries `message`.
    pub fn new<T: CmBody>(transaction_id: u64, message: &T) -> Self {
        const { assert!(size_of::<T>() == MESSAGE_LEN) };
        let header = MadHeader::cm(transaction_id, T::ATTRIBUTE as u16);
        let mut mad = CmMad { header, message: [0; MESSAGE_LEN] };
        mad.message.copy_from_slice(message.as_bytes());
        mad
    }
}

/// Bits `shift .. shift + width` of `byte`.
const fn bits(byte: u8, shift: u32, width: u32) -> u8 {
    byte >> shift & ((1 << width) - 1)
}

/// `byte` with those bits set to the low bits of `value`.
const fn with_bits(byte: u8, shift: u32, width: u32, value: u8) -> u8 {
    let mask = (1 << width) - 1;
    byte & !(mask << shift) | (value & mask) << shift
}

/// The time a CM response timeout code stands for: 4.096 us times 2^code.
pub const fn timeout_ns(code: u8) -> u64 {
    4096 << (code & 0x1F)
}
