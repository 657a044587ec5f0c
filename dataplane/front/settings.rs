//! What a front end is told at its start.

use crate::host::HostSettings;
use crate::memcached::udp::{DATAGRAM_BYTES, HEADER_BYTES};
use rdma_engine::cm::Cidr;
use std::net::IpAddr;

/// Bytes of UDP header.
const UDP_BYTES: usize = 8;

/// Checksums that the port fills in on the way out; the others are made in software.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TxChecksums {
    /// IPv4 header checksums.
    pub ip: bool,
    /// UDP checksums.
    pub udp: bool,
}

/// Bounds of putting fragments of IP packets together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReassemblySettings {
    /// Packets at once. Each takes a buffer of the pool for messages.
    pub packets: usize,
    /// Packets of one sender at once.
    pub packets_per_sender: usize,
    /// Time for all fragments of a packet to arrive, from the first one on.
    pub timeout_ns: u64,
}

impl Default for ReassemblySettings {
    fn default() -> Self {
        ReassemblySettings { packets: 64, packets_per_sender: 16, timeout_ns: 1_000_000_000 }
    }
}

/// What a front end is told at its start.
#[derive(Clone, Debug)]
pub struct FrontSettings {
    /// Who we are on the port.
    pub host: HostSettings,
    /// UDP port that is listened to.
    pub port: u16,
    /// Clients that are served; all if empty.
    pub allow: Vec<Cidr>,
    /// Largest IP packet that is sent, bytes.
    pub mtu: u16,
    /// Largest datagram that is sent, bytes with the frame header of memcached; what the MTU carries at most.
    pub datagram_bytes: u16,
    /// Largest request that is put together from fragments, bytes with the frame header of memcached. Buffers of the
    /// pool for messages need room for 8 bytes more.
    pub request_bytes_max: usize,
    /// Most segments of a frame that the port sends; 1 where it takes linear frames only.
    pub segments_max: usize,
    /// Parts of replies up to this many bytes are copied where they would otherwise be shared.
    pub copybreak: usize,
    /// Replies that may wait for room in the TX queue.
    pub backlog: usize,
    /// What the port fills in.
    pub tx_checksums: TxChecksums,
    /// Replies by [`Front::send_error`](super::Front::send_error) a second; as many at once after a second of silence.
    pub errors_per_second: u32,
    /// Bounds of reassembly.
    pub reassembly: ReassemblySettings,
}

impl FrontSettings {
    /// A front end for clients of `port` behind an Ethernet of 1500 bytes, with memcached's size of datagrams.
    pub fn new(host: HostSettings, port: u16) -> Self {
        FrontSettings {
            host,
            port,
            allow: Vec::new(),
            mtu: 1500,
            datagram_bytes: DATAGRAM_BYTES as u16,
            request_bytes_max: 65_507,
            segments_max: 8,
            copybreak: 256,
            backlog: 1024,
            tx_checksums: TxChecksums::default(),
            errors_per_second: 1000,
            reassembly: ReassemblySettings::default(),
        }
    }

    /// Bytes of the largest datagram from `address`, frame header included.
    pub fn datagram_bytes_from(&self, address: IpAddr) -> usize {
        let ip = if address.is_ipv4() { 20 } else { 40 };
        let carried = usize::from(self.mtu).saturating_sub(ip + UDP_BYTES);
        usize::from(self.datagram_bytes).min(carried).max(HEADER_BYTES + 1)
    }
}
