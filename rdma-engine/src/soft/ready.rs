//! Queue pairs that have something to send, in the order of their turn.

/// A ring of slots, each in it at most once: the queue pair remembers that it is queued.
#[derive(Debug)]
pub(crate) struct Ready {
    ring: Box<[u16]>,
    head: u32,
    tail: u32,
}

impl Ready {
    /// Room for `slots` queue pairs.
    pub(crate) fn new(slots: usize) -> Self {
        Ready { ring: vec![0; slots.next_power_of_two()].into_boxed_slice(), head: 0, tail: 0 }
    }

    /// Queue pairs waiting.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head) as usize
    }

    /// Takes `slot` in unless `queued` says that it is in; sets `queued`.
    #[inline]
    pub(crate) fn queue(&mut self, slot: u16, queued: &mut bool) {
        if std::mem::replace(queued, true) {
            return;
        }
        assert!(self.len() < self.ring.len(), "a slot is queued twice");
        let mask = self.ring.len() - 1;
        self.ring[self.tail as usize & mask] = slot;
        self.tail = self.tail.wrapping_add(1);
    }

    /// The slot whose turn it is. Its owner's mark must be cleared.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u16> {
        if self.head == self.tail {
            return None;
        }
        let mask = self.ring.len() - 1;
        let slot = self.ring[self.head as usize & mask];
        self.head = self.head.wrapping_add(1);
        Some(slot)
    }

    /// Takes `slot` out, wherever it stands.
    pub(crate) fn remove(&mut self, slot: u16) {
        for _ in 0..self.len() {
            let Some(other) = self.next() else { return };
            if other != slot {
                self.queue(other, &mut false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_queued_once() {
        let (mut ready, mut a, mut b) = (Ready::new(2), false, false);
        ready.queue(0, &mut a);
        ready.queue(1, &mut b);
        ready.queue(0, &mut a);
        assert_eq!((ready.len(), ready.next(), ready.next(), ready.next()), (2, Some(0), Some(1), None));
        (a, b) = (false, false);
        ready.queue(1, &mut b);
        ready.queue(0, &mut a);
        ready.remove(1);
        assert_eq!((ready.next(), ready.next()), (Some(0), None));
    }
}
