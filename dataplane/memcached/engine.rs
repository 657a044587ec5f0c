//! What every operation means, once, over anything that keeps items.

use super::number::{DIGITS_MAX, Decimal, parse_u64};
use super::operation::{
    Arithmetic, Bits, Delete, Fetch, Hit, Mode, Number, Operation, Outcome, Step, Steps, Store,
};

/// An item as its keeper has it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Item<'a> {
    /// The value.
    pub value: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// Cas unique, never 0.
    pub cas: u64,
    /// Unix second at which it is gone, 0 for never.
    pub expires: u32,
    /// Unix second of the last read or write.
    pub accessed: u32,
    /// Marks.
    pub bits: Bits,
}

/// What an item is to become, beside its value.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Change {
    /// Unix second at which it is gone, 0 for never.
    pub expires: u32,
    /// Marks.
    pub bits: Bits,
    /// Give it a new cas unique.
    pub new_cas: bool,
    /// It was read.
    pub bump: bool,
}

/// A value to write: bytes, and spaces behind them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Content<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// How many spaces.
    pub spaces: usize,
}

/// There is no room for an item, or it is larger than an item may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Keeps items. `now` is always a Unix time in seconds.
///
/// Every change of a value gives the item a new cas unique, larger than all before.
pub trait Items {
    /// The item with this key, if it is alive at `now`: neither past its expiry nor flushed.
    fn find(&self, key: &[u8], now: u32) -> Option<Item<'_>>;

    /// Puts an item in place of any other with this key, and gives its cas unique. `item` has flags, expiry and marks; its
    /// value and cas are not looked at. When there is no room any other item with this key stays.
    fn insert(&mut self, key: &[u8], item: &Item<'_>, content: Content<'_>, now: u32) -> Result<u64, Full>;

    /// Writes `bytes` behind the value of the item (in front of it if `front`), keeps its flags and expiry, clears its
    /// marks, and gives its new cas unique. Only called for an item that was just found.
    fn extend(&mut self, key: &[u8], bytes: &[u8], front: bool, now: u32) -> Result<u64, Full>;

    /// Changes what is not the value, and gives the item as it is then, gone or not. Only called for an item that was just
    /// found or inserted; `None` if it was lost nevertheless.
    fn amend(&mut self, key: &[u8], change: &Change, now: u32) -> Option<Item<'_>>;

    /// Removes the item.
    fn remove(&mut self, key: &[u8]);

    /// Makes all items go that are there at `at`, which may be in the future. A later call replaces one still to come.
    fn flush(&mut self, at: u32, now: u32);
}

/// Does one operation.
pub fn execute<'i, I: Items>(
    items: &'i mut I,
    key: &[u8],
    operation: &Operation<'_>,
    now: u32,
) -> Outcome<'i> {
    match operation {
        Operation::Fetch(fetch) => self::fetch(items, key, fetch, now),
        Operation::Store(store) => self::store(items, key, store, now),
        Operation::Delete(delete) => self::delete(items, key, delete, now),
        Operation::Arithmetic(arithmetic) => self::arithmetic(items, key, arithmetic, now),
    }
}

/// A value too large for any item came for `key`: what was there is no longer what the client believes, so it goes.
pub fn drop_stale<I: Items>(items: &mut I, key: &[u8]) {
    items.remove(key);
}

/// What an item was before an operation, without its value.
#[derive(Clone, Copy)]
struct Before {
    size: usize,
    flags: u32,
    cas: u64,
    expires: u32,
    accessed: u32,
    bits: Bits,
}

impl Before {
    fn of(item: &Item<'_>) -> Self {
        let Item { value, flags, cas, expires, accessed, bits } = *item;
        Self { size: value.len(), flags, cas, expires, accessed, bits }
    }
}

fn find<I: Items>(items: &I, key: &[u8], now: u32) -> Option<Before> {
    items.find(key, now).map(|item| Before::of(&item))
}

// ---- fetch ------------------------------------------------------------------------------------------------------

fn fetch<'i, I: Items>(items: &'i mut I, key: &[u8], fetch: &Fetch, now: u32) -> Outcome<'i> {
    let (before, created) = match find(items, key, now) {
        Some(before) => (before, false),
        None if fetch.vivify.is_some() => match vivify(items, key, fetch.binary, b"", now) {
            Ok(made) => (made, true),
            Err(Full) => return Outcome::NotFound,
        },
        None => return Outcome::NotFound,
    };
    let mut pass = Pass::new(&before, created);
    pass.run(&fetch.steps, [fetch.touch, fetch.vivify, fetch.recache], now);
    let won = pass.won || fetch.claim && before.bits.stale && !before.bits.claimed;

    let bits = Bits {
        claimed: before.bits.claimed || won,
        fetched: before.bits.fetched || fetch.bump,
        ..before.bits
    };
    let change = Change { expires: pass.expires, bits, new_cas: false, bump: fetch.bump };
    let changed = fetch.bump || bits != before.bits || pass.expires != before.expires;
    let found = if changed { items.amend(key, &change, now) } else { items.find(key, now) };
    let Some(item) = found else { return Outcome::NotFound };
    Outcome::Hit(Hit {
        value: if fetch.value { item.value } else { b"" },
        size: u32::try_from(before.size).unwrap_or(u32::MAX),
        flags: before.flags,
        cas: before.cas,
        ttl_s: pass.ttl_s,
        idle_s: now.saturating_sub(before.accessed),
        bits: before.bits,
        won,
    })
}

/// Makes an item without expiry because there was none.
fn vivify<I: Items>(items: &mut I, key: &[u8], binary: bool, value: &[u8], now: u32) -> Result<Before, Full> {
    let bits = Bits { binary, ..Bits::default() };
    let item = Item { bits, ..Item::default() };
    let cas = items.insert(key, &item, Content { bytes: value, spaces: 0 }, now)?;
    Ok(Before { size: value.len(), flags: 0, cas, expires: 0, accessed: now, bits })
}

/// The steps of a meta command, one after the other.
struct Pass {
    created: bool,
    claimed: bool,
    expires: u32,
    ttl_s: Option<u32>,
    won: bool,
}

impl Pass {
    fn new(before: &Before, created: bool) -> Self {
        Self { created, claimed: before.bits.claimed, expires: before.expires, ttl_s: None, won: false }
    }

    /// `times` are those of touch, vivify and recache.
    fn run(&mut self, steps: &Steps, times: [Option<super::Exptime>; 3], now: u32) {
        let [touch, vivify, recache] = times.map(|time| time.map_or(0, |time| time.deadline(now)));
        for step in steps.0 {
            match step {
                Step::None => break,
                Step::Touch => self.expires = touch,
                Step::Vivify if self.created => (self.expires, self.won) = (vivify, true),
                Step::Vivify => {}
                Step::Recache => {
                    let soon = self.expires != 0 && self.expires < recache;
                    self.won |= soon && !self.claimed && !self.created;
                }
                Step::Ttl => self.ttl_s = (self.expires != 0).then(|| self.expires.saturating_sub(now)),
            }
        }
    }
}

// ---- store ------------------------------------------------------------------------------------------------------

fn store<'i, I: Items>(items: &mut I, key: &[u8], store: &Store<'_>, now: u32) -> Outcome<'i> {
    let bits = Bits { binary: store.binary, ..Bits::default() };
    let fresh = Item { flags: store.flags, expires: store.exptime.deadline(now), bits, ..Item::default() };
    let Some(before) = find(items, key, now) else {
        return match store.mode {
            Mode::Set | Mode::Add => put(items, key, &fresh, store.value, now),
            Mode::Cas => Outcome::NotFound,
            Mode::Replace | Mode::Append | Mode::Prepend => Outcome::NotStored,
        };
    };
    match store.mode {
        Mode::Set | Mode::Replace => put(items, key, &fresh, store.value, now),
        Mode::Add => Outcome::NotStored,
        Mode::Append | Mode::Prepend if store.cas != 0 && store.cas != before.cas => Outcome::Exists,
        Mode::Append | Mode::Prepend => {
            let front = store.mode == Mode::Prepend;
            items
                .extend(key, store.value, front, now)
                .map_or(Outcome::NotStored, |cas| Outcome::Stored { cas })
        }
        Mode::Cas if store.cas != 0 && store.cas == before.cas => put(items, key, &fresh, store.value, now),
        Mode::Cas if store.cas != 0 && store.accept_older && store.cas < before.cas => {
            let bits = Bits { stale: true, claimed: before.bits.claimed, ..bits };
            let late = Item { expires: before.expires, bits, ..fresh };
            put(items, key, &late, store.value, now)
        }
        Mode::Cas => Outcome::Exists,
    }
}

fn put<'i, I: Items>(items: &mut I, key: &[u8], item: &Item<'_>, value: &[u8], now: u32) -> Outcome<'i> {
    match items.insert(key, item, Content { bytes: value, spaces: 0 }, now) {
        Ok(cas) => Outcome::Stored { cas },
        Err(Full) => Outcome::OutOfMemory,
    }
}

// ---- delete -----------------------------------------------------------------------------------------------------

fn delete<'i, I: Items>(items: &mut I, key: &[u8], delete: &Delete, now: u32) -> Outcome<'i> {
    let Some(before) = find(items, key, now) else { return Outcome::NotFound };
    if delete.cas.is_some_and(|cas| cas != before.cas) {
        return Outcome::Exists;
    }
    if delete.stale {
        let expires = delete.touch.map_or(before.expires, |time| time.deadline(now));
        let bits = Bits { stale: true, claimed: false, ..before.bits };
        items.amend(key, &Change { expires, bits, new_cas: true, bump: false }, now);
    } else {
        items.remove(key);
    }
    Outcome::Deleted
}

// ---- arithmetic -------------------------------------------------------------------------------------------------

fn arithmetic<'i, I: Items>(items: &mut I, key: &[u8], wish: &Arithmetic, now: u32) -> Outcome<'i> {
    let Some(item) = items.find(key, now) else {
        return initial(items, key, wish, now);
    };
    let before = Before::of(&item);
    if item.value.is_empty() {
        return Outcome::NonNumeric;
    }
    if wish.cas != 0 && wish.cas != item.cas {
        return Outcome::Exists;
    }
    let Some(old) = parse_u64(item.value) else { return Outcome::NonNumeric };
    let value = if wish.decrement { old.saturating_sub(wish.delta) } else { old.wrapping_add(wish.delta) };
    match write_number(items, key, &before, value, now) {
        Ok(cas) => finish(items, key, wish, Before { cas, ..before }, value, false, now),
        Err(Full) => Outcome::OutOfMemory,
    }
}

/// Puts a number in place of another. It keeps the other's length, with spaces behind it, and with it the item's marks; a
/// longer one makes a new item.
fn write_number<I: Items>(
    items: &mut I,
    key: &[u8],
    before: &Before,
    value: u64,
    now: u32,
) -> Result<u64, Full> {
    let decimal = Decimal::new(value);
    let digits = decimal.bytes();
    let in_place = digits.len() <= before.size;
    let item = Item {
        flags: before.flags,
        expires: before.expires,
        bits: if in_place { before.bits } else { Bits::default() },
        ..Item::default()
    };
    let spaces = before.size.saturating_sub(digits.len());
    debug_assert!(digits.len() <= DIGITS_MAX);
    items.insert(key, &item, Content { bytes: digits, spaces }, now)
}

/// There is no item to count in.
fn initial<'i, I: Items>(items: &mut I, key: &[u8], wish: &Arithmetic, now: u32) -> Outcome<'i> {
    if wish.vivify.is_none() {
        return Outcome::NotFound;
    }
    match vivify(items, key, wish.binary, Decimal::new(wish.initial).bytes(), now) {
        Ok(made) => finish(items, key, wish, made, wish.initial, true, now),
        Err(Full) => Outcome::OutOfMemory,
    }
}

/// Runs the steps when the number is written.
fn finish<'i, I: Items>(
    items: &mut I,
    key: &[u8],
    wish: &Arithmetic,
    now_is: Before,
    value: u64,
    created: bool,
    now: u32,
) -> Outcome<'i> {
    let mut pass = Pass::new(&now_is, created);
    pass.run(&wish.steps, [wish.touch, wish.vivify, None], now);
    if pass.expires != now_is.expires {
        let longer = Decimal::new(value).bytes().len() > now_is.size;
        let bits = if longer { Bits::default() } else { now_is.bits };
        items.amend(key, &Change { expires: pass.expires, bits, new_cas: false, bump: false }, now);
    }
    Outcome::Number(Number { value, cas: now_is.cas, ttl_s: pass.ttl_s, created })
}
