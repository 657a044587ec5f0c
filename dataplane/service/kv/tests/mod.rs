//! Gateways and memory nodes together.

mod deaths;
mod protocol;
mod races;
