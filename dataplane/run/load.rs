//! Loads on a key-value service: their clients, and what these measured.

use super::error::RunError;
use super::roles::Making;
use crate::bridge::Packet;
use crate::config::CommandKind;
use crate::fabric::WorkerTransport;
use crate::host::HostSettings;
use crate::load::{
    Arrivals, Dialect, FrameClient, FrameClientSettings, LoadSettings, Meter, Popularity, Report, Sizes,
};
use crate::plan::{Plan, PlanLoad, PlanNode, PlanService};
use crate::service::any::AnyService;
use crate::soft::station_mac;
use crate::worker::Role;
use rdma_engine::types::Time;
use std::sync::{Mutex, PoisonError};

/// First UDP source port.
const FIRST_PORT: u16 = 20_000;
/// Time after which a request or its reply counts as lost. Nanoseconds.
const TIMEOUT_NS: u64 = 1_000_000_000;

fn settings(load: &PlanLoad, making: &Making<'_>) -> LoadSettings {
    let seconds = |s: u32| u64::from(s) * 1_000_000_000;
    LoadSettings {
        keys: load.keys,
        key_bytes: load.key_bytes as u16,
        dialect: match load.commands {
            CommandKind::Text => Dialect::Text,
            CommandKind::Meta => Dialect::Meta,
            CommandKind::Touch => Dialect::Touch,
        },
        popularity: load.zipf.map_or(Popularity::Uniform, Popularity::Zipf),
        sizes: Sizes::Fixed(load.value_bytes),
        ratio: load.ratio,
        run: (making.unix_ns_at_zero / 1_000_000_000) as u32,
        warm_up_ns: seconds(load.warm_up_s),
        measure_ns: seconds(load.measure_s),
        requests: load.requests,
        arrivals: load.rate.map_or(Arrivals::Closed, Arrivals::Poisson),
        timeout_ns: TIMEOUT_NS,
        ..LoadSettings::default()
    }
}

/// The client of one worker.
pub(super) fn client(
    node: &PlanNode,
    load: &PlanLoad,
    worker: usize,
    making: &Making<'_>,
) -> Result<FrameClient<Packet>, RunError> {
    let workers = node.workers.len() as u32;
    let first = usize::from(FIRST_PORT) + worker * load.flows as usize;
    let settings = FrameClientSettings {
        load: settings(load, making).client(worker as u32, workers),
        host: HostSettings {
            mac: station_mac(making.mac, &load.addresses),
            addresses: load.addresses.clone(),
            gateway: load.gateway,
            vlan: load.vlan,
            duplicates: None,
            other_vlan: Default::default(),
        },
        server: load.server,
        source_ports: (first..first + load.flows as usize).map(|port| port as u16).collect(),
        depth: load.depth,
        mtu: load.mtu,
        // What arrives over a link in memory is what was sent.
        checksums: !making.in_memory,
        announces: worker == 0,
    };
    FrameClient::new(settings, Time(0))
        .map_err(|e| RunError::Fabric { node: node.name.clone(), why: e.to_string() })
}

/// What the clients of a process measured, by the name of their node.
#[derive(Default)]
pub(super) struct Measured(Mutex<Vec<(String, Meter, Option<String>)>>);

impl Measured {
    /// Takes what is measured from workers that have returned.
    pub(super) fn take<T: WorkerTransport>(&self, roles: Vec<Role<T>>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for role in roles {
            if let AnyService::Load(client) = &role.service {
                let silence = client.silence().map(|silence| silence.to_string());
                let given_up =
                    silence.or_else(|| client.caller().refusal().map(|refusal| refusal.to_string()));
                all.push((role.name.clone(), client.meter().clone(), given_up));
            }
        }
    }

    /// One report a node, in the plan's order.
    pub(super) fn reports(&self, plan: &Plan) -> Vec<Report> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let report = |node: &PlanNode| {
            let PlanService::Load(load) = &node.service else { return None };
            let own = || all.iter().filter(|(name, ..)| *name == node.name);
            let mut meters = own().map(|(_, meter, _)| meter);
            let mut meter = meters.next()?.clone();
            meters.for_each(|other| meter.merge(other));
            let given_up = own().find_map(|(.., given_up)| given_up.clone());
            let making = Making::default();
            let target = format!("{} by node {}", load.server, node.name);
            let flows = load.flows * node.workers.len() as u32;
            let report = Report::new(target, settings(load, &making), flows, load.depth, meter);
            Some(Report { given_up, ..report })
        };
        plan.nodes.iter().filter_map(report).collect()
    }
}
