//! Sub-allocation: one registered arena, many users.
//!
//! Registration costs a system call and pinned pages, so an arena is registered once and cut up here. First fit over a
//! sorted list of holes with merging; meant for set-up and control, not for the data path (that has slabs of its own).

/// A range of an arena, in bytes from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubRange {
    /// First byte.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
}

/// Hands out ranges of an arena of `capacity` bytes.
#[derive(Debug)]
pub struct SubAllocator {
    capacity: usize,
    /// Free ranges, sorted by offset, never adjacent.
    holes: Vec<SubRange>,
}

impl SubAllocator {
    /// All of `capacity` bytes free.
    pub fn new(capacity: usize) -> Self {
        let holes = if capacity == 0 { vec![] } else { vec![SubRange { offset: 0, len: capacity }] };
        SubAllocator { capacity, holes }
    }

    /// Bytes free.
    pub fn free_bytes(&self) -> usize {
        self.holes.iter().map(|h| h.len).sum()
    }

    /// True if nothing is handed out.
    pub fn is_whole(&self) -> bool {
        self.free_bytes() == self.capacity
    }

    /// A range of `len` bytes whose offset is a multiple of `align`; `None` if no hole is large enough.
    ///
    /// # Panics
    /// If `len` is 0 or `align` is no power of two.
    pub fn alloc(&mut self, len: usize, align: usize) -> Option<SubRange> {
        assert!(len > 0 && align.is_power_of_two(), "a range of {len} bytes aligned to {align}");
        let fits = |h: &SubRange| {
            let start = h.offset.checked_next_multiple_of(align)?;
            let end = start.checked_add(len)?;
            (end <= h.offset + h.len).then_some(start)
        };
        let (at, start) = self.holes.iter().enumerate().find_map(|(i, h)| fits(h).map(|s| (i, s)))?;
        let hole = self.holes.remove(at);
        let behind = SubRange { offset: start + len, len: hole.offset + hole.len - start - len };
        let before = SubRange { offset: hole.offset, len: start - hole.offset };
        for part in [behind, before] {
            if part.len > 0 {
                self.holes.insert(at, part);
            }
        }
        Some(SubRange { offset: start, len })
    }

    /// Takes a range back.
    ///
    /// # Panics
    /// If it reaches outside or overlaps a free range: it was not handed out, or was freed twice.
    pub fn free(&mut self, range: SubRange) {
        let end = range.offset.checked_add(range.len).filter(|e| *e <= self.capacity);
        let end = end.expect("the range lies inside the arena");
        let at = self.holes.partition_point(|h| h.offset < range.offset);
        let clear_left = at == 0 || self.holes[at - 1].offset + self.holes[at - 1].len <= range.offset;
        let clear_right = self.holes.get(at).is_none_or(|h| end <= h.offset);
        assert!(range.len > 0 && clear_left && clear_right, "{range:?} was not handed out");
        self.holes.insert(at, range);
        self.merge(at);
        if at > 0 {
            self.merge(at - 1);
        }
    }

    /// Joins hole `at` with the one behind it if they touch.
    fn merge(&mut self, at: usize) {
        let Some(next) = self.holes.get(at + 1).copied() else { return };
        let hole = &mut self.holes[at];
        if hole.offset + hole.len == next.offset {
            hole.len += next.len;
            self.holes.remove(at + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_never_overlap_and_all_come_back(steps in prop::collection::vec((1usize..200, 0u32..7, any::<bool>()), 1..100)) {
            let mut sub = SubAllocator::new(4096);
            let mut out: Vec<SubRange> = vec![];
            for (len, shift, free) in steps {
                if free && !out.is_empty() {
                    sub.free(out.swap_remove(len % out.len()));
                } else if let Some(r) = sub.alloc(len, 1 << shift) {
                    prop_assert_eq!(r.offset % (1 << shift), 0);
                    prop_assert!(r.offset + r.len <= 4096);
                    prop_assert!(out.iter().all(|o| r.offset + r.len <= o.offset || o.offset + o.len <= r.offset));
                    out.push(r);
                }
                let used: usize = out.iter().map(|r| r.len).sum();
                prop_assert_eq!(sub.free_bytes() + used, 4096);
            }
            out.into_iter().for_each(|r| sub.free(r));
            prop_assert!(sub.is_whole() && sub.holes.len() == 1);
        }
    }

    #[test]
    #[should_panic(expected = "not handed out")]
    fn freeing_twice_is_a_bug() {
        let mut sub = SubAllocator::new(64);
        let r = sub.alloc(8, 8).unwrap();
        sub.free(r);
        sub.free(r);
    }
}
