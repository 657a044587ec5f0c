//! From a frame's bytes to the UDP datagram or fragment inside, for one of our addresses.

use super::FrontDrop;
use super::local::Local;
use crate::host::header;
use rdma_engine::wire::{
    EthernetHeader, InternetChecksum, Ipv4Header, Ipv6FragmentHeader, Ipv6Header, Mac, ip_protocol,
};
use std::net::IpAddr;

/// Most extension headers that are skipped; sensible packets have one.
const MAX_EXTENSIONS: usize = 4;

/// Who sent a packet to which of our addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Path {
    /// Where the frame came from.
    pub(super) mac: Mac,
    /// Index of our address.
    pub(super) local: u16,
    /// The sender.
    pub(super) remote: IpAddr,
}

/// Which part of its packet one holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fragment {
    /// The same in all fragments of a packet.
    pub(super) id: u32,
    /// Bytes of the packet in front of it, a multiple of 8.
    pub(super) offset: usize,
    /// There are more behind it.
    pub(super) more: bool,
}

impl Fragment {
    /// A packet that was never cut.
    const WHOLE: Fragment = Fragment { id: 0, offset: 0, more: false };

    /// True for all of a packet, also for a fragment that is (RFC 6946).
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.offset == 0 && !self.more
    }
}

/// A UDP packet to one of our addresses, or a fragment of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) path: Path,
    /// Where the UDP header, or the fragment's data, begins.
    pub(super) l4: usize,
    /// Where the packet ends; padding of the frame lies beyond.
    pub(super) end: usize,
    pub(super) fragment: Fragment,
}

/// An IP frame, read up to its Ethernet headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    /// The frame.
    pub(super) bytes: &'a [u8],
    /// Where its IP header begins.
    pub(super) l3: usize,
    /// Our MAC address.
    pub(super) mac: Mac,
    /// Our addresses.
    pub(super) locals: &'a [Local],
    /// True if the port has checked the IPv4 header checksum.
    pub(super) ip_checked: bool,
}

/// One function for each version, as what is known of addresses makes code short. Both give nothing where the packet is
/// for the host side.
impl Reader<'_> {
    /// The path, if the frame is addressed to us and nobody else.
    #[inline(always)]
    fn path(&self, local: IpAddr, remote: IpAddr) -> Result<Path, FrontDrop> {
        let ethernet = header::<EthernetHeader>(self.bytes, 0).ok_or(FrontDrop::Runt)?;
        if ethernet.destination != self.mac {
            return Err(FrontDrop::NotForUs);
        }
        for (index, own) in (0..).zip(self.locals) {
            if own.takes(local) {
                let mac = ethernet.source;
                let path = Path { mac, local: index, remote };
                return if mac.is_multicast() { Err(FrontDrop::Source) } else { Ok(path) };
            }
        }
        Err(FrontDrop::NotForUs)
    }

    #[inline(always)]
    pub(super) fn ipv4(&self) -> Result<Option<Packet>, FrontDrop> {
        let (bytes, l3) = (self.bytes, self.l3);
        let ip = header::<Ipv4Header>(bytes, l3).ok_or(FrontDrop::Runt)?;
        if ip.protocol == ip_protocol::ICMP && !ip.is_fragment() {
            return Ok(None);
        }
        let path = self.path(ip.destination_addr().into(), ip.source_addr().into())?;
        let (l4, end) = (l3 + usize::from(ip.version_ihl & 0xF) * 4, l3 + usize::from(ip.total_len.get()));
        if ip.version_ihl >> 4 != 4 || l4 < l3 + size_of::<Ipv4Header>() || end < l4 {
            return Err(FrontDrop::Malformed);
        }
        if end > bytes.len() {
            return Err(FrontDrop::Runt);
        }
        if ip.version_ihl != Ipv4Header::VERSION_IHL {
            check_v4_options(&bytes[l3..l4], self.ip_checked)?;
        } else if !self.ip_checked && !ip.checksum_ok() {
            return Err(FrontDrop::IpChecksum);
        }
        if ip.protocol != ip_protocol::UDP {
            return Err(FrontDrop::NotUdp);
        }
        let word = ip.flags_fragment.get();
        let fragment = Fragment {
            id: ip.id.get().into(),
            offset: usize::from(word & 0x1FFF) * 8,
            more: word & Ipv4Header::MORE_FRAGMENTS != 0,
        };
        Ok(Some(Packet { path, l4, end, fragment }))
    }

    #[inline(always)]
    pub(super) fn ipv6(&self) -> Result<Option<Packet>, FrontDrop> {
        let (bytes, l3) = (self.bytes, self.l3);
        let ip = header::<Ipv6Header>(bytes, l3).ok_or(FrontDrop::Runt)?;
        if ip.next_header == ip_protocol::ICMPV6 {
            return Ok(None);
        }
        let path = self.path(ip.destination_addr().into(), ip.source_addr().into())?;
        let l4 = l3 + size_of::<Ipv6Header>();
        let end = l4 + usize::from(ip.payload_len.get());
        if ip.version() != 6 {
            return Err(FrontDrop::Malformed);
        }
        if end > bytes.len() {
            return Err(FrontDrop::Runt);
        }
        let (l4, fragment) = match ip.next_header {
            ip_protocol::UDP => (l4, Fragment::WHOLE),
            first => skip_extensions(&bytes[..end], l4, first)?,
        };
        Ok(Some(Packet { path, l4, end, fragment }))
    }
}

/// The checksum of an IPv4 header with options, and these: those that may be ignored are; those that want the packet to
/// take a way of the sender's choice are not served.
#[cold]
fn check_v4_options(header: &[u8], ip_checked: bool) -> Result<(), FrontDrop> {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const SOURCE_ROUTES: [u8; 2] = [131, 137];
    if !ip_checked && InternetChecksum::new().with(header).finish() != 0 {
        return Err(FrontDrop::IpChecksum);
    }
    let mut options = &header[size_of::<Ipv4Header>()..];
    while let Some(&kind) = options.first() {
        if kind == END {
            break;
        }
        let len = match options.get(1) {
            _ if kind == NO_OPERATION => 1,
            Some(&len) if len >= 2 && !SOURCE_ROUTES.contains(&kind) => usize::from(len),
            _ => return Err(FrontDrop::IpOptions),
        };
        options = options.get(len..).ok_or(FrontDrop::IpOptions)?;
    }
    Ok(())
}

/// Where UDP, or a fragment of it, begins behind extension headers; the first of them is `kind` at `at`.
#[cold]
fn skip_extensions(bytes: &[u8], mut at: usize, mut kind: u8) -> Result<(usize, Fragment), FrontDrop> {
    for count in 0..MAX_EXTENSIONS {
        match kind {
            ip_protocol::UDP => return Ok((at, Fragment::WHOLE)),
            ip_protocol::IPV6_FRAGMENT => {
                let fragment = header::<Ipv6FragmentHeader>(bytes, at).ok_or(FrontDrop::Runt)?;
                at += size_of::<Ipv6FragmentHeader>();
                kind = fragment.next_header;
                // One that is all of its packet is treated by itself (RFC 6946).
                if fragment.offset() == 0 && !fragment.more() {
                    continue;
                }
                if kind != ip_protocol::UDP {
                    return Err(FrontDrop::NotUdp);
                }
                let (offset, more) = (fragment.offset(), fragment.more());
                return Ok((at, Fragment { id: fragment.id.get(), offset, more }));
            }
            ip_protocol::HOP_BY_HOP if count > 0 => return Err(FrontDrop::IpOptions),
            ip_protocol::HOP_BY_HOP | ip_protocol::DESTINATION_OPTIONS | ip_protocol::IPV6_ROUTING => {
                let &[next, units] = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(FrontDrop::Runt)?;
                let len = (usize::from(units) + 1) * 8;
                let body = bytes.get(at + 2..at + len).ok_or(FrontDrop::Runt)?;
                check_v6_extension(kind, body)?;
                (kind, at) = (next, at + len);
            }
            _ => return Err(FrontDrop::NotUdp),
        }
    }
    if kind == ip_protocol::UDP { Ok((at, Fragment::WHOLE)) } else { Err(FrontDrop::IpOptions) }
}

/// Refuses routes that do not end here and options whose first bits say so to whoever does not know them.
fn check_v6_extension(kind: u8, body: &[u8]) -> Result<(), FrontDrop> {
    if kind == ip_protocol::IPV6_ROUTING {
        let segments_left = body[1];
        return if segments_left == 0 { Ok(()) } else { Err(FrontDrop::IpOptions) };
    }
    let mut options = body;
    while let Some(&option) = options.first() {
        const PAD1: u8 = 0;
        const OR_DISCARD: u8 = 0xC0;
        let len = match options.get(1) {
            _ if option == PAD1 => 1,
            Some(&len) if option & OR_DISCARD == 0 => 2 + usize::from(len),
            _ => return Err(FrontDrop::IpOptions),
        };
        options = options.get(len..).ok_or(FrontDrop::IpOptions)?;
    }
    Ok(())
}
