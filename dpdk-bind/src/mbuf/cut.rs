//! Cutting data off a chain, across its segments.

#![allow(unsafe_code)] // Unlinks segments of an owned chain.

use core::ptr::{self, NonNull};

use super::Mbuf;

impl Mbuf {
    /// Removes `n` bytes from the front, with the segments that become empty (the last one stays); false (and
    /// nothing done) if there are fewer. What the driver reported about the frame stays with it.
    ///
    /// [`Mbuf::adj`] is the same within the first segment.
    #[inline]
    pub fn advance(&mut self, n: usize) -> bool {
        self.adj(n) || self.advance_segments(n)
    }

    fn advance_segments(&mut self, mut n: usize) -> bool {
        if n > self.len() {
            return false;
        }
        while !self.adj(n) {
            n -= self.data().len();
            self.drop_first();
        }
        true
    }

    /// Frees the first segment. There is another one.
    fn drop_first(&mut self) {
        let old = self.header_ptr();
        // SAFETY: the chain is owned and has a second segment, which becomes its head; the old one is then a chain
        // of its own.
        unsafe {
            let new = NonNull::new_unchecked((*old).next);
            (*new.as_ptr()).nb_segs = (*old).nb_segs - 1;
            (*new.as_ptr()).pkt_len = (*old).pkt_len - u32::from((*old).data_len);
            (*old).next = ptr::null_mut();
            (*old).nb_segs = 1;
            self.head = new;
            let old = Mbuf::from_raw(NonNull::new_unchecked(old).cast());
            self.take_report(old.header());
        }
    }

    /// Shortens the data to `len` bytes and frees the segments behind; false (and nothing done) if there are fewer.
    pub fn truncate(&mut self, len: usize) -> bool {
        let Some(excess) = self.len().checked_sub(len) else { return false };
        if self.segment_count() == 1 {
            return self.trim(excess);
        }
        let head = self.header_ptr();
        let (mut last, mut left, mut segments) = (head, len, 1);
        // SAFETY: walks the owned chain to the segment with the last byte to keep, which exists as there are `len`
        // bytes; what follows is unlinked and is then a chain of its own.
        unsafe {
            while left > usize::from((*last).data_len) {
                left -= usize::from((*last).data_len);
                last = (*last).next;
                segments += 1;
            }
            if let Some(rest) = NonNull::new((*last).next) {
                (*rest.as_ptr()).nb_segs = (*head).nb_segs - segments;
                (*last).next = ptr::null_mut();
                drop(Mbuf::from_raw(rest.cast()));
            }
            (*last).data_len = left as u16;
            (*head).nb_segs = segments;
            (*head).pkt_len = len as u32;
        }
        true
    }
}
