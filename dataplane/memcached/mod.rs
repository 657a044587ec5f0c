//! The memcached protocol, without input and output: what a gateway says to clients of memcached.
//!
//! Three steps, each a plain function on plain data:
//!
//! 1. **Parse** (`request`): bytes of a client become a [`Request`]; keys and values stay where they are. [`text`] and
//!    [`meta`] are the two dialects.
//! 2. **Execute** ([`engine`]): an [`Operation`] on one key, on anything that is [`Items`], gives an [`Outcome`]. A gateway
//!    may do this itself or send the operation to the memory node that owns the key, see [`rpc`].
//! 3. **Reply** ([`reply`]): the request's [`Form`] and the outcome become bytes in the caller's buffer.
//!
//! [`serve`](fn@serve) does all three for a transport that has no reason to keep them apart; [`udp`] has the frame header
//! of datagrams. The yardstick is memcached 1.6.18, whose answers are matched byte by byte; `docs/memcached.md` lists
//! what is not, and why. Nothing here panics on any input, allocates, or works longer than the input is long.

pub mod base64;
pub mod engine;
pub mod expiry;
mod fuzz;
mod line;
pub mod map;
pub mod meta;
pub mod number;
pub mod operation;
pub mod reply;
pub mod request;
pub mod rpc;
mod serve;
pub mod text;
pub mod udp;

#[cfg(test)]
mod tests;

pub use engine::{Change, Content, Full, Item, Items, execute};
pub use expiry::Exptime;
pub use fuzz::fuzz_parse;
pub use map::ItemMap;
pub use operation::{Bits, Hit, Operation, Outcome};
pub use reply::Output;
pub use request::{Command, Form, Limits, Parsed, Refusal, Request, StatsGroup, parse};
pub use serve::{Served, serve};
pub use text::{get_alone, set_alone};

/// Bytes that a key may have.
pub const KEY_BYTES_MAX: usize = 250;

/// Room for one key that came in base64 and has to be decoded somewhere.
pub type KeyBuffer = [u8; KEY_BYTES_MAX];

/// What `version` answers: the memcached whose protocol this is, and who speaks it.
pub const VERSION: &str = "1.6.18-isthmus";
