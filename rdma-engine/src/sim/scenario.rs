//! What one seed means: kind of queue pairs, sizes, limits, and what the network does.

use super::network::Faults;
use super::rng::Rng;
use crate::soft::Dcqcn;
use crate::types::{Pmtu, Psn, QpType, Time};

/// Everything about a run but its random course.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed it came from.
    pub seed: u64,
    /// Kind of all queue pairs.
    pub kind: QpType,
    /// Queue pairs between the two ends.
    pub pairs: usize,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// Path MTU.
    pub pmtu: Pmtu,
    /// Requests per queue pair and direction.
    pub requests: u32,
    /// Longest message, in bytes.
    pub longest: u32,
    /// Depth of send and receive queues.
    pub depth: u32,
    /// Receives are shared by all queue pairs of an end.
    pub srq: bool,
    /// First PSNs of the two ends.
    pub psn: [Psn; 2],
    /// READs and atomics outstanding.
    pub rd_atomic: u8,
    /// Code of the local ACK timeout.
    pub timeout: u8,
    /// Code of the RNR timer.
    pub rnr_timer: u8,
    /// Retries.
    pub retry_cnt: u8,
    /// RNR retries; 7 for ever.
    pub rnr_retry: u8,
    /// Packets unacknowledged.
    pub window: u16,
    /// Frames of one turn.
    pub quantum: u16,
    /// Payload from which on frames are kept.
    pub copybreak: u16,
    /// Segments of a send.
    pub send_sge: u16,
    /// Frames that one flush may send.
    pub burst: usize,
    /// Buffers for frames.
    pub frames: usize,
    /// Arriving frames that somebody else holds too, in parts per million.
    pub shared_ppm: u32,
    /// How slowly receives are posted: chance per turn and receive, in parts per million.
    pub receive_ppm: u32,
    /// How slowly requests are posted, likewise.
    pub post_ppm: u32,
    /// The network.
    pub faults: [Faults; 2],
    /// Both ends have agreed on selective repeat.
    pub selective: bool,
    /// Packets that each end holds for that.
    pub max_held: u32,
    /// Rate control.
    pub dcqcn: Option<Dcqcn>,
    /// Both ends have agreed on packets of 8192 bytes.
    pub jumbo: bool,
    /// Frames that the flight recorders keep.
    pub recorder_frames: u32,
    /// The last request of the first end's queue pairs asks for memory that the peer does not have.
    pub refusals: bool,
    /// Each pair is taken down when it is done, and another one put in its place.
    pub renewals: bool,
    /// So much is lost, or so little retried, that connections may fail.
    pub harsh: bool,
}

/// Least part of an area that long messages leave to each other, and to the words at its start.
const MESSAGES_AREA: usize = 8 << 10;

/// Loss from which on seven retries in a row may all fail within the runs we make.
const HARSH_PPM: u32 = 30_000;

impl Scenario {
    /// The scenario of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let kind = rng.pick(&[QpType::Rc, QpType::Rc, QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud]);
        let pmtu = rng.pick(&Pmtu::ALL);
        let faults = faults(&mut rng);
        let partitioned = faults.iter().any(|f| !f.partitions.is_empty());
        let worst = faults.iter().map(|f| f.loss_ppm + f.corrupt_ppm).max().unwrap_or(0);
        let narrow = faults.iter().any(|f| f.queue < 64);
        let wrap = |rng: &mut Rng| match rng.below(3) {
            0 => Psn::new(rng.bits() as u32),
            1 => Psn::new(0u32.wrapping_sub(rng.below(200) as u32)),
            _ => Psn::new((1 << 23) - rng.below(200) as u32),
        };
        let (pairs, harsh) = (rng.within(1, 3) as usize, worst >= HARSH_PPM || partitioned || narrow);
        let mut few = |usual, others: &[u8]| if rng.below(10) == 0 { rng.pick(others) } else { usual };
        let (retry_cnt, rnr_retry) = (few(7, &[1, 3, 6]), few(7, &[0, 1, 3]));
        let refusals = kind == QpType::Rc && rng.below(10) == 0;
        let renewals = kind == QpType::Rc && rng.below(5) == 0;
        Scenario {
            seed,
            kind,
            pairs,
            ipv6: rng.below(4) == 0,
            pmtu,
            requests: rng.within(4, 40) as u32,
            longest: rng.pick(&[64, 700, 2500, 10_000]).min(pmtu.bytes() * 24),
            depth: rng.pick(&[1, 2, 5, 16, 32]),
            srq: rng.below(5) == 0,
            psn: [wrap(&mut rng), wrap(&mut rng)],
            rd_atomic: rng.pick(&[1, 2, 3, 16]),
            timeout: timeout(&mut rng, &faults, pairs, harsh),
            rnr_timer: rng.within(1, 12) as u8,
            window: rng.pick(&[1, 2, 7, 32, 256]),
            quantum: rng.pick(&[1, 3, 16]),
            copybreak: rng.pick(&[0, 1, 256, 5000]),
            send_sge: 4,
            burst: rng.pick(&[1, 4, 32]),
            frames: rng.pick(&[2, 64, 512]),
            shared_ppm: rng.pick(&[0, 0, 200_000]),
            receive_ppm: rng.pick(&[20_000, 300_000, 1_000_000]),
            post_ppm: rng.pick(&[50_000, 500_000, 1_000_000]),
            selective: rng.chance(500_000),
            dcqcn: rng.chance(500_000).then(|| Dcqcn::new(40_000)),
            jumbo: rng.chance(100_000),
            recorder_frames: 0,
            max_held: rng.pick(&[0, 5, 60, 1024]),
            retry_cnt,
            rnr_retry,
            refusals,
            renewals,
            harsh: harsh || retry_cnt < 7 && worst > 0 || rnr_retry < 7 || refusals,
            faults,
        }
    }

    /// Bytes of an end's memory that one queue pair of the peer uses.
    pub fn area(&self) -> usize {
        (self.longest as usize).next_multiple_of(8).max(MESSAGES_AREA) + MESSAGES_AREA
    }

    /// True if frames may arrive twice or out of order.
    pub fn shuffles(&self) -> bool {
        self.faults.iter().any(|f| f.duplicate_ppm > 0 || f.reorder_ppm > 0)
    }
}

/// A code of the local ACK timeout. Where connections must not fail it is longer than a round trip can take.
fn timeout(rng: &mut Rng, faults: &[Faults; 2], pairs: usize, harsh: bool) -> u8 {
    let code = rng.within(6, 10) as u8;
    // A window of requests and as much again of READ responses, from every queue pair.
    let queued = 600 * pairs as u64;
    let there = |f: &Faults| f.delay_ns + f.jitter_ns + f.late_ns + queued * f.frame_ns;
    let round_trip: u64 = faults.iter().map(there).sum();
    let enough = (0..31).find(|code| 4096 << code >= 2 * round_trip).unwrap_or(31);
    if harsh { code } else { code.max(enough) }
}

/// Both directions of a network.
fn faults(rng: &mut Rng) -> [Faults; 2] {
    let level = rng.below(6);
    [0, 1].map(|_| {
        let mut some = |most: u32| if rng.below(2) == 0 { 0 } else { rng.below(most.into()) as u32 };
        let mut f = match level {
            0 => Faults::none(0),
            1..=3 => Faults {
                loss_ppm: some(20_000),
                duplicate_ppm: some(100_000),
                reorder_ppm: some(100_000),
                corrupt_ppm: some(9_000),
                mark_ppm: some(100_000),
                ..Faults::none(0)
            },
            _ => Faults {
                loss_ppm: some(250_000),
                duplicate_ppm: some(300_000),
                reorder_ppm: some(300_000),
                corrupt_ppm: some(150_000),
                mark_ppm: some(300_000),
                ..Faults::none(0)
            },
        };
        f.delay_ns = rng.pick(&[0, 1000, 20_000, 200_000]);
        f.jitter_ns = rng.pick(&[0, 0, 5000]);
        f.late_ns = rng.pick(&[3000, 50_000, 2_000_000]);
        f.frame_ns = rng.pick(&[0, 100, 1000]);
        if level == 5 {
            f.queue = rng.pick(&[4, 16, 1 << 16]);
            let start = rng.below(3_000_000);
            let end = start + rng.below(8_000_000);
            f.partitions = if rng.below(2) == 0 { vec![(Time(start), Time(end))] } else { vec![] };
        }
        f
    })
}
