//! The pre-shared key. It is never printed: not by `Debug`, not by `check`, not in an error.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};

/// Shortest key that is accepted, in bytes.
pub(crate) const MIN_KEY_BYTES: usize = 16;

/// Longest key file that is read, in bytes.
const MAX_KEY_FILE_BYTES: u64 = 4096;

/// Text that must not be shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The key itself. Do not log it.
    pub fn expose(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<hidden>")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("<hidden>")
    }
}

/// Where the pre-shared key comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeySource {
    /// Written in the configuration file.
    Inline(Secret),
    /// A file of its own; a relative path is relative to the configuration file.
    File(PathBuf),
}

/// A key file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("{}: {source}; make one with: (umask 077; head -c 32 /dev/urandom | base64 > {})", path.display(), path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Others may read the file.
    #[error("{}: mode {mode:04o} lets other users read the key; run: chmod 600 {}", path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The key is too short to protect anything, or the file is no key at all.
    #[error("{}: the key has {bytes} bytes, it needs {MIN_KEY_BYTES} to {MAX_KEY_FILE_BYTES}; make one with: (umask 077; head -c 32 /dev/urandom | base64 > {})", path.display(), path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// Bytes found.
        bytes: u64,
    },
}

impl KeySource {
    /// Reads the key. Trailing white space of a key file does not count.
    ///
    /// # Errors
    /// The file is missing, unreadable, readable by others, or its key is too short.
    pub fn load(&self) -> Result<Secret, KeyError> {
        match self {
            Self::Inline(secret) => Ok(secret.clone()),
            Self::File(path) => load_file(path),
        }
    }
}

fn load_file(path: &Path) -> Result<Secret, KeyError> {
    let read = |source| KeyError::Read { path: path.to_owned(), source };
    let meta = fs::metadata(path).map_err(read)?;
    let mode = meta.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Exposed { path: path.to_owned(), mode });
    }
    if meta.len() > MAX_KEY_FILE_BYTES {
        return Err(KeyError::Length { path: path.to_owned(), bytes: meta.len() });
    }
    let text = fs::read_to_string(path).map_err(read)?;
    let key = text.trim_end();
    if key.len() < MIN_KEY_BYTES {
        return Err(KeyError::Length { path: path.to_owned(), bytes: key.len() as u64 });
    }
    Ok(Secret::new(key))
}
