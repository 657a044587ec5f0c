//! From configuration to plan, step by step.

use super::depths::{Sizing, Subject};
use super::ledger::{Ledger, fabric_at, service_at};
use super::nodes::DraftNode;
use super::ports::Draft;
use super::services::Carrier;
use super::{
    Hardware, Plan, PlanDrain, PlanFabric, PlanNode, PlanPeer, PlanPort, PlanQp, PlanService, PlanStats,
    PlanTransport, PollPolicy, access, depths, eal, fabric, kv, kv_lanes, lcores, limits, load, memory,
    nodes, peers, pools, ports, services, subnets,
};
use crate::config::{
    Config, FabricKeys, InterfaceAddress, KeyPath, PollMode, Problem, QpKind, ServiceKind, StatsFormat,
    TransportKind,
};

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
    kv::check_meetings(&nodes, &mut ledger);
    subnets::check(&nodes, &mut ledger);
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
    let all = peers::resolve(config, drafts, ledger);
    // Only who is met from outside this process has to prove itself by a key of the file.
    let listens = |node: &usize| matches!(all[*node].first(), Some(PlanPeer::Listen(_)));
    let outside: Vec<bool> = all
        .iter()
        .map(|own| {
            own.iter().any(|peer| match peer {
                PlanPeer::InProcess(other) => listens(other),
                PlanPeer::Listen(_) | PlanPeer::Connect(_) => true,
                PlanPeer::Awaited => false,
            })
        })
        .collect();
    let mut nodes = Vec::new();
    for (index, (draft, peers)) in drafts.iter().zip(all).enumerate() {
        let relay = draft.kind == ServiceKind::Relay;
        let loopback =
            draft.fabric.as_ref().is_some_and(|keys| keys.transport == Some(TransportKind::Loopback));
        let outside = !loopback && (relay || outside[index]);
        let mut side = Side { config, index, draft, peers, outside, ports, hardware };
        let (service, fabric) = match draft.kind {
            ServiceKind::Relay => side.relay(ledger),
            ServiceKind::Kv => side.gateway(ledger),
            ServiceKind::Memory => side.memory(ledger),
            ServiceKind::Source => {
                (PlanService::Source(services::source(config, index, draft, ports, ledger)), None)
            }
            ServiceKind::Load => (PlanService::Load(load::load(config, index, draft, ports, ledger)), None),
            ServiceKind::Sink => (PlanService::Sink(services::sink(config, index, ledger)), None),
        };
        let workers = draft.workers().max(1);
        let qps = fabric.as_ref().map_or(0, |fabric| fabric.lanes().map(|lane| lane.count / workers).sum());
        nodes.push(PlanNode {
            name: draft.name.clone(),
            service,
            ports: draft.ports.clone(),
            workers: nodes::workers(draft, qps),
            fabric,
            frame_pool: None,
            message_pool: None,
            slice_pool: None,
        });
    }
    nodes
}

/// What a node with an RDMA side is made from.
struct Side<'a> {
    config: &'a Config,
    index: usize,
    draft: &'a DraftNode,
    peers: Vec<PlanPeer>,
    /// True if a peer is met from outside this process.
    outside: bool,
    ports: &'a Draft,
    hardware: Option<&'a Hardware>,
}

impl Side<'_> {
    fn subject(&self) -> Subject<'_> {
        Subject { index: self.index, name: &self.draft.name }
    }

    fn relay(&mut self, ledger: &mut Ledger) -> (PlanService, Option<PlanFabric>) {
        let Side { config, index, draft, ports, .. } = *self;
        let Some(keys) = &draft.fabric else {
            let carrier = Carrier { kind: Default::default(), pmtu: None };
            return (PlanService::Relay(services::relay(config, index, draft, ports, carrier, ledger)), None);
        };
        let (transport, pmtu) = self.carrier(keys, ledger);
        let carrier = Carrier { kind: keys.qp.unwrap_or_default(), pmtu };
        let relay = services::relay(config, index, draft, ports, carrier, ledger);
        let dscp = self.dscp(keys, ledger);
        let mut fabric = self.fabric(keys, transport, pmtu, dscp, ledger);
        let sizing = Sizing { index, name: &draft.name, workers: draft.workers(), relay: &relay };
        fabric.qp = depths::qp(keys, sizing, ledger);
        (PlanService::Relay(relay), Some(fabric))
    }

    fn gateway(&mut self, ledger: &mut Ledger) -> (PlanService, Option<PlanFabric>) {
        let Side { config, index, draft, ports, .. } = *self;
        let kv = kv::gateway(config, index, draft, ports, ledger);
        let Some(keys) = &draft.fabric else { return (PlanService::Kv(kv), None) };
        let mut fabric = self.kv_fabric(keys, ledger);
        let (read, call) = kv_lanes::gateway(config, keys, self.subject(), (&kv, draft.workers()), ledger);
        (fabric.qp, fabric.call) = (read, Some(call));
        (PlanService::Kv(kv), Some(fabric))
    }

    fn memory(&mut self, ledger: &mut Ledger) -> (PlanService, Option<PlanFabric>) {
        let Side { config, index, draft, .. } = *self;
        let memory = kv::memory(config, index, draft, ledger);
        let Some(keys) = &draft.fabric else { return (PlanService::Memory(memory), None) };
        let mut fabric = self.kv_fabric(keys, ledger);
        let (read, call) = kv_lanes::memory(config, keys, self.subject(), (&memory, draft.workers()), ledger);
        (fabric.qp, fabric.call) = (read, Some(call));
        (PlanService::Memory(memory), Some(fabric))
    }

    fn kv_fabric(&mut self, keys: &FabricKeys, ledger: &mut Ledger) -> PlanFabric {
        if let Some(kind) = keys.qp.filter(|kind| *kind != QpKind::Rc) {
            let name = if kind == QpKind::Uc { "an unreliable connection" } else { "a datagram queue pair" };
            let remedy = "the key-value service needs qp = \"rc\"";
            ledger.refuse(fabric_at(self.index, "qp"), format!("{name} has no READs"), remedy);
        }
        if keys.srq == Some(true) {
            let remedy = "remove it, or set srq = false for this node";
            ledger.refuse(
                fabric_at(self.index, "srq"),
                "the key-value service posts its receives to each QP",
                remedy,
            );
        }
        let (transport, pmtu) = self.carrier(keys, ledger);
        let dscp = self.dscp(keys, ledger);
        self.fabric(keys, transport, pmtu, dscp, ledger)
    }

    fn carrier(&self, keys: &FabricKeys, ledger: &mut Ledger) -> (PlanTransport, Option<u32>) {
        let mut transport = fabric::transport(keys, self.index, self.draft, self.ports, ledger);
        let pmtu = fabric::pmtu(keys, self.index, &self.draft.name, &transport, self.hardware, ledger);
        fabric::window(keys, &self.draft.name, pmtu, &mut transport, ledger);
        (transport, pmtu)
    }

    fn dscp(&self, keys: &FabricKeys, ledger: &mut Ledger) -> u8 {
        let dscp = ledger.number(fabric_at(self.index, "dscp"), keys.dscp, 0, 0..=63, "");
        u8::try_from(dscp).unwrap_or(0)
    }

    /// The RDMA side but for its queue pairs.
    fn fabric(
        &mut self,
        keys: &FabricKeys,
        transport: PlanTransport,
        pmtu: Option<u32>,
        dscp: u8,
        ledger: &mut Ledger,
    ) -> PlanFabric {
        let index = self.index;
        PlanFabric {
            peers: std::mem::take(&mut self.peers),
            key: access::key(keys, index, self.outside, ledger),
            allow: access::allow(keys, index, ledger),
            timing: fabric::timing(keys, index, ledger),
            qp: PlanQp::default(),
            call: None,
            pmtu,
            dscp,
            transport,
        }
    }
}

/// Both ends of a loopback pair must look the same.
fn check_pairs(nodes: &[PlanNode], ledger: &mut Ledger) {
    for (index, node) in nodes.iter().enumerate() {
        let Some(fabric) = &node.fabric else { continue };
        let Some(PlanPeer::InProcess(other)) =
            fabric.peers.first().filter(|_| node.service.kind() == ServiceKind::Relay)
        else {
            continue;
        };
        let other = *other;
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

/// No two nodes answer for the same address, nor one node on two ports.
fn check_addresses(nodes: &[PlanNode], ledger: &mut Ledger) {
    let soft = |node: &PlanNode| match node.fabric.as_ref().map(|fabric| &fabric.transport) {
        Some(PlanTransport::Soft(soft)) => soft.addresses.clone(),
        _ => Vec::new(),
    };
    let kv = |node: &PlanNode| match &node.service {
        PlanService::Kv(kv) => kv.addresses.clone(),
        _ => Vec::new(),
    };
    let mut taken: Vec<(&str, InterfaceAddress)> = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let own = [
            (soft(node), fabric_at(index, "soft.addresses")),
            (kv(node), service_at(index, "kv", "addresses")),
        ];
        for (addresses, at) in own {
            for own in addresses {
                if let Some((name, _)) = taken.iter().find(|(_, other)| other.address == own.address) {
                    let what = format!("node {name} has {} already", own.address);
                    ledger.refuse(at.clone(), what, "give each node and service addresses of its own");
                }
                taken.push((&node.name, own));
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
