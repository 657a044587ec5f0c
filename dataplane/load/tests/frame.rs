use super::*;
use crate::config::InterfaceAddress;
use crate::load::testing::{Server, settings};
use crate::load::{LoadSettings, Sizes};
use crate::service::outbox::{OUTBOX, Outbox};
use rdma_engine::heap::{HeapBuf, HeapPool};
use rdma_engine::wire::{EthernetHeader, Ipv4Header, Ipv6Header, UdpHeader, VlanTag, ethertype, ip_protocol};
use std::collections::HashMap;
use zerocopy::IntoBytes;

const CLIENT_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const SERVER_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// Pieces of a datagram by their offset, and its length once that is known.
type Fragments = (Vec<(usize, Vec<u8>)>, Option<usize>);

/// A server on the other end of a cable, with a host side of its own.
struct Peer {
    host: Host,
    server: Server,
    vlan: Option<u16>,
    reply_datagram: usize,
    /// Fragments by their id.
    fragments: HashMap<u32, Fragments>,
    ports: HashMap<u16, u64>,
    longest: usize,
    /// Cut replies into segments.
    scatter: bool,
    broken_checksums: bool,
}

fn own(text: &str) -> InterfaceAddress {
    text.parse().unwrap()
}

fn host(mac: Mac, address: &str, vlan: Option<u16>) -> HostSettings {
    HostSettings {
        mac,
        addresses: vec![own(address)],
        gateway: None,
        vlan,
        duplicates: None,
        other_vlan: Default::default(),
    }
}

fn client_settings(v6: bool, vlan: Option<u16>, mtu: u16, load: LoadSettings) -> FrameClientSettings {
    let (own, server) =
        if v6 { ("fd00::1/64", "[fd00::2]:11211") } else { ("10.0.0.1/24", "10.0.0.2:11211") };
    FrameClientSettings {
        load,
        host: host(CLIENT_MAC, own, vlan),
        server: server.parse().unwrap(),
        source_ports: vec![40_000, 40_001, 40_007],
        depth: 8,
        mtu,
        checksums: true,
        announces: true,
    }
}

impl Peer {
    fn new(v6: bool, vlan: Option<u16>, reply_datagram: usize) -> Self {
        let address = if v6 { "fd00::2/64" } else { "10.0.0.2/24" };
        Peer {
            host: Host::new(host(SERVER_MAC, address, vlan), false, Time(0)),
            server: Server::new(),
            vlan,
            reply_datagram,
            fragments: HashMap::new(),
            ports: HashMap::new(),
            longest: 0,
            scatter: false,
            broken_checksums: false,
        }
    }

    /// Takes a frame; frames in return.
    fn take(&mut self, now: Time, mut frame: Vec<u8>, pool: &HeapPool) -> Vec<HeapBuf> {
        self.longest = self.longest.max(frame.len());
        if matches!(self.host.sort(&frame), Sort::Host | Sort::Overheard) {
            let mut out = vec![];
            if let Fate::Answer(len) = self.host.receive(now, &mut frame) {
                out.push(frame[..len].to_vec());
            }
            self.host.poll(now);
            let mut bytes = [0; MAX_FRAME];
            while let Some(len) = self.host.next_frame(&mut bytes) {
                out.push(bytes[..len].to_vec());
            }
            return out.iter().map(|bytes| buf(pool, bytes, false)).collect();
        }
        let link = rdma_engine::wire::Link::parse(&frame).unwrap();
        assert_eq!((link.ethernet.destination, link.ethernet.source), (SERVER_MAC, CLIENT_MAC));
        assert_eq!(link.vlans.ids().next(), self.vlan);
        let l3 = &frame[link.l3..];
        if link.ethertype == ethertype::IPV4 { self.take_v4(l3, pool) } else { self.take_v6(l3, pool) }
    }

    fn take_v4(&mut self, l3: &[u8], pool: &HeapPool) -> Vec<HeapBuf> {
        let (ip, rest) = Ipv4Header::read_from_prefix(l3).unwrap();
        assert!(ip.checksum_ok() && ip.protocol == ip_protocol::UDP);
        assert_eq!(usize::from(ip.total_len.get()), l3.len());
        let field = ip.flags_fragment.get();
        let (offset, more) = (usize::from(field & 0x1FFF) * 8, field & 0x2000 != 0);
        let Some(datagram) = self.reassemble(u32::from(ip.id.get()), offset, more, rest) else {
            return vec![];
        };
        let (udp, text) = UdpHeader::read_from_prefix(&datagram).unwrap();
        assert!(udp.checksum.get() != 0 && udp.checksum_ok(ip.pseudo_header(datagram.len() as u16), text));
        self.answer(udp, text, pool, |udp_bytes| {
            let mut back = Ipv4Header {
                source: ip.destination,
                destination: ip.source,
                total_len: ((20 + udp_bytes) as u16).into(),
                flags_fragment: 0.into(),
                ..ip
            };
            back.set_checksum();
            (back.as_bytes().to_vec(), back.pseudo_header(udp_bytes as u16))
        })
    }

    fn take_v6(&mut self, l3: &[u8], pool: &HeapPool) -> Vec<HeapBuf> {
        let (ip, mut rest) = Ipv6Header::read_from_prefix(l3).unwrap();
        assert_eq!(usize::from(ip.payload_len.get()), rest.len());
        let (mut id, mut offset, mut more) = (0, 0, false);
        if ip.next_header == ip_protocol::IPV6_FRAGMENT {
            assert_eq!(rest[..2], [ip_protocol::UDP, 0]);
            let field = u16::from_be_bytes([rest[2], rest[3]]);
            (offset, more) = (usize::from(field & !7), field & 1 != 0);
            id = u32::from_be_bytes([rest[4], rest[5], rest[6], rest[7]]);
            rest = &rest[8..];
        }
        let Some(datagram) = self.reassemble(id, offset, more, rest) else { return vec![] };
        let (udp, text) = UdpHeader::read_from_prefix(&datagram).unwrap();
        let pseudo = ip.pseudo_header(ip_protocol::UDP, datagram.len() as u16);
        assert!(udp.checksum.get() != 0 && udp.checksum_ok(pseudo, text));
        self.answer(udp, text, pool, |udp_bytes| {
            let back = Ipv6Header {
                source: ip.destination,
                destination: ip.source,
                payload_len: (udp_bytes as u16).into(),
                next_header: ip_protocol::UDP,
                ..ip
            };
            (back.as_bytes().to_vec(), back.pseudo_header(ip_protocol::UDP, udp_bytes as u16))
        })
    }

    /// The datagram, once all fragments are there.
    fn reassemble(&mut self, id: u32, offset: usize, more: bool, bytes: &[u8]) -> Option<Vec<u8>> {
        if offset == 0 && !more {
            return Some(bytes.to_vec());
        }
        assert!(!more || bytes.len().is_multiple_of(8));
        let (parts, length) = self.fragments.entry(id).or_default();
        parts.push((offset, bytes.to_vec()));
        if !more {
            *length = Some(offset + bytes.len());
        }
        let have: usize = parts.iter().map(|part| part.1.len()).sum();
        if Some(have) != *length {
            return None;
        }
        let (mut parts, _) = self.fragments.remove(&id)?;
        parts.sort();
        Some(parts.into_iter().flat_map(|part| part.1).collect())
    }

    fn answer(
        &mut self,
        udp: UdpHeader,
        text: &[u8],
        pool: &HeapPool,
        ip: impl Fn(usize) -> (Vec<u8>, rdma_engine::wire::InternetChecksum),
    ) -> Vec<HeapBuf> {
        *self.ports.entry(udp.source_port.get()).or_default() += 1;
        let ethertype: u16 = if ip(0).0.len() == 20 { ethertype::IPV4 } else { ethertype::IPV6 };
        let outer = if self.vlan.is_some() { ethertype::VLAN } else { ethertype };
        let link = EthernetHeader { destination: CLIENT_MAC, source: SERVER_MAC, ethertype: outer.into() };
        let mut frames = vec![];
        for datagram in self.server.serve_datagram(text, self.reply_datagram) {
            let mut back = UdpHeader {
                source_port: udp.destination_port,
                destination_port: udp.source_port,
                len: ((8 + datagram.len()) as u16).into(),
                checksum: 0.into(),
            };
            let (ip, pseudo) = ip(8 + datagram.len());
            back.checksum = back.compute_checksum(pseudo, &datagram).into();
            if self.broken_checksums {
                back.checksum = (back.checksum.get() ^ 0x100).into();
            }
            let tag = self.vlan.map(|id| VlanTag { tci: id.into(), ethertype: ethertype.into() });
            let tag = tag.map(|tag| tag.as_bytes().to_vec()).unwrap_or_default();
            let mut frame = [link.as_bytes(), &tag, &ip, back.as_bytes(), &datagram].concat();
            frame.resize(frame.len().max(60), 0);
            frames.push(buf(pool, &frame, self.scatter));
        }
        frames
    }
}

fn buf(pool: &HeapPool, bytes: &[u8], scatter: bool) -> HeapBuf {
    let piece = |bytes: &[u8]| {
        let mut buf = pool.alloc().unwrap();
        buf.append(bytes.len()).unwrap().copy_from_slice(bytes);
        buf
    };
    let first = if scatter { 64.min(bytes.len()) } else { bytes.len() };
    let mut head = piece(&bytes[..first]);
    bytes[first..].chunks(1000).for_each(|part| head.chain(piece(part)).unwrap());
    head
}

/// Runs a client against a peer until it is done.
fn run(client: &mut FrameClient<HeapBuf>, peer: &mut Peer, room: usize) -> u64 {
    let pool = HeapPool::new(20_000, room);
    let mut outbox = Outbox::default();
    let mut arriving: Vec<HeapBuf> = vec![];
    let mut now = 0;
    client.start();
    while !client.is_done() {
        now += 1000;
        assert!(now < 20_000_000_000, "it does not end: {:?}", client.counts());
        let mut burst: Burst<HeapBuf> = arriving.drain(..arriving.len().min(32)).collect();
        client.on_burst(Time(now), &pool, &mut burst, &mut outbox);
        for frame in outbox.drain(OUTBOX) {
            arriving.extend(peer.take(Time(now), frame.to_vec(), &pool));
        }
    }
    client.on_burst(Time(now), &pool, &mut Burst::new(), &mut outbox);
    arriving.clear();
    drop(outbox);
    assert!(pool.is_full(), "every buffer is back");
    now
}

fn load(sizes: Sizes) -> LoadSettings {
    LoadSettings {
        sizes,
        keys: 30,
        requests: 300,
        warm_up_ns: 20_000,
        measure_ns: 1 << 40,
        timeout_ns: 1 << 30,
        ..settings()
    }
}

#[test]
fn requests_travel_in_every_kind_of_frame() {
    let long = Sizes::LogUniform(24, 8000);
    for (v6, vlan, mtu, room, scatter) in [
        (false, None, 1500, 1600, false),
        (false, Some(7), 9000, 9100, true),
        (true, None, 1500, 1600, true),
        (true, Some(7), 4200, 9100, false),
        (false, None, 9000, 2048, false),
    ] {
        let settings = client_settings(v6, vlan, mtu, load(long.clone()));
        let mut client = FrameClient::new(settings, Time(0)).unwrap();
        let mut peer = Peer { scatter, ..Peer::new(v6, vlan, usize::from(mtu).min(room) - 80) };
        run(&mut client, &mut peer, room);
        let (meter, counts) = (client.meter(), client.counts());
        assert_eq!((meter.requests(), meter.counts.faults), (300, 0), "{:?}", meter.faults);
        assert_eq!((meter.counts.losses, meter.counts.misses), (0, 0));
        let fragments = usize::from(mtu).min(room) < 8000;
        assert_eq!(counts.frames_sent > counts.requests, fragments, "{counts:?}");
        assert_eq!((counts.bad_checksums, peer.ports.len()), (0, 3));
        assert!(peer.longest <= (usize::from(mtu) + 18).min(room) && peer.longest > 1300);
    }
}

#[test]
fn a_jumbo_frame_holds_a_page() {
    let mut client =
        FrameClient::new(client_settings(false, None, 4200, load(Sizes::Fixed(4096))), Time(0)).unwrap();
    run(&mut client, &mut Peer::new(false, None, 4172), 4300);
    let counts = client.counts();
    assert_eq!((counts.frames_sent, counts.replies), (counts.requests, counts.requests));
    assert_eq!(client.meter().counts.faults, 0);
}

#[test]
fn wrong_checksums_are_losses() {
    let once = LoadSettings { preload: false, requests: 20, timeout_ns: 1_000_000, ..load(Sizes::Fixed(64)) };
    let mut client = FrameClient::new(client_settings(false, None, 1500, once), Time(0)).unwrap();
    run(&mut client, &mut Peer { broken_checksums: true, ..Peer::new(false, None, 1400) }, 1600);
    assert_eq!(client.counts().replies, 0);
    assert!(client.counts().bad_checksums >= 20 && client.meter().counts.unanswered == 20);
}

#[test]
fn nothing_is_sent_before_the_start_or_without_buffers() {
    let settings = client_settings(false, None, 1500, load(Sizes::Fixed(64)));
    let mut client = FrameClient::new(settings, Time(0)).unwrap();
    let (pool, mut outbox, mut burst) = (HeapPool::new(8, 1600), Outbox::default(), Burst::new());
    let mut peer = Peer::new(false, None, 1400);
    for now in 1..5 {
        client.on_burst(Time(now), &pool, &mut burst, &mut outbox);
        for frame in outbox.drain(OUTBOX).collect::<Vec<_>>() {
            burst.extend(peer.take(Time(now), frame.to_vec(), &HeapPool::new(9, 100)));
        }
    }
    assert_eq!(client.counts().requests, 0, "it only knows its server now");
    client.start();
    let hoard: Vec<HeapBuf> = std::iter::from_fn(|| pool.alloc()).collect();
    assert!(!client.on_burst(Time(10), &pool, &mut burst, &mut outbox));
    drop(hoard);
    assert!(client.on_burst(Time(11), &pool, &mut burst, &mut outbox));
    assert_eq!((client.counts().requests, outbox.len()), (8, 8), "as many as there are buffers");
}

#[test]
fn a_server_that_never_answers_is_given_up_in_words() {
    for has_neighbour in [false, true] {
        let settings = client_settings(false, None, 1500, load(Sizes::Fixed(64)));
        let server = settings.server.ip();
        let mut client = FrameClient::new(settings, Time(0)).unwrap();
        let (pool, mut outbox, mut burst) = (HeapPool::new(64, 1600), Outbox::default(), Burst::new());
        let mut peer = Peer::new(false, None, 1400);
        client.start();
        let mut now = 1;
        while !client.is_done() {
            assert!(now < 2 * PATIENCE_NS, "it asks without end");
            client.on_burst(Time(now), &pool, &mut burst, &mut outbox);
            for frame in outbox.drain(OUTBOX).collect::<Vec<_>>() {
                // Its address is all that it tells.
                if has_neighbour && client.counts().requests == 0 {
                    burst.extend(peer.take(Time(now), frame.to_vec(), &HeapPool::new(9, 100)));
                }
            }
            now += 50_000_000;
        }
        let expected = if has_neighbour { Silence::NoReply(server) } else { Silence::NoNeighbour(server) };
        assert_eq!(client.silence(), Some(expected));
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let good = client_settings(false, None, 1500, load(Sizes::Fixed(64)));
    let refused = |change: fn(&mut FrameClientSettings)| {
        let mut settings = good.clone();
        change(&mut settings);
        FrameClient::<HeapBuf>::new(settings, Time(0)).unwrap_err()
    };
    let elsewhere: IpAddr = "10.9.0.2".parse().unwrap();
    assert_eq!(refused(|s| s.server = "10.9.0.2:1".parse().unwrap()), FrameClientError::NoWay(elsewhere));
    assert!(matches!(refused(|s| s.host.addresses.clear()), FrameClientError::NoWay(_)));
    assert_eq!(refused(|s| s.source_ports = vec![1, 2, 1]), FrameClientError::Ports);
    assert_eq!(refused(|s| s.source_ports.clear()), FrameClientError::Ports);
    assert_eq!(refused(|s| s.depth = 0), FrameClientError::Depth(0));
    assert_eq!(refused(|s| s.depth = 10_000), FrameClientError::Depth(30_000));
    assert_eq!(refused(|s| s.mtu = 600), FrameClientError::Mtu { mtu: 600 });
    assert_eq!(refused(|s| s.load.sizes = Sizes::Fixed(1 << 20)), FrameClientError::Mtu { mtu: 1500 });
}
