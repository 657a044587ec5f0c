//! Program order of a worker's clients: operations of one client on one key happen one after the other, reads among
//! themselves together.
//!
//! Operations of different clients that are under way at once may happen in any order, so they do not wait here: a key that
//! everybody writes is as fast as its memory node. Client and key are told apart by some bits of a hash only; two pairs
//! that share them wait for each other now and then, which is harmless.

/// No operation.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Lane {
    reads: u16,
    writing: bool,
    first: u32,
    last: u32,
}

/// Whether an operation may begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// At once.
    Now,
    /// When [`Order::leave`] says so.
    Later,
}

/// Who is at work and who waits, by client and key. Operations are numbers below the capacity.
#[derive(Debug)]
pub struct Order {
    lanes: Box<[Lane]>,
    /// By operation: who waits behind it, and whether it writes.
    waiting: Box<[(u32, bool)]>,
}

impl Order {
    /// For operations numbered below `capacity`.
    pub fn new(capacity: usize) -> Self {
        let empty = Lane { reads: 0, writing: false, first: NONE, last: NONE };
        Order {
            lanes: crate::huge::table(empty, (capacity * 4).next_power_of_two()),
            waiting: vec![(NONE, false); capacity].into(),
        }
    }

    #[inline]
    fn lane(&mut self, hash: u64) -> &mut Lane {
        let at = (hash >> 17) as usize & (self.lanes.len() - 1);
        &mut self.lanes[at]
    }

    /// Such an operation comes soon.
    #[inline]
    pub fn prefetch(&mut self, hash: u64) {
        crate::prefetch::read(self.lane(hash));
    }

    /// An operation comes whose client and key have this hash.
    #[inline]
    pub fn enter(&mut self, hash: u64, operation: u32, writes: bool) -> Turn {
        let lane = self.lane(hash);
        if lane.first == NONE && lane.admit(writes) {
            return Turn::Now;
        }
        let last = std::mem::replace(&mut lane.last, operation);
        if last == NONE {
            lane.first = operation;
        } else {
            self.waiting[last as usize].0 = operation;
        }
        self.waiting[operation as usize] = (NONE, writes);
        Turn::Later
    }

    /// An operation that had its turn is over; `begin` is called for each one whose turn has come by that.
    #[inline]
    pub fn leave(&mut self, hash: u64, writes: bool, mut begin: impl FnMut(u32)) {
        let lane = self.lane(hash);
        if writes {
            lane.writing = false;
        } else {
            lane.reads -= 1;
        }
        loop {
            let first = self.lane(hash).first;
            if first == NONE {
                return;
            }
            let (next, writes) = self.waiting[first as usize];
            let lane = self.lane(hash);
            if !lane.admit(writes) {
                return;
            }
            lane.first = next;
            if next == NONE {
                lane.last = NONE;
            }
            begin(first);
        }
    }

    /// True if nobody is at work and nobody waits.
    pub fn is_empty(&self) -> bool {
        self.lanes.iter().all(|l| l.reads == 0 && !l.writing && l.first == NONE)
    }
}

impl Lane {
    #[inline]
    fn admit(&mut self, writes: bool) -> bool {
        if self.writing || (writes && self.reads > 0) {
            return false;
        }
        if writes {
            self.writing = true;
        } else {
            self.reads += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, VecDeque};

    #[test]
    fn reads_run_together_writes_alone_and_all_in_order() {
        let mut o = Order::new(8);
        assert_eq!(o.enter(1, 0, false), Turn::Now);
        assert_eq!(o.enter(1, 1, false), Turn::Now);
        assert_eq!(o.enter(1, 2, true), Turn::Later);
        assert_eq!(o.enter(1, 3, false), Turn::Later, "not past a write that waits");
        assert_eq!(o.enter(1, 4, false), Turn::Later);
        let mut begun = Vec::new();
        o.leave(1, false, |n| begun.push(n));
        assert!(begun.is_empty());
        o.leave(1, false, |n| begun.push(n));
        assert_eq!(begun, [2]);
        o.leave(1, true, |n| begun.push(n));
        assert_eq!(begun, [2, 3, 4]);
        o.leave(1, false, |_| panic!());
        o.leave(1, false, |_| panic!());
        assert!(o.is_empty());
    }

    #[test]
    fn a_random_schedule_keeps_the_order_of_each_key() {
        let mut state = 7u64;
        let mut random = move |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let mut o = Order::new(64);
        let mut free: Vec<u32> = (0..64).collect();
        let mut of: HashMap<u32, (u64, bool)> = HashMap::new();
        let mut queues: HashMap<u64, VecDeque<u32>> = HashMap::new();
        let mut running: Vec<u32> = Vec::new();
        for _ in 0..200_000 {
            if random(2) == 0 && !free.is_empty() {
                let n = free.swap_remove(random(free.len() as u64) as usize);
                let (hash, writes) = (random(4) << 17, random(3) == 0);
                of.insert(n, (hash, writes));
                queues.entry(hash).or_default().push_back(n);
                if o.enter(hash, n, writes) == Turn::Now {
                    running.push(n);
                }
            } else if !running.is_empty() {
                let n = running.swap_remove(random(running.len() as u64) as usize);
                let (hash, writes) = of[&n];
                queues.get_mut(&hash).unwrap().retain(|m| *m != n);
                o.leave(hash, writes, |m| running.push(m));
                free.push(n);
            }
            for queue in queues.values() {
                // What runs is a prefix of the queue: one write, or reads only.
                let at_work: Vec<bool> = queue.iter().map(|n| running.contains(n)).collect();
                let count = at_work.iter().filter(|r| **r).count();
                assert!(at_work[..count].iter().all(|r| *r));
                assert!(queue.is_empty() || count > 0, "somebody always runs");
                assert!(count < 2 || queue.iter().take(count).all(|n| !of[n].1));
            }
        }
    }
}
