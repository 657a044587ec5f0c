//! Whether nodes of this file that meet over the soft transport have addresses for each other.

use super::ledger::{Ledger, fabric_at};
use super::{PlanNode, PlanPeer, PlanSoft, PlanTransport};
use crate::host::next_hop;
use std::net::IpAddr;

/// Refuses nodes that would look for each other in vain: in no common subnet, and without a next hop.
pub(super) fn check(nodes: &[PlanNode], ledger: &mut Ledger) {
    for (index, node) in nodes.iter().enumerate() {
        let Some(fabric) = &node.fabric else { continue };
        for peer in &fabric.peers {
            let PlanPeer::InProcess(other) = *peer else { continue };
            // Ends of a relay name each other: once is enough.
            let is_mutual =
                nodes[other].fabric.as_ref().is_some_and(|f| f.peers.contains(&PlanPeer::InProcess(index)));
            if is_mutual && other < index {
                continue;
            }
            if let (Some(own), Some(theirs)) = (soft(node), soft(&nodes[other])) {
                check_pair((index, own), (&nodes[other].name, theirs), ledger);
            }
        }
    }
}

fn soft(node: &PlanNode) -> Option<&PlanSoft> {
    match &node.fabric.as_ref()?.transport {
        PlanTransport::Soft(soft) => Some(soft),
        _ => None,
    }
}

fn check_pair((index, own): (usize, &PlanSoft), (name, theirs): (&str, &PlanSoft), ledger: &mut Ledger) {
    let (Some(here), Some(there)) = (address(own), address(theirs)) else { return };
    let has_way = |from: &PlanSoft, to| next_hop(&from.addresses, from.gateway, to).is_some();
    if here.is_ipv4() == there.is_ipv4() && has_way(own, there) && has_way(theirs, here) {
        return;
    }
    let what = format!("{here} is to meet node {name} at {there}, and one of them has no way to the other");
    let remedy = "give both a first address of one subnet, or each a next hop of that family: soft.gateway";
    ledger.refuse(fabric_at(index, "soft.addresses"), what, remedy);
}

/// The address that a node uses towards another one of its process: what they agree on goes by loopback, which is in no subnet of
/// theirs, so it is the first one that others can be asked for, as [`choose_gid`](rdma_engine::cm::choose_gid) has it.
fn address(soft: &PlanSoft) -> Option<IpAddr> {
    let all = || soft.addresses.iter().map(|own| own.address);
    let is_link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    all().find(|ip| !is_link_local(ip)).or_else(|| all().next())
}

#[cfg(test)]
mod tests {
    use crate::config::ConfigFile;

    /// Whether a gateway and a memory node with these lines of `fabric.soft` meet.
    fn meet(gateway: &str, memory: &str) -> bool {
        let text = std::fs::read_to_string("tests/data/conf/bad/soft_subnets.toml").unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n"));
        let text = lines
            .collect::<String>()
            .replace("addresses = [\"192.0.2.1/24\", \"2001:db8::1/64\"]", gateway)
            .replace("addresses = [\"192.0.3.2/24\"]", memory);
        match ConfigFile::parse("c.toml", &text).plan(None) {
            Ok(_) => true,
            Err(errors) => {
                let errors = errors.to_string();
                assert!(errors.contains("has no way to the other"), "{errors}");
                false
            }
        }
    }

    #[test]
    fn nodes_meet_by_their_first_addresses_or_a_next_hop() {
        let near = "addresses = [\"192.0.2.2/24\"]";
        assert!(meet("addresses = [\"192.0.2.1/24\", \"198.18.0.1/24\"]", near));
        assert!(
            !meet("addresses = [\"198.18.0.1/24\", \"192.0.2.1/24\"]", near),
            "the second one is not used"
        );
        assert!(!meet(
            "addresses = [\"192.0.2.1/24\", \"2001:db8::1/64\"]",
            "addresses = [\"2001:db8::2/64\"]"
        ));
        let far = "addresses = [\"192.0.3.2/24\"]";
        assert!(!meet("addresses = [\"192.0.2.1/24\"]\ngateway = \"192.0.2.254\"", far), "no way back");
        let routed = "addresses = [\"192.0.3.2/24\"]\ngateway = \"192.0.3.254\"";
        assert!(meet("addresses = [\"192.0.2.1/24\"]\ngateway = \"192.0.2.254\"", routed));
        assert!(meet("addresses = [\"fe80::1/128\"]", "addresses = [\"fe80::2/128\"]"), "of one link");
        assert!(meet("addresses = [\"fe80::1/64\", \"2001:db8::1/64\"]", "addresses = [\"2001:db8::2/64\"]"));
    }
}
