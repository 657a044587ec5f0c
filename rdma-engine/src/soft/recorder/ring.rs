//! The last frames of one queue pair.

use super::record::{Failure, FlightRecord};
use super::{KEPT, Record};
use crate::buf::Buf;
use crate::qp::QpState;
use crate::soft::counters::DropReason;
use crate::types::{Qpn, Time};
use std::net::IpAddr;
use std::sync::mpsc::SyncSender;

/// A ring of fixed size.
#[derive(Debug)]
pub(crate) struct Ring {
    records: Box<[Record]>,
    /// Where the next frame goes.
    next: usize,
    /// Frames in it.
    len: usize,
    /// Frames for the queue pair that were dropped unread.
    pub(super) refused: u64,
    pub(super) last_refused: Option<DropReason>,
}

impl Ring {
    /// Room for `frames` frames, at least one.
    pub(super) fn new(frames: u32) -> Self {
        let records = vec![Record::EMPTY; frames.max(1) as usize].into_boxed_slice();
        Ring { records, next: 0, len: 0, refused: 0, last_refused: None }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        (self.next, self.len) = (0, 0);
        (self.refused, self.last_refused) = (0, None);
    }

    /// Frames in it.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Keeps the head of a frame. The last `tail` bytes mean nothing.
    #[inline]
    pub(super) fn note<B: Buf>(&mut self, at: Time, sent: bool, frame: &B, tail: usize) {
        let first = frame.first();
        let kept = first.len().min(KEPT).min(frame.len().saturating_sub(tail));
        let record = &mut self.records[self.next];
        record.bytes[..kept].copy_from_slice(&first[..kept]);
        (record.at, record.len) = (at, frame.len() as u32);
        (record.kept, record.sent) = (kept as u8, sent);
        self.next = if self.next + 1 == self.records.len() { 0 } else { self.next + 1 };
        self.len = self.records.len().min(self.len + 1);
    }

    /// The frames, oldest first.
    pub(super) fn frames(&self) -> impl Iterator<Item = &Record> {
        let size = self.records.len();
        let oldest = self.next + size - self.len;
        (0..self.len).map(move |n| &self.records[(oldest + n) % size])
    }

    /// Becomes like `other`, of the same size.
    pub(super) fn copy_from(&mut self, other: &Ring) {
        self.records.copy_from_slice(&other.records);
        (self.next, self.len) = (other.next, other.len);
        (self.refused, self.last_refused) = (other.refused, other.last_refused);
    }
}

/// What a queue pair was when its frames were taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) qpn: Qpn,
    pub(super) dest_qpn: Qpn,
    pub(super) peer: Option<IpAddr>,
    pub(super) state: QpState,
    pub(super) failure: Option<Failure>,
}

/// The last frames of a queue pair, as the worker that owns it took them: without allocating. Another thread makes a
/// [`FlightRecord`] of it and drops it, which gives the memory back to the worker.
#[derive(Debug)]
pub struct Recording {
    pub(super) standing: Standing,
    /// There until it is dropped.
    pub(super) ring: Option<Ring>,
    pub(super) back: SyncSender<Ring>,
}

impl Recording {
    /// The capture file and its words. `epoch_ns` is the moment of `Time(0)` in nanoseconds since 1970. Allocates.
    pub fn record(&self, epoch_ns: u64) -> Option<FlightRecord> {
        self.ring.as_ref().map(|ring| FlightRecord::new(&self.standing, ring, epoch_ns))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(mut ring) = self.ring.take() {
            ring.clear();
            // There is room for all of them; without a worker nobody misses it.
            self.back.try_send(ring).ok();
        }
    }
}
