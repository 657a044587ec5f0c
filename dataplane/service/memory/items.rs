//! The store as what the protocol's operations work on: one key at a time.

use crate::memcached::engine::{Change, Content, Full, Item as Found, Items, drop_stale, execute};
use crate::memcached::operation::{Bits, Mode, Operation};
use crate::memcached::reply::Output;
use crate::memcached::rpc;
use crate::store::geometry::Probe;
use crate::store::layout::{Life, Location, NEVER};
use crate::store::{Item, Refused, Write, Writer};

/// Marks as bits of an item's life word.
pub fn marks(bits: Bits) -> u8 {
    let Bits { stale, claimed, fetched, binary } = bits;
    [stale, claimed, fetched, binary].iter().rev().fold(0, |marks, bit| marks << 1 | u8::from(*bit))
}

/// Bits of an item's life word as marks.
pub fn bits(marks: u8) -> Bits {
    let bit = |n: u8| marks >> n & 1 != 0;
    Bits { stale: bit(0), claimed: bit(1), fetched: bit(2), binary: bit(3) }
}

/// The Unix second at which an item is gone, as the protocol counts: 0 for never.
pub fn expires_s(life: Life) -> u32 {
    if life.expires_ms == NEVER {
        return 0;
    }
    u32::try_from(life.expires_ms / 1000).unwrap_or(u32::MAX).max(1)
}

/// The life of an item that is gone at this Unix second, 0 for never.
fn life(expires_s: u32, of: Bits) -> Life {
    let expires_ms = if expires_s == 0 { NEVER } else { u64::from(expires_s) * 1000 };
    Life { expires_ms, marks: marks(of) }
}

/// Seconds since 1970 of a time in milliseconds since then.
pub fn seconds(unix_ms: u64) -> u32 {
    u32::try_from(unix_ms / 1000).unwrap_or(u32::MAX)
}

/// The items of a partition during one operation.
#[derive(Debug)]
pub struct NodeItems<'w> {
    writer: &'w mut Writer,
    /// The value of the key's item, as far as it was asked for, and whatever else has to be put together.
    scratch: &'w mut [u8],
    /// Milliseconds since 1970.
    unix_ms: u64,
    /// Where the key may be.
    probe: Probe,
    current: Option<Item>,
    busy: bool,
}

impl<'w> NodeItems<'w> {
    /// `scratch` has room for the largest value.
    pub fn new(writer: &'w mut Writer, scratch: &'w mut [u8], unix_ms: u64) -> Self {
        NodeItems { writer, scratch, unix_ms, probe: Probe::NOWHERE, current: None, busy: false }
    }

    /// Carries out an operation and puts its outcome, as in [`rpc`].
    pub fn carry_out(&mut self, key: &[u8], operation: &Operation<'_>, out: &mut impl Output) {
        self.load(key, wants_value(operation));
        let now = seconds(self.unix_ms);
        let outcome = execute(self, key, operation, now);
        rpc::put_answer(out, &outcome);
    }

    /// A value came that no item has room for: the key's item goes.
    pub fn drop_stale(&mut self, key: &[u8]) {
        drop_stale(self, key);
    }

    /// Where the key's item is after the operation.
    pub fn location(&self) -> Option<Location> {
        self.current.map(|item| item.location)
    }

    /// True if the operation was not carried out because all free places are still looked at: it can be tried again.
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    fn load(&mut self, key: &[u8], value: bool) {
        self.probe = self.writer.probe(key);
        self.current = self.writer.find_at(&self.probe, key, self.unix_ms);
        if let Some(item) = self.current.filter(|_| value) {
            self.writer.read(&item, 0, &mut self.scratch[..item.value_len]);
        }
    }

    fn put(
        writer: &mut Writer,
        probe: &Probe,
        current: &mut Option<Item>,
        busy: &mut bool,
        write: &Write<'_>,
        unix_ms: u64,
    ) -> Result<u64, Full> {
        match writer.set_at(probe, write, unix_ms) {
            Ok(item) => {
                *current = Some(item);
                Ok(item.cas)
            }
            Err(why) => {
                *busy |= why == Refused::Busy;
                // An eviction may have taken what was there.
                *current = current.and(writer.find_at(probe, write.key, unix_ms));
                Err(Full)
            }
        }
    }
}

/// True if the operation looks at the bytes of the item that is there.
fn wants_value(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Fetch(fetch) => fetch.value,
        Operation::Store(store) => matches!(store.mode, Mode::Append | Mode::Prepend),
        Operation::Delete(delete) => delete.stale,
        Operation::Arithmetic(_) => true,
    }
}

impl Items for NodeItems<'_> {
    fn find(&self, _: &[u8], _: u32) -> Option<Found<'_>> {
        let item = self.current?;
        Some(Found {
            // Only its length matters where the bytes were not asked for.
            value: &self.scratch[..item.value_len],
            flags: item.flags,
            cas: item.cas,
            expires: expires_s(item.life),
            accessed: item.written_s,
            bits: bits(item.life.marks),
        })
    }

    fn insert(&mut self, key: &[u8], item: &Found<'_>, content: Content<'_>, _: u32) -> Result<u64, Full> {
        if content.bytes.len() + content.spaces > self.scratch.len() {
            return Err(Full);
        }
        let life = life(item.expires, item.bits);
        let spaces = &mut self.scratch[..content.spaces];
        spaces.fill(b' ');
        let write = Write {
            key,
            value: &[content.bytes, spaces],
            flags: item.flags,
            life,
            cas: None,
            written_s: seconds(self.unix_ms),
        };
        Self::put(self.writer, &self.probe, &mut self.current, &mut self.busy, &write, self.unix_ms)
    }

    fn extend(&mut self, key: &[u8], bytes: &[u8], front: bool, _: u32) -> Result<u64, Full> {
        let item = self.current.ok_or(Full)?;
        if item.value_len + bytes.len() > self.scratch.len() {
            return Err(Full);
        }
        let old = &self.scratch[..item.value_len];
        let value = if front { [bytes, old] } else { [old, bytes] };
        let life = Life { marks: 0, ..item.life };
        let write = Write {
            key,
            value: &value,
            flags: item.flags,
            life,
            cas: None,
            written_s: seconds(self.unix_ms),
        };
        Self::put(self.writer, &self.probe, &mut self.current, &mut self.busy, &write, self.unix_ms)
    }

    fn amend(&mut self, key: &[u8], change: &Change, now: u32) -> Option<Found<'_>> {
        let item = self.current?;
        let life = life(change.expires, change.bits);
        if change.new_cas {
            let len = item.value_len;
            let write = Write {
                key,
                value: &[&self.scratch[..len]],
                flags: item.flags,
                life,
                cas: None,
                written_s: item.written_s,
            };
            Self::put(self.writer, &self.probe, &mut self.current, &mut self.busy, &write, self.unix_ms)
                .ok()?;
        } else if life != item.life {
            // By the clock of its last moment: what was just found is there, even if it is past its time now.
            self.current = self.writer.touch(key, life, self.unix_ms);
        }
        self.find(key, now)
    }

    fn remove(&mut self, key: &[u8]) {
        self.writer.delete(key, self.unix_ms);
        self.current = None;
    }

    fn flush(&mut self, _: u32, _: u32) {
        unreachable!("a flush is a sweep of the node, not an operation on a key");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memcached::expiry::Exptime;
    use crate::memcached::operation::{Arithmetic, Delete, Fetch, Outcome, Store};
    use crate::memcached::{ItemMap, rpc};
    use crate::store::geometry::Geometry;
    use crate::store::seal::Secrets;
    use rdma_engine::mem::{Arena, Backing};

    const VALUE: usize = 2000;

    fn writer() -> (Arena, Writer) {
        let geometry = Geometry::new(8 << 20, 1).unwrap();
        let arena = Arena::new(geometry.bytes() as usize, Backing::Pages).unwrap();
        let writer = Writer::new(arena.window(), geometry, 0, Secrets::new([1, 2, 3, 4]), 5, 1).unwrap();
        (arena, writer)
    }

    #[test]
    fn marks_and_times_come_back() {
        for n in 0..16 {
            assert_eq!(marks(bits(n)), n);
        }
        for at in [0, 1, 1_800_000_000, u32::MAX] {
            assert_eq!(expires_s(life(at, Bits::default())), at);
        }
    }

    fn operation<'v>(pick: u64, value: &'v [u8], cas: u64, time: i32) -> Operation<'v> {
        let exptime = Exptime(time);
        let modes = [Mode::Set, Mode::Add, Mode::Replace, Mode::Append, Mode::Prepend, Mode::Cas];
        match pick % 12 {
            0 => Operation::Fetch(Fetch { value: true, ..Fetch::default() }),
            1 => Operation::Fetch(Fetch { value: true, bump: true, claim: true, ..Fetch::default() }),
            2 => Operation::Fetch(Fetch { touch: Some(exptime), ..Fetch::default() }),
            3 => Operation::Fetch(Fetch { value: true, vivify: Some(exptime), ..Fetch::default() }),
            4 => Operation::Delete(Delete::default()),
            5 => Operation::Delete(Delete { stale: true, ..Delete::default() }),
            6 => Operation::Arithmetic(Arithmetic { delta: pick / 12 % 1000, ..Arithmetic::default() }),
            7 => Operation::Arithmetic(Arithmetic {
                decrement: true,
                delta: 3,
                vivify: Some(exptime),
                initial: pick % 77,
                ..Arithmetic::default()
            }),
            _ => {
                let mode = modes[(pick / 12 % 6) as usize];
                let cas = if mode == Mode::Cas { cas } else { 0 };
                Operation::Store(Store { mode, flags: pick as u32, exptime, cas, value, ..Store::default() })
            }
        }
    }

    /// An outcome without what the two keepers count in their own ways.
    fn blank(outcome: Outcome<'_>) -> Outcome<'_> {
        use crate::memcached::operation::{Hit, Number};
        match outcome {
            Outcome::Hit(hit) => Outcome::Hit(Hit { cas: 0, idle_s: 0, ..hit }),
            Outcome::Stored { .. } => Outcome::Stored { cas: 0 },
            Outcome::Number(n) => Outcome::Number(Number { cas: 0, ..n }),
            other => other,
        }
    }

    #[test]
    fn the_store_answers_like_a_map() {
        let (_arena, mut writer) = writer();
        let (mut map, mut scratch) = (ItemMap::new(VALUE), vec![0; VALUE]);
        let mut state = 11u64;
        let mut random = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state >> 20
        };
        let mut hits = 0;
        // Cas uniques of the last item of each key, here and there.
        let mut last = [(0u64, 0u64); 8];
        for step in 0..30_000u64 {
            let unix_ms = 1_700_000_000_000 + step * 150;
            let k = (random() % 8) as usize;
            let key = [b'k', k as u8];
            let digits = format!("{}", random() % 100_000);
            let long = vec![b'v'; (random() % 300) as usize];
            let value: &[u8] = if random().is_multiple_of(2) { digits.as_bytes() } else { &long };
            let time = [0, 0, 0, 2, 30, -1][(random() % 6) as usize];
            let (pick, known) = (random(), !random().is_multiple_of(3));
            let cas = if known { last[k] } else { (1, 1) };
            let mut bytes = Vec::new();
            let mut items = NodeItems::new(&mut writer, &mut scratch, unix_ms);
            items.carry_out(&key, &operation(pick, value, cas.0, time), &mut bytes);
            assert!(!items.is_busy());
            let ours = rpc::answer(&bytes).unwrap();
            let theirs = execute(&mut map, &key, &operation(pick, value, cas.1, time), seconds(unix_ms));
            assert_eq!(blank(ours), blank(theirs), "step {step}: {:?}", operation(pick, value, cas.0, time));
            match (ours, theirs) {
                (Outcome::Hit(a), Outcome::Hit(b)) => {
                    hits += 1;
                    last[k] = (a.cas, b.cas);
                }
                (Outcome::Stored { cas: a }, Outcome::Stored { cas: b }) => last[k] = (a, b),
                _ => {}
            }
        }
        assert!(hits > 3000, "{hits}");
    }

    #[test]
    fn where_the_item_is_comes_with_the_outcome() {
        let (_arena, mut writer) = writer();
        let mut scratch = vec![0; VALUE];
        let mut run = |operation: &Operation<'_>| {
            let mut items = NodeItems::new(&mut writer, &mut scratch, 1_000_000);
            items.carry_out(b"k", operation, &mut Vec::new());
            items.location()
        };
        let set = Operation::Store(Store { value: b"12", ..Store::default() });
        let (first, second) = (run(&set).unwrap(), run(&set).unwrap());
        assert_ne!(first, second);
        assert_eq!(run(&Operation::Fetch(Fetch::default())), Some(second));
        let counted = run(&Operation::Arithmetic(Arithmetic { delta: 1, ..Arithmetic::default() }));
        assert!(counted.is_some() && counted != Some(second));
        assert_eq!(run(&Operation::Delete(Delete::default())), None);
        assert_eq!(run(&Operation::Fetch(Fetch::default())), None);
    }
}
