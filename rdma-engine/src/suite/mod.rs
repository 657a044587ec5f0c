//! The common suite: what every transport has to do, as a list of cases over a [`Rig`].
//!
//! A rig makes two ends that reach each other over one transport. The same list then runs on loopback everywhere, on
//! soft in its simulator and on verbs where there is a device:
//!
//! ```ignore
//! let report = rdma_engine::suite::run(&mut rig, "");
//! println!("{report}");
//! ```
//!
//! A case panics when the transport breaks the contract of [`crate::transport`]. What a rig cannot do it says in its
//! [`Features`]; the cases that need it are skipped and named. Every case ends with both pools full.
//!
//! Buffers have a contract and cases of their own: [`run_buffer_cases`] and [`random_ownership`].

mod buffers;
mod bytes;
mod case;
mod chains;
mod connected;
mod datagram;
mod lifecycle;
mod order;
mod ownership;
mod queues;
mod refusals;
mod remote_errors;
mod rng;
mod session;
mod soak;
mod waits;

pub use buffers::{BufferCase, buffer_cases, run_buffer_cases};
pub use bytes::{contents, empty_chain, filled_chain, pattern};
pub use case::{Case, Report, run, run_case};
pub use ownership::random_ownership;
pub use rng::Rng;
pub use session::{A, B, End, Link, Pair, QpsOf, Session};

use crate::buf::{Buf, Pool};
use crate::transport::{Device, Transport};
use crate::types::{Pmtu, Time};

/// What a rig's transport can do, and how patient its cases must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// Unreliable connections.
    pub uc: bool,
    /// Datagrams.
    pub ud: bool,
    /// SEND_INV against ordinary regions.
    pub send_inv: bool,
    /// Shared receive queues.
    pub srq: bool,
    /// The RNR timer and retry count are honoured against [`Rig::now`].
    pub rnr: bool,
    /// A vanished peer is noticed by timeout and retry count.
    pub retry: bool,
    /// A message to an unreliable queue pair that is longer than the receive is lost and harms nothing.
    pub lossy_overlong: bool,
    /// A misaligned atomic reaches the peer, which refuses it. Some drivers already refuse to send it.
    pub misaligned: bool,
    /// `post_*` refuses buffers outside of registered memory ([`Rig::unregistered`] gives one).
    pub registration: bool,
    /// A send queue takes exactly the requests it was created for.
    pub exact_depth: bool,
    /// Largest path MTU of the link.
    pub pmtu: Pmtu,
    /// Segments a request may have; the cases use no more than 16.
    pub max_sge: u16,
    /// READs and atomics outstanding at most; the cases use no more than 4.
    pub max_rd_atomic: u8,
    /// Bytes of the longest message a case sends.
    pub max_message: usize,
    /// Random operations each way in the soak.
    pub soak_ops: u32,
    /// Seed of the soak.
    pub seed: u64,
    /// A case fails when what it waits for has not come after so many nanoseconds of [`Rig::now`].
    pub patience_ns: u64,
    /// What has not come after so many nanoseconds of [`Rig::now`] will not come.
    pub quiet_ns: u64,
}

impl Default for Features {
    /// Everything, PMTU 1024, virtual time.
    fn default() -> Self {
        Features {
            uc: true,
            ud: true,
            send_inv: true,
            srq: true,
            rnr: true,
            retry: true,
            lossy_overlong: true,
            misaligned: true,
            registration: false,
            exact_depth: true,
            pmtu: Pmtu::B1024,
            max_sge: 16,
            max_rd_atomic: 16,
            max_message: 16 << 10,
            soak_ops: 2000,
            seed: 1,
            patience_ns: 5_000_000_000,
            quiet_ns: 50_000,
        }
    }
}

/// What the cases want of the pool of each end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeSpec {
    /// Buffers, at least.
    pub buffers: usize,
    /// Bytes each can receive, at least. A rig may give more; cases ask the pool.
    pub room: usize,
}

/// One end, before its worker exists. The cases call [`Device::create_worker`] themselves, for worker 0.
#[derive(Debug)]
pub struct Node<D, P> {
    /// The control side. Buffers of `pool` are registered with it.
    pub device: D,
    /// Where the cases take buffers from, and where all of them must be at the end. A transport that needs buffers
    /// for itself has a pool of its own.
    pub pool: P,
}

/// The devices and pools of a [`Rig`], one for each end.
pub type Nodes<R> = [Node<<R as Rig>::Device, <R as Rig>::Pool>; 2];

/// Makes and joins the two ends of a case.
pub trait Rig: Sized {
    /// Buffers of both ends.
    type Buf: Buf;
    /// Where they come from.
    type Pool: Pool<Buf = Self::Buf>;
    /// The worker's side.
    type Transport: Transport<Buf = Self::Buf>;
    /// The control side.
    type Device: Device<Transport = Self::Transport, Qp = <Self::Transport as Transport>::Qp>;

    /// What it can do.
    fn features(&self) -> Features;

    /// Two ends that reach each other, with nothing left of an earlier case.
    fn open(&mut self, spec: &NodeSpec) -> Nodes<Self>;

    /// A device of the node at `end`, at the same address but with a protection domain of its own. `None` skips the
    /// cases on isolation.
    fn stranger(&mut self, end: usize) -> Option<Self::Device>;

    /// An empty buffer that `end` has not registered; it belongs to no pool that is checked.
    fn unregistered(&mut self, end: usize) -> Option<Self::Buf> {
        let _ = end;
        None
    }

    /// Index of the address at `end` in its device's table, for paths and address handles.
    fn sgid_index(&self, end: usize) -> u8 {
        let _ = end;
        0
    }

    /// The time that is passed to the transports.
    fn now(&self) -> Time;

    /// Calls [`Transport::flush`] with the egress of `end`, and keeps the frames until [`advance`](Rig::advance).
    fn flush(&mut self, end: usize, transport: &mut Self::Transport);

    /// Carries what is under way between the ends (by [`Transport::ingress`] where there are frames) and lets at least
    /// a nanosecond pass. On virtual time an idle rig jumps to the next timer.
    fn advance(&mut self, transports: [&mut Self::Transport; 2]);

    /// Frees what is under way; the transports and devices are gone. Then the pools are checked.
    fn close(&mut self) {}
}
