//! What memory the EAL has and could have.

#![allow(unsafe_code)] // Asks the EAL for its heap statistics.

use core::mem::MaybeUninit;
use std::fs;
use std::path::Path;

use dpdk_sys as sys;

use super::Eal;

/// Hugepages of one size, as the kernel counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hugepages {
    /// Bytes of one page.
    pub page_size: u64,
    /// Pages reserved.
    pub total: u64,
    /// Reserved pages nobody uses.
    pub free: u64,
}

impl Hugepages {
    /// Every page size the kernel knows, smallest first; needs no EAL. Empty where there is no sysfs.
    pub fn list() -> Vec<Hugepages> {
        let Ok(dir) = fs::read_dir("/sys/kernel/mm/hugepages") else { return Vec::new() };
        let mut sizes: Vec<Hugepages> = dir.flatten().filter_map(|entry| read_size(&entry.path())).collect();
        sizes.sort_by_key(|h| h.page_size);
        sizes
    }

    /// Bytes of free hugepages of all sizes.
    pub fn free_bytes() -> u64 {
        Self::list().iter().map(|h| h.page_size * h.free).sum()
    }
}

/// Reads a directory such as `hugepages-2048kB`.
fn read_size(dir: &Path) -> Option<Hugepages> {
    let kib =
        dir.file_name()?.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()?;
    let count = |file: &str| fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok();
    Some(Hugepages { page_size: kib << 10, total: count("nr_hugepages")?, free: count("free_hugepages")? })
}

/// The EAL's heap on one NUMA socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapStats {
    /// NUMA socket.
    pub socket: u32,
    /// Bytes the heap has taken from the system so far.
    pub total: usize,
    /// Bytes of it that are free.
    pub free: usize,
    /// Largest free block in bytes.
    pub largest_free: usize,
}

impl Eal {
    /// The heaps, one per socket.
    pub fn heaps(&self) -> Vec<HeapStats> {
        // SAFETY: the EAL is up.
        let sockets = unsafe { sys::rte_socket_count() };
        (0..sockets).filter_map(heap_stats).collect()
    }
}

fn heap_stats(index: u32) -> Option<HeapStats> {
    // SAFETY: the EAL is up (only called from `Eal::heaps`); the structure is filled in on success.
    unsafe {
        let socket = sys::rte_socket_id_by_idx(index);
        let mut raw = MaybeUninit::<sys::rte_malloc_socket_stats>::zeroed();
        if socket < 0 || sys::rte_malloc_get_socket_stats(socket, raw.as_mut_ptr()) != 0 {
            return None;
        }
        let raw = raw.assume_init();
        Some(HeapStats {
            socket: socket as u32,
            total: raw.heap_totalsz_bytes,
            free: raw.heap_freesz_bytes,
            largest_free: raw.greatest_free_size,
        })
    }
}
