//! A reply as one chain of buffers: values where they came in, text in front of them and behind.

use super::job::Failure;
use super::request::{Answer, Client};
use super::{Engine, Reply};
use crate::service::Context;
use crate::stats::{Counter, DropReason};
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::transport::Transport;

/// Values up to this length are copied behind what is there, instead of chained. Bytes.
const COPYBREAK: usize = 256;

/// What became of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Said {
    /// There was none to be said.
    Nothing,
    /// It was copied.
    Copied,
    /// Its buffers are the answer's.
    Hung,
}

/// Puts text behind the answer.
pub(super) fn text<T, P>(ctx: &mut Context<'_, T, P>, answer: &mut Answer<T::Buf>, pieces: &[&[u8]])
where
    T: Transport,
    P: Pool<Buf = T::Buf>,
{
    for piece in pieces {
        put(ctx, answer, piece);
    }
}

/// A line.
pub(super) fn say<T, P>(ctx: &mut Context<'_, T, P>, answer: &mut Answer<T::Buf>, line: &str)
where
    T: Transport,
    P: Pool<Buf = T::Buf>,
{
    text(ctx, answer, &[line.as_bytes(), b"\r\n"]);
}

/// A line that says what is wrong.
pub(super) fn say_error<T, P>(ctx: &mut Context<'_, T, P>, answer: &mut Answer<T::Buf>, line: &str)
where
    T: Transport,
    P: Pool<Buf = T::Buf>,
{
    let alone = answer.is_error || answer.body.is_none();
    say(ctx, answer, line);
    answer.is_error = alone;
}

fn put<T, P>(ctx: &mut Context<'_, T, P>, answer: &mut Answer<T::Buf>, bytes: &[u8])
where
    T: Transport,
    P: Pool<Buf = T::Buf>,
{
    if answer.is_spoilt || bytes.is_empty() {
        return;
    }
    answer.is_error = false;
    if let Some(room) = answer.body.as_mut().and_then(|body| body.append(bytes.len())) {
        return room.copy_from_slice(bytes);
    }
    for part in bytes.chunks(ctx.pools.frames.buf_room().max(1)) {
        let Some(mut buf) = ctx.pools.frames.alloc() else { return spoil(ctx, answer) };
        match buf.append(part.len()) {
            Some(room) => room.copy_from_slice(part),
            None => return spoil(ctx, answer),
        }
        hang(ctx, answer, buf);
    }
}

/// A line in front of a value, the value, and what follows it: the end of its line at least. `line` goes into the room before
/// the value, where the item's header was.
pub(super) fn value<T, P>(
    ctx: &mut Context<'_, T, P>,
    answer: &mut Answer<T::Buf>,
    line: &[u8],
    mut value: T::Buf,
    end: &'static [u8],
) -> Said
where
    T: Transport,
    P: Pool<Buf = T::Buf>,
{
    let small = value.len() <= COPYBREAK
        && answer.body.as_ref().is_some_and(|b| b.tailroom() >= COPYBREAK + line.len() + end.len());
    if small {
        put(ctx, answer, line);
        value.segments().for_each(|segment| put(ctx, answer, segment));
        put(ctx, answer, end);
        return Said::Copied;
    }
    answer.is_error = false;
    if let Some(room) = value.prepend(line.len()) {
        room.copy_from_slice(line);
        hang(ctx, answer, value);
    } else {
        put(ctx, answer, line);
        hang(ctx, answer, value);
    }
    put(ctx, answer, end);
    Said::Hung
}

/// Hangs a buffer behind the answer.
fn hang<T, P>(ctx: &mut Context<'_, T, P>, answer: &mut Answer<T::Buf>, buf: T::Buf)
where
    T: Transport,
    P: Pool<Buf = T::Buf>,
{
    match &mut answer.body {
        _ if answer.is_spoilt => {}
        Some(body) => {
            if body.chain(buf).is_err() {
                spoil(ctx, answer);
            }
        }
        none => *none = Some(buf),
    }
}

pub(super) fn spoil<T: Transport, P>(ctx: &mut Context<'_, T, P>, answer: &mut Answer<T::Buf>) {
    ctx.tally.drop(DropReason::PoolDry, 1);
    answer.is_spoilt = true;
    answer.body = None;
}

impl<B: Buf, C: Client> Engine<B, C> {
    /// The request is done: its reply goes out, if there is one.
    pub(super) fn reply<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let Some(request) = self.requests.value(at) else { return };
        let (client, mut answer) = (request.client, std::mem::take(&mut request.answer));
        self.requests.discard(at);
        self.large -= answer.large;
        self.kept -= answer.kept;
        if answer.is_spoilt {
            // Better a word than silence, if there is a buffer for it now.
            answer = Answer::default();
            say(ctx, &mut answer, Failure::OutOfMemory.text());
        }
        if let Some(body) = answer.body.filter(|_| !answer.is_spoilt) {
            ctx.tally.add(Counter::KvReplies, 1);
            self.replies.push_back(Reply { client, body, is_error: answer.is_error });
        } else {
            ctx.tally.add(Counter::KvUnanswered, 1);
        }
    }
}
