//! The memory node of the key-value service, on one worker: the writer of one partition.
//!
//! Gateways read items by RDMA READ, of which nothing is seen here. What comes here are calls: mutations, and what gateways
//! tell (which items were used, how old their oldest lookup is, which nodes share the keys). Calls are carried out one after
//! the other, whole or not at all; a gateway that dies in the middle of one was never heard.
//!
//! | file | what it does |
//! |---|---|
//! | `items` | the store as what the protocol's operations work on |
//! | `seats` | queue pairs of gateways: up, down, answers on their way |
//! | `calls` | reads a call, answers it |
//! | `chores` | flushes, memberships, expiry, calls that wait for a place |

mod calls;
mod chores;
pub mod items;
mod seats;

use crate::flow::PathIndex;
use crate::service::kv::link::KvLink;
use crate::service::kv::ownership::Owners;
use crate::service::kv::staging::Staging;
use crate::service::relay::{PathEnd, PathTotals};
use crate::service::{Burst, Context, Service};
use crate::stats::Counter;
use crate::store::Writer;
use calls::{Arrived, Stalled};
use chores::Chores;
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::transport::{POLL_BATCH, Transport};
use rdma_engine::types::Time;
use rdma_engine::wr::{Completion, Done, QpId, Status};
use seats::Seat;
use std::collections::VecDeque;

/// What a memory node's worker is told at its start.
#[derive(Debug)]
pub struct MemorySettings {
    /// Queue pairs that gateways may have with this worker at once, both lanes: two for each gateway worker of each seat.
    pub paths: usize,
    /// Gateway workers that one gateway may have: with the seat, a number of their own.
    pub gateway_workers_max: u16,
    /// Bytes of the largest value.
    pub value_bytes_max: usize,
    /// Bytes of the largest message.
    pub message_bytes: usize,
    /// Memory that gateways write calls to.
    pub staging: Staging,
    /// Nanoseconds since 1970 when [`Time`] was 0.
    pub unix_ns_at_zero: u64,
}

/// The memory node on one worker.
#[derive(Debug)]
pub struct MemoryNode<B: Buf> {
    settings: MemorySettings,
    writer: Writer,
    owners: Owners,
    seats: Box<[Seat<B>]>,
    /// Calls of this turn.
    inbox: Vec<Arrived<B>>,
    /// Values and messages that have to be put together.
    scratch: Box<[u8]>,
    gathered: Vec<u8>,
    /// Calls that wait for a place, in their order.
    stalled: VecDeque<Stalled<B>>,
    /// Since when no place has become free.
    starved_since: Option<Time>,
    chores: Chores,
    draining: bool,
    /// A seat may have answers that could not be sent yet.
    has_unsent: bool,
}

impl<B: Buf> MemoryNode<B> {
    /// The node of a partition that `writer` writes.
    pub fn new(settings: MemorySettings, writer: Writer) -> Self {
        MemoryNode {
            seats: (0..settings.paths).map(|_| Seat::empty()).collect(),
            scratch: vec![0; settings.value_bytes_max].into(),
            gathered: Vec::with_capacity(settings.message_bytes),
            stalled: VecDeque::new(),
            starved_since: None,
            inbox: Vec::with_capacity(POLL_BATCH),
            chores: Chores::new(&writer),
            owners: Owners::default(),
            draining: false,
            has_unsent: false,
            settings,
            writer,
        }
    }

    /// The partition's writer.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Milliseconds since 1970.
    fn unix_ms(&self, now: Time) -> u64 {
        (self.settings.unix_ns_at_zero + now.0) / 1_000_000
    }

    /// Puts a queue pair to use.
    ///
    /// # Panics
    /// If the path has a queue pair already.
    pub fn attach<T, P>(&mut self, ctx: &mut Context<'_, T, P>, path: PathIndex, link: KvLink)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        self.take_seat(ctx, usize::from(path), link);
    }

    /// The gateway is ready too.
    pub fn path_ready(&mut self, _: PathIndex) {}

    /// Gives a path up because the connection behind it is gone.
    pub fn fail<T: Transport<Buf = B>, P>(&mut self, ctx: &mut Context<'_, T, P>, path: PathIndex) {
        self.seat_failed(ctx, usize::from(path), PathEnd::Told);
    }

    /// A path whose queue pair can be taken away: nothing of it is in flight.
    pub fn take_down<T: Transport<Buf = B>, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
    ) -> Option<(PathIndex, QpId, PathEnd)> {
        let (seats, stalled) = (&mut self.seats, &mut self.stalled);
        let down = |seat: &Seat<B>| seat.is_down(ctx.transport);
        let at = seats.iter().position(down)?;
        stalled.retain(|call| call.seat != at);
        self.inbox.retain(|call| call.seat != at);
        self.chores.forget(at);
        let (qp, end) = seats[at].leave()?;
        Some((at as PathIndex, qp, end))
    }

    /// What a path carried.
    pub fn path_totals(&self, path: PathIndex) -> PathTotals {
        self.seats[usize::from(path)].totals
    }

    /// The path's queue pair has been destroyed: its READs are over for good.
    pub fn released(&mut self, path: PathIndex) {
        if let Some(gateway) = self.seats[usize::from(path)].gateway.take() {
            self.writer.disconnect(gateway);
        }
    }

    /// Takes no more calls and gives every path up.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// True when a drain has nothing left to wait for.
    pub fn is_drained(&self) -> bool {
        self.draining && self.seats.iter().all(|seat| !seat.is_up())
    }

    /// The deadline of a drain has passed.
    pub fn abandon<T: Transport<Buf = B>, P>(&mut self, ctx: &mut Context<'_, T, P>) {
        self.stalled.clear();
        self.inbox.clear();
        (0..self.seats.len()).for_each(|at| self.seat_failed(ctx, at, PathEnd::Told));
    }
}

impl<T: Transport, P: Pool<Buf = T::Buf>> Service<T, P> for MemoryNode<T::Buf> {
    fn on_burst(&mut self, ctx: &mut Context<'_, T, P>, burst: &mut Burst<T::Buf>) -> bool {
        // Nobody sends frames to a memory node.
        burst.clear();
        let mut any = self.serve_inbox(ctx);
        if std::mem::take(&mut self.has_unsent) {
            for at in 0..self.seats.len() {
                any |= self.send_unsent(ctx, at);
                self.has_unsent |= self.seats[at].has_unsent();
            }
        }
        if self.chores.is_any() {
            any |= self.go_on(ctx);
        }
        any
    }

    fn on_completion(&mut self, ctx: &mut Context<'_, T, P>, completion: Completion<T::Buf>) {
        let at = completion.cookie.0 as usize;
        if at >= self.seats.len() {
            return;
        }
        if completion.status != Status::Success {
            let end = match completion.done {
                Done::Sent(_) => PathEnd::Send(completion.status),
                Done::Received(_) => PathEnd::Receive(completion.status),
            };
            return self.seat_failed(ctx, at, end);
        }
        if let Done::Received(received) = completion.done {
            let mut buf = completion.buf;
            if let (Some(slot), Some(bytes)) = (received.imm, received.written) {
                self.take_staged(at, slot, bytes, &mut buf);
            }
            self.take_call(ctx, at, buf);
        }
    }

    fn on_tick(&mut self, ctx: &mut Context<'_, T, P>) {
        self.tidy(ctx);
        if self.draining {
            (0..self.seats.len()).for_each(|at| self.seat_failed(ctx, at, PathEnd::Closed));
        }
        let counts = self.writer.counts();
        ctx.tally.set(Counter::KvItems, counts.items);
        ctx.tally.set(Counter::KvItemBytes, counts.bytes);
        ctx.tally.set(Counter::KvDataBytes, self.writer.capacity_bytes());
        ctx.tally.set(Counter::KvEvicted, counts.evicted + counts.evicted_from_bucket);
        ctx.tally.set(Counter::KvExpired, counts.expired);
    }
}
