//! A frame from the network: parsed, checked, and handed to its queue pair.
//!
//! The checks run from cheap to dear: headers, queue pair, transport, addresses, partition, ICRC. What fails is
//! dropped and counted; nothing is answered (a NAK is the business of the responder, after all of this).

use super::arrived::Arrived;
use super::counters::DropReason;
use super::endpoint::SoftTransport;
use super::event::Event;
use super::imprint::Head;
use super::qp::Qp;
use super::shared::Shared;
use super::ud::on_management;
use crate::buf::{Buf, Pool, copy_out};
use crate::types::{QpType, Qpn, Time};
use crate::wire::{Bth, Mac, Operation, RoceFrame, Transport, pkeys_match};

impl<P: Pool> SoftTransport<P> {
    /// Takes a frame of the peer of one of our connections, if it is one and nothing is unusual about it. Any other frame
    /// comes back, and nothing has happened: it is for [`ingress`](crate::transport::Transport::ingress).
    #[inline]
    pub fn ingress_from_peer(&mut self, now: Time, frame: P::Buf) -> Result<(), P::Buf> {
        self.enter(now, frame, None)
    }

    /// Takes a frame that [`ingress_from_peer`](Self::ingress_from_peer) gave back.
    pub fn ingress_unrecognized(&mut self, now: Time, frame: P::Buf) {
        self.take_frame(now, frame);
    }

    /// Takes a frame that is `known` to be a packet for the queue pair in a slot; else one that bears its imprint.
    #[inline(never)]
    fn enter(&mut self, now: Time, frame: P::Buf, known: Option<(u16, &Arrived)>) -> Result<(), P::Buf> {
        let bytes = frame.first();
        let (slot, known) = match known {
            Some((slot, packet)) => (usize::from(slot), Some(packet)),
            None => match Head::of(bytes).filter(|_| frame.segment_count() == 1) {
                Some(head) => (self.layout.slot(head.qpn()), None),
                None => return Err(frame),
            },
        };
        let Some(qp) = self.qps.get_mut(slot).and_then(Option::as_deref_mut) else { return Err(frame) };
        let recognised = match known {
            Some(packet) => Some(*packet),
            None => qp.recognise(bytes, self.shared.config.icrc),
        };
        let Some(packet) = recognised else { return Err(frame) };
        if known.is_none() {
            self.shared.soft.frames_in += 1;
            self.shared.regions.refresh();
            qp.record(&mut self.shared, now, &frame);
        }
        qp.receive(&mut self.shared, now, &packet, frame);
        Ok(())
    }

    /// Takes a frame of which nothing is known.
    pub(crate) fn take_frame(&mut self, now: Time, frame: P::Buf) {
        self.shared.soft.frames_in += 1;
        self.shared.regions.refresh();
        let frame = if frame.segment_count() == 1 { Some(frame) } else { self.join(&frame) };
        let Some(frame) = frame else { return self.shared.drop(DropReason::Segmented) };
        let view = match RoceFrame::parse(frame.first()) {
            Ok(view) => view,
            Err(error) => return self.shared.soft.malformed[error as usize] += 1,
        };
        let (packet, qpn) = (Arrived::new(&view), view.bth().dest_qpn.qpn());
        let slot = self.layout.slot(qpn);
        let qp = self.qps.get_mut(slot).and_then(Option::as_deref_mut);
        let Some(qp) = qp.filter(|q| q.number.qpn == qpn) else {
            return self.take_other(qpn, &packet, frame);
        };
        let shared = &mut self.shared;
        if let Err(reason) = admit(qp, shared, &packet, &view) {
            return refuse(shared, qp.id.slot, reason);
        }
        qp.record(shared, now, &frame);
        let notification = packet.info.operation == Operation::CongestionNotification;
        // A notification that is marked itself is not answered, or two ends could go on for ever.
        if view.datagram.network.congestion_experienced() && !notification {
            qp.on_marked(shared, now);
        }
        if qp.spec.kind == QpType::Ud {
            let source = view.datagram.network.source();
            return qp.on_datagram(shared, &packet, frame, source);
        }
        if !qp.path.as_ref().is_some_and(|p| p.resolved) {
            qp.learn(shared, view.link.ethernet.source);
        }
        let slot = qp.id.slot;
        let taken = self.enter(now, frame, Some((slot, &packet)));
        debug_assert!(taken.is_ok(), "it has a queue pair");
    }

    /// Joins a frame that lies in several pieces.
    #[cold]
    fn join(&mut self, frame: &P::Buf) -> Option<P::Buf> {
        let mut joined = self.shared.pool.alloc()?;
        let len = frame.len();
        copy_out(frame, 0, joined.append(len)?);
        Some(joined)
    }

    /// A frame for no queue pair of ours: a datagram for the general services interface, or nothing.
    #[cold]
    fn take_other(&mut self, qpn: Qpn, packet: &Arrived, frame: P::Buf) {
        let shared = &mut self.shared;
        let Ok(view) = RoceFrame::parse(frame.first()) else { return };
        let network = &view.datagram.network;
        let reason = if qpn != Qpn::GSI {
            DropReason::UnknownQp
        } else if packet.info.transport != Transport::Ud {
            DropReason::WrongTransport
        } else if !shared.gids.contains(&network.destination()) {
            DropReason::Address
        } else if !pkeys_match(view.bth().pkey.get(), Bth::DEFAULT_PKEY) {
            DropReason::Pkey
        } else if shared.config.icrc && !view.icrc_ok() {
            DropReason::Icrc
        } else {
            let source = network.source();
            return on_management(shared, packet, frame, source);
        };
        shared.drop(reason);
    }
}

/// A frame that is not admitted.
#[cold]
fn refuse<P: Pool>(shared: &mut Shared<P>, slot: u16, reason: DropReason) {
    if let Some(recorder) = &mut shared.recorder {
        recorder.refuse(slot, reason);
    }
    shared.drop(reason);
}

/// Everything that can be said about a packet without the state of a connection.
#[inline]
pub(super) fn admit<P: Pool>(
    qp: &mut Qp<P::Buf>,
    shared: &Shared<P>,
    packet: &Arrived,
    view: &RoceFrame<'_>,
) -> Result<(), DropReason> {
    let network = &view.datagram.network;
    let known = match &qp.path {
        // The address vector: packets of a connection come from its peer and nobody else.
        Some(path) => path.is_of(network),
        None => qp.spec.kind == QpType::Ud && shared.gids.contains(&network.destination()),
    };
    let kind = qp.spec.kind;
    let other = match packet.info.transport {
        Transport::Cnp => kind != QpType::Ud,
        Transport::Vendor => kind == QpType::Rc,
        _ => false,
    };
    if packet.info.transport != qp.transport() && !other {
        return Err(DropReason::WrongTransport);
    }
    if !known {
        return Err(if qp.state.answers() { DropReason::Address } else { DropReason::State });
    }
    if !pkeys_match(view.bth().pkey.get(), Bth::DEFAULT_PKEY) {
        return Err(DropReason::Pkey);
    }
    if shared.config.icrc && !is_sealed(qp, *view) { Err(DropReason::Icrc) } else { Ok(()) }
}

/// True if the ICRC is right. By value: a view that is pointed at has to lie in memory from the start.
fn is_sealed<B>(qp: &mut Qp<B>, view: RoceFrame<'_>) -> bool {
    match qp.spec.kind {
        QpType::Ud => view.icrc_ok(),
        // Its addresses are those of the path.
        _ => view.icrc_ok_of(&mut qp.peer_icrc),
    }
}

impl<B: Buf> Qp<B> {
    /// What [`admit`] would admit, without its help: the packet in a frame that bears the imprint of this queue pair.
    #[inline(always)]
    pub(super) fn recognise(&mut self, frame: &[u8], icrc: bool) -> Option<Arrived> {
        let head = Head::of(frame)?;
        if self.number.qpn != head.qpn() || self.spec.kind != QpType::Rc {
            return None;
        }
        let packet = self.path.as_ref()?.imprint.read(head, frame.len())?;
        let sealed = !icrc || head.is_sealed(frame, &packet, &mut self.peer_icrc);
        sealed.then_some(packet)
    }

    /// Keeps what has come in for a flight record.
    #[inline]
    fn record<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, now: Time, frame: &B) {
        let Some(recorder) = &mut shared.recorder else { return };
        recorder.tick(now);
        // What comes after an error must not push out what came before it.
        if self.failure.is_none() {
            recorder.note(self.id.slot, false, frame);
        }
    }

    /// A frame of the peer was marked "congestion experienced".
    #[cold]
    fn on_marked<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, now: Time) {
        // Whoever is in ERR says nothing.
        let answers = self.path.is_some() && self.state.answers();
        if answers && self.congestion.on_marked(now, shared.config.cnp_interval_ns) {
            self.wake(shared);
        }
    }

    /// The peer told that our frames met congestion.
    #[cold]
    pub(crate) fn on_notification<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, now: Time) {
        shared.soft.cnps += 1;
        self.congestion.on_notification(&shared.config, now);
        if !self.congestion_told {
            self.congestion_told = shared.tell(Event::Congestion(self.id));
        }
    }

    /// The peer's frame tells its MAC address, or that of the router it came through.
    #[cold]
    fn learn<P: Pool<Buf = B>>(&mut self, shared: &mut Shared<P>, mac: Mac) {
        if let Some(path) =
            self.path.as_mut().filter(|_| shared.config.learn_neighbours && !mac.is_multicast())
        {
            path.resolve(mac);
            self.wake(shared);
        }
    }
}
