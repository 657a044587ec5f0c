//! A gateway worker without its front end: requests go in, READs and calls go to memory nodes, replies come out.
//!
//! | file | what it does |
//! |---|---|
//! | `request` | a datagram of a client; reads its commands one after the other |
//! | `commands` | turns a command into jobs, one a key |
//! | `job` | one key on its way |
//! | `single` | a `get` of one key, or a plain `set`, and nothing else: begun and answered in one go each |
//! | `lookup` | GETs: the remembered place, or both buckets, then the item |
//! | `calls` | everything else: mutations, flushes, GETs that raced too often |
//! | `report` | what nodes are told by themselves: hits, epochs, memberships |
//! | `relist` | another list of nodes |
//! | `finish` | results become replies |
//! | `reply` | text and values as one chain of buffers |
//! | `parts`, `paths` | partitions of nodes and the queue pairs to them |
//! | `stats` | the `stats` command |
//!
//! Nothing here allocates after the start.

mod calls;
mod commands;
mod finish;
mod job;
mod lookup;
mod parts;
mod paths;
mod relist;
mod reply;
mod report;
mod request;
mod single;
mod slab;
mod stats;
mod verb;

use super::members::Members;
use super::order::Order;
use super::ownership::Owners;
use crate::service::{Context, has_spare};
use crate::stats::Counter;
use crate::store::layout::{SLOTS, Slot};
use crate::store::locations::Locations;
use arrayvec::ArrayVec;
use job::{Failure, Job, Outcome, Step};
use parts::{NodeState, Part, Path};
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::transport::Transport;
use rdma_engine::types::Time;
use rdma_engine::wr::{Completion, Cookie};
use relist::Relisting;
use request::Request;
pub use request::{Arrival, Client};
use slab::{NONE, Slab};
use std::collections::VecDeque;

/// Jobs that one request may have.
pub const REQUEST_JOBS: usize = 1024;
/// The most jobs of a worker.
pub const MOST_JOBS: usize = 60_000;
/// Items found or stored after which a use is told again, before any node has said how many it holds.
const FIRST_PERIOD: u64 = 1 << 18;

/// What a gateway worker is told at its start.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Memory nodes, in the order of the links' numbers, and the number of their list.
    pub members: Members,
    /// Memory nodes that another list may have.
    pub nodes_max: usize,
    /// Workers that each of them may have.
    pub node_workers_max: u16,
    /// Queue pairs of this worker: two for each worker of each node.
    pub paths: usize,
    /// Jobs under way at once; [`REQUEST_JOBS`] at least, [`MOST_JOBS`] at most.
    pub jobs: usize,
    /// Locations remembered.
    pub locations: usize,
    /// Bytes of the largest value.
    pub value_bytes_max: usize,
    /// Calls from this size on go by RDMA WRITE with immediate to nodes that have room for that. Bytes.
    pub write_imm_from: usize,
    /// Nanoseconds since 1970 when [`Time`] was 0.
    pub unix_ns_at_zero: u64,
}

/// A finished request.
#[derive(Debug)]
pub struct Reply<B, C> {
    /// Who asked.
    pub client: C,
    /// The whole text.
    pub body: B,
    /// Nothing but an error: such replies are limited.
    pub is_error: bool,
}

/// A gateway worker without its front end.
#[derive(Debug)]
pub struct Engine<B: Buf, C: Client> {
    settings: EngineSettings,
    owners: Owners,
    members: Box<Members>,
    relisting: Relisting,
    /// By place in the list of nodes; the last one is nobody's.
    nodes: Box<[NodeState]>,
    /// By node and partition.
    parts: Box<[Part]>,
    paths: Box<[Path]>,
    jobs: Slab<Job<B>>,
    /// By job: slots that may be its key's.
    slots: Box<[ArrayVec<Slot, { 2 * SLOTS }>]>,
    requests: Slab<Request<B, C>>,
    order: Order,
    locations: Locations,
    /// Jobs that have not asked for their turn yet.
    fresh: VecDeque<u32>,
    /// Jobs whose turn has come.
    due: VecDeque<u32>,
    /// Requests that can go on.
    idle: VecDeque<u32>,
    replies: VecDeque<Reply<B, C>>,
    /// Messages that came in pieces.
    gathered: Vec<u8>,
    started: Time,
    draining: bool,
    /// A partition may have jobs that wait in a line.
    has_waiting: bool,
    /// Jobs that hold a large value or may bring one, and large values in answers that have not left.
    large: usize,
    /// Buffers of answers whose requests have more commands.
    kept: usize,
}

impl<B: Buf, C: Client> Engine<B, C> {
    /// A worker without connections.
    ///
    /// # Panics
    /// If there are too few or too many jobs.
    pub fn new(settings: EngineSettings) -> Self {
        assert!((REQUEST_JOBS..=MOST_JOBS).contains(&settings.jobs), "{} jobs", settings.jobs);
        let owners = Owners::default();
        let nodes = settings.nodes_max + 1;
        let most = usize::from(settings.node_workers_max);
        let parts = nodes * most;
        Engine {
            members: Box::new(settings.members.clone()),
            relisting: Relisting::new(settings.jobs),
            nodes: (0..nodes).map(|_| NodeState::new()).collect(),
            parts: (0..parts).map(|part| Part::new((part / most) as u16)).collect(),
            paths: (0..settings.paths).map(|_| Path::empty()).collect(),
            jobs: Slab::new(settings.jobs),
            slots: (0..settings.jobs).map(|_| ArrayVec::new()).collect(),
            requests: Slab::new(settings.jobs),
            order: Order::new(settings.jobs),
            locations: Locations::new(settings.locations, parts as u16, FIRST_PERIOD),
            fresh: VecDeque::with_capacity(settings.jobs),
            due: VecDeque::with_capacity(settings.jobs),
            idle: VecDeque::with_capacity(settings.jobs),
            replies: VecDeque::with_capacity(settings.jobs),
            gathered: Vec::with_capacity(settings.value_bytes_max + 1024),
            started: Time(0),
            draining: false,
            has_waiting: false,
            large: 0,
            kept: 0,
            owners,
            settings,
        }
    }

    /// True while another request can be taken.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.jobs.room() >= REQUEST_JOBS
            && self.requests.room() > 0
            && !self.draining
            && self.relisting.coming.is_none()
    }

    /// True if nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty() && self.replies.is_empty()
    }

    /// Memory nodes that take operations.
    pub fn nodes_up(&self) -> usize {
        self.nodes.iter().filter(|node| node.is_up).count()
    }

    /// Takes a request. Only while there [is room](Self::has_room).
    /// It is begun at once, unless others come first; [`go_on`](Self::go_on) does the rest.
    #[inline]
    pub fn ask<T, P>(&mut self, ctx: &mut Context<'_, T, P>, client: C, asked: Arrival<B>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        ctx.tally.add(Counter::KvRequests, 1);
        // Nothing that came before it may be overtaken.
        let is_next = self.idle.is_empty() && self.holds_none();
        let one = if is_next { self.as_one(asked.frame.first(), &asked.text) } else { None };
        if let Some(one) = one {
            return self.ask_one(ctx, client, asked, one);
        }
        let Some(at) = self.requests.insert(Request::new(client, asked)) else { return };
        if is_next {
            self.next_command(ctx, at);
        } else {
            self.idle.push_back(at);
        }
    }

    /// The next reply.
    #[inline]
    pub fn next_reply(&mut self) -> Option<Reply<B, C>> {
        self.replies.pop_front()
    }

    /// Takes what came of a READ, a call or a receive. [`go_on`](Self::go_on) does what follows from it.
    pub fn completed<T, P>(&mut self, ctx: &mut Context<'_, T, P>, completion: Completion<B>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let mark = Mark::of(completion.cookie);
        match mark.what {
            What::Item | What::Bucket | What::Generation => self.read(ctx, mark, completion),
            What::Call => self.called(ctx, mark, completion.status),
            What::Receive => self.answered(ctx, mark, completion),
        }
    }

    /// Goes on with what waited for room or buffers, then with everything that can. Once a turn. True if anything went.
    #[inline]
    pub fn go_on<T, P>(&mut self, ctx: &mut Context<'_, T, P>) -> bool
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let mut any = false;
        if std::mem::take(&mut self.has_waiting) {
            for part in 0..self.parts.len() {
                if self.parts[part].has_waiting() {
                    any |= self.go_on_part(ctx, part);
                    self.has_waiting |= self.parts[part].has_waiting();
                }
            }
        }
        any | self.settle(ctx)
    }

    /// Runs requests and jobs that can go on, until none can: all requests are begun before the first of their jobs goes on, so
    /// that what jobs need has come from memory meanwhile.
    fn settle<T, P>(&mut self, ctx: &mut Context<'_, T, P>) -> bool
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let mut any = false;
        self.let_go(ctx.now);
        loop {
            // A command may need as many; those that are over give them back.
            while self.jobs.room() >= REQUEST_JOBS
                && let Some(request) = self.idle.pop_front()
            {
                any = true;
                self.next_command(ctx, request);
            }
            while let Some(job) = self.fresh.pop_front() {
                any = true;
                if self.enter(job) {
                    self.advance(ctx, job);
                }
            }
            let can_begin = !self.idle.is_empty() && self.jobs.room() >= REQUEST_JOBS;
            if self.due.is_empty() && !can_begin {
                return any;
            }
            while let Some(job) = self.due.pop_front() {
                any = true;
                self.advance(ctx, job);
            }
        }
    }

    /// Does a job's present step.
    fn advance<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: u32)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let Some(job) = self.jobs.value(at) else { return };
        let (step, part) = (job.step, usize::from(job.part));
        if matches!(step, Step::Item | Step::Buckets | Step::Ask) && !self.is_up(part) {
            return self.finish(ctx, at, Outcome::Failed(Failure::NodeDown));
        }
        match step {
            Step::Item => self.read_item(ctx, at),
            Step::Buckets => self.read_buckets(ctx, at),
            Step::Ask => self.ask_owner(ctx, at),
            Step::Lost => self.finish(ctx, at, Outcome::Failed(Failure::NodeDown)),
            Step::Ordered | Step::Reading | Step::Asked | Step::Done => {}
        }
    }

    /// True if the node of this partition takes operations.
    #[inline]
    fn is_up(&self, part: usize) -> bool {
        self.nodes[usize::from(self.parts[part].node)].is_up
    }

    fn node_of(&mut self, part: usize) -> &mut NodeState {
        &mut self.nodes[usize::from(self.parts[part].node)]
    }

    /// Milliseconds since 1970.
    fn unix_ms(&self, now: Time) -> u64 {
        (self.settings.unix_ns_at_zero + now.0) / 1_000_000
    }

    /// Large values are few at a time: their buffers are those that answers of nodes arrive in, too. A quarter of these is
    /// theirs, and replies that wait for their port may not take the last ones. Beyond that a job waits, which is safe as long as
    /// its request holds no large value itself; else it fails.
    fn admit_large<T, P>(&mut self, ctx: &Context<'_, T, P>, at: u32) -> Admission
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let Some(job) = self.jobs.value(at) else { return Admission::Wait };
        if job.is_large {
            return Admission::Go;
        }
        let (pool, request) = (&ctx.pools.messages, job.request);
        if self.large < (pool.capacity() / 4).max(1) && has_spare(pool) {
            job.is_large = true;
            self.large += 1;
            return Admission::Go;
        }
        let holds_none =
            self.requests.get(request).is_some_and(|r| r.roll.first == r.roll.last && r.answer.large == 0);
        if holds_none { Admission::Wait } else { Admission::Fail }
    }

    /// Puts a job behind the others that wait for the same.
    fn line_up(&mut self, at: u32, line: impl Fn(&mut Part) -> &mut parts::Line) {
        let Some(job) = self.jobs.value(at) else { return };
        job.next = NONE;
        let part = usize::from(job.part);
        self.has_waiting = true;
        let line = line(&mut self.parts[part]);
        let last = std::mem::replace(&mut line.last, at);
        if last == NONE {
            line.first = at;
        } else if let Some(last) = self.jobs.value(last) {
            last.next = at;
        }
    }

    /// Takes the first job of a line.
    fn first_in_line(&mut self, part: usize, line: impl Fn(&mut Part) -> &mut parts::Line) -> Option<u32> {
        let line = line(&mut self.parts[part]);
        let at = line.first;
        if at == NONE {
            return None;
        }
        let next = self.jobs.value(at).map_or(NONE, |job| job.next);
        line.first = next;
        if next == NONE {
            line.last = NONE;
        }
        Some(at)
    }

    /// Goes on with the lines of a partition as far as there is room. A job that has to wait again ends it: what it lacks, as a
    /// buffer or a place in the send queue, the next one lacks as well.
    fn go_on_part<T, P>(&mut self, ctx: &mut Context<'_, T, P>, part: usize) -> bool
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let mut any = false;
        while self.can_read(ctx, part)
            && let Some(at) = self.first_in_line(part, |p| &mut p.to_read)
        {
            self.advance(ctx, at);
            if self.parts[part].to_read.last == at {
                break;
            }
            any = true;
        }
        while self.can_call(part)
            && let Some(at) = self.first_in_line(part, |p| &mut p.to_call)
        {
            self.advance(ctx, at);
            if self.parts[part].to_call.last == at {
                break;
            }
            any = true;
        }
        any
    }
}

/// Whether a large value may be fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Admission {
    /// Now.
    Go,
    /// When others have gone.
    Wait,
    /// Not at all.
    Fail,
}

/// What a completion is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum What {
    /// READ of an item.
    Item,
    /// READ of a bucket.
    Bucket,
    /// READ of a partition's generation.
    Generation,
    /// A call that was sent.
    Call,
    /// An answer.
    Receive,
}

/// The cookie of requests: what it was, and of which job or path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    what: What,
    /// A job, or a path.
    of: u32,
}

impl Mark {
    #[inline]
    fn cookie(what: What, of: u32) -> Cookie {
        Cookie(u64::from(of) << 8 | what as u64)
    }

    #[inline]
    fn of(cookie: Cookie) -> Self {
        let what = match cookie.0 & 0xFF {
            0 => What::Item,
            1 => What::Bucket,
            2 => What::Generation,
            3 => What::Call,
            _ => What::Receive,
        };
        Mark { what, of: (cookie.0 >> 8) as u32 }
    }
}
