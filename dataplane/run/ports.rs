//! Pools, links and ports of a plan.

use super::error::RunError;
use crate::config::ChecksumOffload;
use crate::plan::{Plan, PlanPort, PollPolicy, PortSource, RssPlan};
use dpdk_bind::port::{Demand, PortConfig};
use dpdk_bind::{Eal, Mempool, PoolConfig, Port, PortId, RxQueue, TxQueue, link};

/// A port that is up, and its queues until workers take them.
pub(super) struct RunningPort {
    /// The port.
    pub(super) port: Port,
    rx: Vec<Option<RxQueue>>,
    tx: Vec<Option<TxQueue>>,
}

impl RunningPort {
    /// The MAC address of our station on it. A tap interface has one for both its ends, and the kernel's end takes it.
    pub(super) fn mac(&self) -> [u8; 6] {
        let mut mac = self.port.mac();
        if self.port.info().driver == "net_tap" {
            mac[5] ^= 1;
        }
        mac
    }

    /// The queue pair of this number.
    ///
    /// # Panics
    /// If it was taken before: the plan gives each queue to one worker.
    pub(super) fn take_queues(&mut self, queue: u16) -> (RxQueue, TxQueue) {
        let at = usize::from(queue);
        (self.rx[at].take().expect("one worker a queue"), self.tx[at].take().expect("one worker a queue"))
    }
}

/// Makes the pools of a plan, in its order.
pub(super) fn make_pools(eal: &Eal, plan: &Plan) -> Result<Vec<Mempool>, RunError> {
    let make = |p: &crate::plan::PlanPool| {
        let config =
            PoolConfig { count: p.count, cache: p.cache, data_room: p.data_room, ..PoolConfig::default() };
        Ok(Mempool::create(eal, &p.name, &config)?)
    };
    plan.pools.iter().map(make).collect()
}

/// Makes the links, configures and starts the ports of a plan, in its order. What a driver cannot do and the
/// configuration only prefers is one line in the log.
pub(super) fn start_ports(eal: &Eal, plan: &Plan, pools: &[Mempool]) -> Result<Vec<RunningPort>, RunError> {
    let ends = make_links(eal, plan)?;
    let mut running = Vec::new();
    for planned in &plan.ports {
        let failed = |source| RunError::Port { name: planned.name.clone(), source };
        let id = match &planned.source {
            PortSource::LinkEnd { link, end } => ends[*link][*end].clone(),
            PortSource::Vdev { device, .. } | PortSource::Pci { device, .. } => {
                Port::by_name(eal, device).map_err(failed)?
            }
        };
        let config = port_config(planned, plan, &pools[planned.pool]);
        let (mut port, rx, tx) = Port::configure(eal, &id, &config).map_err(failed)?;
        port.start().map_err(|source| match unserved(&planned.source, &source.to_string()) {
            Some(socket) => RunError::MemifServer { port: planned.name.clone(), socket },
            None => failed(source),
        })?;
        for note in port.notes() {
            // The ends of a link are known to offer little, and that is no fault of anybody's.
            if matches!(planned.source, PortSource::LinkEnd { .. }) {
                tracing::debug!(port = %planned.name, "{note}");
            } else {
                tracing::info!(port = %planned.name, "{note}");
            }
        }
        let (rx, tx) = (rx.into_iter().map(Some).collect(), tx.into_iter().map(Some).collect());
        running.push(RunningPort { port, rx, tx });
    }
    Ok(running)
}

/// The socket of a memif client that found no server at it.
fn unserved(source: &PortSource, error: &str) -> Option<String> {
    let PortSource::Vdev { driver, args, .. } = source else { return None };
    if driver != "net_memif" || !error.contains("Failed to connect socket") {
        return None;
    }
    let named = args.split(',').find_map(|arg| arg.strip_prefix("socket="));
    Some(named.unwrap_or("/run/memif.sock").to_owned())
}

fn make_links(eal: &Eal, plan: &Plan) -> Result<Vec<[PortId; 2]>, RunError> {
    let make = |l: &crate::plan::PlanLink| {
        let made = link::cross(eal, &l.name, l.queues, l.ring_size);
        let (a, b) = made.map_err(|source| RunError::Port { name: l.name.clone(), source })?;
        Ok([a, b])
    };
    plan.links.iter().map(make).collect()
}

fn port_config(planned: &PlanPort, plan: &Plan, pool: &Mempool) -> PortConfig {
    let demand = |on: ChecksumOffload| match on {
        ChecksumOffload::Auto => Demand::Prefer,
        ChecksumOffload::On => Demand::Require,
        ChecksumOffload::Off => Demand::Off,
    };
    PortConfig {
        rx_queues: planned.queues,
        tx_queues: planned.queues,
        rx_desc: planned.rx_desc,
        tx_desc: planned.tx_desc,
        mtu: planned.mtu,
        rss: match planned.rss {
            RssPlan::Off => Demand::Off,
            RssPlan::WhereOffered => Demand::Prefer,
            RssPlan::Required => Demand::Require,
        },
        promiscuous: planned.promiscuous.into(),
        rx_checksum: demand(planned.checksum_offload),
        tx_checksum: demand(planned.checksum_offload),
        rx_interrupt: if plan.poll == PollPolicy::Busy { Demand::Off } else { Demand::Prefer },
        pools: vec![pool.clone()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memif_client_without_its_server_names_the_socket() {
        let said = "port net_memif0: could not start: Operation not permitted (DPDK said: \"memif_connect_client(): Failed to connect socket: x.\")";
        let end = |driver: &str, args: &str| PortSource::Vdev {
            device: format!("{driver}0"),
            args: args.into(),
            driver: driver.into(),
        };
        let client = end("net_memif", "role=client,socket=isthmus-kv-soft,bsize=8192");
        assert_eq!(unserved(&client, said).as_deref(), Some("isthmus-kv-soft"));
        assert_eq!(unserved(&end("net_memif", "role=client"), said).as_deref(), Some("/run/memif.sock"));
        assert_eq!(unserved(&client, "port net_memif0: could not start: No such device"), None);
        assert_eq!(unserved(&end("net_tap", ""), said), None);
    }
}
