//! The main lcore while workers run: connections, statistics, shutdown.

use super::error::RunError;
use super::interfaces::Bound;
use super::links::Links;
use super::ports::RunningPort;
use super::reload::Reloader;
use super::signals::Signals;
use super::{Boards, Controls, Mailboxes, sampling};
use crate::control::Endpoint;
use crate::load::Report as Measurement;
use crate::plan::{Plan, PlanService};
use crate::stats::report::Reporter;
use crate::stats::sample::Sample;
use crate::stats::telemetry::Latest;
use crate::stats::{Board, Counter};
use crate::worker::{Mailbox, Order, Report};
use dpdk_bind::Mempool;
use dpdk_bind::tsc::Clock;
use rdma_engine::cm::Interest;
use rdma_engine::types::Time;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Longest sleep of the main lcore: reports of workers have no file descriptor.
const NAP_MS: u64 = 5;
/// Longest wait for the TCP goodbye after a drain.
const GOODBYE_NS: u64 = 500_000_000;
/// Time between two tries to give a worker its last order.
const STOP_AGAIN: std::time::Duration = std::time::Duration::from_millis(1);
/// Quiet time after which sinks are taken to have seen everything.
const SETTLE_NS: u64 = 200_000_000;
/// Age of the figures on the telemetry socket.
const TELEMETRY_NS: u64 = 1_000_000_000;

/// Where a worker's figures are.
pub(super) struct WorkerPlace {
    pub(super) node: String,
    pub(super) worker: usize,
    pub(super) lcore: u32,
    pub(super) service: &'static str,
    pub(super) board: Arc<Board>,
}

/// A worker without a connection: control talks to it directly.
struct Plain<Q> {
    mailbox: Arc<Mailbox<Q>>,
    /// True for a worker that makes traffic.
    source: bool,
    /// True for a worker that measures and then has done.
    load: bool,
    finished: bool,
    drained: bool,
}

/// What all workers had told at a time.
struct Moved {
    at: Time,
    /// Frames taken from and given to ports.
    frames: u64,
    /// Turns of each.
    turns: Vec<u64>,
}

impl Moved {
    /// True if so much time lies between the two, and each worker has told of turns in it: one that takes long for its
    /// turns tells rarely, and only seems to have nothing to do meanwhile.
    fn is_long_after(&self, before: &Moved, ns: u64) -> bool {
        let mut turns = self.turns.iter().zip(&before.turns);
        self.at.since_ns(before.at) > ns && turns.all(|(now, then)| now > then)
    }
}

/// The main lcore's work.
pub(super) struct Supervisor<'a, D: Endpoint> {
    clock: Clock,
    ports: &'a [RunningPort],
    port_names: Vec<String>,
    /// By port: the kernel's interface that tells whether the link is up, where the driver does not.
    sockets: Vec<Option<Bound>>,
    pools: &'a [Mempool],
    workers: Vec<WorkerPlace>,
    plain: Vec<Plain<D::Qp>>,
    all: Mailboxes<D>,
    controls: Controls<'a, D>,
    reloader: Reloader,
    links: Links,
    reporter: Reporter,
    drain_ns: u64,
    /// Frames that all sources together make, if each of them has an end.
    goal: Option<u64>,
    last: Sample,
    /// What the telemetry socket shows, and when that is due to be renewed.
    latest: Arc<Latest>,
    renew_at: Time,
    unclean: Vec<String>,
}

impl<'a, D: Endpoint> Supervisor<'a, D> {
    pub(super) fn new(
        plan: &Plan,
        clock: Clock,
        (ports, pools): (&'a [RunningPort], &'a [Mempool]),
        boards: Boards,
        mailboxes: Mailboxes<D>,
        controls: Controls<'a, D>,
        reloader: Reloader,
    ) -> Self {
        let mut workers = Vec::new();
        let mut plain = Vec::new();
        for ((node, boards), mail) in plan.nodes.iter().zip(boards).zip(&mailboxes) {
            for (worker, board) in boards.into_iter().enumerate() {
                let service = node.service.kind().name();
                let lcore = node.workers[worker].lcore.into();
                workers.push(WorkerPlace { node: node.name.clone(), worker, lcore, service, board });
                if node.fabric.is_none() {
                    let source = matches!(node.service, PlanService::Source(_));
                    let load = matches!(node.service, PlanService::Load(_));
                    let mailbox = Arc::clone(&mail[worker]);
                    plain.push(Plain { mailbox, source, load, finished: false, drained: false });
                }
            }
        }
        Supervisor {
            reporter: Reporter::new(plan),
            clock,
            ports,
            sockets: plan.ports.iter().map(|p| Bound::of(&p.source)).collect(),
            port_names: plan.ports.iter().map(|p| p.name.clone()).collect(),
            pools,
            workers,
            plain,
            all: mailboxes,
            controls,
            reloader,
            links: Links::new(plan),
            drain_ns: u64::from(plan.drain.timeout_ms) * 1_000_000,
            goal: goal(plan),
            last: Sample::default(),
            latest: Arc::default(),
            renew_at: if plan.stats.telemetry { Time(0) } else { Time::NEVER },
            unclean: Vec::new(),
        }
    }

    /// Where the newest figures are to be found, by whichever thread.
    pub(super) fn latest(&self) -> Arc<Latest> {
        Arc::clone(&self.latest)
    }

    fn now(&self) -> Time {
        Time(self.clock.now_ns())
    }

    /// Runs until a signal, or until every finite source is done and what it made has settled; then drains, stops the
    /// workers and returns.
    pub(super) fn supervise(&mut self, signals: &Signals) {
        let mut quiet = None;
        let mut started = false;
        while !signals.asked() {
            self.turn(signals);
            if !started && self.controls.iter().all(|c| c.is_established()) && self.are_keys_served() {
                started = true;
                if !self.controls.is_empty() {
                    tracing::info!("{}", self.ready());
                }
                self.plain.iter().for_each(|p| drop(p.mailbox.order(Order::Start)));
            }
            if self.are_loads_done() {
                break;
            }
            if !self.all_sources_done() {
                quiet = None;
            } else if self.is_quiet(&mut quiet, SETTLE_NS) {
                break;
            }
        }
        signals.acknowledge();
        tracing::info!("draining");
        self.drain(signals);
        self.stop(signals);
    }

    /// What may come now, and what is known: memory nodes have answered calls of their gateways, of relays only their queue
    /// pairs are there. A process of memory nodes has connected to nobody: gateways come to it.
    fn ready(&self) -> &'static str {
        if self.controls.iter().all(|control| control.is_memory_node()) {
            "ready: gateways may come"
        } else if self.workers.iter().any(|worker| worker.service == "kv") {
            "every memory node has answered over RDMA: clients may come"
        } else {
            "all queue pairs are ready at both ends: traffic may come"
        }
    }

    /// True once every gateway may use all its memory nodes: a connection comes first, then an agreement on who has which
    /// keys.
    fn are_keys_served(&self) -> bool {
        let mut gateways = self.workers.iter().filter(|w| w.service == "kv").map(|w| w.board.read());
        gateways.all(|g| g.value(Counter::KvNodesUp) > 0 && g.value(Counter::KvNodesDown) == 0)
    }

    /// True once every load has measured; never without one.
    fn are_loads_done(&self) -> bool {
        let mut loads = self.plain.iter().filter(|p| p.load).peekable();
        loads.peek().is_some() && loads.all(|p| p.finished)
    }

    /// True once every source has made all it should; never while one has no end.
    fn all_sources_done(&self) -> bool {
        let made = |w: &WorkerPlace| w.board.read().value(Counter::FramesMade);
        self.goal.is_some_and(|goal| self.workers.iter().map(made).sum::<u64>() >= goal)
    }

    /// True once nothing has moved for so long. `before` is what had moved when it last did.
    fn is_quiet(&self, before: &mut Option<Moved>, ns: u64) -> bool {
        let now = self.moved();
        match before {
            Some(before) if before.frames == now.frames => now.is_long_after(before, ns),
            _ => {
                *before = Some(now);
                false
            }
        }
    }

    fn moved(&self) -> Moved {
        let tables: Vec<_> = self.workers.iter().map(|w| w.board.read()).collect();
        let counts = [Counter::RxFrames, Counter::TxFrames, Counter::FramesReceived];
        let frames = tables.iter().flat_map(|t| counts.map(|c| t.value(c))).sum();
        Moved { at: self.now(), frames, turns: tables.iter().map(|t| t.value(Counter::Turns)).collect() }
    }

    /// Polls everything once, shows statistics when due, then sleeps until something is ready or a moment has passed.
    fn turn(&mut self, signals: &Signals) {
        let now = self.now();
        if signals.records_wanted() {
            signals.acknowledge();
            self.all.iter().flatten().for_each(|mailbox| drop(mailbox.order(Order::Record)));
        }
        if signals.reload_wanted() {
            signals.acknowledge();
            self.reloader.begin();
        }
        self.reloader.poll(now, &mut self.controls);
        for control in &mut self.controls {
            control.poll(now);
        }
        for p in &mut self.plain {
            while let Some(report) = p.mailbox.report() {
                p.drained |= matches!(report, Report::Drained);
                p.finished |= matches!(report, Report::Finished);
            }
        }
        let (show, renew) = (self.reporter.is_due(now), now >= self.renew_at);
        if show || renew {
            self.sample(now);
        }
        // Who has seen a report finds no older figures on the socket.
        if renew || (show && self.renew_at != Time::NEVER) {
            self.renew_at = now.after_ns(TELEMETRY_NS);
            self.latest.publish(self.last.clone());
        }
        if show {
            self.reporter.show(&self.last);
        }
        self.nap(signals, now);
    }

    fn sample(&mut self, now: Time) {
        let ports = (self.port_names.as_slice(), self.ports);
        let at_ms = now.0 / 1_000_000;
        self.last =
            sampling::sample(at_ms, self.clock.hz(), &self.workers, ports, self.pools, &self.controls);
        for (port, interface) in self.last.ports.iter_mut().zip(&self.sockets) {
            port.link_up &= interface.as_ref().is_none_or(Bound::is_up);
        }
        self.links.look(now, &self.last.ports);
    }

    fn nap(&self, signals: &Signals, now: Time) {
        let mut fds = vec![readable(signals.fd().as_raw_fd())];
        let mut until = now.after_ns(NAP_MS * 1_000_000);
        for line in self.controls.iter().flat_map(|control| control.lines()) {
            until = until.min(line.next_timeout().unwrap_or(Time::NEVER));
            fds.extend(line.fds().iter().map(|(fd, interest)| libc::pollfd {
                fd: fd.as_raw_fd(),
                events: events(*interest),
                revents: 0,
            }));
        }
        let longest = std::time::Duration::from_nanos(until.since_ns(now));
        crate::worker::idle::wait(&mut fds, longest);
    }

    /// Sources stop first; when their traffic has been carried the relays drain, and everything else has time to arrive.
    fn drain(&mut self, signals: &Signals) {
        let deadline = self.now().after_ns(self.drain_ns);
        for p in &self.plain {
            p.mailbox.order(Order::Drain).ok();
        }
        self.wait_until(signals, deadline, |s| s.plain.iter().all(|p| p.drained));
        let mut quiet = None;
        self.wait_until(signals, deadline, |s| {
            s.controls.is_empty() || !s.has_source() || s.is_quiet(&mut quiet, SETTLE_NS / 4)
        });
        // Memory nodes answer until the gateways of this process have finished.
        self.controls.iter_mut().filter(|c| !c.is_memory_node()).for_each(|c| c.drain());
        let gone = |s: &mut Self| s.controls.iter().all(|c| c.is_memory_node() || c.is_drained());
        let in_time = self.wait_until(signals, deadline, gone);
        self.controls.iter_mut().filter(|c| c.is_memory_node()).for_each(|c| c.drain());
        if !in_time || !self.wait_until(signals, deadline, |s| s.controls.iter().all(|c| c.is_drained())) {
            tracing::warn!(
                "the drain took longer than {} ms: giving up what is left",
                self.drain_ns / 1_000_000
            );
            self.controls.iter_mut().for_each(|c| c.abandon());
            let late = self.now().after_ns(self.drain_ns);
            if !self.wait_until(signals, late, |s| s.controls.iter().all(|c| c.is_drained())) {
                self.unclean.push("a queue pair could not be emptied".into());
            }
        }
        let deadline = self.now().after_ns(GOODBYE_NS);
        self.wait_until(signals, deadline, |s| {
            let now = s.now();
            // Every connection has its goodbye sent, also after the first that is not answered yet.
            s.controls.iter_mut().fold(true, |all, c| c.close(now) & all)
        });
    }

    fn has_source(&self) -> bool {
        self.plain.iter().any(|p| p.source)
    }

    fn wait_until(
        &mut self,
        signals: &Signals,
        deadline: Time,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        loop {
            self.turn(signals);
            if done(self) {
                return true;
            }
            if self.now() > deadline {
                return false;
            }
        }
    }

    /// Tells every worker to return. Their last counts are on the boards when the lcores have been joined.
    fn stop(&mut self, signals: &Signals) {
        self.turn(signals);
        for mailbox in self.all.iter().flatten() {
            // A worker that takes no orders any more hangs in a driver: who waits for it can still end the process by a signal.
            while mailbox.order(Order::Stop).is_err() {
                std::thread::sleep(STOP_AGAIN);
            }
        }
    }

    /// The last figures, when all workers have returned.
    pub(super) fn finish(mut self) -> Conclusion {
        let now = self.now();
        self.sample(now);
        Conclusion { reporter: self.reporter, last: self.last, unclean: self.unclean }
    }
}

/// Frames that all sources together make, if there are any and each has an end.
fn goal(plan: &Plan) -> Option<u64> {
    let counts = plan.nodes.iter().filter_map(|n| match &n.service {
        PlanService::Source(s) => Some(s.count),
        _ => None,
    });
    let counts: Vec<Option<u64>> = counts.collect();
    if counts.is_empty() { None } else { counts.into_iter().sum() }
}

/// What is left to say.
pub(super) struct Conclusion {
    reporter: Reporter,
    last: Sample,
    unclean: Vec<String>,
}

impl Conclusion {
    /// Prints the final report; an error if anything was left behind.
    pub(super) fn conclude(
        mut self,
        pools: &[Mempool],
        leaked: u64,
        loads: &[Measurement],
    ) -> Result<(), RunError> {
        for pool in pools.iter().filter(|p| !p.is_full()) {
            let missing = pool.capacity() - pool.available();
            self.unclean.push(format!(
                "pool {}: {missing} of {} buffers are missing",
                pool.name(),
                pool.capacity()
            ));
        }
        if leaked > 0 {
            self.unclean
                .push(format!("{leaked} buffers were given up because the device did not let go of them"));
        }
        self.last.pools = pools.iter().map(sampling::pool).collect();
        if let Err(error) = self.reporter.conclude(&self.last, &self.unclean) {
            self.unclean.push(format!("the final report could not be written to standard output: {error}"));
        }
        for load in loads {
            self.reporter.show_load(load);
            if let Some(why) = load.verdict() {
                self.unclean.push(format!("{}: {why}", load.target));
            }
        }
        if self.unclean.is_empty() { Ok(()) } else { Err(RunError::Unclean(self.unclean.join("; "))) }
    }
}

fn readable(fd: std::os::fd::RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

fn events(interest: Interest) -> libc::c_short {
    let read = if interest.read { libc::POLLIN } else { 0 };
    let write = if interest.write { libc::POLLOUT } else { 0 };
    read | write
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(at_ns: u64, turns: [u64; 2]) -> Moved {
        Moved { at: Time(at_ns), frames: 7, turns: turns.to_vec() }
    }

    #[test]
    fn a_worker_that_tells_rarely_is_waited_for() {
        let before = moved(1000, [256, 256]);
        assert!(!moved(1500, [512, 512]).is_long_after(&before, 500));
        assert!(moved(1501, [512, 512]).is_long_after(&before, 500));
        assert!(!moved(9999, [512, 256]).is_long_after(&before, 500), "the second one is in its long turns");
    }
}
