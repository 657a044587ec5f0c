//! Datagrams: copied into the destination's inbox when flushed, into a receive when its worker polls.

use super::qp::LoopQp;
use super::ring::{Shared, try_lock};
use super::transport::Desk;
use crate::buf::{Buf, copy_out, fill};
use crate::types::{Gid, Pmtu, QpType, Qpn};
use crate::wr::{AhId, Done, Op, OpKind, Received, SendWr, Status, UdDest, UdSource};
use std::sync::Arc;

/// Bytes of the longest datagram.
pub(super) const MAX_DATAGRAM: usize = Pmtu::B4096.bytes() as usize;
/// A Q_Key with this bit stands for that of the sending queue pair.
const OWN_QKEY: u32 = 1 << 31;

/// What came beside a datagram's bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Label {
    source: Qpn,
    gid: Gid,
    imm: Option<u32>,
    len: usize,
}

/// Arrived datagrams, oldest first; a full inbox loses what comes.
#[derive(Debug)]
pub(super) struct Inbox {
    labels: Box<[Label]>,
    bytes: Box<[u8]>,
    head: usize,
    len: usize,
}

impl Inbox {
    /// Room for `depth` datagrams.
    pub(super) fn new(depth: usize) -> Self {
        Inbox {
            labels: vec![Label::default(); depth].into_boxed_slice(),
            bytes: vec![0; depth * MAX_DATAGRAM].into_boxed_slice(),
            head: 0,
            len: 0,
        }
    }

    fn push<B: Buf>(&mut self, mut label: Label, buf: &B) -> bool {
        if self.len == self.labels.len() {
            return false;
        }
        let at = (self.head + self.len) % self.labels.len();
        label.len = copy_out(buf, 0, &mut self.bytes[at * MAX_DATAGRAM..][..MAX_DATAGRAM]);
        self.labels[at] = label;
        self.len += 1;
        true
    }

    fn front(&self) -> Option<(Label, &[u8])> {
        let label = *self.labels.get(self.head).filter(|_| self.len > 0)?;
        Some((label, &self.bytes[self.head * MAX_DATAGRAM..][..label.len]))
    }

    fn pop(&mut self) {
        self.head = (self.head + 1) % self.labels.len();
        self.len -= 1;
    }

    /// Loses all of them; returns how many.
    pub(super) fn clear(&mut self) -> usize {
        std::mem::take(&mut self.len)
    }
}

/// The queue pair a sender last sent to, so that the directory is asked once a destination.
pub(super) type LastDest<B> = Option<(AhId, Qpn, Arc<Shared<B>>)>;

/// Sends what is staged; true if something had to stay.
pub(super) fn transmit<B: Buf>(qp: &mut LoopQp<B>, desk: &mut Desk<B>) -> bool {
    let mut any = false;
    while qp.state().transmits() && desk.has_room(qp.cq) {
        let Some(wr) = qp.staged.front() else { break };
        let Some(delivered) = deliver(&qp.shared, &qp.hub, &mut qp.last_dest, wr, desk) else { break };
        desk.drops += u64::from(!delivered);
        let SendWr { buf, cookie, .. } = qp.staged.pop_front().expect("it was there");
        desk.complete(qp.cq, qp.completion(cookie, Done::Sent(OpKind::Send), Status::Success, buf));
        any = true;
    }
    desk.counters.doorbells += u64::from(any);
    !qp.staged.is_empty()
}

/// True if the datagram reached an inbox, false if it is lost, `None` if somebody is at the inbox just now.
fn deliver<B: Buf>(
    from: &Shared<B>,
    hub: &super::device::HubInner<B>,
    last: &mut LastDest<B>,
    wr: &SendWr<B>,
    desk: &mut Desk<B>,
) -> Option<bool> {
    let Some(UdDest { ah, qpn, qkey }) = wr.ud else { return Some(false) };
    if last.as_ref().is_none_or(|(a, q, s)| (*a, *q) != (ah, qpn) || s.is_gone()) {
        let found = desk.handles.gid(ah).and_then(|gid| hub.find(qpn, gid));
        *last = found.map(|shared| (ah, qpn, shared));
    }
    let Some((_, _, to)) = last else { return Some(false) };
    let qkey = if qkey & OWN_QKEY != 0 { from.qkey() } else { qkey };
    let inbox = to.inbox.as_ref().filter(|_| to.kind == QpType::Ud && to.state().answers());
    let Some(inbox) = inbox.filter(|_| qkey == to.qkey()) else { return Some(false) };
    let imm = if let Op::SendImm(imm) = wr.op { Some(imm) } else { None };
    let label = Label { source: from.qpn, gid: from.gid, imm, len: 0 };
    let delivered = try_lock(inbox)?.push(label, &wr.buf);
    to.alert();
    Some(delivered)
}

/// Moves arrived datagrams into receives. Those without a receive, or longer than it, are lost.
pub(super) fn serve<B: Buf>(qp: &mut LoopQp<B>, desk: &mut Desk<B>) {
    let Some(inbox) = &qp.shared.inbox else { return };
    let Some(mut inbox) = try_lock(inbox) else { return desk.ring_again(qp.id) };
    if !qp.shared.state().answers() {
        desk.drops += inbox.clear() as u64;
        return;
    }
    while let Some((label, bytes)) = inbox.front() {
        if !desk.has_room(qp.cq) {
            return desk.ring_again(qp.id);
        }
        let queue = match qp.spec.srq {
            Some(srq) => &mut desk.srqs[usize::from(srq.0)].queue,
            None => &mut qp.receives,
        };
        let fits = queue.front_mut().is_some_and(|r| fill(&mut r.buf, bytes.len(), [bytes].into_iter()));
        if let Some(wr) = if fits { queue.pop_front() } else { None } {
            let source = Some(UdSource { qpn: label.source, gid: Some(label.gid) });
            let done = Done::Received(Received { imm: label.imm, source, ..Received::default() });
            let c = super::qp::completion(qp.id, wr.cookie, done, Status::Success, wr.buf);
            desk.complete(qp.cq, c);
        } else {
            desk.drops += 1;
        }
        inbox.pop();
    }
}
