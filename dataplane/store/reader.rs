//! A gateway's side: what the bytes of a READ are worth. Pure functions; nothing that a node, a torn READ or a client's value
//! may contain makes them panic or believe what is not so.
//!
//! A GET with a known place reads `units` units there and asks [`judge`]. One without reads both buckets of the key and, behind
//! them in the same doorbell, the partition's generation; then the items of the [`candidates`] one after the other:
//!
//! | verdict | with a known place | through a slot |
//! |---|---|---|
//! | [`Found`](Verdict::Found) | the answer | the answer, and its location is remembered |
//! | [`Expired`](Verdict::Expired) | not found | not found |
//! | [`Other`](Verdict::Other) | forget the place, read the buckets | the next candidate; after the last one not found |
//! | [`Gone`](Verdict::Gone), [`Torn`](Verdict::Torn) | forget the place, read the buckets | read the buckets again |
//!
//! No candidate at all is "not found" if the generation is the gateway's own. After a few rounds it asks the node by SEND.

use super::geometry::Geometry;
use super::layout::{
    ItemHeader, LIVE, Life, Location, MOST_KEY, MOST_VALUE, SLOTS, Slot, UNIT, item_units, sealed_header,
};
use super::seal::{Seal, Secrets};
use arrayvec::ArrayVec;
use std::ops::Range;
use zerocopy::FromBytes;

/// The entries of a bucket that may be a key's: those with its tag that lead into the arena.
pub fn candidates(bucket: &[u8; UNIT], tag: u16, geometry: &Geometry) -> ArrayVec<Slot, SLOTS> {
    let (words, _) = bucket.as_chunks::<8>();
    let slots = words.iter().filter_map(|w| Slot::from_word(u64::from_le_bytes(*w)));
    slots.filter(|s| s.tag == tag && geometry.holds(s.place, s.units)).collect()
}

/// What was read, and what for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Where the READ began.
    pub place: u64,
    /// Units it was for.
    pub units: u32,
    /// The item's sequence, when the place was remembered; `None` when a slot led here.
    pub seq: Option<u64>,
}

impl<'a> Wanted<'a> {
    /// What a remembered location leads to.
    pub fn at(key: &'a [u8], location: Location) -> Self {
        Wanted { key, place: location.place, units: location.units, seq: Some(location.seq) }
    }

    /// What a slot leads to.
    pub fn by(key: &'a [u8], slot: Slot) -> Self {
        Wanted { key, place: slot.place, units: slot.units, seq: None }
    }
}

/// When a lookup was under way, in milliseconds of the node's clock as the gateway believes it to be.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// When this round of READs was posted.
    pub began_ms: u64,
    /// When its bytes are judged.
    pub now_ms: u64,
}

/// An item of the key that was the key's value at some time of the lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Where it is.
    pub location: Location,
    /// What clients compare.
    pub cas: u64,
    /// The client's.
    pub flags: u32,
    /// When it expires, and its marks.
    pub life: Life,
    /// Unix second at which it was written.
    pub written_s: u32,
    /// Where the value begins in what was read.
    pub value_at: usize,
    /// Its bytes.
    pub value_len: usize,
}

/// What a READ of an item brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The key's value.
    Found(Found),
    /// The key's item, past its time when the lookup began.
    Expired,
    /// A whole and live item of another key.
    Other,
    /// The item that was looked for is not there any more: dead, another one in its place, or past its time only since
    /// the lookup began, so that it may have been replaced before.
    Gone,
    /// No item, or one that changed while it was read.
    Torn,
}

/// Judges what a READ of an item brought, in the pieces it came in.
pub fn judge(secrets: &Secrets, wanted: &Wanted<'_>, pieces: &[&[u8]], times: Times) -> Verdict {
    let Some((header, _)) = pieces.first().and_then(|p| ItemHeader::ref_from_prefix(p).ok()) else {
        return Verdict::Torn;
    };
    let (key_len, value_len) = (usize::from(header.key_len.get()), header.value_len.get() as usize);
    if key_len > MOST_KEY || value_len > MOST_VALUE {
        return Verdict::Torn;
    }
    let units = item_units(key_len, value_len);
    if header.state.get() != LIVE || wanted.seq.is_some_and(|seq| seq != header.seq.get()) {
        return Verdict::Gone;
    }
    if u32::from(header.units.get()) != units || units != wanted.units {
        return Verdict::Torn;
    }
    let is_whole_and_same = match pieces {
        [piece] => check(secrets, wanted, header, piece),
        pieces => check_pieces(secrets, wanted, header, pieces),
    };
    match is_whole_and_same {
        None => return Verdict::Torn,
        Some(false) => return Verdict::Other,
        Some(true) => {}
    }
    let life = Life::from_word(header.life.get());
    if life.is_past(times.began_ms) {
        return Verdict::Expired;
    }
    if life.is_past(times.now_ms) {
        return Verdict::Gone;
    }
    Verdict::Found(Found {
        location: Location { place: wanted.place, units, seq: header.seq.get() },
        cas: header.cas.get(),
        flags: header.flags.get(),
        life,
        written_s: header.written_s.get(),
        value_at: UNIT + key_len,
        value_len,
    })
}

/// Whether an item in one piece has the key that is wanted; nothing if its seal is not that of its bytes.
#[inline]
fn check(secrets: &Secrets, wanted: &Wanted<'_>, header: &ItemHeader, piece: &[u8]) -> Option<bool> {
    let (key_len, value_len) = (usize::from(header.key_len.get()), header.value_len.get() as usize);
    let (key, value) = piece.get(UNIT..UNIT + key_len + value_len)?.split_at_checked(key_len)?;
    let seal = Seal::of(&secrets.seal, &sealed_header(header, wanted.place), key, value);
    (seal == header.seal.get()).then(|| key == wanted.key)
}

/// The same of an item in several pieces.
fn check_pieces(
    secrets: &Secrets,
    wanted: &Wanted<'_>,
    header: &ItemHeader,
    pieces: &[&[u8]],
) -> Option<bool> {
    let (key_len, value_len) = (usize::from(header.key_len.get()), header.value_len.get() as usize);
    let mut gathered = [0; MOST_KEY];
    let key = &mut gathered[..key_len];
    let mut at = 0;
    for part in parts(pieces, UNIT..UNIT + key_len) {
        key[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    let mut seal = Seal::new(&secrets.seal, &sealed_header(header, wanted.place), key);
    let mut left = value_len;
    for part in parts(pieces, UNIT + key_len..UNIT + key_len + value_len) {
        seal.update(part);
        left -= part.len();
    }
    (at == key_len && left == 0 && seal.finish() == header.seal.get()).then(|| key == wanted.key)
}

/// What lies in a range of the bytes of all pieces.
fn parts<'p>(pieces: &[&'p [u8]], range: Range<usize>) -> impl Iterator<Item = &'p [u8]> {
    let mut start = 0;
    pieces.iter().map(move |piece| {
        let clamp = |at: usize| at.saturating_sub(start).min(piece.len());
        let part = &piece[clamp(range.start)..clamp(range.end)];
        start += piece.len();
        part
    })
}

#[cfg(test)]
mod tests;
