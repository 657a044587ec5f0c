//! A client written out by hand, and what both make of each other's frames.

use super::*;
use crate::host::HostSettings;
use rdma_engine::buf::{Buf, Egress, Pool};
use rdma_engine::heap::{HeapBuf, HeapPool};
use rdma_engine::wire::Mac;
use std::net::IpAddr;

mod drops;
mod fragments;
mod hostile;
mod replies;
mod report;
mod requests;

const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 9]);
const PORT: u16 = 11_211;
const SECOND: u64 = 1_000_000_000;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn host(vlan: Option<u16>) -> HostSettings {
    let addresses = ["192.0.2.1/24", "198.51.100.1/24", "2001:db8::1/64"];
    HostSettings {
        mac: OURS,
        addresses: addresses.map(|a| a.parse().unwrap()).to_vec(),
        gateway: None,
        vlan,
        duplicates: None,
        other_vlan: Default::default(),
    }
}

fn settings() -> FrontSettings {
    FrontSettings::new(host(None), PORT)
}

/// The Internet checksum as RFC 1071 says it.
fn naive_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b));
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn pseudo(from: IpAddr, to: IpAddr, len: u16) -> Vec<u8> {
    [octets(from), octets(to), vec![0, 17], len.to_be_bytes().to_vec()].concat()
}

/// A client, and how it makes its frames.
#[derive(Clone, Debug)]
struct Client {
    vlan: Option<u16>,
    from: IpAddr,
    to: IpAddr,
    port: u16,
    to_port: u16,
    id: u16,
    /// IPv4 options.
    options: Vec<u8>,
    /// IPv6 extension headers, and the number of the first.
    extensions: Option<(u8, Vec<u8>)>,
    no_checksum: bool,
}

impl Client {
    fn new(from: &str, to: &str) -> Self {
        Client {
            vlan: None,
            from: ip(from),
            to: ip(to),
            port: 40_000,
            to_port: PORT,
            id: 0x1234,
            options: vec![],
            extensions: None,
            no_checksum: false,
        }
    }

    fn v4() -> Self {
        Client::new("192.0.2.9", "192.0.2.1")
    }

    fn v6() -> Self {
        Client::new("2001:db8::9", "2001:db8::1")
    }

    fn ethernet(&self, packet: &[u8]) -> Vec<u8> {
        let tag = self.vlan.map_or(vec![], |id| [&[0x81, 0][..], &id.to_be_bytes()].concat());
        let ethertype = if self.from.is_ipv4() { [8, 0] } else { [0x86, 0xDD] };
        [&OURS.0[..], &THEIRS.0, &tag, &ethertype, packet].concat()
    }

    fn udp(&self, payload: &[u8]) -> Vec<u8> {
        let len = payload.len() as u16 + 8;
        let head = [self.port, self.to_port, len, 0].map(u16::to_be_bytes).concat();
        let mut udp = [&head[..], payload].concat();
        if !self.no_checksum {
            let sum = naive_sum(&[pseudo(self.from, self.to, len), udp.clone()].concat());
            udp[6..8].copy_from_slice(&(if sum == 0 { 0xFFFF } else { sum }).to_be_bytes());
        }
        udp
    }

    /// An IPv4 packet with this word of flags and offset.
    fn ipv4(&self, fragment: u16, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let header_len = 20 + self.options.len();
        let total = (header_len + payload.len()) as u16;
        let mut head = vec![0x40 | (header_len / 4) as u8, 0];
        head.extend([total, self.id, fragment].map(u16::to_be_bytes).concat());
        head.extend([3, protocol, 0, 0]);
        head.extend([octets(self.from), octets(self.to), self.options.clone()].concat());
        let sum = naive_sum(&head);
        head[10..12].copy_from_slice(&sum.to_be_bytes());
        [head, payload.to_vec()].concat()
    }

    fn ipv6(&self, next: u8, payload: &[u8]) -> Vec<u8> {
        let mut head = vec![0x60, 0, 0, 0];
        head.extend((payload.len() as u16).to_be_bytes());
        head.extend([next, 3]);
        head.extend([octets(self.from), octets(self.to)].concat());
        [head, payload.to_vec()].concat()
    }

    /// A frame with this text behind memcached's frame header.
    fn frame(&self, text: &[u8]) -> Vec<u8> {
        self.datagram(&[&[0x12, 0x34, 0, 0, 0, 1, 0, 0][..], text].concat())
    }

    fn datagram(&self, payload: &[u8]) -> Vec<u8> {
        let udp = self.udp(payload);
        let packet = match (&self.extensions, self.from) {
            (_, IpAddr::V4(_)) => self.ipv4(0, 17, &udp),
            (None, _) => self.ipv6(17, &udp),
            (Some((first, headers)), _) => self.ipv6(*first, &[&headers[..], &udp].concat()),
        };
        self.ethernet(&packet)
    }

    /// The frames of the same request in IP fragments that carry at most `bytes` each.
    fn fragments(&self, text: &[u8], bytes: usize) -> Vec<Vec<u8>> {
        let udp = self.udp(&[&[0x12, 0x34, 0, 0, 0, 1, 0, 0][..], text].concat());
        let count = udp.len().div_ceil(bytes);
        let parts = udp.chunks(bytes).enumerate();
        parts.map(|(n, part)| self.fragment(n * bytes, n + 1 < count, part)).collect()
    }

    fn fragment(&self, offset: usize, more: bool, part: &[u8]) -> Vec<u8> {
        let packet = if self.from.is_ipv4() {
            self.ipv4((offset / 8) as u16 | u16::from(more) << 13, 17, part)
        } else {
            let word = (offset as u16 | u16::from(more)).to_be_bytes();
            let head = [&[17, 0][..], &word, &[0, 0], &self.id.to_be_bytes()].concat();
            self.ipv6(44, &[&head[..], part].concat())
        };
        self.ethernet(&packet)
    }
}

/// A reply's datagram, read by hand; its checksums are right.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    to_mac: [u8; 6],
    from_mac: [u8; 6],
    vlan: Option<u16>,
    from: IpAddr,
    to: IpAddr,
    hops: u8,
    ports: (u16, u16),
    id: u16,
    sequence: u16,
    count: u16,
    text: Vec<u8>,
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn see(frame: &[u8]) -> Seen {
    assert!(frame.len() >= 60, "a frame of {} bytes", frame.len());
    let tagged = word(frame, 12) == 0x8100;
    let vlan = tagged.then(|| word(frame, 14));
    let at = if tagged { 18 } else { 14 };
    let packet = &frame[at..];
    let (from, to, hops, udp): (IpAddr, IpAddr, u8, &[u8]) = match word(frame, at - 2) {
        0x0800 => {
            assert_eq!((packet[0], packet[9], word(packet, 6)), (0x45, 17, 0x4000));
            assert_eq!(naive_sum(&packet[..20]), 0, "IPv4 header checksum");
            let v4 = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap());
            (v4(12), v4(16), packet[8], &packet[20..usize::from(word(packet, 2))])
        }
        0x86DD => {
            assert_eq!((packet[0], packet[6]), (0x60, 17));
            let v6 = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap());
            (v6(8), v6(24), packet[7], &packet[40..40 + usize::from(word(packet, 4))])
        }
        other => panic!("EtherType {other:#x}"),
    };
    assert_eq!(usize::from(word(udp, 4)), udp.len());
    assert_ne!(word(udp, 6), 0, "a checksum is there");
    assert_eq!(naive_sum(&[&pseudo(from, to, word(udp, 4)), udp].concat()), 0, "UDP checksum");
    assert_eq!(word(udp, 14), 0, "reserved");
    Seen {
        to_mac: frame[..6].try_into().unwrap(),
        from_mac: frame[6..12].try_into().unwrap(),
        vlan,
        from,
        to,
        hops,
        ports: (word(udp, 0), word(udp, 2)),
        id: word(udp, 8),
        sequence: word(udp, 10),
        count: word(udp, 12),
        text: udp[16..].to_vec(),
    }
}

/// An egress of so many frames.
#[derive(Default)]
struct Out {
    frames: Vec<HeapBuf>,
    room: usize,
}

impl Egress<HeapBuf> for Out {
    fn push(&mut self, frame: HeapBuf) -> Result<(), HeapBuf> {
        if self.room == 0 {
            return Err(frame);
        }
        self.room -= 1;
        self.frames.push(frame);
        Ok(())
    }
    fn room(&self) -> usize {
        self.room
    }
}

/// A front end with its pools.
struct Rig {
    front: Front<HeapBuf>,
    frames: HeapPool,
    slices: HeapPool,
    messages: HeapPool,
    now: Time,
}

impl Rig {
    fn new(settings: FrontSettings) -> Self {
        Rig {
            front: Front::new(settings, false, Time(0)),
            frames: HeapPool::new(64, 2048),
            slices: HeapPool::new(4096, 0),
            messages: HeapPool::new(64, 65_536),
            now: Time(0),
        }
    }

    /// A buffer with these bytes, of a pool of its own, and room to be padded.
    fn buffer(bytes: &[u8]) -> HeapBuf {
        let mut buf = HeapPool::new(1, bytes.len() + 64).alloc().unwrap();
        buf.append(bytes.len()).unwrap().copy_from_slice(bytes);
        buf
    }

    /// A chain with these segments.
    fn chain(segments: &[&[u8]]) -> HeapBuf {
        let mut chain = Self::buffer(segments[0]);
        segments[1..].iter().for_each(|segment| chain.chain(Self::buffer(segment)).unwrap());
        chain
    }

    fn give(&mut self, frame: HeapBuf) -> Option<Datagram<HeapBuf>> {
        self.front.receive(self.now, frame, &self.frames, &self.messages)
    }

    fn receive(&mut self, frame: &[u8]) -> Option<Datagram<HeapBuf>> {
        self.give(Self::buffer(frame))
    }

    /// The one request in these frames.
    fn request(&mut self, frame: &[u8]) -> Datagram<HeapBuf> {
        let got = self.receive(frame);
        got.unwrap_or_else(|| panic!("no request: {:?}", self.drops()))
    }

    /// Somebody who may be answered.
    fn peer(&mut self, client: &Client) -> Peer {
        self.request(&client.frame(b"mn\r\n")).peer
    }

    fn flush(&mut self, room: usize) -> Vec<HeapBuf> {
        let mut out = Out { room, ..Out::default() };
        self.front.flush(self.now, &self.frames, &self.slices, &mut out);
        out.frames
    }

    fn send_now(&mut self, peer: &Peer, body: HeapBuf, room: usize) -> Vec<HeapBuf> {
        let mut out = Out { room, ..Out::default() };
        self.front.send_now(peer, body, &self.frames, &self.slices, &mut out);
        out.frames
    }

    fn drops(&self) -> Vec<(FrontDrop, u64)> {
        self.front.counters().all_drops().collect()
    }

    /// Ends it; every buffer is home.
    fn end(self) {
        drop(self.front);
        for (name, pool) in [("frames", self.frames), ("slices", self.slices), ("messages", self.messages)] {
            assert!(pool.is_full(), "{} buffers of {name} are not home", pool.in_use());
        }
    }
}
