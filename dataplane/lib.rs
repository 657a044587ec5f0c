//! The Isthmus application: configuration, workers, services and control.

pub mod classify;
pub mod flow;
pub mod prefetch;
pub mod service;
pub mod stats;
