//! The pre-shared key. It is never printed: not by `Debug`, not by `check`, not in an error.

use std::fmt;
use std::path::PathBuf;

use rdma_engine::cm::{KeyError, PresharedKey};
use serde::{Deserialize, Serialize, Serializer};

/// Text that must not be shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The key in the text.
    ///
    /// # Errors
    /// It is too short or too long, or its `hex:` form is not hexadecimal.
    pub fn key(&self) -> Result<PresharedKey, KeyError> {
        PresharedKey::parse(&self.0)
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

impl KeySource {
    /// Reads the key.
    ///
    /// # Errors
    /// The file is missing, unreadable or readable by others, or its text is no key.
    pub fn load(&self) -> Result<PresharedKey, KeyError> {
        match self {
            Self::Inline(secret) => secret.key(),
            Self::File(path) => PresharedKey::read(path),
        }
    }
}
