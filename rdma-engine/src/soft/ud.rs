//! Datagrams, receiving side: one packet, from anybody who knows the Q_Key.

use super::arrived::Arrived;
use super::counters::DropReason;
use super::event::Event;
use super::qp::Qp;
use super::shared::Shared;
use crate::buf::{Buf, Pool};
use crate::types::Gid;
use crate::wire::Deth;
use crate::wr::{Received, Status, UdSource};

impl<B: Buf> Qp<B> {
    /// A datagram from the address `source`. Wrong Q_Key, no receive or too little room: dropped without an answer.
    pub(crate) fn on_datagram<P: Pool<Buf = B>>(
        &mut self,
        shared: &mut Shared<P>,
        packet: &Arrived,
        frame: B,
        source: Gid,
    ) {
        if !self.state.answers() {
            return shared.drop(DropReason::State);
        }
        let Some(deth) = packet.deth(frame.first()).filter(|d| d.qkey.get() == self.qkey) else {
            return shared.drop(DropReason::Qkey);
        };
        if !self.take_receive(shared) {
            return shared.drop(DropReason::NoReceive);
        }
        let imm = packet.imm(frame.first());
        if !packet.pad_fits || !self.land(shared, packet, frame) {
            return shared.drop(DropReason::TooLong);
        }
        let source = Some(UdSource { qpn: deth.source_qpn.qpn(), gid: Some(source) });
        let received = Received { imm, source, ..Received::default() };
        self.complete_receive(shared, received, Status::Success);
        shared.solicited |= packet.solicited;
    }
}

/// A datagram for the general services interface: handed up as it is.
#[cold]
pub(crate) fn on_management<P: Pool>(
    shared: &mut Shared<P>,
    packet: &Arrived,
    mut frame: P::Buf,
    source: Gid,
) {
    let Some(deth) = packet.deth(frame.first()).filter(|d| d.qkey.get() == Deth::GSI_QKEY) else {
        return shared.drop(DropReason::Qkey);
    };
    frame.adj(packet.payload().start);
    frame.truncate(packet.len());
    shared.tell(Event::Management { gid: source, qpn: deth.source_qpn.qpn(), buf: frame });
}
