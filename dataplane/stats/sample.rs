//! All figures of a process at one moment, as plain data.

use super::Tally;

/// One worker of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerSample {
    /// The node's name.
    pub node: String,
    /// Number of the worker in its node.
    pub worker: usize,
    /// The lcore it runs on.
    pub lcore: u32,
    /// What it does.
    pub service: &'static str,
    /// Its counts.
    pub counts: Tally,
}

/// One port. Totals of the driver.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PortSample {
    /// Its name in the file.
    pub name: String,
    /// True while the link is up.
    pub link_up: bool,
    /// Frames received.
    pub rx_packets: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames the driver had no place for in its RX ring.
    pub rx_missed: u64,
    /// Frames received with errors.
    pub rx_errors: u64,
    /// Times the driver got no buffer for RX.
    pub rx_no_mbuf: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
}

impl PortSample {
    /// Bytes received; `None` from a driver that counts frames only, as that of in-memory links.
    pub fn known_rx_bytes(&self) -> Option<u64> {
        (self.rx_bytes > 0 || self.rx_packets == 0).then_some(self.rx_bytes)
    }

    /// Bytes sent; `None` from a driver that counts frames only.
    pub fn known_tx_bytes(&self) -> Option<u64> {
        (self.tx_bytes > 0 || self.tx_packets == 0).then_some(self.tx_bytes)
    }
}

/// One queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSample {
    /// The node's name.
    pub node: String,
    /// Its worker.
    pub worker: usize,
    /// Number of the path at the worker.
    pub path: u16,
    /// Number of the queue pair, while there is one.
    pub qpn: Option<u32>,
    /// The peer's queue pair.
    pub peer_qpn: Option<u32>,
    /// The peer, while there is one: its own name, and its address.
    pub peer: Option<String>,
    /// The peer that it is for, whether it is there or not: a memory node as the gateway's file names it, a gateway by the name
    /// under which it came.
    pub peer_name: Option<String>,
    /// State in a word.
    pub state: &'static str,
    /// Connections so far.
    pub connections: u64,
}

/// One pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSample {
    /// Its name.
    pub name: String,
    /// Buffers it was made with.
    pub capacity: usize,
    /// Buffers it could give now.
    pub available: usize,
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Sample {
    /// Milliseconds since the start.
    pub at_ms: u64,
    /// Ticks of the time stamp counter in a second.
    pub tsc_hz: u64,
    /// Workers, by node and number.
    pub workers: Vec<WorkerSample>,
    /// Ports, in the order of the file.
    pub ports: Vec<PortSample>,
    /// Queue pairs.
    pub paths: Vec<PathSample>,
    /// Pools.
    pub pools: Vec<PoolSample>,
}
