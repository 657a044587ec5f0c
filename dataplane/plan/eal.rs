//! Arguments for EAL.

use super::ledger::Ledger;
use super::{Hardware, PlanLcore, PlanMemory, PlanPort, PortSource, devices, lcores};
use crate::config::{Config, Hugepages, Iova, KeyPath, LcoreText, Problem, device_name, keyed_words};

/// Memory that is enough to look at devices, in MiB.
const PROBE_MIB: u64 = 64;

/// Checks the lists of `[eal]`.
pub(super) fn check(config: &Config, ledger: &mut Ledger) {
    let eal = KeyPath::top("eal");
    for (word, key) in keyed_words(&config.eal.extra) {
        let what = format!("`{word}` has a key of its own");
        ledger.refuse(vec![eal.key("extra")], what, format!("use eal.{key}"));
    }
    if config.eal.extra.iter().any(|word| word == "--proc-type" || word.starts_with("--proc-type=")) {
        let what = "`--proc-type` makes a process that waits for another one's memory";
        ledger.refuse(vec![eal.key("extra")], what, "leave it out: isthmus is always a primary process");
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
    args.extend(memory_args(config, memory.hugepages, memory.eal_mib));
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

fn memory_args(config: &Config, hugepages: Hugepages, eal_mib: u64) -> Vec<String> {
    let mut args = Vec::new();
    let pinned = config.eal.memory_mib.is_some();
    match hugepages {
        // Without hugepages EAL takes everything at start and nothing later.
        Hugepages::NoHuge => args.push("--no-huge".to_owned()),
        Hugepages::InMemory | Hugepages::Auto => args.push("--in-memory".to_owned()),
        Hugepages::Huge => {}
    }
    if pinned || hugepages == Hugepages::NoHuge {
        args.extend(pair("-m", eal_mib));
    }
    let default = (hugepages == Hugepages::Huge).then_some("isthmus");
    if let Some(prefix) = config.eal.file_prefix.as_deref().or(default) {
        args.extend(pair("--file-prefix", prefix));
    }
    args
}

/// Devices of ports and of `[eal]`. Without a list of PCI devices the bus is left alone: DPDK would try NICs that the
/// kernel is using.
fn device_args(config: &Config, ports: &[PlanPort]) -> Vec<String> {
    let with_args = |device: &str, args: &str| match args {
        "" => device.to_owned(),
        _ => format!("{device},{args}"),
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
    let mut args = Vec::new();
    let silent = pci.is_empty() && config.eal.block.is_empty();
    if silent && !config.eal.extra.iter().any(|word| word == "--no-pci") {
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
    match (config.eal.iova, pci) {
        (Some(iova), _) => pair("--iova-mode", iova.word()).into(),
        (None, false) => pair("--iova-mode", Iova::Va.word()).into(),
        (None, true) => {
            ledger.rule("iova", "eal", "a PCI port", "EAL chooses");
            Vec::new()
        }
    }
}

/// Arguments for a look at the devices of `hardware`: one lcore, little memory, the devices that `config` lists.
///
/// # Errors
/// The EAL options of the command line contradict themselves.
pub fn probe_args(config: &Config, hardware: &Hardware) -> Result<Vec<String>, Problem> {
    let mut config = config.clone();
    if config.eal.lcores.is_none() {
        let cpu = hardware.cpus.first().copied().unwrap_or(0);
        let list = if cpu < 128 { cpu.to_string() } else { format!("0@{cpu}") };
        config.eal.lcores = Some(LcoreText(list));
    }
    let mut ledger = Ledger::default();
    check(&config, &mut ledger);
    let lcores = lcores::list(&config, Some(hardware), &mut ledger);
    if let Some(problem) = ledger.problems.into_iter().next() {
        return Err(problem);
    }
    let enough = hardware.hugepages_free_mib.is_some_and(|free| free >= PROBE_MIB);
    let derived = if enough { Hugepages::InMemory } else { Hugepages::NoHuge };
    let hugepages = config.eal.hugepages.unwrap_or(derived);
    let eal_mib = config.eal.memory_mib.map_or(PROBE_MIB, u64::from);
    let mut args = lcore_args(&lcores);
    args.extend(memory_args(&config, hugepages, eal_mib));
    args.extend(device_args(&config, &[]));
    args.extend(config.eal.iova.iter().flat_map(|iova| pair("--iova-mode", iova.word())));
    args.extend(config.eal.extra.iter().cloned());
    Ok(args)
}
