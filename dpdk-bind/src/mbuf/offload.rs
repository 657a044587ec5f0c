//! What the NIC says about a received frame, and what it is asked to do to a transmitted one.

#![allow(unsafe_code)] // Writes the offload fields of an owned header.

use dpdk_sys::{self as sys, MbufHeader};

use super::Mbuf;

/// What the NIC found out about a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Not looked at: check it in software.
    Unknown,
    /// Checked and right.
    Good,
    /// Checked and wrong.
    Bad,
    /// Wrong or missing in the frame, but the data is known to be sound (frames that never left the host).
    Unneeded,
}

/// Network layer of a frame whose checksums the NIC shall fill in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxL3 {
    /// IPv4; with its header checksum if `checksum` is set.
    Ipv4 {
        /// Fill in the IPv4 header checksum (its field must be 0).
        checksum: bool,
    },
    /// IPv6.
    Ipv6,
}

/// Transport layer of a frame whose checksum the NIC shall fill in. The checksum field must hold the sum of
/// the pseudo header, which [`TxQueue::prepare`](crate::TxQueue::prepare) writes where the driver needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxL4 {
    /// UDP.
    Udp,
    /// TCP; its header length in bytes.
    Tcp {
        /// TCP header with options, bytes.
        header_len: u8,
    },
}

/// A request to the NIC to fill in checksums. Only valid on ports configured with `tx_checksum`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxOffload {
    /// Bytes of the Ethernet header with its VLAN tags (at most 127).
    pub l2_len: u8,
    /// Bytes of the IP header with its options or extensions (at most 511).
    pub l3_len: u16,
    /// Network layer.
    pub l3: TxL3,
    /// Transport layer, if its checksum is wanted.
    pub l4: Option<TxL4>,
}

impl TxOffload {
    const fn flags(self) -> u64 {
        let l3 = match self.l3 {
            TxL3::Ipv4 { checksum: true } => sys::DPDK_SYS_F_TX_IPV4 | sys::DPDK_SYS_F_TX_IP_CKSUM,
            TxL3::Ipv4 { checksum: false } => sys::DPDK_SYS_F_TX_IPV4,
            TxL3::Ipv6 => sys::DPDK_SYS_F_TX_IPV6,
        };
        let l4 = match self.l4 {
            None => 0,
            Some(TxL4::Udp) => sys::DPDK_SYS_F_TX_UDP_CKSUM,
            Some(TxL4::Tcp { .. }) => sys::DPDK_SYS_F_TX_TCP_CKSUM,
        };
        l3 | l4
    }

    /// The three lengths packed as DPDK's `tx_offload` word has them.
    fn packed(self) -> u64 {
        let l4_len = match self.l4 {
            Some(TxL4::Tcp { header_len }) => u64::from(header_len),
            Some(TxL4::Udp) => 8,
            None => 0,
        };
        let (l2_bits, l3_bits) = (sys::DPDK_SYS_L2_LEN_BITS, sys::DPDK_SYS_L3_LEN_BITS);
        let l2 = u64::from(self.l2_len) & ((1 << l2_bits) - 1);
        let l3 = u64::from(self.l3_len) & ((1 << l3_bits) - 1);
        l2 | l3 << l2_bits | l4_len << (l2_bits + l3_bits)
    }
}

impl Mbuf {
    /// RSS hash the NIC computed, if it did.
    #[inline]
    pub fn rss_hash(&self) -> Option<u32> {
        let h = self.header();
        (h.ol_flags & sys::DPDK_SYS_F_RX_RSS_HASH != 0).then_some(h.rss)
    }

    /// VLAN tag control information, if the NIC reported one.
    #[inline]
    pub fn vlan_tci(&self) -> Option<u16> {
        let h = self.header();
        (h.ol_flags & sys::DPDK_SYS_F_RX_VLAN != 0).then_some(h.vlan_tci)
    }

    /// Whether the NIC took the VLAN tag out of the frame.
    #[inline]
    pub fn vlan_stripped(&self) -> bool {
        self.header().ol_flags & sys::DPDK_SYS_F_RX_VLAN_STRIPPED != 0
    }

    /// Index of the port the frame came in by (`u16::MAX` if it did not come from a port).
    #[inline]
    pub fn port(&self) -> u16 {
        self.header().port
    }

    /// Protocol layers as the driver saw them (`RTE_PTYPE_*` bits), 0 if it did not look.
    #[inline]
    pub fn packet_type(&self) -> u32 {
        self.header().packet_type
    }

    /// What the NIC says about the IPv4 header checksum.
    #[inline]
    pub fn rx_ip_checksum(&self) -> Checksum {
        let (bad, good) = (sys::DPDK_SYS_F_RX_IP_CKSUM_BAD, sys::DPDK_SYS_F_RX_IP_CKSUM_GOOD);
        checksum(self.header().ol_flags, bad, good)
    }

    /// What the NIC says about the TCP or UDP checksum.
    #[inline]
    pub fn rx_l4_checksum(&self) -> Checksum {
        let (bad, good) = (sys::DPDK_SYS_F_RX_L4_CKSUM_BAD, sys::DPDK_SYS_F_RX_L4_CKSUM_GOOD);
        checksum(self.header().ol_flags, bad, good)
    }

    /// Asks the NIC to fill in checksums when this frame is sent.
    #[inline]
    pub fn request_tx(&mut self, offload: TxOffload) {
        let h = self.header_ptr();
        // SAFETY: `h` is owned.
        unsafe {
            (*h).ol_flags = (*h).ol_flags & !sys::DPDK_SYS_F_TX_OFFLOAD_MASK | offload.flags();
            (*h).tx_offload = offload.packed();
        }
    }

    /// Takes over what the driver reported about another frame.
    pub(super) fn take_report(&mut self, from: &MbufHeader) {
        const MEMORY: u64 = sys::DPDK_SYS_F_INDIRECT | sys::DPDK_SYS_F_EXTERNAL;
        let to = self.header_ptr();
        // SAFETY: `to` is owned; the flags that say whose memory a segment uses are its own.
        unsafe {
            (*to).port = from.port;
            (*to).packet_type = from.packet_type;
            (*to).vlan_tci = from.vlan_tci;
            (*to).rss = from.rss;
            (*to).tx_offload = from.tx_offload;
            (*to).ol_flags = (*to).ol_flags & MEMORY | from.ol_flags & !MEMORY;
        }
    }

    /// Forgets what a receiving NIC reported and what was asked of a sending one: for a frame that was
    /// received and is now rewritten and sent.
    #[inline]
    pub fn clear_offloads(&mut self) {
        let h = self.header_ptr();
        // SAFETY: `h` is owned; the flags that say whose memory the segment uses stay.
        unsafe {
            (*h).ol_flags &= sys::DPDK_SYS_F_INDIRECT | sys::DPDK_SYS_F_EXTERNAL;
            (*h).tx_offload = 0;
        }
    }
}

#[inline]
fn checksum(flags: u64, bad: u64, good: u64) -> Checksum {
    match (flags & bad != 0, flags & good != 0) {
        (false, false) => Checksum::Unknown,
        (false, true) => Checksum::Good,
        (true, false) => Checksum::Bad,
        (true, true) => Checksum::Unneeded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_packed_low_to_high() {
        let udp =
            TxOffload { l2_len: 14, l3_len: 20, l3: TxL3::Ipv4 { checksum: true }, l4: Some(TxL4::Udp) };
        assert_eq!(udp.packed(), 14 | 20 << 7 | 8 << 16);
        let flags = sys::DPDK_SYS_F_TX_IPV4 | sys::DPDK_SYS_F_TX_IP_CKSUM | sys::DPDK_SYS_F_TX_UDP_CKSUM;
        assert_eq!(udp.flags(), flags);
    }

    #[test]
    fn four_checksum_states() {
        assert_eq!(checksum(0, 1, 2), Checksum::Unknown);
        assert_eq!(checksum(1, 1, 2), Checksum::Bad);
        assert_eq!(checksum(2, 1, 2), Checksum::Good);
        assert_eq!(checksum(3, 1, 2), Checksum::Unneeded);
    }
}
