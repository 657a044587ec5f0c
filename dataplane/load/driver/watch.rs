//! Notices when the measurement begins and ends, and what has been used in between.

use super::cpu::{Moment, ProcessCpu, thread_seconds};
use super::{Shared, Stage};
use crate::load::caller::{Caller, Phase};
use rdma_engine::types::Time;
use std::sync::atomic::Ordering;

/// One thread's look at its own progress.
#[derive(Debug)]
pub(super) struct Watch {
    /// It is this thread that looks at the server.
    leads: bool,
    pid: Option<u32>,
    seen: Option<Phase>,
    /// At the beginning of the measurement.
    cpu_before: f64,
    moment: Option<Moment>,
    server_before: Option<ProcessCpu>,
    /// CPU seconds of this thread in the measurement.
    pub(super) cpu_s: f64,
    /// CPU time of the server in the measurement.
    pub(super) server: Option<ProcessCpu>,
    /// Ticks a second.
    pub(super) tsc_hz: Option<f64>,
}

impl Watch {
    pub(super) fn new(leads: bool, pid: Option<u32>) -> Self {
        Watch {
            leads,
            pid: pid.filter(|_| leads),
            seen: None,
            cpu_before: 0.0,
            moment: None,
            server_before: None,
            cpu_s: 0.0,
            server: None,
            tsc_hz: None,
        }
    }

    /// Looks at the phase: what has just begun, if anything has.
    #[inline]
    pub(super) fn see(&mut self, caller: &mut Caller, shared: &Shared<'_>, now: Time) -> Option<Stage> {
        let phase = caller.phase();
        let same = |seen: Phase| std::mem::discriminant(&seen) == std::mem::discriminant(&phase);
        if phase == Phase::Loaded {
            self.together(caller, shared, now);
        }
        if self.seen.is_some_and(same) {
            return None;
        }
        let before = self.seen.replace(phase);
        match phase {
            Phase::Preload { .. } => Some(Stage::Preload),
            Phase::WarmUp { .. } => Some(Stage::WarmUp),
            Phase::Measure { .. } => {
                self.begin();
                Some(Stage::Measure)
            }
            Phase::Drain | Phase::Done if matches!(before, Some(Phase::Measure { .. })) => {
                self.end();
                None
            }
            _ => None,
        }
    }

    /// Goes on when all threads have written their keys.
    fn together(&mut self, caller: &mut Caller, shared: &Shared<'_>, now: Time) {
        if self.seen != Some(Phase::Loaded) {
            shared.loaded.fetch_add(1, Ordering::AcqRel);
        }
        if shared.loaded.load(Ordering::Acquire) == u32::from(shared.settings.threads) {
            caller.release(now);
        }
    }

    fn begin(&mut self) {
        self.cpu_before = thread_seconds();
        self.moment = self.leads.then(Moment::now);
        self.server_before = self.pid.and_then(|pid| ProcessCpu::of(pid).ok());
    }

    fn end(&mut self) {
        self.cpu_s = thread_seconds() - self.cpu_before;
        self.tsc_hz = self.moment.and_then(|before| Moment::now().tsc_hz(&before));
        let after = self.pid.and_then(|pid| ProcessCpu::of(pid).ok());
        self.server = after.zip(self.server_before).map(|(after, before)| after.since(&before));
    }
}
