//! The consistency of the key-value service as a small model that runs: nodes, gateways, location caches, READs that tear
//! and linger, mutations, eviction, expiry, restarts and changes of membership, on a schedule that follows from a seed.
//!
//! | file | what it holds |
//! |---|---|
//! | `rules` | the rules, each of which can be switched off |
//! | `memory` | what READs see |
//! | `node` | the one writer of that memory |
//! | `gateway` | caches, lookups, what they believe |
//! | `world` | clients, messages, faults, and who goes next |
//! | `history` | what happened, and whether one order explains it |
//!
//! Its items carry no checksum of their bodies: if the rules hold none is needed, and a store that has one is safer than
//! the model by that. Time is the number of a step.

mod gateway;
pub(crate) mod history;
mod memory;
mod node;
mod rules;
#[cfg(test)]
mod tests;
mod world;

pub use rules::Rules;

use history::Event;
use world::World;

type Key = u8;

const KEYS: Key = 5;
/// Clients of a gateway.
const CLIENTS: usize = 2;
const NODES: usize = 3;
const GATEWAYS: usize = 3;
/// Steps in which clients ask, and after that at most until everything is answered.
const STEPS: u64 = 2_500;
const SETTLING: u64 = 60_000;
/// How far a gateway's belief about a node's clock may be off.
const CLOCK_BOUND: u64 = 8;
/// How far clocks are apart.
const CLOCK_SKEW: u64 = 400;

/// What a run was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// GETs that were answered.
    pub gets: u64,
    /// Of these, with a value.
    pub hits: u64,
    /// Other requests that were answered.
    pub mutations: u64,
    /// READs that had to be done again, because an item was dead, changing or another one.
    pub races: u64,
}

/// A history that no order explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The seed that leads to it.
    pub seed: u64,
    /// The key.
    pub key: u8,
    /// What cannot be explained.
    pub why: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seed {}: no order explains what happened to key {}:\n{}", self.seed, self.key, self.why)
    }
}

/// Runs the schedule of a seed with these rules.
///
/// # Errors
/// A history that is not linearizable.
///
/// # Panics
/// If requests stay without an answer: a mistake in the model.
pub fn run(seed: u64, rules: Rules) -> Result<Summary, Violation> {
    let mut world = World::new(seed, rules);
    for _ in 0..STEPS {
        world.step();
    }
    world.settle();
    for key in 0..KEYS {
        let events: Vec<Event> =
            world.history.iter().filter(|e| e.key == key && e.counts()).copied().collect();
        history::explain(&events).map_err(|why| Violation { seed, key, why })?;
    }
    Ok(world.summary)
}

/// The node that owns a key.
fn owner(key: Key, members: &[usize]) -> usize {
    let weight = |node: &usize| {
        let mixed = (u64::from(key) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (*node as u64 + 7) << 40;
        mixed.wrapping_mul(0xD6E8_FEB8_6659_FD93)
    };
    members.iter().copied().max_by_key(weight).expect("a membership has members")
}

impl Event {
    /// False for what cannot have had an effect: it never began, or was withdrawn.
    fn counts(&self) -> bool {
        self.began != u64::MAX
    }
}
