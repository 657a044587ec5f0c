//! Frames that arrive: replies of the server, and what else there is.

use super::headers::Ends;
use crate::host::header;
use rdma_engine::wire::{Ipv4Header, Ipv6Header, Link, UdpHeader, ethertype, ip_protocol};
use std::net::IpAddr;
use std::ops::Range;

/// Where a reply lies in its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// Which of our ports it came to.
    pub(super) port: u16,
    /// The datagram behind the UDP header, in bytes of the frame.
    pub(super) payload: Range<usize>,
}

/// What a frame is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// From the server, to one of our addresses' ports.
    Reply(Reply),
    /// The same with a checksum that is wrong.
    BadChecksum,
    /// Something else.
    Other,
}

impl Ends {
    /// What `frame` is, which may be the first piece of `frame_bytes` bytes as long as the headers are inside. Checksums of
    /// UDP are verified if `checksums`, where the frame is in one piece.
    #[inline]
    pub(super) fn arrival(&self, frame: &[u8], frame_bytes: usize, checksums: bool) -> Arrival {
        self.read(frame, frame_bytes, checksums).unwrap_or(Arrival::Other)
    }

    #[inline]
    fn read(&self, frame: &[u8], frame_bytes: usize, checksums: bool) -> Option<Arrival> {
        let link = Link::parse(frame).ok()?;
        let tag = link.vlans.ids().next().filter(|id| *id != 0);
        if link.ethernet.destination != self.source_mac || tag != self.vlan {
            return None;
        }
        let (l4, end, pseudo) = match (link.ethertype, self.source, self.server.ip()) {
            (ethertype::IPV4, IpAddr::V4(own), IpAddr::V4(server)) => {
                let ip = header::<Ipv4Header>(frame, link.l3)?;
                let ours = ip.destination == own.octets() && ip.source == server.octets();
                if !ours || ip.protocol != ip_protocol::UDP || ip.is_fragment() {
                    return None;
                }
                if !ip.checksum_ok() {
                    return Some(Arrival::BadChecksum);
                }
                let (header_bytes, total) =
                    (usize::from(ip.version_ihl & 0xF) * 4, usize::from(ip.total_len.get()));
                let udp_bytes = total.checked_sub(header_bytes)? as u16;
                (link.l3 + header_bytes, link.l3 + total, ip.pseudo_header(udp_bytes))
            }
            (ethertype::IPV6, IpAddr::V6(own), IpAddr::V6(server)) => {
                let ip = header::<Ipv6Header>(frame, link.l3)?;
                let ours = ip.destination == own.octets() && ip.source == server.octets();
                if !ours || ip.next_header != ip_protocol::UDP {
                    return None;
                }
                let (l4, bytes) = (link.l3 + size_of::<Ipv6Header>(), ip.payload_len.get());
                (l4, l4 + usize::from(bytes), ip.pseudo_header(ip_protocol::UDP, bytes))
            }
            _ => return None,
        };
        let udp = header::<UdpHeader>(frame, l4)?;
        let payload = l4 + size_of::<UdpHeader>()..l4 + usize::from(udp.len.get());
        if udp.source_port.get() != self.server.port() || payload.end != end || payload.is_empty() {
            return None;
        }
        if payload.end > frame_bytes {
            return None;
        }
        let whole = frame.get(payload.clone()).filter(|_| checksums);
        if whole.is_some_and(|bytes| !udp.checksum_ok(pseudo, bytes)) {
            return Some(Arrival::BadChecksum);
        }
        Some(Arrival::Reply(Reply { port: udp.destination_port.get(), payload }))
    }
}
