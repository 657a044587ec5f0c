//! A refused key: where it is, what is wrong, what to do.

use std::fmt;

use serde::Serialize;

/// One step of a [`KeyPath`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Segment {
    /// A key of a table.
    Key(String),
    /// An element of an array, from 0.
    Index(usize),
}

/// The place of a key in the document, such as `node` / 0 / `fabric` / `send_depth`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyPath(pub Vec<Segment>);

impl KeyPath {
    /// A key at the top of the document.
    pub fn top(key: &str) -> Self {
        Self::default().key(key)
    }

    /// The element `index` of the top-level array of tables `array`.
    pub fn item(array: &str, index: usize) -> Self {
        Self::top(array).index(index)
    }

    /// This path, one key deeper.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.with(Segment::Key(key.to_owned()))
    }

    /// This path, one array element deeper.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.with(Segment::Index(index))
    }

    fn with(&self, segment: Segment) -> Self {
        let mut path = self.clone();
        path.0.push(segment);
        path
    }

    /// The path without its last step; `None` at the top.
    pub fn parent(&self) -> Option<Self> {
        let (_, rest) = self.0.split_last()?;
        Some(Self(rest.to_vec()))
    }

    /// True if its last steps are these keys.
    pub fn ends_with(&self, keys: &[&str]) -> bool {
        let mut steps = self.0.iter().rev();
        keys.iter().rev().all(|key| matches!(steps.next(), Some(Segment::Key(step)) if step == key))
    }

    /// True for keys whose value must never be shown.
    pub fn is_secret(&self) -> bool {
        matches!(self.0.last(), Some(Segment::Key(key)) if key == "key")
    }
}

/// Something the file asks for that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Candidate places, most specific first: the first one that the file holds is the one reported.
    pub at: Vec<KeyPath>,
    /// The value in force where the file holds none of the places (a default or a derived number).
    pub default: Option<String>,
    /// What is wrong, without the key and the value.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

impl Problem {
    /// A problem with the key at `path`.
    pub fn new(path: KeyPath, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { at: vec![path], default: None, what: what.into(), remedy: remedy.into() }
    }
}

/// A [`Problem`] with its place resolved. `Display` is the one line a user sees.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LocatedProblem {
    /// The file as the user named it.
    pub file: String,
    /// Line from 1; 0 for what stands in no file.
    pub line: usize,
    /// The key, such as `port[in0].queues`.
    pub key: String,
    /// The value as written, or `(not set)`.
    pub value: String,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for LocatedProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: ", self.file)?,
            line => write!(f, "{}:{line}: ", self.file)?,
        }
        match (self.key.is_empty(), self.value.is_empty()) {
            (true, _) => {}
            (false, true) => write!(f, "{}: ", self.key)?,
            (false, false) => write!(f, "{} = {}: ", self.key, self.value)?,
        }
        write!(f, "{}; {}", self.problem, self.remedy)
    }
}
