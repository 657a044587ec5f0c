//! The Isthmus application: configuration, workers, services and control.

pub mod bridge;
pub mod classify;
pub mod cli;
pub mod config;
pub mod control;
pub mod decode;
pub mod fabric;
pub mod flow;
pub mod plan;
pub mod prefetch;
pub mod run;
pub mod service;
pub mod stats;
pub mod worker;
