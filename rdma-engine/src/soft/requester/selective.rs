//! What the peer has and has not, by its selective acknowledgements; what is to be sent again; and how long an answer
//! takes. Only between two ends of our own that have agreed on it.
//!
//! A *pass* goes once over everything before the newest packet that the peer has, and sends again what it misses. Only
//! the oldest packet is sent once more after that, when a packet has arrived that was sent later: one never sent before,
//! or one of the same pass. A peer that had no room for packets says so, and the pass goes over all that was sent: then
//! selective repeat is no worse than going back. Should the tail of what was sent get lost, or an end stand still with
//! a full window, nothing arrives at all: then a *probe*, some round trips after the last progress, starts the pass anew
//! and sends the newest packet again, which the peer answers by a report of the whole. Behind it all stands the
//! retransmission timer of the standard.
//!
//! The time to a probe follows the round trip, whose queues other queue pairs fill. It starts out long and is never
//! shorter than a packet under way has waited already, and a probe that was sent doubles it until a packet sent once
//! has been answered (Karn's rule): on a wire that loses nothing, nothing is sent twice.

use super::super::hold::SPAN;
use super::{Requester, forward};
use crate::buf::Buf;
use crate::types::{Psn, Time};

/// Variation assumed at first: the round trip of an idle wire says nothing about a busy one.
const FIRST_VARIATION_NS: u32 = 500_000;
/// Longer round trips count as this.
const MAX_ROUND_TRIP_NS: u32 = 500_000_000;
/// Least time to a probe beyond a round trip.
const MIN_MARGIN_NS: u64 = 100_000;
/// The time to the next probe doubles at most so often.
const MAX_BACKOFF: u8 = 8;
/// Packets that a probe sends again at most, where the newest one is a READ.
const MAX_PROBE: u32 = 32;

/// Bits of a report.
pub(super) type Bits = [u64; SPAN / 64];

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
    bits: Bits,
    /// How often the peer had no room, as it says.
    refusals: u8,
    /// Where the pass stands, and before which PSN it ends.
    at: Hole,
    until: Psn,
    /// The oldest packet, the first PSN that was not sent yet when that one was sent last, and where the pass stood.
    head: Psn,
    mark: Psn,
    stood: Psn,
    /// The oldest packet is to be sent again at once.
    head_again: bool,
    /// The newest packet is to be sent again.
    tail_again: bool,
    backoff: u8,
    /// A packet whose answer is timed, and since when; [`Time::NEVER`] if none is.
    timed: Psn,
    timed_at: Time,
    /// Smoothed round trip and its variation; 0 before the first one.
    round_trip_ns: u32,
    variation_ns: u32,
    pub(super) probe_at: Time,
}

impl Selective {
    pub(crate) fn new() -> Self {
        let psn = Psn::default();
        Selective {
            base: psn,
            bits: [0; SPAN / 64],
            refusals: 0,
            at: Hole { index: 0, packet: 0, psn },
            until: psn,
            head: psn,
            mark: psn,
            stood: psn,
            head_again: false,
            tail_again: false,
            backoff: 0,
            timed: psn,
            timed_at: Time::NEVER,
            round_trip_ns: 0,
            variation_ns: 0,
            probe_at: Time::NEVER,
        }
    }

    /// Everything starts at `psn`; what is known of the way stays.
    pub(super) fn start(&mut self, psn: Psn) {
        let (round_trip_ns, variation_ns, backoff) = (self.round_trip_ns, self.variation_ns, self.backoff);
        let (base, until, head, mark, stood, refusals) = (psn, psn, psn, psn, psn, self.refusals);
        let fresh = Self::new();
        *self = Selective {
            base,
            refusals,
            until,
            head,
            mark,
            stood,
            round_trip_ns,
            variation_ns,
            backoff,
            at: Hole { psn, ..fresh.at },
            ..fresh
        };
    }

    /// Forgets what lies outside of `una` to `high`: it says nothing any more, and half of all PSNs later it would seem to.
    fn renew(&mut self, una: Psn, high: Psn) {
        let outstanding = |psn| forward(una, psn) <= forward(una, high);
        if !outstanding(self.base) {
            self.bits = shifted(&self.bits, forward(self.base, una));
            self.base = una;
        }
        if !outstanding(self.until) {
            self.until = una;
        }
        if !outstanding(self.at.psn) {
            // The next pass starts with the oldest packet.
            self.at.psn = una.back(1);
        }
    }

    /// True if the peer has `psn`, or has executed it long since.
    fn has(&self, psn: Psn) -> bool {
        let n = forward(self.base, psn).wrapping_sub(1) as usize;
        psn.is_before(self.base) || n < SPAN && self.bits[n / 64] >> (n % 64) & 1 == 1
    }

    /// The newest packet that the peer has; `base` if there is none.
    fn newest(&self) -> Psn {
        let word = (0..self.bits.len()).rev().find(|w| self.bits[*w] != 0);
        word.map_or(self.base, |w| self.base.advance(64 * w as u32 + 64 - self.bits[w].leading_zeros()))
    }

    /// Takes a report relative to `base`. True if it has packets that this pass has sent after the oldest one.
    fn merge(&mut self, base: Psn, report: &Bits) -> bool {
        self.bits = shifted(&self.bits, forward(self.base, base));
        self.base = base;
        let mut overtaken = false;
        for (n, (have, new)) in (0..).step_by(64).zip(self.bits.iter_mut().zip(report)) {
            let word = base.advance(1 + n);
            let fresh = new & !*have;
            // Those from `stood` on and before the pass.
            let from = below(self.stood.since(word));
            let to = below(self.at.psn.since(word));
            overtaken |= fresh & to & !from != 0;
            *have |= new;
        }
        overtaken
    }

    /// The answer of the packet that was timed is here (RFC 6298): probes come at their usual time again.
    fn measured(&mut self, now: Time) {
        let ns = u32::try_from(now.since_ns(self.timed_at)).unwrap_or(MAX_ROUND_TRIP_NS);
        let ns = ns.clamp(1, MAX_ROUND_TRIP_NS);
        (self.timed_at, self.backoff) = (Time::NEVER, 0);
        if self.round_trip_ns == 0 {
            (self.round_trip_ns, self.variation_ns) = (ns, FIRST_VARIATION_NS.max(ns / 2));
        } else {
            let off = self.round_trip_ns.abs_diff(ns);
            self.variation_ns = (3 * self.variation_ns + off) / 4;
            self.round_trip_ns = (7 * self.round_trip_ns + ns) / 8;
        }
    }

    fn arm_probe(&mut self, now: Time) {
        if self.round_trip_ns == 0 {
            self.probe_at = Time::NEVER;
            return;
        }
        let waited = if self.timed_at == Time::NEVER { 0 } else { now.since_ns(self.timed_at) };
        let least = u64::from(self.round_trip_ns).max(waited);
        let margin = (4 * u64::from(self.variation_ns)).max(least / 2).max(MIN_MARGIN_NS);
        self.probe_at = now.after_ns((least + margin) << self.backoff);
    }
}

/// The bits of a report when its base moves by `by`.
fn shifted(bits: &Bits, by: u32) -> Bits {
    let (words, rest) = (by as usize / 64, by % 64);
    let word = |n: usize| bits.get(n).copied().unwrap_or(0);
    std::array::from_fn(|n| {
        let n = n.saturating_add(words);
        if rest == 0 { word(n) } else { word(n) >> rest | word(n + 1) << (64 - rest) }
    })
}

/// A word with the `n` lowest bits set.
fn below(n: i32) -> u64 {
    match n {
        ..1 => 0,
        64.. => u64::MAX,
        n => (1 << n) - 1,
    }
}

impl<B: Buf> Requester<B> {
    /// A packet was sent for the first time, or again after going back.
    #[inline]
    pub(super) fn note_sent(&mut self, now: Time, psn: Psn, fresh: bool, asks: bool) {
        let Some(s) = &mut self.selective else { return };
        if s.timed_at == Time::NEVER && fresh && asks {
            (s.timed, s.timed_at) = (psn, now);
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
        if s.timed_at != Time::NEVER && s.timed.is_before(una) {
            s.measured(now);
        }
        s.tail_again = false;
        if s.head != una {
            (s.head, s.mark, s.stood, s.head_again) = (una, high, una, false);
        }
        if una == next { s.probe_at = Time::NEVER } else { s.arm_probe(now) }
    }

    /// A report: `bits` relative to `base`, which is not before the oldest outstanding packet by now, and how often the
    /// peer had no room.
    pub(super) fn note_report(&mut self, now: Time, base: Psn, bits: &Bits, refusals: u8) {
        let (una, next, high) = (self.una, self.next, self.high);
        let Some(s) = &mut self.selective else { return };
        s.renew(una, high);
        if base.is_before(s.base) {
            return;
        }
        let overtaken = s.merge(base, bits);
        if s.timed_at != Time::NEVER && s.has(s.timed) {
            s.measured(now);
        }
        let newest = s.newest();
        if s.head != una {
            (s.head, s.mark, s.stood) = (una, high, una);
        } else if una.is_before(s.at.psn) && !s.has(una) && (overtaken || !newest.is_before(s.mark)) {
            s.head_again = true;
        }
        if una.is_before(newest) && (s.until.is_before(newest) || s.until.is_before(una)) {
            s.until = if next.is_before(newest) { next } else { newest };
        }
        if std::mem::replace(&mut s.refusals, refusals) != refusals && self.went_back != Some(una) {
            // Whatever it does not hold is lost.
            (s.at.psn, s.until) = (una.back(1), next);
            self.went_back = Some(una);
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
        let (una, next, high) = (self.una, self.next, self.high);
        let waiting = self.rnr_until;
        let fills = |hole: Option<Hole>| {
            hole.and_then(|h| self.ring.entry(h.index)).is_some_and(|wqe| wqe.fills_buffer())
        };
        let (head_fills, tail_fills) = (fills(self.head()), fills(self.tail()));
        let Some(s) = self.selective.as_mut().filter(|s| s.probe_at <= now) else { return false };
        if una == next {
            s.probe_at = Time::NEVER;
            return false;
        }
        s.backoff = (s.backoff + 1).min(MAX_BACKOFF);
        s.arm_probe(if waiting == Time::NEVER { now } else { now.max(waiting) });
        if waiting != Time::NEVER || next != high {
            // The peer is to be left alone, or all of it is being sent again.
            return false;
        }
        s.renew(una, high);
        (s.at.psn, s.until) = (una.back(1), s.newest());
        if head_fills {
            s.head_again = true;
        } else if tail_fills {
            let most = una.advance(MAX_PROBE);
            s.until = if most.is_before(next) { most } else { next };
        } else {
            s.tail_again = true;
        }
        self.went_back = None;
        true
    }

    /// The oldest packet outstanding.
    fn head(&self) -> Option<Hole> {
        let index = self.ring.oldest_index();
        let packet = self.ring.entry(index).map(|wqe| self.oldest_done(wqe.first))?;
        Some(Hole { index, packet, psn: self.una })
    }

    /// The packet that was sent last in the order of PSNs.
    fn tail(&self) -> Option<Hole> {
        let psn = self.next.back(1);
        if self.packet > 0 {
            return Some(Hole { index: self.send, packet: self.packet - 1, psn });
        }
        let index = self.send.wrapping_sub(1);
        self.ring.entry(index).map(|wqe| Hole { index, packet: wqe.packets - 1, psn })
    }

    /// True if packets may have to be sent again: some are asked for, or the pass is not over.
    #[inline]
    pub(super) fn may_have_hole(&self) -> bool {
        self.selective.as_ref().is_some_and(|s| s.head_again || s.tail_again || s.at.psn.is_before(s.until))
    }

    /// The next packet that is to be sent again.
    pub(super) fn next_hole(&mut self) -> Option<Hole> {
        let (una, next, high) = (self.una, self.next, self.high);
        let (head, tail) = (self.head()?, self.tail());
        let s = self.selective.as_mut()?;
        if una == next {
            (s.head_again, s.tail_again) = (false, false);
            return None;
        }
        if s.head_again {
            return Some(head);
        }
        if s.tail_again {
            return tail;
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
            let step = if wqe.fills_buffer() { wqe.packets - s.at.packet } else { 1 };
            (s.at.packet, s.at.psn) = (s.at.packet + step, s.at.psn.advance(step));
        }
        None
    }

    /// That packet, `psns` of them for a READ, was sent.
    pub(super) fn sent_again(&mut self, hole: Hole, psns: u32) {
        let (una, high) = (self.una, self.high);
        let Some(s) = &mut self.selective else { return };
        if forward(hole.psn, s.timed) < psns {
            s.timed_at = Time::NEVER;
        }
        if hole.psn == una {
            (s.head, s.mark, s.head_again) = (una, high, false);
            s.stood = if hole == s.at || s.at.psn.is_before(una) { una } else { s.at.psn };
        }
        if hole.psn == high.back(1) {
            s.tail_again = false;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_move_with_their_base() {
        let mut s = Selective::new();
        let bits = [0b1011, 0, 1 << 63, 1];
        s.merge(Psn::new(0), &bits);
        let held = |s: &Selective| (1..300).filter(|n| s.has(Psn::new(*n))).collect::<Vec<_>>();
        assert_eq!(held(&s), [1, 2, 4, 192, 193]);
        assert_eq!(s.newest(), Psn::new(193));
        s.renew(Psn::new(3), Psn::new(250));
        assert_eq!(
            (held(&s), s.base),
            (vec![1, 2, 4, 192, 193], Psn::new(3)),
            "what lies before was executed"
        );
        s.merge(Psn::new(3), &[0b10, 0, 0, 0]);
        assert_eq!(held(&s), [1, 2, 4, 5, 192, 193]);
    }

    #[test]
    fn old_marks_do_not_come_back_half_of_all_psns_later() {
        let mut s = Selective::new();
        s.start(Psn::new(7));
        let (una, high) = (Psn::new((1 << 23) + 20), Psn::new((1 << 23) + 30));
        s.renew(una, high);
        assert_eq!((s.base, s.until, s.at.psn, s.bits), (una, una, una.back(1), [0; SPAN / 64]));
    }
}
