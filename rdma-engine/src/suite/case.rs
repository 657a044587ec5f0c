//! The list of cases and its runner.

use super::{Features, Rig};
use super::{chains, connected, datagram, lifecycle, order, queues, refusals, remote_errors, soak, waits};
use std::fmt;

/// One case.
#[derive(Debug)]
pub struct Case<R: Rig> {
    /// Its name, unique in the list.
    pub name: &'static str,
    /// Why it cannot run with these features, if so.
    pub skip: fn(&Features) -> Option<&'static str>,
    /// Runs it; panics on failure.
    pub body: fn(&mut R),
}

impl<R: Rig> Case<R> {
    /// A case that runs everywhere.
    pub(super) const fn always(name: &'static str, body: fn(&mut R)) -> Self {
        Case { name, skip: |_| None, body }
    }

    /// A case that runs where `skip` gives no reason against it.
    pub(super) const fn unless(
        name: &'static str,
        skip: fn(&Features) -> Option<&'static str>,
        body: fn(&mut R),
    ) -> Self {
        Case { name, skip, body }
    }

    /// All cases.
    pub fn all() -> Vec<Self> {
        let mut all = connected::cases();
        all.extend(chains::cases());
        all.extend(datagram::cases());
        all.extend(order::cases());
        all.extend(queues::cases());
        all.extend(refusals::cases());
        all.extend(remote_errors::cases());
        all.extend(waits::cases());
        all.extend(lifecycle::cases());
        all.extend(soak::cases());
        all
    }
}

/// What was run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Names of the cases that passed.
    pub passed: Vec<&'static str>,
    /// Names of the cases that were skipped, with the reason.
    pub skipped: Vec<(&'static str, &'static str)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.skipped.iter().try_for_each(|(name, why)| writeln!(f, "SKIPPED {name}: {why}"))?;
        write!(f, "{} cases passed, {} skipped", self.passed.len(), self.skipped.len())
    }
}

/// Runs all cases whose name contains `filter` (all of them for ""), printing each name before it starts.
///
/// # Panics
/// At the first case that fails.
pub fn run<R: Rig>(rig: &mut R, filter: &str) -> Report {
    let mut report = Report::default();
    for case in Case::<R>::all().into_iter().filter(|c| c.name.contains(filter)) {
        match run_one(rig, &case) {
            None => report.passed.push(case.name),
            Some(why) => report.skipped.push((case.name, why)),
        }
    }
    report
}

/// Runs the case with this name; the reason if it was skipped.
///
/// # Panics
/// If it fails, or if there is no such case.
pub fn run_case<R: Rig>(rig: &mut R, name: &str) -> Option<&'static str> {
    let case = Case::<R>::all().into_iter().find(|c| c.name == name);
    run_one(rig, &case.unwrap_or_else(|| panic!("the suite has no case {name}")))
}

fn run_one<R: Rig>(rig: &mut R, case: &Case<R>) -> Option<&'static str> {
    let why = (case.skip)(&rig.features());
    match why {
        Some(why) => eprintln!("suite: {} SKIPPED: {why}", case.name),
        None => {
            eprintln!("suite: {}", case.name);
            (case.body)(rig);
        }
    }
    why
}
