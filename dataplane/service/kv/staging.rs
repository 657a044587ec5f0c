//! Calls that travel by RDMA WRITE with immediate: into memory of the node whose key only this gateway is given, instead of a
//! receive.
//!
//! The memory of a gateway, the staging region, is cut by its workers, then by the node's, then into slots of one call each.
//! The immediate is the slot. What lies there may be changed by the gateway at any time, so the node copies a call out before it
//! looks at it. A slot is free again when its call is answered.

use rdma_engine::buf::Buf;
use rdma_engine::cm::RegionOffer;
use rdma_engine::mem::{Access, Window};
use rdma_engine::wr::RemoteSlice;

/// How a staging region is cut. The default is none at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// Calls under way at once of one gateway worker to one node worker.
    pub slots: u16,
    /// Bytes of the longest call.
    pub slot_bytes: u32,
}

impl Shape {
    /// Bytes of one lane: the slots between a gateway worker and a node worker.
    const fn lane_bytes(self) -> u64 {
        self.slots as u64 * self.slot_bytes as u64
    }

    /// Bytes of the region of a gateway with so many workers, at a node with so many partitions.
    pub const fn bytes(self, gateway_workers: usize, partitions: usize) -> u64 {
        (gateway_workers * partitions) as u64 * self.lane_bytes()
    }

    /// Where a lane begins in its region.
    const fn lane_at(self, gateway_worker: u16, partition: u16, partitions: u32) -> u64 {
        (gateway_worker as u64 * partitions as u64 + partition as u64) * self.lane_bytes()
    }
}

/// A slot that no call is in.
const FREE: u32 = u32::MAX;

/// The slots of a lane as the gateway worker sees them.
#[derive(Debug)]
pub struct Slots {
    shape: Shape,
    region: RegionOffer,
    /// Where the lane begins.
    addr: u64,
    /// By slot: the number of the call in it.
    calls: Box<[u32]>,
    /// Slots that a call is in.
    used: usize,
}

impl Slots {
    /// The lane of a gateway worker to a node worker; `None` if the node offers none that could be used.
    pub fn new(
        shape: Shape,
        region: RegionOffer,
        (gateway_worker, partition): (u16, u16),
        partitions: u32,
    ) -> Option<Self> {
        let at = shape.lane_at(gateway_worker, partition, partitions);
        let fits = shape.slots > 0 && at + shape.lane_bytes() <= region.len;
        (fits && region.access.allows(Access::REMOTE_WRITE)).then(|| Slots {
            shape,
            region,
            addr: region.addr + at,
            calls: vec![FREE; usize::from(shape.slots)].into(),
            used: 0,
        })
    }

    /// A slot for a call of so many bytes, and the immediate that names it.
    pub fn take(&mut self, call: u32, bytes: usize) -> Option<(RemoteSlice, u32)> {
        let len = u32::try_from(bytes).ok().filter(|len| *len <= self.shape.slot_bytes)?;
        let slot = self.calls.iter().position(|call| *call == FREE)?;
        self.calls[slot] = call;
        self.used += 1;
        let addr = self.addr + slot as u64 * u64::from(self.shape.slot_bytes);
        Some((RemoteSlice { addr, rkey: self.region.rkey, len }, slot as u32))
    }

    /// The call has been answered, or was never posted.
    pub fn give_back(&mut self, call: u32) {
        if self.used > 0
            && let Some(slot) = self.calls.iter_mut().find(|slot| **slot == call)
        {
            *slot = FREE;
            self.used -= 1;
        }
    }
}

/// The staging regions of a node as one of its workers sees them.
#[derive(Clone, Debug, Default)]
pub struct Staging {
    /// How each is cut.
    pub shape: Shape,
    /// The worker's partition.
    pub partition: u16,
    /// Of the node.
    pub partitions: u32,
    /// By seat.
    pub regions: Vec<Window>,
}

impl Staging {
    /// Appends the call of so many bytes that a gateway worker has put into a slot to an empty buffer. False if there is no
    /// such slot, or it is longer than one.
    pub fn copy_out<B: Buf>(
        &self,
        seat: u16,
        gateway_worker: u16,
        slot: u32,
        bytes: u32,
        buf: &mut B,
    ) -> bool {
        let Shape { slots, slot_bytes } = self.shape;
        if slot >= u32::from(slots) || bytes > slot_bytes {
            return false;
        }
        let lane = self.shape.lane_at(gateway_worker, self.partition, self.partitions);
        let at = lane + u64::from(slot) * u64::from(slot_bytes);
        let window = self.regions.get(usize::from(seat)).and_then(|r| r.sub(at as usize, bytes as usize));
        match (window, buf.append(bytes as usize)) {
            (Some(window), Some(room)) => {
                window.copy_out(0, room);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdma_engine::buf::Pool;
    use rdma_engine::heap::HeapPool;
    use rdma_engine::mem::{Arena, Backing};
    use rdma_engine::types::Rkey;

    const SHAPE: Shape = Shape { slots: 3, slot_bytes: 128 };

    fn offer(arena: &Arena) -> RegionOffer {
        let (addr, len) = (arena.window().addr(), arena.window().len() as u64);
        RegionOffer { addr, len, rkey: Rkey(7), access: Access::REMOTE_WRITE }
    }

    /// Every slot of two gateway workers and two partitions is another place, and both ends mean the same by it.
    #[test]
    fn both_ends_find_each_slot_in_a_place_of_its_own() {
        let (workers, partitions) = (2, 2);
        let arena = Arena::new(SHAPE.bytes(workers, partitions) as usize, Backing::Pages).unwrap();
        let pool = HeapPool::new(4, 256);
        let mut written = Vec::new();
        for worker in 0..workers as u16 {
            for partition in 0..partitions as u16 {
                let mut slots = Slots::new(SHAPE, offer(&arena), (worker, partition), 2).unwrap();
                for call in 0..3 {
                    let (slice, slot) = slots.take(call, 128).unwrap();
                    let text = format!("{worker} {partition} {slot}");
                    arena.window().copy_in((slice.addr - arena.window().addr()) as usize, text.as_bytes());
                    written.push((worker, partition, slot, text));
                }
                assert!(slots.take(9, 1).is_none(), "all are in use");
                slots.give_back(1);
                assert_eq!(slots.take(9, 1).unwrap().1, 1);
            }
        }
        for (worker, partition, slot, text) in written {
            let regions = vec![arena.window()];
            let staging = Staging { shape: SHAPE, partition, partitions: 2, regions };
            let mut buf = pool.alloc().unwrap();
            assert!(staging.copy_out(0, worker, slot, text.len() as u32, &mut buf));
            assert_eq!(buf.first(), text.as_bytes());
        }
    }

    #[test]
    fn what_is_not_there_is_not_used() {
        let arena = Arena::new(SHAPE.bytes(1, 1) as usize, Backing::Pages).unwrap();
        let mut slots = Slots::new(SHAPE, offer(&arena), (0, 0), 1).unwrap();
        assert!(slots.take(1, 129).is_none(), "longer than a slot");
        assert!(Slots::new(SHAPE, offer(&arena), (1, 0), 1).is_none(), "another worker's lane is outside");
        let read = RegionOffer { access: Access::REMOTE_READ, ..offer(&arena) };
        assert!(Slots::new(SHAPE, read, (0, 0), 1).is_none());
        assert!(Slots::new(Shape::default(), offer(&arena), (0, 0), 1).is_none());
        let staging = Staging { shape: SHAPE, partition: 0, partitions: 1, regions: vec![arena.window()] };
        let mut buf = HeapPool::new(1, 64).alloc().unwrap();
        assert!(!staging.copy_out(0, 0, 3, 1, &mut buf), "no such slot");
        assert!(!staging.copy_out(0, 0, 0, 129, &mut buf), "longer than a slot");
        assert!(!staging.copy_out(1, 0, 0, 1, &mut buf), "no such seat");
        assert!(!staging.copy_out(0, 1, 0, 1, &mut buf), "no such worker");
        assert!(!Staging::default().copy_out(0, 0, 0, 0, &mut buf), "no staging at all");
    }
}
