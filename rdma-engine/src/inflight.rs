//! The in-flight ring: owners of posted buffers, in queue order.
//!
//! One ring a send queue or receive queue. A completion for entry *n* retires everything up to *n*, because a queue
//! completes in order and unsignalled requests have no completion of their own. A full ring returns the entry:
//! nothing is lost, nothing panics.

/// A bounded ring of what is posted, addressed by a running 32-bit index.
///
/// `T` owns the buffer. Indices wrap; at most `depth` entries live at once, so an index is unambiguous while its
/// entry is in flight.
#[derive(Debug)]
pub struct InFlight<T> {
    /// A power of two, so that an index finds its slot by a mask.
    slots: Box<[Option<T>]>,
    /// Most entries at once: what the device's queue takes, not what `slots` could hold.
    depth: usize,
    /// Index of the oldest entry.
    head: u32,
    /// Index of the next entry.
    tail: u32,
}

impl<T> InFlight<T> {
    /// A ring for `depth` entries.
    ///
    /// # Panics
    /// If `depth` is 0 or above 2^30.
    pub fn new(depth: usize) -> Self {
        assert!((1..=1 << 30).contains(&depth), "an in-flight ring of {depth} entries");
        let slots = (0..depth.next_power_of_two()).map(|_| None).collect::<Vec<_>>();
        InFlight { slots: slots.into_boxed_slice(), depth, head: 0, tail: 0 }
    }

    /// Entries in flight.
    #[inline]
    pub fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head) as usize
    }

    /// True if nothing is in flight.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Entries that `push` would still take.
    #[inline]
    pub fn room(&self) -> usize {
        self.depth - self.len()
    }

    /// Entries the ring holds at most.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.depth
    }

    /// Index that the next entry will get.
    #[inline]
    pub fn next_index(&self) -> u32 {
        self.tail
    }

    /// Index of the oldest entry in flight.
    #[inline]
    pub fn oldest_index(&self) -> u32 {
        self.head
    }

    #[inline]
    fn slot(&self, index: u32) -> usize {
        index as usize & (self.slots.len() - 1)
    }

    /// True if `index` names an entry in flight.
    #[inline]
    pub fn contains(&self, index: u32) -> bool {
        (index.wrapping_sub(self.head) as usize) < self.len()
    }

    /// Takes an entry into flight and returns its index, or gives it back when the ring is full.
    #[inline]
    pub fn push(&mut self, entry: T) -> Result<u32, T> {
        if self.room() == 0 {
            return Err(entry);
        }
        let (index, slot) = (self.tail, self.slot(self.tail));
        let before = self.slots[slot].replace(entry);
        debug_assert!(before.is_none());
        // There is nothing to drop, and looking for it costs as much as the rest.
        std::mem::forget(before);
        self.tail = self.tail.wrapping_add(1);
        Ok(index)
    }

    /// The oldest entry, out of flight.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let slot = self.slot(self.head);
        self.head = self.head.wrapping_add(1);
        let entry = self.slots[slot].take();
        debug_assert!(entry.is_some());
        entry
    }

    /// Takes back the entry pushed last, for a post that the device refused.
    #[inline]
    pub fn unpush(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        self.tail = self.tail.wrapping_sub(1);
        let slot = self.slot(self.tail);
        self.slots[slot].take()
    }

    /// The entry with this index, if it is in flight.
    #[inline]
    pub fn entry(&self, index: u32) -> Option<&T> {
        self.contains(index).then(|| self.slots[self.slot(index)].as_ref()).flatten()
    }

    /// The entry with this index for writing, if it is in flight.
    #[inline]
    pub fn entry_mut(&mut self, index: u32) -> Option<&mut T> {
        if !self.contains(index) {
            return None;
        }
        let slot = self.slot(index);
        self.slots[slot].as_mut()
    }

    /// Entries that a completion for `index` retires: all up to and including it. 0 if `index` is not in flight, which
    /// a device never reports and a stale completion does.
    #[inline]
    pub fn covered_by(&self, index: u32) -> usize {
        if self.contains(index) { index.wrapping_sub(self.head) as usize + 1 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn a_full_ring_gives_the_entry_back() {
        let mut ring = InFlight::new(2);
        assert_eq!((ring.push('a'), ring.push('b'), ring.push('c')), (Ok(0), Ok(1), Err('c')));
        assert_eq!((ring.pop(), ring.push('c'), ring.room()), (Some('a'), Ok(2), 0));
        assert_eq!(ring.covered_by(0), 0, "index 0 is no longer in flight");
        assert_eq!(ring.covered_by(2), 2);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u8),
        Pop,
        Unpush,
        Complete(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => any::<u8>().prop_map(Step::Push),
            2 => Just(Step::Pop),
            1 => Just(Step::Unpush),
            2 => any::<u8>().prop_map(Step::Complete),
        ]
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_bounded_queue(start in any::<u32>(), depth in 1usize..20, steps in prop::collection::vec(step(), 0..200)) {
            let mut ring = InFlight::new(depth);
            (ring.head, ring.tail) = (start, start);
            let mut model = VecDeque::new();
            for s in steps {
                match s {
                    Step::Push(v) if model.len() < ring.capacity() => {
                        let index = ring.push(v).unwrap();
                        model.push_back((index, v));
                    }
                    Step::Push(v) => prop_assert_eq!(ring.push(v), Err(v)),
                    Step::Pop => prop_assert_eq!(ring.pop(), model.pop_front().map(|(_, v)| v)),
                    Step::Unpush => prop_assert_eq!(ring.unpush(), model.pop_back().map(|(_, v)| v)),
                    Step::Complete(n) => {
                        let index = ring.oldest_index().wrapping_add(u32::from(n));
                        let covered = ring.covered_by(index);
                        let want = model.iter().position(|(i, _)| *i == index).map_or(0, |p| p + 1);
                        prop_assert_eq!(covered, want);
                        for _ in 0..covered {
                            prop_assert_eq!(ring.pop(), model.pop_front().map(|(_, v)| v));
                        }
                    }
                }
                prop_assert_eq!(ring.len(), model.len());
                prop_assert!(model.iter().all(|(i, v)| ring.entry(*i) == Some(v)));
            }
        }
    }
}
