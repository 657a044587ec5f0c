//! Neighbour discovery: who has an IPv6 address.

use super::message::Message;
use super::sort::header;
use super::{Fate, Host};
use rdma_engine::wire::{
    EthernetHeader, Icmpv6LinkOption, Ipv6Header, Mac, NeighborAdvertisement, NeighborSolicitation, icmp_type,
};
use std::net::{IpAddr, Ipv6Addr};

/// The IPv6 header at `l3` and the message behind it, whose checksum is right.
pub(super) fn icmpv6(frame: &[u8], l3: usize) -> Option<(&Ipv6Header, &[u8])> {
    let ip = header::<Ipv6Header>(frame, l3)?;
    let start = l3 + size_of::<Ipv6Header>();
    let message = frame.get(start..start + usize::from(ip.payload_len.get()))?;
    (ip.version() == 6 && ip.icmpv6_checksum(message) == 0).then_some((ip, message))
}

/// The link-layer address option of this kind among `options`.
fn link_option(mut options: &[u8], kind: u8) -> Option<Mac> {
    while let Some(&[found, units]) = options.get(..2) {
        let len = usize::from(units) * 8;
        if found == kind && units == 1 {
            return header::<Icmpv6LinkOption>(options, 0).map(|option| option.mac);
        }
        // A length of 0 makes the message invalid.
        options = options.get(len..).filter(|_| len > 0)?;
    }
    None
}

impl Host {
    pub(super) fn read_icmpv6(&mut self, frame: &mut [u8], l3: usize) -> Option<Fate> {
        let (ip, message) = icmpv6(frame, l3)?;
        match *message.first()? {
            icmp_type::NEIGHBOR_SOLICITATION => {
                let solicitation = header::<NeighborSolicitation>(message, 0).filter(|s| s.is_valid(ip))?;
                let options = &message[size_of::<NeighborSolicitation>()..];
                let source = link_option(options, Icmpv6LinkOption::source(Mac::default()).kind);
                let sender = header::<EthernetHeader>(frame, 0)?.source;
                self.on_solicitation(ip.source_addr(), solicitation.target.into(), source, sender)
            }
            icmp_type::NEIGHBOR_ADVERTISEMENT => {
                let advertisement = header::<NeighborAdvertisement>(message, 0).filter(|a| a.is_valid(ip))?;
                let options = &message[size_of::<NeighborAdvertisement>()..];
                let sender = header::<EthernetHeader>(frame, 0)?.source;
                let mac = link_option(options, Icmpv6LinkOption::target(Mac::default()).kind);
                let (ip, mac) = (IpAddr::V6(advertisement.target.into()), mac.unwrap_or(sender));
                // Without the override flag it replaces nothing that is known.
                if advertisement.flags.get() & NeighborAdvertisement::OVERRIDE != 0
                    || !self.neighbours.knows_other(ip, mac)
                {
                    self.hear(ip, mac);
                }
                Some(Fate::Read)
            }
            icmp_type::ECHO_REQUEST_V6 => self.answer_echo_v6(frame, l3),
            // Replies to pings we never sent, router advertisements, errors.
            _ => Some(Fate::Read),
        }
    }

    /// Answers whoever asks for an address of ours. One without an address of its own wants to have the one it asks for
    /// (RFC 4862): it is told by telling all, unless we are not sure ourselves; then neither may have it.
    fn on_solicitation(
        &mut self,
        from: Ipv6Addr,
        target: Ipv6Addr,
        mac: Option<Mac>,
        sender: Mac,
    ) -> Option<Fate> {
        if from.is_multicast() {
            return None;
        }
        let probe = from.is_unspecified();
        if let Some(mac) = mac.filter(|_| !probe) {
            self.hear(IpAddr::V6(from), mac);
        }
        if probe && self.is_optimistic() && self.v6.contains(&target) {
            self.object(target, sender);
        }
        if self.v6.contains(&target) {
            self.say(match mac.filter(|mac| !probe && !mac.is_multicast()) {
                Some(mac) => Message::Advertise { target, to: from, mac },
                None => Message::Announce(IpAddr::V6(target)),
            });
        }
        Some(Fate::Read)
    }
}
