//! Which lookups are under way in a partition, by the epoch in which they began.
//!
//! What a node hears of is the oldest of them: no place that died in that epoch or later is used again until it has heard of
//! a newer one.

use std::collections::VecDeque;

/// Epochs told apart at once; a lookup that begins beyond that counts as one of the newest of these, which is safe.
const MOST: usize = 64;

/// Lookups of one partition.
#[derive(Clone, Debug)]
pub struct Lookups {
    /// The newest epoch that the node told.
    known: u64,
    /// Number of the first entry, so that a lookup finds its own.
    first: u32,
    /// Epoch, and how many lookups that began in it are under way.
    under_way: VecDeque<(u64, u32)>,
}

/// A lookup's own entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Began(u32);

impl Lookups {
    /// No lookup; the node is in this epoch.
    pub fn new(epoch: u64) -> Self {
        Lookups { known: epoch, first: 0, under_way: VecDeque::with_capacity(MOST) }
    }

    /// The node told an epoch.
    #[inline]
    pub fn hear(&mut self, epoch: u64) {
        self.known = self.known.max(epoch);
    }

    /// A lookup begins.
    #[inline]
    pub fn begin(&mut self) -> Began {
        let is_full = self.under_way.len() == MOST;
        match self.under_way.back_mut() {
            Some((epoch, count)) if is_full || *epoch == self.known => *count += 1,
            _ => self.under_way.push_back((self.known, 1)),
        }
        Began(self.first.wrapping_add(self.under_way.len() as u32 - 1))
    }

    /// It is over.
    #[inline]
    pub fn end(&mut self, began: Began) {
        let index = began.0.wrapping_sub(self.first) as usize;
        if let Some((_, count)) = self.under_way.get_mut(index) {
            debug_assert!(*count > 0);
            *count = count.saturating_sub(1);
        }
        while self.under_way.front().is_some_and(|(_, count)| *count == 0) {
            self.under_way.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    /// What the node is to hear.
    #[inline]
    pub fn oldest(&self) -> u64 {
        self.under_way.front().map_or(self.known, |(epoch, _)| *epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_lookup_counts() {
        let mut l = Lookups::new(5);
        assert_eq!(l.oldest(), 5);
        let a = l.begin();
        l.hear(7);
        l.hear(6);
        let (b, c) = (l.begin(), l.begin());
        assert_eq!((l.oldest(), b), (5, c));
        l.end(b);
        assert_eq!(l.oldest(), 5);
        l.end(a);
        assert_eq!(l.oldest(), 7);
        l.hear(9);
        assert_eq!(l.oldest(), 7, "one is still under way");
        l.end(c);
        assert_eq!(l.oldest(), 9);
    }

    #[test]
    fn an_old_lookup_does_not_make_the_list_grow_and_is_not_forgotten() {
        let mut l = Lookups::new(1);
        let old = l.begin();
        let mut later = Vec::new();
        for epoch in 2..1000 {
            l.hear(epoch);
            later.push(l.begin());
            if epoch % 3 == 0 {
                l.end(later.remove(0));
            }
        }
        assert_eq!((l.oldest(), l.under_way.len()), (1, MOST));
        later.into_iter().for_each(|b| l.end(b));
        assert_eq!(l.oldest(), 1);
        l.end(old);
        assert_eq!((l.oldest(), l.under_way.len()), (999, 0));
        // Numbers wrap.
        l.first = u32::MAX;
        let (x, y) = (l.begin(), {
            l.hear(2000);
            l.begin()
        });
        l.end(x);
        assert_eq!(l.oldest(), 2000);
        l.end(y);
        assert!(l.under_way.is_empty());
    }
}
