//! Where the payload of an arriving message goes: into the posted buffer, or the frames themselves are kept.
//!
//! A frame is kept when nobody shares it, when its payload reaches the copybreak and when it leaves the headroom that
//! the posted buffer had; the posted buffer then goes home. Frames of a longer message are chained, up to
//! [`MAX_CHAIN`]; what does not fit any more is copied into the posted buffer, with all that was kept before.

use crate::buf::{Buf, copy};
use std::ops::Range;

/// Frames kept for one message. Beyond it copying is cheaper than what the chain costs its reader.
const MAX_CHAIN: usize = 8;

/// The bytes of a message that have arrived so far.
#[derive(Debug)]
pub(crate) struct Landing<B> {
    /// Frames kept, trimmed to their payload; else all bytes are in the posted buffer's spare areas.
    kept: Option<B>,
    /// Bytes that have arrived.
    at: usize,
}

impl<B: Buf> Landing<B> {
    pub(crate) const fn new() -> Self {
        Landing { kept: None, at: 0 }
    }

    /// Forgets what has arrived; the posted buffer can be used again.
    pub(crate) fn reset(&mut self) {
        *self = Self::new();
    }

    /// Takes the payload of the next packet, which must fit `posted`.
    #[inline]
    pub(crate) fn land(&mut self, posted: &mut B, frame: B, payload: Range<usize>, copybreak: usize) {
        let len = payload.len();
        if len == 0 {
            return;
        }
        if len < copybreak {
            self.copy(posted, &frame.first()[payload]);
        } else if let Err(frame) = self.keep(posted, frame, &payload) {
            self.copy(posted, &frame.first()[payload]);
        }
        self.at += len;
    }

    /// Keeps the frame, or gives it back untouched.
    fn keep(&mut self, posted: &mut B, mut frame: B, payload: &Range<usize>) -> Result<(), B> {
        let first = self.at == 0;
        let chainable = self.kept.as_ref().is_some_and(|k| k.segment_count() < MAX_CHAIN);
        let headroom = frame.headroom() + payload.start;
        if !frame.is_unique() || !(chainable || first && headroom >= posted.headroom()) {
            return Err(frame);
        }
        frame.adj(payload.start);
        frame.truncate(payload.len());
        match &mut self.kept {
            Some(kept) => {
                if let Err(refused) = kept.chain(frame) {
                    self.copy(posted, refused.first());
                }
            }
            None => self.kept = Some(frame),
        }
        Ok(())
    }

    /// Copies `bytes` behind what has arrived, and first all that was kept.
    #[inline]
    fn copy(&mut self, posted: &mut B, bytes: &[u8]) {
        if self.kept.is_some() {
            self.copy_kept(posted);
        }
        if self.at == 0
            && let Some(area) = posted.spare().next().and_then(|area| area.get_mut(..bytes.len()))
        {
            return copy(area, bytes);
        }
        put(posted, self.at, bytes);
    }

    /// Copies all that was kept.
    fn copy_kept(&mut self, posted: &mut B) {
        let Some(kept) = self.kept.take() else { return };
        let mut at = 0;
        for segment in kept.segments() {
            put(posted, at, segment);
            at += segment.len();
        }
    }

    /// Room for `len` more bytes in `posted`?
    #[inline]
    pub(crate) fn fits(&self, posted: &B, len: usize) -> bool {
        len <= posted.room().saturating_sub(self.at)
    }

    /// The message: the kept frames, or `posted` with the bytes as its contents.
    #[inline]
    pub(crate) fn finish(&mut self, mut posted: B) -> B {
        let at = std::mem::take(&mut self.at);
        match self.kept.take() {
            Some(kept) => kept,
            None => {
                posted.filled(at);
                posted
            }
        }
    }
}

/// Copies `bytes` into the spare areas of `posted` from offset `at` on.
fn put<B: Buf>(posted: &mut B, mut at: usize, mut bytes: &[u8]) {
    for area in posted.spare() {
        if bytes.is_empty() {
            return;
        }
        if at >= area.len() {
            at -= area.len();
            continue;
        }
        let n = bytes.len().min(area.len() - at);
        let (now, later) = bytes.split_at(n);
        copy(&mut area[at..at + n], now);
        bytes = later;
        at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::Pool;
    use crate::heap::{HeapBuf, HeapPool};
    use proptest::prelude::*;

    fn frame(pool: &HeapPool, head: usize, payload: &[u8]) -> (HeapBuf, Range<usize>) {
        let mut buf = pool.alloc().unwrap();
        let range = head..head + payload.len();
        buf.append(range.end + 4).unwrap()[range.clone()].copy_from_slice(payload);
        (buf, range)
    }

    proptest! {
        #[test]
        fn what_lands_is_what_was_sent(
            packets in prop::collection::vec((0usize..40, any::<bool>()), 1..20),
            copybreak in 0usize..30,
            headroom in 0usize..400,
        ) {
            let (pool, small) = (HeapPool::new(100, 512), HeapPool::new(100, 64));
            let mut posted = small.alloc().unwrap();
            for _ in 0..15 {
                posted.chain(small.alloc().unwrap()).unwrap();
            }
            posted.reserve(headroom.min(100));
            let mut landing = Landing::new();
            let mut want = vec![];
            for (i, (len, shared)) in packets.into_iter().enumerate() {
                let payload: Vec<u8> = (0..len).map(|b| (b * 7 + i) as u8).collect();
                prop_assert!(landing.fits(&posted, len));
                let (frame, range) = frame(&pool, 58, &payload);
                let other = shared.then(|| pool.slice(&frame, 0, frame.len()));
                landing.land(&mut posted, frame, range, copybreak);
                drop(other);
                want.extend(payload);
            }
            prop_assert_eq!(landing.at, want.len());
            prop_assert_eq!(landing.finish(posted).to_vec(), want);
            prop_assert!(pool.is_full() && small.is_full());
        }
    }

    #[test]
    fn a_large_unshared_packet_is_not_copied() {
        let pool = HeapPool::new(10, 512);
        let mut posted = pool.alloc().unwrap();
        let mut landing = Landing::new();
        let (frame, range) = frame(&pool, 58, &[7; 300]);
        landing.land(&mut posted, frame, range, 256);
        let buf = landing.finish(posted);
        assert_eq!((buf.to_vec(), buf.headroom()), (vec![7; 300], 128 + 58));
        assert_eq!(pool.in_use(), 1, "the posted buffer went home");
    }
}
