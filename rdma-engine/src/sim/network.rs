//! The network between two ends: frames with a time of arrival, and everything that can happen to them on the way.

use super::rng::Rng;
use super::trace::Trace;
use crate::types::Time;
use crate::wire::ethertype;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What one direction of the network does to frames. Chances are in parts per million.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// A frame is lost.
    pub loss_ppm: u32,
    /// A frame arrives twice.
    pub duplicate_ppm: u32,
    /// A frame is overtaken by those behind it.
    pub reorder_ppm: u32,
    /// One bit of a frame is flipped.
    pub corrupt_ppm: u32,
    /// A frame is marked "congestion experienced".
    pub mark_ppm: u32,
    /// Time from end to end.
    pub delay_ns: u64,
    /// Added to it, between 0 and this.
    pub jitter_ns: u64,
    /// Most that a frame which is overtaken is late.
    pub late_ns: u64,
    /// Time a frame takes on the wire; frames queue for it. 0 for a wire of any speed.
    pub frame_ns: u64,
    /// Time a byte takes on the wire, in picoseconds, besides.
    pub byte_ps: u64,
    /// Frames are marked by the bytes that wait for the wire.
    pub marking: Option<Marking>,
    /// Frames under way at once; more are lost.
    pub queue: usize,
    /// Times, from and to, in which everything is lost.
    pub partitions: Vec<(Time, Time)>,
}

impl Faults {
    /// Nothing goes wrong; so long from end to end.
    pub fn none(delay_ns: u64) -> Self {
        Faults { delay_ns, queue: 1 << 16, ..Faults::default() }
    }
}

/// How a queue marks frames: none below a length, all above another one, more and more of them in between.
#[derive(Clone, Copy, Debug)]
pub struct Marking {
    /// Bytes waiting from which on frames are marked.
    pub from_bytes: u64,
    /// Bytes waiting from which on all frames are marked.
    pub to_bytes: u64,
    /// Chance of a mark just below that, in parts per million.
    pub most_ppm: u32,
}

impl Marking {
    /// Chance of a mark where so many bytes wait, in parts per million.
    fn chance_ppm(&self, waiting: u64) -> u32 {
        if waiting >= self.to_bytes {
            return 1_000_000;
        }
        let over = waiting.saturating_sub(self.from_bytes);
        (over * u64::from(self.most_ppm) / (self.to_bytes - self.from_bytes).max(1)) as u32
    }
}

/// What happened to frames, both directions together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fates {
    /// Given to the network.
    pub sent: u64,
    /// Arrived.
    pub arrived: u64,
    /// Lost at random.
    pub lost: u64,
    /// Lost in a partition.
    pub cut: u64,
    /// Lost at a full queue.
    pub overflowed: u64,
    /// Doubled.
    pub duplicated: u64,
    /// Overtaken.
    pub late: u64,
    /// Changed by a bit.
    pub corrupted: u64,
    /// Marked.
    pub marked: u64,
}

/// A frame under way.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at: Time,
    /// Order among those that arrive at the same time.
    order: u64,
    to: usize,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Direction {
    faults: Faults,
    /// When the last frame in order arrives.
    last: Time,
    /// When the wire is free.
    free: Time,
    under_way: usize,
    /// Most bytes that waited for the wire.
    most_queued: u64,
}

impl Direction {
    /// Bytes that wait for the wire, where its speed is known.
    fn queued(&self, now: Time) -> u64 {
        self.free.since_ns(now) * 1000 / self.faults.byte_ps.max(1)
    }
}

/// Two directions; direction `n` starts at end `n`.
#[derive(Debug)]
pub struct Network {
    directions: [Direction; 2],
    flights: BinaryHeap<Reverse<Flight>>,
    rng: Rng,
    order: u64,
    /// What happened so far.
    pub fates: Fates,
}

impl Network {
    /// With these faults; `seed` decides which frames they hit.
    pub fn new(faults: [Faults; 2], seed: u64) -> Self {
        let direction =
            |faults| Direction { faults, last: Time(0), free: Time(0), under_way: 0, most_queued: 0 };
        Network {
            directions: faults.map(direction),
            flights: BinaryHeap::new(),
            rng: Rng::new(seed),
            order: 0,
            fates: Fates::default(),
        }
    }

    /// Replaces the faults of both directions.
    pub fn set_faults(&mut self, faults: [Faults; 2]) {
        for (direction, faults) in self.directions.iter_mut().zip(faults) {
            direction.faults = faults;
        }
    }

    /// Takes a frame of end `from`.
    pub fn send(&mut self, now: Time, from: usize, mut bytes: Vec<u8>, trace: &mut Trace) {
        self.fates.sent += 1;
        let faults = &self.directions[from].faults;
        let cut = faults.partitions.iter().any(|(a, b)| (*a..*b).contains(&now));
        let full = self.directions[from].under_way >= faults.queue;
        let lost = self.rng.chance(faults.loss_ppm);
        let fate = match (cut, full, lost) {
            (true, ..) => Some(("cut", &mut self.fates.cut)),
            (_, true, _) => Some(("queue full", &mut self.fates.overflowed)),
            (_, _, true) => Some(("lost", &mut self.fates.lost)),
            _ => None,
        };
        if let Some((word, counter)) = fate {
            *counter += 1;
            return trace.frame(now, from, word, &bytes);
        }
        if self.rng.chance(faults.corrupt_ppm) {
            let bit = self.rng.below(bytes.len() as u64 * 8);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            self.fates.corrupted += 1;
        }
        let faults = &self.directions[from].faults;
        let waiting = self.directions[from].queued(now);
        let mark_ppm = faults.marking.map_or(faults.mark_ppm, |m| m.chance_ppm(waiting));
        if self.rng.chance(mark_ppm) && mark(&mut bytes) {
            self.fates.marked += 1;
        }
        if self.rng.chance(self.directions[from].faults.duplicate_ppm) {
            self.fates.duplicated += 1;
            self.fly(now, from, bytes.clone(), trace);
        }
        self.fly(now, from, bytes, trace);
    }

    fn fly(&mut self, now: Time, from: usize, bytes: Vec<u8>, trace: &mut Trace) {
        let direction = &mut self.directions[from];
        let wire_ns = direction.faults.frame_ns + bytes.len() as u64 * direction.faults.byte_ps / 1000;
        direction.free = direction.free.max(now).after_ns(wire_ns);
        direction.most_queued = direction.most_queued.max(direction.queued(now));
        let Direction { faults, last, free, under_way, .. } = direction;
        let arrival = free.after_ns(faults.delay_ns + self.rng.below(faults.jitter_ns + 1));
        let late = self.rng.chance(faults.reorder_ppm);
        let at = if late {
            self.fates.late += 1;
            arrival.after_ns(self.rng.below(faults.late_ns + 1))
        } else {
            *last = (*last).max(arrival);
            *last
        };
        trace.frame(now, from, if late { "late" } else { "sent" }, &bytes);
        *under_way += 1;
        self.order += 1;
        self.flights.push(Reverse(Flight { at, order: self.order, to: 1 - from, bytes }));
    }

    /// Most bytes that waited for the wire of direction `from` since this was last asked.
    pub fn take_most_queued(&mut self, from: usize) -> u64 {
        std::mem::take(&mut self.directions[from].most_queued)
    }

    /// When the next frame arrives.
    pub fn next_arrival(&self) -> Time {
        self.flights.peek().map_or(Time::NEVER, |f| f.0.at)
    }

    /// The next frame that has arrived, and the end it arrived at.
    pub fn receive(&mut self, now: Time) -> Option<(usize, Vec<u8>)> {
        if self.next_arrival() > now {
            return None;
        }
        let Reverse(flight) = self.flights.pop()?;
        self.directions[1 - flight.to].under_way -= 1;
        self.fates.arrived += 1;
        Some((flight.to, flight.bytes))
    }
}

/// Sets the ECN bits to "congestion experienced", which no ICRC covers. False for what is not IP.
fn mark(frame: &mut [u8]) -> bool {
    let Some(kind) = frame.get(12..14).map(|b| u16::from_be_bytes([b[0], b[1]])) else { return false };
    match (kind, frame.len()) {
        (ethertype::IPV4, 15..) => frame[15] |= 3,
        (ethertype::IPV6, 15..) => frame[15] |= 0x30,
        _ => return false,
    }
    true
}
