//! Who talks to whom.

use std::net::SocketAddr;

use super::PlanPeer;
use super::kv_peers;
use super::ledger::{Ledger, fabric_at};
use super::nodes::DraftNode;
use crate::config::words::nearest;
use crate::config::{Config, FabricKeys, HostPort, KeyPath, ServiceKind, TransportKind};

/// The peers of each node; none for nodes without an RDMA side and for refused ones.
pub(super) fn resolve(config: &Config, nodes: &[DraftNode], ledger: &mut Ledger) -> Vec<Vec<PlanPeer>> {
    let in_process = pair_loopback(nodes, ledger);
    let mut peers: Vec<Vec<PlanPeer>> = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let own: Vec<PlanPeer> = match (&node.fabric, node.kind) {
            (None, _) => Vec::new(),
            (Some(keys), ServiceKind::Kv) => kv_peers::memory_nodes(config, nodes, index, keys, ledger),
            (Some(keys), ServiceKind::Memory) => kv_peers::awaited(config, nodes, index, keys, ledger),
            (Some(keys), _) if keys.transport == Some(TransportKind::Loopback) => {
                in_process[index].map(PlanPeer::InProcess).into_iter().collect()
            }
            (Some(keys), _) => by_address(keys, index, ledger).into_iter().collect(),
        };
        if let Some(PlanPeer::Listen(address)) = own.first() {
            let taken = peers.iter().position(|other| other.contains(&PlanPeer::Listen(*address)));
            if let Some(other) = taken {
                let what = format!("node {} listens there already", nodes[other].name);
                ledger.refuse(fabric_at(index, "listen"), what, "give each node a port of its own");
            }
        }
        peers.push(own);
    }
    peers
}

/// Places of a key that each node usually has of its own: where neither is set, the node is shown.
pub(super) fn node_at(index: usize, key: &str) -> Vec<KeyPath> {
    let mut at = fabric_at(index, key);
    at.push(KeyPath::item("node", index).key("fabric").key(key));
    at
}

fn by_address(keys: &FabricKeys, index: usize, ledger: &mut Ledger) -> Option<PlanPeer> {
    match (&keys.listen, &keys.connect) {
        (Some(_), Some(_)) => {
            let what = "listen and connect are both given, a relay has one peer";
            ledger.refuse(node_at(index, "connect"), what, "keep listen at one end and connect at the other");
            None
        }
        (Some(text), None) => listen(text, index, ledger),
        (None, Some(text)) => match text.parse::<HostPort>() {
            Ok(peer) => Some(PlanPeer::Connect(peer)),
            Err(error) => {
                let remedy = "write the address that the peer listens on: \"10.9.0.2:7471\"";
                ledger.refuse(node_at(index, "connect"), error.to_string(), remedy);
                None
            }
        },
        (None, None) => {
            let remedy = "set listen = \"ADDRESS:PORT\" at one end and connect at the other";
            ledger.refuse(node_at(index, "connect"), "a relay needs a peer", remedy);
            None
        }
    }
}

pub(super) fn listen(text: &str, index: usize, ledger: &mut Ledger) -> Option<PlanPeer> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() != 0 => Some(PlanPeer::Listen(address)),
        _ => {
            let what = "not an address and a port";
            let remedy =
                "write \"10.9.0.1:7471\", \"[2001:db8::1]:7471\", or \"0.0.0.0:7471\" for all addresses";
            ledger.refuse(node_at(index, "listen"), what, remedy);
            None
        }
    }
}

/// Loopback: `connect` names a node; one of the two is enough.
fn pair_loopback(nodes: &[DraftNode], ledger: &mut Ledger) -> Vec<Option<usize>> {
    let mut peers = vec![None; nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        let Some(keys) = loopback(node) else { continue };
        if keys.listen.is_some() {
            let remedy = "remove it; name the other node in connect";
            ledger.refuse(node_at(index, "listen"), "loopback stays within this process", remedy);
        }
        let Some(name) = &keys.connect else { continue };
        let Some(other) = loopback_target(nodes, index, name, ledger) else { continue };
        let free = |peer: Option<usize>, wanted: usize| peer.is_none_or(|peer| peer == wanted);
        if free(peers[index], other) && free(peers[other], index) {
            peers[index] = Some(other);
            peers[other] = Some(index);
        } else {
            let what = format!("node {} or {name} has another peer already", node.name);
            ledger.refuse(node_at(index, "connect"), what, "join nodes in pairs");
        }
    }
    for (index, node) in nodes.iter().enumerate() {
        if loopback(node).is_some_and(|keys| keys.connect.is_none()) && peers[index].is_none() {
            let what = "no node of this process connects to it";
            ledger.refuse(node_at(index, "connect"), what, "name the other relay: connect = \"NODE\"");
        }
    }
    peers
}

fn loopback(node: &DraftNode) -> Option<&FabricKeys> {
    let keys = node.fabric.as_ref().filter(|_| node.kind == ServiceKind::Relay);
    keys.filter(|keys| keys.transport == Some(TransportKind::Loopback))
}

fn loopback_target(nodes: &[DraftNode], index: usize, name: &str, ledger: &mut Ledger) -> Option<usize> {
    let at = || node_at(index, "connect");
    let others =
        || nodes.iter().enumerate().filter(|(other, node)| *other != index && loopback(node).is_some());
    let found = others().find(|(_, node)| node.name == name).map(|(other, _)| other);
    if found.is_none() {
        let remedy = match nearest(name, others().map(|(_, node)| node.name.as_str())) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => "name another relay of this file whose transport is \"loopback\"".to_owned(),
        };
        ledger.refuse(at(), "no other loopback relay has this name", remedy);
    }
    found
}
