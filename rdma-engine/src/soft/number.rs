//! QP numbers: which worker a packet belongs to, which entry of its table, and a random tag.
//!
//! From the top: tag, worker, slot. The tag is neither all zeros nor all ones, so that no number is 0, 1 (the general
//! services interface) or 0xFFFFFF (multicast), and it differs from the one the slot had before.

use super::config::SoftError;
use super::random::Random;
use crate::types::Qpn;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How the 24 bits are divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    slot_bits: u32,
    worker_bits: u32,
}

impl Layout {
    /// Least bits of the tag.
    const TAG_BITS: u32 = 4;

    /// For so many workers and queue pairs of each; `None` if they leave no room for a tag.
    pub(crate) fn new(workers: usize, max_qps: u16) -> Option<Self> {
        let slot_bits = u32::from(max_qps.max(2)).next_power_of_two().trailing_zeros();
        let worker_bits = u32::try_from(workers.max(1)).ok()?.next_power_of_two().trailing_zeros();
        (slot_bits + worker_bits + Self::TAG_BITS <= 24).then_some(Layout { slot_bits, worker_bits })
    }

    /// Entry of the worker's table.
    #[inline]
    pub(crate) const fn slot(self, qpn: Qpn) -> usize {
        (qpn.value() & ((1 << self.slot_bits) - 1)) as usize
    }

    /// Worker that owns the queue pair; a number that nobody was given may name none.
    #[inline]
    pub(crate) const fn worker(self, qpn: Qpn) -> usize {
        (qpn.value() >> self.slot_bits & ((1 << self.worker_bits) - 1)) as usize
    }

    fn qpn(self, tag: u32, worker: usize, slot: u16) -> Qpn {
        Qpn::new((tag << self.worker_bits | worker as u32) << self.slot_bits | u32::from(slot))
    }

    /// A tag made of `word` that is not `last`.
    fn tag(self, word: u32, last: u32) -> u32 {
        let tags = (1 << (24 - self.slot_bits - self.worker_bits)) - 2;
        let tag = 1 + word % tags;
        if tag == last { 1 + tag % tags } else { tag }
    }
}

/// Which numbers are taken.
#[derive(Debug)]
pub(crate) struct Numbers {
    layout: Layout,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: Random,
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    /// Free slots; the one free for longest is taken first.
    free: VecDeque<u16>,
    last_tag: Box<[u32]>,
}

impl Numbers {
    pub(crate) fn new(layout: Layout, workers: usize, max_qps: u16, random: Random) -> Self {
        let worker =
            || Worker { free: (0..max_qps).collect(), last_tag: vec![0; usize::from(max_qps)].into() };
        let workers = (0..workers).map(|_| worker()).collect();
        Numbers { layout, state: Mutex::new(State { random, workers }) }
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a queue pair of `worker`.
    pub(crate) fn take(self: &Arc<Self>, worker: usize) -> Result<Number, SoftError> {
        let mut state = self.lock();
        let word = state.random.word()?;
        let w = state.workers.get_mut(worker).ok_or(SoftError::Worker(worker))?;
        let slot = w.free.pop_front().ok_or(SoftError::TooManyQps(worker))?;
        let last = &mut w.last_tag[usize::from(slot)];
        *last = self.layout.tag(word, *last);
        Ok(Number { numbers: Arc::clone(self), worker, slot, qpn: self.layout.qpn(*last, worker, slot) })
    }
}

/// A number in use; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Number {
    numbers: Arc<Numbers>,
    pub(crate) worker: usize,
    pub(crate) slot: u16,
    pub(crate) qpn: Qpn,
}

impl Drop for Number {
    fn drop(&mut self) {
        if let Some(worker) = self.numbers.lock().workers.get_mut(self.worker) {
            worker.free.push_back(self.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soft::config::Entropy;
    use crate::types::MASK_24;
    use std::collections::HashSet;

    #[test]
    fn numbers_tell_worker_and_slot_and_are_not_reused_at_once() {
        let layout = Layout::new(3, 8).unwrap();
        let numbers = Arc::new(Numbers::new(layout, 3, 8, Random::new(Entropy::Seed(7))));
        let mut seen = HashSet::new();
        for _ in 0..200 {
            let n = numbers.take(2).unwrap();
            assert_eq!((layout.worker(n.qpn), layout.slot(n.qpn)), (2, usize::from(n.slot)));
            assert!(n.qpn.value() > 1 && n.qpn.value() < MASK_24);
            seen.insert(n.qpn);
        }
        assert!(seen.len() > 190);
        let all: Vec<_> = (0..8).map(|_| numbers.take(0).unwrap()).collect();
        assert!(matches!(numbers.take(0), Err(SoftError::TooManyQps(0))));
        drop(all);
        assert!(numbers.take(0).is_ok());
        assert!(matches!(numbers.take(3), Err(SoftError::Worker(3))));
        assert_eq!(Layout::new(256, 8192), None);
    }
}
