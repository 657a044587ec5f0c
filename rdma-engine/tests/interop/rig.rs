//! The common suite's rig between kernel rxe and RoCEv2 of our own, in real time.

use crate::arena_pool::{ArenaBuf, ArenaPool};
use crate::ends::{Either, EndDevice, EndTransport};
use crate::wire::{Judge, Way, Wire};
use rdma_engine::buf::{Egress, NoEgress, Pool};
use rdma_engine::soft::{Event, SoftConfig, SoftDevice, SoftTransport};
use rdma_engine::suite::{A, B, Features, Link, Node, NodeSpec, Nodes, Pair, Rig, Session};
use rdma_engine::transport::{Device, Transport};
use rdma_engine::types::{Pmtu, QpType, Time};
use rdma_engine::verbs::VerbsDevice;
use rdma_engine::wire::{Mac, Vlans};
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Of rxe0's interface, and of the other end of its wire, as `scripts/rxe-vm` makes them.
pub const KERNEL_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub const OWN_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
const KERNEL: [&str; 2] = ["198.18.0.1", "fd00:198:18::1"];
const OWN: [&str; 2] = ["198.18.0.2", "fd00:198:18::2"];
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

/// Runs a command, which must succeed.
pub fn run(command: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    assert!(Command::new(words[0]).args(&words[1..]).status().expect(words[0]).success(), "{command}");
}

/// A case's surroundings with one pair of queue pairs, its link changed.
pub fn connected(
    rig: &mut InteropRig,
    kind: QpType,
    change: impl FnOnce(&mut Link),
) -> (Session<'_, InteropRig>, Pair) {
    let mut s = Session::open(rig);
    let mut link = Link::new(kind, &s.features);
    change(&mut link);
    let pair = s.connect(&link);
    (s, pair)
}

pub fn end(mut s: Session<'_, InteropRig>, pair: &Pair) {
    s.tear_down(pair);
    s.finish();
}

pub struct InteropRig {
    /// Ends that are of the kernel.
    pub kernel: [bool; 2],
    pub kernel_address: IpAddr,
    /// Index of it, once the device is open.
    kernel_gid: u32,
    pub own_address: IpAddr,
    /// Of what the own end sends. What it gets has lost its tag on the way.
    pub vlans: Vlans,
    wire: Wire,
    start: Instant,
    own: Option<SoftDevice<ArenaPool>>,
    /// Where arriving frames are put.
    arriving: ArenaPool,
    outgoing: Vec<ArenaBuf>,
    /// Ends of the kernel whose sends go out with the next `advance`.
    flushed: [bool; 2],
    /// Another pool than the cases ask for.
    pub pool: Option<NodeSpec>,
    pub features: Features,
    /// Fences are left to the kernel.
    pub device_fences: bool,
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
            run(&format!("ip neigh replace {own} lladdr 02:00:00:00:00:02 dev v0 nud permanent"));
        }
        let address = |of: [&str; 2]| of[usize::from(ipv6)].parse().expect("an address");
        let features = Features {
            send_inv: false,
            // rxe moves the queue pair to ERR.
            lossy_overlong: kernel == A,
            // The provider of rxe does not send it.
            misaligned: kernel == B,
            pmtu: Pmtu::B1024,
            soak_ops: 400,
            seed: seed(),
            patience_ns: 20_000_000_000,
            quiet_ns: 30_000_000,
            ..Features::default()
        };
        InteropRig {
            kernel: [kernel == A, kernel == B],
            kernel_address: address(KERNEL),
            kernel_gid: 0,
            own_address: address(OWN),
            vlans: Vlans::NONE,
            wire: Wire::open("v1").expect("the wire"),
            start: Instant::now(),
            own: None,
            arriving: ArenaPool::new(4096, 4400),
            outgoing: vec![],
            flushed: [false; 2],
            pool: None,
            features,
            device_fences: false,
        }
    }

    /// From now on frames fare as `judge` says.
    pub fn judge(&mut self, judge: Judge) {
        self.wire.judge(judge);
    }

    /// Puts a frame on the wire that nobody sent.
    pub fn inject(&mut self, way: Way, frame: Vec<u8>) {
        self.wire.put(way, frame);
    }

    /// A frame for the own end that nobody there has asked for.
    pub fn take_frame(&mut self) -> Option<Vec<u8>> {
        self.wire.receive()
    }

    fn kernel_device(&mut self) -> VerbsDevice<ArenaBuf> {
        let device = VerbsDevice::open("rxe0", 1).expect("rxe0");
        device.keep_fences(!self.device_fences);
        let gids = device.gids().expect("its addresses");
        let gid = gids.iter().find(|entry| entry.gid.ip() == self.kernel_address).expect("the address");
        self.kernel_gid = device.use_gid(gid.index).expect("used").index;
        device
    }

    fn own_device(&self) -> SoftDevice<ArenaPool> {
        let mut config = SoftConfig::new(OWN_MAC, vec![self.own_address]);
        (config.ethernet_mtu, config.vlans) = (4200, self.vlans);
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
        let spec = self.pool.unwrap_or(*spec);
        // What an earlier case left is not for this one.
        self.outgoing.clear();
        self.flushed = [false; 2];
        while self.wire.receive().is_some() {}
        let own = self.own_device();
        self.own = Some(own.clone());
        [A, B].map(|end| {
            let pool = ArenaPool::new(spec.buffers, spec.room);
            let device = if self.kernel[end] {
                Either::Kernel(self.kernel_device())
            } else {
                Either::Own(own.clone())
            };
            device.register_buffers(pool.arena()).expect("registered");
            Node { device, pool }
        })
    }

    fn stranger(&mut self, end: usize) -> Option<EndDevice> {
        if self.kernel[end] {
            return Some(Either::Kernel(self.kernel_device()));
        }
        self.own.as_ref().map(|own| Either::Own(own.with_new_pd()))
    }

    fn sgid_index(&self, end: usize) -> u8 {
        if self.kernel[end] { self.kernel_gid as u8 } else { 0 }
    }

    fn now(&self) -> Time {
        Time(self.start.elapsed().as_nanos() as u64)
    }

    fn flush(&mut self, end: usize, transport: &mut EndTransport) {
        match transport {
            // Nothing is under way before `advance`.
            Either::Kernel(t) => {
                t.flush_receives();
                self.flushed[end] = true;
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
        for (end, transport) in transports.into_iter().enumerate() {
            let now = self.now();
            match transport {
                Either::Kernel(t) => {
                    if std::mem::take(&mut self.flushed[end]) {
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
