//! Registered memory: the node's table of regions, each worker's copy of it, and the checks of a remote access.
//!
//! A key is 32 random bits. Its low bits choose the place in the table (the key is drawn again until that place is
//! free), so that a worker finds a region by one index and one comparison. A worker looks at the table's generation
//! before each burst and copies the table when it has changed; the copy keeps the memory mapped, so that a region
//! dropped by the control thread never takes memory from under a packet.

use super::config::SoftError;
use super::pattern::Pattern;
use super::random::Random;
use crate::mem::{Access, Arena, Region, Window};
use crate::types::{Lkey, Rkey};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Keys of ended registrations that are not given out again for now.
const RECENT_KEYS: usize = 4096;

/// A protection domain: queue pairs reach only regions of their own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pd(pub(crate) u32);

/// What lies behind a key.
#[derive(Clone, Debug)]
pub(crate) enum Memory {
    /// Mapped memory; the arena keeps it mapped.
    Mapped { window: Window, _arena: Arena },
    /// Memory that exists only as a rule, for messages larger than the machine.
    Pattern(Pattern),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    rkey: Rkey,
    pd: Pd,
    access: Access,
    memory: Memory,
    /// Set when a peer invalidated the key; `None` where it may not.
    invalidated: Option<Arc<AtomicBool>>,
}

/// The part of a region that one access means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'r> {
    Mapped(Window),
    Pattern { pattern: &'r Pattern, offset: u64 },
}

impl Target<'_> {
    /// Copies bytes from the start out.
    #[inline]
    pub(crate) fn copy_out(&self, out: &mut [u8]) {
        match self {
            Target::Mapped(window) => window.copy_out(0, out),
            Target::Pattern { pattern, offset } => pattern.copy_out(*offset, out),
        }
    }

    /// Hints that so many bytes from the start will be copied out soon.
    #[inline]
    pub(crate) fn prefetch(&self, len: usize) {
        if let Target::Mapped(window) = self {
            window.prefetch(len);
        }
    }

    /// Copies bytes in at the start.
    #[inline]
    pub(crate) fn copy_in(&self, bytes: &[u8]) {
        match self {
            Target::Mapped(window) => window.copy_in(0, bytes),
            Target::Pattern { pattern, offset } => pattern.copy_in(*offset, bytes),
        }
    }

    /// Adds `add` to the aligned word at the start; its value before.
    pub(crate) fn fetch_add(&self, add: u64) -> u64 {
        match self {
            Target::Mapped(window) => window.word(0).fetch_add(add, Ordering::AcqRel),
            Target::Pattern { .. } => 0,
        }
    }

    /// Replaces the aligned word at the start by `swap` if it equals `compare`; its value before.
    pub(crate) fn compare_swap(&self, compare: u64, swap: u64) -> u64 {
        match self {
            Target::Mapped(window) => window
                .word(0)
                .compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire)
                .unwrap_or_else(|now| now),
            Target::Pattern { .. } => 0,
        }
    }
}

/// The node's table.
#[derive(Debug)]
pub(crate) struct RegionTable {
    /// Changes with every registration and deregistration.
    generation: AtomicU64,
    slots: Mutex<Slots>,
    most: u32,
}

#[derive(Debug)]
struct Slots {
    entries: Box<[Option<Entry>]>,
    random: Random,
    recent: VecDeque<Rkey>,
    live: u32,
    next_pd: u32,
}

impl RegionTable {
    /// Room for `most` regions, in four times as many places.
    pub(crate) fn new(most: u32, random: Random) -> Self {
        let places = (most as usize * 4).next_power_of_two();
        let entries = (0..places).map(|_| None).collect::<Vec<_>>().into_boxed_slice();
        let recent = VecDeque::with_capacity(RECENT_KEYS);
        let slots = Slots { entries, random, recent, live: 0, next_pd: 0 };
        RegionTable { generation: AtomicU64::new(0), slots: Mutex::new(slots), most }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A protection domain nobody else has.
    pub(crate) fn new_pd(&self) -> Pd {
        let mut slots = self.lock();
        slots.next_pd += 1;
        Pd(slots.next_pd)
    }

    /// Registers `memory` under a fresh key.
    pub(crate) fn insert(
        self: &Arc<Self>,
        pd: Pd,
        access: Access,
        memory: Memory,
        invalidable: bool,
    ) -> Result<(Rkey, Registration), SoftError> {
        let access = access.checked()?;
        let mut slots = self.lock();
        if slots.live >= self.most {
            return Err(SoftError::TooManyRegions(self.most));
        }
        let rkey = slots.fresh_key()?;
        let invalidated = invalidable.then(Arc::default);
        let place = slots.place(rkey);
        slots.entries[place] = Some(Entry { rkey, pd, access, memory, invalidated });
        slots.live += 1;
        self.generation.fetch_add(1, Ordering::Release);
        Ok((rkey, Registration { table: Arc::clone(self), rkey }))
    }

    fn remove(&self, rkey: Rkey) {
        let mut slots = self.lock();
        let place = slots.place(rkey);
        slots.entries[place] = None;
        slots.live -= 1;
        if slots.recent.len() == RECENT_KEYS {
            slots.recent.pop_front();
        }
        slots.recent.push_back(rkey);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Registers an arena; the region ends the registration when its last clone is dropped.
    pub(crate) fn register(
        self: &Arc<Self>,
        pd: Pd,
        arena: &Arena,
        access: Access,
        invalidable: bool,
    ) -> Result<Region, SoftError> {
        let memory = Memory::Mapped { window: arena.window(), _arena: arena.clone() };
        let (rkey, registration) = self.insert(pd, access, memory, invalidable)?;
        Ok(Region::new(arena.clone(), access, Lkey(rkey.0), rkey, Arc::new(registration)))
    }
}

impl Slots {
    fn place(&self, rkey: Rkey) -> usize {
        rkey.0 as usize & (self.entries.len() - 1)
    }

    /// A key that is not 0, whose place is free and that was not used lately. At least three places in four are free.
    fn fresh_key(&mut self) -> Result<Rkey, SoftError> {
        loop {
            let rkey = Rkey(self.random.word()?);
            let free = self.entries[self.place(rkey)].is_none();
            if free && rkey.0 != 0 && !self.recent.contains(&rkey) {
                return Ok(rkey);
            }
        }
    }
}

/// Ends a registration when dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    table: Arc<RegionTable>,
    rkey: Rkey,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.table.remove(self.rkey);
    }
}

/// A worker's copy of the table.
#[derive(Debug)]
pub(crate) struct RegionView {
    table: Arc<RegionTable>,
    generation: u64,
    entries: Box<[Option<Entry>]>,
}

impl RegionView {
    pub(crate) fn new(table: Arc<RegionTable>) -> Self {
        let (entries, generation) = {
            let slots = table.lock();
            (slots.entries.clone(), table.generation.load(Ordering::Acquire))
        };
        RegionView { table, generation, entries }
    }

    /// Takes over what the control thread has changed.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        if self.table.generation.load(Ordering::Acquire) != self.generation {
            self.copy();
        }
    }

    #[cold]
    fn copy(&mut self) {
        let slots = self.table.lock();
        self.generation = self.table.generation.load(Ordering::Acquire);
        self.entries.clone_from_slice(&slots.entries);
    }

    fn entry(&self, pd: Pd, rkey: Rkey) -> Option<&Entry> {
        let place = rkey.0 as usize & (self.entries.len() - 1);
        let entry = self.entries[place].as_ref().filter(|e| e.rkey == rkey && e.pd == pd)?;
        let gone = entry.invalidated.as_ref().is_some_and(|i| i.load(Ordering::Acquire));
        (!gone).then_some(entry)
    }

    /// The `len` bytes at `addr` of the region `rkey`, if it belongs to `pd`, grants `need` and holds all of them.
    #[inline]
    pub(crate) fn target(
        &self,
        pd: Pd,
        rkey: Rkey,
        need: Access,
        addr: u64,
        len: usize,
    ) -> Option<Target<'_>> {
        let entry = self.entry(pd, rkey).filter(|e| e.access.allows(need))?;
        match &entry.memory {
            Memory::Mapped { window, .. } => window.at(addr, len).map(Target::Mapped),
            Memory::Pattern(pattern) => {
                let offset = pattern.offset_of(addr, len)?;
                Some(Target::Pattern { pattern, offset })
            }
        }
    }

    /// Invalidates a key on behalf of a peer; false if it may not.
    pub(crate) fn invalidate(&self, pd: Pd, rkey: Rkey) -> bool {
        let flag = self.entry(pd, rkey).and_then(|e| e.invalidated.as_ref());
        flag.map(|f| f.store(true, Ordering::Release)).is_some()
    }
}

#[cfg(test)]
mod tests;
