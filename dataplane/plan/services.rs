//! Numbers of the services.

use serde::Serialize;

use super::bounds::{
    FRAME_OVERHEAD_BYTES, MAX_MESSAGE_BYTES, MAX_QPS_PER_WORKER, MIN_MESSAGE_BYTES, RELAY_HEADER_MAX_BYTES,
};
use super::ledger::{Ledger, service_at};
use super::nodes::DraftNode;
use super::ports::Draft;
use crate::config::{Config, FlowTableFull, OnFull, QpKind, RelayKeys, SizeMix, SourceKeys, WeightedSize};

/// Numbers of the relay service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanRelay {
    /// Largest message in bytes, relay header included.
    pub message_bytes: u32,
    /// Longest frame of its ports in bytes, without frame check sequence.
    pub max_frame_bytes: u32,
    /// Frames shorter than this are copied.
    pub copybreak: u32,
    /// QPs of each worker.
    pub qps_per_worker: u32,
    /// Flows that each worker remembers.
    pub flow_capacity: u32,
    /// Seconds of silence after which a flow is forgotten.
    pub flow_idle_s: u32,
    /// Policy for new flows when the table is full.
    pub on_flow_table_full: FlowTableFull,
    /// Policy for frames when their QP takes no more.
    pub on_full: OnFull,
    /// Milliseconds that frames wait for a dead path.
    pub dead_path_wait_ms: u32,
}

/// Numbers of the source service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanSource {
    /// Distinct flows of the whole node.
    pub flows: u32,
    /// Frame lengths without frame check sequence, with weights. A protocol that needs more takes more.
    pub sizes: Vec<WeightedSize>,
    /// Frames per second of the whole node; `None` = as fast as possible.
    pub rate_pps: Option<u64>,
    /// Frames in all; `None` = until stopped.
    pub count: Option<u64>,
    /// Share of IPv6 among the IP flows.
    pub ipv6_percent: u32,
    /// Share of TCP among the IP flows; the others are UDP.
    pub tcp_percent: u32,
    /// Share of flows that are not IP.
    pub non_ip_percent: u32,
    /// Share of flows with a VLAN tag.
    pub vlan_percent: u32,
    /// Id of that tag.
    pub vlan: u16,
    /// Destination MAC address.
    pub dst_mac: [u8; 6],
    /// Seed of everything random.
    pub seed: u64,
}

/// Numbers of the sink service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanSink {
    /// Check order, sequence and checksum.
    pub verify: bool,
    /// Flows whose order can be followed, per worker.
    pub flows: u32,
    /// Send every frame back.
    pub echo: bool,
    /// Print what was received at the end.
    pub report: bool,
}

/// Message that is long enough for the usual link and short enough for the usual cache.
const DEFAULT_MESSAGE_BYTES: u32 = 4096;

/// What the fabric says about messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Carrier {
    pub(super) kind: QpKind,
    pub(super) pmtu: Option<u32>,
}

/// The longest frame of a node's ports.
pub(super) fn max_frame(node: &DraftNode, ports: &Draft) -> u32 {
    let frames = node.ports.iter().map(|port| ports.ports[*port].port.max_frame_bytes());
    frames.max().unwrap_or(1500 + FRAME_OVERHEAD_BYTES)
}

/// The relay's numbers.
pub(super) fn relay(
    config: &Config,
    index: usize,
    node: &DraftNode,
    ports: &Draft,
    carrier: Carrier,
    ledger: &mut Ledger,
) -> PlanRelay {
    let keys = config.node[index].relay.over(&config.service.relay);
    let at = |key| service_at(index, "relay", key);
    let frame = max_frame(node, ports);
    let message_bytes = message_bytes(&keys, index, &node.name, frame, carrier, ledger);
    let copybreak = copybreak(&keys, index, message_bytes, ledger);
    let qps = ledger.number(at("qps_per_worker"), keys.qps_per_worker, 2, 1..=MAX_QPS_PER_WORKER, "QPs");
    let flows = ledger.number(at("flow_capacity"), keys.flow_capacity, 65_536, 1..=1 << 24, "flows");
    PlanRelay {
        message_bytes,
        max_frame_bytes: frame,
        copybreak,
        qps_per_worker: qps,
        flow_capacity: flow_capacity(flows, &node.name, ledger),
        flow_idle_s: ledger.number(at("flow_idle_s"), keys.flow_idle_s, 60, 1..=86_400, "seconds"),
        on_flow_table_full: keys.on_flow_table_full.unwrap_or_default(),
        on_full: keys.on_full.unwrap_or_default(),
        dead_path_wait_ms: ledger.number(
            at("dead_path_wait_ms"),
            keys.dead_path_wait_ms,
            100,
            0..=60_000,
            "ms",
        ),
    }
}

fn message_bytes(
    keys: &RelayKeys,
    index: usize,
    name: &str,
    frame: u32,
    carrier: Carrier,
    ledger: &mut Ledger,
) -> u32 {
    let at = || service_at(index, "relay", "message_bytes");
    let needed = frame.saturating_add(RELAY_HEADER_MAX_BYTES);
    if carrier.kind == QpKind::Ud {
        return datagram_bytes(keys, index, name, needed, carrier, ledger);
    }
    let default = DEFAULT_MESSAGE_BYTES.max(needed.next_multiple_of(64));
    let range = MIN_MESSAGE_BYTES..=MAX_MESSAGE_BYTES;
    let bytes = ledger.number(at(), keys.message_bytes, default, range, "bytes");
    if bytes < needed {
        let what =
            format!("a frame of {frame} bytes and the relay header of {RELAY_HEADER_MAX_BYTES} do not fit");
        let remedy = format!("set message_bytes = {default} or lower the mtu of the node's ports");
        ledger.refuse_value(at(), bytes, what, remedy);
    }
    ledger.rule(
        "message-size",
        format!("node {name}"),
        format!(
            "longest frame {frame} + relay header {RELAY_HEADER_MAX_BYTES}, at least {DEFAULT_MESSAGE_BYTES}"
        ),
        format!("{bytes} bytes"),
    );
    bytes
}

/// UD: a message is one packet.
fn datagram_bytes(
    keys: &RelayKeys,
    index: usize,
    name: &str,
    needed: u32,
    carrier: Carrier,
    ledger: &mut Ledger,
) -> u32 {
    let at = || service_at(index, "relay", "message_bytes");
    let pmtu = carrier.pmtu.unwrap_or(1024);
    if needed > pmtu {
        let assumed = if carrier.pmtu.is_none() { " (not set; a device over MTU 1500 has 1024)" } else { "" };
        let frame = needed - RELAY_HEADER_MAX_BYTES;
        let what = format!(
            "a UD message is one packet, and a frame of {frame} bytes with the relay header of \
             {RELAY_HEADER_MAX_BYTES} exceeds the PMTU of {pmtu}{assumed}"
        );
        let remedy = format!(
            "use qp = \"rc\", lower the ports' mtu, or set pmtu to {needed} or more where the path carries it"
        );
        ledger.refuse(super::ledger::fabric_at(index, "qp"), what, remedy);
    }
    let bytes = ledger.number(at(), keys.message_bytes, pmtu, MIN_MESSAGE_BYTES..=MAX_MESSAGE_BYTES, "bytes");
    if bytes > pmtu {
        let what = format!("a UD message is one packet of at most {pmtu} bytes");
        ledger.refuse(at(), what, format!("set message_bytes = {pmtu} or leave it out"));
    } else if bytes < needed && needed <= pmtu {
        let what = format!("a frame with the relay header takes {needed} bytes");
        ledger.refuse(at(), what, format!("set message_bytes = {pmtu} or leave it out"));
    }
    ledger.rule(
        "datagram-size",
        format!("node {name}"),
        format!("one packet: PMTU {pmtu}; longest frame with relay header {needed}"),
        format!("{bytes} bytes"),
    );
    bytes
}

fn copybreak(keys: &RelayKeys, index: usize, message_bytes: u32, ledger: &mut Ledger) -> u32 {
    let most = message_bytes.saturating_sub(RELAY_HEADER_MAX_BYTES).min(super::bounds::DATA_ROOM_BYTES);
    let at = service_at(index, "relay", "copybreak");
    let copybreak = keys.copybreak.unwrap_or(256.min(most));
    if copybreak > most {
        let what = format!(
            "a copied frame has to fit one buffer of {} bytes after its headroom, and a message with its header",
            super::bounds::DATA_ROOM_BYTES
        );
        ledger.refuse_value(at, copybreak, what, format!("set copybreak = {most} or less (0 = never copy)"));
        return most;
    }
    copybreak
}

fn flow_capacity(flows: u32, name: &str, ledger: &mut Ledger) -> u32 {
    let rounded = flows.next_power_of_two();
    ledger.rule(
        "flow-table",
        format!("node {name}"),
        format!("{flows} flows per worker"),
        format!("{rounded} entries"),
    );
    rounded
}

/// The source's numbers.
pub(super) fn source(
    config: &Config,
    index: usize,
    node: &DraftNode,
    ports: &Draft,
    ledger: &mut Ledger,
) -> PlanSource {
    let keys = config.node[index].source.over(&config.service.source);
    let at = |key| service_at(index, "source", key);
    let mut percent = |key, value| ledger.number(at(key), value, 0, 0..=100, "percent");
    let ipv6_percent = percent("ipv6_percent", keys.ipv6_percent);
    let tcp_percent = percent("tcp_percent", keys.tcp_percent);
    let non_ip_percent = percent("non_ip_percent", keys.non_ip_percent);
    let vlan_percent = percent("vlan_percent", keys.vlan_percent);
    let vlan = ledger.number(at("vlan"), keys.vlan, 100, 1..=4094, "");
    let flows = ledger.number(at("flows"), keys.flows, 1024, 1..=1 << 24, "flows");
    if flows < node.workers() {
        let what = format!("{} workers need a flow each", node.workers());
        ledger.refuse_value(at("flows"), flows, what, format!("set flows = {} or more", node.workers()));
    }
    PlanSource {
        flows,
        sizes: sizes(&keys, index, max_frame(node, ports), ledger),
        rate_pps: keys.rate_pps.filter(|rate| *rate != 0),
        count: keys.count.filter(|count| *count != 0),
        ipv6_percent,
        tcp_percent,
        non_ip_percent,
        vlan_percent,
        vlan: u16::try_from(vlan).unwrap_or(100),
        dst_mac: destination(&keys, index, ledger),
        seed: keys.seed.unwrap_or(1),
    }
}

fn sizes(keys: &SourceKeys, index: usize, max_frame: u32, ledger: &mut Ledger) -> Vec<WeightedSize> {
    let default = SizeMix(vec![WeightedSize { bytes: 60, weight: 1 }]);
    let mix = keys.sizes.clone().unwrap_or(default).0;
    let at = || service_at(index, "source", "sizes");
    let most = max_frame - 4;
    let wrong = mix.iter().find(|size| size.bytes < 60 || size.bytes > most);
    if let Some(size) = wrong {
        let what = format!("no frame of {} bytes leaves these ports", size.bytes);
        ledger.refuse(
            at(),
            what,
            format!("use lengths from 60 to {most} (mtu + 14), or raise the ports' mtu"),
        );
    }
    let weight: u64 = mix.iter().map(|size| u64::from(size.weight)).sum();
    if mix.is_empty() || weight == 0 || weight > 1_000_000 {
        let remedy = "list at least one length; weights add up to 1 to 1000000";
        ledger.refuse(at(), "no usable mix of lengths", remedy);
    }
    mix
}

fn destination(keys: &SourceKeys, index: usize, ledger: &mut Ledger) -> [u8; 6] {
    let default = [0x02, 0, 0, 0, 0, 0x01];
    let Some(text) = &keys.dst_mac else { return default };
    parse_mac(text).unwrap_or_else(|| {
        let at = service_at(index, "source", "dst_mac");
        ledger.refuse(at, "no MAC address", "write six bytes: \"02:00:00:00:00:01\"");
        default
    })
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split([':', '-']);
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

/// The sink's numbers.
pub(super) fn sink(config: &Config, index: usize, ledger: &mut Ledger) -> PlanSink {
    let keys = config.node[index].sink.over(&config.service.sink);
    let flows = ledger.number(service_at(index, "sink", "flows"), keys.flows, 1 << 20, 1..=1 << 24, "flows");
    PlanSink {
        verify: keys.verify.unwrap_or(true),
        flows,
        echo: keys.echo.unwrap_or(false),
        report: keys.report.unwrap_or(true),
    }
}
