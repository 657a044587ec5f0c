use super::frame::{Addressing, Proto, Shape, TAG_LEN, Tag};
use super::{Sink, SinkSettings, Source, SourceSettings};
use crate::classify::{Classifier, FrameKind};
use crate::service::outbox::{OUTBOX, Outbox};
use crate::service::{Burst, Context, Pools, Service};
use crate::stats::{Counter, DropReason, Tally};
use proptest::prelude::*;
use rdma_engine::buf::{Buf, Egress, Pool};
use rdma_engine::heap::{HeapBuf, HeapPool};
use rdma_engine::loopback::{Hub, LoopTransport};
use rdma_engine::transport::{CqSpec, Device, WorkerSpec};
use rdma_engine::types::Time;
use std::collections::HashSet;
use zerocopy::IntoBytes;

const PROTOS: [Proto; 5] = [Proto::UdpV4, Proto::TcpV4, Proto::UdpV6, Proto::TcpV6, Proto::Other];

const ADDRESSING: Addressing =
    Addressing { source_mac: [2, 0, 0, 0, 0, 1], destination_mac: [2, 0, 0, 0, 0, 2] };

fn frame(shape: Shape, flow: u32, sequence: u32, length: usize) -> Vec<u8> {
    let mut out = vec![0x5A; length];
    let at = ADDRESSING.write(shape, flow, &mut out);
    let tag = Tag::new(flow, sequence, &out[at + TAG_LEN..]);
    out[at..at + TAG_LEN].copy_from_slice(tag.as_bytes());
    out
}

#[test]
fn a_frame_is_read_back_and_damage_is_seen() {
    for vlan in [None, Some(5)] {
        for proto in PROTOS {
            let shape = Shape { proto, vlan };
            for length in [shape.shortest(), 1514, 9000] {
                let mut f = frame(shape, 0x0300_0007, 9, length);
                let at = Addressing::tag_offset(&f).expect("a tag");
                let (tag, intact) = Tag::read(&f[at..]).expect("a tag");
                assert!(intact && (tag.flow(), tag.sequence()) == (0x0300_0007, 9));
                *f.last_mut().unwrap() ^= 1;
                assert!(!Tag::read(&f[at..]).unwrap().1, "{proto:?} of {length}");
            }
        }
    }
}

#[test]
fn flows_are_distinct_tuples_of_the_right_kind() {
    let c = Classifier::new(3);
    for proto in PROTOS {
        let kind = match proto {
            Proto::UdpV4 | Proto::TcpV4 => FrameKind::Ipv4,
            Proto::UdpV6 | Proto::TcpV6 => FrameKind::Ipv6,
            Proto::Other => FrameKind::Other,
        };
        let flows: HashSet<u64> = (0..70_000u32)
            .map(|i| i << 10 | i >> 7)
            .map(|flow| {
                let seen = c.classify(&frame(Shape { proto, vlan: None }, flow, 0, 100));
                assert_eq!(seen.kind, kind);
                seen.signature
            })
            .collect();
        let numbers: HashSet<u32> = (0..70_000u32).map(|i| i << 10 | i >> 7).collect();
        assert_eq!(flows.len(), numbers.len(), "{proto:?}");
    }
}

#[test]
fn the_ipv4_checksum_is_right() {
    let f = frame(Shape { proto: Proto::UdpV4, vlan: None }, 0x00FF_FFFF, 0, 60);
    let sum: u32 = f[14..34].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    assert_eq!((sum & 0xFFFF) + (sum >> 16), 0xFFFF);
}

/// A worker's surroundings for a source or a sink.
struct Bench {
    transport: LoopTransport<HeapBuf>,
    pools: Pools<HeapPool>,
    outbox: Outbox<HeapBuf>,
    tally: Tally,
}

impl Bench {
    fn new() -> Self {
        let spec = WorkerSpec { cqs: vec![CqSpec { depth: 1, events: false }], srqs: vec![], max_qps: 1 };
        let transport = Hub::new().device().create_worker(0, &spec).unwrap();
        let frames = HeapPool::new(4096, 9100);
        let pools = Pools { messages: frames.clone(), slices: frames.clone(), frames };
        Bench { transport, pools, outbox: Outbox::default(), tally: Tally::default() }
    }

    /// A turn of the service at `now_us`; gives what it wants to send.
    fn turn<S: Service<LoopTransport<HeapBuf>, HeapPool>>(
        &mut self,
        service: &mut S,
        now_us: u64,
        frames: impl IntoIterator<Item = HeapBuf>,
    ) -> Vec<HeapBuf> {
        let Bench { transport, pools, outbox, tally } = self;
        let mut ctx = Context { now: Time(now_us * 1000), transport, tx: outbox, pools, tally };
        let mut burst: Burst<HeapBuf> = frames.into_iter().collect();
        service.on_burst(&mut ctx, &mut burst);
        assert!(burst.is_empty());
        self.outbox.drain(OUTBOX).collect()
    }

    /// All frames of a source that ends by itself.
    fn run_out(&mut self, source: &mut Source) -> Vec<HeapBuf> {
        let mut all = vec![];
        while !source.is_done() {
            all.extend(self.turn(source, 0, []));
        }
        all
    }

    fn feed(&mut self, sink: &mut Sink, frames: impl IntoIterator<Item = HeapBuf>) {
        for frame in frames {
            self.turn(sink, 0, [frame]);
        }
    }

    fn counts<const N: usize>(&self, counters: [Counter; N]) -> [u64; N] {
        counters.map(|c| self.tally.value(c))
    }
}

fn shapes() -> Vec<Shape> {
    PROTOS.into_iter().flat_map(|proto| [None, Some(100)].map(|vlan| Shape { proto, vlan })).collect()
}

fn settings(flows: u32, count: u64) -> SourceSettings {
    SourceSettings {
        first_flow: 0,
        flows,
        sizes: vec![60, 128, 1514],
        shapes: shapes(),
        rate_pps: 0,
        count,
        addressing: ADDRESSING,
    }
}

fn started(settings: SourceSettings) -> Source {
    let mut source = Source::new(settings);
    source.start();
    source
}

fn sink(flows: u32) -> Sink {
    Sink::new(SinkSettings { flows, verify: true, echo: false })
}

fn tag(frame: &HeapBuf) -> (u32, u32) {
    let bytes = frame.to_vec();
    let (tag, intact) = Tag::read(&bytes[Addressing::tag_offset(&bytes).unwrap()..]).unwrap();
    assert!(intact);
    (tag.flow(), tag.sequence())
}

#[test]
fn a_source_makes_a_million_distinct_flows() {
    let (c, shapes, mut out) = (Classifier::new(3), shapes(), [0; 94]);
    let flows: HashSet<u64> = (0..1_000_000u32)
        .map(|flow| {
            let shape = shapes[flow as usize % shapes.len()];
            ADDRESSING.write(shape, flow, &mut out);
            c.classify(&out).signature
        })
        .collect();
    assert_eq!(flows.len(), 1_000_000);
}

#[test]
fn flows_sizes_and_shapes_are_used_in_turn() {
    let mut bench = Bench::new();
    let mut first = started(SourceSettings { first_flow: 500, ..settings(50, 400) });
    let made = bench.run_out(&mut first);
    for (i, frame) in made.iter().enumerate() {
        let shape = shapes()[i % 50 % 10];
        assert_eq!(tag(frame), (500 + i as u32 % 50, i as u32 / 50));
        assert_eq!(frame.len(), [60, 128, 1514][i % 3].max(shape.shortest()));
        let bytes = frame.to_vec();
        assert_eq!(bytes[12..14] == [0x81, 0], shape.vlan.is_some());
        assert!(shape.vlan.is_none_or(|v| bytes[14..16] == v.to_be_bytes()));
    }
    assert_eq!((made.len(), bench.tally.value(Counter::FramesMade)), (400, 400));
    assert!(bench.turn(&mut first, 0, []).is_empty(), "it has made what it should");
    drop(made);
    assert!(bench.pools.frames.is_full());
}

#[test]
fn a_source_keeps_its_rate_and_catches_up_by_bursts() {
    let mut bench = Bench::new();
    let mut source = started(SourceSettings { rate_pps: 1_000_000, ..settings(8, 0) });
    let mut made = 0;
    for us in (0..1000).step_by(10) {
        made += bench.turn(&mut source, us, []).len();
        assert_eq!(made as u64, us, "a frame a microsecond");
    }
    let late: Vec<usize> = (0..5).map(|_| bench.turn(&mut source, 1100, []).len()).collect();
    assert_eq!(late, [32, 32, 32, 14, 0]);
    source.stop();
    assert!(source.is_done() && bench.turn(&mut source, 9000, []).is_empty());
}

#[test]
fn a_source_waits_for_its_start_its_port_and_its_pool() {
    let mut bench = Bench::new();
    let mut source = Source::new(settings(8, 100));
    assert!(bench.turn(&mut source, 0, []).is_empty(), "its frames have nowhere to go yet");
    source.start();
    let hoard: Vec<HeapBuf> = std::iter::from_fn(|| bench.pools.frames.alloc()).collect();
    assert!(bench.turn(&mut source, 0, []).is_empty());
    drop(hoard);
    for _ in 0..OUTBOX - 10 {
        bench.outbox.push(bench.pools.frames.alloc().unwrap()).unwrap();
    }
    assert_eq!(bench.turn(&mut source, 0, []).len(), OUTBOX, "no more than the port takes");
    assert_eq!(bench.tally.value(Counter::FramesMade), 10);
    let rest = bench.run_out(&mut source);
    assert_eq!((tag(&rest[0]), rest.len()), ((2, 1), 90), "nothing was skipped");
}

#[test]
fn frames_that_come_to_a_source_are_counted() {
    let mut bench = Bench::new();
    let frames: Vec<HeapBuf> = (0..3).map(|_| bench.pools.frames.alloc().unwrap()).collect();
    bench.turn(&mut Source::new(settings(1, 1)), 0, frames);
    assert_eq!(bench.tally.dropped(DropReason::NotWanted), 3);
}

const VERDICTS: [Counter; 6] = [
    Counter::FramesVerified,
    Counter::Missing,
    Counter::OutOfOrder,
    Counter::Duplicates,
    Counter::Corrupt,
    Counter::Foreign,
];

/// What the sink says of 10 frames of one flow after `change`.
fn verdicts(change: impl FnOnce(&mut Bench, &mut Vec<HeapBuf>)) -> [u64; 6] {
    let mut bench = Bench::new();
    let mut frames = bench.run_out(&mut started(settings(1, 10)));
    change(&mut bench, &mut frames);
    bench.feed(&mut sink(1), frames);
    assert!(bench.pools.frames.is_full());
    bench.counts(VERDICTS)
}

fn copy(bench: &Bench, bytes: &[u8]) -> HeapBuf {
    let mut buf = bench.pools.frames.alloc().unwrap();
    buf.append(bytes.len()).unwrap().copy_from_slice(bytes);
    buf
}

#[test]
fn a_sink_tells_loss_order_duplicates_damage_and_strangers_apart() {
    assert_eq!(verdicts(|_, _| ()), [10, 0, 0, 0, 0, 0]);
    assert_eq!(verdicts(|_, f| drop(f.drain(3..5))), [8, 2, 0, 0, 0, 0], "two are missing");
    assert_eq!(verdicts(|_, f| f.truncate(7)), [7, 0, 0, 0, 0, 0], "the sink cannot know of an end");
    assert_eq!(verdicts(|_, f| f.swap(4, 5)), [9, 1, 1, 0, 0, 0]);
    assert_eq!(verdicts(|_, f| f[2..6].rotate_left(1)), [9, 1, 1, 0, 0, 0]);
    let twice = |bench: &mut Bench, f: &mut Vec<HeapBuf>| {
        let again = copy(bench, &f[6].to_vec());
        f.insert(7, again);
    };
    assert_eq!(verdicts(twice), [10, 0, 0, 1, 0, 0]);
    for at in [0, 30, 59] {
        let damage = |_: &mut Bench, f: &mut Vec<HeapBuf>| {
            let from_tag = f[5].len() - 60 + at;
            f[5].try_unique().unwrap()[from_tag] ^= 0x10;
        };
        let seen = verdicts(damage);
        assert!(seen[0] == 9 || at == 0, "{seen:?}");
        assert_eq!(seen[4] + seen[5], u64::from(seen[0] == 9), "{seen:?}");
    }
    let strangers = |bench: &mut Bench, f: &mut Vec<HeapBuf>| {
        let shape = Shape { proto: Proto::UdpV4, vlan: None };
        f.push(copy(bench, &[0; 60]));
        f.push(copy(bench, &[0; 3]));
        f.push(copy(bench, &frame(shape, 1, 0, 60)));
    };
    assert_eq!(verdicts(strangers), [10, 0, 0, 0, 0, 3], "a flow beyond its own is a stranger's");
}

#[test]
fn scattered_frames_are_verified_too() {
    let cut = |bench: &mut Bench, f: &mut Vec<HeapBuf>| {
        for frame in f.iter_mut() {
            let bytes = frame.to_vec();
            let mut head = copy(bench, &bytes[..20]);
            bytes[20..].chunks(40).for_each(|part| head.chain(copy(bench, part)).unwrap());
            *frame = head;
        }
    };
    assert_eq!(verdicts(cut), [10, 0, 0, 0, 0, 0]);
}

#[test]
fn an_echoing_sink_gives_back_what_the_port_takes() {
    let mut bench = Bench::new();
    let mut sink = Sink::new(SinkSettings { flows: 4, verify: false, echo: true });
    let frames = bench.run_out(&mut started(settings(4, 20)));
    for _ in 0..OUTBOX - 15 {
        bench.outbox.push(bench.pools.frames.alloc().unwrap()).unwrap();
    }
    let back = bench.turn(&mut sink, 0, frames);
    assert_eq!((back.len(), bench.tally.dropped(DropReason::TxFull)), (OUTBOX, 5));
    assert_eq!(tag(&back[OUTBOX - 15]), (0, 0));
    assert_eq!(bench.counts(VERDICTS), [0; 6], "it only counts");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever happens on the way, the sink's figures add up.
    #[test]
    fn what_a_sink_counts_adds_up(
        flows in 1u32..20,
        lost in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        swaps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..20),
    ) {
        let mut bench = Bench::new();
        let mut frames = bench.run_out(&mut started(settings(flows, 300)));
        for (a, b) in swaps {
            frames.swap(a.index(300), b.index(300));
        }
        let mut gone = 0;
        for at in lost {
            drop(frames.remove(at.index(frames.len())));
            gone += 1;
        }
        let fed = frames.len() as u64;
        // A last frame of each flow, so that what is missing at the end shows.
        for flow in 0..flows {
            frames.push(copy(&bench, &frame(shapes()[flow as usize % 10], flow, 1000, 100)));
        }
        bench.feed(&mut sink(flows), frames);
        let [verified, missing, late, double, corrupt, foreign] = bench.counts(VERDICTS);
        prop_assert_eq!((verified + late + double, corrupt, foreign), (fed + u64::from(flows), 0, 0));
        // What came late was counted missing before.
        let beyond = u64::from(flows) * 1000 - 300;
        prop_assert_eq!((missing - late, double), (gone + beyond, 0));
    }
}
