//! What a message costs on the loopback transport, in TSC cycles:
//! `cargo bench -p rdma-engine --bench loopback`.
#![allow(unsafe_code)] // reason: the time stamp counter is read by an intrinsic.

use rdma_engine::buf::{Buf, NoEgress, Pool};
use rdma_engine::heap::{HEADROOM, HeapPool};
use rdma_engine::loopback::{Hub, LoopTransport};
use rdma_engine::mem::Access;
use rdma_engine::qp::{AddressVector, BringUp, InitAttr, QpCaps, QpSpec, RtrAttr, RtsAttr};
use rdma_engine::transport::{Completions, CqSpec, Device, Transport, WorkerSpec};
use rdma_engine::types::{Pmtu, Psn, QpType, Time};
use rdma_engine::wr::{Cookie, Done, Op, QpId, RecvWr, SendWr};

const BATCH: usize = 32;
const BYTES: usize = 64;
const WARM_UP: usize = 2_000;
const ROUNDS: usize = 20_000;

fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the counter.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
    }
}

/// A buffer that is one pointer wide, like an mbuf: one segment on the heap.
#[derive(Debug)]
struct Flat(Box<Cell>);

#[derive(Debug)]
struct Cell {
    start: usize,
    end: usize,
    bytes: [u8; 512],
}

impl Flat {
    fn new() -> Self {
        Flat(Box::new(Cell { start: HEADROOM, end: HEADROOM, bytes: [0; 512] }))
    }
}

impl Buf for Flat {
    type Segments<'a> = std::iter::Once<&'a [u8]>;
    type Spare<'a> = std::iter::Once<&'a mut [u8]>;

    fn len(&self) -> usize {
        self.0.end - self.0.start
    }
    fn segment_count(&self) -> usize {
        1
    }
    fn segments(&self) -> Self::Segments<'_> {
        std::iter::once(self.first())
    }
    fn first(&self) -> &[u8] {
        &self.0.bytes[self.0.start..self.0.end]
    }
    fn headroom(&self) -> usize {
        self.0.start
    }
    fn tailroom(&self) -> usize {
        self.0.bytes.len() - self.0.end
    }
    fn is_unique(&self) -> bool {
        true
    }
    fn try_unique(&mut self) -> Option<&mut [u8]> {
        let Cell { start, end, bytes } = &mut *self.0;
        Some(&mut bytes[*start..*end])
    }
    fn prepend(&mut self, n: usize) -> Option<&mut [u8]> {
        let start = self.0.start.checked_sub(n)?;
        self.0.start = start;
        Some(&mut self.0.bytes[start..start + n])
    }
    fn append(&mut self, n: usize) -> Option<&mut [u8]> {
        let end = self.0.end;
        let grown = self.0.bytes.get_mut(end..end + n)?;
        self.0.end = end + n;
        Some(grown)
    }
    fn adj(&mut self, n: usize) {
        assert!(n <= self.len());
        self.0.start += n;
    }
    fn truncate(&mut self, len: usize) {
        self.0.end = self.0.end.min(self.0.start + len);
    }
    fn chain(&mut self, tail: Self) -> Result<(), Self> {
        Err(tail)
    }
    fn reserve(&mut self, n: usize) -> bool {
        let fits = self.is_empty() && n <= self.0.bytes.len();
        if fits {
            self.0.start = self.0.start.max(n);
            self.0.end = self.0.start;
        }
        fits
    }
    fn spare(&mut self) -> Self::Spare<'_> {
        let end = self.0.end;
        std::iter::once(&mut self.0.bytes[end..])
    }
    fn room(&self) -> usize {
        self.tailroom()
    }
    fn filled(&mut self, n: usize) {
        assert!(self.is_empty() && n <= self.room());
        self.0.end += n;
    }
}

/// Two workers with a connected pair of queue pairs.
struct Ends<B: Buf> {
    a: (LoopTransport<B>, QpId),
    b: (LoopTransport<B>, QpId),
}

fn connect<B: Buf>() -> Ends<B> {
    let hub = Hub::<B>::new();
    let devices = [hub.device(), hub.device()];
    let cqs = vec![CqSpec { depth: 256, events: false }];
    let spec = WorkerSpec { cqs, srqs: vec![], max_qps: 4 };
    let [mut a, mut b] = devices.each_ref().map(|d| d.create_worker(0, &spec).expect("a worker"));
    let qp = QpSpec { kind: QpType::Rc, caps: QpCaps::default(), srq: None, cq: 0 };
    let ups = devices.each_ref().map(|d| {
        let up = BringUp::create(d, 0, &qp).expect("a queue pair");
        up.init(InitAttr { access: Access::LOCAL, qkey: 0 }).expect("INIT")
    });
    let qpns = ups.each_ref().map(BringUp::qpn);
    let mut side = 0;
    let [qa, qb] = ups.map(|up| {
        let other = 1 - side;
        side += 1;
        let rtr = RtrAttr {
            path: AddressVector::to(devices[other].gid(), 0),
            dest_qpn: qpns[other],
            rq_psn: Psn::new(0),
            pmtu: Pmtu::B4096,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
        };
        let rts = RtsAttr { sq_psn: Psn::new(0), timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 };
        up.rtr(rtr).expect("RTR").rts(rts).expect("RTS")
    });
    let (ia, ib) = (a.attach(qa).expect("room"), b.attach(qb).expect("room"));
    Ends { a: (a, ia), b: (b, ib) }
}

/// Cycles of the steps of one round: post_recv, post_send, flush, serve, complete.
type Laps = [u64; 5];

/// Posts and completes one batch; the buffers go round.
fn round<B: Buf>(ends: &mut Ends<B>, sends: &mut Vec<B>, receives: &mut Vec<B>) -> Laps {
    let now = Time(0);
    let ((a, ia), (b, ib)) = (&mut ends.a, &mut ends.b);
    let mut t = cycles();
    let (mut laps, mut step) = (Laps::default(), 0);
    let mut lap = || {
        let end = cycles();
        laps[step] = end - t;
        (t, step) = (end, step + 1);
    };
    for buf in receives.drain(..) {
        assert!(b.post_recv(*ib, RecvWr { buf, cookie: Cookie(2) }).is_ok());
    }
    lap();
    for buf in sends.drain(..) {
        assert!(a.post_send(*ia, SendWr::new(Op::Send, buf, Cookie(1))).is_ok());
    }
    lap();
    a.flush(now, &mut NoEgress);
    lap();
    let mut batch = Completions::new();
    b.poll(now, &mut batch);
    lap();
    let mut sent = Completions::new();
    a.poll(now, &mut sent);
    lap();
    assert!(batch.len() == BATCH && sent.len() == BATCH);
    for mut c in batch {
        assert!(matches!(c.done, Done::Received(_)) && c.buf.len() == BYTES);
        c.buf.truncate(0);
        receives.push(c.buf);
    }
    sends.extend(sent.into_iter().map(|c| c.buf));
    laps
}

fn measure<B: Buf>(name: &str, mut fresh: impl FnMut() -> B) {
    let mut ends = connect::<B>();
    let mut receives: Vec<B> = (0..BATCH).map(|_| fresh()).collect();
    let mut sends: Vec<B> = (0..BATCH)
        .map(|i| {
            let mut buf = fresh();
            buf.append(BYTES).expect("room").fill(i as u8);
            buf
        })
        .collect();
    for _ in 0..WARM_UP {
        round(&mut ends, &mut sends, &mut receives);
    }
    let rounds: Vec<Laps> = (0..ROUNDS).map(|_| round(&mut ends, &mut sends, &mut receives)).collect();
    // The median: a round in which the thread was preempted says nothing.
    let median = |value: &dyn Fn(&Laps) -> u64| {
        let mut all: Vec<u64> = rounds.iter().map(value).collect();
        all.sort_unstable();
        all[all.len() / 2] as f64 / BATCH as f64
    };
    let [post_recv, post_send, flush, serve, complete] = [0, 1, 2, 3, 4].map(|i| median(&|l| l[i]));
    let sum = median(&|l| l[1..].iter().sum());
    println!(
        "{name:>8} {post_send:>10.1} {flush:>7.1} {serve:>7.1} {complete:>9.1} {sum:>7.1} {post_recv:>10.1}"
    );
}

fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| "unknown processor".into(), |(_, m)| m.trim().to_string())
}

fn main() {
    println!("machine: {}", machine());
    println!("command: cargo bench -p rdma-engine --bench loopback");
    println!(
        "RC SEND, {BYTES} bytes, batches of {BATCH}, one thread; TSC cycles per message, median of {ROUNDS} rounds"
    );
    println!("`sum` is post_send to send completion; `serve` is the receiver's poll, with the copy");
    println!(
        "{:>8} {:>10} {:>7} {:>7} {:>9} {:>7} {:>10}",
        "buffer", "post_send", "flush", "serve", "complete", "sum", "post_recv"
    );
    measure("pointer", Flat::new);
    let pool = HeapPool::new(2 * BATCH, 384);
    measure("heap", || pool.alloc().expect("the pool has enough"));
}
