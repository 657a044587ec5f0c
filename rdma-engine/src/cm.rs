//! Connections by TCP exchange: who the ends are, what they offer, what they agree.
//!
//! Two ends that want to exchange work requests first meet over TCP. They prove that they share a
//! key ([`auth`]), tell each other queue pair numbers, starting PSNs, GID, MTU, read depths, message
//! sizes, credits and regions ([`offer`]), take the minimum of both ([`negotiate()`]), bring their
//! queue pairs up and say so. The TCP connection then stays open as the sign of life: when it breaks
//! or falls silent, the peer is lost and the client tries again.
//!
//! | part | what it does | touches |
//! |---|---|---|
//! | [`frame`], [`message`] | bytes to messages and back | nothing |
//! | [`negotiate()`] | two offers to one agreement | nothing |
//! | [`session`] | both state machines, bytes and time in and out | nothing |
//! | [`gid`] | which entry of the GID table to use | nothing |
//! | [`driver`] | listener and connector over nonblocking TCP | sockets |
//!
//! The exchange belongs to the control thread; no worker ever waits for it.

pub mod allow;
pub mod auth;
pub mod driver;
pub mod frame;
#[doc(hidden)]
pub mod fuzz;
pub mod gid;
pub mod message;
pub mod negotiate;
pub mod offer;
mod offer_wire;
#[doc(hidden)]
pub mod pair;
pub mod refuse;
pub mod session;
mod tlv;

pub use allow::{AllowList, Cidr, CidrError, admit};
pub use auth::{Auth, KeyError, PresharedKey};
pub use driver::{
    Budget, CmError, Connector, ConnectorConfig, ConnectorEvent, Interest, Listener, ListenerConfig,
    ListenerEvent, ListenerStats, SessionId,
};
#[doc(hidden)]
pub use fuzz::fuzz_session;
pub use gid::{GidChoice, GidEntry, GidError, GidKind, choose_gid};
pub use message::{GoodbyeReason, Identity, QpTotal};
pub use negotiate::{Agreed, QpPair, Terms, negotiate};
pub use offer::{Features, Offer, OfferError, QpOffer, RegionOffer, ServiceId, ServiceKind, TransportKind};
pub use refuse::{Refusal, RefuseReason};
pub use session::{Agreement, End, LostReason, Peer, Session, SessionConfig, SessionEvent, Timing};
pub use tlv::Malformed;
