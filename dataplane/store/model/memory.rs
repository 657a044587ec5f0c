//! What a READ sees: the registered memory of a node, in units of 64 bytes, each of which is read and written whole.

use super::Key;

/// Units of the data area, and of one segment of it.
pub(super) const UNITS: usize = 36;
pub(super) const SEGMENT: usize = 12;
/// Buckets, and slots of one.
pub(super) const BUCKETS: usize = 3;
pub(super) const SLOTS: usize = 2;

/// Names what a SET wrote. No two SETs of a run write the same.
pub(super) type Version = u32;

/// The first unit of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) key: Key,
    pub(super) seq: u32,
    pub(super) place: usize,
    pub(super) units: usize,
    pub(super) version: Version,
    /// Outside the seal: the only word of an item that changes.
    pub(super) live: bool,
    /// Time of the node's clock.
    pub(super) expires: Option<u64>,
    /// True if the node made it; a client does not know the secret.
    pub(super) sealed: bool,
}

/// 64 bytes of the data area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    Free,
    Head(Header),
    /// Bytes of a client's value, which may look like a header.
    Body {
        version: Version,
        disguise: Option<Header>,
    },
}

impl Unit {
    /// These bytes read as a header.
    pub(super) fn as_header(&self) -> Option<Header> {
        match self {
            Unit::Free => None,
            Unit::Head(h) => Some(*h),
            Unit::Body { disguise, .. } => *disguise,
        }
    }
}

/// An entry of a bucket: eight bytes, published by one store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    pub(super) tag: u8,
    pub(super) place: usize,
    pub(super) units: usize,
}

pub(super) type Bucket = [Option<Slot>; SLOTS];

/// Everything a node has registered.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub(super) data: [Unit; UNITS],
    pub(super) buckets: [Bucket; BUCKETS],
    /// The membership the node serves.
    pub(super) generation: u32,
}

impl Memory {
    pub(super) fn new(generation: u32) -> Self {
        Memory { data: [Unit::Free; UNITS], buckets: [[None; SLOTS]; BUCKETS], generation }
    }
}

/// The two buckets a key may be in.
pub(super) fn buckets_of(key: Key) -> [usize; 2] {
    let first = usize::from(key) % BUCKETS;
    [first, (first + 1 + usize::from(key) / BUCKETS % (BUCKETS - 1)) % BUCKETS]
}

/// What a slot says of its key: little, so that keys share it.
pub(super) fn tag_of(key: Key) -> u8 {
    key % 2
}
