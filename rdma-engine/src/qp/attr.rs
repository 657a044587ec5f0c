//! What a queue pair is made with, and what each change of state needs.

use crate::mem::Access;
use crate::types::{Gid, Pmtu, Psn, QpType, Qpn};
use crate::wr::SrqId;

/// Depths and limits of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_qp_cap")]
pub struct QpCaps {
    /// Requests in the send queue.
    pub send_depth: u32,
    /// Requests in the receive queue; unused with a shared receive queue.
    pub recv_depth: u32,
    /// Segments of a send.
    pub send_sge: u16,
    /// Segments of a receive.
    pub recv_sge: u16,
    /// Bytes copied into the request itself instead of being read from the buffer.
    pub inline_bytes: u32,
    /// Every n-th request is signalled; the last one of a flush always is. 1 signals all.
    pub signal_every: u16,
}

impl Default for QpCaps {
    fn default() -> Self {
        QpCaps {
            send_depth: 128,
            recv_depth: 128,
            send_sge: 1,
            recv_sge: 1,
            inline_bytes: 0,
            signal_every: 1,
        }
    }
}

/// What a queue pair is created with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpSpec {
    /// Transport type.
    pub kind: QpType,
    /// Depths and limits.
    pub caps: QpCaps,
    /// A shared receive queue of the same worker, instead of one of its own.
    pub srq: Option<SrqId>,
    /// Which of the worker's completion queues to use; queues are polled in order of their number, 0 first, and a
    /// lower one is emptied before a higher one is looked at.
    pub cq: u8,
}

/// RESET to INIT: from here receives can be posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InitAttr {
    /// What peers may do with local memory through this queue pair.
    pub access: Access,
    /// Q_Key; UD only.
    pub qkey: u32,
}

/// The path to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_ah_attr")]
pub struct AddressVector {
    /// The peer's address.
    pub gid: Gid,
    /// Index of the local address in the device's GID table.
    pub sgid_index: u8,
    /// Time to live.
    pub hop_limit: u8,
    /// DSCP and ECN bits.
    pub traffic_class: u8,
    /// IPv6 flow label; chooses the UDP source port on hardware.
    pub flow_label: u32,
    /// UDP source port, where the transport lets us choose.
    pub udp_source_port: Option<u16>,
}

impl AddressVector {
    /// A path to `gid` with the usual hop limit.
    pub const fn to(gid: Gid, sgid_index: u8) -> Self {
        AddressVector {
            gid,
            sgid_index,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            udp_source_port: None,
        }
    }
}

/// INIT to RTR: from here the queue pair answers its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RtrAttr {
    /// The path; unused by UD.
    pub path: AddressVector,
    /// The peer's queue pair; unused by UD.
    pub dest_qpn: Qpn,
    /// First PSN the peer will use; unused by UD.
    pub rq_psn: Psn,
    /// Path MTU; unused by UD.
    pub pmtu: Pmtu,
    /// READs and atomics of the peer served at once; RC only.
    pub max_dest_rd_atomic: u8,
    /// RNR timer code sent to a peer that comes too early; RC only. Code 0 is the longest (655 ms).
    pub min_rnr_timer: u8,
}

/// RTR to RTS: from here the queue pair sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RtsAttr {
    /// First PSN sent.
    pub sq_psn: Psn,
    /// Local ACK timeout code: 4.096 us x 2^code, 0 for none; RC only.
    pub timeout: u8,
    /// Transport retries, 0 to 7; RC only.
    pub retry_cnt: u8,
    /// RNR retries, 0 to 7, 7 for ever; RC only.
    pub rnr_retry: u8,
    /// READs and atomics outstanding at the peer; RC only.
    pub max_rd_atomic: u8,
}

/// A change of state with what it needs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Change {
    /// To INIT.
    Init(InitAttr),
    /// To RTR.
    Rtr(RtrAttr),
    /// To RTS from RTR.
    Rts(RtsAttr),
    /// To SQD: started sends finish, no new ones start.
    Sqd,
    /// From SQD or SQE back to RTS.
    Resume,
    /// To ERR: everything posted is flushed.
    Err,
    /// To RESET: both queues are emptied without completions.
    Reset,
}
