//! Every operation in every direction at every path MTU, bytes compared one by one.

use crate::rig::InteropRig;
use rdma_engine::mem::{Access, Region};
use rdma_engine::suite::{A, B, Link, Pair, Rng, Session, contents, filled_chain, pattern};
use rdma_engine::types::{Pmtu, QpType};
use rdma_engine::wr::{Done, Op, OpKind, Received, SendWr, UdDest};

/// Bytes of the region at each end: the longest message at any odd place.
const REGION: usize = 8 << 10;
/// The atomics' word, behind everything else.
const WORD: usize = REGION - 8;

pub fn all_rights() -> Access {
    Access::LOCAL_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC)
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ask {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
    FetchAdd,
    CompareSwap,
}

const ASKS: [Ask; 7] =
    [Ask::Send, Ask::SendImm, Ask::Write, Ask::WriteImm, Ask::Read, Ask::FetchAdd, Ask::CompareSwap];

const fn asks(kind: QpType) -> &'static [Ask] {
    match kind {
        QpType::Rc => &ASKS,
        QpType::Uc => ASKS.split_at(4).0,
        QpType::Ud => ASKS.split_at(2).0,
    }
}

/// The matrix at work: both ends, and what their memory must hold.
pub struct Matrix<'r> {
    s: Session<'r, InteropRig>,
    regions: [Region; 2],
    shadows: [Vec<u8>; 2],
    rng: Rng,
    /// Where datagrams go, by sender.
    dests: Option<[UdDest; 2]>,
    done: u64,
}

impl<'r> Matrix<'r> {
    pub fn open(rig: &'r mut InteropRig, seed: u64) -> Self {
        let s = Session::open(rig);
        let regions = [A, B].map(|end| s.region(end, REGION, all_rights()));
        Matrix {
            s,
            regions,
            shadows: [vec![0; REGION], vec![0; REGION]],
            rng: Rng::new(seed),
            dests: None,
            done: 0,
        }
    }

    /// Every kind of queue pair at every path MTU with every operation from both ends, `lengths` of each. Returns how
    /// many operations that were.
    pub fn go_through(mut self, lengths: usize) -> u64 {
        for kind in [QpType::Rc, QpType::Uc, QpType::Ud] {
            for pmtu in Pmtu::ALL {
                let mut link = Link::new(kind, &self.s.features);
                link.pmtu = pmtu;
                let pair = self.s.connect(&link);
                self.dests =
                    (kind == QpType::Ud).then(|| [A, B].map(|end| self.s.ud_dest(end, &pair, link.qkey)));
                for (ask, from) in asks(kind).iter().flat_map(|ask| [(*ask, A), (*ask, B)]) {
                    for _ in 0..lengths {
                        let len = self.length(pmtu.bytes() as usize, kind);
                        self.one(&pair, ask, from, len);
                    }
                }
                self.s.tear_down(&pair);
            }
        }
        self.regions.iter().zip(&self.shadows).for_each(|(region, shadow)| check(region, shadow));
        drop(self.regions);
        self.s.finish();
        self.done
    }

    /// Around what cuts messages, or anything.
    fn length(&mut self, pmtu: usize, kind: QpType) -> usize {
        let len = match self.rng.below(6) {
            0 => self.rng.below(5),
            1 => pmtu - 1 + self.rng.below(3),
            2 => 2 * pmtu - 1 + self.rng.below(3),
            3 => 4096 - self.rng.below(4),
            _ => self.rng.below(4097),
        };
        // What a datagram may have is the port's affair: 4096.
        len.min(if kind == QpType::Ud { 4096 } else { 7 << 10 })
    }

    fn one(&mut self, pair: &Pair, ask: Ask, from: usize, len: usize) {
        match ask {
            Ask::Send => self.message(pair, from, len, None),
            Ask::SendImm => self.message(pair, from, len, Some(self.done as u32 | 0xA500_0000)),
            Ask::Write => self.write(pair, from, len, None),
            Ask::WriteImm => self.write(pair, from, len, Some(self.done as u32 | 0x5A00_0000)),
            Ask::Read => self.read(pair, from, len),
            Ask::FetchAdd | Ask::CompareSwap => self.atomic(pair, from, ask),
        }
        self.done += 1;
    }

    fn message(&mut self, pair: &Pair, from: usize, len: usize, imm: Option<u32>) {
        let (to, s) = (1 - from, &mut self.s);
        let bytes = pattern(self.done + 1, len);
        // A datagram may come with 40 bytes in front, which are stripped.
        let r = s.recv(to, pair.qp[to], len + 40);
        let ud = self.dests.map(|dests| dests[from]);
        let (buf, cookie) = (filled_chain(&s.ends[from].pool, &bytes, 1 + len % 3), s.cookie());
        let wr = SendWr::new(imm.map_or(Op::Send, Op::SendImm), buf, cookie);
        s.post(from, pair.qp[from], SendWr { ud, ..wr });
        let got = s.wait_ok(to, r);
        assert_eq!(contents(&got.buf), bytes, "{len} bytes from end {from}");
        let Done::Received(note) = got.done else { panic!("{:?} for a receive", got.done) };
        assert_eq!((note.imm, note.written), (imm, None));
        assert_eq!(note.source.map(|source| source.qpn), ud.map(|_| pair.qpn[from]));
        assert_eq!(s.wait_ok(from, cookie).done, Done::Sent(OpKind::Send));
    }

    fn write(&mut self, pair: &Pair, from: usize, len: usize, imm: Option<u32>) {
        let (to, bytes) = (1 - from, pattern(self.done + 1, len));
        let at = self.rng.below(WORD - len);
        self.shadows[to][at..at + len].copy_from_slice(&bytes);
        let slice = self.regions[to].slice(at, len as u32).expect("inside");
        let Some(imm) = imm else {
            let c = self.s.send(from, pair.qp[from], Op::Write(slice), &bytes);
            assert_eq!(self.s.wait_ok(from, c).done, Done::Sent(OpKind::Write));
            return self.settle(pair, from, to);
        };
        let r = self.s.recv(to, pair.qp[to], 0);
        let c = self.s.send(from, pair.qp[from], Op::WriteImm(slice, imm), &bytes);
        let note = Received { imm: Some(imm), written: Some(len as u32), ..Received::default() };
        assert_eq!(self.s.wait_ok(to, r).done, Done::Received(note));
        self.s.wait_ok(from, c);
        check(&self.regions[to], &self.shadows[to]);
    }

    /// Unreliable writes are complete when they are sent: something behind them tells that they have arrived.
    fn settle(&mut self, pair: &Pair, from: usize, to: usize) {
        let r = self.s.recv(to, pair.qp[to], 8);
        let c = self.s.send(from, pair.qp[from], Op::Send, b"behind");
        self.s.wait_ok(to, r);
        self.s.wait_ok(from, c);
        check(&self.regions[to], &self.shadows[to]);
    }

    fn read(&mut self, pair: &Pair, from: usize, len: usize) {
        let (to, at) = (1 - from, self.rng.below(WORD - len));
        let slice = self.regions[to].slice(at, len as u32).expect("inside");
        let c = self.s.fetch(from, pair.qp[from], Op::Read(slice));
        let got = self.s.wait_ok(from, c);
        assert_eq!(contents(&got.buf), self.shadows[to][at..at + len], "{len} bytes at {at} to end {from}");
    }

    fn atomic(&mut self, pair: &Pair, from: usize, ask: Ask) {
        let to = 1 - from;
        let word = self.regions[to].word(WORD).expect("aligned");
        let cell = &mut self.shadows[to][WORD..];
        let before = u64::from_ne_bytes(cell.try_into().expect("8 bytes"));
        let (value, hits) = (self.rng.bits(), self.rng.once_in(2));
        let (op, after) = match ask {
            Ask::FetchAdd => (Op::FetchAdd { word, add: value }, before.wrapping_add(value)),
            _ if hits => (Op::CompareSwap { word, compare: before, swap: value }, value),
            _ => (Op::CompareSwap { word, compare: !before, swap: value }, before),
        };
        cell.copy_from_slice(&after.to_ne_bytes());
        let c = self.s.fetch(from, pair.qp[from], op);
        assert_eq!(contents(&self.s.wait_ok(from, c).buf), before.to_ne_bytes(), "{op:?} from end {from}");
        check(&self.regions[to], &self.shadows[to]);
    }
}

fn check(region: &Region, shadow: &[u8]) {
    let mut memory = vec![0; shadow.len()];
    region.window().copy_out(0, &mut memory);
    let wrong = memory.iter().zip(shadow).position(|(is, must)| is != must);
    assert_eq!(wrong, None, "first wrong byte");
}
