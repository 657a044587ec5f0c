//! One key of one request on its way.

use super::slab::NONE;
use crate::memcached::Hit;
use crate::service::kv::epochs::Began;
use crate::store::geometry::Probe;

/// What a job does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Task {
    /// Reads an item, by READs and if need be by a call.
    Fetch {
        /// A stale item that nobody was told to renew is for its owner to answer.
        claim: bool,
    },
    /// Asks the owner.
    Call,
    /// A part of `flush_all`: one partition's.
    Flush,
}

/// Where a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Waits for its turn.
    Ordered,
    /// An item is to be read.
    Item,
    /// The key's buckets are to be read.
    Buckets,
    /// READs are under way.
    Reading,
    /// A call is to be posted.
    Ask,
    /// The answer is awaited.
    Asked,
    /// There was no node for its key when it was begun: there is none for it any more, even if one has come since.
    Lost,
    /// Over.
    Done,
}

/// Where the item is that is being read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) place: u64,
    pub(super) units: u32,
    /// The item's sequence, when the place was remembered.
    pub(super) seq: Option<u64>,
}

/// Where a key is in a request's frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeyAt {
    /// In the first segment.
    Frame {
        /// From here on.
        at: u32,
        /// Bytes.
        len: u8,
    },
    /// In the command, encoded.
    Encoded,
    /// There is none.
    None,
}

impl KeyAt {
    /// The key in a frame, if it is there.
    pub(super) fn of(self, frame: &[u8]) -> Option<&[u8]> {
        match self {
            KeyAt::Frame { at, len } => frame.get(at as usize..at as usize + usize::from(len)),
            KeyAt::Encoded | KeyAt::None => None,
        }
    }
}

/// What came of a job.
#[derive(Debug)]
pub(super) enum Outcome<B> {
    /// Still under way.
    Open,
    /// What is known of the item, and its value.
    Hit(Hit<'static>, B),
    /// The answer of the owner: an outcome behind an answer's header.
    Answer(B),
    /// There is no item.
    Miss,
    /// The node is not there, or did not do it.
    Failed(Failure),
}

/// Why something could not be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// The memory node is not connected.
    NodeDown,
    /// The connection broke before the answer came: it may be done or not.
    Unanswered,
    /// The node serves another membership.
    Membership,
    /// The node could make no sense of it.
    Refused,
    /// Too many large values at once.
    OutOfMemory,
}

impl Failure {
    /// What the client is told.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Failure::NodeDown => "SERVER_ERROR memory node down",
            Failure::Unanswered => "SERVER_ERROR memory node lost before it answered",
            Failure::Membership => "SERVER_ERROR memory node serves another membership",
            Failure::OutOfMemory => "SERVER_ERROR out of memory writing get response",
            Failure::Refused => "SERVER_ERROR memory node refused the operation",
        }
    }
}

/// One key of one request.
#[derive(Debug)]
pub(super) struct Job<B> {
    pub(super) task: Task,
    pub(super) step: Step,
    /// Of which request.
    pub(super) request: u32,
    /// The lane that its turn is in: that of its client and key; `None` for what waits for nothing.
    pub(super) lane: Option<u64>,
    /// The next job of the same request.
    pub(super) sibling: u32,
    /// The next job in whatever line this one waits.
    pub(super) next: u32,
    /// Where the key is in the request's frame; one that came in base64 is decoded anew whenever it is needed.
    pub(super) key: KeyAt,
    /// The partition, over all nodes.
    pub(super) part: u16,
    pub(super) probe: Probe,
    pub(super) writes: bool,
    /// It holds, or may bring, a value too large for a small buffer: such are counted.
    pub(super) is_large: bool,
    /// It is a fetch, however it is done: it has a hit or a miss.
    pub(super) fetches: bool,
    /// A lookup that is under way.
    pub(super) began: Option<Began>,
    pub(super) began_ms: u64,
    /// How often something was not what it seemed.
    pub(super) rounds: u8,
    pub(super) reads_out: u8,
    /// A READ of this round failed.
    pub(super) is_broken: bool,
    pub(super) item: Place,
    /// Which of the slots is next.
    pub(super) next_slot: u8,
    pub(super) generation_read: u64,
    pub(super) result: Outcome<B>,
}

impl<B> Job<B> {
    /// A job of a request that has not had its turn yet.
    #[inline]
    pub(super) fn new(
        (request, task, fetches): (u32, Task, bool),
        key: KeyAt,
        lane: Option<u64>,
        part: u16,
        probe: Probe,
    ) -> Self {
        Job {
            task,
            step: Step::Ordered,
            request,
            lane,
            sibling: NONE,
            next: NONE,
            key,
            part,
            probe,
            writes: task == Task::Call,
            fetches,
            is_large: false,
            began: None,
            began_ms: 0,
            rounds: 0,
            reads_out: 0,
            is_broken: false,
            item: Place { place: 0, units: 0, seq: None },
            next_slot: 0,
            generation_read: 0,
            result: Outcome::Open,
        }
    }

    /// Its turn has come.
    #[inline]
    pub(super) fn take_turn(&mut self) {
        self.step = match self.task {
            Task::Fetch { .. } | Task::Call if self.probe == Probe::NOWHERE => Step::Lost,
            Task::Fetch { .. } => Step::Item,
            Task::Call | Task::Flush => Step::Ask,
        };
    }
}
