//! Figures of the running process, gathered for statistics.

use super::ports::RunningPort;
use super::supervise::WorkerPlace;
use crate::control::slot::{Place, Slot};
use crate::control::{Endpoint, Link, NodeControl};
use crate::stats::sample::{PathSample, PoolSample, PortSample, Sample, WorkerSample};
use dpdk_bind::Mempool;

/// Everything at this moment.
pub(super) fn sample<D: Endpoint>(
    at_ms: u64,
    tsc_hz: u64,
    workers: &[WorkerPlace],
    ports: (&[String], &[RunningPort]),
    pools: &[Mempool],
    controls: &[NodeControl<'_, D>],
) -> Sample {
    Sample {
        at_ms,
        tsc_hz,
        workers: workers.iter().map(worker).collect(),
        ports: ports.0.iter().zip(ports.1).map(|(name, p)| port(name, p)).collect(),
        paths: controls.iter().flat_map(paths).collect(),
        pools: pools.iter().map(pool).collect(),
    }
}

fn worker(place: &WorkerPlace) -> WorkerSample {
    WorkerSample {
        node: place.node.clone(),
        worker: place.worker,
        lcore: place.lcore,
        service: place.service,
        counts: place.board.read(),
    }
}

fn port(name: &str, running: &RunningPort) -> PortSample {
    let stats = running.port.stats();
    PortSample {
        name: name.to_owned(),
        link_up: running.port.link().up,
        rx_packets: stats.rx_packets,
        tx_packets: stats.tx_packets,
        rx_bytes: stats.rx_bytes,
        tx_bytes: stats.tx_bytes,
        rx_missed: stats.rx_missed,
        rx_errors: stats.rx_errors,
        rx_no_mbuf: stats.rx_no_mbuf,
        tx_errors: stats.tx_errors,
    }
}

fn paths<D: Endpoint>(control: &NodeControl<'_, D>) -> Vec<PathSample> {
    let path = |(link, place): (&Link<D::Qp>, &Place<D::Qp>)| {
        let (qpn, peer_qpn) = match &place.slot {
            Slot::Free => (None, None),
            Slot::Fresh { qpn, .. } => (Some(qpn.value()), None),
            Slot::Working(w) => (Some(w.qpn.value()), Some(w.peer_qpn.value())),
        };
        PathSample {
            node: control.name().to_owned(),
            worker: place.worker,
            path: place.path,
            qpn,
            peer_qpn,
            peer: link.peer(),
            peer_name: link.name().map(str::to_owned),
            state: place.state(),
            connections: place.connections,
        }
    };
    control.shown().map(path).collect()
}

/// How full a pool is.
pub(super) fn pool(pool: &Mempool) -> PoolSample {
    PoolSample { name: pool.name().to_owned(), capacity: pool.capacity(), available: pool.available() }
}
