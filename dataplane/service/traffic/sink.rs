//! The sink: verifies what a source made.

use super::frame::{Addressing, Tag};
use crate::service::{Burst, Context, Service};
use crate::stats::{Counter, DropReason, Tally};
use rdma_engine::buf::{Buf, Egress, Pool, copy_out};
use rdma_engine::transport::Transport;
use rdma_engine::wr::Completion;

/// Numbers of a sink on one worker.
#[derive(Clone, Copy, Debug)]
pub struct SinkSettings {
    /// Flows that may come: their numbers lie below this.
    pub flows: u32,
    /// Check checksums and order; otherwise frames are only counted.
    pub verify: bool,
    /// Send every frame back where it came from.
    pub echo: bool,
}

/// Takes frames and checks them.
#[derive(Debug)]
pub struct Sink {
    settings: SinkSettings,
    /// Number expected next of each flow.
    expected: Box<[u32]>,
    /// For frames that span segments.
    scratch: Vec<u8>,
}

impl Sink {
    /// A sink that has seen nothing yet.
    pub fn new(settings: SinkSettings) -> Self {
        let flows = if settings.verify { settings.flows as usize } else { 0 };
        Sink { settings, expected: vec![0; flows].into_boxed_slice(), scratch: vec![0; 65_536] }
    }

    fn verify(&mut self, frame: &[u8], tally: &mut Tally) {
        let payload = Addressing::tag_offset(frame).and_then(|at| frame.get(at..));
        let Some((tag, intact)) = payload.and_then(Tag::read) else {
            tally.add(Counter::Foreign, 1);
            return;
        };
        let Some(expected) = self.expected.get_mut(tag.flow() as usize).filter(|_| intact) else {
            tally.add(if intact { Counter::Foreign } else { Counter::Corrupt }, 1);
            return;
        };
        let next = *expected;
        match tag.sequence().wrapping_sub(next) as i32 {
            ahead @ 0.. => {
                // What lies between is missing until it comes late.
                tally.add(Counter::Missing, ahead as u64);
                tally.add(Counter::FramesVerified, 1);
                *expected = tag.sequence().wrapping_add(1);
            }
            -1 => tally.add(Counter::Duplicates, 1),
            _ => tally.add(Counter::OutOfOrder, 1),
        }
    }
}

impl<T: Transport, P: Pool<Buf = T::Buf>> Service<T, P> for Sink {
    fn on_burst(&mut self, ctx: &mut Context<'_, T, P>, burst: &mut Burst<T::Buf>) -> bool {
        let any = !burst.is_empty();
        if self.settings.verify {
            for frame in burst.iter() {
                if frame.segment_count() == 1 {
                    self.verify(frame.first(), ctx.tally);
                } else {
                    let mut scratch = std::mem::take(&mut self.scratch);
                    let n = copy_out(frame, 0, &mut scratch);
                    self.verify(&scratch[..n], ctx.tally);
                    self.scratch = scratch;
                }
            }
        }
        for frame in burst.drain(..) {
            if self.settings.echo && ctx.tx.push(frame).is_err() {
                ctx.tally.drop(DropReason::TxFull, 1);
            }
        }
        any
    }

    fn on_completion(&mut self, _: &mut Context<'_, T, P>, _: Completion<T::Buf>) {
        unreachable!("a sink has no queue pair");
    }

    fn on_tick(&mut self, _: &mut Context<'_, T, P>) {}
}
