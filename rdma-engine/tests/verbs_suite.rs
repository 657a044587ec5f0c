//! The common suite on the verbs transport: two RDMA devices that reach each other, as the guest has.
//!
//! Where there are not two the test says SKIPPED. `tests/guest/verbs.sh` runs this binary in the guest; the environment
//! variable `SUITE` selects cases by a part of their name.
#![cfg(feature = "verbs")]

#[allow(unreachable_pub)]
mod arena_pool;

use arena_pool::{ArenaBuf, ArenaPool};
use rdma_engine::buf::{NoEgress, Pool};
use rdma_engine::suite::{self, Case, Features, Node, NodeSpec, Nodes, Rig};
use rdma_engine::transport::{Device, Transport};
use rdma_engine::types::{Pmtu, Time};
use rdma_engine::verbs::{Verbs, VerbsDevice, devices};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// The first two devices, in real time.
struct VerbsRig {
    names: [String; 2],
    start: Instant,
    foreign: ArenaPool,
    /// GID indices of the ends.
    sgid: [u8; 2],
    /// Ends whose sends go out with the next `advance`.
    flushed: [bool; 2],
}

impl VerbsRig {
    fn open_device(&self, end: usize) -> VerbsDevice<ArenaBuf> {
        VerbsDevice::open(&self.names[end], 1).expect("the device opens")
    }

    fn is_rxe(&self) -> bool {
        self.names.iter().all(|n| n.starts_with("rxe"))
    }
}

impl Rig for VerbsRig {
    type Buf = ArenaBuf;
    type Pool = ArenaPool;
    type Transport = Verbs<ArenaBuf>;
    type Device = VerbsDevice<ArenaBuf>;

    fn features(&self) -> Features {
        Features {
            // Regions are ordinary MRs.
            send_inv: false,
            // rxe moves the queue pair to ERR.
            lossy_overlong: !self.is_rxe(),
            misaligned: !self.is_rxe(),
            registration: true,
            pmtu: Pmtu::B1024,
            patience_ns: 20_000_000_000,
            quiet_ns: 50_000_000,
            ..Features::default()
        }
    }

    fn open(&mut self, spec: &NodeSpec) -> Nodes<Self> {
        let nodes = [0, 1].map(|end| {
            let (device, pool) = (self.open_device(end), ArenaPool::new(spec.buffers, spec.room));
            device.register_buffers(pool.arena()).expect("registered");
            Node { device, pool }
        });
        self.sgid = [0, 1].map(|end: usize| nodes[end].device.gid_index() as u8);
        nodes
    }

    fn stranger(&mut self, end: usize) -> Option<VerbsDevice<ArenaBuf>> {
        Some(self.open_device(end))
    }

    fn unregistered(&mut self, _end: usize) -> Option<ArenaBuf> {
        self.foreign.alloc()
    }

    fn sgid_index(&self, end: usize) -> u8 {
        self.sgid[end]
    }

    fn now(&self) -> Time {
        Time(self.start.elapsed().as_nanos() as u64)
    }

    fn flush(&mut self, end: usize, transport: &mut Verbs<ArenaBuf>) {
        // Nothing is under way before `advance`: without this, what one end sends would be there before the other end's
        // receives are, and unreliable messages would be lost.
        transport.flush_receives();
        self.flushed[end] = true;
    }

    fn advance(&mut self, transports: [&mut Verbs<ArenaBuf>; 2]) {
        let now = self.now();
        for (transport, flushed) in transports.into_iter().zip(&mut self.flushed) {
            if std::mem::take(flushed) {
                transport.flush(now, &mut NoEgress);
            }
        }
        std::thread::yield_now();
    }
}

#[test]
fn the_suite_passes_on_verbs() {
    let found = devices().unwrap_or_default();
    let [a, b, ..] = &found[..] else {
        let line = b"SKIPPED the_suite_passes_on_verbs: needs two RDMA devices that reach each other\n";
        let _ = std::io::stderr().write_all(line);
        return;
    };
    let mut rig = VerbsRig {
        names: [a.name.clone(), b.name.clone()],
        start: Instant::now(),
        foreign: ArenaPool::new(8, 256),
        sgid: [0; 2],
        flushed: [false; 2],
    };
    let filter = std::env::var("SUITE").unwrap_or_default();
    let cases: Vec<_> = Case::<VerbsRig>::all().into_iter().filter(|c| c.name.contains(&filter)).collect();
    assert!(!cases.is_empty(), "no case is named {filter}");
    // A case that fails does not keep the others from running.
    let run = |c: &Case<VerbsRig>| {
        catch_unwind(AssertUnwindSafe(|| suite::run_case(&mut rig, c.name))).err().map(|_| c.name)
    };
    let failed: Vec<_> = cases.iter().filter_map(run).collect();
    assert!(failed.is_empty(), "{} of {} cases failed: {failed:?}", failed.len(), cases.len());
}
