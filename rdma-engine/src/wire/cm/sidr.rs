use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{CmAttribute, CmBody, MESSAGE_LEN};
use crate::wire::u24::U24;

/// SIDR_REQ: asks for the UD queue pair of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CmSidrReq {
    /// Names this request at the sender.
    pub request_id: U32,
    /// Partition key.
    pub pkey: U16,
    /// 0.
    pub reserved: U16,
    /// What is asked for.
    pub service_id: U64,
    /// RDMA CM: a [`super::CmaHeader`], then the user's.
    pub private_data: [u8; 216],
}

const _: () = assert!(size_of::<CmSidrReq>() == MESSAGE_LEN);

impl CmBody for CmSidrReq {
    const ATTRIBUTE: CmAttribute = CmAttribute::SidrReq;
}

/// SIDR_REP: tells the UD queue pair of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CmSidrRep {
    /// The request answered.
    pub request_id: U32,
    /// 0 granted, 1 service id not supported, 2 rejected, 3 no QP, 4 redirected, 5 version.
    pub status: u8,
    /// Length of the additional information.
    pub info_len: u8,
    /// Enhanced connection establishment; 0.
    pub vendor_id_high: U16,
    /// The queue pair.
    pub qpn: U24,
    /// Enhanced connection establishment; 0.
    pub vendor_id_low: u8,
    /// The service.
    pub service_id: U64,
    /// Queue key to send with.
    pub qkey: U32,
    /// Additional information.
    pub info: [u8; 72],
    /// The user's.
    pub private_data: [u8; 136],
}

const _: () = assert!(size_of::<CmSidrRep>() == MESSAGE_LEN);

impl CmBody for CmSidrRep {
    const ATTRIBUTE: CmAttribute = CmAttribute::SidrRep;
}
