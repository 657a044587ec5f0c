//! Registered memory that peers read whenever they like, as its one writer sees it.
//!
//! All stores to an item's header and to slots are aligned stores of 8 bytes, which neither a CPU nor a device ever splits; the
//! bulk of an item goes through [`Window::copy_in`], in any order, while nothing leads to it. What the order of the others
//! rests on is in [`super`].

use super::layout::UNIT;
use rdma_engine::mem::Window;
use std::sync::atomic::Ordering;

/// A writer's view of the arena.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    window: Window,
    /// Every store in its order, to be seen one by one.
    #[cfg(test)]
    pub(super) log: std::cell::RefCell<Option<Vec<Store>>>,
}

/// What a test sees of a store.
#[cfg(test)]
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Store {
    Word(usize, u64),
    Bytes(usize, Vec<u8>),
    /// From here on this is the epoch that gateways hear of.
    Epoch(u64),
}

impl Memory {
    pub(super) fn new(window: Window) -> Self {
        Memory {
            window,
            #[cfg(test)]
            log: std::cell::RefCell::new(None),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.window.len()
    }

    /// The line at this offset will be read soon; of a line that is not there nothing is fetched.
    #[inline]
    pub(super) fn expect(&self, offset: usize) {
        if offset + 8 <= self.window.len() {
            crate::prefetch::read(self.window.word(offset));
        }
    }

    /// What we wrote last, or start with.
    #[inline]
    pub(super) fn word(&self, offset: usize) -> u64 {
        u64::from_le(self.window.word(offset).load(Ordering::Relaxed))
    }

    /// A word that does not matter to anybody yet.
    #[inline]
    pub(super) fn write_word(&self, offset: usize, word: u64) {
        #[cfg(test)]
        self.note(|| Store::Word(offset, word));
        self.window.word(offset).store(word.to_le(), Ordering::Relaxed);
    }

    /// A word that readers act on: whoever sees it sees everything that was stored before.
    #[inline]
    pub(super) fn publish_word(&self, offset: usize, word: u64) {
        #[cfg(test)]
        self.note(|| Store::Word(offset, word));
        self.window.word(offset).store(word.to_le(), Ordering::Release);
    }

    /// Bytes that nothing leads to yet.
    #[inline]
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        #[cfg(test)]
        self.note(|| Store::Bytes(offset, bytes.to_vec()));
        self.window.copy_in(offset, bytes);
    }

    /// Our own bytes.
    #[inline]
    pub(super) fn read(&self, offset: usize, out: &mut [u8]) {
        self.window.copy_out(offset, out);
    }

    /// Zeroes whole units.
    pub(super) fn clear(&self, offset: usize, units: usize) {
        let zeros = [0; 4096];
        let (mut at, end) = (offset, offset + units * UNIT);
        while at < end {
            let n = zeros.len().min(end - at);
            self.write(at, &zeros[..n]);
            at += n;
        }
    }

    #[cfg(test)]
    pub(super) fn note(&self, store: impl FnOnce() -> Store) {
        if let Some(log) = self.log.borrow_mut().as_mut() {
            log.push(store());
        }
    }
}
