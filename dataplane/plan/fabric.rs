//! The RDMA side of a node, apart from depths and peers: transport, packet size, key, times.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use rdma_engine::cm::Cidr;
use serde::Serialize;

use super::bounds::{ROCE_OVERHEAD_V4_BYTES, ROCE_OVERHEAD_V6_BYTES};
use super::depths::two_bdp_messages;
use super::ledger::{Ledger, fabric_at};
use super::limits::rdma_of;
use super::nodes::DraftNode;
use super::ports::Draft;
use super::{Hardware, access};
use crate::config::{FabricKeys, HostPort, InterfaceAddress, KeyPath, KeySource, QpKind, TransportKind};

/// The RDMA side of a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanFabric {
    /// What carries the messages.
    pub transport: PlanTransport,
    /// Who is at the other end and how it is reached: the one peer of a relay, the memory nodes of a gateway in their
    /// order, where a memory node awaits its gateways.
    pub peers: Vec<PlanPeer>,
    /// Pre-shared key; `None` within one process and with `auth = "none"`.
    pub key: Option<KeySource>,
    /// Networks that a peer may come from; empty = any with a key, loopback addresses without.
    #[serde(serialize_with = "access::as_texts")]
    pub allow: Vec<Cidr>,
    /// Times of the connection.
    pub timing: PlanTiming,
    /// Queue pairs and their depths; those of READs in the key-value service.
    pub qp: PlanQp,
    /// Queue pairs of calls in the key-value service.
    pub call: Option<PlanQp>,
    /// Largest payload of one packet in bytes; `None` = the active MTU of the device, not yet known.
    pub pmtu: Option<u32>,
    /// DSCP of the packets.
    pub dscp: u8,
}

impl PlanFabric {
    /// The queue pairs by lane.
    pub fn lanes(&self) -> impl Iterator<Item = &PlanQp> {
        std::iter::once(&self.qp).chain(&self.call)
    }
}

/// What carries the messages, with what only that transport needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanTransport {
    /// An RDMA device of the kernel.
    Verbs {
        /// Its name; `None` = the only active one.
        device: Option<String>,
        /// Physical port from 1.
        port: u8,
        /// Pinned GID index; `None` = by rule.
        gid_index: Option<u8>,
    },
    /// RoCEv2 of our own.
    Soft(PlanSoft),
    /// Within this process.
    Loopback,
}

impl PlanTransport {
    /// Which transport.
    pub fn kind(&self) -> TransportKind {
        match self {
            Self::Verbs { .. } => TransportKind::Verbs,
            Self::Soft(_) => TransportKind::Soft,
            Self::Loopback => TransportKind::Loopback,
        }
    }
}

/// What the soft transport needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanSoft {
    /// Port that carries the RoCE packets, index into [`Plan::ports`].
    pub port: usize,
    /// Own addresses.
    pub addresses: Vec<InterfaceAddress>,
    /// Next hop for peers outside the prefixes.
    pub gateway: Option<IpAddr>,
    /// VLAN id.
    pub vlan: Option<u16>,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Duplicates of the IPv6 addresses are looked for.
    pub dad: bool,
    /// Rate control by congestion notifications.
    pub dcqcn: bool,
    /// Speed of the link in Mb/s, where the file says it; `None` = what the port reports once it is up.
    pub link_mbps: Option<u32>,
    /// Request packets that a queue pair may have unacknowledged.
    pub window: u16,
    /// Where flight records go, and packets kept of each queue pair.
    pub flight_records: Option<(PathBuf, u32)>,
}

/// The other end of a node's QPs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanPeer {
    /// It comes to us.
    Listen(SocketAddr),
    /// We go to it.
    Connect(HostPort),
    /// It is a node of this process, index into [`Plan::nodes`].
    InProcess(usize),
    /// Nodes of this process come to us, and nobody else.
    Awaited,
}

/// Times of a connection in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PlanTiming {
    /// One connection attempt.
    pub connect_timeout_ms: u32,
    /// Between two signs of life.
    pub keepalive_ms: u32,
    /// Silence after which the peer is lost, at least two signs of life.
    pub dead_after_ms: u32,
    /// First pause before a new attempt; doubled from there.
    pub reconnect_min_ms: u32,
    /// Longest pause between two attempts.
    pub reconnect_max_ms: u32,
}

/// Queue pairs of a node and their depths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PlanQp {
    /// Their type.
    pub kind: QpKind,
    /// QPs of the whole node.
    pub count: u32,
    /// Requests in flight on one QP.
    pub send_depth: u32,
    /// Receives posted on one QP, or on the worker's shared receive queue.
    pub recv_depth: u32,
    /// One receive queue per worker instead of one per QP.
    pub srq: bool,
    /// Entries of each worker's completion queue.
    pub cq_depth: u32,
    /// Segments of one work request.
    pub max_sge: u32,
    /// Bytes that may be copied into a work request.
    pub max_inline: u32,
    /// Every how many requests a completion is asked for.
    pub signal_every: u32,
    /// READs and atomics outstanding on one QP.
    pub read_depth: u8,
    /// Resends before the QP fails, 0 to 7.
    pub retry: u8,
    /// Waits for a receive of the peer, 0 to 7; 7 = for ever.
    pub rnr_retry: u8,
    /// Wire code of the RNR timer, 0 to 31.
    pub rnr_timer_code: u8,
    /// Wire code of the acknowledgement timeout: 4.096 us x 2^code.
    pub ack_timeout_code: u8,
}

/// Packet sizes of the standard.
pub(super) const PMTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];
/// Packet size that only two of our own ends agree on.
const PRIVATE_PMTU: u32 = 8192;

/// Packets that a queue pair may have unacknowledged, where nothing is said about the path; two of our own ends hold no more.
const WINDOW: u16 = 256;
/// Fewest of them: a peer acknowledges when its worker gets to it.
const MIN_WINDOW: u16 = 64;
/// Speed of a link in Mb/s of which nothing is known.
pub const DEFAULT_LINK_MBPS: u32 = 100_000;
/// Round-trip time in microseconds of a path of which nothing is known.
pub(super) const DEFAULT_RTT_US: f64 = 5.0;

/// The send window where something is said about the path: twice the bandwidth-delay product in packets.
pub(super) fn window(
    keys: &FabricKeys,
    name: &str,
    pmtu: Option<u32>,
    transport: &mut PlanTransport,
    ledger: &mut Ledger,
) {
    let (PlanTransport::Soft(soft), Some(pmtu)) = (transport, pmtu) else { return };
    let default = f64::from(DEFAULT_LINK_MBPS) / 1000.0;
    let (gbps, rtt_us) = (keys.link_gbps.unwrap_or(default), keys.rtt_us.unwrap_or(DEFAULT_RTT_US));
    if keys.link_gbps.is_none() && keys.rtt_us.is_none() {
        return;
    }
    let packets = two_bdp_messages(gbps, rtt_us, pmtu);
    soft.window = packets.clamp(MIN_WINDOW.into(), WINDOW.into()) as u16;
    let inputs = format!(
        "2 x {gbps} Gbit/s x {rtt_us} us / {pmtu} bytes = {packets}, between {MIN_WINDOW} and {WINDOW}"
    );
    ledger.rule("send-window", name, inputs, format!("{} packets per QP", soft.window));
}

/// The transport with what only it needs.
pub(super) fn transport(
    keys: &FabricKeys,
    index: usize,
    node: &DraftNode,
    ports: &Draft,
    ledger: &mut Ledger,
) -> PlanTransport {
    match keys.transport {
        Some(TransportKind::Verbs) => verbs(keys, index, ledger),
        Some(TransportKind::Soft) => PlanTransport::Soft(soft(keys, index, node, ports, ledger)),
        Some(TransportKind::Loopback) | None => PlanTransport::Loopback,
    }
}

fn verbs(keys: &FabricKeys, index: usize, ledger: &mut Ledger) -> PlanTransport {
    let at = |key| fabric_at(index, key);
    let device = keys.verbs.device.clone();
    if device.as_deref().is_some_and(|name| name.is_empty() || name.contains(char::is_whitespace)) {
        let remedy = "write its name as `isthmus devices` shows it, or leave the key out";
        ledger.refuse(at("verbs.device"), "no name of an RDMA device", remedy);
    }
    let port = ledger.number(at("verbs.port"), keys.verbs.port, 1, 1..=255, "");
    let gid = keys.verbs.gid_index;
    let gid = gid.map(|gid| ledger.number(at("verbs.gid_index"), Some(gid), gid, 0..=255, ""));
    let small = |value| u8::try_from(value).unwrap_or(u8::MAX);
    PlanTransport::Verbs { device, port: small(port), gid_index: gid.map(small) }
}

fn soft(keys: &FabricKeys, index: usize, node: &DraftNode, ports: &Draft, ledger: &mut Ledger) -> PlanSoft {
    let at = |key| fabric_at(index, key);
    let port = node.soft_port.unwrap_or(0);
    let port_mtu = ports.ports.get(port).map_or(1500, |draft| u32::from(draft.port.mtu));
    let least = 336;
    if port_mtu < least {
        let on = ports.ports.get(port).map_or_else(|| at("soft.port"), |draft| vec![draft.at.key("mtu")]);
        let what = format!("RoCE packets of node {} need {least} or more", node.name);
        ledger.refuse_value(
            on,
            port_mtu,
            what,
            "set mtu = 4200 for full packets, or 1500 for those of 1024 bytes",
        );
    }
    let default = port_mtu.max(least);
    let mtu = ledger.number(at("soft.mtu"), keys.soft.mtu, default, least..=9216, "bytes");
    if mtu > default && node.soft_port.is_some() {
        let what = format!("the port's mtu is {port_mtu}");
        ledger.refuse(at("soft.mtu"), what, format!("set mtu = {port_mtu} or less, or raise the port's mtu"));
    }
    let missing = (
        "the soft transport needs an address of its own",
        "give the port an address with prefix: addresses = [\"192.0.2.1/24\"]",
    );
    let addresses = host_addresses(keys.soft.addresses.as_ref(), &at("soft.addresses"), missing, ledger);
    let vlan = keys.soft.vlan.map(|id| ledger.number(at("soft.vlan"), Some(id), id, 1..=4094, ""));
    PlanSoft {
        port,
        gateway: next_hop(keys.soft.gateway.as_ref(), at("soft.gateway"), &addresses, ledger),
        addresses,
        vlan: vlan.and_then(|id| u16::try_from(id).ok()),
        mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
        dad: keys.soft.dad.unwrap_or(true),
        dcqcn: keys.soft.dcqcn.unwrap_or(true),
        // Numbers out of range are refused with the depths.
        link_mbps: keys.link_gbps.filter(|gbps| *gbps > 0.0).map(|gbps| (gbps * 1000.0).ceil() as u32),
        window: WINDOW,
        flight_records: flight_records(keys, index, ledger),
    }
}

/// The directory of flight records has to be there: one that is made up is a place where nobody looks.
fn flight_records(keys: &FabricKeys, index: usize, ledger: &mut Ledger) -> Option<(PathBuf, u32)> {
    let at = |key| fabric_at(index, key);
    let packets = keys.soft.flight_record_packets;
    let packets = ledger.number(at("soft.flight_record_packets"), packets, 64, 4..=4096, "");
    let text = keys.soft.flight_records.as_ref()?;
    let directory = PathBuf::from(text);
    if !directory.is_dir() {
        let what = format!("{text:?} is no directory");
        ledger.refuse(at("soft.flight_records"), what, "make it first, or name another one");
    }
    Some((directory, packets))
}

/// Addresses that the node answers for; `missing` is said where there are none.
pub(super) fn host_addresses(
    texts: Option<&Vec<String>>,
    at: &[KeyPath],
    missing: (&str, &str),
    ledger: &mut Ledger,
) -> Vec<InterfaceAddress> {
    let at = at.to_vec();
    let mut addresses: Vec<InterfaceAddress> = Vec::new();
    for text in texts.into_iter().flatten() {
        match text.parse::<InterfaceAddress>() {
            Ok(address) if !is_a_hosts(address.address) => {
                let remedy = "give it an address that one host can have, such as 192.0.2.1/24";
                ledger.refuse(at.clone(), format!("{text} is no address of a host"), remedy);
            }
            Ok(address) if address.subnet_word().is_some() => {
                let what = format!("{text} is {} of its subnet", address.subnet_word().unwrap_or_default());
                ledger.refuse(
                    at.clone(),
                    what,
                    "give it an address between the first and the last, or another prefix",
                );
            }
            Ok(address) if addresses.contains(&address) => {
                ledger.refuse(at.clone(), format!("{text} is listed twice"), "list each address once");
            }
            Ok(address) => addresses.push(address),
            Err(error) => {
                ledger.refuse(at.clone(), format!("\"{text}\": {error}"), "write \"192.0.2.1/24\"");
            }
        }
    }
    if texts.is_none_or(Vec::is_empty) {
        ledger.refuse(at, missing.0, missing.1);
    }
    addresses
}

/// Neither a group's, nor this machine's inside, nor none at all.
fn is_a_hosts(address: IpAddr) -> bool {
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(address.is_multicast() || address.is_loopback() || address.is_unspecified() || broadcast)
}

/// The next hop for those in no subnet of `addresses`.
pub(super) fn next_hop(
    text: Option<&String>,
    at: Vec<KeyPath>,
    addresses: &[InterfaceAddress],
    ledger: &mut Ledger,
) -> Option<IpAddr> {
    let text = text?;
    let Ok(gateway) = text.parse::<IpAddr>() else {
        ledger.refuse(at, "no IP address", "write the next hop's address, or leave it out");
        return None;
    };
    if !addresses.is_empty() && !addresses.iter().any(|own| own.reaches(gateway)) {
        ledger.refuse(at, "in none of the subnets of `addresses`", "name a neighbour, or leave it out");
    } else if addresses.iter().any(|own| own.address == gateway) {
        ledger.refuse(at, "one of its own addresses", "name a neighbour, or leave it out");
    }
    Some(gateway)
}

/// Largest payload of one packet; `None` = the active MTU of a device that is not known yet.
pub(super) fn pmtu(
    keys: &FabricKeys,
    index: usize,
    name: &str,
    transport: &PlanTransport,
    hardware: Option<&Hardware>,
    ledger: &mut Ledger,
) -> Option<u32> {
    let fits = match transport {
        PlanTransport::Verbs { device, port, .. } => {
            rdma_of(device.as_deref(), *port, hardware).map(|limits| limits.active_mtu)
        }
        PlanTransport::Soft(soft) => Some(u32::from(soft.mtu).saturating_sub(roce_overhead(soft))),
        PlanTransport::Loopback => None,
    };
    let Some(wanted) = keys.pmtu else {
        let default = derived_pmtu(transport, fits);
        let result =
            default.map_or("the active MTU of the device".to_owned(), |bytes| format!("{bytes} bytes"));
        let room = fits.map_or("room not known here".to_owned(), |room| format!("room for {room} bytes"));
        ledger.rule("pmtu", name, format!("pmtu not set, {room}"), result);
        return default;
    };
    check_pmtu(wanted, (keys, index), transport, fits, ledger);
    Some(wanted.clamp(PMTUS[0], PRIVATE_PMTU))
}

fn derived_pmtu(transport: &PlanTransport, fits: Option<u32>) -> Option<u32> {
    match (transport, fits) {
        (PlanTransport::Loopback, _) => Some(4096),
        (_, Some(room)) => Some(PMTUS.into_iter().rev().find(|pmtu| *pmtu <= room).unwrap_or(PMTUS[0])),
        (_, None) => None,
    }
}

fn check_pmtu(
    wanted: u32,
    (keys, index): (&FabricKeys, usize),
    transport: &PlanTransport,
    fits: Option<u32>,
    ledger: &mut Ledger,
) {
    let at = || fabric_at(index, "pmtu");
    let private = wanted == PRIVATE_PMTU && matches!(transport, PlanTransport::Soft(_));
    if private && keys.qp.unwrap_or_default() != QpKind::Rc {
        let what = "only two reliable connections of Isthmus agree on packets of more than 4096 bytes";
        ledger.refuse(at(), what, "set pmtu = 4096, or qp = \"rc\"");
    }
    if !private && !PMTUS.contains(&wanted) {
        let remedy = "choose 256, 512, 1024, 2048 or 4096; 8192 between two Isthmus ends on soft";
        ledger.refuse(at(), "not a packet size of RoCE", remedy);
        return;
    }
    let (PlanTransport::Soft(soft), Some(room)) = (transport, fits) else { return };
    if wanted > room {
        let overhead = roce_overhead(soft);
        let what = format!("with {overhead} bytes of headers it exceeds the mtu of {}", soft.mtu);
        let remedy = format!("lower pmtu, or raise the port's mtu to {}", wanted + overhead);
        ledger.refuse(at(), what, remedy);
    }
}

fn roce_overhead(soft: &PlanSoft) -> u32 {
    let v6 = soft.addresses.iter().any(|own| own.address.is_ipv6());
    if v6 { ROCE_OVERHEAD_V6_BYTES } else { ROCE_OVERHEAD_V4_BYTES }
}

/// Times of the connection.
pub(super) fn timing(keys: &FabricKeys, index: usize, ledger: &mut Ledger) -> PlanTiming {
    let at = |key| fabric_at(index, key);
    let mut ms = |key, value, default, range| ledger.number(at(key), value, default, range, "ms");
    let keepalive_ms = ms("keepalive_ms", keys.keepalive_ms, 100, 10..=60_000);
    let timing = PlanTiming {
        connect_timeout_ms: ms("connect_timeout_ms", keys.connect_timeout_ms, 1000, 10..=600_000),
        keepalive_ms,
        dead_after_ms: ms("dead_after_ms", keys.dead_after_ms, 5 * keepalive_ms, 20..=600_000),
        reconnect_min_ms: ms("reconnect_min_ms", keys.reconnect_min_ms, 20, 1..=60_000),
        reconnect_max_ms: ms("reconnect_max_ms", keys.reconnect_max_ms, 500, 1..=600_000),
    };
    if timing.dead_after_ms < 2 * keepalive_ms {
        let what = format!("one lost sign of life (keepalive_ms = {keepalive_ms}) would end the connection");
        let remedy = format!("set dead_after_ms = {} or more", 2 * keepalive_ms);
        ledger.refuse_value(at("dead_after_ms"), timing.dead_after_ms, what, remedy);
    }
    if timing.reconnect_min_ms > timing.reconnect_max_ms {
        let what = format!("above reconnect_max_ms = {}", timing.reconnect_max_ms);
        ledger.refuse_value(
            at("reconnect_min_ms"),
            timing.reconnect_min_ms,
            what,
            "raise the one or lower the other",
        );
    }
    timing
}
