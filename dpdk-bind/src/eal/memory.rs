//! What memory the EAL has and could have.

#![allow(unsafe_code)] // Asks the EAL for its heap statistics.

use core::mem::MaybeUninit;
use std::fs::{self, File};
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

    /// Bytes of hugepages in files that DPDK processes left when they were killed. They are not free, and the EAL frees
    /// them when it starts with hugepages, whatever its file prefix. Needs no EAL; files that may not be opened do not count.
    pub fn left_bytes() -> u64 {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        huge_mounts(&mounts).iter().map(|dir| left_in(Path::new(dir))).sum()
    }
}

/// Where hugepages are mounted: of each size the first place, which is the one that the EAL takes.
fn huge_mounts(mounts: &str) -> Vec<&str> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(dir), Some("hugetlbfs"), Some(options)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let size = options.split(',').find_map(|option| option.strip_prefix("pagesize=")).unwrap_or_default();
        if found.iter().all(|(other, _)| *other != size) {
            found.push((size, dir));
        }
    }
    found.into_iter().map(|(_, dir)| dir).collect()
}

/// Bytes of the files in `dir` that have a name as the EAL gives them, and that no process has locked as the EAL locks its own.
fn left_in(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let is_ours = |name: &str| {
        name.rsplit_once("map_").is_some_and(|(_, number)| number.bytes().all(|b| b.is_ascii_digit()))
    };
    let named = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_ours));
    // Closing the file gives the lock back.
    let is_left = |file: &File| file.try_lock().is_ok();
    let left = named.filter_map(|entry| File::open(entry.path()).ok()).filter(is_left);
    left.filter_map(|file| file.metadata().ok()).map(|meta| meta.len()).sum()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_nobody_holds_are_what_was_left() {
        let dir = std::env::temp_dir().join(format!("left-pages-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for (name, bytes) in
            [("rtemap_0", 100), ("isthmusmap_17", 50), ("isthmusmap_18", 7), ("map_of_none", 1), ("x", 1)]
        {
            fs::write(dir.join(name), vec![0; bytes]).unwrap();
        }
        let held = File::open(dir.join("isthmusmap_18")).unwrap();
        held.lock_shared().unwrap();
        assert_eq!(left_in(&dir), 150);
        held.unlock().unwrap();
        assert_eq!(left_in(&dir), 157);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(left_in(&dir), 0);
    }

    #[test]
    fn the_first_mount_of_each_size_counts() {
        let mounts = "proc /proc proc rw 0 0\n\
            hugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n\
            hugetlbfs /mnt/more hugetlbfs rw,relatime,pagesize=2M 0 0\n\
            hugetlbfs /mnt/large hugetlbfs rw,relatime,pagesize=1024M 0 0\n";
        assert_eq!(huge_mounts(mounts), ["/dev/hugepages", "/mnt/large"]);
        assert!(huge_mounts("").is_empty());
    }
}
