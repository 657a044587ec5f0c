//! A worker's endpoint: its table of queue pairs and the way in and out.

use super::config::SoftError;
use super::counters::SoftCounters;
use super::device::SoftQp;
use super::event::Event;
use super::management::{MAX_OUTGOING, Outgoing};
use super::node::PathTable;
use super::number::Layout;
use super::path::Path;
use super::qp::Qp;
use super::shared::{Shared, can_receive};
use super::srq::Srq;
use crate::buf::{Buf, Egress, Pool};
use crate::qp::{AddressVector, Change, QpState};
use crate::transport::{Completions, Counters, Posted, Transport};
use crate::types::{Psn, Qpn, Time};
use crate::wire::Mac;
use crate::wr::{Completion, Done, QpId, RecvWr, Refusal, Refused, SendWr, SrqId, Status};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

/// Queue pairs by slot, a part of their number.
type Table<B> = Box<[Option<Box<Qp<B>>>]>;

/// The worker's side of the soft transport. Frames go in by [`ingress`](Transport::ingress) and come out by
/// [`flush`](Transport::flush); it owns no socket, no clock and no thread.
#[derive(Debug)]
pub struct SoftTransport<P: Pool> {
    pub(crate) worker: usize,
    pub(crate) layout: Layout,
    pub(crate) qps: Table<P::Buf>,
    /// Queue pairs attached, and how many may be.
    attached: u16,
    max_qps: u16,
    /// How often each slot has been used.
    generations: Box<[u16]>,
    pub(crate) shared: Shared<P>,
    paths: Arc<PathTable>,
    /// Datagrams of QP 1 that wait to be sent.
    pub(crate) outgoing: VecDeque<Outgoing<P::Buf>>,
    pub(crate) management_psn: Psn,
}

impl<P: Pool> SoftTransport<P> {
    pub(crate) fn new(
        worker: usize,
        layout: Layout,
        max_qps: u16,
        shared: Shared<P>,
        paths: Arc<PathTable>,
    ) -> Self {
        let slots = usize::from(shared.config.max_qps);
        SoftTransport {
            worker,
            layout,
            attached: 0,
            max_qps,
            qps: (0..slots).map(|_| None).collect(),
            generations: vec![0; slots].into_boxed_slice(),
            shared,
            paths,
            outgoing: VecDeque::with_capacity(MAX_OUTGOING),
            management_psn: Psn::new(0),
        }
    }

    #[inline]
    fn qp(&self, id: QpId) -> Option<&Qp<P::Buf>> {
        self.qps.get(usize::from(id.slot))?.as_deref().filter(|q| q.id == id)
    }

    #[inline]
    fn qp_and_shared(&mut self, id: QpId) -> Option<(&mut Qp<P::Buf>, &mut Shared<P>)> {
        let qp = self.qps.get_mut(usize::from(id.slot))?.as_deref_mut().filter(|q| q.id == id)?;
        Some((qp, &mut self.shared))
    }

    /// Takes over regions and paths that the control thread has made.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        self.shared.regions.refresh();
        let (paths, neighbours) = (&mut self.shared.paths, &self.shared.neighbours);
        self.paths.copy_new(paths, |path| {
            if let Some(mac) = neighbours.mac(path.peer_ip()) {
                path.resolve(mac);
            }
        });
    }

    /// Tells the MAC address of a next hop: the answer to [`Event::NeedsNeighbour`], or a change.
    pub fn set_neighbour(&mut self, ip: IpAddr, mac: Mac) {
        self.refresh();
        self.shared.neighbours.insert(ip, mac);
        self.shared.paths.iter_mut().filter(|p| p.peer_ip() == ip).for_each(|p| p.resolve(mac));
        self.outgoing.iter_mut().filter(|o| o.path.peer_ip() == ip).for_each(|o| o.path.resolve(mac));
        for qp in self.qps.iter_mut().flatten() {
            if let Some(path) = qp.path.as_mut().filter(|p| p.peer_ip() == ip) {
                path.resolve(mac);
            }
            // Datagrams may wait for it too.
            qp.wake(&mut self.shared);
        }
    }

    /// The next thing to tell.
    pub fn poll_event(&mut self) -> Option<Event<P::Buf>> {
        let Some(event) = self.shared.events.pop() else { return self.untold_failure() };
        if let Event::Congestion(qp) = event
            && let Some((qp, _)) = self.qp_and_shared(qp)
        {
            qp.congestion_told = false;
        }
        Some(event)
    }

    /// A failure that there was no room to tell of.
    fn untold_failure(&mut self) -> Option<Event<P::Buf>> {
        if self.shared.failures_untold == 0 {
            return None;
        }
        let qp = self.qps.iter_mut().flatten().find(|qp| qp.failure_untold)?;
        self.shared.failures_untold -= 1;
        qp.failure_untold = false;
        qp.failure.as_ref().map(|failure| Event::QpError { qp: qp.id, status: failure.status })
    }

    /// Sends `buf` as a datagram from QP 1 to the queue pair `qpn` at the end of `path`; gives it back with the reason
    /// if the path is not possible, and without one if too many are waiting.
    pub fn send_management(
        &mut self,
        path: &AddressVector,
        qpn: Qpn,
        buf: P::Buf,
    ) -> Result<(), (P::Buf, Option<SoftError>)> {
        if self.outgoing.len() == MAX_OUTGOING {
            return Err((buf, None));
        }
        match Path::new(&self.shared.config, path, Qpn::GSI) {
            Ok(path) => {
                self.outgoing.push_back(Outgoing { path, qpn, buf, ask_again: Time(0) });
                Ok(())
            }
            Err(error) => Err((buf, Some(error))),
        }
    }

    /// Changes the state of an attached queue pair: to SQD and back, or up from INIT.
    ///
    /// # Errors
    /// As [`Device::modify`](crate::transport::Device::modify); [`SoftError::NoQueue`] if `qp` is stale. RESET is
    /// refused here: detach first.
    pub fn modify(&mut self, qp: QpId, change: &Change) -> Result<(), SoftError> {
        let gone = SoftError::NoQueue { what: "queue pair", index: usize::from(qp.slot) };
        let config = Arc::clone(&self.shared.config);
        let Some((q, shared)) = self.qp_and_shared(qp) else { return Err(gone) };
        match change {
            Change::Reset => return Err(gone),
            Change::Err => {
                q.state.after(q.spec.kind, change)?;
                q.fail(shared, Status::WrFlushErr);
            }
            _ => q.change(&config, change)?,
        }
        if q.state == QpState::Sqd {
            q.tell_if_drained(shared);
        }
        q.wake(shared);
        Ok(())
    }

    /// An event is given once when fewer than `limit` receives wait in `srq`.
    pub fn arm_srq_limit(&mut self, srq: SrqId, limit: usize) {
        if let Some(srq) = self.shared.srqs.get_mut(usize::from(srq.0)) {
            srq.arm_limit(limit);
        }
    }

    /// Receives that a shared queue would take now.
    pub fn srq_room(&self, srq: SrqId) -> usize {
        self.shared.srqs.get(usize::from(srq.0)).map_or(0, |s| s.room())
    }

    /// True if a message marked "solicited" completed since this was last asked.
    pub fn take_solicited(&mut self) -> bool {
        std::mem::take(&mut self.shared.solicited)
    }

    /// What the endpoint counts beside the counters of every transport.
    pub fn soft_counters(&self) -> &SoftCounters {
        &self.shared.soft
    }

    /// Number of an attached queue pair.
    pub fn qpn(&self, qp: QpId) -> Option<Qpn> {
        self.qp(qp).map(|q| q.number.qpn)
    }
}

impl<P: Pool + 'static> Transport for SoftTransport<P> {
    type Buf = P::Buf;
    type Qp = SoftQp<P::Buf>;

    fn attach(&mut self, qp: SoftQp<P::Buf>) -> Result<QpId, SoftQp<P::Buf>> {
        let mut qp = qp.0;
        let slot = usize::from(qp.number.slot);
        let mine = qp.number.worker == self.worker && qp.state != QpState::Reset;
        if !mine || self.attached >= self.max_qps || self.qps.get(slot).is_none_or(Option::is_some) {
            return Err(SoftQp(qp));
        }
        qp.id = QpId { slot: qp.number.slot, generation: self.generations[slot] };
        qp.queued = false;
        if let Some(path) = &mut qp.path
            && let Some(mac) = self.shared.neighbours.mac(path.peer_ip())
        {
            path.resolve(mac);
        }
        let id = qp.id;
        if let Some(recorder) = &mut self.shared.recorder {
            recorder.attach(id.slot);
        }
        self.attached += 1;
        self.qps[slot] = Some(qp);
        Ok(id)
    }

    fn detach(&mut self, qp: QpId) -> Option<SoftQp<P::Buf>> {
        let idle = self.qp(qp)?.in_flight() == 0;
        let slot = usize::from(qp.slot);
        let mut qp = self.qps[slot].take_if(|_| idle)?;
        qp.drop_held(&mut self.shared);
        self.shared.failures_untold -= u32::from(std::mem::take(&mut qp.failure_untold));
        qp.congestion_told = false;
        if let Some(recorder) = &mut self.shared.recorder {
            recorder.detach(qp.id.slot);
        }
        self.attached -= 1;
        self.generations[slot] = self.generations[slot].wrapping_add(1);
        self.shared.timers.remove(qp.id.slot);
        if std::mem::take(&mut qp.queued) {
            self.shared.ready.remove(qp.id.slot);
        }
        Some(SoftQp(qp))
    }

    #[inline]
    fn post_send(&mut self, qp: QpId, wr: SendWr<P::Buf>) -> Posted<SendWr<P::Buf>> {
        if wr.ud.is_some() {
            self.refresh();
        }
        match self.qp_and_shared(qp) {
            Some((qp, shared)) => qp.post_send(shared, wr),
            None => Err(Refused { wr, why: Refusal::Stale }),
        }
    }

    #[inline]
    fn post_recv(&mut self, qp: QpId, wr: RecvWr<P::Buf>) -> Posted<RecvWr<P::Buf>> {
        let Some((qp, shared)) = self.qp_and_shared(qp) else {
            return Err(Refused { wr, why: Refusal::Stale });
        };
        if let Err(why) = check_receive(&wr, qp.state, qp.spec.caps.recv_sge) {
            return Err(Refused { wr, why });
        }
        qp.receives.post(wr)?;
        shared.counters.receives_posted += 1;
        if qp.state == QpState::Err {
            qp.flush_receives(shared);
        }
        Ok(())
    }

    fn post_srq_recv(&mut self, srq: SrqId, wr: RecvWr<P::Buf>) -> Posted<RecvWr<P::Buf>> {
        if !can_receive(&wr.buf, 0) {
            return Err(Refused { wr, why: Refusal::NoRoom });
        }
        let Some(srq) = self.shared.srqs.get_mut(usize::from(srq.0)) else {
            return Err(Refused { wr, why: Refusal::Stale });
        };
        srq.post(wr)?;
        self.shared.counters.receives_posted += 1;
        Ok(())
    }

    fn flush(&mut self, now: Time, egress: &mut impl Egress<P::Buf>) {
        let before = self.shared.soft.frames_out;
        self.send_all(now, egress);
        self.shared.counters.doorbells += u64::from(self.shared.soft.frames_out != before);
    }

    #[inline]
    fn poll(&mut self, _now: Time, out: &mut Completions<P::Buf>) -> usize {
        let before = out.len();
        let (qps, shared) = (&mut self.qps, &mut self.shared);
        for cq in shared.cqs.iter_mut().filter(|cq| !cq.is_empty()) {
            let n = cq.len().min(out.remaining_capacity());
            for completion in cq.drain(..n) {
                collect(qps, &mut shared.srqs, &mut shared.counters, &completion);
                out.push(completion);
            }
        }
        out.len() - before
    }

    #[inline]
    fn ingress(&mut self, now: Time, frame: P::Buf) {
        if let Err(frame) = self.ingress_from_peer(now, frame) {
            self.take_frame(now, frame);
        }
    }

    fn state(&self, qp: QpId) -> Option<QpState> {
        self.qp(qp).map(|q| q.state)
    }

    #[inline]
    fn send_room(&self, qp: QpId) -> usize {
        self.qp(qp).map_or(0, |q| q.requester.room())
    }

    #[inline]
    fn recv_room(&self, qp: QpId) -> usize {
        self.qp(qp).map_or(0, |q| q.receives.room())
    }

    fn in_flight(&self, qp: QpId) -> usize {
        self.qp(qp).map_or(0, Qp::in_flight)
    }

    fn fail(&mut self, qp: QpId) {
        if let Some((qp, shared)) = self.qp_and_shared(qp) {
            qp.fail(shared, Status::WrFlushErr);
        }
    }

    fn next_timer(&self) -> Time {
        let something = self.shared.ready.len() > 0 || !self.outgoing.is_empty();
        if something { Time(0) } else { self.shared.timers.earliest() }
    }

    fn counters(&self) -> Counters {
        self.shared.counters
    }
}

/// A completion leaves: its place in the send queue, or the receive queue, is free again.
#[inline(always)]
fn collect<B: Buf>(
    qps: &mut [Option<Box<Qp<B>>>],
    srqs: &mut [Srq<B>],
    counters: &mut Counters,
    completion: &Completion<B>,
) {
    let qp = qps.get_mut(usize::from(completion.qp.slot)).and_then(Option::as_deref_mut);
    // A queue pair is not detached before all of its completions have left.
    let Some(qp) = qp.filter(|qp| qp.id == completion.qp) else { return };
    if let Done::Sent(_) = completion.done {
        counters.sends_completed += 1;
        qp.requester.collected();
    } else {
        counters.receives_completed += 1;
        if let Some(srq) = qp.receives.collected() {
            srqs[usize::from(srq.0)].collected();
        }
    }
}

#[inline]
fn check_receive<B: Buf>(wr: &RecvWr<B>, state: QpState, sge: u16) -> Result<(), Refusal> {
    if !state.takes_receives() {
        return Err(Refusal::State);
    }
    if wr.buf.segment_count() > usize::from(sge.max(1)) {
        return Err(Refusal::TooManySegments);
    }
    if can_receive(&wr.buf, 0) { Ok(()) } else { Err(Refusal::NoRoom) }
}
