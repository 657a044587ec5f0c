//! Holds back what is written to standard output and error while the EAL starts.

#![allow(unsafe_code)] // dup2 on file descriptors 1 and 2, and a flush of C's stdio.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// Where messages go that must not wait for the end of the capture; standard error when none is under way.
static REAL_STDERR: AtomicI32 = AtomicI32::new(libc::STDERR_FILENO);

/// Standard output and error, diverted into memory.
pub(super) struct Capture {
    stdout: Diverted,
    stderr: Diverted,
}

/// What was written meanwhile.
pub(super) struct Printed {
    stdout: Vec<u8>,
    pub(super) stderr: String,
}

struct Diverted {
    fd: RawFd,
    original: OwnedFd,
    memory: File,
}

impl Capture {
    /// Diverts both, or neither if the kernel refuses.
    pub(super) fn begin() -> Option<Capture> {
        flush_all();
        let stdout = Diverted::begin(libc::STDOUT_FILENO).ok()?;
        match Diverted::begin(libc::STDERR_FILENO) {
            Ok(stderr) => {
                REAL_STDERR.store(stderr.original.as_raw_fd(), Ordering::SeqCst);
                Some(Capture { stdout, stderr })
            }
            Err(_) => {
                stdout.end();
                None
            }
        }
    }

    /// Restores both.
    pub(super) fn end(self) -> Printed {
        flush_all();
        REAL_STDERR.store(libc::STDERR_FILENO, Ordering::SeqCst);
        let stderr = String::from_utf8_lossy(&self.stderr.end()).into_owned();
        Printed { stdout: self.stdout.end(), stderr }
    }
}

impl Printed {
    /// Writes everything to where it was meant to go. Nobody can be told of a failure.
    pub(super) fn replay(&self) {
        let _ = io::stdout().write_all(&self.stdout).and_then(|()| io::stdout().flush());
        let _ = io::stderr().write_all(self.stderr.as_bytes());
    }
}

impl Diverted {
    fn begin(fd: RawFd) -> io::Result<Diverted> {
        // SAFETY: plain system calls; the descriptors they return are ours.
        unsafe {
            let memory =
                File::from_raw_fd(check(libc::memfd_create(c"eal-start".as_ptr(), libc::MFD_CLOEXEC))?);
            let original = OwnedFd::from_raw_fd(check(libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3))?);
            check(libc::dup2(memory.as_raw_fd(), fd))?;
            Ok(Diverted { fd, original, memory })
        }
    }

    fn end(mut self) -> Vec<u8> {
        // SAFETY: puts the original descriptor back in its place.
        unsafe { libc::dup2(self.original.as_raw_fd(), self.fd) };
        let mut printed = Vec::new();
        let read = self.memory.seek(SeekFrom::Start(0)).and_then(|_| self.memory.read_to_end(&mut printed));
        if read.is_err() {
            printed.clear();
        }
        printed
    }
}

/// Writes a line to the standard error the process was started with, capture or not.
pub(super) fn to_real_stderr(line: &str) {
    let line = format!("{line}\n");
    // SAFETY: writes the bytes of `line` to a descriptor that outlives its use; a failure has no one to tell.
    unsafe { libc::write(REAL_STDERR.load(Ordering::SeqCst), line.as_ptr().cast(), line.len()) };
}

/// Empties Rust's and C's buffers, so that everything written so far is on its way.
fn flush_all() {
    let _ = io::stdout().flush();
    // SAFETY: a null stream means all of them.
    unsafe { libc::fflush(core::ptr::null_mut()) };
}

fn check(rc: i32) -> io::Result<RawFd> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}
