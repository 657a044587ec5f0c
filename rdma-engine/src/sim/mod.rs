//! A simulator for transports: endpoints on virtual time over a seeded network that loses, doubles, reorders,
//! corrupts, delays and cuts.
//!
//! One seed is one run: [`scenario`] says what it means, [`host`] makes the two ends, [`flow`] makes up requests and
//! knows what each must do, [`run()`] drives it all and checks every completion and every byte. A run that fails prints
//! the command that shows it again, frame by frame.
//!
//! It is part of the library so that tests, examples and fuzzers of other crates can drive it; nothing of it runs in
//! production.

pub mod flow;
mod fuzz;
pub mod host;
pub mod huge;
pub mod network;
mod oracle;
mod renew;
pub mod rig;
pub mod rng;
mod run;
pub mod scenario;
pub mod stream;
pub mod trace;

pub use fuzz::fuzz_operations;
pub use network::{Fates, Faults, Marking, Network};
pub use rig::SoftRig;
pub use rng::Rng;
pub use run::{Failure, Outcome, run, run_scenario};
pub use scenario::Scenario;
pub use trace::Trace;

#[cfg(test)]
mod tests;
