//! Words of the command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand};

use super::bench::Bench;
use super::generate::What;
use super::version;
use crate::config::EalWordError;
use crate::decode::{DecodeOptions, Followed, Show};

const ABOUT: &str = "Carries Ethernet flows over RDMA and serves memcached's clients by it: DPDK queues and RDMA queue pairs in one poll loop";

const LONG_ABOUT: &str = "\
Carries Ethernet flows over RDMA and serves memcached's clients by it: DPDK queues and RDMA queue pairs in one poll loop.

A configuration file says what to run: ports, nodes and how they are joined. A node is a relay of Ethernet flows, a key-value \
gateway that speaks memcached's protocol (kv), a memory node that keeps its items (memory), clients that measure it (load), \
or a traffic source or sink. Commented examples, one per role, are in conf/.";

const AFTER_HELP: &str = "\
EAL options:
  What stands before `--` goes to DPDK. Without `--` every word is ours, and EAL
  options come from [eal] of the configuration. The command line wins: single
  values replace the key of [eal]; --vdev, -a and -b add to its lists, and one that
  names the device of a [[port]] replaces that device's arguments.

Examples:
  isthmus check conf/relay-loopback.toml
      what would run: every number, and every rule it comes from
  isthmus run conf/relay-loopback.toml
      source, both ends of a relay and sink in one process, no RDMA device
  isthmus run conf/kv-soft.toml
      gateway and memory node of the key-value service in one process, reached through a tap interface
  isthmus run conf/kv-load.toml
      the same with clients that verify every value, and what they measured
  isthmus -l 0-2 --no-huge -- run my.toml
      with EAL options of its own
  isthmus --vdev net_null0 -- devices
      DPDK ports and RDMA devices with their limits
  isthmus decode roce.pcap
      a capture of RoCE traffic in words: frames, conversations, what went wrong
  isthmus bench kv udp://127.0.0.1:11211 --value 4KiB --ratio 7:3
      a load on a key-value service, or on memcached: rates, latencies, every value verified

Exit codes:
  0  done, or drained after SIGINT or SIGTERM (a second one, 0.3 s later or more, exits at once with 130 or 143)
  1  the configuration was refused (one line per problem), or the command failed
  2  the command line was not understood

Signals:
  SIGHUP   read the configuration again: gateways take another list of memory nodes
  SIGUSR1  write flight records (fabric.soft.flight_records)

Environment:
  ISTHMUS_LOG  log filter such as `debug` or `isthmus::plan=trace,dpdk=warn`;
               logs go to standard error";

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// The words after `--`, or all of them.
#[derive(Debug, Parser)]
#[command(
    name = "isthmus",
    version = version::text(),
    about = ABOUT,
    long_about = LONG_ABOUT,
    after_help = AFTER_HELP,
    override_usage = "isthmus [EAL options] -- <COMMAND>\n       isthmus <COMMAND>",
    styles = STYLES,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a configuration until SIGINT or SIGTERM
    Run {
        /// Configuration file
        #[arg(value_name = "CONF")]
        conf: PathBuf,
    },
    /// Resolve a configuration without touching hardware, and print the plan
    ///
    /// Prints cores, queues, queue pairs, depths, pools and memory with each sizing rule that was applied. Whatever is
    /// wrong is said in one line per problem: file, line, key, value, what is wrong, what to do. Exit code 1 then.
    Check {
        /// Configuration file
        #[arg(value_name = "CONF")]
        conf: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List DPDK ports and RDMA devices with limits, addresses, MTU and state
    Devices {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Tell a capture of RoCE traffic in words, without DPDK or an RDMA device
    ///
    /// Every frame on a line, then the conversations with what most likely went wrong, then the life of one message. FILE
    /// is a pcap or pcapng file of any RoCE peer; a pipe will do (`tcpdump -U -w - udp port 4791 | isthmus decode -`).
    Decode(Decoded),
    /// Put a load on a server and measure it
    Bench {
        #[command(subcommand)]
        what: Bench,
    },
    /// Print the man page or a shell completion script
    #[command(hide = true)]
    Generate {
        #[command(subcommand)]
        what: What,
    },
}

/// `decode`.
#[derive(Debug, Args)]
pub(super) struct Decoded {
    /// Capture: pcap or pcapng; - for standard input
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Print one JSON object a line, for each frame (with --conversations: for each conversation)
    #[arg(long)]
    json: bool,
    /// Print only the frames
    #[arg(long, conflicts_with = "conversations")]
    frames: bool,
    /// Print only the conversations
    #[arg(long)]
    conversations: bool,
    /// Tell the life of the message that frame N belongs to, or answers
    #[arg(long, value_name = "N", conflicts_with_all = ["json", "frames"])]
    follow: Option<u64>,
}

impl Decoded {
    /// What to print.
    pub(super) fn options(&self) -> DecodeOptions {
        let show = match (self.frames, self.conversations) {
            (true, _) => Show::Frames,
            (_, true) => Show::Conversations,
            _ => Show::All,
        };
        let follow = match self.follow {
            Some(frame) => Followed::Frame(frame),
            None if show == Show::All => Followed::FirstSend,
            None => Followed::Nothing,
        };
        DecodeOptions { json: self.json, show, follow }
    }
}

/// A parsed command line.
#[derive(Debug)]
pub(super) struct Invocation {
    /// EAL options, in order.
    pub(super) eal: Vec<String>,
    pub(super) command: Command,
}

/// The whole command, for man page and completions.
pub(super) fn command() -> clap::Command {
    Cli::command()
}

/// Splits `argv` at the first `--` and parses what is ours.
pub(super) fn parse(argv: impl IntoIterator<Item = OsString>) -> Result<Invocation, clap::Error> {
    let mut words: Vec<OsString> = argv.into_iter().collect();
    let program = if words.is_empty() { "isthmus".into() } else { words.remove(0) };
    let split = words.iter().position(|word| word == "--");
    let eal: Vec<String> = match split {
        Some(at) => words.drain(..=at).take(at).map(|word| word.to_string_lossy().into_owned()).collect(),
        None => Vec::new(),
    };
    if let Some(word) = eal.first().filter(|word| !word.starts_with('-')) {
        let error = EalWordError::NotAnOption { word: word.clone() };
        return Err(command().error(ErrorKind::UnknownArgument, error));
    }
    let cli = Cli::try_parse_from(std::iter::once(program).chain(words))
        .map_err(|error| if split.is_none() { with_eal_tip(error) } else { error })?;
    Ok(Invocation { eal, command: cli.command })
}

/// An option that is none of ours, and like none of ours, may be one of DPDK's in the wrong place.
fn with_eal_tip(mut error: clap::Error) -> clap::Error {
    let is_option = matches!(
        error.get(ContextKind::InvalidArg),
        Some(ContextValue::String(word)) if word.starts_with('-')
    );
    if error.kind() == ErrorKind::UnknownArgument
        && is_option
        && error.get(ContextKind::SuggestedArg).is_none()
    {
        let tip = "an option of DPDK's EAL goes in front, before `--`: isthmus [EAL options] -- COMMAND";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Invocation, clap::Error> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_command_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn the_first_dashes_split() {
        let invocation = parsed("isthmus -l 0-1 --no-huge -- run x.toml").unwrap();
        assert_eq!(invocation.eal, ["-l", "0-1", "--no-huge"]);
        assert!(matches!(invocation.command, Command::Run { conf } if conf.as_os_str() == "x.toml"));
        let invocation = parsed("isthmus -- check --json x.toml").unwrap();
        assert!(invocation.eal.is_empty());
        assert!(matches!(invocation.command, Command::Check { json: true, .. }));
    }

    #[test]
    fn without_dashes_every_word_is_ours() {
        assert!(parsed("isthmus check x.toml").unwrap().eal.is_empty());
        assert_eq!(parsed("isthmus -l 0-1 run x.toml").unwrap_err().kind(), ErrorKind::UnknownArgument);
    }

    #[test]
    fn a_command_before_the_dashes_is_a_slip() {
        let error = parsed("isthmus run x.toml -- --no-huge").unwrap_err();
        assert!(error.to_string().contains("isthmus [EAL options] -- COMMAND"), "{error}");
    }
}
