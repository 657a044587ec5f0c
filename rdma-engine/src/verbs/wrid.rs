//! What a `wr_id` carries: an error completion has no valid opcode, so everything is in here.

/// Which ring an entry is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Queue {
    /// The send queue of a queue pair.
    Send,
    /// Its receive queue.
    Recv,
    /// A shared receive queue; the slot is that of the queue.
    Shared,
}

/// Bits of the index: as many as an in-flight ring has entries at most.
const INDEX_BITS: u32 = 30;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// Queue 2 bits, slot 16, generation 16, index 30.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WrId {
    pub(super) queue: Queue,
    pub(super) slot: u16,
    pub(super) generation: u16,
    /// The low 30 bits of the ring's running index; [`WrId::index`] restores the rest.
    low: u32,
}

impl WrId {
    #[inline]
    pub(super) const fn new(queue: Queue, slot: u16, generation: u16, index: u32) -> Self {
        WrId { queue, slot, generation, low: index & INDEX_MASK }
    }

    #[inline]
    pub(super) const fn pack(self) -> u64 {
        (self.queue as u64) << 62
            | (self.slot as u64) << 46
            | (self.generation as u64) << INDEX_BITS
            | self.low as u64
    }

    /// `None` for a value that `pack` never makes.
    #[inline]
    pub(super) const fn unpack(word: u64) -> Option<Self> {
        let queue = match word >> 62 {
            0 => Queue::Send,
            1 => Queue::Recv,
            2 => Queue::Shared,
            _ => return None,
        };
        let low = word as u32 & INDEX_MASK;
        Some(WrId { queue, slot: (word >> 46) as u16, generation: (word >> INDEX_BITS) as u16, low })
    }

    /// The running index that is meant, given the oldest one in flight.
    #[inline]
    pub(super) const fn index(self, oldest: u32) -> u32 {
        oldest.wrapping_add(self.low.wrapping_sub(oldest) & INDEX_MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_is_lost(q in 0u8..3, slot: u16, generation: u16, oldest: u32, ahead in 0u32..1 << 30) {
            let queue = [Queue::Send, Queue::Recv, Queue::Shared][q as usize];
            let index = oldest.wrapping_add(ahead);
            let id = WrId::new(queue, slot, generation, index);
            let back = WrId::unpack(id.pack()).unwrap();
            prop_assert_eq!(back, id);
            prop_assert_eq!(back.index(oldest), index);
        }
    }

    #[test]
    fn an_unknown_queue_is_not_ours() {
        assert_eq!(WrId::unpack(3 << 62), None);
    }
}
