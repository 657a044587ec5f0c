//! Random sequences of everything that can happen to mbufs, against a model: no byte changes under an owner, no
//! buffer is lost, none is freed twice, and "unique" is said exactly when nobody else can see the bytes.

#![allow(unsafe_code)] // The model looks into mbuf headers: whose buffer a segment uses, and its owner count.

mod support;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use dpdk_bind::{Burst, Mbuf, Mempool, PoolConfig, Port, PortConfig, RxQueue, TxQueue, link};
use dpdk_sys::MbufHeader;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use support::{Context, Test};

const TESTS: &[Test] = &[
    ("random_use_loses_nothing", random_use_loses_nothing),
    (
        "shared_buffers_are_freed_in_any_order_on_two_cores",
        shared_buffers_are_freed_in_any_order_on_two_cores,
    ),
];

fn main() -> ExitCode {
    support::run(TESTS)
}

/// Room behind the headroom: small, so that copies become chains.
const ROOM: usize = 64;
/// Frames in the ring between the ports.
const RING: u32 = 7;
const POISON: u8 = 0xde;

#[derive(Clone, Debug)]
enum Op {
    Alloc { len: usize },
    Slice { of: usize, offset: usize, len: usize },
    Deep { of: usize },
    Chain { head: usize, tail: usize },
    Split { of: usize },
    Prepend { to: usize, n: usize },
    Append { to: usize, n: usize },
    Adj { of: usize, n: usize },
    Trim { of: usize, n: usize },
    Advance { of: usize, n: usize },
    Cut { of: usize, len: usize },
    SetLen { of: usize, len: usize },
    Rewrite { of: usize },
    Drop { of: usize },
    Queue { which: usize },
    Tx,
    Rx,
    Truncate { to: usize },
    Poison,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let which = || 0..64usize;
    let op = prop_oneof![
        6 => (0..300usize).prop_map(|len| Op::Alloc { len }),
        6 => (which(), 0..300usize, 1..200usize).prop_map(|(of, offset, len)| Op::Slice { of, offset, len }),
        1 => which().prop_map(|of| Op::Deep { of }),
        3 => (which(), which()).prop_map(|(head, tail)| Op::Chain { head, tail }),
        2 => which().prop_map(|of| Op::Split { of }),
        2 => (which(), 0..200usize).prop_map(|(to, n)| Op::Prepend { to, n }),
        2 => (which(), 0..100usize).prop_map(|(to, n)| Op::Append { to, n }),
        2 => (which(), 0..80usize).prop_map(|(of, n)| Op::Adj { of, n }),
        2 => (which(), 0..80usize).prop_map(|(of, n)| Op::Trim { of, n }),
        1 => (which(), 0..200usize).prop_map(|(of, n)| Op::Advance { of, n }),
        1 => (which(), 0..200usize).prop_map(|(of, len)| Op::Cut { of, len }),
        1 => (which(), 0..200usize).prop_map(|(of, len)| Op::SetLen { of, len }),
        3 => which().prop_map(|of| Op::Rewrite { of }),
        5 => which().prop_map(|of| Op::Drop { of }),
        5 => which().prop_map(|which| Op::Queue { which }),
        3 => Just(Op::Tx),
        2 => Just(Op::Rx),
        1 => (0..16usize).prop_map(|to| Op::Truncate { to }),
        1 => Just(Op::Poison),
    ];
    prop::collection::vec(op, 1..150)
}

/// What a chain should be made of, as far as it can be told from outside.
#[derive(Clone, Debug)]
struct Expected {
    bytes: Vec<u8>,
    segments: Vec<Segment>,
}

/// One segment: its header, and the header of the mbuf whose buffer holds the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    header: usize,
    buffer: usize,
}

fn segments_of(mbuf: &Mbuf) -> Vec<Segment> {
    let mut found = Vec::new();
    let mut at = mbuf.as_raw().cast::<MbufHeader>().as_ptr();
    while !at.is_null() {
        // SAFETY: a segment of a live chain; an indirect one's buffer follows the header it points at.
        unsafe {
            let buffer = (*at).buf_addr as usize - size_of::<MbufHeader>() - usize::from((*at).priv_size);
            found.push(Segment { header: at as usize, buffer });
            at = (*at).next;
        }
    }
    found
}

fn contents(mbuf: &Mbuf) -> Vec<u8> {
    mbuf.segments().flatten().copied().collect()
}

struct World {
    buffers: Mempool,
    headers: Mempool,
    tx: TxQueue,
    rx: RxQueue,
    live: Vec<(Mbuf, Vec<u8>)>,
    queued: Burst<8>,
    queued_bytes: VecDeque<Vec<u8>>,
    ring: VecDeque<Expected>,
    stamp: u8,
}

impl World {
    /// Bytes that differ from those of other calls, and from [`POISON`].
    fn pattern(&mut self, len: usize) -> Vec<u8> {
        self.stamp = (self.stamp + 1) % 200;
        (0..len).map(|i| (usize::from(self.stamp) * 7 + i * 3) as u8 % POISON).collect()
    }

    fn pick(&self, i: usize) -> Option<usize> {
        (!self.live.is_empty()).then(|| i % self.live.len())
    }

    fn add(&mut self, mbuf: Mbuf, bytes: Vec<u8>) {
        self.live.push((mbuf, bytes));
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Alloc { len } => {
                let bytes = self.pattern(len);
                if let Some(mbuf) = self.buffers.copy_from(&bytes) {
                    self.add(mbuf, bytes);
                }
            }
            Op::Tx => self.transmit(),
            Op::Rx => self.receive(),
            Op::Truncate { to } => {
                self.queued.truncate(to);
                self.queued_bytes.truncate(to);
            }
            Op::Poison => self.poison(),
            Op::Slice { of, .. }
            | Op::Deep { of }
            | Op::Split { of }
            | Op::Adj { of, .. }
            | Op::Trim { of, .. }
            | Op::Advance { of, .. }
            | Op::Cut { of, .. }
            | Op::SetLen { of, .. }
            | Op::Rewrite { of }
            | Op::Drop { of }
            | Op::Prepend { to: of, .. }
            | Op::Append { to: of, .. }
            | Op::Queue { which: of }
            | Op::Chain { head: of, .. } => {
                if let Some(i) = self.pick(of) {
                    self.apply_to(i, op);
                }
            }
        }
    }

    fn apply_to(&mut self, i: usize, op: &Op) {
        match *op {
            Op::Slice { offset, len, .. } => self.slice(i, offset, len),
            Op::Deep { .. } => {
                if let Some(copy) = self.live[i].0.clone_deep(&self.buffers) {
                    assert!(copy.is_unique());
                    self.add(copy, self.live[i].1.clone());
                }
            }
            Op::Chain { tail, .. } => {
                let (mut head, mut bytes) = self.live.swap_remove(i);
                if let Some(j) = self.pick(tail) {
                    let (tail, more) = self.live.swap_remove(j);
                    head.chain(tail).unwrap();
                    bytes.extend(more);
                }
                self.add(head, bytes);
            }
            Op::Split { .. } => {
                let (mbuf, bytes) = self.live.swap_remove(i);
                let (first, rest) = mbuf.split_first();
                let (of_first, of_rest) = bytes.split_at(first.len());
                if let Some(rest) = rest {
                    self.add(rest, of_rest.to_vec());
                }
                self.add(first, of_first.to_vec());
            }
            Op::Drop { .. } => drop(self.live.swap_remove(i)),
            Op::Queue { .. } => {
                let (mbuf, bytes) = self.live.swap_remove(i);
                match self.queued.push(mbuf) {
                    Ok(()) => self.queued_bytes.push_back(bytes),
                    Err(mbuf) => self.add(mbuf, bytes),
                }
            }
            _ => self.edit(i, op),
        }
    }

    fn slice(&mut self, i: usize, offset: usize, len: usize) {
        let (mbuf, bytes) = &self.live[i];
        let slice = mbuf.slice(&self.headers, offset, len);
        match slice {
            Some(slice) => {
                let shared = bytes[offset..offset + len].to_vec();
                self.add(slice, shared);
            }
            None => assert!(offset + len > bytes.len() || self.headers.available() < mbuf.segment_count()),
        }
    }

    /// Operations that change one mbuf in place.
    fn edit(&mut self, i: usize, op: &Op) {
        let new = self.pattern(400);
        let (mbuf, bytes) = &mut self.live[i];
        let first = mbuf.data().len();
        let last = mbuf.segments().last().map_or(0, <[u8]>::len);
        match *op {
            Op::Prepend { n, .. } => {
                if let Some(room) = mbuf.prepend(n) {
                    room.copy_from_slice(&new[..n]);
                    bytes.splice(..0, new[..n].iter().copied());
                }
            }
            Op::Append { n, .. } => {
                if let Some(room) = mbuf.append(n) {
                    room.copy_from_slice(&new[..n]);
                    bytes.extend(&new[..n]);
                }
            }
            Op::Adj { n, .. } => {
                assert_eq!(mbuf.adj(n), n <= first);
                bytes.drain(..if n <= first { n } else { 0 });
            }
            Op::Trim { n, .. } => {
                assert_eq!(mbuf.trim(n), n <= last);
                bytes.truncate(bytes.len() - if n <= last { n } else { 0 });
            }
            Op::Advance { n, .. } => {
                assert_eq!(mbuf.advance(n), n <= bytes.len());
                bytes.drain(..if n <= bytes.len() { n } else { 0 });
            }
            Op::Cut { len, .. } => {
                assert_eq!(mbuf.truncate(len), len <= bytes.len());
                bytes.truncate(len);
            }
            Op::SetLen { len, .. } => {
                if mbuf.set_len(len) {
                    *bytes = rewrite(mbuf, &new);
                }
            }
            Op::Rewrite { .. } => {
                if mbuf.is_unique() {
                    *bytes = rewrite(mbuf, &new);
                } else {
                    assert!(mbuf.segments_mut().is_none());
                }
            }
            _ => unreachable!("{op:?}"),
        }
    }

    fn transmit(&mut self) {
        let before: Vec<Expected> = self
            .queued
            .iter()
            .zip(&self.queued_bytes)
            .map(|(m, b)| Expected { bytes: b.clone(), segments: segments_of(m) })
            .collect();
        let room = RING as usize - self.ring.len();
        let sent = self.tx.tx(&mut self.queued);
        assert_eq!(sent, before.len().min(room));
        assert_eq!(self.queued.len(), before.len() - sent);
        self.queued_bytes.drain(..sent);
        self.ring.extend(before.into_iter().take(sent));
    }

    fn receive(&mut self) {
        let mut burst: Burst<3> = Burst::new();
        assert_eq!(self.rx.rx(&mut burst), self.ring.len().min(3));
        for mbuf in burst.drain() {
            let expected = self.ring.pop_front().unwrap();
            assert_eq!(segments_of(&mbuf), expected.segments);
            self.add(mbuf, expected.bytes);
        }
    }

    /// Overwrites every free buffer, so that a use after free shows, and sees that none is also in use.
    fn poison(&self) {
        let used = self.usage();
        let mut all: Vec<Mbuf> = std::iter::from_fn(|| self.buffers.alloc()).collect();
        let mut seen = BTreeSet::new();
        for mbuf in &mut all {
            let header = segments_of(mbuf)[0].header;
            assert!(seen.insert(header), "one buffer was handed out twice");
            assert!(!used.contains_key(&header), "a buffer in use was handed out");
            assert!(mbuf.is_unique() && mbuf.segment_count() == 1);
            assert!(mbuf.reset(0));
            mbuf.append(mbuf.data_room()).unwrap().fill(POISON);
        }
    }

    /// Owners of each buffer, by the header it belongs to.
    fn usage(&self) -> BTreeMap<usize, u16> {
        let mut owners = BTreeMap::new();
        self.all_segments().for_each(|s| *owners.entry(s.buffer).or_default() += 1);
        owners
    }

    fn all_segments(&self) -> impl Iterator<Item = Segment> {
        let held = self.live.iter().map(|(m, _)| m).chain(&self.queued).flat_map(segments_of);
        held.chain(self.ring.iter().flat_map(|e| e.segments.clone()))
    }

    fn check(&self) {
        let owners = self.usage();
        let headers: Vec<usize> = self.all_segments().map(|s| s.header).collect();
        let distinct: BTreeSet<usize> = headers.iter().copied().collect();
        assert_eq!(headers.len(), distinct.len(), "a segment is in two chains");
        let indirect = self.all_segments().filter(|s| s.header != s.buffer).count();
        assert_eq!((self.buffers.in_use(), self.headers.in_use()), (owners.len(), indirect));
        for (&header, &count) in &owners {
            // SAFETY: the header of a buffer in use.
            let refcnt = unsafe { (*(header as *const MbufHeader)).refcnt.load(Ordering::Relaxed) };
            assert_eq!(refcnt, count);
        }
        for (mbuf, bytes) in &self.live {
            assert_eq!(&contents(mbuf), bytes);
            assert_eq!(mbuf.len(), bytes.len());
            let unique = segments_of(mbuf).iter().all(|s| s.header == s.buffer && owners[&s.buffer] == 1);
            assert_eq!(mbuf.is_unique(), unique);
        }
        assert!(self.queued.iter().map(contents).eq(self.queued_bytes.iter().cloned()));
    }

    fn end(&mut self) {
        self.queued.clear();
        self.queued_bytes.clear();
        while !self.ring.is_empty() {
            self.receive();
            self.check();
        }
        while !self.live.is_empty() {
            // Neither the order of making nor its reverse.
            self.live.swap_remove(self.live.len() / 2);
            self.check();
        }
        self.poison();
        assert!(self.buffers.is_full() && self.headers.is_full());
    }
}

fn rewrite(mbuf: &mut Mbuf, new: &[u8]) -> Vec<u8> {
    let mut written = Vec::new();
    for (i, segment) in mbuf.segments_mut().unwrap().enumerate() {
        segment.iter_mut().zip(new.iter().cycle().skip(i)).for_each(|(b, n)| *b = *n);
        written.extend_from_slice(segment);
    }
    written
}

fn random_use_loses_nothing(cx: &Context<'_>) {
    let buffers =
        cx.pool(&PoolConfig { count: 40, cache: 8, data_room: (128 + ROOM) as u16, ..PoolConfig::default() });
    let headers = cx.pool(&PoolConfig { count: 60, cache: 0, data_room: 0, ..PoolConfig::default() });
    let (a, b) = link::cross(cx.eal, "own", 1, RING).unwrap();
    let config =
        PortConfig { pools: vec![buffers.clone()], rx_desc: 64, tx_desc: 64, ..PortConfig::default() };
    let open = |id| {
        let (mut port, mut rx, mut tx) = Port::configure(cx.eal, &id, &config).unwrap();
        port.start().unwrap();
        (port, rx.remove(0), tx.remove(0))
    };
    let ((_a, _, tx), (_b, rx, _)) = (open(a), open(b));
    let mut world = World {
        buffers,
        headers,
        tx,
        rx,
        live: Vec::new(),
        queued: Burst::new(),
        queued_bytes: VecDeque::new(),
        ring: VecDeque::new(),
        stamp: 0,
    };
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 150;
    }
    let mut runner = TestRunner::new(config);
    // A failed case leaves buffers behind and is not shrunk from a clean state: start it over from an empty world.
    let world = std::cell::RefCell::new(&mut world);
    let result = runner.run(&ops(), |ops| {
        let mut world = world.borrow_mut();
        world.end();
        for op in &ops {
            world.apply(op);
            world.check();
        }
        world.end();
        Ok(())
    });
    result.unwrap_or_else(|e| panic!("{e}"));
}

/// One core sends slices of its buffers and lets go of the buffers at random; the other reads and frees the slices
/// in an order of its own.
fn shared_buffers_are_freed_in_any_order_on_two_cores(cx: &Context<'_>) {
    const ROUNDS: u32 = 30_000;
    let (buffers, headers) = (cx.buffers(255), cx.headers(511));
    let (a, b) = link::cross(cx.eal, "own", 1, 63).unwrap();
    let config =
        PortConfig { pools: vec![buffers.clone()], rx_desc: 64, tx_desc: 64, ..PortConfig::default() };
    let (mut pa, _rx, mut tx) = Port::configure(cx.eal, &a, &config).unwrap();
    let (mut pb, mut rx, _tx) = Port::configure(cx.eal, &b, &config).unwrap();
    pa.start().unwrap();
    pb.start().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let worker = cx.eal.worker_lcores()[0];
    let received = cx.eal.scope(|s| {
        let reader = s
            .launch(worker, || {
                let (mut held, mut burst, mut count) = (Vec::<Mbuf>::new(), Burst::<16>::new(), 0u32);
                loop {
                    let last_round = stop.load(Ordering::Acquire);
                    let n = rx[0].rx(&mut burst);
                    held.extend(burst.drain());
                    count += n as u32;
                    held.iter().for_each(assert_whole);
                    while held.len() > 40 || (n == 0 && !held.is_empty()) {
                        drop(held.swap_remove(count as usize % held.len()));
                    }
                    if last_round && n == 0 {
                        return count;
                    }
                    std::thread::yield_now();
                }
            })
            .unwrap();
        let (mut sources, mut burst, mut sent) = (Vec::<Mbuf>::new(), Burst::<16>::new(), 0u32);
        for i in 0..ROUNDS {
            if sources.len() < 20 {
                sources.extend(buffers.copy_from(&i.to_be_bytes().repeat(25)));
            }
            if let Some(source) = sources.get(i as usize % sources.len().max(1)) {
                let offset = (i as usize * 4) % 50 / 4 * 4;
                burst.extend_with(source.slice(&headers, offset, 40));
            }
            if i % 3 == 0 && !sources.is_empty() {
                drop(sources.swap_remove((i / 3) as usize % sources.len()));
            }
            sent += tx[0].tx(&mut burst) as u32;
            if burst.is_full() {
                std::thread::yield_now();
            }
        }
        drop((sources, burst));
        stop.store(true, Ordering::Release);
        (sent, reader.join())
    });
    assert_eq!(received.0, received.1);
    assert!(received.0 > 100, "{received:?}");
}

/// All of its words are the same.
fn assert_whole(mbuf: &Mbuf) {
    let (words, rest) = mbuf.data().as_chunks::<4>();
    assert!(words.len() == 10 && rest.is_empty() && words.iter().all(|w| w == &words[0]), "{words:?}");
}
