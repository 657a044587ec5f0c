//! A simulator for transports: endpoints on virtual time over a seeded network that loses, doubles, reorders,
//! corrupts, delays and cuts.
//!
//! It is part of the library so that tests, examples and fuzzers of other crates can drive it; nothing of it runs in
//! production.

pub mod network;
pub mod rig;
pub mod rng;
pub mod trace;

pub use network::{Fates, Faults, Network};
pub use rig::SoftRig;
pub use rng::Rng;
pub use trace::Trace;
