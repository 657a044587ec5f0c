//! The closed set of services a worker can run.

use super::relay::Relay;
use super::traffic::{Sink, Source};
use super::{Burst, Context, Service};
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::transport::Transport;
use rdma_engine::wr::Completion;

/// One of the services; dispatched once a burst and once a completion.
#[derive(Debug)]
pub enum AnyService<B: Buf> {
    /// Flows over RDMA.
    Relay(Relay<B>),
    /// Makes traffic.
    Source(Source),
    /// Verifies traffic.
    Sink(Sink),
}

impl<B: Buf> AnyService<B> {
    /// The name used in tables and files.
    pub fn name(&self) -> &'static str {
        match self {
            AnyService::Relay(_) => "relay",
            AnyService::Source(_) => "source",
            AnyService::Sink(_) => "sink",
        }
    }

    /// The relay, if it is one.
    pub fn relay(&mut self) -> Option<&mut Relay<B>> {
        match self {
            AnyService::Relay(relay) => Some(relay),
            _ => None,
        }
    }

    /// The way is open: a source begins.
    pub fn start(&mut self) {
        if let AnyService::Source(source) = self {
            source.start();
        }
    }

    /// Takes no new work; see [`is_drained`](Self::is_drained).
    pub fn drain(&mut self) {
        match self {
            AnyService::Relay(relay) => relay.drain(),
            AnyService::Source(source) => source.stop(),
            AnyService::Sink(_) => {}
        }
    }

    /// True when nothing is left to wait for.
    pub fn is_drained(&self) -> bool {
        match self {
            AnyService::Relay(relay) => relay.is_drained(),
            AnyService::Source(source) => source.is_done(),
            AnyService::Sink(_) => true,
        }
    }

    /// The deadline of a drain has passed.
    pub fn abandon<T: Transport<Buf = B>, P>(&mut self, ctx: &mut Context<'_, T, P>) {
        if let AnyService::Relay(relay) = self {
            relay.abandon(ctx);
        }
    }
}

impl<T: Transport, P: Pool<Buf = T::Buf>> Service<T, P> for AnyService<T::Buf> {
    #[inline]
    fn on_burst(&mut self, ctx: &mut Context<'_, T, P>, burst: &mut Burst<T::Buf>) -> bool {
        match self {
            AnyService::Relay(s) => s.on_burst(ctx, burst),
            AnyService::Source(s) => s.on_burst(ctx, burst),
            AnyService::Sink(s) => s.on_burst(ctx, burst),
        }
    }

    #[inline]
    fn on_completion(&mut self, ctx: &mut Context<'_, T, P>, completion: Completion<T::Buf>) {
        match self {
            AnyService::Relay(s) => s.on_completion(ctx, completion),
            AnyService::Source(s) => s.on_completion(ctx, completion),
            AnyService::Sink(s) => s.on_completion(ctx, completion),
        }
    }

    fn on_tick(&mut self, ctx: &mut Context<'_, T, P>) {
        match self {
            AnyService::Relay(s) => s.on_tick(ctx),
            AnyService::Source(s) => s.on_tick(ctx),
            AnyService::Sink(s) => s.on_tick(ctx),
        }
    }

    #[inline]
    fn wants_rx(&self) -> bool {
        match self {
            AnyService::Relay(s) => Service::<T, P>::wants_rx(s),
            AnyService::Source(s) => Service::<T, P>::wants_rx(s),
            AnyService::Sink(s) => Service::<T, P>::wants_rx(s),
        }
    }
}
