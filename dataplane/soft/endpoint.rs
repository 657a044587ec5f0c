//! The device as control uses it.

use super::handover::Handover;
use super::records::{Records, Watch};
use super::steering::Steering;
use super::worker::SoftWorker;
use crate::bridge::{Packet, PacketPool};
use crate::config::InterfaceAddress;
use crate::control::{Endpoint, FabricAction, FabricEvent};
use crate::host::{Duplicate, Duplicates, Host, HostSettings};
use rdma_engine::cm::{Features, GidEntry, GidKind, Offer, QpOffer, Terms, TransportKind, choose_gid};
use rdma_engine::mem::{Access, Arena, Region};
use rdma_engine::qp::{AddressVector, Change, QpSpec};
use rdma_engine::soft::{Dcqcn, SoftConfig, SoftDevice, SoftError, SoftQp};
use rdma_engine::transport::{Device, WorkerSpec};
use rdma_engine::types::{Gid, Pmtu, QpType, Qpn, Time};
use rdma_engine::wire::{Mac, Vlans};
use rdma_engine::wr::AhId;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A port that carries RoCE packets, and who we are on it.
#[derive(Clone, Debug)]
pub struct SoftPort {
    /// Its name, for messages.
    pub name: String,
    /// Its MAC address; all zero where the driver gives none, then one is made of the first IP address.
    pub mac: [u8; 6],
    /// Our addresses.
    pub addresses: Vec<InterfaceAddress>,
    /// Next hop for peers outside our subnets.
    pub gateway: Option<IpAddr>,
    /// VLAN id.
    pub vlan: Option<u16>,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// It is an end of a link in memory, which damages nothing: packets have no ICRC.
    pub in_memory: bool,
    /// DSCP of all packets.
    pub dscp: u8,
    /// Payload of a full packet in bytes; what exceeds 4096 is only for peers that agree to it. `None` for the largest of
    /// the standard that fits.
    pub pmtu: Option<u32>,
    /// Look whether another station has one of the IPv6 addresses.
    pub dad: bool,
    /// Request packets that a queue pair may have unacknowledged.
    pub window: u16,
    /// Rate control by congestion notifications from this line rate in Mb/s on; `None` for none.
    pub dcqcn_mbps: Option<u32>,
    /// Directory for the last packets of queue pairs that fail, and how many of each are kept.
    pub flight_records: Option<(PathBuf, u32)>,
    /// Queue pairs of one worker at most.
    pub max_qps: u16,
    /// How the port spreads packets over the workers' queues, where it does and says how.
    pub steering: Option<Steering>,
}

/// A frame of another VLAN is named at most once in this time.
const OTHER_VLAN_PAUSE: Duration = Duration::from_secs(60);

/// What the device refuses.
#[derive(Debug, thiserror::Error)]
pub enum SoftEndpointError {
    /// The transport does.
    #[error(transparent)]
    Soft(#[from] SoftError),
    /// The peer is in none of our subnets and there is no gateway.
    #[error(
        "{peer} is in none of the subnets {own}: give fabric.soft a gateway, or an address in the peer's subnet"
    )]
    NoRoute {
        /// The peer.
        peer: IpAddr,
        /// Our addresses.
        own: String,
    },
    /// The peer has our own address.
    #[error("the peer's address {0} is our own: give each end one of its own")]
    Twin(IpAddr),
}

/// The soft transport of a node.
#[derive(Debug)]
pub struct SoftEndpoint {
    port: SoftPort,
    device: SoftDevice<PacketPool>,
    host: HostSettings,
    pools: Vec<PacketPool>,
    handovers: Vec<Handover>,
    /// Index of the address in use.
    chosen: AtomicU8,
    /// Flight records on their way from the workers.
    records: Arc<Records>,
    /// Paths of datagrams that exist: they cannot be taken away, so they are used again.
    paths: Mutex<Vec<(AddressVector, AhId)>>,
    /// Addresses, by index, of which was told that other stations have them.
    duplicates_told: AtomicU64,
    /// When a frame of another VLAN was named.
    other_vlan_told: Mutex<Option<Instant>>,
}

impl SoftEndpoint {
    /// A device whose worker `n` makes its frames from the `n`-th of `pools`.
    pub fn new(port: SoftPort, pools: Vec<PacketPool>) -> Result<Self, SoftEndpointError> {
        let mac = station_mac(port.mac, &port.addresses);
        let mut config = SoftConfig::new(mac, port.addresses.iter().map(|own| own.address).collect());
        config.vlans = port.vlan.map_or(Vlans::NONE, |id| Vlans::single(0, id));
        config.ethernet_mtu = port.mtu.into();
        config.jumbo_payload = port.pmtu.filter(|pmtu| *pmtu > 4096).unwrap_or(0);
        config.icrc = !port.in_memory;
        config.recorder_frames = port.flight_records.as_ref().map_or(0, |(_, packets)| *packets);
        config.max_qps = port.max_qps.max(2).next_power_of_two();
        config.window = port.window;
        config.max_held = SoftConfig::held_for(port.window, port.max_qps.into());
        config.dcqcn = port.dcqcn_mbps.map(Dcqcn::new);
        let host = HostSettings {
            mac,
            addresses: port.addresses.clone(),
            gateway: port.gateway,
            vlan: port.vlan,
            duplicates: port.dad.then(|| Duplicates::new(&port.addresses)),
            other_vlan: Default::default(),
        };
        Ok(SoftEndpoint {
            device: SoftDevice::new(config, pools.clone())?,
            handovers: Handover::new(pools.len()),
            records: Arc::new(Records::new(pools.len())),
            port,
            host,
            pools,
            chosen: AtomicU8::new(0),
            paths: Mutex::default(),
            duplicates_told: AtomicU64::new(0),
            other_vlan_told: Mutex::default(),
        })
    }

    /// True for an address of ours that another station has.
    fn is_taken(&self, address: IpAddr) -> bool {
        self.host.duplicates.as_ref().is_some_and(|known| known.other(address).is_some())
    }

    /// An address that turned out to be another station's.
    fn duplicate_event(&self) -> Option<FabricEvent> {
        let duplicates = self.host.duplicates.as_ref()?;
        let told = self.duplicates_told.load(Ordering::Relaxed);
        for (index, own) in self.port.addresses.iter().enumerate().take(64) {
            let (IpAddr::V6(address), Some(mac)) = (own.address, duplicates.other(own.address)) else {
                continue;
            };
            if told >> index & 1 == 1 {
                continue;
            }
            self.duplicates_told.store(told | 1 << index, Ordering::Relaxed);
            let in_use = usize::from(self.chosen.load(Ordering::Relaxed)) == index;
            return Some(FabricEvent {
                words: format!("port {}: {}", self.port.name, Duplicate { address, mac, first: true }),
                action: if in_use { FabricAction::Reconnect } else { FabricAction::None },
            });
        }
        None
    }

    /// A frame that was ours but for its VLAN.
    fn other_vlan_event(&self) -> Option<FabricEvent> {
        let seen = self.host.other_vlan.take()?;
        let mut told = self.other_vlan_told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_some_and(|at| at.elapsed() < OTHER_VLAN_PAUSE) {
            return None;
        }
        *told = Some(Instant::now());
        let words = format!("port {}: {}", self.port.name, other_vlan_words(seen, self.port.vlan));
        Some(FabricEvent { words, action: FabricAction::None })
    }

    /// A flight record that a worker has handed out is written.
    fn record_event(&self) -> Option<FabricEvent> {
        let (directory, _) = self.port.flight_records.as_ref()?;
        let words = self.records.write_next(directory)?;
        Some(FabricEvent { words, action: FabricAction::None })
    }

    fn check_peer(&self, change: &Change) -> Result<(), SoftEndpointError> {
        let Change::Rtr(attr) = change else { return Ok(()) };
        self.check_route(attr.path.gid)
    }

    fn check_route(&self, gid: Gid) -> Result<(), SoftEndpointError> {
        let peer = gid.ip();
        if self.port.addresses.iter().any(|own| own.address == peer) {
            return Err(SoftEndpointError::Twin(peer));
        }
        let own = || {
            let texts: Vec<String> = self.port.addresses.iter().map(ToString::to_string).collect();
            texts.join(", ")
        };
        match self.host.next_hop(peer) {
            Some(_) => Ok(()),
            None => Err(SoftEndpointError::NoRoute { peer, own: own() }),
        }
    }
}

/// What is wrong with frames of this VLAN id on a port with that one.
fn other_vlan_words(seen: Option<u16>, own: Option<u16>) -> String {
    match (seen, own) {
        (Some(seen), None) => format!(
            "frames for us arrive in VLAN {seen}, and none is configured: set vlan = {seen} in fabric.soft, or have them sent without a tag"
        ),
        (Some(seen), Some(own)) => format!(
            "frames for us arrive in VLAN {seen}, and VLAN {own} is configured: set the same vlan in fabric.soft at both ends"
        ),
        (None, own) => format!(
            "frames for us arrive without a VLAN tag, and VLAN {} is configured: remove vlan from fabric.soft, or set it at the peer too",
            own.unwrap_or(0)
        ),
    }
}

/// The port's address, or a locally administered one made of the first IP address.
pub fn station_mac(mac: [u8; 6], addresses: &[InterfaceAddress]) -> Mac {
    if mac != [0; 6] {
        return Mac(mac);
    }
    let [.., a, b, c, d] = addresses.first().map_or([0; 16], |own| Gid::from(own.address).0);
    Mac([0x02, 0x15, a, b, c, d])
}

impl Device for SoftEndpoint {
    type Qp = SoftQp<Packet>;
    type Transport = SoftWorker;
    type Error = SoftEndpointError;

    fn create_worker(&self, worker: usize, spec: &WorkerSpec) -> Result<SoftWorker, SoftEndpointError> {
        let transport = self.device.create_worker(worker, spec)?;
        let host = Host::new(self.host.clone(), worker == 0, Time(0));
        let (handover, pool) = (self.handovers[worker].clone(), self.pools[worker].clone());
        let records = self.port.flight_records.as_ref().map(|_| Arc::clone(&self.records));
        let watch = Watch::new(records, spec.max_qps);
        Ok(SoftWorker::new(transport, self.device.clone(), host, handover, pool, watch))
    }

    fn create_qp(&self, worker: usize, spec: &QpSpec) -> Result<SoftQp<Packet>, SoftEndpointError> {
        Ok(self.device.create_qp(worker, spec)?)
    }

    fn qpn(&self, qp: &SoftQp<Packet>) -> Qpn {
        self.device.qpn(qp)
    }

    fn modify(&self, qp: &mut SoftQp<Packet>, change: &Change) -> Result<(), SoftEndpointError> {
        self.check_peer(change)?;
        Ok(self.device.modify(qp, change)?)
    }

    fn destroy_qp(&self, qp: SoftQp<Packet>) -> Result<(), SoftEndpointError> {
        Ok(self.device.destroy_qp(qp)?)
    }

    fn register(&self, arena: &Arena, access: Access) -> Result<Region, SoftEndpointError> {
        Ok(self.device.register(arena, access)?)
    }

    fn register_buffers(&self, arena: &Arena) -> Result<(), SoftEndpointError> {
        Ok(self.device.register_buffers(arena)?)
    }

    fn create_ah(&self, worker: usize, path: &AddressVector) -> Result<AhId, SoftEndpointError> {
        self.check_route(path.gid)?;
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, ah)) = paths.iter().find(|(known, _)| known == path) {
            return Ok(*ah);
        }
        let ah = self.device.create_ah(worker, path)?;
        paths.push((*path, ah));
        Ok(ah)
    }

    fn gid(&self) -> Gid {
        self.port.addresses[usize::from(self.chosen.load(Ordering::Relaxed))].address.into()
    }
}

impl Endpoint for SoftEndpoint {
    fn kind(&self) -> TransportKind {
        TransportKind::Soft
    }

    /// The address in the subnet of the peer; where none is, the first one of the file: the TCP exchange may run over
    /// another network than the packets.
    fn choose_address(&self, peer: Option<IpAddr>) -> Result<String, String> {
        let entry = |(index, own): (usize, &InterfaceAddress)| GidEntry {
            index: index as u32,
            gid: own.address.into(),
            kind: GidKind::RoceV2,
            netdev: Some(self.port.name.clone()),
            prefix_len: Some(own.prefix),
        };
        let own = || self.port.addresses.iter().enumerate().filter(|(_, own)| !self.is_taken(own.address));
        let table: Vec<GidEntry> = own().map(entry).collect();
        let Some(first) = table.first() else {
            let name = &self.port.name;
            return Err(format!(
                "other stations have all addresses of port {name}; give fabric.soft.addresses one that nobody has"
            ));
        };
        let near = peer.filter(|peer| own().any(|(_, own)| own.reaches(*peer)));
        let (index, reason) = match choose_gid(&table, near, None) {
            Ok(choice) => (choice.index, choice.reason),
            // Only link-local addresses.
            Err(_) => (first.index, format!("gid_index {} ({})", first.index, first.gid)),
        };
        self.chosen.store(index as u8, Ordering::Relaxed);
        Ok(format!("soft on port {} ({}): {reason}", self.port.name, self.host.mac))
    }

    fn path_mtu(&self) -> Pmtu {
        self.device.config().port_pmtu().unwrap_or(Pmtu::B256)
    }

    fn path_to(&self, gid: Gid) -> AddressVector {
        let mut path = AddressVector::to(gid, self.chosen.load(Ordering::Relaxed));
        path.traffic_class = self.port.dscp << 2;
        path
    }

    fn features(&self) -> (Features, u32) {
        let config = self.device.config();
        (config.features(), config.jumbo_payload)
    }

    fn agree(&self, qp: &mut SoftQp<Packet>, terms: &Terms) -> Result<(), SoftEndpointError> {
        match terms.qp_type {
            QpType::Rc => Ok(self.device.agree(qp, terms.into())?),
            QpType::Uc | QpType::Ud => Ok(()),
        }
    }

    fn poll_event(&self) -> Option<FabricEvent> {
        self.duplicate_event().or_else(|| self.other_vlan_event()).or_else(|| self.record_event())
    }

    fn steering(&self) -> Vec<u8> {
        self.port.steering.as_ref().map(Steering::encode).unwrap_or_default()
    }

    fn udp_source_port(&self, peer: &Offer, qp: &QpOffer) -> Option<u16> {
        let theirs = Steering::decode(&peer.blob)?;
        theirs.source_port(self.gid(), peer.gid, qp.qpn, qp.worker)
    }
}
