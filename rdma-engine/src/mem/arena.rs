//! Arenas: memory mapped once at start and registered whole.

use super::Window;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// What an arena's memory is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Ordinary pages.
    Pages,
    /// 2 MiB hugepages; mapping fails when there are not enough free.
    HugePages,
}

/// An arena that could not be mapped.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// A size of 0.
    #[error("an arena of 0 bytes: give it a size")]
    Empty,
    /// The kernel refused.
    #[error("cannot map {len} bytes of {backing:?}: {source}{}", remedy(*.backing))]
    Map {
        /// Bytes asked for.
        len: usize,
        /// What kind of memory.
        backing: Backing,
        /// The system's error.
        source: io::Error,
    },
}

fn remedy(backing: Backing) -> &'static str {
    match backing {
        Backing::HugePages => "; reserve more in /proc/sys/vm/nr_hugepages or use ordinary pages",
        Backing::Pages => "; use a smaller arena or add memory",
    }
}

/// A mapped range of zeroed, page-aligned memory. Clones share it; it is unmapped with the last clone, and a
/// [`Region`](super::Region) holds one, so registered memory cannot disappear.
#[derive(Clone, Debug)]
pub struct Arena {
    mapping: Arc<Mapping>,
}

#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// What was mapped, at least `len`; 0 for memory that belongs to someone else.
    mapped: usize,
    /// Keeps foreign memory alive.
    _owner: Option<Box<dyn Send + Sync + std::fmt::Debug>>,
}

// SAFETY: the mapping is only reached through windows, which tolerate concurrent writers.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

#[cfg(not(miri))]
const HUGE: usize = 2 << 20;

impl Arena {
    /// Maps `len` zeroed bytes, populated at once so that no page fault comes later.
    pub fn new(len: usize, backing: Backing) -> Result<Self, ArenaError> {
        if len == 0 {
            return Err(ArenaError::Empty);
        }
        let (mapped, base) = map(len, backing).map_err(|source| ArenaError::Map { len, backing, source })?;
        Ok(Arena { mapping: Arc::new(Mapping { base, len, mapped, _owner: None }) })
    }

    /// An arena over memory that `owner` keeps alive (a mempool's chunk).
    ///
    /// # Safety
    /// `base .. base + len` is valid for reads and writes while `owner` lives.
    pub unsafe fn foreign(
        base: NonNull<u8>,
        len: usize,
        owner: impl Send + Sync + std::fmt::Debug + 'static,
    ) -> Self {
        Arena { mapping: Arc::new(Mapping { base, len, mapped: 0, _owner: Some(Box::new(owner)) }) }
    }

    /// A window on the whole of it, valid while this arena or a clone lives.
    pub fn window(&self) -> Window {
        // SAFETY: the mapping lives as long as a clone of the arena; nobody makes references into it.
        unsafe { Window::new(self.mapping.base, self.mapping.len) }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.mapping.len
    }

    /// Never true: an arena has bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(not(miri))]
fn map(len: usize, backing: Backing) -> io::Result<(usize, NonNull<u8>)> {
    let (unit, extra) = match backing {
        Backing::Pages => (4096, 0),
        Backing::HugePages => (HUGE, libc::MAP_HUGETLB),
    };
    let size = len.checked_next_multiple_of(unit).ok_or(io::ErrorKind::OutOfMemory)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE | extra;
    // SAFETY: an anonymous mapping at an address of the kernel's choice.
    let p =
        unsafe { libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if p == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok((size, NonNull::new(p.cast()).ok_or(io::ErrorKind::OutOfMemory)?))
}

#[cfg(miri)]
fn map(len: usize, _backing: Backing) -> io::Result<(usize, NonNull<u8>)> {
    let layout = std::alloc::Layout::from_size_align(len, 4096).map_err(io::Error::other)?;
    // SAFETY: len is not 0.
    let p = unsafe { std::alloc::alloc_zeroed(layout) };
    Ok((len, NonNull::new(p).ok_or(io::ErrorKind::OutOfMemory)?))
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.mapped == 0 {
            return;
        }
        #[cfg(not(miri))]
        // SAFETY: mapped by `map` with this size; no window outlives the last arena by its contract.
        let rc = unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
        #[cfg(not(miri))]
        debug_assert_eq!(rc, 0);
        #[cfg(miri)]
        // SAFETY: allocated by `map` with this layout.
        unsafe {
            std::alloc::dealloc(
                self.base.as_ptr(),
                std::alloc::Layout::from_size_align(self.mapped, 4096).unwrap(),
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_is_zeroed_and_as_long_as_asked() {
        let arena = Arena::new(5000, Backing::Pages).unwrap();
        assert_eq!((arena.len(), arena.window().addr() % 4096), (5000, 0));
        let mut tail = [1; 8];
        arena.window().copy_out(4992, &mut tail);
        assert_eq!(tail, [0; 8]);
        assert!(matches!(Arena::new(0, Backing::Pages), Err(ArenaError::Empty)));
    }

    #[test]
    #[cfg(not(miri))]
    fn a_refused_arena_says_what_to_do() {
        let error = Arena::new(1 << 50, Backing::HugePages).unwrap_err().to_string();
        assert!(error.contains("nr_hugepages"), "{error}");
    }
}
