//! Frames on their way to a TX queue.

use arrayvec::ArrayVec;
use rdma_engine::buf::Egress;

/// Frames an outbox holds: what a full batch of completions may bring at once stays with the service.
pub const OUTBOX: usize = 256;

/// Frames that wait for the TX queue, oldest first. What the queue did not take stays owned here.
#[derive(Debug)]
pub struct Outbox<B> {
    frames: ArrayVec<B, OUTBOX>,
}

impl<B> Default for Outbox<B> {
    fn default() -> Self {
        Outbox { frames: ArrayVec::new() }
    }
}

impl<B> Outbox<B> {
    /// Frames waiting.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// True if none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Takes the oldest `n` frames out, or all if there are fewer.
    pub fn drain(&mut self, n: usize) -> impl Iterator<Item = B> + '_ {
        let n = n.min(self.frames.len());
        self.frames.drain(..n)
    }

    /// The frames, oldest first.
    pub fn frames_mut(&mut self) -> &mut ArrayVec<B, OUTBOX> {
        &mut self.frames
    }
}

impl<B> Egress<B> for Outbox<B> {
    #[inline]
    fn push(&mut self, frame: B) -> Result<(), B> {
        self.frames.try_push(frame).map_err(|e| e.element())
    }

    #[inline]
    fn room(&self) -> usize {
        self.frames.remaining_capacity()
    }
}
