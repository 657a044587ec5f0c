//! One request of a client: a datagram with one command or more.

use super::slab::NONE;
use rdma_engine::buf::Buf;
use std::ops::Range;

/// Whom a reply goes to.
pub trait Client: Copy {
    /// The client among all: its requests are handled in the order they came in, as far as they are about the same key. That two
    /// share a number now and then is harmless.
    fn flow(&self) -> u64;
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Request<B, C> {
    pub(super) client: C,
    /// Keeps the keys.
    pub(super) frame: B,
    /// The text in the frame's first segment that is still to be read.
    pub(super) text: Range<usize>,
    /// Where the present command begins.
    pub(super) command_at: usize,
    pub(super) style: Style,
    pub(super) roll: Roll,
    pub(super) answer: Answer<B>,
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
    /// It is an error.
    pub(super) is_error: bool,
}

impl<B: Buf, C> Request<B, C> {
    pub(super) fn new(client: C, frame: B, text: Range<usize>) -> Self {
        let command_at = text.start;
        let answer = Answer { body: None, is_spoilt: false, is_error: false };
        Request { client, frame, text, command_at, style: Style::Other, roll: Roll::EMPTY, answer }
    }

    /// The present command and what follows it.
    pub(super) fn command(&self) -> &[u8] {
        &self.frame.first()[self.command_at..self.text.end]
    }
}
