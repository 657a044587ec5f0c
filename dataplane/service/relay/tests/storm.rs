//! Random bursts, losses, failures, swaps of queue pairs, dry pools and drains on a pair of relays.
#![allow(dead_code)] // Compiled into two programs, of which each uses some.

use super::rig::{Pair, Setup, frame, label};
use super::watch::Fate;
use isthmus::service::Pools;
use isthmus::service::relay::{OnFull, OnTableFull, PathState};
use isthmus::stats::{Counter, DropReason};
use proptest::prelude::*;
use rdma_engine::buf::Pool;
use rdma_engine::types::QpType;
use std::collections::HashSet;

/// What happens next.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Frames come to a port.
    Burst { end: usize, frames: u32, flows: u32, length: usize },
    /// Time goes by.
    Turns(usize),
    /// How fast a port takes frames.
    Rate { end: usize, frames: usize },
    /// Control gives a path up.
    Fail { ends: u8, path: u16 },
    /// Control brings paths back.
    Reconnect,
    /// The next sends find the queue full.
    Refuse { end: usize, sends: u32 },
    /// An unreliable transport loses and delays.
    Weather { end: usize, lose: u64, later: u64 },
    /// Somebody takes all buffers of a pool.
    Pinch { end: usize, pool: u8 },
    /// Gives them back.
    Release,
    /// A side drains.
    Drain { end: usize },
}

/// Pairs of relays.
pub(crate) fn setups() -> impl Strategy<Value = Setup> {
    let kinds = prop_oneof![3 => Just(QpType::Rc), 1 => Just(QpType::Uc), 1 => Just(QpType::Ud)];
    let numbers = (1usize..5, 4u32..20, 500u32..4096, 1u16..10, 0usize..600);
    let policies = (any::<bool>(), any::<bool>(), any::<bool>(), prop_oneof![Just(4usize), Just(4096)]);
    (kinds, numbers, policies).prop_map(|(kind, numbers, (srq, wait, hash, flow_capacity))| {
        let (paths, depth, message_bytes, max_segments, copybreak) = numbers;
        let srq = srq && kind == QpType::Rc;
        Setup { kind, srq, depth, message_bytes, max_segments, ..Setup::default() }.with(|r| {
            (r.paths, r.copybreak, r.flow_capacity) = (paths, copybreak, flow_capacity);
            r.on_full = if wait { OnFull::Wait } else { OnFull::Drop };
            r.on_table_full = if hash { OnTableFull::Hash } else { OnTableFull::Drop };
        })
    })
}

/// Up to `most` steps.
pub(crate) fn storms(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let end = || 0usize..2;
    let step = prop_oneof![
        8 => (end(), 1u32..80, 1u32..40, 14usize..5000)
            .prop_map(|(end, frames, flows, length)| Step::Burst { end, frames, flows, length }),
        8 => (1usize..30).prop_map(Step::Turns),
        3 => (end(), 0usize..40).prop_map(|(end, frames)| Step::Rate { end, frames }),
        3 => (1u8..4, 0u16..5).prop_map(|(ends, path)| Step::Fail { ends, path }),
        4 => Just(Step::Reconnect),
        1 => (end(), 1u32..6).prop_map(|(end, sends)| Step::Refuse { end, sends }),
        2 => (end(), 0u64..6, 0u64..6).prop_map(|(end, lose, later)| Step::Weather { end, lose, later }),
        1 => (end(), 0u8..3).prop_map(|(end, pool)| Step::Pinch { end, pool }),
        2 => Just(Step::Release),
        1 => end().prop_map(|end| Step::Drain { end }),
    ];
    prop::collection::vec(step, 1..most)
}

/// A pair of relays and what was done to it.
pub(crate) struct Storm<P: Pool> {
    pair: Pair<P>,
    pinched: Vec<P::Buf>,
    /// Next number of each flow.
    next: [[u32; 40]; 2],
    longest: usize,
    /// A receive may be missing: then a message may find none.
    pinched_messages: bool,
}

impl<P: Pool> Storm<P> {
    /// All paths up; frames of up to `longest` bytes fit a buffer.
    pub(crate) fn new(setup: Setup, pools: [Pools<P>; 2], longest: usize) -> Self {
        let pair = Pair::connected(setup, pools);
        Storm { pair, pinched: vec![], next: [[0; 40]; 2], longest, pinched_messages: false }
    }

    /// Carries a step out. The balance is checked after every turn.
    pub(crate) fn step(&mut self, step: &Step) {
        let pair = &mut self.pair;
        match *step {
            Step::Burst { end, frames, flows, length } => self.burst(end, frames, flows, length),
            Step::Turns(n) => pair.turns(n),
            Step::Rate { end, frames } => pair.ends[end].tx_rate = frames,
            Step::Fail { ends, path } => {
                let path = path % pair.setup.relay.paths as u16;
                (0..2).filter(|end| ends >> end & 1 == 1).for_each(|end| pair.fail_at(end, path));
            }
            Step::Reconnect => pair.reconnect(),
            Step::Refuse { end, sends } => pair.ends[end].transport.refuse = sends,
            Step::Weather { end, lose, later } if pair.setup.kind != QpType::Rc => {
                pair.ends[end].transport.judge = Box::new(move |n| match n {
                    n if lose > 1 && n % lose == 0 => Fate::Lose,
                    n if later > 1 && n % later == 0 => Fate::Later,
                    _ => Fate::Arrive,
                });
            }
            Step::Weather { .. } => {}
            Step::Pinch { end, pool } => {
                let pools = &pair.ends[end].pools;
                let pool = [&pools.frames, &pools.messages, &pools.slices][usize::from(pool)];
                self.pinched_messages |= std::ptr::eq(pool, &pools.messages);
                self.pinched.extend(std::iter::from_fn(|| pool.alloc()));
            }
            Step::Release => self.pinched.clear(),
            Step::Drain { end } => pair.ends[end].relay.drain(),
        }
    }

    fn burst(&mut self, end: usize, frames: u32, flows: u32, length: usize) {
        for i in 0..frames {
            let flow = (i * 7 + flows) % flows;
            let next = &mut self.next[end][flow as usize];
            let length = (length + (i as usize * 61) % 200).min(self.longest);
            if length < 60 {
                // Not one of the source's: too short to have a number.
                self.pair.ends[end].offer(&vec![length as u8; length]);
            } else if self.pair.ends[end].offer(&frame(flow, *next, length)) {
                *next += 1;
            }
        }
    }

    /// Calms down, drains both sides (and gives up what does not close by itself), and checks the totals.
    pub(crate) fn end(mut self) -> Pair<P> {
        self.pinched.clear();
        let pair = &mut self.pair;
        for end in &mut pair.ends {
            end.transport.refuse = 0;
            end.tx_rate = 32;
        }
        pair.turns(200);
        pair.ends.iter_mut().for_each(|end| end.relay.drain());
        let drained = |p: &Pair<P>| p.ends.iter().all(|e| e.relay.is_drained());
        // A path that one side alone has lost never closes, nor does one whose messages are lost for ever.
        for _ in 0..600 {
            if drained(pair) {
                break;
            }
            pair.turn();
        }
        (0..2).for_each(|end| pair.abandon(end));
        let gone = |p: &Pair<P>| p.ends.iter().all(|e| e.links.iter().all(Option::is_none));
        assert!(pair.until(|p| gone(p) && drained(p)), "{:?}", pair.states());
        assert!(pair.states().concat().iter().all(|s| *s == PathState::Empty));
        assert!(pair.until(|p| p.ends.iter().all(|e| e.outbox.is_empty())));
        self.check_ends();
        self.pair
    }

    fn check_ends(&self) {
        let Pair { ends, setup, .. } = &self.pair;
        assert!(self.pinched_messages || !self.pair.saw_rnr(), "a message found no receive");
        for end in ends {
            end.check_balance();
            assert_eq!(end.relay.frames_held() + end.relay.frames_waiting(), 0);
            assert_eq!(end.transport.frames_in_flight(), 0);
            let numbered = end.sent.iter().filter(|f| f.len() >= 60).map(|f| label(f));
            let distinct: HashSet<(u32, u32)> = numbered.clone().collect();
            assert_eq!(distinct.len(), numbered.count(), "a frame came twice");
        }
        for (from, to) in [(0, 1), (1, 0)] {
            let known = ends[to].count(Counter::FramesReceived) + ends[to].dropped(DropReason::LostInTransit);
            assert!(
                known <= ends[from].count(Counter::FramesSent) + ends[from].dropped(DropReason::PathDown)
            );
            if setup.kind == QpType::Rc && !setup.srq {
                assert!(known >= ends[from].count(Counter::FramesSent), "what was acknowledged has arrived");
            }
        }
    }
}
