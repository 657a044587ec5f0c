//! A queue pair: its identity, its path, its two halves and its changes of state.

use super::arrived::Arrived;
use super::config::{SoftConfig, SoftError};
use super::congestion::Congestion;
use super::counters::DropReason;
use super::event::Event;
use super::held::Queue;
use super::hold::Hold;
use super::number::Number;
use super::path::Path;
use super::receive_queue::ReceiveQueue;
use super::recorder::Failure;
use super::region::Pd;
use super::requester::Requester;
use super::responder::Responder;
use super::shared::Shared;
use crate::buf::{Buf, Pool};
use crate::mem::Access;
use crate::qp::{Change, InitAttr, QpSpec, QpState, RtrAttr, RtsAttr};
use crate::types::{QpType, Qpn, Time};
use crate::wire::icrc::PeerIcrc;
use crate::wire::{Bth, Opcode, Operation};
use crate::wr::{QpId, Status};

/// A queue pair, in or out of service. Boxed, so that it can change hands.
#[derive(Debug)]
pub(crate) struct Qp<B> {
    pub(crate) number: Number,
    pub(crate) id: QpId,
    pub(crate) state: QpState,
    pub(crate) spec: QpSpec,
    pub(crate) pd: Pd,
    /// What peers may do through this queue pair.
    pub(crate) access: Access,
    pub(crate) qkey: u32,
    pub(crate) dest_qpn: Qpn,
    /// Payload bytes of a full packet.
    pub(crate) pmtu: u32,
    /// The way to the peer; `None` for UD and before RTR.
    pub(crate) path: Option<Path>,
    pub(crate) requester: Requester<B>,
    pub(crate) responder: Responder,
    pub(crate) receives: ReceiveQueue<B>,
    pub(crate) congestion: Congestion,
    /// Requests that overtook a lost one; `None` unless agreed.
    pub(crate) hold: Option<Hold>,
    /// Responses that overtook a lost one.
    pub(crate) responses: Queue,
    /// Payload bytes of a full packet as agreed; 0 for those of the path MTU.
    pub(crate) jumbo_payload: u32,
    /// The part of the ICRC that all frames of the peer share.
    pub(crate) peer_icrc: PeerIcrc,
    /// Why it went to ERR.
    pub(crate) failure: Option<Failure>,
    /// There was no room for the event that says so.
    pub(crate) failure_untold: bool,
    /// The worker has not taken the last event about congestion yet.
    pub(crate) congestion_told: bool,
    /// Waits for its turn to send.
    pub(crate) queued: bool,
    /// A packet of the peer has arrived.
    pub(crate) established: bool,
    /// When the peer's MAC address is asked for again, or given up.
    pub(crate) ask_again: Time,
}

impl<B: Buf> Qp<B> {
    pub(crate) fn new(number: Number, spec: QpSpec, pd: Pd) -> Self {
        let (slot, requester) = (number.slot, Requester::new(spec.caps.send_depth as usize));
        Qp {
            number,
            id: QpId { slot, generation: 0 },
            state: QpState::Reset,
            receives: ReceiveQueue::new(&spec),
            spec,
            pd,
            access: Access::LOCAL,
            qkey: 0,
            dest_qpn: Qpn::default(),
            pmtu: 0,
            path: None,
            requester,
            responder: Responder::new(),
            congestion: Congestion::default(),
            hold: None,
            responses: Queue::new(),
            jumbo_payload: 0,
            peer_icrc: PeerIcrc::default(),
            failure: None,
            failure_untold: false,
            congestion_told: false,
            queued: false,
            established: false,
            ask_again: Time::NEVER,
        }
    }

    /// A change of state by the control side, after the table. Buffers are only touched by RESET.
    pub(crate) fn change(&mut self, config: &SoftConfig, change: &Change) -> Result<(), SoftError> {
        let to = self.state.after(self.spec.kind, change)?;
        match change {
            Change::Init(attr) => self.init(attr)?,
            Change::Rtr(attr) => self.ready_to_receive(config, attr)?,
            Change::Rts(attr) => self.ready_to_send(config, attr)?,
            Change::Sqd => self.requester.drain_from_here(),
            Change::Resume => self.requester.resume(),
            Change::Err => {}
            Change::Reset => self.reset(),
        }
        self.state = to;
        Ok(())
    }

    fn init(&mut self, attr: &InitAttr) -> Result<(), SoftError> {
        self.access = attr.access.checked()?;
        self.qkey = attr.qkey;
        Ok(())
    }

    fn ready_to_receive(&mut self, config: &SoftConfig, attr: &RtrAttr) -> Result<(), SoftError> {
        let most = config.port_pmtu().ok_or(SoftError::EthernetMtu(config.ethernet_mtu))?;
        if self.spec.kind == QpType::Ud {
            self.pmtu = most.bytes();
            return Ok(());
        }
        if attr.pmtu > most {
            return Err(SoftError::PathMtu { pmtu: attr.pmtu, most });
        }
        limit("min_rnr_timer", attr.min_rnr_timer.into(), 31)?;
        let mut path = Path::new(config, &attr.path, self.number.qpn)?;
        if config.dcqcn.is_some() {
            path.heed_marks();
        }
        self.path = Some(path);
        self.dest_qpn = attr.dest_qpn;
        self.pmtu = if self.jumbo_payload > 0 { self.jumbo_payload } else { attr.pmtu.bytes() };
        self.responder.ready(attr);
        Ok(())
    }

    fn ready_to_send(&mut self, config: &SoftConfig, attr: &RtsAttr) -> Result<(), SoftError> {
        limit("timeout", attr.timeout.into(), 31)?;
        limit("retry_cnt", attr.retry_cnt.into(), 7)?;
        limit("rnr_retry", attr.rnr_retry.into(), 7)?;
        self.requester.ready(config, attr);
        Ok(())
    }

    /// Both queues are emptied without completions.
    fn reset(&mut self) {
        self.requester = Requester::new(self.spec.caps.send_depth as usize);
        self.responder = Responder::new();
        self.receives = ReceiveQueue::new(&self.spec);
        (self.path, self.peer_icrc) = (None, PeerIcrc::default());
        self.congestion = Congestion::default();
        // Nothing is held off a transport.
        (self.hold, self.responses, self.jumbo_payload, self.failure) = (None, Queue::new(), 0, None);
        self.established = false;
        self.ask_again = Time::NEVER;
    }

    /// Opcode class of its packets.
    #[inline]
    pub(crate) const fn transport(&self) -> crate::wire::Transport {
        match self.spec.kind {
            QpType::Rc => crate::wire::Transport::Rc,
            QpType::Uc => crate::wire::Transport::Uc,
            QpType::Ud => crate::wire::Transport::Ud,
        }
    }

    /// A BTH to the peer.
    #[inline]
    pub(crate) fn bth(&self, opcode: Opcode, psn: crate::types::Psn) -> Bth {
        Bth::new(opcode, self.dest_qpn, psn)
    }

    /// Buffers posted and not given back by `poll`.
    pub(crate) fn in_flight(&self) -> usize {
        self.requester.outstanding() + self.receives.outstanding()
    }

    /// True if the peer is to be told or given something.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        self.responder.owes() || self.hold.as_ref().is_some_and(|h| h.is_due())
    }

    /// Queues for a turn to send.
    #[inline]
    pub(crate) fn wake<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>) {
        shared.ready.queue(self.id.slot, &mut self.queued);
    }

    /// To ERR because of `status`: everything posted is flushed, in order. What the responder still owes the peer
    /// (responses before a NAK, and the NAK) is sent; nothing else is.
    pub(crate) fn fail<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, status: Status) {
        if self.state == QpState::Err {
            return;
        }
        self.state = QpState::Err;
        let (unacknowledged, expected) = (self.requester.unacknowledged(), self.responder.expected);
        self.failure = Some(Failure { status, unacknowledged, expected });
        self.flush_sends(shared);
        self.flush_receives(shared);
        self.drop_held(shared);
        self.congestion.take_due();
        self.tell_failure(shared, status);
        if self.responder.owes_refusal() {
            self.wake(shared);
        } else {
            self.responder.silence();
        }
    }

    /// Tells the worker. It is told later where events wait without end: this one is never lost.
    fn tell_failure<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, status: Status) {
        self.failure_untold = !shared.tell(Event::QpError { qp: self.id, status });
        shared.failures_untold += u32::from(self.failure_untold);
    }

    /// A frame for this queue pair that has passed all checks of [`super::ingress`].
    #[inline(always)]
    pub(crate) fn receive<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        packet: &Arrived,
        frame: B,
    ) {
        if !self.established {
            self.first_packet(shared);
        }
        match self.spec.kind {
            _ if packet.info.operation == Operation::CongestionNotification => {
                self.on_notification(shared, now);
            }
            QpType::Rc if packet.info.is_response() => self.on_response(shared, now, packet, frame),
            QpType::Rc => self.on_request(shared, packet, frame),
            QpType::Uc => self.on_unreliable(shared, packet, frame),
            // Datagrams need the sender's address and are served by `ingress` itself.
            QpType::Ud => shared.drop(DropReason::Unserved),
        }
    }

    #[cold]
    fn first_packet<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>) {
        self.established = true;
        if self.state == QpState::Rtr {
            shared.tell(Event::Established(self.id));
        }
    }
}

fn limit(what: &'static str, value: u64, most: u64) -> Result<(), SoftError> {
    if value > most { Err(SoftError::Limit { what, value, least: 0, most }) } else { Ok(()) }
}
