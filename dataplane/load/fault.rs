//! What can be wrong with a reply.

use super::ledger::WrongVersion;
use super::value::{Value, Version};
use arrayvec::ArrayVec;
use std::fmt;

/// Bytes of a reply that are kept to be shown.
const QUOTE_BYTES: usize = 64;

/// The beginning of something that was not expected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quote {
    bytes: ArrayVec<u8, QUOTE_BYTES>,
    cut: bool,
}

impl Quote {
    /// The first bytes of `text`.
    pub fn new(text: &[u8]) -> Self {
        Quote { bytes: text.iter().copied().take(QUOTE_BYTES).collect(), cut: text.len() > QUOTE_BYTES }
    }

    /// Whether this is how it begins.
    pub(super) fn begins(&self, with: &str) -> bool {
        self.bytes.starts_with(with.as_bytes())
    }
}

impl fmt::Display for Quote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}{}\"", self.bytes.escape_ascii(), if self.cut { "..." } else { "" })
    }
}

/// A reply that is wrong, or not one to the request. Each one makes a run fail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The reply names another key.
    OtherKey(Quote),
    /// The value is another key's.
    ForeignValue {
        /// Number of that key.
        key: u32,
    },
    /// Whole in front, and from a byte on (rounded down to 8) of another version, or damaged.
    Torn {
        /// What its header says.
        version: Version,
        /// First wrong byte.
        at: usize,
    },
    /// The value is not as long as it was written.
    Length {
        /// As its header says.
        written: u32,
        /// As the reply says.
        read: u32,
    },
    /// Too short to be a value of ours.
    NotOurs {
        /// Bytes.
        read: u32,
    },
    /// Flags that are not those of the version read.
    Flags {
        /// Of the version.
        written: u32,
        /// In the reply.
        read: u32,
    },
    /// The right key, whole, and a version that cannot be.
    Version {
        /// What was read.
        seen: Version,
        /// Why not.
        wrong: WrongVersion,
    },
    /// An error, or a refusal.
    Unexpected(Quote),
    /// The reply ended before it was complete.
    CutShort,
    /// There is more than a reply.
    Trailing(Quote),
    /// The reply makes no sense, at least not as one to this request.
    Unreadable(Quote),
}

impl Fault {
    /// True if nobody knows any more what the replies that follow in the stream are replies to.
    pub const fn is_fatal(&self) -> bool {
        matches!(self, Fault::Unreadable(_) | Fault::OtherKey(_))
    }

    /// A value whose header says `says`, where `read` bytes of `key` were expected, and that is wrong from byte `at` on.
    pub(super) fn of_damage(says: Value, at: usize, key: u32, read: u32) -> Self {
        // A header that is damaged itself says anything; then length and key are as good as any other name for it.
        match (says.key == key, says.length == read) {
            (true, true) => Fault::Torn { version: says.version, at },
            (true, false) => Fault::Length { written: says.length, read },
            (false, _) => Fault::ForeignValue { key: says.key },
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::OtherKey(name) => write!(f, "the reply is about another key, {name}"),
            Fault::ForeignValue { key } => write!(f, "the value is that of key number {key:#x}"),
            Fault::Torn { version, at } => {
                write!(
                    f,
                    "torn: byte {at} and what follows is not of version {}, which it begins as",
                    version.number
                )
            }
            Fault::Length { written, read } => write!(f, "{read} bytes, and {written} were written"),
            Fault::NotOurs { read } => write!(f, "{read} bytes are too few for a value of this load"),
            Fault::Flags { written, read } => {
                write!(f, "flags {read}, and those of the version read are {written}")
            }
            Fault::Version { seen, wrong: WrongVersion::Stale { floor } } => {
                write!(
                    f,
                    "stale: version {} of run {}, when version {floor} was acknowledged before",
                    seen.number, seen.run
                )
            }
            Fault::Version { seen, wrong: WrongVersion::Unwritten { issued } } => {
                write!(
                    f,
                    "version {} of run {} was never written, {issued} is the newest",
                    seen.number, seen.run
                )
            }
            Fault::Unexpected(said) => write!(f, "unexpected reply {said}"),
            Fault::CutShort => f.write_str("the reply ends too early"),
            Fault::Trailing(more) => write!(f, "{more} behind the reply"),
            Fault::Unreadable(said) => write!(f, "the reply makes no sense at {said}"),
        }
    }
}
