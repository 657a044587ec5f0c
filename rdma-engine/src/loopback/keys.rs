//! Remote keys: which memory each names, for whom.

use crate::mem::{Access, Arena, Window};
use crate::types::Rkey;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A registered region as its responder sees it.
#[derive(Clone, Debug)]
struct Entry {
    rkey: Rkey,
    domain: u32,
    access: Access,
    window: Window,
    /// Cleared by SEND_INV and by the end of the registration.
    valid: Arc<AtomicBool>,
    _arena: Arena,
}

type Table = Vec<Option<Entry>>;

/// All keys of a hub. Workers look into a copy that they renew when the version has changed.
#[derive(Debug)]
pub(super) struct Keys {
    version: AtomicU64,
    table: Mutex<Arc<Table>>,
    /// Makes the low 8 bits of keys.
    hash: RandomState,
}

/// Ends the registration when dropped.
#[derive(Debug)]
pub(super) struct Registration {
    keys: Arc<Keys>,
    rkey: Rkey,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.keys.change(|table| {
            let slot = &mut table[(self.rkey.0 >> 8) as usize];
            if let Some(entry) = slot.take() {
                entry.valid.store(false, Ordering::Release);
            }
        });
    }
}

impl Keys {
    pub(super) fn new() -> Self {
        Keys { version: AtomicU64::new(1), table: Mutex::default(), hash: RandomState::new() }
    }

    /// Replaces the table by a changed copy.
    fn change<T>(&self, edit: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let mut copy = Table::clone(&table);
        let result = edit(&mut copy);
        *table = Arc::new(copy);
        self.version.fetch_add(1, Ordering::Release);
        result
    }

    /// Registers an arena; `None` when all keys are taken.
    pub(super) fn add(self: &Arc<Self>, arena: &Arena, access: Access, domain: u32) -> Option<Registration> {
        let salt = self.hash.hash_one(self.version.load(Ordering::Relaxed)) as u32 & 0xFF;
        let rkey = self.change(|table| {
            let free = table.iter().position(Option::is_none).unwrap_or(table.len());
            let rkey = Rkey(u32::try_from(free).ok().filter(|i| *i < 1 << 24)? << 8 | salt);
            let valid = Arc::new(AtomicBool::new(true));
            let window = arena.window();
            let entry = Entry { rkey, domain, access, window, valid, _arena: arena.clone() };
            table.resize_with(table.len().max(free + 1), || None);
            table[free] = Some(entry);
            Some(rkey)
        })?;
        Some(Registration { keys: Arc::clone(self), rkey })
    }
}

impl Registration {
    pub(super) fn rkey(&self) -> Rkey {
        self.rkey
    }
}

/// A worker's copy of the table.
#[derive(Debug)]
pub(super) struct KeyCache {
    keys: Arc<Keys>,
    version: u64,
    table: Arc<Table>,
}

impl KeyCache {
    pub(super) fn new(keys: Arc<Keys>) -> Self {
        KeyCache { keys, version: 0, table: Arc::default() }
    }

    /// Renews the copy if a key came or went; one load otherwise.
    #[inline]
    pub(super) fn renew(&mut self) {
        let version = self.keys.version.load(Ordering::Acquire);
        if version != self.version {
            self.version = version;
            self.table = Arc::clone(&self.keys.table.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    #[inline]
    fn entry(&self, rkey: Rkey, domain: u32) -> Option<&Entry> {
        let entry = self.table.get((rkey.0 >> 8) as usize)?.as_ref()?;
        let usable = entry.rkey == rkey && entry.domain == domain && entry.valid.load(Ordering::Acquire);
        usable.then_some(entry)
    }

    /// The `len` bytes at `addr`, if this key gives this right on them in this domain.
    #[inline]
    pub(super) fn window(
        &self,
        rkey: Rkey,
        domain: u32,
        right: Access,
        addr: u64,
        len: usize,
    ) -> Option<Window> {
        self.entry(rkey, domain).filter(|e| e.access.allows(right))?.window.at(addr, len)
    }

    /// Takes a key away from all peers; false if there is no such key here.
    pub(super) fn invalidate(&self, rkey: Rkey, domain: u32) -> bool {
        self.entry(rkey, domain).is_some_and(|e| e.valid.swap(false, Ordering::AcqRel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Backing;

    #[test]
    fn a_key_names_its_range_for_its_domain_until_it_is_dropped() {
        let keys = Arc::new(Keys::new());
        let mut cache = KeyCache::new(Arc::clone(&keys));
        let arena = Arena::new(64, Backing::Pages).unwrap();
        let addr = arena.window().addr();
        let reg = keys.add(&arena, Access::REMOTE_READ, 1).unwrap();
        cache.renew();
        let may = |cache: &KeyCache, rkey: Rkey, domain, right, addr, len| {
            cache.window(rkey, domain, right, addr, len).is_some()
        };
        let rkey = reg.rkey();
        assert!(may(&cache, rkey, 1, Access::REMOTE_READ, addr, 64));
        assert!(!may(&cache, rkey, 1, Access::REMOTE_READ, addr, 65));
        assert!(!may(&cache, rkey, 1, Access::REMOTE_WRITE, addr, 1));
        assert!(!may(&cache, rkey, 2, Access::REMOTE_READ, addr, 1));
        assert!(!may(&cache, Rkey(rkey.0 ^ 1), 1, Access::REMOTE_READ, addr, 1));
        assert!(!may(&cache, Rkey(rkey.0 + 256), 1, Access::REMOTE_READ, addr, 1));
        drop(reg);
        assert!(!may(&cache, rkey, 1, Access::REMOTE_READ, addr, 1), "also through an old copy");
        cache.renew();
        assert!(!cache.invalidate(rkey, 1));
    }
}
