//! What is counted, by whom, and how it is read.
//!
//! A worker counts in a [`Tally`] of its own and copies it into a [`Board`] now and then; everybody else reads the
//! board. Every counter has one writer, so no instruction on the hot path is locked.

mod counter;
mod drop_reason;
mod final_report;
mod grid;
mod json;
mod kv;
mod rate;
pub mod report;
mod roce;
pub mod sample;
pub mod screen;
mod table;
mod tally;
pub mod telemetry;

pub use counter::Counter;
pub use drop_reason::DropReason;
pub(crate) use rate::grouped_by;
pub use tally::{Board, Snapshot, Tally};
