//! From a received frame to a request.

use super::packet::{Packet, Path, Reader};
use super::peer::Peer;
use super::reassembly::Key;
use super::{Front, FrontDrop, PortBuf};
use crate::host::{Fate, Sort, header};
use crate::memcached::udp::{self, FrameHeader, NotARequest};
use crate::memcached::{Command, KEY_BYTES_MAX, Limits, Parsed, Request, parse};
use crate::service::has_spare;
use dpdk_bind::mbuf::Checksum;
use rdma_engine::buf::{Pool, fill};
use rdma_engine::types::Time;
use rdma_engine::wire::{EthernetHeader, Link, UdpHeader, ethertype};
use std::ops::Range;

/// A request.
#[derive(Debug)]
pub struct Datagram<B> {
    /// Where the reply goes.
    pub peer: Peer,
    /// The frame it came in, or the buffer it was put together in.
    pub frame: B,
    /// The request's text in [`frame.first()`](rdma_engine::buf::Buf::first), not empty.
    pub text: Range<usize>,
    /// The frame is a buffer of `messages`.
    pub in_message: bool,
}

impl<B: PortBuf> Datagram<B> {
    /// The request's text.
    #[inline]
    pub fn text(&self) -> &[u8] {
        &self.frame.first()[self.text.clone()]
    }
}

/// Where in a buffer UDP is to be looked for.
#[derive(Clone, Copy)]
struct Place {
    /// The UDP header.
    l4: usize,
    /// Where the packet ends.
    end: usize,
    /// The port has checked the sum.
    checked: bool,
    /// The buffer is one of `messages`.
    in_message: bool,
}

/// What is known of a frame without reading it.
#[derive(Clone, Copy)]
struct Known {
    /// What the port says about its checksums.
    ip: Checksum,
    udp: Checksum,
    /// It was put together in a buffer of `messages`.
    in_message: bool,
}

/// A buffer of `messages` for a request, if they can spare one.
pub(super) fn spare<B>(messages: &impl Pool<Buf = B>) -> Result<B, FrontDrop>
where
    B: PortBuf,
{
    if has_spare(messages) { messages.alloc() } else { None }.ok_or(FrontDrop::NoBuffer)
}

/// A sum that the port has found right, or that needs none.
fn is_checked(verdict: Checksum) -> bool {
    matches!(verdict, Checksum::Good | Checksum::Unneeded)
}

impl<B: PortBuf> Front<B> {
    /// Takes a received frame: gives the request in it, or deals with it otherwise. Frames that have to be written to are
    /// copied to buffers of `frames` where others share them; requests in several pieces are put together in buffers of
    /// `messages`.
    #[inline]
    pub fn receive(
        &mut self,
        now: Time,
        frame: B,
        frames: &impl Pool<Buf = B>,
        messages: &impl Pool<Buf = B>,
    ) -> Option<Datagram<B>> {
        self.now = now;
        self.counters.frames += 1;
        match self.read(frame, frames, messages) {
            Ok(Some(request)) => {
                self.counters.requests += 1;
                self.counters.request_bytes += request.text.len() as u64;
                Some(request)
            }
            Ok(None) => None,
            Err(reason) => {
                self.counters.drop(reason);
                None
            }
        }
    }

    #[inline(always)]
    fn read(
        &mut self,
        mut frame: B,
        frames: &impl Pool<Buf = B>,
        messages: &impl Pool<Buf = B>,
    ) -> Result<Option<Datagram<B>>, FrontDrop> {
        let (ip, udp) = (frame.ip_checksum(), frame.udp_checksum());
        let mut known = Known { ip, udp, in_message: false };
        if frame.segment_count() > 1 {
            (frame, known.in_message) = self.linear(frame, messages)?;
        }
        let link = Link::parse(frame.first()).map_err(|_| FrontDrop::Runt)?;
        if !self.host.is_our_vlan(&link) {
            return Err(FrontDrop::Vlan);
        }
        if link.ethernet.source == self.host.settings().mac {
            return Err(FrontDrop::Returned);
        }
        if known.ip == Checksum::Bad {
            return Err(FrontDrop::IpChecksum);
        }
        let (ethertype, l3) = (link.ethertype, link.l3);
        let packet = match ethertype {
            ethertype::IPV4 => self.reader(&frame, l3, known).ipv4()?,
            ethertype::IPV6 => return self.read_v6(frame, l3, known, frames, messages),
            ethertype::ARP => None,
            _ => return Err(FrontDrop::NotIp),
        };
        match packet {
            Some(packet) => self.take(packet, frame, known, messages),
            None => self.read_as_host(frame, frames).map(|()| None),
        }
    }

    fn read_v6(
        &mut self,
        frame: B,
        l3: usize,
        known: Known,
        frames: &impl Pool<Buf = B>,
        messages: &impl Pool<Buf = B>,
    ) -> Result<Option<Datagram<B>>, FrontDrop> {
        match self.reader(&frame, l3, known).ipv6()? {
            Some(packet) => self.take(packet, frame, known, messages),
            None => self.read_as_host(frame, frames).map(|()| None),
        }
    }

    #[inline(always)]
    fn reader<'f>(&'f self, frame: &'f B, l3: usize, known: Known) -> Reader<'f> {
        let (mac, ip_checked) = (self.host.settings().mac, is_checked(known.ip));
        Reader { bytes: frame.first(), l3, mac, locals: &self.locals, ip_checked }
    }

    /// The request in a packet, or the one that it was the last missing piece of.
    #[inline(always)]
    fn take(
        &mut self,
        packet: Packet,
        frame: B,
        known: Known,
        messages: &impl Pool<Buf = B>,
    ) -> Result<Option<Datagram<B>>, FrontDrop> {
        self.guard.check_source(packet.path.remote)?;
        if !packet.fragment.is_whole() {
            return self.keep(packet, &frame, messages);
        }
        if known.udp == Checksum::Bad {
            return Err(FrontDrop::UdpChecksum);
        }
        let Known { udp, in_message, .. } = known;
        let place = Place { l4: packet.l4, end: packet.end, checked: is_checked(udp), in_message };
        self.request(packet.path, frame, place).map(Some)
    }

    /// A frame for us alone in one segment, and whether that is one of `messages`.
    #[cold]
    fn linear(&mut self, frame: B, messages: &impl Pool<Buf = B>) -> Result<(B, bool), FrontDrop> {
        let ethernet = header::<EthernetHeader>(frame.first(), 0);
        if ethernet.is_some_and(|e| e.destination != self.host.settings().mac) {
            return Ok((frame, false));
        }
        let mut copy = spare(messages)?;
        if !fill(&mut copy, frame.len(), frame.segments()) {
            return Err(FrontDrop::TooLong);
        }
        self.counters.linearized += 1;
        Ok((copy, true))
    }

    #[cold]
    fn read_as_host(&mut self, mut frame: B, frames: &impl Pool<Buf = B>) -> Result<(), FrontDrop> {
        match self.host.sort(frame.first()) {
            Sort::Host | Sort::Overheard => {}
            Sort::Returned | Sort::Roce(_) | Sort::Other => return Err(FrontDrop::NotForUs),
        }
        // An answer is written over the question, which others may share.
        if frame.try_unique().is_none() {
            let mut copy = frames.alloc().ok_or(FrontDrop::NoBuffer)?;
            let place = copy.append(frame.first().len()).ok_or(FrontDrop::TooLong)?;
            place.copy_from_slice(frame.first());
            frame = copy;
        }
        let Some(bytes) = frame.try_unique() else { return Err(FrontDrop::NoBuffer) };
        if let Fate::Answer(len) = self.host.receive(self.now, bytes) {
            frame.truncate(len);
            frame.clear_offloads();
            self.answers.try_push(frame).map_err(|_| FrontDrop::PingsFull)?;
        }
        // Replies go where requests came from, so nobody here waits for addresses.
        self.host.take_learned();
        self.give_up_duplicates();
        Ok(())
    }

    /// Keeps a fragment; the request, when it was the last one missing.
    #[cold]
    fn keep(
        &mut self,
        packet: Packet,
        frame: &B,
        messages: &impl Pool<Buf = B>,
    ) -> Result<Option<Datagram<B>>, FrontDrop> {
        let Packet { path, l4, end, fragment } = packet;
        let key = Key { local: path.local, remote: path.remote, id: fragment.id };
        let bytes = frame.first().get(l4..end).ok_or(FrontDrop::Runt)?;
        let taken = self.reassembly.take(self.now, key, fragment, bytes, messages, &mut self.counters);
        if taken.is_err()
            && let Some(start) = self.reassembly.take_too_long()
        {
            let datagram = self.too_large(path, start).ok_or(FrontDrop::FragmentTooLong)?;
            self.counters.drop(FrontDrop::FragmentTooLong);
            return Ok(Some(datagram));
        }
        let Some(message) = taken? else { return Ok(None) };
        self.counters.reassembled += 1;
        let end = message.len();
        self.request(path, message, Place { l4: 0, end, checked: false, in_message: true }).map(Some)
    }

    /// A request that is longer than any may be. If it wants to store a value that is too large for that alone, what came of
    /// it is enough to be told so by name.
    #[cold]
    fn too_large(&self, path: Path, start: B) -> Option<Datagram<B>> {
        let bytes = start.first();
        let head = *header::<UdpHeader>(bytes, 0)?;
        if head.destination_port.get() != self.port
            || self.guard.check_port(head.source_port.get()).is_err()
            || (path.remote.is_ipv6() && head.checksum.get() == 0)
        {
            return None;
        }
        let payload = bytes.get(size_of::<UdpHeader>()..).unwrap_or_default();
        let (frame_header, text) = udp::request(payload).ok()?;
        let limits = Limits { value_bytes_max: self.value_bytes_max };
        let mut decoded = [0; KEY_BYTES_MAX];
        match parse(text, &mut decoded, &limits) {
            Parsed::Request(Request { command: Command::TooLarge { .. }, .. }) => {}
            _ => return None,
        }
        let peer = peer(path, &head, &frame_header);
        let text = bytes.len() - text.len()..bytes.len();
        Some(Datagram { peer, frame: start, text, in_message: true })
    }

    /// True if the checksum of this UDP datagram is right.
    #[inline]
    fn is_sound(&self, path: Path, len: u16, datagram: &[u8]) -> bool {
        let local = &self.locals[usize::from(path.local)];
        local.pseudo_header(path.remote, len).with(datagram).finish() == 0
    }

    /// The request in the UDP datagram at this place.
    #[inline(always)]
    fn request(&self, path: Path, frame: B, place: Place) -> Result<Datagram<B>, FrontDrop> {
        let Place { l4, end, checked, in_message } = place;
        let bytes = frame.first();
        let head = *header::<UdpHeader>(bytes, l4).ok_or(FrontDrop::UdpLength)?;
        let udp_end = l4 + usize::from(head.len.get());
        let start = l4 + size_of::<UdpHeader>();
        if udp_end > end || udp_end < start {
            return Err(FrontDrop::UdpLength);
        }
        if head.destination_port.get() != self.port {
            return Err(FrontDrop::OtherPort);
        }
        self.guard.check_port(head.source_port.get())?;
        if !checked {
            match head.checksum.get() {
                0 if path.remote.is_ipv6() => return Err(FrontDrop::NoUdpChecksum),
                0 => {}
                _ if self.is_sound(path, head.len.get(), &bytes[l4..udp_end]) => {}
                _ => return Err(FrontDrop::UdpChecksum),
            }
        }
        let (frame_header, text) = udp::request(&bytes[start..udp_end]).map_err(|reason| match reason {
            NotARequest::Short => FrontDrop::ShortRequest,
            NotARequest::Fragment => FrontDrop::SplitRequest,
        })?;
        let peer = peer(path, &head, &frame_header);
        let text = udp_end - text.len()..udp_end;
        Ok(Datagram { peer, frame, text, in_message })
    }
}

/// Where the reply to a request in this datagram goes.
#[inline]
fn peer(path: Path, head: &UdpHeader, frame_header: &FrameHeader) -> Peer {
    Peer {
        mac: path.mac,
        port: head.source_port.get(),
        request_id: frame_header.request_id.get(),
        local: path.local,
        checksum: head.checksum.get() != 0,
        remote: path.remote,
    }
}
