//! The plan against what the hardware said it can do.

use super::ledger::{Ledger, fabric_at, service_at};
use super::{
    DescriptorLimits, Hardware, PlanFabric, PlanNode, PlanPort, PlanService, PlanTransport, PortLimits,
    RdmaLimits, RssPlan,
};
use crate::config::{ChecksumOffload, KeyPath};

/// A port against its driver's limits. Queues are compared where they are settled.
pub(super) fn check_port(port: &PlanPort, limits: &PortLimits, at: &KeyPath, ledger: &mut Ledger) {
    let rings = [("rx_desc", port.rx_desc, limits.rx_desc), ("tx_desc", port.tx_desc, limits.tx_desc)];
    for (key, count, bounds) in rings {
        let count = u32::from(count);
        if count < bounds.min || count > bounds.max {
            let what = format!("{} takes {} to {} here", limits.device, bounds.min, bounds.max);
            let remedy = format!("set {key} = {}", count.max(bounds.min).min(bounds.max));
            ledger.refuse_value(vec![at.key(key)], count, what, remedy);
        } else if bounds.align > 1 && !count.is_multiple_of(bounds.align) {
            let what = format!("{} takes multiples of {} here", limits.device, bounds.align);
            let remedy = format!("set {key} = {}", count - count % bounds.align);
            ledger.refuse_value(vec![at.key(key)], count, what, remedy);
        }
    }
    let mtu = u32::from(port.mtu);
    if port.set_mtu && (mtu < limits.min_mtu || mtu > limits.max_mtu) {
        let what = format!("{} takes {} to {} here", limits.device, limits.min_mtu, limits.max_mtu);
        let remedy = format!("set mtu = {}", mtu.max(limits.min_mtu).min(limits.max_mtu));
        ledger.refuse_value(vec![at.key("mtu")], mtu, what, remedy);
    }
    if port.rss == RssPlan::Required && !limits.rss {
        let what = format!("{} does not hash frames here", limits.device);
        ledger.refuse(vec![at.key("rss")], what, "leave rss out");
    }
    if port.checksum_offload == ChecksumOffload::On && !limits.tx_checksum {
        let what = format!("{} computes no checksums here", limits.device);
        ledger.refuse(vec![at.key("checksum_offload")], what, "set \"auto\"");
    }
}

/// The device facts that a verbs node would use: the one it names, else the only active one.
pub(super) fn rdma_of<'h>(
    device: Option<&str>,
    port: u8,
    hardware: Option<&'h Hardware>,
) -> Option<&'h RdmaLimits> {
    let rdma = &hardware?.rdma;
    match device {
        Some(name) => rdma.iter().find(|limits| limits.device == name && limits.port == port),
        None => rdma.iter().find(|limits| limits.active && limits.port == port),
    }
}

/// A number of descriptors that was not asked for gives way to the driver's limits.
pub(super) fn fit(count: u16, asked: bool, bounds: DescriptorLimits) -> u16 {
    if asked {
        return count;
    }
    let within = u32::from(count).min(bounds.max).max(bounds.min);
    let aligned = within - within % bounds.align.max(1);
    u16::try_from(aligned.max(bounds.min)).unwrap_or(count)
}

/// All nodes against the RDMA devices.
pub(super) fn check_rdma(nodes: &[PlanNode], regions: u32, hardware: Option<&Hardware>, ledger: &mut Ledger) {
    let Some(hardware) = hardware.filter(|hardware| !hardware.rdma.is_empty()) else { return };
    for (index, node) in nodes.iter().enumerate() {
        let Some(fabric) = &node.fabric else { continue };
        let PlanTransport::Verbs { device, port, gid_index } = &fabric.transport else { continue };
        let Some(limits) = rdma_of(device.as_deref(), *port, Some(hardware)) else {
            refuse_device(index, device.as_deref(), *port, hardware, ledger);
            continue;
        };
        if device.is_none() {
            refuse_ambiguous(index, *port, hardware, ledger);
        }
        if !limits.active {
            let what = format!("port {} of {} is down", limits.port, limits.device);
            ledger.warn(fabric_at(index, "verbs.device"), what, "bring its link up");
        }
        if gid_index.is_some_and(|gid| u32::from(gid) >= limits.gids) {
            let what = format!("{} has {} GIDs", limits.device, limits.gids);
            ledger.refuse(
                fabric_at(index, "verbs.gid_index"),
                what,
                "leave it out to have it chosen by rule",
            );
        }
        check_depths(index, node, fabric, limits, ledger);
        check_counts(index, nodes, regions, limits, hardware, ledger);
    }
}

fn refuse_device(index: usize, device: Option<&str>, port: u8, hardware: &Hardware, ledger: &mut Ledger) {
    let known = |limits: &RdmaLimits| format!("{} port {}", limits.device, limits.port);
    let list = hardware.rdma.iter().map(known).collect::<Vec<_>>().join(", ");
    let what = match device {
        Some(name) => format!("there is no RDMA device {name} with a port {port}"),
        None => "no RDMA device is active".to_owned(),
    };
    ledger.refuse(fabric_at(index, "verbs.device"), what, format!("this machine has {list}"));
}

fn refuse_ambiguous(index: usize, port: u8, hardware: &Hardware, ledger: &mut Ledger) {
    let active: Vec<_> = hardware.rdma.iter().filter(|limits| limits.active && limits.port == port).collect();
    if active.len() > 1 {
        let names = active.iter().map(|limits| limits.device.as_str()).collect::<Vec<_>>().join(", ");
        ledger.refuse(
            fabric_at(index, "verbs.device"),
            format!("{names} are all active"),
            "name one of them",
        );
    }
}

fn check_depths(
    index: usize,
    node: &PlanNode,
    fabric: &PlanFabric,
    limits: &RdmaLimits,
    ledger: &mut Ledger,
) {
    let device = &limits.device;
    let mut most = |at: Vec<KeyPath>, key: &str, value: u32, max: u32| {
        if value > max {
            let what = format!("{device} offers at most {max}");
            ledger.refuse_value(at, value, what, format!("set {key} = {max} or less"));
        }
    };
    let service = node.service.kind().name();
    for (lane, qp) in fabric.lanes().enumerate() {
        let at = |key: &str| match (&fabric.call, lane) {
            (None, _) => fabric_at(index, key),
            (Some(_), 0) => service_at(index, service, &format!("read.{key}")),
            (Some(_), _) => service_at(index, service, &format!("call.{key}")),
        };
        most(at("send_depth"), "send_depth", qp.send_depth, limits.max_qp_wr);
        let receives = if qp.srq { limits.max_srq_wr } else { limits.max_qp_wr };
        most(at("recv_depth"), "recv_depth", qp.recv_depth, receives);
        most(at("cq_depth"), "cq_depth", qp.cq_depth, limits.max_cqe);
    }
    let qp = &fabric.qp;
    most(fabric_at(index, "max_sge"), "max_sge", qp.max_sge, limits.max_sge);
    most(fabric_at(index, "read_depth"), "read_depth", u32::from(qp.read_depth), limits.max_read_depth);
    if let Some(pmtu) = fabric.pmtu.filter(|pmtu| *pmtu > limits.active_mtu) {
        let what = format!("the active MTU of {device} is {}", limits.active_mtu);
        let remedy = format!("set pmtu = {} or raise the MTU of its network device", limits.active_mtu);
        ledger.refuse_value(fabric_at(index, "pmtu"), pmtu, what, remedy);
    }
    ledger.rule(
        "device-limits",
        node.name.clone(),
        format!(
            "{device}: {} QPs, {} requests, {} CQ entries, {} segments, {} regions",
            limits.max_qp, limits.max_qp_wr, limits.max_cqe, limits.max_sge, limits.max_mr
        ),
        "compared with the plan",
    );
}

/// QPs, CQs and regions of all nodes that share the device.
fn check_counts(
    index: usize,
    nodes: &[PlanNode],
    regions: u32,
    limits: &RdmaLimits,
    hardware: &Hardware,
    ledger: &mut Ledger,
) {
    let same_device = |node: &&PlanNode| match node.fabric.as_ref().map(|fabric| &fabric.transport) {
        Some(PlanTransport::Verbs { device, port, .. }) => {
            rdma_of(device.as_deref(), *port, Some(hardware)).is_some_and(|used| used.device == limits.device)
        }
        _ => false,
    };
    let sharing: Vec<_> = nodes.iter().filter(same_device).collect();
    let lanes = || sharing.iter().filter_map(|node| Some((node, node.fabric.as_ref()?)));
    let qps: u64 = lanes().flat_map(|(_, fabric)| fabric.lanes().map(|qp| u64::from(qp.count))).sum();
    let cqs: u64 =
        lanes().map(|(node, fabric)| node.workers.len() as u64 * fabric.lanes().count() as u64).sum();
    if qps > u64::from(limits.max_qp) {
        let what = format!("{qps} QPs in all, {} offers {}", limits.device, limits.max_qp);
        let (service, key) = match &nodes[index].service {
            PlanService::Kv(_) => ("kv", "node_workers_max"),
            PlanService::Memory(_) => ("memory", "seats"),
            _ => ("relay", "qps_per_worker"),
        };
        ledger.refuse(service_at(index, service, key), what, format!("lower {key} or workers"));
    }
    if cqs > u64::from(limits.max_cq) {
        let what = format!("{cqs} completion queues in all, {} offers {}", limits.device, limits.max_cq);
        ledger.refuse(vec![KeyPath::item("node", index).key("workers")], what, "use fewer workers");
    }
    let wanted = u64::from(regions) * sharing.len() as u64;
    if wanted > u64::from(limits.max_mr) {
        let what = format!("{wanted} memory regions, {} offers {}", limits.device, limits.max_mr);
        ledger.refuse(vec![KeyPath::item("node", index)], what, "use fewer nodes and ports on one device");
    }
}
