//! Items in a hash map: the store of tests, and the yardstick for others.

use std::collections::HashMap;

use super::engine::{Change, Content, Full, Item, Items};
use super::expiry::is_past;
use super::operation::Bits;

struct Entry {
    value: Vec<u8>,
    flags: u32,
    cas: u64,
    expires: u32,
    accessed: u32,
    /// When it was made; a flush takes what is older.
    born: u32,
    bits: Bits,
}

/// Items of unbounded number and bounded size.
pub struct ItemMap {
    entries: HashMap<Vec<u8>, Entry>,
    last_cas: u64,
    flush_at: Option<u32>,
    value_bytes_max: usize,
}

impl ItemMap {
    /// No items; values may have up to `value_bytes_max` bytes.
    #[must_use]
    pub fn new(value_bytes_max: usize) -> Self {
        Self { entries: HashMap::new(), last_cas: 0, flush_at: None, value_bytes_max }
    }

    /// How many items there are, those that are past their time among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn next_cas(&mut self) -> u64 {
        self.last_cas += 1;
        self.last_cas
    }
}

impl Entry {
    fn item(&self) -> Item<'_> {
        let Self { ref value, flags, cas, expires, accessed, bits, .. } = *self;
        Item { value, flags, cas, expires, accessed, bits }
    }
}

impl Items for ItemMap {
    fn find(&self, key: &[u8], now: u32) -> Option<Item<'_>> {
        let entry = self.entries.get(key)?;
        let is_flushed = self.flush_at.is_some_and(|at| at <= now && entry.born < at);
        (!is_flushed && !is_past(entry.expires, now)).then(|| entry.item())
    }

    fn insert(&mut self, key: &[u8], item: &Item<'_>, content: Content<'_>, now: u32) -> Result<u64, Full> {
        if content.bytes.len() + content.spaces > self.value_bytes_max {
            return Err(Full);
        }
        let mut value = content.bytes.to_vec();
        value.resize(content.bytes.len() + content.spaces, b' ');
        let cas = self.next_cas();
        let Item { flags, expires, bits, .. } = *item;
        let entry = Entry { value, flags, cas, expires, accessed: now, born: now, bits };
        self.entries.insert(key.to_vec(), entry);
        Ok(cas)
    }

    fn extend(&mut self, key: &[u8], bytes: &[u8], front: bool, now: u32) -> Result<u64, Full> {
        let cas = self.next_cas();
        let limit = self.value_bytes_max;
        let entry = self.entries.get_mut(key).ok_or(Full)?;
        if entry.value.len() + bytes.len() > limit {
            return Err(Full);
        }
        let at = if front { 0 } else { entry.value.len() };
        entry.value.splice(at..at, bytes.iter().copied());
        (entry.cas, entry.accessed, entry.born, entry.bits) = (cas, now, now, Bits::default());
        Ok(cas)
    }

    fn amend(&mut self, key: &[u8], change: &Change, now: u32) -> Option<Item<'_>> {
        let cas = change.new_cas.then(|| self.next_cas());
        let entry = self.entries.get_mut(key)?;
        entry.cas = cas.unwrap_or(entry.cas);
        entry.expires = change.expires;
        entry.bits = change.bits;
        if change.bump {
            entry.accessed = now;
        }
        Some(entry.item())
    }

    fn remove(&mut self, key: &[u8]) {
        self.entries.remove(key);
    }

    fn flush(&mut self, at: u32, now: u32) {
        if at <= now {
            self.entries.clear();
            self.flush_at = None;
        } else {
            self.flush_at = Some(at);
        }
    }
}
