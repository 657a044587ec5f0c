//! What was written: which version of a key a read may see.
//!
//! A read that began when the write of version *w* was acknowledged must not see a version that was acknowledged before
//! *w* began. Writes of one key may overlap, so the ledger keeps for each key the oldest write that may still be under way;
//! when *w* is acknowledged, the floor rises to what was the oldest at the time *w* began.
//!
//! A write that was lost may happen at any later time (its datagram may sit in a queue), so what it wrote is never stale.

use super::value::Version;
use std::collections::HashSet;

/// Writes of one key that may be under way at a time.
const OVERLAP: u32 = 32;
/// Lost writes that are remembered one by one; beyond that staleness is not judged any more.
const LOST_MAX: usize = 1 << 16;

/// Which keys a client may write: those whose number leaves `index` when divided by `of`. Clients of one load have shares
/// that do not overlap, so each key has one writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Which of the shares, below `of`.
    pub index: u32,
    /// How many there are.
    pub of: u32,
}

impl Share {
    /// All keys.
    pub const ALL: Share = Share { index: 0, of: 1 };

    /// True if the share has this key.
    #[inline]
    pub const fn has(self, key: u32) -> bool {
        self.of == 1 || key % self.of == self.index
    }

    /// The key of this share nearest to `key`, below `keys`.
    #[inline]
    pub const fn nearest(self, key: u32, keys: u32) -> u32 {
        if self.of == 1 {
            return key;
        }
        let near = key - key % self.of + self.index;
        if near < keys { near } else { near - self.of }
    }

    /// Keys of this share among `keys`.
    pub const fn count(self, keys: u32) -> u32 {
        keys / self.of + (keys % self.of > self.index) as u32
    }
}

/// Why a whole value of the right key is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WrongVersion {
    /// Overwritten by an acknowledged write before the read began; at least `floor` was due.
    Stale {
        /// Number of the oldest version that could be.
        floor: u32,
    },
    /// Never written; `issued` is the last that was.
    Unwritten {
        /// Number of the newest version.
        issued: u32,
    },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Number of the newest version.
    issued: u32,
    /// Number of the oldest write that may be under way; above `issued` if none is.
    oldest: u32,
    /// Which of those from `oldest` on have ended, one bit each.
    ended: u32,
    /// Number of the oldest version that a read that begins now may see; 0: also the versions of earlier runs.
    floor: u32,
}

/// A write under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// Number of its version.
    pub number: u32,
    /// The floor once it is acknowledged.
    pub low: u32,
}

/// The writes of one client.
#[derive(Debug)]
pub struct Ledger {
    share: Share,
    run: u32,
    entries: Box<[Entry]>,
    lost: HashSet<u64>,
}

impl Ledger {
    /// Nothing written to the share of `keys` keys. Runs later than `run` do not exist.
    pub fn new(keys: u32, share: Share, run: u32) -> Self {
        let blank = Entry { issued: 0, oldest: 1, ended: 0, floor: 0 };
        Ledger {
            share,
            run,
            entries: vec![blank; share.count(keys) as usize].into_boxed_slice(),
            lost: HashSet::with_capacity(4096),
        }
    }

    #[inline]
    fn entry(&mut self, key: u32) -> &mut Entry {
        &mut self.entries[(key / self.share.of) as usize]
    }

    /// Begins a write of a key of the share; `None` while too many of that key are under way.
    #[inline]
    pub fn begin(&mut self, key: u32) -> Option<Write> {
        let entry = self.entry(key);
        if entry.issued + 1 - entry.oldest >= OVERLAP {
            return None;
        }
        entry.issued += 1;
        Some(Write { number: entry.issued, low: entry.oldest })
    }

    /// A write has ended: it was acknowledged, refused or given up.
    #[inline]
    pub fn end(&mut self, key: u32, write: Write, acknowledged: bool) {
        let entry = self.entry(key);
        entry.ended |= 1 << (write.number - entry.oldest);
        let passed = entry.ended.trailing_ones();
        entry.ended = entry.ended.checked_shr(passed).unwrap_or(0);
        entry.oldest += passed;
        if acknowledged {
            entry.floor = entry.floor.max(write.low);
        }
    }

    /// A request to write was not answered: it may be carried out at any time.
    #[cold]
    pub fn lose(&mut self, key: u32, number: u32) {
        if self.lost.len() < LOST_MAX {
            self.lost.insert(u64::from(key) << 32 | u64::from(number));
        }
    }

    /// The oldest version that a read beginning now may see.
    #[inline]
    pub fn floor(&mut self, key: u32) -> u32 {
        if self.share.has(key) { self.entry(key).floor } else { 0 }
    }

    /// Judges the version that a read saw, which began when the floor was `floor`. Keys of other shares are not judged.
    #[inline]
    pub fn judge(&mut self, key: u32, floor: u32, seen: Version) -> Result<(), WrongVersion> {
        if !self.share.has(key) {
            return Ok(());
        }
        let (run, issued) = (self.run, self.entry(key).issued);
        let number = if seen.run == run { seen.number } else { 0 };
        if seen.run > run || (seen.run == run && (number == 0 || number > issued)) {
            return Err(WrongVersion::Unwritten { issued });
        }
        if number < floor && !self.was_lost(key, number) {
            return Err(WrongVersion::Stale { floor });
        }
        Ok(())
    }

    #[cold]
    fn was_lost(&self, key: u32, number: u32) -> bool {
        self.lost.len() >= LOST_MAX || self.lost.contains(&(u64::from(key) << 32 | u64::from(number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RUN: u32 = 100;

    fn seen(number: u32) -> Version {
        Version { run: RUN, number }
    }

    #[test]
    fn one_write_after_the_other_moves_the_floor() {
        let mut ledger = Ledger::new(10, Share::ALL, RUN);
        assert_eq!(ledger.floor(3), 0);
        let earlier = Version { run: RUN - 1, number: 77 };
        assert_eq!(ledger.judge(3, 0, earlier), Ok(()));
        for number in 1..100 {
            let write = ledger.begin(3).unwrap();
            assert_eq!(write, Write { number, low: number });
            let floor = ledger.floor(3);
            assert_eq!(
                ledger.judge(3, floor, seen(number)),
                Ok(()),
                "it may be seen before it is acknowledged"
            );
            ledger.end(3, write, true);
            assert_eq!(ledger.floor(3), number);
            let stale = WrongVersion::Stale { floor: number };
            if number > 1 {
                assert_eq!(ledger.judge(3, number, seen(number - 1)), Err(stale));
            }
            assert_eq!(ledger.judge(3, number, earlier), Err(stale));
            let unwritten = Err(WrongVersion::Unwritten { issued: number });
            assert_eq!(ledger.judge(3, 0, seen(number + 1)), unwritten);
            assert_eq!(ledger.judge(3, 0, Version { run: RUN + 1, number }), unwritten);
        }
    }

    #[test]
    fn overlapping_writes_may_end_in_any_order() {
        let mut ledger = Ledger::new(1, Share::ALL, RUN);
        let [first, second] = [(); 2].map(|()| ledger.begin(0).unwrap());
        ledger.end(0, second, true);
        assert_eq!(ledger.floor(0), 1, "the first may have come after it");
        let third = ledger.begin(0).unwrap();
        ledger.end(0, first, true);
        ledger.end(0, third, true);
        assert_eq!(ledger.floor(0), 1, "the first may have come after the third");
        let fourth = ledger.begin(0).unwrap();
        ledger.end(0, fourth, true);
        assert_eq!(ledger.floor(0), 4);
    }

    #[test]
    fn too_many_writes_of_a_key_wait() {
        let mut ledger = Ledger::new(1, Share::ALL, RUN);
        let all: Vec<Write> = std::iter::from_fn(|| ledger.begin(0)).collect();
        assert_eq!(all.len(), 32);
        all.iter().rev().for_each(|write| ledger.end(0, *write, true));
        assert_eq!(ledger.begin(0), Some(Write { number: 33, low: 33 }));
    }

    #[test]
    fn what_was_lost_is_never_stale() {
        let mut ledger = Ledger::new(1, Share::ALL, RUN);
        let [lost, next] = [false, true].map(|acknowledged| {
            let write = ledger.begin(0).unwrap();
            ledger.end(0, write, acknowledged);
            write.number
        });
        assert_eq!(ledger.judge(0, next, seen(lost)), Err(WrongVersion::Stale { floor: next }));
        ledger.lose(0, lost);
        assert_eq!(ledger.judge(0, next, seen(lost)), Ok(()));
    }

    #[test]
    fn shares_divide_the_keys() {
        for of in [1, 2, 3, 7] {
            let shares: Vec<Share> = (0..of).map(|index| Share { index, of }).collect();
            assert_eq!(shares.iter().map(|s| s.count(20)).sum::<u32>(), 20);
            for key in 0..20 {
                assert_eq!(shares.iter().filter(|s| s.has(key)).count(), 1);
                assert!(
                    shares.iter().all(|s| s.has(s.nearest(key, 20)) && s.nearest(key, 20).abs_diff(key) < of)
                );
            }
        }
    }

    proptest! {
        /// Against a register that is written somewhere between begin and end: what it holds is never judged wrong, and a
        /// value that an acknowledged, later write has replaced is, whenever writes do not overlap.
        #[test]
        fn a_register_is_never_accused(steps in prop::collection::vec((0u8..4, any::<prop::sample::Index>()), 1..300)) {
            let mut ledger = Ledger::new(1, Share::ALL, RUN);
            let mut pending: Vec<(Write, bool)> = vec![];
            let mut held = 0;
            for (what, which) in steps {
                match what {
                    0 => pending.extend(ledger.begin(0).map(|write| (write, false))),
                    1 if !pending.is_empty() => {
                        let at = which.index(pending.len());
                        if !pending[at].1 {
                            held = pending[at].0.number;
                            pending[at].1 = true;
                        }
                    }
                    2 if !pending.is_empty() => {
                        let at = which.index(pending.len());
                        if pending[at].1 {
                            let (write, _) = pending.swap_remove(at);
                            ledger.end(0, write, true);
                        }
                    }
                    _ if held > 0 => {
                        let floor = ledger.floor(0);
                        prop_assert_eq!(ledger.judge(0, floor, seen(held)), Ok(()));
                    }
                    _ => {}
                }
            }
        }
    }
}
