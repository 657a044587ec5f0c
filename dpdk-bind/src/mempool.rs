//! Pools of packet buffers.

#![allow(unsafe_code)] // Creates, walks and frees rte_mempools.

use core::ffi::{c_uint, c_void};
use core::ptr::NonNull;
use std::ffi::CString;
use std::io;
use std::sync::Arc;

use dpdk_sys as sys;

use crate::burst::Burst;
use crate::eal::{Eal, EalInner, errno};
use crate::mbuf::{DEFAULT_DATA_ROOM, HEADROOM, Mbuf};

/// Longest pool name in bytes.
pub const NAME_MAX: usize = sys::DPDK_SYS_POOL_NAME as usize - 1;

/// Largest per-core cache.
pub const CACHE_MAX: u32 = sys::DPDK_SYS_CACHE_MAX;

/// Sizes of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Buffers. Memory is used best at a power of two minus one.
    pub count: u32,
    /// Buffers each core may keep to itself, at most [`CACHE_MAX`] and two thirds of `count`; 0 for none.
    /// These count as available, but only to their core.
    pub cache: u32,
    /// Bytes of each buffer, including the [`HEADROOM`] in front. 0 makes a pool of headers for slices.
    pub data_room: u16,
    /// Private bytes between header and buffer, a multiple of 8.
    pub priv_size: u16,
    /// NUMA socket of the memory; `None` for any.
    pub socket: Option<u32>,
}

impl Default for PoolConfig {
    fn default() -> Self {
        PoolConfig { count: 8191, cache: 256, data_room: DEFAULT_DATA_ROOM, priv_size: 0, socket: None }
    }
}

/// Why a pool could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The name has a NUL byte or is too long.
    #[error("pool name '{0}' cannot be used: give it 1 to {NAME_MAX} bytes without NUL")]
    Name(String),
    /// The name is taken, possibly by a dropped pool of which buffers are still out.
    #[error("a pool named '{0}' exists already (or was dropped with buffers still out): choose another name")]
    Exists(String),
    /// Sizes that contradict each other.
    #[error("pool '{name}': {reason}")]
    Config {
        /// The pool's name.
        name: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// Not enough EAL memory.
    #[error(
        "pool '{name}' of {count} buffers needs about {need_mib} MiB and the EAL has not got it: reserve more \
         hugepages (`sysctl vm.nr_hugepages`), raise `-m`, or ask for fewer or smaller buffers"
    )]
    NoMemory {
        /// The pool's name.
        name: String,
        /// Buffers asked for.
        count: u32,
        /// Their size in MiB, headers included.
        need_mib: u64,
    },
    /// Anything else.
    #[error("pool '{name}' could not be created: {source}")]
    Os {
        /// The pool's name.
        name: String,
        /// What DPDK's error number says.
        source: io::Error,
    },
}

/// A range of a pool's memory, for registration with an RDMA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemChunk {
    /// First byte.
    pub addr: NonNull<u8>,
    /// Bytes.
    pub len: usize,
}

// SAFETY: an address and a length; using it is up to whoever registers the memory.
unsafe impl Send for MemChunk {}
// SAFETY: as above.
unsafe impl Sync for MemChunk {}

/// A handle to a pool of mbufs; clones share the pool.
///
/// `Send` and `Sync`: any thread may allocate and free. Worker cores and the thread that started the EAL go
/// through a cache of their own, other threads straight to the shared ring (about 5 times dearer).
///
/// The pool is freed when the last handle is dropped and every buffer is back. Buffers that are still out
/// then keep it in memory (reported in the log once) until they are back; as long as that does not happen
/// its name stays taken and the EAL is not cleaned up.
#[derive(Clone)]
pub struct Mempool {
    raw: NonNull<sys::rte_mempool>,
    inner: Arc<PoolInner>,
}

struct PoolInner {
    raw: NonNull<sys::rte_mempool>,
    name: String,
    config: PoolConfig,
    eal: Arc<EalInner>,
}

// SAFETY: rte_mempool is made for use from many threads; the per-core caches are chosen by DPDK's own
// thread-local core number, which no two threads share.
unsafe impl Send for Mempool {}
// SAFETY: as above.
unsafe impl Sync for Mempool {}
// SAFETY: as above.
unsafe impl Send for PoolInner {}
// SAFETY: as above.
unsafe impl Sync for PoolInner {}

impl Mempool {
    /// Creates a pool.
    pub fn create(eal: &Eal, name: &str, config: &PoolConfig) -> Result<Mempool, PoolError> {
        let c_name = check_name(name)?;
        check_config(name, config)?;
        eal.inner().reap_pools();
        let socket = config.socket.map_or(-1, |s| s as i32);
        // SAFETY: the EAL is up; DPDK copies the name.
        let raw = unsafe {
            sys::rte_pktmbuf_pool_create(
                c_name.as_ptr(),
                config.count,
                config.cache,
                config.priv_size,
                config.data_room,
                socket,
            )
        };
        let Some(raw) = NonNull::new(raw) else { return Err(creation_error(name, config)) };
        let (name, config) = (name.to_owned(), config.clone());
        let inner = Arc::new(PoolInner { raw, name, config, eal: Arc::clone(eal.inner()) });
        Ok(Mempool { raw, inner })
    }

    /// Name given at creation.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Sizes given at creation.
    pub fn config(&self) -> &PoolConfig {
        &self.inner.config
    }

    /// Buffers in the pool, free or not.
    pub fn capacity(&self) -> usize {
        self.inner.config.count as usize
    }

    /// Free buffers, those in the cores' caches included. Exact only while no core is using the pool.
    pub fn available(&self) -> usize {
        available(self.raw)
    }

    /// Buffers that are out. Exact only while no core is using the pool.
    pub fn in_use(&self) -> usize {
        self.capacity().saturating_sub(self.available())
    }

    /// Whether every buffer is back.
    pub fn is_full(&self) -> bool {
        self.available() == self.capacity()
    }

    /// Bytes of each buffer, headroom included.
    pub fn data_room(&self) -> usize {
        usize::from(self.inner.config.data_room)
    }

    /// The raw pool, which lives as long as any handle.
    pub fn as_raw(&self) -> NonNull<sys::rte_mempool> {
        self.raw
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut sys::rte_mempool {
        self.raw.as_ptr()
    }

    /// The memory the buffers lie in, ordered by address; chunks that touch are one.
    pub fn chunks(&self) -> Vec<MemChunk> {
        let mut found: Vec<MemChunk> = Vec::new();
        // SAFETY: `collect_chunk` only pushes to the vector given as its argument.
        unsafe { sys::rte_mempool_mem_iter(self.raw(), Some(collect_chunk), (&raw mut found).cast()) };
        coalesce(found)
    }

    /// One empty mbuf with [`HEADROOM`] in front, or `None` if there is none left.
    #[inline]
    pub fn alloc(&self) -> Option<Mbuf> {
        // SAFETY: the pool is alive; a non-null result is a fresh mbuf.
        NonNull::new(unsafe { sys::dpdk_sys_mbuf_alloc(self.raw()) }).map(|m| unsafe { Mbuf::from_raw(m) })
    }

    /// Adds `n` empty mbufs to `burst`: all of them, or none (false) if the pool has too few or the burst too
    /// little room.
    #[inline]
    pub fn alloc_bulk<const N: usize>(&self, burst: &mut Burst<N>, n: usize) -> bool {
        if n > burst.room() {
            return false;
        }
        // SAFETY: room for `n` pointers; on success they are fresh mbufs.
        unsafe {
            let done = sys::dpdk_sys_mbuf_alloc_bulk(self.raw(), burst.free_slots(), n as c_uint) == 0;
            if done {
                burst.grow(n);
            }
            done
        }
    }

    /// An mbuf with a copy of `bytes`, in as many segments as it takes. `None` if the pool runs out or its
    /// buffers have no room behind the headroom.
    pub fn copy_from(&self, bytes: &[u8]) -> Option<Mbuf> {
        self.copy_parts(core::iter::once(bytes))
    }

    /// As [`Mempool::copy_from`] for data in parts.
    pub fn copy_parts<'a>(&self, parts: impl Iterator<Item = &'a [u8]>) -> Option<Mbuf> {
        if self.data_room() <= HEADROOM {
            return None;
        }
        let mut chain = crate::mbuf::Chain::new(self.alloc()?);
        for mut part in parts {
            while !part.is_empty() {
                if chain.tailroom() == 0 {
                    chain.push(self.alloc()?).ok()?;
                }
                let take = part.len().min(chain.tailroom());
                chain.append(take)?.copy_from_slice(&part[..take]);
                part = &part[take..];
            }
        }
        Some(chain.finish())
    }
}

impl core::fmt::Debug for Mempool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Mempool")
            .field("name", &self.name())
            .field("capacity", &self.capacity())
            .field("available", &self.available())
            .finish()
    }
}

impl Drop for PoolInner {
    fn drop(&mut self) {
        let cached = self.config.cache != 0;
        self.eal.retire_pool(RetiredPool { raw: self.raw, name: core::mem::take(&mut self.name), cached });
    }
}

/// A pool without handles, waiting for its buffers (see `EalInner::retire_pool`).
pub(crate) struct RetiredPool {
    raw: NonNull<sys::rte_mempool>,
    pub(crate) name: String,
    /// Whether cores have caches of it.
    pub(crate) cached: bool,
}

// SAFETY: as for `Mempool`.
unsafe impl Send for RetiredPool {}

impl RetiredPool {
    pub(crate) fn missing(&self) -> usize {
        // SAFETY: retired pools are freed only by `free`.
        let size = unsafe { sys::dpdk_sys_pool_size(self.raw.as_ptr()) } as usize;
        size.saturating_sub(available(self.raw))
    }

    /// # Safety
    /// No buffer is out and no thread is inside a call on this pool.
    pub(crate) unsafe fn free(self) {
        // SAFETY: by the caller's word.
        unsafe { sys::rte_mempool_free(self.raw.as_ptr()) }
    }
}

fn available(raw: NonNull<sys::rte_mempool>) -> usize {
    // SAFETY: the pool is alive; counting only reads.
    unsafe { sys::rte_mempool_avail_count(raw.as_ptr()) as usize }
}

unsafe extern "C" fn collect_chunk(
    _pool: *mut sys::rte_mempool,
    found: *mut c_void,
    chunk: *mut sys::rte_mempool_memhdr,
    _index: c_uint,
) {
    // SAFETY: called by `rte_mempool_mem_iter` with the vector of `Mempool::chunks` and a valid chunk.
    unsafe {
        if let Some(addr) = NonNull::new((*chunk).addr.cast()) {
            (*found.cast::<Vec<MemChunk>>()).push(MemChunk { addr, len: (*chunk).len });
        }
    }
}

/// Sorts by address and joins neighbours.
fn coalesce(mut chunks: Vec<MemChunk>) -> Vec<MemChunk> {
    chunks.sort_by_key(|c| c.addr);
    let mut joined: Vec<MemChunk> = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        match joined.last_mut() {
            Some(last) if last.addr.as_ptr().wrapping_add(last.len) == chunk.addr.as_ptr() => {
                last.len += chunk.len
            }
            _ => joined.push(chunk),
        }
    }
    joined
}

fn check_name(name: &str) -> Result<CString, PoolError> {
    let fits = (1..=NAME_MAX).contains(&name.len());
    CString::new(name).ok().filter(|_| fits).ok_or_else(|| PoolError::Name(name.to_owned()))
}

fn check_config(name: &str, config: &PoolConfig) -> Result<(), PoolError> {
    let refuse = |reason: String| Err(PoolError::Config { name: name.to_owned(), reason });
    let PoolConfig { count, cache, priv_size, .. } = *config;
    if count == 0 {
        return refuse("count = 0: a pool has at least one buffer".into());
    }
    if cache > CACHE_MAX {
        return refuse(format!("cache = {cache}: at most {CACHE_MAX}"));
    }
    if u64::from(cache) * 3 / 2 > u64::from(count) {
        return refuse(format!("cache = {cache}: at most two thirds of count = {count}"));
    }
    if !priv_size.is_multiple_of(8) {
        return refuse(format!("priv_size = {priv_size}: must be a multiple of 8"));
    }
    Ok(())
}

fn creation_error(name: &str, config: &PoolConfig) -> PoolError {
    let each = u64::from(config.data_room) + u64::from(config.priv_size) + 128 + 64;
    let need_mib = (each * u64::from(config.count)).div_ceil(1 << 20);
    let name = name.to_owned();
    match errno() {
        libc::EEXIST => PoolError::Exists(name),
        libc::ENOMEM => PoolError::NoMemory { name, count: config.count, need_mib },
        other => PoolError::Os { name, source: io::Error::from_raw_os_error(other) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(addr: usize, len: usize) -> MemChunk {
        MemChunk { addr: NonNull::new(addr as *mut u8).unwrap(), len }
    }

    #[test]
    fn neighbours_become_one_chunk() {
        let got = coalesce(vec![chunk(300, 50), chunk(100, 100), chunk(200, 100), chunk(400, 1)]);
        assert_eq!(got, [chunk(100, 250), chunk(400, 1)]);
        assert!(coalesce(Vec::new()).is_empty());
    }

    #[test]
    fn sizes_are_checked_by_name() {
        let bad = |config: PoolConfig| check_config("p", &config).unwrap_err().to_string();
        assert!(bad(PoolConfig { count: 0, ..Default::default() }).contains("count = 0"));
        assert!(bad(PoolConfig { cache: 513, ..Default::default() }).contains("at most 512"));
        assert!(bad(PoolConfig { count: 100, cache: 100, ..Default::default() }).contains("two thirds"));
        assert!(bad(PoolConfig { priv_size: 4, ..Default::default() }).contains("multiple of 8"));
        assert!(check_name("").is_err() && check_name(&"x".repeat(NAME_MAX + 1)).is_err());
        assert!(check_name("a\0b").is_err() && check_name(&"x".repeat(NAME_MAX)).is_ok());
    }
}
