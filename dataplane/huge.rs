//! Large tables on large pages: what is looked up by a hash is on another page every time, and finding that page costs
//! as much as the look itself.
#![allow(unsafe_code)] // reason: advice on memory is a system call on an address range.

/// Tables from this size on are worth the advice. Bytes.
const WORTH: usize = 4 << 20;

/// A table of `len` times `value`. The kernel is asked for large pages where it is large; it may not have any, which makes no
/// difference but to the time.
pub(crate) fn table<T: Copy>(value: T, len: usize) -> Box<[T]> {
    let mut table = Vec::with_capacity(len);
    if len * size_of::<T>() >= WORTH {
        advise(table.spare_capacity_mut());
    }
    table.resize(len, value);
    table.into_boxed_slice()
}

/// Before the pages are touched for the first time.
fn advise<T>(memory: &mut [T]) {
    #[cfg(not(miri))]
    {
        const PAGE: usize = 4096;
        let range = memory.as_mut_ptr_range();
        let start = range.start.cast::<u8>();
        let first = start.align_offset(PAGE);
        let bytes = size_of_val(memory).saturating_sub(first);
        // SAFETY: the range lies inside of `memory`, which is ours alone, and the advice changes no contents.
        unsafe { libc::madvise(start.wrapping_add(first).cast(), bytes, libc::MADV_HUGEPAGE) };
    }
    #[cfg(miri)]
    let _ = memory;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_any_size_hold_their_value() {
        for len in [0, 1, 1000, WORTH / 8 + 3] {
            let table = table(7u64, len);
            assert!(table.len() == len && table.iter().all(|v| *v == 7));
        }
    }
}
