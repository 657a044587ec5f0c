//! The built command: what it prints, where, and with which exit code.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The command, in the root of the project so that paths are as a user writes them.
fn isthmus(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_isthmus"))
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env_remove("ISTHMUS_LOG")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Standard output of a command that must succeed without a word on standard error.
fn said(args: &[&str]) -> String {
    let output = isthmus(args);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{args:?}");
    text(&output.stdout)
}

/// Exit code and standard error of a command that must fail without a word on standard output.
fn failed(args: &[&str]) -> (i32, String) {
    let output = isthmus(args);
    assert_eq!(text(&output.stdout), "", "{args:?}");
    (output.status.code().unwrap(), text(&output.stderr))
}

/// A file with this content, in a directory of its own for each test.
fn file(test: &str, content: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-{test}"));
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join("my.toml");
    fs::write(&path, content).unwrap();
    path
}

/// `check` of every file in `conf/` prints what `tests/data/conf/check/` holds. With `ISTHMUS_BLESS=1` that is written
/// anew; look at the difference before you commit it.
#[test]
fn check_prints_the_plan_of_every_conf_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seen = 0;
    for entry in fs::read_dir(root.join("conf")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(stem) = name.strip_suffix(".toml") else { continue };
        let printed = said(&["check", &format!("conf/{name}")]);
        let golden = root.join("tests/data/conf/check").join(format!("{stem}.txt"));
        if std::env::var_os("ISTHMUS_BLESS").is_some() {
            fs::write(&golden, &printed).unwrap();
        }
        assert_eq!(printed, fs::read_to_string(&golden).unwrap_or_default(), "{name}");
        seen += 1;
    }
    assert!(seen >= 5);
}

#[test]
fn check_as_json_holds_the_same_plan() {
    let printed = said(&["check", "--json", "conf/relay-verbs-a.toml"]);
    let value: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(value["file"], "conf/relay-verbs-a.toml");
    assert_eq!(value["plan"]["nodes"][0]["fabric"]["qp"]["send_depth"], 32);
    assert_eq!(value["plan"]["nodes"][0]["fabric"]["key"]["inline"], "<hidden>");
    assert_eq!(value["problems"], serde_json::json!([]));
    assert!(!printed.contains("an example key"));
}

#[test]
fn check_says_all_problems_at_once_and_exits_with_1() {
    let path = file(
        "problems",
        "[[port]]\nname = \"in\"\ndevice = \"net_null0\"\nqueus = 3\n\n[fabric]\ntransport = \"verbs\"\nsend_depth = 8\n\
         connect = \"10.9.0.1:7471\"\nkey_file = \"k\"\n\n[[node]]\nname = \"a\"\nservice = \"relay\"\nports = [\"in\"]\nworkers = 2\n",
    );
    let path = path.to_str().unwrap();
    let (code, printed) = failed(&["check", path]);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(code, 1);
    let expected = [
        "4: port[in].queues = 3: it is served by 2 workers, each has exactly one queue; leave it out, or set workers = 3",
        "4: port[in].queus = 3: unknown key; did you mean `queues`?",
        "8: fabric.send_depth = 8: 2 x 100 Gbit/s x 5 us / 4096 bytes = 31 needs 32; \
         set send_depth = 32 or more, or correct link_gbps and rtt_us",
    ];
    assert_eq!(lines, expected.map(|line| format!("{path}:{line}")));
    let output = isthmus(&["check", "--json", path]);
    assert_eq!(output.status.code(), Some(1));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["problems"].as_array().unwrap().len(), 3);
    assert_eq!(value["problems"][2]["key"], "fabric.send_depth");
    assert_eq!(value["problems"][2]["line"], 8);
}

#[test]
fn check_warns_of_what_this_machine_has_not_enough_memory_for() {
    let conf =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/source-sink.toml")).unwrap();
    let path = file("large", &conf.replacen("[eal]\n", "[eal]\nmemory_mib = 16000000\n", 1));
    let path = path.to_str().unwrap();
    let printed = said(&["check", path]);
    assert!(printed.starts_with(&format!("{path}: this can run, but not on this machine\n")), "{printed}");
    let warning = printed.lines().find(|line| line.starts_with("warning: ")).unwrap_or(&printed);
    let what = "eal.memory_mib = 16000000: `run` would refuse this on this machine: this machine has ";
    assert!(warning.contains(what) && warning.ends_with("or run it on a machine with more"), "{warning}");
    let value: serde_json::Value = serde_json::from_str(&said(&["check", "--json", path])).unwrap();
    assert_eq!(value["warnings"][0]["key"], "eal.memory_mib");
    let (code, refused) = failed(&["run", path]);
    assert!(code == 1 && refused.contains("memory_mib = 16000000: this machine has "), "{refused}");
}

#[test]
fn a_refused_configuration_starts_nothing() {
    let path = file("refused", "[[node]]\nname = \"a\"\nservice = \"sink\"\nports = [\"nowhere\"]\n");
    let (code, printed) = failed(&["run", path.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(printed.ends_with(
        ":4: node[a].ports = [\"nowhere\"]: there is no port \"nowhere\"; add it as a [[port]]\n"
    ));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let (code, printed) = failed(&["check", "nowhere.toml"]);
    assert_eq!(code, 1);
    assert!(printed.starts_with("nowhere.toml: "), "{printed}");
    assert_eq!(printed.lines().count(), 1, "{printed}");
}

#[test]
fn eal_options_of_the_command_line_win() {
    let eal_of = |args: &[&str]| {
        let value: serde_json::Value = serde_json::from_str(&said(args)).unwrap();
        let words = value["plan"]["eal_args"].as_array().unwrap().clone();
        words.iter().map(|word| word.as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    let own = eal_of(&["check", "--json", "conf/relay-verbs-a.toml"]);
    assert!(own.contains("--lcores 0@0,1@0,2@1") && own.contains("--in-memory"), "{own}");
    let words = ["-l", "3-5", "--no-huge", "-m", "256", "--vdev", "net_null0,size=128", "-n", "2"];
    let command = ["--", "check", "--json", "conf/relay-verbs-a.toml"];
    let given = eal_of(&[&words[..], &command[..]].concat());
    for part in ["-l 3,4,5", "--main-lcore 3", "--no-huge", "-m 256", "--vdev net_null0,size=128", "-n 2"] {
        assert!(given.contains(part), "{part} in {given}");
    }
    assert!(!given.contains("0@0") && !given.contains("in-memory") && !given.contains("size=64"), "{given}");
}

#[test]
fn an_eal_option_of_the_command_line_is_blamed_itself() {
    let check = ["--", "check", "conf/relay-soft.toml"];
    let blamed: [(&[&str], &str); 3] = [
        (&["--main-lcore", "7"], "command line: --main-lcore 7: not among the lcores; "),
        (&["-m", "3"], "command line: -m 3: "),
        (&["-l", "0"], "add lcores to `-l 0` of the command line"),
    ];
    for (option, part) in blamed {
        let (code, printed) = failed(&[option, &check[..]].concat());
        assert_eq!(code, 1, "{option:?}");
        assert!(printed.lines().any(|line| line.contains(part)), "{part} in {printed}");
    }
}

#[test]
fn check_looks_at_the_key_file() {
    use std::os::unix::fs::PermissionsExt;
    let conf =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/relay-verbs-b.toml")).unwrap();
    let own_key = "key = \"an example key; make one of your own\"";
    assert!(conf.contains(own_key));
    let path = file("key", &conf.replace(own_key, "key_file = \"relay.key\""));
    // Beside the configuration, wherever that is called from.
    let key = path.with_file_name("relay.key");
    drop(fs::remove_file(&key));
    let check = |part: &str| {
        let (code, printed) = failed(&["check", path.to_str().unwrap()]);
        assert!(code == 1 && printed.contains("fabric.key_file = \"relay.key\": "), "{printed}");
        assert!(printed.contains(part) && printed.lines().count() == 1, "{part} in {printed}");
    };
    check("No such file");
    let write = |text: &str, mode| {
        fs::write(&key, text).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
    };
    write("a key that is long enough for anybody", 0o644);
    check("chmod 600");
    write("short", 0o600);
    check("openssl rand -hex 32");
    write("a key that is long enough for anybody", 0o600);
    said(&["check", path.to_str().unwrap()]);
}

#[test]
fn a_command_line_that_is_not_understood_exits_with_2() {
    let slips: [(&[&str], &str); 8] = [
        (&["--no-huge", "run", "x.toml"], "isthmus [EAL options] -- COMMAND"),
        (&["run", "--no-huge", "x.toml"], "isthmus [EAL options] -- COMMAND"),
        (&[], "Usage: isthmus [EAL options] -- <COMMAND>"),
        (&["chek", "x.toml"], "'check'"),
        (&["check"], "<CONF>"),
        (&["run", "x.toml", "--", "--no-huge"], "isthmus [EAL options] -- COMMAND"),
        (&["-l", "0-1", "check", "x.toml"], "-l"),
        (&["--no-huge", "--in-memory", "--", "check", "conf/source-sink.toml"], "exclude each other"),
    ];
    for (args, part) in slips {
        let (code, printed) = failed(args);
        assert_eq!(code, 2, "{args:?}");
        assert!(printed.contains(part), "{args:?}: {printed}");
    }
}

#[test]
fn version_names_the_libraries() {
    let printed = said(&["--version"]);
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[0].starts_with(concat!("isthmus ", env!("CARGO_PKG_VERSION"))), "{printed}");
    assert!(lines.iter().any(|line| line.contains("DPDK 2")), "{printed}");
    assert!(lines.iter().any(|line| line.contains("rdma-core")), "{printed}");
}

#[test]
fn help_is_enough_to_start_from() {
    let printed = said(&["--help"]);
    for part in
        ["Examples:", "Exit codes:", "conf/", "EAL options:", "ISTHMUS_LOG", "check", "devices", "run"]
    {
        assert!(printed.contains(part), "{part} in\n{printed}");
    }
    assert!(!printed.contains("generate"));
    let shown = printed.lines().filter_map(|line| line.trim_start().strip_prefix("isthmus run "));
    for conf in shown.filter(|conf| conf.starts_with("conf/")) {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(conf).exists(), "{conf}");
    }
}

#[test]
fn man_page_and_completions_come_out() {
    assert!(said(&["generate", "man"]).contains(".TH isthmus 1"));
    assert!(said(&["generate", "completions", "bash"]).contains("_isthmus"));
}

/// DPDK without hugepages and without the PCI bus, so that it runs anywhere.
#[test]
fn devices_lists_a_virtual_device() {
    let words =
        ["--no-huge", "-m", "64", "--no-pci", "--vdev", "net_null0", "--file-prefix", "isthmus-cli-test"];
    let output = isthmus(&[&words[..], &["--", "devices", "--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let port = &value["ports"][0];
    assert_eq!((&port["name"], &port["driver"]), (&"net_null0".into(), &"net_null".into()), "{value}");
    assert_eq!(port["mtu"], 1500);
    assert_eq!(port["rx_queues"], 1024);
    assert!(port["mac"].as_str().unwrap().len() == 17, "{value}");
    assert!(value.get("rdma").is_some() || value.get("rdma_error").is_some(), "{value}");
}

#[test]
fn devices_fails_when_dpdk_does_not_start() {
    let words =
        ["--no-huge", "-m", "64", "--no-pci", "--vdev", "net_nosuch0", "--file-prefix", "isthmus-cli-nosuch"];
    let output = isthmus(&[&words[..], &["--", "devices"]].concat());
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("net_nosuch0") && said.contains("RDMA devices"), "{said}");
}

const CAPTURE: &str = "tests/data/roce/rxe61-ipv6.pcap";

#[test]
fn decode_tells_a_capture() {
    let words = said(&["decode", CAPTURE]);
    assert!(words.contains("RC_SEND_ONLY") && words.contains("Conversation 1"), "{words}");
    let frames = said(&["decode", "--frames", CAPTURE]);
    assert!(frames.contains("RC_SEND_ONLY") && !frames.contains("Conversation 1"), "{frames}");
    for line in said(&["decode", "--json", CAPTURE]).lines() {
        let frame: serde_json::Value = serde_json::from_str(line).unwrap();
        for key in ["frame", "src", "dst", "opcode", "opcode_value", "dest_qpn", "psn", "icrc", "payload_len"]
        {
            assert!(!frame[key].is_null(), "{key} in {line}");
        }
    }
}

/// A pipe cannot be read twice, nor opened twice: it is told like a file all the same.
#[test]
fn decode_reads_pipes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(CAPTURE);
    let expected = said(&["decode", CAPTURE]);
    assert!(expected.contains("frame 25 at 9.530297 s: BTH opcode 0x11"), "{expected}");
    let fifo = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("decode-{}.fifo", std::process::id()));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let bytes = std::fs::read(&path).unwrap();
    let writer = std::thread::spawn({
        let (fifo, bytes) = (fifo.clone(), bytes.clone());
        move || std::fs::write(fifo, bytes).unwrap()
    });
    assert_eq!(said(&["decode", fifo.to_str().unwrap()]), expected);
    writer.join().unwrap();
    std::fs::remove_file(&fifo).unwrap();

    assert_eq!(text(&piped(&["decode", "-"], &bytes).stdout), expected);
    let json = text(&piped(&["decode", "--json", "-"], &bytes).stdout);
    assert_eq!(json, said(&["decode", "--json", CAPTURE]));
    let nothing = piped(&["decode", "-"], b"");
    assert_eq!(nothing.status.code(), Some(1));
    assert!(text(&nothing.stderr).starts_with("standard input: "), "{nothing:?}");
    // Standard input that is a file is read from where it stands, twice.
    let file = std::fs::File::open(&path).unwrap();
    assert_eq!(text(&decoder(&["decode", "-"]).stdin(file).output().unwrap().stdout), expected);
}

fn decoder(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isthmus"));
    command.args(words).current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// What comes of `bytes` on standard input.
fn piped(words: &[&str], bytes: &[u8]) -> Output {
    let pipes = [(); 3].map(|()| Stdio::piped());
    let [input, output, errors] = pipes;
    let mut child = decoder(words).stdin(input).stdout(output).stderr(errors).spawn().unwrap();
    let (mut input, bytes) = (child.stdin.take().unwrap(), bytes.to_vec());
    // A capture is longer than a pipe.
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    output
}

#[test]
fn decode_refuses_what_is_no_capture() {
    let (code, printed) = failed(&["decode", "Cargo.toml"]);
    assert_eq!((code, printed.lines().count()), (1, 1), "{printed}");
    assert!(printed.starts_with("Cargo.toml: "), "{printed}");
    assert_eq!(failed(&["decode", "--frames", "--conversations", CAPTURE]).0, 2);
}

/// `isthmus decode big.pcap | head`.
#[test]
fn a_reader_that_leaves_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_isthmus"))
        .args(["decode", "tests/data/roce/rxe61-ipv4.pcap"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn setup_says_also_that_nothing_is_missing() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/setup");
    let output = Command::new(script).args(["--check", "--no-guest", "--hugepages", "0"]).output().unwrap();
    let (missing, said) = (text(&output.stdout), text(&output.stderr));
    if output.status.success() {
        assert_eq!((&*missing, &*said), ("", "setup: nothing is missing\n"));
    } else {
        assert!(!said.contains("nothing is missing"), "{missing}{said}");
        eprintln!(
            "SKIPPED: scripts/setup --check where nothing is missing: {}",
            missing.lines().next().unwrap_or(&said)
        );
    }
}

/// In a process of its own: the same test once more, with a word in its environment.
#[test]
fn a_panic_of_any_thread_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    let word = "ISTHMUS_TEST_PANIC";
    if std::env::var_os(word).is_some() {
        isthmus::cli::end_on_panic();
        drop(std::thread::spawn(|| panic!("a worker's")).join());
        return;
    }
    let words = ["--exact", "a_panic_of_any_thread_ends_the_process", "--nocapture"];
    let output = Command::new(std::env::current_exe().unwrap()).args(words).env(word, "1").output().unwrap();
    let said = text(&output.stderr);
    assert!(
        output.status.signal() == Some(libc::SIGABRT) && said.contains("a worker's"),
        "{}: {said}",
        output.status
    );
}
