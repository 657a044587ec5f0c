//! The Isthmus application: configuration, workers, services and control.

pub mod bridge;
pub mod classify;
pub mod cli;
pub mod config;
pub mod control;
pub mod decode;
pub mod fabric;
pub mod flow;
pub mod front;
pub mod host;
mod huge;
pub mod load;
pub mod memcached;
pub mod plan;
pub mod prefetch;
pub mod run;
pub mod service;
pub mod soft;
pub mod stats;
pub mod store;
pub mod worker;

// Tests that are compiled into programs of their own as well name this crate as those do.
#[cfg(test)]
extern crate self as isthmus;
