//! All three steps for one request.

use super::engine::{Items, drop_stale, execute};
use super::operation::{Operation, Outcome};
use super::reply::{self, Output};
use super::request::{Command, Limits, Parsed, Refusal, StatsGroup, parse};
use super::{KEY_BYTES_MAX, VERSION};

/// What to do with the input after a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Served {
    /// A request was answered, or was not to be answered.
    Done {
        /// Bytes of the input it had.
        used: usize,
        /// Bytes after those to pass over, whether they are here already or not.
        skip: usize,
    },
    /// The input ends before the request does.
    Incomplete {
        /// At least so many bytes are missing.
        missing: usize,
    },
    /// Close the connection when what was said before is sent.
    Close,
}

/// Serves the first request of `input`: parses it, executes it on `items` at `now` (Unix time in seconds), and puts the
/// reply in `out`. `stats` writes the lines of a group (or sets counters to 0); the end of the reply is not its affair.
pub fn serve<I: Items, O: Output>(
    input: &[u8],
    items: &mut I,
    limits: &Limits,
    now: u32,
    stats: &mut impl FnMut(StatsGroup, &mut O),
    out: &mut O,
) -> Served {
    let mut buffer = [0; KEY_BYTES_MAX];
    let request = match parse(input, &mut buffer, limits) {
        Parsed::Request(request) => request,
        Parsed::Incomplete { missing } => return Served::Incomplete { missing },
        Parsed::Close => return Served::Close,
    };
    match request.command {
        Command::Quit => return Served::Close,
        Command::Stats(group) => self::stats(group, stats, out),
        command => answer(&command, items, now, out),
    }
    Served::Done { used: request.used, skip: request.skip }
}

fn answer<I: Items, O: Output>(command: &Command<'_>, items: &mut I, now: u32, out: &mut O) {
    match *command {
        Command::Get { keys, fetch, cas } => {
            for key in keys {
                if let Outcome::Hit(hit) = execute(items, key, &Operation::Fetch(fetch), now) {
                    reply::value(out, key, &hit, cas);
                }
            }
            reply::end(out);
        }
        Command::Item { key, operation, form } => {
            reply::answer(out, &form, key, &execute(items, key, &operation, now));
        }
        Command::Flush { delay, quiet } => {
            items.flush(if delay.0 == 0 { now } else { delay.deadline(now) }, now);
            reply::say(out, "OK", quiet);
        }
        Command::Version => {
            out.put(b"VERSION ");
            reply::say(out, VERSION, false);
        }
        Command::Verbosity { quiet } => reply::say(out, "OK", quiet),
        Command::Noop => reply::say(out, "MN", false),
        Command::TooLarge { stale_key, quiet } => {
            if let Some(key) = stale_key {
                drop_stale(items, key);
            }
            reply::say(out, reply::TOO_LARGE, quiet);
        }
        Command::Refused { refusal, quiet } => reply::say(out, Refusal::text(refusal), quiet),
        Command::Quit | Command::Stats(_) => {}
    }
}

fn stats<O: Output>(group: StatsGroup, lines: &mut impl FnMut(StatsGroup, &mut O), out: &mut O) {
    match group {
        StatsGroup::Reset => {
            lines(group, out);
            reply::say(out, "RESET", false);
        }
        StatsGroup::Detail => reply::say(out, "OK", false),
        StatsGroup::DetailDump => reply::end(out),
        _ => {
            lines(group, out);
            reply::end(out);
        }
    }
}
