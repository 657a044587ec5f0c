//! When items expire.

/// Seconds up to which a time is from now on: 30 days. Anything above is a Unix time.
pub const RELATIVE_MAX_S: i32 = 60 * 60 * 24 * 30;

/// A time as a client states it: 0 is never, below 0 is at once, up to 30 days is from now, above is a Unix time.
///
/// It becomes a deadline where the item lives, by the clock that rules there.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Exptime(pub i32);

impl Exptime {
    /// The Unix second at which an item is gone, 0 for never. `now` is a Unix time in seconds.
    #[must_use]
    pub fn deadline(self, now: u32) -> u32 {
        match self.0 {
            0 => 0,
            ..0 => 1,
            1..=RELATIVE_MAX_S => now.saturating_add(self.0.unsigned_abs()),
            _ => self.0.unsigned_abs(),
        }
    }
}

/// Whether an item with this deadline is gone.
#[must_use]
pub fn is_past(deadline: u32, now: u32) -> bool {
    deadline != 0 && deadline <= now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines() {
        let now = 1_800_000_000;
        for (exptime, deadline) in [
            (0, 0),
            (-1, 1),
            (i32::MIN, 1),
            (1, now + 1),
            (RELATIVE_MAX_S, now + 2_592_000),
            (RELATIVE_MAX_S + 1, 2_592_001),
            (i32::MAX, 2_147_483_647),
        ] {
            assert_eq!(Exptime(exptime).deadline(now), deadline);
        }
        assert!(!is_past(0, now) && is_past(now, now) && !is_past(now + 1, now) && is_past(1, now));
        assert_eq!(Exptime(10).deadline(u32::MAX - 3), u32::MAX);
    }
}
