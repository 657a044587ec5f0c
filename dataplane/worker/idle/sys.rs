//! The one system call that waits.
#![allow(unsafe_code)] // reason: ppoll(2) has no safe wrapper without another crate.

use std::time::Duration;

/// Sleeps until one of `fds` is ready or the time is over; a signal ends it early.
pub(crate) fn wait(fds: &mut [libc::pollfd], longest: Duration) {
    let timeout =
        libc::timespec { tv_sec: longest.as_secs() as libc::time_t, tv_nsec: longest.subsec_nanos().into() };
    // SAFETY: `fds` is a valid array of its length; the mask is none.
    unsafe {
        libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, &raw const timeout, std::ptr::null());
    }
}
