//! Control: what runs on the main lcore. Connections, device events, drain.

mod bring_up;
pub mod endpoint;
pub mod line;
pub mod node;
pub mod slot;

pub use endpoint::{Endpoint, FabricAction, FabricEvent};
pub use line::Line;
pub use node::{NodeControl, NodeSettings};
