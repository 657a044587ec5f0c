//! Messages into frames: check, split, post the receive again.

use super::Relay;
use super::header::{Header, Kind, MAX_HEADER};
use super::path::{Inbound, Mark, Noted, PathEnd, PathState};
use crate::service::Context;
use crate::stats::{Counter, DropReason};
use rdma_engine::buf::{Buf, Egress, Pool, copy_out};
use rdma_engine::transport::Transport;
use rdma_engine::wr::{RecvWr, Status};

impl<B: Buf> Relay<B> {
    /// A receive is done: a message, or the end of the path.
    pub(super) fn received<T, P>(&mut self, ctx: &mut Context<'_, T, P>, mark: Mark, status: Status, buf: B)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let path = usize::from(mark.path);
        self.paths[path].posted -= 1;
        if status != Status::Success {
            self.path_failed(ctx, path, PathEnd::Receive(status));
            return;
        }
        match self.accept(ctx, path, buf) {
            Some(inbound) => {
                self.paths[path].backlog.push_back(inbound);
                self.deliver(ctx, path);
            }
            None => self.post_receive(ctx, path),
        }
        self.tell_credit(ctx, path);
    }

    /// Reads a message's header. The bytes are the peer's: whatever is wrong with them costs a counter.
    fn accept<T: Transport<Buf = B>, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        path: usize,
        mut buf: B,
    ) -> Option<Inbound<B>> {
        let mut copy = [0; MAX_HEADER];
        let head = match buf.first() {
            whole if whole.len() >= MAX_HEADER || whole.len() == buf.len() => whole,
            _ => {
                let n = copy_out(&buf, 0, &mut copy);
                &copy[..n]
            }
        };
        let Ok((header, lengths)) = Header::parse(head, buf.len()) else {
            ctx.tally.drop(DropReason::Malformed, 1);
            return None;
        };
        let p = &mut self.paths[path];
        if p.link.is_none_or(|l| l.generation != header.generation) {
            ctx.tally.drop(DropReason::StaleGeneration, 1);
            return None;
        }
        match p.note(&header, ctx.now) {
            Noted::Fresh { missing } => ctx.tally.drop(DropReason::LostInTransit, missing),
            // Its frames were counted as lost when the newer message came.
            Noted::Old => return None,
            Noted::Inconsistent => {
                ctx.tally.drop(DropReason::Malformed, 1);
                return None;
            }
        }
        match header.kind {
            Kind::Data => {
                ctx.tally.add(Counter::MessagesReceived, 1);
                ctx.tally.add(Counter::FramesReceived, u64::from(header.frames));
                buf.adj(super::header::header_len(lengths.len()));
                Some(Inbound { buf, lengths, next: 0 })
            }
            Kind::Credit | Kind::Ask => {
                ctx.tally.add(Counter::ControlReceived, 1);
                p.asked |= header.kind == Kind::Ask;
                None
            }
            Kind::Close => {
                ctx.tally.add(Counter::ControlReceived, 1);
                p.close_wanted = p.close_seen && p.close_sent;
                p.close_seen = true;
                self.begin_close(path);
                None
            }
        }
    }

    /// Gives frames of all waiting messages to the TX queue. True if any moved.
    pub(super) fn deliver_backlogs<T, P>(&mut self, ctx: &mut Context<'_, T, P>) -> bool
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let mut any = false;
        for path in 0..self.paths.len() {
            if !self.paths[path].backlog.is_empty() {
                any |= self.deliver(ctx, path);
                self.tell_credit(ctx, path);
            }
        }
        any
    }

    /// Gives frames of this path's messages to the TX queue, oldest first, as far as that has room; each finished
    /// message makes place for a new receive.
    fn deliver<T, P>(&mut self, ctx: &mut Context<'_, T, P>, path: usize) -> bool
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let mut any = false;
        while let Some(mut inbound) = self.paths[path].backlog.pop_front() {
            any |= self.split_frames(ctx, &mut inbound);
            match inbound.lengths.len() - inbound.next {
                0 => drop(inbound.buf),
                // The last frame takes the message's own buffer along.
                1 if ctx.tx.room() > 0 => {
                    ctx.tx.push(inbound.buf).unwrap_or_else(|_| unreachable!("room was seen"));
                }
                _ => {
                    self.paths[path].backlog.push_front(inbound);
                    break;
                }
            }
            any = true;
            self.post_receive(ctx, path);
        }
        any
    }

    /// Splits frames off a message while the TX queue has room, all but a last one above the copybreak.
    fn split_frames<T, P>(&self, ctx: &mut Context<'_, T, P>, inbound: &mut Inbound<B>) -> bool
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let mut any = false;
        while let Some(length) = inbound.lengths.get(inbound.next).map(|l| usize::from(*l)) {
            let last = inbound.next + 1 == inbound.lengths.len();
            if ctx.tx.room() == 0 || (last && length > self.settings.copybreak) {
                break;
            }
            self.split(ctx, &inbound.buf, length);
            inbound.buf.adj(length);
            inbound.next += 1;
            any = true;
        }
        any
    }

    /// Sends the first `length` bytes of a message as a frame: a copy up to the copybreak, a slice above.
    #[inline]
    fn split<T, P>(&self, ctx: &mut Context<'_, T, P>, message: &B, length: usize)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let frame = if length <= self.settings.copybreak {
            ctx.pools.frames.alloc().and_then(|mut frame| {
                let room = frame.append(length)?;
                match message.first().get(..length) {
                    Some(whole) => room.copy_from_slice(whole),
                    None => {
                        copy_out(message, 0, room);
                    }
                }
                Some(frame)
            })
        } else {
            let slice = ctx.pools.slices.slice(message, 0, length);
            ctx.tally.add(Counter::FramesSliced, slice.is_some().into());
            slice
        };
        match frame {
            Some(frame) => ctx.tx.push(frame).unwrap_or_else(|_| unreachable!("room was seen")),
            None => ctx.tally.drop(DropReason::PoolDry, 1),
        }
    }

    /// Posts one receive, or notes that it is owed.
    pub(super) fn post_receive<T, P>(&mut self, ctx: &mut Context<'_, T, P>, path: usize)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let p = &mut self.paths[path];
        let Some(link) = p.link else { return };
        // Messages of an earlier connection that were delivered late had receives that are gone.
        let complete = p.posted + p.owed >= link.recv_depth;
        if complete || !matches!(p.state, PathState::Armed | PathState::Up | PathState::Closing) {
            return;
        }
        if link.srq.is_some() && self.spare_receives > 0 {
            self.spare_receives -= 1;
            p.posted += 1;
            return;
        }
        let Some(buf) = ctx.pools.messages.alloc() else {
            p.owed += 1;
            return;
        };
        let mark = Mark { path: path as u8, frames: 0, generation: link.generation };
        let posted = match link.srq {
            Some(srq) => ctx.transport.post_srq_recv(srq, RecvWr { buf, cookie: Mark::SHARED }),
            None => ctx.transport.post_recv(link.qp, RecvWr { buf, cookie: mark.cookie() }),
        };
        match posted {
            Ok(()) => p.posted += 1,
            Err(refused) => self.path_failed(ctx, path, PathEnd::Refused(refused.why)),
        }
    }

    /// Posts the receives that a dry pool kept back.
    pub(super) fn post_owed<T, P>(&mut self, ctx: &mut Context<'_, T, P>, path: usize)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        for _ in 0..std::mem::take(&mut self.paths[path].owed) {
            self.post_receive(ctx, path);
        }
    }
}
