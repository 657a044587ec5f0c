//! What an endpoint is made with, and what set-up can refuse.

use super::dcqcn::Dcqcn;
use super::hold::SPAN;
use crate::mem::AccessError;
use crate::qp::IllegalChange;
use crate::types::Pmtu;
use crate::wire::{Mac, Vlans};
use std::net::IpAddr;

/// Frames that a worker holds at most by the rule.
const MAX_HELD: u32 = 1024;

/// Where random numbers come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entropy {
    /// The operating system: keys and QP numbers cannot be guessed.
    System,
    /// A seed, so that a simulation can be repeated.
    Seed(u64),
}

/// A node: one MAC address, its IP addresses and the limits of its workers.
#[derive(Clone, Debug)]
pub struct SoftConfig {
    /// Address of the port.
    pub mac: Mac,
    /// IP addresses; the position is the GID index.
    pub addresses: Vec<IpAddr>,
    /// VLAN tags of every frame sent.
    pub vlans: Vlans,
    /// Ethernet MTU of the port, in bytes; bounds the path MTU.
    pub ethernet_mtu: u32,
    /// Most queue pairs of one worker.
    pub max_qps: u16,
    /// Most regions registered at once.
    pub max_regions: u32,
    /// Most address handles of the node.
    pub max_ahs: u16,
    /// Request packets a queue pair may have unacknowledged.
    pub window: u16,
    /// Make and verify ICRCs. Off only where both ends agree and the link cannot corrupt.
    pub icrc: bool,
    /// A received packet with fewer payload bytes is copied into the posted buffer; from there on the frame itself is
    /// handed to the application.
    pub copybreak: u16,
    /// Frames a queue pair sends before it is the next one's turn.
    pub quantum: u16,
    /// At most one congestion notification per queue pair in this time.
    pub cnp_interval_ns: u64,
    /// Frames of each queue pair whose headers are kept for [`FlightRecord`](super::FlightRecord)s; 0 for none. What that
    /// takes is made with the worker: [`recorder_bytes`](super::recorder_bytes).
    pub recorder_frames: u32,
    /// Rate control by congestion notifications; `None` ignores them. With it connected queue pairs mark their frames as
    /// capable of it (ECT), so that switches mark instead of dropping them.
    pub dcqcn: Option<Dcqcn>,
    /// Payload bytes of a full packet between two ends of this transport that have agreed on more than the 4096 of the
    /// standard, a multiple of 4; 0 for never. The port has to carry 80 bytes more.
    pub jumbo_payload: u32,
    /// Frames that a worker holds for selective repeat, all queue pairs together, up to 65 535. A queue pair holds at most
    /// as many as are left; more are dropped and sent again. See [`held_for`](SoftConfig::held_for).
    pub max_held: u32,
    /// How long requests wait for the peer's MAC address before they fail.
    pub resolve_timeout_ns: u64,
    /// Take the peer's MAC address from its frames, once they have passed all checks.
    pub learn_neighbours: bool,
    /// Where keys and QP numbers come from.
    pub entropy: Entropy,
}

impl SoftConfig {
    /// The usual limits for a port with this MAC and these addresses.
    pub fn new(mac: Mac, addresses: Vec<IpAddr>) -> Self {
        SoftConfig {
            mac,
            addresses,
            vlans: Vlans::NONE,
            ethernet_mtu: 1500,
            max_qps: 1024,
            max_regions: 1024,
            max_ahs: 1024,
            window: 256,
            icrc: true,
            copybreak: 256,
            quantum: 16,
            cnp_interval_ns: 50_000,
            recorder_frames: 0,
            jumbo_payload: 0,
            max_held: MAX_HELD,
            dcqcn: Some(Dcqcn::new(100_000)),
            resolve_timeout_ns: 3_000_000_000,
            learn_neighbours: true,
            entropy: Entropy::System,
        }
    }

    /// A good [`max_held`](SoftConfig::max_held) for a worker with so many queue pairs: a window for each, and one more for
    /// the share that stays free, up to 1024 frames. Beyond that they do not all lose frames at once, and if they do
    /// they share what there is.
    pub fn held_for(window: u16, qps: u32) -> u32 {
        let window = u32::from(window).min(SPAN as u32);
        window.saturating_mul(qps.saturating_add(1)).min(MAX_HELD)
    }

    /// The largest path MTU the port carries.
    pub fn port_pmtu(&self) -> Option<Pmtu> {
        Pmtu::fitting(self.ethernet_mtu)
    }
}

/// What set-up of the soft transport refuses. Every text ends in what to do.
#[derive(Debug, thiserror::Error)]
pub enum SoftError {
    /// No IP address.
    #[error("a node without an IP address: add one to its port")]
    NoAddress,
    /// A limit that the numbers on the wire cannot hold.
    #[error("{what} is {value}, outside {least} to {most}: choose a value inside")]
    Limit {
        /// Name of the setting.
        what: &'static str,
        /// Its value.
        value: u64,
        /// Smallest allowed.
        least: u64,
        /// Largest allowed.
        most: u64,
    },
    /// The port's MTU is below that of the smallest path MTU.
    #[error("an Ethernet MTU of {0} carries no path MTU: raise it to at least 336")]
    EthernetMtu(u32),
    /// Frames of the path MTU do not fit the pool's buffers.
    #[error(
        "buffers of {room} bytes cannot hold frames of {need}: raise the pool's buffer size or lower the MTU"
    )]
    BufferSize {
        /// Bytes a buffer of the pool holds.
        room: usize,
        /// Bytes the longest frame needs.
        need: usize,
    },
    /// A worker index without a pool.
    #[error("worker {0} has no pool, or its transport exists already: give one pool for each worker")]
    Worker(usize),
    /// A completion or shared receive queue the worker does not have.
    #[error("{what} {index} does not exist at this worker: add it to the worker's specification")]
    NoQueue {
        /// Kind of queue.
        what: &'static str,
        /// The index asked for.
        index: usize,
    },
    /// All QP numbers of the worker are taken.
    #[error("worker {0} has no queue pair left: raise max_qps")]
    TooManyQps(usize),
    /// The region table is full.
    #[error("{0} regions are registered already: raise max_regions")]
    TooManyRegions(u32),
    /// The table of address handles is full.
    #[error("{0} address handles exist already: raise max_ahs")]
    TooManyAhs(u16),
    /// No address with this GID index.
    #[error("GID index {0} does not exist: use one of the port's addresses")]
    GidIndex(u8),
    /// IPv4 on one side, IPv6 on the other.
    #[error("the peer's address {peer} is of another family than ours, {local}: choose another GID index")]
    Family {
        /// The peer's.
        peer: IpAddr,
        /// Ours.
        local: IpAddr,
    },
    /// The path MTU does not fit the port.
    #[error("a path MTU of {pmtu} does not fit the port: use at most {most}")]
    PathMtu {
        /// Asked for.
        pmtu: Pmtu,
        /// Largest that fits.
        most: Pmtu,
    },
    /// Something agreed on too late, or for a queue pair that is not reliable.
    #[error(
        "departures from the standard are for reliable connections, before RTR: agree earlier, or not at all"
    )]
    Agreement,
    /// A change of state the table does not know.
    #[error(transparent)]
    State(#[from] IllegalChange),
    /// Rights that do not go together.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The system gave no random numbers.
    #[error("the system gives no random numbers: {0}; check that getrandom is allowed")]
    Random(getrandom::Error),
}

impl Entropy {
    /// A source of its own for each use.
    pub(crate) const fn salted(self, salt: u64) -> Self {
        match self {
            Entropy::System => Entropy::System,
            Entropy::Seed(seed) => Entropy::Seed(seed ^ salt << 56),
        }
    }
}
