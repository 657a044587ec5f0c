//! Workers: what runs on an lcore.
//!
//! The loop of one role, `role::RoleLoop::run_once`, is the schedule: RX burst, service, doorbells, completions, TX burst,
//! and now and then mailbox, timers and counters. An lcore runs its roles in turn.

pub mod idle;
pub mod lcore;
pub mod mailbox;
pub mod ports;
pub mod role;

pub use idle::{IdlePolicy, Sleeper};
pub use lcore::run_lcore;
pub use mailbox::{Mailbox, Order, PathOrder, Report};
pub use ports::{LaneKind, PortLane};
pub use role::{FabricPort, PARKED, Role, RoleLoop};
