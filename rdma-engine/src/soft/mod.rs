//! The soft transport: RoCEv2 in user space, over any port that carries Ethernet frames.
//!
//! An endpoint takes frames and a time and gives frames back; it owns no socket, no clock and no thread, and contains
//! no `unsafe`. It speaks the standard towards everybody (Linux rxe, hardware): RC, UC and UD with every operation of
//! [`Op`](crate::wr::Op).
//!
//! | module | what it holds |
//! |---|---|
//! | [`SoftDevice`] (`device`, `node`, `config`) | the control thread's side |
//! | [`SoftTransport`] (`endpoint`) | a worker's side; `ingress` and `flush` are its two ways |
//! | `qp` | a queue pair: identity, path, state, its two halves |
//! | `requester` | requests in packets, acknowledgements, going back |
//! | `responder` | requests of the peer: checked, executed, answered, replayed |
//! | `uc`, `ud`, `management` | what is unreliable |
//! | `hold`, `held` | packets that overtook a lost one, between two ends of our own |
//! | `receive_queue`, `srq`, `landing` | receives and where payload goes |
//! | `region`, `pattern` | what peers may reach |
//! | `number`, `path` | QP numbers; addresses and the headers made of them |
//! | `ready`, `timer` | whose turn it is, and when |
//!
//! # Life of a request
//! `post_send` queues it and queues its queue pair for a turn. `flush` gives every queue pair turns of a quantum of
//! frames, each a unique buffer from the worker's pool with headers, a copy of the payload, and the ICRC. The poster's
//! buffer stays in the queue until the peer has acknowledged: retransmission reads it again. The completion waits in
//! its queue for `poll`, and so does the place in the send queue.

mod agreement;
mod arrived;
mod config;
mod congestion;
mod counters;
mod dcqcn;
mod device;
mod endpoint;
mod event;
mod flush;
mod frame;
mod fuzz;
mod held;
mod hold;
mod imprint;
mod ingress;
mod landing;
mod management;
mod node;
mod number;
mod path;
mod pattern;
mod qp;
mod random;
mod ready;
mod receive_queue;
mod recorder;
mod region;
mod requester;
mod responder;
mod shared;
mod srq;
mod timer;
mod uc;
mod ud;

pub use agreement::Agreement;
pub use config::{Entropy, SoftConfig, SoftError};
pub use counters::{DropReason, SoftCounters};
pub use dcqcn::Dcqcn;
pub use device::{PatternRegion, SoftDevice, SoftQp};
pub use endpoint::SoftTransport;
pub use event::Event;
#[doc(hidden)]
pub use fuzz::ingress as fuzz_ingress;
pub use pattern::Pattern;
pub use recorder::{FlightRecord, MAX_RECORDINGS, Recording, recorder_bytes};
pub use region::Pd;

/// Time between two questions for the MAC address of the same neighbour.
const ASK_AGAIN_NS: u64 = 500_000_000;
pub(crate) use random::split_mix;

#[cfg(test)]
mod tests;
