//! The header of a relay message.
//!
//! ```text
//! 0        1        2        3        4
//! | version| kind   | frames          |
//! | generation                        |
//! | sequence of the message           |
//! | credits granted, cumulative       |
//! | frames sent before this message,  |
//! | cumulative (64 bits)              |
//! | length of frame 0 | of frame 1 ...|
//! ```
//! All fields are big-endian. The frames follow the lengths without padding.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of this layout.
pub const VERSION: u8 = 1;
/// Frames of one message at most.
pub const MAX_FRAMES: usize = 32;
/// Bytes of the fixed part.
pub const FIXED: usize = size_of::<Fixed>();
/// Bytes of the longest header: the headroom it needs.
pub const MAX_HEADER: usize = FIXED + 2 * MAX_FRAMES;

/// What a message is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Carries frames.
    Data = 1,
    /// Refreshes credits.
    Credit = 2,
    /// The last message of a queue pair: the totals are final.
    Close = 3,
    /// Asks for a [`Kind::Credit`]: those of an unreliable queue pair may be lost. Sent without a credit.
    Ask = 4,
}

/// The fixed part of a header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Fixed {
    version: u8,
    kind: u8,
    frames: U16,
    generation: U32,
    sequence: U32,
    credits: U32,
    frames_before: U64,
}

const _: () = assert!(FIXED == 24 && MAX_HEADER <= 128);

/// A header's meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What the message is for.
    pub kind: Kind,
    /// Frames in it.
    pub frames: u16,
    /// The connection it belongs to.
    pub generation: u32,
    /// Number of the message on its queue pair, from 0.
    pub sequence: u32,
    /// Messages the sender of this header is ready to receive, counted from the first one of the queue pair.
    pub credits: u32,
    /// Frames its sender put into earlier messages of the queue pair.
    pub frames_before: u64,
}

/// Why bytes are no relay message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// Bytes of a header with this many frames.
#[inline]
pub const fn header_len(frames: usize) -> usize {
    FIXED + 2 * frames
}

impl Header {
    /// Writes the header and `lengths` into `out`, which is exactly as long as both.
    ///
    /// # Panics
    /// If `out` has another length.
    #[inline]
    pub fn emit(&self, lengths: &[u16], out: &mut [u8]) {
        let fixed = Fixed {
            version: VERSION,
            kind: self.kind as u8,
            frames: U16::new(self.frames),
            generation: U32::new(self.generation),
            sequence: U32::new(self.sequence),
            credits: U32::new(self.credits),
            frames_before: U64::new(self.frames_before),
        };
        let (head, tail) = out.split_at_mut(FIXED);
        head.copy_from_slice(fixed.as_bytes());
        assert_eq!(tail.len(), 2 * lengths.len());
        for (bytes, length) in tail.chunks_exact_mut(2).zip(lengths) {
            bytes.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// Reads the header of a message of `total` bytes whose first bytes are `head` (the whole header is there, or the
    /// message is malformed); gives the frame lengths, which add up to what follows the header.
    pub fn parse(
        head: &[u8],
        total: usize,
    ) -> Result<(Header, arrayvec::ArrayVec<u16, MAX_FRAMES>), Malformed> {
        let (fixed, rest) = Fixed::read_from_prefix(head).map_err(|_| Malformed)?;
        let kind = match fixed.kind {
            1 => Kind::Data,
            2 => Kind::Credit,
            3 => Kind::Close,
            4 => Kind::Ask,
            _ => return Err(Malformed),
        };
        let frames = usize::from(fixed.frames.get());
        let empty = kind != Kind::Data;
        if fixed.version != VERSION || frames > MAX_FRAMES || empty != (frames == 0) {
            return Err(Malformed);
        }
        let table = rest.get(..2 * frames).ok_or(Malformed)?;
        let lengths: arrayvec::ArrayVec<u16, MAX_FRAMES> =
            table.chunks_exact(2).map(|b| u16::from_be_bytes([b[0], b[1]])).collect();
        let bytes: usize = lengths.iter().map(|l| usize::from(*l)).sum();
        if bytes + header_len(frames) != total || lengths.contains(&0) {
            return Err(Malformed);
        }
        let header = Header {
            kind,
            frames: fixed.frames.get(),
            generation: fixed.generation.get(),
            sequence: fixed.sequence.get(),
            credits: fixed.credits.get(),
            frames_before: fixed.frames_before.get(),
        };
        Ok((header, lengths))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(frames: u16) -> Header {
        let kind = if frames == 0 { Kind::Credit } else { Kind::Data };
        Header { kind, frames, generation: 7, sequence: 9, credits: 11, frames_before: 1 << 40 }
    }

    #[test]
    fn the_layout_is_this_one() {
        let mut out = [0; 26];
        header(1).emit(&[60], &mut out);
        let want = [1, 1, 0, 1, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 11, 0, 0, 1, 0, 0, 0, 0, 0, 0, 60];
        assert_eq!(out, want);
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(lengths in prop::collection::vec(1u16..9000, 0..=MAX_FRAMES)) {
            let h = header(lengths.len() as u16);
            let mut out = vec![0; header_len(lengths.len())];
            h.emit(&lengths, &mut out);
            let total = out.len() + lengths.iter().map(|l| usize::from(*l)).sum::<usize>();
            let (got, got_lengths) = Header::parse(&out, total).unwrap();
            prop_assert_eq!((got, got_lengths.as_slice()), (h, lengths.as_slice()));
            prop_assert!(Header::parse(&out, total + 1).is_err());
            prop_assert!(Header::parse(&out[..out.len() - 1], total).is_err());
        }

        #[test]
        fn any_bytes_are_a_message_or_malformed(mut bytes in prop::collection::vec(any::<u8>(), 0..120), total in 0usize..70_000) {
            if let Some(v) = bytes.first_mut() { *v = VERSION; }
            if let Ok((h, lengths)) = Header::parse(&bytes, total) {
                prop_assert_eq!(usize::from(h.frames), lengths.len());
            }
        }
    }
}
