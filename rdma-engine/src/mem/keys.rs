//! Which local key covers an address.

use crate::types::Lkey;

/// Finds the local key of a buffer by the **address of its data**. The pool of an mbuf does not tell: an indirect mbuf's
/// pool is that of its header.
///
/// Ranges are sorted and do not overlap; a handful covers a process (a mempool mapped by virtual address is one
/// range), so the last hit is tried first and the rest by binary search.
#[derive(Clone, Debug, Default)]
pub struct KeyTable {
    ranges: Vec<Range>,
    last: usize,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    start: usize,
    end: usize,
    lkey: Lkey,
}

impl KeyTable {
    /// An empty table.
    pub const fn new() -> Self {
        KeyTable { ranges: Vec::new(), last: 0 }
    }

    /// Adds `len` bytes from `start`; false, and nothing is added, if they overlap a range that is there or are none.
    pub fn insert(&mut self, start: usize, len: usize, lkey: Lkey) -> bool {
        let Some(end) = start.checked_add(len) else { return false };
        let at = self.ranges.partition_point(|r| r.end <= start);
        if len == 0 || self.ranges.get(at).is_some_and(|r| r.start < end) {
            return false;
        }
        self.ranges.insert(at, Range { start, end, lkey });
        self.last = at;
        true
    }

    /// Ranges in the table.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The key of the range that holds all `len` bytes from `start`.
    #[inline]
    pub fn lkey(&mut self, start: usize, len: usize) -> Option<Lkey> {
        let holds = |r: &Range| start >= r.start && start <= r.end && len <= r.end - start;
        if let Some(r) = self.ranges.get(self.last).filter(|r| holds(r)) {
            return Some(r.lkey);
        }
        let at = self.ranges.partition_point(|r| r.end <= start);
        let r = self.ranges.get(at).filter(|r| holds(r))?;
        self.last = at;
        Some(r.lkey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_by_all_their_bytes() {
        let mut t = KeyTable::new();
        assert!(t.insert(0x2000, 0x1000, Lkey(2)) && t.insert(0x1000, 0x1000, Lkey(1)));
        assert!(!t.insert(0x1fff, 2, Lkey(9)) && !t.insert(0x5000, 0, Lkey(9)));
        assert!(!t.insert(usize::MAX, 2, Lkey(9)));
        assert_eq!(t.lkey(0x1000, 0x1000), Some(Lkey(1)));
        assert_eq!(t.lkey(0x1fff, 1), Some(Lkey(1)));
        assert_eq!(t.lkey(0x2000, 1), Some(Lkey(2)));
        assert_eq!(t.lkey(0x1fff, 2), None, "no key covers two registrations");
        assert_eq!(t.lkey(0xfff, 1), None);
        assert_eq!(t.lkey(0x3000, 1), None);
    }
}
