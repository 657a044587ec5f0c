//! The command line.

mod args;
mod bench;
mod bench_words;
mod check;
mod devices;
mod generate;
mod pci;
mod queue_pairs;
mod table;
mod version;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use tracing::Level;
use tracing_subscriber::EnvFilter;

use crate::config::{Config, ConfigFile, Problem, Refused, apply_eal_words};
use crate::decode::{DecodeError, DecodeOptions};
use crate::plan::{Hardware, Plan, memory_problems};
use crate::run::hardware::{self, before_eal};
use crate::stats::screen::LogWriter;
use args::{Command, Invocation};

pub use devices::{GidReport, PortReport, RdmaReport, Report};
pub use pci::PciNic;

/// Everything went well.
const OK: u8 = 0;
/// The configuration was refused, or the run failed.
const FAILED: u8 = 1;
/// The command line was not understood.
const USAGE: u8 = 2;

/// From here on a panic of any thread ends the process, once it has been told: a worker's buffers are not to be looked after
/// by what is left of it. A release does not unwind anyway; other profiles do, so that the command and its tests share what
/// they are built of.
pub fn end_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}

/// Runs the command in `argv` (program name first).
pub fn main(argv: impl IntoIterator<Item = OsString>) -> ExitCode {
    let invocation = match args::parse(argv) {
        Ok(invocation) => invocation,
        Err(error) => {
            // Help and version are errors to clap, and go to standard output. A closed pipe is nobody's fault.
            let code = if error.use_stderr() { USAGE } else { OK };
            drop(error.print());
            return ExitCode::from(code);
        }
    };
    // A look at things says what it found; only a run has a story to tell.
    let level = if matches!(invocation.command, Command::Run { .. }) { Level::INFO } else { Level::ERROR };
    log_to_stderr(level);
    ExitCode::from(carry_out(invocation))
}

/// Logs go to standard error, filtered by `ISTHMUS_LOG` (such as `debug` or `isthmus::plan=trace`).
fn log_to_stderr(level: Level) {
    let filter = EnvFilter::builder()
        .with_env_var("ISTHMUS_LOG")
        .with_default_directive(level.into())
        .from_env_lossy();
    let is_terminal = io::stderr().is_terminal();
    let writer = move || LogWriter::new(is_terminal);
    // A line that cannot be written is lost. Telling of that on the same stream would end the process.
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).log_internal_errors(false);
    // Fails only when a subscriber is there already, which is as good.
    drop(log.with_ansi(is_terminal).try_init());
}

fn carry_out(invocation: Invocation) -> u8 {
    let Invocation { eal, command } = invocation;
    match command {
        Command::Run { conf } => run(&conf, &eal),
        Command::Check { conf, json } => check(&conf, &eal, json),
        Command::Devices { json } => list_devices(&eal, json),
        Command::Bench { what: bench::Bench::Kv(kv) } => kv.run(),
        Command::Decode(decoded) => decode(&decoded.file, &decoded.options()),
        Command::Generate { what } => print(&generate::text(what)),
    }
}

/// Reads a configuration and lays the EAL options of the command line over it.
fn load(conf: &Path, eal: &[String]) -> Result<ConfigFile, u8> {
    let mut file = ConfigFile::load(conf).map_err(|error| complain(FAILED, &error))?;
    file.apply_command_line(eal).map_err(|error| complain(USAGE, &error))?;
    Ok(file)
}

/// The plan of a file, if what it needs beside the file is there too.
fn planned(file: &ConfigFile, hardware: Option<&Hardware>) -> Result<Plan, Refused> {
    let plan = file.plan(hardware)?;
    file.check_files(&plan)?;
    Ok(plan)
}

fn run(conf: &Path, eal: &[String]) -> u8 {
    let file = match load(conf, eal) {
        Ok(file) => file,
        Err(code) => return code,
    };
    let plan = match planned(&file, Some(&before_eal())) {
        Ok(plan) => plan,
        Err(refused) => return complain(FAILED, &refused),
    };
    for warning in &plan.warnings {
        tracing::warn!("{}", file.locate(warning));
    }
    match crate::run::run(&file, eal, plan) {
        Ok(()) => OK,
        Err(error) => complain(FAILED, &error),
    }
}

fn decode(path: &Path, options: &DecodeOptions) -> u8 {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match crate::decode::run(path, options, &mut out) {
        Ok(summary) => {
            // Words say it themselves.
            if let Some(why) = summary.stopped.filter(|_| options.json) {
                drop(writeln!(io::stderr().lock(), "{}: {why}", path.display()));
            }
            OK
        }
        Err(DecodeError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => OK,
        Err(error) => complain(FAILED, &error),
    }
}

fn check(conf: &Path, eal: &[String], json: bool) -> u8 {
    let file = match load(conf, eal) {
        Ok(file) => file,
        Err(code) => return code,
    };
    let plan = planned(&file, None).map(|mut plan| {
        let warnings = warnings_here(&file, &plan);
        let is_for_here = warnings.is_empty();
        plan.warnings.extend(warnings);
        (plan, is_for_here)
    });
    match (plan, json) {
        (Ok((plan, is_for_here)), false) => print(&check::text(&file, &plan, is_for_here)),
        (Ok((plan, _)), true) => print(&check::json(&file, &plan)),
        (Err(refused), false) => complain(FAILED, &refused),
        (Err(refused), true) => {
            print(&check::refused_json(&refused));
            FAILED
        }
    }
}

/// What `run` would refuse on this machine. The file may be for another one.
fn warnings_here(file: &ConfigFile, plan: &Plan) -> Vec<Problem> {
    let problems = memory_problems(&file.config, &plan.memory, &hardware::memory());
    let warning = |problem: Problem| Problem {
        what: format!("`run` would refuse this on this machine: {}", problem.what),
        remedy: format!("{}; or run it on a machine with more", problem.remedy),
        ..problem
    };
    problems.into_iter().map(warning).collect()
}

fn list_devices(eal: &[String], json: bool) -> u8 {
    let mut config = Config::default();
    if let Err(error) = apply_eal_words(&mut config, eal) {
        return complain(USAGE, &error);
    }
    let report = devices::probe(&config);
    let printed = print(&if json { devices::json(&report) } else { devices::text(&report) });
    // A machine without RDMA is as it is; a DPDK that does not start is a failure.
    if report.ports.is_err() { FAILED } else { printed }
}

/// Writes to standard output. A reader that has gone is no failure.
fn print(text: &str) -> u8 {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => complain(FAILED, &error),
        _ => OK,
    }
}

/// Writes an error to standard error, as it is: one line per problem.
fn complain(code: u8, error: &dyn std::error::Error) -> u8 {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = inner.source();
    }
    // Nowhere is left to report a failure to.
    drop(writeln!(io::stderr().lock(), "{text}"));
    code
}
