//! What all queue pairs of a worker share.

use super::config::SoftConfig;
use super::counters::{DropReason, SoftCounters};
use super::event::{Event, Events};
use super::held::HeldPool;
use super::path::{Neighbours, Path};
use super::ready::Ready;
use super::recorder::Recorder;
use super::region::RegionView;
use super::srq::Srq;
use super::timer::Timers;
use crate::buf::{Buf, Pool};
use crate::transport::Counters;
use crate::types::{Gid, Time};
use crate::wr::{Completion, Cookie, Done, QpId, Status};
use std::collections::VecDeque;
use std::sync::Arc;

/// The worker's side of everything that is not a queue pair.
pub(crate) struct Shared<P: Pool> {
    pub(crate) config: Arc<SoftConfig>,
    /// Our addresses, for datagrams.
    pub(crate) gids: Vec<Gid>,
    /// Where frames are allocated.
    pub(crate) pool: P,
    pub(crate) regions: RegionView,
    pub(crate) srqs: Vec<Srq<P::Buf>>,
    /// Completions not polled yet, one queue each.
    pub(crate) cqs: Vec<VecDeque<Completion<P::Buf>>>,
    pub(crate) events: Events<P::Buf>,
    /// Queue pairs whose failure there was no room to tell of.
    pub(crate) failures_untold: u32,
    pub(crate) ready: Ready,
    pub(crate) timers: Timers,
    pub(crate) neighbours: Neighbours,
    /// Paths of datagrams, by address handle.
    pub(crate) paths: Vec<Path>,
    pub(crate) soft: SoftCounters,
    pub(crate) counters: Counters,
    /// A completion of a solicited message was made since this was last taken.
    pub(crate) solicited: bool,
    /// The last frames, if they are kept.
    pub(crate) recorder: Option<Recorder>,
    /// Frames held for selective repeat.
    pub(crate) held: HeldPool<P::Buf>,
}

impl<P: Pool> Shared<P> {
    /// Puts a completion into its queue, which grows rather than lose one: what is posted bounds it.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        cq: u8,
        qp: QpId,
        cookie: Cookie,
        done: Done,
        status: Status,
        buf: P::Buf,
    ) {
        match status {
            Status::Success => {}
            Status::WrFlushErr => self.counters.flushed += 1,
            _ => self.counters.errors += 1,
        }
        self.cqs[usize::from(cq)].push_back(Completion { qp, cookie, done, status, buf });
    }

    /// Counts a frame that is dropped. The frame goes home when its owner drops it.
    #[inline]
    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.soft.drop(reason);
    }

    /// Tells the worker something; false if there is no room to.
    pub(crate) fn tell(&mut self, event: Event<P::Buf>) -> bool {
        let told = self.events.push(event);
        if !told {
            self.soft.drop(DropReason::EventsFull);
        }
        told
    }

    /// Asks for the MAC address of a neighbour that `path` waits for. False if it waited for too long.
    pub(crate) fn ask_neighbour(&mut self, now: Time, path: &mut Path) -> bool {
        if let Some(mac) = self.neighbours.mac(path.peer_ip()) {
            path.resolve(mac);
            return true;
        }
        if path.waiting_since == Time::NEVER {
            path.waiting_since = now;
        }
        self.tell(Event::NeedsNeighbour(path.peer_ip()));
        now.since_ns(path.waiting_since) < self.config.resolve_timeout_ns
    }
}

impl<P: Pool> std::fmt::Debug for Shared<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("config", &self.config)
            .field("soft", &self.soft)
            .finish_non_exhaustive()
    }
}

/// A buffer that can take bytes in: alone, empty.
#[inline]
pub(crate) fn can_receive<B: Buf>(buf: &B, len: usize) -> bool {
    buf.is_empty() && buf.is_unique() && buf.room() >= len
}
