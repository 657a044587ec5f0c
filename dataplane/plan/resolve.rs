//! From configuration to plan, step by step.

use super::depths::Sizing;
use super::ledger::{Ledger, fabric_at};
use super::nodes::DraftNode;
use super::ports::Draft;
use super::services::Carrier;
use super::{
    Hardware, Plan, PlanDrain, PlanFabric, PlanNode, PlanPeer, PlanPort, PlanService, PlanStats,
    PlanTransport, PollPolicy, depths, eal, fabric, lcores, limits, memory, nodes, peers, pools, ports,
    services,
};
use crate::config::{Config, KeyPath, PollMode, Problem, ServiceKind, StatsFormat};

/// Resolves `config`; `hardware` adds what the machine can do.
///
/// # Errors
/// Every problem found, not only the first.
pub fn resolve(config: &Config, hardware: Option<&Hardware>) -> Result<Plan, Vec<Problem>> {
    let mut ledger = Ledger::default();
    eal::check(config, &mut ledger);
    let mut lcores = lcores::list(config, hardware, &mut ledger);
    let placed = lcores::place(config, &mut lcores, &mut ledger);
    let mut ports = ports::draft(config, hardware, &mut ledger);
    let drafts = nodes::draft(config, placed, &mut ports, &mut ledger);
    let served_by = workers_per_port(&ports, &drafts);
    ports::settle_queues(&mut ports, &served_by, hardware, &mut ledger);
    let mut nodes = finish_nodes(config, &drafts, &ports, hardware, &mut ledger);
    check_pairs(&nodes, &mut ledger);
    check_addresses(&nodes, &mut ledger);
    let pools = pools::size(config, &mut ports, &mut nodes, lcores.len(), &mut ledger);
    let regions = pools.iter().filter(|pool| pool.registered).count();
    limits::check_rdma(&nodes, u32::try_from(regions).unwrap_or(u32::MAX), hardware, &mut ledger);
    let finished: Vec<PlanPort> = ports.ports.into_iter().map(|draft| draft.port).collect();
    let memory = memory::total(config, &finished, &ports.links, &nodes, &pools, hardware, &mut ledger);
    let plan = Plan {
        eal_args: eal::args(config, &lcores, &finished, &memory, &mut ledger),
        lcores,
        ports: finished,
        links: ports.links,
        nodes,
        pools,
        memory,
        poll: poll(config, &mut ledger),
        stats: stats(config, &mut ledger),
        drain: drain(config, &mut ledger),
        rules: ledger.rules,
        warnings: ledger.warnings,
    };
    if ledger.problems.is_empty() { Ok(plan) } else { Err(ledger.problems) }
}

fn workers_per_port(ports: &Draft, drafts: &[DraftNode]) -> Vec<u32> {
    let served = |draft: &ports::DraftPort| draft.port.node.map_or(0, |node| drafts[node].workers());
    ports.ports.iter().map(served).collect()
}

fn finish_nodes(
    config: &Config,
    drafts: &[DraftNode],
    ports: &Draft,
    hardware: Option<&Hardware>,
    ledger: &mut Ledger,
) -> Vec<PlanNode> {
    let peers = peers::resolve(drafts, ledger);
    let mut nodes = Vec::new();
    for (index, (draft, peer)) in drafts.iter().zip(peers).enumerate() {
        let (service, fabric) = match draft.kind {
            ServiceKind::Relay => relay(config, index, draft, peer, ports, hardware, ledger),
            ServiceKind::Source => {
                (PlanService::Source(services::source(config, index, draft, ports, ledger)), None)
            }
            ServiceKind::Sink => (PlanService::Sink(services::sink(config, index, ledger)), None),
        };
        let qps = match &service {
            PlanService::Relay(relay) => relay.qps_per_worker,
            _ => 0,
        };
        nodes.push(PlanNode {
            name: draft.name.clone(),
            service,
            ports: draft.ports.clone(),
            workers: nodes::workers(draft, qps),
            fabric,
            message_pool: None,
            slice_pool: None,
        });
    }
    nodes
}

fn relay(
    config: &Config,
    index: usize,
    draft: &DraftNode,
    peer: Option<PlanPeer>,
    ports: &Draft,
    hardware: Option<&Hardware>,
    ledger: &mut Ledger,
) -> (PlanService, Option<PlanFabric>) {
    let Some(keys) = &draft.fabric else {
        let carrier = Carrier { kind: Default::default(), pmtu: None };
        let relay = services::relay(config, index, draft, ports, carrier, ledger);
        return (PlanService::Relay(relay), None);
    };
    let transport = fabric::transport(keys, index, draft, ports, ledger);
    let pmtu = fabric::pmtu(keys, index, &draft.name, &transport, hardware, ledger);
    let carrier = Carrier { kind: keys.qp.unwrap_or_default(), pmtu };
    let relay = services::relay(config, index, draft, ports, carrier, ledger);
    let sizing = Sizing { index, name: &draft.name, workers: draft.workers(), relay: &relay };
    let dscp = ledger.number(fabric_at(index, "dscp"), keys.dscp, 0, 0..=63, "");
    let plan = PlanFabric {
        // A refused peer never reaches code that runs.
        peer: peer.unwrap_or(PlanPeer::InProcess(index)),
        key: fabric::key(keys, index, ledger),
        allow: fabric::allow(keys, index, ledger),
        timing: fabric::timing(keys, index, ledger),
        qp: depths::qp(keys, sizing, ledger),
        pmtu,
        dscp: u8::try_from(dscp).unwrap_or(0),
        transport,
    };
    (PlanService::Relay(relay), Some(plan))
}

/// Both ends of a loopback pair must look the same.
fn check_pairs(nodes: &[PlanNode], ledger: &mut Ledger) {
    for (index, node) in nodes.iter().enumerate() {
        let Some(fabric) = &node.fabric else { continue };
        let PlanPeer::InProcess(other) = fabric.peer else { continue };
        let Some(theirs) = nodes[other].fabric.as_ref().filter(|_| other > index) else { continue };
        let name = &nodes[other].name;
        if fabric.qp.count != theirs.qp.count {
            let what = format!("{} QPs meet {} of node {name}", fabric.qp.count, theirs.qp.count);
            let remedy = "give both ends the same workers and qps_per_worker";
            ledger.refuse(vec![KeyPath::item("node", index)], what, remedy);
        }
        if fabric.qp.kind != theirs.qp.kind {
            let what = format!("node {name} has another QP type");
            ledger.refuse(fabric_at(index, "qp"), what, "set the same qp at both ends");
        }
    }
}

/// No two nodes answer for the same address.
fn check_addresses(nodes: &[PlanNode], ledger: &mut Ledger) {
    let addresses = |node: &PlanNode| match node.fabric.as_ref().map(|fabric| &fabric.transport) {
        Some(PlanTransport::Soft(soft)) => soft.addresses.clone(),
        _ => Vec::new(),
    };
    for (index, node) in nodes.iter().enumerate() {
        for own in addresses(node) {
            let taken = |other: &&PlanNode| addresses(other).iter().any(|a| a.address == own.address);
            if let Some(other) = nodes[..index].iter().find(taken) {
                let what = format!("node {} has {} already", other.name, own.address);
                ledger.refuse(
                    fabric_at(index, "soft.addresses"),
                    what,
                    "give each node addresses of its own",
                );
            }
        }
    }
}

fn poll(config: &Config, ledger: &mut Ledger) -> PollPolicy {
    let at = |key| vec![KeyPath::top("adaptive").key(key)];
    let keys = &config.adaptive;
    let spin_turns = ledger.number(at("spin_turns"), keys.spin_turns, 1000, 1..=1_000_000_000, "turns");
    let sleep_max_us = ledger.number(at("sleep_max_us"), keys.sleep_max_us, 100, 1..=1_000_000, "us");
    match config.poll {
        PollMode::Busy => PollPolicy::Busy,
        PollMode::Adaptive => PollPolicy::Adaptive { spin_turns, sleep_max_us },
    }
}

fn stats(config: &Config, ledger: &mut Ledger) -> PlanStats {
    let at = vec![KeyPath::top("stats").key("interval_s")];
    let interval = ledger.number(at, config.stats.interval_s, 1, 0..=3600, "seconds");
    let format: StatsFormat = config.stats.format;
    let telemetry = config.stats.telemetry.unwrap_or(true);
    PlanStats { interval_s: (interval != 0).then_some(interval), format, telemetry }
}

fn drain(config: &Config, ledger: &mut Ledger) -> PlanDrain {
    let at = vec![KeyPath::top("drain").key("timeout_ms")];
    PlanDrain { timeout_ms: ledger.number(at, config.drain.timeout_ms, 2000, 1..=600_000, "ms") }
}
