//! The hub that everything meets in, and the device of one node and protection domain.

use super::bells::Bells;
use super::datagram::Inbox;
use super::error::LoopbackError;
use super::keys::Keys;
use super::qp::LoopQp;
use super::ring::Shared;
use super::transport::{Desk, Handles, LoopTransport};
use crate::buf::Buf;
use crate::mem::{Access, Arena, KeyTable, Region};
use crate::qp::{AddressVector, Change, QpSpec};
use crate::transport::{Device, WorkerSpec};
use crate::types::{Gid, Lkey, MASK_24, QpType, Qpn};
use crate::wr::AhId;
use std::collections::HashMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// First QPN given out; lower ones are special on the wire.
const FIRST_QPN: u32 = 0x11;
/// Largest depth of a queue.
const MAX_DEPTH: u32 = 1 << 20;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all devices of a hub share.
pub(super) struct HubInner<B> {
    keys: Arc<Keys>,
    directory: Mutex<Directory<B>>,
    domains: AtomicU32,
    nodes: AtomicU32,
}

struct Directory<B> {
    qps: HashMap<u32, Arc<Shared<B>>>,
    next: u32,
}

impl<B> HubInner<B> {
    /// The queue pair with this number at this address.
    pub(super) fn find(&self, qpn: Qpn, gid: Gid) -> Option<Arc<Shared<B>>> {
        lock(&self.directory).qps.get(&qpn.value()).filter(|s| s.gid == gid).cloned()
    }

    pub(super) fn forget(&self, qpn: Qpn) {
        lock(&self.directory).qps.remove(&qpn.value());
    }

    /// Lists a queue pair under a number that is not in use.
    fn list(&self, make: impl FnOnce(Qpn) -> Shared<B>) -> Arc<Shared<B>> {
        let mut d = lock(&self.directory);
        while d.qps.contains_key(&d.next) {
            d.next = (d.next + 1).clamp(FIRST_QPN, MASK_24 - 1);
        }
        let qpn = d.next;
        d.next = if qpn + 1 < MASK_24 { qpn + 1 } else { FIRST_QPN };
        let shared = Arc::new(make(Qpn::new(qpn)));
        d.qps.insert(qpn, Arc::clone(&shared));
        shared
    }
}

/// The network in the middle: devices of one hub reach each other. Clones are handles to the same hub.
pub struct Hub<B> {
    inner: Arc<HubInner<B>>,
}

impl<B> Clone for Hub<B> {
    fn clone(&self) -> Self {
        Hub { inner: Arc::clone(&self.inner) }
    }
}

impl<B> fmt::Debug for Hub<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loopback hub, {} queue pairs", lock(&self.inner.directory).qps.len())
    }
}

impl<B: Buf> Default for Hub<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Buf> Hub<B> {
    /// A hub without devices.
    pub fn new() -> Self {
        let directory = Mutex::new(Directory { qps: HashMap::new(), next: FIRST_QPN });
        let keys = Arc::new(Keys::new());
        let inner = HubInner { keys, directory, domains: AtomicU32::new(0), nodes: AtomicU32::new(0) };
        Hub { inner: Arc::new(inner) }
    }

    /// The device of a new node, with an address of the hub's choice (127.18.0.1 and up).
    pub fn device(&self) -> Loopback<B> {
        let n = self.inner.nodes.fetch_add(1, Ordering::Relaxed) + 1;
        let [_, b, c, d] = n.to_be_bytes();
        self.device_at(Gid::from(Ipv4Addr::new(127, 18 + b, c, d)))
    }

    /// A device at this address, with a protection domain of its own.
    pub fn device_at(&self, gid: Gid) -> Loopback<B> {
        Loopback {
            hub: Arc::clone(&self.inner),
            gid,
            domain: self.inner.domains.fetch_add(1, Ordering::Relaxed),
            workers: Mutex::default(),
            handles: Handles::default(),
            buffers: Mutex::default(),
        }
    }
}

/// A worker as the control side knows it.
struct Worker {
    bells: Arc<Bells>,
    /// Gone with its transport.
    alive: Weak<()>,
    cqs: usize,
    srq_depths: Vec<u32>,
}

/// A device of a [`Hub`]: one protection domain at one address.
///
/// Buffers need no registration. Once [`register_buffers`](Device::register_buffers) was called, posted buffers must
/// lie in what was registered.
pub struct Loopback<B> {
    hub: Arc<HubInner<B>>,
    gid: Gid,
    domain: u32,
    workers: Mutex<HashMap<usize, Worker>>,
    handles: Handles,
    buffers: Mutex<KeyTable>,
}

impl<B> fmt::Debug for Loopback<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loopback device at {}, domain {}", self.gid, self.domain)
    }
}

impl<B: Buf> Loopback<B> {
    /// The hub it belongs to.
    pub fn hub(&self) -> Hub<B> {
        Hub { inner: Arc::clone(&self.hub) }
    }

    /// Queue pairs of the whole hub, attached or not.
    pub fn qpn_count(&self) -> usize {
        lock(&self.hub.directory).qps.len()
    }
}

fn check_depth(queue: &'static str, depth: u32) -> Result<(), LoopbackError> {
    let legal = (1..=MAX_DEPTH).contains(&depth);
    if legal { Ok(()) } else { Err(LoopbackError::Depth { queue, depth }) }
}

impl Worker {
    /// Datagrams that may wait for a queue pair of this kind; `None` if the specification does not fit the worker.
    fn check(&self, worker: usize, spec: &QpSpec) -> Result<u32, LoopbackError> {
        check_depth("send", spec.caps.send_depth)?;
        if usize::from(spec.cq) >= self.cqs {
            return Err(LoopbackError::NoCq { worker, cq: spec.cq, cqs: self.cqs });
        }
        let Some(srq) = spec.srq else {
            check_depth("receive", spec.caps.recv_depth)?;
            return Ok(spec.caps.recv_depth);
        };
        let srqs = self.srq_depths.len();
        let depth = self.srq_depths.get(usize::from(srq.0)).copied();
        depth.ok_or(LoopbackError::NoSrq { worker, srq: srq.0, srqs })
    }
}

impl<B: Buf> Device for Loopback<B> {
    type Qp = LoopQp<B>;
    type Transport = LoopTransport<B>;
    type Error = LoopbackError;

    fn create_worker(&self, worker: usize, spec: &WorkerSpec) -> Result<LoopTransport<B>, LoopbackError> {
        spec.cqs.iter().try_for_each(|cq| check_depth("completion", cq.depth))?;
        spec.srqs.iter().try_for_each(|srq| check_depth("shared receive", srq.depth))?;
        let mut workers = lock(&self.workers);
        if workers.get(&worker).is_some_and(|w| w.alive.strong_count() > 0) {
            return Err(LoopbackError::WorkerExists(worker));
        }
        let bells = Arc::new(Bells::new(usize::from(spec.max_qps)));
        let srq_depths = spec.srqs.iter().map(|s| s.depth).collect();
        let buffers = lock(&self.buffers).clone();
        let desk =
            Desk::new(spec, Arc::clone(&bells), Arc::clone(&self.hub.keys), buffers, self.handles.clone());
        let transport = LoopTransport::new(spec.max_qps, Arc::clone(&bells), desk);
        workers.insert(worker, Worker { bells, alive: transport.life(), cqs: spec.cqs.len(), srq_depths });
        Ok(transport)
    }

    fn create_qp(&self, worker: usize, spec: &QpSpec) -> Result<LoopQp<B>, LoopbackError> {
        let workers = lock(&self.workers);
        let w = workers.get(&worker).ok_or(LoopbackError::NoWorker(worker))?;
        if w.alive.strong_count() == 0 {
            return Err(LoopbackError::NoWorker(worker));
        }
        let bells = Arc::clone(&w.bells);
        let depth = w.check(worker, spec)?;
        let inbox = (spec.kind == QpType::Ud).then(|| Inbox::new(depth as usize));
        let shared = self.hub.list(|qpn| {
            Shared::new((qpn, self.gid, spec.kind, self.domain), bells, spec.caps.send_depth, inbox)
        });
        Ok(LoopQp::new(shared, Arc::clone(&self.hub), *spec))
    }

    fn qpn(&self, qp: &LoopQp<B>) -> Qpn {
        qp.shared.qpn
    }

    fn modify(&self, qp: &mut LoopQp<B>, change: &Change) -> Result<(), LoopbackError> {
        Ok(qp.change(change)?)
    }

    fn destroy_qp(&self, qp: LoopQp<B>) -> Result<(), LoopbackError> {
        drop(qp);
        Ok(())
    }

    fn register(&self, arena: &Arena, access: Access) -> Result<Region, LoopbackError> {
        let access = access.checked()?;
        let registration = self.hub.keys.add(arena, access, self.domain).ok_or(LoopbackError::NoKey)?;
        let rkey = registration.rkey();
        Ok(Region::new(arena.clone(), access, Lkey(rkey.0), rkey, Arc::new(registration)))
    }

    fn register_buffers(&self, arena: &Arena) -> Result<(), LoopbackError> {
        let mut buffers = lock(&self.buffers);
        let key = Lkey(buffers.len() as u32);
        let start = arena.window().addr() as usize;
        if buffers.insert(start, arena.len(), key) { Ok(()) } else { Err(LoopbackError::Overlap) }
    }

    fn create_ah(&self, worker: usize, path: &AddressVector) -> Result<AhId, LoopbackError> {
        let known = lock(&self.workers).contains_key(&worker);
        if !known {
            return Err(LoopbackError::NoWorker(worker));
        }
        self.handles.add(path.gid).ok_or(LoopbackError::NoHandle)
    }

    fn gid(&self) -> Gid {
        self.gid
    }
}
