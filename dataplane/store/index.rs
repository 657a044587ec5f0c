//! Buckets, from the writer's side. A key stays in the slot it got until it dies: nothing is ever displaced.

use super::geometry::{Geometry, Probe};
use super::layout::{ItemHeader, MOST_KEY, SLOTS, Slot, UNIT};
use super::region::Memory;
use zerocopy::FromBytes;

/// An entry that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Of the slot's word: bytes from the arena's start.
    pub(super) offset: usize,
    pub(super) slot: Slot,
}

/// The header of an item.
pub(super) fn header(memory: &Memory, place: u64) -> ItemHeader {
    let mut bytes = [0; UNIT];
    memory.read(place as usize * UNIT, &mut bytes);
    match ItemHeader::read_from_bytes(&bytes) {
        Ok(header) => header,
        Err(_) => unreachable!("a header is {UNIT} bytes of any value"),
    }
}

/// The entry of a key.
pub(super) fn find(memory: &Memory, geometry: &Geometry, probe: &Probe, key: &[u8]) -> Option<Entry> {
    let mut bytes = [0; UNIT + MOST_KEY];
    tagged(memory, geometry, probe).find(|e| {
        let item = &mut bytes[..UNIT + key.len()];
        memory.read(e.slot.place as usize * UNIT, item);
        let Ok((header, rest)) = ItemHeader::ref_from_prefix(item) else { return false };
        usize::from(header.key_len.get()) == key.len() && rest == key
    })
}

/// The entry that leads to a place.
pub(super) fn leading_to(memory: &Memory, geometry: &Geometry, probe: &Probe, place: u64) -> Option<Entry> {
    entries(memory, geometry, probe).find(|e| e.slot.place == place)
}

/// All entries of a key's buckets.
pub(super) fn entries(memory: &Memory, geometry: &Geometry, probe: &Probe) -> impl Iterator<Item = Entry> {
    let Probe { partition, buckets, .. } = *probe;
    let offsets = buckets.map(|b| geometry.bucket_offset(partition, b));
    let slots = offsets.into_iter().flat_map(|offset| (0..SLOTS).map(move |s| offset + 8 * s));
    slots.filter_map(|offset| entry_at(memory, offset))
}

/// Those with its tag.
#[inline]
pub(super) fn tagged(memory: &Memory, geometry: &Geometry, probe: &Probe) -> impl Iterator<Item = Entry> {
    let Probe { partition, buckets, tag, .. } = *probe;
    let [first, second] = buckets.map(|b| geometry.bucket_offset(partition, b));
    let mut bits = with_tag(memory, first, tag) | with_tag(memory, second, tag) << SLOTS;
    std::iter::from_fn(move || {
        while bits != 0 {
            let at = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let offset = if at < SLOTS { first + 8 * at } else { second + 8 * (at - SLOTS) };
            // An empty slot may have the tag as well.
            if let Some(entry) = entry_at(memory, offset) {
                return Some(entry);
            }
        }
        None
    })
}

/// A bit for every slot of a bucket that has this tag.
#[inline]
fn with_tag(memory: &Memory, offset: usize, tag: u16) -> u32 {
    // Nobody else writes here: the bucket may be copied as a whole.
    let mut bucket = [0; UNIT];
    memory.read(offset, &mut bucket);
    let (slots, _) = bucket.as_chunks::<8>();
    let has_tag = |slot: &[u8; 8]| u64::from_le_bytes(*slot) as u16 == tag;
    slots.iter().enumerate().fold(0, |bits, (at, slot)| bits | u32::from(has_tag(slot)) << at)
}

/// The entry of the slot at this offset.
pub(super) fn entry_at(memory: &Memory, offset: usize) -> Option<Entry> {
    Slot::from_word(memory.word(offset)).map(|slot| Entry { offset, slot })
}

/// Where a new entry can go: into the emptier one of the key's buckets.
pub(super) fn vacancy(memory: &Memory, geometry: &Geometry, probe: &Probe) -> Option<usize> {
    let bucket = |b: u32| {
        let offset = geometry.bucket_offset(probe.partition, b);
        let mut free = (0..SLOTS).map(|s| offset + 8 * s).filter(|o| memory.word(*o) == 0);
        (free.clone().count(), free.next_back())
    };
    let ((n, first), (m, second)) = (bucket(probe.buckets[0]), bucket(probe.buckets[1]));
    if n >= m { first } else { second }
}
