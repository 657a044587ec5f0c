//! A worker's side of its port: one RX queue, one TX queue.

use crate::bridge::Packet;
use crate::service::BURST;
use crate::service::outbox::Outbox;
use crate::stats::{Counter, DropReason, Tally};
use dpdk_bind::{RxQueue, TxQueue};
use rdma_engine::types::Time;

/// Frames of one TX burst.
const TX_BURST: usize = 64;

/// Under which names the frames of a lane are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneKind {
    /// Frames of the service.
    Client,
    /// Frames of the soft transport.
    Fabric,
}

impl LaneKind {
    #[inline]
    fn received(self, tally: &mut Tally, frames: usize, bytes: usize) {
        let (counter, byte_counter) = match self {
            LaneKind::Client => (Counter::RxFrames, Counter::RxBytes),
            LaneKind::Fabric => (Counter::FabricRxFrames, Counter::FabricRxBytes),
        };
        tally.add(counter, frames as u64);
        tally.add(byte_counter, bytes as u64);
    }

    #[inline]
    fn sent(self, tally: &mut Tally, frames: usize, bytes: usize) {
        let (counter, byte_counter) = match self {
            LaneKind::Client => (Counter::TxFrames, Counter::TxBytes),
            LaneKind::Fabric => (Counter::FabricTxFrames, Counter::FabricTxBytes),
        };
        tally.add(counter, frames as u64);
        tally.add(byte_counter, bytes as u64);
    }

    const fn tx_full(self) -> DropReason {
        match self {
            LaneKind::Client => DropReason::TxFull,
            LaneKind::Fabric => DropReason::FabricTxFull,
        }
    }
}

/// Frames on their way into a TX queue.
struct Sending {
    kind: LaneKind,
    burst: dpdk_bind::Burst<TX_BURST>,
    /// When the TX queue last took something, or had nothing to take.
    progress: Time,
    /// How long unsent frames wait for a TX queue that takes nothing. 0 gives them one more turn. Nanoseconds.
    wait_ns: u64,
}

impl Sending {
    fn new(kind: LaneKind, wait_ns: u64) -> Self {
        Sending { kind, burst: dpdk_bind::Burst::new(), progress: Time(0), wait_ns }
    }

    #[inline]
    fn transmit(
        &mut self,
        tx: &mut TxQueue,
        now: Time,
        outbox: &mut Outbox<Packet>,
        tally: &mut Tally,
    ) -> bool {
        if outbox.is_empty() && self.burst.is_empty() {
            self.progress = now;
            return false;
        }
        self.transmit_some(tx, now, outbox, tally)
    }

    #[inline(never)]
    fn transmit_some(
        &mut self,
        tx: &mut TxQueue,
        now: Time,
        outbox: &mut Outbox<Packet>,
        tally: &mut Tally,
    ) -> bool {
        let mut any = false;
        loop {
            for packet in outbox.drain(self.burst.room()) {
                self.burst.push(packet.0).unwrap_or_else(|_| unreachable!("room was seen"));
            }
            if self.burst.is_empty() {
                break;
            }
            let bytes = self.bytes();
            let n = tx.tx(&mut self.burst);
            if n == 0 {
                break;
            }
            any = true;
            self.kind.sent(tally, n, bytes - self.bytes());
            if !self.burst.is_empty() {
                break;
            }
        }
        if any {
            self.progress = now;
        } else if now.since_ns(self.progress) > self.wait_ns {
            self.give_up(now, outbox, tally);
        }
        any
    }

    /// Bytes of the frames in the burst.
    #[inline]
    fn bytes(&self) -> usize {
        self.burst.iter().map(dpdk_bind::Mbuf::len).sum()
    }

    /// Drops every frame that waits.
    fn give_up(&mut self, now: Time, outbox: &mut Outbox<Packet>, tally: &mut Tally) {
        tally.drop(self.kind.tx_full(), (self.burst.len() + outbox.len()) as u64);
        self.burst.clear();
        outbox.frames_mut().clear();
        self.progress = now;
    }
}

/// A queue pair of a port and the frames between it and the service.
pub struct PortLane {
    /// `None` for a service without a port.
    queues: Option<(RxQueue, TxQueue)>,
    rx_burst: dpdk_bind::Burst<BURST>,
    sending: Sending,
    /// Frames of the soft transport, where it shares the port.
    fabric: Option<Sending>,
}

impl PortLane {
    /// A lane over the two queues. Unsent frames wait for `tx_wait_ns`, see [`transmit`](Self::transmit).
    pub fn new(rx: RxQueue, tx: TxQueue, kind: LaneKind, tx_wait_ns: u64) -> Self {
        let sending = Sending::new(kind, tx_wait_ns);
        PortLane { queues: Some((rx, tx)), rx_burst: dpdk_bind::Burst::new(), sending, fabric: None }
    }

    /// The lane of a service without a port: nothing comes in, and what is sent is dropped and counted.
    pub fn none() -> Self {
        let sending = Sending::new(LaneKind::Client, 0);
        PortLane { queues: None, rx_burst: dpdk_bind::Burst::new(), sending, fabric: None }
    }

    /// The same, shared with the soft transport, whose unsent frames wait for `tx_wait_ns`.
    #[must_use]
    pub fn shared(mut self, tx_wait_ns: u64) -> Self {
        self.fabric = Some(Sending::new(LaneKind::Fabric, tx_wait_ns));
        self
    }

    /// The RX queue, for its interrupt.
    pub fn rx_queue(&self) -> Option<&RxQueue> {
        self.queues.as_ref().map(|(rx, _)| rx)
    }

    /// Takes a burst from the RX queue and hands every frame to `put`; returns how many.
    #[inline]
    pub fn receive(&mut self, tally: &mut Tally, mut put: impl FnMut(Packet)) -> usize {
        let Some((rx, _)) = &mut self.queues else { return 0 };
        let n = rx.rx(&mut self.rx_burst);
        if n > 0 {
            let mut bytes = 0;
            for mbuf in self.rx_burst.drain() {
                bytes += mbuf.len();
                put(Packet(mbuf));
            }
            self.sending.kind.received(tally, n, bytes);
        }
        n
    }

    /// The same on a shared port: `put` says of each frame whose it was.
    #[inline]
    pub fn receive_shared(
        &mut self,
        tally: &mut Tally,
        mut put: impl FnMut(&mut Tally, Packet) -> LaneKind,
    ) -> usize {
        let Some((rx, _)) = &mut self.queues else { return 0 };
        let n = rx.rx(&mut self.rx_burst);
        for mbuf in self.rx_burst.drain() {
            let bytes = mbuf.len();
            let kind = put(tally, Packet(mbuf));
            kind.received(tally, 1, bytes);
        }
        n
    }

    /// Sends what waits in `outbox`, oldest first. True if the TX queue took anything. Frames it refuses for longer than
    /// the wait are dropped and counted.
    #[inline]
    pub fn transmit(&mut self, now: Time, outbox: &mut Outbox<Packet>, tally: &mut Tally) -> bool {
        match &mut self.queues {
            Some((_, tx)) => self.sending.transmit(tx, now, outbox, tally),
            None => {
                if !outbox.is_empty() {
                    self.sending.give_up(now, outbox, tally);
                }
                false
            }
        }
    }

    /// The same for frames of the soft transport that shares this port.
    #[inline]
    pub fn transmit_fabric(&mut self, now: Time, outbox: &mut Outbox<Packet>, tally: &mut Tally) -> bool {
        let (Some((_, tx)), Some(sending)) = (&mut self.queues, &mut self.fabric) else { return false };
        sending.transmit(tx, now, outbox, tally)
    }

    /// Frames taken over from the outbox that the TX queue has not taken yet.
    pub fn frames_waiting(&self) -> usize {
        self.sending.burst.len()
    }
}

impl std::fmt::Debug for PortLane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.queues {
            Some((rx, _)) => write!(f, "PortLane({}:{})", rx.port(), rx.index()),
            None => f.write_str("PortLane(none)"),
        }
    }
}
