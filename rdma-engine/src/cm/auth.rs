//! Proof of the pre-shared key, and the seal on every later frame.
//!
//! Both proofs and the keys of the seals are HMAC-SHA256 under the pre-shared key over a label and the
//! SHA-256 of everything said so far:
//!
//! | step | computed over |
//! |---|---|
//! | tag of Hello | "client proof", Challenge, Hello |
//! | tag of HelloReply | "server proof", Challenge, Hello with its tag, HelloReply |
//! | seal key of each direction | "client to server" or "server to client", all three with their tags |
//! | tag of a later frame | (under the seal key) number of the frame in its direction, frame |
//!
//! The Challenge carries the server's fresh nonce and the Hello the client's, so a recording of an
//! earlier session proves nothing in a new one. The labels differ by role, so a proof sent back to
//! its author is no proof. The frame number makes a repeated or reordered frame fail. Tags are
//! compared in constant time, and whatever is wrong with a proof, the answer is the same.
//!
//! What this does not do: hide anything. Offers travel in clear text, as RoCE itself does; whoever can read
//! and forge packets on the path needs no connection of ours. Use a network of your own, MACsec or
//! IPsec against that. A key is 16 bytes or more; take 32 random ones (`openssl rand -hex 32`), since
//! a guessable phrase can be tried out against a recorded hello.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use thiserror::Error;
use zeroize::Zeroizing;

use super::frame::TAG_LEN;
use super::message::AuthMode;

/// Shortest pre-shared key in bytes.
pub const MIN_KEY: usize = 16;
/// Longest pre-shared key in bytes.
pub const MAX_KEY: usize = 1024;

/// A key both ends know.
#[derive(Clone)]
pub struct PresharedKey(Zeroizing<Vec<u8>>);

/// Why a key cannot be used.
#[derive(Debug, Error)]
pub enum KeyError {
    /// Too short or too long.
    #[error("the key has {0} bytes; use {MIN_KEY} to {MAX_KEY}, best 32 random ones: openssl rand -hex 32")]
    Length(usize),
    /// `hex:` followed by something else.
    #[error(
        "the key begins with 'hex:' but is not an even number of hexadecimal digits; make one with: openssl rand -hex 32"
    )]
    Hex,
    /// Everybody may read the file.
    #[error("key file {path} has mode {mode:o}; run: chmod 600 {path}")]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file cannot be read.
    #[error(
        "cannot read key file {path}: {source}; create it with: (umask 077; (printf hex:; openssl rand -hex 32) > {path})"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl PresharedKey {
    /// The key `bytes`.
    pub fn new(bytes: &[u8]) -> Result<Self, KeyError> {
        if !(MIN_KEY..=MAX_KEY).contains(&bytes.len()) {
            return Err(KeyError::Length(bytes.len()));
        }
        Ok(PresharedKey(Zeroizing::new(bytes.to_vec())))
    }

    /// The key in `text`: `hex:` and digits, or the bytes of the text itself; white space around it
    /// is dropped.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        let Some(digits) = text.strip_prefix("hex:") else { return Self::new(text.as_bytes()) };
        let nibbles = digits.trim().chars().map(|c| c.to_digit(16).map(|d| d as u8));
        let nibbles: Option<Vec<u8>> = nibbles.collect();
        let nibbles = Zeroizing::new(nibbles.ok_or(KeyError::Hex)?);
        if nibbles.len() % 2 != 0 {
            return Err(KeyError::Hex);
        }
        let bytes: Vec<u8> = nibbles.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        Self::new(&Zeroizing::new(bytes))
    }

    /// The key in the file at `path`, as [`PresharedKey::parse`] reads it. A file that others than
    /// its owner may read is refused.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let failed = |source| KeyError::Read { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyError::Permissions { path: path.to_owned(), mode });
        }
        let mut text = Zeroizing::new(String::new());
        file.take(4 * MAX_KEY as u64).read_to_string(&mut text).map_err(failed)?;
        Self::parse(&text)
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PresharedKey({} bytes)", self.0.len())
    }
}

/// How this end wants the other one to prove itself.
#[derive(Clone, Debug)]
pub enum Auth {
    /// Not at all: `auth = "none"` in the config. Only with loopback and with addresses that the
    /// allow-list names.
    None,
    /// By a key.
    PresharedKey(PresharedKey),
}

impl Auth {
    /// The mode on the wire.
    pub fn mode(&self) -> AuthMode {
        match self {
            Auth::None => AuthMode::None,
            Auth::PresharedKey(_) => AuthMode::PresharedKey,
        }
    }
}

/// Labels keep one use of the key from standing in for another.
#[derive(Clone, Copy)]
pub(super) enum Label {
    ClientProof,
    ServerProof,
    ClientToServer,
    ServerToClient,
}

impl Label {
    fn bytes(self) -> &'static [u8] {
        match self {
            Label::ClientProof => b"isthmus cm 1 client proof\0",
            Label::ServerProof => b"isthmus cm 1 server proof\0",
            Label::ClientToServer => b"isthmus cm 1 client to server\0",
            Label::ServerToClient => b"isthmus cm 1 server to client\0",
        }
    }
}

/// Everything said so far. Frames carry their length, so their concatenation has one reading.
#[derive(Clone, Default)]
pub(super) struct Transcript(Sha256);

impl Transcript {
    pub(super) fn absorb(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn mac(&self, key: &PresharedKey, label: Label) -> Hmac<Sha256> {
        let mut mac = keyed(&key.0);
        mac.update(label.bytes());
        mac.update(&self.0.clone().finalize());
        mac
    }

    pub(super) fn tag(&self, key: &PresharedKey, label: Label) -> [u8; TAG_LEN] {
        self.mac(key, label).finalize().into_bytes().into()
    }

    /// In constant time.
    pub(super) fn proves(&self, key: &PresharedKey, label: Label, tag: &[u8]) -> bool {
        self.mac(key, label).verify_slice(tag).is_ok()
    }
}

/// Tags the frames of one direction, or checks them.
pub(super) struct Seal {
    key: Zeroizing<[u8; TAG_LEN]>,
    frames: u64,
}

impl Seal {
    pub(super) fn new(transcript: &Transcript, key: &PresharedKey, label: Label) -> Self {
        Seal { key: Zeroizing::new(transcript.tag(key, label)), frames: 0 }
    }

    fn mac(&mut self, signed: &[u8]) -> Hmac<Sha256> {
        let mut mac = keyed(&*self.key);
        mac.update(&self.frames.to_be_bytes());
        mac.update(signed);
        self.frames += 1;
        mac
    }

    pub(super) fn tag(&mut self, signed: &[u8]) -> [u8; TAG_LEN] {
        self.mac(signed).finalize().into_bytes().into()
    }

    /// In constant time.
    pub(super) fn opens(&mut self, signed: &[u8], tag: &[u8]) -> bool {
        self.mac(signed).verify_slice(tag).is_ok()
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn hmac_matches_rfc_4231_case_2() {
        let mut mac = keyed(b"Jefe");
        mac.update(b"what do ya want for nothing?");
        let tag: [u8; 32] = mac.finalize().into_bytes().into();
        assert_eq!(tag[..4], [0x5b, 0xdc, 0xc1, 0x46]);
        assert_eq!(tag[28..], [0x64, 0xec, 0x38, 0x43]);
    }

    #[test]
    fn keys_are_parsed_or_refused_with_a_remedy() {
        let hex = PresharedKey::parse(" hex:000102030405060708090a0B0c0d0e0f\n").unwrap();
        assert_eq!(*hex.0, (0..16).collect::<Vec<u8>>());
        assert_eq!(PresharedKey::parse("sixteen letters!\n").unwrap().0.len(), 16);
        assert!(matches!(PresharedKey::parse("hex:0001"), Err(KeyError::Length(2))));
        assert!(matches!(PresharedKey::parse("hex:xyz"), Err(KeyError::Hex)));
        assert!(matches!(PresharedKey::parse("hex:000"), Err(KeyError::Hex)));
        let text = PresharedKey::parse("short").unwrap_err().to_string();
        assert!(text.contains("5 bytes") && text.contains("openssl rand"), "{text}");
        assert!(!format!("{hex:?}").contains("0102"), "a key must not be printed");
    }

    #[test]
    #[cfg_attr(miri, ignore = "touches files")]
    fn key_files_of_everybody_are_refused() {
        let path = std::env::temp_dir().join(format!("isthmus-cm-key-{}", std::process::id()));
        let write = |mode| {
            let _ = std::fs::remove_file(&path);
            let mut file =
                std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&path).unwrap();
            file.write_all(b"a phrase that is long enough\n").unwrap();
        };
        write(0o600);
        assert_eq!(PresharedKey::read(&path).unwrap().0.len(), 28);
        write(0o644);
        let text = PresharedKey::read(&path).unwrap_err().to_string();
        assert!(text.contains("mode 644") && text.contains("chmod 600"), "{text}");
        std::fs::remove_file(&path).unwrap();
        let text = PresharedKey::read(&path).unwrap_err().to_string();
        assert!(text.contains("create it with"), "{text}");
    }

    #[test]
    fn a_seal_opens_each_frame_once_and_in_order() {
        let key = PresharedKey::new(&[7; 32]).unwrap();
        let mut transcript = Transcript::default();
        transcript.absorb(b"said");
        let seal = || Seal::new(&transcript, &key, Label::ClientToServer);
        let (mut ours, mut theirs) = (seal(), seal());
        let (first, second) = (ours.tag(b"one"), ours.tag(b"two"));
        assert!(theirs.opens(b"one", &first));
        assert!(theirs.opens(b"two", &second));
        assert!(!theirs.opens(b"two", &second), "a repeated frame");
        assert!(!seal().opens(b"two", &second), "a frame out of turn");
        assert!(!seal().opens(b"one", &first[..31]), "a short tag");
        let mut other_way = Seal::new(&transcript, &key, Label::ServerToClient);
        assert!(!other_way.opens(b"one", &first), "a frame sent back");
    }
}
