//! Sessions over nonblocking TCP: a [`Listener`] for those who connect, a [`Connector`] for one
//! peer to stay connected with.
//!
//! Both belong to the control thread. Call `poll` when one of `fds` is ready (see [`wait`], or put
//! them into an epoll set) or when `next_timeout` has come; then take the events. Nothing here
//! blocks, and what a peer can make us keep is bounded: one slot per connection, slots per address,
//! slots in all, refusals per second.

mod backoff;
mod budget;
mod connector;
mod link;
mod listener;
mod peers;

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;

pub use backoff::Backoff;
pub use budget::Budget;
pub use connector::{Connector, ConnectorConfig, ConnectorEvent};
pub use listener::{Listener, ListenerConfig, ListenerEvent, ListenerStats};

use super::message::Nonce;
use super::offer::OfferError;
use super::refuse::Refusal;
use crate::types::Time;

/// Names one session of one listener or connector; never used again there, so a late call for an
/// earlier session reaches nobody.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub(super) u64);

/// What to wait for on a file descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interest {
    /// Bytes or connections to take.
    pub read: bool,
    /// Room to send, or an attempt to connect that comes to its end.
    pub write: bool,
}

impl Interest {
    /// Read only.
    pub const READ: Interest = Interest { read: true, write: false };
    /// Write only.
    pub const WRITE: Interest = Interest { read: false, write: true };
}

/// Why a listener or connector cannot start.
#[derive(Debug, Error)]
pub enum CmError {
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {addr}: {source}; choose an address of this machine and a free port (ss -ltn shows the used ones)"
    )]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The operating system gives no random numbers.
    #[error("no random numbers for nonces: {0}; check that the sandbox allows getrandom()")]
    Random(getrandom::Error),
    /// The peer may not be connected to without a key.
    #[error("will not connect to {addr}: {refusal}")]
    NotAllowed {
        /// The peer.
        addr: SocketAddr,
        /// Why.
        refusal: Refusal,
    },
    /// A name outside its bounds.
    #[error("{0}; correct the name in the config")]
    Name(#[from] OfferError),
    /// A listener without services refuses everybody.
    #[error("no service to listen for; configure one, or leave the listener out")]
    NoService,
}

/// A fresh nonce.
fn fresh_nonce() -> Result<Nonce, CmError> {
    let mut nonce = Nonce::default();
    getrandom::fill(&mut nonce).map_err(CmError::Random)?;
    Ok(nonce)
}

/// Sleeps until one of `fds` is ready, `until` has come (never, if `None`) or a signal arrives.
/// For control threads without an event loop of their own.
pub fn wait(fds: &[(BorrowedFd<'_>, Interest)], now: Time, until: Option<Time>) -> std::io::Result<()> {
    let flags = |interest: &Interest| {
        let read = if interest.read { PollFlags::IN } else { PollFlags::empty() };
        read | if interest.write { PollFlags::OUT } else { PollFlags::empty() }
    };
    let mut set: Vec<PollFd<'_>> =
        fds.iter().map(|(fd, interest)| PollFd::from_borrowed_fd(*fd, flags(interest))).collect();
    let timeout = until.map(|until| {
        let ns = until.since_ns(now);
        Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
    });
    match poll(&mut set, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

// Sockets are beyond miri.
#[cfg(all(test, not(miri)))]
mod tests;
