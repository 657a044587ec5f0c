//! The common suite's rig for the soft transport: two endpoints and a perfect network on virtual time.

use super::network::{Faults, Network};
use super::trace::Trace;
use crate::buf::{Buf, Egress, Pool};
use crate::heap::{HeapBuf, HeapPool};
use crate::soft::{Entropy, Event, SoftConfig, SoftDevice, SoftTransport};
use crate::suite::{Features, Node, NodeSpec, Nodes, Rig};
use crate::transport::Transport;
use crate::types::Time;
use crate::wire::Mac;
use std::net::IpAddr;

/// Frames of one flush.
const BURST: usize = 64;

/// Takes the frames of one flush.
#[derive(Debug)]
pub struct Outbox {
    /// The frames.
    pub frames: Vec<HeapBuf>,
    /// Most of them.
    pub most: usize,
}

impl Outbox {
    /// For so many frames.
    pub fn new(most: usize) -> Self {
        Outbox { frames: Vec::new(), most }
    }
}

impl Egress<HeapBuf> for Outbox {
    fn push(&mut self, frame: HeapBuf) -> Result<(), HeapBuf> {
        if self.room() == 0 {
            return Err(frame);
        }
        self.frames.push(frame);
        Ok(())
    }

    fn room(&self) -> usize {
        self.most - self.frames.len()
    }
}

/// MAC address of an end.
pub fn mac(end: usize) -> Mac {
    Mac([0x52, 0x54, 0, 0, 0, 1 + end as u8])
}

/// A frame's bytes in a buffer of `pool`; `None` if the pool is dry.
pub fn frame_from(pool: &HeapPool, bytes: &[u8]) -> Option<HeapBuf> {
    let mut frame = pool.alloc()?;
    frame.append(bytes.len())?.copy_from_slice(bytes);
    Some(frame)
}

/// Two soft endpoints with a network between them.
#[derive(Debug)]
pub struct SoftRig {
    network: Network,
    now: Time,
    ipv6: bool,
    ports: Vec<Port>,
}

#[derive(Debug)]
struct Port {
    device: SoftDevice<HeapPool>,
    /// Where arriving frames are put.
    receive: HeapPool,
}

impl SoftRig {
    /// Over IPv4 or IPv6.
    pub fn new(ipv6: bool) -> Self {
        SoftRig { network: fresh_network(), now: Time(0), ipv6, ports: vec![] }
    }

    fn ip(&self, end: usize) -> IpAddr {
        let text = if self.ipv6 { ["fd00:9::1", "fd00:9::2"] } else { ["10.9.0.1", "10.9.0.2"] };
        text[end].parse().expect("an address")
    }

    fn port(&self, end: usize) -> Port {
        let mut config = SoftConfig::new(mac(end), vec![self.ip(end)]);
        config.ethernet_mtu = 4200;
        config.max_qps = 64;
        config.max_regions = 64;
        config.max_ahs = 64;
        config.copybreak = 100;
        config.entropy = Entropy::Seed(7 + end as u64);
        // A second worker: cases let the first one go and put another in its place.
        let pools = vec![HeapPool::new(4096, 4400), HeapPool::new(4096, 4400)];
        let device = SoftDevice::new(config, pools).expect("a device");
        Port { device, receive: HeapPool::new(8192, 4400) }
    }

    fn answer_events(&mut self, end: usize, transport: &mut SoftTransport<HeapPool>) {
        while let Some(event) = transport.poll_event() {
            if let Event::NeedsNeighbour(ip) = event {
                let peer = (0..2).find(|e| self.ip(*e) == ip).unwrap_or(end);
                transport.set_neighbour(ip, mac(peer));
            }
        }
    }
}

fn fresh_network() -> Network {
    Network::new([Faults::none(1000), Faults::none(1000)], 0)
}

impl Rig for SoftRig {
    type Buf = HeapBuf;
    type Pool = HeapPool;
    type Transport = SoftTransport<HeapPool>;
    type Device = SoftDevice<HeapPool>;

    fn features(&self) -> Features {
        Features {
            send_inv: false,
            max_rd_atomic: 16,
            max_message: 8192,
            patience_ns: 60_000_000_000,
            ..Features::default()
        }
    }

    fn open(&mut self, spec: &NodeSpec) -> Nodes<Self> {
        self.network = fresh_network();
        self.ports = (0..2).map(|end| self.port(end)).collect();
        [0, 1].map(|end| Node {
            device: self.ports[end].device.clone(),
            pool: HeapPool::new(spec.buffers, spec.room),
        })
    }

    fn stranger(&mut self, end: usize) -> Option<SoftDevice<HeapPool>> {
        Some(self.ports[end].device.with_new_pd())
    }

    fn now(&self) -> Time {
        self.now
    }

    fn flush(&mut self, end: usize, transport: &mut SoftTransport<HeapPool>) {
        let mut outbox = Outbox::new(BURST);
        transport.flush(self.now, &mut outbox);
        self.answer_events(end, transport);
        for frame in outbox.frames {
            self.network.send(self.now, end, frame.to_vec(), &mut Trace::default());
        }
    }

    fn advance(&mut self, transports: [&mut SoftTransport<HeapPool>; 2]) {
        let timers = transports.iter().map(|t| t.next_timer()).min().unwrap_or(Time::NEVER);
        let next = timers.min(self.network.next_arrival());
        // Cases that wait for nothing to happen need time to pass in small steps.
        let soon = self.now.after_ns(1);
        self.now = if next == Time::NEVER { self.now.after_ns(1000) } else { next.max(soon) };
        while let Some((end, bytes)) = self.network.receive(self.now) {
            if let Some(frame) = frame_from(&self.ports[end].receive, &bytes) {
                transports[end].ingress(self.now, frame);
            }
        }
    }

    fn close(&mut self) {
        self.ports.clear();
        self.network = fresh_network();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite;

    #[test]
    #[cfg_attr(miri, ignore = "too long for an interpreter, which runs the suite on loopback")]
    fn the_common_suite_passes_over_ipv4() {
        let report = suite::run(&mut SoftRig::new(false), "");
        assert!(report.passed.len() > 1, "{report}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long for an interpreter, which runs the suite on loopback")]
    fn the_common_suite_passes_over_ipv6() {
        let report = suite::run(&mut SoftRig::new(true), "");
        assert!(report.passed.len() > 1, "{report}");
    }
}
