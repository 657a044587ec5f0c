//! When a dead place may be used again: epochs.
//!
//! Every death has a number, the epoch. A gateway knows the newest epoch it heard of from the node, remembers it with every
//! lookup it begins, and reports the oldest of those under way, or the newest it knows when there are none. A lookup that
//! began in epoch e began after every death before e, slot cleared and all; so what died before the oldest report of all
//! gateways is out of everybody's sight. A lookup is buckets and item together, with all retries of its READs.

/// The most gateway workers of a node.
pub const MOST_GATEWAYS: usize = 256;

/// A report that cannot be: nothing changes, it costs a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadReport {
    /// Nobody is connected under this number.
    Unknown,
    /// An epoch that has not begun.
    Future,
}

/// What gateways told.
#[derive(Clone, Debug)]
pub(super) struct Epochs {
    /// Of the next death.
    now: u64,
    /// By gateway; `u64::MAX` for one that is not connected.
    oldest: Vec<u64>,
    /// Numbers from here on have never been connected.
    used: usize,
    /// The least of these.
    least: u64,
}

impl Epochs {
    pub(super) fn new() -> Self {
        Epochs { now: 1, oldest: vec![u64::MAX; MOST_GATEWAYS], used: 0, least: u64::MAX }
    }

    /// The epoch of the next death: what gateways are to be told.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// A death; its epoch.
    pub(super) fn death(&mut self) -> u64 {
        self.now += 1;
        self.now - 1
    }

    /// What died before this may be used again.
    pub(super) fn least(&self) -> u64 {
        self.least
    }

    pub(super) fn connect(&mut self, gateway: usize) -> Result<u64, BadReport> {
        *self.oldest.get_mut(gateway).ok_or(BadReport::Unknown)? = self.now;
        self.used = self.used.max(gateway + 1);
        self.settle();
        Ok(self.now)
    }

    pub(super) fn disconnect(&mut self, gateway: usize) {
        if let Some(oldest) = self.oldest.get_mut(gateway) {
            *oldest = u64::MAX;
            self.settle();
        }
    }

    pub(super) fn report(&mut self, gateway: usize, epoch: u64) -> Result<(), BadReport> {
        let now = self.now;
        let oldest = self.oldest.get_mut(gateway).filter(|o| **o != u64::MAX).ok_or(BadReport::Unknown)?;
        if epoch > now {
            return Err(BadReport::Future);
        }
        // Reports that overtook each other: the newer one was true.
        if epoch > *oldest {
            let was_least = std::mem::replace(oldest, epoch) == self.least;
            if was_least {
                self.settle();
            }
        }
        Ok(())
    }

    /// As if it had connected in this epoch.
    #[cfg(test)]
    pub(super) fn set_back(&mut self, gateway: usize, epoch: u64) {
        self.oldest[gateway] = epoch;
        self.settle();
    }

    /// The gateway that holds most back, and its epoch.
    pub(super) fn slowest(&self) -> Option<(usize, u64)> {
        let slowest = self.oldest.iter().enumerate().min_by_key(|(_, e)| **e);
        slowest.filter(|(_, e)| **e != u64::MAX).map(|(g, e)| (g, *e))
    }

    fn settle(&mut self) {
        self.least = self.oldest[..self.used].iter().copied().min().unwrap_or(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_gateway_counts() {
        let mut e = Epochs::new();
        assert_eq!(e.least(), u64::MAX);
        e.connect(0).unwrap();
        let died = e.death();
        e.connect(5).unwrap();
        assert_eq!((e.least(), e.slowest()), (died, Some((0, died))));
        e.report(0, died + 1).unwrap();
        assert!(e.least() > died);
    }

    #[test]
    fn reports_never_go_back_nor_ahead() {
        let mut e = Epochs::new();
        e.connect(1).unwrap();
        (0..10).for_each(|_| assert!(e.death() > 0));
        e.report(1, 7).unwrap();
        e.report(1, 3).unwrap();
        assert_eq!(e.least(), 7);
        assert_eq!(e.report(1, 12), Err(BadReport::Future));
        assert_eq!(e.report(2, 1), Err(BadReport::Unknown));
        assert_eq!(e.report(MOST_GATEWAYS, 1), Err(BadReport::Unknown));
        assert_eq!(e.least(), 7);
    }

    #[test]
    fn who_is_gone_holds_nothing_back() {
        let mut e = Epochs::new();
        e.connect(1).unwrap();
        e.death();
        e.disconnect(1);
        assert_eq!((e.least(), e.slowest()), (u64::MAX, None));
        assert_eq!(e.report(1, 1), Err(BadReport::Unknown));
    }
}
