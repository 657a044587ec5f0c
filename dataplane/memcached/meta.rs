//! The meta protocol: two letters, a key, and flags of one letter with a token behind it.

use super::expiry::Exptime;
use super::line::{Arguments, Words};
use super::number::{parse_i32, parse_u32, parse_u64};
use super::operation::{Arithmetic, Delete, Fetch, Mode, Operation, Step as Order, Steps, Store};
use super::request::{Command, Form, Limits, MetaForm, Refusal, Step, Verb};
use super::text::data_bytes;
use super::{KEY_BYTES_MAX, KeyBuffer, base64};

/// Words that a line may have, the command among them.
const WORDS_MAX: usize = 19;
/// Bytes of an opaque flag, its letter among them.
const OPAQUE_BYTES_MAX: usize = 32;

/// Flags as the client wrote them; the reply repeats some of them in their order.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags<'a>(Words<'a>);

impl<'a> Flags<'a> {
    /// The flags, each with its token.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        self.0.map(|word| (word[0], &word[1..]))
    }
}

/// What the flags of any meta command say.
#[derive(Default)]
struct Settings {
    binary: bool,
    value: bool,
    quiet: bool,
    no_bump: bool,
    stale: bool,
    opaque_too_long: bool,
    mode: Option<u8>,
    client_flags: u32,
    cas: Option<u64>,
    delta: Option<u64>,
    initial: u64,
    touch: Option<Exptime>,
    vivify: Option<Exptime>,
    recache: Option<Exptime>,
    steps: Steps,
}

/// Understands a line whose first word is `m` and `which`.
pub(super) fn parse<'a>(
    which: u8,
    line: &'a [u8],
    arguments: &Arguments<'a>,
    buffer: &'a mut KeyBuffer,
    limits: &Limits,
) -> Step<'a> {
    let command = match which {
        b'n' => Command::Noop,
        b'e' => debug(arguments, buffer),
        b'g' | b's' | b'd' | b'a' if arguments.count < 2 => Command::refused(Refusal::Unknown),
        b's' => return set(line, arguments, buffer, limits),
        b'g' | b'd' | b'a' => flagged(which, line, arguments, buffer),
        _ => Command::refused(Refusal::Unknown),
    };
    Step::Whole(command)
}

/// `me key [b]`.
fn debug<'a>(arguments: &Arguments<'a>, buffer: &'a mut KeyBuffer) -> Command<'a> {
    let binary = arguments.word(2) == b"b";
    let found = if arguments.count < 2 { None } else { key(arguments.word(1), binary, buffer).ok() };
    let mut steps = Steps::default();
    steps.push(Order::Ttl);
    let operation = Operation::Fetch(Fetch { steps, ..Fetch::default() });
    match found {
        Some(key) => Command::Item { key, operation, form: Form::Debug },
        None => Command::refused(Refusal::Format),
    }
}

/// The key as it is stored.
fn key<'a>(word: &'a [u8], binary: bool, buffer: &'a mut KeyBuffer) -> Result<&'a [u8], Refusal> {
    if word.len() > KEY_BYTES_MAX {
        return Err(Refusal::Format);
    }
    if !binary {
        return Ok(word);
    }
    let bytes = base64::decode(word, buffer).ok_or(Refusal::KeyEncoding)?;
    Ok(&buffer[..bytes])
}

// ---- mg, md, ma -------------------------------------------------------------------------------------------------

fn flagged<'a>(
    which: u8,
    line: &'a [u8],
    arguments: &Arguments<'a>,
    buffer: &'a mut KeyBuffer,
) -> Command<'a> {
    match checked(which, line, arguments, buffer) {
        Ok(command) => command,
        Err(refusal) => Command::refused(refusal),
    }
}

fn checked<'a>(
    which: u8,
    line: &'a [u8],
    arguments: &Arguments<'a>,
    buffer: &'a mut KeyBuffer,
) -> Result<Command<'a>, Refusal> {
    let word = arguments.word(1);
    if word.len() > KEY_BYTES_MAX {
        return Err(Refusal::Format);
    }
    if arguments.count > WORDS_MAX {
        return Err(if which == b'g' { Refusal::ManyFlagsToGet } else { Refusal::ManyFlags });
    }
    let flags = flags_after(line, 2);
    // `md` and `ma` have one text for all that can be wrong with a flag.
    let in_its_words = |refusal| if which == b'g' { refusal } else { Refusal::FlagUnknownOrTwice };
    let settings = Settings::read(&flags, word, buffer).map_err(in_its_words)?;
    let key = key(word, settings.binary, buffer)?;
    let (verb, operation) = match which {
        b'g' => (Verb::Get, Operation::Fetch(settings.fetch())),
        b'd' => (Verb::Delete, Operation::Delete(settings.delete())),
        _ => (Verb::Arithmetic, Operation::Arithmetic(settings.arithmetic()?)),
    };
    if settings.opaque_too_long {
        return Err(Refusal::Opaque);
    }
    Ok(Command::Item { key, operation, form: settings.form(verb, flags) })
}

fn flags_after(line: &[u8], words: usize) -> Flags<'_> {
    let mut rest = Words(line);
    rest.nth(words - 1);
    Flags(rest)
}

// ---- ms ---------------------------------------------------------------------------------------------------------

fn set<'a>(
    line: &'a [u8],
    arguments: &Arguments<'a>,
    buffer: &'a mut KeyBuffer,
    limits: &Limits,
) -> Step<'a> {
    let word = arguments.word(1);
    let refused = |refusal| Step::Whole(Command::refused(refusal));
    if word.len() > KEY_BYTES_MAX || arguments.count == 2 {
        return refused(Refusal::Format);
    }
    if arguments.count > WORDS_MAX {
        return refused(Refusal::ManyFlags);
    }
    let Some(bytes) = data_bytes(arguments.word(2)) else { return refused(Refusal::Format) };
    // From here on the data block is passed over when something is wrong.
    let flags = flags_after(line, 3);
    let read = Settings::read(&flags, word, buffer).and_then(|settings| Ok((settings.store()?, settings)));
    let (store, settings) = match read {
        Ok(found) => found,
        Err(refusal) => return Step::Skip { command: Command::refused(refusal), bytes },
    };
    let key = match key(word, settings.binary, buffer) {
        Ok(_) if settings.opaque_too_long => Err(Refusal::Opaque),
        found => found,
    };
    match key {
        Ok(key) if bytes > limits.value_bytes_max => {
            Step::Skip { command: Command::TooLarge { stale_key: Some(key), quiet: false }, bytes }
        }
        Ok(key) => Step::Data { key, store, form: settings.form(Verb::Set, flags), bytes },
        Err(refusal) => Step::Skip { command: Command::refused(refusal), bytes },
    }
}

// ---- flags ------------------------------------------------------------------------------------------------------

impl Settings {
    /// Reads all flags, whichever command they belong to: one that does not concern it is passed over. Of several tokens
    /// that are wrong the last is named; a flag that is unknown or there twice ends the reading.
    fn read(flags: &Flags<'_>, key: &[u8], buffer: &mut KeyBuffer) -> Result<Self, Refusal> {
        let mut settings = Self::default();
        let (mut seen, mut wrong, mut named) = (0_u128, false, Refusal::Format);
        for (letter, token) in flags.iter() {
            if letter >= 127 || seen & 1 << letter != 0 {
                return Err(Refusal::FlagTwice);
            }
            seen |= 1 << letter;
            match settings.take(letter, token) {
                Ok(()) if letter == b'b' && base64::decode(key, buffer).is_none() => {
                    (wrong, named) = (true, Refusal::KeyEncoding);
                }
                Ok(()) => {}
                Err(Refusal::FlagUnknown) => return Err(Refusal::FlagUnknown),
                // The client flags are the one token that leaves the text as it was.
                Err(_) if letter == b'F' => wrong = true,
                Err(refusal) => (wrong, named) = (true, refusal),
            }
        }
        if wrong { Err(named) } else { Ok(settings) }
    }

    fn take(&mut self, letter: u8, token: &[u8]) -> Result<(), Refusal> {
        let time = || parse_i32(token).map(Exptime).ok_or(Refusal::FlagToken);
        match letter {
            b'b' => self.binary = true,
            b'v' => self.value = true,
            b'q' => self.quiet = true,
            b'u' => self.no_bump = true,
            b'I' => self.stale = true,
            b'T' => self.touch = Some(self.step(Order::Touch, time()?)),
            b'N' => self.vivify = Some(self.step(Order::Vivify, time()?)),
            b'R' => self.recache = Some(self.step(Order::Recache, time()?)),
            b't' => self.steps.push(Order::Ttl),
            b'O' => self.opaque_too_long = token.len() + 1 > OPAQUE_BYTES_MAX,
            b'F' => self.client_flags = parse_u32(token).ok_or(Refusal::Format)?,
            b'C' => self.cas = Some(parse_u64(token).ok_or(Refusal::FlagToken)?),
            b'M' if token.len() == 1 => self.mode = Some(token[0]),
            b'M' => return Err(Refusal::ModeLength),
            b'J' => self.initial = parse_u64(token).ok_or(Refusal::Initial)?,
            b'D' => self.delta = Some(parse_u64(token).ok_or(Refusal::MetaDelta)?),
            // Known, and only of interest to the reply, or to a proxy (P, L).
            b'k' | b's' | b'c' | b'f' | b'l' | b'h' | b'P' | b'L' => {}
            _ => return Err(Refusal::FlagUnknown),
        }
        Ok(())
    }

    fn step(&mut self, step: Order, time: Exptime) -> Exptime {
        self.steps.push(step);
        time
    }

    fn form<'a>(&self, verb: Verb, flags: Flags<'a>) -> Form<'a> {
        Form::Meta(MetaForm { verb, flags, value: self.value, quiet: self.quiet, binary: self.binary })
    }

    fn fetch(&self) -> Fetch {
        Fetch {
            value: self.value,
            bump: !self.no_bump,
            binary: self.binary,
            claim: true,
            touch: self.touch,
            vivify: self.vivify,
            recache: self.recache,
            steps: self.steps,
        }
    }

    fn delete(&self) -> Delete {
        Delete { cas: self.cas, stale: self.stale, touch: self.touch }
    }

    fn arithmetic(&self) -> Result<Arithmetic, Refusal> {
        let decrement = match self.mode {
            None | Some(b'I' | b'+') => false,
            Some(b'D' | b'-') => true,
            Some(_) => return Err(Refusal::ArithmeticMode),
        };
        Ok(Arithmetic {
            decrement,
            delta: self.delta.unwrap_or(1),
            cas: self.cas.unwrap_or(0),
            initial: self.initial,
            binary: self.binary,
            touch: self.touch,
            vivify: self.vivify,
            steps: self.steps,
        })
    }

    fn store<'a>(&self) -> Result<Store<'a>, Refusal> {
        let mode = match self.mode {
            None | Some(b'S') => Mode::Set,
            Some(b'E') => Mode::Add,
            Some(b'A') => Mode::Append,
            Some(b'P') => Mode::Prepend,
            Some(b'R') => Mode::Replace,
            Some(_) => return Err(Refusal::StoreMode),
        };
        let is_cas = self.cas.is_some() && matches!(mode, Mode::Set | Mode::Replace);
        Ok(Store {
            mode: if is_cas { Mode::Cas } else { mode },
            flags: self.client_flags,
            exptime: self.touch.unwrap_or_default(),
            cas: self.cas.unwrap_or(0),
            accept_older: self.stale,
            binary: self.binary,
            value: b"",
        })
    }
}
