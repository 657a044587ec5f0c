//! From the agreement to the end: Ready, keepalives, goodbye.

use super::super::frame::{Frame, FrameKind};
use super::super::message::{Fence, Goodbye, GoodbyeReason, Message, QpTotal};
use super::super::negotiate::Terms;
use super::super::offer::MAX_QPS;
use super::super::refuse::{Refusal, RefuseReason};
use super::client::decode_any;
use super::{Agreement, End, LostReason, Session, SessionEvent, State};
use crate::types::Time;

const MS: u64 = 1_000_000;

/// When to ask, and since when nothing was heard.
#[derive(Default)]
pub(super) struct Heartbeat {
    interval_ns: u64,
    dead_after_ns: u64,
    next_beat: Time,
    last_heard: Time,
    /// A second connection made us doubt: heard by then, or lost.
    doubt: Option<Time>,
    sequence: u64,
    asked_at: Time,
    round_trip_ns: Option<u64>,
}

impl Heartbeat {
    fn start(&mut self, now: Time) {
        self.last_heard = now;
        self.next_beat = now.after_ns(self.interval_ns);
    }

    fn heard(&mut self, now: Time) {
        self.last_heard = now;
        self.doubt = None;
    }

    fn dead_at(&self) -> Time {
        let dead = self.last_heard.after_ns(self.dead_after_ns);
        self.doubt.map_or(dead, |doubt| doubt.min(dead))
    }

    pub(super) fn next(&self) -> Time {
        self.next_beat.min(self.dead_at())
    }
}

impl Session {
    pub(super) fn become_ready_for(&mut self, now: Time, agreement: Agreement) {
        self.peer_generation = agreement.peer.identity.generation;
        let Terms { keepalive_ms, dead_after_ms, .. } = agreement.agreed.terms;
        self.heartbeat.interval_ns = u64::from(keepalive_ms) * MS;
        self.heartbeat.dead_after_ns = u64::from(dead_after_ms) * MS;
        self.enter(now, State::AwaitReady { local: false, remote: false }, Some(self.config.timing.ready_ms));
        self.events.push_back(SessionEvent::Agreed(Box::new(agreement)));
    }

    /// The queue pairs are in RTS and the receives are posted, in answer to
    /// [`SessionEvent::Agreed`]. Without effect in any other state.
    pub fn local_ready(&mut self, now: Time) {
        let State::AwaitReady { local: false, remote } = self.state else { return };
        self.state = State::AwaitReady { local: true, remote };
        self.send(&Message::Ready(self.fence()));
        self.establish_if_both_ready(now);
    }

    fn establish_if_both_ready(&mut self, now: Time) {
        if matches!(self.state, State::AwaitReady { local: true, remote: true }) {
            self.enter(now, State::Established, None);
            self.heartbeat.start(now);
            self.events.push_back(SessionEvent::Established);
        }
    }

    fn fence(&self) -> Fence {
        Fence { from: self.config.identity.generation, to: self.peer_generation }
    }

    pub(super) fn handle_running(&mut self, now: Time, frame: &Frame<'_>) -> Result<(), Refusal> {
        self.check_seal(frame)?;
        self.heartbeat.heard(now);
        match decode_any(frame)? {
            Message::Ready(fence) => {
                self.check_fence(fence)?;
                self.handle_ready(now)
            }
            Message::Keepalive(fence, sequence) => {
                self.check_fence(fence)?;
                if matches!(self.state, State::AwaitReady { .. }) {
                    return Err(self.unexpected(frame.kind));
                }
                self.send(&Message::KeepaliveReply(self.fence(), sequence));
                Ok(())
            }
            Message::KeepaliveReply(fence, sequence) => {
                self.check_fence(fence)?;
                self.handle_keepalive_reply(now, sequence)
            }
            Message::Goodbye(goodbye) => {
                self.check_fence(goodbye.fence)?;
                self.handle_goodbye(now, goodbye)
            }
            _ => Err(self.unexpected(frame.kind)),
        }
    }

    fn check_seal(&mut self, frame: &Frame<'_>) -> Result<(), Refusal> {
        let opens = match (&mut self.opening, frame.tag) {
            (None, None) => true,
            (Some(seal), Some(tag)) => seal.opens(frame.signed, tag),
            _ => false,
        };
        if opens { Ok(()) } else { Err(Refusal::new(RefuseReason::AuthFailed, "")) }
    }

    /// Messages of another attempt belong to other queue pairs.
    fn check_fence(&self, fence: Fence) -> Result<(), Refusal> {
        let Fence { from, to } = self.fence();
        if (fence.from, fence.to) == (to, from) {
            return Ok(());
        }
        let detail = format!("your message is for {} of {}, this is {to} of {from}", fence.from, fence.to);
        Err(Refusal::new(RefuseReason::StaleGeneration, detail))
    }

    fn handle_ready(&mut self, now: Time) -> Result<(), Refusal> {
        let State::AwaitReady { local, remote: false } = self.state else {
            return Err(self.unexpected(FrameKind::Ready));
        };
        self.state = State::AwaitReady { local, remote: true };
        self.establish_if_both_ready(now);
        Ok(())
    }

    fn handle_keepalive_reply(&mut self, now: Time, sequence: u64) -> Result<(), Refusal> {
        if matches!(self.state, State::AwaitReady { .. }) {
            return Err(self.unexpected(FrameKind::KeepaliveReply));
        }
        if sequence == self.heartbeat.sequence {
            self.heartbeat.round_trip_ns = Some(now.since_ns(self.heartbeat.asked_at));
        }
        Ok(())
    }

    /// Time of the last keepalive's round trip in nanoseconds, if one was answered.
    pub fn round_trip_ns(&self) -> Option<u64> {
        self.heartbeat.round_trip_ns
    }

    /// Asks the peer at once; unless it is heard within `within_ms`, it is lost. For the case that a
    /// second connection of the same node came in: is the first one still alive?
    pub fn probe(&mut self, now: Time, within_ms: u32) {
        if !matches!(self.state, State::Established | State::Draining { .. }) {
            return;
        }
        self.heartbeat.doubt.get_or_insert(now.after_ns(u64::from(within_ms) * MS));
        self.ask(now);
    }

    pub(super) fn beat(&mut self, now: Time) {
        if self.heartbeat.dead_at() <= now {
            let silent_ms = now.since_ns(self.heartbeat.last_heard) / MS;
            return self.end(End::Lost(LostReason::Silent(silent_ms)));
        }
        if self.heartbeat.next_beat <= now {
            self.ask(now);
        }
    }

    fn ask(&mut self, now: Time) {
        self.heartbeat.sequence += 1;
        self.heartbeat.asked_at = now;
        self.heartbeat.next_beat = now.after_ns(self.heartbeat.interval_ns);
        self.send(&Message::Keepalive(self.fence(), self.heartbeat.sequence));
    }

    /// This end posts no more and has sent `totals` in all (at most [`MAX_QPS`] entries count).
    ///
    /// The session ends when both ends have said goodbye; both may do so at once. Before
    /// [`SessionEvent::Established`] the peer is refused instead, as there is nothing to drain.
    pub fn goodbye(&mut self, now: Time, reason: GoodbyeReason, mut totals: Vec<QpTotal>) {
        let heard = match self.state {
            State::Established => false,
            State::Draining { said: false, heard } => heard,
            State::Draining { said: true, .. } | State::Finished => return,
            _ => return self.refuse(Refusal::new(RefuseReason::Draining, "")),
        };
        totals.truncate(MAX_QPS);
        self.send(&Message::Goodbye(Goodbye { fence: self.fence(), reason, totals }));
        self.drain(now, true, heard);
    }

    fn handle_goodbye(&mut self, now: Time, goodbye: Goodbye) -> Result<(), Refusal> {
        let said = match self.state {
            State::Established => false,
            State::Draining { said, heard: false } => said,
            _ => return Err(self.unexpected(FrameKind::Goodbye)),
        };
        let Goodbye { reason, totals, .. } = goodbye;
        self.events.push_back(SessionEvent::PeerGoodbye { reason, totals });
        self.drain(now, said, true);
        Ok(())
    }

    fn drain(&mut self, now: Time, said: bool, heard: bool) {
        if self.is_finished() {
            return;
        }
        if said && heard {
            return self.end(End::Closed);
        }
        self.enter(now, State::Draining { said, heard }, Some(self.config.timing.drain_ms));
    }
}
