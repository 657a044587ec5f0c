//! Streams of WRITEs or READs over a network with a bottleneck, on virtual time: what loss and congestion cost.

use super::host::{Host, connect};
use super::network::{Faults, Network};
use super::rng::Rng;
use super::scenario::Scenario;
use super::trace::Trace;
use crate::buf::{Buf, Pool};
use crate::heap::HeapBuf;
use crate::soft::{FlightRecord, SoftConfig, SoftCounters};
use crate::transport::{Completions, Transport};
use crate::types::{Pmtu, QpType, Time};
use crate::wr::{Cookie, Op, OpKind, RemoteSlice, SendWr, Status};

/// Bytes of one request.
const MESSAGE: usize = 16 << 10;

/// Queue pairs of one host that send to those of another as fast as they may.
#[derive(Debug)]
pub struct Stream {
    scenario: Scenario,
    hosts: [Host; 2],
    network: Network,
    kind: OpKind,
    now: Time,
    /// Bytes of completed requests, by queue pair.
    pub carried: Vec<u64>,
}

impl Stream {
    /// A scenario for streams: packets of 4096 bytes, deep queues, a window of 256 packets.
    pub fn scenario(pairs: usize) -> Scenario {
        Scenario {
            kind: QpType::Rc,
            pairs,
            pmtu: Pmtu::B4096,
            srq: false,
            depth: 128,
            window: 256,
            timeout: 10,
            rd_atomic: 16,
            quantum: 16,
            burst: 64,
            frames: 4096,
            copybreak: 5000,
            shared_ppm: 0,
            selective: false,
            retry_cnt: 7,
            rnr_retry: 7,
            refusals: false,
            renewals: false,
            max_held: SoftConfig::held_for(256, pairs as u32),
            dcqcn: None,
            jumbo: false,
            ..Scenario::new(1)
        }
    }

    /// Between the hosts of `scenario`, over a network that does the same in both directions.
    pub fn new(scenario: Scenario, kind: OpKind, faults: Faults) -> Self {
        let hosts = connect(&scenario);
        let network = Network::new([faults.clone(), faults], scenario.seed);
        Stream { carried: vec![0; scenario.pairs], hosts, network, kind, now: Time(0), scenario }
    }

    /// Goes on until `until`; the first `active` queue pairs send.
    ///
    /// # Errors
    /// A request that failed.
    pub fn run(&mut self, active: usize, until: Time) -> Result<(), String> {
        while self.now < until {
            (0..active).for_each(|pair| self.post(pair));
            for (end, host) in self.hosts.iter_mut().enumerate() {
                host.flush(&self.scenario, self.now, end, &mut self.network, &mut Trace::default());
            }
            self.poll()?;
            let timers = self.hosts.iter().map(|h| h.transport.next_timer()).min().unwrap_or(Time::NEVER);
            self.now = self.now.after_ns(1).max(timers.min(self.network.next_arrival()).min(until));
            while let Some((end, bytes)) = self.network.receive(self.now) {
                self.hosts[end].ingress(self.now, &bytes, 0, &mut Rng::new(0));
            }
        }
        Ok(())
    }

    /// Most bytes that waited for the wire from the first to the second host since this was last asked.
    pub fn take_most_queued(&mut self) -> u64 {
        self.network.take_most_queued(0)
    }

    /// What an end counted.
    pub fn counters(&self, end: usize) -> SoftCounters {
        *self.hosts[end].transport.soft_counters()
    }

    /// What the flight recorder of an end has of a queue pair.
    pub fn flight_record(&self, end: usize, pair: usize) -> Option<FlightRecord> {
        self.hosts[end].transport.flight_record(self.hosts[end].qps[pair], 0)
    }

    fn post(&mut self, pair: usize) {
        let region = &self.hosts[1].region;
        let addr = region.window().addr() + (pair * self.scenario.area()) as u64;
        let slice = RemoteSlice { addr, rkey: region.rkey(), len: MESSAGE as u32 };
        let host = &mut self.hosts[0];
        while host.transport.send_room(host.qps[pair]) > 0 {
            let op = if self.kind == OpKind::Read { Op::Read(slice) } else { Op::Write(slice) };
            let buf = message(host, op.fills_buffer());
            let posted = host.transport.post_send(host.qps[pair], SendWr::new(op, buf, Cookie(pair as u64)));
            assert!(posted.is_ok());
        }
    }

    fn poll(&mut self) -> Result<(), String> {
        let mut batch = Completions::new();
        while self.hosts[0].transport.poll(self.now, &mut batch) > 0 {
            for completion in batch.drain(..) {
                if completion.status != Status::Success {
                    return Err(format!("a request ended with: {}", completion.status));
                }
                self.carried[completion.cookie.0 as usize] += MESSAGE as u64;
            }
        }
        Ok(())
    }
}

fn message(host: &Host, empty: bool) -> HeapBuf {
    let mut buf = host.pool.alloc().expect("the pool holds all that can be posted");
    if !empty {
        assert!(buf.append(MESSAGE).is_some());
    }
    buf
}

#[cfg(test)]
mod tests;
