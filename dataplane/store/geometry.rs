//! Where things are in an arena of any size, and which buckets a key has.

use super::layout::{LARGEST, LAYOUT_VERSION, MAGIC, MOST_BYTES, SLOTS, Superblock, UNIT};
use super::seal::{Secrets, fold};
use zerocopy::FromBytes;

/// The default size: 16 MiB of metadata and 240 MiB of data.
pub const DEFAULT_BYTES: u64 = 256 << 20;
/// Units of a segment: a little over 1 MiB, so that the largest item has room in one.
pub const SEGMENT_UNITS: u32 = 16640;
/// One unit in so many is for superblock and buckets.
const METADATA: u64 = 16;
/// The most partitions.
pub const MOST_PARTITIONS: u32 = 64;

/// An arena that cannot be laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GeometryError {
    /// Two segments and two buckets a partition are the least.
    #[error(
        "an arena of {bytes} bytes is too small for {partitions} partitions: give it {least} bytes or more"
    )]
    TooSmall {
        /// Bytes asked for.
        bytes: u64,
        /// Partitions asked for.
        partitions: u32,
        /// What would do.
        least: u64,
    },
    /// Slots cannot name its places.
    #[error("an arena of {bytes} bytes is too large: {MOST_BYTES} are the most, use several nodes")]
    TooLarge {
        /// Bytes asked for.
        bytes: u64,
    },
    /// No partition, or too many.
    #[error("{partitions} partitions: use 1 to {MOST_PARTITIONS}")]
    Partitions {
        /// Asked for.
        partitions: u32,
    },
    /// Units of a segment that the books cannot count in pairs.
    #[error("segments of {units} units: use an even number from 8 to {SEGMENT_UNITS}")]
    Segment {
        /// Asked for.
        units: u32,
    },
    /// What a peer calls a superblock is none, or not one of ours.
    #[error("no superblock of layout {LAYOUT_VERSION}: use the same version at both ends")]
    Superblock,
}

/// The numbers of an arena; both ends derive everything from them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    bytes: u64,
    partitions: u32,
    buckets: u32,
    segments: u32,
    segment_units: u32,
    data_place: u64,
}

impl Geometry {
    /// Lays out an arena.
    ///
    /// # Errors
    /// Sizes that do not work.
    pub fn new(bytes: u64, partitions: u32) -> Result<Self, GeometryError> {
        Self::with_segments_of(SEGMENT_UNITS, bytes, partitions)
    }

    /// Lays out an arena with segments of another size, which is that of its largest item, too.
    ///
    /// # Errors
    /// Sizes that do not work.
    pub fn with_segments_of(units: u32, bytes: u64, partitions: u32) -> Result<Self, GeometryError> {
        if !(1..=MOST_PARTITIONS).contains(&partitions) {
            return Err(GeometryError::Partitions { partitions });
        }
        if !(8..=SEGMENT_UNITS).contains(&units) || !units.is_multiple_of(2) {
            return Err(GeometryError::Segment { units });
        }
        if bytes > MOST_BYTES {
            return Err(GeometryError::TooLarge { bytes });
        }
        let each = u64::from(partitions);
        let (all, metadata) = (bytes / UNIT as u64, bytes / UNIT as u64 / METADATA);
        let buckets = metadata.saturating_sub(1 + each) / each;
        let segments = (all - metadata) / each / u64::from(units);
        if buckets < 2 || segments < 2 {
            let data = 2 * each * u64::from(units) * METADATA / (METADATA - 1) + 2 * METADATA;
            let least = data.max(METADATA * (1 + 3 * each)) * UNIT as u64;
            return Err(GeometryError::TooSmall { bytes, partitions, least });
        }
        Ok(Geometry {
            bytes,
            partitions,
            buckets: buckets as u32,
            segments: segments as u32,
            segment_units: units,
            data_place: metadata,
        })
    }

    /// Reads what a node wrote or told.
    ///
    /// # Errors
    /// If it is no superblock, or its numbers do not agree.
    pub fn of(superblock: &[u8]) -> Result<(Self, u64), GeometryError> {
        let s = Superblock::read_from_bytes(superblock).map_err(|_| GeometryError::Superblock)?;
        let units = s.segment_units.get();
        if s.magic.get() != MAGIC || s.version.get() != LAYOUT_VERSION {
            return Err(GeometryError::Superblock);
        }
        let geometry = Self::with_segments_of(units, s.bytes.get(), s.partitions.get())?;
        let epoch = s.epoch.get();
        if geometry.superblock(epoch) == s { Ok((geometry, epoch)) } else { Err(GeometryError::Superblock) }
    }

    /// The superblock of an arena with these numbers.
    pub fn superblock(&self, epoch: u64) -> Superblock {
        Superblock {
            magic: MAGIC.into(),
            version: LAYOUT_VERSION.into(),
            partitions: self.partitions.into(),
            epoch: epoch.into(),
            bytes: self.bytes.into(),
            buckets: self.buckets.into(),
            segments: self.segments.into(),
            segment_units: self.segment_units.into(),
            spare: 0.into(),
            data_place: self.data_place.into(),
            spare_end: 0.into(),
        }
    }

    /// Bytes of the arena.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Partitions, each with one writer.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// Buckets of a partition.
    pub fn buckets(&self) -> u32 {
        self.buckets
    }

    /// Slots of a partition: what it can hold at most.
    pub fn slots(&self) -> u64 {
        u64::from(self.buckets) * SLOTS as u64
    }

    /// Segments of a partition.
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Units of a segment.
    pub fn segment_units(&self) -> u32 {
        self.segment_units
    }

    /// Units of the largest item.
    pub fn largest(&self) -> u32 {
        self.segment_units.min(LARGEST)
    }

    /// Where a partition's [`PartitionBlock`](super::layout::PartitionBlock) is: bytes from the arena's start.
    pub fn partition_offset(&self, partition: u32) -> usize {
        debug_assert!(partition < self.partitions);
        UNIT * (1 + partition as usize)
    }

    /// Where a bucket is: bytes from the arena's start.
    #[inline]
    pub fn bucket_offset(&self, partition: u32, bucket: u32) -> usize {
        let before = u64::from(partition) * u64::from(self.buckets) + u64::from(bucket);
        UNIT * (1 + self.partitions as usize + before as usize)
    }

    /// The place of a partition's first segment.
    pub fn first_place(&self, partition: u32) -> u64 {
        let units = u64::from(self.segments) * u64::from(self.segment_units);
        self.data_place + u64::from(partition) * units
    }

    /// True if an item of so many units there lies inside the data of a partition: what a gateway asks of a slot before
    /// it reads what the slot names.
    #[inline]
    pub fn holds(&self, place: u64, units: u32) -> bool {
        let end = self.first_place(self.partitions);
        place >= self.data_place && units >= 1 && place.saturating_add(u64::from(units)) <= end
    }

    /// Where to look for a key.
    #[inline]
    pub fn probe(&self, secrets: &Secrets, key: &[u8]) -> Probe {
        self.probe_hash(secrets.place.hash(key))
    }

    /// Where to look for a key with this hash.
    #[inline]
    pub fn probe_hash(&self, hash: u64) -> Probe {
        let more = fold(hash ^ 0xA076_1D64_78BD_642F, 0xE703_7ED1_A0B4_28DB);
        let partition = scale(more as u32, self.partitions);
        let first = scale((hash >> 32) as u32, self.buckets);
        let step = 1 + scale((more >> 32) as u32, self.buckets - 1);
        // Both are below the number of buckets: one turn at most.
        let second = u64::from(first) + u64::from(step);
        let second = second.checked_sub(u64::from(self.buckets)).unwrap_or(second);
        Probe { hash, tag: hash as u16, partition, buckets: [first, second as u32] }
    }
}

/// A number below `n` from 32 random bits.
#[inline]
fn scale(bits: u32, n: u32) -> u32 {
    ((u64::from(bits) * u64::from(n)) >> 32) as u32
}

/// Where a key may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Of the key.
    pub hash: u64,
    /// In its slot.
    pub tag: u16,
    /// Whose writer owns it.
    pub partition: u32,
    /// Its two buckets, never the same.
    pub buckets: [u32; 2],
}

impl Probe {
    /// Of no key: for what has none.
    pub const NOWHERE: Probe = Probe { hash: 0, tag: 0, partition: 0, buckets: [0; 2] };
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_default_is_16_and_240_mib() {
        let g = Geometry::new(DEFAULT_BYTES, 1).unwrap();
        assert_eq!(g.data_place * UNIT as u64, 16 * MIB);
        assert_eq!(g.buckets(), 16 * 1024 * 1024 / 64 - 2);
        assert_eq!(g.segments(), 236);
        assert!(g.holds(g.data_place, 1) && !g.holds(g.data_place - 1, 1));
    }

    #[test]
    fn areas_do_not_meet_and_stay_inside() {
        for bytes in [3 * MIB, 5 * MIB + 4097, 256 * MIB, 1 << 30, 100 << 30, MOST_BYTES] {
            for partitions in [1, 2, 3, 16] {
                let Ok(g) = Geometry::new(bytes, partitions) else {
                    assert!(bytes < 64 * MIB);
                    continue;
                };
                let data = g.data_place as usize * UNIT;
                assert!(g.partition_offset(partitions - 1) + UNIT <= g.bucket_offset(0, 0));
                assert!(g.bucket_offset(partitions - 1, g.buckets() - 1) + UNIT <= data);
                let end = g.first_place(partitions) * UNIT as u64;
                assert!(end <= bytes && g.first_place(0) == g.data_place);
                let lost = bytes - end;
                let most = u64::from(partitions) * u64::from(SEGMENT_UNITS + 1) * UNIT as u64;
                assert!(lost < most, "{lost} bytes of {bytes} unused with {partitions} partitions");
            }
        }
    }

    #[test]
    fn a_gib_fits_places_and_counts() {
        let g = Geometry::new(1 << 30, 4).unwrap();
        assert_eq!(g.data_place * UNIT as u64, 64 * MIB);
        assert_eq!(4 * g.segments(), 944);
        assert_eq!(g.slots() * 4, (64 * MIB / 64 - 5) / 4 * 4 * 8);
        let last = g.first_place(3) + u64::from(g.segments() * SEGMENT_UNITS) - u64::from(LARGEST);
        let slot = super::super::layout::Slot { tag: 1, units: LARGEST, place: last };
        assert_eq!(super::super::layout::Slot::from_word(slot.to_word()), Some(slot));
        assert!(g.holds(last, LARGEST) && !g.holds(last + 1, LARGEST) && !g.holds(u64::MAX, 2));
    }

    #[test]
    fn the_least_size_that_is_named_works() {
        for partitions in [1, 2, 7] {
            let Err(GeometryError::TooSmall { least, .. }) = Geometry::new(MIB, partitions) else { panic!() };
            assert!(Geometry::new(least, partitions).is_ok(), "{least} bytes, {partitions} partitions");
        }
        assert!(matches!(Geometry::new(MOST_BYTES + 1, 1), Err(GeometryError::TooLarge { .. })));
        assert!(matches!(Geometry::new(MIB, 0), Err(GeometryError::Partitions { .. })));
        assert!(matches!(Geometry::with_segments_of(7, MIB, 1), Err(GeometryError::Segment { .. })));
    }

    #[test]
    fn a_superblock_is_believed_only_if_it_is_whole() {
        let g = Geometry::new(DEFAULT_BYTES, 2).unwrap();
        let block = g.superblock(77);
        assert_eq!(Geometry::of(block.as_bytes()), Ok((g, 77)));
        // The epoch may be anything, and a few bytes more or less of an arena change nothing else.
        for at in (0..24).chain(26..UNIT) {
            let mut bytes = block.as_bytes().to_vec();
            bytes[at] ^= 0x10;
            assert_eq!(Geometry::of(&bytes).is_ok(), (16..24).contains(&at), "byte {at}");
        }
        assert!(Geometry::of(&[0; 63]).is_err());
    }

    #[test]
    fn keys_spread_over_partitions_and_buckets() {
        let g = Geometry::with_segments_of(64, 4 * MIB, 4).unwrap();
        let secrets = Secrets::new([1, 2, 3, 4]);
        let (mut partitions, mut first) = ([0u32; 4], vec![0u32; g.buckets() as usize]);
        for i in 0..40_000u32 {
            let p = g.probe(&secrets, format!("key{i}").as_bytes());
            assert!(p.buckets[0] != p.buckets[1] && p.buckets.iter().all(|b| *b < g.buckets()));
            partitions[p.partition as usize] += 1;
            first[p.buckets[0] as usize] += 1;
        }
        assert!(partitions.iter().all(|n| (9_000..11_000).contains(n)), "{partitions:?}");
        assert!(first.iter().max() < Some(&90), "{:?}", first.iter().max());
    }
}
