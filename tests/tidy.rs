//! The project's style rules that no lint knows, as tests. `CONTRIBUTING.md` says why they are what they are.
//!
//! A rule is a function from one file to what it found there; each has a test that runs it over the project and a
//! test that shows it finding something.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines that a Rust source may have.
const SOURCE_LINES: usize = 500;
/// Lines that a file of nothing but tests may have.
const TEST_LINES: usize = 900;
/// Lines that a function may have, from `fn` to its closing brace.
const FUNCTION_LINES: usize = 70;
/// Documents that are only read while they are short.
const DOCUMENT_LINES: [(&str, usize); 2] = [("ARCHITECTURE.md", 200), ("CONTRIBUTING.md", 100)];
/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 6] = ["utils", "util", "common", "manager", "helpers", "helper"];
/// Marks of work left undone; split so that this file does not hold them.
const UNFINISHED: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("todo", "!("), concat!("unimplemented", "!(")];
/// Places on one machine and hosts of package registries: neither belongs in a project that runs anywhere.
const FOREIGN: [&str; 8] = [
    concat!("/work", "/"),
    concat!("/tmp", "/"),
    concat!("/root", "/"),
    concat!("crates", ".io/"),
    concat!("static.", "crates"),
    concat!("deb.debian", ".org"),
    concat!("pypi", ".org"),
    concat!("registry", ".npmjs"),
];

/// A text file of the project.
struct File {
    /// Relative to the project's root, with `/` between its parts.
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_test(&self) -> bool {
        let parts: Vec<&str> = self.path.split('/').collect();
        parts.iter().any(|p| matches!(*p, "tests" | "tests.rs" | "benches" | "fuzz"))
    }

    /// A finding in line `index` (from 0).
    fn at(&self, index: usize, what: &str) -> String {
        format!("{}:{}: {what}", self.path, index + 1)
    }
}

/// One rule of style: what it finds in a file, as `path:line: what`.
type Rule = fn(&File) -> Vec<String>;

// ---- rules ------------------------------------------------------------------------------------------------------

fn file_length(file: &File) -> Vec<String> {
    let document = DOCUMENT_LINES.iter().find(|(path, _)| *path == file.path).map(|(_, limit)| *limit);
    let limit = match document {
        Some(limit) => limit,
        None if !file.is_rust() => return vec![],
        None if file.is_test() => TEST_LINES,
        None => SOURCE_LINES,
    };
    let lines = file.text.lines().count();
    if lines <= limit { vec![] } else { vec![format!("{}: {lines} lines, {limit} are the most", file.path)] }
}

fn function_length(file: &File) -> Vec<String> {
    if !file.is_rust() {
        return vec![];
    }
    let code = code_only(&file.text);
    let lines: Vec<&str> = code.lines().collect();
    let mut found = vec![];
    for (start, line) in lines.iter().enumerate().filter(|(_, line)| starts_function(line)) {
        let length = function_lines(&lines[start..]);
        if length > FUNCTION_LINES {
            found.push(
                file.at(
                    start,
                    &format!("{length} lines in `{}`, {FUNCTION_LINES} are the most", line.trim()),
                ),
            );
        }
    }
    found
}

fn starts_function(line: &str) -> bool {
    let before = line.split("fn ").next().unwrap_or("");
    line.contains("fn ")
        && before.split_whitespace().all(|word| {
            word.starts_with("pub")
                || matches!(word, "const" | "async" | "unsafe" | "extern" | "default" | "in" | "\"\"")
        })
}

/// Counts the lines of the function that starts in the first of `lines`; 1 for a declaration without a body.
fn function_lines(lines: &[&str]) -> usize {
    let mut depth = 0;
    for (index, line) in lines.iter().enumerate() {
        for character in line.chars() {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                ';' if depth == 0 => return index + 1,
                _ => {}
            }
        }
        if depth == 0 && line.contains('}') {
            return index + 1;
        }
    }
    lines.len()
}

fn empty_names(file: &File) -> Vec<String> {
    let says_nothing = |part: &&str| EMPTY_NAMES.contains(&part.split('.').next().unwrap_or(part));
    file.path
        .split('/')
        .filter(says_nothing)
        .map(|part| format!("{}: `{part}` says nothing about what is inside", file.path))
        .collect()
}

fn trailing_space(file: &File) -> Vec<String> {
    let lines = file.text.split('\n').enumerate();
    lines
        .filter(|(_, line)| line.ends_with([' ', '\t', '\r']))
        .map(|(i, _)| file.at(i, "space at the end of the line"))
        .collect()
}

/// Unlike the others, this rule looks at all files at once: the attribute of a module's file covers its directory.
fn unsafe_where_allowed(files: &[File]) -> Vec<String> {
    let allowed: Vec<String> =
        files.iter().filter(|f| allows_unsafe(f)).map(|f| module_directory(&f.path)).collect();
    let is_allowed = |file: &File| allows_unsafe(file) || allowed.iter().any(|d| file.path.starts_with(d));
    files.iter().filter(|f| f.is_rust() && !is_allowed(f)).flat_map(stray_unsafe).collect()
}

fn allows_unsafe(file: &File) -> bool {
    file.is_rust() && code_only(&file.text).contains("#![allow(unsafe_code)]")
}

/// Where the modules below the module in this file live: `a/` for `a/mod.rs` and `a/lib.rs`, `a/b/` for `a/b.rs`.
fn module_directory(path: &str) -> String {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name {
        "mod.rs" | "lib.rs" => format!("{directory}/"),
        _ => format!("{}/", path.trim_end_matches(".rs")),
    }
}

fn stray_unsafe(file: &File) -> Vec<String> {
    const WHAT: &str =
        "`unsafe` where neither this file nor its module has #![allow(unsafe_code)] with a reason";
    let code = code_only(&file.text);
    let lines = code.lines().enumerate().filter(|(_, line)| words(line).any(|word| word == "unsafe"));
    lines.map(|(i, _)| file.at(i, WHAT)).collect()
}

fn unsafe_explained(file: &File) -> Vec<String> {
    if !file.is_rust() {
        return vec![];
    }
    let code = code_only(&file.text);
    let (code, text): (Vec<&str>, Vec<&str>) = (code.lines().collect(), file.text.lines().collect());
    let opens = |line: &str| line.contains("unsafe {") || line.contains("unsafe impl");
    let lines = (0..code.len()).filter(|&i| opens(code[i]) && !is_explained(&code, &text, i));
    lines.map(|i| file.at(i, "unsafe without a SAFETY comment above it")).collect()
}

/// Whether the statement that holds line `index` has a comment with SAFETY above it or in the line itself.
fn is_explained(code: &[&str], text: &[&str], index: usize) -> bool {
    const MARK: &str = "SAFETY:";
    if text[index].contains(MARK) {
        return true;
    }
    for above in (0..index).rev() {
        let (code, text) = (code[above].trim(), text[above].trim());
        if text.starts_with("//") {
            if text.contains(MARK) {
                return true;
            }
        } else if text.is_empty() || (code.ends_with([';', '{', '}']) && !code.starts_with("#[")) {
            return false;
        }
    }
    false
}

fn unfinished(file: &File) -> Vec<String> {
    marked(file, &UNFINISHED, "is left undone")
}

fn foreign(file: &File) -> Vec<String> {
    if file.path.ends_with("Cargo.lock") {
        vec![]
    } else {
        marked(file, &FOREIGN, "belongs to one machine or one registry")
    }
}

fn marked(file: &File, marks: &[&str], what: &str) -> Vec<String> {
    let mut found = vec![];
    for (index, line) in file.text.lines().enumerate() {
        found.extend(
            marks.iter().filter(|m| line.contains(**m)).map(|m| file.at(index, &format!("`{m}` {what}"))),
        );
    }
    found
}

/// Every key of a configuration that we ship is explained, in its line or in the line above.
fn explained_keys(file: &File) -> Vec<String> {
    if !(file.path.starts_with("conf/") && file.path.ends_with(".toml")) {
        return vec![];
    }
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let (mut found, mut open) = (vec![], 0);
    for (index, line) in lines.iter().enumerate() {
        let value = line.split('#').next().unwrap_or("");
        let key = open == 0 && !line.starts_with(['#', '[']) && value.contains('=');
        let above = index.checked_sub(1).is_some_and(|i| lines[i].starts_with('#'));
        if key && !line.contains('#') && !above {
            found.push(file.at(index, "a key without a comment"));
        }
        if key || open > 0 {
            open += value.matches(['[', '{']).count();
            open -= value.matches([']', '}']).count().min(open);
        }
    }
    found
}

// ---- reading Rust -----------------------------------------------------------------------------------------------

/// The words of a line, by Rust's idea of an identifier.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The same text, line for line, with nothing in its comments, strings and character literals.
fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (kept, length) = match literal_length(rest, code.chars().next_back()) {
            Some(length) => ("\"\"", length),
            None => ("", first.len_utf8()),
        };
        let (taken, left) = rest.split_at(length);
        if length > first.len_utf8() {
            code.push_str(if taken.starts_with('/') { "" } else { kept });
            code.extend(taken.chars().filter(|c| *c == '\n'));
        } else {
            code.push(first);
        }
        rest = left;
    }
    code
}

/// How many bytes of comment, string or character literal `text` begins with, `before` being the character in front.
fn literal_length(text: &str, before: Option<char>) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return Some(text.find("*/").map_or(text.len(), |end| end + 2));
    }
    if text.starts_with('"') {
        return Some(quoted_length(text, '"'));
    }
    if let Some(inside) = text.strip_prefix('\'') {
        let is_lifetime = !inside.starts_with('\\') && inside.chars().nth(1) != Some('\'');
        return (!is_lifetime).then(|| quoted_length(text, '\''));
    }
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    raw_string_length(text).filter(|_| !in_word)
}

fn quoted_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (index, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return index + 1,
            _ => {}
        }
    }
    text.len()
}

fn raw_string_length(text: &str) -> Option<usize> {
    let after = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let opened = after.trim_start_matches('#');
    let hashes = &after[..after.len() - opened.len()];
    let body = opened.strip_prefix('"')?;
    let end = format!("\"{hashes}");
    let begin = text.len() - body.len();
    Some(body.find(&end).map_or(text.len(), |at| begin + at + end.len()))
}

// ---- the project ------------------------------------------------------------------------------------------------

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every text file that git tracks or would track; without git, every one outside build directories.
fn project_files() -> Vec<File> {
    let mut paths = git_files().unwrap_or_default();
    if paths.is_empty() {
        walk(root(), &mut paths);
    }
    let mut files = vec![];
    for path in paths {
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        files.push(File { path: path.to_string_lossy().into_owned(), text });
    }
    assert!(files.iter().any(|f| f.path == "Cargo.toml"), "no project below {}", root().display());
    files
}

fn git_files() -> Option<Vec<PathBuf>> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output =
        Command::new("git").current_dir(root()).args(list).output().ok().filter(|o| o.status.success())?;
    let names = String::from_utf8(output.stdout).ok()?;
    Some(names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect())
}

fn walk(directory: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a readable directory").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if name == "target" || name == ".git" {
            continue;
        }
        if path.is_dir() {
            walk(&path, paths);
        } else {
            paths.push(path.strip_prefix(root()).expect("a path below the root").to_path_buf());
        }
    }
}

#[track_caller]
fn hold(rule: Rule) {
    nothing(&project_files().iter().flat_map(rule).collect::<Vec<_>>());
}

#[track_caller]
fn nothing(found: &[String]) {
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
}

#[test]
fn files_are_short() {
    hold(file_length);
}

#[test]
fn functions_are_short() {
    hold(function_length);
}

#[test]
fn names_say_what_is_inside() {
    hold(empty_names);
}

#[test]
fn lines_end_without_space() {
    hold(trailing_space);
}

#[test]
fn unsafe_stays_where_it_is_allowed() {
    nothing(&unsafe_where_allowed(&project_files()));
}

#[test]
fn unsafe_is_explained() {
    hold(unsafe_explained);
}

#[test]
fn nothing_is_left_undone() {
    hold(unfinished);
}

#[test]
fn nothing_belongs_to_one_machine() {
    hold(foreign);
}

/// A key may be explained in the file that is about it: the others need not repeat that.
#[test]
fn shipped_configurations_explain_every_key() {
    let files = project_files();
    let shipped = files.iter().filter(|f| f.path.starts_with("conf/"));
    let known: Vec<&str> = shipped.flat_map(|f| keys_with_words(&f.text)).collect();
    assert!(known.len() > 30, "only {} keys are explained", known.len());
    let key_of = |file: &File, line: usize| {
        let line = file.text.lines().nth(line - 1).unwrap_or("");
        line.split('=').next().unwrap_or("").trim().to_owned()
    };
    let unknown = |file: &File| -> Vec<String> {
        let line = |found: &str| found.split(':').nth(1).and_then(|n| n.parse().ok()).unwrap_or(1);
        let all = explained_keys(file);
        all.into_iter().filter(|f| !known.contains(&key_of(file, line(f)).as_str())).collect()
    };
    nothing(&files.iter().flat_map(unknown).collect::<Vec<_>>());
}

/// Keys of a configuration, also those that are commented out, with a comment above.
fn keys_with_words(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let key = |line: &'_ str| line.trim_start_matches(['#', ' ']).len();
    let mut found = vec![];
    for pair in lines.windows(2) {
        let bare = &pair[1][pair[1].len() - key(pair[1])..];
        let name = bare.split('=').next().unwrap_or("").trim();
        let is_key = bare.contains('=') && !name.is_empty() && !name.contains(' ');
        if is_key && pair[0].starts_with('#') {
            found.push(name);
        }
    }
    found
}

// ---- each rule can fail -----------------------------------------------------------------------------------------

#[track_caller]
fn finds(rule: Rule, path: &str, text: &str, lines: &[usize]) {
    let found = rule(&File { path: path.into(), text: text.into() });
    let want: Vec<String> = lines.iter().map(|line| format!("{path}:{line}:")).collect();
    assert_eq!(found.len(), want.len(), "{found:?}");
    assert!(found.iter().zip(&want).all(|(f, w)| f.starts_with(w)), "{found:?}");
}

#[test]
fn long_files_are_found() {
    let count = |path: &str, lines| file_length(&File { path: path.into(), text: "\n".repeat(lines) }).len();
    assert_eq!((count("a/b.rs", SOURCE_LINES), count("a/b.rs", SOURCE_LINES + 1)), (0, 1));
    assert_eq!((count("a/tests/b.rs", TEST_LINES), count("a/b/tests.rs", TEST_LINES + 1)), (0, 1));
    assert_eq!((count("CONTRIBUTING.md", 101), count("docs/long.md", 5000)), (1, 0));
}

#[test]
fn long_functions_are_found() {
    let body = |lines: usize| {
        format!("impl A {{\n    pub(crate) fn f(&self) {{\n{}    }}\n}}\n", "        b();\n".repeat(lines))
    };
    finds(function_length, "a.rs", &body(FUNCTION_LINES - 2), &[]);
    finds(function_length, "a.rs", &body(FUNCTION_LINES - 1), &[2]);
    let declaration = format!("trait A {{\n    fn f(&self);\n}}\n{}", "//\n".repeat(FUNCTION_LINES));
    finds(function_length, "a.rs", &declaration, &[]);
    let in_string = format!("const A: &str = \"\nfn f() {{\n{}\";\n", "\n".repeat(FUNCTION_LINES));
    finds(function_length, "a.rs", &in_string, &[]);
}

#[test]
fn empty_names_are_found() {
    let found = |path: &str| empty_names(&File { path: path.into(), text: String::new() }).len();
    assert_eq!((found("a/utils.rs"), found("common/mod.rs"), found("a/manager_of_flows.rs")), (1, 1, 0));
}

#[test]
fn trailing_space_is_found() {
    finds(trailing_space, "a.md", "one\ntwo \nthree\t\n", &[2, 3]);
}

#[test]
fn stray_unsafe_is_found() {
    let text = "// unsafe\nlet a = \"unsafe\";\nunsafe fn f() {}\n#[deny(unsafe_code)]\n";
    finds(stray_unsafe, "a.rs", text, &[3]);
    finds(stray_unsafe, "a.rs", "let c = '\"'; let r = r#\"x\"y\"#; f::<'a>(); unsafe { g() }\n", &[1]);
    let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
    let allow = "#![allow(unsafe_code)] // it registers memory\n";
    let files =
        [file("a/mod.rs", allow), file("a/b.rs", "unsafe"), file("c/d.rs", allow), file("c/e.rs", "unsafe")];
    assert_eq!(unsafe_where_allowed(&files).len(), 1);
    assert!(unsafe_where_allowed(&files)[0].starts_with("c/e.rs:1:"));
}

#[test]
fn unexplained_unsafe_is_found() {
    let block = "    unsafe { g() }\n";
    finds(unsafe_explained, "a.rs", &format!("fn f() {{\n{block}}}\n"), &[2]);
    finds(unsafe_explained, "a.rs", &format!("// SAFETY: of another\nlet b = 1;\n{block}"), &[3]);
    finds(unsafe_explained, "a.rs", &format!("// SAFETY: g asks nothing\n{block}{block}"), &[3]);
    finds(unsafe_explained, "a.rs", &format!("// SAFETY: g asks nothing\n// of us.\nlet a =\n{block}"), &[]);
    finds(unsafe_explained, "a.rs", "unsafe impl Send for A {}\n", &[1]);
}

#[test]
fn undone_work_is_found() {
    finds(unfinished, "a.rs", &format!("a\n// {}: b\n", UNFINISHED[0]), &[2]);
}

#[test]
fn foreign_places_are_found() {
    finds(foreign, "a.sh", &format!("cd {}b\n", FOREIGN[1]), &[1]);
    finds(foreign, "Cargo.lock", &format!("source = \"{}\"\n", FOREIGN[3]), &[]);
}

#[test]
fn unexplained_keys_are_found() {
    let text = "# the file\n\n[a]\n# why\nb = 1\nc = 2 # why\nd = [\n  { e = 1 },\n]\n# why\nf = [\n  { g = 1 },\n]\nh = 1\n";
    finds(explained_keys, "conf/a.toml", text, &[7, 14]);
    finds(explained_keys, "Cargo.toml", "a = 1\n", &[]);
}
