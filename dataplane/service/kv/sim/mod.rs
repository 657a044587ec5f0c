//! Gateways and memory nodes together, on the loopback transport and virtual time: for tests, and for as long as one likes
//! (`cargo run --release --example kv_race`). Everything here panics when something is wrong.

mod cluster;
mod ends;
mod fuzz;
mod history;
mod race;
mod request;
mod torn;

#[cfg(test)]
pub(in crate::service::kv) use cluster::members;
pub use cluster::{Cluster, Node, Setup, VALUE};
pub use ends::{End, Gateway, NodeEnd};
pub use fuzz::{fuzz_calls, fuzz_clients};
pub use race::{Race, Relists, restart};
pub use request::Life;
pub use torn::{Given, Torn};
