//! SIGHUP: the configuration file is read again. What may change while everything runs is the list of memory nodes of a
//! gateway; whatever else has changed keeps the old configuration in force.
//!
//! Reading, planning and looking names up take their time, so a thread does that.

use super::fabric::{self, Meetings};
use super::{Controls, RunError};
use crate::config::{ConfigFile, HostPort, KeyPath, Problem, apply_eal_words};
use crate::control::{Endpoint, Line, NodeControl};
use crate::plan::{Hardware, Plan, PlanPeer, PlanService};
use rdma_engine::types::Time;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use tracing::{error, info};

/// What a file is read with.
#[derive(Debug)]
struct Running {
    file: ConfigFile,
    /// EAL options of the command line.
    words: Vec<String>,
    hardware: Hardware,
    plan: Plan,
}

/// Another list of a gateway.
#[derive(Debug)]
struct Relist {
    /// Index of the gateway in the plan.
    node: usize,
    generation: u64,
    names: Vec<String>,
}

/// What a file says now.
#[derive(Debug)]
struct Fresh {
    file: ConfigFile,
    plan: Plan,
    lists: Vec<Relist>,
}

/// Reads the configuration again.
pub(super) struct Reloader {
    running: Arc<Running>,
    reading: Option<JoinHandle<Result<Fresh, Vec<String>>>>,
    /// Asked for while a file was read.
    again: bool,
    meetings: Meetings,
}

impl Reloader {
    pub(super) fn new(
        file: &ConfigFile,
        words: &[String],
        hardware: Hardware,
        plan: &Plan,
        meetings: Meetings,
    ) -> Self {
        let (file, words, plan) = (file.clone(), words.to_vec(), plan.clone());
        let running = Arc::new(Running { file, words, hardware, plan });
        Reloader { running, reading: None, again: false, meetings }
    }

    /// Begins to read.
    pub(super) fn begin(&mut self) {
        if self.reading.is_some() {
            self.again = true;
            return;
        }
        info!("{}: reading it again", self.running.file.name());
        let running = Arc::clone(&self.running);
        match std::thread::Builder::new().name("reload".into()).spawn(move || running.read()) {
            Ok(thread) => self.reading = Some(thread),
            Err(error) => self.stays(&[format!("no thread to read it with: {error}")]),
        }
    }

    /// Takes what has been read, if it has.
    pub(super) fn poll<D: Endpoint>(&mut self, now: Time, controls: &mut Controls<'_, D>) {
        let Some(thread) = self.reading.take_if(|thread| thread.is_finished()) else { return };
        match thread.join() {
            Ok(Ok(fresh)) => self.apply(now, fresh, controls),
            Ok(Err(lines)) => self.stays(&lines),
            Err(_) => self.stays(&["reading it failed".to_owned()]),
        }
        if std::mem::take(&mut self.again) {
            self.begin();
        }
    }

    fn apply<D: Endpoint>(&mut self, now: Time, fresh: Fresh, controls: &mut Controls<'_, D>) {
        if fresh.lists.is_empty() {
            return info!("{}: nothing has changed", fresh.file.name());
        }
        let mut moves = Vec::new();
        for list in &fresh.lists {
            match self.links(now, &fresh.plan, list, controls) {
                Ok(links) => moves.push(links),
                Err(why) => return self.stays(&[why]),
            }
        }
        for (list, (at, new, gone)) in fresh.lists.iter().zip(moves) {
            let node = &fresh.plan.nodes[list.node].name;
            info!(node = %node, "list {} of memory nodes: {}", list.generation, list.names.join(" "));
            controls[at].relist(now, list.generation, new, gone);
        }
        let Fresh { file, plan, .. } = fresh;
        let words = self.running.words.clone();
        let hardware = self.running.hardware.clone();
        self.running = Arc::new(Running { file, words, hardware, plan });
    }

    /// Which gateway it is, links for its new nodes with connections to come, and links of those that go.
    #[expect(clippy::type_complexity, reason = "taken apart at once, a few lines above")]
    fn links<D: Endpoint>(
        &mut self,
        now: Time,
        plan: &Plan,
        list: &Relist,
        controls: &Controls<'_, D>,
    ) -> Result<(usize, Vec<(usize, String, Line)>, Vec<usize>), String> {
        let node = &plan.nodes[list.node];
        let is_it = |control: &NodeControl<'_, D>| control.name() == node.name;
        let Some(at) = controls.iter().position(is_it) else {
            return Err(format!("there is no node {}", node.name));
        };
        let control = &controls[at];
        let is_listed = |name: &str| list.names.iter().any(|other| other == name);
        let gone = control.listed().filter(|(_, name)| !is_listed(name)).map(|(link, _)| link).collect();
        let mut free = control.free_links().into_iter();
        let peers = node.fabric.iter().flat_map(|fabric| &fabric.peers);
        let mut new = Vec::new();
        for (name, peer) in list.names.iter().zip(peers) {
            if control.listed().any(|(_, old)| old == name) {
                continue;
            }
            let Some(link) = free.next() else { return Err(self.no_room(plan, list.node, name)) };
            let line = fabric::line(now, plan, list.node, peer, &mut self.meetings);
            new.push((link, name.clone(), line.map_err(|e: RunError| e.to_string())?));
        }
        Ok((at, new, gone))
    }

    /// Nodes that leave keep their room until they are gone.
    fn no_room(&self, plan: &Plan, node: usize, name: &str) -> String {
        let PlanService::Kv(kv) = &plan.nodes[node].service else { return String::new() };
        let path = kv_key(node, "nodes_max");
        self.line(
            path,
            format!("no room for {name} before another node has left, of {} in all", kv.nodes_max),
            "take nodes out first and add others by a second reload, or restart with more",
        )
    }

    fn line(&self, path: KeyPath, what: String, remedy: &str) -> String {
        self.running.file.locate(&Problem::new(path, what, remedy)).to_string()
    }

    fn stays(&self, lines: &[String]) {
        lines.iter().for_each(|line| error!("{line}"));
        error!("{}: not taken over; what runs goes on unchanged", self.running.file.name());
    }
}

fn kv_key(node: usize, key: &str) -> KeyPath {
    KeyPath::item("node", node).key("kv").key(key)
}

impl Running {
    fn read(&self) -> Result<Fresh, Vec<String>> {
        let said =
            |error: &dyn std::error::Error| error.to_string().lines().map(str::to_owned).collect::<Vec<_>>();
        let path = Path::new(self.file.name());
        // A pipe would keep this waiting for somebody who writes.
        if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            return Err(vec![format!("{}: it is no regular file, and cannot be read again", path.display())]);
        }
        let mut file = ConfigFile::load(path).map_err(|e| said(&e))?;
        apply_eal_words(&mut file.config, &self.words).map_err(|e| said(&e))?;
        self.keep_room(&mut file);
        let mut plan = file.plan(Some(&self.hardware)).map_err(|e| said(&e))?;
        if fixed(&plan) != fixed(&self.plan) {
            return Err(vec![self.what_else(&file)]);
        }
        let lists = self.lists(&file, &plan)?;
        for list in &lists {
            look_up(&mut plan, list.node).map_err(|why| vec![why])?;
        }
        Ok(Fresh { file, plan, lists })
    }

    /// Room for nodes is what it was laid out for at the start, where the file does not say otherwise.
    fn keep_room(&self, file: &mut ConfigFile) {
        let shared = file.config.service.kv.nodes_max;
        for (keys, node) in file.config.node.iter_mut().zip(&self.plan.nodes) {
            if let PlanService::Kv(kv) = &node.service {
                keys.kv.nodes_max = keys.kv.nodes_max.or(shared).or(Some(kv.nodes_max));
            }
        }
    }

    /// Names a change that cannot be taken over.
    fn what_else(&self, file: &ConfigFile) -> String {
        let may_change =
            |path: &KeyPath| path.ends_with(&["kv", "nodes"]) || path.ends_with(&["kv", "generation"]);
        let changed = file.changed_keys(&self.file).into_iter().find(|path| !may_change(path));
        let problem = Problem::new(
            changed.unwrap_or_default(),
            "cannot change while everything runs, as only kv.nodes and kv.generation can",
            "set it back, or restart",
        );
        file.locate(&problem).to_string()
    }

    /// Gateways whose list has another number.
    fn lists(&self, file: &ConfigFile, plan: &Plan) -> Result<Vec<Relist>, Vec<String>> {
        let mut lists = Vec::new();
        for (node, (new, old)) in plan.nodes.iter().zip(&self.plan.nodes).enumerate() {
            let (PlanService::Kv(new), PlanService::Kv(old)) = (&new.service, &old.service) else { continue };
            let sorted = |names: &[String]| {
                let mut names = names.to_vec();
                names.sort_unstable();
                names
            };
            let is_other = sorted(&new.nodes) != sorted(&old.nodes);
            if new.generation < old.generation || (is_other && new.generation == old.generation) {
                let what =
                    if is_other { "the list of memory nodes has changed" } else { "list numbers only grow" };
                let mut problem = Problem::new(
                    kv_key(node, "generation"),
                    format!("{what}, and {} is the number of the present one", old.generation),
                    format!("set generation = {} here and at all other gateways", old.generation + 1),
                );
                problem.at.push(KeyPath::top("service").key("kv").key("generation"));
                problem.default = Some(new.generation.to_string());
                return Err(vec![file.locate(&problem).to_string()]);
            }
            if new.generation > old.generation {
                lists.push(Relist { node, generation: new.generation.into(), names: new.nodes.clone() });
            }
        }
        Ok(lists)
    }
}

/// What must stay as it is.
fn fixed(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    plan.rules.clear();
    plan.warnings.clear();
    for node in &mut plan.nodes {
        if let PlanService::Kv(kv) = &mut node.service {
            kv.nodes.clear();
            kv.generation = 0;
            if let Some(fabric) = &mut node.fabric {
                fabric.peers.clear();
            }
        }
    }
    plan
}

/// Puts addresses in the place of names.
fn look_up(plan: &mut Plan, node: usize) -> Result<(), String> {
    let node = &mut plan.nodes[node];
    for peer in node.fabric.iter_mut().flat_map(|fabric| &mut fabric.peers) {
        let PlanPeer::Connect(HostPort { host, port }) = peer else { continue };
        let found = (host.as_str(), *port).to_socket_addrs();
        let found = found.map_err(|e| format!("node {}: cannot resolve {host}: {e}", node.name))?.next();
        *host = found.ok_or_else(|| format!("node {}: {host} has no address", node.name))?.ip().to_string();
    }
    Ok(())
}
