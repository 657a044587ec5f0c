//! Messages larger than anybody wants to keep in memory, up to the 2^31 bytes of the standard.
//!
//! The peer's memory is a [`Pattern`]; the poster's buffer is a chain of slices that all share the same bytes.

use super::host::{Host, connect};
use super::network::{Faults, Network};
use super::rng::Rng;
use super::scenario::Scenario;
use super::trace::Trace;
use crate::buf::{Buf, Pool};
use crate::heap::{HeapBuf, HeapPool, MAX_SEGMENTS};
use crate::soft::{Pattern, PatternRegion};
use crate::suite::contents;
use crate::transport::{Completions, Transport};
use crate::types::{Pmtu, QpType, Time};
use crate::wr::{Completion, Cookie, Op, SendWr, Status};

/// Turns after which a transfer hangs.
const MAX_TURNS: u64 = 100_000_000;

/// Two ends, the second with pattern-backed memory.
struct Transfer {
    scenario: Scenario,
    hosts: [Host; 2],
    network: Network,
    pattern: Pattern,
    memory: PatternRegion,
    now: Time,
}

/// WRITEs `len` bytes into the pattern over a network that loses some frames.
///
/// # Errors
/// What was wrong.
pub fn write(len: u32, pmtu: Pmtu, loss_ppm: u32) -> Result<(), String> {
    let mut transfer = Transfer::new(len, pmtu, loss_ppm);
    let buf = patterned(len as usize);
    transfer.carry(SendWr::new(Op::Write(transfer.memory.slice(len)), buf, Cookie(0)))?;
    let (written, wrong) = (transfer.pattern.written(), transfer.pattern.differences());
    if (written, wrong) == (len.into(), 0) {
        Ok(())
    } else {
        Err(format!("{written} bytes were written instead of {len}, {wrong} of them wrong"))
    }
}

/// READs `len` bytes of the pattern over a network that loses some frames.
///
/// # Errors
/// What was wrong.
pub fn read(len: u32, pmtu: Pmtu, loss_ppm: u32) -> Result<(), String> {
    let mut transfer = Transfer::new(len, pmtu, loss_ppm);
    let buf = HeapPool::new(1, len as usize).alloc().ok_or("no buffer")?;
    let done = transfer.carry(SendWr::new(Op::Read(transfer.memory.slice(len)), buf, Cookie(0)))?;
    let bytes = contents(&done.buf);
    let wrong = bytes.iter().zip(0..).find(|(b, at)| **b != Pattern::byte(*at));
    match wrong {
        None if bytes.len() == len as usize => Ok(()),
        wrong => {
            Err(format!("{} bytes were read instead of {len}, the first wrong one is {wrong:?}", bytes.len()))
        }
    }
}

/// A chain of `len` bytes that follow the pattern, all of it in the memory of one period.
fn patterned(len: usize) -> HeapBuf {
    let period = Pattern::PERIOD as usize;
    let mut whole = HeapPool::new(1, period).alloc().expect("one buffer");
    let bytes = whole.append(period).expect("a period");
    bytes.iter_mut().zip(0..).for_each(|(byte, at)| *byte = Pattern::byte(at));
    let headers = HeapPool::new(MAX_SEGMENTS, 0);
    let slice = |n: usize| headers.slice(&whole, 0, n).expect("a header");
    let mut chain = slice(len.min(period));
    let mut left = len - len.min(period);
    while left > 0 {
        let n = left.min(period);
        chain.chain(slice(n)).expect("room in the chain");
        left -= n;
    }
    chain
}

impl Transfer {
    fn new(len: u32, pmtu: Pmtu, loss_ppm: u32) -> Self {
        let faults =
            [0, 1].map(|_| Faults { loss_ppm, reorder_ppm: loss_ppm, late_ns: 9000, ..Faults::none(1000) });
        let scenario = Scenario {
            kind: QpType::Rc,
            pairs: 1,
            pmtu,
            srq: false,
            window: 256,
            retry_cnt: 7,
            rnr_retry: 7,
            refusals: false,
            renewals: false,
            timeout: 8,
            quantum: 16,
            burst: 64,
            frames: 512,
            send_sge: MAX_SEGMENTS as u16,
            ..Scenario::new(1)
        };
        let hosts = connect(&scenario);
        let pattern = Pattern::new(len.into());
        let memory = hosts[1].device.register_pattern(&pattern).expect("a region");
        Transfer { network: Network::new(faults, 1), now: Time(0), scenario, hosts, pattern, memory }
    }

    /// Carries one request to its end.
    fn carry(&mut self, wr: SendWr<HeapBuf>) -> Result<Completion<HeapBuf>, String> {
        let qp = self.hosts[0].qps[0];
        self.hosts[0].transport.post_send(qp, wr).map_err(|r| format!("it was refused: {}", r.why))?;
        for _ in 0..MAX_TURNS {
            self.turn();
            let mut batch = Completions::new();
            self.hosts[0].transport.poll(self.now, &mut batch);
            if let Some(completion) = batch.pop() {
                let ok = completion.status == Status::Success;
                return if ok { Ok(completion) } else { Err(completion.status.to_string()) };
            }
        }
        Err("it hangs".into())
    }

    fn turn(&mut self) {
        for (end, host) in self.hosts.iter_mut().enumerate() {
            host.flush(&self.scenario, self.now, end, &mut self.network, &mut Trace::default());
        }
        let timers = self.hosts.iter().map(|h| h.transport.next_timer()).min().unwrap_or(Time::NEVER);
        self.now = self.now.after_ns(1).max(timers.min(self.network.next_arrival()));
        while let Some((end, bytes)) = self.network.receive(self.now) {
            self.hosts[end].ingress(self.now, &bytes, 0, &mut Rng::new(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 16 Mi bytes; `cargo run --release --example sim -- --huge` carries 2^31.
    const LEN: u32 = (16 << 20) + 5;

    #[test]
    #[cfg_attr(miri, ignore = "16 MiB are too much for an interpreter")]
    fn a_long_write_crosses_a_lossy_network() {
        write(LEN, Pmtu::B4096, 2000).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "16 MiB are too much for an interpreter")]
    fn a_long_read_crosses_a_lossy_network() {
        read(LEN, Pmtu::B4096, 2000).unwrap();
    }
}
