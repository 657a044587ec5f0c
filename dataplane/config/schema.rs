//! The keys of every section, read off the types themselves.

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::problem::{KeyPath, Segment};
use super::{
    AdaptiveKeys, CallKeys, Config, DrainKeys, EalKeys, FabricKeys, KvKeys, LinkKeys, LoadKeys, MemoryKeys,
    NodeKeys, PortKeys, ReadKeys, RelayKeys, ServiceKeys, SinkKeys, SoftKeys, SourceKeys, StatsKeys,
    VerbsKeys,
};

/// Sections and their keys, in the order of the file. The first entry is the top of the file.
pub fn sections() -> Vec<(&'static str, &'static [&'static str])> {
    vec![
        ("the top of the file", keys_of::<Config>()),
        ("[adaptive]", keys_of::<AdaptiveKeys>()),
        ("[eal]", keys_of::<EalKeys>()),
        ("[[port]]", keys_of::<PortKeys>()),
        ("[[link]]", keys_of::<LinkKeys>()),
        ("[fabric]", keys_of::<FabricKeys>()),
        ("[fabric.verbs]", keys_of::<VerbsKeys>()),
        ("[fabric.soft]", keys_of::<SoftKeys>()),
        ("[[node]]", keys_of::<NodeKeys>()),
        ("[service]", keys_of::<ServiceKeys>()),
        ("[service.relay]", keys_of::<RelayKeys>()),
        ("[service.source]", keys_of::<SourceKeys>()),
        ("[service.sink]", keys_of::<SinkKeys>()),
        ("[service.kv]", keys_of::<KvKeys>()),
        ("[service.kv.read]", keys_of::<ReadKeys>()),
        ("[service.kv.call]", keys_of::<CallKeys>()),
        ("[service.memory]", keys_of::<MemoryKeys>()),
        ("[service.memory.call]", keys_of::<CallKeys>()),
        ("[service.load]", keys_of::<LoadKeys>()),
        ("[stats]", keys_of::<StatsKeys>()),
        ("[drain]", keys_of::<DrainKeys>()),
    ]
}

/// True for the top-level keys that are lists of tables.
pub(crate) fn is_table_array(key: &str) -> bool {
    matches!(key, "port" | "link" | "node")
}

/// The section that `key` belongs to when it is not known where it stands. Sections near `path` come first.
pub(crate) fn section_of(key: &str, path: &KeyPath) -> Option<&'static str> {
    let top = match path.0.first() {
        Some(Segment::Key(top)) if path.0.len() > 1 => top.as_str(),
        _ => "",
    };
    let holds = sections().into_iter().filter(|(_, keys)| keys.contains(&key));
    let mut names: Vec<_> = holds.map(|(section, _)| section).collect();
    names.sort_by_key(|section| !section.trim_matches(['[', ']']).starts_with(top));
    names.first().copied()
}

/// The field names of a struct that derives `Deserialize`.
pub(crate) fn keys_of<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    let mut keys: &'static [&'static str] = &[];
    // The visitor never runs: the deserializer below answers every call with an error.
    drop(T::deserialize(FieldNames(&mut keys)));
    keys
}

struct FieldNames<'k>(&'k mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(serde::de::Error::custom("only field names are read"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
