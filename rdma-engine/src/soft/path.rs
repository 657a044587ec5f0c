//! Paths to peers: address vectors, the headers made of them, and the MAC addresses of neighbours.

use super::config::{SoftConfig, SoftError};
use super::imprint::Imprint;
use crate::qp::AddressVector;
use crate::types::{Qpn, Time};
use crate::wire::{HeaderTemplate, Mac, Network, Route, rxe_source_port};
use std::collections::HashMap;
use std::net::IpAddr;

/// Neighbours remembered at most; more are refused, which only costs another question. The table is made at once.
const MAX_NEIGHBOURS: usize = 1024;

/// The bits of the traffic class for explicit congestion notification, and their value ECT(0).
const ECN: u8 = 3;
const ECN_CAPABLE: u8 = 2;

/// The way to a peer.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// What frames that come along it look like, once `resolved`.
    pub(crate) imprint: Imprint,
    /// Headers below the BTH; valid once `resolved`.
    pub(crate) template: HeaderTemplate,
    route: Route,
    /// The peer's MAC address is known.
    pub(crate) resolved: bool,
    /// Since when something waits for it; [`Time::NEVER`] if nothing does.
    pub(crate) waiting_since: Time,
}

impl Path {
    /// The path of `av` for the queue pair `qpn`, its peer's MAC address not known yet.
    pub(crate) fn new(config: &SoftConfig, av: &AddressVector, qpn: Qpn) -> Result<Self, SoftError> {
        let local = config.addresses.get(usize::from(av.sgid_index));
        let &local = local.ok_or(SoftError::GidIndex(av.sgid_index))?;
        let peer = av.gid.ip();
        let route = Route {
            source_mac: config.mac,
            destination_mac: Mac::default(),
            vlans: config.vlans,
            source: local,
            destination: peer,
            traffic_class: av.traffic_class,
            hop_limit: av.hop_limit,
            flow_label: av.flow_label & 0x000F_FFFF,
            source_port: av.udp_source_port.unwrap_or(rxe_source_port(qpn)),
        };
        let template = HeaderTemplate::new(&route).ok_or(SoftError::Family { peer, local })?;
        let imprint = Imprint::NONE;
        Ok(Path { imprint, template, route, resolved: false, waiting_since: Time::NEVER })
    }

    /// True if a packet came along this path: from the peer, to us.
    #[inline]
    pub(crate) fn is_of(&self, network: &Network<'_>) -> bool {
        match (self.route.destination, self.route.source, network) {
            (IpAddr::V4(peer), IpAddr::V4(local), Network::V4(ip)) => {
                ip.source == peer.octets() && ip.destination == local.octets()
            }
            (IpAddr::V6(peer), IpAddr::V6(local), Network::V6(ip)) => {
                ip.source == peer.octets() && ip.destination == local.octets()
            }
            _ => false,
        }
    }

    /// From now on its frames say that their sender heeds congestion marks.
    pub(crate) fn heed_marks(&mut self) {
        self.route.traffic_class = self.route.traffic_class & !ECN | ECN_CAPABLE;
        if let Some(template) = HeaderTemplate::new(&self.route) {
            self.template = template;
        }
    }

    /// The peer's IP address.
    pub(crate) fn peer_ip(&self) -> IpAddr {
        self.route.destination
    }

    /// Takes the peer's MAC address.
    pub(crate) fn resolve(&mut self, mac: Mac) {
        self.route.destination_mac = mac;
        if let Some(template) = HeaderTemplate::new(&self.route) {
            self.template = template;
            self.imprint = Imprint::new(&self.route);
            self.resolved = true;
            self.waiting_since = Time::NEVER;
        }
    }
}

/// MAC addresses of next hops, by IP address. Looked at only when a path is set up, never per packet.
#[derive(Debug)]
pub(crate) struct Neighbours(HashMap<IpAddr, Mac>);

impl Neighbours {
    pub(crate) fn new() -> Self {
        Neighbours(HashMap::with_capacity(MAX_NEIGHBOURS))
    }

    pub(crate) fn insert(&mut self, ip: IpAddr, mac: Mac) {
        if self.0.len() < MAX_NEIGHBOURS || self.0.contains_key(&ip) {
            self.0.insert(ip, mac);
        }
    }

    pub(crate) fn mac(&self, ip: IpAddr) -> Option<Mac> {
        self.0.get(&ip).copied()
    }
}
