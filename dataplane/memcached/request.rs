//! What a client asks, and how the bytes of a connection or datagram become it.

use super::KeyBuffer;
use super::expiry::Exptime;
use super::line::{self, Arguments, Words};
use super::meta::Flags;
use super::operation::{Fetch, Operation, Store};
use super::{meta, text};

/// Bytes that end a data block.
const CRLF: &[u8] = b"\r\n";

/// What a server takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of the largest value.
    pub value_bytes_max: usize,
}

/// What the input begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed<'a> {
    /// A whole request.
    Request(Request<'a>),
    /// The first part of a request. In a datagram that is all there will ever be: no answer.
    Incomplete {
        /// At least so many bytes are missing: 1 while the line is not whole, then exactly the rest of the data block.
        missing: usize,
    },
    /// Nothing of this protocol: the connection is to be closed without a word.
    Close,
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// What is asked.
    pub command: Command<'a>,
    /// Bytes of the input that it has.
    pub used: usize,
    /// Bytes after those to pass over unseen, whether they are here already or not: the data block of a refused request.
    /// Up to 2 GiB.
    pub skip: usize,
}

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command<'a> {
    /// `get`, `gets`, `gat`, `gats`: the same for each of the keys.
    Get {
        /// The keys, any number, none longer than [`super::KEY_BYTES_MAX`].
        keys: Words<'a>,
        /// How to read each.
        fetch: Fetch,
        /// The reply has cas uniques.
        cas: bool,
    },
    /// Anything else with a key.
    Item {
        /// The key, decoded.
        key: &'a [u8],
        /// What to do.
        operation: Operation<'a>,
        /// How to say what came of it.
        form: Form<'a>,
    },
    /// `flush_all`: all items go, after a while or (0 and below) at once.
    Flush {
        /// When.
        delay: Exptime,
        /// Without a reply.
        quiet: bool,
    },
    /// `version`.
    Version,
    /// `verbosity`: taken, and without effect.
    Verbosity {
        /// Without a reply.
        quiet: bool,
    },
    /// `stats`.
    Stats(StatsGroup),
    /// `mn`.
    Noop,
    /// `quit`.
    Quit,
    /// A value that no item has room for.
    TooLarge {
        /// Key whose item is to go, for it is no longer what the client thinks.
        stale_key: Option<&'a [u8]>,
        /// Without a reply.
        quiet: bool,
    },
    /// Nothing to be done.
    Refused {
        /// Why.
        refusal: Refusal,
        /// Without a reply.
        quiet: bool,
    },
}

/// How the outcome of an operation is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form<'a> {
    /// A word of the text protocol.
    Text {
        /// Without a reply.
        quiet: bool,
    },
    /// Code and flags of the meta protocol.
    Meta(MetaForm<'a>),
    /// `me`: everything that is known of an item.
    Debug,
}

/// How a meta command is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetaForm<'a> {
    /// Which command it was.
    pub verb: Verb,
    /// The flags as they came.
    pub flags: Flags<'a>,
    /// The reply has the value.
    pub value: bool,
    /// The usual outcome is not worth a reply.
    pub quiet: bool,
    /// The key came in base64.
    pub binary: bool,
}

/// Meta commands with flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// `mg`
    Get,
    /// `ms`
    Set,
    /// `md`
    Delete,
    /// `ma`
    Arithmetic,
}

/// What `stats` is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatsGroup {
    /// Counters of the server.
    General,
    /// `settings`.
    Settings,
    /// `items`.
    Items,
    /// `slabs`.
    Slabs,
    /// `sizes`.
    Sizes,
    /// `conns`.
    Conns,
    /// `reset`: counters back to 0.
    Reset,
    /// `detail on` and `detail off`: taken, and without effect.
    Detail,
    /// `detail dump`: empty, for nothing is counted by prefix.
    DetailDump,
}

/// Why a request is refused, in memcached's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No such command, or not so many words.
    Unknown,
    /// A key that is too long, a number that is none.
    Format,
    /// The data block does not end where it should.
    DataChunk,
    /// `gat`, `touch`, `flush_all`.
    Exptime,
    /// `incr`, `decr`.
    Delta,
    /// `delete` with more than a key.
    DeleteUsage,
    /// `stats detail` with another word.
    StatsDetailUsage,
    /// `stats cachedump`: never answered.
    Cachedump,
    /// `watch`: there is no log to watch.
    Watch,
    /// `shutdown`: not for clients.
    Shutdown,
    /// A flag's token is no number.
    FlagToken,
    /// A flag is there twice, or is no letter.
    FlagTwice,
    /// There is no such flag.
    FlagUnknown,
    /// One of the last two, in the words of `md` and `ma`.
    FlagUnknownOrTwice,
    /// The key is no base64.
    KeyEncoding,
    /// The mode is not one character.
    ModeLength,
    /// `ms` knows no such mode.
    StoreMode,
    /// `ma` knows no such mode.
    ArithmeticMode,
    /// `J` is no number.
    Initial,
    /// `D` is no number.
    MetaDelta,
    /// More than 31 bytes behind `O`.
    Opaque,
    /// Too many flags.
    ManyFlags,
    /// Too many flags, in the words of `mg`.
    ManyFlagsToGet,
}

impl Refusal {
    /// The line, without its ending.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Unknown => "ERROR",
            Self::Format => "CLIENT_ERROR bad command line format",
            Self::DataChunk => "CLIENT_ERROR bad data chunk",
            Self::Exptime => "CLIENT_ERROR invalid exptime argument",
            Self::Delta => "CLIENT_ERROR invalid numeric delta argument",
            Self::DeleteUsage => "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
            Self::StatsDetailUsage => "CLIENT_ERROR usage: stats detail on|off|dump",
            Self::Cachedump => "CLIENT_ERROR stats cachedump not allowed",
            Self::Watch => "CLIENT_ERROR watch commands not allowed",
            Self::Shutdown => "ERROR: shutdown not enabled",
            Self::FlagToken => "CLIENT_ERROR bad token in command line format",
            Self::FlagTwice => "CLIENT_ERROR duplicate flag",
            Self::FlagUnknown => "CLIENT_ERROR invalid flag",
            Self::FlagUnknownOrTwice => "CLIENT_ERROR invalid or duplicate flag",
            Self::KeyEncoding => "CLIENT_ERROR error decoding key",
            Self::ModeLength => "CLIENT_ERROR incorrect length for M token",
            Self::StoreMode => "CLIENT_ERROR invalid mode for ms M token",
            Self::ArithmeticMode => "CLIENT_ERROR invalid mode for ma M token",
            Self::Initial => "CLIENT_ERROR invalid numeric initial value",
            Self::MetaDelta => "CLIENT_ERROR invalid numeric delta value",
            Self::Opaque => "CLIENT_ERROR opaque token too long",
            Self::ManyFlags => "CLIENT_ERROR options flags too long",
            Self::ManyFlagsToGet => "CLIENT_ERROR options flags are too long",
        }
    }
}

impl Command<'_> {
    /// A refusal that is said.
    pub(super) fn refused(refusal: Refusal) -> Self {
        Self::Refused { refusal, quiet: false }
    }
}

/// What a line says.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Step<'a> {
    /// All of a request.
    Whole(Command<'a>),
    /// A request whose data block is to be passed over.
    Skip { command: Command<'a>, bytes: usize },
    /// A value of so many bytes follows.
    Data { key: &'a [u8], store: Store<'a>, form: Form<'a>, bytes: usize },
    /// Another protocol.
    Close,
}

/// Takes the first request of the input. `key` is room for a key that came in base64.
///
/// The work is linear in the bytes of the request; of a line that does not end 64 KiB are looked at.
#[must_use]
pub fn parse<'a>(input: &'a [u8], key: &'a mut KeyBuffer, limits: &Limits) -> Parsed<'a> {
    let (line, used) = match line::split(input) {
        Ok(found) => found,
        Err(parsed) => return parsed,
    };
    if let Some(command) = text::get_one(line) {
        return Parsed::Request(Request { command, used, skip: 0 });
    }
    let step = text::set_plain(line, limits).unwrap_or_else(|| {
        let arguments = Arguments::new(line);
        match arguments.word(0) {
            [b'm', which] => meta::parse(*which, line, &arguments, key, limits),
            _ => text::parse(line, &arguments, limits),
        }
    });
    match step {
        Step::Whole(command) => Parsed::Request(Request { command, used, skip: 0 }),
        Step::Skip { command, bytes } => Parsed::Request(Request { command, used, skip: bytes + CRLF.len() }),
        Step::Data { key, store, form, bytes } => data(input, used, bytes, key, store, form),
        Step::Close => Parsed::Close,
    }
}

/// Takes the data block that starts at `start`.
fn data<'a>(
    input: &'a [u8],
    start: usize,
    bytes: usize,
    key: &'a [u8],
    store: Store<'a>,
    form: Form<'a>,
) -> Parsed<'a> {
    let (end, used) = (start + bytes, start + bytes + CRLF.len());
    if input.len() < used {
        return Parsed::Incomplete { missing: used - input.len() };
    }
    let command = if &input[end..used] == CRLF {
        let operation = Operation::Store(Store { value: &input[start..end], ..store });
        Command::Item { key, operation, form }
    } else {
        // The meta protocol always says what is wrong.
        Command::Refused { refusal: Refusal::DataChunk, quiet: form == Form::Text { quiet: true } }
    };
    Parsed::Request(Request { command, used, skip: 0 })
}
