//! Why the EAL did not start, in words.

use std::fmt;
use std::io;

use super::log::Line;

/// Why [`Eal::init`](super::Eal::init) failed.
#[derive(Debug, thiserror::Error)]
pub enum EalError {
    /// It was called before.
    #[error("the EAL was already started in this process: DPDK allows one start, successful or not")]
    AlreadyStarted,
    /// An argument cannot be passed to C.
    #[error("EAL argument '{0}' contains a NUL byte: remove it")]
    Argument(String),
    /// DPDK gave up.
    #[error("the EAL did not start: {cause}{}", cause.evidence(said))]
    Init {
        /// The cause as far as it can be told.
        cause: EalCause,
        /// The last lines DPDK said about it.
        said: Said,
        /// Its error number, if it left one.
        source: Option<io::Error>,
    },
}

/// Usual causes of a failed start; the text says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EalCause {
    /// No hugepage is reserved or free.
    NoHugepages,
    /// Hugepages, but no file system to take them from.
    NoHugetlbfs,
    /// Less memory than asked for.
    NotEnoughMemory,
    /// Files or devices this user may not open.
    NoPermission,
    /// Another primary process uses the same file prefix.
    PrefixInUse(String),
    /// An option DPDK does not know.
    UnknownOption(String),
    /// Options that exclude each other, or a value that is not one.
    BadOption,
    /// Lcores that do not exist or may not be used.
    BadLcores,
    /// Physical addresses were asked for and cannot be had.
    NoPhysicalAddresses,
    /// A device that could not be made or found.
    Device(String),
    /// A driver library that could not be loaded.
    DriverLibrary,
    /// A CPU without the instructions DPDK was built for.
    CpuUnsupported,
    /// None of the above.
    Other,
}

impl EalCause {
    /// What DPDK said, where that says more than the cause: of causes that are known it is noise.
    fn evidence(&self, said: &Said) -> String {
        match self {
            EalCause::Other | EalCause::BadOption | EalCause::DriverLibrary => said.to_string(),
            // That it failed is known; why it did is not.
            EalCause::Device(_) => said.without(|line| failed_device(line).is_some()).to_string(),
            _ => String::new(),
        }
    }
}

impl fmt::Display for EalCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EalCause::NoHugepages => f.write_str(
                "no free hugepages; reserve some (`sysctl -w vm.nr_hugepages=512` as root), or start with \
                 --no-huge",
            ),
            EalCause::NoHugetlbfs => f.write_str(
                "hugepages are reserved, but no hugetlbfs is mounted; mount one (`mount -t hugetlbfs none \
                 /dev/hugepages` as root), or use --in-memory",
            ),
            EalCause::NotEnoughMemory => f.write_str(
                "not as much memory as -m (or --socket-mem) asks for; lower it, or reserve more hugepages (`sysctl -w \
                 vm.nr_hugepages=N` as root)",
            ),
            EalCause::NoPermission => f.write_str(
                "permission denied; run as root, or give this user the hugepage directory and use --in-memory, or \
                 start with --no-huge --no-pci",
            ),
            EalCause::PrefixInUse(prefix) => write!(
                f,
                "another primary process is running with file prefix '{prefix}'; stop it, or choose another \
                 --file-prefix, or use --in-memory"
            ),
            EalCause::UnknownOption(option) => {
                write!(f, "DPDK does not know the EAL option '{option}'; check its spelling")
            }
            EalCause::BadOption => {
                f.write_str("an EAL option has a bad value or excludes another one; see what DPDK said")
            }
            EalCause::BadLcores => f.write_str(
                "the lcores asked for do not exist or are not allowed here; compare -l, -c or --lcores with `nproc` \
                 and `taskset -p $$`",
            ),
            EalCause::NoPhysicalAddresses => f.write_str(
                "physical addresses are not available to this process; use --iova-mode=va, or run as root",
            ),
            EalCause::Device(device) => write!(
                f,
                "the device '{device}' could not be made; check the driver's name and arguments (`--vdev`, `-a`)"
            ),
            EalCause::DriverLibrary => {
                f.write_str("a driver library could not be loaded; check the path given by -d")
            }
            EalCause::CpuUnsupported => {
                f.write_str("this CPU lacks instructions DPDK was built for; build DPDK for this machine")
            }
            EalCause::Other => f.write_str("see what DPDK said"),
        }
    }
}

/// The last few different lines DPDK logged about a failure. Displays as ` (DPDK said: "a", "b")`, or as nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said(Vec<String>);

impl Said {
    /// Lines quoted at most.
    const MOST: usize = 3;

    /// Keeps the last lines that differ in more than numbers, without DPDK's prefixes.
    pub(crate) fn quote<'a>(lines: impl IntoIterator<Item = &'a str>) -> Said {
        let shape = |line: &str| line.replace(|c: char| c.is_ascii_digit(), "");
        let mut said: Vec<String> = Vec::new();
        for line in lines {
            let line = line.trim_start_matches("EAL: ").trim_start_matches("FATAL: ");
            if !said.iter().any(|known| shape(known) == shape(line)) {
                said.push(line.to_owned());
            }
        }
        Said(said.split_off(said.len().saturating_sub(Said::MOST)))
    }

    fn without(&self, known: impl Fn(&str) -> bool) -> Said {
        Said(self.0.iter().filter(|line| !known(line)).cloned().collect())
    }

    /// The lines.
    pub fn lines(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, line) in self.0.iter().enumerate() {
            write!(f, "{} \"{line}\"", if i == 0 { " (DPDK said:" } else { "," })?;
        }
        if self.0.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

/// `RTE_LOG_NOTICE`; lines less severe are not looked at.
const NOTICE: i32 = 6;

/// What a line says and what it means. The first entry that any line matches decides; `None` stands for causes
/// that need a closer look (see [`find_cause`]).
const SIGNS: [(&str, Option<EalCause>); 28] = [
    ("unrecognized option", None),
    ("invalid option -- ", None),
    ("requires an argument", Some(EalCause::BadOption)),
    ("Is another primary process running", None),
    ("Permission denied", Some(EalCause::NoPermission)),
    ("Operation not permitted", Some(EalCause::NoPermission)),
    ("no mounted hugetlbfs", Some(EalCause::NoHugetlbfs)),
    ("No free", None),
    ("No available", Some(EalCause::NoHugepages)),
    ("Cannot get hugepage information", Some(EalCause::NoHugepages)),
    ("Not enough memory available", Some(EalCause::NotEnoughMemory)),
    ("Cannot init memory", Some(EalCause::NotEnoughMemory)),
    ("IOVA as 'PA'", Some(EalCause::NoPhysicalAddresses)),
    ("physical addresses are not available", Some(EalCause::NoPhysicalAddresses)),
    ("invalid core list", Some(EalCause::BadLcores)),
    ("invalid coremask", Some(EalCause::BadLcores)),
    ("invalid parameter for --lcores", Some(EalCause::BadLcores)),
    ("RTE_MAX_LCORE", Some(EalCause::BadLcores)),
    ("Main lcore is not enabled", Some(EalCause::BadLcores)),
    ("failed to parse device", None),
    ("Unable to parse device", None),
    ("failed to initialize", None),
    ("Cannot probe", None),
    ("cannot open shared object", Some(EalCause::DriverLibrary)),
    ("Cannot init plugins", Some(EalCause::DriverLibrary)),
    ("unsupported cpu", Some(EalCause::CpuUnsupported)),
    ("This system does not support", Some(EalCause::CpuUnsupported)),
    ("Invalid 'command line' arguments", Some(EalCause::BadOption)),
];

impl EalError {
    /// Makes an error of what DPDK logged, printed and returned.
    pub(super) fn diagnose(args: &[String], log: &[Line], stderr: &str, errno: i32) -> EalError {
        let logged = log.iter().filter(|l| l.level <= NOTICE).map(|l| l.text.as_str());
        // A subscriber that writes to standard error has repeated there what was logged.
        let is_logged = |line: &&str| log.iter().any(|l| line.contains(&l.text));
        let printed = stderr.lines().map(str::trim).filter(|l| !l.is_empty() && !is_logged(l));
        let lines: Vec<&str> = logged.chain(printed).collect();
        let cause = find_cause(args, &lines);
        let source = (errno != 0).then(|| io::Error::from_raw_os_error(errno));
        EalError::Init { said: Said::quote(lines), cause, source }
    }
}

fn find_cause(args: &[String], lines: &[&str]) -> EalCause {
    let matching = |needle: &str| lines.iter().find(|l| l.contains(needle)).copied();
    SIGNS
        .iter()
        .find_map(|(needle, cause)| {
            let line = matching(needle)?;
            cause.clone().or_else(|| look_closer(needle, line, args, lines))
        })
        .unwrap_or(EalCause::Other)
}

/// Causes that carry a name, or depend on more than one line.
fn look_closer(needle: &str, line: &str, args: &[String], lines: &[&str]) -> Option<EalCause> {
    match needle {
        "unrecognized option" | "invalid option -- " => Some(EalCause::UnknownOption(unknown_option(line))),
        "Is another primary process running" => Some(EalCause::PrefixInUse(file_prefix(args))),
        // One page size without pages is normal as long as another one does.
        "No free" => lines
            .iter()
            .any(|l| l.contains("Cannot get hugepage information"))
            .then_some(EalCause::NoHugepages),
        _ => failed_device(line).map(EalCause::Device),
    }
}

/// From getopt's "prog: unrecognized option '--foo'" or "prog: invalid option -- 'Z'".
fn unknown_option(line: &str) -> String {
    let quoted = line.split('\'').nth(1).unwrap_or_default();
    if line.contains("invalid option") { format!("-{quoted}") } else { quoted.to_owned() }
}

/// The file prefix the arguments ask for.
fn file_prefix(args: &[String]) -> String {
    let with_equals = args.iter().find_map(|a| a.strip_prefix("--file-prefix="));
    let separate = args.iter().position(|a| a == "--file-prefix").and_then(|i| args.get(i + 1));
    with_equals.or(separate.map(String::as_str)).unwrap_or("rte").to_owned()
}

/// The device named in a line about one that failed.
fn failed_device(line: &str) -> Option<String> {
    const MARKS: [&str; 4] =
        ["failed to parse device", "Unable to parse device", "failed to initialize", "Cannot probe"];
    let rest = MARKS.iter().find_map(|m| line.split_once(m)).map(|(_, rest)| rest)?;
    let name = rest.trim().trim_end_matches(" device").trim_matches(['"', '\'', ' ']);
    (!name.is_empty() && name != "devices").then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnose(args: &[&str], log: &[(i32, &str)], stderr: &str) -> (EalCause, String) {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let log: Vec<Line> = log.iter().map(|&(level, text)| Line { level, text: text.into() }).collect();
        let error = EalError::diagnose(&args, &log, stderr, libc::EINVAL);
        let text = error.to_string();
        let EalError::Init { cause, .. } = error else { unreachable!() };
        (cause, text)
    }

    /// Lines that DPDK 22.11 wrote on the occasions named.
    #[test]
    fn causes_are_told_from_what_dpdk_says() {
        type Case = (&'static [(i32, &'static str)], &'static str, EalCause);
        let cases: [Case; 9] = [
            (&[], "isthmus: unrecognized option '--foo'", EalCause::UnknownOption("--foo".into())),
            (&[], "isthmus: invalid option -- 'Z'", EalCause::UnknownOption("-Z".into())),
            (
                &[(
                    4,
                    "EAL: Cannot create lock on '/var/run/dpdk/rte/config'. Is another primary process running?",
                )],
                "EAL: FATAL: Cannot init config",
                EalCause::PrefixInUse("rte".into()),
            ),
            (
                &[(5, "EAL: No free 2048 kB hugepages reported on node 0")],
                "EAL: FATAL: Cannot get hugepage information.",
                EalCause::NoHugepages,
            ),
            (
                &[(
                    6,
                    "EAL: 3072 hugepages of size 2097152 reserved, but no mounted hugetlbfs found for that size",
                )],
                "EAL: FATAL: Cannot get hugepage information.",
                EalCause::NoHugetlbfs,
            ),
            (
                &[
                    (5, "EAL: No free 1048576 kB hugepages reported on node 0"),
                    (4, "EAL: Not enough memory available! Requested: 100000MB, available: 6144MB"),
                ],
                "EAL: FATAL: Cannot init memory",
                EalCause::NotEnoughMemory,
            ),
            (
                &[(4, "EAL: get_seg_fd(): open '/dev/hugepages/rtemap_0' failed: Permission denied")],
                "EAL: FATAL: Cannot init memory",
                EalCause::NoPermission,
            ),
            (
                &[(4, "EAL: failed to parse device \"net_nonsense0\"")],
                "",
                EalCause::Device("net_nonsense0".into()),
            ),
            (&[(4, "EAL: something new")], "", EalCause::Other),
        ];
        for (log, stderr, cause) in cases {
            assert_eq!(diagnose(&[], log, stderr).0, cause, "{log:?} {stderr}");
        }
    }

    #[test]
    fn the_prefix_is_the_one_asked_for() {
        let log = [(4, "EAL: Cannot create lock on 'x'. Is another primary process running?")];
        for args in [&["--file-prefix=east"][..], &["-m", "1", "--file-prefix", "east"]] {
            assert_eq!(diagnose(args, &log, "").0, EalCause::PrefixInUse("east".into()));
        }
    }

    #[test]
    fn the_last_different_lines_are_quoted() {
        let log = [(7, "info"), (4, "one"), (4, "two 1"), (4, "two 2"), (4, "three"), (4, "EAL: four")];
        let (_, text) = diagnose(&[], &log, "EAL: FATAL: four\n");
        // Where the cause is known its words are enough.
        let (_, known) = diagnose(&[], &[(4, "EAL: noise")], "EAL: FATAL: Cannot init memory");
        assert!(!known.contains("said:") && !known.contains("noise"), "{known}");
        assert!(text.ends_with(r#"(DPDK said: "two 1", "three", "four")"#), "{text}");
        assert!(!diagnose(&[], &[], "").1.contains("said:"));
    }

    #[test]
    fn a_device_that_failed_is_named_once_and_with_its_reason() {
        let log = [
            (4, "PMD: Couldn't open /none: No such file or directory"),
            (4, "EAL: failed to initialize net_pcap0 device"),
        ];
        // As a subscriber writes it.
        let stderr = "2026-01-01T00:00:00Z ERROR dpdk: EAL: failed to initialize net_pcap0 device";
        let (cause, text) = diagnose(&[], &log, stderr);
        assert_eq!(cause, EalCause::Device("net_pcap0".into()));
        assert!(
            text.ends_with(r#"(DPDK said: "PMD: Couldn't open /none: No such file or directory")"#),
            "{text}"
        );
    }
}
