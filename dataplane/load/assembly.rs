//! Replies of several datagrams, put together in whatever order they come.

use crate::memcached::udp::FrameHeader;

/// Most datagrams of one reply.
const PARTS: usize = 256;
/// Bytes that all buffers have together at most, where that leaves [`LEAST`] of them.
const BUDGET_BYTES: usize = 64 << 20;
const LEAST: usize = 32;

/// What a datagram made of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// More is to come.
    Partial,
    /// It is whole.
    Whole,
    /// The datagrams contradict each other, or are more than anything that was asked for.
    Nonsense,
}

/// A reply in the making.
#[derive(Debug)]
struct Assembly {
    bytes: Box<[u8]>,
    have: [u64; PARTS / 64],
    count: u16,
    parts: u16,
    /// Bytes of every datagram but the last; 0 while unknown.
    part_bytes: usize,
    /// The last one waits at the end of `bytes` until all others are there.
    last_bytes: usize,
}

impl Assembly {
    fn clear(&mut self) {
        (self.have, self.count, self.parts) = ([0; PARTS / 64], 0, 0);
        (self.part_bytes, self.last_bytes) = (0, 0);
    }

    fn add<'p>(
        &mut self,
        header: &FrameHeader,
        len: usize,
        pieces: impl Iterator<Item = &'p [u8]>,
    ) -> Progress {
        let (index, parts) = (header.sequence.get(), header.datagrams.get());
        if self.parts == 0 {
            self.parts = parts;
        }
        if parts != self.parts || index >= parts || usize::from(parts) > PARTS || len == 0 {
            return Progress::Nonsense;
        }
        let (word, bit) = (usize::from(index / 64), 1 << (index % 64));
        if self.have[word] & bit != 0 {
            return Progress::Partial;
        }
        let is_last = index + 1 == parts;
        if is_last {
            self.last_bytes = len;
        } else if self.part_bytes == 0 {
            self.part_bytes = len;
        } else if self.part_bytes != len {
            return Progress::Nonsense;
        }
        if self.front_bytes() + self.last_bytes > self.bytes.len() {
            return Progress::Nonsense;
        }
        let at = if is_last { self.bytes.len() - len } else { usize::from(index) * len };
        let mut place = &mut self.bytes[at..at + len];
        for piece in pieces {
            let (now, later) = place.split_at_mut(piece.len().min(place.len()));
            now.copy_from_slice(&piece[..now.len()]);
            place = later;
        }
        self.have[word] |= bit;
        self.count += 1;
        if self.count == parts { Progress::Whole } else { Progress::Partial }
    }

    /// Bytes of all datagrams but the last.
    fn front_bytes(&self) -> usize {
        usize::from(self.parts - 1) * self.part_bytes
    }

    /// The reply, in two pieces.
    fn pieces(&self) -> [&[u8]; 2] {
        [&self.bytes[..self.front_bytes()], &self.bytes[self.bytes.len() - self.last_bytes..]]
    }
}

/// A bounded number of replies in the making.
#[derive(Debug)]
pub(super) struct Assemblies {
    all: Box<[Assembly]>,
    free: Vec<u16>,
}

impl Assemblies {
    /// Buffers for as many of `outstanding` replies of `reply_bytes` as the budget allows.
    pub(super) fn new(outstanding: usize, reply_bytes: usize) -> Self {
        let count = outstanding.min((BUDGET_BYTES / reply_bytes).max(LEAST)).min(usize::from(u16::MAX) - 1);
        let one = || Assembly {
            bytes: vec![0; reply_bytes].into_boxed_slice(),
            have: [0; PARTS / 64],
            count: 0,
            parts: 0,
            part_bytes: 0,
            last_bytes: 0,
        };
        Assemblies { all: (0..count).map(|_| one()).collect(), free: (0..count as u16).collect() }
    }

    /// A buffer; `None` if all are taken.
    pub(super) fn take(&mut self) -> Option<u16> {
        let index = self.free.pop()?;
        self.all[usize::from(index)].clear();
        Some(index)
    }

    /// Gives a buffer back.
    pub(super) fn give(&mut self, index: u16) {
        self.free.push(index);
    }

    /// Adds a datagram of `len` bytes behind its header.
    pub(super) fn add<'p>(
        &mut self,
        index: u16,
        header: &FrameHeader,
        len: usize,
        pieces: impl Iterator<Item = &'p [u8]>,
    ) -> Progress {
        self.all[usize::from(index)].add(header, len, pieces)
    }

    /// A whole reply.
    pub(super) fn pieces(&self, index: u16) -> [&[u8]; 2] {
        self.all[usize::from(index)].pieces()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memcached::udp::Split;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn datagrams_in_any_order_make_the_reply(
            bytes in 1usize..5000,
            datagram in 60usize..1500,
            order in any::<u64>(),
            doubles in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        ) {
            let reply: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 256) as u8).collect();
            let mut parts: Vec<_> = Split::new(1, bytes, datagram).unwrap().collect();
            let n = parts.len();
            doubles.iter().for_each(|at| parts.push(parts[at.index(n)].clone()));
            let mut random = crate::load::Random::new(order);
            (1..parts.len()).rev().for_each(|i| parts.swap(i, random.below(i as u64 + 1) as usize));
            let mut all = Assemblies::new(4, 5000);
            let index = all.take().unwrap();
            let mut whole = false;
            for (header, range) in parts {
                let (front, back) = reply[range.clone()].split_at(range.len() / 2);
                match all.add(index, &header, range.len(), [front, back].into_iter()) {
                    Progress::Whole => { prop_assert!(!whole); whole = true; }
                    Progress::Partial => {}
                    Progress::Nonsense => prop_assert!(false, "they fit together"),
                }
            }
            prop_assert!(whole);
            prop_assert_eq!(all.pieces(index).concat(), reply);
        }
    }

    #[test]
    fn contradictions_are_seen() {
        let mut all = Assemblies::new(1, 100);
        let index = all.take().unwrap();
        assert_eq!(all.take(), None);
        let add = |all: &mut Assemblies, sequence: u16, datagrams: u16, bytes: &[u8]| {
            let header = FrameHeader {
                sequence: sequence.into(),
                datagrams: datagrams.into(),
                ..FrameHeader::default()
            };
            all.add(index, &header, bytes.len(), [bytes].into_iter())
        };
        assert_eq!(add(&mut all, 0, 3, &[1; 40]), Progress::Partial);
        assert_eq!(add(&mut all, 1, 3, &[1; 41]), Progress::Nonsense, "another length");
        assert_eq!(add(&mut all, 1, 4, &[1; 40]), Progress::Nonsense, "another number");
        assert_eq!(add(&mut all, 3, 3, &[1; 40]), Progress::Nonsense, "beyond the last");
        assert_eq!(add(&mut all, 2, 3, &[1; 21]), Progress::Nonsense, "too long in all");
        assert_eq!(add(&mut all, 1, 3, &[]), Progress::Nonsense, "empty");
    }
}
