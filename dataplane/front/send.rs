//! From a reply to the frames that carry it.
//!
//! A reply that fits into one datagram gets its headers in front of its first byte, in place. Where that is not possible
//! (no headroom, shared bytes, several datagrams), a buffer with the headers goes in front of the reply's bytes, which are
//! shared; parts up to the copybreak, and what would have more segments than the port sends, are copied behind them.

use super::local::{Local, MAX_HEADERS};
use super::peer::Peer;
use super::{Front, FrontDrop, PortBuf};
use crate::host::MAX_FRAME;
use crate::memcached::udp::{FrameHeader, HEADER_BYTES, Split};
use rdma_engine::buf::{Egress, Pool};
use rdma_engine::types::Time;
use rdma_engine::wire::InternetChecksum;

/// Datagrams of one reply that are sent before the next reply has its turn.
const QUANTUM: usize = 16;
/// Clients do not wait longer for a reply.
const STALE_NS: u64 = 1_000_000_000;
/// Shortest Ethernet frame without frame check sequence.
const MIN_FRAME: usize = 60;

/// A reply that has not been sent as a whole.
#[derive(Debug)]
pub(super) struct Reply<B> {
    peer: Peer,
    /// The datagrams that are still to be sent.
    split: Split,
    /// Their text; `None` when all has been sent.
    rest: Option<B>,
    since: Time,
}

/// Why a datagram was not made.
enum Stop {
    /// A pool is dry: later.
    Starved,
    /// Never.
    Give(FrontDrop),
}

/// How far a reply has come in its turn.
#[derive(PartialEq, Eq)]
enum Turn {
    Done,
    Paused,
    Starved,
}

/// How a part of a reply came into its frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// It was there.
    InPlace,
    /// Behind a buffer for the headers.
    Chained,
    Copied,
}

/// A part of a reply in the frame to be, with headroom for the headers, and its sum where that is wanted.
struct Part<B> {
    frame: B,
    text_len: usize,
    sum: InternetChecksum,
    how: How,
}

/// Which of our addresses a reply is from, and whom it is to.
type Between<'a> = (&'a Local, &'a Peer);

/// How frames may be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Most segments of a frame.
    pub(super) segments_max: usize,
    /// Parts up to this length are copied rather than shared.
    pub(super) copybreak: usize,
}

impl<B: PortBuf> Front<B> {
    /// Queues a reply: `body` is all of its text. Dropped and counted where the backlog is full. An empty one is none.
    #[inline]
    pub fn send(&mut self, peer: &Peer, body: B) {
        if let Some(reply) = self.reply(peer, body) {
            self.backlog.push_back(reply);
        }
    }

    /// Sends a reply at once where no other one waits and `tx` has room, and queues it otherwise, or what is left of it.
    /// The pools are those of [`flush`](Self::flush).
    #[inline]
    pub fn send_now(
        &mut self,
        peer: &Peer,
        body: B,
        frames: &impl Pool<Buf = B>,
        slices: &impl Pool<Buf = B>,
        tx: &mut impl Egress<B>,
    ) {
        let waits = !self.backlog.is_empty();
        let body = match if waits || tx.room() == 0 { Err(body) } else { self.in_place(peer, body) } {
            Ok(frame) => return self.push(frame, tx),
            Err(body) => body,
        };
        let Some(mut reply) = self.reply(peer, body) else { return };
        if waits || self.serve(&mut reply, frames, slices, tx) != Turn::Done {
            self.backlog.push_back(reply);
        }
    }

    /// The frame of a reply that fits into one datagram and has room for its headers where it lies, as most do. Gives any other
    /// back.
    #[inline]
    fn in_place(&mut self, peer: &Peer, body: B) -> Result<B, B> {
        let local = &self.locals[usize::from(peer.local)];
        let len = body.len();
        let has_room = body.segment_count() == 1 && body.headroom() >= local.header_bytes();
        if !has_room || len == 0 || len > local.text_bytes() || !body.is_unique() {
            return Err(body);
        }
        let sum = sum_of((local, peer), &body);
        let header = FrameHeader::of_one(peer.request_id);
        let part = Part { frame: body, text_len: len, sum, how: How::InPlace };
        match finish(local, part, peer, &header) {
            Ok(frame) => {
                self.counters.in_place += 1;
                self.counters.datagrams += 1;
                self.counters.replies += 1;
                Ok(frame)
            }
            Err(body) => Err(body),
        }
    }

    #[inline]
    fn reply(&mut self, peer: &Peer, body: B) -> Option<Reply<B>> {
        if body.is_empty() {
            return None;
        }
        if self.room() == 0 {
            self.counters.drop(FrontDrop::BacklogFull);
            return None;
        }
        let text_bytes = self.locals[usize::from(peer.local)].text_bytes();
        let Some(split) = Split::new(peer.request_id, body.len(), text_bytes + HEADER_BYTES) else {
            self.counters.drop(FrontDrop::ReplyTooLong);
            return None;
        };
        Some(Reply { peer: *peer, split, rest: Some(body), since: self.now })
    }

    /// Queues a reply that says no more than that the request made no sense, as far as there are not too many of these:
    /// it might itself be taken for a request that makes no sense.
    #[cold]
    pub fn send_error(&mut self, peer: &Peer, body: B) {
        if self.errors.take(self.now) {
            self.send(peer, body);
        } else {
            self.counters.drop(FrontDrop::ErrorRate);
        }
    }

    /// Replies that are still taken.
    #[inline]
    pub fn room(&self) -> usize {
        self.backlog_max - self.backlog.len()
    }

    /// True if [`flush`](Self::flush) has something to send.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.backlog.is_empty() || !self.answers.is_empty() || self.host.has_frame()
    }

    /// Does what is due at `now` and puts into `tx` what waits, as far as that has room: frames of the host side, then
    /// replies in turn. Headers and copies go into buffers of `frames`, whose room is that of a whole frame where the port
    /// sends linear ones only; shared parts take a header from `slices`.
    #[inline]
    pub fn flush(
        &mut self,
        now: Time,
        frames: &impl Pool<Buf = B>,
        slices: &impl Pool<Buf = B>,
        tx: &mut impl Egress<B>,
    ) {
        self.poll(now);
        if self.host.has_frame() || !self.answers.is_empty() {
            self.flush_host(frames, tx);
        }
        let mut backlog = std::mem::take(&mut self.backlog);
        let mut starved = 0;
        while tx.room() > 0
            && starved < backlog.len()
            && let Some(reply) = backlog.front_mut()
        {
            let turn = self.serve(reply, frames, slices, tx);
            starved = if turn == Turn::Starved { starved + 1 } else { 0 };
            if turn == Turn::Done {
                backlog.pop_front();
            } else {
                backlog.rotate_left(1);
            }
        }
        self.backlog = backlog;
        self.counters.starved += u64::from(starved > 0);
    }

    #[cold]
    fn flush_host(&mut self, frames: &impl Pool<Buf = B>, tx: &mut impl Egress<B>) {
        while tx.room() > 0
            && let Some(answer) = self.answers.pop_at(0)
        {
            self.push(answer, tx);
        }
        let mut bytes = [0; MAX_FRAME];
        while tx.room() > 0 && self.host.has_frame() {
            let Some(mut frame) = frames.alloc() else { return };
            let Some(len) = self.host.next_frame(&mut bytes) else { return };
            if let Some(room) = frame.append(len) {
                room.copy_from_slice(&bytes[..len]);
                self.push(frame, tx);
            }
        }
    }

    #[inline]
    fn push(&mut self, frame: B, tx: &mut impl Egress<B>) {
        if tx.push(frame).is_err() {
            self.counters.drop(FrontDrop::EgressFull);
        }
    }

    /// Sends a reply's next datagrams.
    #[inline]
    fn serve(
        &mut self,
        reply: &mut Reply<B>,
        frames: &impl Pool<Buf = B>,
        slices: &impl Pool<Buf = B>,
        tx: &mut impl Egress<B>,
    ) -> Turn {
        if self.now.since_ns(reply.since) >= STALE_NS {
            self.counters.drop(FrontDrop::Stale);
            return Turn::Done;
        }
        for _ in 0..QUANTUM {
            if tx.room() == 0 {
                break;
            }
            match self.next_frame(reply, frames, slices) {
                Ok(frame) => {
                    self.counters.datagrams += 1;
                    self.push(frame, tx);
                }
                Err(Stop::Starved) => return Turn::Starved,
                Err(Stop::Give(reason)) => {
                    self.counters.drop(reason);
                    return Turn::Done;
                }
            }
            if reply.rest.is_none() {
                self.counters.replies += 1;
                return Turn::Done;
            }
        }
        Turn::Paused
    }

    /// The reply's next datagram; on [`Stop::Starved`] the reply is as it was.
    #[inline]
    fn next_frame(
        &mut self,
        reply: &mut Reply<B>,
        frames: &impl Pool<Buf = B>,
        slices: &impl Pool<Buf = B>,
    ) -> Result<B, Stop> {
        let mut split = reply.split;
        let local = &self.locals[usize::from(reply.peer.local)];
        let (Some((header, range)), Some(mut body)) = (split.next(), reply.rest.take()) else {
            return Err(Stop::Give(FrontDrop::DoesNotFit));
        };
        let len = range.len();
        let part = if body.len() == len {
            match last_part((local, &reply.peer), &self.layout, body, frames) {
                Ok(part) => Ok((part, None)),
                Err((given_back, stop)) => Err((given_back, stop)),
            }
        } else {
            match next_part((local, &reply.peer), &self.layout, &body, len, frames, slices) {
                Ok(part) => {
                    body.adj(len);
                    Ok((part, Some(body)))
                }
                Err(stop) => Err((body, stop)),
            }
        };
        match part {
            Ok((part, rest)) => {
                (reply.rest, reply.split) = (rest, split);
                match part.how {
                    How::InPlace => self.counters.in_place += 1,
                    How::Copied => self.counters.copied += 1,
                    How::Chained => {}
                }
                finish(local, part, &reply.peer, &header).map_err(|_| Stop::Give(FrontDrop::DoesNotFit))
            }
            Err((body, stop)) => {
                reply.rest = Some(body);
                Err(stop)
            }
        }
    }
}

/// The sum of a part's bytes, where it is not left to the port.
#[inline]
fn sum_of<B: PortBuf>((local, peer): Between<'_>, part: &B) -> InternetChecksum {
    let empty = InternetChecksum::new();
    if local.sums(peer) { part.segments().fold(empty, |sum, segment| sum.with(segment)) } else { empty }
}

/// Writes the headers into the headroom, which is there; else gives the part back.
#[inline]
fn finish<B: PortBuf>(local: &Local, part: Part<B>, peer: &Peer, header: &FrameHeader) -> Result<B, B> {
    let Part { mut frame, text_len, sum, .. } = part;
    let Some(room) = frame.prepend(local.header_bytes()) else { return Err(frame) };
    local.write(room, peer, header, text_len, sum);
    // Where there is no room for padding the port pads.
    if let Some(missing) = MIN_FRAME.checked_sub(frame.len())
        && let Some(padding) = frame.append(missing)
    {
        padding.fill(0);
    }
    frame.clear_offloads();
    if let Some(offload) = local.tx_offload() {
        frame.request_tx(offload);
    }
    Ok(frame)
}

/// All of `body`: with the headers in front where it lies, behind a buffer for them, or copied.
#[inline]
fn last_part<B: PortBuf>(
    between: Between<'_>,
    layout: &Layout,
    mut body: B,
    frames: &impl Pool<Buf = B>,
) -> Result<Part<B>, (B, Stop)> {
    let (text_len, segments) = (body.len(), body.segment_count());
    let room = body.headroom() >= between.0.header_bytes() && body.try_unique().is_some();
    if room && segments <= layout.segments_max {
        let sum = sum_of(between, &body);
        return Ok(Part { frame: body, text_len, sum, how: How::InPlace });
    }
    if text_len <= layout.copybreak || segments >= layout.segments_max {
        return copy(between, layout, &body, text_len, frames).map_err(|stop| (body, stop));
    }
    match head(between.0, frames) {
        Ok(mut frame) => {
            let sum = sum_of(between, &body);
            match frame.chain(body) {
                Ok(()) => Ok(Part { frame, text_len, sum, how: How::Chained }),
                Err(body) => Err((body, Stop::Give(FrontDrop::DoesNotFit))),
            }
        }
        Err(stop) => Err((body, stop)),
    }
}

/// The first `len` bytes of `body`: shared behind a buffer for the headers, or copied.
fn next_part<B: PortBuf>(
    between: Between<'_>,
    layout: &Layout,
    body: &B,
    len: usize,
    frames: &impl Pool<Buf = B>,
    slices: &impl Pool<Buf = B>,
) -> Result<Part<B>, Stop> {
    if len > layout.copybreak && layout.segments_max > 1 {
        let part = slices.slice(body, 0, len).ok_or(Stop::Starved)?;
        if part.segment_count() < layout.segments_max {
            let mut frame = head(between.0, frames)?;
            let sum = sum_of(between, &part);
            frame.chain(part).map_err(|_| Stop::Give(FrontDrop::DoesNotFit))?;
            return Ok(Part { frame, text_len: len, sum, how: How::Chained });
        }
    }
    copy(between, layout, body, len, frames)
}

/// An empty buffer with room for the headers in front.
fn head<B: PortBuf>(local: &Local, frames: &impl Pool<Buf = B>) -> Result<B, Stop> {
    let mut head = frames.alloc().ok_or(Stop::Starved)?;
    let fits = head.headroom() >= local.header_bytes() || head.reserve(MAX_HEADERS);
    if fits { Ok(head) } else { Err(Stop::Give(FrontDrop::DoesNotFit)) }
}

/// The first `len` bytes of `body`, copied.
fn copy<B: PortBuf>(
    between: Between<'_>,
    layout: &Layout,
    body: &B,
    len: usize,
    frames: &impl Pool<Buf = B>,
) -> Result<Part<B>, Stop> {
    let mut frame = head(between.0, frames)?;
    let mut left = len;
    for segment in body.segments() {
        let mut bytes = &segment[..segment.len().min(left)];
        left -= bytes.len();
        while !bytes.is_empty() {
            if frame.tailroom() == 0 {
                extend(&mut frame, layout, frames)?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(frame.tailroom()));
            let room = frame.append(now.len()).ok_or(Stop::Give(FrontDrop::DoesNotFit))?;
            room.copy_from_slice(now);
            bytes = later;
        }
        if left == 0 {
            break;
        }
    }
    let sum = sum_of(between, &frame);
    Ok(Part { frame, text_len: len, sum, how: How::Copied })
}

/// One more empty segment behind a copy.
fn extend<B: PortBuf>(frame: &mut B, layout: &Layout, frames: &impl Pool<Buf = B>) -> Result<(), Stop> {
    if frame.segment_count() >= layout.segments_max {
        return Err(Stop::Give(FrontDrop::DoesNotFit));
    }
    let next = frames.alloc().ok_or(Stop::Starved)?;
    if next.tailroom() == 0 {
        return Err(Stop::Give(FrontDrop::DoesNotFit));
    }
    frame.chain(next).map_err(|_| Stop::Give(FrontDrop::DoesNotFit))
}
