use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{CmAttribute, CmBody, MESSAGE_LEN, bits, with_bits};
use crate::wire::u24::U24;

/// MRA: "your message arrived, but the answer takes longer".
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CmMra {
    /// Names the connection at the sender.
    pub local_comm_id: U32,
    /// Names the connection at the receiver.
    pub remote_comm_id: U32,
    /// Message (2 bits): 0 REQ, 1 REP, 2 LAP; reserved (6).
    pub message_byte: u8,
    /// Service timeout (5 bits), reserved (3).
    pub timeout_byte: u8,
    /// The user's.
    pub private_data: [u8; 222],
}

const _: () = assert!(size_of::<CmMra>() == MESSAGE_LEN);

impl CmBody for CmMra {
    const ATTRIBUTE: CmAttribute = CmAttribute::Mra;
}

impl CmMra {
    /// Which message arrived: 0 REQ, 1 REP, 2 LAP.
    pub const fn message(&self) -> u8 {
        bits(self.message_byte, 6, 2)
    }

    /// Sets which message arrived.
    pub const fn set_message(&mut self, message: u8) {
        self.message_byte = with_bits(self.message_byte, 6, 2, message);
    }

    /// How long it may take: code, see [`super::timeout_ns`].
    pub const fn service_timeout(&self) -> u8 {
        bits(self.timeout_byte, 3, 5)
    }

    /// Sets the code of how long it may take.
    pub const fn set_service_timeout(&mut self, code: u8) {
        self.timeout_byte = with_bits(self.timeout_byte, 3, 5, code);
    }
}

/// REP: accepts a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CmRep {
    /// Names the connection at the sender.
    pub local_comm_id: U32,
    /// Names the connection at the receiver.
    pub remote_comm_id: U32,
    /// 0 for connected transports.
    pub local_qkey: U32,
    /// The sender's queue pair.
    pub local_qpn: U24,
    /// Enhanced connection establishment; 0.
    pub vendor_id_high: u8,
    /// 0.
    pub local_eecn: U24,
    /// Enhanced connection establishment; 0.
    pub vendor_id_middle: u8,
    /// PSN of the first request that the *receiver of this message* will send.
    pub starting_psn: U24,
    /// Enhanced connection establishment; 0.
    pub vendor_id_low: u8,
    /// READs and atomics the sender will answer at once.
    pub responder_resources: u8,
    /// READs and atomics the sender will have outstanding.
    pub initiator_depth: u8,
    /// Target ACK delay (5 bits), failover accepted (2), end-to-end flow control (1).
    pub ack_delay_flow_control: u8,
    /// RNR retry count (3 bits), shared receive queue (1), reserved (4).
    pub rnr_retry_srq: u8,
    /// The sender's EUI-64.
    pub local_ca_guid: U64,
    /// The user's.
    pub private_data: [u8; 196],
}

const _: () = assert!(size_of::<CmRep>() == MESSAGE_LEN);

impl CmBody for CmRep {
    const ATTRIBUTE: CmAttribute = CmAttribute::Rep;
}

impl CmRep {
    /// Code of the time the sender may take to acknowledge a packet.
    pub const fn target_ack_delay(&self) -> u8 {
        bits(self.ack_delay_flow_control, 3, 5)
    }

    /// Sets the code of the time to acknowledge.
    pub const fn set_target_ack_delay(&mut self, code: u8) {
        self.ack_delay_flow_control = with_bits(self.ack_delay_flow_control, 3, 5, code);
    }

    /// End-to-end flow control: ACKs carry meaningful credits.
    pub const fn flow_control(&self) -> bool {
        bits(self.ack_delay_flow_control, 0, 1) == 1
    }

    /// RNR retries the receiver should use, 0 to 7 (7 = without end).
    pub const fn rnr_retry_count(&self) -> u8 {
        bits(self.rnr_retry_srq, 5, 3)
    }

    /// Sets the RNR retry count, 0 to 7.
    pub const fn set_rnr_retry_count(&mut self, count: u8) {
        self.rnr_retry_srq = with_bits(self.rnr_retry_srq, 5, 3, count);
    }

    /// The sender's queue pair takes receives from a shared queue.
    pub const fn srq(&self) -> bool {
        bits(self.rnr_retry_srq, 4, 1) == 1
    }

    /// Sets the shared receive queue bit.
    pub const fn set_srq(&mut self, on: bool) {
        self.rnr_retry_srq = with_bits(self.rnr_retry_srq, 4, 1, on as u8);
    }
}

/// RTU: the connection is ready to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CmRtu {
    /// Names the connection at the sender.
    pub local_comm_id: U32,
    /// Names the connection at the receiver.
    pub remote_comm_id: U32,
    /// The user's.
    pub private_data: [u8; 224],
}

const _: () = assert!(size_of::<CmRtu>() == MESSAGE_LEN);

impl CmBody for CmRtu {
    const ATTRIBUTE: CmAttribute = CmAttribute::Rtu;
}

/// DREQ: ends a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CmDreq {
    /// Names the connection at the sender.
    pub local_comm_id: U32,
    /// Names the connection at the receiver.
    pub remote_comm_id: U32,
    /// The receiver's queue pair; Linux ignores a DREQ with another one.
    pub remote_qpn: U24,
    /// 0.
    pub reserved: u8,
    /// The user's.
    pub private_data: [u8; 220],
}

const _: () = assert!(size_of::<CmDreq>() == MESSAGE_LEN);

impl CmBody for CmDreq {
    const ATTRIBUTE: CmAttribute = CmAttribute::Dreq;
}

/// DREP: confirms the end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CmDrep {
    /// Names the connection at the sender.
    pub local_comm_id: U32,
    /// Names the connection at the receiver.
    pub remote_comm_id: U32,
    /// The user's.
    pub private_data: [u8; 224],
}

const _: () = assert!(size_of::<CmDrep>() == MESSAGE_LEN);

impl CmBody for CmDrep {
    const ATTRIBUTE: CmAttribute = CmAttribute::Drep;
}
