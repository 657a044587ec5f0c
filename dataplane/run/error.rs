//! Why a run did not start.

use crate::config::Refused;
use dpdk_bind::{EalError, PoolError, PortError};

/// Why nothing was started, or why it ended badly. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration does not fit the machine.
    #[error(transparent)]
    Refused(Refused),
    /// DPDK did not start.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// Devices are missing that were asked for.
    #[error("{names} could not be made{said}: {remedy}")]
    Devices {
        /// Their names.
        names: String,
        /// What DPDK said.
        said: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The interface of a tap port belongs to somebody else.
    #[error(
        "port {port}: there is an interface {interface} already, and somebody uses it: end the other process, or give the port another name with iface=NAME"
    )]
    Tap {
        /// The port's name in the file.
        port: String,
        /// The interface.
        interface: String,
    },
    /// A pool could not be made.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A port could not be set up.
    #[error("port {name}: {source}")]
    Port {
        /// Its name in the file.
        name: String,
        /// Why.
        source: PortError,
    },
    /// Nobody is at the other end of a memif port's socket.
    #[error(
        "port {port}: nobody serves the socket {socket}: start the process with the port that has role=server first, then this one again"
    )]
    MemifServer {
        /// Its name in the file.
        port: String,
        /// The socket.
        socket: String,
    },
    /// The RDMA side of a node could not be set up.
    #[error("node {node}: {why}")]
    Fabric {
        /// The node.
        node: String,
        /// Why, and what to do.
        why: String,
    },
    /// A worker could not be started.
    #[error(transparent)]
    Lcore(#[from] dpdk_bind::eal::LcoreError),
    /// The system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The drain left something behind.
    #[error("{0}")]
    Unclean(String),
}
