//! The soft transport on a port: RoCEv2 of our own, for a worker's loop and for control.
//!
//! | file | what it holds |
//! |---|---|
//! | `worker` | [`SoftWorker`]: the endpoint, the host side of the port, frames of other workers |
//! | `handover` | frames that came in at the wrong queue, on their way to the right worker |
//! | `endpoint` | [`SoftEndpoint`]: the device as control uses it |
//! | `records` | flight records, from the workers to control |
//! | `steering` | the UDP source port that brings a queue pair's packets to its worker |
//! | `counts` | what the endpoint counts, as statistics show it |
//!
//! A queue pair belongs to one worker, and its number says which. A frame that a queue brings to another worker is
//! handed over once, through a bounded ring.

mod counts;
mod endpoint;
mod handover;
mod records;
mod steering;
mod worker;

pub use endpoint::{SoftEndpoint, SoftEndpointError, SoftPort, station_mac};
pub use handover::HANDOVER;
pub use steering::Steering;
pub use worker::SoftWorker;
