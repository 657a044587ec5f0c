//! Flight records on their way: a worker hands out what was recorded, control makes files of it.
//!
//! The worker's part takes no memory and little time, however many queue pairs fail at once: a ring changes hands. As many
//! as [`MAX_RECORDINGS`] of each worker are under way; the others wait their turn while they are attached.

use crossbeam_queue::ArrayQueue;
use rdma_engine::buf::Pool;
use rdma_engine::soft::{MAX_RECORDINGS, Recording, SoftTransport};
use rdma_engine::types::Time;
use rdma_engine::wr::QpId;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Pause before the next attempt while all of a worker's spare rings are under way.
const PAUSE_NS: u64 = 1_000_000;

/// From the workers of a node to its control.
#[derive(Debug)]
pub(super) struct Records {
    /// With the moment of `Time(0)` in nanoseconds since 1970.
    waiting: ArrayQueue<(Recording, u64)>,
    /// Queue pairs that failed and were gone before their turn came.
    missed: AtomicU64,
}

impl Records {
    pub(super) fn new(workers: usize) -> Self {
        let most = workers.max(1) * MAX_RECORDINGS as usize;
        Records { waiting: ArrayQueue::new(most), missed: AtomicU64::new(0) }
    }

    /// Writes the next record into a file of `directory`. What to say about it.
    pub(super) fn write_next(&self, directory: &Path) -> Option<String> {
        let Some((recording, epoch_ns)) = self.waiting.pop() else {
            return match self.missed.swap(0, Ordering::Relaxed) {
                0 => None,
                n => Some(format!(
                    "{n} more queue pairs failed, too many at once to record each: see those recorded"
                )),
            };
        };
        let record = recording.record(epoch_ns)?;
        // The ring goes back to its worker before the disk is waited for.
        drop(recording);
        Some(match record.write_to(directory) {
            Ok(path) => format!("{}: {} packets in {}", record.comment, record.frames, path.display()),
            Err(error) => format!("{}: no flight record in {}: {error}", record.comment, directory.display()),
        })
    }
}

/// Why a queue pair is to be recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    Failure,
    Request,
}

#[derive(Debug)]
struct Watched {
    qp: QpId,
    due: Option<Due>,
    /// Its first failure was seen; what follows is the taking down.
    failed: bool,
}

/// A worker's side: the queue pairs in use, and of which a record is due.
#[derive(Debug)]
pub(super) struct Watch {
    /// `None` if nothing is recorded.
    records: Option<Arc<Records>>,
    watched: Vec<Watched>,
    due: usize,
    next_try: Time,
}

impl Watch {
    /// For at most `max_qps` queue pairs.
    pub(super) fn new(records: Option<Arc<Records>>, max_qps: u16) -> Self {
        Watch { records, watched: Vec::with_capacity(max_qps.into()), due: 0, next_try: Time(0) }
    }

    pub(super) fn attach(&mut self, qp: QpId) {
        if self.records.is_some() {
            self.watched.push(Watched { qp, due: None, failed: false });
        }
    }

    pub(super) fn detach(&mut self, qp: QpId) {
        let Some(at) = self.watched.iter().position(|watched| watched.qp == qp) else { return };
        let gone = self.watched.swap_remove(at);
        self.due -= usize::from(gone.due.is_some());
        if let Some(records) = self.records.as_ref().filter(|_| gone.due == Some(Due::Failure)) {
            records.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The queue pair is in error.
    #[cold]
    pub(super) fn failed(&mut self, qp: QpId) {
        let watched = self.watched.iter_mut().find(|watched| watched.qp == qp);
        let Some(watched) = watched.filter(|watched| !watched.failed) else { return };
        watched.failed = true;
        self.due += usize::from(watched.due.replace(Due::Failure).is_none());
    }

    /// A record of every queue pair is asked for.
    #[cold]
    pub(super) fn ask(&mut self) {
        for watched in self.watched.iter_mut().filter(|watched| watched.due.is_none()) {
            watched.due = Some(Due::Request);
            self.due += 1;
        }
    }

    /// When [`Watch::hand_out`] has something to do.
    #[inline]
    pub(super) fn next_timer(&self) -> Time {
        if self.due > 0 { self.next_try } else { Time::NEVER }
    }

    /// Hands out what is due: all failures, and one of those asked for, which are copied.
    #[cold]
    pub(super) fn hand_out<P: Pool + 'static>(&mut self, now: Time, transport: &mut SoftTransport<P>) {
        let Some(records) = &self.records else { return };
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch_ns = (since_1970.as_nanos() as u64).saturating_sub(now.0);
        self.next_try = now;
        for order in [Due::Failure, Due::Request] {
            for watched in self.watched.iter_mut().filter(|watched| watched.due == Some(order)) {
                let recording = match order {
                    Due::Failure => transport.take_recording(watched.qp),
                    Due::Request => transport.copy_recording(watched.qp),
                };
                let Some(recording) = recording else {
                    self.next_try = now.after_ns(PAUSE_NS);
                    return;
                };
                // There is room for all that can be under way.
                records.waiting.push((recording, epoch_ns)).ok();
                watched.due = None;
                self.due -= 1;
                if order == Due::Request {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
