//! Ports and links: devices, rings, MTU and offloads. Queue counts follow once the workers are known.

use super::bounds::{MAX_POOL, MAX_POOL_CACHE, MAX_QUEUES, TX_BURST};
use super::drivers::{device_number, driver_facts};
use super::ledger::{Ledger, counted};
use super::{Hardware, PlanLink, PlanPort, PortSource, RssPlan, devices, limits};
use crate::config::{ChecksumOffload, Config, KeyPath, PortKeys};

/// Ports and links under construction.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) ports: Vec<DraftPort>,
    pub(super) links: Vec<PlanLink>,
    /// A link could not be read: nobody knows which ports it would have made.
    pub(super) lacks_ports: bool,
}

/// A port with what the finished one does not keep.
#[derive(Debug)]
pub(super) struct DraftPort {
    pub(super) port: PlanPort,
    /// Its table in the file.
    pub(super) at: KeyPath,
    pub(super) wanted_queues: Option<u32>,
    pub(super) pool_frames: Option<u32>,
    pub(super) pool_cache: u32,
}

impl Draft {
    /// The index of the port called `name`.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.ports.iter().position(|draft| draft.port.name == name)
    }

    /// The names of all ports, for remedies.
    pub(super) fn names(&self) -> Vec<&str> {
        self.ports.iter().map(|draft| draft.port.name.as_str()).collect()
    }
}

/// Reads all ports and links.
pub(super) fn draft(config: &Config, hardware: Option<&Hardware>, ledger: &mut Ledger) -> Draft {
    let mut draft = Draft::default();
    for (index, keys) in config.port.iter().enumerate() {
        let at = KeyPath::item("port", index);
        check_name(&draft, &at.key("name"), &keys.name, ledger);
        let port = device_port(keys, &at, hardware, ledger);
        check_device_once(&draft, &port, &at, ledger);
        draft.ports.push(port);
    }
    for index in 0..config.link.len() {
        add_link(config, index, &mut draft, ledger);
    }
    draft
}

fn check_name(draft: &Draft, at: &KeyPath, name: &str, ledger: &mut Ledger) {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() {
        ledger.refuse(vec![at.clone()], "a name is needed", "give a short word");
    } else if name.len() > 15 || !name.chars().all(plain) {
        let remedy = "use at most 15 letters, digits, `-`, `_` and `.`";
        ledger.refuse(vec![at.clone()], "not usable as a name", remedy);
    } else if draft.find(name).is_some() {
        ledger.refuse(vec![at.clone()], "another port has this name", "give each port a name of its own");
    }
}

fn check_device_once(draft: &Draft, new: &DraftPort, at: &KeyPath, ledger: &mut Ledger) {
    let Some(device) = new.port.source.device().filter(|device| !device.is_empty()) else { return };
    let twin = draft.ports.iter().find(|other| other.port.source.device() == Some(device));
    if let Some(twin) = twin {
        let what = format!("port {} has this device already", twin.port.name);
        ledger.refuse(
            vec![at.key("device")],
            what,
            "give each port a device of its own, e.g. another number",
        );
    }
}

fn device_port(keys: &PortKeys, at: &KeyPath, hardware: Option<&Hardware>, ledger: &mut Ledger) -> DraftPort {
    let source = devices::parse(&keys.device).unwrap_or_else(|(what, remedy)| {
        ledger.refuse(vec![at.key("device")], what, remedy);
        PortSource::Vdev { device: String::new(), args: String::new(), driver: String::new() }
    });
    let driver = match &source {
        PortSource::Vdev { driver, .. } => driver.as_str(),
        _ => "",
    };
    let facts = driver_facts(driver);
    let mtu = ledger.number(vec![at.key("mtu")], keys.mtu, 1500, 68..=9216, "bytes");
    let port = PlanPort {
        name: keys.name.clone(),
        queues: 0,
        rx_desc: descriptors(keys.rx_desc, at.key("rx_desc"), ledger),
        tx_desc: descriptors(keys.tx_desc, at.key("tx_desc"), ledger),
        mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
        set_mtu: facts.is_none_or(|facts| facts.set_mtu),
        rss: match keys.rss {
            Some(false) => RssPlan::Off,
            Some(true) => RssPlan::Required,
            None => RssPlan::WhereOffered,
        },
        promiscuous: keys.promiscuous.unwrap_or(true),
        checksum_offload: keys.checksum_offload,
        pool: 0,
        node: None,
        source,
    };
    check_driver(&port, keys, at, ledger);
    let mut port = port;
    if let Some(limits) = port.source.device().and_then(|device| hardware?.port(device)) {
        port.rx_desc = limits::fit(port.rx_desc, keys.rx_desc.is_some(), limits.rx_desc);
        port.tx_desc = limits::fit(port.tx_desc, keys.tx_desc.is_some(), limits.tx_desc);
        limits::check_port(&port, limits, at, ledger);
    }
    let (pool_frames, pool_cache) = pool_keys(keys.pool_frames, keys.pool_cache, at, ledger);
    DraftPort { port, at: at.clone(), wanted_queues: keys.queues, pool_frames, pool_cache }
}

fn descriptors(value: Option<u32>, at: KeyPath, ledger: &mut Ledger) -> u16 {
    let count = ledger.number(vec![at.clone()], value, 1024, TX_BURST..=32_768, "descriptors");
    if !count.is_multiple_of(32) {
        let remedy = format!("round to {}", count.next_multiple_of(32));
        ledger.refuse_value(vec![at], count, "not a multiple of 32, which drivers ask for", remedy);
    }
    u16::try_from(count).unwrap_or(u16::MAX)
}

fn pool_keys(
    frames: Option<u32>,
    cache: Option<u32>,
    at: &KeyPath,
    ledger: &mut Ledger,
) -> (Option<u32>, u32) {
    let frames =
        frames.map(|n| ledger.number(vec![at.key("pool_frames")], Some(n), n, 1..=MAX_POOL, "buffers"));
    let cache = ledger.number(vec![at.key("pool_cache")], cache, 256, 0..=MAX_POOL_CACHE, "buffers");
    (frames, cache)
}

/// What is known about the driver without asking it.
fn check_driver(port: &PlanPort, keys: &PortKeys, at: &KeyPath, ledger: &mut Ledger) {
    let PortSource::Vdev { args, driver, .. } = &port.source else { return };
    if let Some(facts) = driver_facts(driver) {
        if keys.rss == Some(true) && !facts.rss {
            let what = format!("{driver} does not hash frames");
            ledger.refuse(vec![at.key("rss")], what, "leave rss out");
        }
        if keys.checksum_offload == ChecksumOffload::On && !facts.checksum {
            let what = format!("{driver} computes no checksums");
            ledger.refuse(vec![at.key("checksum_offload")], what, "set \"auto\"");
        }
        if u32::from(port.mtu) > facts.max_mtu {
            let what = format!("{driver} carries at most {}", facts.max_mtu);
            ledger.refuse(vec![at.key("mtu")], what, format!("set mtu = {}", facts.max_mtu));
        }
    }
    check_frame_args(port, args, driver, at, ledger);
}

/// Device arguments that bound the length of a frame.
fn check_frame_args(port: &PlanPort, args: &str, driver: &str, at: &KeyPath, ledger: &mut Ledger) {
    let frame = port.max_frame_bytes();
    let (key, default, overhead) = match driver {
        "net_af_packet" => ("framesz", 2048, 64),
        "net_memif" => ("bsize", 2048, 0),
        "net_null" => {
            let made = device_number(args, "size").unwrap_or(64);
            if made > frame {
                let what = format!("it makes frames of {made} bytes, an MTU of {} carries {frame}", port.mtu);
                ledger.refuse(vec![at.key("device")], what, format!("set mtu = {}", made.saturating_sub(18)));
            }
            return;
        }
        _ => return,
    };
    let room = device_number(args, key).unwrap_or(default);
    if room < frame + overhead {
        let what = format!("{key}={room} does not hold a frame of {frame} bytes (mtu {})", port.mtu);
        let needed = (frame + overhead).next_power_of_two();
        let block = if driver == "net_af_packet" { format!(",blocksz={needed}") } else { String::new() };
        let remedy = format!("add {key}={needed}{block} to the device, or lower mtu");
        ledger.refuse(vec![at.key("device")], what, remedy);
    }
}

fn add_link(config: &Config, index: usize, draft: &mut Draft, ledger: &mut Ledger) {
    let keys = &config.link[index];
    let at = KeyPath::item("link", index);
    if keys.name.is_empty() {
        ledger.refuse(vec![at.key("name")], "a name is needed", "give a short word");
    } else if config.link[..index].iter().any(|other| other.name == keys.name) {
        ledger.refuse(vec![at.key("name")], "another link has this name", "give each link a name of its own");
    }
    let [first, second] = keys.ports.as_slice() else {
        let what = format!("a link makes two ports, here named: {}", keys.ports.len());
        ledger.refuse(vec![at.key("ports")], what, "write two names: ports = [\"left\", \"right\"]");
        draft.lacks_ports = true;
        return;
    };
    let ring_size = ring_size(keys.ring_size, &at, ledger);
    let mtu = ledger.number(vec![at.key("mtu")], keys.mtu, 1500, 68..=9216, "bytes");
    let (pool_frames, pool_cache) = pool_keys(keys.pool_frames, keys.pool_cache, &at, ledger);
    let number = draft.links.len();
    let base = draft.ports.len();
    for (end, name) in [first, second].into_iter().enumerate() {
        check_name(draft, &at.key("ports"), name, ledger);
        draft.ports.push(DraftPort {
            port: PlanPort {
                name: name.clone(),
                source: PortSource::LinkEnd { link: number, end },
                queues: 0,
                rx_desc: u16::try_from(ring_size).unwrap_or(32_768),
                tx_desc: u16::try_from(ring_size).unwrap_or(32_768),
                mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
                set_mtu: false,
                rss: RssPlan::Off,
                promiscuous: true,
                checksum_offload: ChecksumOffload::Off,
                pool: 0,
                node: None,
            },
            at: at.clone(),
            wanted_queues: keys.queues,
            pool_frames,
            pool_cache,
        });
    }
    let ports = [base, base + 1];
    draft.links.push(PlanLink { name: keys.name.clone(), ports, queues: 0, ring_size: ring_size - 1 });
}

fn ring_size(value: Option<u32>, at: &KeyPath, ledger: &mut Ledger) -> u32 {
    let at = vec![at.key("ring_size")];
    let size = ledger.number(at.clone(), value, 1024, 128..=32_768, "slots");
    if size.is_power_of_two() {
        return size;
    }
    let rounded = size.next_power_of_two();
    ledger.refuse_value(at, size, "not a power of two", format!("round to {rounded}"));
    rounded
}

/// Settles how many queues each port has, now that `workers` serve it: one for each. Both ends of a link have as
/// many, so as many workers serve them.
pub(super) fn settle_queues(
    draft: &mut Draft,
    workers: &[u32],
    hardware: Option<&Hardware>,
    ledger: &mut Ledger,
) {
    for link in &draft.links {
        let [left, right] = link.ports.map(|port| (workers[port], draft.ports[port].port.name.as_str()));
        if left.0 != 0 && right.0 != 0 && left.0 != right.0 {
            let what =
                format!("{} is served by {}, {} by {}", left.1, counted(left.0, "worker"), right.1, right.0);
            let remedy = "give the nodes at both ends of a link the same number of workers";
            ledger.refuse(vec![draft.ports[link.ports[0]].at.key("ports")], what, remedy);
        }
    }
    let far = |port: &PlanPort| match port.source {
        PortSource::LinkEnd { link, end } => workers[draft.links[link].ports[1 - end]],
        _ => 0,
    };
    let served: Vec<u32> = draft
        .ports
        .iter()
        .enumerate()
        .map(|(index, port)| workers[index].max(far(&port.port)).max(1))
        .collect();
    for (port, served_by) in draft.ports.iter_mut().zip(served) {
        port.port.queues = queues_of(port, served_by, hardware, ledger);
    }
    for link in &mut draft.links {
        link.queues = draft.ports[link.ports[0]].port.queues;
    }
}

fn queues_of(draft: &DraftPort, served_by: u32, hardware: Option<&Hardware>, ledger: &mut Ledger) -> u16 {
    let at = || vec![draft.at.key("queues")];
    let queues = draft.wanted_queues.unwrap_or(served_by);
    let (limit, whose) = queue_limit(&draft.port, hardware);
    if queues > limit {
        let remedy = match argument_for(&draft.port) {
            Some(argument) => format!("add {argument}={queues} to the device, or use fewer workers"),
            None => format!("use at most {}, each has one queue", counted(limit, "worker")),
        };
        ledger.refuse_value(at(), queues, format!("{whose} has at most {limit}"), remedy);
    } else if queues < limit && polls_all(&draft.port) {
        let what =
            format!("the device spreads frames over all {limit} queue pairs, some would not be polled");
        ledger.refuse_value(at(), queues, what, format!("use {limit} workers, each has one queue"));
    } else if queues != served_by && draft.port.node.is_some() {
        let what = format!("it is served by {}, each has exactly one queue", counted(served_by, "worker"));
        ledger.refuse_value(at(), queues, what, format!("leave it out, or set workers = {queues}"));
    }
    u16::try_from(served_by.min(MAX_QUEUES)).unwrap_or(1)
}

/// How many queues the port can have, and who says so.
fn queue_limit(port: &PlanPort, hardware: Option<&Hardware>) -> (u32, String) {
    if let Some(limits) = port.source.device().and_then(|device| hardware?.port(device)) {
        return (limits.max_rx_queues.min(limits.max_tx_queues), format!("{} here", limits.device));
    }
    match &port.source {
        PortSource::LinkEnd { .. } => (16, "net_ring".to_owned()),
        PortSource::Pci { .. } => (MAX_QUEUES, "DPDK".to_owned()),
        PortSource::Vdev { args, driver, .. } => match driver_facts(driver) {
            None => (MAX_QUEUES, "DPDK".to_owned()),
            Some(facts) => {
                let by_argument = facts.queues_arg.map(|key| device_number(args, key).unwrap_or(1));
                (by_argument.unwrap_or(facts.max_queues).min(facts.max_queues), driver.clone())
            }
        },
    }
}

fn argument_for(port: &PlanPort) -> Option<&'static str> {
    match &port.source {
        PortSource::Vdev { driver, .. } => driver_facts(driver)?.queues_arg,
        _ => None,
    }
}

fn polls_all(port: &PlanPort) -> bool {
    match &port.source {
        PortSource::Vdev { driver, .. } => driver_facts(driver).is_some_and(|facts| facts.polls_all),
        _ => false,
    }
}
