//! The one writer of a partition: carries out mutations, one after the other, while peers read.

use super::arena::Arena;
use super::evict::Ageing;
use super::geometry::{Geometry, Probe};
use super::index::{self, Entry};
use super::layout::{
    DEAD, ItemHeader, LIFE_AT, LIVE, Life, Location, MOST_KEY, MOST_VALUE, PartitionBlock, Slot, UNIT,
    item_units, sealed_header,
};
use super::reclaim::{BadReport, Epochs};
use super::region::Memory;
#[cfg(test)]
use super::region::Store;
use super::room::Room;
use super::seal::{Seal, Secrets};
use rdma_engine::mem::Window;
use zerocopy::IntoBytes;

/// An arena that does not belong to its geometry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a window of {len} bytes for an arena of {bytes}: map as much as the geometry says")]
pub struct WrongSize {
    len: usize,
    bytes: u64,
}

/// What a mutation writes.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// 1 to [`MOST_KEY`] bytes.
    pub key: &'a [u8],
    /// The value, in pieces.
    pub value: &'a [&'a [u8]],
    /// The client's.
    pub flags: u32,
    /// When it expires, and marks of the caller's.
    pub life: Life,
    /// The new CAS unique; the item's sequence without one.
    pub cas: Option<u64>,
    /// Unix second, for whoever asks how old the item is.
    pub written_s: u32,
}

/// An item as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item {
    /// Where it is.
    pub location: Location,
    /// What clients compare.
    pub cas: u64,
    /// The client's.
    pub flags: u32,
    /// When it expires, and marks of the caller's.
    pub life: Life,
    /// Unix second at which it was written.
    pub written_s: u32,
    /// Bytes of its key.
    pub key_len: usize,
    /// Bytes of its value.
    pub value_len: usize,
}

/// Why nothing was written. What was there before is untouched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// No key, too long a key, or more than an item can hold.
    Size,
    /// All free places wait for reports of gateways: try again after the next one.
    Busy,
}

/// What happened so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Items that are live.
    pub items: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Items that were written.
    pub written: u64,
    /// Items that had to go for want of a place.
    pub evicted: u64,
    /// Items that had to go because both buckets of a new key were full.
    pub evicted_from_bucket: u64,
    /// Items that were found past their time.
    pub expired: u64,
    /// Writes refused for want of a place.
    pub busy: u64,
    /// Uses told of that cannot be.
    pub bad_hits: u64,
}

/// Writes the superblock: the node does this once, after all its writers are made.
///
/// # Errors
/// If the window is not as large as the geometry says.
pub fn write_superblock(window: Window, geometry: &Geometry, epoch: u64) -> Result<(), WrongSize> {
    let memory = sized(window, geometry)?;
    let bytes = geometry.superblock(epoch);
    let (words, _) = bytes.as_bytes().as_chunks::<8>();
    // The magic number last.
    for (i, word) in words.iter().enumerate().rev() {
        memory.publish_word(8 * i, u64::from_le_bytes(*word));
    }
    Ok(())
}

fn sized(window: Window, geometry: &Geometry) -> Result<Memory, WrongSize> {
    let memory = Memory::new(window);
    let (len, bytes) = (memory.len(), geometry.bytes());
    if len as u64 == bytes { Ok(memory) } else { Err(WrongSize { len, bytes }) }
}

/// The writer of one partition.
#[derive(Debug)]
pub struct Writer {
    pub(super) memory: Memory,
    pub(super) geometry: Geometry,
    pub(super) partition: u32,
    secrets: Secrets,
    pub(super) arena: Arena,
    pub(super) epochs: Epochs,
    pub(super) ageing: Ageing,
    pub(super) room: Room,
    pub(super) seq: u64,
    generation: u64,
    found: LastFound,
    pub(super) counts: Counts,
}

/// What was looked for last, until something is written: a key that is stored was looked for just before.
#[derive(Clone, Copy, Debug)]
struct LastFound {
    /// Of the key.
    hash: u64,
    entry: Option<Entry>,
}

impl LastFound {
    const NONE: LastFound = LastFound { hash: 0, entry: None };
}

impl Writer {
    /// Empties a partition. `secrets` and `epoch` are fresh random bits of this start, the same for all partitions; what an
    /// earlier one left in the arena opens with neither.
    ///
    /// # Errors
    /// If the window is not as large as the geometry says.
    pub fn new(
        window: Window,
        geometry: Geometry,
        partition: u32,
        secrets: Secrets,
        epoch: u64,
        generation: u64,
    ) -> Result<Self, WrongSize> {
        let memory = sized(window, &geometry)?;
        memory.clear(geometry.bucket_offset(partition, 0), geometry.buckets() as usize);
        memory.clear(geometry.partition_offset(partition), 1);
        let arena = Arena::new(&geometry, partition);
        let room = Room::new(arena.classes());
        let mut writer = Writer {
            memory,
            geometry,
            partition,
            secrets,
            arena,
            epochs: Epochs::new(),
            ageing: Ageing::new(epoch ^ u64::from(partition)),
            room,
            // A CAS unique from before a restart should not fit anything after it.
            seq: epoch << 32 & u64::MAX >> 1,
            generation: 0,
            found: LastFound::NONE,
            counts: Counts::default(),
        };
        writer.write_generation(generation);
        Ok(writer)
    }

    /// The item of a key, if it has one that is not past its time.
    pub fn find(&mut self, key: &[u8], now_ms: u64) -> Option<Item> {
        self.find_at(&self.probe(key), key, now_ms)
    }

    /// The same of a key whose [`probe`](Self::probe) is known.
    pub fn find_at(&mut self, probe: &Probe, key: &[u8], now_ms: u64) -> Option<Item> {
        let entry = self.entry(probe, key, now_ms);
        self.found = LastFound { hash: probe.hash, entry };
        let entry = entry?;
        let stamp = self.ageing.stamp();
        self.arena.stamp(entry.slot.place, stamp);
        Some(self.item(&entry))
    }

    /// A key that will be asked for soon: fetches the buckets it may be in, which are told.
    #[inline]
    pub fn expect(&self, key: &[u8]) -> Probe {
        let probe = self.probe(key);
        for bucket in probe.buckets {
            self.memory.expect(self.geometry.bucket_offset(self.partition, bucket));
        }
        probe
    }

    /// Fetches the items that the buckets of such a key lead to.
    #[inline]
    pub fn expect_items(&self, probe: &Probe) {
        let probe = Probe { partition: self.partition, ..*probe };
        for entry in index::tagged(&self.memory, &self.geometry, &probe) {
            let start = entry.slot.place as usize * UNIT;
            self.memory.expect(start);
            self.memory.expect(start + UNIT);
        }
    }

    /// Copies bytes of an item's value from `from` on, as many as there are and `out` holds; how many.
    pub fn read(&self, item: &Item, from: usize, out: &mut [u8]) -> usize {
        let n = out.len().min(item.value_len.saturating_sub(from));
        let offset = item.location.place as usize * UNIT + UNIT + item.key_len + from;
        if n > 0 {
            self.memory.read(offset, &mut out[..n]);
        }
        n
    }

    /// Writes a key's new item. When this returns it may be acknowledged.
    ///
    /// # Errors
    /// If there is no place for it; then nothing has changed but for what was evicted.
    pub fn set(&mut self, write: &Write<'_>, now_ms: u64) -> Result<Item, Refused> {
        self.set_at(&self.probe(write.key), write, now_ms)
    }

    /// The same of a key whose [`probe`](Self::probe) is known.
    ///
    /// # Errors
    /// Those of [`set`](Self::set).
    pub fn set_at(&mut self, probe: &Probe, write: &Write<'_>, now_ms: u64) -> Result<Item, Refused> {
        let value_len: usize = write.value.iter().map(|v| v.len()).sum();
        if !(1..=MOST_KEY).contains(&write.key.len()) || value_len > MOST_VALUE {
            return Err(Refused::Size);
        }
        let units = item_units(write.key.len(), value_len);
        let class = self.arena.class_of(units).ok_or(Refused::Size)?;
        // First, for the old item may be the one that has to go.
        let Some(place) = self.make_room(class) else {
            self.counts.busy += 1;
            return Err(Refused::Busy);
        };
        let old = match self.found.entry {
            // It was just looked for, and its slot is as it was.
            Some(entry) if self.found.hash == probe.hash && self.is_at(&entry) => Some(entry),
            _ => self.entry(probe, write.key, now_ms),
        };
        self.found = LastFound::NONE;
        let offset = match old {
            Some(entry) => entry.offset,
            None => self.vacate(probe),
        };
        self.seq += 1;
        let location = Location { place, units, seq: self.seq };
        let item = self.write_item(write, value_len, location, probe.hash);
        if let Some(old) = old {
            self.mark_dead(&old);
        }
        self.memory.publish_word(offset, Slot { tag: probe.tag, units, place }.to_word());
        if let Some(old) = old {
            self.retire(old.slot.place);
        }
        self.counts.items += 1;
        self.counts.bytes += (item.key_len + item.value_len) as u64;
        self.counts.written += 1;
        Ok(item)
    }

    /// Ends a key's item; true if there was one.
    pub fn delete(&mut self, key: &[u8], now_ms: u64) -> bool {
        let entry = self.entry(&self.probe(key), key, now_ms);
        if let Some(entry) = &entry {
            self.remove(entry);
        }
        entry.is_some()
    }

    /// Gives a key's item another life: one store of eight bytes.
    pub fn touch(&mut self, key: &[u8], life: Life, now_ms: u64) -> Option<Item> {
        let item = self.find(key, now_ms)?;
        self.memory.publish_word(item.location.place as usize * UNIT + LIFE_AT, life.to_word());
        Some(Item { life, ..item })
    }

    /// Takes what a gateway tells: places that it found items in. Those that are none count as bad.
    pub fn hits(&mut self, places: impl IntoIterator<Item = u64>) {
        for place in places {
            if self.arena.is_live(place) {
                let stamp = self.ageing.stamp();
                self.arena.stamp(place, stamp);
            } else {
                // It may have died since; more than a few are not plausible.
                self.counts.bad_hits += 1;
            }
        }
    }

    /// A gateway's READs may begin; the epoch it is to start from.
    ///
    /// # Errors
    /// For a number beyond [`MOST_GATEWAYS`](super::reclaim::MOST_GATEWAYS).
    pub fn connect(&mut self, gateway: usize) -> Result<u64, BadReport> {
        self.epochs.connect(gateway)
    }

    /// A gateway's READs are over for good: the queue pair they went through **has been destroyed**.
    pub fn disconnect(&mut self, gateway: usize) {
        self.epochs.disconnect(gateway);
    }

    /// The oldest lookup of a gateway that is under way began when it knew this epoch.
    ///
    /// # Errors
    /// For a report that cannot be true.
    pub fn report(&mut self, gateway: usize, epoch: u64) -> Result<(), BadReport> {
        self.epochs.report(gateway, epoch)
    }

    /// What gateways are to be told with every answer and credit.
    pub fn epoch(&self) -> u64 {
        self.epochs.now()
    }

    /// The gateway that holds back most, its epoch, and how many dead places wait. One that is silent for long while many wait
    /// has to be disconnected.
    pub fn slowest(&self) -> (Option<(usize, u64)>, u32) {
        (self.epochs.slowest(), self.arena.retired())
    }

    /// Bytes of the partition that items can have.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.geometry.segments()) * u64::from(self.geometry.segment_units()) * UNIT as u64
    }

    /// The membership that is served.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Counts what is in the segments anew, for tests and fuzzers.
    ///
    /// # Panics
    /// If it is not what was counted on the way.
    pub fn check(&self) {
        self.arena.check();
    }

    pub(super) fn write_generation(&mut self, generation: u64) {
        self.generation = generation;
        let at = std::mem::offset_of!(PartitionBlock, generation);
        self.memory.publish_word(self.geometry.partition_offset(self.partition) + at, generation);
    }

    /// Where a key may be.
    pub fn probe(&self, key: &[u8]) -> Probe {
        // A key of another partition is the caller's mistake; it finds no harm here.
        Probe { partition: self.partition, ..self.geometry.probe(&self.secrets, key) }
    }

    /// True if an entry is still in its slot. Another one with the same word could only have been written.
    fn is_at(&self, entry: &Entry) -> bool {
        self.memory.word(entry.offset) == entry.slot.to_word()
    }

    /// The entry of a key. An item past its time ends here.
    pub(super) fn entry(&mut self, probe: &Probe, key: &[u8], now_ms: u64) -> Option<Entry> {
        if key.is_empty() || key.len() > MOST_KEY {
            return None;
        }
        let entry = index::find(&self.memory, &self.geometry, probe, key)?;
        if Life::from_word(self.memory.word(entry.slot.place as usize * UNIT + LIFE_AT)).is_past(now_ms) {
            self.counts.expired += 1;
            self.remove(&entry);
            return None;
        }
        Some(entry)
    }

    fn item(&self, entry: &Entry) -> Item {
        let h = index::header(&self.memory, entry.slot.place);
        Item {
            location: Location { place: entry.slot.place, units: entry.slot.units, seq: h.seq.get() },
            cas: h.cas.get(),
            flags: h.flags.get(),
            life: Life::from_word(h.life.get()),
            written_s: h.written_s.get(),
            key_len: usize::from(h.key_len.get()),
            value_len: h.value_len.get() as usize,
        }
    }

    /// Everything of an item, while nothing leads to it. Its state comes last.
    fn write_item(&self, write: &Write<'_>, value_len: usize, location: Location, hash: u64) -> Item {
        let cas = write.cas.unwrap_or(location.seq);
        let mut header = ItemHeader {
            state: LIVE.into(),
            life: write.life.to_word().into(),
            seq: location.seq.into(),
            cas: cas.into(),
            hash: hash.into(),
            value_len: (value_len as u32).into(),
            flags: write.flags.into(),
            key_len: (write.key.len() as u16).into(),
            units: (location.units as u16).into(),
            written_s: write.written_s.into(),
            seal: 0.into(),
        };
        header.seal = self.seal(&header, location.place, write).into();
        let start = location.place as usize * UNIT;
        let mut at = start + UNIT;
        for piece in std::iter::once(&write.key).chain(write.value) {
            self.memory.write(at, piece);
            at += piece.len();
        }
        let (words, _) = header.as_bytes().as_chunks::<8>();
        for (i, word) in words.iter().enumerate().skip(1) {
            self.memory.write_word(start + 8 * i, u64::from_le_bytes(*word));
        }
        self.memory.publish_word(start, LIVE);
        let Write { key, flags, life, written_s, .. } = *write;
        Item { location, cas, flags, life, written_s, key_len: key.len(), value_len }
    }

    fn seal(&self, header: &ItemHeader, place: u64, write: &Write<'_>) -> u64 {
        let (secret, first) = (&self.secrets.seal, sealed_header(header, place));
        if let [value] | [value, []] = write.value {
            return Seal::of(secret, &first, write.key, value);
        }
        let mut seal = Seal::new(secret, &first, write.key);
        write.value.iter().for_each(|piece| seal.update(piece));
        seal.finish()
    }

    /// A slot for a new key; when both its buckets are full the item unused for longest goes.
    fn vacate(&mut self, probe: &Probe) -> usize {
        if let Some(offset) = index::vacancy(&self.memory, &self.geometry, probe) {
            return offset;
        }
        let age = |e: &Entry| self.ageing.age(self.arena.stamp_of(e.slot.place));
        let oldest = index::entries(&self.memory, &self.geometry, probe).max_by_key(age);
        let entry = oldest.expect("a bucket without a vacancy has entries");
        self.counts.evicted_from_bucket += 1;
        self.remove(&entry);
        entry.offset
    }

    /// Evicts the item at a place.
    pub(super) fn evict(&mut self, place: u64) {
        let probe = self.geometry.probe_hash(index::header(&self.memory, place).hash.get());
        let probe = Probe { partition: self.partition, ..probe };
        let entry = index::leading_to(&self.memory, &self.geometry, &probe, place);
        self.counts.evicted += 1;
        self.remove(&entry.expect("a live item has a slot"));
    }

    /// The end of an item that none follows: dead, out of its slot, retired.
    pub(super) fn remove(&mut self, entry: &Entry) {
        self.mark_dead(entry);
        self.memory.publish_word(entry.offset, 0);
        self.retire(entry.slot.place);
    }

    fn mark_dead(&mut self, entry: &Entry) {
        let start = entry.slot.place as usize * UNIT;
        let h = index::header(&self.memory, entry.slot.place);
        self.counts.items -= 1;
        self.counts.bytes -= u64::from(h.value_len.get()) + u64::from(h.key_len.get());
        self.memory.publish_word(start, DEAD);
    }

    fn retire(&mut self, place: u64) {
        let epoch = self.epochs.death();
        self.arena.retire(place, epoch);
        #[cfg(test)]
        self.memory.note(|| Store::Epoch(self.epochs.now()));
    }
}
