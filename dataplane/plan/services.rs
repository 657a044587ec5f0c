//! Numbers of the services.

use serde::Serialize;

use super::bounds::{
    FRAME_OVERHEAD_BYTES, MAX_MESSAGE_BYTES, MAX_QPS_PER_WORKER, MIN_MESSAGE_BYTES, RELAY_HEADER_MAX_BYTES,
};
use super::fabric::PMTUS;
use super::ledger::{Ledger, service_at};
use super::nodes::DraftNode;
use super::ports::Draft;
use crate::config::{
    Config, FlowTableFull, OnFull, Protocol, QpKind, RelayKeys, ServiceKind, SizeMix, SourceKeys,
    WeightedSize,
};

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
    /// Frame lengths without frame check sequence, used in turn. A protocol that needs more takes more.
    pub sizes: Vec<u16>,
    /// Protocols, used in turn by flow.
    pub protocols: Vec<Protocol>,
    /// Frames per second of the whole node; `None` = as fast as possible.
    pub rate_pps: Option<u64>,
    /// Frames in all; `None` = until stopped.
    pub count: Option<u64>,
    /// Id of the VLAN tag of all frames.
    pub vlan: Option<u16>,
    /// Destination MAC address.
    pub dst_mac: [u8; 6],
}

/// Numbers of the sink service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanSink {
    /// Check order, sequence and checksum.
    pub verify: bool,
    /// Flows whose order can be followed; each worker follows any of them.
    pub flows: u32,
    /// Send every frame back.
    pub echo: bool,
}

/// Message that is long enough for the usual link and short enough for the usual cache.
const DEFAULT_MESSAGE_BYTES: u32 = 4096;
/// Flows of a source.
const DEFAULT_FLOWS: u32 = 1024;
/// Most flows of a table.
const MAX_FLOWS: u32 = 1 << 24;
/// Longest cycle of lengths or protocols.
const MAX_MIX: usize = 1024;

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
        name,
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
        let remedy = match PMTUS.iter().find(|pmtu| **pmtu >= needed) {
            Some(pmtu) => {
                format!(
                    "use qp = \"rc\", lower the ports' mtu, or set pmtu = {pmtu} where the path carries it"
                )
            }
            None => "use qp = \"rc\", or lower the ports' mtu".to_owned(),
        };
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
        name,
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
    ledger.rule("flow-table", name, format!("{flows} flows per worker"), format!("{rounded} entries"));
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
    let flows = ledger.number(at("flows"), keys.flows, DEFAULT_FLOWS, 1..=MAX_FLOWS, "flows");
    if flows < node.workers() {
        let what = format!("{} workers need a flow each", node.workers());
        ledger.refuse_value(at("flows"), flows, what, format!("set flows = {} or more", node.workers()));
    }
    let vlan = keys.vlan.map(|id| ledger.number(at("vlan"), Some(id), id, 1..=4094, ""));
    let protocols = keys.protocols.clone().unwrap_or(vec![Protocol::Udp4]);
    if protocols.is_empty() || protocols.len() > MAX_MIX {
        let remedy = "list one or more of \"udp4\", \"tcp4\", \"udp6\", \"tcp6\" and \"other\"";
        ledger.refuse(at("protocols"), "no usable mix of protocols", remedy);
    }
    PlanSource {
        flows,
        sizes: sizes(&keys, index, max_frame(node, ports), ledger),
        protocols,
        rate_pps: keys.rate_pps.filter(|rate| *rate != 0),
        count: keys.count.filter(|count| *count != 0),
        vlan: vlan.and_then(|id| u16::try_from(id).ok()),
        dst_mac: destination(&keys, index, ledger),
    }
}

/// The lengths in the order they are used: each as often as its weight says, spread evenly.
fn sizes(keys: &SourceKeys, index: usize, max_frame: u32, ledger: &mut Ledger) -> Vec<u16> {
    let default = SizeMix(vec![WeightedSize { bytes: 60, weight: 1 }]);
    let mix = keys.sizes.clone().unwrap_or(default).0;
    let at = || service_at(index, "source", "sizes");
    let most = if keys.vlan.is_some() { max_frame } else { max_frame - 4 };
    let wrong = mix.iter().find(|size| size.bytes < 60 || size.bytes > most);
    if let Some(size) = wrong {
        let what = format!("no frame of {} bytes leaves these ports", size.bytes);
        ledger.refuse(at(), what, format!("use lengths from 60 to {most}, or raise the ports' mtu"));
    }
    let weight: u64 = mix.iter().map(|size| u64::from(size.weight)).sum();
    if weight == 0 || weight > MAX_MIX as u64 {
        let remedy = format!("list at least one length; all weights add up to 1 to {MAX_MIX}");
        ledger.refuse(at(), "no usable mix of lengths", remedy);
        return vec![60];
    }
    interleave(&mix)
}

/// Smooth weighted round robin: in every turn each entry earns its weight and the richest pays for all.
fn interleave(mix: &[WeightedSize]) -> Vec<u16> {
    let total: i64 = mix.iter().map(|size| i64::from(size.weight)).sum();
    let mut earned = vec![0i64; mix.len()];
    let mut order = Vec::new();
    for _ in 0..total {
        for (balance, size) in earned.iter_mut().zip(mix) {
            *balance += i64::from(size.weight);
        }
        let richest = (0..mix.len()).rev().max_by_key(|entry| earned[*entry]).unwrap_or(0);
        earned[richest] -= total;
        order.push(u16::try_from(mix[richest].bytes).unwrap_or(u16::MAX));
    }
    order
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
    let made = config.node.iter().filter(|node| node.service == Some(ServiceKind::Source));
    let made = made.map(|node| node.source.over(&config.service.source).flows.unwrap_or(DEFAULT_FLOWS));
    let default = made.max().unwrap_or(1 << 20).clamp(1, MAX_FLOWS);
    let at = service_at(index, "sink", "flows");
    let flows = ledger.number(at.clone(), keys.flows, default, 1..=MAX_FLOWS, "flows");
    if flows < default && keys.flows.is_some() && keys.verify != Some(false) {
        let what = format!("a source of this file makes {default}, the others would not be verified");
        ledger.warn(at, what, format!("set flows = {default} or leave it out"));
    }
    PlanSink { verify: keys.verify.unwrap_or(true), flows, echo: keys.echo.unwrap_or(false) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_spread_by_weight() {
        let order = interleave(&SizeMix::imix().0);
        let count = |bytes| order.iter().filter(|size| **size == bytes).count();
        assert_eq!((order.len(), count(60), count(576), count(1514)), (12, 7, 4, 1));
        let longest_run = order.chunk_by(|a, b| a == b).map(<[u16]>::len).max();
        assert_eq!(longest_run, Some(2), "{order:?}");
    }

    #[test]
    fn mac_addresses_have_six_bytes() {
        assert_eq!(parse_mac("02:00:00:00:00:ff"), Some([2, 0, 0, 0, 0, 255]));
        for bad in ["", "02:00:00:00:00", "02:00:00:00:00:00:00", "2:0:0:0:0:0", "xx:00:00:00:00:00"] {
            assert_eq!(parse_mac(bad), None, "{bad}");
        }
    }
}
