//! The limit of locked memory, which registration counts against.
#![allow(unsafe_code)] // reason: getrlimit is a foreign function.

/// The soft limit in bytes; `None` if there is none (or it cannot be read).
pub(super) fn limit_bytes() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    let rc = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (rc == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}
