//! The text protocol: words, numbers, `noreply`.

use super::KEY_BYTES_MAX;
use super::expiry::Exptime;
use super::line::{Arguments, Words, find};
use super::number::{parse_i32, parse_u32, parse_u64};
use super::operation::{Arithmetic, Delete, Fetch, Mode, Operation, Step as FetchStep, Steps, Store};
use super::request::{Command, Form, Limits, Refusal, StatsGroup, Step};

/// What is wrong with the arguments of a command.
type Checked<T> = Result<T, Refusal>;

/// Understands a line that is not of the meta protocol.
pub(super) fn parse<'a>(line: &'a [u8], arguments: &Arguments<'a>, limits: &Limits) -> Step<'a> {
    let count = arguments.count;
    let whole = match (arguments.word(0), count) {
        (b"get" | b"bget", 2..) => get(line, false),
        (b"gets", 2..) => get(line, true),
        (b"gat", 2..) => get_and_touch(line, arguments, false),
        (b"gats", 2..) => get_and_touch(line, arguments, true),
        (b"set", 5..=6) => return update(Mode::Set, arguments, limits),
        (b"add", 5..=6) => return update(Mode::Add, arguments, limits),
        (b"replace", 5..=6) => return update(Mode::Replace, arguments, limits),
        (b"append", 5..=6) => return update(Mode::Append, arguments, limits),
        (b"prepend", 5..=6) => return update(Mode::Prepend, arguments, limits),
        (b"cas", 6..=7) => return update(Mode::Cas, arguments, limits),
        (b"incr", 3..=4) => item(arguments, arithmetic(arguments, false)),
        (b"decr", 3..=4) => item(arguments, arithmetic(arguments, true)),
        (b"touch", 3..=4) => item(arguments, touch(arguments)),
        (b"delete", 2..=4) => delete(arguments),
        (b"flush_all", 1..=3) => flush(arguments),
        (b"verbosity", 2..=3) => verbosity(arguments),
        (b"version", _) => Command::Version,
        (b"quit", _) => Command::Quit,
        (b"stats", _) => stats(arguments),
        (b"watch", _) => quiet_refusal(arguments, Refusal::Watch),
        (b"shutdown", _) => Command::refused(Refusal::Shutdown),
        (command, _) if is_http(command, arguments.last) => return Step::Close,
        _ => Command::refused(Refusal::Unknown),
    };
    Step::Whole(whole)
}

/// Whether somebody speaks HTTP: the last word says so, and the first is none that memcached looks at more closely.
fn is_http(command: &[u8], last: &[u8]) -> bool {
    command.len() >= 2 && !b"gsacidt".contains(&command[0]) && last.starts_with(b"HTTP/")
}

/// A refusal that `noreply` silences.
fn quiet_refusal<'a>(arguments: &Arguments<'_>, refusal: Refusal) -> Command<'a> {
    Command::Refused { refusal, quiet: arguments.noreply() }
}

/// A command on one key, or what is wrong with it.
fn item<'a>(arguments: &Arguments<'a>, operation: Checked<Operation<'a>>) -> Command<'a> {
    let form = Form::Text { quiet: arguments.noreply() };
    match key(arguments).and_then(|key| Ok((key, operation?))) {
        Ok((key, operation)) => Command::Item { key, operation, form },
        Err(refusal) => quiet_refusal(arguments, refusal),
    }
}

fn key<'a>(arguments: &Arguments<'a>) -> Checked<&'a [u8]> {
    let key = arguments.word(1);
    if key.len() <= KEY_BYTES_MAX { Ok(key) } else { Err(Refusal::Format) }
}

// ---- reading ----------------------------------------------------------------------------------------------------

/// A `get` of one key and nothing else, which is what most requests are: as [`parse`] would understand it.
#[inline]
pub(super) fn get_one(line: &[u8]) -> Option<Command<'_>> {
    let key = line.strip_prefix(b"get ")?;
    let is_one = (1..=KEY_BYTES_MAX).contains(&key.len()) && find(b' ', key).is_none();
    is_one.then(|| Command::Get { keys: Words(&line[3..]), fetch: value_fetch(), cas: false })
}

/// The key, if all that a text says is a `get` of one key: [`parse`](super::parse) understands the same. Texts that say
/// so in a less usual way are left to that.
#[inline]
pub fn get_alone(text: &[u8]) -> Option<&[u8]> {
    let key = text.strip_prefix(b"get ")?.strip_suffix(b"\r\n")?;
    is_plain(key).then_some(key)
}

/// True of a key whose bytes are all above that of a space.
#[inline]
fn is_plain(key: &[u8]) -> bool {
    let (words, rest) = key.as_chunks::<8>();
    let plain = match key.last_chunk() {
        Some(last) => words.iter().chain([last]).all(|word| are_plain(u64::from_le_bytes(*word))),
        None => rest.iter().all(|byte| *byte > b' '),
    };
    plain && (1..=KEY_BYTES_MAX).contains(&key.len())
}

/// The same of eight bytes.
#[inline]
fn are_plain(word: u64) -> bool {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    // Below: no borrow goes past the lowest such byte, and any will do.
    word.wrapping_sub(ONES * 0x21) & !word & (ONES << 7) == 0
}

/// What a `get` fetches.
#[inline]
fn value_fetch() -> Fetch {
    Fetch { value: true, bump: true, ..Fetch::default() }
}

fn get(line: &[u8], cas: bool) -> Command<'_> {
    let mut keys = Words(line);
    keys.next();
    all_keys(keys, value_fetch(), cas)
}

fn get_and_touch<'a>(line: &'a [u8], arguments: &Arguments<'a>, cas: bool) -> Command<'a> {
    let Some(exptime) = parse_i32(arguments.word(1)) else {
        return Command::refused(Refusal::Exptime);
    };
    let mut keys = Words(line);
    keys.nth(1);
    all_keys(keys, Fetch { value: true, ..touching(exptime) }, cas)
}

/// One key that is too long spoils all.
fn all_keys(keys: Words<'_>, fetch: Fetch, cas: bool) -> Command<'_> {
    if keys.clone().any(|key| key.len() > KEY_BYTES_MAX) {
        Command::refused(Refusal::Format)
    } else {
        Command::Get { keys, fetch, cas }
    }
}

fn touching(exptime: i32) -> Fetch {
    let mut steps = Steps::default();
    steps.push(FetchStep::Touch);
    Fetch { bump: true, touch: Some(Exptime(exptime)), steps, ..Fetch::default() }
}

// ---- changing ---------------------------------------------------------------------------------------------------

/// A storage command: `set key flags exptime bytes [noreply]`, and `cas` with a number more.
fn update<'a>(mode: Mode, arguments: &Arguments<'a>, limits: &Limits) -> Step<'a> {
    let quiet = arguments.noreply();
    let (key, store, bytes) = match update_arguments(mode, arguments) {
        Ok(found) => found,
        Err(refusal) => return Step::Whole(Command::Refused { refusal, quiet }),
    };
    if bytes > limits.value_bytes_max {
        let stale_key = (mode == Mode::Set).then_some(key);
        return Step::Skip { command: Command::TooLarge { stale_key, quiet }, bytes };
    }
    Step::Data { key, store, form: Form::Text { quiet }, bytes }
}

/// A `set` whose numbers are plain digits, with one space between words and nothing behind them, as most are: as [`parse`] would
/// understand it.
#[inline]
pub(super) fn set_plain<'a>(line: &'a [u8], limits: &Limits) -> Option<Step<'a>> {
    let (key, store, bytes, rest) = set_head(line)?;
    if !rest.is_empty() {
        return None;
    }
    if bytes > limits.value_bytes_max {
        let command = Command::TooLarge { stale_key: Some(key), quiet: false };
        return Some(Step::Skip { command, bytes });
    }
    Some(Step::Data { key, store, form: Form::Text { quiet: false }, bytes })
}

/// Key and contents, if all that a text says is one such `set` with its value: [`parse`](super::parse) understands the same.
/// Texts that say so in a less usual way are left to that.
#[inline]
pub fn set_alone<'a>(text: &'a [u8], limits: &Limits) -> Option<(&'a [u8], Store<'a>)> {
    let (key, store, bytes, rest) = set_head(text)?;
    let value = rest.strip_prefix(b"\r\n")?.strip_suffix(b"\r\n")?;
    let is_whole = value.len() == bytes && bytes <= limits.value_bytes_max;
    (is_whole && is_plain(key)).then_some((key, Store { value, ..store }))
}

/// Key, contents but for the value, its bytes, and what follows the last of these numbers.
#[inline]
fn set_head(text: &[u8]) -> Option<(&[u8], Store<'_>, usize, &[u8])> {
    let rest = text.strip_prefix(b"set ")?;
    let end = find(b' ', rest.get(..=KEY_BYTES_MAX).unwrap_or(rest)).filter(|end| *end > 0)?;
    let (key, numbers) = (&rest[..end], &rest[end + 1..]);
    let (flags, numbers) = digits(numbers)?;
    let (exptime, numbers) = digits(numbers.strip_prefix(b" ")?)?;
    let (bytes, rest) = digits(numbers.strip_prefix(b" ")?)?;
    let store = Store { mode: Mode::Set, flags, exptime: Exptime(exptime as i32), ..Store::default() };
    Some((key, store, bytes as usize, rest))
}

/// A number of one to nine digits, and what follows it.
#[inline]
fn digits(text: &[u8]) -> Option<(u32, &[u8])> {
    let (mut value, mut at) = (0, 0);
    while let Some(digit) = text.get(at).map(|b| b.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
        if at == 9 {
            return None;
        }
        value = value * 10 + u32::from(digit);
        at += 1;
    }
    (at > 0).then(|| (value, &text[at..]))
}

fn update_arguments<'a>(mode: Mode, arguments: &Arguments<'a>) -> Checked<(&'a [u8], Store<'a>, usize)> {
    let key = key(arguments)?;
    let flags = parse_u32(arguments.word(2)).ok_or(Refusal::Format)?;
    let exptime = Exptime(parse_i32(arguments.word(3)).ok_or(Refusal::Format)?);
    let bytes = data_bytes(arguments.word(4)).ok_or(Refusal::Format)?;
    let cas = match mode {
        Mode::Cas => parse_u64(arguments.word(5)).ok_or(Refusal::Format)?,
        _ => 0,
    };
    let store = Store { mode, flags, exptime, cas, ..Store::default() };
    Ok((key, store, bytes))
}

/// The length of a data block; with its ending it has to be below 2 GiB.
pub(super) fn data_bytes(word: &[u8]) -> Option<usize> {
    let bytes = usize::try_from(parse_i32(word)?).ok()?;
    (bytes <= i32::MAX as usize - 2).then_some(bytes)
}

fn arithmetic<'a>(arguments: &Arguments<'a>, decrement: bool) -> Checked<Operation<'a>> {
    let delta = parse_u64(arguments.word(2)).ok_or(Refusal::Delta)?;
    Ok(Operation::Arithmetic(Arithmetic { decrement, delta, ..Arithmetic::default() }))
}

fn touch<'a>(arguments: &Arguments<'a>) -> Checked<Operation<'a>> {
    let exptime = parse_i32(arguments.word(2)).ok_or(Refusal::Exptime)?;
    Ok(Operation::Fetch(touching(exptime)))
}

/// `delete key [0] [noreply]`; the 0 is from a time when items could be kept from coming back.
fn delete<'a>(arguments: &Arguments<'a>) -> Command<'a> {
    let (zero, noreply) = (arguments.word(2) == b"0", arguments.noreply());
    let is_valid = match arguments.count {
        2 => true,
        3 => zero || noreply,
        _ => zero && noreply,
    };
    if !is_valid {
        return quiet_refusal(arguments, Refusal::DeleteUsage);
    }
    // `delete noreply` is a key of that name.
    let quiet = arguments.count > 2 && noreply;
    match key(arguments) {
        Ok(key) => {
            Command::Item { key, operation: Operation::Delete(Delete::default()), form: Form::Text { quiet } }
        }
        Err(refusal) => Command::Refused { refusal, quiet },
    }
}

// ---- the server -------------------------------------------------------------------------------------------------

fn flush<'a>(arguments: &Arguments<'_>) -> Command<'a> {
    let quiet = arguments.noreply();
    if arguments.count == 1 + usize::from(quiet) {
        return Command::Flush { delay: Exptime(0), quiet };
    }
    match parse_i32(arguments.word(1)) {
        Some(seconds) => Command::Flush { delay: Exptime(seconds.max(0)), quiet },
        None => Command::Refused { refusal: Refusal::Exptime, quiet },
    }
}

fn verbosity<'a>(arguments: &Arguments<'_>) -> Command<'a> {
    match parse_u32(arguments.word(1)) {
        Some(_) => Command::Verbosity { quiet: arguments.noreply() },
        None => quiet_refusal(arguments, Refusal::Format),
    }
}

fn stats<'a>(arguments: &Arguments<'_>) -> Command<'a> {
    let group = match arguments.word(1) {
        b"" => StatsGroup::General,
        b"settings" => StatsGroup::Settings,
        b"items" => StatsGroup::Items,
        b"slabs" => StatsGroup::Slabs,
        b"sizes" => StatsGroup::Sizes,
        b"conns" => StatsGroup::Conns,
        b"reset" => StatsGroup::Reset,
        b"cachedump" => return Command::refused(Refusal::Cachedump),
        b"detail" => match arguments.word(2) {
            b"on" | b"off" => StatsGroup::Detail,
            b"dump" => StatsGroup::DetailDump,
            _ => return Command::refused(Refusal::StatsDetailUsage),
        },
        _ => return Command::refused(Refusal::Unknown),
    };
    Command::Stats(group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { value_bytes_max: 1000 };

    fn number() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => (0..3000_u32).prop_map(|n| n.to_string()),
            1 => "[0-9]{0,12}",
            1 => "[-+0x\t ]{0,2}[0-9]{1,3}[ \0a]{0,1}",
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_plain_set_is_read_as_any_other(
            key in prop_oneof!["[a-z]{0,4}", "[a-z!]{249,252}"],
            (flags, exptime, bytes) in (number(), number(), number()),
            end in prop_oneof![4 => Just(""), 1 => Just(" "), 1 => Just(" noreply"), 1 => Just(" 1")],
        ) {
            let line = format!("set {key} {flags} {exptime} {bytes}{end}");
            if let Some(step) = set_plain(line.as_bytes(), &LIMITS) {
                prop_assert_eq!(step, parse(line.as_bytes(), &Arguments::new(line.as_bytes()), &LIMITS));
            }
            let usual = [&flags, &exptime, &bytes].iter().all(|n| {
                (1..10).contains(&n.len()) && n.bytes().all(|b| b.is_ascii_digit())
            });
            let is_usual = usual && (1..=KEY_BYTES_MAX).contains(&key.len()) && end.is_empty();
            prop_assert_eq!(set_plain(line.as_bytes(), &LIMITS).is_some(), is_usual, "{}", line);
        }
    }
}
