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
    /// The client's address.
    pub(super) remote: IpAddr,
}

const _: () = assert!(size_of::<Peer>() <= 32);

impl Peer {
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
