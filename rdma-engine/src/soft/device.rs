//! The control thread's side: workers, queue pairs, regions.

use super::agreement::Agreement;
use super::config::{SoftConfig, SoftError};
use super::endpoint::SoftTransport;
use super::event::Events;
use super::held::HeldPool;
use super::node::Node;
use super::path::Neighbours;
use super::pattern::Pattern;
use super::qp::Qp;
use super::ready::Ready;
use super::recorder::Recorder;
use super::region::{Memory, Pd, RegionView, Registration};
use super::shared::Shared;
use super::srq::Srq;
use super::timer::Timers;
use crate::buf::{Buf, Pool};
use crate::mem::{Access, Arena, Region};
use crate::qp::{AddressVector, Change, QpSpec};
use crate::transport::{Counters, Device, WorkerSpec};
use crate::types::{Gid, Qpn, Rkey};
use crate::wire::HeaderTemplate;
use crate::wr::{AhId, RemoteSlice};
use std::collections::VecDeque;
use std::sync::Arc;

/// A soft RoCEv2 device: one per port. Clones are handles to the same one; each has a protection domain, see
/// [`with_new_pd`](SoftDevice::with_new_pd).
#[derive(Debug)]
pub struct SoftDevice<P> {
    node: Arc<Node<P>>,
    pd: Pd,
}

/// A queue pair off its transport.
#[derive(Debug)]
pub struct SoftQp<B>(pub(crate) Box<Qp<B>>);

impl<B: Buf> SoftQp<B> {
    /// Its state.
    pub fn state(&self) -> crate::qp::QpState {
        self.0.state
    }

    /// The peer's address, where it has one peer.
    pub fn peer(&self) -> Option<std::net::IpAddr> {
        self.0.path.as_ref().map(super::path::Path::peer_ip)
    }
}

/// A pattern registered as memory; it stays registered while this lives.
#[derive(Debug)]
pub struct PatternRegion {
    pattern: Pattern,
    rkey: Rkey,
    _registration: Registration,
}

impl PatternRegion {
    /// The first `len` bytes as a peer names them.
    pub fn slice(&self, len: u32) -> RemoteSlice {
        RemoteSlice { addr: self.pattern.addr(), rkey: self.rkey, len }
    }
}

impl<P> Clone for SoftDevice<P> {
    fn clone(&self) -> Self {
        SoftDevice { node: Arc::clone(&self.node), pd: self.pd }
    }
}

impl<P: Pool + Send> SoftDevice<P> {
    /// A device whose worker `n` takes its frames from the `n`-th of `pools`.
    ///
    /// # Errors
    /// [`SoftError`] names the setting and what to do.
    pub fn new(config: SoftConfig, pools: Vec<P>) -> Result<Self, SoftError> {
        let node = Node::new(config, pools)?;
        let pd = node.regions.new_pd();
        Ok(SoftDevice { node: Arc::new(node), pd })
    }

    /// A handle whose queue pairs and regions are in a protection domain of their own.
    #[must_use]
    pub fn with_new_pd(&self) -> Self {
        SoftDevice { node: Arc::clone(&self.node), pd: self.node.regions.new_pd() }
    }

    /// Registers an arena under a key that a peer may invalidate once (SEND with invalidate).
    ///
    /// # Errors
    /// As [`Device::register`].
    pub fn register_invalidable(&self, arena: &Arena, access: Access) -> Result<Region, SoftError> {
        self.node.regions.register(self.pd, arena, access, true)
    }

    /// Registers memory that exists only as a rule. Atomics are not possible there.
    ///
    /// # Errors
    /// As [`Device::register`].
    pub fn register_pattern(&self, pattern: &Pattern) -> Result<PatternRegion, SoftError> {
        let access = Access::REMOTE_READ.and(Access::REMOTE_WRITE).and(Access::LOCAL_WRITE);
        let memory = Memory::Pattern(pattern.clone());
        let (rkey, registration) = self.node.regions.insert(self.pd, access, memory, false)?;
        Ok(PatternRegion { pattern: pattern.clone(), rkey, _registration: registration })
    }

    /// Departs from the standard on a reliable queue pair, as both ends have agreed. Before RTR.
    ///
    /// # Errors
    /// [`SoftError::Agreement`] if it is too late or the queue pair is of another kind; [`SoftError::Limit`] if packets
    /// would be longer than [`SoftConfig::jumbo_payload`].
    pub fn agree(&self, qp: &mut SoftQp<P::Buf>, agreed: Agreement) -> Result<(), SoftError> {
        qp.0.agree(&self.node.config, agreed)
    }

    /// The worker that owns the queue pair with this number: where a frame that came in at another worker's queue
    /// belongs. A number nobody was given may name a worker that does not exist.
    pub fn worker_of(&self, qpn: Qpn) -> usize {
        self.node.numbers.layout().worker(qpn)
    }

    /// The settings.
    pub fn config(&self) -> &SoftConfig {
        &self.node.config
    }

    fn shared(&self, pool: P, spec: &WorkerSpec) -> Shared<P> {
        let config = Arc::clone(&self.node.config);
        let slots = usize::from(config.max_qps);
        let cqs = spec.cqs.iter().map(|c| VecDeque::with_capacity(c.depth as usize));
        Shared {
            gids: config.addresses.iter().map(|&ip| ip.into()).collect(),
            pool,
            regions: RegionView::new(Arc::clone(&self.node.regions)),
            srqs: spec.srqs.iter().map(|s| Srq::new(s.depth as usize)).collect(),
            cqs: cqs.collect(),
            events: Events::new(),
            failures_untold: 0,
            ready: Ready::new(slots),
            timers: Timers::new(slots),
            neighbours: Neighbours::new(),
            paths: Vec::with_capacity(config.max_ahs.into()),
            soft: Default::default(),
            counters: Counters::default(),
            solicited: false,
            recorder: (config.recorder_frames > 0)
                .then(|| Recorder::new(config.recorder_frames, slots, spec.max_qps, config.icrc)),
            held: HeldPool::new(config.max_held),
            config,
        }
    }
}

/// Bytes that the longest frame needs.
fn longest_frame(config: &SoftConfig) -> usize {
    config.longest_payload() as usize + HeaderTemplate::MAX_HEADROOM + HeaderTemplate::MAX_TAILROOM
}

fn find(what: &'static str, index: usize, have: usize) -> Result<(), SoftError> {
    if index < have { Ok(()) } else { Err(SoftError::NoQueue { what, index }) }
}

fn depth(what: &'static str, value: u32, least: u64) -> Result<(), SoftError> {
    let most = 1 << 20;
    let fits = (least..=most).contains(&value.into());
    if fits { Ok(()) } else { Err(SoftError::Limit { what, value: value.into(), least, most }) }
}

impl<P: Pool + Send + 'static> Device for SoftDevice<P> {
    type Qp = SoftQp<P::Buf>;
    type Transport = SoftTransport<P>;
    type Error = SoftError;

    fn create_worker(&self, worker: usize, spec: &WorkerSpec) -> Result<SoftTransport<P>, SoftError> {
        let mut workers = self.node.workers();
        let slot = workers.get_mut(worker).ok_or(SoftError::Worker(worker))?;
        let most = self.node.config.max_qps.into();
        if u64::from(spec.max_qps) > most {
            let value = spec.max_qps.into();
            return Err(SoftError::Limit { what: "max_qps of a worker", value, least: 1, most });
        }
        let pool = slot.pool.as_ref().ok_or(SoftError::Worker(worker))?;
        let (room, need) = (pool.buf_room(), longest_frame(&self.node.config));
        if room < need {
            return Err(SoftError::BufferSize { room, need });
        }
        let pool = slot.pool.take().ok_or(SoftError::Worker(worker))?;
        slot.spec = spec.clone();
        drop(workers);
        let shared = self.shared(pool, spec);
        let (layout, paths) = (self.node.numbers.layout(), Arc::clone(&self.node.paths));
        Ok(SoftTransport::new(worker, layout, spec.max_qps, shared, paths))
    }

    fn create_qp(&self, worker: usize, spec: &QpSpec) -> Result<SoftQp<P::Buf>, SoftError> {
        {
            let workers = self.node.workers();
            let slot = workers.get(worker).ok_or(SoftError::Worker(worker))?;
            find("completion queue", spec.cq.into(), slot.spec.cqs.len())?;
            if let Some(srq) = spec.srq {
                find("shared receive queue", srq.0.into(), slot.spec.srqs.len())?;
            }
        }
        depth("send_depth", spec.caps.send_depth, 1)?;
        depth("recv_depth", spec.caps.recv_depth, 0)?;
        let number = self.node.numbers.take(worker)?;
        Ok(SoftQp(Box::new(Qp::new(number, *spec, self.pd))))
    }

    fn qpn(&self, qp: &SoftQp<P::Buf>) -> Qpn {
        qp.0.number.qpn
    }

    fn modify(&self, qp: &mut SoftQp<P::Buf>, change: &Change) -> Result<(), SoftError> {
        qp.0.change(&self.node.config, change)
    }

    fn destroy_qp(&self, qp: SoftQp<P::Buf>) -> Result<(), SoftError> {
        // No hardware holds on to anything: buffers go home with their queues.
        drop(qp);
        Ok(())
    }

    fn register(&self, arena: &Arena, access: Access) -> Result<Region, SoftError> {
        self.node.regions.register(self.pd, arena, access, false)
    }

    fn register_buffers(&self, _arena: &Arena) -> Result<(), SoftError> {
        // The soft transport reads and writes buffers through the buffer contract; it needs no keys.
        Ok(())
    }

    fn create_ah(&self, worker: usize, path: &AddressVector) -> Result<AhId, SoftError> {
        if worker >= self.node.workers().len() {
            return Err(SoftError::Worker(worker));
        }
        self.node.add_path(path)
    }

    fn gid(&self) -> Gid {
        // A node without an address cannot be made.
        self.node.config.addresses[0].into()
    }
}
