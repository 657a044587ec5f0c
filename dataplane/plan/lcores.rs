//! Lcores: which exist, which is the main one, and which workers each runs.

use super::bounds::MAX_LCORE;
use super::ledger::{Ledger, counted};
use super::{Hardware, PlanLcore, RoleRef};
use crate::config::{Config, KeyPath, Workers};

/// An lcore with the CPUs it may use; none = the CPU of the same number.
type Lcore = (u16, Vec<u16>);

/// Lists the lcores, the main one first, without roles.
pub(super) fn list(config: &Config, hardware: Option<&Hardware>, ledger: &mut Ledger) -> Vec<PlanLcore> {
    let at = vec![KeyPath::top("eal").key("lcores")];
    let mut lcores = match &config.eal.lcores {
        Some(text) => match parse(&text.0) {
            Ok(lcores) => {
                check_cpus(&lcores, hardware, ledger);
                lcores
            }
            Err(what) => {
                ledger.refuse(at, what, "write \"0-2\", [0, 1, 2], or with a CPU each \"0@0,1@0\"");
                unnamed(config, None, &mut Ledger::default())
            }
        },
        None => unnamed(config, hardware, ledger),
    };
    lcores.sort();
    let main = main_lcore(config, &lcores, ledger);
    let listed = |(id, cpus): Lcore| PlanLcore { id, cpus, main: id == main, roles: Vec::new() };
    let mut lcores: Vec<_> = lcores.into_iter().map(listed).collect();
    lcores.sort_by_key(|lcore| !lcore.main);
    lcores
}

/// Without a list: one lcore for control and as many as the largest node has workers; nodes share them.
fn unnamed(config: &Config, hardware: Option<&Hardware>, ledger: &mut Ledger) -> Vec<Lcore> {
    let count = |workers: &Option<Workers>| match workers {
        Some(Workers::Count(count)) => (*count).clamp(1, MAX_LCORE),
        Some(Workers::Lcores(ids)) => ids.iter().max().copied().unwrap_or(1).clamp(1, MAX_LCORE),
        None => 1,
    };
    let workers = config.node.iter().map(|node| count(&node.workers)).max().unwrap_or(1);
    let ids = 0..=u16::try_from(workers).unwrap_or(1);
    let cpus = hardware.map(|hardware| hardware.cpus.as_slice()).unwrap_or_default();
    let lcores: Vec<Lcore> = ids.map(|id| (id, cpu_of(id, cpus))).collect();
    let shared = !cpus.is_empty() && lcores.len() > cpus.len();
    let fate = match (cpus.is_empty(), shared) {
        (true, _) => "each on the CPU of its number".to_owned(),
        (false, false) => format!("on CPUs {}", join(cpus.iter().take(lcores.len()))),
        (false, true) => format!("sharing {} CPUs, main with the first worker", cpus.len()),
    };
    ledger.rule(
        "lcores",
        "eal",
        format!("lcores not set, workers of the largest node: {workers}"),
        format!("lcores 0-{workers} (0 = control), {fate}"),
    );
    lcores
}

/// The CPU of lcore `id` where lcores are laid over `cpus`; control shares with the first worker.
fn cpu_of(id: u16, cpus: &[u16]) -> Vec<u16> {
    let plain = |cpu: &u16| if *cpu == id { Vec::new() } else { vec![*cpu] };
    match cpus.get(usize::from(id)) {
        Some(cpu) => plain(cpu),
        None if cpus.is_empty() => Vec::new(),
        None => plain(&cpus[usize::from(id) % cpus.len()]),
    }
}

fn check_cpus(lcores: &[Lcore], hardware: Option<&Hardware>, ledger: &mut Ledger) {
    let Some(cpus) = hardware.map(|hardware| &hardware.cpus).filter(|cpus| !cpus.is_empty()) else { return };
    let used = lcores.iter().flat_map(|(id, named)| if named.is_empty() { vec![*id] } else { named.clone() });
    let mut missing: Vec<u16> = used.filter(|cpu| !cpus.contains(cpu)).collect();
    missing.sort_unstable();
    missing.dedup();
    if !missing.is_empty() {
        let what = format!("this process may not run on CPU {}", join(missing.iter()));
        let remedy = format!(
            "use CPUs {}; several lcores may share one: \"0@{first},1@{first}\"",
            join(cpus.iter()),
            first = cpus[0]
        );
        ledger.refuse(vec![KeyPath::top("eal").key("lcores")], what, remedy);
    }
}

fn main_lcore(config: &Config, lcores: &[Lcore], ledger: &mut Ledger) -> u16 {
    let lowest = lcores.first().map_or(0, |(id, _)| *id);
    let Some(wanted) = config.eal.main_lcore else { return lowest };
    let found = lcores.iter().find(|(id, _)| u32::from(*id) == wanted);
    if found.is_none() {
        let at = vec![KeyPath::top("eal").key("main_lcore")];
        let remedy = format!("choose one of lcores: {}", join(lcores.iter().map(|(id, _)| id)));
        ledger.refuse(at, "not among the lcores", remedy);
    }
    found.map_or(lowest, |(id, _)| *id)
}

/// Gives each node's workers their lcores: the number of workers per node and the lcore of each.
pub(super) fn place(config: &Config, lcores: &mut [PlanLcore], ledger: &mut Ledger) -> Vec<Vec<u16>> {
    let mut placed = Vec::new();
    for (node, keys) in config.node.iter().enumerate() {
        let at = vec![KeyPath::item("node", node).key("workers")];
        let ids = match keys.workers.clone().unwrap_or(Workers::Count(1)) {
            Workers::Count(count) => spread(count, lcores, at, ledger),
            Workers::Lcores(ids) => pinned(&ids, lcores, at, ledger),
        };
        for (worker, id) in ids.iter().enumerate() {
            if let Some(lcore) = lcores.iter_mut().find(|lcore| lcore.id == *id) {
                lcore.roles.push(RoleRef { node, worker });
            }
        }
        placed.push(ids);
    }
    for lcore in lcores.iter().filter(|lcore| lcore.roles.len() > 1) {
        let inputs = counted(lcore.roles.len() as u32, "worker") + " on it";
        ledger.rule("lcore-sharing", format!("lcore {}", lcore.id), inputs, "run in turn");
    }
    placed
}

/// The `count` lcores with the fewest roles so far.
fn spread(count: u32, lcores: &[PlanLcore], at: Vec<KeyPath>, ledger: &mut Ledger) -> Vec<u16> {
    let mut free: Vec<_> = lcores.iter().filter(|lcore| !lcore.main).collect();
    if count == 0 {
        ledger.refuse(at, "a node without a worker does nothing", "give at least 1");
        return first_worker(lcores);
    }
    if u64::from(count) > free.len() as u64 {
        let what = format!(
            "{} and {} besides the main one: each needs one of its own",
            counted(count, "worker"),
            counted(u32::try_from(free.len()).unwrap_or(u32::MAX), "lcore")
        );
        ledger.refuse_value(at, count, what, more_lcores(lcores, count));
        return first_worker(lcores);
    }
    free.sort_by_key(|lcore| (lcore.roles.len(), lcore.id));
    let mut ids: Vec<_> = free.iter().take(count as usize).map(|lcore| lcore.id).collect();
    ids.sort_unstable();
    ids
}

fn more_lcores(lcores: &[PlanLcore], count: u32) -> String {
    if lcores.len() <= 1 {
        return "add lcores to eal.lcores; on one CPU two may share it: \"0@0,1@0\"".to_owned();
    }
    let workers = lcores.len() - 1;
    format!("set workers = {workers}, or list {} lcores in eal.lcores", u64::from(count) + 1)
}

fn pinned(ids: &[u32], lcores: &[PlanLcore], at: Vec<KeyPath>, ledger: &mut Ledger) -> Vec<u16> {
    let workers: Vec<u16> = lcores.iter().filter(|lcore| !lcore.main).map(|lcore| lcore.id).collect();
    let mut chosen: Vec<u16> = Vec::new();
    for id in ids {
        let known = lcores.iter().find(|lcore| u32::from(lcore.id) == *id);
        let what = match known {
            None => format!("lcore {id} is not among eal.lcores"),
            Some(lcore) if lcore.main => format!("lcore {id} is the main lcore, which runs control"),
            Some(lcore) if chosen.contains(&lcore.id) => format!("lcore {id} is listed twice"),
            Some(lcore) => {
                chosen.push(lcore.id);
                continue;
            }
        };
        let remedy = if workers.is_empty() {
            more_lcores(lcores, 1)
        } else {
            format!("the worker lcores are {}", join(workers.iter()))
        };
        ledger.refuse(at.clone(), what, remedy);
    }
    if ids.is_empty() {
        ledger.refuse(at, "a node without a worker does nothing", "list at least one lcore");
    }
    if chosen.is_empty() { first_worker(lcores) } else { chosen }
}

/// What the plan goes on with after a refusal.
fn first_worker(lcores: &[PlanLcore]) -> Vec<u16> {
    let worker = lcores.iter().find(|lcore| !lcore.main).or(lcores.first());
    vec![worker.map_or(0, |lcore| lcore.id)]
}

fn join<'a>(numbers: impl Iterator<Item = &'a u16>) -> String {
    numbers.map(u16::to_string).collect::<Vec<_>>().join(", ")
}

/// Parses EAL's notation: `0-2,5`, `0@0,1@0`, `(0-1)@0`, `0@(0-3)`.
pub(super) fn parse(text: &str) -> Result<Vec<Lcore>, String> {
    let mut lcores: Vec<Lcore> = Vec::new();
    if text.trim().is_empty() {
        return Err("no lcore is listed".to_owned());
    }
    for item in split_outside_brackets(text) {
        let (ids, cpus) = match item.split_once('@') {
            Some((ids, cpus)) => (parse_set(ids)?, parse_set(cpus)?),
            None => (parse_set(item)?, Vec::new()),
        };
        for id in ids {
            if lcores.iter().any(|(other, _)| *other == id) {
                return Err(format!("lcore {id} is listed twice"));
            }
            let own = cpus.as_slice() == [id];
            lcores.push((id, if own { Vec::new() } else { cpus.clone() }));
        }
    }
    Ok(lcores)
}

fn split_outside_brackets(text: &str) -> Vec<&str> {
    let mut depth = 0i32;
    let separator = |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    };
    text.split(separator).collect()
}

/// `3`, `0-3`, or a list of those in brackets.
fn parse_set(text: &str) -> Result<Vec<u16>, String> {
    let text = text.trim();
    let inner = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(text);
    let mut ids = Vec::new();
    for part in inner.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (parse_id(first)?, parse_id(last)?);
        if first > last {
            return Err(format!("`{part}` counts backwards"));
        }
        ids.extend(first..=last);
    }
    Ok(ids)
}

fn parse_id(text: &str) -> Result<u16, String> {
    let text = text.trim();
    let id = text.parse::<u16>().map_err(|_| format!("`{text}` is no lcore number"))?;
    if u32::from(id) <= MAX_LCORE { Ok(id) } else { Err(format!("lcore {id} is above {MAX_LCORE}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eal_notation_is_understood() {
        assert_eq!(parse("0-2,5").unwrap(), [(0, vec![]), (1, vec![]), (2, vec![]), (5, vec![])]);
        assert_eq!(parse("0@0,1@0").unwrap(), [(0, vec![]), (1, vec![0])]);
        assert_eq!(parse("(0-1)@3, 2@(0-1,4)").unwrap(), [(0, vec![3]), (1, vec![3]), (2, vec![0, 1, 4])]);
    }

    #[test]
    fn slips_in_it_are_refused() {
        for bad in ["", "a", "0,", "2-1", "0,0", "0@", "(0", "0-128", "99999999", "0))", "-1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
