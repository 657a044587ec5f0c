//! Control: what runs on the main lcore. Connections, device events, drain.
//!
//! | file | what |
//! |---|---|
//! | `node` | a node: workers, mailboxes, device events, drain |
//! | `link`, `slot` | a peer of it, and the queue pairs to that peer |
//! | `layout` | which queue pairs there are, and in which order they are offered |
//! | `line` | the TCP side: a listener or a connector |
//! | `session`, `bring_up` | from a session to queue pairs at the workers, and back |
//! | `relist` | other memory nodes for a gateway |
//! | `endpoint` | what is asked of a device |

mod bring_up;
pub mod endpoint;
pub mod layout;
pub mod line;
pub mod link;
pub mod node;
mod relist;
mod session;
pub mod slot;
#[cfg(test)]
mod tests;

pub use endpoint::{Endpoint, FabricAction, FabricEvent};
pub use layout::{CALL_LANE, KV_LANES, LaneSettings, Layout, READ_LANE};
pub use line::Line;
pub use link::Link;
pub use node::{NodeControl, NodeSettings};
