//! Configuration files: those in `conf/` and what is refused.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use isthmus::config::ConfigFile;

/// Files of `dir` that end in `.toml`, in order.
fn toml_files(dir: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(!files.is_empty());
    files
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// Where expected lines begin in a file of `bad/`.
const EXPECTED: &str = "#: ";

/// Every file of `bad/` ends with the lines that it is refused with, after `#: `. With `ISTHMUS_BLESS=1` they are
/// written anew; look at the difference before you commit it.
#[test]
fn every_bad_file_is_refused_in_its_own_words() {
    let mut wrong = Vec::new();
    for path in toml_files("tests/data/conf/bad") {
        let text = fs::read_to_string(&path).unwrap();
        let expected: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(EXPECTED)).collect();
        let said = match ConfigFile::parse(&name(&path), &text).plan(None) {
            Ok(_) => String::from("(this can run)"),
            Err(refused) => refused.to_string(),
        };
        let said: Vec<&str> = said.lines().collect();
        if std::env::var_os("ISTHMUS_BLESS").is_some() {
            let body: Vec<&str> = text.lines().filter(|line| !line.starts_with(EXPECTED)).collect();
            let lines: Vec<String> = said.iter().map(|line| format!("{EXPECTED}{line}")).collect();
            fs::write(&path, format!("{}\n{}\n", body.join("\n"), lines.join("\n"))).unwrap();
        } else if said != expected {
            wrong.push(format!("{}: expected\n{expected:#?}\nbut it said\n{said:#?}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// What a gateway would write goes by SEND where there is nothing to write it into.
#[test]
fn writes_without_a_staging_region_are_warned_of() {
    let text = fs::read_to_string("conf/kv-soft.toml").unwrap();
    let writing = text.replace("# write_imm_from_bytes", "write_imm_from_bytes");
    let warned = |text: &str| {
        let file = ConfigFile::parse("kv.toml", text);
        let plan = file.plan(None).unwrap();
        plan.warnings.iter().map(|warning| file.locate(warning).to_string()).collect::<Vec<_>>()
    };
    let said = warned(&writing);
    assert!(
        matches!(&said[..], [line] if line.contains("write_imm_from_bytes") && line.contains("staging_slots")),
        "{said:?}"
    );
    assert!(warned(&writing.replace("# staging_slots = 0", "staging_slots = 4")).is_empty());
}

/// Each line of a refusal has file, line, key, what is wrong and what to do.
#[test]
fn every_line_says_where_what_and_what_to_do() {
    for path in toml_files("tests/data/conf/bad") {
        let text = fs::read_to_string(&path).unwrap();
        let refused = ConfigFile::parse(&name(&path), &text).plan(None).unwrap_err();
        for problem in &refused.0 {
            let line = problem.to_string();
            assert!(line.starts_with(&format!("{}:{}: ", name(&path), problem.line)), "{line}");
            assert!(
                line.contains("; ") && !problem.problem.is_empty() && !problem.remedy.is_empty(),
                "{line}"
            );
            assert!(!line.contains('\n'), "{line}");
            assert!(problem.line <= text.lines().count(), "{line}");
        }
    }
}

#[test]
fn every_conf_file_can_run() {
    for path in toml_files("conf") {
        let file = ConfigFile::load(&path).unwrap();
        let plan = file.plan(None).unwrap_or_else(|refused| panic!("{refused}"));
        let warnings: Vec<_> = plan.warnings.iter().map(|warning| file.locate(warning).to_string()).collect();
        assert!(warnings.is_empty(), "{warnings:?}");
    }
}

/// Every key there is stands in some file of `conf/`, set or commented out, under a comment.
#[test]
fn every_key_is_explained_in_conf() {
    let texts: Vec<String> =
        toml_files("conf").iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let shown: BTreeSet<String> =
        texts.iter().flat_map(|text| text.lines()).filter_map(key_of_line).collect();
    let tables = ["adaptive", "eal", "port", "link", "fabric", "node", "service", "stats", "drain"];
    let nested = ["verbs", "soft", "relay", "source", "sink", "kv", "memory", "load", "read", "call"];
    for (section, keys) in isthmus::config::sections() {
        for key in keys.iter().filter(|key| !tables.contains(key) && !nested.contains(key)) {
            assert!(shown.contains(*key), "{key} of {section} is in no file of conf/");
        }
    }
}

/// `queues` in `queues = 2` and in `# queues = 2`.
fn key_of_line(line: &str) -> Option<String> {
    let (key, _) = line.trim_start_matches("# ").split_once(" = ")?;
    key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_').then(|| key.to_owned())
}

/// What a commented-out line shows as a default must at least be accepted.
#[test]
fn commented_defaults_are_accepted() {
    for path in toml_files("conf") {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            let Some(key) = line.strip_prefix("# ").filter(|_| key_of_line(line).is_some()) else { continue };
            let alternatives = ["connect = ", "listen = ", "key_file = "];
            if alternatives.iter().any(|alternative| key.starts_with(alternative)) {
                continue;
            }
            let mut lines: Vec<&str> = text.lines().collect();
            lines[number] = key;
            let refused = ConfigFile::parse(&name(&path), &lines.join("\n")).plan(None).err();
            // rss = true asks for what the driver of the example has not got.
            let known = key == "rss = true" && refused.is_some();
            assert!(refused.is_none() || known, "{key}: {}", refused.unwrap());
        }
    }
}

/// A relay over verbs with nothing but what it must have.
const SHORT: &str = r#"
[[port]]
name = "in"
device = "net_null0"

[fabric]
transport = "verbs"
connect = "10.9.0.2:7471"
key_file = "relay.key"

[[node]]
name = "a"
service = "relay"
ports = ["in"]
"#;

#[test]
fn a_minimal_file_is_short() {
    let plan = ConfigFile::parse("short.toml", SHORT).plan(None).unwrap();
    assert_eq!(plan.nodes[0].fabric.as_ref().unwrap().qp.send_depth, 32, "100 Gb/s, 5 us, 4 KiB");
}

#[test]
fn keys_are_never_shown() {
    let text = SHORT.replace("key_file = \"relay.key\"", "key = \"swordfish swordfish swordfish\"");
    let file = ConfigFile::parse("secret.toml", &text);
    let plan = file.plan(None).unwrap();
    assert!(!format!("{plan:?} {:?}", file.config).contains("swordfish"));
    assert!(!serde_json::to_string(&plan).unwrap().contains("swordfish"));
    let refusals = [
        ("key = \"sword", "key = [\"sword"),
        ("key = \"swordfish swordfish swordfish\"", "key = \"swordfish\""),
        ("key = \"swordfish swordfish swordfish\"", "key = \"swordfish"),
        ("key = \"swordfish swordfish swordfish\"", "kei = \"swordfish swordfish\""),
        ("key = \"swordfish swordfish swordfish\"", "password = \"swordfish swordfish\""),
        ("key = \"swordfish swordfish swordfish\"", "key = { swordfish = 1 }"),
    ];
    for (from, to) in refusals {
        let refused = ConfigFile::parse("secret.toml", &text.replace(from, to)).plan(None).unwrap_err();
        assert!(!refused.to_string().contains("swordfish"), "{refused}");
    }
}

/// A ring of packets for each queue pair adds up: it is in the figures, and a rule says how.
#[test]
fn flight_records_are_in_the_memory_figures() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/relay-soft.toml");
    let text = fs::read_to_string(path).unwrap();
    let plan = |text: &str| ConfigFile::parse("relay-soft.toml", text).plan(None).unwrap();
    let without = plan(&text);
    let on = "flight_records = \".\"\nflight_record_packets = 4096";
    let with = plan(&text.replace("# flight_records = \".\"", on));
    let node = with.nodes.iter().find(|node| node.name == "relay-a").unwrap();
    let qps = node.workers[0].qps.len() as u64;
    let expected = node.workers.len() as u64 * 2 * qps * 4096 * 128;
    assert!(qps > 0 && qps <= 16, "{qps}");
    assert_eq!(with.memory.tables_bytes - without.memory.tables_bytes, expected);
    let rule = with.rules.iter().find(|rule| rule.name == "flight-records").unwrap();
    assert_eq!((rule.subject.as_str(), rule.result.clone()), ("relay-a", format!("{} KiB", expected >> 10)));
}
