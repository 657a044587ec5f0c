//! The verbs transport: hardware RDMA devices and the kernel's software one (rxe), through libibverbs.
//!
//! | module | what it holds |
//! |---|---|
//! | `context`, `report`, `gid` | devices, their limits, ports and addresses |
//! | `device` | [`VerbsDevice`]: the control thread's side |
//! | `transport` | [`Verbs`]: a worker's side |
//! | `check`, `post`, `sge`, `ah` | requests on their way to the device |
//! | `poll`, `grh`, `wrid` | completions on their way back |
//! | `qp`, `modify`, `srq`, `cq`, `pd`, `mr` | the objects of the verbs, each destroyed once and in order |
//! | `table` | queue pairs attached to a worker |
//! | `event` | asynchronous events in words |
//! | `recover` | queue pairs and completion queues that have to be given up |
//! | `error` | what went wrong, and what to do |
//! | `ffi` | what `rdma-sys` lacks |
//!
//! # Who owns what
//!
//! A [`Qp`] owns the buffers posted to it. It is destroyed before they are let go of; while the device refuses to
//! destroy it they are given up and counted, because the device may still write into them. Queue pairs hold references
//! to their queues and protection domain, regions to their arena, everything to the open device: whatever the order
//! of drops in the program, the device sees the right one.
//!
//! # What the contract costs here
//!
//! `flush` builds all requests of a queue pair in arrays made at the start and rings once. The last request of a batch
//! is signalled, and every `signal_every`-th; the others complete with it. A queue pair that fails is moved to ERR once
//! more by us, because rxe does not see receives that were posted while it failed; what is posted after that is never
//! given to the device and completes here, as flushed.

mod ah;
mod check;
mod context;
mod cq;
mod device;
mod error;
mod event;
mod ffi;
mod gid;
mod grh;
mod modify;
mod mr;
mod pd;
mod poll;
mod post;
mod qp;
mod recover;
mod report;
mod sge;
mod srq;
mod table;
mod transport;
mod wrid;

pub use context::devices;
pub use device::VerbsDevice;
pub use error::VerbsError;
pub use event::{AsyncEvent, Owner, PortEvent, QpEvent};
pub use qp::Qp;
pub use recover::Rebuilt;
pub use report::{DeviceReport, Limits, LinkLayer, PortReport, PortState};
pub use transport::Verbs;
