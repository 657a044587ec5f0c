//! Devices as control uses them: loopback, verbs.

use crate::bridge::Packet;
use crate::control::{Endpoint, FabricAction, FabricEvent};
use rdma_engine::buf::Buf;
use rdma_engine::cm::{GidEntry, TransportKind, choose_gid};
use rdma_engine::loopback::Loopback;
use rdma_engine::mem::{Access, Arena, Region};
use rdma_engine::qp::{AddressVector, Change, QpSpec};
use rdma_engine::transport::{Device, WorkerSpec};
use rdma_engine::types::{Gid, Pmtu, Qpn};
use rdma_engine::verbs::{self, AsyncEvent, PortEvent, QpEvent, Verbs, VerbsDevice, VerbsError};
use rdma_engine::wr::AhId;
use std::net::IpAddr;

impl<B: Buf> Endpoint for Loopback<B> {
    fn kind(&self) -> TransportKind {
        TransportKind::Loopback
    }

    fn choose_address(&self, _: Option<IpAddr>) -> Result<String, String> {
        Ok(format!("loopback: address {} within this process", self.gid()))
    }

    fn path_mtu(&self) -> Pmtu {
        Pmtu::B4096
    }

    fn path_to(&self, gid: Gid) -> AddressVector {
        AddressVector::to(gid, 0)
    }
}

/// A verbs device with what the configuration says about addresses.
#[derive(Debug)]
pub struct VerbsEndpoint {
    device: VerbsDevice<Packet>,
    pinned: Option<u32>,
    traffic_class: u8,
}

impl VerbsEndpoint {
    /// Opens the device `name`, or the only one that is active; `dscp` goes into every packet.
    pub fn open(name: Option<&str>, port: u8, pinned: Option<u8>, dscp: u8) -> Result<Self, String> {
        let name = match name {
            Some(name) => name.to_owned(),
            None => only_device(port)?,
        };
        let device = VerbsDevice::open(&name, port).map_err(|e| e.to_string())?;
        Ok(VerbsEndpoint { device, pinned: pinned.map(u32::from), traffic_class: dscp << 2 })
    }

    /// The device.
    pub fn device(&self) -> &VerbsDevice<Packet> {
        &self.device
    }
}

/// The one device there is.
fn only_device(port: u8) -> Result<String, String> {
    let devices = verbs::devices().map_err(|e| e.to_string())?;
    let mut names = devices.iter().map(|d| d.name.clone());
    match (names.next(), names.next()) {
        (Some(name), None) => Ok(name),
        (None, _) => Err(VerbsError::NoDevices.to_string()),
        (Some(first), Some(second)) => Err(format!(
            "several RDMA devices are there ({first}, {second}, ...): say which with [fabric.verbs] device = \"{first}\", port = {port}"
        )),
    }
}

impl Device for VerbsEndpoint {
    type Qp = <VerbsDevice<Packet> as Device>::Qp;
    type Transport = Verbs<Packet>;
    type Error = VerbsError;

    fn create_worker(&self, worker: usize, spec: &WorkerSpec) -> Result<Self::Transport, VerbsError> {
        self.device.create_worker(worker, spec)
    }

    fn create_qp(&self, worker: usize, spec: &QpSpec) -> Result<Self::Qp, VerbsError> {
        self.device.create_qp(worker, spec)
    }

    fn qpn(&self, qp: &Self::Qp) -> Qpn {
        self.device.qpn(qp)
    }

    fn modify(&self, qp: &mut Self::Qp, change: &Change) -> Result<(), VerbsError> {
        self.device.modify(qp, change)
    }

    fn destroy_qp(&self, qp: Self::Qp) -> Result<(), VerbsError> {
        self.device.destroy_qp(qp)
    }

    fn register(&self, arena: &Arena, access: Access) -> Result<Region, VerbsError> {
        self.device.register(arena, access)
    }

    fn register_buffers(&self, arena: &Arena) -> Result<(), VerbsError> {
        self.device.register_buffers(arena)
    }

    fn create_ah(&self, worker: usize, path: &AddressVector) -> Result<AhId, VerbsError> {
        self.device.create_ah(worker, path)
    }

    fn gid(&self) -> Gid {
        self.device.gid()
    }
}

impl Endpoint for VerbsEndpoint {
    fn kind(&self) -> TransportKind {
        TransportKind::Verbs
    }

    fn choose_address(&self, peer: Option<IpAddr>) -> Result<String, String> {
        let table: Vec<GidEntry> = self.device.gids().map_err(|e| e.to_string())?;
        let choice = choose_gid(&table, peer, self.pinned).map_err(|e| e.to_string())?;
        self.device.use_gid(choice.index).map_err(|e| e.to_string())?;
        Ok(format!("{}: GID index {} ({}): {}", self.device.name(), choice.index, choice.gid, choice.reason))
    }

    fn path_mtu(&self) -> Pmtu {
        self.device.active_mtu().unwrap_or(Pmtu::B1024)
    }

    fn path_to(&self, gid: Gid) -> AddressVector {
        let mut path = AddressVector::to(gid, self.device.gid_index() as u8);
        path.traffic_class = self.traffic_class;
        path
    }

    fn poll_event(&self) -> Option<FabricEvent> {
        let event = self.device.poll_async()?;
        let mine = |domain: u16| domain == self.device.domain();
        let action = match event {
            AsyncEvent::CqOverflow { cq } if mine(cq.domain) => {
                FabricAction::RebuildCq { worker: cq.worker.into(), cq: cq.index as u8 }
            }
            AsyncEvent::Port { what: PortEvent::GidsChanged, .. } => FabricAction::None,
            AsyncEvent::DeviceFatal => FabricAction::Reconnect,
            AsyncEvent::Qp { what: QpEvent::Fatal, .. } => FabricAction::None,
            _ => FabricAction::None,
        };
        Some(FabricEvent { words: format!("{}: {event}", self.device.name()), action })
    }

    fn leaked(&self) -> u64 {
        self.device.leaked()
    }
}
