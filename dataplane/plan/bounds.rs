//! Numbers that code and plan agree on.

use crate::service::outbox::OUTBOX;
use crate::service::relay::{MAX_PATHS, header::MAX_HEADER};

/// Frames of one RX burst.
pub const RX_BURST: u32 = crate::service::BURST as u32;
/// Frames of one TX burst.
pub const TX_BURST: u32 = 64;
/// Frames of a worker that wait for its TX queue at most.
pub const TX_BACKLOG: u32 = OUTBOX as u32 + TX_BURST;
/// RoCE frames that wait for another worker at most.
pub(crate) const HANDOVER_SLOTS: u32 = crate::soft::HANDOVER as u32;
/// Client frames of a worker that wait on a port shared with RoCE packets.
pub(crate) const PARKED_FRAMES: u32 = crate::worker::PARKED as u32;
/// Completions of one poll.
pub const COMPLETION_BURST: u32 = 64;
/// Bytes before the data of an mbuf (`RTE_PKTMBUF_HEADROOM`).
pub const HEADROOM_BYTES: u32 = 128;
/// The relay's longest message header, its table of frame lengths included.
pub const RELAY_HEADER_MAX_BYTES: u32 = MAX_HEADER as u32;
/// Ethernet header and one VLAN tag.
pub const FRAME_OVERHEAD_BYTES: u32 = 18;
/// What a datagram receive finds in front of its payload.
pub const GRH_BYTES: u32 = 40;
/// Deepest queue of a QP that any device we know offers.
pub const MAX_DEPTH: u32 = 32_768;
/// Largest message: with headroom and GRH it fits one mbuf, whose length field has 16 bits.
pub const MAX_MESSAGE_BYTES: u32 = 65_280;

/// Smallest message that is worth a QP.
pub(crate) const MIN_MESSAGE_BYTES: u32 = 256;
/// Segments that rxe takes at most (33 are refused).
pub(crate) const MAX_SGE: u32 = 32;
/// Bytes that can be sent inline at most.
pub(crate) const MAX_INLINE_BYTES: u32 = 1024;
/// Largest completion queue of the devices we know.
pub(crate) const MAX_CQ_DEPTH: u32 = 4_194_303;
/// Largest pool.
pub(crate) const MAX_POOL: u32 = 1 << 24;
/// `RTE_MEMPOOL_CACHE_MAX_SIZE`.
pub(crate) const MAX_POOL_CACHE: u32 = 512;
/// `RTE_MAX_LCORE` of Debian's DPDK.
pub(crate) const MAX_LCORE: u32 = 127;
/// `RTE_MAX_QUEUES_PER_PORT`.
pub(crate) const MAX_QUEUES: u32 = 1024;
/// QPs of one worker at most.
pub(crate) const MAX_QPS_PER_WORKER: u32 = MAX_PATHS as u32;
/// QP numbers have 24 bits; two are taken.
pub(crate) const MAX_QPS: u64 = (1 << 24) - 2;
/// Default data room of an mbuf without headroom.
pub(crate) const DATA_ROOM_BYTES: u32 = 2048;
/// Ethernet header, two VLAN tags and frame check sequence: what a driver may add to the MTU.
pub(crate) const DRIVER_OVERHEAD_BYTES: u32 = 26;
/// What is left for headers beside the packet size, as kernels do: IPv4, UDP, BTH, extended headers, ICRC, and some.
pub(crate) const ROCE_OVERHEAD_V4_BYTES: u32 = 80;
/// The same over IPv6: the longest headers there are before a payload.
pub(crate) const ROCE_OVERHEAD_V6_BYTES: u32 = 84;
/// RNR timer in units of 10 us by wire code, code 0 last (it is the longest).
pub(crate) const RNR_TIMER_10US: [(u8, u32); 32] = [
    (1, 1),
    (2, 2),
    (3, 3),
    (4, 4),
    (5, 6),
    (6, 8),
    (7, 12),
    (8, 16),
    (9, 24),
    (10, 32),
    (11, 48),
    (12, 64),
    (13, 96),
    (14, 128),
    (15, 192),
    (16, 256),
    (17, 384),
    (18, 512),
    (19, 768),
    (20, 1024),
    (21, 1536),
    (22, 2048),
    (23, 3072),
    (24, 4096),
    (25, 6144),
    (26, 8192),
    (27, 12_288),
    (28, 16_384),
    (29, 24_576),
    (30, 32_768),
    (31, 49_152),
    (0, 65_536),
];

const _: () = assert!(RELAY_HEADER_MAX_BYTES <= HEADROOM_BYTES, "the header has to fit into one headroom");
