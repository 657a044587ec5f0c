//! Addresses as they are written in the file.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use rdma_engine::cm::Cidr;
use serde::{Serialize, Serializer};

/// Text that is no address of the wanted form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not `ADDRESS/PREFIX`.
    #[error("not an address with a prefix length such as 192.0.2.1/24 or 2001:db8::1/64")]
    Form,
    /// The prefix is longer than the address.
    #[error("the prefix length is above {max}")]
    Prefix {
        /// Bits of an address of that family.
        max: u8,
    },
    /// Not `HOST:PORT`.
    #[error("not an address and a port such as 10.9.0.2:7471 or [2001:db8::2]:7471")]
    HostPort,
}

/// An address of our own with the prefix of its subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Prefix length of the subnet it is in.
    pub prefix: u8,
}

impl InterfaceAddress {
    /// What the address means to its subnet, if that is not one host of it: its first address is the subnet itself, its last
    /// one is everybody. Subnets of two addresses, and of IPv6, have neither.
    pub fn subnet_word(&self) -> Option<&'static str> {
        let IpAddr::V4(address) = self.address else { return None };
        if self.prefix > 30 {
            return None;
        }
        let host = u32::MAX.checked_shr(self.prefix.into()).unwrap_or(0);
        match address.to_bits() & host {
            0 => Some("the network itself"),
            bits if bits == host => Some("the broadcast address"),
            _ => None,
        }
    }

    /// True when `address` is in the same subnet.
    pub fn reaches(&self, address: IpAddr) -> bool {
        Cidr::new(self.address, self.prefix).contains(address)
    }
}

impl FromStr for InterfaceAddress {
    type Err = AddressError;

    /// Parses `192.0.2.1/24` or `2001:db8::1/64`.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (address, prefix) = text.split_once('/').ok_or(AddressError::Form)?;
        let address: IpAddr = address.parse().map_err(|_| AddressError::Form)?;
        let prefix: u8 = prefix.parse().map_err(|_| AddressError::Form)?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        if prefix > max { Err(AddressError::Prefix { max }) } else { Ok(Self { address, prefix }) }
    }
}

/// Host (name or address) and TCP port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port, not 0.
    pub port: u16,
}

impl FromStr for HostPort {
    type Err = AddressError;

    /// Parses `10.9.0.2:7471`, `[2001:db8::2]:7471` or `storage-7:7471`.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (host, port) = text.rsplit_once(':').ok_or(AddressError::HostPort)?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(address) if address.parse::<std::net::Ipv6Addr>().is_ok() => address,
            None if is_host(host) => host,
            _ => return Err(AddressError::HostPort),
        };
        match port.parse() {
            Ok(port) if port != 0 => Ok(Self { host: host.to_owned(), port }),
            _ => Err(AddressError::HostPort),
        }
    }
}

/// A name or an IPv4 address. Digits and dots alone must be a whole address: `10.9.0` is a slip, not a name.
fn is_host(text: &str) -> bool {
    let named = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '_';
    let numeric = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    !text.is_empty() && text.chars().all(named) && (!numeric || text.parse::<IpAddr>().is_ok())
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Serialize for InterfaceAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for HostPort {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_addresses_know_their_subnet() {
        let own: InterfaceAddress = "192.0.2.1/24".parse().unwrap();
        assert!(own.reaches("192.0.2.254".parse().unwrap()));
        assert!(!own.reaches("192.0.3.1".parse().unwrap()));
        assert!(!own.reaches("2001:db8::1".parse().unwrap()));
        for (text, word) in [
            ("192.0.2.0/24", Some("the network itself")),
            ("192.0.2.255/24", Some("the broadcast address")),
            ("192.0.2.3/30", Some("the broadcast address")),
            ("192.0.2.255/16", None),
            ("192.0.2.0/31", None),
            ("192.0.2.0/32", None),
            ("2001:db8::/64", None),
        ] {
            assert_eq!(text.parse::<InterfaceAddress>().unwrap().subnet_word(), word, "{text}");
        }
        assert_eq!("192.0.2.1/33".parse::<InterfaceAddress>().unwrap_err(), AddressError::Prefix { max: 32 });
        assert_eq!("192.0.2.1".parse::<InterfaceAddress>().unwrap_err(), AddressError::Form);
    }

    #[test]
    fn host_and_port_take_the_usual_forms() {
        for good in ["10.9.0.2:7471", "[2001:db8::2]:7471", "storage-7.example:7471"] {
            assert_eq!(good.parse::<HostPort>().unwrap().to_string(), good);
        }
        for bad in
            ["10.9.0.2", "10.9.0:7471", "2001:db8::2:7471", ":7471", "a:0", "a:65536", "[x]:1", "a b:1"]
        {
            assert_eq!(bad.parse::<HostPort>().unwrap_err(), AddressError::HostPort, "{bad}");
        }
    }
}
