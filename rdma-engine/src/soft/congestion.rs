//! Congestion: notifications sent for marked frames, and where their reception will steer the sender.
//!
//! A rate control (DCQCN) goes behind [`Congestion::on_notification`] and [`Congestion::may_send`].

use crate::types::Time;

/// Congestion state of one queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Congestion {
    /// No notification is sent before.
    quiet_until: Time,
    /// A marked frame arrived; a notification is to be sent.
    due: bool,
    /// Notifications received.
    notifications: u64,
}

impl Default for Congestion {
    fn default() -> Self {
        Congestion { quiet_until: Time(0), due: false, notifications: 0 }
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
    pub(crate) fn on_notification(&mut self) {
        self.notifications += 1;
    }
}
