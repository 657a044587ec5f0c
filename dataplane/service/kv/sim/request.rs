//! What clients of a race ask for, and what there is to be made of an answer to it.

use super::history::Kind;
use rdma_engine::sim::Rng;
use std::collections::{HashMap, HashSet};

/// A value that lives for a second is seen no longer after it was stored. The node counts in whole seconds.
const LIFE_NS: u64 = 2_100_000_000;
/// One request in so many is a `flush_all`.
const FLUSHES: u64 = 3000;

/// Whether values go by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// Those of every fourth key live for a second and are not touched, some are stored with a time that has passed, and now
    /// and then everybody's are flushed.
    Short,
    /// They stay until something takes their place.
    Long,
    /// So they do, nobody deletes any, and there has to be room for all of them: whatever was there once is not missing later.
    Kept,
}

impl Life {
    /// True if the key's values live for a second.
    pub(super) fn is_short(self, key: u32) -> bool {
        self == Life::Short && key % 4 == 3
    }
}

/// A request, as far as the meaning of its answer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// `get` or `gat`: a value or none.
    Get,
    /// `gets`: with the value's cas unique.
    Gets,
    /// `set`: writes a version.
    Set,
    /// `add`: writes a version, or not.
    Add,
    /// `replace`: writes a version, or not.
    Replace,
    /// `cas` with this unique: writes a version, or not.
    Cas(u64),
    /// `set` with a time that has passed: leaves nothing.
    SetPast,
    /// `delete`.
    Delete,
    /// `touch`: changes no value.
    Touch,
    /// `flush_all`: leaves nothing of any key.
    Flush,
}

impl What {
    /// True if it tells of a value.
    pub(super) fn reads(self) -> bool {
        matches!(self, What::Get | What::Gets)
    }

    /// Chooses what is asked of a key; at a key with `unique` known `cas` is among it.
    pub(super) fn choose(rng: &mut Rng, life: Life, key: u32, unique: Option<u64>) -> Self {
        if life == Life::Short && rng.below(FLUSHES) == 0 {
            return What::Flush;
        }
        if life == Life::Kept {
            return Self::choose_kept(rng, unique);
        }
        match rng.below(100) {
            0..66 => What::Get,
            66..70 => What::Gets,
            70..82 => What::Set,
            82..85 => What::Add,
            85..87 => What::Replace,
            87..91 => unique.map_or(What::Set, What::Cas),
            91 if life == Life::Short => What::SetPast,
            92..95 if !life.is_short(key) => What::Touch,
            _ => What::Delete,
        }
    }

    /// As [`choose`](Self::choose), where nothing goes: more of what depends on what is there.
    fn choose_kept(rng: &mut Rng, unique: Option<u64>) -> Self {
        match rng.below(100) {
            0..50 => What::Get,
            50..64 => What::Gets,
            64..70 => What::Set,
            70..80 => What::Add,
            80..85 => What::Replace,
            85..97 => unique.map_or(What::Replace, What::Cas),
            _ => What::Touch,
        }
    }

    /// True if it writes a version.
    pub(super) fn writes(self) -> bool {
        matches!(self, What::Set | What::Add | What::Replace | What::Cas(_) | What::SetPast)
    }

    /// Its text; `value` is what is written.
    pub(super) fn text(self, rng: &mut Rng, life: Life, key: u32, value: &[u8]) -> Vec<u8> {
        let (len, is_short_lived) = (value.len(), life.is_short(key));
        let life = u8::from(is_short_lived);
        let head = match self {
            What::Get if !is_short_lived && rng.below(20) == 0 => format!("gat 0 key{key}"),
            What::Get => format!("get key{key}"),
            What::Gets => format!("gets key{key}"),
            What::Set => format!("set key{key} 0 {life} {len}"),
            What::SetPast => format!("set key{key} 0 -1 {len}"),
            What::Add => format!("add key{key} 0 {life} {len}"),
            What::Replace => format!("replace key{key} 0 {life} {len}"),
            What::Cas(unique) => format!("cas key{key} 0 {life} {len} {unique}"),
            What::Delete => format!("delete key{key}"),
            What::Touch => format!("touch key{key} 0"),
            What::Flush => "flush_all".to_owned(),
        };
        let data: &[&[u8]] = if self.writes() { &[value, b"\r\n"] } else { &[] };
        [head.as_bytes(), b"\r\n", &data.concat()].concat()
    }

    /// Whether something was changed, by the answer; that has to be one that memcached may give.
    pub(super) fn is_done(self, reply: &[u8]) -> bool {
        let (done, not): (&[u8], &[&[u8]]) = match self {
            What::Set | What::SetPast => (b"STORED\r\n", &[]),
            What::Add | What::Replace => (b"STORED\r\n", &[b"NOT_STORED\r\n"]),
            What::Cas(_) => (b"STORED\r\n", &[b"EXISTS\r\n", b"NOT_FOUND\r\n"]),
            // That it was not there is what a deletion leaves, too.
            What::Delete if reply == b"NOT_FOUND\r\n" => return true,
            What::Delete => (b"DELETED\r\n", &[]),
            What::Touch => (b"TOUCHED\r\n", &[b"NOT_FOUND\r\n"]),
            What::Flush => (b"OK\r\n", &[]),
            What::Get | What::Gets => return false,
        };
        assert!(reply == done || not.contains(&reply), "{self:?}: {}", String::from_utf8_lossy(reply));
        reply == done
    }
}

/// What answers have told beside values.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// By key: a cas unique that was seen.
    uniques: HashMap<u32, u64>,
    /// By key and unique: the version that it was seen with.
    versions: HashMap<(u32, u64), u64>,
    /// Keys and uniques whose value was replaced by a `cas`.
    replaced: HashSet<(u32, u64)>,
    /// By key and version: until when it may be seen, on virtual time.
    seen_until: HashMap<(u32, u64), u64>,
    /// Uniques tell values apart as long as this is not so.
    repeats: bool,
}

impl Known {
    /// A unique of the key that was seen.
    pub(super) fn unique(&self, key: u32) -> Option<u64> {
        self.uniques.get(&key).copied()
    }

    /// A version was told, with its unique if that was asked for, to somebody who asked at `asked_ns`.
    pub(super) fn told(&mut self, (key, version): (u32, u64), unique: Option<u64>, asked_ns: u64) {
        if let Some(unique) = unique {
            self.uniques.insert(key, unique);
            self.versions.insert((key, unique), version);
        }
        let until = self.seen_until.get(&(key, version)).copied().unwrap_or(u64::MAX);
        assert!(asked_ns <= until, "version {version} of key {key} is seen {} ns too late", asked_ns - until);
    }

    /// What a mutation that would write this version of the key has found there, by its answer, as far as it can be told.
    pub(super) fn found(
        &self,
        (key, version): (u32, u64),
        what: What,
        life: Life,
        reply: &[u8],
    ) -> Option<Kind> {
        let is_done = matches!(reply, b"STORED\r\n" | b"TOUCHED\r\n" | b"DELETED\r\n");
        let found = match what {
            What::Add if is_done => Kind::Get(None),
            What::Add => Kind::Other(0),
            What::Touch | What::Delete if is_done => Kind::Other(0),
            What::Replace if is_done => Kind::Other(version),
            What::Cas(unique) if reply != b"NOT_FOUND\r\n" => {
                let seen = self.versions.get(&(key, unique)).filter(|_| !self.repeats)?;
                if is_done { Kind::Get(Some(*seen)) } else { Kind::Other(*seen) }
            }
            What::Replace | What::Cas(_) | What::Touch => Kind::Get(None),
            // The others do not tell, or do nothing but leave nothing.
            What::Get | What::Gets | What::Set | What::SetPast | What::Delete | What::Flush => return None,
        };
        // What is past its time for the owner may be there for a gateway.
        (found != Kind::Get(None) || !life.is_short(key)).then_some(found)
    }

    /// A version was written, and that was told at `now_ns`.
    pub(super) fn written(&mut self, (key, version): (u32, u64), what: What, life: Life, now_ns: u64) {
        if life.is_short(key) {
            self.seen_until.insert((key, version), now_ns + LIFE_NS);
        }
        if let What::Cas(unique) = what {
            let is_first = self.replaced.insert((key, unique));
            assert!(is_first || self.repeats, "what key {key} had was replaced twice: {unique}");
        }
    }

    /// Keys get other nodes, or nodes begin anew: a unique may be that of two values then.
    pub(super) fn uniques_repeat(&mut self) {
        self.repeats = true;
    }
}
