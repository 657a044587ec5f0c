//! What can go wrong with a verb, with the errno as source and the usual cause in words.

use crate::mem::AccessError;
use crate::qp::{IllegalChange, QpState};
use crate::types::{Pmtu, QpType, Qpn};
use std::io;

/// A verb that failed, or a request that the device cannot fulfil.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The list of devices cannot be read.
    #[error("cannot list RDMA devices: {source}; {NO_DEVICE}")]
    ListDevices {
        /// The system's error.
        source: io::Error,
    },
    /// There is no device.
    #[error("no RDMA device found; {NO_DEVICE}")]
    NoDevices,
    /// There is no device of this name.
    #[error("no RDMA device named {name}; there are: {known}")]
    UnknownDevice {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The device has no such port.
    #[error("device {device} has no port {port}; its ports are 1 to {ports}")]
    UnknownPort {
        /// The device.
        device: String,
        /// The port asked for.
        port: u8,
        /// How many it has.
        ports: u8,
    },
    /// The port is not an Ethernet port.
    #[error(
        "port {port} of {device} is an InfiniBand port and only RoCE is spoken; set the port to Ethernet or choose another one"
    )]
    LinkLayer {
        /// The device.
        device: String,
        /// The port.
        port: u8,
    },
    /// Opening failed.
    #[error("cannot open device {device}: {source}{}", open_remedy(.source))]
    Open {
        /// The device.
        device: String,
        /// The system's error.
        source: io::Error,
    },
    /// A query failed.
    #[error("cannot query {what} of {device}: {source}")]
    Query {
        /// The device.
        device: String,
        /// What was asked for.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The GID table has no such entry.
    #[error(
        "{device} port {port} has no GID {index}; give its network device an address (ip addr add ADDRESS/PREFIX dev DEVICE) or choose one of: {known}"
    )]
    NoGid {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// The index asked for.
        index: u32,
        /// The entries there are.
        known: String,
    },
    /// No protection domain.
    #[error("cannot allocate a protection domain: {source}")]
    AllocPd {
        /// The system's error.
        source: io::Error,
    },
    /// Registering memory failed.
    #[error("cannot register {len} bytes as {access}: {source}{}", mr_remedy(.source))]
    RegMr {
        /// Bytes.
        len: usize,
        /// The rights asked for.
        access: String,
        /// The system's error.
        source: io::Error,
    },
    /// Rights that do not go together.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A range of buffers overlaps one registered before.
    #[error("buffers at {start:#x}, {len} bytes, overlap memory registered before; register each arena once")]
    Overlap {
        /// First address.
        start: u64,
        /// Bytes.
        len: usize,
    },
    /// No completion channel.
    #[error("cannot create a completion channel: {source}{}", fd_remedy(.source))]
    CreateChannel {
        /// The system's error.
        source: io::Error,
    },
    /// No completion queue.
    #[error("cannot create a completion queue of {depth}: {source}")]
    CreateCq {
        /// Completions asked for.
        depth: u32,
        /// The system's error.
        source: io::Error,
    },
    /// No shared receive queue.
    #[error("cannot create a shared receive queue of {depth} with {sge} segments: {source}")]
    CreateSrq {
        /// Receives asked for.
        depth: u32,
        /// Segments asked for.
        sge: u16,
        /// The system's error.
        source: io::Error,
    },
    /// Changing a shared receive queue failed.
    #[error("cannot arm the limit of a shared receive queue: {source}")]
    ModifySrq {
        /// The system's error.
        source: io::Error,
    },
    /// No queue pair.
    #[error("cannot create a {kind} queue pair: {source}{}", qp_remedy(.source))]
    CreateQp {
        /// Transport type.
        kind: QpType,
        /// The system's error.
        source: io::Error,
    },
    /// A change of state that the table does not know.
    #[error(transparent)]
    Illegal(#[from] IllegalChange),
    /// A change of state that the device refused.
    #[error("cannot move {qpn} ({kind}) to {to}: {source}{}", modify_remedy(*.to, .source))]
    ModifyQp {
        /// The queue pair.
        qpn: Qpn,
        /// Transport type.
        kind: QpType,
        /// The state asked for.
        to: QpState,
        /// The system's error.
        source: io::Error,
    },
    /// The path MTU exceeds the port's.
    #[error(
        "path MTU {asked} exceeds the port's active MTU {active}; use {active}, or raise the MTU of the network device (IB MTU + 80 at least) on both sides"
    )]
    PathMtu {
        /// The path MTU asked for.
        asked: Pmtu,
        /// The port's.
        active: Pmtu,
    },
    /// Destroying failed; what was in flight is leaked.
    #[error(
        "cannot destroy {qpn}: {source}; its {leaked} buffers in flight are given up, because the device may still use them"
    )]
    DestroyQp {
        /// The queue pair.
        qpn: Qpn,
        /// Buffers given up.
        leaked: usize,
        /// The system's error.
        source: io::Error,
    },
    /// No address handle.
    #[error("cannot create an address handle for {peer}: {source}{}", path_remedy(.source))]
    CreateAh {
        /// The peer.
        peer: crate::types::Gid,
        /// The system's error.
        source: io::Error,
    },
    /// A number beyond what the device or the interface takes.
    #[error("{what} {asked} exceeds the most that {device} takes; use at most {most}")]
    Limit {
        /// The number's name.
        what: &'static str,
        /// What was asked for.
        asked: u64,
        /// The most.
        most: u64,
        /// The device.
        device: String,
    },
    /// There is no such worker.
    #[error("worker {worker} has no transport yet; call create_worker before its queue pairs are created")]
    UnknownWorker {
        /// The worker's index.
        worker: usize,
    },
    /// The worker exists already.
    #[error("worker {worker} already has a transport")]
    WorkerExists {
        /// The worker's index.
        worker: usize,
    },
    /// The worker has no such queue.
    #[error("worker {worker} has no {what} {index}; it has {have}")]
    UnknownQueue {
        /// The worker's index.
        worker: usize,
        /// Kind of queue.
        what: &'static str,
        /// The number asked for.
        index: usize,
        /// How many there are.
        have: usize,
    },
}

const NO_DEVICE: &str = "install the NIC's driver and libibverbs provider, or make a software device: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev DEVICE";

fn errno(e: &io::Error) -> i32 {
    e.raw_os_error().unwrap_or(0)
}

fn open_remedy(e: &io::Error) -> &'static str {
    match errno(e) {
        libc::EACCES | libc::EPERM => {
            "; the user needs read and write access to /dev/infiniband/uverbs* (group rdma, or root)"
        }
        libc::ENOENT | libc::ENODEV => "; load the module ib_uverbs",
        _ => "",
    }
}

fn mr_remedy(e: &io::Error) -> String {
    let words = match errno(e) {
        libc::ENOMEM => {
            return format!(
                "; the limit of locked memory is {}: raise it (ulimit -l unlimited, LimitMEMLOCK=infinity in a systemd unit, or memlock in /etc/security/limits.conf)",
                memlock()
            );
        }
        libc::EFAULT => "; part of the range is not mapped, or not writable",
        libc::EINVAL => "; the device refuses these rights, this size or this kind of memory",
        libc::EOPNOTSUPP => {
            "; this kind of memory (a file?) cannot be pinned: use anonymous memory or hugetlbfs"
        }
        _ => "",
    };
    words.to_string()
}

/// The soft limit of locked memory in words.
fn memlock() -> String {
    match rustix::process::getrlimit(rustix::process::Resource::Memlock).current {
        None => "unlimited".to_string(),
        Some(bytes) => format!("{bytes} bytes"),
    }
}

fn fd_remedy(e: &io::Error) -> &'static str {
    if errno(e) == libc::EMFILE { "; raise the limit of open files (ulimit -n)" } else { "" }
}

fn qp_remedy(e: &io::Error) -> &'static str {
    match errno(e) {
        libc::EINVAL => {
            "; the device refuses these depths, segments or inline bytes: lower inline_bytes first, it has no limit that can be asked for"
        }
        libc::ENOMEM => "; the device has no queue pair left, or memory cannot be locked (ulimit -l)",
        _ => "",
    }
}

fn modify_remedy(to: QpState, e: &io::Error) -> &'static str {
    match (to, errno(e)) {
        (QpState::Rtr, libc::EINVAL) => {
            "; usual causes: the GID index is empty, of another kind (RoCEv1 against v2) or of another family than the peer's GID; the path MTU is above the port's; more READs in flight than the device takes"
        }
        (_, libc::EINVAL) => "; the device refuses an attribute of this step",
        _ => path_remedy(e),
    }
}

fn path_remedy(e: &io::Error) -> &'static str {
    match errno(e) {
        libc::ETIMEDOUT => {
            "; the peer's MAC address is not known: it does not answer ARP or neighbour discovery for this GID"
        }
        libc::ENETUNREACH | libc::EHOSTUNREACH => "; there is no route to this GID from the local one",
        libc::EINVAL => "; usual causes: the GID index is empty, or of another family than the peer's GID",
        // What ib_core says of an empty entry.
        libc::ENODATA => "; the local GID index is empty: its address is gone, choose another index",
        libc::ENODEV => "; the network device under the local GID is gone or down",
        _ => "",
    }
}

/// The error of a verb that returns an errno, `Ok` for 0.
pub(super) fn check(rc: i32) -> Result<(), io::Error> {
    match rc {
        0 => Ok(()),
        // A few verbs return -1 and set errno, one or two a negative errno.
        -1 => Err(io::Error::last_os_error()),
        n => Err(io::Error::from_raw_os_error(n.abs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(code: i32) -> io::Error {
        io::Error::from_raw_os_error(code)
    }

    #[test]
    fn the_traps_are_told_in_words() {
        let mr = VerbsError::RegMr { len: 4096, access: "local write".into(), source: os(libc::ENOMEM) };
        assert!(mr.to_string().contains("LimitMEMLOCK"), "{mr}");
        let rtr = VerbsError::ModifyQp {
            qpn: Qpn::new(17),
            kind: QpType::Rc,
            to: QpState::Rtr,
            source: os(libc::EINVAL),
        };
        assert!(rtr.to_string().contains("GID index"), "{rtr}");
        let sge = VerbsError::Limit { what: "send segments", asked: 33, most: 32, device: "rxe0".into() };
        assert!(sge.to_string().ends_with("use at most 32"), "{sge}");
        assert!(VerbsError::NoDevices.to_string().contains("rdma link add"));
        let ah = VerbsError::CreateAh { peer: crate::types::Gid::default(), source: os(libc::ETIMEDOUT) };
        assert!(ah.to_string().contains("ARP"), "{ah}");
    }

    #[test]
    fn return_codes_of_all_habits_are_understood() {
        assert!(check(0).is_ok());
        assert_eq!(check(libc::EINVAL).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(check(-libc::ENOMEM).unwrap_err().raw_os_error(), Some(libc::ENOMEM));
    }
}
