//! Pings, answered in the frame they came in.

use super::nd::icmpv6;
use super::sort::header;
use super::{Fate, Host};
use rdma_engine::wire::{EthernetHeader, IcmpEcho, Ipv4Header, Ipv6Header, icmp_type, internet_checksum};
use std::net::Ipv4Addr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Hop limit of answers.
const HOPS: u8 = 64;

/// The header at `at`, to be changed.
fn header_mut<T>(frame: &mut [u8], at: usize) -> Option<&mut T>
where
    T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned,
{
    T::mut_from_prefix(frame.get_mut(at..)?).ok().map(|(header, _)| header)
}

/// Back to where it came from.
fn turn(frame: &mut [u8], host: &Host) -> Option<()> {
    let ethernet = header_mut::<EthernetHeader>(frame, 0)?;
    ethernet.destination = ethernet.source;
    ethernet.source = host.settings.mac;
    Some(())
}

/// True for an address that an answer may go to.
fn is_answerable(ip: Ipv4Addr) -> bool {
    !ip.is_multicast() && !ip.is_broadcast() && !ip.is_unspecified() && !ip.is_loopback()
}

impl Host {
    /// Turns an ICMP echo request into its reply; other ICMP messages are only read.
    pub(super) fn answer_echo_v4(&mut self, frame: &mut [u8], l3: usize) -> Option<Fate> {
        let ip = *header::<Ipv4Header>(frame, l3)?;
        let (start, end) = (l3 + size_of::<Ipv4Header>(), l3 + usize::from(ip.total_len.get()));
        let message = frame.get(start..end)?;
        let sound = ip.version_ihl == Ipv4Header::VERSION_IHL && ip.checksum_ok() && !ip.is_fragment();
        if !sound || internet_checksum(message) != 0 || !is_answerable(ip.source_addr()) {
            return None;
        }
        let echo = header::<IcmpEcho>(message, 0)?;
        if echo.kind != icmp_type::ECHO_REQUEST || echo.code != 0 {
            return Some(Fate::Read);
        }
        turn(frame, self)?;
        let ip = header_mut::<Ipv4Header>(frame, l3)?;
        (ip.source, ip.destination, ip.ttl) = (ip.destination, ip.source, HOPS);
        ip.set_checksum();
        let message = &mut frame[start..end];
        let echo = header_mut::<IcmpEcho>(message, 0)?;
        (echo.kind, echo.checksum) = (icmp_type::ECHO_REPLY, 0.into());
        let sum = internet_checksum(message);
        header_mut::<IcmpEcho>(message, 0)?.checksum = sum.into();
        Some(Fate::Answer(end))
    }

    /// Turns an ICMPv6 echo request, checked already, into its reply.
    pub(super) fn answer_echo_v6(&mut self, frame: &mut [u8], l3: usize) -> Option<Fate> {
        let (ip, message) = icmpv6(frame, l3)?;
        let (source, len) = (ip.source_addr(), message.len());
        if !self.v6.contains(&ip.destination_addr()) || source.is_multicast() || source.is_unspecified() {
            return Some(Fate::Read);
        }
        header::<IcmpEcho>(message, 0)?;
        turn(frame, self)?;
        let ip = header_mut::<Ipv6Header>(frame, l3)?;
        (ip.source, ip.destination, ip.hop_limit) = (ip.destination, ip.source, HOPS);
        let ip = *ip;
        let start = l3 + size_of::<Ipv6Header>();
        let message = &mut frame[start..start + len];
        let echo = header_mut::<IcmpEcho>(message, 0)?;
        (echo.kind, echo.checksum) = (icmp_type::ECHO_REPLY_V6, 0.into());
        let sum = ip.icmpv6_checksum(message);
        header_mut::<IcmpEcho>(message, 0)?.checksum = sum.into();
        Some(Fate::Answer(start + len))
    }
}
