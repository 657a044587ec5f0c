//! `isthmus devices`: what this machine has to offer.

use dpdk_bind::{Eal, Mempool, PoolConfig, Port, PortConfig, PortError, PortInfo};
use serde::Serialize;

use super::pci::{PciNic, pci_nics};
use super::table::{Table, grouped};
use crate::config::Config;
use crate::plan::probe_args;
use crate::run::hardware::before_eal;

/// All devices, or why there are none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// DPDK ports; the error is a sentence with a remedy.
    pub ports: Result<Vec<PortReport>, String>,
    /// NICs that the kernel uses, so that DPDK must not.
    pub kernel_nics: Vec<PciNic>,
    /// RDMA devices, one entry per physical port; the error is a sentence with a remedy.
    pub rdma: Result<Vec<RdmaReport>, String>,
}

/// A DPDK port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PortReport {
    /// Device name, as `device` of a `[[port]]` wants it.
    pub name: String,
    /// Driver.
    pub driver: String,
    /// NUMA socket.
    pub socket: Option<u32>,
    /// MAC address.
    pub mac: Option<String>,
    /// The link is up.
    pub link_up: Option<bool>,
    /// Speed of the link in Mb/s.
    pub speed_mbps: Option<u32>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Smallest and largest MTU; `None` where the driver does not care.
    pub mtu_range: Option<(u32, u32)>,
    /// RX queues at most.
    pub rx_queues: u32,
    /// TX queues at most.
    pub tx_queues: u32,
    /// Fewest and most RX descriptors.
    pub rx_desc: (u32, u32),
    /// Fewest and most TX descriptors.
    pub tx_desc: (u32, u32),
    /// Spreads flows by hash.
    pub rss: bool,
    /// Computes IPv4, UDP and TCP checksums.
    pub checksums: bool,
    /// Sends frames of several segments.
    pub chains: bool,
    /// Why its state could not be read.
    pub problem: Option<String>,
}

/// A port of an RDMA device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RdmaReport {
    /// Device name, as `fabric.verbs.device` wants it.
    pub device: String,
    /// Physical port from 1.
    pub port: u8,
    /// State in a word.
    pub state: String,
    /// Ethernet or InfiniBand.
    pub link_layer: String,
    /// Firmware version; empty for software devices.
    pub firmware: String,
    /// Speed in Mb/s.
    pub speed_mbps: Option<u32>,
    /// MTU in use, in bytes.
    pub active_mtu: Option<u32>,
    /// Largest MTU in bytes.
    pub max_mtu: Option<u32>,
    /// Queue pairs.
    pub max_qp: u32,
    /// Requests of one queue.
    pub max_qp_wr: u32,
    /// Segments of one request.
    pub max_sge: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of one.
    pub max_cqe: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// READs and atomics outstanding on one QP.
    pub max_read_depth: u32,
    /// Addresses.
    pub gids: Vec<GidReport>,
}

/// An address of an RDMA port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GidReport {
    /// Index, as `fabric.verbs.gid_index` wants it.
    pub index: u32,
    /// The address.
    pub gid: String,
    /// RoCEv1, RoCEv2 or InfiniBand.
    pub kind: String,
    /// Network device it belongs to.
    pub netdev: Option<String>,
}

/// Looks at all devices. `config` holds the EAL options of the command line.
pub(super) fn probe(config: &Config) -> Report {
    let (free, kernel_nics): (Vec<_>, Vec<_>) = pci_nics().into_iter().partition(PciNic::is_free);
    let mut config = config.clone();
    if config.eal.allow.is_empty() && config.eal.block.is_empty() {
        config.eal.allow = free.into_iter().map(|nic| nic.address).collect();
    }
    Report { ports: probe_ports(&config), kernel_nics, rdma: probe_rdma() }
}

fn probe_ports(config: &Config) -> Result<Vec<PortReport>, String> {
    let args = probe_args(config, &before_eal()).map_err(|problem| problem.what + "; " + &problem.remedy)?;
    let eal = Eal::init(&args).map_err(|error| error.to_string())?;
    let mut reports = Vec::new();
    for info in Port::list(&eal) {
        let mut report = PortReport::from(&info);
        if let Err(error) = add_state(&eal, &info, &mut report) {
            report.problem = Some(error);
        }
        reports.push(report);
    }
    Ok(reports)
}

/// Address, link and MTU show only once the port is configured.
fn add_state(eal: &Eal, info: &PortInfo, report: &mut PortReport) -> Result<(), String> {
    let small = PoolConfig { count: 511, cache: 0, ..PoolConfig::default() };
    let name = format!("probe{}", info.id);
    let pool = Mempool::create(eal, &name, &small).map_err(|error| error.to_string())?;
    let mtu = info.max_mtu.min(1500);
    let config = PortConfig { rx_desc: 128, tx_desc: 128, mtu, pools: vec![pool], ..PortConfig::default() };
    let said = |error: PortError| error.to_string();
    let (mut port, rx, tx) = Port::configure(eal, &info.id, &config).map_err(said)?;
    report.mac = Some(port.mac().map(|byte| format!("{byte:02x}")).join(":"));
    port.start().map_err(said)?;
    let link = port.link();
    report.link_up = Some(link.up);
    report.speed_mbps = link.speed_mbps.filter(|_| !in_memory(&report.driver));
    report.mtu = Some(u32::from(port.mtu()));
    drop((rx, tx));
    port.stop().map_err(said)
}

impl From<&PortInfo> for PortReport {
    fn from(info: &PortInfo) -> Self {
        let limits = crate::plan::PortLimits::from(info);
        Self {
            name: info.name.clone(),
            driver: info.driver.clone(),
            socket: info.socket,
            mtu_range: (info.max_mtu != u16::MAX).then_some((limits.min_mtu, limits.max_mtu)),
            rx_queues: limits.max_rx_queues,
            tx_queues: limits.max_tx_queues,
            rx_desc: (limits.rx_desc.min, limits.rx_desc.max),
            tx_desc: (limits.tx_desc.min, limits.tx_desc.max),
            rss: limits.rss,
            checksums: limits.tx_checksum,
            chains: info.tx_offloads.chains(),
            ..Self::default()
        }
    }
}

fn probe_rdma() -> Result<Vec<RdmaReport>, String> {
    let devices = rdma_engine::verbs::devices().map_err(|error| error.to_string())?;
    Ok(devices.iter().flat_map(RdmaReport::of_device).collect())
}

impl RdmaReport {
    fn of_device(device: &rdma_engine::verbs::DeviceReport) -> Vec<Self> {
        let limits = &device.limits;
        let of_port = |port: &rdma_engine::verbs::PortReport| Self {
            device: device.name.clone(),
            port: port.number,
            state: port.state.to_string(),
            link_layer: port.link_layer.to_string(),
            firmware: device.firmware.clone(),
            speed_mbps: port.speed_mbps,
            active_mtu: port.active_mtu.map(|mtu| mtu.bytes()),
            max_mtu: port.max_mtu.map(|mtu| mtu.bytes()),
            max_qp: limits.qps,
            max_qp_wr: limits.qp_depth,
            max_sge: limits.sge,
            max_cq: limits.cqs,
            max_cqe: limits.cq_depth,
            max_mr: limits.mrs,
            max_srq: limits.srqs,
            max_read_depth: u32::from(limits.rd_atomic),
            gids: port.gids.iter().map(GidReport::from).collect(),
        };
        device.ports.iter().map(of_port).collect()
    }
}

impl From<&rdma_engine::cm::GidEntry> for GidReport {
    fn from(entry: &rdma_engine::cm::GidEntry) -> Self {
        Self {
            index: entry.index,
            gid: entry.gid.ip().to_canonical().to_string(),
            kind: entry.kind.to_string(),
            netdev: entry.netdev.clone(),
        }
    }
}

/// The report as JSON.
pub(super) fn json(report: &Report) -> String {
    let side = |key: &str, found: Result<serde_json::Value, &String>| match found {
        Ok(list) => (key.to_owned(), list),
        Err(error) => (format!("{key}_error"), serde_json::Value::from(error.as_str())),
    };
    let ports = side("ports", report.ports.as_ref().map(|list| serde_json::json!(list)));
    let rdma = side("rdma", report.rdma.as_ref().map(|list| serde_json::json!(list)));
    let nics = ("kernel_nics".to_owned(), serde_json::json!(report.kernel_nics));
    let whole: serde_json::Map<_, _> = [ports, nics, rdma].into_iter().collect();
    format!("{:#}\n", serde_json::Value::Object(whole))
}

/// The report for people.
pub(super) fn text(report: &Report) -> String {
    let mut text = String::from("DPDK ports\n");
    match &report.ports {
        Ok(ports) if ports.is_empty() => {
            text.push_str("  none; make a virtual one: isthmus --vdev net_null0 -- devices\n");
        }
        Ok(ports) => text.push_str(&ports_text(ports)),
        Err(error) => text.push_str(&format!("  {error}\n")),
    }
    for nic in &report.kernel_nics {
        let owner =
            nic.driver.as_deref().map_or("no driver".to_owned(), |driver| format!("the kernel's {driver}"));
        text.push_str(&format!("  {} is bound to {owner}", nic.address));
        match (&nic.interface, nic.is_up) {
            (Some(name), true) => {
                text.push_str(&format!(" as {name}, which is up: leave it unless nobody needs it\n"));
            }
            (name, _) => {
                let name = name.as_ref().map_or(String::new(), |name| format!(" as {name}, which is down"));
                let address = &nic.address;
                text.push_str(&format!("{name}; to use it here: dpdk-devbind.py -b vfio-pci {address}\n"));
            }
        }
    }
    text.push_str("\nRDMA devices\n");
    match &report.rdma {
        Ok(devices) if devices.is_empty() => text.push_str("  none\n"),
        Ok(devices) => text.push_str(&rdma_text(devices)),
        Err(error) => text.push_str(&format!("  {error}\n")),
    }
    text
}

fn ports_text(ports: &[PortReport]) -> String {
    let names = [
        "device",
        "driver",
        "socket",
        "MAC",
        "link",
        "MTU",
        "MTU range",
        "queues",
        "RX desc",
        "TX desc",
        "can",
    ];
    let mut table = Table::new(&names, &[]);
    for port in ports {
        let can = [(port.rss, "rss"), (port.checksums, "checksums"), (port.chains, "chains")];
        let can: Vec<_> = can.into_iter().filter(|(has, _)| *has).map(|(_, name)| name).collect();
        table.row([
            port.name.clone(),
            port.driver.clone(),
            or_dash(port.socket),
            or_dash(port.mac.as_ref()),
            if in_memory(&port.driver) {
                "in memory".into()
            } else {
                link_text(port.link_up, port.speed_mbps)
            },
            or_dash(port.mtu),
            port.mtu_range.map_or("any".to_owned(), |(low, high)| format!("{low}-{high}")),
            format!("{} rx, {} tx", port.rx_queues, port.tx_queues),
            descriptors(port.rx_desc),
            descriptors(port.tx_desc),
            if can.is_empty() { "-".to_owned() } else { can.join(" ") },
        ]);
    }
    let mut text = table.text();
    for port in ports {
        if let Some(problem) = &port.problem {
            text.push_str(&format!("  {}: state unknown: {problem}\n", port.name));
        }
    }
    text
}

fn rdma_text(devices: &[RdmaReport]) -> String {
    let mut table = Table::new(
        &[
            "device",
            "port",
            "state",
            "wire",
            "speed",
            "MTU",
            "QPs",
            "requests",
            "segments",
            "CQs",
            "CQ entries",
            "regions",
            "reads",
        ],
        &[1, 6, 7, 8, 9, 10, 11, 12],
    );
    for device in devices {
        table.row([
            device.device.clone(),
            device.port.to_string(),
            device.state.clone(),
            device.link_layer.clone(),
            speed_text(device.speed_mbps),
            format!("{} of {}", or_dash(device.active_mtu), or_dash(device.max_mtu)),
            grouped(device.max_qp),
            grouped(device.max_qp_wr),
            grouped(device.max_sge),
            grouped(device.max_cq),
            grouped(device.max_cqe),
            grouped(device.max_mr),
            grouped(device.max_read_depth),
        ]);
    }
    let mut text = table.text();
    let mut gids = Table::new(&["device", "port", "GID", "address", "kind", "netdev"], &[1, 2]);
    for device in devices {
        for gid in &device.gids {
            gids.row([
                device.device.clone(),
                device.port.to_string(),
                gid.index.to_string(),
                gid.gid.clone(),
                gid.kind.clone(),
                or_dash(gid.netdev.as_ref()),
            ]);
        }
    }
    text.push('\n');
    text.push_str(&gids.text());
    text
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

fn descriptors((least, most): (u32, u32)) -> String {
    if most >= u32::from(u16::MAX) { format!("{least} up") } else { format!("{least}-{most}") }
}

/// True for ends of a ring: they are always up, and their speed is made up.
fn in_memory(driver: &str) -> bool {
    matches!(driver, "net_ring" | "eth_ring")
}

fn link_text(up: Option<bool>, speed_mbps: Option<u32>) -> String {
    match up {
        None => "-".to_owned(),
        Some(false) => "down".to_owned(),
        Some(true) => format!("up {}", speed_text(speed_mbps)).trim_end_matches([' ', '-']).to_owned(),
    }
}

fn speed_text(speed_mbps: Option<u32>) -> String {
    match speed_mbps {
        None => "-".to_owned(),
        Some(mbps) if mbps >= 1000 => format!("{} Gb/s", f64::from(mbps) / 1000.0),
        Some(mbps) => format!("{mbps} Mb/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Report {
        let port = PortReport {
            name: "net_null0".into(),
            driver: "net_null".into(),
            mac: Some("02:00:00:00:00:01".into()),
            link_up: Some(true),
            speed_mbps: Some(10_000),
            mtu: Some(1500),
            rx_queues: 1024,
            tx_queues: 1024,
            rx_desc: (0, 65_535),
            tx_desc: (64, 4096),
            chains: true,
            ..PortReport::default()
        };
        let gid = GidReport {
            index: 1,
            gid: "10.9.0.1".into(),
            kind: "RoCEv2".into(),
            netdev: Some("eth0".into()),
        };
        let rdma = RdmaReport {
            device: "rxe0".into(),
            port: 1,
            state: "active".into(),
            link_layer: "Ethernet".into(),
            active_mtu: Some(1024),
            max_mtu: Some(4096),
            max_qp: 1_048_560,
            gids: vec![gid],
            ..RdmaReport::default()
        };
        let nic = PciNic {
            address: "0000:00:03.0".into(),
            driver: Some("virtio-pci".into()),
            interface: Some("eth0".into()),
            is_up: false,
        };
        Report { ports: Ok(vec![port]), kernel_nics: vec![nic], rdma: Ok(vec![rdma]) }
    }

    #[test]
    fn the_text_names_limits_and_addresses() {
        let text = text(&sample());
        for part in [
            "net_null0",
            "up 10 Gb/s",
            "1024 rx, 1024 tx",
            "0 up",
            "64-4096",
            "rxe0",
            "1 048 560",
            "10.9.0.1",
            "1024 of 4096",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn nobody_is_told_to_unbind_a_nic_that_is_up() {
        let mut report = sample();
        assert!(
            text(&report).contains("as eth0, which is down; to use it here: dpdk-devbind.py -b vfio-pci")
        );
        report.kernel_nics[0].is_up = true;
        let said = text(&report);
        assert!(said.contains("as eth0, which is up: leave it") && !said.contains("devbind"), "{said}");
    }

    #[test]
    fn an_error_of_one_side_leaves_the_other() {
        let report = Report { rdma: Err("no RDMA device; load one".into()), ..sample() };
        assert!(text(&report).contains("no RDMA device; load one"));
        let value: serde_json::Value = serde_json::from_str(&json(&report)).unwrap();
        assert_eq!(value["ports"][0]["name"], "net_null0");
        assert_eq!(value["rdma_error"], "no RDMA device; load one");
    }
}
