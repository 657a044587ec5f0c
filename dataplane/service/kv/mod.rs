//! The key-value service: gateways that speak memcached to clients and RDMA to memory nodes.
//!
//! | file | what it holds |
//! |---|---|
//! | `gateway` | a gateway worker |
//! | `engine` | a gateway worker without its front end |
//! | `message` | hello, calls and answers between gateway and memory node |
//! | `link` | queue pairs between the two, as control hands them over |
//! | `members` | which memory nodes share the keys |
//! | `ownership` | which of several nodes a key belongs to |
//! | `epochs` | which lookups are under way, for the node to know |
//! | `order` | operations on one key one after the other |
//! | `output` | text into buffers |
//! | `staging` | calls by RDMA WRITE with immediate |
//! | `sim` | gateways and nodes on virtual time |

pub mod engine;
pub mod epochs;
pub mod gateway;
pub mod link;
pub mod members;
pub mod message;
pub mod order;
pub mod output;
pub mod ownership;
pub mod sim;
pub mod staging;

pub use gateway::Gateway;

#[cfg(test)]
mod tests;
