//! A frame from the network: parsed, checked, and handed to its queue pair.
//!
//! The checks run from cheap to dear: headers, queue pair, transport, addresses, partition, ICRC. What fails is
//! dropped and counted; nothing is answered (a NAK is the business of the responder, after all of this).

use super::arrived::Arrived;
use super::counters::DropReason;
use super::endpoint::SoftTransport;
use super::event::Event;
use super::qp::Qp;
use super::shared::Shared;
use super::ud::on_management;
use crate::buf::{Buf, Pool, copy_out};
use crate::types::{Gid, QpType, Qpn, Time};
use crate::wire::{Bth, Mac, Operation, RoceFrame, Transport, pkeys_match};

/// What is kept of the headers below the BTH.
#[derive(Clone, Copy)]
struct Lower {
    source: Gid,
    destination: Gid,
    source_mac: Mac,
    marked: bool,
}

impl Lower {
    #[inline]
    fn of(frame: &RoceFrame<'_>) -> Self {
        let network = &frame.datagram.network;
        Lower {
            source: network.source(),
            destination: network.destination(),
            source_mac: frame.link.ethernet.source,
            marked: network.congestion_experienced(),
        }
    }
}

impl<P: Pool> SoftTransport<P> {
    /// Takes a frame.
    #[inline]
    pub(crate) fn take_frame(&mut self, now: Time, frame: P::Buf) {
        self.shared.soft.frames_in += 1;
        self.shared.regions.refresh();
        let frame = if frame.segment_count() == 1 { Some(frame) } else { self.join(&frame) };
        let Some(frame) = frame else { return self.shared.drop(DropReason::Segmented) };
        let view = match RoceFrame::parse(frame.first()) {
            Ok(view) => view,
            Err(error) => return self.shared.soft.malformed[error as usize] += 1,
        };
        let (packet, lower, bth) = (Arrived::new(&view), Lower::of(&view), *view.bth());
        if bth.dest_qpn.qpn() == Qpn::GSI {
            return self.take_management(&bth, packet, lower, frame);
        }
        let slot = self.layout.slot(bth.dest_qpn.qpn());
        let qp = self.qps.get_mut(slot).and_then(Option::as_mut);
        let Some(qp) = qp.filter(|q| q.number.qpn == bth.dest_qpn.qpn()) else {
            return self.shared.drop(DropReason::UnknownQp);
        };
        if let Err(reason) = admit(qp, &self.shared, &bth, packet, lower, &view) {
            return self.shared.drop(reason);
        }
        qp.deliver(&mut self.shared, now, packet, frame, lower);
    }

    /// Joins a frame that lies in several pieces.
    #[cold]
    fn join(&mut self, frame: &P::Buf) -> Option<P::Buf> {
        let mut joined = self.shared.pool.alloc()?;
        let len = frame.len();
        copy_out(frame, 0, joined.append(len)?);
        Some(joined)
    }

    #[cold]
    fn take_management(&mut self, bth: &Bth, packet: Arrived, lower: Lower, frame: P::Buf) {
        let shared = &mut self.shared;
        let reason = if packet.info.transport != Transport::Ud {
            DropReason::WrongTransport
        } else if !shared.gids.contains(&lower.destination) {
            DropReason::Address
        } else if !pkeys_match(bth.pkey.get(), Bth::DEFAULT_PKEY) {
            DropReason::Pkey
        } else if shared.config.icrc && !icrc_ok(frame.first()) {
            DropReason::Icrc
        } else {
            return on_management(shared, packet, frame, lower.source);
        };
        shared.drop(reason);
    }
}

fn icrc_ok(bytes: &[u8]) -> bool {
    RoceFrame::parse(bytes).is_ok_and(|view| view.icrc_ok())
}

/// Everything that can be said about a packet without the state of a connection.
#[inline]
fn admit<P: Pool>(
    qp: &Qp<P::Buf>,
    shared: &Shared<P>,
    bth: &Bth,
    packet: Arrived,
    lower: Lower,
    view: &RoceFrame<'_>,
) -> Result<(), DropReason> {
    let cnp = packet.info.transport == Transport::Cnp && qp.spec.kind != QpType::Ud;
    if packet.info.transport != qp.transport() && !cnp {
        return Err(DropReason::WrongTransport);
    }
    let known = match &qp.path {
        // The address vector: packets of a connection come from its peer and nobody else.
        Some(path) => path.peer == lower.source && path.local == lower.destination,
        None => qp.spec.kind == QpType::Ud && shared.gids.contains(&lower.destination),
    };
    if !known {
        return Err(if qp.state.answers() { DropReason::Address } else { DropReason::State });
    }
    if !pkeys_match(bth.pkey.get(), Bth::DEFAULT_PKEY) {
        return Err(DropReason::Pkey);
    }
    if shared.config.icrc && !view.icrc_ok() { Err(DropReason::Icrc) } else { Ok(()) }
}

impl<B: Buf> Qp<B> {
    #[inline]
    fn deliver<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        now: Time,
        packet: Arrived,
        frame: B,
        lower: Lower,
    ) {
        if self.path.as_ref().is_some_and(|p| !p.resolved) {
            self.learn(shared, lower.source_mac);
        }
        if lower.marked && self.congestion.on_marked(now, shared.config.cnp_interval_ns) {
            self.wake(shared);
        }
        if packet.info.operation == Operation::CongestionNotification {
            shared.soft.cnps += 1;
            self.congestion.on_notification();
            return shared.tell(Event::Congestion(self.id));
        }
        if self.spec.kind == QpType::Ud {
            return self.on_datagram(shared, packet, frame, lower.source);
        }
        self.receive(shared, now, packet, frame);
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
