//! Work requests, buffers in flight and RDMA transports.
//!
//! The crate knows nothing of DPDK: buffers reach it through [`buf::Buf`] and [`buf::Pool`].
//!
//! | module | what it holds |
//! |---|---|
//! | [`buf`], [`heap`] | the buffer contract and its twin on plain memory |
//! | [`inflight`] | owners of posted buffers |
//! | [`loopback`] | a device made of memory, for both ends in one process |
//! | [`wr`] | work requests and completions |
//! | [`mem`] | arenas, windows, regions, rights, keys |
//! | [`qp`] | states of a queue pair and its bring-up |
//! | [`transport`] | the two traits every transport implements, and their contract |
//! | [`soft`], [`sim`] | RoCEv2 in user space, and the simulator it is tested in |
//! | [`suite`] | the cases every transport must pass |
//! | [`cm`] | connections by TCP exchange: messages, proof of the key, state machines, GID choice |
//! | [`wire`] | RoCEv2 frames: headers, opcodes, connection management, ICRC |
//! | `verbs` | the transport on libibverbs (feature `verbs`, on by default) |

pub mod buf;
pub mod cm;
pub mod heap;
pub mod inflight;
pub mod loopback;
pub mod mem;
pub mod qp;
pub mod sim;
pub mod soft;
pub mod suite;
pub mod transport;
pub mod types;
#[cfg(feature = "verbs")]
pub mod verbs;
pub mod wire;
pub mod wr;
