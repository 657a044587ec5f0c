//! The soak: random operations both ways at once, memory and payload compared byte by byte.

use super::bytes::{contents, filled_chain, pattern};
use super::case::Case;
use super::session::{A, B, Link, Pair, Session, all_rights};
use super::{Rig, Rng, empty_chain};
use crate::buf::Pool;
use crate::mem::Region;
use crate::transport::Transport;
use crate::types::QpType;
use crate::wr::{Completion, Cookie, Done, Op, Received, RecvWr, RemoteSlice, SendWr, Status};
use std::collections::VecDeque;

pub(super) fn cases<R: Rig>() -> Vec<Case<R>> {
    vec![Case::always("rc_soak", soak)]
}

/// Receives kept posted at each end of a pair.
const RECEIVES: usize = 16;
/// Requests in flight at most from each end of a pair.
const WINDOW: usize = 16;
/// Pairs of queue pairs at work at once.
const PAIRS: usize = 2;
/// Pieces the remote region is cut into; the first 8 hold one atomic cell each.
const PLACES: usize = 24;

/// What must come out of one request.
struct Asked {
    cookie: Cookie,
    op: Op,
    /// Bytes that come back.
    returns: Vec<u8>,
    place: usize,
}

/// One direction: what `from` asks of the other end, and what the other end's memory must hold.
struct Direction {
    from: usize,
    pair: Pair,
    rng: Rng,
    left: u32,
    region: Region,
    place_len: usize,
    shadow: Vec<u8>,
    asked: VecDeque<Asked>,
    /// READs outstanding, by place.
    reading: [u32; PLACES],
    /// Receives in the order the messages must arrive.
    arriving: VecDeque<(Vec<u8>, Received)>,
    posted: VecDeque<Cookie>,
    done: [u64; 2],
}

impl Direction {
    fn new<R: Rig>(s: &Session<'_, R>, from: usize, pair: Pair, number: u64) -> Self {
        let place_len = s.features.max_message.next_multiple_of(8);
        let region = s.region(1 - from, PLACES * place_len, all_rights());
        Direction {
            from,
            pair,
            rng: Rng::new(s.features.seed * 1024 + number),
            left: s.features.soak_ops / PAIRS as u32,
            shadow: vec![0; PLACES * place_len],
            region,
            place_len,
            asked: VecDeque::new(),
            reading: [0; PLACES],
            arriving: VecDeque::new(),
            posted: VecDeque::new(),
            done: [0; 2],
        }
    }

    fn finished(&self) -> bool {
        self.left == 0 && self.asked.is_empty() && self.arriving.is_empty()
    }

    /// Mostly short lengths, some around packets, some as long as can be.
    fn length<R: Rig>(&mut self, s: &Session<'_, R>) -> usize {
        let (most, pmtu) = (s.features.max_message, s.features.pmtu.bytes() as usize);
        let len = match self.rng.below(8) {
            0 => 0,
            1 => pmtu - 1 + self.rng.below(3),
            2 => 2 * pmtu - 1 + self.rng.below(3),
            3 => self.rng.below(most + 1),
            _ => self.rng.below(300),
        };
        len.min(most)
    }

    /// A random range of a random place behind the cells.
    fn range<R: Rig>(&mut self, s: &Session<'_, R>) -> (usize, usize, RemoteSlice) {
        let place = 8 + self.rng.below(PLACES - 8);
        self.range_of(s, place)
    }

    fn range_of<R: Rig>(&mut self, s: &Session<'_, R>, place: usize) -> (usize, usize, RemoteSlice) {
        let len = self.length(s);
        let offset = place * self.place_len + self.rng.below(self.place_len - len + 1);
        (place, offset, self.region.slice(offset, len as u32).expect("inside"))
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        pattern(self.rng.bits(), len)
    }

    /// Keeps receives posted at the far end, in chains of random shape.
    fn feed<R: Rig>(&mut self, s: &mut Session<'_, R>) {
        let to = 1 - self.from;
        while self.posted.len() < RECEIVES {
            let room = s.ends[to].pool.buf_room();
            let least = s.features.max_message.div_ceil(room).max(1);
            let segments = least + self.rng.below(16 - least + 1).min(2);
            let wr = RecvWr { buf: empty_chain(&s.ends[to].pool, segments), cookie: s.cookie() };
            self.posted.push_back(wr.cookie);
            assert!(s.ends[to].transport.post_recv(self.pair.qp[to], wr).is_ok(), "the receive is taken");
        }
    }

    /// Posts one random request, and applies it to the shadow.
    fn ask<R: Rig>(&mut self, s: &mut Session<'_, R>) {
        let (op, bytes, returns, place) = match self.rng.below(7) {
            0 | 1 if self.arriving.len() < RECEIVES / 2 => self.message(s),
            2 if self.arriving.len() < RECEIVES / 2 => {
                let (place, offset, slice) = self.range(s);
                let (bytes, imm) = (self.write(offset, slice.len), self.rng.bits() as u32);
                let note = Received { imm: Some(imm), written: Some(slice.len), ..Received::default() };
                self.arriving.push_back((vec![], note));
                (Op::WriteImm(slice, imm), bytes, vec![], place)
            }
            3 => {
                let (place, offset, slice) = self.range(s);
                self.reading[place] += 1;
                (Op::Read(slice), vec![], self.shadow[offset..offset + slice.len as usize].to_vec(), place)
            }
            4 => self.atomic(),
            _ => {
                let (place, offset, slice) = self.range(s);
                (Op::Write(slice), self.write(offset, slice.len), vec![], place)
            }
        };
        let cookie = s.cookie();
        let segments = 1 + self.rng.below(3);
        let buf = if op.fills_buffer() {
            s.room_for(self.from, returns.len())
        } else {
            filled_chain(&s.ends[self.from].pool, &bytes, segments)
        };
        // Without a fence a READ may be served again, by a retry, after what follows it.
        let overwrites = !op.fills_buffer() && self.reading[place] > 0;
        let fence = overwrites || self.rng.once_in(10);
        let wr = SendWr { fence, solicited: self.rng.once_in(2), ..SendWr::new(op, buf, cookie) };
        s.post(self.from, self.pair.qp[self.from], wr);
        self.asked.push_back(Asked { cookie, op, returns, place });
        self.left -= 1;
    }

    fn message<R: Rig>(&mut self, s: &Session<'_, R>) -> (Op, Vec<u8>, Vec<u8>, usize) {
        let len = self.length(s);
        let bytes = self.bytes(len);
        let imm = self.rng.once_in(2).then(|| self.rng.bits() as u32);
        self.arriving.push_back((bytes.clone(), Received { imm, ..Received::default() }));
        (imm.map_or(Op::Send, Op::SendImm), bytes, vec![], 0)
    }

    fn write(&mut self, offset: usize, len: u32) -> Vec<u8> {
        let bytes = self.bytes(len as usize);
        self.shadow[offset..offset + bytes.len()].copy_from_slice(&bytes);
        bytes
    }

    fn atomic(&mut self) -> (Op, Vec<u8>, Vec<u8>, usize) {
        let place = self.rng.below(8);
        let at = place * self.place_len;
        let word = self.region.word(at).expect("aligned");
        let before = u64::from_ne_bytes(self.shadow[at..at + 8].try_into().expect("8 bytes"));
        let (op, after) = if self.rng.once_in(2) {
            let add = self.rng.bits();
            (Op::FetchAdd { word, add }, before.wrapping_add(add))
        } else {
            let (hits, swap) = (self.rng.once_in(2), self.rng.bits());
            let compare = if hits { before } else { !before };
            (Op::CompareSwap { word, compare, swap }, if hits { swap } else { before })
        };
        self.shadow[at..at + 8].copy_from_slice(&after.to_ne_bytes());
        (op, vec![], before.to_ne_bytes().to_vec(), place)
    }

    /// Checks a completion at the asking end.
    fn asked_done<B: crate::buf::Buf>(&mut self, c: &Completion<B>) {
        let asked = self.asked.pop_front().expect("something was asked");
        assert_eq!(
            (c.cookie, c.status, c.done),
            (asked.cookie, Status::Success, Done::Sent(asked.op.kind()))
        );
        if asked.op.fills_buffer() {
            assert_eq!(contents(&c.buf), asked.returns, "{:?}", asked.op);
        }
        if asked.op.kind() == crate::wr::OpKind::Read {
            self.reading[asked.place] -= 1;
        }
        self.done[0] += 1;
    }

    /// Checks a receive at the far end.
    fn arrived<B: crate::buf::Buf>(&mut self, c: &Completion<B>) {
        let (bytes, note) = self.arriving.pop_front().expect("something is arriving");
        let cookie = self.posted.pop_front().expect("a receive was posted");
        assert_eq!((c.cookie, c.status, c.done), (cookie, Status::Success, Done::Received(note)));
        assert_eq!(contents(&c.buf), bytes);
        self.done[1] += 1;
    }

    fn check_memory(&self) {
        let mut memory = vec![0; self.shadow.len()];
        self.region.window().copy_out(0, &mut memory);
        let wrong = memory.iter().zip(&self.shadow).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "first wrong byte of the memory that end {} wrote", self.from);
    }
}

/// Gives a completion at `end` to the direction it belongs to.
fn hand_out<B: crate::buf::Buf>(ways: &mut [Direction], end: usize, c: &Completion<B>) {
    let sent = matches!(c.done, Done::Sent(_));
    let from = if sent { end } else { 1 - end };
    let way = ways.iter_mut().find(|w| w.from == from && w.pair.qp[end] == c.qp);
    let way = way.expect("a completion of one of the pairs");
    if sent { way.asked_done(c) } else { way.arrived(c) }
}

fn soak<R: Rig>(rig: &mut R) {
    let mut s = Session::open(rig);
    let link = Link::new(QpType::Rc, &s.features);
    let pairs = [(); PAIRS].map(|()| s.connect(&link));
    let mut ways = vec![];
    for (pair, from) in pairs.iter().flat_map(|p| [(*p, A), (*p, B)]) {
        ways.push(Direction::new(&s, from, pair, ways.len() as u64));
    }
    let mut last = s.now();
    while !ways.iter().all(Direction::finished) {
        for way in &mut ways {
            way.feed(&mut s);
            let burst = 1 + way.rng.below(8);
            for _ in 0..burst {
                if way.left > 0 && way.asked.len() < WINDOW {
                    way.ask(&mut s);
                }
            }
        }
        s.step();
        for end in [A, B] {
            for c in std::mem::take(&mut s.ends[end].done) {
                hand_out(&mut ways, end, &c);
                last = s.now();
            }
        }
        let stalled = s.now().since_ns(last);
        assert!(stalled < s.features.patience_ns, "nothing completed for {stalled} ns");
    }
    ways.iter().for_each(Direction::check_memory);
    for end in [A, B] {
        let c = s.ends[end].transport.counters();
        let total = |from: usize, i: usize| ways.iter().filter(|w| w.from == from).map(|w| w.done[i]).sum();
        let want: (u64, u64) = (total(end, 0), total(1 - end, 1));
        assert_eq!((c.sends_completed, c.receives_completed), want);
        assert_eq!((c.sends_posted, c.errors, c.flushed, c.stale), (c.sends_completed, 0, 0, 0));
    }
    drop(ways);
    pairs.iter().for_each(|p| s.tear_down(p));
    s.finish();
}
