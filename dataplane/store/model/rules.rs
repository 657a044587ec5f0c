//! The rules of consistency, each of which can be switched off to see what it is there for.

/// A set of rules that hold, by number 1 to 8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules(u8);

impl Rules {
    /// All of them.
    pub const ALL: Rules = Rules(0xff);

    /// All but this one.
    ///
    /// # Panics
    /// If there is no rule of this number.
    #[must_use]
    pub fn without(rule: u8) -> Rules {
        assert!((1..=8).contains(&rule), "there is no rule {rule}: they are 1 to 8");
        Rules(!(1 << (rule - 1)))
    }

    /// A mutation marks the old item dead before it publishes the new one's place.
    pub fn dead_before_published(self) -> bool {
        self.0 & 1 != 0
    }

    /// Items start on the grid of their segment, and their seal cannot be made by a client.
    pub fn grid_and_seal(self) -> bool {
        self.0 & 1 << 1 != 0
    }

    /// A dead place is cut again only when no lookup that may still find it is under way.
    pub fn reuse_waits(self) -> bool {
        self.0 & 1 << 2 != 0
    }

    /// A key never moves from one of its buckets to the other.
    pub fn keys_stay_in_bucket(self) -> bool {
        self.0 & 1 << 3 != 0
    }

    /// `flush_all` is answered when no cached location can hit any more.
    pub fn flush_sweeps(self) -> bool {
        self.0 & 1 << 4 != 0
    }

    /// Operations of a client on a key wait for one another in a gateway worker, as the client's program demands.
    pub fn program_order(self) -> bool {
        self.0 & 1 << 5 != 0
    }

    /// Nodes refuse an older membership, drop keys that are not theirs any more, and serve nothing from before a restart.
    pub fn membership(self) -> bool {
        self.0 & 1 << 6 != 0
    }

    /// Expiry goes by the node's clock, which gateways know within a bound.
    pub fn node_clock(self) -> bool {
        self.0 & 1 << 7 != 0
    }
}
