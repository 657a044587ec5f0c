//! Numbers of a load on a key-value service.

use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

use super::fabric;
use super::ledger::{Ledger, service_at};
use super::nodes::DraftNode;
use super::ports::Draft;
use crate::config::{CommandKind, Config, InterfaceAddress, KeyPath};
use crate::load::{KEY_BYTES_MIN, OUTSTANDING_MAX, VALUE_BYTES_MIN};

/// Numbers of a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanLoad {
    /// Own addresses.
    pub addresses: Vec<InterfaceAddress>,
    /// Next hop for a server outside the prefixes.
    pub gateway: Option<IpAddr>,
    /// VLAN id of all frames.
    pub vlan: Option<u16>,
    /// Whom it asks.
    pub server: SocketAddr,
    /// UDP source ports of each worker.
    pub flows: u32,
    /// Requests under way on each of them.
    pub depth: u32,
    /// Largest IP packet of its port in bytes.
    pub mtu: u16,
    /// Keys that are asked for.
    pub keys: u32,
    /// Bytes of a key.
    pub key_bytes: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Which commands are used.
    pub commands: CommandKind,
    /// Weights of reads and writes.
    pub ratio: (u32, u32),
    /// Exponent of Zipf's law; `None` = all keys alike.
    pub zipf: Option<f64>,
    /// Requests a second of the whole node; `None` = as many as are answered.
    pub rate: Option<f64>,
    /// Seconds before the measurement.
    pub warm_up_s: u32,
    /// Seconds of the measurement.
    pub measure_s: u32,
    /// Requests of the whole node after which the measurement ends earlier; 0 = none.
    pub requests: u64,
}

/// The load's numbers.
pub(super) fn load(
    config: &Config,
    index: usize,
    node: &DraftNode,
    ports: &Draft,
    ledger: &mut Ledger,
) -> PlanLoad {
    let keys = config.node[index].load.over(&config.service.load);
    let at = |key| service_at(index, "load", key);
    let missing = ("a client needs an address", "give one with prefix: addresses = [\"192.0.2.11/24\"]");
    let addresses = fabric::host_addresses(keys.addresses.as_ref(), &at("addresses"), missing, ledger);
    let server = keys.server.as_deref().and_then(|text| text.parse::<SocketAddr>().ok());
    if server.is_none_or(|server| server.port() == 0) {
        ledger.refuse(at("server"), "no address and port", "write \"192.0.2.10:11211\"");
    }
    if let Some(server) = server {
        check_server(server.ip(), &addresses, keys.gateway.is_some(), at("server"), ledger);
    }
    let mut number = |key, value, default, range| ledger.number(at(key), value, default, range, "");
    let vlan = keys.vlan.map(|id| number("vlan", Some(id), id, 1..=4094));
    let (flows, most) = (number("flows", keys.flows, 16, 1..=4096), OUTSTANDING_MAX as u32);
    PlanLoad {
        gateway: fabric::next_hop(keys.gateway.as_ref(), at("gateway"), &addresses, ledger),
        vlan: vlan.and_then(|id| u16::try_from(id).ok()),
        server: server.unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0))),
        flows,
        depth: ledger.number(at("depth"), keys.depth, 4, 1..=(most / flows).max(1), "requests"),
        mtu: node.ports.first().map_or(1500, |port| ports.ports[*port].port.mtu),
        keys: ledger.number(at("keys"), keys.keys, 100_000, node.workers().max(1)..=1 << 28, "keys"),
        key_bytes: ledger.number(at("key_bytes"), keys.key_bytes, 16, KEY_BYTES_MIN as u32..=250, "bytes"),
        value_bytes: ledger.number(
            at("value_bytes"),
            keys.value_bytes,
            64,
            VALUE_BYTES_MIN..=64_000,
            "bytes",
        ),
        commands: keys.commands.unwrap_or_default(),
        ratio: ratio(keys.ratio.as_deref(), index, ledger),
        zipf: Some(ledger.number(at("zipf"), keys.zipf, 0.99, 0.0..=10.0, "")).filter(|theta| *theta > 0.0),
        rate: Some(ledger.number(at("rate"), keys.rate, 0.0, 0.0..=1e9, "a second")).filter(|r| *r > 0.0),
        warm_up_s: ledger.number(at("warm_up_s"), keys.warm_up_s, 1, 0..=3600, "seconds"),
        measure_s: ledger.number(at("measure_s"), keys.measure_s, 10, 1..=86_400, "seconds"),
        requests: ledger.number(at("requests"), keys.requests, 0, 0..=1 << 48, "requests"),
        addresses,
    }
}

/// The server is somebody else, and there is a way to it.
fn check_server(
    server: IpAddr,
    addresses: &[InterfaceAddress],
    has_gateway: bool,
    at: Vec<KeyPath>,
    ledger: &mut Ledger,
) {
    if addresses.iter().any(|own| own.address == server) {
        ledger.refuse(at, "one of the load's own addresses", "name the address of the gateway that it asks");
    } else if !addresses.iter().any(|own| own.address.is_ipv4() == server.is_ipv4()) && !addresses.is_empty()
    {
        ledger.refuse(
            at,
            "of another family than all of `addresses`",
            "give the load an address of that family",
        );
    } else if !has_gateway && !addresses.is_empty() && !addresses.iter().any(|own| own.reaches(server)) {
        let remedy = "give the load an address in the server's subnet, or name the next hop in gateway";
        ledger.refuse(at, "in none of the subnets of `addresses`", remedy);
    }
}

fn ratio(weights: Option<&[u32]>, index: usize, ledger: &mut Ledger) -> (u32, u32) {
    let what = match weights {
        None => return (9, 1),
        Some([0, 0]) => "neither reads nor writes",
        Some([reads, writes]) => return (*reads, *writes),
        Some(_) => "not two weights",
    };
    ledger.refuse(service_at(index, "load", "ratio"), what, "write [reads, writes], such as [9, 1]");
    (9, 1)
}
