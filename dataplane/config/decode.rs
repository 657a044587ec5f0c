//! TOML text to [`Config`], going on after a problem so that one look shows them all.
//!
//! serde stops at the first problem. Here each refused key is noted, taken out of the parsed tree (or renamed,
//! when it is plainly a slip), and the rest is decoded again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::problem::{KeyPath, Segment};
use super::{Config, words};

/// Most problems that are collected before giving up.
const MAX_PROBLEMS: usize = 100;

/// Where a key and its value are in the text, in bytes.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) key: Range<usize>,
    pub(super) value: Range<usize>,
}

/// A problem of form: syntax, an unknown key, a value of the wrong type.
#[derive(Debug, Clone)]
pub(super) struct FormProblem {
    pub(super) at: Option<KeyPath>,
    pub(super) offset: usize,
    pub(super) what: String,
    pub(super) remedy: String,
    /// The value may be a secret.
    pub(super) hide: bool,
}

/// The outcome of decoding one text.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    pub(super) config: Config,
    pub(super) places: BTreeMap<KeyPath, Place>,
    pub(super) problems: Vec<FormProblem>,
    /// Keys that were taken out: what the plan says about them is a consequence, not a cause.
    pub(super) removed: BTreeSet<KeyPath>,
    /// The text is no TOML at all.
    pub(super) hopeless: bool,
}

/// Decodes `text`, collecting every problem.
pub(super) fn decode(text: &str) -> Decoded {
    let (tree, syntax) = DeTable::parse_recoverable(text);
    let mut out = Decoded::default();
    index_table(tree.get_ref(), &KeyPath::default(), &mut out.places);
    if !syntax.is_empty() {
        out.hopeless = true;
        out.problems = syntax.iter().map(syntax_problem).collect();
        return out;
    }
    let mut tree = tree;
    while out.problems.len() < MAX_PROBLEMS {
        match Config::deserialize(Deserializer::from(tree.clone())) {
            Ok(config) => {
                out.config = config;
                return out;
            }
            Err(error) => {
                if !heal(&mut tree, &error, &mut out) {
                    break;
                }
            }
        }
    }
    out.hopeless = true;
    out
}

fn syntax_problem(error: &toml::de::Error) -> FormProblem {
    let offset = error.span().map_or(0, |span| span.start);
    let what = error.message().lines().collect::<Vec<_>>().join(", ");
    FormProblem { at: None, offset, what, remedy: "correct the TOML on this line".into(), hide: false }
}

/// Notes `error` and takes its cause out of `tree`. False when the cause cannot be found.
fn heal(tree: &mut Spanned<DeTable<'_>>, error: &toml::de::Error, out: &mut Decoded) -> bool {
    let span = error.span().unwrap_or(0..0);
    let Some(path) = path_at(&out.places, &out.removed, &span) else {
        out.problems.push(FormProblem {
            at: None,
            offset: span.start,
            what: error.message().to_owned(),
            remedy: "compare with the commented files in conf/".into(),
            hide: false,
        });
        return false;
    };
    let verdict = words::explain(error.message(), &path);
    out.problems.push(FormProblem {
        at: Some(path.clone()),
        offset: span.start,
        what: verdict.what,
        remedy: verdict.remedy,
        hide: verdict.hide,
    });
    let renamed = verdict.meant.and_then(|key| rename(tree.get_mut(), &path, &key));
    match renamed {
        Some(new_path) => {
            index_renamed(&path, &new_path, &mut out.places);
            true
        }
        None => {
            let found = remove(tree.get_mut(), &path);
            out.removed.insert(path);
            found
        }
    }
}

/// The key whose name or value is exactly `span`, or else the innermost one around it.
fn path_at(
    places: &BTreeMap<KeyPath, Place>,
    removed: &BTreeSet<KeyPath>,
    span: &Range<usize>,
) -> Option<KeyPath> {
    let live = || places.iter().filter(|(path, _)| !removed.contains(*path));
    let exact = live().find(|(_, place)| place.key == *span || place.value == *span);
    let around = || {
        live()
            .filter(|(_, place)| place.value.start <= span.start && span.end <= place.value.end)
            .min_by_key(|(_, place)| place.value.len())
    };
    exact.or_else(around).map(|(path, _)| path.clone())
}

fn index_table(table: &DeTable<'_>, at: &KeyPath, places: &mut BTreeMap<KeyPath, Place>) {
    for (key, value) in table {
        let path = at.key(key.get_ref());
        places.insert(path.clone(), Place { key: key.span(), value: value.span() });
        index_value(value.get_ref(), &path, places);
    }
}

fn index_value(value: &DeValue<'_>, at: &KeyPath, places: &mut BTreeMap<KeyPath, Place>) {
    match value {
        DeValue::Table(table) => index_table(table, at, places),
        DeValue::Array(array) => {
            for (index, item) in array.iter().enumerate() {
                let path = at.index(index);
                places.insert(path.clone(), Place { key: item.span(), value: item.span() });
                index_value(item.get_ref(), &path, places);
            }
        }
        _ => {}
    }
}

/// Gives everything below `from` a second name below `to`.
fn index_renamed(from: &KeyPath, to: &KeyPath, places: &mut BTreeMap<KeyPath, Place>) {
    let depth = from.0.len();
    let twins: Vec<_> = places
        .range(from.clone()..)
        .take_while(|(path, _)| path.0.starts_with(&from.0))
        .map(|(path, place)| {
            let mut twin = to.clone();
            twin.0.extend_from_slice(&path.0[depth..]);
            (twin, place.clone())
        })
        .collect();
    places.extend(twins);
}

/// The table that holds the last key of `path`, with that key.
fn holder<'t, 'i, 'p>(
    root: &'t mut DeTable<'i>,
    path: &'p KeyPath,
) -> Option<(&'t mut DeTable<'i>, &'p str)> {
    let (last, steps) = path.0.split_last()?;
    let Segment::Key(key) = last else { return None };
    let mut table = root;
    let mut steps = steps.iter();
    while let Some(step) = steps.next() {
        let Segment::Key(name) = step else { return None };
        let mut value = table.get_mut(name.as_str())?.get_mut();
        while let DeValue::Array(array) = value {
            let Some(Segment::Index(index)) = steps.next() else { return None };
            value = array.get_mut(*index)?.get_mut();
        }
        let DeValue::Table(next) = value else { return None };
        table = next;
    }
    Some((table, key))
}

/// Takes out the key at `path`; for an element of a list, the whole list.
fn remove(root: &mut DeTable<'_>, path: &KeyPath) -> bool {
    let mut path = path.clone();
    while matches!(path.0.last(), Some(Segment::Index(_))) {
        path.0.pop();
    }
    holder(root, &path).is_some_and(|(table, key)| table.remove(key).is_some())
}

/// Renames the last key of `path` unless the right one is there as well.
fn rename(root: &mut DeTable<'_>, path: &KeyPath, meant: &str) -> Option<KeyPath> {
    let (table, key) = holder(root, path)?;
    if table.contains_key(meant) {
        return None;
    }
    let (old, value) = table.remove_entry(key)?;
    table.insert(Spanned::new(old.span(), meant.to_owned().into()), value);
    Some(path.parent()?.key(meant))
}
