//! A flow: the requests of one queue pair in one direction, and the oracle of what each of them must have done.
//!
//! Every flow has an area of the peer's memory to itself. Requests of a reliable connection are executed in order and
//! exactly once, so the oracle executes them when they are posted and knows every result: the bytes of a READ, the
//! value before an atomic, the next message to arrive. Only a READ may also see WRITEs posted after it, unless a fence
//! holds them back.

use super::rng::Rng;
use crate::wr::{OpKind, Status};

/// Words of a flow's area, at its start.
pub const WORDS: usize = 4;
/// Where the bytes of the area begin.
const BYTES_AT: usize = WORDS * 8;

/// What a request does, in terms of its flow.
#[derive(Clone, Debug)]
pub enum Deed {
    /// SEND, with an immediate, or invalidating a key, or with neither.
    Send {
        /// The immediate.
        imm: Option<u32>,
        /// Which of the peer's keys.
        key: Option<usize>,
    },
    /// READ by a wrong key, or WRITE beyond the end: the peer must refuse it.
    Refused {
        /// READ.
        reads: bool,
    },
    /// WRITE to `at` of the area.
    Write {
        /// Offset in the area.
        at: usize,
        /// The immediate.
        imm: Option<u32>,
    },
    /// READ from `at` of the area.
    Read {
        /// Offset in the area.
        at: usize,
        /// What the area held when it was posted.
        snapshot: Vec<u8>,
    },
    /// FETCH_ADD or COMPARE_SWAP on a word of the area.
    Atomic {
        /// The word.
        word: usize,
        /// Value before.
        original: u64,
        /// `None` for FETCH_ADD: the value added; else compared and swapped.
        compare: Option<u64>,
        /// Added, or swapped in.
        operand: u64,
    },
    /// FETCH_ADD on a word that all flows share.
    Shared {
        /// The word.
        word: usize,
        /// Value added.
        add: u64,
    },
}

/// A request as it was posted.
#[derive(Clone, Debug)]
pub struct Request {
    /// What it does.
    pub deed: Deed,
    /// Bytes of the message.
    pub len: usize,
    /// It waits for earlier READs and atomics.
    pub fence: bool,
}

impl Request {
    /// The kind its completion must have.
    pub fn kind(&self) -> OpKind {
        match self.deed {
            Deed::Send { .. } => OpKind::Send,
            Deed::Write { .. } => OpKind::Write,
            Deed::Read { .. } | Deed::Refused { reads: true } => OpKind::Read,
            Deed::Refused { reads: false } => OpKind::Write,
            Deed::Atomic { compare: Some(_), .. } => OpKind::CompareSwap,
            Deed::Atomic { .. } | Deed::Shared { .. } => OpKind::FetchAdd,
        }
    }

    /// The immediate it carries; such requests and SENDs take a receive.
    pub fn imm(&self) -> Option<u32> {
        match self.deed {
            Deed::Send { imm, .. } | Deed::Write { imm, .. } => imm,
            _ => None,
        }
    }

    /// True if the peer is told of it.
    pub fn arrives(&self) -> bool {
        matches!(self.deed, Deed::Send { .. }) || self.imm().is_some()
    }
}

/// The requests of one direction of one pair.
#[derive(Debug)]
pub struct Flow {
    /// Number of the flow, for its payloads.
    pub number: u64,
    /// All requests, in the order posted.
    pub requests: Vec<Request>,
    /// How many of them completed.
    pub completed: usize,
    /// Requests before this one have arrived, as far as they do.
    pub arrived: usize,
    /// The first error, and the request it hit.
    pub failed: Option<(usize, Status)>,
    /// Results of atomics on shared words: word, value before, value added.
    pub shared: Vec<(usize, u64, u64)>,
    /// Some of those are missing, because an earlier flow of the same pair failed.
    pub shared_unsure: bool,
    /// Keys of the peer that were invalidated.
    keys: usize,
    /// The area after all requests posted.
    model: Vec<u8>,
}

/// Byte `at` of the payload of request `index` in flow `number`.
pub fn payload_byte(number: u64, index: usize, at: usize) -> u8 {
    payload(number, index, at & !7)[at & 7]
}

/// The eight bytes of a payload from `at` on, a multiple of 8.
fn payload(number: u64, index: usize, at: usize) -> [u8; 8] {
    let mixed = (number << 32 ^ (index as u64) << 16 ^ at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).to_be_bytes()
}

impl Flow {
    /// An empty flow with so many bytes of the peer's memory.
    pub fn new(number: u64, area: usize) -> Self {
        Flow {
            number,
            requests: vec![],
            completed: 0,
            arrived: 0,
            failed: None,
            shared: vec![],
            shared_unsure: false,
            keys: 0,
            model: vec![0; area],
        }
    }

    /// An empty flow of the pair that takes the place of `before`, of which all `keys` count as used.
    pub fn after(before: Flow, area: usize, keys: usize) -> Self {
        Flow {
            shared_unsure: before.shared_unsure || before.failed.is_some(),
            shared: before.shared,
            keys,
            ..Flow::new(before.number + 100, area)
        }
    }

    /// The payload of request `index`.
    pub fn payload(&self, index: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.requests[index].len];
        self.write_payload(index, &mut bytes);
        bytes
    }

    fn write_payload(&self, index: usize, out: &mut [u8]) {
        for (chunk, at) in out.chunks_mut(8).zip((0..).step_by(8)) {
            chunk.copy_from_slice(&payload(self.number, index, at)[..chunk.len()]);
        }
    }

    /// Makes up a reliable request and executes it in the model.
    pub fn invent_reliable(
        &mut self,
        rng: &mut Rng,
        longest: u32,
        shared_words: usize,
        keys: usize,
    ) -> &Request {
        let len = length(rng, longest);
        let imm = rng.chance(300_000).then_some(self.requests.len() as u32);
        let at = BYTES_AT + rng.below((self.model.len() - BYTES_AT - len + 1) as u64) as usize;
        let deed = match rng.below(10) {
            0..=2 => {
                let key = (imm.is_none() && self.keys < keys && rng.chance(300_000)).then_some(self.keys);
                self.keys += usize::from(key.is_some());
                Deed::Send { imm, key }
            }
            3..=5 => Deed::Write { at, imm },
            6 | 7 => Deed::Read { at, snapshot: self.model[at..at + len].to_vec() },
            8 => self.invent_atomic(rng),
            _ => Deed::Shared { word: rng.below(shared_words as u64) as usize, add: rng.within(1, 1000) },
        };
        self.push(Request { deed, len, fence: rng.chance(100_000) })
    }

    /// Makes up a request that the peer must refuse.
    pub fn invent_refused(&mut self, rng: &mut Rng) -> &Request {
        let deed = Deed::Refused { reads: rng.chance(500_000) };
        self.push(Request { deed, len: rng.within(5, 64) as usize, fence: false })
    }

    /// Makes up an unreliable request.
    pub fn invent_unreliable(&mut self, rng: &mut Rng, longest: u32, writes: bool) -> &Request {
        let len = length(rng, longest).max(8);
        let index = self.requests.len();
        let slots = (self.model.len() - BYTES_AT) / (longest as usize).max(8);
        let at = BYTES_AT + index % slots * (longest as usize).max(8);
        let imm = Some(index as u32);
        let deed = match rng.below(4) {
            0 if writes => Deed::Write { at, imm },
            1 if writes => Deed::Write { at, imm: None },
            2 => Deed::Send { imm, key: None },
            _ => Deed::Send { imm: None, key: None },
        };
        self.push(Request { deed, len, fence: false })
    }

    fn invent_atomic(&mut self, rng: &mut Rng) -> Deed {
        let word = rng.below(WORDS as u64) as usize;
        let original = self.word(word);
        let operand = rng.bits();
        let compare = match rng.below(3) {
            0 => None,
            1 => Some(original),
            _ => Some(original ^ 1),
        };
        let after = match compare {
            None => original.wrapping_add(operand),
            Some(c) if c == original => operand,
            Some(_) => original,
        };
        self.model[word * 8..word * 8 + 8].copy_from_slice(&after.to_ne_bytes());
        Deed::Atomic { word, original, compare, operand }
    }

    fn word(&self, word: usize) -> u64 {
        self.model[word * 8..].first_chunk().map_or(0, |b| u64::from_ne_bytes(*b))
    }

    fn push(&mut self, mut request: Request) -> &Request {
        let index = self.requests.len();
        if matches!(request.deed, Deed::Atomic { .. } | Deed::Shared { .. }) {
            request.len = 8;
        }
        let written =
            if let Deed::Write { at, .. } = request.deed { Some(at..at + request.len) } else { None };
        self.requests.push(request);
        if let Some(range) = written {
            let payload = self.payload(index);
            self.model[range].copy_from_slice(&payload);
        }
        &self.requests[index]
    }

    /// What is wrong with the bytes that a READ or an atomic brought.
    pub fn wrong_result(&mut self, index: usize, bytes: &[u8]) -> Option<String> {
        let request = &self.requests[index];
        match &request.deed {
            Deed::Read { at, snapshot } => self.wrong_read(index, *at, snapshot, bytes),
            Deed::Atomic { original, .. } => {
                let wrong = bytes != original.to_ne_bytes();
                wrong.then(|| format!("atomic {index} found {bytes:02x?}, not {original:#x}"))
            }
            &Deed::Shared { word, add } => match bytes.first_chunk::<8>() {
                Some(b) if bytes.len() == 8 => {
                    self.shared.push((word, u64::from_ne_bytes(*b), add));
                    None
                }
                _ => Some(format!("atomic {index} brought {} bytes", bytes.len())),
            },
            _ => None,
        }
    }

    fn wrong_read(&self, index: usize, at: usize, snapshot: &[u8], bytes: &[u8]) -> Option<String> {
        if bytes.len() != snapshot.len() {
            return Some(format!("READ {index} brought {} of {} bytes", bytes.len(), snapshot.len()));
        }
        if bytes == snapshot {
            return None;
        }
        let wrong = (0..bytes.len())
            .find(|&i| bytes[i] != snapshot[i] && !self.written_later(index + 1, at + i, bytes[i], true))?;
        Some(format!("READ {index} byte {wrong}: {:#x}, not {:#x}", bytes[wrong], snapshot[wrong]))
    }

    /// True if a request from `from` on writes `byte` to `at` of the area; fences stop the search if they count.
    fn written_later(&self, from: usize, at: usize, byte: u8, fences: bool) -> bool {
        for (index, request) in self.requests.iter().enumerate().skip(from) {
            if request.fence && fences {
                return false;
            }
            if let Deed::Write { at: start, .. } = request.deed
                && (start..start + request.len).contains(&at)
                && payload_byte(self.number, index, at - start) == byte
            {
                return true;
            }
        }
        false
    }

    /// What is wrong with the area at the end. Requests that did not complete may or may not have been executed.
    pub fn wrong_memory(&self, memory: &[u8]) -> Option<String> {
        let sure = self.failed.map_or(self.requests.len(), |(index, _)| index);
        let before = self.model_after(sure);
        let start = if sure < self.requests.len() { BYTES_AT } else { 0 };
        if memory[start..] == before[start..] {
            return None;
        }
        let wrong = (start..self.model.len())
            .find(|&at| memory[at] != before[at] && !self.written_later(sure, at, memory[at], false))?;
        Some(format!("byte {wrong} of the area is {:#x}, not {:#x}", memory[wrong], before[wrong]))
    }

    /// The area after the first `count` requests; words are only right if that is all of them.
    fn model_after(&self, count: usize) -> Vec<u8> {
        if count == self.requests.len() {
            return self.model.clone();
        }
        let mut area = vec![0; self.model.len()];
        for (index, request) in self.requests.iter().enumerate().take(count) {
            if let Deed::Write { at, .. } = request.deed {
                self.write_payload(index, &mut area[at..at + request.len]);
            }
        }
        area
    }

    /// For unreliable WRITEs: bytes that no request from `from` on, nor the one before, can have written.
    pub fn wrong_unreliable_write(&self, index: usize, memory: &[u8]) -> Option<String> {
        let Deed::Write { at, .. } = self.requests[index].deed else { return None };
        let wrong =
            (at..at + self.requests[index].len).find(|&a| !self.written_later(index, a, memory[a], false))?;
        Some(format!("WRITE {index} was reported, but byte {wrong} of the area is {:#x}", memory[wrong]))
    }
}

/// Lengths: often 0, 1, or near a limit.
fn length(rng: &mut Rng, longest: u32) -> usize {
    let longest = u64::from(longest);
    let len = match rng.below(8) {
        0 => 0,
        1 => rng.below(9),
        2 => longest,
        3 => 256 * rng.below(longest / 256 + 1),
        _ => rng.below(longest + 1),
    };
    len as usize
}
