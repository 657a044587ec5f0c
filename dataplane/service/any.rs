//! The closed set of services a worker can run.

use super::kv::Gateway;
use super::kv::link::KvLink;
use super::kv::members::Members;
use super::memory::MemoryNode;
use super::relay::{PathEnd, PathTotals, Relay};
use super::traffic::{Sink, Source};
use super::{Burst, Context, Service};
use crate::flow::PathIndex;
use crate::front::PortBuf;
use crate::load::FrameClient;
use crate::worker::PathOrder;
use rdma_engine::buf::Pool;
use rdma_engine::transport::Transport;
use rdma_engine::types::Time;
use rdma_engine::wr::{Completion, QpId};

/// One of the services; dispatched once a burst and once a completion.
#[derive(Debug)]
pub enum AnyService<B: PortBuf> {
    /// Flows over RDMA.
    Relay(Relay<B>),
    /// Keys for clients.
    Kv(Box<Gateway<B>>),
    /// Keys for gateways.
    Memory(Box<MemoryNode<B>>),
    /// Asks for keys and measures the answers.
    Load(Box<FrameClient<B>>),
    /// Makes traffic.
    Source(Source),
    /// Verifies traffic.
    Sink(Sink),
}

impl<B: PortBuf> AnyService<B> {
    /// The name used in tables and files.
    pub fn name(&self) -> &'static str {
        match self {
            AnyService::Relay(_) => "relay",
            AnyService::Kv(_) => "kv",
            AnyService::Memory(_) => "memory",
            AnyService::Load(_) => "load",
            AnyService::Source(_) => "source",
            AnyService::Sink(_) => "sink",
        }
    }

    /// The way is open: a source or a load begins.
    pub fn start(&mut self) {
        match self {
            AnyService::Source(source) => source.start(),
            AnyService::Load(client) => client.start(),
            _ => {}
        }
    }

    /// True when it has done by itself all that it was there for.
    pub fn is_finished(&self) -> bool {
        matches!(self, AnyService::Load(client) if client.is_done())
    }

    /// Takes no new work; see [`is_drained`](Self::is_drained).
    pub fn drain(&mut self, now: Time) {
        match self {
            AnyService::Relay(relay) => relay.drain(),
            AnyService::Kv(gateway) => gateway.drain(),
            AnyService::Memory(node) => node.drain(),
            AnyService::Load(client) => client.stop(now),
            AnyService::Source(source) => source.stop(),
            AnyService::Sink(_) => {}
        }
    }

    /// True when nothing is left to wait for.
    pub fn is_drained(&self) -> bool {
        match self {
            AnyService::Relay(relay) => relay.is_drained(),
            AnyService::Kv(gateway) => gateway.is_drained(),
            AnyService::Memory(node) => node.is_drained(),
            AnyService::Load(client) => client.is_done(),
            AnyService::Source(source) => source.is_done(),
            AnyService::Sink(_) => true,
        }
    }

    /// The deadline of a drain has passed.
    pub fn abandon<T, P>(&mut self, ctx: &mut Context<'_, T, P>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        match self {
            AnyService::Relay(relay) => relay.abandon(ctx),
            AnyService::Kv(gateway) => gateway.abandon(ctx),
            AnyService::Memory(node) => node.abandon(ctx),
            AnyService::Load(_) | AnyService::Source(_) | AnyService::Sink(_) => {}
        }
    }
}

/// The life of a path, as control orders it. Services without an RDMA side are never asked.
impl<B: PortBuf> AnyService<B> {
    /// A queue pair to use, in RTS and attached: post its receives, send nothing before
    /// [`path_ready`](Self::path_ready).
    pub fn attach<T, P>(&mut self, ctx: &mut Context<'_, T, P>, path: PathIndex, qp: QpId, order: &PathOrder)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        match self {
            AnyService::Relay(relay) => drop(relay.attach(ctx, path, order.link(qp))),
            AnyService::Kv(gateway) => {
                if let Some(link) = KvLink::of(order, qp) {
                    gateway.attach(ctx, path, link);
                }
            }
            AnyService::Memory(node) => {
                if let Some(link) = KvLink::of(order, qp) {
                    node.attach(ctx, path, link);
                }
            }
            AnyService::Load(_) | AnyService::Source(_) | AnyService::Sink(_) => {}
        }
    }

    /// The peer has posted its receives, too.
    pub fn path_ready(&mut self, path: PathIndex) {
        match self {
            AnyService::Relay(relay) => relay.path_ready(path),
            AnyService::Kv(gateway) => gateway.path_ready(path),
            AnyService::Memory(node) => node.path_ready(path),
            AnyService::Load(_) | AnyService::Source(_) | AnyService::Sink(_) => {}
        }
    }

    /// The connection behind the path is gone: give up its queue pair.
    pub fn fail<T, P>(&mut self, ctx: &mut Context<'_, T, P>, path: PathIndex)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        match self {
            AnyService::Relay(relay) => relay.fail(ctx, path),
            AnyService::Kv(gateway) => gateway.fail(ctx, path),
            AnyService::Memory(node) => node.fail(ctx, path),
            AnyService::Load(_) | AnyService::Source(_) | AnyService::Sink(_) => {}
        }
    }

    /// A path whose queue pair can be taken away, as nothing of it is in flight; with why it ended and what it carried.
    /// The path is free afterwards. Asked until there is none.
    pub fn take_down<T: Transport<Buf = B>, P>(
        &mut self,
        ctx: &mut Context<'_, T, P>,
    ) -> Option<(PathIndex, QpId, PathEnd, PathTotals)> {
        match self {
            AnyService::Relay(relay) => {
                let (path, link, end) = relay.take_down(ctx)?;
                Some((path, link.qp, end, relay.path_totals(path)))
            }
            AnyService::Kv(gateway) => {
                let (path, qp, end) = gateway.take_down(ctx)?;
                Some((path, qp, end, gateway.path_totals(path)))
            }
            AnyService::Memory(node) => {
                let (path, qp, end) = node.take_down(ctx)?;
                Some((path, qp, end, node.path_totals(path)))
            }
            AnyService::Load(_) | AnyService::Source(_) | AnyService::Sink(_) => None,
        }
    }

    /// Another list of memory nodes; only a gateway has one.
    pub fn relist<T, P>(&mut self, ctx: &mut Context<'_, T, P>, members: Box<Members>)
    where
        T: Transport<Buf = B>,
        P: Pool<Buf = B>,
    {
        if let AnyService::Kv(gateway) = self {
            gateway.relist(ctx, members);
        }
    }

    /// A list of memory nodes that is not used any more, for control to take back.
    pub fn used_list(&mut self) -> Option<Box<Members>> {
        match self {
            AnyService::Kv(gateway) => gateway.used_list(),
            _ => None,
        }
    }

    /// A memory node that serves another list than ours, once when it is found out: its place, and the
    /// numbers of our list and its.
    pub fn list_conflict(&mut self) -> Option<(usize, u64, u64)> {
        match self {
            AnyService::Kv(gateway) => gateway.list_conflict(),
            _ => None,
        }
    }

    /// The queue pair that was taken down last on this path is destroyed: the peer's READs cannot reach us by it.
    pub fn released(&mut self, path: PathIndex) {
        if let AnyService::Memory(node) = self {
            node.released(path);
        }
    }
}

impl<B: PortBuf, T: Transport<Buf = B>, P: Pool<Buf = B>> Service<T, P> for AnyService<B> {
    #[inline]
    fn on_burst(&mut self, ctx: &mut Context<'_, T, P>, burst: &mut Burst<B>) -> bool {
        match self {
            AnyService::Relay(s) => s.on_burst(ctx, burst),
            AnyService::Kv(s) => s.on_burst(ctx, burst),
            AnyService::Memory(s) => s.on_burst(ctx, burst),
            AnyService::Load(s) => Service::on_burst(s.as_mut(), ctx, burst),
            AnyService::Source(s) => s.on_burst(ctx, burst),
            AnyService::Sink(s) => s.on_burst(ctx, burst),
        }
    }

    #[inline]
    fn on_completion(&mut self, ctx: &mut Context<'_, T, P>, completion: Completion<B>) {
        match self {
            AnyService::Relay(s) => s.on_completion(ctx, completion),
            AnyService::Kv(s) => s.on_completion(ctx, completion),
            AnyService::Memory(s) => s.on_completion(ctx, completion),
            AnyService::Load(s) => s.on_completion(ctx, completion),
            AnyService::Source(s) => s.on_completion(ctx, completion),
            AnyService::Sink(s) => s.on_completion(ctx, completion),
        }
    }

    fn on_tick(&mut self, ctx: &mut Context<'_, T, P>) {
        match self {
            AnyService::Relay(s) => s.on_tick(ctx),
            AnyService::Kv(s) => s.on_tick(ctx),
            AnyService::Memory(s) => s.on_tick(ctx),
            AnyService::Load(s) => s.on_tick(ctx),
            AnyService::Source(s) => s.on_tick(ctx),
            AnyService::Sink(s) => s.on_tick(ctx),
        }
    }

    #[inline]
    fn wants_rx(&self) -> bool {
        match self {
            AnyService::Relay(s) => Service::<T, P>::wants_rx(s),
            AnyService::Kv(s) => Service::<T, P>::wants_rx(s.as_ref()),
            AnyService::Memory(s) => Service::<T, P>::wants_rx(s.as_ref()),
            AnyService::Load(s) => Service::<T, P>::wants_rx(s.as_ref()),
            AnyService::Source(s) => Service::<T, P>::wants_rx(s),
            AnyService::Sink(s) => Service::<T, P>::wants_rx(s),
        }
    }
}
