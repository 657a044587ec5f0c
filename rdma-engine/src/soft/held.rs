//! Where a worker keeps packets that overtook a lost one: one pool for all of its queue pairs, made at set-up.
//!
//! Every queue pair has two lists in it, requests and responses, each in the order of its PSNs. A queue pair may hold
//! as many packets as are left free: one alone gets half of the pool, the next one half of what is left, and so on until the
//! first give theirs back, so that something stays free and nobody can take it all away from the others.

use super::arrived::Arrived;
use super::counters::DropReason;
use crate::types::Psn;

/// End of a list.
const NONE: u16 = u16::MAX;

/// Most packets of a pool.
const MOST: u32 = NONE as u32;

/// A packet and the frame it is in.
#[derive(Debug)]
pub(crate) struct Held<B> {
    pub(crate) packet: Arrived,
    pub(crate) frame: B,
}

#[derive(Debug)]
struct Slot<B> {
    held: Option<Held<B>>,
    /// The next of the list, or the next free one.
    next: u16,
}

/// A list in the pool, in the order of PSNs. It must be emptied before it is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    first: u16,
    last: u16,
    len: u16,
}

impl Queue {
    pub(crate) const fn new() -> Self {
        Queue { first: NONE, last: NONE, len: 0 }
    }

    /// Packets in it.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len.into()
    }
}

/// The pool.
#[derive(Debug)]
pub(crate) struct HeldPool<B> {
    /// Those that were ever used; never more than were reserved.
    slots: Vec<Slot<B>>,
    most: u32,
    used: u32,
    free: u16,
}

impl<B> HeldPool<B> {
    /// For `most` packets, at most [`MOST`].
    pub(crate) fn new(most: u32) -> Self {
        let most = most.min(MOST);
        HeldPool { slots: Vec::with_capacity(most as usize), most, used: 0, free: NONE }
    }

    /// Packets held.
    #[cfg(test)]
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    fn psn(&self, slot: u16) -> Option<Psn> {
        let slot = self.slots.get(usize::from(slot))?;
        slot.held.as_ref().map(|held| held.packet.psn)
    }

    fn next(&self, slot: u16) -> u16 {
        self.slots.get(usize::from(slot)).map_or(NONE, |s| s.next)
    }

    /// The PSNs of a list.
    pub(crate) fn psns<'p>(&'p self, queue: &Queue) -> impl Iterator<Item = Psn> + use<'p, B> {
        let mut at = queue.first;
        std::iter::from_fn(move || {
            let psn = self.psn(at)?;
            at = self.next(at);
            Some(psn)
        })
    }

    /// Puts a packet into its place; `own` are all that its queue pair holds. Says why not:
    /// [`OutOfOrder`](DropReason::OutOfOrder) for want of room. What is kept stays, for the sender may have been told.
    pub(crate) fn keep(&mut self, queue: &mut Queue, own: u32, held: Held<B>) -> Result<(), DropReason> {
        let before = self.place(queue, held.packet.psn)?;
        if own >= self.most - self.used {
            return Err(DropReason::OutOfOrder);
        }
        let slot = self.take_free(held);
        self.link(queue, before, slot);
        Ok(())
    }

    /// The last slot before `psn`, or [`NONE`]; an error if it is held already.
    fn place(&self, queue: &Queue, psn: Psn) -> Result<u16, DropReason> {
        if self.psn(queue.last).is_some_and(|last| last.is_before(psn)) {
            return Ok(queue.last);
        }
        let (mut before, mut at) = (NONE, queue.first);
        while let Some(other) = self.psn(at).filter(|other| !other.is_after(psn)) {
            if other == psn {
                return Err(DropReason::Duplicate);
            }
            (before, at) = (at, self.next(at));
        }
        Ok(before)
    }

    fn take_free(&mut self, held: Held<B>) -> u16 {
        self.used += 1;
        let at = self.free;
        let Some(slot) = self.slots.get_mut(usize::from(at)) else {
            self.slots.push(Slot { held: Some(held), next: NONE });
            return self.slots.len() as u16 - 1;
        };
        self.free = slot.next;
        slot.held = Some(held);
        at
    }

    fn link(&mut self, queue: &mut Queue, before: u16, slot: u16) {
        let after = match self.slots.get_mut(usize::from(before)) {
            Some(before) => std::mem::replace(&mut before.next, slot),
            None => std::mem::replace(&mut queue.first, slot),
        };
        self.slots[usize::from(slot)].next = after;
        if after == NONE {
            queue.last = slot;
        }
        queue.len += 1;
    }

    /// Takes out the first.
    pub(crate) fn pop(&mut self, queue: &mut Queue) -> Option<Held<B>> {
        let at = queue.first;
        let slot = self.slots.get_mut(usize::from(at))?;
        queue.first = std::mem::replace(&mut slot.next, self.free);
        if queue.first == NONE {
            queue.last = NONE;
        }
        (self.free, queue.len, self.used) = (at, queue.len - 1, self.used - 1);
        slot.held.take()
    }

    /// Takes out the first if it is `psn`, and drops what lies before that; says how many those were.
    pub(crate) fn pop_at(&mut self, queue: &mut Queue, psn: Psn) -> (Option<Held<B>>, u32) {
        let stale = self.drop_before(queue, psn);
        let due = self.psn(queue.first) == Some(psn);
        (due.then(|| self.pop(queue)).flatten(), stale)
    }

    /// Drops what lies before `psn`; says how many.
    pub(crate) fn drop_before(&mut self, queue: &mut Queue, psn: Psn) -> u32 {
        let before = queue.len();
        while self.psn(queue.first).is_some_and(|first| first.is_before(psn)) {
            self.pop(queue);
        }
        before - queue.len()
    }

    /// Drops all of a list.
    pub(crate) fn clear(&mut self, queue: &mut Queue) {
        while self.pop(queue).is_some() {}
    }
}

#[cfg(test)]
mod tests;
