//! Memory: how much all of it takes, and on which pages.

use super::ledger::Ledger;
use super::{
    Hardware, PlanLink, PlanMemory, PlanNode, PlanPool, PlanPort, PlanQp, PlanService, PlanTransport,
    PortSource,
};
use crate::config::{Config, Hugepages, KeyPath, Problem};
use rdma_engine::soft::{MAX_RECORDINGS, recorder_bytes};

/// `struct rte_mbuf` and the header that a pool puts before it.
const MBUF_BYTES: u64 = 128 + 64;
/// One descriptor with the driver's own record of it, generously.
const DESCRIPTOR_BYTES: u64 = 64;
/// One slot of an `rte_ring`.
const SLOT_BYTES: u64 = 8;
/// EAL's own needs.
const EAL_BYTES: u64 = 32 << 20;
/// An ordinary page.
const SMALL_PAGE: u64 = 4096;
/// One entry of the relay's flow table.
const FLOW_BYTES: u64 = 16;
/// One sequence number of source and sink.
const SEQUENCE_BYTES: u64 = 4;
/// What a load knows of one key.
const KEY_BYTES: u64 = 16;
/// One remembered place of an item.
const LOCATION_BYTES: u64 = 32;
/// One queue entry of a QP in our own records.
const IN_FLIGHT_BYTES: u64 = 64;

/// Memory of a pool in bytes.
pub(super) fn pool_bytes(count: u64, data_room: u64) -> u64 {
    let object = MBUF_BYTES + data_room.next_multiple_of(64);
    count * object + (count + 1).next_power_of_two() * SLOT_BYTES
}

/// The same on ordinary pages, where DPDK lets no buffer cross the end of a page unless it is longer than one.
fn pool_bytes_on_small_pages(count: u64, data_room: u64) -> u64 {
    let object = MBUF_BYTES + data_room.next_multiple_of(64);
    let pages = match SMALL_PAGE / object {
        0 => count * object.div_ceil(SMALL_PAGE),
        a_page => count.div_ceil(a_page),
    };
    pages * SMALL_PAGE + (count + 1).next_power_of_two() * SLOT_BYTES
}

/// Adds everything up and settles the kind of pages.
pub(super) fn total(
    config: &Config,
    ports: &[PlanPort],
    links: &[PlanLink],
    nodes: &[PlanNode],
    pools: &[PlanPool],
    hardware: Option<&Hardware>,
    ledger: &mut Ledger,
) -> PlanMemory {
    let rings_bytes = rings(ports, links);
    // A tenth for alignment and page ends.
    let whole =
        |pools: u64| ((pools + rings_bytes + EAL_BYTES) / 10 * 11 / (1 << 20) + 1).next_multiple_of(2);
    let mut pools_bytes = pools.iter().map(PlanPool::bytes).sum::<u64>();
    let mut needed_mib = whole(pools_bytes);
    let asked_mib = config.eal.memory_mib.map_or(needed_mib, u64::from);
    let arenas_bytes = nodes.iter().map(arena).sum::<u64>();
    let asked_mib = asked_mib + mib(arenas_bytes).next_multiple_of(2);
    let hugepages = pages(config.eal.hugepages.unwrap_or_default(), asked_mib, hardware, ledger);
    if hugepages == Hugepages::NoHuge {
        let on_small_pages = |p: &PlanPool| pool_bytes_on_small_pages(p.count.into(), p.data_room.into());
        pools_bytes = pools.iter().map(on_small_pages).sum();
        needed_mib = whole(pools_bytes);
    }
    let eal_mib = wanted(config, needed_mib, ledger);
    let memory = PlanMemory {
        hugepages,
        pools_bytes,
        rings_bytes,
        arenas_bytes,
        tables_bytes: nodes.iter().map(tables).sum(),
        eal_mib,
    };
    ledger.problems.extend(hardware.and_then(|hardware| too_much(config, &memory, hardware)));
    let inputs = format!(
        "pools {} + rings {} + EAL {} MiB, and a tenth",
        mib(pools_bytes),
        mib(rings_bytes),
        mib(EAL_BYTES)
    );
    explain_flight_records(nodes, ledger);
    ledger.rule("memory", "eal", inputs, format!("{eal_mib} MiB"));
    memory
}

/// Bytes as whole MiB, rounded up.
fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

fn wanted(config: &Config, needed_mib: u64, ledger: &mut Ledger) -> u64 {
    let Some(wanted) = config.eal.memory_mib.map(u64::from) else { return needed_mib };
    if wanted < needed_mib {
        let at = vec![KeyPath::top("eal").key("memory_mib")];
        let what = format!("the plan needs {needed_mib} MiB");
        let remedy =
            format!("set memory_mib = {needed_mib} or more, leave it out, or lower depths and ring sizes");
        ledger.refuse_value(at, wanted, what, remedy);
    }
    wanted
}

/// What keeps the plan from running on this machine; `hardware` needs to know its memory only.
pub fn memory_problems(config: &Config, memory: &PlanMemory, hardware: &Hardware) -> Vec<Problem> {
    let pages = config.eal.hugepages.unwrap_or_default();
    let huge_mib = memory.eal_mib + mib(memory.arenas_bytes).next_multiple_of(2);
    let few = few_hugepages(pages, huge_mib, hardware.hugepages_free_mib);
    few.into_iter().chain(too_much(config, memory, hardware)).collect()
}

/// No machine has more memory than it has: EAL would take it page by page until something is killed.
fn too_much(config: &Config, memory: &PlanMemory, hardware: &Hardware) -> Option<Problem> {
    let needed = memory.eal_mib + mib(memory.arenas_bytes) + mib(memory.tables_bytes);
    let all = hardware.memory_mib.filter(|all| needed > *all)?;
    let eal = KeyPath::top("eal");
    if let Some(wanted) = config.eal.memory_mib {
        let remedy = format!("set memory_mib to less than {all}, or leave it out");
        let problem = Problem::new(eal.key("memory_mib"), format!("this machine has {all} MiB"), remedy);
        return Some(Problem { default: Some(wanted.to_string()), ..problem });
    }
    let what = format!("the plan needs {needed} MiB, and this machine has {all}");
    Some(Problem::new(eal, what, "lower depths, ring sizes, arena_bytes or locations"))
}

/// Hugepages that the file asks for have to be there.
fn few_hugepages(wanted: Hugepages, needed_mib: u64, free_mib: Option<u64>) -> Option<Problem> {
    let free = free_mib.filter(|free| *free < needed_mib)?;
    if !matches!(wanted, Hugepages::Huge | Hugepages::InMemory) {
        return None;
    }
    let what = format!("{free} MiB of hugepages are free, the plan needs {needed_mib}");
    let remedy = format!(
        "reserve them: echo {} > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages, or set \"auto\"",
        needed_mib.div_ceil(2)
    );
    Some(Problem::new(KeyPath::top("eal").key("hugepages"), what, remedy))
}

fn rings(ports: &[PlanPort], links: &[PlanLink]) -> u64 {
    let device = ports.iter().filter(|port| !matches!(port.source, PortSource::LinkEnd { .. }));
    let descriptors =
        device.map(|port| u64::from(port.queues) * (u64::from(port.rx_desc) + u64::from(port.tx_desc)));
    let slots = links.iter().map(|link| 2 * u64::from(link.queues) * u64::from(link.ring_size));
    descriptors.sum::<u64>() * DESCRIPTOR_BYTES + slots.sum::<u64>() * SLOT_BYTES
}

/// Registered memory of a memory node.
fn arena(node: &PlanNode) -> u64 {
    match &node.service {
        PlanService::Memory(memory) => memory.arena_bytes + memory.staging.bytes,
        _ => 0,
    }
}

fn tables(node: &PlanNode) -> u64 {
    let workers = node.workers.len() as u64;
    let flows = match &node.service {
        PlanService::Relay(relay) => workers * u64::from(relay.flow_capacity) * FLOW_BYTES,
        PlanService::Source(source) => u64::from(source.flows) * SEQUENCE_BYTES,
        PlanService::Sink(sink) => workers * u64::from(sink.flows) * SEQUENCE_BYTES,
        PlanService::Kv(kv) => workers * u64::from(kv.locations) * LOCATION_BYTES,
        PlanService::Memory(_) => 0,
        PlanService::Load(load) => u64::from(load.keys) * KEY_BYTES,
    };
    let queues = node.fabric.as_ref().map_or(0, |fabric| {
        let of_lane =
            |qp: &PlanQp| u64::from(qp.count) * (u64::from(qp.send_depth) + u64::from(qp.recv_depth));
        fabric.lanes().map(of_lane).sum()
    });
    flows + queues * IN_FLIGHT_BYTES + flight_records(node).map_or(0, |records| records.bytes())
}

/// What the flight recorders of a node keep.
struct FlightRecords {
    workers: u64,
    qps_per_worker: u32,
    packets: u32,
}

impl FlightRecords {
    fn bytes(&self) -> u64 {
        self.workers * recorder_bytes(self.packets, self.qps_per_worker)
    }
}

fn flight_records(node: &PlanNode) -> Option<FlightRecords> {
    let PlanTransport::Soft(soft) = &node.fabric.as_ref()?.transport else { return None };
    let (_, packets) = soft.flight_records.as_ref()?;
    let (workers, qps_per_worker) = (node.workers.len() as u64, node.qps_per_worker() as u32);
    Some(FlightRecords { workers, qps_per_worker, packets: *packets })
}

/// Says what flight records take: a large number of packets times many queue pairs is easily forgotten.
fn explain_flight_records(nodes: &[PlanNode], ledger: &mut Ledger) {
    for node in nodes {
        let Some(records) = flight_records(node) else { continue };
        let FlightRecords { workers, qps_per_worker, packets } = records;
        let inputs = format!(
            "{packets} packets x ({qps_per_worker} QPs + {} on the way to the disk) x {workers} workers",
            qps_per_worker.min(MAX_RECORDINGS)
        );
        ledger.rule("flight-records", node.name.as_str(), inputs, format!("{} KiB", records.bytes() >> 10));
    }
}

/// `auto` takes hugepages without files where there are enough of them.
fn pages(wanted: Hugepages, needed_mib: u64, hardware: Option<&Hardware>, ledger: &mut Ledger) -> Hugepages {
    let free = hardware.and_then(|hardware| hardware.hugepages_free_mib);
    match (wanted, free) {
        (Hugepages::Auto, Some(free)) => {
            let enough = free >= needed_mib;
            let result = if enough { "in-memory" } else { "no-huge: slower, set up hugepages" };
            let inputs = format!("{free} MiB of hugepages free, {needed_mib} needed");
            ledger.rule("hugepages", "eal", inputs, result);
            if enough { Hugepages::InMemory } else { Hugepages::NoHuge }
        }
        (Hugepages::Auto, None) => {
            let inputs = format!("auto, {needed_mib} MiB needed");
            ledger.rule("hugepages", "eal", inputs, "in-memory if that much is free at start, else no-huge");
            Hugepages::Auto
        }
        _ => {
            ledger.problems.extend(few_hugepages(wanted, needed_mib, free));
            wanted
        }
    }
}
