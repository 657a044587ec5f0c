//! Nodes: their service, their ports and their workers.

use super::ledger::{Ledger, fabric_at};
use super::ports::Draft;
use super::{PlanWorker, PortQueue};
use crate::config::words::nearest;
use crate::config::{
    Config, FabricKeys, KeyPath, KvKeys, LoadKeys, MemoryKeys, NodeKeys, RelayKeys, ServiceKind, SinkKeys,
    SourceKeys, TransportKind,
};

/// A node under construction.
#[derive(Debug)]
pub(super) struct DraftNode {
    pub(super) name: String,
    pub(super) kind: ServiceKind,
    pub(super) ports: Vec<usize>,
    pub(super) lcores: Vec<u16>,
    /// Keys of its RDMA side, shared ones included; `None` when it has none.
    pub(super) fabric: Option<FabricKeys>,
    /// Port of the soft transport.
    pub(super) soft_port: Option<usize>,
}

impl DraftNode {
    /// How many workers it has.
    pub(super) fn workers(&self) -> u32 {
        u32::try_from(self.lcores.len()).unwrap_or(u32::MAX)
    }
}

/// Reads all nodes; `placed` are the lcores of their workers.
pub(super) fn draft(
    config: &Config,
    placed: Vec<Vec<u16>>,
    ports: &mut Draft,
    ledger: &mut Ledger,
) -> Vec<DraftNode> {
    let mut nodes = Vec::new();
    for (index, (keys, lcores)) in config.node.iter().zip(placed).enumerate() {
        check_name(config, index, ledger);
        let kind = service(keys, index, ledger);
        check_tables(keys, kind, index, ledger);
        let own_ports = claim_ports(keys, kind, index, ports, ledger);
        let fabric = fabric_keys(config, keys, kind, index, ledger);
        let soft_port = fabric.as_ref().and_then(|fabric| claim_soft_port(fabric, index, ports, ledger));
        nodes.push(DraftNode { name: keys.name.clone(), kind, ports: own_ports, lcores, fabric, soft_port });
    }
    check_one_transport(&nodes, ledger);
    if nodes.is_empty() {
        let remedy =
            "add a [[node]] with a name, a service (relay, kv, memory, load, source or sink) and ports";
        ledger.refuse(vec![KeyPath::top("node")], "there is nothing to run", remedy);
    }
    for port in ports.ports.iter().filter(|draft| draft.port.node.is_none()) {
        let what = format!("no node uses port {}", port.port.name);
        ledger.warn(vec![port.at.clone()], what, "name it in the ports of a node, or remove it");
    }
    nodes
}

fn check_name(config: &Config, index: usize, ledger: &mut Ledger) {
    let name = &config.node[index].name;
    let at = vec![KeyPath::item("node", index).key("name")];
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() {
        ledger.refuse(at, "a name is needed", "give a short word");
    } else if name.len() > 15 || !name.chars().all(plain) {
        ledger.refuse(at, "not usable as a name", "use at most 15 letters, digits, `-`, `_` and `.`");
    } else if config.node[..index].iter().any(|other| other.name == *name) {
        ledger.refuse(at, "another node has this name", "give each node a name of its own");
    }
}

fn service(keys: &NodeKeys, index: usize, ledger: &mut Ledger) -> ServiceKind {
    keys.service.unwrap_or_else(|| {
        let at = vec![KeyPath::item("node", index).key("service")];
        ledger.refuse(
            at,
            "a service is needed",
            "choose \"relay\", \"kv\", \"memory\", \"load\", \"source\" or \"sink\"",
        );
        ServiceKind::Sink
    })
}

/// Tables of a service that the node does not run.
fn check_tables(keys: &NodeKeys, kind: ServiceKind, index: usize, ledger: &mut Ledger) {
    let set = [
        ("relay", kind == ServiceKind::Relay, keys.relay != RelayKeys::default()),
        ("source", kind == ServiceKind::Source, keys.source != SourceKeys::default()),
        ("sink", kind == ServiceKind::Sink, keys.sink != SinkKeys::default()),
        ("kv", kind == ServiceKind::Kv, keys.kv != KvKeys::default()),
        ("memory", kind == ServiceKind::Memory, keys.memory != MemoryKeys::default()),
        ("load", kind == ServiceKind::Load, keys.load != LoadKeys::default()),
        ("fabric", kind.has_fabric(), keys.fabric != FabricKeys::default()),
    ];
    for (table, used, set) in set {
        if set && !used && keys.service.is_some() {
            let what = format!("a {} node does not use these keys", kind.name());
            ledger.refuse(vec![KeyPath::item("node", index).key(table)], what, "remove the table");
        }
    }
}

fn claim_ports(
    keys: &NodeKeys,
    kind: ServiceKind,
    index: usize,
    ports: &mut Draft,
    ledger: &mut Ledger,
) -> Vec<usize> {
    let at = KeyPath::item("node", index).key("ports");
    if !kind.has_ports() {
        if !keys.ports.is_empty() {
            let remedy = "leave it out; the port of the soft transport is fabric.soft.port";
            ledger.refuse(vec![at], "a memory node has no clients", remedy);
        }
        return Vec::new();
    }
    if keys.ports.is_empty() {
        let remedy = format!("name ports of [[port]] or [[link]]{}", known(ports));
        ledger.refuse(vec![at.clone()], "a node needs a port", remedy);
    }
    if keys.ports.len() > 1 {
        let remedy = "add a [[node]] per port; nodes may share lcores";
        ledger.refuse(vec![at.clone()], "a worker serves one port", remedy);
    }
    let mut own: Vec<usize> = Vec::new();
    for name in &keys.ports {
        if let Some(port) = claim(name, index, vec![at.clone()], ports, ledger) {
            if own.contains(&port) {
                ledger.refuse(vec![at.clone()], format!("port {name} is named twice"), "name it once");
            } else {
                own.push(port);
            }
        }
    }
    own
}

fn claim_soft_port(
    fabric: &FabricKeys,
    index: usize,
    ports: &mut Draft,
    ledger: &mut Ledger,
) -> Option<usize> {
    if fabric.transport != Some(TransportKind::Soft) {
        return None;
    }
    let at = fabric_at(index, "soft.port");
    match &fabric.soft.port {
        Some(name) => claim(name, index, at, ports, ledger),
        None => {
            let remedy = format!("name a port of [[port]] or [[link]]{}", known(ports));
            ledger.refuse(at, "the soft transport needs a port for its packets", remedy);
            None
        }
    }
}

fn claim(name: &str, node: usize, at: Vec<KeyPath>, ports: &mut Draft, ledger: &mut Ledger) -> Option<usize> {
    let Some(port) = ports.find(name) else {
        if ports.lacks_ports {
            // The link that is refused may have been to make it.
            return None;
        }
        let remedy = match nearest(name, ports.names().into_iter()) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => format!("add it as a [[port]]{}", known(ports)),
        };
        ledger.refuse(at, format!("there is no port \"{name}\""), remedy);
        return None;
    };
    let owner = &mut ports.ports[port].port.node;
    if owner.is_some_and(|other| other != node) {
        let what = format!("port {name} belongs to another node already");
        ledger.refuse(at, what, "give each node ports of its own; a [[link]] joins two nodes");
        return None;
    }
    *owner = Some(node);
    Some(port)
}

fn known(ports: &Draft) -> String {
    let names = ports.names();
    if names.is_empty() { String::new() } else { format!("; there are {}", names.join(", ")) }
}

fn fabric_keys(
    config: &Config,
    keys: &NodeKeys,
    kind: ServiceKind,
    index: usize,
    ledger: &mut Ledger,
) -> Option<FabricKeys> {
    if !kind.has_fabric() {
        return None;
    }
    let shared = config.fabric.clone().unwrap_or_default();
    let merged = keys.fabric.over(&shared);
    if merged.transport.is_none() {
        let mut at = fabric_at(index, "transport");
        if config.fabric.is_none() {
            at.reverse();
        }
        let what = format!("a {} node needs a transport", kind.name());
        ledger.refuse(at, what, "choose \"verbs\", \"soft\" or \"loopback\"");
        return None;
    }
    Some(merged)
}

/// Workers are built for one transport: all nodes of a process have the same.
fn check_one_transport(nodes: &[DraftNode], ledger: &mut Ledger) {
    let kind = |node: &DraftNode| node.fabric.as_ref().and_then(|keys| keys.transport);
    let mut first: Option<(&str, TransportKind)> = None;
    for (index, node) in nodes.iter().enumerate() {
        match (first, kind(node)) {
            (None, Some(transport)) => first = Some((&node.name, transport)),
            (Some((name, transport)), Some(other)) if other != transport => {
                let what = format!("node {name} has another transport, and a process has one");
                ledger.refuse(fabric_at(index, "transport"), what, "run it as a process of its own");
            }
            _ => {}
        }
    }
}

/// Gives each worker its queue of the node's ports and `qps` QPs.
pub(super) fn workers(node: &DraftNode, qps: u32) -> Vec<PlanWorker> {
    let share = |(worker, lcore): (usize, &u16)| {
        let queue = u16::try_from(worker).unwrap_or(u16::MAX);
        let lane = |port: &usize| PortQueue { port: *port, queue };
        let first = u32::from(queue).saturating_mul(qps);
        PlanWorker {
            lcore: *lcore,
            queues: node.ports.iter().map(lane).collect(),
            fabric_queues: node.soft_port.iter().map(lane).collect(),
            qps: first..first.saturating_add(qps),
        }
    };
    node.lcores.iter().enumerate().map(share).collect()
}
