//! Services: what a worker does with frames and completions.

pub mod any;
pub mod kv;
pub mod memory;
pub mod outbox;
pub mod relay;
pub mod traffic;

use crate::stats::Tally;
use arrayvec::ArrayVec;
use outbox::Outbox;
use rdma_engine::buf::Pool;
use rdma_engine::transport::Transport;
use rdma_engine::types::Time;
use rdma_engine::wr::Completion;

/// Frames of one RX burst.
pub const BURST: usize = 32;

/// One RX burst.
pub type Burst<B> = ArrayVec<B, BURST>;

/// Where a service takes buffers from.
#[derive(Clone, Debug)]
pub struct Pools<P> {
    /// Buffers for single frames.
    pub frames: P,
    /// Buffers for whole messages: posted receives.
    pub messages: P,
    /// Headers for slices of messages.
    pub slices: P,
}

/// True while a pool of whole messages has buffers to spare for what clients send and ask for: the last sixteenth is for
/// what answers to requests that are under way come in.
pub fn has_spare(messages: &impl Pool) -> bool {
    messages.available() > messages.capacity() / 16
}

/// What a service may use in a call.
#[derive(Debug)]
pub struct Context<'a, T: Transport, P> {
    /// The turn's time.
    pub now: Time,
    /// The worker's transport.
    pub transport: &'a mut T,
    /// Frames for the port.
    pub tx: &'a mut Outbox<T::Buf>,
    /// Buffers.
    pub pools: &'a Pools<P>,
    /// Counts of this role.
    pub tally: &'a mut Tally,
}

/// A service on one worker. It owns its state; nothing of it is shared.
pub trait Service<T: Transport, P: Pool<Buf = T::Buf>> {
    /// Takes the frames of a turn's RX burst out of `burst`; called every turn, also with none, so that work left from
    /// the turn before goes on. True if anything was done.
    fn on_burst(&mut self, ctx: &mut Context<'_, T, P>, burst: &mut Burst<T::Buf>) -> bool;

    /// Takes a completion of one of its queue pairs.
    fn on_completion(&mut self, ctx: &mut Context<'_, T, P>, completion: Completion<T::Buf>);

    /// Called every 256th turn, or after a sleep: timers and refreshes.
    fn on_tick(&mut self, ctx: &mut Context<'_, T, P>);

    /// False while the service cannot take frames: the RX queue is not polled then, and its ring is the backlog.
    fn wants_rx(&self) -> bool {
        true
    }
}
