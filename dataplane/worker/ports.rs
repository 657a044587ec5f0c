//! A worker's side of its port: one RX queue, one TX queue.

use crate::bridge::Packet;
use crate::service::BURST;
use crate::service::outbox::Outbox;
use crate::stats::{Counter, DropReason, Tally};
use dpdk_bind::{RxQueue, TxQueue};
use rdma_engine::types::Time;

/// Frames of one TX burst.
const TX_BURST: usize = 64;

/// A queue pair of a port and the frames between it and the service.
pub struct PortLane {
    rx: RxQueue,
    tx: TxQueue,
    rx_burst: dpdk_bind::Burst<BURST>,
    tx_burst: dpdk_bind::Burst<TX_BURST>,
    /// When the TX queue last took something, or had nothing to take.
    tx_progress: Time,
    /// How long unsent frames wait for a TX queue that takes nothing. 0 gives them one more turn. Nanoseconds.
    tx_wait_ns: u64,
}

impl PortLane {
    /// A lane over the two queues.
    pub fn new(rx: RxQueue, tx: TxQueue, tx_wait_ns: u64) -> Self {
        let (rx_burst, tx_burst) = (dpdk_bind::Burst::new(), dpdk_bind::Burst::new());
        PortLane { rx, tx, rx_burst, tx_burst, tx_progress: Time(0), tx_wait_ns }
    }

    /// The RX queue, for its interrupt.
    pub fn rx_queue(&self) -> &RxQueue {
        &self.rx
    }

    /// Takes a burst from the RX queue and hands every frame to `put`; returns how many.
    #[inline]
    pub fn receive(&mut self, tally: &mut Tally, mut put: impl FnMut(Packet)) -> usize {
        let n = self.rx.rx(&mut self.rx_burst);
        if n > 0 {
            let mut bytes = 0;
            for mbuf in self.rx_burst.drain() {
                bytes += mbuf.len();
                put(Packet(mbuf));
            }
            tally.add(Counter::RxFrames, n as u64);
            tally.add(Counter::RxBytes, bytes as u64);
        }
        n
    }

    /// Sends what waits in `outbox`, oldest first. True if the TX queue took anything. Frames it refuses for longer than
    /// the wait are dropped and counted.
    #[inline]
    pub fn transmit(&mut self, now: Time, outbox: &mut Outbox<Packet>, tally: &mut Tally) -> bool {
        if outbox.is_empty() && self.tx_burst.is_empty() {
            self.tx_progress = now;
            return false;
        }
        let mut any = false;
        loop {
            for packet in outbox.drain(self.tx_burst.room()) {
                self.tx_burst.push(packet.0).unwrap_or_else(|_| unreachable!("room was seen"));
            }
            if self.tx_burst.is_empty() {
                break;
            }
            let bytes: usize = self.tx_burst.iter().map(dpdk_bind::Mbuf::len).sum();
            let n = self.tx.tx(&mut self.tx_burst);
            if n == 0 {
                break;
            }
            any = true;
            let left: usize = self.tx_burst.iter().map(dpdk_bind::Mbuf::len).sum();
            tally.add(Counter::TxFrames, n as u64);
            tally.add(Counter::TxBytes, (bytes - left) as u64);
            if !self.tx_burst.is_empty() {
                break;
            }
        }
        if any {
            self.tx_progress = now;
        } else if now.since_ns(self.tx_progress) > self.tx_wait_ns {
            self.give_up(now, outbox, tally);
        }
        any
    }

    /// Drops every frame that waits.
    fn give_up(&mut self, now: Time, outbox: &mut Outbox<Packet>, tally: &mut Tally) {
        tally.drop(DropReason::TxFull, (self.tx_burst.len() + outbox.len()) as u64);
        self.tx_burst.clear();
        outbox.frames_mut().clear();
        self.tx_progress = now;
    }

    /// Frames taken over from the outbox that the TX queue has not taken yet.
    pub fn frames_waiting(&self) -> usize {
        self.tx_burst.len()
    }
}

impl std::fmt::Debug for PortLane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PortLane({}:{})", self.rx.port(), self.rx.index())
    }
}
