//! Which UDP source port brings a packet to which queue.
//!
//! A NIC spreads packets over its RX queues by a hash of addresses and ports. The sender's port is free to choose, and so
//! each end tells the other how its port hashes; the other computes a port for each queue pair that brings its packets to
//! the queue of the worker that owns it. The addresses of both ends go into the hash, so it cannot be chosen before they
//! have met. Where a port does not hash, or does not say how, packets come in as they come in and are handed over.

use dpdk_bind::port::rss::toeplitz;
use rdma_engine::types::{Gid, Qpn};
use rdma_engine::wire::ROCE_PORT;
use std::net::IpAddr;

/// First byte of the description.
const VERSION: u8 = 1;
/// Longest hash key and largest table described.
const MAX_KEY: usize = 64;
const MAX_TABLE: usize = 1024;
/// Source ports to choose from: those that RoCE uses.
const FIRST_PORT: u16 = 0xC000;
const PORTS: u16 = 0x4000;

/// How a port hashes UDP packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Steering {
    /// UDP ports over IPv4 are hashed.
    pub udp4: bool,
    /// UDP ports over IPv6 are hashed.
    pub udp6: bool,
    /// Key of the Toeplitz hash.
    pub key: Vec<u8>,
    /// Queue by hash modulo its length.
    pub table: Vec<u16>,
}

impl Steering {
    /// As it is told to the peer; empty if there is nothing to tell.
    pub fn encode(&self) -> Vec<u8> {
        let useful = (self.udp4 || self.udp6) && !self.key.is_empty() && !self.table.is_empty();
        if !useful || self.key.len() > MAX_KEY || self.table.len() > MAX_TABLE {
            return vec![];
        }
        let flags = u8::from(self.udp4) | u8::from(self.udp6) << 1;
        let mut out = vec![VERSION, flags, self.key.len() as u8];
        out.extend(&self.key);
        out.extend((self.table.len() as u16).to_be_bytes());
        out.extend(self.table.iter().flat_map(|queue| queue.to_be_bytes()));
        out
    }

    /// From what a peer told; `None` if that is nothing, or nothing that makes sense.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[version, flags, key_len], rest) = bytes.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(key_len.into())?;
        let (&len, rest) = rest.split_first_chunk()?;
        let len = usize::from(u16::from_be_bytes(len));
        let (pairs, odd) = rest.as_chunks::<2>();
        let sound = version == VERSION && pairs.len() == len && odd.is_empty();
        if !sound || len == 0 || len > MAX_TABLE || !(1..=MAX_KEY).contains(&key.len()) {
            return None;
        }
        Some(Steering {
            udp4: flags & 1 != 0,
            udp6: flags & 2 != 0,
            key: key.to_vec(),
            table: pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect(),
        })
    }

    /// The queue of a packet; `None` where ports are not hashed.
    pub fn queue(&self, source: Gid, destination: Gid, source_port: u16) -> Option<u16> {
        let ports = [source_port.to_be_bytes(), ROCE_PORT.to_be_bytes()].concat();
        let input = match (source.ip(), destination.ip()) {
            (IpAddr::V4(s), IpAddr::V4(d)) if self.udp4 => [&s.octets()[..], &d.octets(), &ports].concat(),
            (IpAddr::V6(s), IpAddr::V6(d)) if self.udp6 => [&s.octets()[..], &d.octets(), &ports].concat(),
            _ => return None,
        };
        let hash = toeplitz(&self.key, &input) as usize;
        self.table.get(hash % self.table.len()).copied()
    }

    /// A source port that brings packets from `source` for the queue pair `qpn` to `queue`. Queue pairs get different
    /// ones, as switches choose ways by it too.
    pub fn source_port(&self, source: Gid, destination: Gid, qpn: Qpn, queue: u16) -> Option<u16> {
        let first = (qpn.value().wrapping_mul(0x9E37_79B1) >> 18) as u16;
        let ports = (0..PORTS).map(|i| FIRST_PORT + (first + i) % PORTS);
        ports.into_iter().find(|port| self.queue(source, destination, *port) == Some(queue))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn steering(queues: u16, table: usize) -> Steering {
        Steering {
            udp4: true,
            udp6: true,
            key: (0..40).map(|i| (i as u8).wrapping_mul(37) ^ 0x6d).collect(),
            table: (0..table).map(|i| i as u16 % queues).collect(),
        }
    }

    fn gid(text: &str) -> Gid {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn every_worker_is_reached_and_queue_pairs_differ() {
        for (s, d) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
            for queues in [2, 3, 8] {
                let steering = steering(queues, 128);
                for queue in 0..queues {
                    let port = |qpn| steering.source_port(gid(s), gid(d), Qpn::new(qpn), queue).unwrap();
                    assert!(port(5) >= FIRST_PORT && port(5) != port(6));
                    assert_eq!(steering.queue(gid(s), gid(d), port(5)), Some(queue));
                }
                assert_eq!(steering.source_port(gid(s), gid(d), Qpn::new(5), queues), None, "no such queue");
            }
        }
    }

    #[test]
    fn what_is_not_hashed_is_not_steered() {
        let plain = Steering { udp4: false, ..steering(2, 128) };
        assert_eq!(plain.queue(gid("192.0.2.1"), gid("192.0.2.2"), 50_000), None);
        assert!(Steering { udp6: false, ..plain }.encode().is_empty());
    }

    proptest! {
        #[test]
        fn descriptions_come_back(queues in 1u16..9, table in 1usize..600, udp4: bool, key in 1usize..60) {
            let told = Steering { udp4, key: vec![7; key], ..steering(queues, table) };
            prop_assert_eq!(Steering::decode(&told.encode()), Some(told));
        }

        #[test]
        fn whatever_a_peer_says_is_understood_or_passed_over(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Some(steering) = Steering::decode(&bytes) {
                prop_assert_eq!(steering.encode().is_empty(), !steering.udp4 && !steering.udp6);
                steering.queue(gid("192.0.2.1"), gid("192.0.2.2"), 50_000);
            }
        }
    }
}
