use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{CmAttribute, CmBody, MESSAGE_LEN, bits, with_bits};
use crate::types::{Gid, Pmtu};
use crate::wire::u24::U24;

/// A path in a REQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PathRecord {
    /// 0xFFFF on RoCE.
    pub local_lid: U16,
    /// 0xFFFF on RoCE.
    pub remote_lid: U16,
    /// The sender's address.
    pub local_gid: [u8; 16],
    /// The receiver's address; Linux refuses a REQ whose remote GID it does not own.
    pub remote_gid: [u8; 16],
    /// Flow label (20 bits), reserved (6), packet rate (6).
    pub flow_rate: U32,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// TTL.
    pub hop_limit: u8,
    /// Service level (4 bits), subnet local (1), reserved (3).
    pub sl_subnet_local: u8,
    /// Local ACK timeout (5 bits), reserved (3).
    pub ack_timeout_byte: u8,
}

const _: () = assert!(size_of::<PathRecord>() == 44);

impl PathRecord {
    /// The sender's address.
    pub const fn local_gid(&self) -> Gid {
        Gid(self.local_gid)
    }

    /// The receiver's address.
    pub const fn remote_gid(&self) -> Gid {
        Gid(self.remote_gid)
    }

    /// Flow label.
    pub fn flow_label(&self) -> u32 {
        self.flow_rate.get() >> 12
    }

    /// Sets the flow label (low 20 bits), and rate and reserved bits to 0.
    pub const fn set_flow_label(&mut self, label: u32) {
        self.flow_rate = U32::new(label << 12);
    }

    /// Local ACK timeout code: 4.096 us times 2^code.
    pub const fn ack_timeout(&self) -> u8 {
        bits(self.ack_timeout_byte, 3, 5)
    }

    /// Sets the local ACK timeout code, 0 to 31.
    pub const fn set_ack_timeout(&mut self, code: u8) {
        self.ack_timeout_byte = with_bits(self.ack_timeout_byte, 3, 5, code);
    }

    /// True if the path does not leave its subnet.
    pub const fn subnet_local(&self) -> bool {
        bits(self.sl_subnet_local, 3, 1) == 1
    }
}

/// REQ: asks for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CmReq {
    /// Names this connection at the sender.
    pub local_comm_id: U32,
    /// 0.
    pub reserved: u8,
    /// Enhanced connection establishment; 0.
    pub vendor_id: U24,
    /// What is asked for; see [`super::service_id`].
    pub service_id: U64,
    /// The sender's EUI-64.
    pub local_ca_guid: U64,
    /// 0.
    pub reserved2: U32,
    /// 0 for connected transports.
    pub local_qkey: U32,
    /// The sender's queue pair.
    pub local_qpn: U24,
    /// READs and atomics the sender will answer at once.
    pub responder_resources: u8,
    /// 0.
    pub local_eecn: U24,
    /// READs and atomics the sender will have outstanding.
    pub initiator_depth: u8,
    /// 0.
    pub remote_eecn: U24,
    /// Remote CM response timeout (5 bits), transport (2), end-to-end flow control (1).
    pub remote_timeout_transport: u8,
    /// PSN of the first request that the *receiver of this message* will send.
    pub starting_psn: U24,
    /// Local CM response timeout (5 bits), retry count (3).
    pub local_timeout_retry: u8,
    /// Partition key.
    pub pkey: U16,
    /// Path MTU (4 bits), RDC exists (1), RNR retry count (3).
    pub mtu_rnr_retry: u8,
    /// CM retries (4 bits), shared receive queue (1), extended transport (3).
    pub retries_srq: u8,
    /// Path to use.
    pub primary: PathRecord,
    /// Zero.
    pub alternate: PathRecord,
    /// RDMA CM: a [`super::CmaHeader`], then 56 bytes of the user's.
    pub private_data: [u8; 92],
}

const _: () = assert!(size_of::<CmReq>() == MESSAGE_LEN);

impl CmBody for CmReq {
    const ATTRIBUTE: CmAttribute = CmAttribute::Req;
}

impl CmReq {
    /// Transport: reliable connection.
    pub const TRANSPORT_RC: u8 = 0;
    /// Transport: unreliable connection.
    pub const TRANSPORT_UC: u8 = 1;

    /// How long the receiver has to answer: code, see [`super::timeout_ns`].
    pub const fn remote_cm_timeout(&self) -> u8 {
        bits(self.remote_timeout_transport, 3, 5)
    }

    /// Sets the code of the receiver's time to answer.
    pub const fn set_remote_cm_timeout(&mut self, code: u8) {
        self.remote_timeout_transport = with_bits(self.remote_timeout_transport, 3, 5, code);
    }

    /// [`CmReq::TRANSPORT_RC`], [`CmReq::TRANSPORT_UC`], 3 extended.
    pub const fn transport(&self) -> u8 {
        bits(self.remote_timeout_transport, 1, 2)
    }

    /// Sets the transport.
    pub const fn set_transport(&mut self, transport: u8) {
        self.remote_timeout_transport = with_bits(self.remote_timeout_transport, 1, 2, transport);
    }

    /// End-to-end flow control: ACKs carry meaningful credits.
    pub const fn flow_control(&self) -> bool {
        bits(self.remote_timeout_transport, 0, 1) == 1
    }

    /// How long the sender takes to answer: code.
    pub const fn local_cm_timeout(&self) -> u8 {
        bits(self.local_timeout_retry, 3, 5)
    }

    /// Sets the code of the sender's time to answer.
    pub const fn set_local_cm_timeout(&mut self, code: u8) {
        self.local_timeout_retry = with_bits(self.local_timeout_retry, 3, 5, code);
    }

    /// Transport retries the receiver should use, 0 to 7.
    pub const fn retry_count(&self) -> u8 {
        bits(self.local_timeout_retry, 0, 3)
    }

    /// Sets the transport retry count, 0 to 7.
    pub const fn set_retry_count(&mut self, count: u8) {
        self.local_timeout_retry = with_bits(self.local_timeout_retry, 0, 3, count);
    }

    /// Path MTU, if its code is a known one.
    pub fn path_mtu(&self) -> Option<Pmtu> {
        Pmtu::from_code(bits(self.mtu_rnr_retry, 4, 4))
    }

    /// Sets the path MTU.
    pub const fn set_path_mtu(&mut self, mtu: Pmtu) {
        self.mtu_rnr_retry = with_bits(self.mtu_rnr_retry, 4, 4, mtu.code());
    }

    /// RNR retries the receiver should use, 0 to 7 (7 = without end).
    pub const fn rnr_retry_count(&self) -> u8 {
        bits(self.mtu_rnr_retry, 0, 3)
    }

    /// Sets the RNR retry count, 0 to 7.
    pub const fn set_rnr_retry_count(&mut self, count: u8) {
        self.mtu_rnr_retry = with_bits(self.mtu_rnr_retry, 0, 3, count);
    }

    /// How often CM messages are sent again, 0 to 15.
    pub const fn max_cm_retries(&self) -> u8 {
        bits(self.retries_srq, 4, 4)
    }

    /// Sets the number of CM retries, 0 to 15.
    pub const fn set_max_cm_retries(&mut self, count: u8) {
        self.retries_srq = with_bits(self.retries_srq, 4, 4, count);
    }

    /// The sender's queue pair takes receives from a shared queue.
    pub const fn srq(&self) -> bool {
        bits(self.retries_srq, 3, 1) == 1
    }

    /// Sets the shared receive queue bit.
    pub const fn set_srq(&mut self, on: bool) {
        self.retries_srq = with_bits(self.retries_srq, 3, 1, on as u8);
    }
}
