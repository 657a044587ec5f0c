//! The RDMA side of a plan's nodes: devices, what is offered, who listens and who connects.

use super::error::RunError;
use crate::bridge::arenas;
use crate::config::{KeySource, QpKind, ServiceKind as ConfigService};
use crate::control::{Endpoint, LaneSettings, Layout, Line, NodeControl, NodeSettings};
use crate::fabric::WorkerTransport;
use crate::plan::{Plan, PlanFabric, PlanNode, PlanPeer, PlanQp, PlanService, PollPolicy};
use crate::service::relay::MIN_RECEIVES;
use crate::worker::Mailbox;
use dpdk_bind::Mempool;
use rdma_engine::cm::{
    AllowList, Auth, Connector, ConnectorConfig, Listener, ListenerConfig, Offer, ServiceId, ServiceKind,
};
use rdma_engine::mem::Access;
use rdma_engine::qp::{InitAttr, QpCaps, QpSpec};
use rdma_engine::transport::{CqSpec, SrqSpec, WorkerSpec};
use rdma_engine::types::{Gid, Pmtu, QpType, Time};
use rdma_engine::wr::SrqId;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

/// Q_Key of datagram queue pairs.
const QKEY: u32 = 0x1574_0001;

/// A node with an RDMA side, set up.
pub(super) struct FabricNode<D: Endpoint> {
    /// Its device.
    pub(super) device: D,
    /// One transport a worker.
    pub(super) transports: Vec<D::Transport>,
}

fn failed(node: &PlanNode, why: impl ToString) -> RunError {
    RunError::Fabric { node: node.name.clone(), why: why.to_string() }
}

/// Registers the node's pools with its device and makes its workers' transports.
pub(super) fn set_up<D: Endpoint>(
    plan: &Plan,
    node: &PlanNode,
    fabric: &PlanFabric,
    pools: &[Mempool],
    device: D,
) -> Result<FabricNode<D>, RunError>
where
    D::Transport: WorkerTransport,
{
    // All pools, not only the node's own: in-memory links pass pointers, so a frame may come from any of them.
    for (pool, planned) in pools.iter().zip(&plan.pools).filter(|(_, p)| p.data_room > 0) {
        for arena in arenas(pool) {
            device
                .register_buffers(&arena)
                .map_err(|e| failed(node, format!("pool {}: {e}", planned.name)))?;
        }
    }
    let spec = worker_spec(plan, &fabric.qp, node);
    let make = |worker| device.create_worker(worker, &spec).map_err(|e| failed(node, e));
    let transports = (0..node.workers.len()).map(make).collect::<Result<_, _>>()?;
    Ok(FabricNode { device, transports })
}

fn worker_spec(plan: &Plan, qp: &PlanQp, node: &PlanNode) -> WorkerSpec {
    let events = plan.poll != PollPolicy::Busy;
    let srq = SrqSpec { depth: qp.recv_depth, sge: 1 };
    WorkerSpec {
        cqs: vec![CqSpec { depth: qp.cq_depth, events }],
        srqs: if qp.srq { vec![srq] } else { vec![] },
        max_qps: qps_per_worker(node) as u16,
    }
}

pub(super) fn qps_per_worker(node: &PlanNode) -> usize {
    match &node.service {
        PlanService::Relay(relay) => relay.qps_per_worker as usize,
        PlanService::Source(_) | PlanService::Sink(_) => 0,
    }
}

/// The connection of a node. Nodes of one process meet over the loopback address: the first of a pair listens on a free
/// port, which is given to the second by `meeting`.
pub(super) fn control<'d, D: Endpoint>(
    now: Time,
    plan: &Plan,
    index: usize,
    device: &'d D,
    mailboxes: Vec<Arc<Mailbox<D::Qp>>>,
    meeting: &mut Meetings,
) -> Result<NodeControl<'d, D>, RunError> {
    let node = &plan.nodes[index];
    let fabric = node.fabric.as_ref().expect("called for nodes with an RDMA side");
    let line = line(now, plan, index, fabric, meeting)?;
    let settings = settings(node, fabric, device).map_err(|e| failed(node, e))?;
    Ok(NodeControl::new(settings, device, vec![line], mailboxes))
}

/// Where nodes of this process listen for each other, by index of the listening node.
#[derive(Default)]
pub(super) struct Meetings(Vec<(usize, SocketAddr)>);

fn line(
    now: Time,
    plan: &Plan,
    index: usize,
    fabric: &PlanFabric,
    meeting: &mut Meetings,
) -> Result<Line, RunError> {
    let node = &plan.nodes[index];
    let auth = auth(fabric).map_err(|e| failed(node, e))?;
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    match &fabric.peer {
        PlanPeer::Listen(bind) => listen(now, node, fabric, auth, *bind).map(|(line, _)| line),
        PlanPeer::Connect(peer) => {
            let found = (peer.host.as_str(), peer.port).to_socket_addrs();
            let found =
                found.map_err(|e| failed(node, format!("connect: cannot resolve {}: {e}", peer.host)))?;
            let peer = found.into_iter().next().ok_or_else(|| {
                failed(node, format!("connect: {} has no address; name another host", peer.host))
            })?;
            connect(now, node, fabric, auth, peer)
        }
        PlanPeer::InProcess(other) if *other > index => {
            let (line, addr) = listen(now, node, fabric, auth, local)?;
            meeting.0.push((index, addr));
            Ok(line)
        }
        PlanPeer::InProcess(other) => {
            let at = meeting.0.iter().find(|(i, _)| i == other).map(|(_, addr)| *addr);
            connect(now, node, fabric, auth, at.ok_or_else(|| failed(node, "its peer does not listen"))?)
        }
    }
}

fn auth(fabric: &PlanFabric) -> Result<Auth, String> {
    let key = fabric.key.as_ref().map(KeySource::load).transpose().map_err(|e| e.to_string())?;
    Ok(key.map_or(Auth::None, Auth::PresharedKey))
}

fn allow(fabric: &PlanFabric) -> Result<AllowList, String> {
    let texts: Vec<String> = fabric.allow.iter().map(ToString::to_string).collect();
    AllowList::parse(&texts).map_err(|e| e.to_string())
}

fn instance() -> Result<u64, String> {
    getrandom::u64().map_err(|e| format!("no random numbers: {e}"))
}

fn listen(
    now: Time,
    node: &PlanNode,
    fabric: &PlanFabric,
    auth: Auth,
    bind: SocketAddr,
) -> Result<(Line, SocketAddr), RunError> {
    let make = || {
        let mut config =
            ListenerConfig::new(bind, node.name.clone(), instance()?, auth, vec![service_id(node)]);
        config.allow = allow(fabric)?;
        config.max_sessions = 1;
        let listener = Listener::bind(now, config).map_err(|e| e.to_string())?;
        let addr = listener.local_addr().map_err(|e| e.to_string())?;
        Ok::<_, String>((Line::Listen(Box::new(listener)), addr))
    };
    make().map_err(|e| failed(node, e))
}

fn connect(
    now: Time,
    node: &PlanNode,
    fabric: &PlanFabric,
    auth: Auth,
    peer: SocketAddr,
) -> Result<Line, RunError> {
    let make = || {
        let mut config = ConnectorConfig::new(peer, node.name.clone(), instance()?, auth);
        config.allow = allow(fabric)?;
        config.connect_ms = fabric.timing.connect_timeout_ms;
        config.backoff.base_ms = fabric.timing.reconnect_min_ms;
        config.backoff.cap_ms = fabric.timing.reconnect_max_ms;
        let connector = Connector::new(now, config).map_err(|e| e.to_string())?;
        Ok::<_, String>(Line::Connect(Box::new(connector), peer))
    };
    make().map_err(|e| failed(node, e))
}

fn service_id(node: &PlanNode) -> ServiceId {
    let kind = match node.service.kind() {
        ConfigService::Relay => ServiceKind::Relay,
        ConfigService::Source | ConfigService::Sink => ServiceKind::Other(0x100),
    };
    ServiceId { kind, name: "isthmus".into() }
}

fn settings<D: Endpoint>(node: &PlanNode, fabric: &PlanFabric, device: &D) -> Result<NodeSettings, String> {
    let qp = &fabric.qp;
    let PlanService::Relay(relay) = &node.service else {
        return Err("only a relay has a peer".into());
    };
    let kind = match qp.kind {
        QpKind::Rc => QpType::Rc,
        QpKind::Uc => QpType::Uc,
        QpKind::Ud => QpType::Ud,
    };
    let caps = QpCaps {
        send_depth: qp.send_depth,
        recv_depth: qp.recv_depth,
        send_sge: qp.max_sge as u16,
        recv_sge: 1,
        inline_bytes: qp.max_inline,
        signal_every: qp.signal_every as u16,
    };
    let credits = if qp.srq { qp.recv_depth / relay.qps_per_worker } else { qp.recv_depth };
    let spec = QpSpec { kind, caps, srq: qp.srq.then_some(SrqId(0)), cq: 0 };
    let qkey = if kind == QpType::Ud { QKEY } else { 0 };
    // A relay needs no access to memory of its own through its queue pairs.
    let init = InitAttr { access: Access::LOCAL, qkey };
    Ok(NodeSettings {
        name: node.name.clone(),
        offer: offer(node, fabric, relay.message_bytes, relay.max_frame_bytes, kind, device),
        lanes: vec![LaneSettings { spec, init, credits, least_peer_credits: MIN_RECEIVES }],
        layout: Layout::Relay { qps_per_worker: relay.qps_per_worker as usize },
    })
}

fn offer<D: Endpoint>(
    node: &PlanNode,
    fabric: &PlanFabric,
    message_bytes: u32,
    max_frame: u32,
    kind: QpType,
    device: &D,
) -> Offer {
    let qp = &fabric.qp;
    let mut offer = Offer::new(service_id(node), device.kind(), Gid::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
    offer.qp_type = kind;
    offer.path_mtu = fabric.pmtu.and_then(Pmtu::from_bytes).unwrap_or(Pmtu::B4096);
    offer.initiator_depth = qp.read_depth;
    offer.responder_depth = qp.read_depth;
    offer.min_rnr_timer = qp.rnr_timer_code;
    offer.ack_timeout = qp.ack_timeout_code;
    offer.retry_count = qp.retry;
    offer.rnr_retry = qp.rnr_retry;
    offer.message_size = message_bytes;
    offer.min_message_size = message_bytes.min(max_frame);
    offer.max_segments = qp.max_sge as u16;
    offer.workers = node.workers.len() as u16;
    offer.qkey = if kind == QpType::Ud { QKEY } else { 0 };
    offer.keepalive_ms = fabric.timing.keepalive_ms;
    offer.dead_after_ms = fabric.timing.dead_after_ms;
    offer
}
