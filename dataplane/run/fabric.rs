//! The RDMA side of a plan's nodes: devices, what is offered, who listens and who connects.

use super::error::RunError;
use super::kv::MemoryStart;
use crate::bridge::arenas;
use crate::config::{HostPort, Hugepages, KeySource, ServiceKind as ConfigService};
use crate::control::{Endpoint, LaneSettings, Layout, Line, NodeControl, NodeSettings};
use crate::fabric::WorkerTransport;
use crate::plan::{Plan, PlanFabric, PlanNode, PlanPeer, PlanQp, PlanService, PollPolicy};
use crate::service::relay::MIN_RECEIVES;
use crate::worker::Mailbox;
use dpdk_bind::Mempool;
use rdma_engine::cm::{
    AllowList, Auth, Connector, ConnectorConfig, Listener, ListenerConfig, Offer, PresharedKey, ServiceId,
    ServiceKind,
};
use rdma_engine::mem::{Access, Backing};
use rdma_engine::qp::{InitAttr, QpCaps, QpSpec};
use rdma_engine::transport::{CqSpec, SrqSpec, WorkerSpec};
use rdma_engine::types::{Gid, Pmtu, QpType, Time};
use rdma_engine::wr::SrqId;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

/// Q_Key of datagram queue pairs.
const QKEY: u32 = 0x1574_0001;

/// Receives that the peer keeps posted for calls at least.
const MIN_CALL_RECEIVES: u32 = 4;

/// A node with an RDMA side, set up.
pub(super) struct FabricNode<D: Endpoint> {
    /// Its device.
    pub(super) device: D,
    /// One transport a worker.
    pub(super) transports: Vec<D::Transport>,
    /// The memory of a memory node.
    pub(super) memory: Option<MemoryStart>,
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
    let no_huge = plan.memory.hugepages == Hugepages::NoHuge;
    let backing = if no_huge { Backing::Pages } else { Backing::HugePages };
    let memory = match &node.service {
        PlanService::Memory(memory) => {
            let start = MemoryStart::new(memory, backing, &device);
            Some(start.map_err(|e| failed(node, format!("the arena: {e}")))?)
        }
        _ => None,
    };
    let spec = worker_spec(plan, fabric, node);
    let make = |worker| device.create_worker(worker, &spec).map_err(|e| failed(node, e));
    let transports = (0..node.workers.len()).map(make).collect::<Result<_, _>>()?;
    Ok(FabricNode { device, transports, memory })
}

fn worker_spec(plan: &Plan, fabric: &PlanFabric, node: &PlanNode) -> WorkerSpec {
    let events = plan.poll != PollPolicy::Busy;
    let qp = &fabric.qp;
    let srq = SrqSpec { depth: qp.recv_depth, sge: 1 };
    WorkerSpec {
        // One a lane; answers to READs are looked at first.
        cqs: fabric.lanes().map(|lane| CqSpec { depth: lane.cq_depth, events }).collect(),
        srqs: if qp.srq { vec![srq] } else { vec![] },
        max_qps: node.qps_per_worker() as u16,
    }
}

/// The connections of a node. Nodes of one process meet over the loopback address: memory nodes, and the first of a pair
/// of relays, listen on a free port, which is told to the others by `meeting`.
pub(super) fn control<'d, D: Endpoint>(
    now: Time,
    plan: &Plan,
    index: usize,
    (device, memory): (&'d D, Option<&MemoryStart>),
    mailboxes: Vec<Arc<Mailbox<D::Qp>>>,
    meeting: &mut Meetings,
) -> Result<NodeControl<'d, D>, RunError> {
    let node = &plan.nodes[index];
    let fabric = node.fabric.as_ref().expect("called for nodes with an RDMA side");
    let lines = match meeting.lines.remove(&index) {
        Some(line) => vec![line],
        None => {
            let line = |peer| line(now, plan, index, peer, meeting);
            fabric.peers.iter().map(line).collect::<Result<_, _>>()?
        }
    };
    let mut settings = settings(node, fabric, device);
    if let Some(memory) = memory {
        settings.offer.regions = vec![memory.region()];
        settings.staging = memory.staging();
        settings.offer.application = memory.hello();
    }
    let mut control = NodeControl::new(settings, device, lines, mailboxes);
    if let PlanService::Kv(kv) = &node.service {
        control.name_links(&kv.nodes);
    }
    Ok(control)
}

/// Where nodes of this process listen for each other.
pub(super) struct Meetings {
    /// By index of the listening node.
    places: BTreeMap<usize, SocketAddr>,
    /// Listeners of memory nodes until their node takes them: gateways may come before them in the file.
    lines: BTreeMap<usize, Line>,
    /// What nodes prove themselves by that only this process knows.
    key: Auth,
}

impl Meetings {
    /// Makes the listeners of all memory nodes.
    pub(super) fn new(now: Time, plan: &Plan) -> Result<Self, RunError> {
        let mut random = [0; 32];
        let drawn = getrandom::fill(&mut random).map_err(|e| std::io::Error::other(e.to_string()));
        drawn.map_err(|source| RunError::Io { what: "get random numbers", source })?;
        let key = PresharedKey::new(&random).expect("32 bytes are a key");
        let mut meetings =
            Meetings { places: BTreeMap::new(), lines: BTreeMap::new(), key: Auth::PresharedKey(key) };
        for (index, node) in plan.nodes.iter().enumerate() {
            let Some(fabric) = &node.fabric else { continue };
            if matches!(node.service, PlanService::Memory(_)) {
                for peer in &fabric.peers {
                    let line = line(now, plan, index, peer, &mut meetings)?;
                    meetings.lines.insert(index, line);
                }
            }
        }
        Ok(meetings)
    }
}

pub(super) fn line(
    now: Time,
    plan: &Plan,
    index: usize,
    peer: &PlanPeer,
    meeting: &mut Meetings,
) -> Result<Line, RunError> {
    let node = &plan.nodes[index];
    let fabric = node.fabric.as_ref().expect("called for nodes with an RDMA side");
    let auth = auth(fabric).map_err(|e| failed(node, e))?;
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (line, addr) = match peer {
        PlanPeer::Listen(bind) => listen(now, node, fabric, auth, *bind)?,
        PlanPeer::Awaited => listen(now, node, fabric, meeting.key.clone(), local)?,
        PlanPeer::InProcess(other) if is_relay(node) && *other > index => {
            listen(now, node, fabric, auth, local)?
        }
        PlanPeer::Connect(peer) => return connect(now, node, fabric, auth, resolve(node, peer)?),
        PlanPeer::InProcess(other) => {
            let at = meeting.places.get(other).copied();
            let at = at.ok_or_else(|| failed(node, "its peer does not listen"))?;
            let theirs = plan.nodes[*other].fabric.as_ref();
            let within = theirs.is_some_and(|f| f.peers.contains(&PlanPeer::Awaited));
            let auth = if within { meeting.key.clone() } else { auth };
            return connect(now, node, fabric, auth, at);
        }
    };
    meeting.places.insert(index, reachable(addr));
    Ok(line)
}

fn is_relay(node: &PlanNode) -> bool {
    matches!(node.service, PlanService::Relay(_))
}

/// The address to reach a listener of this machine by.
fn reachable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

fn resolve(node: &PlanNode, peer: &HostPort) -> Result<SocketAddr, RunError> {
    let found = (peer.host.as_str(), peer.port).to_socket_addrs();
    let mut found = found.map_err(|e| failed(node, format!("cannot resolve {}: {e}", peer.host)))?;
    found.next().ok_or_else(|| failed(node, format!("{} has no address; name another host", peer.host)))
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
        config.max_sessions = match &node.service {
            // One more than there are seats, so that who finds none is told so by name.
            PlanService::Memory(memory) => memory.seats as usize + 1,
            _ => 1,
        };
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
        ConfigService::Kv => ServiceKind::KvGateway,
        ConfigService::Memory => ServiceKind::KvMemory,
        ConfigService::Source | ConfigService::Sink | ConfigService::Load => ServiceKind::Other(0x100),
    };
    ServiceId { kind, name: "isthmus".into() }
}

fn settings<D: Endpoint>(node: &PlanNode, fabric: &PlanFabric, device: &D) -> NodeSettings {
    let (read, call) = (&fabric.qp, fabric.call.as_ref());
    let kv = |to_read: Access, to_call: Access| {
        let mut lanes = vec![lane(read, 0, to_read, 0, 0)];
        lanes.extend(call.map(|call| lane(call, 1, to_call, call.recv_depth, MIN_CALL_RECEIVES)));
        lanes
    };
    let (layout, lanes, bytes, least) = match &node.service {
        PlanService::Relay(relay) => {
            let qps_per_worker = relay.qps_per_worker as usize;
            let credits = if read.srq { read.recv_depth / relay.qps_per_worker } else { read.recv_depth };
            // A relay needs no access to memory of its own through its queue pairs.
            let lanes = vec![lane(read, 0, Access::LOCAL, credits, MIN_RECEIVES)];
            (Layout::Relay { qps_per_worker }, lanes, relay.message_bytes, relay.max_frame_bytes)
        }
        PlanService::Kv(kv_plan) => {
            let (nodes, node_workers_max) = (kv_plan.nodes_max as usize, kv_plan.node_workers_max as usize);
            let layout = Layout::Gateway { nodes, node_workers_max };
            (layout, kv(Access::LOCAL, Access::LOCAL), kv_plan.message_bytes, kv_plan.message_bytes_min())
        }
        PlanService::Memory(memory) => {
            let (seats, gateway_workers_max) = (memory.seats as usize, memory.gateway_workers_max as usize);
            let layout = Layout::Memory { seats, gateway_workers_max };
            let to_call = if memory.staging.slots > 0 {
                Access::REMOTE_WRITE.and(Access::LOCAL_WRITE)
            } else {
                Access::LOCAL
            };
            (layout, kv(Access::REMOTE_READ, to_call), memory.message_bytes, memory.message_bytes_min())
        }
        PlanService::Source(_) | PlanService::Sink(_) | PlanService::Load(_) => {
            unreachable!("the plan gives them no RDMA side")
        }
    };
    let offer = offer(node, fabric, bytes, least, read.kind.into(), device);
    NodeSettings { name: node.name.clone(), offer, staging: Vec::new(), lanes, layout }
}

/// What the queue pairs of a lane are made with.
fn lane(qp: &PlanQp, cq: u8, access: Access, credits: u32, least_peer_credits: u32) -> LaneSettings {
    let kind = qp.kind.into();
    let caps = QpCaps {
        send_depth: qp.send_depth,
        // No queue has no entries.
        recv_depth: qp.recv_depth.max(1),
        send_sge: qp.max_sge as u16,
        recv_sge: 1,
        inline_bytes: qp.max_inline,
        signal_every: qp.signal_every as u16,
    };
    let qkey = if kind == QpType::Ud { QKEY } else { 0 };
    LaneSettings {
        spec: QpSpec { kind, caps, srq: qp.srq.then_some(SrqId(0)), cq },
        init: InitAttr { access, qkey },
        credits,
        least_peer_credits,
    }
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
