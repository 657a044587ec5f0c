//! What the workers of a node share with its control thread.

use super::config::{SoftConfig, SoftError};
use super::number::{Layout, Numbers};
use super::path::Path;
use super::random::Random;
use super::region::RegionTable;
use crate::qp::AddressVector;
use crate::transport::WorkerSpec;
use crate::types::Qpn;
use crate::wr::AhId;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Paths of datagrams. They are only ever added; workers copy what is new.
#[derive(Debug)]
pub(crate) struct PathTable {
    paths: Mutex<Vec<Path>>,
    len: AtomicUsize,
    most: u16,
}

impl PathTable {
    fn new(most: u16) -> Self {
        PathTable { paths: Mutex::new(Vec::with_capacity(most.into())), len: AtomicUsize::new(0), most }
    }

    fn insert(&self, path: Path) -> Result<AhId, SoftError> {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        if paths.len() >= usize::from(self.most) {
            return Err(SoftError::TooManyAhs(self.most));
        }
        paths.push(path);
        self.len.store(paths.len(), Ordering::Release);
        Ok(AhId((paths.len() - 1) as u16))
    }

    /// Appends to `copy` what it lacks, each path after `prepare`.
    #[inline]
    pub(crate) fn copy_new(&self, copy: &mut Vec<Path>, prepare: impl Fn(&mut Path)) {
        if self.len.load(Ordering::Acquire) > copy.len() {
            self.copy(copy, prepare);
        }
    }

    #[cold]
    fn copy(&self, copy: &mut Vec<Path>, prepare: impl Fn(&mut Path)) {
        let paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        for path in &paths[copy.len()..] {
            let mut path = path.clone();
            prepare(&mut path);
            copy.push(path);
        }
    }
}

/// Largest payload that may be agreed on, in bytes.
const MAX_JUMBO: u32 = 16_384;

/// A worker before and after its transport was made.
#[derive(Debug)]
pub(crate) struct WorkerSlot<P> {
    /// Until the transport takes it.
    pub(crate) pool: Option<P>,
    /// What its queue pairs may refer to.
    pub(crate) spec: WorkerSpec,
}

/// The node.
#[derive(Debug)]
pub(crate) struct Node<P> {
    pub(crate) config: Arc<SoftConfig>,
    pub(crate) numbers: Arc<Numbers>,
    pub(crate) regions: Arc<RegionTable>,
    pub(crate) paths: Arc<PathTable>,
    workers: Mutex<Vec<WorkerSlot<P>>>,
}

impl<P> Node<P> {
    /// A node whose worker `n` allocates from the `n`-th of `pools`.
    pub(crate) fn new(config: SoftConfig, pools: Vec<P>) -> Result<Self, SoftError> {
        if config.addresses.is_empty() {
            return Err(SoftError::NoAddress);
        }
        config.port_pmtu().ok_or(SoftError::EthernetMtu(config.ethernet_mtu))?;
        // As for the path MTU, 80 bytes are left to headers.
        let most = config.ethernet_mtu.saturating_sub(80).min(MAX_JUMBO) / 4 * 4;
        if config.jumbo_payload > most {
            let (value, most) = (config.jumbo_payload.into(), most.into());
            return Err(SoftError::Limit { what: "jumbo_payload", value, least: 0, most });
        }
        let layout = Layout::new(pools.len(), config.max_qps).filter(|_| config.max_qps < u16::MAX);
        let most = (1 << 20) / pools.len().max(1).next_power_of_two() as u64;
        let layout = layout.ok_or(SoftError::Limit {
            what: "max_qps",
            value: config.max_qps.into(),
            least: 1,
            most: most.min(65_534),
        })?;
        let random = |salt| Random::new(config.entropy.salted(salt));
        let numbers = Numbers::new(layout, pools.len(), config.max_qps, random(1));
        let regions = RegionTable::new(config.max_regions, random(2));
        let slot = |pool| WorkerSlot { pool: Some(pool), spec: WorkerSpec::default() };
        Ok(Node {
            numbers: Arc::new(numbers),
            regions: Arc::new(regions),
            paths: Arc::new(PathTable::new(config.max_ahs)),
            workers: Mutex::new(pools.into_iter().map(slot).collect()),
            config: Arc::new(config),
        })
    }

    pub(crate) fn workers(&self) -> MutexGuard<'_, Vec<WorkerSlot<P>>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_path(&self, av: &AddressVector) -> Result<AhId, SoftError> {
        self.paths.insert(Path::new(&self.config, av, Qpn::GSI)?)
    }
}
