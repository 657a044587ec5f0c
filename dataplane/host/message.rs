//! Frames of our own: questions, answers, announcements.

use super::HostSettings;
use rdma_engine::wire::{
    ArpPacket, EthernetHeader, Icmpv6LinkOption, Ipv6Header, Mac, NeighborAdvertisement,
    NeighborSolicitation, VlanTag, ethertype, ip_protocol,
};
use std::net::{IpAddr, Ipv6Addr};
use zerocopy::{Immutable, IntoBytes};

/// Longest frame of the host side: neighbour discovery with a VLAN tag.
pub const MAX_FRAME: usize = 14 + 4 + 40 + 24 + 8;
/// Shortest Ethernet frame without frame check sequence.
const MIN_FRAME: usize = 60;

/// A frame that waits to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// "`hop`, where are you? Tell `from`."
    Ask {
        /// Our address.
        from: IpAddr,
        /// Whom we look for.
        hop: IpAddr,
    },
    /// "Has anybody this address?" (RFC 4862)
    Probe(Ipv6Addr),
    /// "This address of ours is here", to everybody.
    Announce(IpAddr),
    /// The answer to an ARP request.
    ArpReply {
        /// As it is sent.
        answer: ArpPacket,
    },
    /// The answer to a neighbour solicitation.
    Advertise {
        /// Our address.
        target: Ipv6Addr,
        /// Who asked.
        to: Ipv6Addr,
        /// And where that is.
        mac: Mac,
    },
}

/// Writes a frame from front to back.
pub(super) struct Writer<'a> {
    out: &'a mut [u8; MAX_FRAME],
    at: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut [u8; MAX_FRAME]) -> Self {
        out.fill(0);
        Writer { out, at: 0 }
    }

    fn put(&mut self, value: &(impl IntoBytes + Immutable)) {
        let bytes = value.as_bytes();
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn link(&mut self, to: Mac, ethertype: u16, host: &HostSettings) {
        let outer = if host.vlan.is_some() { ethertype::VLAN } else { ethertype };
        self.put(&EthernetHeader { destination: to, source: host.mac, ethertype: outer.into() });
        if let Some(id) = host.vlan {
            self.put(&VlanTag { tci: id.into(), ethertype: ethertype.into() });
        }
    }

    fn arp(&mut self, to: Mac, arp: &ArpPacket, host: &HostSettings) -> usize {
        self.link(to, ethertype::ARP, host);
        self.put(arp);
        self.at.max(MIN_FRAME)
    }

    /// Neighbour discovery: `message` has a checksum of 0 at its third and fourth byte.
    fn icmpv6(
        &mut self,
        to: Mac,
        addresses: (Ipv6Addr, Ipv6Addr),
        message: &(impl IntoBytes + Immutable),
        option: Option<Icmpv6LinkOption>,
        host: &HostSettings,
    ) -> usize {
        self.link(to, ethertype::IPV6, host);
        let len = size_of_val(message) + option.as_ref().map_or(0, size_of_val);
        let ip = Ipv6Header {
            version_class_flow: Ipv6Header::first_word(0, 0),
            payload_len: (len as u16).into(),
            next_header: ip_protocol::ICMPV6,
            // By it the receiver knows that no router was in between.
            hop_limit: 255,
            source: addresses.0.octets(),
            destination: addresses.1.octets(),
        };
        self.put(&ip);
        let start = self.at;
        self.put(message);
        if let Some(option) = option {
            self.put(&option);
        }
        let sum = ip.icmpv6_checksum(&self.out[start..self.at]);
        self.out[start + 2..start + 4].copy_from_slice(&sum.to_be_bytes());
        self.at
    }
}

/// The group that everybody with an address like `target` listens to (RFC 4291), and its MAC address.
fn solicited_node(target: Ipv6Addr) -> (Ipv6Addr, Mac) {
    let [.., a, b, c] = target.octets();
    let group = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 1, 0xFF00 | u16::from(a), u16::from_be_bytes([b, c]));
    (group, Mac([0x33, 0x33, 0xFF, a, b, c]))
}

/// All nodes of the link.
const ALL_NODES: (Ipv6Addr, Mac) =
    (Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 1), Mac([0x33, 0x33, 0, 0, 0, 1]));

impl Message {
    /// True if it says something about `own`, or is sent from there.
    pub(super) fn is_for(&self, own: Ipv6Addr) -> bool {
        match *self {
            Message::Ask { from: ip, .. } | Message::Announce(ip) => ip == IpAddr::V6(own),
            Message::Probe(ip) | Message::Advertise { target: ip, .. } => ip == own,
            Message::ArpReply { .. } => false,
        }
    }

    /// Writes the frame; its length. An `optimistic` host does not override what neighbours remember.
    pub(super) fn write(&self, out: &mut Writer<'_>, host: &HostSettings, optimistic: bool) -> usize {
        let mac = host.mac;
        let overrides = if optimistic { 0 } else { NeighborAdvertisement::OVERRIDE };
        match *self {
            Message::Ask { from: IpAddr::V4(from), hop: IpAddr::V4(hop) } => {
                out.arp(Mac::BROADCAST, &ArpPacket::request(mac, from.octets(), hop.octets()), host)
            }
            // Gratuitous: a request for the address itself.
            Message::Announce(IpAddr::V4(ip)) => {
                out.arp(Mac::BROADCAST, &ArpPacket::request(mac, ip.octets(), ip.octets()), host)
            }
            Message::ArpReply { answer } => out.arp(answer.target_mac, &answer, host),
            Message::Ask { from: IpAddr::V6(from), hop: IpAddr::V6(hop) } => {
                let (group, to) = solicited_node(hop);
                let question = NeighborSolicitation::new(hop.octets());
                out.icmpv6(to, (from, group), &question, Some(Icmpv6LinkOption::source(mac)), host)
            }
            Message::Probe(ip) => {
                let (group, to) = solicited_node(ip);
                let question = NeighborSolicitation::new(ip.octets());
                out.icmpv6(to, (Ipv6Addr::UNSPECIFIED, group), &question, None, host)
            }
            Message::Announce(IpAddr::V6(ip)) => {
                let answer = NeighborAdvertisement::new(ip.octets(), overrides);
                let (all, to) = ALL_NODES;
                out.icmpv6(to, (ip, all), &answer, Some(Icmpv6LinkOption::target(mac)), host)
            }
            Message::Advertise { target, to, mac: there } => {
                let flags = NeighborAdvertisement::SOLICITED | overrides;
                let answer = NeighborAdvertisement::new(target.octets(), flags);
                out.icmpv6(there, (target, to), &answer, Some(Icmpv6LinkOption::target(mac)), host)
            }
            Message::Ask { .. } => unreachable!("a neighbour is asked with an address of its family"),
        }
    }
}
