//! Whether nodes of this file that meet over the soft transport have addresses for each other.

use super::ledger::{Ledger, fabric_at};
use super::{PlanNode, PlanPeer, PlanSoft, PlanTransport};

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
    if own.addresses.is_empty()
        || theirs.addresses.is_empty()
        || (reaches(own, theirs) && reaches(theirs, own))
    {
        return;
    }
    let list: Vec<String> = theirs.addresses.iter().map(ToString::to_string).collect();
    let what = format!("node {name}, which it meets, has {} and is in another subnet", list.join(", "));
    let remedy = "give both an address of one subnet, or each a next hop: soft.gateway";
    ledger.refuse(fabric_at(index, "soft.addresses"), what, remedy);
}

/// True if it has a way to the other: directly, or by its next hop.
fn reaches(own: &PlanSoft, other: &PlanSoft) -> bool {
    let is_near =
        |to: &PlanSoft| own.addresses.iter().any(|a| to.addresses.iter().any(|b| a.reaches(b.address)));
    own.gateway.is_some() || is_near(other)
}
