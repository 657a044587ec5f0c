//! Buffers through queues that fail: random posts, completions, errors, swaps of queue pairs and drops on the loopback
//! transport, with any kind of buffer. Nothing is lost, nothing is freed twice, no byte in flight changes.

use super::{Rng, contents};
use crate::buf::{Buf, NoEgress, Pool};
use crate::loopback::{Hub, LoopTransport, Loopback};
use crate::mem::Access;
use crate::qp::{AddressVector, BringUp, InitAttr, QpCaps, QpSpec, RtrAttr, RtsAttr};
use crate::transport::{Completions, CqSpec, Device, Transport, WorkerSpec};
use crate::types::{Pmtu, Psn, QpType, Time};
use crate::wr::{Completion, Cookie, Done, Op, QpId, RecvWr, SendWr, Status};
use std::collections::VecDeque;

/// Pairs of queue pairs.
const PAIRS: usize = 3;
/// Depth of each queue.
const DEPTH: u32 = 6;
/// Segments of a request.
const SGE: u16 = 4;
/// Buffers in hand at most.
const HANDS: usize = 24;

/// Both ends of one pair, and what was sent each way and may still arrive.
struct Link {
    qps: [Option<QpId>; 2],
    sent: [VecDeque<Vec<u8>>; 2],
    reliable: bool,
}

struct World<'p, P: Pool> {
    pool: &'p P,
    headers: &'p P,
    devices: [Loopback<P::Buf>; 2],
    workers: [LoopTransport<P::Buf>; 2],
    links: Vec<Link>,
    /// Buffers in hand and their contents.
    live: Vec<(P::Buf, Vec<u8>)>,
    /// Contents of posted sends, by cookie.
    posted: Vec<Option<Vec<u8>>>,
    rng: Rng,
    now: Time,
}

/// Runs `steps` random steps, drops everything and checks that each buffer is in its pool exactly once.
///
/// # Panics
/// If a buffer is lost, freed twice or changed while in flight. The pool needs 200 buffers, `headers` likewise.
pub fn random_ownership<P: Pool>(pool: &P, headers: &P, seed: u64, steps: u32) {
    let mut world = World::new(pool, headers, seed);
    (0..steps).for_each(|_| world.step());
    drop(world);
    for pool in [pool, headers] {
        assert_eq!(pool.available(), pool.capacity(), "seed {seed}: buffers are missing");
        each_is_there_once(pool);
    }
}

/// Takes everything out: a buffer that was freed twice comes twice.
fn each_is_there_once<P: Pool>(pool: &P) {
    let out: Vec<P::Buf> = std::iter::from_fn(|| pool.alloc()).take(2 * pool.capacity()).collect();
    let mut starts: Vec<usize> = out.iter().map(|b| b.first().as_ptr() as usize).collect();
    starts.sort_unstable();
    starts.dedup();
    assert_eq!((out.len(), starts.len()), (pool.capacity(), pool.capacity()), "a buffer was freed twice");
}

impl<'p, P: Pool> World<'p, P> {
    fn new(pool: &'p P, headers: &'p P, seed: u64) -> Self {
        let hub = Hub::new();
        let devices = [hub.device(), hub.device()];
        let spec = WorkerSpec {
            cqs: vec![CqSpec { depth: 2 * DEPTH * PAIRS as u32, events: false }],
            srqs: vec![],
            max_qps: PAIRS as u16,
        };
        let workers = [0, 1].map(|i| devices[i].create_worker(0, &spec).expect("a worker"));
        let link =
            |i| Link { qps: [None; 2], sent: [VecDeque::new(), VecDeque::new()], reliable: i != PAIRS - 1 };
        let links = (0..PAIRS).map(link).collect();
        let (rng, now) = (Rng::new(seed), Time(0));
        let mut world =
            World { pool, headers, devices, workers, links, live: vec![], posted: vec![], rng, now };
        (0..PAIRS).for_each(|link| world.connect(link));
        world
    }

    /// New queue pairs for a link that has none.
    fn connect(&mut self, link: usize) {
        if self.links[link].qps != [None; 2] {
            return;
        }
        let kind = if self.links[link].reliable { QpType::Rc } else { QpType::Uc };
        let caps = QpCaps {
            send_depth: DEPTH,
            recv_depth: DEPTH,
            send_sge: SGE,
            recv_sge: SGE,
            ..QpCaps::default()
        };
        let init = InitAttr { access: Access::LOCAL_WRITE, qkey: 0 };
        let spec = QpSpec { kind, caps, srq: None, cq: 0 };
        let made = [0, 1]
            .map(|i| BringUp::create(&self.devices[i], 0, &spec).and_then(|qp| qp.init(init)).expect("a QP"));
        let at = [0, 1].map(|i| (made[i].qpn(), self.devices[i].gid()));
        let paused = made.map(BringUp::pause);
        for (i, qp) in paused.into_iter().enumerate() {
            let rtr = RtrAttr {
                path: AddressVector::to(at[1 - i].1, 0),
                dest_qpn: at[1 - i].0,
                rq_psn: Psn::new(0),
                pmtu: Pmtu::B256,
                max_dest_rd_atomic: 1,
                min_rnr_timer: 1,
            };
            let rts =
                RtsAttr { sq_psn: Psn::new(0), timeout: 1, retry_cnt: 1, rnr_retry: 1, max_rd_atomic: 1 };
            let up = BringUp::resume(&self.devices[i], qp).rtr(rtr).and_then(|qp| qp.rts(rts));
            let id = self.workers[i].attach(up.expect("a QP in RTS")).expect("a place");
            self.links[link].qps[i] = Some(id);
        }
        self.links[link].sent.iter_mut().for_each(VecDeque::clear);
    }

    fn step(&mut self) {
        let (end, link) = (self.rng.below(2), self.rng.below(PAIRS));
        match self.rng.below(24) {
            0..4 => self.make(),
            4 => self.chain(),
            5 | 6 => self.slice(),
            7 => drop(self.take()),
            8..13 => self.send(end, link),
            13..17 => self.receive(end, link),
            17 => {
                if let Some(qp) = self.links[link].qps[end].filter(|_| self.rng.once_in(3)) {
                    self.workers[end].fail(qp);
                }
            }
            18 => self.swap(link),
            // A look at one end only.
            19 => self.turn(end),
            _ => (0..2).for_each(|end| self.turn(end)),
        }
        self.now = self.now.after_ns(3_000);
        assert!(self.live.iter().all(|(buf, bytes)| contents(buf) == *bytes), "bytes in hand have changed");
    }

    fn take(&mut self) -> Option<(P::Buf, Vec<u8>)> {
        if self.live.is_empty() {
            return None;
        }
        let at = self.rng.below(self.live.len());
        Some(self.live.swap_remove(at))
    }

    fn keep(&mut self, buf: P::Buf, bytes: Vec<u8>) {
        if self.live.len() < HANDS {
            self.live.push((buf, bytes));
        }
    }

    fn make(&mut self) {
        let Some(mut buf) = self.pool.alloc() else { return };
        let stamp = self.rng.bits();
        let len = self.rng.below(self.pool.buf_room().min(400));
        let bytes: Vec<u8> = (0..len).map(|i| (stamp >> (i % 7 * 8)) as u8 ^ i as u8).collect();
        buf.append(len).expect("room").copy_from_slice(&bytes);
        self.keep(buf, bytes);
    }

    fn chain(&mut self) {
        let Some((mut head, mut bytes)) = self.take() else { return };
        if let Some((tail, more)) = self.take() {
            match head.chain(tail) {
                Ok(()) => bytes.extend(more),
                Err(tail) => self.keep(tail, more),
            }
        }
        self.keep(head, bytes);
    }

    fn slice(&mut self) {
        let Some((buf, bytes)) = self.take() else { return };
        if !bytes.is_empty() {
            let offset = self.rng.below(bytes.len());
            let len = 1 + self.rng.below(bytes.len() - offset);
            if let Some(slice) = self.headers.slice(&buf, offset, len) {
                self.keep(slice, bytes[offset..offset + len].to_vec());
            }
        }
        self.keep(buf, bytes);
    }

    /// Posts a buffer; what is refused comes back as it was.
    fn send(&mut self, end: usize, link: usize) {
        let Some(qp) = self.links[link].qps[end] else { return };
        let Some((buf, bytes)) = self.take() else { return };
        let cookie = Cookie(self.posted.len() as u64);
        match self.workers[end].post_send(qp, SendWr::new(Op::Send, buf, cookie)) {
            Ok(()) => {
                self.posted.push(Some(bytes.clone()));
                self.links[link].sent[end].push_back(bytes);
            }
            Err(refused) => {
                assert!(contents(&refused.wr.buf) == bytes, "refused for {} and changed", refused.why);
                self.keep(refused.wr.buf, bytes);
            }
        }
    }

    fn receive(&mut self, end: usize, link: usize) {
        let Some(qp) = self.links[link].qps[end] else { return };
        let Some(mut buf) = self.pool.alloc() else { return };
        for _ in 0..self.rng.below(usize::from(SGE)) {
            if let Some(more) = self.pool.alloc() {
                assert!(buf.chain(more).is_ok());
            }
        }
        // A refused one goes home by itself.
        drop(self.workers[end].post_recv(qp, RecvWr { buf, cookie: Cookie(link as u64) }));
    }

    /// Gives a link up at both ends; it gets new queue pairs once all buffers are back.
    fn swap(&mut self, link: usize) {
        for end in 0..2 {
            let Some(qp) = self.links[link].qps[end] else { continue };
            self.workers[end].fail(qp);
            if self.rng.once_in(2) {
                self.turn(end);
            }
            let Some(gone) = self.workers[end].detach(qp) else { continue };
            self.devices[end].destroy_qp(gone).expect("it can be destroyed");
            self.links[link].qps[end] = None;
        }
        self.connect(link);
    }

    fn turn(&mut self, end: usize) {
        self.workers[end].flush(self.now, &mut NoEgress);
        let mut done = Completions::new();
        self.workers[end].poll(self.now, &mut done);
        for completion in done {
            self.complete(end, completion);
        }
    }

    fn complete(&mut self, end: usize, completion: Completion<P::Buf>) {
        let Completion { qp, cookie, done, status, buf } = completion;
        if let Done::Sent(_) = done {
            let bytes = self.posted[cookie.0 as usize].take().expect("a request completes once");
            assert!(contents(&buf) == bytes, "bytes in flight have changed ({status})");
            return self.keep(buf, bytes);
        }
        let link = cookie.0 as usize;
        if status != Status::Success {
            return;
        }
        assert_eq!(self.links[link].qps[end], Some(qp), "a completion of a queue pair that is gone");
        let got = contents(&buf);
        let Link { sent, reliable, .. } = &mut self.links[link];
        let came = sent[1 - end].iter().position(|bytes| *bytes == got).expect("somebody sent this");
        assert!(came == 0 || !*reliable, "{came} messages were left out");
        sent[1 - end].drain(..=came);
        self.keep(buf, got);
    }
}
