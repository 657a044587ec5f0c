use std::fmt;

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{CmAttribute, CmBody, MESSAGE_LEN, bits, with_bits};

/// REJ: refuses a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CmRej {
    /// Names the connection at the sender; 0 if there is none.
    pub local_comm_id: U32,
    /// Names the connection at the receiver.
    pub remote_comm_id: U32,
    /// Message rejected (2 bits): 0 REQ, 1 REP, 2 none; reserved (6).
    pub message_byte: u8,
    /// Length of the additional information (7 bits), reserved (1).
    pub info_len_byte: u8,
    /// See [`RejectReason`].
    pub reason: U16,
    /// Additional information, such as the GID that would have been right.
    pub info: [u8; 72],
    /// The user's.
    pub private_data: [u8; 148],
}

const _: () = assert!(size_of::<CmRej>() == MESSAGE_LEN);

impl CmBody for CmRej {
    const ATTRIBUTE: CmAttribute = CmAttribute::Rej;
}

impl CmRej {
    /// Which message is rejected: 0 REQ, 1 REP, 2 none.
    pub const fn message(&self) -> u8 {
        bits(self.message_byte, 6, 2)
    }

    /// Sets which message is rejected.
    pub const fn set_message(&mut self, message: u8) {
        self.message_byte = with_bits(self.message_byte, 6, 2, message);
    }

    /// The additional information.
    pub fn info(&self) -> &[u8] {
        let len = usize::from(bits(self.info_len_byte, 1, 7));
        self.info.get(..len).unwrap_or(&self.info)
    }

    /// Sets the additional information, cut to what fits.
    pub fn set_info(&mut self, info: &[u8]) {
        let len = info.len().min(self.info.len());
        self.info[..len].copy_from_slice(&info[..len]);
        self.info_len_byte = with_bits(self.info_len_byte, 1, 7, len as u8);
    }

    /// Why.
    pub fn reason(&self) -> RejectReason {
        RejectReason(self.reason.get())
    }
}

/// Why a connection was refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// No queue pair available.
    pub const NO_QP: RejectReason = RejectReason(1);
    /// No resources.
    pub const NO_RESOURCES: RejectReason = RejectReason(3);
    /// The sender of REJ waited too long.
    pub const TIMEOUT: RejectReason = RejectReason(4);
    /// Unknown communication id.
    pub const INVALID_COMM_ID: RejectReason = RejectReason(6);
    /// Nobody listens on the service id.
    pub const INVALID_SERVICE_ID: RejectReason = RejectReason(8);
    /// Transport type not supported.
    pub const INVALID_TRANSPORT: RejectReason = RejectReason(9);
    /// The queue pair is part of another connection.
    pub const STALE_CONNECTION: RejectReason = RejectReason(10);
    /// The primary remote GID is not one of the receiver's.
    pub const INVALID_GID: RejectReason = RejectReason(12);
    /// Path MTU not supported.
    pub const INVALID_MTU: RejectReason = RejectReason(26);
    /// Refused by the application, or by RDMA CM.
    pub const CONSUMER_DEFINED: RejectReason = RejectReason(28);

    /// The reason in words.
    pub const fn words(self) -> &'static str {
        match self.0 {
            1 => "no QP available",
            2 => "no EEC available",
            3 => "no resources available",
            4 => "timeout",
            5 => "unsupported request",
            6 => "invalid communication id",
            7 => "invalid communication instance",
            8 => "invalid service id: nobody listens there",
            9 => "invalid transport service type",
            10 => "stale connection: the QP belongs to an earlier one",
            11 => "RDC does not exist",
            12 => "primary remote port GID rejected: not an address of the receiver",
            13 => "primary remote port LID rejected",
            14 => "invalid primary SL",
            15 => "invalid primary traffic class",
            16 => "invalid primary hop limit",
            17 => "invalid primary packet rate",
            18 => "alternate remote port GID rejected",
            19 => "alternate remote port LID rejected",
            20 => "invalid alternate SL",
            21 => "invalid alternate traffic class",
            22 => "invalid alternate hop limit",
            23 => "invalid alternate packet rate",
            24 => "CM and port redirection",
            25 => "port redirection",
            26 => "invalid path MTU",
            27 => "insufficient responder resources",
            28 => "refused by the consumer",
            29 => "RNR retry count rejected",
            30 => "duplicate local communication id",
            31 => "invalid class version",
            32 => "invalid primary flow label",
            33 => "invalid alternate flow label",
            35 => "vendor option not supported",
            _ => "reason unknown",
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0, self.words())
    }
}
