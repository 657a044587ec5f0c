//! Who asked, and so where a reply goes.

use rdma_engine::wire::Mac;
use std::net::IpAddr;

/// Where the reply to a request goes. Made by the front end that received it, and of use to that one only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Peer {
    /// Where the frame of the request came from: the client, or the router that it is behind.
    pub(super) mac: Mac,
    /// The client's UDP port.
    pub(super) port: u16,
    /// The request's id in memcached's frame header.
    pub(super) request_id: u16,
    /// Which of our addresses was asked.
    pub(super) local: u16,
    /// Its request had a UDP checksum; over IPv4 it need not, and then the reply has none.
    pub(super) checksum: bool,
    /// The client's address.
    pub(super) remote: IpAddr,
}

const _: () = assert!(size_of::<Peer>() <= 32);

impl Peer {
    /// A number of the client's address and port and of our address that it talks to. Two clients seldom share one.
    #[inline]
    pub fn flow(&self) -> u64 {
        let address = match self.remote {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64 ^ (ip.to_bits() as u64).rotate_left(29),
        };
        let ports = u64::from(self.port) << 16 | u64::from(self.local);
        (address ^ ports.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// The client's address.
    pub fn address(&self) -> IpAddr {
        self.remote
    }

    /// The client's UDP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The request's id in memcached's frame header, which every datagram of the reply carries.
    pub fn request_id(&self) -> u16 {
        self.request_id
    }
}
