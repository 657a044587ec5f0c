//! From a plan to running workers, and back to nothing.
//!
//! | step | file |
//! |---|---|
//! | what the machine can do | `hardware` |
//! | pools, links, ports | `ports` |
//! | devices, connections | `endpoints`, `fabric` |
//! | services of the workers | `roles`, `kv`, `load` |
//! | the main lcore while workers run | `supervise`, `signals`, `reload`, `links` |
//! | figures for statistics | `sampling`, `telemetry` |
//!
//! Everything is taken down in the reverse order, and a pool that is not full at the end is reported.

mod endpoints;
mod error;
mod fabric;
pub mod hardware;
mod interfaces;
mod kv;
mod links;
mod load;
mod ports;
mod reload;
mod roles;
mod sampling;
mod signals;
mod supervise;
mod telemetry;

pub use endpoints::VerbsEndpoint;
pub use error::RunError;

use crate::bridge::PacketPool;
use crate::config::{ConfigFile, Hugepages, PortKeys, TransportKind};
use crate::control::{Endpoint, NodeControl};
use crate::fabric::{Fabric, WorkerTransport};
use crate::plan::{
    DEFAULT_LINK_MBPS, Hardware, Plan, PlanFabric, PlanNode, PlanPort, PlanTransport, PollPolicy,
    driver_facts,
};
use crate::soft::{SoftEndpoint, SoftPort, Steering};
use crate::stats::Board;
use crate::worker::{FabricPort, IdlePolicy, LaneKind, Mailbox, PortLane, Role, run_lcore};
use dpdk_bind::port::Demand;
use dpdk_bind::tsc::Clock;
use dpdk_bind::{Eal, Mempool, Port};
use fabric::{FabricNode, Meetings};
use kv::MemoryStart;
use ports::RunningPort;
use rdma_engine::loopback::Hub;
use rdma_engine::transport::Device;
use rdma_engine::types::Time;
use reload::Reloader;
use roles::Making;
use signals::Signals;
use std::sync::Arc;
use std::time::SystemTime;
use supervise::Supervisor;

/// Runs a configuration until a signal ends it, or until its sources have made all they should. `first` is its plan
/// as far as the machine was known without DPDK, `words` the EAL options that were laid over it.
///
/// # Errors
/// Whatever keeps it from starting, and a shutdown that left buffers behind.
pub fn run(file: &ConfigFile, words: &[String], first: Plan) -> Result<(), RunError> {
    let hardware = hardware::before_eal();
    let signals =
        Signals::install().map_err(|source| RunError::Io { what: "install signal handlers", source })?;
    interfaces::check_taps(&first)?;
    let eal = Eal::init(complete_args(first.eal_args))?;
    signals.drain_at_first().map_err(|source| RunError::Io { what: "install signal handlers", source })?;
    let hardware = hardware.with_eal(&eal);
    devices_are_there(file, &hardware, &eal)?;
    let plan = file.plan(Some(&hardware)).map_err(RunError::Refused)?;
    if first.memory.hugepages == Hugepages::NoHuge
        && file.config.eal.hugepages.unwrap_or_default() == Hugepages::Auto
    {
        tracing::warn!(
            "there are not enough free hugepages, so this runs on ordinary pages: slower; 'isthmus check' says how many it needs"
        );
    }
    let start = Start { plan: &plan, file, words, hardware: &hardware };
    let kind = plan.nodes.iter().find_map(|n| n.fabric.as_ref()).map(|f| f.transport.kind());
    match kind {
        Some(TransportKind::Verbs) => execute(&eal, &start, &signals, open_verbs),
        Some(TransportKind::Soft) => execute(&eal, &start, &signals, open_soft),
        Some(TransportKind::Loopback) | None => {
            let hub = Hub::new();
            execute(&eal, &start, &signals, |_| Ok(hub.device()))
        }
    }
}

/// Devices that were asked for by name and could not be made: DPDK would start without them.
fn devices_are_there(file: &ConfigFile, hardware: &Hardware, eal: &Eal) -> Result<(), RunError> {
    let of_port = |port: &PortKeys| (port.device.clone(), format!("port[{}].device", port.name));
    let of_eal = |device: &String| (device.clone(), "eal.vdev or --vdev".to_owned());
    let config = &file.config;
    let asked = config.port.iter().map(of_port).chain(config.eal.vdev.iter().map(of_eal));
    let is_missing = |device: &str| {
        let name = device.split(',').next().unwrap_or_default();
        // Only what becomes a port of its own name is known to be there or not.
        name.starts_with("net_")
            && !name.starts_with("net_ring")
            && hardware.ports.iter().all(|port| port.device != name)
    };
    let missing: Vec<_> = asked.filter(|(device, _)| is_missing(device)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let remedy = interfaces::remedy(missing.iter().map(|(device, _)| device.as_str()));
    let names: Vec<String> = missing.iter().map(|(device, key)| format!("{key}: \"{device}\"")).collect();
    Err(RunError::Devices { names: names.join(" and "), said: eal.start_problems().to_string(), remedy })
}

/// The program's name and the plan's EAL options. Without hugepages EAL would share files with secondary processes, which there
/// are none of, lock them in the name of a prefix that other processes use as well, and leave them when it is killed: so it has
/// none, unless a prefix is given.
fn complete_args(plan: Vec<String>) -> Vec<String> {
    let mut args = vec!["isthmus".to_owned()];
    args.extend(plan);
    let given = |option: &str| args.iter().any(|a| a == option || a.starts_with(&format!("{option}=")));
    if given("--no-huge") && !given("--file-prefix") && !given("--no-shconf") {
        args.push("--no-shconf".to_owned());
    }
    args
}

/// What is run, and where it comes from.
struct Start<'a> {
    plan: &'a Plan,
    file: &'a ConfigFile,
    words: &'a [String],
    hardware: &'a Hardware,
}

/// What a node's device is opened with.
struct Opening<'a> {
    plan: &'a Plan,
    node: &'a PlanNode,
    fabric: &'a PlanFabric,
    pools: &'a [Mempool],
    ports: &'a [RunningPort],
}

impl Opening<'_> {
    fn failed(&self, why: impl ToString) -> RunError {
        RunError::Fabric { node: self.node.name.clone(), why: why.to_string() }
    }
}

fn open_verbs(opening: &Opening<'_>) -> Result<VerbsEndpoint, RunError> {
    let PlanTransport::Verbs { device, port, gid_index } = &opening.fabric.transport else {
        return Err(opening.failed("all nodes of a process have the same transport"));
    };
    VerbsEndpoint::open(device.as_deref(), *port, *gid_index, opening.fabric.dscp)
        .map_err(|why| opening.failed(why))
}

fn open_soft(opening: &Opening<'_>) -> Result<SoftEndpoint, RunError> {
    let PlanTransport::Soft(soft) = &opening.fabric.transport else {
        return Err(opening.failed("all nodes of a process have the same transport"));
    };
    let (planned, own) = (&opening.plan.ports[soft.port], &opening.ports[soft.port]);
    let running = &own.port;
    let port = SoftPort {
        name: planned.name.clone(),
        mac: own.mac(),
        addresses: soft.addresses.clone(),
        gateway: soft.gateway,
        vlan: soft.vlan,
        mtu: soft.mtu,
        in_memory: planned.source.is_in_memory(),
        dscp: opening.fabric.dscp,
        pmtu: opening.fabric.pmtu,
        dad: soft.dad,
        window: soft.window,
        dcqcn_mbps: soft
            .dcqcn
            .then(|| soft.link_mbps.or(reported_mbps(running)).unwrap_or(DEFAULT_LINK_MBPS)),
        flight_records: soft.flight_records.clone(),
        max_qps: opening.node.qps_per_worker() as u16,
        steering: if planned.queues > 1 { steering(running) } else { None },
    };
    let pool = PacketPool(opening.pools[planned.pool].clone());
    SoftEndpoint::new(port, vec![pool; opening.node.workers.len()]).map_err(|why| opening.failed(why))
}

/// The speed that a port reports; `None` where it does not know or its driver makes one up.
fn reported_mbps(port: &Port) -> Option<u32> {
    let info = port.info();
    let made_up = driver_facts(&info.driver).is_some_and(|facts| facts.speed_is_made_up);
    port.link().speed_mbps.or(info.speeds_mbps.last().copied()).filter(|_| !made_up)
}

/// How a port spreads packets over its queues, where it does and tells how.
fn steering(port: &Port) -> Option<Steering> {
    let (rss, table) = (port.rss()?, port.reta().ok()?);
    Some(Steering { udp4: rss.types.covers_udp4(), udp6: rss.types.covers_udp6(), key: rss.key, table })
}

/// Sets everything up, runs it, takes it down.
fn execute<D>(
    eal: &Eal,
    start: &Start<'_>,
    signals: &Signals,
    open: impl Fn(&Opening<'_>) -> Result<D, RunError>,
) -> Result<(), RunError>
where
    D: Endpoint,
    D::Transport: WorkerTransport + Send,
{
    let plan = start.plan;
    let clock = Clock::new(eal);
    let pools = ports::make_pools(eal, plan)?;
    let mut running = ports::start_ports(eal, plan, &pools)?;
    let mut nodes = Vec::new();
    for node in &plan.nodes {
        let set_up = |fabric: &PlanFabric| {
            let device = open(&Opening { plan, node, fabric, pools: &pools, ports: &running })?;
            fabric::set_up(plan, node, fabric, &pools, device)
        };
        nodes.push(node.fabric.as_ref().map(set_up).transpose()?);
    }
    let seed = getrandom::u64().map_err(|e| RunError::Io {
        what: "get random numbers",
        source: std::io::Error::other(e.to_string()),
    })?;
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let unix_ns_at_zero = (unix.as_nanos() as u64).saturating_sub(clock.now_ns());
    let (lcores, boards, mailboxes) =
        make_roles(plan, &pools, &mut running, &mut nodes, (seed, unix_ns_at_zero))?;
    let devices: Vec<Option<(D, Option<MemoryStart>)>> =
        nodes.into_iter().map(|n| n.map(|n| (n.device, n.memory))).collect();
    let mut controls = Vec::new();
    let now = Time(clock.now_ns());
    let mut meetings = Meetings::new(now, plan)?;
    for (index, device) in devices.iter().enumerate() {
        if let Some((device, memory)) = device {
            let (mail, side) = (mailboxes[index].clone(), (device, memory.as_ref()));
            controls.push(fabric::control(now, plan, index, side, mail, &mut meetings)?);
        }
    }
    let policy = idle_policy(plan.poll);
    let reloader = Reloader::new(start.file, start.words, start.hardware.clone(), plan, meetings);
    let mut supervisor =
        Supervisor::new(plan, clock, (&running, &pools), boards, mailboxes, controls, reloader);
    let commands = plan.stats.telemetry.then(|| telemetry::register(eal, &supervisor.latest()));
    let measured = load::Measured::default();
    eal.scope(|scope| {
        for (id, roles) in lcores {
            let lcore = eal.worker_lcores().into_iter().find(|l| l.id == u32::from(id));
            let lcore = lcore.ok_or_else(|| dpdk_bind::eal::LcoreError::NotAWorker(id.into()))?;
            // What a worker leaves behind is dropped on its own lcore: transports, queues, buffers in them.
            let measured = &measured;
            scope.launch(lcore, move || measured.take(run_lcore(roles, &clock, policy)))?;
        }
        supervisor.supervise(signals);
        Ok::<_, RunError>(())
    })?;
    let leaked: u64 = devices.iter().flatten().map(|(device, _)| device.leaked()).sum();
    let report = supervisor.finish();
    drop(commands);
    drop(devices);
    drop(running);
    report.conclude(&pools, leaked, &measured.reports(plan))
}

type Lcores<D> = Vec<(u16, Vec<Role<<D as Device>::Transport>>)>;
type Boards = Vec<Vec<Arc<Board>>>;
type Mailboxes<D> = Vec<Vec<Arc<Mailbox<<D as Device>::Qp>>>>;

/// The roles of every lcore, and by node and worker their boards and mailboxes.
fn make_roles<D: Endpoint>(
    plan: &Plan,
    pools: &[Mempool],
    running: &mut [RunningPort],
    nodes: &mut [Option<FabricNode<D>>],
    (seed, unix_ns_at_zero): (u64, u64),
) -> Result<(Lcores<D>, Boards, Mailboxes<D>), RunError>
where
    D::Transport: WorkerTransport,
{
    let boards: Boards =
        plan.nodes.iter().map(|n| n.workers.iter().map(|_| Arc::default()).collect()).collect();
    let mails = |n: &PlanNode| n.workers.iter().map(|_| Mailbox::new(n.qps_per_worker())).collect();
    let mailboxes: Mailboxes<D> = plan.nodes.iter().map(mails).collect();
    // Transports are taken from the back, so workers are gone through from the last one.
    let mut transports: Vec<Vec<Option<D::Transport>>> = nodes
        .iter_mut()
        .map(|n| n.as_mut().map_or(vec![], |n| n.transports.drain(..).map(Some).collect()))
        .collect();
    let duplicates: Vec<_> = plan.nodes.iter().map(roles::duplicates).collect();
    let mut lcores = Vec::new();
    for lcore in plan.lcores.iter().filter(|l| !l.roles.is_empty()) {
        let mut roles = Vec::new();
        for r in &lcore.roles {
            let (node, worker) = (&plan.nodes[r.node], &plan.nodes[r.node].workers[r.worker]);
            let wait = roles::tx_wait_ns(node);
            let client = worker.queues.first();
            let memory = nodes[r.node].as_ref().and_then(|n| n.memory.as_ref());
            let client_port = client.map(|queue| (&plan.ports[queue.port], &running[queue.port]));
            let mut making = making(client_port, memory, (seed, unix_ns_at_zero));
            making.duplicates.clone_from(&duplicates[r.node]);
            let service = roles::service(node, r.worker, &making)?;
            let mut lane = |q: &crate::plan::PortQueue, kind, wait| {
                let (rx, tx) = running[q.port].take_queues(q.queue);
                PortLane::new(rx, tx, kind, wait)
            };
            let mut port = client.map_or_else(PortLane::none, |queue| lane(queue, LaneKind::Client, wait));
            let fabric_port = match worker.fabric_queues.first() {
                None => FabricPort::None,
                queue if queue == client => {
                    port = port.shared(roles::FABRIC_TX_WAIT_NS);
                    FabricPort::Shared
                }
                Some(queue) => FabricPort::Own(lane(queue, LaneKind::Fabric, roles::FABRIC_TX_WAIT_NS)),
            };
            let own_port = client.or(worker.fabric_queues.first()).map(|queue| plan.ports[queue.port].pool);
            roles.push(Role {
                name: node.name.clone(),
                worker: r.worker,
                service,
                fabric: transports[r.node]
                    .get_mut(r.worker)
                    .and_then(Option::take)
                    .map_or(Fabric::None, Fabric::Wired),
                port,
                fabric_port,
                pools: roles::pools(node, own_port, pools),
                board: Arc::clone(&boards[r.node][r.worker]),
                mailbox: Arc::clone(&mailboxes[r.node][r.worker]),
            });
        }
        lcores.push((lcore.id, roles));
    }
    for (node, made) in plan.nodes.iter().zip(nodes.iter()) {
        made.as_ref().and_then(|n| n.memory.as_ref()).map_or(Ok(()), |memory| memory.publish(node))?;
    }
    Ok((lcores, boards, mailboxes))
}

/// What a service on this client port is made with.
fn making<'a>(
    client: Option<(&PlanPort, &RunningPort)>,
    memory: Option<&'a MemoryStart>,
    (seed, unix_ns_at_zero): (u64, u64),
) -> Making<'a> {
    let port = client.map(|(_, running)| running);
    let has = |what: fn(&Port) -> bool| port.is_some_and(|running| what(&running.port));
    Making {
        seed,
        unix_ns_at_zero,
        mac: port.map_or([0; 6], RunningPort::mac),
        in_memory: client.is_some_and(|(planned, _)| planned.source.is_in_memory()),
        tx_checksums: has(sums_chains),
        chains: has(|port| port.info().tx_offloads.chains()),
        memory,
        duplicates: None,
    }
}

/// The port fills in checksums, also those of frames in several segments. net_tap of DPDK 22.11 adds up the segments of a frame
/// as if each began at an even offset, so what it fills in is wrong where one does not.
fn sums_chains(port: &Port) -> bool {
    port.config().tx_checksum != Demand::Off && port.info().driver != "net_tap"
}

fn idle_policy(poll: PollPolicy) -> IdlePolicy {
    match poll {
        PollPolicy::Busy => IdlePolicy::Busy,
        PollPolicy::Adaptive { spin_turns, sleep_max_us } => {
            IdlePolicy::Adaptive { spin_turns, sleep_max_us }
        }
    }
}

/// The connections of a process.
pub(crate) type Controls<'d, D> = Vec<NodeControl<'d, D>>;
