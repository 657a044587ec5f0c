//! SIGINT and SIGTERM: the first one drains, the second one ends the process. SIGUSR1 asks for flight records.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};

/// Signals that have come.
#[derive(Debug)]
pub(crate) struct Signals {
    asked: Arc<AtomicBool>,
    records: Arc<AtomicBool>,
    wake: UnixStream,
}

impl Signals {
    /// Installs the handlers. From here on one signal is noted and the next one exits with 128 + its number.
    pub(crate) fn install() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let (wake, write) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag unset, sets it, and wakes the main lcore.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))?;
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        let records = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGUSR1, Arc::clone(&records))?;
        signal_hook::low_level::pipe::register(SIGUSR1, write)?;
        Ok(Signals { asked, records, wake })
    }

    /// True once a signal has come.
    pub(crate) fn asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// True once for every time that flight records were asked for.
    pub(crate) fn records_wanted(&self) -> bool {
        self.records.swap(false, Ordering::AcqRel)
    }

    /// Readable when a signal has come.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Takes the wake-up.
    pub(crate) fn acknowledge(&self) {
        let mut bytes = [0; 16];
        while (&self.wake).read(&mut bytes).is_ok_and(|n| n > 0) {}
    }
}
