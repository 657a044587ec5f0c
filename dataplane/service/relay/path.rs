//! One queue pair to the peer: its state, credits and totals.
//!
//! # Credits
//! Each side numbers its messages on the queue pair from 0. A header carries how many messages its sender is ready to
//! take in all: the number after the newest one it has seen plus the receives it has posted. A receive is posted again
//! only after its frames have been delivered, so a slow TX port holds the peer back instead of losing frames.
//!
//! The last two credits are kept for control. One is for telling credits, or two full sides could never tell each other
//! that they are empty again. The other is for closing, because a side that has closed tells no more credits. Telling
//! uses a credit of the peer's, which is told back with the next message; by timer where none is to come, and only if
//! the peer is short of them, or the two would go on for ever. That needs a fourth receive.

use super::header::{Header, Kind, MAX_FRAMES};
use arrayvec::ArrayVec;
use rdma_engine::buf::Buf;
use rdma_engine::types::{QpType, Time};
use rdma_engine::wr::{Cookie, QpId, Refusal, SendWr, SrqId, Status, UdDest};
use std::collections::VecDeque;
use std::fmt;

/// Credits that data leaves for telling credits and for closing.
pub const CONTROL_CREDITS: u32 = 2;
/// Receives that each side posts at least: with fewer no data could be sent.
pub const MIN_RECEIVES: u32 = CONTROL_CREDITS + 2;

/// What control hands to a worker when a queue pair is in RTS.
#[derive(Clone, Copy, Debug)]
pub struct PathLink {
    /// The queue pair, attached to this worker's transport.
    pub qp: QpId,
    /// Its transport type.
    pub kind: QpType,
    /// The connection's number; messages of another one are dropped.
    pub generation: u32,
    /// Messages the peer is ready to take at the start.
    pub peer_credits: u32,
    /// Receives to post, which is what the peer has been promised.
    pub recv_depth: u32,
    /// Bytes of a message, header included: the smaller of both sides' limits.
    pub message_bytes: u32,
    /// Segments of a message.
    pub max_segments: u16,
    /// Where datagrams go; UD only.
    pub ud: Option<UdDest>,
    /// The worker's shared receive queue, if receives go there.
    pub srq: Option<SrqId>,
}

/// Where a path stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathState {
    /// No queue pair.
    Empty,
    /// Receives are posted, the peer is not ready yet.
    Armed,
    /// Both sides send.
    Up,
    /// One side has said that it will send no more; the other finishes.
    Closing,
    /// Both sides are done; the queue pair can go.
    Closed,
    /// The queue pair failed or was told to; what it held comes back.
    Dying,
}

/// Why a path was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathEnd {
    /// Both sides had said that nothing more would come.
    Closed,
    /// Control gave it up.
    Told,
    /// A send ended with this status.
    Send(Status),
    /// A receive ended with this status.
    Receive(Status),
    /// The transport refused a request.
    Refused(Refusal),
}

impl fmt::Display for PathEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathEnd::Closed => f.write_str("closed by both sides"),
            PathEnd::Told => f.write_str("given up with its connection"),
            PathEnd::Send(status) => write!(f, "a send failed: {status}"),
            PathEnd::Receive(status) => write!(f, "a receive failed: {status}"),
            PathEnd::Refused(why) => write!(f, "a request was refused: {why}"),
        }
    }
}

/// Frames in both directions over the life of one connection of a path.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PathTotals {
    /// Frames put into messages.
    pub frames_sent: u64,
    /// Frames that came in messages.
    pub frames_received: u64,
    /// Frames the peer sent that never came.
    pub frames_lost: u64,
}

/// A received message being split into frames.
#[derive(Debug)]
pub(super) struct Inbound<B> {
    pub(super) buf: B,
    pub(super) lengths: ArrayVec<u16, MAX_FRAMES>,
    pub(super) next: usize,
}

/// A message being put together.
#[derive(Debug)]
pub(super) struct Outbound<B> {
    pub(super) buf: B,
    pub(super) bytes: usize,
    pub(super) segments: usize,
    pub(super) lengths: ArrayVec<u16, MAX_FRAMES>,
}

/// What a header told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Noted {
    /// The newest message so far; so many frames of messages before it never came.
    Fresh {
        /// Frames.
        missing: u64,
    },
    /// Older than one already seen: a duplicate, or reordered on an unreliable transport.
    Old,
    /// Its count of frames before cannot be.
    Inconsistent,
}

/// A queue pair to the peer, and all that is known of it.
#[derive(Debug)]
pub(super) struct Path<B: Buf> {
    pub(super) state: PathState,
    pub(super) link: Option<PathLink>,
    pub(super) open: Option<Outbound<B>>,
    /// A finished message the send queue had no room for.
    pub(super) stalled: Option<SendWr<B>>,
    /// Received messages not wholly delivered, oldest first; at most the receive depth.
    pub(super) backlog: VecDeque<Inbound<B>>,
    /// Messages the peer allows in all.
    pub(super) granted: u32,
    /// Messages sent.
    pub(super) sent: u32,
    /// When `granted` grew last.
    pub(super) granted_at: Time,
    /// Number after the newest message seen.
    pub(super) seen: u32,
    /// Receives in the queue.
    pub(super) posted: u32,
    /// Receives missing because the pool was dry.
    pub(super) owed: u32,
    /// What the last header told the peer.
    pub(super) advertised: u32,
    /// Data messages, or gaps, since then.
    pub(super) unreported: u32,
    pub(super) advertised_at: Time,
    /// The peer wants to hear of credits at once.
    pub(super) asked: bool,
    /// The peer's receives are posted: it may be sent to.
    pub(super) ready: bool,
    pub(super) close_sent: bool,
    pub(super) close_seen: bool,
    /// The peer has repeated its close: ours was lost.
    pub(super) close_wanted: bool,
    /// When both sides had closed.
    pub(super) closed_at: Option<Time>,
    pub(super) sends_in_flight: u32,
    pub(super) totals: PathTotals,
    /// The first thing that went wrong.
    pub(super) end: PathEnd,
}

impl<B: Buf> Path<B> {
    pub(super) fn empty() -> Self {
        Path {
            state: PathState::Empty,
            link: None,
            open: None,
            stalled: None,
            backlog: VecDeque::new(),
            granted: 0,
            sent: 0,
            granted_at: Time(0),
            seen: 0,
            posted: 0,
            owed: 0,
            advertised: 0,
            unreported: 0,
            advertised_at: Time(0),
            asked: false,
            ready: false,
            close_sent: false,
            close_seen: false,
            close_wanted: false,
            closed_at: None,
            sends_in_flight: 0,
            totals: PathTotals::default(),
            end: PathEnd::Closed,
        }
    }

    /// Starts a new connection on this path.
    pub(super) fn start(&mut self, link: PathLink, now: Time) {
        let backlog = std::mem::take(&mut self.backlog);
        *self = Path::empty();
        self.backlog = backlog;
        self.backlog.reserve(link.recv_depth as usize);
        self.state = PathState::Armed;
        self.granted = link.peer_credits;
        self.granted_at = now;
        self.advertised = link.recv_depth;
        self.advertised_at = now;
        self.link = Some(link);
    }

    /// Messages the peer would take now.
    #[inline]
    pub(super) fn credits(&self) -> u32 {
        let left = self.granted.wrapping_sub(self.sent) as i32;
        left.max(0) as u32
    }

    /// True if a data message may be started, as far as credits go.
    #[inline]
    pub(super) fn may_send_data(&self) -> bool {
        self.state == PathState::Up && self.stalled.is_none() && self.credits() > CONTROL_CREDITS
    }

    /// What the peer may send in all.
    pub(super) fn grant(&self) -> u32 {
        self.seen.wrapping_add(self.posted)
    }

    /// The header of the next message.
    #[inline]
    pub(super) fn next_header(&mut self, kind: Kind, frames: usize, now: Time) -> Header {
        let credits = self.grant();
        let header = Header {
            kind,
            frames: frames as u16,
            generation: self.link.map_or(0, |l| l.generation),
            sequence: self.sent,
            credits,
            frames_before: self.totals.frames_sent,
        };
        self.sent = self.sent.wrapping_add(1);
        self.totals.frames_sent += frames as u64;
        self.advertised = credits;
        self.advertised_at = now;
        self.unreported = 0;
        self.asked = false;
        header
    }

    /// Takes note of a message's header.
    pub(super) fn note(&mut self, header: &Header, now: Time) -> Noted {
        let ahead = header.sequence.wrapping_sub(self.seen) as i32;
        let known = self.totals.frames_received.saturating_add(self.totals.frames_lost);
        let missing = match u64::try_from(ahead) {
            Err(_) => None,
            Ok(messages) => {
                let missing = header.frames_before.checked_sub(known);
                let Some(missing) = missing.filter(|m| *m <= messages * MAX_FRAMES as u64) else {
                    return Noted::Inconsistent;
                };
                Some(missing)
            }
        };
        if header.credits.wrapping_sub(self.granted) as i32 > 0 {
            self.granted = header.credits;
            self.granted_at = now;
        }
        self.ready = true;
        let Some(missing) = missing else { return Noted::Old };
        self.seen = header.sequence.wrapping_add(1);
        if ahead > 0 || header.kind == Kind::Data {
            self.unreported += 1;
        }
        self.totals.frames_lost = self.totals.frames_lost.saturating_add(missing);
        self.totals.frames_received = self.totals.frames_received.saturating_add(header.frames.into());
        Noted::Fresh { missing }
    }

    /// True when the peer should hear of new credits by and by.
    #[inline]
    pub(super) fn has_untold_credit(&self) -> bool {
        let known_to_peer = self.advertised.wrapping_sub(self.seen) as i32;
        let short = known_to_peer <= CONTROL_CREDITS as i32;
        (self.unreported > 0 || short) && self.grant() != self.advertised
    }

    /// True when the peer should hear of new credits at once.
    #[inline]
    pub(super) fn owes_credit(&self) -> bool {
        let depth = self.link.map_or(0, |l| l.recv_depth);
        self.unreported > 0 && self.grant().wrapping_sub(self.advertised) >= (depth / 2).max(1)
    }
}

/// What a relay marks its requests with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) path: u8,
    pub(super) frames: u16,
    pub(super) generation: u32,
}

impl Mark {
    /// The mark of a receive on a shared queue, which any path's message may take.
    pub(super) const SHARED: Cookie = Cookie(0xFF);

    #[inline]
    pub(super) fn cookie(self) -> Cookie {
        Cookie(u64::from(self.generation) << 32 | u64::from(self.frames) << 8 | u64::from(self.path))
    }

    #[inline]
    pub(super) fn of(cookie: Cookie) -> Self {
        Mark { path: cookie.0 as u8, frames: (cookie.0 >> 8) as u16, generation: (cookie.0 >> 32) as u32 }
    }
}
