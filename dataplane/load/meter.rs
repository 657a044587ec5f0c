//! What was measured.

use super::call::{Call, Op};
use super::fault::Fault;
use super::key::KeyFormat;
use hdrhistogram::Histogram;
use rdma_engine::types::Time;

/// Longest latency that is told apart; longer ones count as this. Nanoseconds.
const LATENCY_MAX_NS: u64 = 60_000_000_000;
/// Faults whose description is kept.
pub const FAULTS_KEPT: usize = 20;

/// What is counted. All but `faults` are of the measurement alone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Reads that found their item.
    pub hits: u64,
    /// Reads that found nothing.
    pub misses: u64,
    /// Writes that were done.
    pub stored: u64,
    /// Bytes of values read.
    pub bytes_read: u64,
    /// Bytes of values written.
    pub bytes_written: u64,
    /// Requests or replies that did not come in time, every try counted.
    pub losses: u64,
    /// Requests that were given up after the last try.
    pub unanswered: u64,
    /// Replies that came after their request was counted as lost.
    pub late: u64,
    /// Requests that were due and never sent, as all earlier ones were still under way.
    pub unsent: u64,
    /// Datagrams that are no reply to anything.
    pub strangers: u64,
    /// Wrong replies, in all phases.
    pub faults: u64,
    /// Connections that had to be made again, in all phases.
    pub reconnects: u64,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        let Counts { hits, misses, stored, bytes_read, bytes_written, losses, .. } = *other;
        let Counts { unanswered, late, unsent, strangers, faults, reconnects, .. } = *other;
        self.hits += hits;
        self.misses += misses;
        self.stored += stored;
        self.bytes_read += bytes_read;
        self.bytes_written += bytes_written;
        self.losses += losses;
        self.unanswered += unanswered;
        self.late += late;
        self.unsent += unsent;
        self.strangers += strangers;
        self.faults += faults;
        self.reconnects += reconnects;
    }
}

/// Counts and latencies of one client, or of several.
#[derive(Clone, Debug)]
pub struct Meter {
    /// What was counted.
    pub counts: Counts,
    /// Latencies of reads, in nanoseconds.
    pub gets: Histogram<u64>,
    /// Latencies of writes, in nanoseconds.
    pub sets: Histogram<u64>,
    /// The first faults, in words.
    pub faults: Vec<String>,
    /// How long was measured; of several clients the longest. Nanoseconds.
    pub measured_ns: u64,
}

impl Default for Meter {
    fn default() -> Self {
        let histogram =
            || Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("bounds and digits are possible");
        Meter {
            counts: Counts::default(),
            gets: histogram(),
            sets: histogram(),
            faults: Vec::with_capacity(FAULTS_KEPT),
            measured_ns: 0,
        }
    }
}

impl Meter {
    /// A request of the measurement was answered well.
    #[inline]
    pub(super) fn answered(&mut self, call: &Call, now: Time, hit_bytes: Option<u32>) {
        let latency_ns = now.since_ns(call.due);
        match call.op {
            Op::Get { .. } => {
                self.counts.hits += u64::from(hit_bytes.is_some());
                self.counts.misses += u64::from(hit_bytes.is_none());
                self.counts.bytes_read += u64::from(hit_bytes.unwrap_or(0));
                self.gets.saturating_record(latency_ns);
            }
            Op::Set { length, .. } => {
                self.counts.stored += 1;
                self.counts.bytes_written += u64::from(length);
                self.sets.saturating_record(latency_ns);
            }
        }
    }

    /// A reply was wrong.
    #[cold]
    pub(super) fn wrong(&mut self, keys: KeyFormat, call: &Call, fault: &Fault) {
        self.counts.faults += 1;
        if self.faults.len() < FAULTS_KEPT {
            let verb = if call.is_get() { "get" } else { "set" };
            let name = keys.text(call.key);
            self.faults.push(format!("{verb} {}: {fault}", name.escape_ascii()));
        }
    }

    /// Requests that were answered well, in the measurement.
    pub fn requests(&self) -> u64 {
        self.counts.hits + self.counts.misses + self.counts.stored
    }

    /// Adds what another client measured at the same time.
    pub fn merge(&mut self, other: &Meter) {
        self.counts.add(&other.counts);
        self.gets.add(&other.gets).expect("the bounds are alike");
        self.sets.add(&other.sets).expect("the bounds are alike");
        let room = FAULTS_KEPT - self.faults.len().min(FAULTS_KEPT);
        self.faults.extend(other.faults.iter().take(room).cloned());
        self.measured_ns = self.measured_ns.max(other.measured_ns);
    }
}
