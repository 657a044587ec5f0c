//! Text and messages in buffers: written to the end, read in one piece.

use crate::memcached::Output;
use rdma_engine::buf::Buf;

/// Puts bytes behind a buffer's contents. What does not fit is noted, and nothing more is taken.
#[derive(Debug)]
pub struct BufOutput<'b, B> {
    buf: &'b mut B,
    overflowed: bool,
}

impl<'b, B: Buf> BufOutput<'b, B> {
    /// Puts behind what `buf` holds.
    pub fn new(buf: &'b mut B) -> Self {
        BufOutput { buf, overflowed: false }
    }

    /// True if everything had room.
    pub fn is_whole(&self) -> bool {
        !self.overflowed
    }
}

impl<B: Buf> Output for BufOutput<'_, B> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        match self.buf.append(bytes.len()).filter(|_| !self.overflowed) {
            Some(room) => room.copy_from_slice(bytes),
            None => self.overflowed = true,
        }
    }
}

/// The bytes of a message, gathered if they came in pieces.
pub fn contiguous<'m, B: Buf>(buf: &'m B, gathered: &'m mut Vec<u8>) -> &'m [u8] {
    if buf.first().len() == buf.len() {
        return buf.first();
    }
    gathered.clear();
    buf.segments().for_each(|segment| gathered.extend_from_slice(segment));
    gathered
}
