//! Work requests, buffers in flight and RDMA transports.
//!
//! The crate knows nothing of DPDK: buffers reach it through [`buf::Buf`] and [`buf::Pool`].

pub mod buf;
pub mod heap;
pub mod inflight;
pub mod types;
