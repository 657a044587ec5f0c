//! Who goes when there is no room: the one unused for longest among some that are picked at random.
//!
//! The node does not see GETs. It knows when an item was written, and of uses what gateways tell of them
//! ([`super::locations`]): each location once in a while. That is enough for the coarse age that a choice among [`SAMPLES`]
//! needs, and costs one word an item and no list that every use would have to move.

use super::arena::Arena;
use rdma_engine::sim::rng::Rng;

/// Items compared for one that goes.
const SAMPLES: usize = 12;
/// Cells looked at to find so many items.
const TRIES: usize = 4 * SAMPLES;
/// Uses that share a stamp: with 32 bits of it and a million uses a second, ages are right up to nine hours.
const USES_SHIFT: u32 = 3;

/// Counts uses; random choices.
#[derive(Clone, Debug)]
pub(super) struct Ageing {
    uses: u64,
    rng: Rng,
}

impl Ageing {
    pub(super) fn new(seed: u64) -> Self {
        Ageing { uses: 0, rng: Rng::new(seed) }
    }

    /// The stamp of something used now.
    pub(super) fn stamp(&mut self) -> u32 {
        self.uses += 1;
        (self.uses >> USES_SHIFT) as u32
    }

    /// Uses of anything, in stamps, since something got this one.
    pub(super) fn age(&self, stamp: u32) -> u32 {
        ((self.uses >> USES_SHIFT) as u32).wrapping_sub(stamp)
    }

    pub(super) fn random(&mut self) -> u32 {
        (self.rng.bits() >> 32) as u32
    }

    /// An item of the class that may go, and its age.
    pub(super) fn victim(&mut self, arena: &Arena, class: usize) -> Option<(u64, u32)> {
        let (mut found, mut oldest) = (0, None);
        for _ in 0..TRIES {
            let bits = self.rng.bits();
            let Some(place) = arena.pick(class, [bits as u32, (bits >> 32) as u32]) else { continue };
            let age = self.age(arena.stamp_of(place));
            if oldest.is_none_or(|(_, a)| age > a) {
                oldest = Some((place, age));
            }
            found += 1;
            if found == SAMPLES {
                break;
            }
        }
        oldest
    }
}
