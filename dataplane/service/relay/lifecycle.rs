//! Paths coming up, telling credits, closing and failing.

use super::header::{Kind, MAX_HEADER};
use super::path::{CONTROL_CREDITS, PathEnd, PathLink, PathState};
use super::{Mark, Relay};
use crate::flow::PathIndex;
use crate::service::Context;
use crate::stats::{Counter, DropReason};
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::transport::Transport;
use rdma_engine::types::QpType;

/// How long an unreliable path without credits waits before it asks again: the messages that would have renewed them
/// may be lost. Likewise a closed one whose peer has not closed.
const PROBE_NS: u64 = 10_000_000;
/// How long an unreliable path stays after both sides have closed, to answer a peer to whom that was lost.
const LINGER_NS: u64 = 2 * PROBE_NS + PROBE_NS / 2;

impl<B: Buf> Relay<B> {
    /// Puts a queue pair to use: posts its receives, and returns how many. Nothing is sent before
    /// [`path_ready`](Self::path_ready).
    ///
    /// # Panics
    /// If the path has a queue pair already.
    pub fn attach<T, P>(&mut self, ctx: &mut Context<'_, T, P>, path: PathIndex, link: PathLink) -> u32
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let at = usize::from(path);
        assert_eq!(self.paths[at].state, PathState::Empty, "path {path} is in use");
        self.paths[at].start(link, ctx.now);
        (0..link.recv_depth).for_each(|_| self.post_receive(ctx, at));
        self.paths[at].posted
    }

    /// The peer has posted its receives too: the path takes frames from now on.
    pub fn path_ready(&mut self, path: PathIndex) {
        let p = &mut self.paths[usize::from(path)];
        p.ready = true;
        if p.state == PathState::Armed {
            p.state = PathState::Up;
            self.note_living();
        }
    }

    /// Gives a path up because the connection behind it is gone.
    pub fn fail<T: Transport<Buf = B>, P>(&mut self, ctx: &mut Context<'_, T, P>, path: PathIndex) {
        self.path_failed(ctx, usize::from(path), PathEnd::Told);
    }

    /// A path whose queue pair can be taken away: closed on both sides, or dead and empty. It becomes free.
    pub fn take_down<T: Transport<Buf = B>, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
    ) -> Option<(PathIndex, PathLink, PathEnd)> {
        let at = (0..self.paths.len()).find(|i| self.paths[*i].link.is_some() && self.is_down(ctx, *i))?;
        let end = self.paths[at].end;
        let link = self.paths[at].link.take().expect("found with a link");
        if link.srq.is_some() {
            self.spare_receives += std::mem::take(&mut self.paths[at].posted);
        }
        self.paths[at].state = PathState::Empty;
        Some((at as PathIndex, link, end))
    }

    /// Nothing of the path is in flight and nothing will be. A cleanly closed one still has receives posted, which
    /// moving it to ERR brings back.
    fn is_down<T: Transport<Buf = B>, P>(&mut self, ctx: &mut Context<'_, T, P>, at: usize) -> bool {
        let p = &mut self.paths[at];
        let Some(link) = p.link else { return false };
        if p.state == PathState::Closed && p.sends_in_flight == 0 {
            p.state = PathState::Dying;
            ctx.transport.fail(link.qp);
        }
        p.state == PathState::Dying && ctx.transport.in_flight(link.qp) == 0
    }

    /// Stops taking frames and closes every path once what is held has been sent.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// True when a drain has nothing left to wait for.
    pub fn is_drained(&self) -> bool {
        let closed = |s| matches!(s, PathState::Empty | PathState::Closed | PathState::Dying);
        self.draining
            && self.held.is_empty()
            && self.is_delivered()
            && self.paths.iter().all(|p| closed(p.state))
    }

    /// The drain's deadline has passed: what is held is dropped by name, every path is given up.
    pub fn abandon<T: Transport<Buf = B>, P>(&mut self, ctx: &mut Context<'_, T, P>) {
        ctx.tally.drop(DropReason::Drained, self.held.len() as u64);
        self.held.clear();
        for path in 0..self.paths.len() {
            let waiting: usize = self.paths[path].backlog.iter().map(|m| m.lengths.len() - m.next).sum();
            ctx.tally.drop(DropReason::Drained, waiting as u64);
            self.paths[path].backlog.clear();
            if self.paths[path].state != PathState::Closed {
                self.path_failed(ctx, path, PathEnd::Told);
            }
        }
    }

    /// The path is dead: everything it holds will come back, its flows go elsewhere.
    pub(super) fn path_failed<T: Transport<Buf = B>, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        path: usize,
        end: PathEnd,
    ) {
        let p = &mut self.paths[path];
        let Some(link) = p.link else { return };
        if p.state == PathState::Dying {
            return;
        }
        p.state = PathState::Dying;
        p.end = end;
        let open = p.open.take().map_or(0, |o| o.lengths.len() as u64);
        let stalled = p.stalled.take().map_or(0, |wr| u64::from(Mark::of(wr.cookie).frames));
        ctx.tally.drop(DropReason::PathDown, open + stalled);
        ctx.transport.fail(link.qp);
        self.note_living();
        if self.living.is_empty() {
            self.dead_since.get_or_insert(ctx.now);
        }
    }

    pub(super) fn note_living(&mut self) {
        self.living.clear();
        for (i, p) in self.paths.iter().enumerate() {
            if p.state == PathState::Up {
                self.living.push(i as PathIndex);
            }
        }
        if !self.living.is_empty() {
            self.dead_since = None;
        }
    }

    /// One side says it will send no more.
    pub(super) fn begin_close(&mut self, path: usize) {
        let p = &mut self.paths[path];
        if matches!(p.state, PathState::Up | PathState::Armed) {
            p.state = PathState::Closing;
            self.note_living();
        }
    }

    /// Goes on with a close: says that nothing more will come as soon as nothing more will, and ends when the peer has
    /// said so too.
    pub(super) fn advance_close<T, P>(&mut self, ctx: &mut Context<'_, T, P>, path: usize)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        if self.draining && self.held.is_empty() {
            self.begin_close(path);
        }
        let p = &self.paths[path];
        let Some(link) = p.link else { return };
        if p.state != PathState::Closing || p.stalled.is_some() {
            return;
        }
        let unreliable = link.kind != QpType::Rc;
        let unanswered = !p.close_seen && ctx.now.since_ns(p.advertised_at) >= PROBE_NS;
        let again = unreliable && p.close_sent && (unanswered || p.close_wanted);
        if (!p.close_sent || again) && self.send_control(ctx, path, Kind::Close) {
            self.paths[path].close_sent = true;
            self.paths[path].close_wanted = false;
        }
        let p = &mut self.paths[path];
        if p.state == PathState::Closing && p.close_sent && p.close_seen && p.sends_in_flight == 0 {
            let since = *p.closed_at.get_or_insert(ctx.now);
            if !unreliable || ctx.now.since_ns(since) >= LINGER_NS {
                p.state = PathState::Closed;
            }
        }
    }

    /// Tells the peer of new credits if it may be waiting for them.
    pub(super) fn tell_credit<T, P>(&mut self, ctx: &mut Context<'_, T, P>, path: usize)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        if self.paths[path].owes_credit() || self.paths[path].asked {
            self.send_control(ctx, path, Kind::Credit);
        }
    }

    /// The same by timer, for less than half a window; and asks again where an unreliable path has run dry.
    pub(super) fn refresh_credit<T, P>(&mut self, ctx: &mut Context<'_, T, P>, path: usize)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let p = &self.paths[path];
        let Some(link) = p.link else { return };
        if p.asked
            || (p.has_untold_credit() && ctx.now.since_ns(p.advertised_at) >= self.settings.credit_refresh_ns)
        {
            self.send_control(ctx, path, Kind::Credit);
        } else if link.kind != QpType::Rc
            && p.credits() <= CONTROL_CREDITS
            && ctx.now.since_ns(p.granted_at) >= PROBE_NS
            && ctx.now.since_ns(p.advertised_at) >= PROBE_NS
        {
            self.send_control(ctx, path, Kind::Ask);
        }
    }

    /// Posts a message without frames. False if it could not be sent now.
    fn send_control<T, P>(&mut self, ctx: &mut Context<'_, T, P>, path: usize, kind: Kind) -> bool
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let p = &self.paths[path];
        let open = p.ready && matches!(p.state, PathState::Up | PathState::Closing);
        let Some(link) = p.link.filter(|_| open && p.stalled.is_none()) else { return false };
        let allowed = match kind {
            Kind::Data => false,
            Kind::Credit => !p.close_sent && p.credits() > 1,
            Kind::Ask => !p.close_sent,
            // What is said again waits for no credit: only an unreliable path says it again.
            Kind::Close => p.close_sent || p.credits() > 0,
        };
        if !allowed || ctx.transport.send_room(link.qp) == 0 {
            return false;
        }
        let Some(mut buf) = ctx.pools.frames.alloc().filter(|_| p.open.is_none()) else { return false };
        if !buf.reserve(MAX_HEADER) {
            return false;
        }
        ctx.tally.add(Counter::ControlSent, 1);
        self.post(ctx, path, kind, buf, &[]);
        true
    }
}
