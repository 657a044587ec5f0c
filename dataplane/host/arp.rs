//! ARP: who has an IPv4 address.

use super::message::Message;
use super::sort::header;
use super::{Fate, Host};
use rdma_engine::types::Time;
use rdma_engine::wire::{ArpOperation, ArpPacket, Link, ethertype, ip_protocol};
use std::net::{IpAddr, Ipv4Addr};

impl Host {
    /// Reads a frame; `None` if it makes no sense.
    pub(super) fn read(&mut self, _now: Time, frame: &mut [u8]) -> Option<Fate> {
        let link = Link::parse(frame).ok()?;
        let (l3, ethertype) = (link.l3, link.ethertype);
        match ethertype {
            ethertype::ARP => self.read_arp(frame, l3),
            ethertype::IPV4 => self.answer_echo_v4(frame, l3),
            ethertype::IPV6 if frame.get(l3 + 6) == Some(&ip_protocol::ICMPV6) => self.read_icmpv6(frame, l3),
            _ => None,
        }
    }

    fn read_arp(&mut self, frame: &[u8], l3: usize) -> Option<Fate> {
        let arp = header::<ArpPacket>(frame, l3)?;
        let operation = arp.operation()?;
        let (sender, target) = (Ipv4Addr::from(arp.sender_ip), Ipv4Addr::from(arp.target_ip));
        // A probe has no sender address yet (RFC 5227).
        if !sender.is_unspecified() {
            self.hear(IpAddr::V4(sender), arp.sender_mac);
        }
        if operation == ArpOperation::Request && self.v4.contains(&target) && !arp.sender_mac.is_multicast() {
            self.say(Message::ArpReply { answer: arp.reply(self.settings.mac) });
        }
        Some(Fate::Read)
    }
}
