//! Refusals that need facts about the machine.

use crate::config::ConfigFile;
use crate::plan::{DescriptorLimits, Hardware, PortLimits, RdmaLimits};

const CONF: &str = r#"
[eal]
lcores = "0-2"
hugepages = "in-memory"

[[port]]
name = "in"
device = "net_null0"

[fabric]
transport = "verbs"
connect = "10.9.0.2:7471"
key_file = "relay.key"

[[node]]
name = "a"
service = "relay"
ports = ["in"]
workers = 2
"#;

fn port() -> PortLimits {
    let desc = DescriptorLimits { min: 64, max: 4096, align: 32 };
    PortLimits {
        device: "net_null0".into(),
        max_rx_queues: 8,
        max_tx_queues: 8,
        rx_desc: desc,
        tx_desc: desc,
        min_mtu: 68,
        max_mtu: 9000,
        rss: true,
        tx_checksum: true,
    }
}

fn rdma(device: &str) -> RdmaLimits {
    RdmaLimits {
        device: device.into(),
        port: 1,
        active: true,
        active_mtu: 1024,
        gids: 4,
        max_qp: 1000,
        max_qp_wr: 1000,
        max_sge: 32,
        max_cq: 1000,
        max_cqe: 10_000,
        max_mr: 1000,
        max_srq_wr: 1000,
        max_read_depth: 128,
    }
}

fn machine() -> Hardware {
    Hardware {
        cpus: vec![0, 1, 2, 3],
        hugepages_free_mib: Some(1024),
        memory_mib: Some(8192),
        ports: vec![port()],
        rdma: vec![rdma("rxe0")],
    }
}

/// The lines that `CONF` with `add` under `[fabric]` and `port` under `[[port]]` is refused with.
fn refused(port: &str, add: &str, hardware: &Hardware) -> Vec<String> {
    let text = CONF.replace("net_null0\"\n", &format!("net_null0\"\n{port}\n"));
    let text = text.replace("relay.key\"\n", &format!("relay.key\"\n{add}\n"));
    match ConfigFile::parse("hw.toml", &text).plan(Some(hardware)) {
        Ok(_) => Vec::new(),
        Err(refused) => {
            refused.0.iter().map(|problem| format!("{}: {}", problem.key, problem.problem)).collect()
        }
    }
}

#[test]
fn a_machine_that_has_it_all_is_enough() {
    assert_eq!(refused("", "", &machine()), Vec::<String>::new());
}

#[test]
fn ports_are_held_to_their_limits() {
    let with = |change: fn(&mut PortLimits)| {
        let mut limits = port();
        change(&mut limits);
        Hardware { ports: vec![limits], ..machine() }
    };
    let cases: [(&str, Hardware, &str); 6] = [
        ("", with(|port| port.max_tx_queues = 1), "port[in].queues: net_null0 here has at most 1"),
        ("rx_desc = 8192", machine(), "port[in].rx_desc: net_null0 takes 64 to 4096 here"),
        (
            "tx_desc = 96",
            with(|port| port.tx_desc.align = 64),
            "port[in].tx_desc: net_null0 takes multiples of 64 here",
        ),
        ("mtu = 9216", machine(), "port[in].mtu: net_null0 takes 68 to 9000 here"),
        (
            "checksum_offload = \"on\"",
            with(|port| port.tx_checksum = false),
            "port[in].checksum_offload: net_null computes no checksums",
        ),
        ("rss = true", with(|port| port.rss = false), "port[in].rss: net_null does not hash frames"),
    ];
    for (key, hardware, line) in cases {
        let said = refused(key, "", &hardware);
        assert!(said.iter().any(|said| said == line), "{line}: {said:?}");
    }
}

/// A number that nobody asked for gives way.
#[test]
fn default_descriptors_follow_the_driver() {
    let mut limits = port();
    limits.rx_desc = DescriptorLimits { min: 64, max: 500, align: 64 };
    let hardware = Hardware { ports: vec![limits], ..machine() };
    let plan = ConfigFile::parse("hw.toml", CONF).plan(Some(&hardware)).unwrap();
    assert_eq!((plan.ports[0].rx_desc, plan.ports[0].tx_desc), (448, 1024));
}

#[test]
fn devices_are_held_to_their_limits() {
    let with = |change: fn(&mut RdmaLimits)| {
        let mut limits = rdma("rxe0");
        change(&mut limits);
        Hardware { rdma: vec![limits], ..machine() }
    };
    let cases: [(&str, Hardware, &str); 14] = [
        (
            "verbs.device = \"mlx5_0\"",
            machine(),
            "fabric.verbs.device: there is no RDMA device mlx5_0 with a port 1",
        ),
        ("", with(|rdma| rdma.active = false), "fabric.verbs.device: no RDMA device is active"),
        ("verbs.gid_index = 4", machine(), "fabric.verbs.gid_index: rxe0 has 4 GIDs"),
        ("pmtu = 4096", machine(), "fabric.pmtu: the active MTU of rxe0 is 1024"),
        ("", with(|rdma| rdma.max_qp = 3), "node[a].relay.qps_per_worker: 4 QPs in all, rxe0 offers 3"),
        ("", with(|rdma| rdma.max_cq = 1), "node[a].workers: 2 completion queues in all, rxe0 offers 1"),
        ("", with(|rdma| rdma.max_mr = 1), "node[a]: 2 memory regions, rxe0 offers 1"),
        ("send_depth = 1001", machine(), "fabric.send_depth: rxe0 offers at most 1000"),
        ("recv_depth = 1001", machine(), "fabric.recv_depth: rxe0 offers at most 1000"),
        (
            "recv_depth = 900\nsrq = true",
            with(|rdma| rdma.max_srq_wr = 0),
            "fabric.recv_depth: rxe0 offers at most 0",
        ),
        ("cq_depth = 10001", machine(), "fabric.cq_depth: rxe0 offers at most 10000"),
        ("max_sge = 32", with(|rdma| rdma.max_sge = 30), "fabric.max_sge: rxe0 offers at most 30"),
        (
            "read_depth = 128",
            with(|rdma| rdma.max_read_depth = 16),
            "fabric.read_depth: rxe0 offers at most 16",
        ),
        (
            "qp = \"ud\"",
            machine(),
            "fabric.qp: a UD message is one packet, and a frame of 1518 bytes with the relay header of 88 exceeds the PMTU of 1024",
        ),
    ];
    for (keys, hardware, line) in cases {
        let said = refused("", keys, &hardware);
        assert!(said.iter().any(|said| said == line), "{line}: {said:?}");
    }
}

#[test]
fn of_two_active_devices_one_has_to_be_named() {
    let hardware = Hardware { rdma: vec![rdma("rxe0"), rdma("rxe1")], ..machine() };
    assert_eq!(refused("", "", &hardware), ["fabric.verbs.device: rxe0, rxe1 are all active"]);
    assert_eq!(refused("", "verbs.device = \"rxe1\"", &hardware), Vec::<String>::new());
}

#[test]
fn the_packet_size_follows_the_device() {
    let plan = ConfigFile::parse("hw.toml", CONF).plan(Some(&machine())).unwrap();
    assert_eq!(plan.nodes[0].fabric.as_ref().unwrap().pmtu, Some(1024));
}

#[test]
fn cpus_and_pages_have_to_be_there() {
    let few = Hardware { cpus: vec![0, 1], ..machine() };
    assert_eq!(refused("", "", &few), ["eal.lcores: this process may not run on CPU 2"]);
    let poor = Hardware { hugepages_free_mib: Some(2), ..machine() };
    assert!(refused("", "", &poor)[0].starts_with("eal.hugepages: 2 MiB of hugepages are free"));
}
