//! Memory that devices and peers reach: rights, arenas, windows, regions, keys.
#![allow(unsafe_code)] // reason: memory that a peer writes cannot be a Rust slice.

mod access;
mod arena;
mod keys;
mod region;
mod sub;
mod window;

pub use access::{Access, AccessError};
pub use arena::{Arena, ArenaError, Backing};
pub use keys::KeyTable;
pub use region::Region;
pub use sub::{SubAllocator, SubRange};
pub use window::Window;
