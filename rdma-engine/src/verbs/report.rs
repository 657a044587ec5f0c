//! What a device is and can: the answer to `isthmus devices` and the numbers a plan is checked against.

use super::ffi;
use crate::cm::gid::GidEntry;
use crate::types::Pmtu;
use std::fmt;

/// A device with its ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceReport {
    /// Name, as `ibv_devices` shows it.
    pub name: String,
    /// GUID of the node.
    pub node_guid: u64,
    /// Firmware version; empty for software devices.
    pub firmware: String,
    /// Vendor's number.
    pub vendor: u32,
    /// Vendor's number of the part.
    pub part: u32,
    /// What it can hold.
    pub limits: Limits,
    /// Its ports, the first is number 1.
    pub ports: Vec<PortReport>,
}

/// The limits of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_device_attr")]
pub struct Limits {
    /// Queue pairs.
    pub qps: u32,
    /// Requests in one queue of a queue pair.
    pub qp_depth: u32,
    /// Segments of one request.
    pub sge: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Completions in one queue.
    pub cq_depth: u32,
    /// Memory regions.
    pub mrs: u32,
    /// Bytes of one region.
    pub mr_bytes: u64,
    /// Protection domains.
    pub pds: u32,
    /// Shared receive queues.
    pub srqs: u32,
    /// Receives in one shared queue.
    pub srq_depth: u32,
    /// Segments of a receive in a shared queue.
    pub srq_sge: u32,
    /// Address handles.
    pub ahs: u32,
    /// READs and atomics of a peer that one queue pair serves at once.
    pub dest_rd_atomic: u8,
    /// READs and atomics that one queue pair has outstanding.
    pub rd_atomic: u8,
    /// Remote atomics are possible.
    pub atomics: bool,
}

impl Limits {
    pub(super) fn new(attr: &ffi::ibv_device_attr) -> Self {
        let count = |n: i32| n.max(0) as u32;
        let byte = |n: i32| n.clamp(0, 255) as u8;
        Limits {
            qps: count(attr.max_qp),
            qp_depth: count(attr.max_qp_wr),
            sge: count(attr.max_sge),
            cqs: count(attr.max_cq),
            cq_depth: count(attr.max_cqe),
            mrs: count(attr.max_mr),
            mr_bytes: attr.max_mr_size,
            pds: count(attr.max_pd),
            srqs: count(attr.max_srq),
            srq_depth: count(attr.max_srq_wr),
            srq_sge: count(attr.max_srq_sge),
            ahs: count(attr.max_ah),
            dest_rd_atomic: byte(attr.max_qp_rd_atom),
            rd_atomic: byte(attr.max_qp_init_rd_atom),
            atomics: attr.atomic_cap != ffi::ibv_atomic_cap::IBV_ATOMIC_NONE,
        }
    }
}

/// State of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_port_state")]
pub enum PortState {
    /// No link.
    Down,
    /// Link, not yet configured.
    Init,
    /// Configured, not yet active.
    Armed,
    /// In service.
    Active,
    /// In service, link lost for a moment.
    ActiveDefer,
    /// None of the above.
    Unknown,
}

impl PortState {
    fn new(code: u32) -> Self {
        match code {
            1 => PortState::Down,
            2 => PortState::Init,
            3 => PortState::Armed,
            4 => PortState::Active,
            5 => PortState::ActiveDefer,
            _ => PortState::Unknown,
        }
    }
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PortState::Down => "down",
            PortState::Init => "init",
            PortState::Armed => "armed",
            PortState::Active => "active",
            PortState::ActiveDefer => "active, link lost",
            PortState::Unknown => "unknown",
        })
    }
}

/// What a port's wire is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkLayer {
    /// Ethernet: RoCE.
    Ethernet,
    /// InfiniBand.
    InfiniBand,
    /// The device does not say.
    Unspecified,
}

impl LinkLayer {
    pub(super) fn new(code: u8) -> Self {
        match code {
            1 => LinkLayer::InfiniBand,
            2 => LinkLayer::Ethernet,
            _ => LinkLayer::Unspecified,
        }
    }
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkLayer::Ethernet => "Ethernet",
            LinkLayer::InfiniBand => "InfiniBand",
            LinkLayer::Unspecified => "unspecified",
        })
    }
}

/// A port with its addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortReport {
    /// Number, from 1.
    pub number: u8,
    /// State.
    pub state: PortState,
    /// Largest MTU it could use.
    pub max_mtu: Option<Pmtu>,
    /// MTU it uses now; on Ethernet it follows the network device's.
    pub active_mtu: Option<Pmtu>,
    /// Its wire.
    pub link_layer: LinkLayer,
    /// Speed in Mb/s; `None` if the device reports none we know.
    pub speed_mbps: Option<u32>,
    /// Bytes of the largest message.
    pub max_message: u32,
    /// Its addresses.
    pub gids: Vec<GidEntry>,
}

impl PortReport {
    pub(super) fn new(number: u8, attr: &ffi::ibv_port_attr, gids: Vec<GidEntry>) -> Self {
        PortReport {
            number,
            state: PortState::new(attr.state),
            max_mtu: Pmtu::from_code(attr.max_mtu as u8),
            active_mtu: Pmtu::from_code(attr.active_mtu as u8),
            link_layer: LinkLayer::new(attr.link_layer),
            speed_mbps: speed_mbps(attr.active_width, attr.active_speed),
            max_message: attr.max_msg_sz,
            gids,
        }
    }
}

/// Lanes times the speed of a lane, from the codes of the management interface.
fn speed_mbps(width: u8, speed: u8) -> Option<u32> {
    let lanes = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => return None,
    };
    let lane_mbps = match speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => return None,
    };
    Some(lanes * lane_mbps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_lanes_times_lane() {
        assert_eq!(speed_mbps(2, 32), Some(100_000), "4x EDR");
        assert_eq!(speed_mbps(1, 1), Some(2_500), "what rxe reports");
        assert_eq!(speed_mbps(3, 1), None);
    }
}
