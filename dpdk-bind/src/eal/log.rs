//! DPDK's log as `tracing` events, with the last lines kept for error messages.

#![allow(unsafe_code)] // A stdio stream whose write function is ours.

use core::ffi::{c_char, c_int, c_void};
use core::slice;
use std::collections::VecDeque;
use std::sync::Mutex;

use dpdk_sys as sys;

use super::lock;

/// Lines kept for error messages.
const KEPT: usize = 64;

/// `RTE_LOG_*`.
const CRIT: c_int = 3;
const ERR: c_int = 4;
const WARNING: c_int = 5;
const NOTICE: c_int = 6;
const INFO: c_int = 7;
const DEBUG: c_int = 8;

/// One line of DPDK's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// `RTE_LOG_*`, 1 (emergency) to 8 (debug).
    pub(crate) level: c_int,
    /// Without the line feed.
    pub(crate) text: String,
}

/// The last lines DPDK logged.
pub(crate) struct Journal {
    lines: Mutex<VecDeque<Line>>,
}

impl Journal {
    pub(crate) fn recent(&self) -> Vec<Line> {
        lock(&self.lines).iter().cloned().collect()
    }

    fn keep(&self, line: Line) {
        let mut lines = lock(&self.lines);
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

/// Makes DPDK log through us from now on. The journal and the stream live for ever: DPDK may log at any time
/// until the process ends.
pub(crate) fn redirect() -> &'static Journal {
    let journal: &'static Journal = Box::leak(Box::new(Journal { lines: Mutex::new(VecDeque::new()) }));
    let cookie = core::ptr::from_ref(journal).cast_mut().cast::<c_void>();
    // SAFETY: the cookie lives for ever and `write` knows its type; DPDK accepts a stream before its start.
    // Without one (no memory) it logs as it always does.
    unsafe { sys::dpdk_sys_log_through(cookie, Some(write)) };
    journal
}

/// The stream's write function: DPDK flushes after each message, so this sees whole ones.
unsafe extern "C" fn write(cookie: *mut c_void, bytes: *const c_char, len: usize) -> isize {
    // SAFETY: stdio passes the cookie given in `redirect` and `len` readable bytes.
    let (journal, bytes) =
        unsafe { (&*cookie.cast::<Journal>(), slice::from_raw_parts(bytes.cast::<u8>(), len)) };
    // SAFETY: reads a per-thread variable that DPDK sets around each message.
    let level = unsafe { sys::rte_log_cur_msg_loglevel() };
    let level = if QUIET.get() { level.max(DEBUG) } else { level };
    for text in String::from_utf8_lossy(bytes).lines().map(str::trim_end).filter(|t| !t.is_empty()) {
        emit(level, text);
        journal.keep(Line { level, text: text.to_owned() });
    }
    len as isize
}

fn emit(level: c_int, text: &str) {
    match level {
        ..=CRIT => {
            // The process may be about to abort; a subscriber might never get to write.
            super::capture::to_real_stderr(text);
            tracing::error!(target: "dpdk", "{text}");
        }
        ERR => tracing::error!(target: "dpdk", "{text}"),
        WARNING => tracing::warn!(target: "dpdk", "{text}"),
        NOTICE => tracing::info!(target: "dpdk", "{text}"),
        INFO => tracing::debug!(target: "dpdk", "{text}"),
        _ => tracing::trace!(target: "dpdk", "{text}"),
    }
}

thread_local! {
    /// Set while a call is tried whose failure is an answer, not a problem.
    static QUIET: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

/// Runs `call`; what DPDK logs meanwhile on this thread counts as debug output.
pub(crate) fn quietly<T>(call: impl FnOnce() -> T) -> T {
    let before = QUIET.replace(true);
    let result = call();
    QUIET.set(before);
    result
}
