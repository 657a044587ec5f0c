//! A transport whose READs take their time: each unit of 64 bytes is read at another moment.

use rdma_engine::buf::{Buf, Egress, Pool};
use rdma_engine::heap::{HeapBuf, HeapPool};
use rdma_engine::loopback::{LoopQp, LoopTransport};
use rdma_engine::mem::Window;
use rdma_engine::qp::QpState;
use rdma_engine::sim::Rng;
use rdma_engine::transport::{Completions, Counters, Posted, Transport};
use rdma_engine::types::Time;
use rdma_engine::wr::{Completion, Done, Op, OpKind, QpId, RecvWr, Refusal, Refused, SendWr, SrqId, Status};
use std::collections::VecDeque;

const UNIT: usize = 64;

struct Held {
    completion: Completion<HeapBuf>,
    /// Where it was read.
    addr: u64,
    /// The turn in which it is given.
    due: u64,
}

/// In which buffers a READ's bytes are given: a transport may give others than were posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Given {
    /// Those that were posted.
    Posted,
    /// Without a byte of room behind the contents.
    Full,
    /// Chains of segments of so many bytes.
    Chained(usize),
}

impl Given {
    /// The same bytes as in `buf`.
    fn of(self, buf: HeapBuf) -> HeapBuf {
        let room = match self {
            Given::Posted => return buf,
            Given::Full => buf.len(),
            Given::Chained(bytes) => bytes,
        };
        let bytes = buf.to_vec();
        let pool = HeapPool::new(bytes.len().div_ceil(room), room);
        let segments = bytes.chunks(room).map(|part| {
            let mut segment = pool.alloc().expect("a pool for as many");
            segment.append(part.len()).expect("room for as many").copy_from_slice(part);
            segment
        });
        let chain = segments.reduce(|mut chain, segment| {
            chain.chain(segment).expect("few segments");
            chain
        });
        chain.unwrap_or(buf)
    }
}

/// The loopback transport, with READs that linger and tear.
pub struct Torn {
    inner: LoopTransport<HeapBuf>,
    /// Memory of peers, and its address there.
    windows: Vec<(Window, u64)>,
    /// Where the READs of each queue pair go, in their order.
    asked: Vec<(QpId, VecDeque<u64>)>,
    held: VecDeque<Held>,
    tear: u32,
    turn: u64,
    /// When the newest of what is held is given.
    due: u64,
    rng: Rng,
    /// READs that were seen at more than one moment.
    pub torn: u64,
    /// READs that may be under way at once on a queue pair, and completions that come back in a turn.
    pub narrow: Option<(usize, usize)>,
    /// In which buffers READs come back.
    pub given: Given,
    /// READs do not come back as long as this is so.
    pub keeps_reads: bool,
    /// Of what comes in one turn, what was sent comes before what was received, whichever was first.
    pub sends_first: bool,
}

impl Torn {
    /// Around `inner`; READs take up to `tear` turns.
    pub fn new(inner: LoopTransport<HeapBuf>, tear: u32, seed: u64) -> Self {
        Torn {
            inner,
            windows: vec![],
            asked: vec![],
            held: VecDeque::new(),
            tear,
            turn: 0,
            due: 0,
            rng: Rng::new(seed),
            torn: 0,
            narrow: None,
            given: Given::Posted,
            keeps_reads: false,
            sends_first: false,
        }
    }

    /// A peer's memory.
    pub fn look_at(&mut self, window: Window, addr: u64) {
        if !self.windows.iter().any(|(_, a)| *a == addr) {
            self.windows.push((window, addr));
        }
    }

    fn queue(&mut self, qp: QpId) -> &mut VecDeque<u64> {
        if let Some(at) = self.asked.iter().position(|(q, _)| *q == qp) {
            return &mut self.asked[at].1;
        }
        self.asked.push((qp, VecDeque::new()));
        &mut self.asked.last_mut().unwrap().1
    }

    /// The next of what is held that is to be given now.
    fn next_due(&self) -> Option<usize> {
        let is_given = |h: &Held| !self.keeps_reads || h.completion.done != Done::Sent(OpKind::Read);
        self.held.iter().position(is_given).filter(|at| self.held[*at].due <= self.turn)
    }

    /// A completion as it is given.
    fn give(&self, mut completion: Completion<HeapBuf>) -> Completion<HeapBuf> {
        if completion.done == Done::Sent(OpKind::Read) && completion.status == Status::Success {
            completion.buf = self.given.of(completion.buf);
        }
        completion
    }

    /// Some of what is held is read only now, from some unit on.
    fn tear(&mut self) {
        let Torn { windows, held, rng, torn, .. } = self;
        for h in held.iter_mut().filter(|h| h.addr != 0) {
            if !rng.chance(250_000) {
                continue;
            }
            let len = h.completion.buf.len();
            let Some((window, base)) =
                windows.iter().find(|(w, a)| (*a..*a + w.len() as u64).contains(&h.addr))
            else {
                continue;
            };
            let Some(bytes) = h.completion.buf.try_unique() else { continue };
            assert_eq!(bytes.len(), len, "a READ in one piece");
            let units = len.div_ceil(UNIT) as u64;
            let first = rng.below(units) as usize * UNIT;
            let last = (first + (1 + rng.below(units) as usize) * UNIT).min(len);
            let mut now = [0; UNIT];
            let mut again = false;
            for (n, unit) in bytes[first..last].chunks_mut(UNIT).enumerate() {
                let now = &mut now[..unit.len()];
                window.copy_out((h.addr - base) as usize + first + n * UNIT, now);
                again |= *now != *unit;
                unit.copy_from_slice(now);
            }
            *torn += u64::from(again);
        }
    }
}

impl Transport for Torn {
    type Buf = HeapBuf;
    type Qp = LoopQp<HeapBuf>;

    fn attach(&mut self, qp: Self::Qp) -> Result<QpId, Self::Qp> {
        self.inner.attach(qp)
    }

    fn detach(&mut self, qp: QpId) -> Option<Self::Qp> {
        if self.held.iter().any(|h| h.completion.qp == qp) {
            return None;
        }
        self.asked.retain(|(q, _)| *q != qp);
        self.inner.detach(qp)
    }

    fn post_send(&mut self, qp: QpId, wr: SendWr<HeapBuf>) -> Posted<SendWr<HeapBuf>> {
        let addr = match wr.op {
            Op::Read(slice) => Some(slice.addr),
            _ => None,
        };
        if addr.is_some() && self.send_room(qp) == 0 {
            return Err(Refused { wr, why: Refusal::Full });
        }
        self.inner.post_send(qp, wr)?;
        if let Some(addr) = addr {
            self.queue(qp).push_back(addr);
        }
        Ok(())
    }

    fn post_recv(&mut self, qp: QpId, wr: RecvWr<HeapBuf>) -> Posted<RecvWr<HeapBuf>> {
        self.inner.post_recv(qp, wr)
    }

    fn post_srq_recv(&mut self, srq: SrqId, wr: RecvWr<HeapBuf>) -> Posted<RecvWr<HeapBuf>> {
        self.inner.post_srq_recv(srq, wr)
    }

    fn flush(&mut self, now: Time, egress: &mut impl Egress<HeapBuf>) {
        self.inner.flush(now, egress);
    }

    fn poll(&mut self, now: Time, out: &mut Completions<HeapBuf>) -> usize {
        let mut got = Completions::new();
        self.inner.poll(now, &mut got);
        if self.sends_first {
            got.sort_by_key(|completion| matches!(completion.done, Done::Received(_)));
        }
        for completion in got {
            let addr = match completion.done {
                Done::Sent(OpKind::Read) => self.queue(completion.qp).pop_front().unwrap_or(0),
                _ => 0,
            };
            let read = addr != 0 && completion.status == Status::Success && self.tear > 0;
            let delay = if read { self.rng.below(u64::from(self.tear) + 1) } else { 0 };
            // In order: what is behind a READ waits for it.
            self.due = self.due.max(self.turn + delay);
            self.held.push_back(Held { completion, addr: if read { addr } else { 0 }, due: self.due });
        }
        let most = self.narrow.map_or(usize::MAX, |(_, a_turn)| a_turn);
        if self.tear > 0 {
            self.tear();
        }
        let before = out.len();
        while out.len() < out.capacity().min(before.saturating_add(most))
            && let Some(next) = self.next_due()
        {
            out.extend(self.held.remove(next).map(|h| self.give(h.completion)));
        }
        self.turn += 1;
        out.len() - before
    }

    fn state(&self, qp: QpId) -> Option<QpState> {
        self.inner.state(qp)
    }

    fn send_room(&self, qp: QpId) -> usize {
        let room = self.inner.send_room(qp);
        let Some((depth, _)) = self.narrow else { return room };
        let asked = self.asked.iter().find(|(q, _)| *q == qp).map_or(0, |(_, asked)| asked.len());
        let held = self.held.iter().filter(|h| h.completion.qp == qp).count();
        room.min(depth.saturating_sub(asked + held))
    }

    fn recv_room(&self, qp: QpId) -> usize {
        self.inner.recv_room(qp)
    }

    fn in_flight(&self, qp: QpId) -> usize {
        self.inner.in_flight(qp) + self.held.iter().filter(|h| h.completion.qp == qp).count()
    }

    fn fail(&mut self, qp: QpId) {
        self.inner.fail(qp);
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
