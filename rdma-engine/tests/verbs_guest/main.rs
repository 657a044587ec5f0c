//! The verbs transport against kernel rxe: two devices on one wire, both ends in this process.
//!
//! Where there are no two RDMA devices every test says SKIPPED. `tests/guest/verbs.sh` runs this binary in the guest.

#![cfg(feature = "verbs")]
#![allow(unreachable_pub)] // modules of a test binary.

#[path = "../arena_pool/mod.rs"]
mod arena_pool;
mod control;
mod errors;
mod network;
mod pair;
mod queues;
mod rc;
mod shared;
mod unreliable;
