//! A gateway worker: the front end towards clients, the engine towards memory nodes.

use super::engine::{Arrival, Client, Engine, EngineSettings};
use super::link::KvLink;
use super::members::Members;
use crate::flow::PathIndex;
use crate::front::{Datagram, Front, FrontCounters, FrontDrop, FrontSettings, Peer, PortBuf};
use crate::service::relay::{PathEnd, PathTotals};
use crate::service::{Burst, Context, Service};
use crate::stats::{Counter, DropReason, Tally};
use rdma_engine::buf::Pool;
use rdma_engine::transport::Transport;
use rdma_engine::types::Time;
use rdma_engine::wr::{Completion, QpId};

impl Client for Peer {
    #[inline]
    fn flow(&self) -> u64 {
        Peer::flow(self)
    }
}

/// A gateway on one worker.
#[derive(Debug)]
pub struct Gateway<B: PortBuf> {
    front: Front<B>,
    engine: Engine<B, Peer>,
    /// Frames that came while there was no room for their requests, oldest last.
    held: Burst<B>,
    /// What has been shown of the front end's counts.
    shown: FrontCounters,
}

impl<B: PortBuf> Gateway<B> {
    /// A gateway without connections, which announces its addresses if `announces`: one worker of a port does.
    ///
    /// # Panics
    /// With settings that no plan makes.
    pub fn new(engine: EngineSettings, front: FrontSettings, announces: bool) -> Self {
        Gateway {
            front: Front::new(front, announces, Time(0)),
            engine: Engine::new(engine),
            held: Burst::new(),
            shown: FrontCounters::default(),
        }
    }

    /// Takes another list of memory nodes.
    pub fn relist<T, P>(&mut self, ctx: &mut Context<'_, T, P>, members: Box<Members>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        self.engine.relist(ctx, members);
    }

    /// A list of memory nodes that is not used any more.
    pub fn used_list(&mut self) -> Option<Box<Members>> {
        self.engine.used_list()
    }

    /// A memory node that serves another list than ours, once when it is found out: its place, and the
    /// numbers of our list and its.
    pub fn list_conflict(&mut self) -> Option<(usize, u64, u64)> {
        self.engine.list_conflict()
    }

    /// Memory nodes that take operations.
    pub fn nodes_up(&self) -> usize {
        self.engine.nodes_up()
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
        self.engine.attach(ctx, path, link);
    }

    /// The node is ready for the path's messages.
    pub fn path_ready(&mut self, path: PathIndex) {
        self.engine.path_ready(path);
    }

    /// Gives a path up because the connection behind it is gone.
    pub fn fail<T, P>(&mut self, ctx: &mut Context<'_, T, P>, path: PathIndex)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        self.engine.fail(ctx, path);
    }

    /// A path whose queue pair can be taken away: nothing of it is in flight.
    pub fn take_down<T: Transport<Buf = B>, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
    ) -> Option<(PathIndex, QpId, PathEnd)> {
        self.engine.take_down(ctx)
    }

    /// What a path carried.
    pub fn path_totals(&self, path: PathIndex) -> PathTotals {
        self.engine.path_totals(path)
    }

    /// Takes no more requests.
    pub fn drain(&mut self) {
        self.engine.drain();
    }

    /// True when a drain has nothing left to wait for.
    pub fn is_drained(&self) -> bool {
        self.engine.is_drained() && !self.front.has_output()
    }

    /// The deadline of a drain has passed.
    pub fn abandon<T, P>(&mut self, ctx: &mut Context<'_, T, P>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        ctx.tally.drop(DropReason::Drained, self.held.len() as u64);
        self.held.clear();
        self.engine.abandon(ctx);
    }

    /// Requests out of frames, as far as there is room for them.
    #[inline]
    fn take_requests<T, P>(&mut self, ctx: &mut Context<'_, T, P>, burst: &mut Burst<B>) -> bool
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        if self.held.is_empty() && !burst.is_empty() {
            std::mem::swap(&mut self.held, burst);
            self.held.reverse();
        }
        let mut any = false;
        while self.engine.has_room()
            && let Some(frame) = self.held.pop()
        {
            any = true;
            let got = self.front.receive(ctx.now, frame, &ctx.pools.frames, &ctx.pools.messages);
            if let Some(datagram) = got {
                let Datagram { peer, frame, text, in_message } = datagram;
                self.engine.ask(ctx, peer, Arrival { frame, text, in_message });
            }
        }
        any
    }

    /// Replies into frames.
    #[inline]
    fn send_replies<T, P>(&mut self, ctx: &mut Context<'_, T, P>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        while self.front.room() > 0
            && let Some(reply) = self.engine.next_reply()
        {
            if reply.is_error {
                self.front.send_error(&reply.client, reply.body);
            } else {
                let (frames, slices) = (&ctx.pools.frames, &ctx.pools.slices);
                self.front.send_now(&reply.client, reply.body, frames, slices, ctx.tx);
            }
        }
        if self.front.has_output() || ctx.now >= self.front.next_timer() {
            self.front.flush(ctx.now, &ctx.pools.frames, &ctx.pools.slices, ctx.tx);
        }
    }

    /// Shows what the front end counted since the last time.
    fn show(&mut self, tally: &mut Tally) {
        let counts = self.front.counters();
        for (reason, total) in counts.all_drops() {
            tally.drop(shown_as(reason), total - self.shown.drops(reason));
        }
        tally.set(Counter::KvDatagrams, counts.datagrams);
        tally.set(Counter::KvReassembled, counts.reassembled);
        tally.set(Counter::KvInPlace, counts.in_place);
        tally.set(Counter::HostFrames, counts.host.received);
        tally.set(Counter::AddressConflicts, counts.host.conflicts);
        tally.set(Counter::DuplicateAddresses, counts.host.duplicates);
        self.shown = counts;
    }
}

/// Under which name a worker counts what a front end dropped.
fn shown_as(reason: FrontDrop) -> DropReason {
    use FrontDrop::*;
    match reason {
        Runt => DropReason::Runt,
        Vlan | Returned | NotForUs | NotIp | NotUdp | OtherPort => DropReason::NotWanted,
        Malformed | IpOptions | UdpLength | ShortRequest | SplitRequest | FragmentMalformed
        | FragmentDuplicate | FragmentOverlap | FragmentEnd | FragmentTooLong | TooLong => {
            DropReason::ClientMalformed
        }
        IpChecksum | UdpChecksum | NoUdpChecksum => DropReason::ClientChecksum,
        Source | NotAllowed | Reflector => DropReason::ClientRefused,
        ReassemblyTimeout | ReassemblyEvicted => DropReason::ClientIncomplete,
        NoBuffer => DropReason::PoolDry,
        PingsFull | BacklogFull | ErrorRate | ReplyTooLong | DoesNotFit | Stale | EgressFull => {
            DropReason::ReplyDropped
        }
    }
}

impl<B: PortBuf, T: Transport<Buf = B>, P: Pool<Buf = B>> Service<T, P> for Gateway<B> {
    #[inline]
    fn on_burst(&mut self, ctx: &mut Context<'_, T, P>, burst: &mut Burst<B>) -> bool {
        let mut any = self.take_requests(ctx, burst);
        any |= self.engine.go_on(ctx);
        self.send_replies(ctx);
        any | !ctx.tx.is_empty()
    }

    #[inline]
    fn on_completion(&mut self, ctx: &mut Context<'_, T, P>, completion: Completion<B>) {
        self.engine.completed(ctx, completion);
    }

    fn on_tick(&mut self, ctx: &mut Context<'_, T, P>) {
        self.engine.tick(ctx);
        self.send_replies(ctx);
        self.show(ctx.tally);
    }

    #[inline]
    fn wants_rx(&self) -> bool {
        self.held.is_empty() && self.engine.has_room()
    }
}
