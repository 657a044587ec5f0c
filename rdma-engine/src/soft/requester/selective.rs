//! What the peer has and has not, by its selective acknowledgements; what is to be sent again; and how long an answer
//! takes. Only between two ends of our own that have agreed on it.
//!
//! A *pass* goes once over everything before the newest packet that the peer has, and sends again what it misses. Only
//! the oldest packet is sent once more after that, when a packet has arrived that was first sent later. Should the
//! tail of what was sent get lost, nothing arrives at all: then a *probe*, some round trips after the last progress,
//! starts a pass over the first packets. Behind it all stands the retransmission timer of the standard.

use super::super::hold::SPAN;
use super::{Requester, forward};
use crate::buf::Buf;
use crate::types::{Psn, Time};

/// Shortest time to a probe.
const MIN_PROBE_NS: u64 = 100_000;
/// The time to the next probe doubles at most so often.
const MAX_BACKOFF: u32 = 8;
/// Packets that a probe sends again at most.
const MAX_PROBE: u32 = 32;

/// A packet that is to be sent again: its request, its place in there, its PSN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hole {
    pub(super) index: u32,
    pub(super) packet: u32,
    pub(super) psn: Psn,
}

/// The sender's side of selective repeat.
#[derive(Debug)]
pub(crate) struct Selective {
    /// What the newest report is relative to: bit n stands for `base` + 1 + n.
    base: Psn,
    bits: [u64; SPAN / 64],
    /// Where the pass stands, and before which PSN it ends.
    at: Hole,
    until: Psn,
    /// The oldest packet, and the first PSN that was not sent yet when that one was sent last.
    head: Psn,
    mark: Psn,
    /// The oldest packet is to be sent again at once.
    head_again: bool,
    /// A packet whose answer is timed.
    timed: Option<(Psn, Time)>,
    /// Smoothed round trip and its variation; 0 before the first one.
    round_trip_ns: u64,
    variation_ns: u64,
    pub(super) probe_at: Time,
    backoff: u32,
}

impl Selective {
    pub(crate) fn new() -> Self {
        let psn = Psn::default();
        Selective {
            base: psn,
            bits: [0; SPAN / 64],
            at: Hole { index: 0, packet: 0, psn },
            until: psn,
            head: psn,
            mark: psn,
            head_again: false,
            timed: None,
            round_trip_ns: 0,
            variation_ns: 0,
            probe_at: Time::NEVER,
            backoff: 0,
        }
    }

    /// Everything starts at `psn`.
    pub(super) fn start(&mut self, psn: Psn) {
        let (round_trip_ns, variation_ns) = (self.round_trip_ns, self.variation_ns);
        *self = Selective {
            base: psn,
            until: psn,
            head: psn,
            mark: psn,
            round_trip_ns,
            variation_ns,
            ..Self::new()
        };
        self.at.psn = psn;
    }

    /// True if the peer has `psn`.
    fn has(&self, psn: Psn) -> bool {
        let n = forward(self.base, psn).wrapping_sub(1) as usize;
        n < SPAN && self.bits[n / 64] >> (n % 64) & 1 == 1
    }

    /// The newest packet that the peer has; `base` if there is none.
    fn newest(&self) -> Psn {
        let word = (0..self.bits.len()).rev().find(|w| self.bits[*w] != 0);
        word.map_or(self.base, |w| self.base.advance(64 * w as u32 + 64 - self.bits[w].leading_zeros()))
    }

    /// Takes a report relative to `base`.
    fn merge(&mut self, base: Psn, report: &[u64; SPAN / 64]) {
        if base == self.base {
            self.bits.iter_mut().zip(report).for_each(|(have, new)| *have |= new);
        } else {
            (self.base, self.bits) = (base, *report);
        }
    }

    /// A round trip was measured (RFC 6298).
    fn measured(&mut self, ns: u64) {
        if self.round_trip_ns == 0 {
            (self.round_trip_ns, self.variation_ns) = (ns.max(1), ns / 2);
        } else {
            let off = self.round_trip_ns.abs_diff(ns);
            self.variation_ns = (3 * self.variation_ns + off) / 4;
            self.round_trip_ns = (7 * self.round_trip_ns + ns) / 8;
        }
    }

    fn arm_probe(&mut self, now: Time) {
        let wait = (self.round_trip_ns + 4 * self.variation_ns).max(MIN_PROBE_NS) << self.backoff;
        self.probe_at = if self.round_trip_ns == 0 { Time::NEVER } else { now.after_ns(wait) };
    }
}

impl<B: Buf> Requester<B> {
    /// A packet was sent for the first time, or again after going back.
    #[inline]
    pub(super) fn note_sent(&mut self, now: Time, psn: Psn, fresh: bool, asks: bool) {
        let Some(s) = &mut self.selective else { return };
        if s.timed.is_none() && fresh && asks {
            s.timed = Some((psn, now));
        }
        if s.probe_at == Time::NEVER {
            s.arm_probe(now);
        }
    }

    /// There was progress.
    #[inline]
    pub(super) fn note_progress(&mut self, now: Time) {
        let (una, next, high) = (self.una, self.next, self.high);
        let Some(s) = &mut self.selective else { return };
        if let Some((psn, at)) = s.timed
            && psn.is_before(una)
        {
            s.measured(now.since_ns(at));
            s.timed = None;
        }
        if s.head != una {
            (s.head, s.mark, s.head_again) = (una, high, false);
        }
        s.backoff = 0;
        if una == next { s.probe_at = Time::NEVER } else { s.arm_probe(now) }
    }

    /// A report: `bits` relative to `base`, which is not before the oldest outstanding packet by now.
    pub(super) fn note_report(&mut self, base: Psn, bits: &[u64; SPAN / 64]) {
        let (una, next) = (self.una, self.next);
        let Some(s) = &mut self.selective else { return };
        s.merge(base, bits);
        // What was sent before the hole is timed no more: its answer waits for the hole.
        s.timed = None;
        let newest = s.newest();
        if s.head != una {
            (s.head, s.mark) = (una, self.high);
        } else if una.is_before(s.at.psn) && !newest.is_before(s.mark) {
            // Sent again, and overtaken once more.
            s.head_again = true;
        }
        if una.is_before(newest) && (s.until.is_before(newest) || s.until.is_before(una)) {
            s.until = if next.is_before(newest) { next } else { newest };
        }
    }

    /// The answer of the oldest request is missing: it is to be asked for again.
    pub(super) fn ask_head_again(&mut self) {
        if let Some(s) = &mut self.selective {
            s.head_again = true;
        }
    }

    /// Nothing came back for too long. False if this is no queue pair that probes.
    pub(super) fn probe(&mut self, now: Time) -> bool {
        let (una, next) = (self.una, self.next);
        let waiting = self.rnr_until;
        let Some(s) = self.selective.as_mut().filter(|s| s.probe_at <= now) else { return false };
        s.timed = None;
        if una == next {
            s.probe_at = Time::NEVER;
            return false;
        }
        s.backoff = (s.backoff + 1).min(MAX_BACKOFF);
        s.arm_probe(if waiting == Time::NEVER { now } else { now.max(waiting) });
        let most = una.advance(MAX_PROBE);
        s.until = if most.is_before(next) { most } else { next };
        s.at.psn = una.back(1);
        self.went_back = None;
        waiting == Time::NEVER
    }

    /// The next packet that is to be sent again.
    pub(super) fn next_hole(&mut self) -> Option<Hole> {
        let (una, next, high) = (self.una, self.next, self.high);
        let oldest = self.ring.oldest_index();
        let done = self.ring.entry(oldest).map(|wqe| self.oldest_done(wqe.first))?;
        let head = Hole { index: oldest, packet: done, psn: una };
        let s = self.selective.as_mut()?;
        if una == next {
            s.head_again = false;
            return None;
        }
        if s.head_again {
            return Some(head);
        }
        if forward(una, s.until) > forward(una, next) || s.until == una {
            return None;
        }
        if forward(una, s.at.psn) > forward(una, high) || s.at.psn == una {
            s.at = head;
        }
        while s.at.psn.is_before(s.until) {
            let wqe = self.ring.entry(s.at.index)?;
            if s.at.packet >= wqe.packets {
                (s.at.index, s.at.packet) = (s.at.index.wrapping_add(1), 0);
                continue;
            }
            if !s.has(s.at.psn) {
                return Some(s.at);
            }
            let step = if wqe.op.fills_buffer() { wqe.packets - s.at.packet } else { 1 };
            (s.at.packet, s.at.psn) = (s.at.packet + step, s.at.psn.advance(step));
        }
        None
    }

    /// That packet, `psns` of them for a READ, was sent.
    pub(super) fn sent_again(&mut self, hole: Hole, psns: u32) {
        let high = self.high;
        let una = self.una;
        let Some(s) = &mut self.selective else { return };
        s.timed = None;
        if hole.psn == una {
            (s.head, s.mark, s.head_again) = (una, high, false);
        }
        if hole == s.at {
            (s.at.packet, s.at.psn) = (s.at.packet + psns, s.at.psn.advance(psns));
        }
    }

    /// After going back everything is sent again in order.
    pub(super) fn forget_reports(&mut self) {
        let una = self.una;
        if let Some(s) = &mut self.selective {
            s.start(una);
        }
    }

    /// When to probe.
    #[inline]
    pub(super) fn probe_at(&self) -> Time {
        self.selective.as_ref().map_or(Time::NEVER, |s| s.probe_at)
    }
}
