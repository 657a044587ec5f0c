//! The environment abstraction layer: one per process, and what hangs on its life.

#![allow(unsafe_code)] // Calls rte_eal_* and frees pools whose last handle is gone.

mod capture;
mod error;
mod lcore;
mod log;
mod memory;

use core::ffi::{CStr, c_char, c_int};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;

use dpdk_sys as sys;

pub use error::{EalCause, EalError, Said};
pub use lcore::{Lcore, LcoreError, LcoreHandle, Scope};
pub(crate) use log::quietly;
pub use memory::{HeapStats, Hugepages};

use crate::mempool::RetiredPool;
use crate::port::device::Device;

/// The EAL starts at most once per process; DPDK cannot start again, not even after a failure.
static STARTED: AtomicBool = AtomicBool::new(false);

/// How buffers' IO addresses are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IovaMode {
    /// Physical addresses; needs root and fragments pools into many chunks.
    Physical,
    /// Virtual addresses (an IOMMU translates, or no hardware is involved).
    Virtual,
    /// Not decided by any device.
    DontCare,
}

/// The running EAL. The thread that makes it becomes the main lcore: it is pinned to that core, and only its
/// use of pools goes through the main lcore's cache.
///
/// Everything made from it keeps it alive; `rte_eal_cleanup` runs when this handle and all of that are gone,
/// unless buffers are still out then, whose memory must stay mapped.
pub struct Eal {
    inner: Arc<EalInner>,
}

/// What objects made from the EAL share.
pub(crate) struct EalInner {
    pub(crate) journal: &'static log::Journal,
    /// What went wrong at start without stopping it.
    problems: Said,
    /// The directory of its files, where it is this process's alone.
    own_dir: Option<PathBuf>,
    main_thread: ThreadId,
    /// Worker lcores launched and not yet joined.
    pub(crate) running: AtomicUsize,
    /// Serialises launches.
    pub(crate) launch: Mutex<()>,
    retired: Mutex<Vec<RetiredPool>>,
    /// Devices this process made, by port index, as long as somebody has an interest in them.
    pub(crate) devices: Mutex<BTreeMap<u16, Weak<Device>>>,
    /// Ports that are configured right now.
    pub(crate) configured: Mutex<BTreeSet<u16>>,
}

impl Eal {
    /// Starts the EAL with `args` (options only, without a program name), as in
    /// `Eal::init(["--in-memory", "-l", "0-1"])`.
    ///
    /// Can be called once per process, whatever the outcome. While it runs, what the process writes to
    /// standard output and error is held back: DPDK prints its whole usage text there on the first mistake.
    /// It is let through on success; on failure what DPDK said becomes part of the error. From here on
    /// DPDK's log goes to `tracing`, target `dpdk`.
    pub fn init(args: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Eal, EalError> {
        let args: Vec<String> = args.into_iter().map(|a| a.as_ref().to_owned()).collect();
        let argv = leak_argv(&args)?;
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(EalError::AlreadyStarted);
        }
        let journal = log::redirect();
        // `--help` and `--version` print and leave the process: let them.
        let leaves = args.iter().any(|a| matches!(a.as_str(), "-h" | "--help" | "-v" | "--version"));
        let output = if leaves { None } else { capture::Capture::begin() };
        // SAFETY: `argv` is a null-terminated array of strings that live for ever, and this is the first call.
        let (rc, problems) = journal.listen(|| unsafe { sys::rte_eal_init(args.len() as c_int + 1, argv) });
        let code = errno();
        let printed = output.map(capture::Capture::end);
        if rc < 0 {
            let stderr = printed.map(|p| p.stderr).unwrap_or_default();
            return Err(EalError::diagnose(&args, &journal.recent(), &stderr, code));
        }
        if let Some(printed) = printed {
            printed.replay();
        }
        // Without files of its own it has a lock on none, and those there are another process's. Options may be cut short.
        let shares = args.iter().any(|a| a.starts_with("--in-m") || a.starts_with("--no-sh"));
        // SAFETY: the EAL is up.
        let is_primary = unsafe { sys::rte_eal_process_type() } == sys::RTE_PROC_PRIMARY;
        let own_dir = (is_primary && !shares).then(runtime_dir);
        Ok(Eal { inner: Arc::new(EalInner::new(journal, problems, own_dir)) })
    }

    /// DPDK's version at run time, such as `DPDK 22.11.11`.
    pub fn version() -> String {
        // SAFETY: returns a static string, EAL or not.
        unsafe { text(sys::rte_version()) }
    }

    /// Errors DPDK logged while it started. A device of `--vdev` or `-a` that could not be made is one: DPDK
    /// starts without it.
    pub fn start_problems(&self) -> &Said {
        &self.inner.problems
    }

    /// How IO addresses are made.
    pub fn iova_mode(&self) -> IovaMode {
        // SAFETY: the EAL is up.
        match unsafe { sys::rte_eal_iova_mode() } {
            sys::RTE_IOVA_PA => IovaMode::Physical,
            sys::RTE_IOVA_VA => IovaMode::Virtual,
            _ => IovaMode::DontCare,
        }
    }

    /// Whether memory comes from hugepages (false with `--no-huge`).
    pub fn has_hugepages(&self) -> bool {
        // SAFETY: the EAL is up.
        unsafe { sys::rte_eal_has_hugepages() == 1 }
    }

    /// Directory of this EAL's sockets, such as `/var/run/dpdk/rte`.
    pub fn runtime_dir(&self) -> PathBuf {
        runtime_dir()
    }

    /// The `--file-prefix` in use (`rte` by default).
    pub fn file_prefix(&self) -> String {
        self.runtime_dir().file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
    }

    pub(crate) fn inner(&self) -> &Arc<EalInner> {
        &self.inner
    }
}

impl core::fmt::Debug for Eal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Eal").field("file_prefix", &self.file_prefix()).finish_non_exhaustive()
    }
}

impl EalInner {
    fn new(journal: &'static log::Journal, problems: Said, own_dir: Option<PathBuf>) -> Self {
        EalInner {
            journal,
            problems,
            own_dir,
            main_thread: std::thread::current().id(),
            running: AtomicUsize::new(0),
            launch: Mutex::new(()),
            retired: Mutex::new(Vec::new()),
            devices: Mutex::new(BTreeMap::new()),
            configured: Mutex::new(BTreeSet::new()),
        }
    }

    /// Whether no thread can be in the middle of moving a buffer through a core's cache: the main lcore is
    /// here, and no other one runs.
    fn caches_at_rest(&self) -> bool {
        std::thread::current().id() == self.main_thread && self.running.load(Ordering::Acquire) == 0
    }

    /// Takes over a pool whose last handle is gone: frees it as soon as that is safe, which may be now, when
    /// a later pool is made, when a scope ends, or with the EAL.
    pub(crate) fn retire_pool(&self, pool: RetiredPool) {
        lock(&self.retired).push(pool);
        self.reap_pools();
        let kept = lock(&self.retired);
        if let Some(pool) = kept.last().filter(|p| self.caches_at_rest() && p.missing() > 0) {
            tracing::warn!(
                target: "dpdk", pool = pool.name, buffers = pool.missing(),
                "pool dropped while buffers are out; its memory is kept until they are back"
            );
        }
    }

    /// Frees retired pools that are full.
    ///
    /// A pool with caches is looked at only while they are at rest: a cache counts a buffer as returned
    /// before it has stored it. Without caches the ring's own count is the last thing a return writes.
    pub(crate) fn reap_pools(&self) {
        let at_rest = self.caches_at_rest();
        let mut retired = lock(&self.retired);
        let mut i = 0;
        while i < retired.len() {
            if (retired[i].cached && !at_rest) || retired[i].missing() > 0 {
                i += 1;
                continue;
            }
            // SAFETY: no handle is left, every buffer is back and nobody is inside a call on the pool.
            unsafe { retired.swap_remove(i).free() }
        }
    }

    /// Pools without handles that wait for buffers.
    pub(crate) fn retired_count(&self) -> usize {
        lock(&self.retired).len()
    }
}

impl Eal {
    /// Pools whose last handle was dropped while buffers were out, and are still waiting for them.
    pub fn pools_waiting(&self) -> usize {
        self.inner.reap_pools();
        self.inner.retired_count()
    }
}

impl Drop for EalInner {
    fn drop(&mut self) {
        self.reap_pools();
        let kept = self.retired_count();
        if kept > 0 {
            tracing::warn!(target: "dpdk", pools = kept, "buffers are still out: the EAL is not cleaned up");
            return;
        }
        // SAFETY: nothing made from this EAL exists any more and no lcore runs.
        let rc = unsafe { sys::rte_eal_cleanup() };
        if rc != 0 {
            tracing::warn!(target: "dpdk", error = %io::Error::from_raw_os_error(-rc), "rte_eal_cleanup failed");
            return;
        }
        if let Some(dir) = &self.own_dir {
            remove_files(dir);
        }
    }
}

/// Removes what DPDK leaves in the runtime directory of a primary process that has ended, megabytes for each prefix. Sockets stay: a
/// process without files may share the directory, and removes its own. The file with the lock goes last.
fn remove_files(dir: &Path) {
    let is_ours =
        |name: &str| ["fbarray_", "hugepage_", "mp_socket"].iter().any(|known| name.starts_with(known));
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_ours)) {
        std::fs::remove_file(entry.path()).ok();
    }
    std::fs::remove_file(dir.join("config")).ok();
    // Fails as long as anything is in it.
    std::fs::remove_dir(dir).ok();
}

fn runtime_dir() -> PathBuf {
    // SAFETY: the EAL is up and returns a string that lives as long as it.
    PathBuf::from(unsafe { text(sys::rte_eal_get_runtime_dir()) })
}

/// `rte_errno` of this thread.
pub(crate) fn errno() -> c_int {
    // SAFETY: reads a thread-local integer.
    unsafe { sys::dpdk_sys_errno() }
}

/// A lock whose holder cannot leave broken data behind: every critical section here is a few assignments.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// `s` is null or a NUL-terminated string.
pub(crate) unsafe fn text(s: *const c_char) -> String {
    if s.is_null() {
        return String::new();
    }
    // SAFETY: by the caller's word.
    unsafe { CStr::from_ptr(s) }.to_string_lossy().into_owned()
}

/// The arguments as C wants them. Never freed: the EAL keeps pointers, and there is one call per process.
fn leak_argv(args: &[String]) -> Result<*mut *mut c_char, EalError> {
    let program = std::env::args().next().unwrap_or_default();
    let program = Path::new(&program).file_name().map(|n| n.to_string_lossy().into_owned());
    let words = std::iter::once(program.as_deref().unwrap_or("dpdk")).chain(args.iter().map(String::as_str));
    let mut argv = Vec::with_capacity(args.len() + 2);
    for word in words {
        let word = CString::new(word).map_err(|_| EalError::Argument(word.replace('\0', "\\0")))?;
        argv.push(word.into_raw());
    }
    argv.push(core::ptr::null_mut());
    Ok(Vec::leak(argv).as_mut_ptr())
}
