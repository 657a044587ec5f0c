//! What a user reads when the EAL does not start. Each case is a child process: this binary again, with the EAL
//! arguments in an environment variable; it prints the error.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

use dpdk_bind::eal::Hugepages;
use dpdk_bind::{Eal, EalError};

/// Arguments for a child, separated by spaces.
const ARGS: &str = "DPDK_BIND_TEST_ARGS";
/// Set for a child that stays up until its standard input ends.
const HOLD: &str = "DPDK_BIND_TEST_HOLD";
/// Nobody.
const NOBODY: u32 = 65534;

fn main() -> ExitCode {
    if let Ok(args) = std::env::var(ARGS) {
        return child(&args);
    }
    if std::env::args().any(|a| a == "--list") {
        println!("start_failures: test");
        return ExitCode::SUCCESS;
    }
    let cases: [(&str, fn()); 11] = [
        ("it_starts_without_a_word", it_starts_without_a_word),
        ("unknown_options_are_named", unknown_options_are_named),
        ("bad_values_are_quoted", bad_values_are_quoted),
        ("lcores_that_are_not_there", lcores_that_are_not_there),
        ("devices_and_drivers_that_are_not_there", devices_and_drivers_that_are_not_there),
        ("a_failed_device_is_a_start_problem", a_failed_device_is_a_start_problem),
        ("more_memory_than_there_is", more_memory_than_there_is),
        ("another_primary_with_the_same_prefix", another_primary_with_the_same_prefix),
        ("no_permission", no_permission),
        ("no_hugepages", no_hugepages),
        ("arguments_are_checked_before_dpdk_sees_them", arguments_are_checked_before_dpdk_sees_them),
    ];
    let filter = std::env::args().skip(1).find(|a| !a.starts_with("--")).unwrap_or_default();
    let mut failed: Vec<&str> = Vec::new();
    for (name, case) in cases.iter().filter(|(name, _)| name.contains(&filter)) {
        let passed = std::panic::catch_unwind(case).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed.extend((!passed).then_some(*name));
    }
    clean_up();
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the error, or the problems of a start that succeeded.
fn child(args: &str) -> ExitCode {
    match Eal::init(args.split_whitespace()) {
        Err(e) => {
            println!("{e}");
            ExitCode::FAILURE
        }
        Ok(eal) => {
            println!("started{}", eal.start_problems());
            if std::env::var_os(HOLD).is_some() {
                let _ = std::io::stdin().read_line(&mut String::new());
            }
            ExitCode::SUCCESS
        }
    }
}

fn prefix() -> String {
    format!("dpdk_bind_start_{}", std::process::id())
}

fn clean_up() {
    for dir in ["/var/run".into(), std::env::temp_dir()] {
        let _ = std::fs::remove_dir_all(dir.join("dpdk").join(prefix()));
    }
}

fn command(args: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(ARGS, format!("--no-pci --file-prefix={} {args}", prefix())).env("RUST_BACKTRACE", "0");
    command
}

/// Starts with `args` and returns all it wrote to standard output; standard error must stay empty.
fn start(args: &str) -> String {
    output(command(args))
}

fn output(mut command: Command) -> String {
    let out = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stderr), "", "nothing goes to standard error");
    String::from_utf8(out.stdout).unwrap()
}

/// Fails to start with one line that has all of `parts`.
fn fails(args: &str, parts: &[&str]) {
    let text = start(args);
    assert!(text.starts_with("the EAL did not start: ") && text.lines().count() == 1, "{args}: {text}");
    for part in parts {
        assert!(text.contains(part), "{args}: no '{part}' in: {text}");
    }
}

fn it_starts_without_a_word() {
    assert_eq!(start("--no-huge -m 16"), "started\n");
    let mounted = std::fs::read_to_string("/proc/mounts").is_ok_and(|m| m.contains(" hugetlbfs "));
    if Hugepages::free_bytes() < 32 << 20 {
        return println!("SKIPPED it_starts_without_a_word on hugepages: fewer than 32 MiB are free");
    }
    assert_eq!(start("--in-memory -m 16"), "started\n");
    if is_root() && mounted {
        assert_eq!(start("-m 16"), "started\n");
    } else {
        println!("SKIPPED it_starts_without_a_word on hugepage files: needs root and a mounted hugetlbfs");
    }
}

fn unknown_options_are_named() {
    fails("--no-huge --nonsense", &["'--nonsense'", "spelling"]);
    fails("--no-huge -Z", &["'-Z'"]);
}

fn bad_values_are_quoted() {
    fails("--no-huge --in-memory", &["excludes another", "not compatible with --in-memory"]);
    fails("--no-huge --iova-mode=sideways", &["bad value", "iova-mode"]);
    fails("--no-huge --main-lcore", &["requires an argument"]);
}

fn lcores_that_are_not_there() {
    fails("--no-huge -l 900", &["lcores asked for do not exist", "900"]);
    fails("--no-huge --lcores 0@9999", &["lcores asked for"]);
    fails("--no-huge -l 0 --main-lcore 1", &["lcores asked for"]);
}

fn devices_and_drivers_that_are_not_there() {
    fails("--no-huge --vdev net_nonsense0", &["device 'net_nonsense0'", "--vdev"]);
    fails("--no-huge -d /nonexistent.so", &["driver library", "/nonexistent.so"]);
}

fn a_failed_device_is_a_start_problem() {
    let text = start("--no-huge -m 16 --vdev net_pcap0,rx_pcap=/nonexistent");
    assert!(text.starts_with("started (DPDK said: ") && text.contains("net_pcap0"), "{text}");
}

fn more_memory_than_there_is() {
    fails("--no-huge -m 100000000", &["not as much memory", "-m"]);
    if Hugepages::free_bytes() > 0 {
        fails("--in-memory -m 100000000", &["not as much memory", "vm.nr_hugepages"]);
    } else {
        println!("SKIPPED more_memory_than_there_is on hugepages: none are free");
    }
}

fn another_primary_with_the_same_prefix() {
    let mut first = Held::start(command("--no-huge -m 16"));
    fails("--no-huge -m 16", &["another primary process", &prefix(), "--file-prefix"]);
    first.end();
    assert_eq!(start("--no-huge -m 16"), "started\n");
}

/// A child that is up.
struct Held(Child);

impl Held {
    fn start(mut command: Command) -> Held {
        use std::io::BufRead;
        let mut child = command.env(HOLD, "1").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "started\n");
        Held(child)
    }

    fn end(&mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

fn no_permission() {
    if !is_root() || Hugepages::free_bytes() == 0 {
        return println!("SKIPPED no_permission: needs root to become somebody else, and free hugepages");
    }
    let mut somebody = command("-m 16");
    // Somebody else cannot read the build directory; the open file can still be run.
    let copy = std::env::temp_dir().join(prefix());
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let args: Vec<_> = somebody.get_envs().filter_map(|(k, v)| Some((k.to_owned(), v?.to_owned()))).collect();
    somebody = Command::new(&copy);
    somebody.envs(args).uid(NOBODY).gid(NOBODY).current_dir("/");
    let text = output(somebody);
    std::fs::remove_file(copy).unwrap();
    assert!(text.contains("permission denied; run as root") && text.contains("Permission denied"), "{text}");
}

/// In a mount namespace whose `/sys` shows no hugepages.
fn no_hugepages() {
    let hide = "for d in /sys/kernel/mm/hugepages /sys/devices/system/node/node*/hugepages; do \
                mount -t tmpfs none $d && mkdir $d/hugepages-2048kB && cd $d/hugepages-2048kB && \
                for f in nr free resv surplus nr_overcommit; do echo 0 >${f}_hugepages; done || exit 77; done; \
                exec \"$0\"";
    let me = command("-m 16");
    let mut hidden = Command::new("unshare");
    hidden.args(["-m", "sh", "-c", hide]).arg(std::env::current_exe().unwrap());
    hidden.envs(me.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let out = match hidden.output() {
        Ok(out) if out.status.code() == Some(1) && out.stderr.is_empty() => out,
        Ok(out) => {
            let why = String::from_utf8_lossy(&out.stderr).into_owned();
            return println!("SKIPPED no_hugepages: no mount namespace to hide them in ({})", why.trim());
        }
        Err(e) => return println!("SKIPPED no_hugepages: unshare: {e}"),
    };
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("no free hugepages; reserve some") && text.contains("--no-huge"), "{text}");
}

fn arguments_are_checked_before_dpdk_sees_them() {
    let error = Eal::init(["--file-prefix=a\0b"]).unwrap_err();
    assert!(matches!(&error, EalError::Argument(a) if a == "--file-prefix=a\\0b"), "{error}");
    assert!(error.to_string().contains("NUL"));
}
