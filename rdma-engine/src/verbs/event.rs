//! Asynchronous events: what a device reports beside completions, in words, for the control thread.
#![allow(unsafe_code)] // reason: calls libibverbs.

use super::context::Context;
use super::ffi;
use crate::types::Qpn;
use std::fmt;
use std::ptr::without_provenance_mut;
use std::sync::atomic::{AtomicU32, Ordering};

/// Whom a queue belongs to: kept in the context pointer that the library hands back with events.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Owner {
    /// Number of the protection domain, in the order they were opened.
    pub domain: u16,
    /// The worker's index.
    pub worker: u16,
    /// Index of the queue among the worker's; 0 for queue pairs.
    pub index: u16,
}

impl Owner {
    pub(super) fn pack(self) -> *mut std::ffi::c_void {
        without_provenance_mut(
            usize::from(self.domain) << 32 | usize::from(self.worker) << 16 | usize::from(self.index),
        )
    }

    fn unpack(word: *mut std::ffi::c_void) -> Self {
        let word = word.addr();
        Owner { domain: (word >> 32) as u16, worker: (word >> 16) as u16, index: word as u16 }
    }
}

/// What happened to a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpEvent {
    /// It failed; its completions say more, if it has any.
    Fatal,
    /// The peer sent an invalid request.
    InvalidRequest,
    /// The peer touched memory without the right to.
    AccessViolation,
    /// The first packet came before the peer's ready message.
    Established,
    /// The send queue is drained (SQD).
    Drained,
    /// It moved to its alternate path.
    PathMigrated,
    /// It could not move to its alternate path.
    PathMigrationFailed,
    /// It takes no more receives from its shared receive queue.
    LastReceive,
}

/// What happened to a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PortEvent {
    /// In service.
    Up,
    /// Out of service.
    Down,
    /// Its GID table changed.
    GidsChanged,
    /// Its local identifier, partition keys or subnet manager changed.
    Reconfigured,
}

/// An event that is not a completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[doc(alias = "ibv_async_event")]
pub enum AsyncEvent {
    /// A completion queue lost completions: its queue pairs must be given up, see
    /// [`Verbs::rebuild_cq`](super::Verbs::rebuild_cq).
    #[doc(alias = "IBV_EVENT_CQ_ERR")]
    CqOverflow {
        /// The queue; `index` is its number at the worker.
        cq: Owner,
    },
    /// Something about a queue pair.
    Qp {
        /// What.
        what: QpEvent,
        /// Which.
        qpn: Qpn,
        /// Its worker.
        owner: Owner,
    },
    /// A shared receive queue holds fewer receives than its armed limit; the limit is disarmed now.
    #[doc(alias = "IBV_EVENT_SRQ_LIMIT_REACHED")]
    SrqLimit {
        /// The queue; `index` is its number at the worker.
        srq: Owner,
    },
    /// A shared receive queue failed.
    SrqFailed {
        /// The queue; `index` is its number at the worker.
        srq: Owner,
    },
    /// Something about a port.
    Port {
        /// What.
        what: PortEvent,
        /// Its number.
        port: u8,
    },
    /// The device failed: nothing of it can be used any more.
    #[doc(alias = "IBV_EVENT_DEVICE_FATAL")]
    DeviceFatal,
    /// An event this program does not know.
    Unknown {
        /// Its number in the verbs interface.
        code: u32,
    },
}

impl AsyncEvent {
    /// Takes the next event of the device and acknowledges it; `None` when there is none.
    pub(super) fn take(context: &Context) -> Option<Self> {
        let mut raw =
            ffi::RawAsyncEvent { element: ffi::AsyncElement { word: std::ptr::null_mut() }, event_type: 0 };
        // SAFETY: the context is open and its descriptor does not block.
        if unsafe { ffi::get_async_event(context.raw(), &mut raw) } != 0 {
            return None;
        }
        // SAFETY: until it is acknowledged, what the event is about cannot be destroyed.
        let event = unsafe { Self::read(&raw) };
        // SAFETY: taken above, once.
        unsafe { ffi::ack_async_event(&mut raw) };
        Some(event)
    }

    /// # Safety
    /// `raw` was taken and not yet acknowledged.
    unsafe fn read(raw: &ffi::RawAsyncEvent) -> Self {
        use ffi::ibv_event_type as E;
        let code = raw.event_type;
        if let Some((_, what)) = QP_EVENTS.iter().find(|(c, _)| *c as u32 == code) {
            // SAFETY: a queue pair event is about a queue pair, which lives (see above).
            let qp = unsafe { &*raw.element.qp };
            let (qpn, owner) = (Qpn::new(qp.qp_num), Owner::unpack(qp.qp_context));
            return AsyncEvent::Qp { what: *what, qpn, owner };
        }
        if let Some((_, what)) = PORT_EVENTS.iter().find(|(c, _)| *c as u32 == code) {
            // SAFETY: a port event carries a number.
            return AsyncEvent::Port { what: *what, port: unsafe { raw.element.port_num } as u8 };
        }
        // SAFETY: a queue event is about a queue of that kind, which lives (see above).
        let cq = || Owner::unpack(unsafe { (*raw.element.cq).cq_context });
        // SAFETY: as above.
        let srq = || Owner::unpack(unsafe { (*raw.element.srq).srq_context });
        match code {
            c if c == E::IBV_EVENT_CQ_ERR as u32 => AsyncEvent::CqOverflow { cq: cq() },
            c if c == E::IBV_EVENT_SRQ_LIMIT_REACHED as u32 => AsyncEvent::SrqLimit { srq: srq() },
            c if c == E::IBV_EVENT_SRQ_ERR as u32 => AsyncEvent::SrqFailed { srq: srq() },
            c if c == E::IBV_EVENT_DEVICE_FATAL as u32 => AsyncEvent::DeviceFatal,
            code => AsyncEvent::Unknown { code },
        }
    }
}

const QP_EVENTS: [(ffi::ibv_event_type, QpEvent); 8] = [
    (ffi::ibv_event_type::IBV_EVENT_QP_FATAL, QpEvent::Fatal),
    (ffi::ibv_event_type::IBV_EVENT_QP_REQ_ERR, QpEvent::InvalidRequest),
    (ffi::ibv_event_type::IBV_EVENT_QP_ACCESS_ERR, QpEvent::AccessViolation),
    (ffi::ibv_event_type::IBV_EVENT_COMM_EST, QpEvent::Established),
    (ffi::ibv_event_type::IBV_EVENT_SQ_DRAINED, QpEvent::Drained),
    (ffi::ibv_event_type::IBV_EVENT_PATH_MIG, QpEvent::PathMigrated),
    (ffi::ibv_event_type::IBV_EVENT_PATH_MIG_ERR, QpEvent::PathMigrationFailed),
    (ffi::ibv_event_type::IBV_EVENT_QP_LAST_WQE_REACHED, QpEvent::LastReceive),
];

const PORT_EVENTS: [(ffi::ibv_event_type, PortEvent); 7] = [
    (ffi::ibv_event_type::IBV_EVENT_PORT_ACTIVE, PortEvent::Up),
    (ffi::ibv_event_type::IBV_EVENT_PORT_ERR, PortEvent::Down),
    (ffi::ibv_event_type::IBV_EVENT_GID_CHANGE, PortEvent::GidsChanged),
    (ffi::ibv_event_type::IBV_EVENT_LID_CHANGE, PortEvent::Reconfigured),
    (ffi::ibv_event_type::IBV_EVENT_PKEY_CHANGE, PortEvent::Reconfigured),
    (ffi::ibv_event_type::IBV_EVENT_SM_CHANGE, PortEvent::Reconfigured),
    (ffi::ibv_event_type::IBV_EVENT_CLIENT_REREGISTER, PortEvent::Reconfigured),
];

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AsyncEvent::CqOverflow { cq } => write!(
                f,
                "completion queue {} of worker {} overflowed and lost completions: its queue pairs are given up; make it deeper",
                cq.index, cq.worker
            ),
            AsyncEvent::Qp { what, qpn, owner } => {
                write!(f, "queue pair {qpn} of worker {}: {}", owner.worker, what.words())
            }
            AsyncEvent::SrqLimit { srq } => {
                write!(f, "shared receive queue {} of worker {} runs low", srq.index, srq.worker)
            }
            AsyncEvent::SrqFailed { srq } => {
                write!(f, "shared receive queue {} of worker {} failed", srq.index, srq.worker)
            }
            AsyncEvent::Port { what, port } => write!(f, "port {port}: {}", what.words()),
            AsyncEvent::DeviceFatal => f.write_str("the device failed; it must be opened again"),
            AsyncEvent::Unknown { code } => write!(f, "unknown event {code}"),
        }
    }
}

impl QpEvent {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            QpEvent::Fatal => "failed",
            QpEvent::InvalidRequest => "the peer sent an invalid request",
            QpEvent::AccessViolation => "the peer touched memory without the right to",
            QpEvent::Established => "the peer has started to send",
            QpEvent::Drained => "send queue drained",
            QpEvent::PathMigrated => "moved to its alternate path",
            QpEvent::PathMigrationFailed => "could not move to its alternate path",
            QpEvent::LastReceive => "takes no more shared receives",
        }
    }
}

impl PortEvent {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            PortEvent::Up => "up",
            PortEvent::Down => "down",
            PortEvent::GidsChanged => "GID table changed",
            PortEvent::Reconfigured => "reconfigured by the fabric",
        }
    }
}

/// Says what could not be released, the first time only; every time is counted where it matters.
pub(super) fn say_once(what: &str, error: &std::io::Error) {
    static SAID: AtomicU32 = AtomicU32::new(0);
    if SAID.fetch_add(1, Ordering::Relaxed) == 0 {
        tracing::error!("{what}: {error} (said once)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_survive_the_pointer() {
        let owner = Owner { domain: 3, worker: u16::MAX, index: 513 };
        assert_eq!(Owner::unpack(owner.pack()), owner);
    }

    #[test]
    fn unknown_numbers_are_an_event_not_an_accident() {
        let raw = ffi::RawAsyncEvent {
            element: ffi::AsyncElement { word: std::ptr::null_mut() },
            event_type: 4711,
        };
        // SAFETY: an unknown event is not looked into.
        let event = unsafe { AsyncEvent::read(&raw) };
        assert_eq!(event, AsyncEvent::Unknown { code: 4711 });
    }
}
