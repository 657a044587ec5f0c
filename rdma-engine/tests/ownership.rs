//! Buffers under random treatment: posts, completions, errors, swaps, slices, chains, drops. Nothing is lost, nothing
//! is freed twice, and no message arrives changed or out of turn.

mod rig;

use proptest::prelude::*;
use proptest::test_runner::Config;
use rdma_engine::buf::{Buf, Pool};
use rdma_engine::heap::HeapBuf;
use rdma_engine::mem::{Access, Region};
use rdma_engine::suite::{Link, Pair, Rig, Session, contents, pattern};
use rdma_engine::transport::{CqSpec, Device, Transport, WorkerSpec};
use rdma_engine::types::{QpType, Rkey};
use rdma_engine::wr::{Completion, Cookie, Done, Op, RecvWr, Refusal, SendWr, Status};
use rig::LoopRig;
use std::collections::{HashMap, VecDeque};

/// Where a buffer to post comes from.
#[derive(Clone, Debug)]
enum Source {
    /// The pool: so many bytes in so many segments.
    Fresh(usize, usize),
    /// What an earlier completion or operation left.
    Kept(prop::sample::Index),
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
    Add,
    WrongKey,
    OutOfBounds,
}

#[derive(Clone, Debug)]
enum Step {
    Send { end: usize, pair: usize, kind: Kind, source: Source, fence: bool },
    Recv { end: usize, pair: usize, source: Source },
    Turn,
    Flush(usize),
    Poll(usize),
    Fail { end: usize, pair: usize },
    Rebuild(usize),
    Restart(usize),
    Slice { end: usize, of: prop::sample::Index, from: prop::sample::Index, to: prop::sample::Index },
    Chain { end: usize, a: prop::sample::Index, b: prop::sample::Index },
    Cut { end: usize, of: prop::sample::Index, at: prop::sample::Index, front: bool },
    Free { end: usize, of: prop::sample::Index },
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![
        3 => (0usize..3000, 1usize..4).prop_map(|(len, segments)| Source::Fresh(len, segments)),
        2 => any::<prop::sample::Index>().prop_map(Source::Kept),
    ]
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        8 => Just(Kind::Send),
        4 => Just(Kind::SendImm),
        4 => Just(Kind::Write),
        3 => Just(Kind::WriteImm),
        4 => Just(Kind::Read),
        2 => Just(Kind::Add),
        1 => Just(Kind::WrongKey),
        1 => Just(Kind::OutOfBounds),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let (end, pair) = (0usize..2, 0usize..2);
    let index = any::<prop::sample::Index>;
    prop_oneof![
        10 => (end.clone(), pair.clone(), kind(), source(), any::<bool>())
            .prop_map(|(end, pair, kind, source, fence)| Step::Send { end, pair, kind, source, fence }),
        8 => (end.clone(), pair.clone(), source()).prop_map(|(end, pair, source)| Step::Recv { end, pair, source }),
        8 => Just(Step::Turn),
        1 => end.clone().prop_map(Step::Flush),
        1 => end.clone().prop_map(Step::Poll),
        1 => (end.clone(), pair.clone()).prop_map(|(end, pair)| Step::Fail { end, pair }),
        2 => pair.prop_map(Step::Rebuild),
        1 => end.clone().prop_map(Step::Restart),
        3 => (end.clone(), index(), index(), index()).prop_map(|(end, of, from, to)| Step::Slice { end, of, from, to }),
        2 => (end.clone(), index(), index()).prop_map(|(end, a, b)| Step::Chain { end, a, b }),
        2 => (end.clone(), index(), index(), any::<bool>())
            .prop_map(|(end, of, at, front)| Step::Cut { end, of, at, front }),
        2 => (end, index()).prop_map(|(end, of)| Step::Free { end, of }),
    ]
}

/// A pair of queue pairs in its present life.
struct Life {
    pair: Pair,
    alive: [bool; 2],
    /// Messages under way, by sending end: bytes, or nothing for a WRITE_IMM.
    messages: [VecDeque<Vec<u8>>; 2],
}

/// What was posted and has not come back: where, and what a send carried.
struct Posted {
    end: usize,
    carries: Option<Vec<u8>>,
}

struct World<'r> {
    s: Session<'r, LoopRig>,
    lives: Vec<Life>,
    regions: [Region; 2],
    posted: HashMap<Cookie, Posted>,
    kept: [Vec<HeapBuf>; 2],
    restarts: usize,
    sends: u64,
}

const WORKER_QPS: u16 = 8;

fn worker() -> WorkerSpec {
    WorkerSpec { cqs: vec![CqSpec { depth: 512, events: false }], srqs: vec![], max_qps: WORKER_QPS }
}

fn link(s: &Session<'_, LoopRig>) -> Link {
    let mut link = Link::new(QpType::Rc, &s.features);
    (link.caps.send_depth, link.caps.recv_depth) = (6, 6);
    (link.caps.send_sge, link.caps.recv_sge) = (4, 4);
    (link.timeout, link.retry_cnt, link.rnr_retry) = (5, 1, 3);
    link
}

impl<'r> World<'r> {
    fn new(rig: &'r mut LoopRig) -> Self {
        let mut s = Session::open_with(rig, &worker());
        let rights = Access::LOCAL_WRITE.and(Access::REMOTE_WRITE).and(Access::REMOTE_READ);
        let rights = rights.and(Access::REMOTE_ATOMIC);
        let regions = [s.region(0, 4096, rights), s.region(1, 4096, rights)];
        let lives = (0..2).map(|_| Life::new(&mut s)).collect();
        let kept = [vec![], vec![]];
        World { s, lives, regions, posted: HashMap::new(), kept, restarts: 0, sends: 0 }
    }

    /// A buffer to send, or an empty one; `None` when there is none.
    fn take(&mut self, end: usize, source: &Source, empty: bool) -> Option<HeapBuf> {
        match source {
            Source::Kept(i) if self.kept[end].is_empty() => {
                let _ = i;
                None
            }
            Source::Kept(i) => {
                let at = i.index(self.kept[end].len());
                Some(self.kept[end].swap_remove(at))
            }
            Source::Fresh(len, segments) => {
                let pool = &self.s.ends[end].pool;
                self.sends += 1;
                let bytes = if empty { vec![] } else { pattern(self.sends, *len) };
                let size = bytes.len().div_ceil(*segments).max(1);
                let mut parts = bytes.chunks(size);
                let mut buf = pool.alloc()?;
                for i in 0..*segments {
                    let bytes = parts.next().unwrap_or_default();
                    let mut part = if i == 0 { None } else { Some(pool.alloc()?) };
                    let target = part.as_mut().unwrap_or(&mut buf);
                    target.append(bytes.len())?.copy_from_slice(bytes);
                    if let Some(part) = part {
                        buf.chain(part).ok()?;
                    }
                }
                Some(buf)
            }
        }
    }

    fn keep(&mut self, end: usize, buf: HeapBuf) {
        self.kept[end].push(buf);
        if self.kept[end].len() > 24 {
            self.kept[end].remove(0);
        }
    }

    fn op(&self, end: usize, kind: Kind, len: usize) -> Op {
        let region = &self.regions[1 - end];
        let slice = region.slice(8, (len as u32).min(4000)).expect("inside");
        match kind {
            Kind::Send => Op::Send,
            Kind::SendImm => Op::SendImm(7),
            Kind::Write => Op::Write(slice),
            Kind::WriteImm => Op::WriteImm(slice, 8),
            Kind::Read => Op::Read(region.slice(0, 700).expect("inside")),
            Kind::Add => Op::FetchAdd { word: region.word(0).expect("aligned"), add: 1 },
            Kind::WrongKey => Op::Write(rdma_engine::wr::RemoteSlice { rkey: Rkey(3), ..slice }),
            Kind::OutOfBounds => {
                let addr = region.window().addr() + 4095;
                Op::Write(rdma_engine::wr::RemoteSlice { addr, ..slice })
            }
        }
    }

    fn send(&mut self, end: usize, pair: usize, kind: Kind, source: &Source, fence: bool) {
        if !self.lives[pair].alive[end] {
            return;
        }
        let fills = matches!(kind, Kind::Read | Kind::Add);
        let Some(buf) = self.take(end, source, fills) else { return };
        let (bytes, cookie) = (contents(&buf), self.s.cookie());
        let op = self.op(end, kind, bytes.len());
        let wr = SendWr { fence, ..SendWr::new(op, buf, cookie) };
        let life = &mut self.lives[pair];
        match self.s.ends[end].transport.post_send(life.pair.qp[end], wr) {
            Ok(()) => {
                match kind {
                    Kind::Send | Kind::SendImm => life.messages[end].push_back(bytes.clone()),
                    Kind::WriteImm => life.messages[end].push_back(vec![]),
                    _ => {}
                }
                let carries = (!fills).then_some(bytes);
                assert!(self.posted.insert(cookie, Posted { end, carries }).is_none());
            }
            Err(back) => {
                assert_eq!((back.wr.cookie, contents(&back.wr.buf)), (cookie, bytes));
                assert!(
                    !matches!(back.why, Refusal::Stale | Refusal::Device | Refusal::State),
                    "{:?}",
                    back.why
                );
                self.keep(end, back.wr.buf);
            }
        }
    }

    fn recv(&mut self, end: usize, pair: usize, source: &Source) {
        if !self.lives[pair].alive[end] {
            return;
        }
        let Some(buf) = self.take(end, source, true) else { return };
        let (usable, cookie) = (buf.is_empty() && buf.is_unique(), self.s.cookie());
        let qp = self.lives[pair].pair.qp[end];
        match self.s.ends[end].transport.post_recv(qp, RecvWr { buf, cookie }) {
            Ok(()) => {
                assert!(usable, "a receive into bytes that others see");
                assert!(self.posted.insert(cookie, Posted { end, carries: None }).is_none());
            }
            Err(back) => self.keep(end, back.wr.buf),
        }
    }

    /// Takes the completions that came.
    fn absorb(&mut self) {
        for end in 0..2 {
            while let Some(c) = self.s.ends[end].done.pop_front() {
                self.completed(end, c);
            }
            let pool = &self.s.ends[end].pool;
            assert!(pool.in_use() <= pool.capacity(), "freed twice");
        }
    }

    fn completed(&mut self, end: usize, c: Completion<HeapBuf>) {
        let posted = self.posted.remove(&c.cookie).expect("posted, and completed once");
        assert_eq!(posted.end, end);
        let life = self
            .lives
            .iter_mut()
            .find(|l| l.alive[end] && l.pair.qp[end] == c.qp)
            .expect("a living queue pair");
        match (c.status, c.done) {
            (Status::Success, Done::Received(r)) => {
                let sent = life.messages[1 - end].pop_front().expect("a message was sent");
                assert!(contents(&c.buf) == sent, "{} bytes sent, {} received", sent.len(), c.buf.len());
                assert!(r.written.is_none() || sent.is_empty());
            }
            (Status::Success, Done::Sent(_)) => {
                if let Some(carries) = posted.carries {
                    assert_eq!(contents(&c.buf), carries);
                }
            }
            _ => {}
        }
        self.keep(end, c.buf);
    }

    fn turn(&mut self) {
        self.s.step();
        self.absorb();
    }

    /// Everything of this pair comes back.
    fn drain(&mut self, pair: usize) {
        let Life { pair: Pair { qp, .. }, alive, .. } = self.lives[pair];
        let alive: Vec<usize> = (0..2).filter(|e| alive[*e]).collect();
        alive.iter().for_each(|e| self.s.ends[*e].transport.fail(qp[*e]));
        for _ in 0..100 {
            self.turn();
        }
        for end in alive {
            assert_eq!(self.s.ends[end].transport.in_flight(qp[end]), 0);
            let qp = self.s.ends[end].transport.detach(qp[end]).expect("drained");
            self.s.ends[end].device.destroy_qp(qp).expect("destroyed");
        }
        self.lives[pair].alive = [false; 2];
    }

    /// The worker of an end dies with all it has posted, and another takes its place.
    fn restart(&mut self, end: usize) {
        self.absorb();
        self.restarts += 1;
        let e = &mut self.s.ends[end];
        let stop_gap = e.device.create_worker(self.restarts, &worker()).expect("a worker");
        drop(std::mem::replace(&mut e.transport, stop_gap));
        e.transport = e.device.create_worker(0, &worker()).expect("the place is free");
        self.posted.retain(|_, p| p.end != end);
        self.lives.iter_mut().for_each(|l| l.alive[end] = false);
    }

    fn reshape(&mut self, step: &Step) {
        match step {
            Step::Slice { end, of, from, to } if !self.kept[*end].is_empty() => {
                let buf = of.get(&self.kept[*end]);
                let (x, y) = (from.index(buf.len() + 1), to.index(buf.len() + 1));
                let slice = self.s.ends[*end].pool.slice(buf, x.min(y), x.abs_diff(y));
                if let Some(slice) = slice {
                    assert_eq!(contents(&slice), contents(of.get(&self.kept[*end]))[x.min(y)..x.max(y)]);
                    self.keep(*end, slice);
                }
            }
            Step::Chain { end, a, b } if self.kept[*end].len() > 1 => {
                let at = b.index(self.kept[*end].len());
                let tail = self.kept[*end].swap_remove(at);
                let at = a.index(self.kept[*end].len());
                let head = &mut self.kept[*end][at];
                let mut want = contents(head);
                want.extend(contents(&tail));
                assert!(head.chain(tail).is_ok());
                assert_eq!(contents(head), want);
            }
            Step::Cut { end, of, at, front } if !self.kept[*end].is_empty() => {
                let i = of.index(self.kept[*end].len());
                let buf = &mut self.kept[*end][i];
                let (mut want, n) = (contents(buf), at.index(buf.len() + 1));
                if *front {
                    buf.adj(n);
                    want.drain(..n);
                } else {
                    buf.truncate(n);
                    want.truncate(n);
                }
                assert_eq!(contents(buf), want);
            }
            Step::Free { end, of } if !self.kept[*end].is_empty() => {
                let at = of.index(self.kept[*end].len());
                drop(self.kept[*end].swap_remove(at));
            }
            _ => {}
        }
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Send { end, pair, kind, source, fence } => self.send(*end, *pair, *kind, source, *fence),
            Step::Recv { end, pair, source } => self.recv(*end, *pair, source),
            Step::Turn => self.turn(),
            Step::Flush(end) => self.s.rig.flush(*end, &mut self.s.ends[*end].transport),
            Step::Poll(end) => {
                self.s.poll(*end);
                self.absorb();
            }
            Step::Fail { end, pair } if self.lives[*pair].alive[*end] => {
                self.s.ends[*end].transport.fail(self.lives[*pair].pair.qp[*end]);
            }
            Step::Rebuild(pair) => {
                self.drain(*pair);
                self.lives[*pair] = Life::new(&mut self.s);
            }
            Step::Restart(end) => self.restart(*end),
            other => self.reshape(other),
        }
    }

    /// Ends the world: all that is posted comes back, and then all pools are full.
    fn end(mut self, abruptly: bool) {
        if !abruptly {
            (0..2).for_each(|pair| self.drain(pair));
            assert_eq!(self.posted.len(), 0, "requests that never completed");
        }
        drop((self.kept, self.regions));
        self.s.finish();
    }
}

impl Life {
    fn new(s: &mut Session<'_, LoopRig>) -> Self {
        let link = link(s);
        Life { pair: s.connect(&link), alive: [true; 2], messages: Default::default() }
    }
}

fn config(cases: u32) -> Config {
    let cases = if cfg!(miri) { 3 } else { cases };
    Config { cases, failure_persistence: None, ..Config::default() }
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn every_buffer_comes_back_once(
        steps in prop::collection::vec(step(), 1..if cfg!(miri) { 40 } else { 150 }),
        abruptly in any::<bool>(),
    ) {
        let mut rig = LoopRig::default();
        let mut world = World::new(&mut rig);
        steps.iter().for_each(|step| world.run(step));
        world.end(abruptly);
    }
}
