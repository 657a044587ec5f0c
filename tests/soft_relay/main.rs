//! The relay over the soft transport on this machine, as a user runs it: no RDMA device, no kernel network.
//!
//! | file | what it shows |
//! |---|---|
//! | `one_process` | both ends in one process over an in-memory link, in all variants |
//! | `veth` | the kernel's network: packets at the wrong queue, an address that is taken |
//! | `memif` | two processes over shared memory; one of them is killed and comes back |
//!
//! Each run makes a certain number of frames, and every one of them must have arrived, in order.

mod memif;
mod one_process;
#[path = "../support/run.rs"]
mod run;
mod veth;
