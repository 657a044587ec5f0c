//! The control thread's side of the verbs transport.

use super::ah::AhTable;
use super::context::Context;
use super::cq::{Channel, Cq};
use super::error::VerbsError;
use super::event::{AsyncEvent, Owner};
use super::gid;
use super::mr::Registration;
use super::pd::Pd;
use super::qp::{Place, Qp};
use super::report::{DeviceReport, LinkLayer};
use super::srq::Srq;
use super::transport::{Parts, SEGMENTS_MOST, Verbs};
use crate::buf::Buf;
use crate::cm::gid::{GidEntry, GidKind};
use crate::mem::{Access, Arena, KeyTable, Region};
use crate::qp::{AddressVector, Change, QpSpec, RtrAttr, RtsAttr};
use crate::transport::{Device, WorkerSpec};
use crate::types::{Gid, Pmtu, QpType, Qpn};
use crate::wr::{AhId, SrqId};
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A port of an open device with a protection domain: makes queue pairs and regions for all workers.
#[derive(Debug)]
pub struct VerbsDevice<B: Buf> {
    /// Workers whose transport lives; the transport owns the queues.
    workers: Mutex<BTreeMap<usize, Weak<WorkerQueues<B>>>>,
    buffers: Mutex<Buffers>,
    gid: Mutex<GidEntry>,
    port: u8,
    pd: Arc<Pd>,
}

/// Memory that posted buffers come from.
#[derive(Debug, Default)]
struct Buffers {
    keys: KeyTable,
    registrations: Vec<Registration>,
}

/// The queues of a worker that queue pairs are made on. The worker replaces them when they fail.
#[derive(Debug)]
pub(super) struct WorkerQueues<B> {
    pub(super) worker: u16,
    pub(super) ahs: Arc<AhTable>,
    cqs: Mutex<Vec<Arc<Cq>>>,
    srqs: Mutex<Vec<Arc<Srq<B>>>>,
}

/// A poisoned lock guards plain lists here: they are whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<B> WorkerQueues<B> {
    pub(super) fn all(&self) -> (Vec<Arc<Cq>>, Vec<Arc<Srq<B>>>) {
        (lock(&self.cqs).clone(), lock(&self.srqs).clone())
    }

    pub(super) fn replace_cq(&self, at: usize, with: &Arc<Cq>) {
        lock(&self.cqs)[at] = Arc::clone(with);
    }

    pub(super) fn replace_srq(&self, at: usize, with: &Arc<Srq<B>>) {
        lock(&self.srqs)[at] = Arc::clone(with);
    }

    fn pick<T>(
        &self,
        what: &'static str,
        list: &Mutex<Vec<Arc<T>>>,
        at: usize,
    ) -> Result<Arc<T>, VerbsError> {
        let list = lock(list);
        list.get(at).cloned().ok_or(VerbsError::UnknownQueue {
            worker: self.worker.into(),
            what,
            index: at,
            have: list.len(),
        })
    }
}

impl<B: Buf> VerbsDevice<B> {
    /// Opens port `port` (from 1) of the device `name`, with a protection domain of its own.
    pub fn open(name: &str, port: u8) -> Result<Self, VerbsError> {
        let context = Arc::new(Context::open(name)?);
        let attr = context.port(port)?;
        if LinkLayer::new(attr.link_layer) == LinkLayer::InfiniBand {
            return Err(VerbsError::LinkLayer { device: context.name.clone(), port });
        }
        Self::on(context, port)
    }

    /// The same port with another protection domain: its regions, queue pairs and workers have nothing to do with those
    /// of this one, as for another tenant.
    pub fn another_domain(&self) -> Result<Self, VerbsError> {
        Self::on(Arc::clone(&self.pd.context), self.port)
    }

    fn on(context: Arc<Context>, port: u8) -> Result<Self, VerbsError> {
        let table = gid::table(&context, port)?;
        let Some(gid) = first_choice(&table) else {
            let known = gid::in_words(&table);
            return Err(VerbsError::NoGid { device: context.name.clone(), port, index: 0, known });
        };
        Ok(VerbsDevice {
            workers: Mutex::default(),
            buffers: Mutex::default(),
            gid: Mutex::new(gid.clone()),
            port,
            pd: Pd::alloc(context)?,
        })
    }

    /// Whether fenced requests of queue pairs made from now on wait here for the READs and atomics before them, as they do on
    /// soft-RoCE unless this says otherwise, or are left to the device.
    pub fn keep_fences(&self, here: bool) {
        self.pd.context.software_fences.store(here, Ordering::Relaxed);
    }

    /// Name of the device.
    pub fn name(&self) -> &str {
        &self.pd.context.name
    }

    /// Number of the port.
    pub fn port(&self) -> u8 {
        self.port
    }

    /// Number of the protection domain, as events name it.
    pub fn domain(&self) -> u16 {
        self.pd.domain
    }

    /// The device as it is now, with all its ports.
    pub fn report(&self) -> Result<DeviceReport, VerbsError> {
        self.pd.context.report()
    }

    /// The GID table of the port as it is now.
    pub fn gids(&self) -> Result<Vec<GidEntry>, VerbsError> {
        gid::table(&self.pd.context, self.port)
    }

    /// Makes entry `index` of the GID table the local address; paths to peers should use the same index.
    pub fn use_gid(&self, index: u32) -> Result<GidEntry, VerbsError> {
        match gid::entry(&self.pd.context, self.port, index) {
            Some(entry) => {
                *lock(&self.gid) = entry.clone();
                Ok(entry)
            }
            None => {
                let known = gid::in_words(&self.gids()?);
                Err(VerbsError::NoGid { device: self.name().to_string(), port: self.port, index, known })
            }
        }
    }

    /// Index of the local address in the GID table.
    pub fn gid_index(&self) -> u32 {
        lock(&self.gid).index
    }

    /// The path MTU of the port now.
    pub fn active_mtu(&self) -> Result<Pmtu, VerbsError> {
        let attr = self.pd.context.port(self.port)?;
        Ok(Pmtu::from_code(attr.active_mtu as u8).unwrap_or(Pmtu::B256))
    }

    /// Takes the next asynchronous event; `None` when there is none. Events of all protection domains of the open
    /// device come out here.
    pub fn poll_async(&self) -> Option<AsyncEvent> {
        AsyncEvent::take(&self.pd.context)
    }

    /// The descriptor that turns readable with asynchronous events; level-triggered.
    pub fn async_fd(&self) -> RawFd {
        self.pd.context.async_fd()
    }

    /// Asks for [`AsyncEvent::SrqLimit`] once, when fewer than `limit` receives are left.
    pub fn arm_srq_limit(&self, worker: usize, srq: SrqId, limit: u32) -> Result<(), VerbsError> {
        let queues = self.queues(worker)?;
        queues.pick("shared receive queue", &queues.srqs, srq.0.into())?.arm_limit(limit)
    }

    /// Buffers of this device given up because it did not let go of them.
    pub fn leaked(&self) -> u64 {
        self.pd.context.leaked.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn queues(&self, worker: usize) -> Result<Arc<WorkerQueues<B>>, VerbsError> {
        let found = lock(&self.workers).get(&worker).and_then(Weak::upgrade);
        found.ok_or(VerbsError::UnknownWorker { worker })
    }

    fn create_queues(
        &self,
        worker: u16,
        spec: &WorkerSpec,
        channel: Option<&Arc<Channel>>,
    ) -> Result<WorkerQueues<B>, VerbsError> {
        let owner = |at: usize| Owner { domain: self.pd.domain, worker, index: at as u16 };
        let cqs = spec.cqs.iter().enumerate();
        let cqs: Result<Vec<_>, _> =
            cqs.map(|(at, c)| Cq::create(&self.pd.context, *c, channel, owner(at))).collect();
        let srqs = spec.srqs.iter().enumerate();
        let srqs: Result<Vec<_>, _> = srqs.map(|(at, s)| Srq::create(&self.pd, *s, owner(at))).collect();
        Ok(WorkerQueues {
            worker,
            ahs: Arc::new(AhTable::new(&self.pd, self.port)),
            cqs: Mutex::new(cqs?),
            srqs: Mutex::new(srqs?),
        })
    }

    /// Bytes of the longest message: a datagram is one packet.
    fn max_message(&self, kind: QpType) -> Result<u32, VerbsError> {
        match kind {
            QpType::Ud => Ok(self.active_mtu()?.bytes()),
            _ => Ok(self.pd.context.port(self.port)?.max_msg_sz),
        }
    }

    fn check_rtr(&self, qp: &Qp<B>, rtr: &RtrAttr) -> Result<(), VerbsError> {
        if qp.kind == QpType::Ud {
            return Ok(());
        }
        let active = self.active_mtu()?;
        if rtr.pmtu > active {
            return Err(VerbsError::PathMtu { asked: rtr.pmtu, active });
        }
        let context = &self.pd.context;
        let most = context.limits.dest_rd_atomic.into();
        context.within("max_dest_rd_atomic", rtr.max_dest_rd_atomic.into(), most)?;
        context.within("min_rnr_timer", rtr.min_rnr_timer.into(), 31)
    }

    fn check_rts(&self, qp: &Qp<B>, rts: &RtsAttr) -> Result<(), VerbsError> {
        if qp.kind != QpType::Rc {
            return Ok(());
        }
        let context = &self.pd.context;
        context.within("max_rd_atomic", rts.max_rd_atomic.into(), context.limits.rd_atomic.into())?;
        context.within("timeout", rts.timeout.into(), 31)?;
        context.within("retry_cnt", rts.retry_cnt.into(), 7)?;
        context.within("rnr_retry", rts.rnr_retry.into(), 7)
    }
}

/// Until someone chooses: the first RoCEv2 address that leaves its link, else the first of all.
fn first_choice(table: &[GidEntry]) -> Option<&GidEntry> {
    let routable = |e: &&GidEntry| e.kind == GidKind::RoceV2 && !e.gid.is_link_local();
    table.iter().find(routable).or_else(|| table.first())
}

impl<B: Buf> Device for VerbsDevice<B> {
    type Qp = Qp<B>;
    type Transport = Verbs<B>;
    type Error = VerbsError;

    fn create_worker(&self, worker: usize, spec: &WorkerSpec) -> Result<Verbs<B>, VerbsError> {
        let context = &self.pd.context;
        context.within("worker index", worker as u64, u16::MAX.into())?;
        context.within("queue pairs of a worker", spec.max_qps.into(), context.limits.qps.into())?;
        for srq in &spec.srqs {
            context.within("segments of a shared receive", srq.sge.into(), SEGMENTS_MOST as u64)?;
        }
        let mut workers = lock(&self.workers);
        if workers.get(&worker).is_some_and(|w| w.strong_count() > 0) {
            return Err(VerbsError::WorkerExists { worker });
        }
        let events = spec.cqs.iter().any(|c| c.events);
        let channel = if events { Some(Channel::create(context)?) } else { None };
        let queues = Arc::new(self.create_queues(worker as u16, spec, channel.as_ref())?);
        workers.insert(worker, Arc::downgrade(&queues));
        let keys = lock(&self.buffers).keys.clone();
        Ok(Verbs::new(Parts { pd: Arc::clone(&self.pd), queues, channel, keys, max_qps: spec.max_qps }))
    }

    fn create_qp(&self, worker: usize, spec: &QpSpec) -> Result<Qp<B>, VerbsError> {
        let queues = self.queues(worker)?;
        let cq = queues.pick("completion queue", &queues.cqs, spec.cq.into())?;
        let pick = |srq: SrqId| queues.pick("shared receive queue", &queues.srqs, srq.0.into());
        let srq = spec.srq.map(pick).transpose()?;
        let owner = Owner { domain: self.pd.domain, worker: queues.worker, index: 0 };
        let max_message = self.max_message(spec.kind)?;
        Qp::create(spec, Place { pd: Arc::clone(&self.pd), cq, srq, owner, max_message })
    }

    fn qpn(&self, qp: &Qp<B>) -> Qpn {
        qp.qpn()
    }

    fn modify(&self, qp: &mut Qp<B>, change: &Change) -> Result<(), VerbsError> {
        match change {
            Change::Rtr(rtr) => self.check_rtr(qp, rtr)?,
            Change::Rts(rts) => self.check_rts(qp, rts)?,
            _ => {}
        }
        qp.change(self.port, change)
    }

    fn destroy_qp(&self, mut qp: Qp<B>) -> Result<(), VerbsError> {
        // Told first, so that a peer's packets in the meantime touch nothing.
        qp.fail();
        qp.destroy()
    }

    fn register(&self, arena: &Arena, access: Access) -> Result<Region, VerbsError> {
        let registration = Registration::new(&self.pd, arena, access)?;
        let (lkey, rkey) = (registration.lkey, registration.rkey);
        Ok(Region::new(arena.clone(), access, lkey, rkey, Arc::new(registration)))
    }

    fn register_buffers(&self, arena: &Arena) -> Result<(), VerbsError> {
        let registration = Registration::new(&self.pd, arena, Access::LOCAL_WRITE)?;
        let window = arena.window();
        let mut buffers = lock(&self.buffers);
        if !buffers.keys.insert(window.addr() as usize, window.len(), registration.lkey) {
            return Err(VerbsError::Overlap { start: window.addr(), len: window.len() });
        }
        buffers.registrations.push(registration);
        Ok(())
    }

    fn create_ah(&self, worker: usize, path: &AddressVector) -> Result<AhId, VerbsError> {
        self.queues(worker)?.ahs.create(path)
    }

    fn gid(&self) -> Gid {
        lock(&self.gid).gid
    }
}
