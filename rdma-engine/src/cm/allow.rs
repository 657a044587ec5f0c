//! Which addresses may connect.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

use super::auth::Auth;
use super::refuse::{Refusal, RefuseReason};

/// A block of addresses: `10.1.0.0/16`, `fd00::/8`, or one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cidr {
    net: IpAddr,
    prefix_len: u8,
}

/// Why a text is no block of addresses.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CidrError {
    /// No address in front of the slash.
    #[error("'{0}' is no IP address; write an address such as 10.1.2.3 or a block such as 10.1.0.0/16")]
    Address(String),
    /// No number behind the slash, or too large a one.
    #[error("'{text}' has no prefix length of 0 to {max} behind the slash")]
    PrefixLen {
        /// The whole text.
        text: String,
        /// Bits of the address.
        max: u8,
    },
    /// Bits are set behind the prefix, so one of the two is a slip.
    #[error("'{text}' has bits set behind its prefix; write {net}")]
    HostBits {
        /// The whole text.
        text: String,
        /// The block it lies in.
        net: Cidr,
    },
}

impl Cidr {
    /// The block of the `prefix_len` leading bits of `ip`; longer prefixes than the address count as
    /// the whole address.
    pub fn new(ip: IpAddr, prefix_len: u8) -> Self {
        let prefix_len = prefix_len.min(bits(ip));
        // A block of IPv4 addresses written as IPv6 is a block of IPv4 addresses.
        match (ip.to_canonical(), prefix_len.checked_sub(96)) {
            (v4 @ IpAddr::V4(_), Some(v4_len)) if ip.is_ipv6() => {
                Cidr { net: masked(v4, v4_len), prefix_len: v4_len }
            }
            _ => Cidr { net: masked(ip, prefix_len), prefix_len },
        }
    }

    /// True if `ip` lies in the block. IPv4 written as IPv6 counts as IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_ipv4() == self.net.is_ipv4() && masked(ip, self.prefix_len) == self.net
    }
}

fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn masked(ip: IpAddr, prefix_len: u8) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len)).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix_len)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
        }
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let ip: IpAddr = address.trim().parse().map_err(|_| CidrError::Address(text.to_owned()))?;
        let max = bits(ip);
        let Some(prefix) = prefix else { return Ok(Cidr::new(ip, max)) };
        let prefix_len = prefix.trim().parse().ok().filter(|len| *len <= max);
        let prefix_len = prefix_len.ok_or_else(|| CidrError::PrefixLen { text: text.to_owned(), max })?;
        if masked(ip, prefix_len) != ip {
            let net = Cidr::new(ip, prefix_len);
            return Err(CidrError::HostBits { text: text.to_owned(), net });
        }
        Ok(Cidr::new(ip, prefix_len))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.net, self.prefix_len)
    }
}

/// The blocks that may connect.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct AllowList(Vec<Cidr>);

impl AllowList {
    /// The list of the blocks in `texts`.
    pub fn parse<S: AsRef<str>>(texts: &[S]) -> Result<Self, CidrError> {
        texts.iter().map(|text| text.as_ref().trim().parse()).collect::<Result<_, _>>().map(AllowList)
    }

    /// True if the list names nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if a block of the list contains `ip`.
    pub fn names(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|cidr| cidr.contains(ip))
    }
}

/// Whether a peer at `ip` may speak at all, before it has said anything.
///
/// With a key, an empty list lets everybody try; a list that names something lets only those in.
/// Without a key, only loopback and the addresses that the list names are let in: an empty list is no
/// permission.
pub fn admit(auth: &Auth, allow: &AllowList, ip: IpAddr) -> Result<(), Refusal> {
    let ip = ip.to_canonical();
    let admitted = match auth {
        Auth::PresharedKey(_) => allow.is_empty() || allow.names(ip),
        Auth::None => allow.names(ip) || allow.is_empty() && ip.is_loopback(),
    };
    if admitted {
        return Ok(());
    }
    let detail = match auth {
        Auth::PresharedKey(_) => format!("your address is {ip}"),
        Auth::None => format!("your address is {ip} and we use no key"),
    };
    Err(Refusal::new(RefuseReason::NotAllowed, detail))
}

#[cfg(test)]
mod tests {
    use super::super::auth::PresharedKey;
    use super::*;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn cidr(text: &str) -> Result<Cidr, CidrError> {
        text.parse()
    }

    #[test]
    fn blocks_contain_what_they_should() {
        assert!(cidr("10.1.0.0/16").unwrap().contains(ip("10.1.255.255")));
        assert!(!cidr("10.1.0.0/16").unwrap().contains(ip("10.2.0.0")));
        assert!(cidr("10.1.2.3").unwrap().contains(ip("::ffff:10.1.2.3")));
        assert!(cidr("::ffff:10.1.0.0/112").unwrap().contains(ip("10.1.9.9")));
        assert!(!cidr("::ffff:10.1.0.0/112").unwrap().contains(ip("10.2.9.9")));
        assert!(cidr("0.0.0.0/0").unwrap().contains(ip("255.0.0.1")));
        assert!(!cidr("0.0.0.0/0").unwrap().contains(ip("::1")));
        assert!(cidr("::/0").unwrap().contains(ip("fe80::1")));
        assert!(cidr("fd00:1::/32").unwrap().contains(ip("fd00:1:ffff::1")));
        assert!(!cidr("fd00:1::/32").unwrap().contains(ip("fd00:2::1")));
    }

    #[test]
    fn slips_are_named_with_the_remedy() {
        for text in
            ["", "10.1", "host/8", "10.0.0.0/8/8", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1"]
        {
            let error = cidr(text).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        let error = cidr("10.1.2.3/16").unwrap_err().to_string();
        assert!(error.contains("write 10.1.0.0/16"), "{error}");
    }

    #[test]
    fn without_a_key_only_loopback_and_named_addresses_enter() {
        let key = Auth::PresharedKey(PresharedKey::new(&[1; 16]).unwrap());
        let (nobody, named) = (AllowList::default(), AllowList::parse(&["10.0.0.0/8"]).unwrap());
        let enters = |auth: &Auth, list: &AllowList, from: &str| admit(auth, list, ip(from)).is_ok();
        assert!(enters(&key, &nobody, "192.0.2.1") && enters(&key, &named, "10.1.1.1"));
        assert!(!enters(&key, &named, "192.0.2.1"));
        assert!(enters(&Auth::None, &nobody, "127.0.0.1") && enters(&Auth::None, &nobody, "::1"));
        assert!(!enters(&Auth::None, &nobody, "10.1.1.1") && enters(&Auth::None, &named, "10.1.1.1"));
        let text = admit(&Auth::None, &nobody, ip("192.0.2.1")).unwrap_err().to_string();
        assert!(text.contains("192.0.2.1") && text.contains("allow-list"), "{text}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_block_contains_itself_and_prints_to_itself(bits: u128, v4: bool, prefix in 0u8..=128) {
            let ip = if v4 { IpAddr::V4((bits as u32).into()) } else { IpAddr::V6(bits.into()) };
            let block = Cidr::new(ip, prefix);
            prop_assert!(block.contains(ip));
            prop_assert_eq!(block.to_string().parse::<Cidr>().unwrap(), block);
        }

        #[test]
        fn any_text_parses_or_fails(text in prop::collection::vec(any::<char>(), 0..40)) {
            let _ = String::from_iter(text).parse::<Cidr>();
        }
    }
}
