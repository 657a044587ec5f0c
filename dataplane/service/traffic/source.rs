//! The source: frames of many flows at a rate.

use super::frame::{Addressing, Shape, TAG_LEN, Tag};
use crate::service::{BURST, Burst, Context, Service};
use crate::stats::{Counter, DropReason};
use rdma_engine::buf::{Buf, Egress, Pool};
use rdma_engine::transport::Transport;
use rdma_engine::types::Time;
use rdma_engine::wr::Completion;
use zerocopy::IntoBytes;

/// Numbers of a source on one worker.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// Number of the first flow; flows of several workers do not overlap.
    pub first_flow: u32,
    /// Flows, used in turn.
    pub flows: u32,
    /// Frame lengths, used in turn. Bytes, without the frame check sequence; too short ones are lengthened.
    pub sizes: Vec<u16>,
    /// Shapes of flows, used in turn.
    pub shapes: Vec<Shape>,
    /// Frames a second; 0 for as many as the port takes.
    pub rate_pps: u64,
    /// Frames in all; 0 for no end.
    pub count: u64,
    /// Addresses.
    pub addressing: Addressing,
}

/// Makes frames.
#[derive(Debug)]
pub struct Source {
    settings: SourceSettings,
    /// Next number of each flow.
    sequences: Box<[u32]>,
    next_flow: u32,
    made: u64,
    /// False until it is told that its frames have somewhere to go.
    open: bool,
    started: Option<Time>,
    /// Bytes behind the tag.
    filler: Box<[u8]>,
    stopped: bool,
}

impl Source {
    /// A source that makes nothing before [`start`](Self::start).
    ///
    /// # Panics
    /// If there is no flow, size or shape.
    pub fn new(mut settings: SourceSettings) -> Self {
        assert!(settings.flows > 0 && !settings.sizes.is_empty() && !settings.shapes.is_empty());
        let shortest = settings.shapes.iter().map(|s| s.shortest()).min().unwrap_or(0);
        settings.sizes.iter_mut().for_each(|s| *s = (*s).max(shortest as u16));
        let longest = settings.sizes.iter().copied().max().unwrap_or(0).max(128);
        Source {
            sequences: vec![0; settings.flows as usize].into_boxed_slice(),
            next_flow: 0,
            made: 0,
            open: false,
            started: None,
            filler: (0..longest).map(|i| (i.wrapping_mul(31) >> 2) as u8).collect(),
            stopped: false,
            settings,
        }
    }

    /// Begins; until then it makes nothing.
    pub fn start(&mut self) {
        self.open = true;
    }

    /// Makes no more frames.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// True when all frames asked for are made, or after `stop`.
    pub fn is_done(&self) -> bool {
        self.stopped || (self.settings.count > 0 && self.made >= self.settings.count)
    }

    /// Frames that may be made now: a burst at most, and no more than the rate, the count and the port allow.
    fn allowance(&mut self, now: Time, room: usize) -> usize {
        if !self.open || self.is_done() {
            return 0;
        }
        let mut n = BURST.min(room) as u64;
        if self.settings.count > 0 {
            n = n.min(self.settings.count - self.made);
        }
        if self.settings.rate_pps > 0 {
            let start = *self.started.get_or_insert(now);
            let due = u128::from(now.since_ns(start)) * u128::from(self.settings.rate_pps) / 1_000_000_000;
            n = n.min((due as u64).saturating_sub(self.made));
        }
        n as usize
    }

    /// Writes the next frame into a fresh buffer; false if that is too small.
    #[inline]
    fn make<B: Buf>(&mut self, buf: &mut B) -> bool {
        let s = &self.settings;
        let at = self.next_flow as usize;
        let flow = s.first_flow + self.next_flow;
        let shape = s.shapes[at % s.shapes.len()];
        let size = usize::from(s.sizes[(self.made % s.sizes.len() as u64) as usize]).max(shape.shortest());
        let Some(out) = buf.append(size) else { return false };
        let tag_at = s.addressing.write(shape, flow, out);
        let payload = &mut out[tag_at..];
        let rest = payload.len() - TAG_LEN;
        payload[TAG_LEN..].copy_from_slice(&self.filler[..rest]);
        let tag = Tag::new(flow, self.sequences[at], &self.filler[..rest]);
        payload[..TAG_LEN].copy_from_slice(tag.as_bytes());
        self.sequences[at] = self.sequences[at].wrapping_add(1);
        self.next_flow = (self.next_flow + 1) % s.flows;
        self.made += 1;
        true
    }
}

impl<T: Transport, P: Pool<Buf = T::Buf>> Service<T, P> for Source {
    fn on_burst(&mut self, ctx: &mut Context<'_, T, P>, burst: &mut Burst<T::Buf>) -> bool {
        ctx.tally.drop(DropReason::NotWanted, burst.len() as u64);
        burst.clear();
        let n = self.allowance(ctx.now, ctx.tx.room());
        if n == 0 {
            return false;
        }
        let granted = ctx.pools.frames.alloc_bulk(n, |buf| burst.push(buf));
        for mut buf in burst.drain(..) {
            if self.make(&mut buf) {
                ctx.tx.push(buf).unwrap_or_else(|_| unreachable!("room was seen"));
            }
        }
        ctx.tally.set(Counter::FramesMade, self.made);
        granted
    }

    fn on_completion(&mut self, _: &mut Context<'_, T, P>, _: Completion<T::Buf>) {
        unreachable!("a source has no queue pair");
    }

    fn on_tick(&mut self, _: &mut Context<'_, T, P>) {}
}
