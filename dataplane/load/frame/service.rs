//! The client as a service of a worker.

use super::FrameClient;
use crate::service::{Burst, Context, Service};
use crate::stats::{Counter, DropReason};
use rdma_engine::buf::Pool;
use rdma_engine::transport::Transport;
use rdma_engine::wr::Completion;

impl<T: Transport, P: Pool<Buf = T::Buf>> Service<T, P> for FrameClient<T::Buf> {
    fn on_burst(&mut self, ctx: &mut Context<'_, T, P>, burst: &mut Burst<T::Buf>) -> bool {
        let before = self.counts;
        let any = FrameClient::on_burst(self, ctx.now, &ctx.pools.frames, burst, ctx.tx);
        if any {
            let dropped = self.counts.not_wanted - before.not_wanted;
            if dropped > 0 {
                ctx.tally.drop(DropReason::NotWanted, dropped);
            }
            ctx.tally.set(Counter::FramesMade, self.counts.frames_sent);
            ctx.tally.set(Counter::FramesVerified, self.counts.replies);
            let wrong = self.meter().counts.faults + self.counts.bad_checksums;
            ctx.tally.set(Counter::Corrupt, wrong);
        }
        any
    }

    fn on_completion(&mut self, _: &mut Context<'_, T, P>, _: Completion<T::Buf>) {
        unreachable!("a load has no queue pair");
    }

    fn on_tick(&mut self, _: &mut Context<'_, T, P>) {}
}
