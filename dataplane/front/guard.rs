//! Who is answered: nobody who did not ask, and no service that would answer back.
//!
//! A UDP source address is easily forged. Two services that answer each other's error messages never stop, and a small
//! request for a large value makes a weapon of whoever sends it.

use super::FrontDrop;
use crate::config::InterfaceAddress;
use rdma_engine::cm::Cidr;
use std::net::{IpAddr, Ipv4Addr};

/// UDP ports at or above 1024 at which services answer strangers: databases, games, discovery, tunnels, voice, cameras.
/// No system takes ports of its clients from this range by itself.
const SERVICES: [u16; 42] = [
    1194, 1434, 1604, 1645, 1646, 1701, 1719, 1812, 1813, 1900, 2049, 2123, 2152, 2427, 3283, 3389, 3478,
    3702, 4500, 4789, 4791, 5004, 5060, 5061, 5093, 5349, 5351, 5353, 5355, 5683, 5684, 6081, 6881, 10001,
    11211, 17185, 19132, 20800, 26000, 27015, 27960, 32414,
];
/// Below it are the services that the system itself runs.
const FIRST_UNPRIVILEGED: u16 = 1024;

/// Says who is answered.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    allow: Vec<Cidr>,
    subnets: Vec<InterfaceAddress>,
    /// Our own port.
    port: u16,
}

impl Guard {
    pub(super) fn new(allow: Vec<Cidr>, subnets: Vec<InterfaceAddress>, port: u16) -> Self {
        Guard { allow, subnets, port }
    }

    /// Whether a packet from `remote` may be answered at all.
    #[inline(always)]
    pub(super) fn check_source(&self, remote: IpAddr) -> Result<(), FrontDrop> {
        let sound = match remote {
            IpAddr::V4(ip) => is_answerable(ip),
            IpAddr::V6(ip) => {
                !ip.is_multicast()
                    && !ip.is_unspecified()
                    && !ip.is_loopback()
                    && ip.to_ipv4_mapped().is_none()
            }
        };
        if !sound {
            return Err(FrontDrop::Source);
        }
        for own in &self.subnets {
            if own.address == remote || is_broadcast(own, remote) {
                return Err(FrontDrop::Source);
            }
        }
        let allowed = self.allow.is_empty() || self.allow.iter().any(|block| block.contains(remote));
        if allowed { Ok(()) } else { Err(FrontDrop::NotAllowed) }
    }

    /// Whether a datagram from this UDP port may be answered.
    #[inline]
    pub(super) fn check_port(&self, port: u16) -> Result<(), FrontDrop> {
        let service = port < FIRST_UNPRIVILEGED
            || port == self.port
            || (port <= SERVICES[SERVICES.len() - 1] && SERVICES.binary_search(&port).is_ok());
        if service { Err(FrontDrop::Reflector) } else { Ok(()) }
    }
}

fn is_answerable(ip: Ipv4Addr) -> bool {
    // 240/4 is reserved and holds the broadcast address; 0/8 is "this network".
    !ip.is_multicast() && !ip.is_loopback() && ip.octets()[0] != 0 && ip.octets()[0] < 240
}

/// True for the lowest and the highest address of one of our subnets (RFC 1122), where there are others.
#[inline]
fn is_broadcast(own: &InterfaceAddress, remote: IpAddr) -> bool {
    let (IpAddr::V4(own_ip), IpAddr::V4(ip)) = (own.address, remote) else { return false };
    let host_bits = u32::MAX.checked_shr(own.prefix.into()).unwrap_or(0);
    let (own_ip, ip) = (u32::from(own_ip), u32::from(ip));
    host_bits > 1
        && (own_ip ^ ip) & !host_bits == 0
        && matches!(ip & host_bits, bits if bits == 0 || bits == host_bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdma_engine::cm::Budget;
    use rdma_engine::types::Time;

    fn guard(allow: &[&str]) -> Guard {
        let subnets = ["192.0.2.1/24", "198.51.100.9/31", "2001:db8::1/64"].map(|a| a.parse().unwrap());
        Guard::new(allow.iter().map(|a| a.parse().unwrap()).collect(), subnets.to_vec(), 11_311)
    }

    fn source(guard: &Guard, ip: &str) -> Result<(), FrontDrop> {
        guard.check_source(ip.parse().unwrap())
    }

    #[test]
    fn services_are_sorted() {
        assert!(SERVICES.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn nobody_is_answered_who_cannot_have_asked() {
        let guard = guard(&[]);
        for bad in [
            "192.0.2.1",
            "192.0.2.0",
            "192.0.2.255",
            "224.0.0.1",
            "255.255.255.255",
            "0.1.2.3",
            "127.0.0.1",
            "240.1.1.1",
            "2001:db8::1",
            "ff02::1",
            "::",
            "::1",
            "::ffff:192.0.2.7",
        ] {
            assert_eq!(source(&guard, bad), Err(FrontDrop::Source), "{bad}");
        }
        for good in ["192.0.2.2", "198.51.100.8", "203.0.113.255", "2001:db8::2", "fe80::1"] {
            assert_eq!(source(&guard, good), Ok(()), "{good}");
        }
    }

    #[test]
    fn an_allow_list_keeps_others_out() {
        let guard = guard(&["10.0.0.0/8", "2001:db8:7::/48"]);
        assert_eq!(source(&guard, "10.1.2.3"), Ok(()));
        assert_eq!(source(&guard, "2001:db8:7::9"), Ok(()));
        assert_eq!(source(&guard, "11.1.2.3"), Err(FrontDrop::NotAllowed));
        assert_eq!(source(&guard, "2001:db8::9"), Err(FrontDrop::NotAllowed));
    }

    #[test]
    fn services_are_not_answered() {
        let guard = guard(&[]);
        for port in [0, 1, 7, 19, 53, 123, 161, 389, 1023, 1900, 4791, 5353, 11_211, 11_311, 32_414] {
            assert_eq!(guard.check_port(port), Err(FrontDrop::Reflector), "{port}");
        }
        for port in [1024, 11_212, 32_768, 40_000, 65_535] {
            assert_eq!(guard.check_port(port), Ok(()), "{port}");
        }
    }

    #[test]
    fn a_rate_is_kept_in_any_second() {
        const SECOND_NS: u64 = 1_000_000_000;
        let mut rate = Budget::new(Time(5), 10);
        let taken = |rate: &mut Budget, now| (0..100).filter(|_| rate.take(now)).count();
        assert_eq!(taken(&mut rate, Time(5)), 10);
        assert_eq!(taken(&mut rate, Time(5 + SECOND_NS / 5)), 2);
        assert_eq!(taken(&mut rate, Time(3)), 0, "time does not go back");
        assert_eq!(taken(&mut rate, Time(100 * SECOND_NS)), 10);
        assert!(!Budget::new(Time(0), 0).take(Time(SECOND_NS)));
    }
}
