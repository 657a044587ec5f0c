//! Bells: which queue pairs of a worker have something new.

use std::sync::atomic::{AtomicU64, Ordering};

/// One bit a slot, and one bit a word of them above. Anyone rings; the worker answers.
#[derive(Debug)]
pub(super) struct Bells {
    slots: Box<[AtomicU64]>,
    words: Box<[AtomicU64]>,
}

fn zeros(bits: usize) -> Box<[AtomicU64]> {
    (0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect()
}

/// Takes the set bits of a word out, lowest first.
fn drain(word: &AtomicU64, mut visit: impl FnMut(usize)) {
    if word.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut bits = word.swap(0, Ordering::Acquire);
    while bits != 0 {
        visit(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

impl Bells {
    /// Bells for `slots` queue pairs.
    pub(super) fn new(slots: usize) -> Self {
        Bells { slots: zeros(slots), words: zeros(slots.div_ceil(64)) }
    }

    /// What happened before is seen by whoever answers.
    #[inline]
    pub(super) fn ring(&self, slot: usize) {
        self.slots[slot / 64].fetch_or(1 << (slot % 64), Ordering::Release);
        self.words[slot / 4096].fetch_or(1 << (slot / 64 % 64), Ordering::Release);
    }

    /// Answers all bells: each slot once, however often it was rung.
    #[inline]
    pub(super) fn answer(&self, mut visit: impl FnMut(usize)) {
        for (i, word) in self.words.iter().enumerate() {
            drain(word, |j| {
                let k = i * 64 + j;
                drain(&self.slots[k], |bit| visit(k * 64 + bit));
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rung_bell_is_answered_once() {
        let bells = Bells::new(65_536);
        let rung = [0, 1, 63, 64, 4095, 4096, 65_535];
        rung.into_iter().chain([64]).for_each(|slot| bells.ring(slot));
        let mut heard = vec![];
        bells.answer(|slot| heard.push(slot));
        assert_eq!(heard, rung);
        bells.answer(|slot| panic!("{slot} was answered before"));
    }
}
