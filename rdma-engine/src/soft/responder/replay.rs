//! READs and atomics of the peer: being answered, and kept so that an answer can be repeated.

use crate::types::{MASK_24, Psn, Rkey};

/// What was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    /// READ of `len` bytes.
    Read { addr: u64, rkey: Rkey, len: u32 },
    /// An atomic; the value before it.
    Atomic { original: u64 },
}

/// One READ or atomic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    pub(super) first: Psn,
    /// PSNs it takes.
    pub(super) packets: u32,
    /// MSN of its answer.
    pub(super) msn: u32,
    pub(super) asked: Asked,
    /// Packet the present answer starts with: not 0 when a READ is resumed.
    pub(super) from: u32,
    /// Packet of the answer that is sent next.
    pub(super) next: u32,
    /// Packet behind the last one to be sent.
    pub(super) to: u32,
    /// All of the answer was sent before; what is pending is a repetition.
    pub(super) answered: bool,
}

impl Exchange {
    /// A fresh one, nothing of it answered.
    pub(super) fn new(first: Psn, packets: u32, msn: u32, asked: Asked) -> Self {
        Exchange { first, packets, msn, asked, from: 0, next: 0, to: packets, answered: false }
    }

    /// Which of its packets has this PSN.
    pub(super) fn index_of(&self, psn: Psn) -> Option<u32> {
        let index = psn.value().wrapping_sub(self.first.value()) & MASK_24;
        (index < self.packets).then_some(index)
    }

    /// PSN of the packet that is sent next.
    #[inline]
    pub(super) fn next_psn(&self) -> Psn {
        self.first.advance(self.next)
    }

    /// The packet `next` was sent.
    #[inline]
    pub(super) fn sent(&mut self) {
        self.next += 1;
        self.answered |= self.next == self.to;
    }

    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.next < self.to
    }
}

/// The last READs and atomics, as many as the peer may have outstanding.
#[derive(Debug)]
pub(super) struct Replay {
    slots: Box<[Option<Exchange>]>,
    /// Most kept.
    depth: u32,
    head: u32,
    tail: u32,
    /// No exchange before this one has anything to send.
    cursor: u32,
}

impl Replay {
    pub(super) fn new(depth: u32) -> Self {
        let slots = vec![None; depth.next_power_of_two() as usize].into_boxed_slice();
        Replay { slots, depth, head: 0, tail: 0, cursor: 0 }
    }

    /// Most exchanges kept.
    #[inline]
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    fn slot(&self, index: u32) -> usize {
        index as usize & (self.slots.len() - 1)
    }

    fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// True if a new exchange would push one out that was never answered: the peer asks for more than it may. (One
    /// whose answer is only being repeated may go: the peer would not ask for more if it still missed that.)
    pub(super) fn is_full(&self) -> bool {
        self.len() == self.depth && self.slots[self.slot(self.head)].is_some_and(|e| !e.answered)
    }

    /// Keeps an exchange; the oldest goes if there is no room.
    pub(super) fn push(&mut self, exchange: Exchange) {
        if self.depth == 0 {
            return;
        }
        if self.len() == self.depth {
            if self.cursor == self.head {
                self.cursor = self.head.wrapping_add(1);
            }
            self.head = self.head.wrapping_add(1);
        }
        let slot = self.slot(self.tail);
        self.slots[slot] = Some(exchange);
        self.tail = self.tail.wrapping_add(1);
    }

    /// True if some answer is to be sent.
    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.cursor != self.tail
    }

    /// The oldest exchange with something to send.
    #[inline]
    pub(super) fn pending(&mut self) -> Option<&mut Exchange> {
        while self.cursor != self.tail {
            let slot = self.slot(self.cursor);
            if self.slots[slot].is_some_and(|e| e.is_pending()) {
                return self.slots[slot].as_mut();
            }
            self.cursor = self.cursor.wrapping_add(1);
        }
        None
    }

    /// What [`pending`](Self::pending) has just found.
    #[inline]
    pub(super) fn at_cursor(&self) -> Option<&Exchange> {
        self.slots[self.slot(self.cursor)].as_ref()
    }

    /// The next packet of the oldest pending exchange was sent.
    #[inline]
    pub(super) fn sent(&mut self) {
        let slot = self.slot(self.cursor);
        if let Some(exchange) = &mut self.slots[slot] {
            exchange.sent();
            if !exchange.is_pending() {
                self.cursor = self.cursor.wrapping_add(1);
            }
        }
    }

    /// The exchange that `psn` belongs to, and which packet of it that is.
    pub(super) fn find(&self, psn: Psn) -> Option<(u32, Exchange, u32)> {
        (0..self.len()).rev().find_map(|back| {
            let at = self.head.wrapping_add(back);
            let exchange = self.slots[self.slot(at)]?;
            exchange.index_of(psn).map(|index| (at, exchange, index))
        })
    }

    /// Packets `from` up to `to` of the exchange at `at` are to be sent again.
    pub(super) fn repeat(&mut self, at: u32, from: u32, to: u32) {
        let slot = self.slot(at);
        if let Some(exchange) = &mut self.slots[slot] {
            (exchange.from, exchange.next, exchange.to) = (from, from, to);
        }
        let (repeated, cursor) = (at.wrapping_sub(self.head), self.cursor.wrapping_sub(self.head));
        if repeated < cursor {
            self.cursor = at;
        }
    }

    /// Nothing is to be sent any more.
    pub(super) fn silence(&mut self) {
        self.cursor = self.tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(first: u32, packets: u32) -> Exchange {
        let asked = Asked::Read { addr: 0, rkey: Rkey(1), len: packets * 256 };
        Exchange::new(Psn::new(first), packets, 0, asked)
    }

    #[test]
    fn answers_are_owed_oldest_first_and_can_be_repeated() {
        let mut replay = Replay::new(3);
        for e in [read(MASK_24, 2), read(1, 1), read(2, 4)] {
            assert!(!replay.is_full());
            replay.push(e);
        }
        assert!(replay.is_full());
        for psn in [MASK_24, 0, 1, 2, 3, 4, 5] {
            let e = replay.pending().unwrap();
            assert_eq!(e.first.advance(e.next), Psn::new(psn));
            e.sent();
        }
        assert!(replay.pending().is_none() && !replay.is_full());
        let (at, _, index) = replay.find(Psn::new(0)).unwrap();
        assert_eq!(index, 1);
        replay.repeat(at, 1, 2);
        assert_eq!(replay.pending().unwrap().next, 1);
        replay.push(read(6, 1));
        assert_eq!(replay.pending().unwrap().first, Psn::new(6), "the oldest was pushed out");
        assert!(replay.find(Psn::new(0)).is_none());
    }
}
