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
    #[error("the EAL did not start: {cause}{}", Quoted(said))]
    Init {
        /// The cause as far as it can be told.
        cause: EalCause,
        /// The last lines DPDK said about it.
        said: Vec<String>,
        /// Its error number.
        source: io::Error,
    },
}

/// Usual causes of a failed start; the text says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EalCause {
    /// No hugepage is reserved or free.
    NoHugepages,
    /// Fewer hugepages than asked for.
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

impl fmt::Display for EalCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EalCause::NoHugepages => f.write_str(
                "no free hugepages; reserve some (`sysctl -w vm.nr_hugepages=512` as root), or start with \
                 --no-huge",
            ),
            EalCause::NotEnoughMemory => f.write_str(
                "not enough free hugepages for the memory asked for; lower -m (or --socket-mem), or reserve more \
                 (`sysctl -w vm.nr_hugepages=N` as root)",
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

/// The lines as `; DPDK said: "a", "b"`.
struct Quoted<'a>(&'a [String]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, line) in self.0.iter().enumerate() {
            write!(f, "{} \"{line}\"", if i == 0 { " (DPDK said:" } else { "," })?;
        }
        if self.0.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

/// Lines quoted at most.
const QUOTED: usize = 3;

/// `RTE_LOG_WARNING`; lines less severe are not quoted.
const WARNING: i32 = 5;

impl EalError {
    /// Makes an error of what DPDK logged, printed and returned.
    pub(super) fn diagnose(args: &[String], log: &[Line], stderr: &str, errno: i32) -> EalError {
        let logged = log.iter().filter(|l| l.level <= WARNING).map(|l| l.text.as_str());
        let lines: Vec<&str> =
            stderr.lines().map(str::trim).filter(|l| !l.is_empty()).chain(logged).collect();
        let cause = find_cause(args, &lines, errno);
        EalError::Init { cause, said: quote(&lines), source: io::Error::from_raw_os_error(errno) }
    }
}

/// The last different lines, without DPDK's prefixes.
fn quote(lines: &[&str]) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    for line in lines {
        let line = line.trim_start_matches("EAL: ").trim_start_matches("FATAL: ").to_owned();
        if !said.contains(&line) {
            said.push(line);
        }
    }
    said.split_off(said.len().saturating_sub(QUOTED))
}

fn find_cause(args: &[String], lines: &[&str], errno: i32) -> EalCause {
    let said = |needle: &str| lines.iter().find(|l| l.contains(needle)).copied();
    let any = |needles: &[&str]| needles.iter().any(|n| said(n).is_some());
    if let Some(line) = said("unrecognized option").or_else(|| said("invalid option")) {
        return EalCause::UnknownOption(unknown_option(line));
    }
    if any(&["Is another primary process running", "Cannot create lock on"]) {
        return EalCause::PrefixInUse(file_prefix(args));
    }
    if any(&["Permission denied"]) || errno == libc::EACCES && !any(&["hugepage"]) {
        return EalCause::NoPermission;
    }
    if any(&["Not enough memory available", "Cannot init memory", "could not be allocated"]) {
        return EalCause::NotEnoughMemory;
    }
    if any(&["Cannot get hugepage information", "No free hugepages", "No available", "no mounted hugetlbfs"])
    {
        return EalCause::NoHugepages;
    }
    if any(&["IOVA as 'PA'", "physical addresses are not available"]) {
        return EalCause::NoPhysicalAddresses;
    }
    if any(&["invalid core list", "invalid coremask", "lcore", "Invalid 'main' lcore"])
        && errno == libc::EINVAL
    {
        return EalCause::BadLcores;
    }
    if let Some(device) = lines.iter().find_map(|l| failed_device(l)) {
        return EalCause::Device(device);
    }
    if any(&["cannot open shared object", "dlopen", "Cannot init plugins"]) {
        return EalCause::DriverLibrary;
    }
    if any(&["does not support", "unsupported cpu"]) {
        return EalCause::CpuUnsupported;
    }
    if any(&["Invalid 'command line' arguments"]) {
        return EalCause::BadOption;
    }
    EalCause::Other
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
    const MARKS: [&str; 4] = [
        "failed to parse device",
        "vdev_probe(): failed to initialize",
        "Unable to parse device",
        "failed to initialize",
    ];
    let rest = MARKS.iter().find_map(|m| line.split_once(m)).map(|(_, rest)| rest)?;
    let name = rest.trim().trim_end_matches(" device").trim_matches(['"', '\'', ' ']);
    (!name.is_empty()).then(|| name.to_owned())
}
