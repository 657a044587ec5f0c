//! A fixed array of mbufs, the unit in which queues give and take.

#![allow(unsafe_code)] // Hands the array to drivers that move raw pointers in and out.

use core::mem::MaybeUninit;
use core::{fmt, ptr, slice};

use dpdk_sys as sys;

use crate::mbuf::Mbuf;

/// Up to `N` owned mbufs, in order; whatever is left in it is freed in bulk on drop.
///
/// An array of `N` pointers and a length; it can live on the stack and never allocates.
pub struct Burst<const N: usize = 64> {
    len: usize,
    slots: [MaybeUninit<Mbuf>; N],
}

impl<const N: usize> Burst<N> {
    const FITS: () = assert!(N > 0 && N <= u16::MAX as usize);

    /// An empty burst.
    #[inline]
    pub const fn new() -> Self {
        let () = Self::FITS;
        Burst { len: 0, slots: [const { MaybeUninit::uninit() }; N] }
    }

    /// Mbufs in the burst.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is no room for one more.
    #[inline]
    pub const fn is_full(&self) -> bool {
        self.len == N
    }

    /// Room left.
    #[inline]
    pub const fn room(&self) -> usize {
        N - self.len
    }

    /// Most mbufs it can hold.
    #[inline]
    pub const fn capacity(&self) -> usize {
        N
    }

    /// Adds one at the end; gives it back if the burst is full.
    #[inline]
    pub fn push(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        match self.slots.get_mut(self.len) {
            Some(slot) => {
                slot.write(mbuf);
                self.len += 1;
                Ok(())
            }
            None => Err(mbuf),
        }
    }

    /// Removes the last one.
    #[inline]
    pub fn pop(&mut self) -> Option<Mbuf> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: the slot was initialised and is now behind the length.
        Some(unsafe { self.slots[self.len].assume_init_read() })
    }

    /// Removes the mbuf at `i`; those behind it move up by one. `None` if there is none.
    pub fn take(&mut self, i: usize) -> Option<Mbuf> {
        if i >= self.len {
            return None;
        }
        self.len -= 1;
        // SAFETY: slots up to the old length are initialised; the gap is closed by the move.
        unsafe {
            let at = self.slots.as_mut_ptr().add(i);
            let mbuf = (*at).assume_init_read();
            ptr::copy(at.add(1), at, self.len - i);
            Some(mbuf)
        }
    }

    /// Frees all but the first `len`.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            let n = self.len - len;
            self.len = len;
            // SAFETY: `n` initialised slots from `len` on, no longer counted.
            unsafe { free_bulk(self.slots.as_mut_ptr().add(len).cast(), n) }
        }
    }

    /// Frees all.
    #[inline]
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// The mbufs, in order.
    #[inline]
    pub fn as_slice(&self) -> &[Mbuf] {
        // SAFETY: the first `len` slots are initialised.
        unsafe { slice::from_raw_parts(self.slots.as_ptr().cast(), self.len) }
    }

    /// The mbufs, in order, for changing them in place.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [Mbuf] {
        // SAFETY: the first `len` slots are initialised.
        unsafe { slice::from_raw_parts_mut(self.slots.as_mut_ptr().cast(), self.len) }
    }

    /// Iterates over the mbufs.
    #[inline]
    pub fn iter(&self) -> slice::Iter<'_, Mbuf> {
        self.as_slice().iter()
    }

    /// Iterates over the mbufs mutably.
    #[inline]
    pub fn iter_mut(&mut self) -> slice::IterMut<'_, Mbuf> {
        self.as_mut_slice().iter_mut()
    }

    /// Moves all mbufs out, in order; those not taken from the iterator are freed when it is dropped.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_, N> {
        let end = core::mem::take(&mut self.len);
        Drain { burst: self, next: 0, end }
    }

    /// Adds mbufs until the burst is full; takes no more from `mbufs` than that.
    pub fn extend_with(&mut self, mbufs: impl IntoIterator<Item = Mbuf>) {
        for mbuf in mbufs.into_iter().take(self.room()) {
            drop(self.push(mbuf));
        }
    }

    /// Moves as many as fit from the front of `other` to the end of `self`; returns how many.
    pub fn append_from<const M: usize>(&mut self, other: &mut Burst<M>) -> usize {
        let n = self.room().min(other.len);
        // SAFETY: `n` initialised slots of `other` go to `n` free ones of `self`, then leave `other`.
        unsafe {
            let to = self.slots.as_mut_ptr().add(self.len);
            ptr::copy_nonoverlapping(other.slots.as_ptr(), to, n);
            self.len += n;
            other.forget_front(n);
        }
        n
    }

    /// First free slot, for a driver to write raw mbufs to.
    #[inline]
    pub(crate) fn free_slots(&mut self) -> *mut *mut sys::rte_mbuf {
        self.slots.as_mut_ptr().wrapping_add(self.len).cast()
    }

    /// First mbuf, for a driver to take from.
    #[inline]
    pub(crate) fn used_slots(&mut self) -> *mut *mut sys::rte_mbuf {
        self.slots.as_mut_ptr().cast()
    }

    /// Counts `n` mbufs that were written to [`Burst::free_slots`].
    ///
    /// # Safety
    /// They were, and are now owned by nobody else.
    #[inline]
    pub(crate) unsafe fn grow(&mut self, n: usize) {
        debug_assert!(n <= self.room());
        self.len += n;
    }

    /// Drops the first `n` mbufs from the burst without freeing them; the rest moves to the front.
    ///
    /// # Safety
    /// Somebody else owns them now.
    #[inline]
    pub(crate) unsafe fn forget_front(&mut self, n: usize) {
        debug_assert!(n <= self.len);
        self.len -= n;
        if self.len != 0 && n != 0 {
            let start = self.slots.as_mut_ptr();
            // SAFETY: `len` initialised slots behind the first `n`.
            unsafe { ptr::copy(start.add(n), start, self.len) }
        }
    }
}

/// # Safety
/// `mbufs` points at `n` owned mbufs that are not used afterwards.
#[inline]
unsafe fn free_bulk(mbufs: *mut *mut sys::rte_mbuf, n: usize) {
    // SAFETY: by the caller's word. Chains, shared and foreign mbufs are all handled by it.
    unsafe { sys::rte_pktmbuf_free_bulk(mbufs, n as u32) }
}

impl<const N: usize> Default for Burst<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Drop for Burst<N> {
    #[inline]
    fn drop(&mut self) {
        self.clear();
    }
}

impl<const N: usize> fmt::Debug for Burst<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, const N: usize> IntoIterator for &'a Burst<N> {
    type Item = &'a Mbuf;
    type IntoIter = slice::Iter<'a, Mbuf>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Moves mbufs out of a burst. Made by [`Burst::drain`].
pub struct Drain<'a, const N: usize> {
    burst: &'a mut Burst<N>,
    next: usize,
    end: usize,
}

impl<const N: usize> Iterator for Drain<'_, N> {
    type Item = Mbuf;

    #[inline]
    fn next(&mut self) -> Option<Mbuf> {
        if self.next == self.end {
            return None;
        }
        let slot = &self.burst.slots[self.next];
        self.next += 1;
        // SAFETY: initialised before the drain began, and read once.
        Some(unsafe { slot.assume_init_read() })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.next, Some(self.end - self.next))
    }
}

impl<const N: usize> ExactSizeIterator for Drain<'_, N> {}

impl<const N: usize> Drop for Drain<'_, N> {
    #[inline]
    fn drop(&mut self) {
        if self.next != self.end {
            // SAFETY: the slots from `next` to `end` were not handed out.
            unsafe { free_bulk(self.burst.slots.as_mut_ptr().add(self.next).cast(), self.end - self.next) }
        }
    }
}

impl<const N: usize> FromIterator<Mbuf> for Burst<N> {
    /// Collects the first `N`; any further ones are freed.
    fn from_iter<I: IntoIterator<Item = Mbuf>>(iter: I) -> Self {
        let mut burst = Burst::new();
        for mbuf in iter {
            drop(burst.push(mbuf));
        }
        burst
    }
}
