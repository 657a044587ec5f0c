//! serde's messages in the words of someone who writes a configuration file.

use super::problem::{KeyPath, Segment};
use super::{ServiceKeys, schema};

/// What to tell about a refused key.
pub(super) struct Verdict {
    pub(super) what: String,
    pub(super) remedy: String,
    /// The key that was meant, most likely.
    pub(super) meant: Option<String>,
    /// The value may be a secret: a key that is not known, where keys that are known hold secrets.
    pub(super) hide: bool,
}

/// Explains serde's `message` about the key at `path`.
pub(super) fn explain(message: &str, path: &KeyPath) -> Verdict {
    if let Some(rest) = message.strip_prefix("unknown field ") {
        unknown_key(rest, path)
    } else if let Some(rest) = message.strip_prefix("unknown variant ") {
        unknown_word(rest)
    } else if let Some((found, expected)) = mismatch(message) {
        wrong_type(found, expected, message.starts_with("invalid value"), path)
    } else {
        let remedy = "compare with the commented files in conf/".into();
        Verdict { what: message.to_owned(), remedy, meant: None, hide: false }
    }
}

fn unknown_key(rest: &str, path: &KeyPath) -> Verdict {
    let mut names = backticked(rest);
    let written = if names.is_empty() { String::new() } else { names.remove(0) };
    let what = "unknown key".to_owned();
    let hide = names.iter().any(|name| name == "key");
    if let Some(meant) = nearest(&written, names.iter().map(String::as_str)) {
        return Verdict { what, remedy: format!("did you mean `{meant}`?"), meant: Some(meant), hide };
    }
    if path.0.len() == 1 && schema::keys_of::<ServiceKeys>().contains(&written.as_str()) {
        let remedy = format!(
            "write [node.{written}] below the [[node]] that it is for, or [service.{written}] for all of that service"
        );
        return Verdict { what, remedy, meant: None, hide };
    }
    let remedy = match schema::section_of(&written, path) {
        Some(section) => format!("it belongs in {section}"),
        None => format!("the keys here are: {}", names.join(", ")),
    };
    Verdict { what, remedy, meant: None, hide }
}

fn unknown_word(rest: &str) -> Verdict {
    let mut words = backticked(rest);
    let written = if words.is_empty() { String::new() } else { words.remove(0) };
    let quoted: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
    let choice = format!("choose {}", either(&quoted));
    let remedy = match nearest(&written, words.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => choice,
    };
    Verdict { what: "unknown value".into(), remedy, meant: None, hide: false }
}

/// `of_kind`: the type is right, the value is not.
fn wrong_type(found: &str, expected: &str, of_kind: bool, path: &KeyPath) -> Verdict {
    let kind = found_kind(found);
    let is_table_array = matches!(path.0.as_slice(), [Segment::Key(key)] if schema::is_table_array(key));
    if is_table_array && kind == "a table" {
        let name = match &path.0[0] {
            Segment::Key(key) => key.as_str(),
            Segment::Index(_) => "",
        };
        let remedy = format!("write [[{name}]] with two brackets on each side");
        return Verdict {
            what: "one table where a list of tables belongs".into(),
            remedy,
            meant: None,
            hide: false,
        };
    }
    let wanted = expected_kind(expected);
    let what = match (of_kind, found.starts_with("integer")) {
        (false, _) => format!("{kind} does not fit here"),
        (true, true) => "out of range".to_owned(),
        (true, false) => "unknown value".to_owned(),
    };
    Verdict { what, remedy: format!("give {wanted}"), meant: None, hide: false }
}

/// Splits "invalid type: FOUND, expected WANTED".
fn mismatch(message: &str) -> Option<(&str, &str)> {
    let kinds = ["invalid type: ", "invalid value: ", "invalid length "];
    let rest = kinds.iter().find_map(|kind| message.strip_prefix(kind))?;
    rest.rsplit_once(", expected ")
}

/// The kind of a found value; never the value itself, which may be a secret.
fn found_kind(found: &str) -> &'static str {
    let kinds = [
        ("string", "a text"),
        ("integer", "a whole number"),
        ("boolean", "true or false"),
        ("floating point", "a number with a fraction"),
        ("map", "a table"),
        ("sequence", "a list"),
    ];
    let known = kinds.iter().find(|(word, _)| found.starts_with(word));
    known.map_or("this value", |(_, kind)| kind)
}

fn expected_kind(expected: &str) -> String {
    let whole = |max: u64| format!("a whole number from 0 to {max}");
    match expected.lines().next().unwrap_or(expected) {
        "u8" => whole(u64::from(u8::MAX)),
        "u16" => whole(u64::from(u16::MAX)),
        "u32" => whole(u64::from(u32::MAX)),
        "u64" => "a whole number from 0 upwards".into(),
        "f32" | "f64" => "a number".into(),
        "a boolean" => "true or false, without quotes".into(),
        "a string" => "a text in quotes".into(),
        "a sequence" => "a list in brackets".into(),
        "string or table" => "a text in quotes".into(),
        other if other.starts_with("struct ") => "a table".into(),
        other => other.to_owned(),
    }
}

fn backticked(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn either(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
}

/// The candidate that `written` is plainly a slip of.
pub(crate) fn nearest<'a>(written: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let written = plain(written);
    let allowed = match written.chars().count() {
        0..=2 => 0,
        3..=5 => 1,
        6..=8 => 2,
        _ => 3,
    };
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(&written, &plain(candidate)), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate.to_owned())
}
