//! A load on a key-value service that speaks memcached's protocol: requests, verification of every reply, latencies.
//!
//! | file | what it does |
//! |---|---|
//! | `settings` | what a load is made of |
//! | `popularity`, `size`, `key`, `random`, `pace` | what is drawn: keys, lengths, names, times |
//! | `value` | values that verify themselves |
//! | `ledger` | which versions of a key a read may see |
//! | `request`, `reply`, `fault` | bytes of requests, what replies say, what can be wrong with them |
//! | `caller` | a client without transport: what comes next, what a reply is worth, when it is over |
//! | `datagram`, `assembly` | a client over datagrams, with losses and replies of several datagrams |
//! | `stream` | a client over streams |
//! | `refusal` | a server that stores nothing |
//! | `frame` | a client in whole Ethernet frames, for a worker of ours |
//! | `driver` | clients over sockets of the kernel |
//! | `meter`, `report` | counts and latencies; table, JSON, plot |
//!
//! All but `driver` is sans-IO: bytes and times go in, bytes come out. A value is nowhere in memory: it is made where the
//! request is written, and verified where the reply lies.

mod assembly;
mod call;
mod caller;
mod datagram;
pub mod driver;
mod fault;
mod frame;
mod key;
mod ledger;
mod meter;
mod pace;
mod popularity;
mod random;
mod refusal;
mod reply;
mod report;
mod request;
mod settings;
mod size;
mod stream;
mod value;

pub use call::{Call, Op};
pub use caller::{Caller, Phase};
pub use datagram::{Datagrams, OUTSTANDING_MAX};
pub use fault::{Fault, Quote};
pub use frame::{FrameClient, FrameClientError, FrameClientSettings, FrameCounts, PATIENCE_NS, Silence};
pub use key::{KEY_BYTES_MIN, KeyFormat, KeyText};
pub use ledger::{Ledger, Share, Write, WrongVersion};
pub use meter::{Counts, FAULTS_KEPT, Meter};
pub use popularity::{Popularity, Ranks, Zipf};
pub use random::Random;
pub use refusal::{REFUSED_MAX, Refusal};
pub use reply::{ReplyReader, Said};
pub use report::{Extra, QUANTILES, Report};
pub use request::{Dialect, HEAD_BYTES_MAX, Request, Speech};
pub use settings::{Arrivals, LoadSettings, PRELOAD_RETRIES};
pub use size::{SizeError, Sizes};
pub use stream::{Broken, Streams};
pub use value::{Check, Checked, VALUE_BYTES_MAX, VALUE_BYTES_MIN, Value, Version};

#[cfg(test)]
#[path = "tests/mod.rs"]
mod testing;
