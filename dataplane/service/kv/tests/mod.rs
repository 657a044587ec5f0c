//! Gateways and memory nodes together.

mod answers;
mod buffers;
mod deaths;
mod hostile;
mod places;
mod protocol;
mod races;
mod reload;
mod staging;
mod turns;
