//! Queue pairs of gateways at a memory node.

use super::MemoryNode;
use crate::service::Context;
use crate::service::kv::link::{KvLink, Lane};
use crate::service::relay::{PathEnd, PathTotals};
use crate::stats::{Counter, DropReason};
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::transport::Transport;
use rdma_engine::wr::{Cookie, Op, QpId, RecvWr, Refusal, SendWr};
use std::collections::VecDeque;

/// Where a seat stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Empty,
    Up,
    Dying(PathEnd),
}

/// A place for one queue pair.
#[derive(Debug)]
pub(super) struct Seat<B> {
    state: State,
    pub(super) link: Option<KvLink>,
    /// The number under which the writer knows the gateway worker; kept until the queue pair is destroyed.
    pub(super) gateway: Option<usize>,
    /// Receives that could not be posted yet.
    owed: u32,
    /// Answers that the send queue had no room for, oldest first.
    unsent: VecDeque<B>,
    pub(super) totals: PathTotals,
}

impl<B: Buf> Seat<B> {
    pub(super) fn empty() -> Self {
        Seat {
            state: State::Empty,
            link: None,
            gateway: None,
            owed: 0,
            unsent: VecDeque::new(),
            totals: PathTotals::default(),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.state == State::Up
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub(super) fn is_down<T: Transport<Buf = B>>(&self, transport: &T) -> bool {
        let gone = |link: &KvLink| transport.in_flight(link.qp) == 0;
        matches!(self.state, State::Dying(_)) && self.link.as_ref().is_some_and(gone)
    }

    /// Gives its queue pair up.
    pub(super) fn leave(&mut self) -> Option<(QpId, PathEnd)> {
        let State::Dying(end) = self.state else { return None };
        self.state = State::Empty;
        self.unsent.clear();
        Some((self.link.take()?.qp, end))
    }
}

impl<B: Buf> MemoryNode<B> {
    pub(super) fn take_seat<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: usize, link: KvLink)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let gateway = usize::from(link.peer) * usize::from(self.settings.gateway_workers_max)
            + usize::from(link.peer_worker);
        let seat = &mut self.seats[at];
        assert!(seat.link.is_none(), "path {at} is in use");
        seat.state = State::Up;
        seat.totals = PathTotals::default();
        match link.lane {
            // From now on the gateway may read.
            Lane::Read => {
                if self.writer.connect(gateway).is_ok() {
                    seat.gateway = Some(gateway);
                }
            }
            Lane::Call => seat.owed = link.recv_depth,
        }
        seat.unsent.reserve(link.recv_depth as usize);
        seat.link = Some(link);
        // As many calls as all gateways together may have under way can come to wait.
        let calls = |seat: &Seat<B>| seat.link.as_ref().map_or(0, |link| link.recv_depth as usize);
        let most = self.seats.iter().map(calls).sum::<usize>();
        self.stalled.reserve(most.saturating_sub(self.stalled.len()));
        self.post_owed(ctx, at);
    }

    /// The number of the gateway worker that calls by this seat.
    pub(super) fn caller(&self, at: usize) -> usize {
        let most = usize::from(self.settings.gateway_workers_max);
        self.seats[at]
            .link
            .as_ref()
            .map_or(usize::MAX, |l| usize::from(l.peer) * most + usize::from(l.peer_worker))
    }

    /// Puts a call that a gateway has written into a slot into the receive that its immediate took. What is no call stays empty,
    /// and is answered as that.
    pub(super) fn take_staged(&self, at: usize, slot: u32, bytes: u32, buf: &mut B) {
        if let Some(link) = &self.seats[at].link {
            buf.truncate(0);
            self.settings.staging.copy_out(link.peer, link.peer_worker, slot, bytes, buf);
        }
    }

    pub(super) fn seat_failed<T: Transport<Buf = B>, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
        at: usize,
        end: PathEnd,
    ) {
        let seat = &mut self.seats[at];
        if let (State::Up, Some(link)) = (seat.state, &seat.link) {
            seat.state = State::Dying(end);
            seat.owed = 0;
            seat.unsent.clear();
            ctx.transport.fail(link.qp);
        }
    }

    /// Posts the receives that are due.
    pub(super) fn post_owed<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: usize)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        let seat = &mut self.seats[at];
        let Some(link) = seat.link.as_ref().filter(|_| seat.state == State::Up) else { return };
        while seat.owed > 0 {
            let Some(buf) = ctx.pools.messages.alloc() else { return };
            let wr = RecvWr { buf, cookie: Cookie(at as u64) };
            match ctx.transport.post_recv(link.qp, wr) {
                Ok(()) => seat.owed -= 1,
                Err(refused) if refused.why == Refusal::Full => return,
                Err(refused) => {
                    let end = PathEnd::Refused(refused.why);
                    return self.seat_failed(ctx, at, end);
                }
            }
        }
    }

    /// A receive has been used up: another one in its place, before the answer is out.
    pub(super) fn renew_receive<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: usize)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        if self.seats[at].is_up() {
            self.seats[at].owed += 1;
            self.post_owed(ctx, at);
        }
    }

    /// Sends an answer, or keeps it until there is room.
    pub(super) fn send<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: usize, answer: B)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        if self.seats[at].is_up() {
            self.seats[at].unsent.push_back(answer);
            self.send_unsent(ctx, at);
            self.has_unsent |= self.seats[at].has_unsent();
        }
    }

    /// Sends what waits, oldest first; not before the receive is posted that the answer promises. True if anything went.
    pub(super) fn send_unsent<T, P>(&mut self, ctx: &mut Context<'_, T, P>, at: usize) -> bool
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        if self.seats[at].unsent.is_empty() {
            return false;
        }
        if self.seats[at].owed > 0 {
            self.post_owed(ctx, at);
        }
        let mut any = false;
        let seat = &mut self.seats[at];
        let Some(link) = seat.link.as_ref().filter(|_| seat.state == State::Up) else { return false };
        let mut end = None;
        while seat.unsent.len() > seat.owed as usize
            && let Some(buf) = seat.unsent.pop_front()
        {
            match ctx.transport.post_send(link.qp, SendWr::new(Op::Send, buf, Cookie(at as u64))) {
                Ok(()) => {
                    any = true;
                    seat.totals.frames_sent += 1;
                    ctx.tally.add(Counter::KvAnswers, 1);
                }
                Err(refused) if refused.why == Refusal::Full => {
                    seat.unsent.push_front(refused.wr.buf);
                    break;
                }
                Err(refused) => {
                    ctx.tally.drop(DropReason::PathDown, 1);
                    end = Some(PathEnd::Refused(refused.why));
                    break;
                }
            }
        }
        if let Some(end) = end {
            self.seat_failed(ctx, at, end);
        }
        any
    }
}
