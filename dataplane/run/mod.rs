//! From a plan to running workers, and back to nothing.
//!
//! | step | file |
//! |---|---|
//! | what the machine can do | `hardware` |
//! | pools, links, ports | `ports` |
//! | devices, connections | `endpoints`, `fabric` |
//! | services of the workers | `roles` |
//! | the main lcore while workers run | `supervise`, `signals` |
//! | figures for statistics | `sampling`, `telemetry` |
//!
//! Everything is taken down in the reverse order, and a pool that is not full at the end is reported.

mod endpoints;
mod error;
mod fabric;
pub mod hardware;
mod ports;
mod roles;
mod sampling;
mod signals;
mod supervise;
mod telemetry;

pub use endpoints::VerbsEndpoint;
pub use error::RunError;

use crate::bridge::Packet;
use crate::config::{ConfigFile, TransportKind};
use crate::control::{Endpoint, NodeControl};
use crate::fabric::Fabric;
use crate::plan::{Plan, PlanFabric, PlanNode, PlanTransport, PollPolicy};
use crate::stats::Board;
use crate::worker::{IdlePolicy, Mailbox, PortLane, Role, run_lcore};
use dpdk_bind::tsc::Clock;
use dpdk_bind::{Eal, Mempool};
use fabric::{FabricNode, Meetings};
use ports::RunningPort;
use rdma_engine::loopback::Hub;
use rdma_engine::transport::{Device, Transport};
use rdma_engine::types::Time;
use signals::Signals;
use std::sync::Arc;
use supervise::Supervisor;

/// Runs a configuration until a signal ends it, or until its sources have made all they should. `first` is its plan
/// as far as the machine was known without DPDK.
///
/// # Errors
/// Whatever keeps it from starting, and a shutdown that left buffers behind.
pub fn run(file: &ConfigFile, first: Plan) -> Result<(), RunError> {
    let hardware = hardware::before_eal();
    let signals =
        Signals::install().map_err(|source| RunError::Io { what: "install signal handlers", source })?;
    let eal = Eal::init(complete_args(first.eal_args))?;
    let plan = file.plan(Some(&hardware.with_eal(&eal))).map_err(RunError::Refused)?;
    let kind = plan.nodes.iter().find_map(|n| n.fabric.as_ref()).map(|f| f.transport.kind());
    match kind {
        Some(TransportKind::Verbs) => execute(&eal, &plan, &signals, open_verbs),
        Some(TransportKind::Soft) => {
            let node = plan.nodes.iter().find(|n| n.fabric.is_some()).map_or("", |n| &n.name).to_owned();
            let why = "transport = \"soft\" is not in this version; use \"verbs\" or \"loopback\"".into();
            Err(RunError::Fabric { node, why })
        }
        Some(TransportKind::Loopback) | None => {
            let hub = Hub::new();
            execute(&eal, &plan, &signals, |_, _| Ok(hub.device()))
        }
    }
}

/// The program's name and the plan's EAL options; and a file prefix of this process's own where none is given and EAL
/// would lock files in the name of a prefix that other processes use as well.
fn complete_args(plan: Vec<String>) -> Vec<String> {
    let mut args = vec!["isthmus".to_owned()];
    args.extend(plan);
    let given = |option: &str| args.iter().any(|a| a == option || a.starts_with(&format!("{option}=")));
    if given("--no-huge") && !given("--file-prefix") {
        args.push(format!("--file-prefix=isthmus-{}", std::process::id()));
    }
    args
}

fn open_verbs(node: &PlanNode, fabric: &PlanFabric) -> Result<VerbsEndpoint, RunError> {
    let PlanTransport::Verbs { device, port, gid_index } = &fabric.transport else {
        let why = "all nodes of a process have the same transport".into();
        return Err(RunError::Fabric { node: node.name.clone(), why });
    };
    VerbsEndpoint::open(device.as_deref(), *port, *gid_index, fabric.dscp)
        .map_err(|why| RunError::Fabric { node: node.name.clone(), why })
}

/// Sets everything up, runs it, takes it down.
fn execute<D>(
    eal: &Eal,
    plan: &Plan,
    signals: &Signals,
    open: impl Fn(&PlanNode, &PlanFabric) -> Result<D, RunError>,
) -> Result<(), RunError>
where
    D: Endpoint,
    D::Transport: Transport<Buf = Packet> + Send,
{
    let clock = Clock::new(eal);
    let pools = ports::make_pools(eal, plan)?;
    let mut running = ports::start_ports(eal, plan, &pools)?;
    let mut nodes = Vec::new();
    for node in &plan.nodes {
        let set_up = |f: &PlanFabric| fabric::set_up(plan, node, f, &pools, open(node, f)?);
        nodes.push(node.fabric.as_ref().map(set_up).transpose()?);
    }
    let seed = getrandom::u64().map_err(|e| RunError::Io {
        what: "get random numbers",
        source: std::io::Error::other(e.to_string()),
    })?;
    let (lcores, boards, mailboxes) = make_roles(plan, &pools, &mut running, &mut nodes, seed);
    let devices: Vec<Option<D>> = nodes.into_iter().map(|n| n.map(|n| n.device)).collect();
    let mut controls = Vec::new();
    let mut meetings = Meetings::default();
    let now = Time(clock.now_ns());
    for (index, device) in devices.iter().enumerate() {
        if let Some(device) = device {
            let mail = mailboxes[index].clone();
            controls.push(fabric::control(now, plan, index, device, mail, &mut meetings)?);
        }
    }
    let policy = idle_policy(plan.poll);
    let mut supervisor = Supervisor::new(plan, clock, &running, &pools, boards, mailboxes, controls);
    let commands = plan.stats.telemetry.then(|| telemetry::register(eal, &supervisor.latest()));
    eal.scope(|scope| {
        for (id, roles) in lcores {
            let lcore = eal.worker_lcores().into_iter().find(|l| l.id == u32::from(id));
            let lcore = lcore.ok_or_else(|| dpdk_bind::eal::LcoreError::NotAWorker(id.into()))?;
            // What a worker leaves behind is dropped on its own lcore: transports, queues, buffers in them.
            scope.launch(lcore, move || drop(run_lcore(roles, &clock, policy)))?;
        }
        supervisor.supervise(signals);
        Ok::<_, RunError>(())
    })?;
    let leaked: u64 = devices.iter().flatten().map(Endpoint::leaked).sum();
    let report = supervisor.finish();
    drop(commands);
    drop(devices);
    drop(running);
    report.conclude(&pools, leaked)
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
    seed: u64,
) -> (Lcores<D>, Boards, Mailboxes<D>)
where
    D::Transport: Transport<Buf = Packet>,
{
    let paths = |n: &PlanNode| n.workers.first().map_or(0, |w| w.qps.len());
    let boards: Boards =
        plan.nodes.iter().map(|n| n.workers.iter().map(|_| Arc::default()).collect()).collect();
    let mailboxes: Mailboxes<D> =
        plan.nodes.iter().map(|n| n.workers.iter().map(|_| Mailbox::new(paths(n))).collect()).collect();
    // Transports are taken from the back, so workers are gone through from the last one.
    let mut transports: Vec<Vec<Option<D::Transport>>> = nodes
        .iter_mut()
        .map(|n| n.as_mut().map_or(vec![], |n| n.transports.drain(..).map(Some).collect()))
        .collect();
    let mut lcores = Vec::new();
    for lcore in plan.lcores.iter().filter(|l| !l.roles.is_empty()) {
        let mut roles = Vec::new();
        for r in &lcore.roles {
            let (node, worker) = (&plan.nodes[r.node], &plan.nodes[r.node].workers[r.worker]);
            let wait = roles::tx_wait_ns(node);
            let mut lane = |q: &crate::plan::PortQueue| {
                let (rx, tx) = running[q.port].take_queues(q.queue);
                PortLane::new(rx, tx, wait)
            };
            let client = worker.queues.first().expect("a worker has a queue");
            let port_pool = plan.ports[client.port].pool;
            roles.push(Role {
                name: node.name.clone(),
                worker: r.worker,
                service: roles::service(node, r.worker, seed),
                fabric: transports[r.node]
                    .get_mut(r.worker)
                    .and_then(Option::take)
                    .map_or(Fabric::None, Fabric::Wired),
                port: lane(client),
                fabric_port: worker.fabric_queues.first().map(&mut lane),
                pools: roles::pools(node, port_pool, pools),
                board: Arc::clone(&boards[r.node][r.worker]),
                mailbox: Arc::clone(&mailboxes[r.node][r.worker]),
            });
        }
        lcores.push((lcore.id, roles));
    }
    (lcores, boards, mailboxes)
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
