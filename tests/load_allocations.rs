//! The client on frames allocates nothing once it runs: every call of the allocator by it is counted.

#![allow(unsafe_code)] // Counts what the global allocator is asked for.

use isthmus::host::HostSettings;
use isthmus::load::{FrameClient, FrameClientSettings, LoadSettings, Phase, Popularity, Sizes};
use isthmus::service::Burst;
use isthmus::service::outbox::{OUTBOX, Outbox};
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::heap::{HeapBuf, HeapPool};
use rdma_engine::types::Time;
use rdma_engine::wire::Mac;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::HashMap;

struct Counting;

thread_local! {
    static WATCHING: Cell<bool> = const { Cell::new(false) };
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if WATCHING.get() {
            ASKED.set(ASKED.get() + 1);
        }
        // SAFETY: by the caller's word.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: by the caller's word.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A pool whose own use of the heap does not count: a real one has its buffers already.
struct Unwatched(HeapPool);

impl Pool for Unwatched {
    type Buf = HeapBuf;

    fn alloc(&self) -> Option<HeapBuf> {
        let watching = WATCHING.replace(false);
        let buf = self.0.alloc();
        WATCHING.set(watching);
        buf
    }

    fn alloc_bulk(&self, n: usize, put: impl FnMut(HeapBuf)) -> bool {
        self.0.alloc_bulk(n, put)
    }

    fn slice(&self, of: &HeapBuf, offset: usize, len: usize) -> Option<HeapBuf> {
        self.0.slice(of, offset, len)
    }

    fn buf_room(&self) -> usize {
        self.0.buf_room()
    }

    fn available(&self) -> usize {
        self.0.available()
    }

    fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

/// Bytes of Ethernet, IPv4 and UDP headers, and of memcached's in front of the text.
const HEADERS: usize = 14 + 20 + 8;
const TEXT: usize = HEADERS + 8;

/// A server that knows `get` and `set`, one frame each.
#[derive(Default)]
struct Server {
    /// By key: flags, and value with its line end.
    items: HashMap<Vec<u8>, (Vec<u8>, Vec<u8>)>,
}

impl Server {
    fn answer(&mut self, text: &[u8]) -> Vec<u8> {
        let end = text.iter().position(|b| *b == b'\n').unwrap();
        let words: Vec<&[u8]> = text[..end - 1].split(|b| *b == b' ').collect();
        if words[0] == b"set" {
            self.items.insert(words[1].to_vec(), (words[2].to_vec(), text[end + 1..].to_vec()));
            return b"STORED\r\n".to_vec();
        }
        let (flags, value) = &self.items[words[1]];
        let bytes = (value.len() - 2).to_string();
        [b"VALUE ", words[1], b" ", flags, b" ", bytes.as_bytes(), b"\r\n", value, b"END\r\n"].concat()
    }

    /// The frames of a reply, cut into datagrams as memcached cuts them.
    fn frames(&mut self, request: &[u8]) -> Vec<Vec<u8>> {
        let reply = self.answer(&request[TEXT..]);
        let parts: Vec<&[u8]> = reply.chunks(1392).collect();
        let frame = |(index, part): (usize, &&[u8])| {
            let mut frame = request[..TEXT].to_vec();
            frame[..6].copy_from_slice(&request[6..12]);
            frame[6..12].copy_from_slice(&request[..6]);
            frame[26..30].copy_from_slice(&request[30..34]);
            frame[30..34].copy_from_slice(&request[26..30]);
            frame[34..36].copy_from_slice(&request[36..38]);
            frame[36..38].copy_from_slice(&request[34..36]);
            let udp = (16 + part.len()) as u16;
            frame[38..40].copy_from_slice(&udp.to_be_bytes());
            frame[40..42].fill(0);
            frame[44..46].copy_from_slice(&(index as u16).to_be_bytes());
            frame[46..48].copy_from_slice(&(parts.len() as u16).to_be_bytes());
            frame[16..18].copy_from_slice(&(20 + udp).to_be_bytes());
            frame[24..26].fill(0);
            let sum = rdma_engine::wire::internet_checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            frame.extend_from_slice(part);
            frame
        };
        parts.iter().enumerate().map(frame).collect()
    }
}

fn client() -> FrameClient<HeapBuf> {
    let load = LoadSettings {
        keys: 500,
        popularity: Popularity::Zipf(0.99),
        sizes: Sizes::LogUniform(24, 4096),
        ratio: (7, 3),
        warm_up_ns: 200_000,
        measure_ns: 1_000_000,
        ..LoadSettings::default()
    };
    let host = HostSettings {
        mac: Mac([2, 0, 0, 0, 0, 1]),
        addresses: vec!["10.0.0.1/24".parse().unwrap()],
        gateway: None,
        vlan: None,
        duplicates: None,
        other_vlan: Default::default(),
    };
    let settings = FrameClientSettings {
        load,
        host,
        server: "10.0.0.2:11211".parse().unwrap(),
        source_ports: (20_000..20_016).collect(),
        depth: 8,
        mtu: 4200,
        checksums: true,
        announces: false,
    };
    FrameClient::new(settings, Time(0)).unwrap()
}

/// A frame in which the server says where it is.
fn arp_reply(request: &[u8]) -> Vec<u8> {
    let mut reply = request.to_vec();
    let server_mac = [2, 0, 0, 0, 0, 2];
    reply[..6].copy_from_slice(&request[6..12]);
    reply[6..12].copy_from_slice(&server_mac);
    reply[21] = 2;
    reply[22..28].copy_from_slice(&server_mac);
    reply[28..32].copy_from_slice(&request[38..42]);
    reply[32..42].copy_from_slice(&request[22..32]);
    reply
}

#[test]
fn a_running_client_allocates_nothing() {
    let (mut client, mut server) = (client(), Server::default());
    let pool = Unwatched(HeapPool::new(2000, 4400));
    let (mut outbox, mut burst) = (Outbox::default(), Burst::new());
    let mut arriving: Vec<Vec<u8>> = vec![];
    let mut now = 0;
    client.start();
    while !client.is_done() {
        now += 1000;
        assert!(now < 1_000_000_000, "it does not end: {:?}", client.caller().phase());
        for bytes in arriving.drain(..arriving.len().min(32)) {
            let mut buf = pool.alloc().unwrap();
            buf.append(bytes.len()).unwrap().copy_from_slice(&bytes);
            burst.push(buf);
        }
        WATCHING.set(matches!(client.caller().phase(), Phase::Measure { .. }));
        client.on_burst(Time(now), &pool, &mut burst, &mut outbox);
        WATCHING.set(false);
        for frame in outbox.drain(OUTBOX) {
            let bytes = frame.to_vec();
            match bytes[12..14] {
                [8, 6] => arriving.push(arp_reply(&bytes)),
                _ => arriving.extend(server.frames(&bytes)),
            }
        }
    }
    let meter = client.meter();
    assert_eq!(meter.counts.faults, 0, "{:?}", meter.faults);
    assert!(
        meter.requests() > 10_000 && meter.counts.hits > 0 && meter.counts.stored > 0,
        "{:?}",
        meter.counts
    );
    assert_eq!(ASKED.get(), 0, "allocations in {} requests", meter.requests());
}
