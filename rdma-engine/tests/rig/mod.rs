//! The suite's rig for the loopback transport.

use rdma_engine::buf::NoEgress;
use rdma_engine::heap::{HeapBuf, HeapPool};
use rdma_engine::loopback::{Hub, LoopTransport, Loopback};
use rdma_engine::suite::{Features, Node, NodeSpec, Nodes, Rig};
use rdma_engine::transport::{Device, Transport};
use rdma_engine::types::{Gid, Pmtu, Time};

/// Two nodes of one hub, on virtual time.
#[derive(Default)]
pub(crate) struct LoopRig {
    now: Time,
    turns: u64,
    hub: Hub<HeapBuf>,
    gids: Vec<Gid>,
}

impl Rig for LoopRig {
    type Buf = HeapBuf;
    type Pool = HeapPool;
    type Transport = LoopTransport<HeapBuf>;
    type Device = Loopback<HeapBuf>;

    fn features(&self) -> Features {
        if cfg!(miri) {
            let (pmtu, soak_ops) = (Pmtu::B256, 40);
            Features { pmtu, max_message: 1200, soak_ops, quiet_ns: 10_000, ..Features::default() }
        } else {
            Features::default()
        }
    }

    fn open(&mut self, spec: &NodeSpec) -> Nodes<Self> {
        let node = || Node { device: self.hub.device(), pool: HeapPool::new(spec.buffers, spec.room) };
        let nodes = [node(), node()];
        self.gids = nodes.iter().map(|n| n.device.gid()).collect();
        nodes
    }

    fn stranger(&mut self, end: usize) -> Option<Loopback<HeapBuf>> {
        Some(self.hub.device_at(self.gids[end]))
    }

    fn now(&self) -> Time {
        self.now
    }

    fn flush(&mut self, _end: usize, transport: &mut LoopTransport<HeapBuf>) {
        transport.flush(self.now, &mut NoEgress);
    }

    fn advance(&mut self, transports: [&mut LoopTransport<HeapBuf>; 2]) {
        self.turns += 1;
        self.now = self.now.after_ns(1000);
        let timer = transports.iter().map(|t| t.next_timer()).min().unwrap_or(Time::NEVER);
        if self.turns.is_multiple_of(4) && timer != Time::NEVER {
            self.now = self.now.max(timer);
        }
    }
}
