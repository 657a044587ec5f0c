//! Congestion: notifications sent for marked frames, and the pace that those received dictate.

use super::config::SoftConfig;
use super::dcqcn::RateControl;
use super::qp::Qp;
use super::shared::Shared;
use crate::buf::{Buf, Pool};
use crate::types::Time;

/// Congestion state of one queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Congestion {
    /// No notification is sent before.
    quiet_until: Time,
    /// A marked frame arrived; a notification is to be sent.
    due: bool,
    /// Frames wait for tokens until then; [`Time::NEVER`] if none does.
    waits_until: Time,
    rate: RateControl,
}

impl Default for Congestion {
    fn default() -> Self {
        Congestion { quiet_until: Time(0), due: false, waits_until: Time::NEVER, rate: RateControl::new() }
    }
}

impl Congestion {
    /// A frame of the peer was marked "congestion experienced". True if a notification became due.
    #[inline]
    pub(crate) fn on_marked(&mut self, now: Time, interval_ns: u64) -> bool {
        if now < self.quiet_until {
            return false;
        }
        self.quiet_until = now.after_ns(interval_ns);
        self.due = true;
        true
    }

    /// A notification is due.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.due
    }

    /// Takes the notification that is due.
    pub(crate) fn take_due(&mut self) -> bool {
        std::mem::take(&mut self.due)
    }

    /// Puts it back because the frame could not be made.
    pub(crate) fn put_back(&mut self) {
        self.due = true;
    }

    /// The peer told that our frames met congestion.
    pub(crate) fn on_notification(&mut self, config: &SoftConfig, now: Time) {
        if let Some(with) = &config.dcqcn {
            self.rate.cut(with, now);
        }
    }

    /// True if frames have to wait for tokens.
    #[inline]
    pub(crate) fn is_paced(&self) -> bool {
        self.rate.is_limited()
    }

    /// A frame of so many bytes left.
    #[inline]
    pub(crate) fn sent(&mut self, config: &SoftConfig, now: Time, bytes: usize) {
        if self.is_paced()
            && let Some(with) = &config.dcqcn
        {
            self.rate.sent(with, now, bytes);
        }
    }

    /// When frames that wait for tokens are to be looked at.
    pub(crate) fn waits_until(&self) -> Time {
        self.waits_until
    }

    /// The wait is over; true if there was one.
    pub(crate) fn stop_waiting(&mut self, now: Time) -> bool {
        let over = self.waits_until <= now;
        if over {
            self.waits_until = Time::NEVER;
        }
        over
    }
}

impl<B: Buf> Qp<B> {
    /// True if the next frame has no token yet; a timer is set for it.
    #[inline]
    pub(crate) fn has_to_wait<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, now: Time) -> bool {
        self.congestion.is_paced() && self.wait_for_token(shared, now)
    }

    #[cold]
    fn wait_for_token<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, now: Time) -> bool {
        let Some(with) = &shared.config.dcqcn else { return false };
        let at = self.congestion.rate.may_send_at(with, now);
        if at <= now {
            return false;
        }
        self.congestion.waits_until = at;
        shared.timers.fire_by(self.id.slot, at);
        true
    }
}
