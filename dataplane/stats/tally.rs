//! The worker's own counts and the board others read.

use super::{Counter, DropReason};
use std::sync::atomic::{AtomicU64, Ordering};

const COUNTERS: usize = Counter::ALL.len();
const CELLS: usize = COUNTERS + DropReason::ALL.len();

/// Counts of one worker role, plain numbers that only it touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    cells: [u64; CELLS],
}

impl Default for Tally {
    fn default() -> Self {
        Tally { cells: [0; CELLS] }
    }
}

impl Tally {
    /// Adds `n` to a counter.
    #[inline]
    pub fn add(&mut self, counter: Counter, n: u64) {
        self.cells[counter as usize] += n;
    }

    /// Sets a counter whose total is kept elsewhere.
    #[inline]
    pub fn set(&mut self, counter: Counter, total: u64) {
        self.cells[counter as usize] = total;
    }

    /// Counts `n` frames dropped for this reason.
    #[inline]
    pub fn drop(&mut self, reason: DropReason, n: u64) {
        self.cells[COUNTERS + reason as usize] += n;
    }

    /// Sets the drops for a reason whose total is kept elsewhere.
    #[inline]
    pub fn set_dropped(&mut self, reason: DropReason, total: u64) {
        self.cells[COUNTERS + reason as usize] = total;
    }

    /// A counter's value.
    #[inline]
    pub fn value(&self, counter: Counter) -> u64 {
        self.cells[counter as usize]
    }

    /// Frames dropped for this reason.
    #[inline]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.cells[COUNTERS + reason as usize]
    }
}

/// Counts for others to read: written by one worker, in whole lines of the cache.
#[derive(Debug)]
#[repr(align(64))]
pub struct Board {
    cells: [AtomicU64; CELLS],
}

impl Default for Board {
    fn default() -> Self {
        Board { cells: [const { AtomicU64::new(0) }; CELLS] }
    }
}

/// A board's contents at one moment.
pub type Snapshot = Tally;

impl Board {
    /// Shows the worker's present counts.
    pub fn publish(&self, tally: &Tally) {
        for (cell, n) in self.cells.iter().zip(&tally.cells) {
            cell.store(*n, Ordering::Relaxed);
        }
    }

    /// What was shown last. Counters may be of two neighbouring publications.
    pub fn read(&self) -> Snapshot {
        let mut cells = [0; CELLS];
        for (n, cell) in cells.iter_mut().zip(&self.cells) {
            *n = cell.load(Ordering::Relaxed);
        }
        Tally { cells }
    }
}

impl Tally {
    /// Adds another tally to this one.
    pub fn merge(&mut self, other: &Tally) {
        for (a, b) in self.cells.iter_mut().zip(&other.cells) {
            *a += b;
        }
    }

    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Tally) -> Tally {
        let mut out = self.clone();
        for (a, b) in out.cells.iter_mut().zip(&earlier.cells) {
            *a = a.saturating_sub(*b);
        }
        out
    }

    /// Frames of the service dropped for any reason; frames of the soft transport are not among them.
    pub fn all_drops(&self) -> u64 {
        self.drops().filter(|(r, _)| !r.is_fabric()).map(|(_, n)| n).sum()
    }

    /// Of these, those that are a loss.
    pub fn losses(&self) -> u64 {
        self.drops().filter(|(r, _)| !r.is_fabric() && r.is_loss()).map(|(_, n)| n).sum()
    }

    /// Frames of the soft transport dropped for any reason.
    pub fn fabric_drops(&self) -> u64 {
        self.drops().filter(|(r, _)| r.is_fabric()).map(|(_, n)| n).sum()
    }

    /// The reasons with a count, and the counts.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&r| (r, self.dropped(r))).filter(|(_, n)| *n > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_read() {
        let (mut t, board) = (Tally::default(), Board::default());
        t.add(Counter::RxFrames, 3);
        t.drop(DropReason::Runt, 2);
        board.publish(&t);
        let seen = board.read();
        assert_eq!((seen.value(Counter::RxFrames), seen.dropped(DropReason::Runt)), (3, 2));
        assert_eq!(seen.drops().collect::<Vec<_>>(), [(DropReason::Runt, 2)]);
        t.add(Counter::RxFrames, 4);
        assert_eq!(t.since(&seen).value(Counter::RxFrames), 4);
        t.merge(&seen);
        assert_eq!((t.value(Counter::RxFrames), t.all_drops()), (10, 4));
    }
}
