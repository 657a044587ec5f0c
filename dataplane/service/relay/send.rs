//! Frames into messages: route, gather, post.

use super::header::{Kind, MAX_FRAMES, MAX_HEADER, header_len};
use super::path::{CONTROL_CREDITS, Mark, Outbound, PathEnd, PathState};
use super::{OnFull, OnTableFull, Relay};
use crate::classify::FrameKind;
use crate::flow::{Lookup, PathIndex};
use crate::service::{BURST, Burst, Context};
use crate::stats::{Counter, DropReason};
use arrayvec::ArrayVec;
use rdma_engine::buf::{Buf, Pool, copy_out};
use rdma_engine::transport::Transport;
use rdma_engine::wr::{Op, Refusal, SendWr, Status};

/// Where a frame goes.
enum Route {
    Path(PathIndex),
    /// Nowhere now; it may wait.
    Wait,
    Drop(DropReason),
}

impl<B: Buf> Relay<B> {
    /// Takes the frames of a burst; those that must wait are held. Posts one message or more for each path that got
    /// frames, never waiting for others to come. True if any frame moved.
    pub(super) fn relay_burst<T, P>(&mut self, ctx: &mut Context<'_, T, P>, burst: &mut Burst<B>) -> bool
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let mut signatures = [0u64; BURST];
        let mut runts = 0u32;
        for (i, frame) in burst.iter().enumerate() {
            if let Some(ahead) = burst.get(i + 2) {
                crate::prefetch::read(ahead.first());
            }
            let flow = self.classifier.classify(frame.first());
            runts |= u32::from(flow.kind == FrameKind::Runt) << i;
            signatures[i] = flow.signature;
            self.flows.prefetch(flow.signature);
        }
        let now_ms = (ctx.now.0 / 1_000_000) as u32;
        let before = burst.len();
        for (i, frame) in burst.drain(..).enumerate() {
            if !self.held.is_empty() {
                self.held.push(frame);
            } else if runts >> i & 1 == 1 {
                ctx.tally.drop(DropReason::Runt, 1);
            } else if let Some(waiting) = self.relay_frame(ctx, signatures[i], now_ms, frame) {
                self.held.push(waiting);
            }
        }
        B::free_all(self.spent.drain(..));
        for path in 0..self.paths.len() {
            self.close_message(ctx, path);
        }
        self.held.len() < before
    }

    /// Takes one frame, or gives it back if it has to wait.
    #[inline]
    fn relay_frame<T, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        signature: u64,
        now_ms: u32,
        frame: B,
    ) -> Option<B>
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        match self.route(ctx, signature, now_ms) {
            Route::Path(path) => self.gather(ctx, usize::from(path), frame),
            Route::Wait => Some(frame),
            Route::Drop(reason) => {
                ctx.tally.drop(reason, 1);
                None
            }
        }
    }

    #[inline]
    fn route<T: Transport, P>(&mut self, ctx: &Context<'_, T, P>, signature: u64, now_ms: u32) -> Route {
        if self.living.is_empty() {
            return self.route_to_nowhere(ctx);
        }
        match self.flows.lookup(signature, now_ms) {
            Lookup::Known(path) if self.is_living(path) => Route::Path(path),
            Lookup::Known(_) => {
                let path = self.choose(signature);
                self.flows.reroute(signature, path);
                Route::Path(path)
            }
            Lookup::New => {
                let path = self.choose(signature);
                self.flows.insert(signature, path, now_ms);
                Route::Path(path)
            }
            Lookup::Full if self.settings.on_table_full == OnTableFull::Drop => {
                Route::Drop(DropReason::FlowTableFull)
            }
            Lookup::Full => Route::Path(self.choose(signature)),
        }
    }

    #[inline]
    fn is_living(&self, path: PathIndex) -> bool {
        self.paths[usize::from(path)].state == PathState::Up
    }

    fn choose(&self, signature: u64) -> PathIndex {
        self.living[(signature % self.living.len() as u64) as usize]
    }

    fn route_to_nowhere<T: Transport, P>(&mut self, ctx: &Context<'_, T, P>) -> Route {
        let since = *self.dead_since.get_or_insert(ctx.now);
        let patient = self.settings.on_full == OnFull::Wait && !self.draining;
        if patient && ctx.now.since_ns(since) < self.settings.dead_path_wait_ns {
            Route::Wait
        } else {
            Route::Drop(DropReason::PathDown)
        }
    }

    /// Puts a frame into the path's open message, posting that one and opening the next where it is full. Gives the
    /// frame back if it has to wait.
    #[inline]
    fn gather<T, P>(&mut self, ctx: &mut Context<'_, T, P>, path: usize, frame: B) -> Option<B>
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let Some(link) = self.paths[path].link else { return Some(frame) };
        let length = frame.len();
        if header_len(1) + length > link.message_bytes as usize {
            ctx.tally.drop(DropReason::Oversize, 1);
            return None;
        }
        let copybreak = self.settings.copybreak;
        if let Some(open) = &mut self.paths[path].open {
            if open.takes(length, link.message_bytes as usize) {
                return self.add(ctx, path, frame, usize::from(link.max_segments), length <= copybreak);
            }
            self.close_message(ctx, path);
        }
        if !self.paths[path].may_send_data() || ctx.transport.send_room(link.qp) == 0 {
            return self.no_room(ctx, path, frame);
        }
        self.open_message(ctx, path, usize::from(link.max_segments), frame);
        None
    }

    /// The policy for a frame that nothing can be posted for.
    fn no_room<T, P>(&mut self, ctx: &mut Context<'_, T, P>, path: usize, frame: B) -> Option<B>
    where
        T: Transport<Buf = B>,
    {
        if self.settings.on_full == OnFull::Wait {
            return Some(frame);
        }
        let p = &self.paths[path];
        let reason = if p.state != PathState::Up {
            DropReason::PathDown
        } else if p.stalled.is_none() && p.credits() <= CONTROL_CREDITS {
            DropReason::NoCredit
        } else {
            DropReason::QueueFull
        };
        ctx.tally.drop(reason, 1);
        None
    }

    /// Starts a message with this frame: the header goes into its headroom, or into a buffer in front where it has
    /// none or is shared.
    #[inline]
    fn open_message<T, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        path: usize,
        max_segments: usize,
        mut frame: B,
    ) where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let length = frame.len();
        let needs_head = frame.headroom() < MAX_HEADER || frame.try_unique().is_none();
        if frame.segment_count() + usize::from(needs_head) > max_segments {
            ctx.tally.drop(DropReason::Oversize, 1);
            return;
        }
        if needs_head {
            let Some(mut head) = ctx.pools.frames.alloc() else {
                ctx.tally.drop(DropReason::PoolDry, 1);
                return;
            };
            if !head.reserve(MAX_HEADER) || head.chain(frame).is_err() {
                ctx.tally.drop(DropReason::Oversize, 1);
                return;
            }
            frame = head;
        }
        let segments = frame.segment_count();
        let mut lengths = ArrayVec::new();
        lengths.push(length as u16);
        self.paths[path].open = Some(Outbound { buf: frame, bytes: length, segments, lengths });
    }

    /// Adds a frame to the open message, by copy or as a segment of its own.
    #[inline]
    fn add<T, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        path: usize,
        frame: B,
        max_segments: usize,
        may_copy: bool,
    ) -> Option<B>
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let length = frame.len();
        let open = self.paths[path].open.as_mut().expect("the caller saw it open");
        let copied = may_copy
            && open.buf.append(length).is_some_and(|room| {
                match frame.first() {
                    whole if whole.len() == length => room.copy_from_slice(whole),
                    _ => {
                        copy_out(&frame, 0, room);
                    }
                }
                true
            });
        if copied {
            open.note(length, 0);
            ctx.tally.add(Counter::FramesCopied, 1);
            self.spent.push(frame);
            return None;
        }
        let segments = frame.segment_count();
        let chained =
            if open.segments + segments > max_segments { Err(frame) } else { open.buf.chain(frame) };
        match chained {
            Ok(()) => open.note(length, segments),
            Err(frame) => {
                // The chain is as long as the path or the buffers allow: post it and start anew.
                self.close_message(ctx, path);
                return self.gather(ctx, path, frame);
            }
        }
        None
    }

    /// Finishes the path's open message, if there is one, and posts it.
    pub(super) fn close_message<T: Transport<Buf = B>, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        path: usize,
    ) {
        let Some(open) = self.paths[path].open.take() else { return };
        ctx.tally.add(Counter::MessagesSent, 1);
        self.post(ctx, path, Kind::Data, open.buf, &open.lengths);
    }

    /// Writes the header in front of `buf` and posts the message.
    pub(super) fn post<T: Transport<Buf = B>, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        path: usize,
        kind: Kind,
        mut buf: B,
        lengths: &[u16],
    ) {
        let p = &mut self.paths[path];
        let Some(link) = p.link else { return };
        let header = p.next_header(kind, lengths.len(), ctx.now);
        let room =
            buf.prepend(header_len(lengths.len())).expect("headroom was checked when the message began");
        header.emit(lengths, room);
        let mark = Mark { path: path as u8, frames: lengths.len() as u16, generation: link.generation };
        let mut wr = SendWr::new(Op::Send, buf, mark.cookie());
        wr.ud = link.ud;
        self.hand_over(ctx, path, wr);
    }

    /// Posts a request; a full queue keeps it for the next turn, anything else is the end of the path.
    pub(super) fn hand_over<T: Transport<Buf = B>, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        path: usize,
        wr: SendWr<B>,
    ) {
        let Some(link) = self.paths[path].link else { return };
        match ctx.transport.post_send(link.qp, wr) {
            Ok(()) => self.paths[path].sends_in_flight += 1,
            Err(refused) if refused.why == Refusal::Full => self.paths[path].stalled = Some(refused.wr),
            Err(refused) => {
                let frames = Mark::of(refused.wr.cookie).frames;
                ctx.tally.drop(DropReason::PathDown, u64::from(frames));
                self.path_failed(ctx, path, PathEnd::Refused(refused.why));
            }
        }
    }

    /// Tries again to post what found the send queue full. True if anything was posted.
    pub(super) fn retry_stalled<T: Transport<Buf = B>, P>(&mut self, ctx: &mut Context<'_, T, P>) -> bool {
        let mut any = false;
        for path in 0..self.paths.len() {
            if let Some(wr) = self.paths[path].stalled.take() {
                self.hand_over(ctx, path, wr);
                any |= self.paths[path].stalled.is_none();
            }
        }
        any
    }

    /// A message has left, or its path has died.
    pub(super) fn sent<T: Transport<Buf = B>, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        mark: Mark,
        status: Status,
    ) {
        let path = usize::from(mark.path);
        self.paths[path].sends_in_flight -= 1;
        if status == Status::Success {
            ctx.tally.add(Counter::FramesSent, u64::from(mark.frames));
        } else {
            ctx.tally.drop(DropReason::PathDown, u64::from(mark.frames));
            self.path_failed(ctx, path, PathEnd::Send(status));
        }
    }
}

impl<B> Outbound<B> {
    /// True if the bytes of a frame of this length still fit.
    #[inline]
    fn takes(&self, length: usize, message_bytes: usize) -> bool {
        let frames = self.lengths.len() + 1;
        frames <= MAX_FRAMES && header_len(frames) + self.bytes + length <= message_bytes
    }

    #[inline]
    fn note(&mut self, length: usize, segments: usize) {
        self.bytes += length;
        self.segments += segments;
        self.lengths.push(length as u16);
    }
}
