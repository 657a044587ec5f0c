//! Arguments for EAL.

use super::ledger::Ledger;
use super::{PlanLcore, PlanMemory, PlanPort, PortSource, devices};
use crate::config::{Config, Hugepages, Iova, KeyPath, device_name, keyed_words};

/// Checks the lists of `[eal]`.
pub(super) fn check(config: &Config, ledger: &mut Ledger) {
    let eal = KeyPath::top("eal");
    for (word, key) in keyed_words(&config.eal.extra) {
        let what = format!("`{word}` has a key of its own");
        ledger.refuse(vec![eal.key("extra")], what, format!("use eal.{key}"));
    }
    for (key, list) in [("allow", &config.eal.allow), ("block", &config.eal.block)] {
        for device in list.iter().filter(|device| devices::pci_address(device_name(device)).is_none()) {
            let what = format!("\"{device}\" is no PCI address");
            ledger.refuse(vec![eal.key(key)], what, "write \"0000:3b:00.0\"");
        }
    }
    let wrong =
        |prefix: &String| prefix.is_empty() || prefix.contains(|c: char| c == '/' || c.is_whitespace());
    if config.eal.file_prefix.as_ref().is_some_and(wrong) {
        ledger.refuse(vec![eal.key("file_prefix")], "no file name prefix", "use a short word");
    }
    if let Some(mib) = config.eal.memory_mib {
        ledger.number(vec![eal.key("memory_mib")], Some(mib), mib, 16..=16 << 20, "MiB");
    }
    if config.eal.iova == Some(Iova::Pa) && config.eal.hugepages == Some(Hugepages::NoHuge) {
        let remedy = "use iova = \"va\", or hugepages";
        ledger.refuse(vec![eal.key("iova")], "ordinary pages have no stable physical address", remedy);
    }
}

/// The arguments, without the program name.
pub(super) fn args(
    config: &Config,
    lcores: &[PlanLcore],
    ports: &[PlanPort],
    memory: &PlanMemory,
    ledger: &mut Ledger,
) -> Vec<String> {
    let mut args = lcore_args(lcores);
    args.extend(memory_args(config, memory));
    args.extend(device_args(config, ports));
    args.extend(iova_args(config, ports, ledger));
    args.extend(config.eal.extra.iter().cloned());
    args
}

fn pair(option: &str, value: impl ToString) -> [String; 2] {
    [option.to_owned(), value.to_string()]
}

fn lcore_args(lcores: &[PlanLcore]) -> Vec<String> {
    let mut listed: Vec<_> = lcores.iter().collect();
    listed.sort_by_key(|lcore| lcore.id);
    let named = listed.iter().any(|lcore| !lcore.cpus.is_empty());
    let text = |lcore: &&PlanLcore| {
        let cpus: Vec<_> = lcore.cpus.iter().map(u16::to_string).collect();
        match (named, cpus.as_slice()) {
            (false, _) => lcore.id.to_string(),
            (true, []) => format!("{0}@{0}", lcore.id),
            (true, [cpu]) => format!("{}@{cpu}", lcore.id),
            (true, _) => format!("{}@({})", lcore.id, cpus.join(",")),
        }
    };
    let list = listed.iter().map(text).collect::<Vec<_>>().join(",");
    let mut args: Vec<_> = pair(if named { "--lcores" } else { "-l" }, list).into();
    if let Some(main) = lcores.iter().find(|lcore| lcore.main) {
        args.extend(pair("--main-lcore", main.id));
    }
    args
}

fn memory_args(config: &Config, memory: &PlanMemory) -> Vec<String> {
    let mut args = Vec::new();
    let pinned = config.eal.memory_mib.is_some();
    match memory.hugepages {
        // Without hugepages EAL takes everything at start and nothing later.
        Hugepages::NoHuge => args.push("--no-huge".to_owned()),
        Hugepages::InMemory | Hugepages::Auto => args.push("--in-memory".to_owned()),
        Hugepages::Huge => {}
    }
    if pinned || memory.hugepages == Hugepages::NoHuge {
        args.extend(pair("-m", memory.eal_mib));
    }
    let default = (memory.hugepages == Hugepages::Huge).then_some("isthmus");
    if let Some(prefix) = config.eal.file_prefix.as_deref().or(default) {
        args.extend(pair("--file-prefix", prefix));
    }
    args
}

fn device_args(config: &Config, ports: &[PlanPort]) -> Vec<String> {
    let with_args = |device: &str, args: &str| {
        if args.is_empty() { device.to_owned() } else { format!("{device},{args}") }
    };
    let mut pci: Vec<String> = Vec::new();
    let mut vdev: Vec<String> = Vec::new();
    for port in ports {
        match &port.source {
            PortSource::Pci { device, args } => pci.push(with_args(device, args)),
            PortSource::Vdev { device, args, .. } => vdev.push(with_args(device, args)),
            PortSource::LinkEnd { .. } => {}
        }
    }
    pci.extend(config.eal.allow.iter().cloned());
    vdev.extend(config.eal.vdev.iter().cloned());
    let quiet = pci.is_empty() && config.eal.block.is_empty();
    let mut args = Vec::new();
    if quiet && !config.eal.extra.iter().any(|word| word == "--no-pci") {
        args.push("--no-pci".to_owned());
    }
    args.extend(pci.iter().flat_map(|device| pair("-a", device)));
    // EAL takes a list of devices either to allow or to block.
    if pci.is_empty() {
        args.extend(config.eal.block.iter().flat_map(|device| pair("-b", device)));
    }
    args.extend(vdev.iter().flat_map(|device| pair("--vdev", device)));
    args
}

/// VA makes each pool one region, but a NIC without an IOMMU needs physical addresses: EAL decides there.
fn iova_args(config: &Config, ports: &[PlanPort], ledger: &mut Ledger) -> Vec<String> {
    let pci = ports.iter().any(|port| matches!(port.source, PortSource::Pci { .. }));
    let mode = match (config.eal.iova, pci) {
        (Some(Iova::Pa), _) => "pa",
        (Some(Iova::Va), _) | (None, false) => "va",
        (None, true) => {
            ledger.rule("iova", "eal", "a PCI port", "EAL chooses");
            return Vec::new();
        }
    };
    pair("--iova-mode", mode).into()
}
