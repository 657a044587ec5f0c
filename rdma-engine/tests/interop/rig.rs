//! The common suite's rig between kernel rxe and RoCEv2 of our own, in real time.

use crate::arena_pool::{ArenaBuf, ArenaPool};
use crate::ends::{Either, EndDevice, EndTransport};
use crate::wire::{Judge, Wire};
use rdma_engine::buf::{Egress, NoEgress, Pool};
use rdma_engine::soft::{Event, SoftConfig, SoftDevice, SoftTransport};
use rdma_engine::suite::{A, B, Features, Node, NodeSpec, Nodes, Rig};
use rdma_engine::transport::{Device, Transport};
use rdma_engine::types::{Pmtu, Time};
use rdma_engine::verbs::VerbsDevice;
use rdma_engine::wire::Mac;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Of rxe0's interface, and of the other end of its wire, as `scripts/rxe-vm` makes them.
const KERNEL_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OWN_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
const OWN: [&str; 2] = ["198.18.0.2", "fd00:198:18::2"];
/// GID indices of rxe0.
const GIDS: [u32; 2] = [1, 2];
/// Frames of one flush, and those taken in one turn.
const BURST: usize = 64;

/// What is chosen at random follows from it.
pub fn seed() -> u64 {
    std::env::var("ISTHMUS_INTEROP_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// A line that is shown although the test passes.
pub fn say(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

pub struct InteropRig {
    /// The end that is of the kernel.
    kernel: usize,
    ipv6: bool,
    wire: Wire,
    start: Instant,
    own: Option<SoftDevice<ArenaPool>>,
    /// Where arriving frames are put.
    arriving: ArenaPool,
    outgoing: Vec<ArenaBuf>,
    /// The kernel's sends go out with the next `advance`.
    kernel_flushed: bool,
    /// Another pool than the cases ask for.
    pub pool: Option<NodeSpec>,
    pub features: Features,
}

/// A rig, or `None` outside of the guest after saying so.
pub fn rig(test: &str, kernel: usize, ipv6: bool) -> Option<InteropRig> {
    let device = |name: &str| Path::new("/sys/class/infiniband").join(name).exists();
    if std::env::var_os("IN_RXE_VM").is_none() || !device("rxe0") || device("rxe1") {
        say(&format!(
            "SKIPPED {test}: needs the guest's soft-RoCE device with a free wire, see scripts/rxe-vm"
        ));
        return None;
    }
    Some(InteropRig::new(kernel, ipv6))
}

impl InteropRig {
    fn new(kernel: usize, ipv6: bool) -> Self {
        // Nobody answers for the address while no frame is taken.
        for own in OWN {
            let words =
                ["neigh", "replace", own, "lladdr", "02:00:00:00:00:02", "dev", "v0", "nud", "permanent"];
            assert!(Command::new("ip").args(words).status().expect("ip").success());
        }
        let features = Features {
            send_inv: false,
            // rxe moves the queue pair to ERR.
            lossy_overlong: kernel == A,
            // The provider of rxe does not send it.
            misaligned: kernel == B,
            fenced_retries: [kernel != A, kernel != B],
            pmtu: Pmtu::B1024,
            soak_ops: 400,
            seed: seed(),
            patience_ns: 20_000_000_000,
            quiet_ns: 30_000_000,
            ..Features::default()
        };
        InteropRig {
            kernel,
            ipv6,
            wire: Wire::open("v1").expect("the wire"),
            start: Instant::now(),
            own: None,
            arriving: ArenaPool::new(4096, 4400),
            outgoing: vec![],
            kernel_flushed: false,
            pool: None,
            features,
        }
    }

    /// From now on frames fare as `judge` says.
    pub fn judge(&mut self, judge: Judge) {
        self.wire.judge(judge);
    }

    fn kernel_device(&self) -> VerbsDevice<ArenaBuf> {
        let device = VerbsDevice::open("rxe0", 1).expect("rxe0");
        device.use_gid(GIDS[usize::from(self.ipv6)]).expect("its address");
        device
    }

    fn own_device(&self) -> SoftDevice<ArenaPool> {
        let address: IpAddr = OWN[usize::from(self.ipv6)].parse().expect("an address");
        let mut config = SoftConfig::new(OWN_MAC, vec![address]);
        config.ethernet_mtu = 4200;
        (config.max_qps, config.max_regions, config.max_ahs) = (64, 64, 64);
        // A second worker: cases let the first one go and put another in its place.
        SoftDevice::new(config, vec![ArenaPool::new(2048, 4400), ArenaPool::new(256, 4400)])
            .expect("a device")
    }

    fn answer_events(transport: &mut SoftTransport<ArenaPool>) {
        while let Some(event) = transport.poll_event() {
            if let Event::NeedsNeighbour(ip) = event {
                transport.set_neighbour(ip, KERNEL_MAC);
            }
        }
    }
}

/// Takes the frames of one flush.
struct Outbox<'a>(&'a mut Vec<ArenaBuf>);

impl Egress<ArenaBuf> for Outbox<'_> {
    fn push(&mut self, frame: ArenaBuf) -> Result<(), ArenaBuf> {
        if self.room() == 0 {
            return Err(frame);
        }
        self.0.push(frame);
        Ok(())
    }

    fn room(&self) -> usize {
        BURST - self.0.len().min(BURST)
    }
}

impl Rig for InteropRig {
    type Buf = ArenaBuf;
    type Pool = ArenaPool;
    type Transport = EndTransport;
    type Device = EndDevice;

    fn features(&self) -> Features {
        self.features
    }

    fn open(&mut self, spec: &NodeSpec) -> Nodes<Self> {
        let spec = self.pool.as_ref().unwrap_or(spec);
        // What an earlier case left is not for this one.
        self.outgoing.clear();
        self.kernel_flushed = false;
        while self.wire.receive().is_some() {}
        let own = self.own_device();
        self.own = Some(own.clone());
        [A, B].map(|end| {
            let pool = ArenaPool::new(spec.buffers, spec.room);
            let device = if end == self.kernel {
                Either::Kernel(self.kernel_device())
            } else {
                Either::Own(own.clone())
            };
            device.register_buffers(pool.arena()).expect("registered");
            Node { device, pool }
        })
    }

    fn stranger(&mut self, end: usize) -> Option<EndDevice> {
        if end == self.kernel {
            return Some(Either::Kernel(self.kernel_device()));
        }
        self.own.as_ref().map(|own| Either::Own(own.with_new_pd()))
    }

    fn sgid_index(&self, end: usize) -> u8 {
        if end == self.kernel { GIDS[usize::from(self.ipv6)] as u8 } else { 0 }
    }

    fn now(&self) -> Time {
        Time(self.start.elapsed().as_nanos() as u64)
    }

    fn flush(&mut self, _end: usize, transport: &mut EndTransport) {
        match transport {
            // Nothing is under way before `advance`.
            Either::Kernel(t) => {
                t.flush_receives();
                self.kernel_flushed = true;
            }
            Either::Own(t) => {
                let now = Time(self.start.elapsed().as_nanos() as u64);
                t.flush(now, &mut Outbox(&mut self.outgoing));
                Self::answer_events(t);
            }
        }
    }

    fn advance(&mut self, transports: [&mut EndTransport; 2]) {
        for frame in self.outgoing.drain(..) {
            self.wire.send(frame.to_vec());
        }
        for transport in transports {
            let now = self.now();
            match transport {
                Either::Kernel(t) => {
                    if std::mem::take(&mut self.kernel_flushed) {
                        t.flush(now, &mut NoEgress);
                    }
                }
                Either::Own(t) => {
                    for _ in 0..BURST {
                        let Some(bytes) = self.wire.receive() else { break };
                        if self.arriving.available() > 0 {
                            t.ingress(now, self.arriving.with(&bytes));
                        }
                    }
                }
            }
        }
        std::thread::yield_now();
    }

    fn close(&mut self) {
        self.own = None;
        self.outgoing.clear();
    }
}
