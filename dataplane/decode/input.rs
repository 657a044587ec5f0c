//! Where the capture comes from: a file, which can be read again, or a pipe, which cannot.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The name that stands for standard input, as with tcpdump and tshark.
const STDIN: &str = "-";

/// An open input.
pub(super) struct Input {
    file: File,
    /// Where it began, if it can be read again from there: regular files only. A pipe must not even be opened a second
    /// time: that would wait for a second writer.
    start: Option<u64>,
}

impl Input {
    /// Opens the file, or standard input.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut file = match path.as_os_str() == STDIN {
            true => File::from(io::stdin().as_fd().try_clone_to_owned()?),
            false => File::open(path)?,
        };
        let is_regular = file.metadata()?.is_file();
        let start = if is_regular { Some(file.stream_position()?) } else { None };
        Ok(Input { file, start })
    }

    /// True if [`Input::rewind`] works.
    pub(super) const fn can_rewind(&self) -> bool {
        self.start.is_some()
    }

    /// Goes back to where it began.
    pub(super) fn rewind(&mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.start.unwrap_or_default())).map(drop)
    }
}

impl Read for &Input {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(bytes)
    }
}

/// What messages call the input.
pub(super) fn name(path: &Path) -> PathBuf {
    if path.as_os_str() == STDIN { "standard input".into() } else { path.into() }
}
