//! Addresses as they are written in the file.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Text that is no address of the wanted form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not `ADDRESS/PREFIX`.
    #[error("not an address with a prefix length such as 10.9.0.0/24 or 2001:db8::/64")]
    Form,
    /// The prefix is longer than the address.
    #[error("the prefix length is above {max}")]
    Prefix {
        /// Bits of an address of that family.
        max: u8,
    },
    /// Bits outside the prefix are set.
    #[error("bits outside the prefix are set; the network is {network}")]
    HostBits {
        /// The network meant, most likely.
        network: String,
    },
    /// Not `HOST:PORT`.
    #[error("not an address and a port such as 10.9.0.2:7471 or [2001:db8::2]:7471")]
    HostPort,
}

/// A network: address and prefix length, no bits outside the prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    /// Lowest address of the network.
    pub address: IpAddr,
    /// Bits that all addresses of the network share.
    pub prefix: u8,
}

impl Cidr {
    /// True when `address` belongs to the network. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (mine, max) = bits(self.address);
        let (theirs, their_max) = bits(address.to_canonical());
        max == their_max && network_bits(mine, self.prefix, max) == network_bits(theirs, self.prefix, max)
    }
}

impl FromStr for Cidr {
    type Err = AddressError;

    /// Parses `10.9.0.0/24`, `2001:db8::/32`, or one address alone.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self { address, prefix: bits(address).1 });
        }
        let InterfaceAddress { address, prefix } = text.parse()?;
        let (value, max) = bits(address);
        let network = from_bits(network_bits(value, prefix, max), max);
        if network == address {
            Ok(Self { address, prefix })
        } else {
            Err(AddressError::HostBits { network: format!("{network}/{prefix}") })
        }
    }
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
    /// True when `address` is in the same subnet.
    pub fn reaches(&self, address: IpAddr) -> bool {
        let (value, max) = bits(self.address);
        let network = from_bits(network_bits(value, self.prefix, max), max);
        Cidr { address: network, prefix: self.prefix }.contains(address)
    }
}

impl FromStr for InterfaceAddress {
    type Err = AddressError;

    /// Parses `192.0.2.1/24` or `2001:db8::1/64`.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (address, prefix) = text.split_once('/').ok_or(AddressError::Form)?;
        let address: IpAddr = address.parse().map_err(|_| AddressError::Form)?;
        let prefix: u8 = prefix.parse().map_err(|_| AddressError::Form)?;
        let (_, max) = bits(address);
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

fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    }
}

fn from_bits(value: u128, max: u8) -> IpAddr {
    match u32::try_from(value) {
        Ok(v4) if max == 32 => IpAddr::V4(v4.into()),
        _ => IpAddr::V6(value.into()),
    }
}

fn network_bits(value: u128, prefix: u8, max: u8) -> u128 {
    let host_bits = u32::from(max.saturating_sub(prefix));
    let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
    value & mask
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
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

impl Serialize for Cidr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
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
    fn networks_contain_their_addresses_and_no_others() {
        let cases = [
            ("10.9.0.0/24", "10.9.0.255", true),
            ("10.9.0.0/24", "10.9.1.0", false),
            ("10.9.0.0/24", "::ffff:10.9.0.7", true),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("10.9.0.1", "10.9.0.1", true),
            ("10.9.0.1", "10.9.0.2", false),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "2001:db9::1", true),
        ];
        for (network, address, inside) in cases {
            let cidr: Cidr = network.parse().unwrap();
            assert_eq!(cidr.contains(address.parse().unwrap()), inside, "{address} in {network}");
        }
    }

    #[test]
    fn slips_are_refused_in_words() {
        let host_bits = "10.9.0.1/24".parse::<Cidr>().unwrap_err();
        assert_eq!(host_bits, AddressError::HostBits { network: "10.9.0.0/24".into() });
        assert_eq!("10.9.0.0/33".parse::<Cidr>().unwrap_err(), AddressError::Prefix { max: 32 });
        assert_eq!("10.9.0/24".parse::<Cidr>().unwrap_err(), AddressError::Form);
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
