//! Timers of a worker: one deadline for each queue pair, in a heap that is bounded by their number.
//!
//! A deadline only ever moves *earlier* here. A queue pair whose deadline moved later keeps its place and is looked at
//! too early once: restarting the retransmission timer on every acknowledgement costs nothing.

use crate::types::Time;

const ABSENT: u16 = u16::MAX;

/// A binary heap of (deadline, slot) with the place of every slot, so that a deadline can be moved.
#[derive(Debug)]
pub(crate) struct Timers {
    heap: Vec<u16>,
    place: Box<[u16]>,
    deadline: Box<[Time]>,
}

impl Timers {
    /// For slots 0 to `slots` - 1.
    pub(crate) fn new(slots: usize) -> Self {
        assert!(slots < usize::from(ABSENT), "{slots} timers");
        Timers {
            heap: Vec::with_capacity(slots),
            place: vec![ABSENT; slots].into_boxed_slice(),
            deadline: vec![Time::NEVER; slots].into_boxed_slice(),
        }
    }

    /// Makes sure that `slot` fires at `at` or earlier.
    #[inline]
    pub(crate) fn fire_by(&mut self, slot: u16, at: Time) {
        if at < self.deadline[usize::from(slot)] {
            self.move_earlier(slot, at);
        }
    }

    fn move_earlier(&mut self, slot: u16, at: Time) {
        self.deadline[usize::from(slot)] = at;
        let mut place = usize::from(self.place[usize::from(slot)]);
        if place == usize::from(ABSENT) {
            place = self.heap.len();
            self.heap.push(slot);
        }
        self.sift_up(place, slot);
    }

    /// The earliest deadline.
    #[inline]
    pub(crate) fn earliest(&self) -> Time {
        self.heap.first().map_or(Time::NEVER, |&s| self.deadline[usize::from(s)])
    }

    /// Takes out the slot with the earliest deadline if that is due.
    #[inline]
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<u16> {
        let &slot = self.heap.first()?;
        if self.deadline[usize::from(slot)] > now {
            return None;
        }
        self.remove(slot);
        Some(slot)
    }

    /// Forgets `slot`.
    pub(crate) fn remove(&mut self, slot: u16) {
        let place = usize::from(self.place[usize::from(slot)]);
        if place == usize::from(ABSENT) {
            return;
        }
        self.place[usize::from(slot)] = ABSENT;
        self.deadline[usize::from(slot)] = Time::NEVER;
        let moved = self.heap.pop().expect("a slot with a place is in the heap");
        if moved != slot {
            let place = self.sift_up(place, moved);
            self.sift_down(place, moved);
        }
    }

    fn put(&mut self, place: usize, slot: u16) {
        self.heap[place] = slot;
        self.place[usize::from(slot)] = place as u16;
    }

    fn at(&self, place: usize) -> Time {
        self.deadline[usize::from(self.heap[place])]
    }

    fn sift_up(&mut self, mut place: usize, slot: u16) -> usize {
        let at = self.deadline[usize::from(slot)];
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.at(parent) <= at {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, slot);
        place
    }

    fn sift_down(&mut self, mut place: usize, slot: u16) {
        let at = self.deadline[usize::from(slot)];
        loop {
            let mut child = 2 * place + 1;
            if child >= self.heap.len() {
                break;
            }
            if child + 1 < self.heap.len() && self.at(child + 1) < self.at(child) {
                child += 1;
            }
            if at <= self.at(child) {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_behaves_like_a_sorted_list(steps in prop::collection::vec((0u16..12, 0u64..50, 0u8..4), 0..200)) {
            let mut timers = Timers::new(12);
            let mut model = [Time::NEVER; 12];
            for (slot, at, what) in steps {
                match what {
                    0 => {
                        timers.remove(slot);
                        model[usize::from(slot)] = Time::NEVER;
                    }
                    1 => {
                        let due = timers.pop_due(Time(at));
                        let least = *model.iter().min().unwrap();
                        prop_assert_eq!(due.is_some(), least <= Time(at));
                        if let Some(slot) = due {
                            prop_assert_eq!(model[usize::from(slot)], least);
                            model[usize::from(slot)] = Time::NEVER;
                        }
                    }
                    _ => {
                        timers.fire_by(slot, Time(at));
                        let m = &mut model[usize::from(slot)];
                        *m = (*m).min(Time(at));
                    }
                }
                prop_assert_eq!(timers.earliest(), *model.iter().min().unwrap());
            }
        }
    }
}
