//! Whose a frame is.

use super::Host;
use rdma_engine::wire::{
    ArpPacket, EthernetHeader, Ipv4Header, Ipv6Header, Link, Mac, NeighborAdvertisement, ROCE_PORT,
    ethertype, icmp_type, ip_protocol,
};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use zerocopy::FromBytes;

/// The last frame that was ours but for its VLAN: from the workers of a port to control.
#[derive(Clone, Default, Debug)]
pub struct OtherVlan(Arc<AtomicU32>);

impl OtherVlan {
    /// There was one.
    const SEEN: u32 = 1 << 31;

    /// One with this VLAN id, `None` without a tag, came in.
    fn note(&self, id: Option<u16>) {
        self.0.store(Self::SEEN | u32::from(id.unwrap_or(0)), Ordering::Relaxed);
    }

    /// The VLAN id of the last one (`None` for no tag) since this was last asked, if there was one.
    pub fn take(&self) -> Option<Option<u16>> {
        let seen = self.0.swap(0, Ordering::Relaxed);
        (seen & Self::SEEN != 0).then_some(match seen as u16 {
            0 => None,
            id => Some(id),
        })
    }
}

/// What a frame is to a port with addresses of our own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    /// A RoCEv2 packet to one of our addresses; its base transport header begins at this offset.
    Roce(usize),
    /// For the host side.
    Host,
    /// Said to everybody, our neighbours' addresses in it: worth reading, and not ours alone.
    Overheard,
    /// One of our own that has come back: the port is part of a loop.
    Returned,
    /// None of ours.
    Other,
}

impl Host {
    /// Whose `frame` is. It may be the first segment only, as long as that holds the headers.
    #[inline(always)]
    pub fn sort(&self, frame: &[u8]) -> Sort {
        let Ok(link) = Link::parse(frame) else { return Sort::Other };
        if !self.is_our_vlan(&link) {
            self.note_other_vlan(link, frame);
            return Sort::Other;
        }
        if link.ethernet.source == self.settings.mac {
            return Sort::Returned;
        }
        self.sort_in_vlan(&link, frame)
    }

    /// Whose a frame is but for its VLAN.
    #[inline(always)]
    fn sort_in_vlan(&self, link: &Link<'_>, frame: &[u8]) -> Sort {
        let to_us = link.ethernet.destination == self.settings.mac;
        match link.ethertype {
            ethertype::IPV4 if to_us => self.sort_v4(frame, link.l3),
            ethertype::IPV6 => self.sort_v6(frame, link.l3, link.ethernet, to_us),
            ethertype::ARP => self.sort_arp(frame, link.l3, to_us),
            _ => Sort::Other,
        }
    }

    /// True if `frame` comes from a neighbour of ours itself: what such a one says about its address is for us, and nothing
    /// that a client behind the port waits for. Two relays on one network would carry it in circles.
    pub fn is_from_neighbour(&self, frame: &[u8]) -> bool {
        header::<EthernetHeader>(frame, 0).is_some_and(|e| self.neighbours.has(e.source))
    }

    /// Our tag, or where we have none: no tag, or one that only gives a priority.
    #[inline]
    pub(crate) fn is_our_vlan(&self, link: &Link<'_>) -> bool {
        match (self.settings.vlan, link.vlans.tags()) {
            (None, []) => true,
            (own, [(ethertype::VLAN, tci)]) => own.unwrap_or(0) == tci & 0x0FFF,
            _ => false,
        }
    }

    /// Remembers that a frame which is ours but for its VLAN came in.
    #[cold]
    fn note_other_vlan(&self, link: Link<'_>, frame: &[u8]) {
        if matches!(self.sort_in_vlan(&link, frame), Sort::Roce(_) | Sort::Host) {
            let id = link.vlans.tags().first().map(|(_, tci)| tci & 0x0FFF);
            self.settings.other_vlan.note(id.filter(|id| *id != 0));
        }
    }

    #[inline]
    fn sort_v4(&self, frame: &[u8], l3: usize) -> Sort {
        let Some(ip) = header::<Ipv4Header>(frame, l3) else { return Sort::Other };
        if !self.v4.contains(&ip.destination_addr()) {
            return Sort::Other;
        }
        let l4 = l3 + usize::from(ip.version_ihl & 0xF) * 4;
        match ip.protocol {
            ip_protocol::UDP if port_of(frame, l4) == Some(ROCE_PORT) => Sort::Roce(l4 + 8),
            ip_protocol::ICMP => Sort::Host,
            _ => Sort::Other,
        }
    }

    #[inline]
    fn sort_v6(&self, frame: &[u8], l3: usize, ethernet: &EthernetHeader, to_us: bool) -> Sort {
        let Some(ip) = header::<Ipv6Header>(frame, l3) else { return Sort::Other };
        let (l4, destination) = (l3 + size_of::<Ipv6Header>(), ip.destination_addr());
        let ours = to_us && self.v6.contains(&destination);
        match ip.next_header {
            ip_protocol::UDP if ours && port_of(frame, l4) == Some(ROCE_PORT) => Sort::Roce(l4 + 8),
            ip_protocol::ICMPV6 if ours => Sort::Host,
            ip_protocol::ICMPV6 if to_us || ethernet.destination.is_multicast() => {
                self.sort_nd(frame, l4, to_us)
            }
            _ => Sort::Other,
        }
    }

    /// Neighbour discovery that is not addressed to one of our unicast addresses.
    #[cold]
    fn sort_nd(&self, frame: &[u8], l4: usize, to_us: bool) -> Sort {
        // Solicitation and advertisement have the same shape.
        let Some(message) = header::<NeighborAdvertisement>(frame, l4) else { return Sort::Other };
        let target = Ipv6Addr::from(message.target);
        match message.kind {
            icmp_type::NEIGHBOR_SOLICITATION if self.v6.contains(&target) => Sort::Host,
            icmp_type::NEIGHBOR_ADVERTISEMENT if to_us => Sort::Host,
            icmp_type::NEIGHBOR_ADVERTISEMENT => Sort::Overheard,
            _ => Sort::Other,
        }
    }

    #[cold]
    fn sort_arp(&self, frame: &[u8], l3: usize, to_us: bool) -> Sort {
        let Some(arp) = header::<ArpPacket>(frame, l3) else { return Sort::Other };
        let for_us = self.v4.contains(&arp.target_ip.into());
        let broadcast = header::<EthernetHeader>(frame, 0).is_some_and(|e| e.destination == Mac::BROADCAST);
        match (for_us && (to_us || broadcast), broadcast) {
            (true, _) => Sort::Host,
            (false, true) => Sort::Overheard,
            (false, false) => Sort::Other,
        }
    }
}

/// The header at `at`.
#[inline]
pub(crate) fn header<T>(frame: &[u8], at: usize) -> Option<&T>
where
    T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned,
{
    T::ref_from_prefix(frame.get(at..)?).ok().map(|(header, _)| header)
}

/// The destination port of the UDP header at `l4`.
#[inline]
fn port_of(frame: &[u8], l4: usize) -> Option<u16> {
    let port = frame.get(l4 + 2..l4 + 4)?;
    Some(u16::from_be_bytes([port[0], port[1]]))
}
