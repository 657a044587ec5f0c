//! Streams of WRITEs or READs over a network with a bottleneck, on virtual time: what loss and congestion cost.

use super::host::{AREA, Host, connect};
use super::network::{Faults, Network};
use super::rng::Rng;
use super::scenario::Scenario;
use super::trace::Trace;
use crate::buf::{Buf, Pool};
use crate::heap::HeapBuf;
use crate::soft::{FlightRecord, SoftCounters};
use crate::transport::{Completions, Transport};
use crate::types::{Pmtu, QpType, Time};
use crate::wr::{Cookie, Op, OpKind, RemoteSlice, SendWr, Status};

/// Bytes of one request.
const MESSAGE: usize = AREA;

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
        let addr = region.window().addr() + (pair * AREA) as u64;
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
mod tests {
    use super::super::network::Marking;
    use super::*;
    use crate::soft::Dcqcn;

    /// 10 Gb/s and 10 us each way: a round trip holds 25 kB.
    fn wire() -> Faults {
        Faults { byte_ps: 800, ..Faults::none(10_000) }
    }

    /// Bytes carried in 10 ms by one queue pair.
    fn carried(kind: OpKind, selective: bool, loss_ppm: u32) -> (u64, SoftCounters) {
        let scenario = Scenario { selective, ..Stream::scenario(1) };
        let mut stream = Stream::new(scenario, kind, Faults { loss_ppm, ..wire() });
        stream.run(1, Time(10_000_000)).unwrap();
        (stream.carried[0], stream.counters(0))
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many frames for an interpreter")]
    fn one_percent_loss_leaves_more_than_half_of_the_throughput() {
        for kind in [OpKind::Write, OpKind::Read] {
            let (whole, _) = carried(kind, true, 0);
            let (lossy, counters) = carried(kind, true, 10_000);
            let (before, go_back) = carried(kind, false, 10_000);
            println!(
                "{kind:?}: {whole} lossless, {lossy} selective ({} again), {before} go-back-N ({} again)",
                counters.retransmitted, go_back.retransmitted
            );
            assert!(whole > 11_000_000, "{whole}");
            assert!(2 * lossy > whole, "{kind:?}: {lossy} of {whole}");
            assert!(lossy > before && counters.held + counters.sacks > 10, "{lossy} {before}");
        }
    }

    /// A bottleneck that marks as the paper of DCQCN advises for 10 Gb/s.
    fn marking() -> Faults {
        let marking = Marking { from_bytes: 20_000, to_bytes: 200_000, most_ppm: 100_000 };
        Faults { marking: Some(marking), ..wire() }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many frames for an interpreter")]
    fn two_flows_share_a_bottleneck_and_keep_its_queue_short() {
        let scenario = Scenario { dcqcn: Some(Dcqcn::new(10_000)), ..Stream::scenario(2) };
        let mut stream = Stream::new(scenario, OpKind::Write, marking());
        // The first one has the wire to itself before the second one comes.
        stream.run(1, Time(5_000_000)).unwrap();
        stream.run(2, Time(60_000_000)).unwrap();
        stream.take_most_queued();
        let before = stream.carried.clone();
        stream.run(2, Time(110_000_000)).unwrap();
        let shares: Vec<u64> = stream.carried.iter().zip(&before).map(|(now, then)| now - then).collect();
        let (total, queued) = (shares.iter().sum::<u64>(), stream.take_most_queued());
        println!("{shares:?} bytes in 50 ms, {queued} queued at most, {} CNPs", stream.counters(0).cnps);
        assert!(total > 50_000_000, "the wire is used: {total} of 62 500 000");
        let fair = total / 2;
        assert!(shares.iter().all(|s| s.abs_diff(fair) < fair / 4), "{shares:?}");
        assert!(queued < 400_000, "{queued}");
        assert!(stream.counters(0).cnps > 0 && stream.counters(0).timeouts == 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many frames for an interpreter")]
    fn without_rate_control_the_queue_holds_the_windows() {
        let mut stream = Stream::new(Stream::scenario(2), OpKind::Write, marking());
        stream.run(2, Time(10_000_000)).unwrap();
        assert!(stream.take_most_queued() > 1_500_000);
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many frames for an interpreter")]
    fn packets_above_the_standard_cross_where_both_ends_agreed() {
        let scenario = Scenario { jumbo: true, selective: true, ..Stream::scenario(1) };
        let mut stream = Stream::new(scenario, OpKind::Write, Faults { loss_ppm: 1000, ..wire() });
        stream.run(1, Time(10_000_000)).unwrap();
        let frames = stream.counters(0).frames_out;
        assert!(stream.carried[0] > 10_000_000, "{:?}", stream.carried);
        assert!(stream.carried[0] / frames > 6000, "two packets a message: {frames} frames");
    }
}
