//! Queue pairs: their states and how they are brought up.

pub mod attr;
pub mod bring_up;
pub mod state;

pub use attr::{AddressVector, Change, InitAttr, QpCaps, QpSpec, RtrAttr, RtsAttr};
pub use bring_up::BringUp;
pub use state::{IllegalChange, QpState};
