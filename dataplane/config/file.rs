//! One configuration file: its types, its text, and the way from a key to its line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::decode::{Decoded, FormProblem, Place, decode};
use super::problem::{KeyPath, LocatedProblem, Problem, Segment};
use super::{Config, EalWordError, KeySource, apply_eal_words, keyed_words, schema};
use crate::plan::{Hardware, Plan, key_file_problems, resolve};

/// Longest configuration file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Longest value that is quoted in a message, in characters.
const MAX_VALUE_CHARS: usize = 60;

/// What stands for the name of a file where an option is to blame.
const COMMAND_LINE: &str = "command line";

/// What stands for a secret.
const HIDDEN: &str = "<hidden>";

/// A file that cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The operating system refused.
    #[error("{path}: {source}; give the path of a configuration file, commented examples are in conf/")]
    Read {
        /// The file as the user named it.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// Too long to be a configuration.
    #[error("{path}: longer than {MAX_FILE_BYTES} bytes, the most that a configuration file has")]
    TooLong {
        /// The file as the user named it.
        path: String,
    },
}

/// Everything that is wrong with a configuration, by line. `Display` is one line per problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(pub Vec<LocatedProblem>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(LocatedProblem::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Refused {}

/// A configuration and where each of its keys stands.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    /// The decoded configuration. Keys that could not be decoded are at their defaults.
    pub config: Config,
    /// Keys of `[eal]` that the command line gives, with the option.
    command_line: BTreeMap<KeyPath, String>,
    name: String,
    dir: PathBuf,
    text: String,
    places: BTreeMap<KeyPath, Place>,
    form: Vec<LocatedProblem>,
    removed: BTreeSet<KeyPath>,
    hopeless: bool,
}

impl ConfigFile {
    /// Reads and decodes the file at `path`. Problems of its content come out of [`ConfigFile::plan`].
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let read = |source| ConfigError::Read { path: name.clone(), source };
        let mut bytes = Vec::new();
        // Pipes and devices do not tell their length before.
        let file = fs::File::open(path).map_err(read)?;
        if file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(read)? as u64 > MAX_FILE_BYTES {
            return Err(ConfigError::TooLong { path: name });
        }
        let not_text = |_| read(io::Error::new(io::ErrorKind::InvalidData, "it is not text in UTF-8"));
        let text = String::from_utf8(bytes).map_err(not_text)?;
        let mut file = Self::parse(&name, &text);
        file.dir = path.parent().unwrap_or(Path::new("")).to_owned();
        Ok(file)
    }

    /// Decodes `text`; `name` stands for the file in messages.
    pub fn parse(name: &str, text: &str) -> Self {
        let Decoded { config, places, problems, removed, hopeless } = decode(text);
        let mut file = Self {
            config,
            command_line: BTreeMap::new(),
            name: name.to_owned(),
            dir: PathBuf::new(),
            text: text.to_owned(),
            places,
            form: Vec::new(),
            removed,
            hopeless,
        };
        file.form = problems.iter().map(|problem| file.locate_form(problem)).collect();
        file
    }

    /// Lays the EAL options of the command line over the file: they win, and what is wrong with one is said of it.
    ///
    /// # Errors
    /// As [`apply_eal_words`].
    pub fn apply_command_line(&mut self, words: &[String]) -> Result<(), EalWordError> {
        apply_eal_words(&mut self.config, words)?;
        for (option, key) in keyed_words(words) {
            // One of several devices may be the file's.
            if key != "vdev" && key != "allow" && key != "block" {
                let value = option_value(words, &option);
                self.command_line.insert(KeyPath::top("eal").key(key), value);
            }
        }
        Ok(())
    }

    /// The file as the user named it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Resolves the configuration; `hardware` adds what the machine can do.
    ///
    /// # Errors
    /// Everything that is wrong with the file, not only the first thing.
    pub fn plan(&self, hardware: Option<&Hardware>) -> Result<Plan, Refused> {
        let mut problems = self.form.clone();
        if self.hopeless {
            return Err(refused(problems));
        }
        match resolve(&self.config, hardware) {
            Ok(plan) if problems.is_empty() => Ok(self.with_key_paths(plan)),
            Ok(_) => Err(refused(problems)),
            Err(found) => {
                let causes = found.iter().filter(|problem| !self.is_consequence(problem));
                problems.extend(causes.map(|problem| self.locate(problem)));
                Err(refused(problems))
            }
        }
    }

    /// Looks at what a plan of this file needs outside of it: files of keys.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn check_files(&self, plan: &Plan) -> Result<(), Refused> {
        let problems: Vec<_> = key_file_problems(plan).iter().map(|problem| self.locate(problem)).collect();
        if problems.is_empty() { Ok(()) } else { Err(refused(problems)) }
    }

    /// Adds file, line and value to `problem`.
    pub fn locate(&self, problem: &Problem) -> LocatedProblem {
        if let Some((path, option)) = problem.at.iter().find_map(|path| self.command_line.get_key_value(path))
        {
            return LocatedProblem {
                file: COMMAND_LINE.to_owned(),
                line: 0,
                key: option.clone(),
                value: String::new(),
                problem: problem.what.clone(),
                remedy: format!("{} (the option stands for {})", problem.remedy, self.label(path)),
            };
        }
        let written = problem.at.iter().find(|path| self.places.contains_key(path));
        let at = written.or(problem.at.last()).cloned().unwrap_or_default();
        let value = match (written, &problem.default) {
            (Some(path), _) => self.value_text(path),
            (None, Some(value)) => format!("{value} (default)"),
            (None, None) => "(not set)".to_owned(),
        };
        LocatedProblem {
            file: self.name.clone(),
            line: self.line_of_path(&at),
            key: self.label(&at),
            value,
            problem: problem.what.clone(),
            remedy: self.remedy(&problem.remedy),
        }
    }

    /// Keys that are set otherwise than in `before`, or only in one of the two, in the order of this file and then of the
    /// other one.
    pub fn changed_keys(&self, before: &Self) -> Vec<KeyPath> {
        let text = |file: &Self, path: &KeyPath| {
            let span = file.places.get(path)?.value.clone();
            Some(file.text.get(span).unwrap_or_default().trim().to_owned())
        };
        // What is changed in a table is changed in one of its keys; a list of plain values is one value.
        let is_key = |step: &Segment| matches!(step, Segment::Key(_));
        let is_leaf = |file: &Self, path: &KeyPath| {
            let below =
                file.places.range(path.clone()..).take_while(|(below, _)| below.0.starts_with(&path.0));
            path.0.last().is_some_and(is_key)
                && !below.into_iter().any(|(below, _)| below.0[path.0.len()..].iter().any(is_key))
        };
        let mut changed: Vec<&KeyPath> = self.places.keys().filter(|path| is_leaf(self, path)).collect();
        changed.retain(|path| text(self, path) != text(before, path));
        changed.sort_by_key(|path| self.places.get(path).map(|place| place.key.start));
        let gone =
            before.places.keys().filter(|path| is_leaf(before, path) && !self.places.contains_key(path));
        changed.into_iter().chain(gone).cloned().collect()
    }

    /// What to do, where the option that has taken a key's place is named instead of it.
    fn remedy(&self, remedy: &str) -> String {
        let mut remedy = remedy.to_owned();
        for (path, option) in &self.command_line {
            remedy = remedy.replace(&self.label(path), &format!("`{option}` of the command line"));
        }
        remedy
    }

    /// Key files are meant relative to the configuration file.
    fn with_key_paths(&self, mut plan: Plan) -> Plan {
        for node in &mut plan.nodes {
            if let Some(KeySource::File(path)) = node.fabric.as_mut().and_then(|fabric| fabric.key.as_mut()) {
                *path = self.dir.join(&*path);
            }
        }
        plan
    }

    /// True when the problem only comes from a key that was already refused.
    fn is_consequence(&self, problem: &Problem) -> bool {
        // Without a whole section nothing that refers to it can be judged.
        if self.removed.iter().any(|gone| gone.0.len() == 1) {
            return true;
        }
        let below_removed = |path: &KeyPath| self.removed.iter().any(|gone| path.0.starts_with(&gone.0));
        problem.at.iter().any(below_removed)
    }

    fn locate_form(&self, problem: &FormProblem) -> LocatedProblem {
        let (key, value) = match &problem.at {
            Some(path) if problem.hide => (self.label(path), HIDDEN.to_owned()),
            Some(path) => (self.label(path), self.value_text(path)),
            None => (String::new(), String::new()),
        };
        LocatedProblem {
            file: self.name.clone(),
            line: self.line_of(problem.offset),
            key,
            value,
            problem: problem.what.clone(),
            remedy: problem.remedy.clone(),
        }
    }

    /// The line of the key, or of the innermost table around it that is in the file.
    fn line_of_path(&self, path: &KeyPath) -> usize {
        let mut path = path.clone();
        loop {
            if let Some(place) = self.places.get(&path) {
                return self.line_of(place.key.start);
            }
            match path.parent() {
                Some(parent) => path = parent,
                None => return 1,
            }
        }
    }

    fn line_of(&self, offset: usize) -> usize {
        let end = offset.min(self.text.len());
        1 + self.text.as_bytes()[..end].iter().filter(|byte| **byte == b'\n').count()
    }

    /// The value as written; empty for tables, hidden for secrets.
    fn value_text(&self, path: &KeyPath) -> String {
        if path.is_secret() {
            return HIDDEN.to_owned();
        }
        let holds_more = self.places.range(path.clone()..).nth(1).is_some_and(|(next, _)| {
            next.0.starts_with(&path.0) && matches!(next.0.get(path.0.len()), Some(Segment::Key(_)))
        });
        let span = self.places.get(path).map(|place| place.value.clone()).unwrap_or_default();
        let text = self.text.get(span).unwrap_or_default();
        let is_tables = matches!(path.0.as_slice(), [Segment::Key(key)] if schema::is_table_array(key));
        if holds_more || is_tables {
            return String::new();
        }
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(MAX_VALUE_CHARS) {
            Some((cut, _)) => format!("{}...", &line[..cut]),
            None => line,
        }
    }

    /// `port[in0].queues`: elements go by their name where they have one.
    fn label(&self, path: &KeyPath) -> String {
        let mut label = String::new();
        let mut walked = KeyPath::default();
        for segment in &path.0 {
            walked.0.push(segment.clone());
            match segment {
                Segment::Key(key) => {
                    let dot = if label.is_empty() { "" } else { "." };
                    label.push_str(dot);
                    label.push_str(key);
                }
                Segment::Index(index) => {
                    let name = self.value_text(&walked.key("name"));
                    let name = name.trim_matches(['"', '\'']);
                    let shown = if name.is_empty() { index.to_string() } else { name.to_owned() };
                    label.push_str(&format!("[{shown}]"));
                }
            }
        }
        label
    }
}

/// An option as it was given, with the word behind it where that is its value.
fn option_value(words: &[String], option: &str) -> String {
    let behind = words.iter().position(|word| word == option).and_then(|at| words.get(at + 1));
    match behind.filter(|value| !option.contains('=') && !value.starts_with('-')) {
        Some(value) => format!("{option} {value}"),
        None => option.to_owned(),
    }
}

/// Sorted by line, each said once.
fn refused(mut problems: Vec<LocatedProblem>) -> Refused {
    problems.sort_by(|a, b| (a.line, &a.key).cmp(&(b.line, &b.key)));
    problems.dedup();
    Refused(problems)
}
