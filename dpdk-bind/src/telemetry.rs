//! Commands on DPDK's telemetry socket, next to the built-in ones: `dpdk-telemetry.py` shows them all.
//!
//! DPDK keeps a handler for the rest of the process and passes it no pointer of ours, only the command's name.
//! So there is one C function for all commands and one bounded registry, [`COMMANDS`], to find the Rust side
//! by name: the only mutable global of this crate besides the flag that the EAL was started.

#![allow(unsafe_code)] // Registers a C callback and fills rte_tel_data.

mod encode;

use core::ffi::{CStr, c_char, c_int};
use std::ffi::CString;
use std::io;
use std::sync::{Arc, Mutex};

use dpdk_sys as sys;

use crate::eal::{Eal, lock};

pub use encode::clean_name;

/// Most commands of this crate in one process. (DPDK has room for 64, its own included.)
pub const COMMANDS_MAX: usize = 24;

/// Longest command and longest help text in bytes, as DPDK has it.
const COMMAND_LEN_MAX: usize = 55;
const HELP_LEN_MAX: usize = 63;

/// Answers a command; the argument is what came after the comma, empty without one. Runs on DPDK's telemetry
/// thread, one call at a time.
pub type Handler = Arc<dyn Fn(&str) -> Value + Send + Sync>;

/// What a command answers; becomes JSON.
///
/// DPDK's own limits apply: 256 entries of a dictionary, 512 of an array, strings of 127 bytes (8191 if the
/// answer is nothing but a string). Dictionaries and arrays of strings say in a last entry that they were cut.
/// Text is printable ASCII; other characters become `?`. An array that holds arrays or dictionaries
/// becomes a dictionary by index.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A string.
    Text(String),
    /// An unsigned number.
    U64(u64),
    /// A signed number.
    I64(i64),
    /// Named values. Characters that DPDK does not allow in names become `_`.
    Dict(Vec<(String, Value)>),
    /// Values; numbers and strings mixed become strings.
    Array(Vec<Value>),
}

impl From<u64> for Value {
    fn from(n: u64) -> Self {
        Value::U64(n)
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Self {
        Value::I64(n)
    }
}

impl From<&str> for Value {
    fn from(s: &str) -> Self {
        Value::Text(s.to_owned())
    }
}

impl From<String> for Value {
    fn from(s: String) -> Self {
        Value::Text(s)
    }
}

impl<K: Into<String>, const N: usize> From<[(K, Value); N]> for Value {
    fn from(entries: [(K, Value); N]) -> Self {
        Value::Dict(entries.into_iter().map(|(k, v)| (k.into(), v)).collect())
    }
}

/// Why a command could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// DPDK would not take the name.
    #[error(
        "telemetry command '{0}' cannot be used: it must be '/' and up to 54 letters, digits, '/' or '_'"
    )]
    Command(String),
    /// DPDK would not take the help text.
    #[error("the help of telemetry command '{0}' cannot be used: give it at most 63 bytes without NUL")]
    Help(String),
    /// It is registered, and its guard is alive.
    #[error("telemetry command '{0}' is registered already: drop the former registration first")]
    Taken(String),
    /// No room for another.
    #[error("there are {COMMANDS_MAX} telemetry commands already: put '{0}' into one of them as a parameter")]
    Full(String),
    /// DPDK refused.
    #[error("telemetry command '{command}' could not be registered: {source}")]
    Os {
        /// The command.
        command: String,
        /// What its error number says.
        source: io::Error,
    },
}

struct Command {
    name: CString,
    /// `None` once its guard was dropped: DPDK cannot forget a command, so it then answers with an error.
    handler: Option<Handler>,
}

static COMMANDS: Mutex<Vec<Command>> = Mutex::new(Vec::new());

/// A registered command; dropping it withdraws the handler (the name stays in DPDK's list).
#[must_use = "the command is withdrawn when this is dropped"]
pub struct Telemetry {
    name: CString,
}

impl Telemetry {
    /// Registers `command`, such as `/isthmus/workers`.
    pub fn register(
        _eal: &Eal,
        command: &str,
        help: &str,
        handler: Handler,
    ) -> Result<Telemetry, TelemetryError> {
        let name = check_command(command)?;
        let bad_help = || TelemetryError::Help(command.to_owned());
        let help =
            CString::new(help).ok().filter(|h| h.as_bytes().len() <= HELP_LEN_MAX).ok_or_else(bad_help)?;
        let mut commands = lock(&COMMANDS);
        if let Some(known) = commands.iter_mut().find(|c| c.name == name) {
            if known.handler.is_some() {
                return Err(TelemetryError::Taken(command.to_owned()));
            }
            known.handler = Some(handler);
            return Ok(Telemetry { name });
        }
        if commands.len() == COMMANDS_MAX {
            return Err(TelemetryError::Full(command.to_owned()));
        }
        // SAFETY: DPDK copies both strings and keeps `answer`, which lives as long as the program.
        let rc = unsafe { sys::rte_telemetry_register_cmd(name.as_ptr(), Some(answer), help.as_ptr()) };
        if rc != 0 {
            let source = io::Error::from_raw_os_error(-rc);
            return Err(TelemetryError::Os { command: command.to_owned(), source });
        }
        commands.push(Command { name: name.clone(), handler: Some(handler) });
        Ok(Telemetry { name })
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        let mut commands = lock(&COMMANDS);
        let handler = commands.iter_mut().find(|c| c.name == self.name).and_then(|c| c.handler.take());
        // The handler may own anything: let it go without the lock.
        drop(commands);
        drop(handler);
    }
}

fn check_command(command: &str) -> Result<CString, TelemetryError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '/' || c == '_';
    let fits = command.len() > 1 && command.len() <= COMMAND_LEN_MAX;
    let good = fits && command.starts_with('/') && command.chars().all(allowed);
    CString::new(command).ok().filter(|_| good).ok_or_else(|| TelemetryError::Command(command.to_owned()))
}

/// DPDK's side of every command. Being `extern "C"`, it turns a panic of the handler into an abort.
unsafe extern "C" fn answer(
    command: *const c_char,
    params: *const c_char,
    out: *mut sys::rte_tel_data,
) -> c_int {
    // SAFETY: DPDK passes the command as registered, and null or a string as parameters.
    let (command, params) = unsafe {
        let params = if params.is_null() { c"" } else { CStr::from_ptr(params) };
        (CStr::from_ptr(command), params.to_string_lossy())
    };
    let find = |c: &&Command| c.name.as_c_str() == command;
    let Some(handler) = lock(&COMMANDS).iter().find(find).and_then(|c| c.handler.clone()) else { return -1 };
    // SAFETY: `out` is a fresh value to fill.
    unsafe { encode::root(out, &handler(&params)) };
    0
}
