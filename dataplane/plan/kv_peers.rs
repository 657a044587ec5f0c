//! Who meets whom in the key-value service.

use super::PlanPeer;
use super::ledger::{Ledger, service_at};
use super::nodes::DraftNode;
use super::peers::{listen, node_at};
use crate::config::words::nearest;
use crate::config::{Config, FabricKeys, HostPort, ServiceKind, TransportKind};

/// The memory nodes of a gateway, in the order of its list.
pub(super) fn memory_nodes(
    config: &Config,
    nodes: &[DraftNode],
    index: usize,
    keys: &FabricKeys,
    ledger: &mut Ledger,
) -> Vec<PlanPeer> {
    let own = &config.node[index].fabric;
    for (key, set) in [("listen", own.listen.is_some()), ("connect", own.connect.is_some())] {
        if set {
            ledger.refuse(
                node_at(index, key),
                "a gateway goes to the nodes of its list",
                "remove it; use kv.nodes",
            );
        }
    }
    let at = || service_at(index, "kv", "nodes");
    let list = names(config, index);
    let mut peers = Vec::new();
    for (place, text) in list.iter().enumerate() {
        if list[..place].contains(text) {
            ledger.refuse(at(), format!("{text} is listed twice"), "list each memory node once");
        } else if text.contains(':') {
            peers.extend(elsewhere(text, index, keys, ledger));
        } else {
            peers.extend(here(text, index, nodes, ledger));
        }
    }
    if list.is_empty() {
        let remedy = "name memory nodes of this file, or others by address: nodes = [\"10.9.0.2:7472\"]";
        ledger.refuse(at(), "a gateway needs a memory node", remedy);
    }
    peers
}

fn names(config: &Config, index: usize) -> Vec<String> {
    config.node[index].kv.over(&config.service.kv).nodes.unwrap_or_default()
}

fn elsewhere(text: &str, index: usize, keys: &FabricKeys, ledger: &mut Ledger) -> Option<PlanPeer> {
    let at = service_at(index, "kv", "nodes");
    if keys.transport == Some(TransportKind::Loopback) {
        ledger.refuse(at, "loopback stays within this process", "name memory nodes of this file");
        return None;
    }
    match text.parse::<HostPort>() {
        Ok(peer) => Some(PlanPeer::Connect(peer)),
        Err(error) => {
            ledger.refuse(at, format!("\"{text}\": {error}"), "write the address that the node listens on");
            None
        }
    }
}

fn here(name: &str, index: usize, nodes: &[DraftNode], ledger: &mut Ledger) -> Option<PlanPeer> {
    let memory = || nodes.iter().enumerate().filter(|(_, node)| node.kind == ServiceKind::Memory);
    if let Some((other, _)) = memory().find(|(_, node)| node.name == name) {
        return Some(PlanPeer::InProcess(other));
    }
    let remedy = match nearest(name, memory().map(|(_, node)| node.name.as_str())) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => "name a node of this file with service = \"memory\", or write \"host:port\"".to_owned(),
    };
    ledger.refuse(service_at(index, "kv", "nodes"), format!("there is no memory node \"{name}\""), remedy);
    None
}

/// Where a memory node awaits its gateways: on an address, and those of this process in any case.
pub(super) fn awaited(
    config: &Config,
    nodes: &[DraftNode],
    index: usize,
    keys: &FabricKeys,
    ledger: &mut Ledger,
) -> Vec<PlanPeer> {
    if config.node[index].fabric.connect.is_some() {
        let remedy = "remove it; set listen, and name the node in the nodes of its gateways";
        ledger.refuse(node_at(index, "connect"), "gateways come to a memory node", remedy);
    }
    let loopback = keys.transport == Some(TransportKind::Loopback);
    if let Some(text) = &keys.listen {
        if loopback {
            let remedy = "remove it; name the node in the nodes of a gateway of this file";
            ledger.refuse(node_at(index, "listen"), "loopback stays within this process", remedy);
        }
        return listen(text, index, ledger).into_iter().collect();
    }
    let name = &nodes[index].name;
    let gateways = nodes.iter().enumerate().filter(|(_, node)| node.kind == ServiceKind::Kv);
    if !gateways.map(|(gateway, _)| names(config, gateway)).any(|list| list.contains(name)) {
        let at = node_at(index, "listen");
        if nodes.iter().any(|node| node.kind == ServiceKind::Kv) {
            let remedy = "name it in the nodes of a gateway of this file, now or by a reload, or set listen = \"ADDRESS:PORT\"";
            ledger.warn(at, "no gateway comes", remedy);
        } else {
            ledger.refuse(
                at,
                "no gateway can come",
                "set listen = \"ADDRESS:PORT\", or add a gateway to this file",
            );
        }
    }
    vec![PlanPeer::Awaited]
}
