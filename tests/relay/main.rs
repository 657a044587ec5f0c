//! The relay as a command: what goes in comes out, counted to the frame, also when the peer or the wire goes away.
//!
//! | file | what it holds |
//! |---|---|
//! | `end` | a running command: its configuration, statistics, log and end |
//! | `report` | figures of one line of statistics |
//! | `balance` | what both ends of a relay counted, held against each other |
//! | `capture` | capture files |
//! | `host` | tests that need no RDMA device |
//! | `guest` | tests between two soft-RoCE devices; `tests/guest/relay.sh` runs them where those are |
//! | `guest/keys` | the key-value service between the same two |
//! | `interop` | tests between a soft-RoCE device and RoCEv2 of our own; `tests/guest/interop.sh` runs them |

#![allow(unreachable_pub)] // modules of a program.

mod balance;
mod capture;
mod end;
mod guest;
mod host;
mod interop;
mod report;
