//! What is in registered memory, byte for byte. Everything is little-endian; everything a peer may look at is aligned.
//!
//! | from | what |
//! |---|---|
//! | 0 | [`Superblock`], 64 bytes, written last at start and never again |
//! | 64 | one [`PartitionBlock`] of 64 bytes for each partition |
//! | after them | buckets of 64 bytes, 8 [`Slot`]s each, partition after partition |
//! | 1/16 of the arena | segments of items, partition after partition |
//!
//! *Places* and *units* count 64 bytes from the arena's first one. An item is an [`ItemHeader`], its key and its value without
//! a gap, in a run of whole units.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a unit: one cache line, which is what a READ takes whole.
pub const UNIT: usize = 64;
/// Slots of a bucket.
pub const SLOTS: usize = 8;
/// Units that a slot can name: 15 bits.
pub const MOST_UNITS: u32 = (1 << 15) - 1;
/// Bits of a place in a slot.
pub const PLACE_BITS: u32 = 33;
/// The largest arena that slots can name places of: 512 GiB.
pub const MOST_BYTES: u64 = (UNIT as u64) << PLACE_BITS;
/// Bytes of the longest key, as memcached has it.
pub const MOST_KEY: usize = 250;
/// Bytes of the longest value, as memcached has it by default.
pub const MOST_VALUE: usize = 1 << 20;

/// `isthmuKV`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"isthmuKV");
/// Of this file.
pub const LAYOUT_VERSION: u32 = 3;

/// The first unit of an arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: U64,
    /// [`LAYOUT_VERSION`].
    pub version: U32,
    /// Partitions, each with one writer.
    pub partitions: U32,
    /// Random, another one at each start.
    pub epoch: U64,
    /// Bytes of the arena.
    pub bytes: U64,
    /// Buckets of a partition.
    pub buckets: U32,
    /// Segments of a partition.
    pub segments: U32,
    /// Units of a segment.
    pub segment_units: U32,
    /// 0.
    pub spare: U32,
    /// Where the first segment begins, in units.
    pub data_place: U64,
    /// 0.
    pub spare_end: U64,
}

/// What a partition's writer says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PartitionBlock {
    /// The membership that the partition serves: written before keys that it takes away are dropped.
    pub generation: U64,
    /// 0.
    pub spare: [U64; 7],
}

/// The word of an item's state while it is the value of its key. Anything else, and it is not.
pub const LIVE: u64 = 0x6576_696c_2d6d_7469;
/// Overwritten, deleted, evicted or expired.
pub const DEAD: u64 = 0x6461_6564_2d6d_7469;
/// The expiry of what does not expire.
pub const NEVER: u64 = (1 << MARK_SHIFT) - 1;
/// Where an item's marks begin in its life word.
const MARK_SHIFT: u32 = 60;

/// The second word of an item: when it expires and what marks it bears. The only part of a live item that changes, by one
/// store of eight bytes; so it is outside the seal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Life {
    /// Milliseconds of the node's clock, or [`NEVER`]; below 2^60.
    pub expires_ms: u64,
    /// Four bits that mean nothing to the store.
    pub marks: u8,
}

impl Life {
    /// The word in the item; larger expiries are [`NEVER`].
    #[inline]
    pub const fn to_word(self) -> u64 {
        let expires_ms = if self.expires_ms > NEVER { NEVER } else { self.expires_ms };
        expires_ms | ((self.marks & 15) as u64) << MARK_SHIFT
    }

    /// What a word says.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Life { expires_ms: word & NEVER, marks: (word >> MARK_SHIFT) as u8 }
    }

    /// True from the moment of its expiry on; what never expires has none.
    #[inline]
    pub const fn is_past(self, now_ms: u64) -> bool {
        self.expires_ms != NEVER && now_ms >= self.expires_ms
    }
}

/// The first unit of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ItemHeader {
    /// [`LIVE`], [`DEAD`] or neither; outside the seal.
    pub state: U64,
    /// A [`Life`]; outside the seal, so that a touch is one store.
    pub life: U64,
    /// Counts the items a partition wrote; no two items of an epoch share it.
    pub seq: U64,
    /// What clients compare.
    pub cas: U64,
    /// Of the key.
    pub hash: U64,
    /// Bytes.
    pub value_len: U32,
    /// The client's.
    pub flags: U32,
    /// Bytes.
    pub key_len: U16,
    /// Units of the whole item, as in its slot.
    pub units: U16,
    /// Unix second at which it was written.
    pub written_s: U32,
    /// Over the place, everything above but the first two words, key and value.
    pub seal: U64,
}

/// What the seal covers of a header.
const SEALED: std::ops::Range<usize> = 16..56;

const _: () = assert!(size_of::<Superblock>() == UNIT);
const _: () = assert!(size_of::<PartitionBlock>() == UNIT);
const _: () = assert!(size_of::<ItemHeader>() == UNIT);
const _: () = assert!(std::mem::offset_of!(ItemHeader, seq) == SEALED.start);
const _: () = assert!(std::mem::offset_of!(ItemHeader, seal) == SEALED.end);

/// What of a header is sealed, and the item's place.
#[inline]
pub(super) fn sealed_header(header: &ItemHeader, place: u64) -> [u8; UNIT] {
    // The words outside the seal make room for the place.
    let mut first = [0; UNIT];
    first[SEALED].copy_from_slice(&header.as_bytes()[SEALED]);
    first[SEALED.end..].copy_from_slice(&place.to_le_bytes());
    first
}
/// Where the life word is in an item.
pub(super) const LIFE_AT: usize = std::mem::offset_of!(ItemHeader, life);

/// Units of an item with these lengths; lengths within [`MOST_KEY`] and [`MOST_VALUE`].
#[inline]
pub const fn item_units(key_len: usize, value_len: usize) -> u32 {
    (UNIT + key_len + value_len).div_ceil(UNIT) as u32
}

/// Units of the largest item.
pub const LARGEST: u32 = item_units(MOST_KEY, MOST_VALUE);
const _: () = assert!(LARGEST <= MOST_UNITS);

/// An entry of a bucket: bits 0 to 15 the tag, 16 to 30 the item's units, 31 to 63 its place. An empty one is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Bits of the key's hash.
    pub tag: u16,
    /// Units of the item.
    pub units: u32,
    /// Its first unit.
    pub place: u64,
}

impl Slot {
    /// The word in the bucket.
    ///
    /// # Panics
    /// If units or place do not fit.
    #[inline]
    pub fn to_word(self) -> u64 {
        assert!(self.units > 0 && self.units <= MOST_UNITS && self.place < 1 << PLACE_BITS, "{self:?}");
        u64::from(self.tag) | u64::from(self.units) << 16 | self.place << 31
    }

    /// The entry of a word; `None` for an empty one.
    #[inline]
    pub const fn from_word(word: u64) -> Option<Slot> {
        let units = (word >> 16) as u32 & MOST_UNITS;
        if units == 0 { None } else { Some(Slot { tag: word as u16, units, place: word >> 31 }) }
    }
}

/// Where an item is, as gateways remember it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// Its first unit.
    pub place: u64,
    /// Units to read.
    pub units: u32,
    /// Which item it was.
    pub seq: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_keep_their_extremes() {
        for (tag, units, place) in [(0, 1, 0), (0xffff, MOST_UNITS, (1 << 33) - 1), (1, 2, 3)] {
            let slot = Slot { tag, units, place };
            assert_eq!(Slot::from_word(slot.to_word()), Some(slot));
        }
        assert_eq!(Slot::from_word(0), None);
        assert_eq!(Slot::from_word(0xffff), None, "a tag alone is no entry");
    }

    #[test]
    fn a_life_keeps_expiry_and_marks_apart() {
        for expires_ms in [0, 1, NEVER - 1, NEVER] {
            for marks in 0..16 {
                let life = Life { expires_ms, marks };
                assert_eq!(Life::from_word(life.to_word()), life);
            }
        }
        assert_eq!(Life::from_word(Life { expires_ms: u64::MAX, marks: 0 }.to_word()).expires_ms, NEVER);
        let at = |expires_ms| Life { expires_ms, marks: 15 };
        assert!(at(5).is_past(5) && !at(6).is_past(5) && !at(NEVER).is_past(u64::MAX));
    }

    #[test]
    #[should_panic(expected = "place")]
    fn a_place_beyond_the_largest_arena_is_refused() {
        Slot { tag: 0, units: 1, place: 1 << 33 }.to_word();
    }

    #[test]
    fn item_sizes_are_whole_units() {
        assert_eq!(item_units(1, 0), 2);
        assert_eq!(item_units(30, 34), 2);
        assert_eq!(item_units(30, 35), 3);
        assert_eq!(LARGEST, 16389);
    }

    #[test]
    fn the_bytes_of_a_header_are_where_the_table_says() {
        let header = ItemHeader {
            state: LIVE.into(),
            life: 1.into(),
            seq: 2.into(),
            cas: 3.into(),
            hash: 4.into(),
            value_len: 5.into(),
            flags: 6.into(),
            key_len: 7.into(),
            units: 8.into(),
            written_s: 10.into(),
            seal: 9.into(),
        };
        let bytes = header.as_bytes();
        assert_eq!(&bytes[..8], b"itm-live");
        for (at, value) in
            [(8, 1u8), (16, 2), (24, 3), (32, 4), (40, 5), (44, 6), (48, 7), (50, 8), (52, 10), (56, 9)]
        {
            assert_eq!(bytes[at], value, "at {at}");
        }
    }
}
