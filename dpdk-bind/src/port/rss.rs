//! Receive-side scaling: which queue a flow comes in by.

#![allow(unsafe_code)] // Reads and writes redirection table and key.

use core::fmt;

use dpdk_sys as sys;

use super::{Port, PortError};

const GROUP: usize = sys::DPDK_SYS_RETA_GROUP as usize;

/// Header fields an RSS hash covers (`RTE_ETH_RSS_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashTypes {
    bits: u64,
}

/// Names of the bits worth telling apart.
const NAMES: [(u64, &str); 8] = [
    (sys::DPDK_SYS_RSS_IPV4, "ipv4"),
    (sys::DPDK_SYS_RSS_IPV6, "ipv6"),
    (sys::DPDK_SYS_RSS_IPV4_TCP, "ipv4-tcp"),
    (sys::DPDK_SYS_RSS_IPV4_UDP, "ipv4-udp"),
    (sys::DPDK_SYS_RSS_IPV6_TCP, "ipv6-tcp"),
    (sys::DPDK_SYS_RSS_IPV6_UDP, "ipv6-udp"),
    (sys::DPDK_SYS_RSS_SCTP, "sctp"),
    (sys::DPDK_SYS_RSS_L2, "l2"),
];

impl HashTypes {
    /// What a port is asked to hash: IP addresses, and TCP and UDP ports.
    pub const WANTED: HashTypes =
        HashTypes { bits: sys::DPDK_SYS_RSS_IP | sys::DPDK_SYS_RSS_TCP | sys::DPDK_SYS_RSS_UDP };

    /// From DPDK's bits.
    pub fn from_bits(bits: u64) -> Self {
        HashTypes { bits }
    }

    /// DPDK's bits.
    pub fn bits(self) -> u64 {
        self.bits
    }

    /// Whether nothing is hashed.
    pub fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// Those in both.
    pub fn intersection(self, other: HashTypes) -> HashTypes {
        HashTypes { bits: self.bits & other.bits }
    }

    /// Whether UDP ports over IPv4 are part of the hash.
    pub fn covers_udp4(self) -> bool {
        self.bits & sys::DPDK_SYS_RSS_IPV4_UDP != 0
    }

    /// Whether UDP ports over IPv6 are part of the hash.
    pub fn covers_udp6(self) -> bool {
        self.bits & sys::DPDK_SYS_RSS_IPV6_UDP != 0
    }
}

impl fmt::Display for HashTypes {
    /// Comma-separated names, `none` if empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            NAMES.iter().filter(|(bit, _)| self.bits & bit != 0).map(|(_, name)| *name).collect();
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join(","))
    }
}

/// RSS as a port does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rss {
    /// What is hashed.
    pub types: HashTypes,
    /// Key of the Toeplitz hash; empty where the driver does not tell.
    pub key: Vec<u8>,
}

impl Port {
    /// RSS as configured; `None` where the driver does not tell.
    pub fn rss(&self) -> Option<Rss> {
        let mut key = vec![0u8; usize::from(self.info.rss_key_len.max(40))];
        let mut raw = sys::rte_eth_rss_conf {
            rss_key: key.as_mut_ptr(),
            rss_key_len: key.len() as u8,
            ..Default::default()
        };
        // SAFETY: `raw` points at a key buffer of the stated length.
        let rc = unsafe { sys::rte_eth_dev_rss_hash_conf_get(self.index(), &raw mut raw) };
        key.truncate(raw.rss_key_len.into());
        (rc == 0).then_some(Rss { types: HashTypes::from_bits(raw.rss_hf), key })
    }

    /// The redirection table: RX queue by hash modulo its length.
    pub fn reta(&self) -> Result<Vec<u16>, PortError> {
        let size = self.reta_size()?;
        let mut groups = vec![
            sys::rte_eth_rss_reta_entry64 { mask: u64::MAX, ..Default::default() };
            size.div_ceil(GROUP)
        ];
        // SAFETY: `groups` covers `size` entries.
        self.attempt("read the redirection table", || unsafe {
            sys::rte_eth_dev_rss_reta_query(self.index(), groups.as_mut_ptr(), size as u16)
        })?;
        Ok(groups.iter().flat_map(|g| g.reta).take(size).collect())
    }

    /// Replaces the redirection table; `queues` has one RX queue for each of its entries.
    pub fn set_reta(&mut self, queues: &[u16]) -> Result<(), PortError> {
        let size = self.reta_size()?;
        let refuse = |reason: String| {
            Err(PortError::Config {
                port: self.info.label(),
                key: "reta",
                value: format!("{} entries", queues.len()),
                reason,
            })
        };
        if queues.len() != size {
            return refuse(format!("the table has {size}"));
        }
        if let Some(queue) = queues.iter().find(|&&q| q >= self.config.rx_queues) {
            return refuse(format!("there is no RX queue {queue}"));
        }
        let mut groups: Vec<sys::rte_eth_rss_reta_entry64> = queues.chunks(GROUP).map(group).collect();
        // SAFETY: `groups` covers `size` entries.
        self.attempt("write the redirection table", || unsafe {
            sys::rte_eth_dev_rss_reta_update(self.index(), groups.as_mut_ptr(), size as u16)
        })
    }

    fn reta_size(&self) -> Result<usize, PortError> {
        match self.info.reta_size {
            0 => Err(PortError::Unsupported { port: self.info.label(), what: "a redirection table".into() }),
            size => Ok(size.into()),
        }
    }
}

fn group(queues: &[u16]) -> sys::rte_eth_rss_reta_entry64 {
    let mut group = sys::rte_eth_rss_reta_entry64::default();
    group.reta[..queues.len()].copy_from_slice(queues);
    group.mask = if queues.len() == GROUP { u64::MAX } else { (1 << queues.len()) - 1 };
    group
}

/// The Toeplitz hash of `input` (addresses and ports in network order, source first), as NICs compute it: to
/// know beforehand which queue a flow will come in by. Bits beyond the key count as 0.
pub fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
    let key_byte = |i: usize| key.get(i).copied().unwrap_or(0);
    let mut window = (0..4).fold(0u32, |w, i| w << 8 | u32::from(key_byte(i)));
    let mut hash = 0;
    for (i, &byte) in input.iter().enumerate() {
        for bit in (0..8).rev() {
            if byte >> bit & 1 == 1 {
                hash ^= window;
            }
            window = window << 1 | u32::from(key_byte(i + 4) >> bit & 1);
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key and flows that Microsoft publishes for verifying RSS.
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn flow4(src: [u8; 4], src_port: u16, dst: [u8; 4], dst_port: u16) -> Vec<u8> {
        [&src[..], &dst, &src_port.to_be_bytes(), &dst_port.to_be_bytes()].concat()
    }

    #[test]
    fn published_flows_have_the_published_hashes() {
        let a = flow4([66, 9, 149, 187], 2794, [161, 142, 100, 80], 1766);
        let b = flow4([199, 92, 111, 2], 14230, [65, 69, 140, 83], 4739);
        assert_eq!(toeplitz(&KEY, &a), 0x51cc_c178);
        assert_eq!(toeplitz(&KEY, &a[..8]), 0x323e_8fc2);
        assert_eq!(toeplitz(&KEY, &b), 0xc626_b0ea);
    }

    #[test]
    fn types_have_names() {
        assert_eq!(HashTypes::default().to_string(), "none");
        assert!(HashTypes::WANTED.to_string().contains("ipv4-udp"));
        assert!(HashTypes::WANTED.covers_udp4() && HashTypes::WANTED.covers_udp6());
    }

    #[test]
    fn a_short_last_group_has_a_short_mask() {
        assert_eq!(group(&[1; 64]).mask, u64::MAX);
        assert_eq!(group(&[1, 2, 3]).mask, 0b111);
    }
}
