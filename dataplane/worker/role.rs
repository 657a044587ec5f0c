//! One worker of one node: the schedule.

use super::mailbox::{Mailbox, Order, Report};
use super::ports::{LaneKind, PortLane};
use crate::bridge::{Packet, PacketPool};
use crate::fabric::{Fabric, WorkerTransport};
use crate::service::any::AnyService;
use crate::service::outbox::Outbox;
use crate::service::{Burst, Context, Pools, Service};
use crate::stats::{Board, Counter, DropReason, Tally};
use rdma_engine::transport::{Completions, Transport};
use rdma_engine::types::Time;
use std::collections::VecDeque;
use std::sync::Arc;

/// Turns between two looks at mailbox and timers.
const TICK_TURNS: u64 = 256;

/// Everything a worker of one node owns.
pub struct Role<T: WorkerTransport> {
    /// The node's name.
    pub name: String,
    /// Number of this worker in its node.
    pub worker: usize,
    /// What it does.
    pub service: AnyService<Packet>,
    /// Its RDMA side.
    pub fabric: Fabric<T>,
    /// Its client port.
    pub port: PortLane,
    /// Its port for RoCE frames.
    pub fabric_port: FabricPort,
    /// Its buffers.
    pub pools: Pools<PacketPool>,
    /// What others see of its counts.
    pub board: Arc<Board>,
    /// Its orders and reports.
    pub mailbox: Arc<Mailbox<T::Qp>>,
}

/// Where the frames of the soft transport come and go.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one a worker, in place: no step on the way to its queues")]
pub enum FabricPort {
    /// The transport has none.
    None,
    /// They have a port of their own.
    Own(PortLane),
    /// They share the client port.
    Shared,
}

/// Client frames that wait on a shared port while the service takes none: the RX queue is polled on, as it brings the
/// packets that make room.
pub const PARKED: usize = 256;

/// A role at work.
pub struct RoleLoop<T: WorkerTransport> {
    role: Role<T>,
    tally: Tally,
    outbox: Outbox<Packet>,
    fabric_outbox: Outbox<Packet>,
    burst: Burst<Packet>,
    /// See [`PARKED`].
    parked: VecDeque<Packet>,
    completions: Completions<Packet>,
    /// Reports control had no place for.
    unsaid: VecDeque<Report<T::Qp>>,
    draining: bool,
    finished: bool,
    stopped: bool,
    turns: u64,
    /// Time of the last turn.
    now: Time,
}

impl<T: WorkerTransport> RoleLoop<T> {
    /// Ready for its first turn.
    pub fn new(role: Role<T>) -> Self {
        let parked = if matches!(role.fabric_port, FabricPort::Shared) { PARKED } else { 0 };
        RoleLoop {
            role,
            tally: Tally::default(),
            outbox: Outbox::default(),
            fabric_outbox: Outbox::default(),
            burst: Burst::new(),
            parked: VecDeque::with_capacity(parked),
            completions: Completions::new(),
            now: Time(0),
            unsaid: VecDeque::new(),
            draining: false,
            finished: false,
            stopped: false,
            turns: 0,
        }
    }

    /// True after an order to stop.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// The role, and its last counts published, when its loop has ended.
    pub fn finish(mut self) -> Role<T> {
        self.tally.drop(DropReason::Drained, (self.parked.len() + self.burst.len()) as u64);
        self.role.fabric.publish(&mut self.tally);
        self.role.board.publish(&self.tally);
        self.role
    }

    /// One turn; true if it found anything to do.
    #[inline]
    pub fn run_once(&mut self, now: Time) -> bool {
        self.now = now;
        let mut busy = self.take_frames(now);
        // First what is over: it makes room, and what follows from it leaves with the same doorbells as what is new.
        busy |= self.complete(now);
        busy |= self.serve(now);
        busy |= self.send_frames(now);
        self.turns += 1;
        if self.turns.is_multiple_of(TICK_TURNS) || self.role.mailbox.has_mail() {
            self.tick(now);
        }
        busy
    }

    /// Adds a turn's cycles to the ledger.
    #[inline]
    pub fn account(&mut self, cycles: u64, busy: bool) {
        self.tally.add(Counter::Turns, 1);
        if busy {
            self.tally.add(Counter::BusyCycles, cycles);
        } else {
            self.tally.add(Counter::IdleTurns, 1);
            self.tally.add(Counter::IdleCycles, cycles);
        }
    }

    /// RX bursts: the client port's to the service, the fabric port's to the transport.
    #[inline]
    fn take_frames(&mut self, now: Time) -> bool {
        if matches!(self.role.fabric_port, FabricPort::Shared) {
            return self.take_shared_frames(now);
        }
        let Role { service, fabric, port, fabric_port, .. } = &mut self.role;
        // A burst may be left from the look before a sleep.
        let mut any = !self.burst.is_empty();
        if !any && Service::<Fabric<T>, PacketPool>::wants_rx(service) {
            any = port.receive(&mut self.tally, |packet| self.burst.push(packet)) > 0;
        }
        if let FabricPort::Own(lane) = fabric_port {
            any |= lane.receive(&mut self.tally, |frame| fabric.ingress(now, frame)) > 0;
        }
        any
    }

    /// One RX burst for both: the transport takes what is its own, the rest is the service's.
    fn take_shared_frames(&mut self, now: Time) -> bool {
        let Role { service, fabric, port, .. } = &mut self.role;
        let (burst, parked) = (&mut self.burst, &mut self.parked);
        let wanted = Service::<Fabric<T>, PacketPool>::wants_rx(service);
        while wanted && !burst.is_full() && !parked.is_empty() {
            burst.extend(parked.pop_front());
        }
        let any = !burst.is_empty();
        let draining = self.draining;
        let n = port.receive_shared(&mut self.tally, |tally, frame| {
            let Some(frame) = fabric.claim(now, frame) else { return LaneKind::Fabric };
            if wanted && parked.is_empty() && !burst.is_full() {
                burst.push(frame);
            } else if draining {
                tally.drop(DropReason::Drained, 1);
            } else if parked.len() < PARKED {
                parked.push_back(frame);
            } else {
                tally.drop(DropReason::SharedPortFull, 1);
            }
            LaneKind::Client
        });
        any || n > 0
    }

    /// The service's turn, then the doorbells.
    #[inline]
    fn serve(&mut self, now: Time) -> bool {
        let (service, mut ctx, burst) = self.parts(now);
        let any = service.on_burst(&mut ctx, burst);
        self.role.fabric.flush(now, &mut self.fabric_outbox);
        any
    }

    /// Completions to the service.
    #[inline]
    fn complete(&mut self, now: Time) -> bool {
        let RoleLoop { role, completions, outbox, tally, .. } = self;
        let n = role.fabric.poll(now, completions);
        if n > 0 {
            let (transport, pools) = (&mut role.fabric, &role.pools);
            let mut ctx = Context { now, transport, tx: outbox, pools, tally };
            for completion in completions.drain(..) {
                role.service.on_completion(&mut ctx, completion);
            }
        }
        n > 0
    }

    #[inline]
    fn send_frames(&mut self, now: Time) -> bool {
        let mut any = self.role.port.transmit(now, &mut self.outbox, &mut self.tally);
        any |= match &mut self.role.fabric_port {
            FabricPort::None => false,
            FabricPort::Own(lane) => lane.transmit(now, &mut self.fabric_outbox, &mut self.tally),
            FabricPort::Shared => {
                self.role.port.transmit_fabric(now, &mut self.fabric_outbox, &mut self.tally)
            }
        };
        any
    }

    /// Mailbox, timers, counters out.
    pub fn tick(&mut self, now: Time) {
        while let Some(order) = self.role.mailbox.next_order() {
            self.carry_out(now, order);
        }
        let (service, mut ctx, _) = self.parts(now);
        service.on_tick(&mut ctx);
        self.take_down_paths(now);
        self.report_drained();
        while let Some(list) = self.role.service.used_list() {
            self.unsaid.push_back(Report::Relisted(list));
        }
        while let Some((node, ours, theirs)) = self.role.service.list_conflict() {
            self.unsaid.push_back(Report::ListConflict { node, ours, theirs });
        }
        while let Some(report) = self.unsaid.pop_front() {
            if let Err(back) = self.role.mailbox.tell(report) {
                self.unsaid.push_front(back);
                break;
            }
        }
        self.role.fabric.publish(&mut self.tally);
        self.role.board.publish(&self.tally);
    }

    fn carry_out(&mut self, now: Time, order: Order<T::Qp>) {
        match order {
            Order::Attach { path, qp, order } => match self.role.fabric.attach(qp) {
                Ok(id) => {
                    let (service, mut ctx, _) = self.parts(now);
                    service.attach(&mut ctx, path, id, &order);
                    self.role.fabric.flush(now, &mut self.fabric_outbox);
                    self.unsaid.push_back(Report::Armed(path));
                }
                Err(qp) => self.unsaid.push_back(Report::Refused(path, qp)),
            },
            Order::Ready(path) => self.role.service.path_ready(path),
            Order::Fail(path) => {
                let (service, mut ctx, _) = self.parts(now);
                service.fail(&mut ctx, path);
            }
            Order::Released(path) => self.role.service.released(path),
            Order::RebuildCq(cq) => match self.role.fabric.recover_cq(cq) {
                Ok(done) => tracing::warn!(node = %self.role.name, "{done}"),
                Err(error) => tracing::error!(node = %self.role.name, "{error}"),
            },
            Order::Relist(members) => {
                let (service, mut ctx, _) = self.parts(now);
                service.relist(&mut ctx, members);
            }
            Order::Record => self.role.fabric.record(),
            Order::Start => self.role.service.start(),
            Order::Drain => {
                self.draining = true;
                self.role.service.drain(now);
            }
            Order::Abandon => {
                let (service, mut ctx, _) = self.parts(now);
                service.abandon(&mut ctx);
            }
            Order::Stop => self.stopped = true,
        }
    }

    /// Hands queue pairs that nothing uses any more back to control.
    fn take_down_paths(&mut self, now: Time) {
        loop {
            let (service, mut ctx, _) = self.parts(now);
            let Some((path, qp, end, totals)) = service.take_down(&mut ctx) else { return };
            let qp = self.role.fabric.detach(qp).expect("nothing of it is in flight");
            self.unsaid.push_back(Report::Down { path, qp, end, totals });
        }
    }

    fn report_drained(&mut self) {
        if !self.finished && self.role.service.is_finished() {
            self.finished = true;
            self.unsaid.push_back(Report::Finished);
        }
        let sent = self.outbox.is_empty() && self.role.port.frames_waiting() == 0;
        if self.draining && sent && self.role.service.is_drained() {
            self.draining = false;
            self.unsaid.push_back(Report::Drained);
        }
    }

    /// Arms the transport before a sleep and names what wakes it; false if there is work already, or a timer that must
    /// not be slept through.
    pub fn arm(&mut self, wake: impl FnOnce(std::os::fd::RawFd)) -> bool {
        let Fabric::Wired(transport) = &mut self.role.fabric else { return true };
        match transport.event_fd() {
            Some(fd) => {
                wake(fd);
                transport.arm()
            }
            // Nothing wakes us: the sleep is a bounded one anyway.
            None => !transport.has_work(self.now),
        }
    }

    /// Takes the events that ended a sleep.
    pub fn acknowledge(&mut self) {
        self.role.fabric.acknowledge();
    }

    /// Takes what has come in since the last turn: the second look before a sleep. True if there was anything.
    pub fn has_frames(&mut self) -> bool {
        self.burst.is_empty() && self.take_frames(self.now)
    }

    /// The service and what it may use, borrowed apart.
    #[inline]
    fn parts(
        &mut self,
        now: Time,
    ) -> (&mut AnyService<Packet>, Context<'_, Fabric<T>, PacketPool>, &mut Burst<Packet>) {
        let ctx = Context {
            now,
            transport: &mut self.role.fabric,
            tx: &mut self.outbox,
            pools: &self.role.pools,
            tally: &mut self.tally,
        };
        (&mut self.role.service, ctx, &mut self.burst)
    }
}
