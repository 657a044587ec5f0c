//! DPDK's log as `tracing` events, with the last lines kept for error messages.

#![allow(unsafe_code)] // A stdio stream whose write function is ours.

use core::ffi::{c_char, c_int, c_void};
use core::slice;
use std::collections::VecDeque;
use std::sync::Mutex;

use dpdk_sys as sys;

use super::error::Said;
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
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    lines: VecDeque<Line>,
    /// Lines ever logged.
    count: u64,
}

impl Journal {
    /// All that is kept.
    pub(crate) fn recent(&self) -> Vec<Line> {
        lock(&self.kept).lines.iter().cloned().collect()
    }

    /// Runs `call` and returns what was logged meanwhile (by any thread) as an error, in a form to quote.
    pub(crate) fn listen<T>(&self, call: impl FnOnce() -> T) -> (T, Said) {
        let before = lock(&self.kept).count;
        let result = call();
        let kept = lock(&self.kept);
        let new = usize::try_from(kept.count - before).unwrap_or(usize::MAX).min(kept.lines.len());
        let lines = kept.lines.iter().skip(kept.lines.len() - new).filter(|l| l.level <= ERR);
        (result, Said::quote(lines.map(|l| l.text.as_str())))
    }

    fn keep(&self, line: Line) {
        let mut kept = lock(&self.kept);
        kept.count += 1;
        if kept.lines.len() == KEPT {
            kept.lines.pop_front();
        }
        kept.lines.push_back(line);
    }
}

/// Makes DPDK log through us from now on. The journal and the stream live for ever: DPDK may log at any time
/// until the process ends.
pub(crate) fn redirect() -> &'static Journal {
    let journal: &'static Journal = Box::leak(Box::new(Journal { kept: Mutex::default() }));
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
        ERR | WARNING if is_usual(text) => tracing::debug!(target: "dpdk", "{text}"),
        ERR => tracing::error!(target: "dpdk", "{text}"),
        WARNING => tracing::warn!(target: "dpdk", "{text}"),
        NOTICE => tracing::info!(target: "dpdk", "{text}"),
        INFO => tracing::debug!(target: "dpdk", "{text}"),
        _ => tracing::trace!(target: "dpdk", "{text}"),
    }
}

/// Warnings and errors of nearly every good start: a page size that nobody reserved, a socket of an older protocol that nobody
/// offers, secondary processes that there are none of, and a tap interface on a kernel without the queueing discipline that only
/// flow rules would need. When no hugepages are there at all, or no tap interface can be made, other words follow.
fn is_usual(text: &str) -> bool {
    const USUAL: [&str; 7] = [
        "No legacy callbacks, legacy socket not created",
        "rte_pmd_memif_probe(): Failed to register mp action callback: Operation not supported",
        "tap_nl_dump_ext_ack(): Specified qdisc kind is unknown",
        "qdisc_create_multiq(): Could not add multiq qdisc",
        "failed to create multiq qdisc.",
        "Disabling rte flow support: No such file or directory",
        "tap_mp_req_on_rxtx(): Failed to send start req to secondary",
    ];
    (text.contains("No free ") && text.contains(" hugepages reported on node"))
        || USUAL.iter().any(|usual| text.contains(usual))
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

#[cfg(test)]
mod tests {
    use super::is_usual;

    #[test]
    fn only_the_usual_words_of_a_good_start_are_kept_back() {
        assert!(is_usual("EAL: No free 1048576 kB hugepages reported on node 0"));
        assert!(is_usual("TELEMETRY: No legacy callbacks, legacy socket not created"));
        assert!(is_usual("eth_dev_tap_create():  Disabling rte flow support: No such file or directory(2)"));
        assert!(!is_usual("eth_dev_tap_create(): Unable to create TAP interface"));
        assert!(!is_usual("EAL: No available hugepages reported in hugepages-2048kB"));
    }
}
