//! Loopback: an RDMA device made of nothing but memory, for both ends in one process.
//!
//! Workers on any threads exchange messages through it; one thread may own both ends. It has the semantics of a
//! device, errors included, on any [`Buf`](crate::buf::Buf), and it is safe code: this is what miri runs, and what
//! tests run that want a transport and no hardware.
//!
//! # How a message travels
//!
//! Every connected queue pair has one ring of flushed requests, and the **buffers stay in it** until they complete.
//! The peer's worker comes to the ring, serves the requests in order (copies bytes into a receive or a region, or out
//! of a region into the waiting buffer) and notes their status; the owner then takes them out. So a peer that
//! disappears holds nothing, and whoever drops a queue pair frees all of its buffers.
//!
//! | step | by | in |
//! |---|---|---|
//! | queue | owner, no lock | `post_send` |
//! | move to the ring, ring the peer's bell | owner, one lock a burst | `flush` |
//! | serve, ring the owner's bell | peer, one lock a burst | its `poll` |
//! | take out, complete | owner, one lock a burst | `poll` |
//!
//! A bell is a bit in the worker's bitmap. On the data path locks are only ever tried: what is contended waits for the
//! next turn. After set-up nothing is allocated there.
//!
//! # What differs from a device
//!
//! - A peer whose worker is slow is waited for; timeout and retry count run only while the peer's queue pair does not
//!   answer (gone, in ERR, not yet in RTR, connected to someone else, or expecting another PSN).
//! - A queue pair that is not attached is not served.
//! - A full completion queue stops service instead of losing completions.
//! - Every request has a completion; `signal_every` and `inline_bytes` have no effect, solicited events neither.

mod bells;
mod datagram;
mod device;
mod error;
mod flush;
mod harvest;
mod keys;
mod post;
mod qp;
mod ring;
mod serve;
mod transport;

pub use device::{Hub, Loopback};
pub use error::LoopbackError;
pub use qp::LoopQp;
pub use transport::LoopTransport;

#[cfg(test)]
mod tests;
