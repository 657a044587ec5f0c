//! Frames around requests: Ethernet, IP, UDP, and fragments where a request is longer than the MTU.

use super::FrameClientError;
use crate::host::HostSettings;
use crate::load::request::Request;
use arrayvec::ArrayVec;
use rdma_engine::buf::Buf;
use rdma_engine::wire::{
    EthernetHeader, InternetChecksum, Ipv4Header, Ipv6Header, Mac, UdpHeader, VlanTag, ethertype, ip_protocol,
};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most frames of one request.
pub(super) const FRAGMENTS_MAX: usize = 64;
const UDP_BYTES: usize = size_of::<UdpHeader>();
/// Hops a request may take.
const HOP_LIMIT: u8 = 64;

/// The extension header of a fragment in IPv6.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct FragmentHeader {
    next_header: u8,
    reserved: u8,
    offset_more: U16,
    id: U32,
}

/// From where to where all frames of a client go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) source_mac: Mac,
    pub(super) vlan: Option<u16>,
    pub(super) source: IpAddr,
    pub(super) server: SocketAddr,
    /// The neighbour that the way to the server begins with.
    pub(super) next_hop: IpAddr,
}

impl Ends {
    pub(super) fn new(host: &HostSettings, server: SocketAddr) -> Result<Self, FrameClientError> {
        let ip = server.ip();
        let hop = host.next_hop(ip).ok_or(FrameClientError::NoWay(ip))?;
        let mut own = host.addresses.iter().filter(|own| own.address.is_ipv4() == ip.is_ipv4());
        let source = own.clone().find(|own| own.reaches(hop)).or_else(|| own.next());
        let source = source.ok_or(FrameClientError::NoAddress(ip))?.address;
        Ok(Ends { source_mac: host.mac, vlan: host.vlan, source, server, next_hop: hop })
    }

    /// Bytes in front of the IP header.
    pub(super) fn link_bytes(&self) -> usize {
        size_of::<EthernetHeader>() + if self.vlan.is_some() { size_of::<VlanTag>() } else { 0 }
    }

    fn ip_bytes(&self) -> usize {
        if self.source.is_ipv4() { size_of::<Ipv4Header>() } else { size_of::<Ipv6Header>() }
    }

    /// Bytes of UDP header and request that one fragment holds, a multiple of 8.
    fn fragment_bytes(&self, mtu: usize) -> usize {
        let extension = if self.source.is_ipv4() { 0 } else { size_of::<FragmentHeader>() };
        mtu.saturating_sub(self.ip_bytes() + extension) & !7
    }

    /// Frames that a request of `bytes` takes; `None` if the MTU is too small.
    pub(super) fn frames(&self, bytes: usize, mtu: usize) -> Option<usize> {
        let all = UDP_BYTES + bytes;
        if self.ip_bytes() + all <= mtu {
            return Some(1);
        }
        let n = all.div_ceil(self.fragment_bytes(mtu).max(1));
        (n <= FRAGMENTS_MAX && all <= usize::from(u16::MAX)).then_some(n)
    }
}

/// Writes a frame from front to back.
struct Front<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Front<'_> {
    #[inline]
    fn put(&mut self, header: &(impl IntoBytes + Immutable)) {
        let bytes = header.as_bytes();
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

/// One request on its way into frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packing<'a> {
    pub(super) ends: &'a Ends,
    pub(super) next_hop: Mac,
    pub(super) source_port: u16,
    /// Of fragments.
    pub(super) id: u32,
    pub(super) mtu: usize,
    /// Also where the protocol does not demand them.
    pub(super) checksums: bool,
}

impl Packing<'_> {
    /// Writes `request` into buffers taken from `empty`; `None`, and they are as they were, if there are too few of them or
    /// they are too small.
    #[inline]
    pub(super) fn pack<B: Buf>(
        &self,
        request: &Request,
        empty: &mut ArrayVec<B, FRAGMENTS_MAX>,
        put: impl FnMut(B),
    ) -> Option<()> {
        let all = UDP_BYTES + request.len();
        let frames = self.ends.frames(request.len(), self.mtu)?;
        if frames > empty.len() || self.ends.link_bytes() + self.mtu.min(all + 60) > empty[0].tailroom() {
            return None;
        }
        if frames == 1 {
            let mut frame = empty.pop()?;
            self.whole(request, all, &mut frame)?;
            std::iter::once(frame).for_each(put);
            return Some(());
        }
        self.fragments(request, all, frames, empty, put)
    }

    fn udp(&self, all: usize) -> UdpHeader {
        UdpHeader {
            source_port: self.source_port.into(),
            destination_port: self.ends.server.port().into(),
            len: (all as u16).into(),
            checksum: U16::ZERO,
        }
    }

    /// A frame's headers below UDP. `part` is what it holds of the `all` bytes of the datagram.
    #[inline]
    fn below(&self, out: &mut Front<'_>, part: &Range<usize>, all: usize) -> InternetChecksum {
        let ends = self.ends;
        let ethertype = if ends.source.is_ipv4() { ethertype::IPV4 } else { ethertype::IPV6 };
        let outer = if ends.vlan.is_some() { ethertype::VLAN } else { ethertype };
        out.put(&EthernetHeader {
            destination: self.next_hop,
            source: ends.source_mac,
            ethertype: outer.into(),
        });
        if let Some(id) = ends.vlan {
            out.put(&VlanTag { tci: id.into(), ethertype: ethertype.into() });
        }
        let is_fragment = part.len() != all;
        let more = part.end != all;
        match (ends.source, ends.server.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let offset = (part.start / 8) as u16 | u16::from(more) << 13;
                let mut ip = Ipv4Header {
                    version_ihl: Ipv4Header::VERSION_IHL,
                    tos: 0,
                    total_len: ((size_of::<Ipv4Header>() + part.len()) as u16).into(),
                    id: (self.id as u16).into(),
                    flags_fragment: if is_fragment { offset } else { Ipv4Header::DONT_FRAGMENT }.into(),
                    ttl: HOP_LIMIT,
                    protocol: ip_protocol::UDP,
                    checksum: U16::ZERO,
                    source: source.octets(),
                    destination: destination.octets(),
                };
                ip.set_checksum();
                out.put(&ip);
                ip.pseudo_header(all as u16)
            }
            (source, destination) => {
                let octets = |ip: IpAddr| match ip {
                    IpAddr::V6(ip) => ip.octets(),
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                };
                let extension = if is_fragment { size_of::<FragmentHeader>() } else { 0 };
                let ip = Ipv6Header {
                    version_class_flow: Ipv6Header::first_word(0, u32::from(self.source_port)),
                    payload_len: ((extension + part.len()) as u16).into(),
                    next_header: if is_fragment { ip_protocol::IPV6_FRAGMENT } else { ip_protocol::UDP },
                    hop_limit: HOP_LIMIT,
                    source: octets(source),
                    destination: octets(destination),
                };
                out.put(&ip);
                if is_fragment {
                    out.put(&FragmentHeader {
                        next_header: ip_protocol::UDP,
                        reserved: 0,
                        offset_more: (part.start as u16 | u16::from(more)).into(),
                        id: self.id.into(),
                    });
                }
                ip.pseudo_header(ip_protocol::UDP, all as u16)
            }
        }
    }

    fn wants_checksum(&self) -> bool {
        self.checksums || self.ends.source.is_ipv6()
    }

    /// The only frame of a request.
    #[inline]
    fn whole<B: Buf>(&self, request: &Request, all: usize, frame: &mut B) -> Option<()> {
        let bytes = self.ends.link_bytes() + self.ends.ip_bytes() + all;
        let mut front = Front { out: frame.append(bytes)?, at: 0 };
        let pseudo = self.below(&mut front, &(0..all), all);
        let (udp_at, mut udp) = (front.at, self.udp(all));
        let payload = &mut front.out[udp_at + UDP_BYTES..];
        request.write(0..request.len(), payload);
        if self.wants_checksum() {
            udp.checksum = udp.compute_checksum(pseudo, payload).into();
        }
        front.put(&udp);
        Some(())
    }

    /// All frames of a long request.
    fn fragments<B: Buf>(
        &self,
        request: &Request,
        all: usize,
        frames: usize,
        empty: &mut ArrayVec<B, FRAGMENTS_MAX>,
        put: impl FnMut(B),
    ) -> Option<()> {
        let step = self.ends.fragment_bytes(self.mtu);
        let keep = empty.len() - frames;
        let (mut sum, mut udp_at) = (InternetChecksum::new(), 0);
        for (index, frame) in empty[keep..].iter_mut().enumerate() {
            let part = index * step..all.min((index + 1) * step);
            let extension = if self.ends.source.is_ipv4() { 0 } else { size_of::<FragmentHeader>() };
            let bytes = self.ends.link_bytes() + self.ends.ip_bytes() + extension + part.len();
            let mut front = Front { out: frame.append(bytes)?, at: 0 };
            let pseudo = self.below(&mut front, &part, all);
            let at = front.at;
            if index == 0 {
                (sum, udp_at) = (pseudo, at);
                front.put(&self.udp(all));
            }
            let from = part.start.max(UDP_BYTES);
            request.write(from - UDP_BYTES..part.end - UDP_BYTES, &mut front.out[at + from - part.start..]);
            sum = sum.with(&front.out[at..]);
        }
        if self.wants_checksum() {
            let checksum = match sum.finish() {
                0 => 0xFFFF,
                sum => sum,
            };
            let first = empty[keep].try_unique()?;
            first[udp_at + 6..udp_at + 8].copy_from_slice(&checksum.to_be_bytes());
        }
        empty.drain(keep..).for_each(put);
        Some(())
    }
}
