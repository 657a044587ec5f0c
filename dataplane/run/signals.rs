//! SIGINT and SIGTERM: while DPDK starts they end the process as ever, then the first one drains and a later one ends it. SIGHUP
//! asks for another look at the configuration, or, when it comes because the terminal is gone, is as good as SIGTERM. SIGUSR1 asks
//! for flight records.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

/// Signals that follow the first one this soon are the same wish.
const PATIENCE: Duration = Duration::from_millis(300);

/// Signals that have come.
#[derive(Debug)]
pub(crate) struct Signals {
    asked: Arc<AtomicBool>,
    records: Arc<AtomicBool>,
    hung_up: Arc<AtomicBool>,
    /// There was a terminal at the start.
    has_terminal: bool,
    wake: UnixStream,
    write: UnixStream,
}

impl Signals {
    /// Installs the handlers of SIGHUP and SIGUSR1, which would end a process that is still starting.
    pub(crate) fn install() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let (wake, write) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let records = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGUSR1, Arc::clone(&records))?;
        signal_hook::low_level::pipe::register(SIGUSR1, write.try_clone()?)?;
        let hung_up = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGHUP, Arc::clone(&hung_up))?;
        signal_hook::low_level::pipe::register(SIGHUP, write.try_clone()?)?;
        Ok(Signals { asked, records, hung_up, has_terminal: has_terminal(), wake, write })
    }

    /// From here on one SIGINT or SIGTERM is noted, and one that comes later than [`PATIENCE`] after it exits with 128 + its
    /// number.
    pub(crate) fn drain_at_first(&self) -> io::Result<()> {
        let insistent = Arc::new(AtomicBool::new(false));
        let first = insist_later(Arc::clone(&insistent))?;
        for signal in [SIGINT, SIGTERM] {
            // What notes the first one comes first, or one in between would be lost.
            signal_hook::flag::register(signal, Arc::clone(&self.asked))?;
            signal_hook::low_level::pipe::register(signal, self.write.try_clone()?)?;
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&insistent))?;
            signal_hook::low_level::pipe::register(signal, first.try_clone()?)?;
        }
        Ok(())
    }

    /// True once a signal has come.
    pub(crate) fn asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// True once for every time that flight records were asked for.
    pub(crate) fn records_wanted(&self) -> bool {
        self.records.swap(false, Ordering::AcqRel)
    }

    /// True once for every time that the configuration is to be read again.
    pub(crate) fn reload_wanted(&self) -> bool {
        let hung_up = self.hung_up.swap(false, Ordering::AcqRel);
        if hung_up && self.has_terminal && !has_terminal() {
            self.asked.store(true, Ordering::Release);
            return false;
        }
        hung_up
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

/// True if the process has a terminal that it would get signals from.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Sets the flag a moment after the first byte comes: one wish to stop may arrive as two signals, as when a wrapper passes
/// it on to the process and to its group.
fn insist_later(insistent: Arc<AtomicBool>) -> io::Result<UnixStream> {
    let (mut read, write) = UnixStream::pair()?;
    let wait = move || {
        if read.read(&mut [0]).is_ok() {
            std::thread::sleep(PATIENCE);
            insistent.store(true, Ordering::Release);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(write)
}
