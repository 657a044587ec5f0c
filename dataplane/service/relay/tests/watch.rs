//! A transport that counts what a relay posts, and refuses, loses and delays at will.
#![allow(dead_code)] // Compiled into two programs, of which each uses some.

use isthmus::service::relay::header::{Header, MAX_HEADER};
use rdma_engine::buf::{Buf, Egress, copy_out};
use rdma_engine::loopback::{LoopQp, LoopTransport};
use rdma_engine::qp::QpState;
use rdma_engine::transport::{Completions, Counters, Posted, Transport};
use rdma_engine::types::Time;
use rdma_engine::wr::{Completion, Cookie, Done, Op, QpId, RecvWr, Refusal, Refused, SendWr, SrqId, Status};
use std::collections::{HashMap, VecDeque};

/// Mark of messages the test itself posts; their completions are not shown to the relay.
const FORGED: Cookie = Cookie(u64::MAX);

/// What becomes of a received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It arrives.
    Arrive,
    /// It is lost: its receive is posted again.
    Lose,
    /// It arrives behind those of the next poll.
    Later,
}

/// Decides over a received message by its number, counted from 0 on this worker.
pub(crate) type Judge = Box<dyn FnMut(u64) -> Fate>;

/// The loopback transport under observation.
pub(crate) struct Watched<B: Buf> {
    inner: LoopTransport<B>,
    /// Frames of each message in flight, in queue order.
    posted: HashMap<QpId, VecDeque<u64>>,
    /// So many sends are refused as if the queue were full.
    pub(crate) refuse: u32,
    /// What becomes of received messages.
    pub(crate) judge: Judge,
    received: u64,
    late: VecDeque<Completion<B>>,
    /// Statuses other than success and flush.
    pub(crate) errors: Vec<Status>,
}

impl<B: Buf> Watched<B> {
    pub(crate) fn new(inner: LoopTransport<B>) -> Self {
        Watched {
            inner,
            posted: HashMap::new(),
            refuse: 0,
            judge: Box::new(|_| Fate::Arrive),
            received: 0,
            late: VecDeque::new(),
            errors: Vec::new(),
        }
    }

    /// Frames in messages whose completion has not been polled.
    pub(crate) fn frames_in_flight(&self) -> u64 {
        self.posted.values().flatten().sum()
    }

    /// Sends bytes as they are, beside the relay.
    pub(crate) fn forge(&mut self, qp: QpId, buf: B) {
        let posted = self.inner.post_send(qp, SendWr::new(Op::Send, buf, FORGED));
        assert!(posted.is_ok(), "a queue pair that takes sends");
        self.posted.entry(qp).or_default().push_back(0);
    }

    /// Notes a completion; gives it if the relay should see it.
    fn pass(&mut self, completion: Completion<B>) -> Option<Completion<B>> {
        if !matches!(completion.status, Status::Success | Status::WrFlushErr) {
            self.errors.push(completion.status);
        }
        if let Done::Sent(_) = completion.done {
            let queue = self.posted.get_mut(&completion.qp).expect("it was posted");
            queue.pop_front().expect("no more completions than requests");
            return (completion.cookie != FORGED).then_some(completion);
        }
        if completion.status != Status::Success {
            return Some(completion);
        }
        self.received += 1;
        match (self.judge)(self.received - 1) {
            Fate::Arrive => Some(completion),
            Fate::Later => {
                self.late.push_back(completion);
                None
            }
            Fate::Lose => {
                let Completion { qp, cookie, mut buf, .. } = completion;
                buf.truncate(0);
                let posted = self.inner.post_recv(qp, RecvWr { buf, cookie });
                assert!(posted.is_ok(), "there was room for it before");
                None
            }
        }
    }
}

/// Frames of a relay message.
fn frames<B: Buf>(buf: &B) -> u64 {
    let mut head = [0; MAX_HEADER];
    let n = copy_out(buf, 0, &mut head);
    let (header, lengths) = Header::parse(&head[..n], buf.len()).expect("a relay posts relay messages");
    assert_eq!(usize::from(header.frames), lengths.len());
    u64::from(header.frames)
}

impl<B: Buf> Transport for Watched<B> {
    type Buf = B;
    type Qp = LoopQp<B>;

    fn attach(&mut self, qp: LoopQp<B>) -> Result<QpId, LoopQp<B>> {
        self.inner.attach(qp)
    }

    fn detach(&mut self, qp: QpId) -> Option<LoopQp<B>> {
        if self.in_flight(qp) > 0 {
            return None;
        }
        assert!(self.posted.remove(&qp).is_none_or(|q| q.is_empty()), "messages of {qp:?} never completed");
        self.inner.detach(qp)
    }

    fn post_send(&mut self, qp: QpId, wr: SendWr<B>) -> Posted<SendWr<B>> {
        if self.refuse > 0 {
            self.refuse -= 1;
            return Err(Refused { wr, why: Refusal::Full });
        }
        let frames = frames(&wr.buf);
        self.inner.post_send(qp, wr)?;
        self.posted.entry(qp).or_default().push_back(frames);
        Ok(())
    }

    fn post_recv(&mut self, qp: QpId, wr: RecvWr<B>) -> Posted<RecvWr<B>> {
        self.inner.post_recv(qp, wr)
    }

    fn post_srq_recv(&mut self, srq: SrqId, wr: RecvWr<B>) -> Posted<RecvWr<B>> {
        self.inner.post_srq_recv(srq, wr)
    }

    fn flush(&mut self, now: Time, egress: &mut impl Egress<B>) {
        self.inner.flush(now, egress);
    }

    fn poll(&mut self, now: Time, out: &mut Completions<B>) -> usize {
        let before = out.len();
        let late = std::mem::take(&mut self.late);
        let mut fresh = Completions::new();
        self.inner.poll(now, &mut fresh);
        for completion in fresh {
            if let Some(completion) = self.pass(completion) {
                out.push(completion);
            }
        }
        for completion in late {
            if let Err(full) = out.try_push(completion) {
                self.late.push_back(full.element());
            }
        }
        out.len() - before
    }

    fn state(&self, qp: QpId) -> Option<QpState> {
        self.inner.state(qp)
    }

    fn send_room(&self, qp: QpId) -> usize {
        self.inner.send_room(qp)
    }

    fn recv_room(&self, qp: QpId) -> usize {
        self.inner.recv_room(qp)
    }

    fn in_flight(&self, qp: QpId) -> usize {
        self.inner.in_flight(qp) + self.late.iter().filter(|c| c.qp == qp).count()
    }

    fn fail(&mut self, qp: QpId) {
        self.inner.fail(qp);
    }

    fn next_timer(&self) -> Time {
        self.inner.next_timer()
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
