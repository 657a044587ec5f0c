//! What lies below the BTH: Ethernet with VLAN tags, then IPv4 or IPv6 with UDP, or the GRH of RoCEv1.

use std::net::IpAddr;

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::WireError;
use super::ethernet::{EthernetHeader, VlanTag, Vlans, ethertype};
use super::ip::{Ipv4Header, Ipv6Header, ip_protocol};
use super::udp::{ROCE_PORT, UdpHeader};
use crate::types::Gid;

/// The header `T` at offset `at`, if the bytes reach that far.
#[inline(always)]
pub(super) fn header_at<T>(bytes: &[u8], at: usize) -> Result<&T, WireError>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let bytes = bytes.get(at..).ok_or(WireError::TooShort)?;
    T::ref_from_prefix(bytes).map(|(header, _)| header).map_err(|_| WireError::TooShort)
}

/// Ethernet header and VLAN tags.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// The header before the tags.
    pub ethernet: &'a EthernetHeader,
    /// The tags.
    pub vlans: Vlans,
    /// What follows the last tag.
    pub ethertype: u16,
    /// Offset of what follows.
    pub l3: usize,
}

impl<'a> Link<'a> {
    /// Reads the Ethernet header and up to two tags.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::VlanDepth`].
    #[inline(always)]
    pub fn parse(frame: &'a [u8]) -> Result<Self, WireError> {
        let ethernet: &EthernetHeader = header_at(frame, 0)?;
        let (vlans, ethertype, l3) = match ethernet.ethertype.get() {
            ip @ (ethertype::IPV4 | ethertype::IPV6) => (Vlans::NONE, ip, size_of::<EthernetHeader>()),
            other => tags(frame, other)?,
        };
        Ok(Link { ethernet, vlans, ethertype, l3 })
    }
}

/// The tags of a frame whose Ethernet header says `ethertype`, what follows the last one, and where.
fn tags(frame: &[u8], mut ethertype: u16) -> Result<(Vlans, u16, usize), WireError> {
    let (mut vlans, mut l3) = (Vlans::NONE, size_of::<EthernetHeader>());
    while matches!(ethertype, ethertype::VLAN | ethertype::QINQ) {
        let tag: &VlanTag = header_at(frame, l3)?;
        if !vlans.push(ethertype, tag.tci.get()) {
            return Err(WireError::VlanDepth);
        }
        ethertype = tag.ethertype.get();
        l3 += size_of::<VlanTag>();
    }
    Ok((vlans, ethertype, l3))
}

/// The header that carries the addresses.
#[derive(Clone, Copy, Debug)]
pub enum Network<'a> {
    /// RoCEv2 over IPv4.
    V4(&'a Ipv4Header),
    /// RoCEv2 over IPv6.
    V6(&'a Ipv6Header),
    /// The global route header of RoCEv1.
    Grh(&'a Ipv6Header),
}

impl Network<'_> {
    /// Sender.
    #[inline]
    pub fn source(&self) -> Gid {
        match self {
            Network::V4(ip) => ip.source_addr().into(),
            Network::V6(ip) | Network::Grh(ip) => Gid(ip.source),
        }
    }

    /// Receiver.
    #[inline]
    pub fn destination(&self) -> Gid {
        match self {
            Network::V4(ip) => ip.destination_addr().into(),
            Network::V6(ip) | Network::Grh(ip) => Gid(ip.destination),
        }
    }

    /// Sender as IP address.
    pub fn source_ip(&self) -> IpAddr {
        self.source().ip()
    }

    /// Receiver as IP address.
    pub fn destination_ip(&self) -> IpAddr {
        self.destination().ip()
    }

    /// DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        match self {
            Network::V4(ip) => ip.tos,
            Network::V6(ip) | Network::Grh(ip) => ip.traffic_class(),
        }
    }

    /// True if a switch marked "congestion experienced".
    #[inline]
    pub fn congestion_experienced(&self) -> bool {
        self.traffic_class() & 3 == 3
    }

    /// TTL or hop limit.
    pub fn hop_limit(&self) -> u8 {
        match self {
            Network::V4(ip) => ip.ttl,
            Network::V6(ip) | Network::Grh(ip) => ip.hop_limit,
        }
    }

    /// Bytes of this header.
    #[inline]
    pub fn header_len(&self) -> usize {
        match self {
            Network::V4(_) => size_of::<Ipv4Header>(),
            Network::V6(_) | Network::Grh(_) => size_of::<Ipv6Header>(),
        }
    }
}

/// Network header and UDP, and where the InfiniBand packet inside lies.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Addresses.
    pub network: Network<'a>,
    /// `None` for RoCEv1.
    pub udp: Option<&'a UdpHeader>,
    /// Offset of the network header in the frame.
    pub l3: usize,
    /// Offset of the BTH in the frame.
    pub bth: usize,
    /// Offset of the byte after the ICRC, by the IP length: Ethernet padding lies beyond it.
    pub end: usize,
}

impl<'a> Datagram<'a> {
    /// Reads the network header at `l3` and UDP. `bytes` may be the beginning only of a frame of
    /// `frame_len` bytes, as long as the headers are inside.
    ///
    /// # Errors
    /// All but those of [`Link::parse`] and of the BTH.
    #[inline(always)]
    pub fn parse(ethertype: u16, bytes: &'a [u8], l3: usize, frame_len: usize) -> Result<Self, WireError> {
        match ethertype {
            ethertype::IPV4 => Self::parse_v4(bytes, l3, frame_len),
            ethertype::IPV6 => Self::parse_v6(bytes, l3, frame_len),
            ethertype::ROCE_V1 => Err(WireError::RoceV1),
            _ => Err(WireError::NotIp),
        }
    }

    #[inline(always)]
    fn parse_v4(bytes: &'a [u8], l3: usize, frame_len: usize) -> Result<Self, WireError> {
        let ip: &Ipv4Header = header_at(bytes, l3)?;
        if ip.version_ihl != Ipv4Header::VERSION_IHL {
            return Err(wrong_first_byte(ip.version_ihl));
        }
        if ip.is_fragment() {
            return Err(WireError::IpFragment);
        }
        if ip.protocol != ip_protocol::UDP {
            return Err(WireError::NotUdp);
        }
        let l4 = l3 + size_of::<Ipv4Header>();
        Self::parse_udp(Network::V4(ip), bytes, l3, l4, l3 + usize::from(ip.total_len.get()), frame_len)
    }

    #[inline(always)]
    fn parse_v6(bytes: &'a [u8], l3: usize, frame_len: usize) -> Result<Self, WireError> {
        let ip: &Ipv6Header = header_at(bytes, l3)?;
        if ip.version() != 6 {
            return Err(WireError::IpVersion);
        }
        if ip.next_header != ip_protocol::UDP {
            return Err(match ip.next_header {
                ip_protocol::IPV6_FRAGMENT => WireError::IpFragment,
                _ => WireError::NotUdp,
            });
        }
        let l4 = l3 + size_of::<Ipv6Header>();
        Self::parse_udp(Network::V6(ip), bytes, l3, l4, l4 + usize::from(ip.payload_len.get()), frame_len)
    }

    #[inline(always)]
    fn parse_udp(
        network: Network<'a>,
        bytes: &'a [u8],
        l3: usize,
        l4: usize,
        end: usize,
        frame_len: usize,
    ) -> Result<Self, WireError> {
        let udp: &UdpHeader = header_at(bytes, l4)?;
        if udp.destination_port.get() != ROCE_PORT {
            return Err(WireError::NotRocePort);
        }
        if end > frame_len || l4 + usize::from(udp.len.get()) != end {
            return Err(WireError::Length);
        }
        Ok(Datagram { network, udp: Some(udp), l3, bth: l4 + size_of::<UdpHeader>(), end })
    }

    /// Reads the global route header of a RoCEv1 frame at `l3`.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::IpVersion`], [`WireError::Length`]; [`WireError::NotIp`] if
    /// something other than a BTH follows.
    pub fn parse_roce_v1(bytes: &'a [u8], l3: usize, frame_len: usize) -> Result<Self, WireError> {
        let grh: &Ipv6Header = header_at(bytes, l3)?;
        if grh.version() != 6 {
            return Err(WireError::IpVersion);
        }
        if grh.next_header != ip_protocol::IBA {
            return Err(WireError::NotIp);
        }
        let bth = l3 + size_of::<Ipv6Header>();
        let end = bth + usize::from(grh.payload_len.get());
        if end > frame_len {
            return Err(WireError::Length);
        }
        Ok(Datagram { network: Network::Grh(grh), udp: None, l3, bth, end })
    }
}

#[cold]
fn wrong_first_byte(version_ihl: u8) -> WireError {
    match version_ihl {
        0x46..=0x4F => WireError::IpOptions,
        _ => WireError::IpVersion,
    }
}
