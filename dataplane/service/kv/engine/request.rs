//! One request of a client: a datagram with one command or more.

use super::slab::NONE;
use super::verb::Verb;
use crate::memcached::operation::{Mode, Store};
use crate::memcached::{Command, Exptime, Form, Operation};
use rdma_engine::buf::Buf;
use std::ops::Range;

/// Whom a reply goes to.
pub trait Client: Copy {
    /// The client among all: its requests are handled in the order they came in, as far as they are about the same key. That two
    /// share a number now and then is harmless.
    fn flow(&self) -> u64;
}

/// What a client asks: `text` lies in the first segment of `frame`.
#[derive(Debug)]
pub struct Arrival<B> {
    /// What it came in.
    pub frame: B,
    /// Where it is in that.
    pub text: Range<usize>,
    /// The frame is one of the few buffers that answers of nodes come in, too: it is given back as soon as the request is done.
    pub in_message: bool,
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Request<B, C> {
    pub(super) client: C,
    /// Keeps the keys. Elsewhere only while a command is being begun.
    pub(super) frame: Option<B>,
    /// See [`Arrival`].
    pub(super) in_message: bool,
    /// The text in the frame's first segment that is still to be read.
    pub(super) text: Range<usize>,
    /// Where the present command begins.
    pub(super) command_at: usize,
    pub(super) style: Style,
    /// What the present command stores, if it does.
    pub(super) store: Option<StoreAt>,
    pub(super) roll: Roll,
    pub(super) answer: Answer<B>,
}

/// A storage command of the text protocol, so that it need not be read a second time.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreAt {
    mode: Mode,
    flags: u32,
    exptime: Exptime,
    cas: u64,
    /// Of the value, in the frame's first segment.
    at: u32,
    len: u32,
}

impl StoreAt {
    /// What a command stores whose value lies in `frame`.
    #[inline]
    pub(super) fn of(command: &Command<'_>, frame: &[u8]) -> Option<Self> {
        match command {
            Command::Item { operation: Operation::Store(store), form: Form::Text { .. }, .. } => {
                Self::of_store(store, frame)
            }
            _ => None,
        }
    }

    /// The same of what is stored.
    #[inline]
    pub(super) fn of_store(store: &Store<'_>, frame: &[u8]) -> Option<Self> {
        let Store { mode, flags, exptime, cas, accept_older: false, binary: false, value } = *store else {
            return None;
        };
        let at = value.as_ptr().addr().wrapping_sub(frame.as_ptr().addr());
        let is_there = frame.get(at..at.wrapping_add(value.len())).is_some();
        is_there.then_some(StoreAt { mode, flags, exptime, cas, at: at as u32, len: value.len() as u32 })
    }

    /// The same again.
    #[inline]
    pub(super) fn again(self, frame: &[u8]) -> Option<Store<'_>> {
        let StoreAt { mode, flags, exptime, cas, at, len } = self;
        let value = frame.get(at as usize..at as usize + len as usize)?;
        Some(Store { mode, flags, exptime, cas, value, ..Store::default() })
    }
}

/// How the present command is answered, as far as that needs no second look at its text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    /// Values, then `END`.
    Values {
        /// With cas uniques.
        cas: bool,
    },
    /// A word of the text protocol.
    Word {
        /// Without a reply.
        quiet: bool,
        /// What it is counted as.
        verb: Verb,
    },
    /// As its text says.
    Other,
}

/// The jobs of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Roll {
    /// In the order of its keys.
    pub(super) first: u32,
    pub(super) last: u32,
    /// Not over.
    pub(super) pending: u32,
}

impl Roll {
    pub(super) const EMPTY: Roll = Roll { first: NONE, last: NONE, pending: 0 };
}

/// What has been answered so far.
#[derive(Debug)]
pub(super) struct Answer<B> {
    pub(super) body: Option<B>,
    /// Something of the answer had no room, or there is none to be given.
    pub(super) is_spoilt: bool,
    /// Nothing but errors have been said.
    pub(super) is_error: bool,
    /// Large values in it, or in buffers that large ones arrive in: they count until the reply goes.
    pub(super) large: usize,
    /// Buffers of it that count among what is [kept](super::Engine) for later commands of the request.
    pub(super) kept: usize,
}

impl<B> Default for Answer<B> {
    fn default() -> Self {
        Answer { body: None, is_spoilt: false, is_error: false, large: 0, kept: 0 }
    }
}

impl<B: Buf, C> Request<B, C> {
    pub(super) fn new(client: C, asked: Arrival<B>) -> Self {
        let Arrival { frame, text, in_message } = asked;
        let command_at = text.start;
        Request {
            client,
            frame: Some(frame),
            in_message,
            text,
            command_at,
            style: Style::Other,
            store: None,
            roll: Roll::EMPTY,
            answer: Answer::default(),
        }
    }

    /// The frame's first segment.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.frame.as_ref().map_or(b"", B::first)
    }

    /// The present command and what follows it.
    pub(super) fn command(&self) -> &[u8] {
        &self.bytes()[self.command_at..self.text.end]
    }
}
