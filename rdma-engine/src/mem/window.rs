//! A window on memory that somebody else writes at the same time.

#[cfg(not(miri))]
use crate::buf::COPY_STRIDE;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// What a cache fetches at once. Bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const CACHE_LINE: usize = 64;

/// A range of memory that peers or devices may write at any moment.
///
/// There is never a reference or slice to these bytes: they are copied out and in, and what was copied is then checked
/// (state word, sequence, checksum). Single aligned words are read and written atomically. Copies go through the C
/// library by a call the compiler cannot see through, so that it can neither split nor repeat them; a copy may still
/// be torn, and it is the caller's protocol that must notice.
///
/// A window does not own its memory: the [`Arena`](super::Arena) it came from stays alive beside it.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a window is an address; all access is by volatile, atomic or foreign copies that tolerate other writers.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// A window on `len` bytes at `base`.
    ///
    /// # Safety
    /// The memory is valid for reads and writes as long as the window or a copy of it is used, and no Rust reference
    /// to it exists meanwhile.
    pub const unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Window { base, len }
    }

    /// Bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True for no bytes.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The virtual address of the first byte, as peers name it.
    #[inline]
    pub fn addr(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// The window on `len` bytes from `offset`; `None` if it would reach outside.
    #[inline]
    pub fn sub(&self, offset: usize, len: usize) -> Option<Window> {
        if offset > self.len || len > self.len - offset {
            return None;
        }
        // SAFETY: offset is at most len, so the address stays inside the memory or one past its end.
        Some(Window { base: unsafe { self.base.add(offset) }, len })
    }

    /// The window on `len` bytes at virtual address `addr`; `None` if it would reach outside.
    #[inline]
    pub fn at(&self, addr: u64, len: usize) -> Option<Window> {
        self.sub(usize::try_from(addr.checked_sub(self.addr())?).ok()?, len)
    }

    /// Copies bytes from `offset` out; the copy may be torn by a writer.
    ///
    /// # Panics
    /// If the range reaches outside.
    #[inline]
    pub fn copy_out(&self, offset: usize, out: &mut [u8]) {
        let source = self.sub(offset, out.len()).expect("range inside the window");
        // SAFETY: both ranges are valid; `out` is exclusive, so they do not overlap.
        unsafe { copy(out.as_mut_ptr(), source.base.as_ptr(), out.len()) };
        fence(Ordering::Acquire);
    }

    /// Hints that the first `len` bytes will be copied out soon; those outside are left alone.
    #[inline]
    pub fn prefetch(&self, len: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        for at in (0..len.min(self.len)).step_by(CACHE_LINE) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch has no effect but on the cache, and the address is inside the window.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.base.as_ptr().add(at).cast()) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = len;
    }

    /// Copies `bytes` in at `offset`; readers may see part of it.
    ///
    /// # Panics
    /// If the range reaches outside.
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let target = self.sub(offset, bytes.len()).expect("range inside the window");
        fence(Ordering::Release);
        // SAFETY: both ranges are valid; no Rust reference to the window's memory exists, so they do not overlap.
        unsafe { copy(target.base.as_ptr(), bytes.as_ptr(), bytes.len()) };
    }

    /// The aligned word at `offset`, for atomic access.
    ///
    /// # Panics
    /// If the word reaches outside or is not aligned to 8 bytes.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        let w = self.sub(offset, 8).expect("word inside the window");
        let p = w.base.as_ptr().cast::<AtomicU64>();
        assert!(p.is_aligned(), "word at offset {offset} is not aligned");
        // SAFETY: in bounds, aligned, valid for as long as the window is; other writers use atomic stores of the same
        // size or the device's own.
        unsafe { &*p }
    }
}

/// `memcpy` behind a pointer the optimiser must load: the bytes may change under it.
///
/// # Safety
/// As `memcpy`: both ranges valid, not overlapping.
#[inline]
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    #[cfg(miri)]
    // SAFETY: the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, len);
    }
    #[cfg(not(miri))]
    {
        type Memcpy =
            unsafe extern "C" fn(*mut libc::c_void, *const libc::c_void, libc::size_t) -> *mut libc::c_void;
        let memcpy: Memcpy = std::hint::black_box(libc::memcpy);
        let mut at = 0;
        while at < len {
            let now = (len - at).min(COPY_STRIDE);
            // SAFETY: the caller's promise, for a part of both ranges.
            unsafe { memcpy(to.add(at).cast(), from.add(at).cast(), now) };
            at += now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Arena, Backing};
    use std::sync::atomic::Ordering;

    #[test]
    fn ranges_are_checked_at_both_ends() {
        let arena = Arena::new(4096, Backing::Pages).unwrap();
        let w = arena.window();
        assert!(w.sub(4096, 0).is_some() && w.sub(4096, 1).is_none() && w.sub(usize::MAX, 2).is_none());
        assert!(w.at(w.addr() + 4095, 1).is_some());
        assert!(w.at(w.addr() - 1, 1).is_none() && w.at(u64::MAX, 1).is_none());
    }

    #[test]
    fn what_goes_in_comes_out() {
        let arena = Arena::new(4096, Backing::Pages).unwrap();
        let w = arena.window();
        w.copy_in(9, b"bytes");
        let mut out = [0; 7];
        w.copy_out(8, &mut out);
        assert_eq!(&out, b"\0bytes\0");
        w.word(16).store(7, Ordering::Release);
        w.copy_out(16, &mut out);
        assert_eq!(u64::from_le_bytes([out[0], out[1], out[2], out[3], out[4], out[5], out[6], 0]), 7);
    }

    #[test]
    fn copies_of_any_length_are_whole() {
        let arena = Arena::new(16_384, Backing::Pages).unwrap();
        let w = arena.window();
        let from: Vec<u8> = (0..6000).map(|i| (i % 251) as u8).collect();
        for len in [2047, 2048, 2049, 4096, 6000] {
            let mut out = vec![0; len + 1];
            w.copy_in(7, &from[..len]);
            w.copy_in(7 + len, &[0xEE]);
            w.copy_out(7, &mut out);
            assert_eq!((&out[..len], out[len]), (&from[..len], 0xEE));
        }
    }

    #[test]
    #[should_panic(expected = "not aligned")]
    fn words_are_aligned() {
        let arena = Arena::new(64, Backing::Pages).unwrap();
        arena.window().word(4);
    }
}
