//! What the load generator itself costs: `cargo bench --bench load`.
//!
//! Values are made and verified in memory that is hot. The client on frames runs on mbufs against a server that is outside
//! of the measurement; its figure is TSC cycles of the client's turns for each request, both directions.

use std::hint::black_box;

use dpdk_bind::tsc::{rdtsc, tsc_hz};
use dpdk_bind::{Eal, Mempool, PoolConfig};
use isthmus::bridge::{Packet, PacketPool};
use isthmus::host::HostSettings;
use isthmus::load::{
    Check, FrameClient, FrameClientSettings, LoadSettings, Phase, Popularity, Sizes, Value, Version,
};
use isthmus::service::Burst;
use isthmus::service::outbox::{OUTBOX, Outbox};
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::types::Time;
use rdma_engine::wire::{Mac, internet_checksum};

const SEED: u64 = 1;
const RUN: u32 = 1;
const KEYS: u32 = 100_000;
/// Headers in front of memcached's text: Ethernet, IPv4, UDP, frame header.
const TEXT: usize = 14 + 20 + 8 + 8;
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn main() {
    if std::env::args().any(|a| a == "--test" || a == "--list") {
        return;
    }
    let prefix = format!("--file-prefix=load_bench_{}", std::process::id());
    let eal = Eal::init(["--no-huge", "-m", "512", "--lcores=0", "--no-pci", &prefix])
        .unwrap_or_else(|e| panic!("{e}"));
    let hz = tsc_hz(&eal) as f64;
    println!("command: cargo bench --bench load, TSC {:.2} GHz", hz * 1e-9);
    for bytes in [64, 1024, 4096] {
        values(bytes, hz);
    }
    let config = PoolConfig { count: 8191, cache: 256, data_room: 9216, ..PoolConfig::default() };
    let pool = PacketPool(Mempool::create(&eal, "frames", &config).unwrap_or_else(|e| panic!("{e}")));
    for (bytes, checksums) in [(64, false), (64, true), (4096, false), (4096, true)] {
        client(&pool, bytes, checksums, hz);
    }
}

/// The least of several rounds, in cycles.
fn least(mut round: impl FnMut() -> u64) -> f64 {
    (0..20).map(|_| round()).min().unwrap_or(0) as f64
}

fn values(length: u32, hz: f64) {
    const ROUNDS: u32 = 20_000;
    let value = |key| Value { key, version: Version { run: RUN, number: 7 }, length };
    let mut bytes = vec![0; length as usize];
    let write = least(|| {
        let start = rdtsc();
        for key in 0..ROUNDS {
            value(key).write(SEED, 0, black_box(&mut bytes));
        }
        rdtsc() - start
    });
    let check = least(|| {
        let start = rdtsc();
        for _ in 0..ROUNDS {
            let mut check = Check::default();
            check.feed(SEED, black_box(&bytes));
            black_box(check.finish());
        }
        rdtsc() - start
    });
    for (what, cycles) in [("write", write), ("verify", check)] {
        let each = cycles / f64::from(ROUNDS);
        let rate = f64::from(length) * hz / each * 1e-9;
        println!("{what:<7} a value of {length:>4} B: {each:>6.0} cycles, {rate:>5.1} GB/s");
    }
}

/// The newest version of each key, which is all a server has to know here.
struct Server {
    versions: Vec<u32>,
    length: u32,
}

fn number(text: &[u8], radix: u32) -> u32 {
    u32::from_str_radix(std::str::from_utf8(text).unwrap(), radix).unwrap()
}

impl Server {
    fn answer(&mut self, text: &[u8], out: &mut Vec<u8>) {
        let key = number(&text[12..20], 16);
        if text.starts_with(b"set") {
            let flags = text[21..].split(|b| *b == b' ').next().unwrap();
            self.versions[key as usize] = number(flags, 10);
            return out.extend_from_slice(b"STORED\r\n");
        }
        let version = self.versions[key as usize];
        let (name, length) = (std::str::from_utf8(&text[4..20]).unwrap(), self.length);
        out.extend_from_slice(format!("VALUE {name} {version} {length}\r\n").as_bytes());
        let at = out.len();
        out.resize(at + length as usize, 0);
        Value { key, version: Version { run: RUN, number: version }, length }.write(SEED, 0, &mut out[at..]);
        out.extend_from_slice(b"\r\nEND\r\n");
    }

    /// Turns a request into its reply.
    fn turn(&mut self, pool: &PacketPool, request: &Packet, scratch: &mut Vec<u8>) -> Option<Packet> {
        let bytes = request.first();
        let mut reply = pool.alloc()?;
        scratch.clear();
        if bytes[12..14] == [8, 6] {
            // Where are you? Here.
            scratch.extend_from_slice(bytes);
            scratch[..6].copy_from_slice(&bytes[6..12]);
            scratch[6..12].copy_from_slice(&SERVER_MAC);
            scratch[21] = 2;
            scratch[22..28].copy_from_slice(&SERVER_MAC);
            scratch[28..32].copy_from_slice(&bytes[38..42]);
            scratch[32..42].copy_from_slice(&bytes[22..32]);
        } else {
            scratch.extend_from_slice(&bytes[..TEXT]);
            for (to, from) in [
                (0..6, 6..12),
                (6..12, 0..6),
                (26..30, 30..34),
                (30..34, 26..30),
                (34..36, 36..38),
                (36..38, 34..36),
            ] {
                scratch[to].copy_from_slice(&bytes[from]);
            }
            self.answer(&bytes[TEXT..], scratch);
            let udp = (scratch.len() - 34) as u16;
            scratch[38..40].copy_from_slice(&udp.to_be_bytes());
            scratch[40..42].fill(0);
            scratch[16..18].copy_from_slice(&(20 + udp).to_be_bytes());
            scratch[24..26].fill(0);
            let sum = internet_checksum(&scratch[14..34]);
            scratch[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        reply.append(scratch.len())?.copy_from_slice(scratch);
        Some(reply)
    }
}

fn settings(bytes: u32, checksums: bool) -> FrameClientSettings {
    let load = LoadSettings {
        keys: KEYS,
        popularity: Popularity::Zipf(0.99),
        sizes: Sizes::Fixed(bytes),
        ratio: (7, 3),
        seed: SEED,
        run: RUN,
        warm_up_ns: 1_000_000,
        measure_ns: u64::MAX / 4,
        requests: 1_000_000,
        ..LoadSettings::default()
    };
    FrameClientSettings {
        load,
        host: HostSettings {
            mac: Mac([2, 0, 0, 0, 0, 1]),
            addresses: vec!["10.0.0.1/24".parse().unwrap()],
            gateway: None,
            vlan: None,
            duplicates: None,
            other_vlan: Default::default(),
        },
        server: "10.0.0.2:11211".parse().unwrap(),
        source_ports: (20_000..20_016).collect(),
        depth: 4,
        mtu: 9000,
        checksums,
        announces: false,
    }
}

fn client(pool: &PacketPool, bytes: u32, checksums: bool, hz: f64) {
    let mut client = FrameClient::new(settings(bytes, checksums), Time(0)).unwrap();
    let mut server = Server { versions: vec![0; KEYS as usize], length: bytes };
    let (mut outbox, mut arriving) = (Outbox::default(), Vec::<Packet>::new());
    let (mut scratch, mut now, mut cycles) = (Vec::with_capacity(9000), 0, 0);
    client.start();
    while !client.is_done() {
        now += 1000;
        let mut burst: Burst<Packet> = arriving.drain(..arriving.len().min(32)).collect();
        let measured = matches!(client.caller().phase(), Phase::Measure { .. });
        let start = rdtsc();
        client.on_burst(Time(now), pool, &mut burst, &mut outbox);
        cycles += if measured { rdtsc() - start } else { 0 };
        for frame in outbox.drain(OUTBOX) {
            arriving.extend(server.turn(pool, &frame, &mut scratch));
        }
    }
    let meter = client.meter();
    assert_eq!(meter.counts.faults, 0, "{:?}", meter.faults);
    let each = cycles as f64 / meter.requests() as f64;
    let sums = if checksums { "with" } else { "without" };
    println!(
        "client on frames, {bytes:>4} B, 7:3, {sums:>7} UDP checksums: {each:>5.0} cycles a request, {:.2} M/s",
        hz / each * 1e-6
    );
}
