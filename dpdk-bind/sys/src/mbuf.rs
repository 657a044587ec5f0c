//! The mbuf header as Rust reads it, field by field, on the hot path.
//!
//! bindgen's view of `struct rte_mbuf` is full of anonymous unions whose generated names change with the
//! DPDK version, so the fields that are used per packet are mirrored here by hand. Their places are compared
//! with `offsetof` of the headers of this build: a DPDK that laid them out differently does not compile.

use core::mem::{align_of, offset_of, size_of};
use core::sync::atomic::AtomicU16;

use crate::bindings as raw;

/// Mirror of the used part of `struct rte_mbuf`.
///
/// Only ever looked at behind a pointer that DPDK handed out. `refcnt` may be changed by other owners of the
/// same segment at any time; every other field belongs to the segment's owner.
#[repr(C, align(64))]
pub struct MbufHeader {
    /// First byte of the segment's buffer, headroom included.
    pub buf_addr: *mut u8,
    /// IO address of `buf_addr`.
    pub buf_iova: u64,
    /// Distance from `buf_addr` to the first data byte.
    pub data_off: u16,
    /// Owners of this segment's buffer.
    pub refcnt: AtomicU16,
    /// Segments of the chain; valid in its first segment.
    pub nb_segs: u16,
    /// Port the frame was received on.
    pub port: u16,
    /// `RTE_MBUF_F_*`.
    pub ol_flags: u64,
    /// `RTE_PTYPE_*` as the driver saw it.
    pub packet_type: u32,
    /// Data bytes of the whole chain; valid in its first segment.
    pub pkt_len: u32,
    /// Data bytes of this segment.
    pub data_len: u16,
    /// VLAN tag control information, valid with `RTE_MBUF_F_RX_VLAN`.
    pub vlan_tci: u16,
    /// RSS hash, valid with `RTE_MBUF_F_RX_RSS_HASH`.
    pub rss: u32,
    _hash_hi: u32,
    _vlan_tci_outer: u16,
    /// Bytes of the buffer at `buf_addr`.
    pub buf_len: u16,
    /// Pool the header belongs to.
    pub pool: *mut raw::rte_mempool,
    /// Next segment or null.
    pub next: *mut MbufHeader,
    /// Header lengths for TX offloads, packed.
    pub tx_offload: u64,
    _shinfo: *mut u8,
    /// Bytes of private data between header and buffer (of the direct mbuf, when this one is indirect).
    pub priv_size: u16,
    _timesync: u16,
    _dynfield1: [u32; 9],
}

/// Fails the build, naming the field, where the mirror and the C structure differ.
macro_rules! same_place {
    ($($field:ident = $c:ident),* $(,)?) => {
        $(const _: () = assert!(
            offset_of!(MbufHeader, $field) == raw::$c as usize,
            concat!("struct rte_mbuf of this DPDK keeps ", stringify!($field), " elsewhere")
        );)*
    };
}

same_place! {
    buf_addr = DPDK_SYS_MBUF_BUF_ADDR, buf_iova = DPDK_SYS_MBUF_BUF_IOVA, data_off = DPDK_SYS_MBUF_DATA_OFF,
    refcnt = DPDK_SYS_MBUF_REFCNT, nb_segs = DPDK_SYS_MBUF_NB_SEGS, port = DPDK_SYS_MBUF_PORT,
    ol_flags = DPDK_SYS_MBUF_OL_FLAGS, packet_type = DPDK_SYS_MBUF_PACKET_TYPE,
    pkt_len = DPDK_SYS_MBUF_PKT_LEN, data_len = DPDK_SYS_MBUF_DATA_LEN, vlan_tci = DPDK_SYS_MBUF_VLAN_TCI,
    rss = DPDK_SYS_MBUF_RSS, buf_len = DPDK_SYS_MBUF_BUF_LEN, pool = DPDK_SYS_MBUF_POOL,
    next = DPDK_SYS_MBUF_NEXT, tx_offload = DPDK_SYS_MBUF_TX_OFFLOAD, priv_size = DPDK_SYS_MBUF_PRIV_SIZE,
}

const _: () = assert!(size_of::<MbufHeader>() == raw::DPDK_SYS_MBUF_SIZE as usize);
const _: () = assert!(size_of::<MbufHeader>() == 128 && align_of::<MbufHeader>() == 64);
