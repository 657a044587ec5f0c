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
    /// A number of the client's address and of ours that it talks to. Two clients seldom share one; the sockets of one host do.
    #[inline]
    pub fn flow(&self) -> u64 {
        let address = match self.remote {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64 ^ (ip.to_bits() as u64).rotate_left(29),
        };
        // A product carries upwards only: what was high comes down again for who takes low bits.
        let product = (address ^ u64::from(self.local) << 48).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        product ^ product >> 32
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn flow(remote: IpAddr, port: u16) -> u64 {
        Peer { mac: Mac([2; 6]), port, request_id: 0, local: 0, checksum: true, remote }.flow()
    }

    #[test]
    fn hosts_make_flows_that_differ_in_the_bits_that_tables_use() {
        for shift in [0, 8, 16, 24] {
            let hosts = 0..4096u32;
            let lanes = |of: &dyn Fn(u32) -> IpAddr| {
                hosts.clone().map(|n| flow(of(n), 5) >> 17 & 0x3FFF).collect::<HashSet<_>>().len()
            };
            let v4 = lanes(&|n| {
                Ipv4Addr::from_bits(n.wrapping_shl(shift) | n.wrapping_shr(32 - shift.max(12))).into()
            });
            let v6 = lanes(&|n| Ipv6Addr::from_bits(0xfd << 120 | u128::from(n) << shift).into());
            assert!(v4 > 2000 && v6 > 2000, "from bit {shift}: {v4} and {v6} lanes of 4096 hosts");
        }
        let host = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2));
        assert_eq!(flow(host, 5000), flow(host, 5001), "sockets of a host are in one order");
    }
}
