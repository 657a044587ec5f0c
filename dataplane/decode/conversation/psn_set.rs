//! PSNs that never appeared: a few ranges, kept small.

use rdma_engine::types::Psn;

/// Most ranges kept; the oldest is forgotten first.
const MAX_RANGES: usize = 16;

/// Ranges of missing PSNs.
#[derive(Default, Debug)]
pub(super) struct PsnSet {
    /// First and length of each range, oldest first.
    ranges: Vec<(Psn, u32)>,
}

impl PsnSet {
    /// Adds the `len` PSNs from `first` on.
    pub(super) fn insert(&mut self, first: Psn, len: u32) {
        if self.ranges.len() == MAX_RANGES {
            self.ranges.remove(0);
        }
        self.ranges.push((first, len));
    }

    /// Removes `psn`; true if it was in the set. The range it was in is cut to what follows: packets that
    /// fill a gap come in order.
    pub(super) fn remove(&mut self, psn: Psn) -> bool {
        let within = |&(first, len): &(Psn, u32)| (0..len as i32).contains(&psn.since(first));
        let Some(at) = self.ranges.iter().position(within) else { return false };
        let (first, len) = self.ranges[at];
        let through = psn.since(first) as u32 + 1;
        match len - through {
            0 => drop(self.ranges.remove(at)),
            rest => self.ranges[at] = (first.advance(through), rest),
        }
        true
    }

    /// True if `psn` is in the set.
    pub(super) fn contains(&self, psn: Psn) -> bool {
        self.ranges.iter().any(|&(first, len)| (0..len as i32).contains(&psn.since(first)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_filled_in_order_and_across_the_wrap() {
        let mut set = PsnSet::default();
        set.insert(Psn::new(0xFF_FFFE), 4);
        assert!(set.contains(Psn::new(1)) && !set.contains(Psn::new(2)));
        assert!(set.remove(Psn::new(0xFF_FFFF)));
        assert!(!set.contains(Psn::new(0xFF_FFFE)) && set.contains(Psn::new(0)));
        assert!(set.remove(Psn::new(0)) && set.remove(Psn::new(1)) && !set.remove(Psn::new(1)));
    }

    #[test]
    fn only_the_newest_ranges_are_kept() {
        let mut set = PsnSet::default();
        (0..40).for_each(|i| set.insert(Psn::new(i * 10), 1));
        assert!(!set.contains(Psn::new(0)) && set.contains(Psn::new(390)));
        assert_eq!(set.ranges.len(), MAX_RANGES);
    }
}
