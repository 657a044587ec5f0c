//! The relay: Ethernet flows carried over RDMA to a peer and out of its port.
//!
//! | file | what it holds |
//! |---|---|
//! | `header` | the message header |
//! | `path` | one queue pair to the peer: credits, totals, state |
//! | `send` | frames into messages |
//! | `receive` | messages into frames |
//! | `lifecycle` | paths coming up, failing, closing |
//!
//! Every frame that enters leaves by exactly one of: sent in a message the transport completed, or dropped under a name.

pub mod header;
mod lifecycle;
mod path;
mod receive;
mod send;

pub use path::{CONTROL_CREDITS, MIN_RECEIVES, PathEnd, PathLink, PathState, PathTotals};

use super::{Burst, Context, Service};
use crate::classify::Classifier;
use crate::flow::{FlowStats, FlowTable, PathIndex};
use crate::stats::Counter;
use arrayvec::ArrayVec;
use path::{Mark, Path};
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::transport::Transport;
use rdma_engine::types::Time;
use rdma_engine::wr::{Completion, Done};

/// Paths of one worker at most.
pub const MAX_PATHS: usize = 32;

/// What happens to frames that cannot be posted at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnFull {
    /// They wait, the RX queue is not polled, and the port's ring is the backlog.
    Wait,
    /// They are dropped and counted.
    Drop,
}

/// What happens to frames of a flow the table has no place for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnTableFull {
    /// Their path follows from the flow's signature.
    Hash,
    /// They are dropped and counted.
    Drop,
}

/// Numbers of a relay worker, all resolved from the configuration.
#[derive(Clone, Copy, Debug)]
pub struct RelaySettings {
    /// Paths of this worker.
    pub paths: usize,
    /// Frames up to this length are copied into a message or out of it; longer ones are chained or sliced. Bytes.
    pub copybreak: usize,
    /// What to do when nothing can be posted.
    pub on_full: OnFull,
    /// What to do when the flow table is full.
    pub on_table_full: OnTableFull,
    /// How long frames wait for a dead path before they are dropped. Nanoseconds.
    pub dead_path_wait_ns: u64,
    /// How long credits may go untold. Nanoseconds.
    pub credit_refresh_ns: u64,
    /// Entries of the flow table.
    pub flow_capacity: usize,
    /// Idle time after which a flow may give way. Milliseconds.
    pub flow_idle_ms: u32,
    /// Secret of the flow signatures.
    pub seed: u64,
}

/// The relay on one worker.
#[derive(Debug)]
pub struct Relay<B: Buf> {
    settings: RelaySettings,
    classifier: Classifier,
    flows: FlowTable,
    paths: Box<[Path<B>]>,
    /// Paths that take new frames.
    living: ArrayVec<PathIndex, MAX_PATHS>,
    /// Frames of the last burst that wait, oldest first.
    held: Burst<B>,
    /// Copied frames, freed together.
    spent: Burst<B>,
    /// Since when no path is alive.
    dead_since: Option<Time>,
    draining: bool,
    /// Receives left on the shared queue by paths that are gone.
    spare_receives: u32,
}

impl<B: Buf> Relay<B> {
    /// A relay without a connection.
    ///
    /// # Panics
    /// If `settings.paths` is 0 or above [`MAX_PATHS`].
    pub fn new(settings: RelaySettings) -> Self {
        assert!((1..=MAX_PATHS).contains(&settings.paths), "{} paths on one worker", settings.paths);
        Relay {
            settings,
            classifier: Classifier::new(settings.seed),
            flows: FlowTable::new(settings.flow_capacity, settings.flow_idle_ms),
            paths: (0..settings.paths).map(|_| Path::empty()).collect(),
            living: ArrayVec::new(),
            held: Burst::new(),
            spent: Burst::new(),
            dead_since: None,
            draining: false,
            spare_receives: 0,
        }
    }

    /// State of a path.
    pub fn path_state(&self, path: PathIndex) -> PathState {
        self.paths[usize::from(path)].state
    }

    /// Totals of a path's present or last connection.
    pub fn path_totals(&self, path: PathIndex) -> PathTotals {
        self.paths[usize::from(path)].totals
    }

    /// Counters of the flow table.
    pub fn flow_stats(&self) -> FlowStats {
        self.flows.stats()
    }

    /// Frames taken from the RX queue that wait to be posted.
    pub fn frames_held(&self) -> usize {
        let stalled = |p: &Path<B>| p.stalled.as_ref().map_or(0, |wr| Mark::of(wr.cookie).frames.into());
        self.held.len() + self.paths.iter().map(stalled).sum::<usize>()
    }

    /// Frames of received messages that wait for the TX queue.
    pub fn frames_waiting(&self) -> usize {
        let left = |p: &Path<B>| p.backlog.iter().map(|m| m.lengths.len() - m.next).sum::<usize>();
        self.paths.iter().map(left).sum()
    }

    /// Which path a completion belongs to. A receive of a shared queue does not say; its queue pair does. `None` for one
    /// that no path took, as when the shared queue is flushed.
    fn mark_of(&mut self, completion: &Completion<B>) -> Option<Mark> {
        if completion.cookie != Mark::SHARED {
            return Some(Mark::of(completion.cookie));
        }
        let owner = |p: &Path<B>| p.link.filter(|l| l.srq.is_some() && l.qp == completion.qp);
        let found = self.paths.iter().enumerate().find_map(|(i, p)| owner(p).map(|l| (i, l.generation)));
        if found.is_none() {
            self.spare_receives = self.spare_receives.saturating_sub(1);
        }
        found.map(|(path, generation)| Mark { path: path as u8, frames: 0, generation })
    }

    /// True if no received message waits for the TX queue.
    pub fn is_delivered(&self) -> bool {
        self.paths.iter().all(|p| p.backlog.is_empty())
    }
}

impl<T: Transport, P: Pool<Buf = T::Buf>> Service<T, P> for Relay<T::Buf> {
    fn on_burst(&mut self, ctx: &mut Context<'_, T, P>, burst: &mut Burst<T::Buf>) -> bool {
        let delivered = self.deliver_backlogs(ctx);
        let mut sent = self.retry_stalled(ctx);
        if !self.held.is_empty() {
            debug_assert!(burst.is_empty(), "a relay that holds frames wants none");
            std::mem::swap(&mut self.held, burst);
        }
        if !burst.is_empty() {
            sent |= self.relay_burst(ctx, burst);
        }
        delivered | sent
    }

    fn on_completion(&mut self, ctx: &mut Context<'_, T, P>, completion: Completion<T::Buf>) {
        let Some(mark) = self.mark_of(&completion) else { return };
        let current = self.paths[usize::from(mark.path)].link.map(|l| l.generation) == Some(mark.generation);
        debug_assert!(current, "a path is detached only when nothing of it is in flight");
        match completion.done {
            Done::Sent(_) => self.sent(ctx, mark, completion.status),
            Done::Received(_) => self.received(ctx, mark, completion.status, completion.buf),
        }
    }

    fn on_tick(&mut self, ctx: &mut Context<'_, T, P>) {
        for path in 0..self.paths.len() {
            self.post_owed(ctx, path);
            self.refresh_credit(ctx, path);
            self.advance_close(ctx, path);
        }
        if !self.held.is_empty() {
            ctx.tally.add(Counter::Stalls, 1);
        }
    }

    fn wants_rx(&self) -> bool {
        self.held.is_empty() && !self.draining
    }
}

#[cfg(test)]
mod tests;
