//! `isthmus check`: a plan for people and for programs.

use serde_json::{Value, json};

use super::queue_pairs::{lane, qp_facts, retry_facts};
use super::table::{Table, counted, grouped};
use crate::config::{CommandKind, ConfigFile, Hugepages, KeySource, QpKind, Refused, TransportKind};
use crate::plan::{
    AppliedRule, DEFAULT_LINK_MBPS, Plan, PlanFabric, PlanKv, PlanLoad, PlanMemoryNode, PlanNode, PlanPeer,
    PlanPort, PlanService, PlanSoft, PlanSource, PlanTransport, PollPolicy, PortSource, RssPlan,
};

/// The plan as JSON, warnings included.
pub(super) fn json(file: &ConfigFile, plan: &Plan) -> String {
    let warnings: Vec<_> = plan.warnings.iter().map(|warning| file.locate(warning)).collect();
    let whole = json!({ "file": file.name(), "plan": plan, "warnings": warnings, "problems": [] });
    format!("{whole:#}\n")
}

/// What is wrong as JSON.
pub(super) fn refused_json(refused: &Refused) -> String {
    let file = refused.0.first().map_or(Value::Null, |problem| Value::from(problem.file.as_str()));
    format!("{:#}\n", json!({ "file": file, "problems": refused.0 }))
}

/// The plan for people; `is_for_here` if this machine has what it takes, as far as that is known.
pub(super) fn text(file: &ConfigFile, plan: &Plan, is_for_here: bool) -> String {
    let can = if is_for_here {
        "this can run, as far as a file can tell"
    } else {
        "this can run, but not on this machine"
    };
    let mut text = format!("{}: {can}\n\n", file.name());
    for warning in &plan.warnings {
        text.push_str(&format!("warning: {}\n", file.locate(warning)));
    }
    if !plan.warnings.is_empty() {
        text.push('\n');
    }
    let sections = [
        ("Process", process(plan)),
        ("Lcores", lcores(plan)),
        ("Ports", ports(plan)),
        ("Links", links(plan)),
        ("Nodes", plan.nodes.iter().map(|node| node_text(plan, node)).collect::<Vec<_>>().join("\n")),
        ("Pools", pools(plan)),
        ("Rules", rules(plan)),
    ];
    let shown = sections.into_iter().filter(|(_, body)| !body.is_empty());
    let shown: Vec<_> = shown.map(|(name, body)| format!("{name}\n{body}")).collect();
    text.push_str(&shown.join("\n"));
    text
}

/// Names on the left, values on the right.
fn facts(facts: &[(&str, String)], indent: &str) -> String {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    facts.iter().map(|(name, value)| format!("{indent}{name:<width$}  {value}\n")).collect()
}

fn process(plan: &Plan) -> String {
    let memory = &plan.memory;
    let pages = match memory.hugepages {
        Hugepages::Auto => "hugepages where enough are free, else ordinary pages",
        Hugepages::Huge => "hugepages as files",
        Hugepages::InMemory => "hugepages without files",
        Hugepages::NoHuge => "ordinary pages",
    };
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let poll = match plan.poll {
        PollPolicy::Busy => "busy".to_owned(),
        PollPolicy::Adaptive { spin_turns, sleep_max_us } => {
            format!("adaptive: {spin_turns} empty turns, then sleeps of up to {sleep_max_us} us")
        }
    };
    let interval = plan.stats.interval_s.map_or("at the end only".to_owned(), |s| format!("every {s} s"));
    let telemetry = if plan.stats.telemetry { ", and on DPDK's telemetry socket" } else { "" };
    let format = format!("{:?}", plan.stats.format).to_lowercase();
    let arenas = match memory.arenas_bytes {
        0 => String::new(),
        bytes => format!(", {} MiB of arenas", mib(bytes)),
    };
    facts(
        &[
            ("EAL", plan.eal_args.join(" ")),
            (
                "memory",
                format!(
                    "{} MiB for EAL ({pages}){arenas}, {} MiB of tables",
                    memory.eal_mib,
                    mib(memory.tables_bytes)
                ),
            ),
            ("poll", poll),
            ("statistics", format!("{interval}, {format}{telemetry}")),
            ("drain", format!("up to {} ms", plan.drain.timeout_ms)),
        ],
        "  ",
    )
}

fn lcores(plan: &Plan) -> String {
    let mut table = Table::new(&["lcore", "CPU", "runs"], &[0]);
    for lcore in &plan.lcores {
        let cpus = if lcore.cpus.is_empty() { vec![lcore.id] } else { lcore.cpus.clone() };
        let role = |role: &crate::plan::RoleRef| format!("{}/{}", plan.nodes[role.node].name, role.worker);
        let mut runs: Vec<String> = lcore.roles.iter().map(role).collect();
        if lcore.main {
            runs.insert(0, "control".to_owned());
        }
        let runs = if runs.is_empty() { "nothing".to_owned() } else { runs.join(", ") };
        table.row([
            lcore.id.to_string(),
            cpus.iter().map(u16::to_string).collect::<Vec<_>>().join(","),
            runs,
        ]);
    }
    table.text()
}

fn ports(plan: &Plan) -> String {
    let names = ["port", "device", "node", "queues", "RX desc", "TX desc", "MTU", "RSS", "checksums", "pool"];
    let mut table = Table::new(&names, &[3, 4, 5, 6]);
    for port in &plan.ports {
        let rss = match port.rss {
            RssPlan::Off => "off",
            RssPlan::WhereOffered => "where offered",
            RssPlan::Required => "required",
        };
        table.row([
            port.name.clone(),
            device(plan, port),
            port.node.map_or("-".to_owned(), |node| plan.nodes[node].name.clone()),
            port.queues.to_string(),
            port.rx_desc.to_string(),
            port.tx_desc.to_string(),
            port.mtu.to_string(),
            rss.to_owned(),
            format!("{:?}", port.checksum_offload).to_lowercase(),
            plan.pools[port.pool].name.clone(),
        ]);
    }
    table.text()
}

fn device(plan: &Plan, port: &PlanPort) -> String {
    match &port.source {
        PortSource::Vdev { device, args, .. } | PortSource::Pci { device, args } if args.is_empty() => {
            device.clone()
        }
        PortSource::Vdev { device, args, .. } | PortSource::Pci { device, args } => {
            format!("{device},{args}")
        }
        PortSource::LinkEnd { link, .. } => format!("link {}", plan.links[*link].name),
    }
}

fn links(plan: &Plan) -> String {
    let mut table = Table::new(&["link", "ports", "queues", "frames per ring"], &[2, 3]);
    for link in &plan.links {
        let [left, right] = link.ports.map(|port| plan.ports[port].name.as_str());
        table.row([
            link.name.clone(),
            format!("{left} <-> {right}"),
            link.queues.to_string(),
            grouped(link.ring_size),
        ]);
    }
    table.text()
}

fn node_text(plan: &Plan, node: &PlanNode) -> String {
    let mut list: Vec<(&str, String)> = Vec::new();
    match &node.service {
        PlanService::Relay(relay) => {
            list.push((
                "messages",
                format!(
                    "up to {} bytes; frames up to {}, copied up to {}",
                    relay.message_bytes, relay.max_frame_bytes, relay.copybreak
                ),
            ));
            list.push((
                "flows",
                format!(
                    "{} per worker, idle after {} s; when full: {}",
                    grouped(relay.flow_capacity),
                    relay.flow_idle_s,
                    lower(&relay.on_flow_table_full)
                ),
            ));
            list.push((
                "back-pressure",
                format!(
                    "{} when a QP is full; {} ms on a dead path",
                    lower(&relay.on_full),
                    relay.dead_path_wait_ms
                ),
            ));
        }
        PlanService::Source(source) => list.extend(source_facts(source)),
        PlanService::Sink(sink) => {
            let verify = if sink.verify {
                format!("order and checksum of {}", counted(sink.flows, "flow"))
            } else {
                "counts only".to_owned()
            };
            let echo = if sink.echo { ", sends every frame back" } else { "" };
            list.push(("verifies", format!("{verify}{echo}")));
        }
        PlanService::Kv(kv) => list.extend(gateway_facts(kv)),
        PlanService::Memory(memory) => list.extend(memory_facts(memory)),
        PlanService::Load(load) => list.extend(load_facts(load)),
    }
    if let Some(fabric) = &node.fabric {
        list.extend(fabric_facts(plan, fabric));
    }
    for (index, worker) in node.workers.iter().enumerate() {
        let lanes = worker.queues.iter().chain(&worker.fabric_queues);
        let mut does: Vec<_> =
            lanes.map(|lane| format!("{} queue {}", plan.ports[lane.port].name, lane.queue)).collect();
        if !worker.qps.is_empty() {
            does.push(format!("QPs {}-{}", worker.qps.start, worker.qps.end - 1));
        }
        list.push(("worker", format!("{index} on lcore {}: {}", worker.lcore, does.join(", "))));
    }
    format!("  {} ({})\n{}", node.name, node.service.kind().name(), facts(&list, "    "))
}

fn source_facts(source: &PlanSource) -> Vec<(&'static str, String)> {
    let rate = source
        .rate_pps
        .map_or("as fast as possible".to_owned(), |rate| format!("{} frames/s", grouped(rate)));
    let count = source.count.map_or("until stopped".to_owned(), |count| counted(count, "frame"));
    let protocols = source.protocols.iter().map(lower).collect::<Vec<_>>().join(" ");
    vec![
        ("traffic", format!("{}, {rate}, {count}", counted(source.flows, "flow"))),
        ("frames", format!("{} bytes; {protocols}", cycle(&source.sizes))),
    ]
}

fn gateway_facts(kv: &PlanKv) -> Vec<(&'static str, String)> {
    let addresses: Vec<_> = kv.addresses.iter().map(ToString::to_string).collect();
    let vlan = kv.vlan.map_or(String::new(), |vlan| format!(", VLAN {vlan}"));
    let allow: Vec<_> = kv.allow.iter().map(ToString::to_string).collect();
    let from = if allow.is_empty() { "anywhere".to_owned() } else { allow.join(" ") };
    vec![
        ("clients", format!("{} UDP port {}{vlan}, from {from}", addresses.join(" "), kv.port)),
        ("replies", format!("datagrams of {} bytes, MTU {}", kv.datagram_bytes, kv.mtu)),
        (
            "memory nodes",
            format!("{}; list number {}, room for {} nodes", kv.nodes.join(" "), kv.generation, kv.nodes_max),
        ),
        (
            "limits",
            format!(
                "values {}, requests {}, messages {} bytes; {} requests and {} places per worker",
                grouped(kv.value_bytes_max),
                grouped(kv.request_bytes_max),
                grouped(kv.message_bytes),
                grouped(kv.requests),
                grouped(kv.locations)
            ),
        ),
    ]
}

fn load_facts(load: &PlanLoad) -> Vec<(&'static str, String)> {
    let addresses: Vec<_> = load.addresses.iter().map(ToString::to_string).collect();
    let popularity = load.zipf.map_or("all alike".to_owned(), |theta| format!("Zipf {theta}"));
    let rate = load.rate.map_or("as many as are answered".to_owned(), |rate| format!("{rate} a second"));
    let (reads, writes) = load.ratio;
    let words = match load.commands {
        CommandKind::Text => "",
        CommandKind::Meta => ", meta commands",
        CommandKind::Touch => ", reads by gat",
    };
    vec![
        ("asks", format!("{} from {}", load.server, addresses.join(" "))),
        (
            "requests",
            format!(
                "{rate}, {reads} reads to {writes} writes{words}, {} flows of {} each",
                load.flows, load.depth
            ),
        ),
        (
            "keys",
            format!(
                "{} of {} bytes, {popularity}; values of {} bytes",
                grouped(load.keys),
                load.key_bytes,
                grouped(load.value_bytes)
            ),
        ),
        ("time", format!("{} s to warm up, {} s measured", load.warm_up_s, load.measure_s)),
    ]
}

fn memory_facts(memory: &PlanMemoryNode) -> Vec<(&'static str, String)> {
    let mib = memory.arena_bytes as f64 / f64::from(1 << 20);
    let staging = match memory.staging.slots {
        0 => "none: calls come by SEND".to_owned(),
        slots => {
            format!("{slots} calls of each gateway worker at once may be written by WRITE with immediate")
        }
    };
    vec![
        (
            "arena",
            format!(
                "{mib:.0} MiB in {}, to be read by its gateways",
                counted(memory.partitions, "partition")
            ),
        ),
        ("staging", staging),
        (
            "gateways",
            format!(
                "{} at once of {} each, messages of {} bytes",
                memory.seats,
                counted(memory.gateway_workers_max, "worker"),
                grouped(memory.message_bytes)
            ),
        ),
    ]
}

/// A list of lengths, each with how often it comes.
fn cycle(sizes: &[u16]) -> String {
    let mut distinct: Vec<u16> = sizes.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let times = |size: &u16| sizes.iter().filter(|other| *other == size).count();
    let even = distinct.iter().all(|size| times(size) == 1);
    let shown = distinct
        .iter()
        .map(|size| if even { size.to_string() } else { format!("{size} (x{})", times(size)) });
    shown.collect::<Vec<_>>().join(" ")
}

fn lower(word: &impl std::fmt::Debug) -> String {
    format!("{word:?}").to_lowercase()
}

fn fabric_facts(plan: &Plan, fabric: &PlanFabric) -> Vec<(&'static str, String)> {
    let peer = |peer: &PlanPeer| match peer {
        PlanPeer::Listen(address) => format!("awaited on {address}"),
        PlanPeer::Connect(address) => format!("at {address}"),
        PlanPeer::InProcess(node) => format!("node {} of this process", plan.nodes[*node].name),
        PlanPeer::Awaited => "awaited from this process".to_owned(),
    };
    let peers: Vec<_> = fabric.peers.iter().map(peer).collect();
    let timing = &fabric.timing;
    let mut facts = vec![("transport", transport(plan, fabric))];
    if let PlanTransport::Soft(soft) = &fabric.transport
        && fabric.qp.kind != QpKind::Ud
    {
        facts.push(("congestion", congestion(soft, fabric.qp.kind)));
    }
    facts.push(("peer", peers.join(", ")));
    if fabric.transport.kind() != TransportKind::Loopback {
        let allow: Vec<_> = fabric.allow.iter().map(ToString::to_string).collect();
        let from = if allow.is_empty() { "anywhere".to_owned() } else { allow.join(" ") };
        let key = match &fabric.key {
            None => "no key".to_owned(),
            Some(KeySource::Inline(_)) => "key in the file".to_owned(),
            Some(KeySource::File(path)) => format!("key in {}", path.display()),
        };
        facts.push(("access", format!("{key}, from {from}")));
        facts.push((
            "times",
            format!(
                "connect {} ms, keepalive {} ms, lost after {} ms, again after {} to {} ms",
                timing.connect_timeout_ms,
                timing.keepalive_ms,
                timing.dead_after_ms,
                timing.reconnect_min_ms,
                timing.reconnect_max_ms
            ),
        ));
    }
    match &fabric.call {
        None => facts.extend(qp_facts(&fabric.qp)),
        Some(call) => {
            facts.push(("READs", lane(&fabric.qp)));
            facts.push(("calls", lane(call)));
            facts.extend(retry_facts(call));
        }
    }
    facts
}

fn congestion(soft: &PlanSoft, kind: QpKind) -> String {
    let mbps = soft.link_mbps.unwrap_or(DEFAULT_LINK_MBPS);
    let speed = format!("{} Gb/s", f64::from(mbps) / 1000.0);
    let control = match (soft.dcqcn, soft.link_mbps) {
        (false, _) => "no rate control".to_owned(),
        (true, Some(_)) => format!("DCQCN below a line rate of {speed}"),
        (true, None) => format!("DCQCN below the port's speed, {speed} where it reports none"),
    };
    match kind {
        QpKind::Rc => format!("{control}; up to {} packets unacknowledged per QP", soft.window),
        QpKind::Uc | QpKind::Ud => control,
    }
}

fn transport(plan: &Plan, fabric: &PlanFabric) -> String {
    let pmtu = fabric.pmtu.map_or("the device's MTU".to_owned(), |pmtu| format!("PMTU {pmtu}"));
    let dscp = if fabric.dscp == 0 { String::new() } else { format!(", DSCP {}", fabric.dscp) };
    let over = match &fabric.transport {
        PlanTransport::Loopback => "loopback".to_owned(),
        PlanTransport::Verbs { device, port, gid_index } => {
            let gid = gid_index.map_or("GID by rule".to_owned(), |gid| format!("GID {gid}"));
            format!("verbs: {} port {port}, {gid}", device.as_deref().unwrap_or("the only active device"))
        }
        PlanTransport::Soft(soft) => {
            let addresses: Vec<_> = soft.addresses.iter().map(ToString::to_string).collect();
            let vlan = soft.vlan.map_or(String::new(), |vlan| format!(", VLAN {vlan}"));
            format!(
                "soft: port {}, {}, MTU {}{vlan}",
                plan.ports[soft.port].name,
                addresses.join(" "),
                soft.mtu
            )
        }
    };
    format!("{over}, {pmtu}{dscp}")
}

fn pools(plan: &Plan) -> String {
    let mut table =
        Table::new(&["pool", "buffers", "bytes each", "cache", "MiB", "for RDMA", "made of"], &[1, 2, 3, 4]);
    for pool in &plan.pools {
        table.row([
            pool.name.clone(),
            grouped(pool.count),
            grouped(pool.data_room),
            pool.cache.to_string(),
            format!("{:.1}", pool.bytes() as f64 / f64::from(1 << 20)),
            if pool.registered { "yes" } else { "no" }.to_owned(),
            pool.why.clone(),
        ]);
    }
    table.text()
}

/// Each rule once, with all that it was applied to in the same way.
fn rules(plan: &Plan) -> String {
    let mut distinct: Vec<(&AppliedRule, Vec<&str>)> = Vec::new();
    // The sums of the pools stand beside them.
    for rule in plan.rules.iter().filter(|rule| rule.name != "buffers") {
        let same = |other: &AppliedRule| {
            (other.name, &other.inputs, &other.result) == (rule.name, &rule.inputs, &rule.result)
        };
        match distinct.iter_mut().find(|(other, _)| same(other)) {
            Some((_, subjects)) => subjects.push(&rule.subject),
            None => distinct.push((rule, vec![&rule.subject])),
        }
    }
    let mut table = Table::new(&["rule", "for", "from", "gives"], &[]);
    for (rule, subjects) in distinct {
        table.row([rule.name.to_owned(), subjects.join(", "), rule.inputs.clone(), rule.result.clone()]);
    }
    table.text()
}
