//! Properties of planning, and the limits of real hardware.

use proptest::prelude::*;

use super::bounds::HEADROOM_BYTES;
use super::*;
use crate::config::{
    Config, ConfigFile, FabricKeys, LcoreText, LinkKeys, NodeKeys, PortKeys, RelayKeys, SinkKeys, SoftKeys,
    SourceKeys, Workers,
};
use crate::store::layout::{MOST_KEY, UNIT, item_units};

mod hardware;

/// A number: mostly left out, often a usual one, sometimes any.
fn number(usual: std::ops::RangeInclusive<u32>) -> impl Strategy<Value = Option<u32>> {
    prop_oneof![24 => Just(None), 8 => usual.prop_map(Some), 1 => any::<u32>().prop_map(Some)]
}

fn relay_keys() -> impl Strategy<Value = RelayKeys> {
    (number(1024..=9400), number(0..=2048), number(1..=32), number(1..=100_000)).prop_map(
        |(message_bytes, copybreak, qps_per_worker, flow_capacity)| RelayKeys {
            message_bytes,
            copybreak,
            qps_per_worker,
            flow_capacity,
            ..RelayKeys::default()
        },
    )
}

fn depths() -> impl Strategy<Value = FabricKeys> {
    let queues = (number(16..=512), number(2..=1024), number(64..=65_536), number(1..=32), number(1..=16));
    let path = (prop::option::of(0.1..400.0f64), prop::option::of(0.5..50.0f64), number(256..=4096));
    (queues, path, any::<Option<bool>>(), number(1..=20_000)).prop_map(
        |(queues, path, srq, pool_messages)| {
            let (send_depth, recv_depth, cq_depth, max_sge, signal_every) = queues;
            let (link_gbps, rtt_us, pmtu) = path;
            FabricKeys {
                send_depth,
                recv_depth,
                cq_depth,
                max_sge,
                signal_every,
                link_gbps,
                rtt_us,
                // Mostly one of the standard's.
                pmtu: pmtu.map(|bytes| if bytes <= 4096 { bytes.next_power_of_two() } else { bytes }),
                srq,
                pool_messages,
                ..FabricKeys::default()
            }
        },
    )
}

/// Who carries it: verbs to somewhere, or soft over a link of its own.
fn fabric() -> impl Strategy<Value = FabricKeys> {
    let kinds = prop_oneof![Just(QpKind::Rc), Just(QpKind::Uc), Just(QpKind::Ud)];
    (depths(), any::<bool>(), kinds).prop_map(|(keys, soft, qp)| FabricKeys {
        transport: Some(if soft { TransportKind::Soft } else { TransportKind::Verbs }),
        connect: Some("10.9.0.2:7471".into()),
        key_file: Some("key".into()),
        qp: Some(qp),
        soft: SoftKeys {
            port: soft.then(|| "wire".into()),
            addresses: soft.then(|| vec!["192.0.2.1/24".into()]),
            ..SoftKeys::default()
        },
        ..keys
    })
}

use crate::config::{QpKind, TransportKind};

fn node(name: &str, service: ServiceKind, port: &str, workers: Option<u32>) -> NodeKeys {
    NodeKeys {
        name: name.into(),
        service: Some(service),
        ports: vec![port.into()],
        workers: workers.map(Workers::Count),
        ..NodeKeys::default()
    }
}

prop_compose! {
    /// A source, a relay and a sink with numbers of all kinds.
    fn config()(
        fabric in fabric(),
        relay in relay_keys(),
        port in (number(32..=4096), number(64..=4096), number(576..=9000), number(1..=20_000), number(0..=512)),
        link in (number(128..=4096), number(576..=9000), number(0..=512)),
        workers in number(1..=4),
        flows in number(1..=1_000_000),
        memory_mib in prop_oneof![8 => Just(None), 1 => any::<u32>().prop_map(Some)],
        spare in 0..3u32,
    ) -> Config {
        let (rx_desc, tx_desc, mtu, pool_frames, pool_cache) = port;
        let round = |count: Option<u32>| count.map(|n| n - n % 32);
        let (ring_size, link_mtu, link_cache) = link;
        let ring_size = ring_size.map(|n| if n < 1 << 20 { n.next_power_of_two() } else { n });
        let lcores = workers.unwrap_or(1).clamp(1, 8) + spare;
        let cable = |name: &str, left: &str, right: &str| LinkKeys {
            name: name.into(),
            ports: vec![left.into(), right.into()],
            ring_size,
            mtu: link_mtu,
            pool_cache: link_cache,
            ..LinkKeys::default()
        };
        Config {
            port: vec![PortKeys {
                name: "out".into(),
                device: "net_null0".into(),
                rx_desc: round(rx_desc),
                tx_desc: round(tx_desc),
                mtu,
                pool_frames,
                pool_cache,
                ..PortKeys::default()
            }],
            link: vec![cable("near", "src", "in"), cable("fabric", "wire", "far")],
            fabric: Some(fabric),
            node: vec![
                NodeKeys { source: SourceKeys { flows, ..SourceKeys::default() }, ..node("source", ServiceKind::Source, "src", workers) },
                NodeKeys { relay, ..node("relay", ServiceKind::Relay, "in", workers) },
                NodeKeys { sink: SinkKeys { flows, ..SinkKeys::default() }, ..node("sink", ServiceKind::Sink, "out", workers) },
            ],
            eal: crate::config::EalKeys {
                lcores: Some(LcoreText(format!("0-{lcores}"))),
                memory_mib,
                ..crate::config::EalKeys::default()
            },
            ..Config::default()
        }
    }
}

/// What must hold of every plan.
fn check_invariants(plan: &Plan) {
    check_lcores(plan);
    check_queues(plan);
    for node in &plan.nodes {
        if let (PlanService::Relay(relay), Some(fabric)) = (&node.service, &node.fabric) {
            check_depths(node, relay, fabric);
            check_messages(plan, node, relay, fabric);
        }
    }
    for pool in &plan.pools {
        assert!(pool.cache <= 512 && u64::from(pool.cache) * 3 / 2 <= u64::from(pool.count), "{pool:?}");
        assert!(pool.name.len() <= 25, "{pool:?}");
    }
    for port in &plan.ports {
        let pool = &plan.pools[port.pool];
        assert!(u32::from(pool.data_room) >= HEADROOM_BYTES + port.max_frame_bytes(), "{port:?} {pool:?}");
        let rings = u64::from(port.queues) * u64::from(port.tx_desc);
        assert!(u64::from(pool.count) >= rings, "{port:?} {pool:?}");
    }
    let bytes: u64 = plan.pools.iter().map(PlanPool::bytes).sum();
    assert!(plan.memory.eal_mib << 20 >= bytes);
    assert!(plan.eal_args.iter().filter(|word| *word == "-l").count() == 1);
}

fn check_lcores(plan: &Plan) {
    assert_eq!(plan.lcores.iter().filter(|lcore| lcore.main).count(), 1);
    assert!(plan.lcores[0].main && plan.lcores[0].roles.is_empty());
    for (index, node) in plan.nodes.iter().enumerate() {
        for (worker, it) in node.workers.iter().enumerate() {
            let role = RoleRef { node: index, worker };
            let homes: Vec<_> = plan.lcores.iter().filter(|lcore| lcore.roles.contains(&role)).collect();
            assert!(homes.len() == 1 && homes[0].id == it.lcore && !homes[0].main);
            assert!(
                node.workers[..worker].iter().all(|other| other.lcore != it.lcore),
                "two workers on one lcore"
            );
        }
    }
}

/// Every queue of every used port belongs to exactly one worker, each worker has one of each port.
fn check_queues(plan: &Plan) {
    for (index, port) in plan.ports.iter().enumerate() {
        let workers = plan.nodes.iter().flat_map(|node| &node.workers);
        let lanes = workers.flat_map(|worker| worker.queues.iter().chain(&worker.fabric_queues));
        let mut mine: Vec<_> = lanes.filter(|lane| lane.port == index).map(|lane| lane.queue).collect();
        mine.sort_unstable();
        let all: Vec<u16> = if port.node.is_some() { (0..port.queues).collect() } else { Vec::new() };
        assert_eq!(mine, all, "{port:?}");
    }
}

fn check_depths(node: &PlanNode, relay: &PlanRelay, fabric: &PlanFabric) {
    let qp = &fabric.qp;
    let (per_worker, sends) = (u64::from(relay.qps_per_worker), u64::from(qp.send_depth));
    let receives = u64::from(qp.recv_depth) * if qp.srq { 1 } else { per_worker };
    assert!(u64::from(qp.cq_depth) >= per_worker * sends + receives, "{qp:?}");
    assert!(qp.signal_every <= qp.send_depth && qp.max_sge <= 32);
    let mut next = 0;
    for worker in &node.workers {
        assert_eq!((worker.qps.start, worker.qps.len() as u64), (next, per_worker));
        next = worker.qps.end;
    }
    assert_eq!(next, qp.count);
}

fn check_messages(plan: &Plan, node: &PlanNode, relay: &PlanRelay, fabric: &PlanFabric) {
    let grh = if fabric.qp.kind == QpKind::Ud { GRH_BYTES } else { 0 };
    assert!(relay.message_bytes >= relay.max_frame_bytes + RELAY_HEADER_MAX_BYTES);
    if fabric.qp.kind == QpKind::Ud {
        assert!(relay.message_bytes <= fabric.pmtu.unwrap_or(1024));
    }
    let pool = &plan.pools[node.message_pool.unwrap()];
    assert!(u32::from(pool.data_room) >= HEADROOM_BYTES + grh + relay.message_bytes);
    let queues = if fabric.qp.srq { node.workers.len() as u64 } else { u64::from(fabric.qp.count) };
    let receives = queues * u64::from(fabric.qp.recv_depth);
    let slots: u64 = node
        .ports
        .iter()
        .map(|port| &plan.ports[*port])
        .map(|p| u64::from(p.queues) * u64::from(p.tx_desc))
        .sum();
    assert!(u64::from(pool.count) >= receives + slots, "receive depth + TX ring x 1 message: {pool:?}");
    assert!(u64::from(plan.pools[node.slice_pool.unwrap()].count) >= slots);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Whatever the numbers: a plan that holds together, or a refusal that says something.
    #[test]
    fn a_plan_holds_together_or_is_refused(config in config()) {
        match resolve(&config, None) {
            Ok(plan) => check_invariants(&plan),
            Err(problems) => prop_assert!(!problems.is_empty()),
        }
    }

    /// The same on machines with few CPUs and little memory.
    #[test]
    fn hardware_never_breaks_a_plan(config in config(), cpus in 1..5u16, free in prop::option::of(0..4096u64)) {
        let hardware = Hardware { cpus: (0..cpus).collect(), hugepages_free_mib: free, ..Hardware::default() };
        let config = Config { eal: crate::config::EalKeys { lcores: None, ..config.eal }, ..config };
        if let Ok(plan) = resolve(&config, Some(&hardware)) {
            assert!(plan.lcores.iter().flat_map(|lcore| &lcore.cpus).all(|cpu| *cpu < cpus));
        }
    }

    /// Any text is decoded or refused.
    #[test]
    fn any_text_is_taken_or_refused(text in "[ -~\n]{0,200}") {
        drop(ConfigFile::parse("any.toml", &text).plan(None));
    }

    /// A file with a slip somewhere is taken or refused with lines that exist.
    #[test]
    fn a_slip_anywhere_is_taken_or_refused(at in 0..1800usize, gone in 0..40usize, instead in "[a-z0-9=\"\\[\\]\n.-]{0,6}") {
        let text = include_str!("../../conf/relay-soft.toml");
        let start = text.floor_char_boundary(at.min(text.len()));
        let end = text.floor_char_boundary((start + gone).min(text.len()));
        let text = format!("{}{instead}{}", &text[..start], &text[end..]);
        if let Err(refused) = ConfigFile::parse("slip.toml", &text).plan(None) {
            let lines = text.lines().count().max(1);
            for problem in &refused.0 {
                prop_assert!(problem.line >= 1 && problem.line <= lines + 1, "{problem}");
            }
        }
    }
}

/// The strategy is no use if it never gets through.
#[test]
fn the_strategy_makes_good_plans_too() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = config();
    let good = (0..500)
        .filter(|_| resolve(&strategy.new_tree(&mut runner).unwrap().current(), None).is_ok())
        .count();
    assert!(good >= 25, "{good} of 500");
}

#[test]
fn the_send_depth_of_the_textbook() {
    assert_eq!(depths::two_bdp_messages(100.0, 5.0, 4096), 31);
    assert_eq!(depths::two_bdp_messages(400.0, 5.0, 4096), 123);
    assert_eq!(depths::two_bdp_messages(0.001, 0.01, 65_280), 1);
}

#[test]
fn lcores_share_cpus_where_there_are_too_few() {
    let config = Config {
        link: vec![LinkKeys { name: "l".into(), ports: vec!["a".into(), "b".into()], ..LinkKeys::default() }],
        node: vec![node("s", ServiceKind::Source, "a", Some(2)), node("d", ServiceKind::Sink, "b", Some(2))],
        ..Config::default()
    };
    let plan = resolve(&config, Some(&Hardware { cpus: vec![4, 5], ..Hardware::default() })).unwrap();
    assert_eq!(plan.eal_args[..4], ["--lcores", "0@4,1@5,2@4", "--main-lcore", "0"]);
    let plan = resolve(&config, Some(&Hardware { cpus: vec![0, 1, 2, 3], ..Hardware::default() })).unwrap();
    assert_eq!(plan.eal_args[..4], ["-l", "0,1,2", "--main-lcore", "0"]);
    let roles: Vec<_> = plan.lcores.iter().map(|lcore| lcore.roles.len()).collect();
    assert_eq!(roles, [0, 2, 2], "a worker of each node on each lcore");
}

#[test]
fn no_plan_takes_more_memory_than_there_is() {
    let text = include_str!("../../conf/kv-soft.toml");
    let with = |text: &str| {
        let hardware = Hardware { memory_mib: Some(4000), ..Hardware::default() };
        ConfigFile::parse("x.toml", text).plan(Some(&hardware)).map_err(|refused| refused.to_string())
    };
    assert!(with(text).is_ok());
    let asked = with(&format!("{text}\n[eal]\nmemory_mib = 5000\n")).unwrap_err();
    assert!(asked.contains("memory_mib = 5000: this machine has 4000 MiB"), "{asked}");
    let needed = with(&text.replace("# arena_bytes = 268435456", "arena_bytes = 5368709120")).unwrap_err();
    assert!(needed.contains("this machine has 4000; lower") && needed.contains("arena_bytes"), "{needed}");
}

#[test]
fn a_plan_for_another_machine_is_held_against_this_one() {
    let text = include_str!("../../conf/kv-soft.toml")
        .replace("# arena_bytes = 268435456", "arena_bytes = 5368709120");
    let problems = |pages: &str, free, all| {
        let file = ConfigFile::parse("x.toml", &format!("{text}\n[eal]\nhugepages = \"{pages}\"\n"));
        let plan = file.plan(None).unwrap();
        let here = Hardware { hugepages_free_mib: Some(free), memory_mib: Some(all), ..Hardware::default() };
        let found = memory_problems(&file.config, &plan.memory, &here);
        // What is found is what would be refused if the machine had been known.
        let refused = file.plan(Some(&here)).map_or_else(|refused| refused.0.len(), |_| 0);
        assert_eq!(refused, found.len(), "{found:?}");
        found.into_iter().map(|problem| problem.what).collect::<Vec<_>>()
    };
    assert_eq!(problems("in-memory", 9000, 9000), [""; 0]);
    assert_eq!(problems("auto", 100, 9000), [""; 0], "ordinary pages will do");
    let few = problems("in-memory", 100, 9000);
    assert!(
        few[0].starts_with("100 MiB of hugepages are free, the plan needs 5") && few.len() == 1,
        "{few:?}"
    );
    let small = problems("auto", 100, 4000);
    assert!(small[0].ends_with("this machine has 4000") && small.len() == 1, "{small:?}");
    assert_eq!(problems("huge", 100, 4000).len(), 2);
}

#[test]
fn pages_follow_what_is_free() {
    let config = ConfigFile::parse("x.toml", include_str!("../../conf/source-sink.toml")).config;
    let with = |free| Hardware { hugepages_free_mib: Some(free), ..Hardware::default() };
    let args = |free| resolve(&config, Some(&with(free))).unwrap().eal_args.join(" ");
    assert!(args(1024).contains("--in-memory"), "{}", args(1024));
    assert!(args(10).contains("--no-huge -m "), "{}", args(10));
}

#[test]
fn the_largest_item_is_read_whole() {
    for bytes in [512u32, 1000, 4097, 65_024, 65_280] {
        let text = include_str!("../../conf/kv-soft.toml")
            .replace("# message_bytes = 65024", &format!("message_bytes = {bytes}"));
        let plan = ConfigFile::parse("x.toml", &text).plan(None).unwrap();
        let gateway = plan.nodes.iter().find(|n| matches!(n.service, PlanService::Kv(_))).unwrap();
        let PlanService::Kv(kv) = &gateway.service else { unreachable!() };
        let pool = &plan.pools[gateway.message_pool.unwrap()];
        let item = item_units(MOST_KEY, kv.value_bytes_max as usize) * UNIT as u32;
        assert!(u32::from(pool.data_room) - HEADROOM_BYTES >= item, "{bytes}: {item} {pool:?}");
    }
}

#[test]
fn an_arena_of_few_segments_is_warned_of_with_a_size_that_will_do() {
    let plan = |bytes: u64, workers| {
        let text = include_str!("../../conf/kv-soft.toml")
            .replace("# arena_bytes = 268435456", &format!("arena_bytes = {bytes}"))
            .replace("\nservice = ", &format!("\nworkers = {workers}\nservice = "))
            .replace("node_workers_max = 1", &format!("node_workers_max = {workers}"))
            .replace("gateway_workers_max = 2", "gateway_workers_max = 4");
        ConfigFile::parse("x.toml", &text).plan(None).unwrap()
    };
    let warning = |bytes, workers| {
        let said = |p: &crate::config::Problem| format!("{:?}: {}: {}", p.at, p.what, p.remedy);
        plan(bytes, workers).warnings.first().map(said)
    };
    for (workers, few, enough) in [(1, 4 << 20, 18 << 20), (3, 32 << 20, 52 << 20)] {
        let said = warning(few, workers).unwrap();
        assert!(said.contains("arena_bytes") && said.contains(&format!("set {enough} or more")), "{said}");
        assert_eq!(warning(enough, workers), None);
        assert!(warning(enough - (1 << 20), workers).is_some());
    }
}
