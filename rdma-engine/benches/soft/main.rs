//! Cycles per operation of the soft transport, initiator and responder each accounted for.
//!
//! Both endpoints run in one thread and hand frames to each other in bursts, so that nothing but their own work is
//! counted: `cargo bench --bench soft -- [operation] [size] ...`
#![allow(unsafe_code)] // reason: reading the time stamp counter.

mod slab;

use rdma_engine::buf::{Buf, Egress, Pool};
use rdma_engine::mem::{Access, Arena, Backing, Region};
use rdma_engine::qp::{AddressVector, BringUp, InitAttr, QpCaps, QpSpec, RtrAttr, RtsAttr};
use rdma_engine::soft::{Event, SoftConfig, SoftDevice, SoftTransport};
use rdma_engine::transport::{Completions, CqSpec, Device, Transport, WorkerSpec};
use rdma_engine::types::{Pmtu, Psn, QpType, Time};
use rdma_engine::wire::Mac;
use rdma_engine::wr::{Cookie, Op, OpKind, QpId, RecvWr, RemoteSlice, RemoteWord, SendWr, Status};
use slab::{SlabBuf, SlabPool};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

/// Frames of one burst.
const BURST: usize = 64;
/// Requests in flight.
const DEPTH: u32 = 64;
/// Memory the peer reads and writes.
const MEMORY: usize = 4 << 20;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|w| !w.starts_with("--")).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|w| w == name || w.parse::<u32>().is_ok());
    let sizes: Vec<u32> = words.iter().filter_map(|w| w.parse().ok()).collect();
    let named = |w: &str| words.iter().any(|x| x == w);
    print_machine();
    println!(
        "{:<10} {:>8} {:>10} {:>10} {:>9} {:>9} {:>9}",
        "operation", "bytes", "initiator", "responder", "Mops/s i", "Mops/s r", "Gb/s min"
    );
    let kinds = [
        ("read", OpKind::Read),
        ("write", OpKind::Write),
        ("send", OpKind::Send),
        ("fetch_add", OpKind::FetchAdd),
    ];
    let any = kinds.iter().any(|(name, _)| named(name));
    for (name, kind) in kinds.into_iter().filter(|(name, _)| wanted(name) && (!any || named(name))) {
        for size in [8, 64, 256, 1024, 4096, 16 << 10, 64 << 10, 1 << 20] {
            let skip = kind == OpKind::FetchAdd && size != 8 || !sizes.is_empty() && !sizes.contains(&size);
            if !skip {
                let mut bench = Bench::new(SlabPool::new(4096), SlabPool::new(0), slab);
                bench.measure(name, kind, size);
            }
        }
    }
}

/// A buffer for `len` bytes.
fn slab(pool: &SlabPool, len: usize) -> SlabBuf {
    if len <= 4096 { pool.alloc().expect("a buffer") } else { pool.large() }
}

fn print_machine() {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name\t: ")).unwrap_or("unknown");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    println!("{model}; TSC {:.2} GHz; cargo bench --bench soft -- {}", tsc_hz() / 1e9, arguments.join(" "));
}

fn tsc() -> u64 {
    // SAFETY: reads a counter.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

fn tsc_hz() -> f64 {
    let (started, from) = (Instant::now(), tsc());
    while started.elapsed().as_millis() < 50 {}
    (tsc() - from) as f64 / started.elapsed().as_secs_f64()
}

/// Frames on their way.
struct Burst<B>(Vec<B>);

impl<B> Egress<B> for Burst<B> {
    #[inline]
    fn push(&mut self, frame: B) -> Result<(), B> {
        self.0.push(frame);
        Ok(())
    }
    #[inline]
    fn room(&self) -> usize {
        BURST - self.0.len()
    }
}

struct End<P: Pool + Send + 'static> {
    transport: SoftTransport<P>,
    _device: SoftDevice<P>,
    region: Region,
    pool: P,
    /// A buffer for so many bytes.
    alloc: fn(&P, usize) -> P::Buf,
    qp: QpId,
    burst: Burst<P::Buf>,
    done: Completions<P::Buf>,
    /// Cycles spent.
    cycles: u64,
}

struct Bench<P: Pool + Send + 'static> {
    ends: [End<P>; 2],
    now: Time,
}

impl<P: Pool + Clone + Send + 'static> Bench<P> {
    fn new(a: P, b: P, alloc: fn(&P, usize) -> P::Buf) -> Self {
        let pools = [a, b];
        let ip = |end: usize| IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + end as u8));
        let mac = |end: usize| Mac([2, 0, 0, 0, 0, end as u8]);
        let devices = [0, 1].map(|end| {
            let mut config = SoftConfig::new(mac(end), vec![ip(end)]);
            config.ethernet_mtu = 4200;
            SoftDevice::new(config, vec![pools[end].clone()]).expect("a device")
        });
        let cqs = vec![CqSpec { depth: 1024, events: false }];
        let worker = WorkerSpec { cqs, srqs: vec![], max_qps: 16 };
        let transports = [0, 1].map(|end: usize| devices[end].create_worker(0, &worker).expect("a worker"));
        let caps = QpCaps { send_depth: DEPTH, recv_depth: 4 * DEPTH, ..QpCaps::default() };
        let spec = QpSpec { kind: QpType::Rc, caps, srq: None, cq: 0 };
        let access = Access::LOCAL_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_WRITE);
        let access = access.and(Access::REMOTE_ATOMIC);
        let qps = [0, 1].map(|end: usize| devices[end].create_qp(0, &spec).expect("a queue pair"));
        let qpns = [devices[0].qpn(&qps[0]), devices[1].qpn(&qps[1])];
        let mut end = 0;
        let mut transports = transports.into_iter();
        let ends = qps.map(|qp| {
            let mut transport = transports.next().expect("two of them");
            let device = devices[end].clone();
            let rtr = RtrAttr {
                path: AddressVector::to(ip(1 - end).into(), 0),
                dest_qpn: qpns[1 - end],
                rq_psn: Psn::new(0),
                pmtu: Pmtu::B4096,
                max_dest_rd_atomic: 128,
                min_rnr_timer: 12,
            };
            let rts =
                RtsAttr { sq_psn: Psn::new(0), timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 128 };
            let qp = bring_up(&device, qp, access, rtr, rts);
            let qp = transport.attach(qp).ok().expect("room");
            let arena = Arena::new(MEMORY, Backing::Pages).expect("memory");
            let region = device.register(&arena, access).expect("a region");
            let pool = pools[end].clone();
            let burst = Burst(Vec::with_capacity(BURST));
            end += 1;
            End {
                transport,
                _device: device,
                region,
                pool,
                alloc,
                qp,
                burst,
                done: Completions::new(),
                cycles: 0,
            }
        });
        let mut bench = Bench { ends, now: Time(1) };
        bench.resolve();
        bench
    }

    fn resolve(&mut self) {
        for end in 0..2 {
            let peer = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2 - end as u8));
            self.ends[end].transport.set_neighbour(peer, Mac([2, 0, 0, 0, 0, 1 - end as u8]));
            while let Some(event) = self.ends[end].transport.poll_event() {
                assert!(!matches!(event, Event::QpError { .. }));
            }
        }
    }

    fn measure(&mut self, name: &str, kind: OpKind, size: u32) {
        let operations = (40_000_000 / u64::from(size.max(64))).clamp(500, 400_000);
        self.run(kind, size, operations / 10);
        let mut chunks = self.run(kind, size, operations);
        let mut median = |end: usize| {
            chunks.sort_unstable_by_key(|c| c[end]);
            chunks[chunks.len() / 2][end].max(1)
        };
        let median = [median(0), median(1)];
        let hz = tsc_hz();
        let rate = |cycles: u64| hz / cycles as f64 / 1e6;
        let bits = rate(median[0].max(median[1])) * f64::from(size) * 8.0 / 1e3;
        println!(
            "{name:<10} {size:>8} {:>10} {:>10} {:>9.2} {:>9.2} {bits:>9.1}",
            median[0],
            median[1],
            rate(median[0]),
            rate(median[1])
        );
    }

    /// Runs so many operations; cycles per operation of both ends, chunk by chunk. A chunk is short, so that the ones
    /// in which the machine did something else stand out and the median does not see them.
    fn run(&mut self, kind: OpKind, size: u32, operations: u64) -> Vec<[u64; 2]> {
        let (mut posted, mut completed, mut before, mut chunks) = (0, 0, 0, vec![]);
        let chunk = if size > 4096 { 4 } else { 256 };
        self.ends.iter_mut().for_each(|e| e.cycles = 0);
        while completed < operations {
            self.now = self.now.after_ns(1000);
            posted += self.initiate(kind, size, operations - posted);
            self.respond(kind == OpKind::Send, size);
            completed += self.collect();
            if completed - before >= chunk {
                chunks.push([0, 1].map(|end: usize| self.ends[end].cycles / (completed - before)));
                self.ends.iter_mut().for_each(|e| e.cycles = 0);
                before = completed;
            }
        }
        chunks
    }

    /// The initiator's half: posts, sends.
    fn initiate(&mut self, kind: OpKind, size: u32, most: u64) -> u64 {
        let memory = self.ends[1].region.window().addr();
        let rkey = self.ends[1].region.rkey();
        let end = &mut self.ends[0];
        let started = tsc();
        let room = (end.transport.send_room(end.qp) as u64).min(most);
        for n in 0..room {
            let offset = (n * 4096) % (MEMORY as u64 - u64::from(size));
            let offset = offset / 8 * 8;
            let at = RemoteSlice { addr: memory + offset, rkey, len: size };
            let word = RemoteWord { addr: memory + offset, rkey };
            let mut buf = (end.alloc)(&end.pool, size as usize);
            let op = match kind {
                OpKind::Read => Op::Read(at),
                OpKind::FetchAdd => Op::FetchAdd { word, add: 1 },
                OpKind::Write => Op::Write(at),
                _ => Op::Send,
            };
            if !op.fills_buffer() {
                assert!(buf.append(size as usize).is_some());
            }
            let posted = end.transport.post_send(end.qp, SendWr::new(op, buf, Cookie(n)));
            assert!(posted.is_ok());
        }
        end.transport.flush(self.now, &mut end.burst);
        end.cycles += tsc() - started;
        room
    }

    /// The responder's half: takes frames, answers, posts receives.
    fn respond(&mut self, receives: bool, size: u32) {
        let [a, b] = &mut self.ends;
        let started = tsc();
        while receives && b.transport.recv_room(b.qp) > 0 {
            let buf = (b.alloc)(&b.pool, size as usize);
            assert!(b.transport.post_recv(b.qp, RecvWr { buf, cookie: Cookie(0) }).is_ok());
        }
        for frame in a.burst.0.drain(..) {
            b.transport.ingress(self.now, frame);
        }
        b.transport.flush(self.now, &mut b.burst);
        if receives {
            b.transport.poll(self.now, &mut b.done);
            b.done.clear();
        }
        b.cycles += tsc() - started;
    }

    /// The initiator's other half: takes answers, polls.
    fn collect(&mut self) -> u64 {
        let [a, b] = &mut self.ends;
        let started = tsc();
        for frame in b.burst.0.drain(..) {
            a.transport.ingress(self.now, frame);
        }
        let mut completed = 0;
        while a.transport.poll(self.now, &mut a.done) > 0 {
            completed += a.done.len() as u64;
            for c in a.done.drain(..) {
                assert_eq!(c.status, Status::Success);
            }
        }
        a.cycles += tsc() - started;
        completed
    }
}

fn bring_up<P: Pool + Send + 'static>(
    device: &SoftDevice<P>,
    mut qp: <SoftDevice<P> as Device>::Qp,
    access: Access,
    rtr: RtrAttr,
    rts: RtsAttr,
) -> <SoftDevice<P> as Device>::Qp {
    let init = rdma_engine::qp::Change::Init(InitAttr { access, qkey: 0 });
    device.modify(&mut qp, &init).expect("INIT");
    BringUp::resume(device, qp).rtr(rtr).expect("RTR").rts(rts).expect("RTS")
}
