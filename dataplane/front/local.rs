//! Our side of a conversation: one of our addresses, and the headers of all datagrams from it.

use super::FrontSettings;
use super::peer::Peer;
use crate::memcached::udp::{FrameHeader, HEADER_BYTES};
use arrayvec::ArrayVec;
use dpdk_bind::mbuf::{TxL3, TxL4, TxOffload};
use rdma_engine::wire::{
    EthernetHeader, InternetChecksum, Ipv4Header, Ipv6Header, Mac, UdpHeader, VlanTag, ethertype, ip_protocol,
};
use std::net::IpAddr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most bytes of headers: Ethernet, VLAN tag, IPv6, UDP, frame header.
pub(super) const MAX_HEADERS: usize = 14 + 4 + 40 + 8 + HEADER_BYTES;
/// Hops that a reply may take.
const HOPS: u8 = 64;

/// What is above IP in front of the text.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Upper {
    udp: UdpHeader,
    frame: FrameHeader,
}

/// One of our addresses.
#[derive(Clone, Debug)]
pub(super) struct Local {
    address: IpAddr,
    /// Another station has it: it is not used.
    given_up: bool,
    /// Headers with zeros where replies differ.
    headers: ArrayVec<u8, MAX_HEADERS>,
    /// Where the IP header begins, and the UDP header.
    l3: usize,
    l4: usize,
    /// Sum of the IPv4 header as it is in `headers`.
    ip_sum: InternetChecksum,
    /// Sum of our address and the protocol number: our part of the pseudo header.
    pseudo: InternetChecksum,
    /// Text in a full datagram, bytes.
    text_bytes: usize,
    offload: Offload,
}

/// What is left to the port.
#[derive(Clone, Copy, Debug)]
struct Offload {
    ip: bool,
    udp: bool,
}

impl Local {
    pub(super) fn new(address: IpAddr, settings: &FrontSettings) -> Self {
        let mut headers = ArrayVec::new();
        let put = |headers: &mut ArrayVec<u8, MAX_HEADERS>, bytes: &[u8]| {
            headers.try_extend_from_slice(bytes).expect("the most bytes of headers fit");
        };
        let network = if address.is_ipv4() { ethertype::IPV4 } else { ethertype::IPV6 };
        let outer = if settings.host.vlan.is_some() { ethertype::VLAN } else { network };
        let ethernet = EthernetHeader {
            destination: Mac::default(),
            source: settings.host.mac,
            ethertype: outer.into(),
        };
        put(&mut headers, ethernet.as_bytes());
        if let Some(id) = settings.host.vlan {
            put(&mut headers, VlanTag { tci: id.into(), ethertype: network.into() }.as_bytes());
        }
        let l3 = headers.len();
        match address {
            IpAddr::V4(ip) => put(&mut headers, ipv4(ip.octets()).as_bytes()),
            IpAddr::V6(ip) => put(&mut headers, ipv6(ip.octets()).as_bytes()),
        }
        let ip_sum = InternetChecksum::new().with(&headers[l3..]);
        let l4 = headers.len();
        let (source_port, zero) = (settings.port.into(), 0.into());
        let udp = UdpHeader { source_port, destination_port: zero, len: zero, checksum: zero };
        put(&mut headers, udp.as_bytes());
        put(&mut headers, FrameHeader::default().as_bytes());
        let tx = settings.tx_checksums;
        Local {
            address,
            given_up: false,
            headers,
            l3,
            l4,
            ip_sum,
            pseudo: sum_address(address).with_word(ip_protocol::UDP.into()),
            text_bytes: settings.datagram_bytes_from(address) - HEADER_BYTES,
            offload: Offload { ip: tx.ip && address.is_ipv4(), udp: tx.udp },
        }
    }

    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    /// True if packets to `address` are for us here.
    #[inline]
    pub(super) fn takes(&self, address: IpAddr) -> bool {
        self.address == address && !self.given_up
    }

    /// Takes nothing any more.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
    }

    /// Bytes of a datagram's headers, frame header included.
    #[inline]
    pub(super) fn header_bytes(&self) -> usize {
        self.headers.len()
    }

    /// Bytes of text in a full datagram.
    #[inline]
    pub(super) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// True if the text of datagrams to this client has to be summed.
    #[inline]
    pub(super) fn sums(&self, peer: &Peer) -> bool {
        !self.offload.udp && (peer.checksum || peer.remote.is_ipv6())
    }

    /// Sum of the pseudo header of `len` bytes of UDP to or from `remote`.
    #[inline]
    pub(super) fn pseudo_header(&self, remote: IpAddr, len: u16) -> InternetChecksum {
        self.pseudo.with_sum(sum_address(remote)).with_word(len)
    }

    /// What the port is asked to do with a datagram.
    #[inline]
    pub(super) fn tx_offload(&self) -> Option<TxOffload> {
        let Offload { ip, udp } = self.offload;
        (ip || udp).then(|| TxOffload {
            l2_len: self.l3 as u8,
            l3_len: (self.l4 - self.l3) as u16,
            l3: if self.address.is_ipv4() { TxL3::Ipv4 { checksum: ip } } else { TxL3::Ipv6 },
            l4: udp.then_some(TxL4::Udp),
        })
    }

    /// Writes the headers of a datagram with `text_len` bytes, whose sum is `text`, into `out`, which is as long as they
    /// are.
    #[inline]
    pub(super) fn write(
        &self,
        out: &mut [u8],
        peer: &Peer,
        header: &FrameHeader,
        text_len: usize,
        text: InternetChecksum,
    ) {
        out.copy_from_slice(&self.headers);
        let (lower, upper) = out.split_at_mut(self.l4);
        let (Ok((ethernet, _)), Ok(upper)) =
            (EthernetHeader::mut_from_prefix(&mut *lower), Upper::mut_from_bytes(upper))
        else {
            unreachable!("the headers are whole")
        };
        ethernet.destination = peer.mac;
        let udp_len = (size_of::<Upper>() + text_len) as u16;
        self.write_ip(&mut lower[self.l3..], peer.remote, udp_len);
        upper.udp.destination_port = peer.port.into();
        upper.udp.len = udp_len.into();
        upper.frame = *header;
        if self.offload.udp {
            upper.udp.checksum = self.pseudo_header(peer.remote, udp_len).sum().into();
        } else if peer.checksum || peer.remote.is_ipv6() {
            let pseudo = self.pseudo_header(peer.remote, udp_len);
            upper.udp.checksum = upper.sum(pseudo, text).into();
        }
    }

    #[inline]
    fn write_ip(&self, out: &mut [u8], remote: IpAddr, udp_len: u16) {
        match remote {
            IpAddr::V4(to) => {
                let Ok(ip) = Ipv4Header::mut_from_bytes(out) else { unreachable!("the header is whole") };
                ip.total_len = (udp_len + size_of::<Ipv4Header>() as u16).into();
                ip.destination = to.octets();
                if !self.offload.ip {
                    let sum = self.ip_sum.with_word(ip.total_len.get()).with_header(&ip.destination);
                    ip.checksum = sum.finish().into();
                }
            }
            IpAddr::V6(to) => {
                let Ok(ip) = Ipv6Header::mut_from_bytes(out) else { unreachable!("the header is whole") };
                ip.payload_len = udp_len.into();
                ip.destination = to.octets();
            }
        }
    }
}

impl Upper {
    /// The checksum, which is 0 as yet, of a datagram with the sums of its pseudo header and its text.
    #[inline]
    fn sum(&self, pseudo: InternetChecksum, text: InternetChecksum) -> u16 {
        let sum = pseudo.with_header::<{ size_of::<Self>() }>(zerocopy::transmute_ref!(self));
        match sum.with_sum(text).finish() {
            0 => 0xFFFF,
            sum => sum,
        }
    }
}

/// Sum of an address.
#[inline]
fn sum_address(address: IpAddr) -> InternetChecksum {
    match address {
        IpAddr::V4(ip) => InternetChecksum::new().with_header(&ip.octets()),
        IpAddr::V6(ip) => InternetChecksum::new().with_header(&ip.octets()),
    }
}

/// Not to be fragmented, so its identification may be 0 (RFC 6864).
fn ipv4(source: [u8; 4]) -> Ipv4Header {
    Ipv4Header {
        version_ihl: Ipv4Header::VERSION_IHL,
        tos: 0,
        total_len: 0.into(),
        id: 0.into(),
        flags_fragment: Ipv4Header::DONT_FRAGMENT.into(),
        ttl: HOPS,
        protocol: ip_protocol::UDP,
        checksum: 0.into(),
        source,
        destination: [0; 4],
    }
}

fn ipv6(source: [u8; 16]) -> Ipv6Header {
    Ipv6Header {
        version_class_flow: Ipv6Header::first_word(0, 0),
        payload_len: 0.into(),
        next_header: ip_protocol::UDP,
        hop_limit: HOPS,
        source,
        destination: [0; 16],
    }
}
