//! Memory that exists only as a rule: every byte is a function of its offset.
//!
//! A READ of it yields the rule's bytes; a WRITE into it is compared with them and differences are counted. With it
//! messages of 2^31 bytes are tested on any machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Base address that peers use.
const BASE: u64 = 0x5000_0000_0000;

/// A pattern-backed region. Clones share the counters.
#[derive(Clone, Debug)]
pub struct Pattern {
    len: u64,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    differences: AtomicU64,
}

impl Pattern {
    /// `len` bytes.
    pub fn new(len: u64) -> Self {
        Pattern { len, counts: Arc::default() }
    }

    /// The address peers name its first byte by.
    pub const fn addr(&self) -> u64 {
        BASE
    }

    /// After so many bytes the pattern starts anew.
    pub const PERIOD: u64 = 1 << 23;

    /// The byte at `offset`.
    #[inline]
    pub const fn byte(offset: u64) -> u8 {
        let offset = offset % Self::PERIOD;
        (offset ^ (offset >> 8) ^ (offset >> 16)) as u8
    }

    /// Bytes written so far, retransmissions included.
    pub fn written(&self) -> u64 {
        self.counts.written.load(Ordering::Relaxed)
    }

    /// Bytes written that were not what the rule says.
    pub fn differences(&self) -> u64 {
        self.counts.differences.load(Ordering::Relaxed)
    }

    pub(crate) fn offset_of(&self, addr: u64, len: usize) -> Option<u64> {
        let offset = addr.checked_sub(BASE)?;
        (offset <= self.len && len as u64 <= self.len - offset).then_some(offset)
    }

    pub(crate) fn copy_out(&self, offset: u64, out: &mut [u8]) {
        for (byte, at) in out.iter_mut().zip(offset..) {
            *byte = Self::byte(at);
        }
    }

    pub(crate) fn copy_in(&self, offset: u64, bytes: &[u8]) {
        let wrong = bytes.iter().zip(offset..).filter(|(b, at)| **b != Self::byte(*at)).count();
        self.counts.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.counts.differences.fetch_add(wrong as u64, Ordering::Relaxed);
    }
}
