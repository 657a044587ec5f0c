//! Partitions of memory nodes as a gateway worker sees them.

use super::slab::NONE;
use crate::flow::PathIndex;
use crate::service::kv::epochs::Lookups;
use crate::service::kv::link::KvLink;
use crate::service::kv::message::{Node, NodeCounts};
use crate::service::kv::staging::Slots;
use crate::service::relay::{PathEnd, PathTotals};
use rdma_engine::cm::RegionOffer;
use rdma_engine::types::Time;

/// Where a queue pair stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PathState {
    Empty,
    /// Attached, the other end is not ready yet.
    Armed,
    Up,
    Dying(PathEnd),
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) state: PathState,
    pub(super) link: Option<KvLink>,
    pub(super) part: u16,
    /// Receives that could not be posted yet.
    pub(super) owed: u32,
    pub(super) totals: PathTotals,
}

impl Path {
    pub(super) fn empty() -> Self {
        Path { state: PathState::Empty, link: None, part: 0, owed: 0, totals: PathTotals::default() }
    }
}

/// Jobs in a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) first: u32,
    pub(super) last: u32,
}

impl Line {
    pub(super) const EMPTY: Line = Line { first: NONE, last: NONE };

    pub(super) fn is_empty(&self) -> bool {
        self.first == NONE
    }
}

/// Whether a partition takes operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Membership {
    /// It has not been asked yet.
    Unknown,
    /// It has been asked.
    Asked,
    /// It serves ours.
    Ours,
    /// It served the one before, in which its keys were its own as well, and has been asked for ours.
    Renewed,
    /// It serves another one; asked again after a while.
    Other,
}

/// A partition of a node.
#[derive(Debug)]
pub(super) struct Part {
    /// Place of its node.
    pub(super) node: u16,
    /// Paths of both lanes, by index.
    pub(super) read: Option<PathIndex>,
    pub(super) call: Option<PathIndex>,
    pub(super) membership: Membership,
    pub(super) asked_at: Time,
    pub(super) region: Option<RegionOffer>,
    pub(super) lookups: Lookups,
    /// Jobs that wait for room in the send queue.
    pub(super) to_read: Line,
    /// Jobs that wait for credit.
    pub(super) to_call: Line,
    /// Calls that may be under way at once.
    pub(super) credits: u32,
    pub(super) calls_out: u32,
    /// Where calls may be written to.
    pub(super) staging: Option<Slots>,
    /// What the node was told last, and when.
    pub(super) told_epoch: u64,
    pub(super) told_at: Time,
    pub(super) is_report_out: bool,
    pub(super) counts: NodeCounts,
}

impl Part {
    /// True if jobs wait in a line.
    pub(super) fn has_waiting(&self) -> bool {
        !self.to_read.is_empty() || !self.to_call.is_empty()
    }

    pub(super) fn new(node: u16) -> Self {
        Part {
            node,
            read: None,
            call: None,
            membership: Membership::Unknown,
            asked_at: Time(0),
            region: None,
            lookups: Lookups::new(0),
            to_read: Line::EMPTY,
            to_call: Line::EMPTY,
            credits: 0,
            calls_out: 0,
            staging: None,
            told_epoch: 0,
            told_at: Time(0),
            is_report_out: false,
            counts: NodeCounts::default(),
        }
    }
}

/// Numbers of our list and of the one that a node was found to serve instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OtherList {
    None,
    /// Nobody has been told yet.
    News(u64, u64),
    Known(u64, u64),
}

impl OtherList {
    /// The node said so.
    pub(super) fn hear(&mut self, ours: u64, theirs: u64) {
        if *self != OtherList::Known(ours, theirs) {
            *self = OtherList::News(ours, theirs);
        }
    }

    /// What nobody has been told yet.
    pub(super) fn news(&mut self) -> Option<(u64, u64)> {
        let OtherList::News(ours, theirs) = *self else { return None };
        *self = OtherList::Known(ours, theirs);
        Some((ours, theirs))
    }
}

/// A memory node.
#[derive(Debug)]
pub(super) struct NodeState {
    pub(super) node: Option<Node>,
    /// What to add to our clock to get the node's. Milliseconds.
    pub(super) clock_ahead_ms: i64,
    pub(super) clock_at: Time,
    /// It takes operations.
    pub(super) is_up: bool,
    /// It is not in the list any more, and is being told.
    pub(super) leaves: bool,
    pub(super) other_list: OtherList,
}

impl NodeState {
    pub(super) fn new() -> Self {
        NodeState {
            node: None,
            clock_ahead_ms: 0,
            clock_at: Time(0),
            is_up: false,
            leaves: false,
            other_list: OtherList::None,
        }
    }

    /// Takes what the node says its clock is. What arrives is late, never early, so the largest difference is the best; it
    /// gives way to newer ones after a second, as clocks drift.
    pub(super) fn hear_clock(&mut self, now: Time, ours_ms: u64, theirs_ms: u64) {
        let ahead = theirs_ms.cast_signed().wrapping_sub(ours_ms.cast_signed());
        if ahead > self.clock_ahead_ms || now.since_ns(self.clock_at) > 1_000_000_000 || self.clock_at.0 == 0
        {
            (self.clock_ahead_ms, self.clock_at) = (ahead, now);
        }
    }

    /// The node's clock as far as is known.
    pub(super) fn clock_ms(&self, ours_ms: u64) -> u64 {
        ours_ms.saturating_add_signed(self.clock_ahead_ms)
    }
}
