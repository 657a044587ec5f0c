//! What control asks of a device beside the common [`Device`] trait.

use rdma_engine::cm::{Features, Offer, QpOffer, Terms, TransportKind};
use rdma_engine::qp::AddressVector;
use rdma_engine::transport::Device;
use rdma_engine::types::{Gid, Pmtu};
use std::net::IpAddr;

/// Something a device reports beside completions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FabricEvent {
    /// In words, for the log.
    pub words: String,
    /// What control does about it.
    pub action: FabricAction,
}

/// What control does about an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FabricAction {
    /// Nothing: the completions say the rest.
    None,
    /// The completion queue `cq` of `worker` lost completions and has to be made anew, with all queue pairs on it.
    RebuildCq {
        /// The worker.
        worker: usize,
        /// Number of the completion queue at the worker.
        cq: u8,
    },
    /// The local address may have changed: connect again.
    Reconnect,
}

/// A device as the control thread of a node uses it.
pub trait Endpoint: Device {
    /// Which transport it is, for the offer.
    fn kind(&self) -> TransportKind;

    /// Chooses the local address to reach `peer` with; gives the sentence that says which and why, or why none.
    fn choose_address(&self, peer: Option<IpAddr>) -> Result<String, String>;

    /// Largest path MTU towards any peer.
    fn path_mtu(&self) -> Pmtu;

    /// The path to a peer's address.
    fn path_to(&self, gid: Gid) -> AddressVector;

    /// UDP source port this end wants on packets to a queue pair of this worker; 0 for any.
    fn wanted_udp_port(&self, worker: usize) -> u16 {
        let _ = worker;
        0
    }

    /// Departures from the standard that it would take part in, and its longest payload with them in bytes.
    fn features(&self) -> (Features, u32) {
        (Features::NONE, 0)
    }

    /// Takes over what was agreed for a queue pair that is in INIT.
    fn agree(&self, qp: &mut Self::Qp, terms: &Terms) -> Result<(), Self::Error> {
        let _ = (qp, terms);
        Ok(())
    }

    /// How this end's port spreads packets over the workers, for the peer's [`udp_source_port`](Self::udp_source_port);
    /// travels with the offer.
    fn steering(&self) -> Vec<u8> {
        Vec::new()
    }

    /// UDP source port that brings packets to the peer's queue pair `qp` to the worker that owns it, by what the peer
    /// says in its offer; `None` for any.
    fn udp_source_port(&self, peer: &Offer, qp: &QpOffer) -> Option<u16> {
        let _ = (peer, qp);
        None
    }

    /// The next thing the device reports.
    fn poll_event(&self) -> Option<FabricEvent> {
        None
    }

    /// Buffers given up for good.
    fn leaked(&self) -> u64 {
        0
    }
}
